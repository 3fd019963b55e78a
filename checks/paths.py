"""Paths: what must be writable, what must be a file, what must exist."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.families import family_of
from ..doctor.model import Entry, Files, Finding, Run, System, Unknown, WritePlace, Writes, found
from ..doctor.model.paths import DRIVE, PLACEHOLDER
from ..doctor.model.record import replace
from ..doctor.model.said import listed
from ..doctor.model.trainer import RUNNER
from ..doctor.rules import Unestablished, prevents, rule
from ..doctor.trainers import trainer_of
from .keys.values import ends

_READ_ONLY = "The run ends with an OSError {phase}, after the model was loaded."
_NO_FILE = "The run ends when it opens the folder, after the transformer was loaded "
_NO_FILE += "(on Linux with OSError: No such device, os error 19)."


@rule("PTH001", "error", "read-only-path")
@prevents("OSError", r"Read-only file system")
@prevents("PermissionError", r"Permission denied")
def read_only_path(run: Run, writes: Writes) -> Iterator[Finding]:
    """A folder that the run will write to refuses to be written.

    What: ai-toolkit writes into the dataset folder itself: `.aitk_size.json` at every start, `_t_e_cache` when text
    embeddings are cached, `_latent_cache` when latents are cached to disk, `_controls` when control images are made.
    On a read-only mount (`/kaggle/input`, a network share) the first of these ends the run.
    Why: The write happens after the model was downloaded and loaded, so the minutes are spent first.
    Repair: A writable mirror: a folder of links to every file of the dataset, with folder_path pointed at it. The
    caches then land in the mirror, and the dataset stays untouched. Guarding only `.aitk_size.json` in the trainer's
    source, as circulating patches do, is not enough: the next write to `_t_e_cache` fails the same way. Of a folder
    that may not even be read there is no mirror; the command is shown that its owner can type.
    Upstream: ai-toolkit toolkit/data_loader.py, toolkit/dataloader_mixins.py (27a03a91).
    Signature: OSError: [Errno 30] Read-only file system: '…/.aitk_size.json'
    """
    refused: dict[tuple[str, str, str], list[WritePlace]] = {}
    for place in writes.places:
        if isinstance(place.refusal, str):
            refused.setdefault((place.key, place.folder, place.refusal), []).append(place)
    open_questions = [place.refusal.reason for place in writes.places if isinstance(place.refusal, Unknown)]
    if open_questions and not refused:
        raise Unestablished(open_questions[0])
    for (key, folder, refusal), places in refused.items():
        yield found(
            run.where(key),
            "{trainer} writes {what} into {folder}: {refusal}.",
            otherwise=ends(run, _READ_ONLY, "The run ends at its start."),
            evidence={"writes": [place.what for place in places], "refusal": refusal},
            trainer=run.trainer,
            what=listed(place.what for place in places),
            folder=folder,
            phase=places[0].phase,
            key=key,
        )


@rule("PTH003", "error", "adapter-path-is-directory", trainers=("ai-toolkit", RUNNER))
@prevents("OSError", r"No such device \(os error 19\)")
@prevents("ValueError", r"is not a valid local path or hub path")
def adapter_path_is_directory(run: Run, files: Files) -> Iterator[Finding]:
    """An adapter path names a folder or a repository where the trainer opens a file.

    What: `name_or_path` is a folder, but `assistant_lora_path` is handed to a function that opens one safetensors
    file. A folder passes the trainer's "does it exist" test and then fails as a file. For Z-Image a hub address needs
    three parts (`org/repo/file.safetensors`); two parts, which Flux accepts, are refused.
    Why: The adapter is opened after the whole transformer was loaded.
    Repair: Name the file. When the folder holds exactly one .safetensors file there is nothing to choose.
    Upstream: https://github.com/ostris/ai-toolkit/issues/836
    Signature: OSError: No such device (os error 19) — on Windows: FileNotFoundError
    """
    adapter, family = run.recipe.adapter, family_of(run.recipe.architecture)
    entry = files.at(adapter)
    if adapter is None or entry is None:
        return
    if entry.kind == "denied":
        raise Unestablished(f"{entry.path} could not be looked at")
    if entry.kind == "folder":
        weights = [name for name in entry.children if name.lower().endswith(".safetensors")]
        yield found(
            run.where("adapter"),
            "{adapter} is a folder; {trainer} opens it as one safetensors file." + _inside(weights),
            otherwise=ends(run, _NO_FILE),
            evidence={"safetensors_inside": weights},
            adapter=adapter,
            trainer=run.trainer,
            count=len(weights),
            names=", ".join(weights[:3]),
            candidates=weights,
        )
    elif entry.kind == "missing" and _is_repo(adapter) and not (run.by_runner or family.ai_toolkit.adapter_repo):
        published = family.distilled.adapter if family.distilled is not None else ""
        yield found(
            run.where("adapter"),
            "{adapter} names a repository; for {architecture} the trainer needs org/repo/file.safetensors.",
            otherwise="The run ends with ValueError: Assistant LoRA path … is not a valid local path or hub path, "
            "after the transformer was loaded.",
            adapter=adapter,
            architecture=family.title,
            candidates=[],
            suggestion=published if published.startswith(f"{adapter}/") else None,
        )


@rule("PTH004", "error", "missing-path")
@prevents("FileNotFoundError", r"No such file or directory")
@prevents("FileNotFoundError", r"The following dataset directories do not exist:")
@prevents("HFValidationError", r"Repo id must")
@prevents("ValueError", r"is not a local file or a hub file reference|Failed to download assistant LoRA from")
@prevents("OSError", r"couldn't connect to 'https://huggingface\.co'.*looks like (/|[A-Za-z]:\S|\.|~)")
def missing_path(run: Run, files: Files, elsewhere: str, system: System) -> Iterator[Finding]:
    """A path of the config that does not exist.

    What: The base model, the adapter or a dataset folder is not where the config says, or a file is where
    SimpleTuner, sd-scripts or musubi-tuner look for the folder (for ai-toolkit DAT001 tells). `~` and `%VAR%` are not
    expanded by ai-toolkit, and a path that does not exist is taken for a hub repository or for a JSON file, so the
    message in the trainer speaks of something else.
    Why: Paths are opened one after the other, the dataset last, after model loading and quantization.
    Repair: Write the path that exists; placeholders such as /path/to/images are said to be placeholders.
    Signature: FileNotFoundError: [Errno 2] No such file or directory: '…'
    """
    recipe, trainer = run.recipe, trainer_of(run.trainer)
    wanted = [("base_model", recipe.base_model, "the base model"), ("adapter", recipe.adapter, "the adapter")]
    if trainer.component_files or recipe.parts:  # each file of the model is another rule's
        wanted = wanted[1:]
    wanted += [(f"{dataset.key}/folder_path", dataset.folder, "the dataset folder") for dataset in recipe.datasets]
    seen = [(key, text, what, entry) for key, text, what in wanted if text and (entry := files.at(text)) is not None]
    hidden = [entry.path for *_, entry in seen if entry.kind == "denied"]
    if hidden and not any(entry.is_gone for *_, entry in seen):
        raise Unestablished(f"{hidden[0]} could not be looked at")
    for key, text, what, entry in seen:
        is_data = key.endswith("/folder_path")
        no_folder = is_data and entry.kind == "file" and not trainer.datasets_are_folders
        if not entry.is_gone and not no_folder:
            continue
        if not is_data and not looks_local(text):
            continue
        if no_folder:
            message = "{text} is a file; it should be {what}."
        elif text.startswith("~") and entry.kind != "dangling" and not PLACEHOLDER.search(text):
            message = "{text} does not exist: {trainer} does not expand ~. Write {home} in its place."
        else:
            message = not_there(text, entry.kind, system.os)
        told = found(
            run.where(key),
            message,
            otherwise=_otherwise(run.trainer, is_data, text),
            evidence={"looked_at": entry.path},
            text=text,
            what=what,
            trainer=run.trainer,
            home=system.home,
            os=system.os,
            key=key,
        )
        yield unless_elsewhere(told, entry, elsewhere)


def unless_elsewhere(told: Finding, entry: Entry, elsewhere: str) -> Finding:
    """What is said of a path that leads nowhere; a warning where it may lead somewhere when the run is started."""
    if entry.kind != "missing" or PLACEHOLDER.search(str(told.args.get("text"))):
        return told
    if entry.seen_from:
        otherwise = told.otherwise + " Not so where it is started in {above}: from there it leads somewhere."
    elif elsewhere:
        otherwise = told.otherwise + " But the config is for another machine."
    else:
        return told
    args = {**told.args, "above": entry.seen_from}
    return replace(told, severity="warning", otherwise=otherwise, args=args)


def not_there(text: str, kind: str, os: str) -> str:
    """The template, over `text`, `what` and `os`, for a path that leads nowhere."""
    if PLACEHOLDER.search(text):
        return "{text} is a placeholder: put in the real path of {what}."
    if kind == "dangling":
        return "{text} is a link to something that is gone; {what} cannot be opened."
    if DRIVE.match(text) and os != "windows":
        return "{text} is a Windows path, but this machine is {os}: {what} is not here."
    return "{text} does not exist; it should be {what}."


def looks_local(text: str) -> bool:
    """Whether a model reference can only be meant as a path: a hub id has one slash and no path signs."""
    return (
        text.startswith(("/", "./", "../", "~", ".\\", "..\\"))
        or "\\" in text
        or bool(DRIVE.match(text))
        or text.count("/") > 2
        or bool(PLACEHOLDER.search(text))
    )


def _is_repo(text: str) -> bool:
    return text.count("/") == 1 and not looks_local(text)


def _inside(weights: list[str]) -> str:
    """The second sentence of PTH003, a template over `count` and the first three `names`."""
    if not weights:
        return " It holds no .safetensors file."
    if len(weights) == 1:
        return " The file in it is {names}."
    return " It holds {count}: {names}." if len(weights) <= 3 else " It holds {count}: {names}, …"


def _otherwise(trainer: str, is_data: bool, text: str) -> str:
    if trainer != "ai-toolkit":
        if is_data and trainer == "sd-scripts":
            return "The trainer passes over it; with no pictures elsewhere it ends without an error, exit code 0."
        what = "reads the dataset" if is_data else "opens it"
        return f"The trainer stops when it {what}."
    if is_data:
        return "The trainer takes it for a JSON file and ends with FileNotFoundError, after the model was loaded."
    if looks_local(text) and not text.endswith(".safetensors"):
        return "The trainer takes it for a hub repository: HFValidationError, or a download that was not meant."
    return "The trainer ends with a ValueError, after the transformer was loaded."
