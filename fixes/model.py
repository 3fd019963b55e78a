"""Repairs of a base model: a complete copy beside the run, made from the hub cache of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..doctor.families import family_of, loader_of
from ..doctor.families.part_files import part_files
from ..doctor.model import (
    CopyItem,
    ExtractFiles,
    Finding,
    Fix,
    Hub,
    HubRepo,
    ModelFolder,
    Place,
    Run,
    Safety,
    SetValue,
    Storage,
    Unknown,
)
from ..doctor.model.amounts import amount
from ..doctor.model.plans import note_of
from ..doctor.rules import repair
from .edits import value_of

_SHARED = {"text_encoder", "tokenizer", "vae"}


@repair("DSK001", "HUB006", "HUB007")
def extract_from_the_cache(
    finding: Finding, run: Run, model: ModelFolder, hub: Hub, storage: Storage
) -> Iterator[Fix]:
    """Copy the snapshot that the run uses into a plain folder, and name that folder."""
    repo = hub.repo(model.repo)
    if model.layout == "single-file":
        return
    if repo is None or not repo.usable:
        if finding.rule == "DSK001" and model.folder is not None and model.repo is None:
            yield from _show_copy(model.folder, storage)
        return
    places = _faster(storage) if finding.rule == "DSK001" else storage.places
    yield from _extraction(run, repo, places, "safe")
    if finding.rule != "DSK001" and repo.snapshot is not None:
        title = f"name the cached snapshot itself, without a copy ({repo.snapshot})"
        yield Fix(title, (_use(run, "base_model", repo.snapshot),), order=2)


@repair("MDL003")
def take_parts_from_the_family(finding: Finding, run: Run, hub: Hub) -> Iterator[Fix]:
    """Where text encoder, tokenizer and VAE are the same in the whole family, a cached repository serves."""
    family = family_of(run.recipe.architecture)
    absent = finding.evidence.get("components")
    if not isinstance(absent, list) or "transformer" in absent or not family.alike or run.recipe.extras_model:
        return
    if "text_encoder" not in absent:
        return  # a folder with a text encoder is the source of the other parts, whatever extras_model says
    for repo in hub.repos:
        parts = {file.name.partition("/")[0] for file in repo.files if file.needed}
        if not repo.is_folder and repo.usable and parts >= _SHARED:
            title = f"take text encoder, tokenizer and VAE from the cached {repo.repo}"
            safety: Safety = "safe" if repo.repo in family.repos.values() else "ask"
            yield Fix(title, (_use(run, "extras_model", repo.repo),), safety, order=2)


@repair("MDL001", "MDL003", "MDL004")
def replace_by_a_complete_copy(
    finding: Finding, run: Run, model: ModelFolder, hub: Hub, storage: Storage
) -> Iterator[Fix]:
    """Build a complete folder from a cached repository that the damaged one is a copy of; never touch the old one."""
    if not _is_replaceable(finding, model):
        return
    candidates = _candidates(model, hub)
    named = [repo for repo in candidates if _is_named(model, repo)]
    for repo in named or candidates:
        sure = candidates == named == [repo] and bool(_common(model, repo))
        fixes = list(_extraction(run, repo, storage.places, "safe" if sure else "ask"))
        yield from fixes or [_no_room(run, repo)]


@repair("MDL001", "MDL003", "MDL004")
def say_what_to_download(finding: Finding, run: Run, model: ModelFolder, hub: Hub) -> Iterator[Fix]:
    """Nothing here can serve: the command that fetches a complete copy into a folder of its own."""
    if _is_replaceable(finding, model) and not _candidates(model, hub):
        guesses = family_of(run.recipe.architecture).repos if loader_of(run) is not None else {}
        repo = next((repo for word, repo in guesses.items() if word in model.source.lower()), "OWNER/MODEL")
        folder = f"{(model.folder or model.source).rstrip('/')}-complete"
        title = "download the complete model into a new folder, then name that folder in the config"
        yield Fix(title, (), "show", command=f'hf download {repo} --local-dir "{folder}"', target=folder)


@repair("MDL007")
def fetch_the_tokenizer(finding: Finding) -> Iterator[Fix]:
    """The command that downloads a tokenizer without the weights of its repository."""
    yield Fix("download the tokenizer", (), "show", command=str(finding.evidence["command"]))


def _is_replaceable(finding: Finding, model: ModelFolder) -> bool:
    folder = model.repo is None and model.layout not in ("single-file", "part-files")
    return folder and not finding.evidence.keys() & {"snapshot", "whole"}


def _candidates(model: ModelFolder, hub: Hub) -> list[HubRepo]:
    return [repo for repo in hub.repos if not repo.is_folder and repo.usable and _agrees(model, repo)]


def _no_room(run: Run, repo: HubRepo) -> Fix:
    size = sum(item.size for item in _items(run, repo))
    title = f"free {amount(int(size * 1.01))} for a complete copy of {repo.repo}, which lies in the cache"
    return Fix(title, (), "show", command=_copying(str(repo.snapshot), "<folder>"))


@repair("MDL002")
def name_the_architecture(finding: Finding, run: Run) -> Iterator[Fix]:
    """A model of another family: either the path is wrong or the architecture."""
    architecture = finding.evidence.get("arch")
    if isinstance(architecture, str):
        step = _use(run, "architecture", architecture)
        yield Fix(f"train it as what it is, arch {architecture}", (step,), "ask", "changes-result", order=2)


@repair("MDL003")
def name_the_model(finding: Finding, run: Run) -> Iterator[Fix]:
    """The folder above the transformer's holds every part; a cache root may stand for one snapshot."""
    seen = finding.evidence
    if isinstance(whole := seen.get("whole"), str):
        yield Fix(f"name the folder of the whole model, {whole}", (_use(run, "base_model", whole),), order=2)
    if isinstance(snapshot := seen.get("snapshot"), str) and snapshot != seen.get("root"):
        yield Fix("name the snapshot inside the cache entry", (_use(run, "base_model", snapshot),), order=2)


@repair("KOH001", "MDL001", "MDL002", "MDL004")
def fetch_the_published_file(finding: Finding, run: Run) -> Iterator[Fix]:
    """The command that fetches the file which was published for this part; its path is for the config."""
    named = (finding.evidence.get("component"), finding.evidence.get("option"))
    part = next((part for part in part_files(run) if part.name in named or part.option in named), None)
    if part is None:
        return
    text = str(run.setting(part.option, "")).lower()
    published = family_of(run.recipe.architecture).files.get(part.class_name, ())
    file = next((file for word, file in published if word in text), "")
    if file:
        title = f"download the file that was published for --{part.option}, then put the path it prints there"
        yield Fix(title, (), "show", command=f"hf download {file}")


@repair("MDL002")
def convert_to_a_folder(finding: Finding) -> Iterator[Fix]:
    """The command that makes a diffusers folder of the file, with the other parts where they must lie beside it."""
    seen = finding.evidence
    source = str(seen.get("file", "")).replace("\\", "/")
    if not seen.get("convert") or re.search(r"[\"'`$!]", source):
        return  # no one command suits every shell then
    folder = re.sub(r"\.\w+$", "", source) + "-diffusers"
    class_name, repo = seen["convert"], seen["config"]
    command = (
        f'python -c "import torch, diffusers; diffusers.{class_name}.from_single_file({source!r}, config={repo!r}, '
        f"subfolder='transformer', torch_dtype=torch.bfloat16).save_pretrained({folder + '/transformer'!r})\""
    )
    if not seen["alone"]:
        parts = " ".join(f'--include "{part}/*"' for part in ("text_encoder*", "tokenizer*", "vae", "scheduler"))
        command = f'hf download {repo} {parts} --local-dir "{folder}" && {command}'
    title = f"let diffusers convert the file into the folder {folder}, then name that folder in the config"
    yield Fix(title, (), "show", command=command, target=folder)


def _extraction(run: Run, repo: HubRepo, places: Sequence[Place], safety: Safety) -> Iterator[Fix]:
    items, name = _items(run, repo), repo.repo.rpartition("/")[2]
    total = sum(item.size for item in items)
    room = ((p, p.free + dict(p.parts).get(name, 0)) for p in places if p.refusal is None)
    place = next((p for p, free in room if free >= total * 1.01), None)
    if items and place is not None:
        target = _join(place.folder, name)
        title = f"copy {repo.repo} from the cache to {target} ({amount(total)}, verified) and use that folder"
        yield Fix(title, (ExtractFiles(target, items), _use(run, "base_model", target)), safety, order=1)


def _items(run: Run, repo: HubRepo) -> tuple[CopyItem, ...]:
    """Every needed file with a sound source. Parts that the run takes from elsewhere stay out: a local
    text_encoder/ would override `extras_model`."""
    loader = loader_of(run)
    elsewhere = (loader is None or loader.extras) and run.recipe.extras_model not in (None, run.recipe.base_model)
    items: list[CopyItem] = []
    for file in repo.files:
        if not file.needed or (elsewhere and file.name.partition("/")[0] in _SHARED):
            continue
        size = file.size if file.size is not None else file.actual_size
        source = file.blob or file.path if file.state == "ok" else file.good_copy
        if size is None or source is None:
            return ()
        items.append(CopyItem(source, file.name, size, file.digest))
    return (*items, *note_of(repo)) if items else ()


def _faster(storage: Storage) -> list[Place]:
    now = storage.model
    if isinstance(now, Unknown):
        return []
    return [p for p in storage.places if p.speed is not None and p.speed.low > now.high]


def _sizes(model: ModelFolder) -> dict[str, int]:
    """Repository-relative name -> size of the sound weight files of a local model folder."""
    return {
        f"{name}/{weight.name}": weight.size
        for name, part in model.components.items()
        if part.repo is None
        for weight in part.weights
        if weight.problem is None
    }


def _common(model: ModelFolder, repo: HubRepo) -> set[str]:
    return _sizes(model).keys() & {file.name for file in repo.files}


def _agrees(model: ModelFolder, repo: HubRepo) -> bool:
    """Whether the folder can be a copy of the repository: no sound file of it is absent there or of another size."""
    theirs = {file.name: file.size for file in repo.files}
    mine = _sizes(model)
    if any(theirs.get(name, size) != size for name, size in mine.items()):
        return False
    transformers = any(name.startswith("transformer/") for name in theirs)
    return transformers and (bool(_common(model, repo)) or _is_named(model, repo))


def _is_named(model: ModelFolder, repo: HubRepo) -> bool:
    folder = re.split(r"[/\\]", (model.folder or model.source).rstrip("/\\"))[-1].lower()
    return repo.repo.rpartition("/")[2].lower() in folder


def _show_copy(folder: str, storage: Storage) -> Iterator[Fix]:
    place = next((p for p in _faster(storage) if p.refusal is None and p.free >= storage.model_bytes * 1.01), None)
    if place is not None:
        target = _join(place.folder, re.split(r"[/\\]", folder.rstrip("/\\"))[-1])
        title = f"copy the model to {target} and name that folder in the config"
        yield Fix(title, (), "show", command=_copying(folder, target), source=folder, target=target)


def _copying(folder: str, target: str) -> str:
    """How to copy a folder, with the files that its links lead to."""
    return f'robocopy "{folder}" "{target}" /E' if "\\" in folder + target else f'cp -rL "{folder}" "{target}"'


def _use(run: Run, field: str, value: str) -> SetValue:
    """Windows paths are written with forward slashes, which every reader takes and no quoting can spoil."""
    written = value.replace("\\", "/") if re.match(r"[A-Za-z]:", value) else value
    return value_of(run, field, written)


def _join(folder: str, name: str) -> str:
    separator = "\\" if "\\" in folder else "/"
    return f"{folder.rstrip(separator)}{separator}{name}"
