"""What kohya's trainers find out last: files beside the model, the optimizer, the schedule, the output folder."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...doctor.families.part_files import other_files
from ...doctor.model import Config, DatasetFolder, Entry, Files, Finding, Run, Schema, found
from ...doctor.model.facts import MOST_CHILDREN
from ...doctor.model.paths import PLACEHOLDER
from ...doctor.rules import NotApplicable, prevents, rule
from ..dataset import some_unreadable
from ..keys.misspelled import meant, words
from ..keys.values import bad
from ..paths import unless_elsewhere
from . import TRAINERS, trains

_TORCH = words("""
    ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax LBFGS Muon NAdam RAdam RMSprop Rprop SGD SparseAdam
    """)
# transformers 4.54 to 5, diffusers' piecewise_constant
_SCHEDULES = words("""
    linear cosine cosine_with_restarts polynomial constant constant_with_warmup inverse_sqrt reduce_lr_on_plateau
    cosine_with_min_lr cosine_warmup_with_min_lr warmup_stable_decay piecewise_constant greedy
    """)
# a process's own, and those of DeepSpeed and FSDP
_STATE = re.compile(
    r"pytorch_model|model(_\d+)?\.safetensors$|optimizer(_\d+)?(\.bin)?$|distributed_checkpoint|.*\.distcp$"
)
_LATE = "after the model was loaded and all was cached, with "
_NO_OPTIMIZER = _LATE + "AttributeError: module 'torch.optim' has no attribute '{value}'"
_NO_SCHEDULE = _LATE + "ValueError: '{value}' is not a valid SchedulerType"


@rule("KOH011", "error", "no-output-folder", trainers=TRAINERS)
@prevents("TypeError", r"expected str, bytes or os\.PathLike object, not NoneType")
def no_output_folder(config: Config, run: Run) -> Iterator[Finding]:
    """Nowhere to write the LoRA.

    What: --output_dir is not given.
    Why: Neither trainer asks for it. The folder is made at the first save, which without --save_every_n_epochs or
    --save_every_n_steps is the end of the training, and nothing of it is kept.
    Repair: --output_dir FOLDER
    Upstream: sd-scripts train_network.py save_model (48d368fa); musubi-tuner training/trainer_base.py (30c658c4)
    Signature: TypeError: expected str, bytes or os.PathLike object, not NoneType
    """
    if not trains(run) or config.format != "shell":
        raise NotApplicable
    if run.output_folder is None:
        yield found(
            run.where("output_dir"),
            "--output_dir is not given: {trainer} has nowhere to write what it trained.",
            otherwise="The run ends at its first save with TypeError: expected str, bytes or os.PathLike object, not "
            "NoneType, and the training is lost.",
            trainer=run.trainer,
        )


_IN_FILE = "{text}, the {option} of a dataset, does not exist."


@rule("KOH012", "error", "missing-file-beside-the-model", trainers=TRAINERS)
@prevents("FileNotFoundError", r"No such file or directory: .*\.(txt|json|toml|safetensors)")
@prevents("UnboundLocalError", r"local variable 'prompts'")
@prevents("ValueError", r"Tried to find \S+ but folder does not exist")
def missing_file_beside_the_model(run: Run, files: Files, elsewhere: str) -> Iterator[Finding]:
    """A settings or dataset file, prompts, weights or a saved state that are not there.

    What: The file of --config_file, --dataset_config, --in_json, --sample_prompts, --network_weights or
    --base_weights, or the folder of --resume does not exist, or what --resume names is a file or a folder without a
    saved state; or the prompts are in a file that ends in none of .txt, .toml and .json. Or a dataset names a list of
    its pictures (image_jsonl_file, video_jsonl_file, metadata_file) or a control_directory that is not there.
    Why: They are opened when they are needed: the prompts after the captions were encoded, the weights after the
    whole model was loaded, the state after everything was prepared.
    Repair: Name the file, or leave the option out.
    Upstream: sd-scripts library/train_util.py load_prompts, train_network.py (48d368fa)
    Signature: FileNotFoundError: [Errno 2] No such file or directory; UnboundLocalError: … 'prompts'
    """
    for option, text in other_files(run):
        entry = files.at(text)
        if entry is None or entry.kind == "denied" or not (trains(run) or option.startswith("dataset")):
            continue
        of_datasets = option.startswith("dataset")
        missing = entry.is_gone or option in ("config_file", "dataset_config")
        if missing and PLACEHOLDER.search(text):
            message = "{text} is a placeholder: put in the real path."
            if not of_datasets:
                message = "{text} is a placeholder: put in the real path, or leave --{option} out."
        elif missing:
            message = "{text}, which --{option} names, does not exist." if "/" not in option else _IN_FILE
        elif option == "sample_prompts" and not text.endswith((".txt", ".toml", ".json")):
            message = "{text} ends in none of .txt, .toml and .json, the files that prompts are read from."
        elif option == "resume" and _holds_no_state(entry):
            message = "{text} holds no saved state. That is the folder NAME-state that save_state makes, with "
            message += "optimizer.bin in it; a LoRA file goes on by --network_weights."
        else:
            continue
        told = found(
            run.where(option),
            message,
            otherwise="The trainer stops at once."
            if of_datasets or option in ("config_file", "in_json")
            else "The run ends when it opens it, after the model was loaded.",
            evidence={"option": option.rpartition("/")[2]},
            text=text,
        )
        yield unless_elsewhere(told, entry, elsewhere)


def _holds_no_state(entry: Entry) -> bool:
    """Whether accelerate finds neither a model's state there nor an optimizer's, by the names that it knows."""
    if entry.kind != "folder":
        return entry.kind == "file"
    return len(entry.children) < MOST_CHILDREN and not any(_STATE.match(name) for name in entry.children)


@rule("KOH013", "error", "unknown-optimizer-or-schedule", trainers=TRAINERS)
@prevents("AttributeError", r"module 'torch\.optim' has no attribute")
@prevents("ValueError", r"is not a valid SchedulerType")
def unknown_optimizer_or_schedule(config: Config, run: Run, schema: Schema) -> Iterator[Finding]:
    """An optimizer or a schedule that does not exist.

    What: A name that the trainer has no case for is looked up in torch.optim, letter by letter; a schedule in the
    list of transformers. A name with a dot is a module of its own and is not judged. musubi-tuner has no default
    optimizer at all. Which names it has a case for, and whether a fork has a default, is read from the checkout at
    hand.
    Why: Both are looked up after the model was loaded, quantized and everything was cached.
    Repair: The near name.
    Upstream: sd-scripts library/train_util.py get_optimizer, get_scheduler_fix (48d368fa); musubi-tuner
    training/trainer_base.py (30c658c4)
    Signature: AttributeError: module 'torch.optim' has no attribute '…'; ValueError: '…' is not a valid SchedulerType
    """
    if not trains(run):
        raise NotApplicable
    name, schedule = run.setting("optimizer_type"), run.setting("lr_scheduler")
    known = schema.key("optimizer_type", run.process_type)
    defaults = run.trainer != "musubi-tuner" or (known is not None and known.default)
    if name is None and not defaults and run.process_type and config.format != "toml":
        why = "--{key} is not given, and {trainer} has no default."
        yield bad(run, "optimizer_type", why, _NO_OPTIMIZER, new="AdamW8bit", trainer=run.trainer)
    elif isinstance(name, str) and "." not in name:
        yield from _unknown(run, schema, "optimizer_type", _TORCH, _NO_OPTIMIZER)
    named = run.setting("lr_scheduler_type") in (None, "") and isinstance(schedule, str)
    if named and not schedule.startswith("adafactor") and not run.recipe.optimizer.name.endswith("schedulefree"):
        yield from _unknown(run, schema, "lr_scheduler", _SCHEDULES, _NO_SCHEDULE)


def _unknown(run: Run, schema: Schema, key: str, of_library: frozenset[str], when: str) -> Iterator[Finding]:
    """A name that neither the library has, letter by letter, nor the trainer, in any case."""
    name, own = run.settings[key].value, schema.choices(key)
    if not name or name in of_library or name.lower() in map(str.lower, own):
        return
    new, likely = meant(name, of_library | own)
    why = "{key} is {value}, which {trainer} does not know."
    yield bad(run, key, why, when, new=new, likely=likely, unsure=not schema.source, trainer=run.trainer)


@rule("KOH014", "error", "unreadable-training-pictures", trainers=TRAINERS)
@prevents("PIL.UnidentifiedImageError", r"cannot identify image file")
@prevents("OSError", r"image file is truncated")
def unreadable_training_pictures(run: Run, datasets: tuple[DatasetFolder, ...]) -> Iterator[Finding]:
    """A picture that cannot be opened ends the run.

    What: Files with the name of a picture that are empty, cut off, a web page, a Git LFS pointer or a picture of
    another kind. Headers and ends are looked at, the pixels in between are not.
    Why: sd-scripts opens each picture when it caches its latents, after the model was loaded, and stops at the first
    that fails; musubi-tuner does so in its caching script.
    Repair: Fetch or convert these pictures again, or take them out.
    Upstream: sd-scripts library/train_util.py load_image (48d368fa); musubi-tuner dataset/datasources.py (30c658c4)
    Signature: Error loading file: …; PIL.UnidentifiedImageError: cannot identify image file
    """
    otherwise = "The script that caches the latents ends there."
    if run.trainer == "sd-scripts":
        otherwise = "The run ends when it reads that picture, after the model was loaded."
    yield from some_unreadable(run, datasets, otherwise)
