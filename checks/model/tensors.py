"""The base model's files against the architecture that will be built from them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ...doctor.families import family_of, loader_of, no_record, opened_by
from ...doctor.families.part_files import kohya_of
from ...doctor.model import Component, Finding, ModelFolder, Run, found
from ...doctor.model.amounts import few
from ...doctor.model.said import joined
from ...doctor.rules import Unestablished, prevents, rule
from ...doctor.trainers import trainer_of
from .scripts import is_of_another_script

# transformers builds an output head that no trainer here reads: its absence changes nothing.
_UNREAD = frozenset({"lm_head.weight"})
_META = (
    "They stay without data, and after minutes of loading, before the first step, the run ends with "
    "NotImplementedError: Cannot copy out of meta tensor; no data!"
)
# sd-scripts keeps every part apart, so the line of the traceback tells which one it is
_MOVED = {
    "vae": "vae.to(accelerator.device)",
    "transformer": 'unet.to("cpu") or unet.to(accelerator.device)',
    "text_encoder": "text_encoders[0].to(…)",
    "text_encoder_2": "text_encoders[1].to(…)",
}
_AT_THE_MOVE = "They stay without data, and the run ends at {moved} with NotImplementedError: "
_AT_THE_MOVE += "Cannot copy out of meta tensor; no data!"
_FILLED = "The missing tensors are filled with random numbers, and the run trains to its end on garbage."
_NO_CURE = " fp8_base has nothing to do with it."


@rule("MDL001", "error", "missing-checkpoint-tensors")
@prevents("NotImplementedError", "Cannot copy out of meta tensor; no data!")
def missing_checkpoint_tensors(run: Run, model: ModelFolder) -> Iterator[Finding]:
    """Tensors the architecture needs and the weight files lack.

    What: The headers of the weight files are compared, name by name, with what config.json makes the loader build.
    The names of a single file are compared in its own layout, where q, k and v are fused.
    Why: diffusers builds the transformer and the VAE without memory (on the "meta" device) and fills in what the
    files hold. A tensor they lack stays empty, and the first move of that block to a device fails. The only hint,
    a warning about newly initialized weights, is hidden by ai-toolkit. transformers instead fills a text encoder's
    missing tensors with random numbers, and the run trains to the end on garbage. A single file is loaded strictly:
    one missing name stops it.
    sd-scripts does the same with each file of its own (library/flux_utils.py, 48d368fa): a file with other names or
    too few, for --ae most often a VAE of the diffusers layout, is loaded without a word, and the first .to() fails.
    fp8_base is no cure: an 8-bit file that holds every name loads with or without it.
    Repair: Get the complete files. Loading with low_cpu_mem_usage=False, skipping the empty blocks, or to_empty()
    only turns the failure into random weights.
    Upstream: https://github.com/ostris/ai-toolkit/issues/571
    Signature: NotImplementedError: Cannot copy out of meta tensor; no data! Please use
    torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving module from meta to a different device.
    """
    if model.components.keys() & {"cache", "whole"}:
        raise Unestablished(f"{model.source} is no model folder")
    if is_of_another_script(run, model):
        return
    loader = loader_of(run)
    named = loader is not None and loader.origin(loader.main).file is not None
    if loader is not None and not named and loader.single_file is None and model.layout == "single-file":
        raise Unestablished(f"{run.trainer} opens no single file for {family_of(run.recipe.architecture).title}")
    said = compared = False
    unjudged: list[str] = []
    for part in model.components.values():
        if (reason := _unjudged(part)) is not None:
            unjudged.append(reason)
            continue
        compared = True
        if missing := [name for name in part.needed or () if name not in part.tensors and name not in _UNREAD]:
            said = True
            yield _lacking(run, model, part, missing)
    unjudged = [*filter(None, unjudged), *_absent(run, model)]
    recorded = opened_by(run).transformer is not None
    if not recorded and not said and (unjudged or not compared):
        raise Unestablished(joined("; ", (no_record(run.recipe.architecture), *unjudged)))
    if model.layout == "absent":
        raise Unestablished(f"nothing of {model.source} is on this machine")
    if unjudged and not said:
        raise Unestablished(joined("; ", unjudged))


def _lacking(run: Run, model: ModelFolder, part: Component, missing: Sequence[str]) -> Finding:
    needed = part.needed or {}
    return found(
        run.where(part.key),
        "{component} lacks {missing} of the {needed} tensors that {asked} ({which}), "
        "for example {example}. That was computed from the headers of {files}.",
        otherwise=_consequence(run, part, model),
        evidence={"component": part.name, "missing": len(missing), "names": missing[:20], "folder": part.folder},
        needed=len(needed),
        asked=_asked(run, part, model),
        which=_blocks(missing, needed),
        example=missing[0],
        moved=_MOVED.get(part.name),
        files=files(part),
    )


def _asked(run: Run, part: Component, model: ModelFolder) -> str:
    """Who says which tensors there should be: for a single file without a config.json, the published model."""
    if model.layout == "part-files":
        return f"{run.trainer} asks for"
    return "its config.json asks for" if model.layout != "single-file" or part.config else "the published model has"


def _unjudged(part: Component) -> str | None:
    """Why the tensors of a part are not compared, "" where nothing has to be said of it; None where they are."""
    if not part.weights:
        if not part.problem or part.name.startswith("tokenizer"):
            return ""
        return f"{part.name} is missing" if part.problem == "missing" else joined(": ", (part.name, part.problem))
    if part.needed is None:
        return joined(": ", (part.name, part.needed_reason))
    if any(weight.problem for weight in part.weights) or foreign(part):
        return joined(": ", (part.name, "its weight files cannot be compared"))
    return None


def _absent(run: Run, model: ModelFolder) -> list[str]:
    """Parts with weights of which nothing was found."""
    loader = loader_of(run)
    if loader is None or not model.components:
        return []
    weighty = (part for part in loader.components if not part.startswith(("tokenizer", "scheduler")))
    return [f"{part}: not found on this machine" for part in weighty if part not in model.components]


def _consequence(run: Run, part: Component, model: ModelFolder) -> str:
    if run.by_runner:
        return "The run ends with their names, when it looks at the headers of these files."
    by_parts, kohya = model.layout == "part-files", kohya_of(run)
    if by_parts and kohya is not None and part.name in kohya.filled:
        return _FILLED
    complete = kohya is not None and part.name in kohya.complete
    if by_parts and not complete and trainer_of(run.trainer).missing_on_meta:
        text_encoder = part.name.startswith("text_encoder")
        return _AT_THE_MOVE + ("" if text_encoder else _NO_CURE) if part.name in _MOVED else _META
    if part.name.startswith("text_encoder") and not by_parts:
        return _FILLED
    if by_parts or part.strict:
        return "Loading ends with a RuntimeError that names them: missing keys in the state_dict."
    return _META


def _blocks(missing: Iterable[str], needed: Iterable[str]) -> str:
    """ "all of layers.3, parts of layers.1": where the gaps are."""
    lost, whole = grouped(missing), grouped(needed)
    gone = [block for block, count in lost.items() if count == whole[block]]
    parts = [block for block in lost if block not in gone]
    where = (f"all of {few(gone)}" if gone else "", f"parts of {few(parts)}" if parts else "")
    return ", ".join(filter(None, where))


def grouped(names: Iterable[str]) -> Counter[str]:
    """How many names each block has."""
    numbered = ((re.match(r".*?\.\d+(?=\.)", name), name) for name in names)
    return Counter(match.group() if match else name.partition(".")[0] for match, name in numbered)


def files(part: Component) -> str:
    return part.weights[0].name if len(part.weights) == 1 else f"{len(part.weights)} files"


def foreign(part: Component) -> bool:
    """Whether these are other tensors altogether: most needed names are absent, and most names are not needed."""
    needed, tensors = part.needed, part.tensors
    if not needed or not tensors:
        return False
    strangers = sum(name not in needed for name in tensors)
    return 2 * sum(name in tensors for name in needed) < len(needed) and 2 * strangers >= len(tensors)
