"""The LoRA that a training starts from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...doctor.families import family_of, loader_of
from ...doctor.model import Finding, ModelFolder, Run, Tensor, WeightFile, found
from ...doctor.model.pattern import pattern
from ...doctor.model.remains import EarlierSave
from ...doctor.model.start import Start, misfit
from ...doctor.model.trainer import RUNNER
from ...doctor.rules import Unestablished, prevents, rule
from ..model.contents import contents
from ..model.files import PROBLEMS

_KEY = "network/pretrained_lora_path"
_PART = pattern(r"^[a-z_]+\.(.+)\.lora_(?:(A|down)|B|up)\.weight$")


@rule("MDL006", "warning", "starting-lora-not-read", trainers=("ai-toolkit",))
@prevents("IsADirectoryError", r"Is a directory")
def starting_lora_not_read(
    run: Run, starting_lora: WeightFile | None, earlier: EarlierSave | None
) -> Iterator[Finding]:
    """A LoRA to start from of which the trainer takes nothing.

    What: The file behind network/pretrained_lora_path does not exist, is a folder, is damaged, or holds no tensor
    under a name that this architecture's LoRA has. Where a save of the run itself lies, that is taken instead, and
    nothing is said here.
    Why: ai-toolkit prints that the file does not exist and goes on. It takes tensors by name, prints all others in
    one long line as "Missing keys", and goes on too. The training then starts from zero. `zdoctor train` does not
    start on such a file, and says so before it reads the dataset.
    Repair: Name a LoRA that was trained with ai-toolkit for the same model; files of other trainers
    (lora_unet_…, lora_transformer_…) have to be converted first.
    Upstream: toolkit/network_mixins.py (load_weights), jobs/process/BaseSDTrainProcess.py (get_latest_save_path)
    Signature: Pretrained lora path from config does not exist; Missing keys: ['…']
    """
    if starting_lora is None or not _is_read(run, earlier):
        return
    place, path = run.where(_KEY), starting_lora.path
    zero = "The training starts from zero, without an error."
    if starting_lora.problem:
        missing = starting_lora.problem == "missing"
        yield found(
            place,
            _closed(starting_lora, _NO_FILE, "pickle"),
            otherwise=zero if missing else "Opening it fails, after the whole model has been loaded.",
            severity=None if missing else "error",
            path=path,
            problem=PROBLEMS.get(starting_lora.problem),
            detail=starting_lora.detail,
        )
        return
    names = _names(run)
    if any(re.match(names, name) for name in starting_lora.tensors):
        return
    held = contents(starting_lora.tensors)
    yield found(
        place,
        "{path}, the LoRA to start from, is {held}; none of its names is one that {family} takes (such as {example})."
        if held
        else "{path}, the LoRA to start from, holds no name that {family} takes.",
        otherwise=zero,
        evidence={"names": list(starting_lora.tensors)[:5]},
        path=path,
        held=held,
        family=family_of(run.recipe.architecture).title,
        example=next(iter(starting_lora.tensors), None),
    )


_NO_FILE = "{path}, the LoRA to start from, is no file; name the .safetensors file in it."
_A_FOLDER = "{path}, the LoRA to start from, is a folder; name the .safetensors file in it."


def _closed(file: WeightFile, folder: str, *untold: str) -> str:
    """The template for a file that cannot be opened. Raises Unestablished where its content is not known."""
    is_folder = file.problem == "unreadable" and file.detail == "it is not a file"
    if file.problem in ("unreadable", *untold) and not is_folder:
        raise Unestablished(f"{file.path} cannot be read: {file.detail}")
    if file.problem == "missing":
        return "{path}, the LoRA to start from, does not exist."
    if is_folder:
        return folder
    return "{path}, the LoRA to start from, is {problem}: {detail}."


@rule("MDL008", "warning", "starting-lora-of-another-size", trainers=("ai-toolkit",))
@prevents("ValueError", r"Unhandled LoRA shape change for ")
def starting_lora_of_another_size(
    run: Run, starting_lora: WeightFile | None, earlier: EarlierSave | None, model: ModelFolder
) -> Iterator[Finding]:
    """A LoRA to start from that has another rank, or was made for a model of another width.

    What: The matrices in the file behind network/pretrained_lora_path have another rank than the config, or do not
    fit the layers of the transformer by their other side.
    Why: ai-toolkit fills a smaller LoRA up with zeros on both sides, where the added ranks stay zero to the last step
    (TRN007 says why), and cuts the upper ranks of a larger one off; a line for each matrix says so. On another width
    it stops, after the whole model has been loaded. `zdoctor train` takes neither and says so at its start.
    Repair: The rank of the file, or a LoRA of this model.
    Upstream: toolkit/network_mixins.py load_weights (27a03a91)
    Signature: Expanding … from torch.Size([…]); Shrinking …; ValueError: Unhandled LoRA shape change for …
    """
    recipe = run.recipe
    if starting_lora is None or starting_lora.problem or not _is_read(run, earlier):
        return  # MDL006 speaks of what cannot be read
    names, path = _names(run), starting_lora.path
    transformer = model.components.get("transformer")
    needed = transformer.needed if transformer is not None else None
    taken = {name: tensor for name, tensor in starting_lora.tensors.items() if re.match(names, name)}
    rank = rank_of(taken)
    widths = _widths(taken, needed or {})
    unfit = [one for one in widths if one[1] != one[2]]
    if unfit:
        name, theirs, ours = unfit[0]
        yield found(
            run.where(_KEY),
            "{path}, the LoRA to start from, was made for another model: {name} is {theirs} wide, and this "
            "transformer's layer {ours} (from the headers of both).",
            otherwise="The run ends with ValueError: Unhandled LoRA shape change, after the model has been loaded."
            if rank == recipe.network.rank
            else "The run ends with a size mismatch after the model has been loaded, or takes what fits by chance.",
            evidence={"names": [name for name, _, _ in unfit[:5]]},
            severity="error",
            path=path,
            name=name,
            theirs=theirs,
            ours=ours,
        )
    elif rank is not None and rank != recipe.network.rank:
        message = "{path}, the LoRA to start from, has rank {rank}, and the config has rank {wanted}."
        yield of_another_rank(run, path, rank, message, ": the training starts from a part of it.")
    elif taken and not widths:
        raise Unestablished("how wide the layers of the transformer are is not known")


def of_another_rank(run: Run, path: str, rank: int, message: str, cut: str) -> Finding:
    """A LoRA that is filled up to the rank of the config, or cut off there."""
    wanted = run.recipe.network.rank
    never = "The ranks above {rank} start as zeros on both sides and stay so: they never learn."
    return found(
        run.where("rank"),
        message,
        otherwise=never if rank < wanted else "The ranks above {wanted} are cut off" + cut,
        evidence={"path": path, "rank": rank, "pointer": run.pointer("rank"), "key": "rank"},
        wanted=wanted,
    )


def _widths(taken: Mapping[str, Tensor], needed: Mapping[str, tuple[int, ...]]) -> list[tuple[str, int, int]]:
    """The matrices whose layer is known, each with its width and that of the layer."""
    widths: list[tuple[str, int, int]] = []
    for name, tensor in taken.items():
        if (part := _PART.match(name)) is not None:
            is_down = part[2] is not None
            shape = needed.get(f"{part[1]}.weight", ())
            if len(shape) == len(tensor.shape) == 2:
                widths.append((name, tensor.shape[is_down], shape[is_down]))
    return widths


@rule("MDL009", "error", "starting-lora-refused", trainers=(RUNNER,))
def starting_lora_refused(run: Run, start: Start | None) -> Iterator[Finding]:
    """A LoRA to start from that zdoctor's own runner does not take.

    What: The file behind network/pretrained_lora_path or network_weights does not exist, is a folder or damaged, or
    is of another network type, another rank or another model. Where a state of the run lies in its folder, the run
    goes on from that and the file is not opened.
    Why: `zdoctor train` begins with the whole file or not at all: ranks that are filled up with zeros never learn,
    and what is cut off is lost.
    Repair: The rank and network type of the file, or a file of this model; kohya's names are taken too.
    """
    if start is None or run.kind != "lora":
        return
    file = start.file
    otherwise = "zdoctor train does not begin with it: nothing is trained."
    place = run.where("network.initial_weights")
    if file.problem:
        message, problem = _closed(file, _A_FOLDER), PROBLEMS.get(file.problem)
        yield found(place, message, otherwise=otherwise, path=file.path, problem=problem, detail=file.detail)
    elif reason := misfit(start.held, start.trained, file.tensors):
        template, values = reason
        yield found(place, template, otherwise=otherwise, path=file.path, **values)


def rank_of(tensors: Mapping[str, Tensor]) -> int | None:
    """The rank of a LoRA; None where its layers have several, or there are none."""
    down = (tensor.shape for name, tensor in tensors.items() if re.search(r"\.lora_(A|down)\.weight$", name))
    ranks = {shape[0] for shape in down if len(shape) == 2}
    return ranks.pop() if len(ranks) == 1 else None


def _is_read(run: Run, earlier: EarlierSave | None) -> bool:
    """Whether the trainer looks at the file at all: a save of the run itself goes before it."""
    return run.kind == "lora" and (earlier is None or bool(earlier.hidden))


def _names(run: Run) -> str:
    """A pattern of the names that are taken."""
    if loader_of(run) is None or run.recipe.network.type != "lora":
        raise Unestablished(
            f"the names that a {run.recipe.network.type} of {run.recipe.architecture} has are not known"
        )
    return family_of(run.recipe.architecture).lora_names
