"""A local model folder: are all its parts there, and can they be opened?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...doctor.families import loader_of, opened_by
from ...doctor.families.part_files import kohya_of, tokenizers
from ...doctor.model import Component, Finding, ModelFolder, Run, found
from ...doctor.model.amounts import few
from ...doctor.model.trainer import RUNNER
from ...doctor.rules import prevents, rule

PROBLEMS = {
    "empty": "empty",
    "truncated": "cut short",
    "not-safetensors": "no weight file",
    "bad-header": "damaged",
    "unreadable": "unreadable",
    "pickle": "a pickle",
}

_WORDLESS = (
    "With transformers 5 the tokenizer loads with an empty vocabulary, and the run trains on captions without words; "
    "older versions end with an OSError."
)

_NO_TOKENIZER = "ValueError: Couldn't instantiate the backend tokenizer from one of: …"
_TEXT_WEIGHTS = "model.safetensors, or pytorch_model.bin,"
_ENDS = "The run ends with its name, before it trains."  # zdoctor's own


@rule("MDL003", "error", "incomplete-model-folder")
@prevents("FileNotFoundError", r"^(/|[A-Za-z]:|\.)\S* does not appear to have a file named")
@prevents("OSError", r"does not appear to have a file named|Error no file named .* found in directory")
@prevents("OSError", r"Can't load (tokenizer|config|the configuration|the model) (for|of) ")
@prevents("ValueError", r"Couldn't instantiate the backend tokenizer from one of")
@prevents("FileNotFoundError", r"No such file or directory: \S*model-\d+-of-\d+\.safetensors")
def incomplete_model_folder(run: Run, model: ModelFolder) -> Iterator[Finding]:
    """A local model folder that lacks a part the loader will ask for.

    What: A part such as text_encoder/, tokenizer/ or vae/ is absent, a config.json, index or shard is missing, or the
    path names a hub cache's root (models--org--name) in place of a snapshot inside it or, for Flux, the transformer's
    own folder in place of the whole model's.
    Why: A local folder is taken as it is; nothing is fetched for it. A copy that was cut short, or one made of the
    visible links only, leaves such gaps, and the loader's words about them mislead: a missing index is reported as a
    missing .bin file, a missing tokenizer as a library that cannot be instantiated.
    Repair: Copy a complete snapshot from the hub cache, or name in extras_name_or_path where the missing parts are.
    Signature: Does not appear to have a file named …; Error no file named diffusion_pytorch_model.bin found in
    directory …; Error no file named model.safetensors, or pytorch_model.bin, found in directory …; Couldn't
    instantiate the backend tokenizer from one of …; Error no file named config.json found in directory …
    """
    if (mistaken := _mistaken(run, model)) is not None:
        yield mistaken
        return
    local = [part for part in model.components.values() if part.repo is None]
    absent = [part for part in local if part.problem == "missing"]
    if absent:
        yield _without_parts(run, absent)
    for part in local:
        if part not in absent:
            yield from _without_files(run, part)


def _mistaken(run: Run, model: ModelFolder) -> Finding | None:
    """A folder that is no model folder, but lies above or inside one."""
    if (cache := model.components.get("cache")) is not None:
        message = "{path} is the root of a hub cache entry; the files lie in a snapshot inside it, {snapshot}."
        otherwise = "Loading the model fails: OSError: Error no file named config.json found in directory {path}"
        evidence = {"snapshot": cache.folder, "root": model.folder}
    elif (whole := model.components.get("whole")) is not None:
        message = "{path} is the transformer's own folder; {trainer} opens the folder of the whole model, {whole}."
        otherwise = "Loading fails: OSError: … is not the path to a directory containing a config.json file."
        evidence = {"whole": whole.folder}
    else:
        return None
    place = run.where("base_model")
    return found(place, message, otherwise=otherwise, evidence=evidence, path=model.source, trainer=run.trainer)


def _without_parts(run: Run, absent: Sequence[Component]) -> Finding:
    names = [part.name for part in absent]
    return found(
        run.where("extras_model" if run.recipe.extras_model else "base_model"),
        "The model folder {folder} has no {parts}.",
        otherwise=_fails(run, all(_wordless(run, part) for part in absent)),
        evidence={"components": names},
        folder=_parent(absent[0].folder),
        parts=", ".join(f"{name}/" for name in names),
        error=_absence(run, absent[0], names),
    )


def _without_files(run: Run, part: Component) -> Iterator[Finding]:
    lost = [weight for weight in part.weights if weight.problem == "missing"]
    if gone := [*part.missing_files, *(weight.name for weight in lost)]:
        instead = next((weight.detail for weight in lost), "")
        yield found(
            run.where("base_model"),
            "{component} lacks {few} in {folder}" + (": {instead}." if instead else "."),
            otherwise=_fails(run, _wordless(run, part) and gone[0] == "tokenizer.json"),
            evidence={"component": part.name, "files": gone[:50]},
            few=few(gone),
            instead=instead,
            folder=part.folder,
            error=_absence_of(part, gone[0]),
        )
    elif part.problem:
        yield found(
            run.where("vae" if part.name == "vae" and run.written("vae") else "base_model"),
            "{component} in {folder} cannot be opened: {problem}.",
            otherwise="Loading fails when {component} is opened.",
            evidence={"component": part.name},
            problem=part.problem,
            folder=part.folder,
        )


def _fails(run: Run, wordless: bool) -> str:
    return _ENDS if run.by_runner else _WORDLESS if wordless else "Loading fails: {error}"


def _wordless(run: Run, part: Component) -> bool:
    """Whether this is a tokenizer whose class needs no file at all."""
    loader = loader_of(run)
    return part.name.startswith("tokenizer") and loader is not None and bool(loader.components.get(part.name))


def _parent(folder: str) -> str:
    return re.sub(r"[/\\][^/\\]*$", "", folder) or folder


def _absence(run: Run, part: Component, names: list[str]) -> str:
    """What the loader says of a part that is not there."""
    loader = loader_of(run)
    if part.name == "transformer" and loader is not None and not loader.bare:
        return f"OSError: … {part.folder} is not the path to a directory containing a config.json file"
    if part.name == "scheduler":
        return _no_file("scheduler_config.json", _parent(part.folder))
    if "tokenizer" in names and "transformer" not in names:
        return _NO_TOKENIZER
    return _no_file(_TEXT_WEIGHTS if part.name.startswith("text_encoder") else "config.json", part.folder)


def _absence_of(part: Component, file: str) -> str:
    """What the loader says of a file that a part lacks."""
    text_encoder = part.name.startswith("text_encoder")
    if part.name == "scheduler":
        return _no_file("scheduler_config.json", _parent(part.folder))
    if part.name.startswith("tokenizer"):
        return _NO_TOKENIZER
    if file == "config.json":
        return _no_file(file, part.folder)
    if part.index_file is not None:
        if text_encoder:
            return f"FileNotFoundError: No such file or directory: …/{file}"
        return f"FileNotFoundError: … does not appear to have a file named {file}"
    if text_encoder:
        return _no_file(_TEXT_WEIGHTS, part.folder)
    return _no_file("diffusion_pytorch_model.bin", _parent(part.folder))


def _no_file(name: str, folder: str) -> str:
    return f"OSError: Error no file named {name} found in directory {folder}"


@rule("MDL004", "error", "unreadable-weight-file")
@prevents("SafetensorError", "")
@prevents("OSError", r"Unable to load weights from (pytorch )?checkpoint file")
@prevents("UnpicklingError", r"invalid load key")
def unreadable_weight_file(run: Run, model: ModelFolder) -> Iterator[Finding]:
    """A weight file that cannot be opened as weights.

    What: A file of a local model folder is empty or cut short, or is a web page, a git-lfs pointer, an archive or a
    pickle under another name. A pickle under its own name (.bin, .pt, .ckpt) is only warned about: zdoctor never
    opens one, because opening runs the code inside.
    Why: A download that broke off, a clone without git-lfs, or a login page saved as a file leaves exactly this.
    Repair: Take the file from the hub cache or fetch it again.
    Signature: OSError: Unable to load weights from checkpoint file; SafetensorError: Error while deserializing
    header: incomplete metadata, file not fully covered; header too large
    """
    own = [(part, weight) for part in model.components.values() if part.repo is None for weight in part.weights]
    kohya = kohya_of(run)
    by_path = {weight.path: (part, weight) for part, weight in reversed(own)}  # one may hold several parts
    for part, weight in reversed(by_path.values()):
        if weight.problem not in (None, "missing"):
            pickle = weight.problem == "pickle"
            published = kohya is not None and part.name in kohya.pickled
            if pickle and (published or not opened_by(run).name):
                continue  # many are published so, and no other rule would look into it
            yield found(
                run.where(part.key),
                "{path} of {component} cannot be checked: it is a Python pickle."
                if pickle
                else "{path} of {component} is {problem}: {detail}.",
                otherwise="If it lacks tensors, the run fails or trains on garbage; opening it runs the code inside."
                if pickle
                else "Loading fails: {error}",
                severity="warning" if pickle else None,
                evidence={
                    "component": part.name,
                    "file": weight.name,
                    "problem": weight.problem,
                    "size": weight.size,
                },
                path=weight.path,
                problem=PROBLEMS[weight.problem],
                detail=weight.detail,
                error="SafetensorError: Error while deserializing header"
                if part.name.startswith("text_encoder")
                else "OSError: Unable to load weights from checkpoint file",
            )


@rule("MDL007", "error", "missing-tokenizer", trainers=(RUNNER,))
def missing_tokenizer(run: Run, model: ModelFolder) -> Iterator[Finding]:
    """The tokenizer of a model in part files is not on this machine.

    What: sd-scripts and musubi-tuner take the weights from files, and the tokenizers from the hub:
    openai/clip-vit-large-patch14 and google/t5-v1_1-xxl for Flux, the folder tokenizer/ of Tongyi-MAI/Z-Image for
    Z-Image. None of the hub caches holds it whole, nor a copy in a FLUX.1 or Z-Image-Turbo model.
    Why: The runner downloads nothing, so it would end when it comes to the captions.
    Repair: Download it: a few megabytes, without the weights beside it.
    """
    commands = {tokenizer.name: tokenizer.command for tokenizer in tokenizers(run)}
    for name, command in commands.items():
        part = model.components.get(name)
        if part is not None and part.problem == "missing":
            yield found(
                run.where("base_model"),
                "The {component} of {repo} is in none of the hub caches; the files that the config names hold none.",
                otherwise="Nothing is trained: zdoctor train downloads nothing.",
                evidence={"component": name, "command": command},
                repo=part.repo,
            )
