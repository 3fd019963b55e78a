"""Make doctor/crash/names/PACKAGE.json anew: the names that only some versions of a package have.

    python -m zdoctor.maintenance.mine_names PACKAGE SOURCE ...

A SOURCE is a wheel of one version, a git directory whose tags vX.Y.0 are read from OLDEST on, of a trainer a git
directory that is read as it was on the first of each month, and for python the folder of typeshed's stubs, as mypy
brings it. Names are what modules bind at their top level (submodules too, and what a package hands out lazily), the
parameters of functions that take no **kwargs, and what the objects of a class have, with what its bases in the same
package give it. Written down is each that some of the versions lack: the first that has it, and the first that has it
no more. One that came and went more than once is left out.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from zdoctor.doctor.crash.versions import NAMES, release

from .bindings import LAZY, NEWEST, Class, Python, handed_out, read

OLDEST = {
    "diffusers": "0.27",
    "transformers": "4.42",
    "peft": "0.9",
    "huggingface_hub": "0.20",
    "accelerate": "0.27",
    "torchao": "0.5",
    "bitsandbytes": "0.41",
    "deepspeed": "0.14",
    "quanto": "0.2",
}
# Packages whose modules lie deeper in their checkout.
FOLDERS = {"quanto": "optimum/quanto"}
# Where a trainer's modules are imported from, and what of its checkout is read.
TRAINERS = {
    "ai-toolkit": ("toolkit", "extensions_built_in", "jobs"),
    "sd-scripts": ("library", "networks"),
    "musubi-tuner": ("musubi_tuner",),
    "SimpleTuner": ("simpletuner/helpers",),
    "ComfyUI": ("comfy", "comfy_extras", "comfy_api", "nodes.py", "folder_paths.py", "latent_preview.py"),
    "OneTrainer": ("modules",),
    "diffusion-pipe": ("models", "utils", "train.py"),
    "DiffSynth-Studio": ("diffsynth",),
    "kohya_ss": ("kohya_gui", "setup", "kohya_gui.py"),
}
MONTHS = [f"{year}-{month:02}-01" for year in (2025, 2026) for month in range(1, 13)]
PYTHONS = [f"3.{minor}" for minor in range(8, 16)]
_TAG = re.compile(r"v?(\d+\.\d+\.0)")
# Parts of packages that nobody outside of them imports.
_INNER = re.compile(
    r"_|tests?$|test_utils$|testing|prototype$|experimental$|commands$|cli$|scripts$|dummy_|doc$|benchmarks?$|onnx$"
)
# Stubs of compiled modules, whose names other ones hand out.
_COMPILED = {
    "torch/_C/_VariableFunctions.pyi": "torch/__init__.pyi",
    "torch/_C/_nn.pyi": "torch/nn/functional.pyi",
}
# Modules beside the package itself whose functions and classes are known by their names alone.
_KNOWN_BY_NAME = {
    "torch": ("torch.nn", "torch.nn.functional", "torch.optim", "torch.utils.data"),
    "PIL": ("PIL.Image", "PIL.ImageDraw", "PIL.ImageFont"),
}
# Those of transformers' models whose classes trainers use by themselves.
_ENCODERS = frozenset(
    (
        *("clip", "t5", "umt5", "qwen2", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_vl", "llama", "mistral"),
        *("mistral3", "gemma", "gemma2", "gemma3", "siglip", "siglip2"),
    )
)
Sources = Callable[[], Mapping[str, str]]  # a module's path to its text
Names = Mapping[str, frozenset[str]]


def mined(package: str, versions: Mapping[str, Sources]) -> dict[str, object]:
    """The document of a package."""
    order = sorted(versions, key=release)
    had: dict[tuple[str, str], list[bool]] = defaultdict(lambda: [False] * len(order))
    owners: list[Names] = []
    own: set[tuple[str, str]] = set()
    for at, version in enumerate(order):
        python = (3, release(version)[1]) if package == "python" else NEWEST
        names, defined = _names(package, versions[version](), python)
        owners.append(names)
        own |= defined
        for owner, bound in names.items():
            for name in bound:
                had[owner, name][at] = True
        print(f"{package} {version}: {sum(map(len, names.values()))} names", file=sys.stderr)
    tables: dict[str, dict[str, list[str | None]]] = defaultdict(dict)
    for owner, name in sorted(own & had.keys()):
        has = had[owner, name]
        lived = [at for at in range(len(order)) if owner in owners[at]]
        first, last = has.index(True), len(has) - 1 - has[::-1].index(True)
        if all(has[at] for at in lived if first <= at <= last) and (first > lived[0] or last < lived[-1]):
            since = order[first] if first > lived[0] else None
            gone = order[last + 1] if last < lived[-1] else None
            tables[owner][name] = [since, gone]
    return {"versions": order, "names": {owner: _grouped(names) for owner, names in tables.items()}}


def _grouped(names: Mapping[str, Iterable[str | None]]) -> dict[str, str]:
    """Names by "since gone", which many share."""
    made: dict[str, list[str]] = defaultdict(list)
    for name, span in names.items():
        made[" ".join(version or "-" for version in span)].append(name)
    return {span: " ".join(sorted(found)) for span, found in sorted(made.items())}


def _names(package: str, sources: Mapping[str, str], python: Python) -> tuple[Names, set[tuple[str, str]]]:
    """What each module binds, functions and each "Class.method" with their parameters as "name()", and what objects
    have as "Class object"; and which of these are made there, and not only imported for a module's own use."""
    found: dict[str, set[str]] = defaultdict(set)
    own: set[tuple[str, str]] = set()
    taken: set[str] = set()
    classes: dict[str, list[Class]] = defaultdict(list)
    stars: dict[str, list[str]] = {}
    public: dict[str, set[str]] = {}  # what `import *` takes: no submodules
    roots = frozenset(folder.split("/")[0].removesuffix(".py") for folder in TRAINERS.get(package, (package,)))
    for path, text in sources.items():
        path = _COMPILED.get(path, path)
        parts = [part for part in path.rpartition(".")[0].split("/") if part != "__init__"]
        encoder = parts[2:3] and parts[2] in _ENCODERS
        if any(map(_INNER.match, parts[1:])):
            continue
        module = ".".join(parts)
        for at in range(1, len(parts)):
            found[".".join(parts[:at])].add(parts[at])
            own.add((".".join(parts[:at]), parts[at]))
        of_a_model = package == "transformers" and "models" in parts[1:2] and len(parts) > 2
        if of_a_model and not encoder:
            continue  # of these the package itself hands out what is asked for
        told = read(text, roots, python)
        for one in told.classes:
            classes[one.name].append(one)
        if of_a_model:
            continue
        lazy = any(word in text for word in LAZY)  # what such a package imports for itself it does not hand out
        found[module] |= {name for name, made in told.bound if made or not lazy}
        own |= {(module, name) for name, made in told.bound if made or "/__init__.py" in path}
        inside = path.endswith(("__init__.py", ".pyi"))
        stars[module] = [_absolute(star, module, package=inside) for star in told.stars if not lazy]
        public[module] = {name for name, _ in told.bound}
        for function, parameters in told.functions:
            found[f"{function}()"] |= parameters
            own |= {(f"{function}()", name) for name in parameters}
            if "**" in parameters:
                taken.add(f"{function}()")
    for module, names in _by_stars(public, stars).items():
        found[module] |= names
        own |= {(module, name) for name in names}
    if package == "transformers":  # which hands out what its models' modules name in __all__
        handed = {
            name
            for path, text in sources.items()
            if "/models/" in path
            for name in handed_out(text)
            if not re.match("TF[A-Z]|Flax", name)
        }
        found[package] |= handed
        own |= {(package, name) for name in handed}
    for name in classes:
        if (has := _has(name, classes, ())) is not None:
            found[f"{name} object"] |= has
            own |= {(f"{name} object", one) for one in has}
    # Of what is no package's own to hand out, somebody else's may bear the same name.
    named = set().union(*(found[owner] for owner in (package, *_KNOWN_BY_NAME.get(package, ()))))
    if package in TRAINERS:
        named = {re.split(r"[.( ]", owner)[0] for owner in found if _by_name(owner)}
    kept = {owner for owner in found if not _by_name(owner) or re.split(r"[.( ]", owner)[0] in named}
    return {owner: frozenset(found[owner]) for owner in kept - taken}, own


def _by_name(owner: str) -> bool:
    """A function or a class, which failures name without its module."""
    return owner.endswith((")", " object"))


def _absolute(star: str, module: str, *, package: bool) -> str:
    level = len(star) - len(star.lstrip("."))
    above = module.split(".")[: len(module.split(".")) - level + package] if level else []
    return ".".join([*above, *filter(None, [star.lstrip(".")])])


def _by_stars(public: Mapping[str, set[str]], stars: Mapping[str, list[str]]) -> Mapping[str, set[str]]:
    """What modules have by `from another import *`, which may itself have it so."""
    taken: dict[str, set[str]] = {module: set() for module in stars}
    for _ in range(3):
        for module, others in stars.items():
            taken[module].update(*(public.get(other, set()) | taken.get(other, set()) for other in others))
    return taken


def _has(name: str, classes: Mapping[str, list[Class]], below: tuple[str, ...]) -> frozenset[str] | None:
    """What the objects of a class have, of its bases too; None where one of them computes it."""
    has: frozenset[str] = frozenset()
    for one in classes.get(name, ()) if name not in below else ():
        above = [_has(base, classes, (*below, name)) for base in one.bases]
        if one.open or None in above:
            return None
        has = has.union(one.has, *(part for part in above if part is not None))
    return has


def _of_wheel(package: str, wheel: Path) -> Sources:
    def read() -> Mapping[str, str]:
        with zipfile.ZipFile(wheel) as file:
            folder = f"{FOLDERS.get(package, package)}/"
            names = [name for name in file.namelist() if name.startswith(folder) and name.endswith((".py", ".pyi"))]
            return {name: file.read(name).decode() for name in names}

    return read


def _of_commit(folders: tuple[str, ...], git: Path, commit: str) -> Sources:
    def read_it() -> Mapping[str, str]:
        words = ["git", f"--git-dir={git}"]
        listed = subprocess.check_output([*words, "ls-tree", "-r", commit], text=True).splitlines()
        rows = [line.split(None, 3) for line in listed if line.endswith(".py")]
        blobs = {re.sub(r"^src/", "", path): blob for _, _, blob, path in rows}
        begins = tuple(one if one.endswith(".py") else f"{one}/" for one in folders)
        blobs = {path: blob for path, blob in blobs.items() if path.startswith(begins)}
        asked = "".join(f"{blob}\n" for blob in blobs.values())
        data = subprocess.run([*words, "cat-file", "--batch"], input=asked.encode(), capture_output=True, check=True)
        texts, at = [], 0
        for _ in blobs:
            end = data.stdout.index(b"\n", at)
            size = int(data.stdout[at:end].split()[-1])
            texts.append(data.stdout[end + 1 : end + 1 + size].decode(errors="replace"))
            at = end + size + 2
        return dict(zip(blobs, texts, strict=True))

    return read_it


def _of_folder(folder: Path, package: str) -> Sources:
    """A package as it is installed."""

    def read_it() -> Mapping[str, str]:
        return {
            file.relative_to(folder).as_posix(): file.read_text("utf-8") for file in folder.glob(f"{package}/**/*.py")
        }

    return read_it


def _of_stubs(stubs: Path, version: str) -> Sources:
    """The standard library as the package "python", in which a module is one that this Python has."""

    def read_it() -> Mapping[str, str]:
        lived = re.findall(r"^([\w.]+): (3\.\d+)-(3\.\d+)?", (stubs / "VERSIONS").read_text("utf-8"), re.M)
        there = {name: release(first) <= release(version) <= release(last or "3.99") for name, first, last in lived}
        texts = {}
        for file in stubs.rglob("*.pyi"):
            parts = file.relative_to(stubs).with_suffix("").parts
            above = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
            if next((there[name] for name in above if name in there), False):
                texts["/".join(("python", *file.relative_to(stubs).parts))] = file.read_text("utf-8")
        return texts

    return read_it


def _versions(package: str, source: Path) -> Iterator[tuple[str, Sources]]:
    if source.suffix == ".whl":
        yield source.name.split("-")[1], _of_wheel(package, source)
    elif (source / package / "__init__.py").exists():
        found = next(source.glob(f"{package}-*.dist-info")).name.split("-")[1].removesuffix(".dist")
        yield found.partition("+")[0], _of_folder(source, package)
    elif package == "python":
        yield from ((version, _of_stubs(source, version)) for version in PYTHONS)
    elif package in TRAINERS:
        yield from ((day, _of_commit(TRAINERS[package], source, at)) for day, at in commits(package, source))
    else:
        folders = (FOLDERS.get(package, package),)
        yield from ((tag, _of_commit(folders, source, at)) for tag, at in commits(package, source))


def commits(package: str, git_directory: Path) -> Iterator[tuple[str, str]]:
    """Of a trainer the days, a month apart, and what it was then; of a library its releases, and their tags."""
    git = ["git", f"--git-dir={git_directory}"]
    if package in TRAINERS:
        newest = subprocess.check_output([*git, "log", "-1", "--format=%cs"], text=True).strip()
        for day in (*(day for day in MONTHS if day < newest), newest):
            before = [*git, "rev-list", "-1", f"--before={day}T23:59", "HEAD"]
            if commit := subprocess.check_output(before, text=True).strip():
                yield day, commit
    else:
        for tag in subprocess.check_output([*git, "tag"], text=True).split():
            if (made := _TAG.fullmatch(tag)) and release(made[1]) >= release(OLDEST[package]):
                yield made[1], tag


def sources_by_version(package: str, sources: Iterable[str]) -> dict[str, Sources]:
    versions: dict[str, Sources] = {}
    for source in map(Path, sources):
        for version, texts in _versions(package, source):
            versions.setdefault(version, texts)
    return versions


def main(package: str, *sources: str) -> None:
    versions = sources_by_version(package, sources)
    file = NAMES / f"{package}.json"
    file.write_text(json.dumps(mined(package, versions), indent=0, separators=(",", ":")) + "\n", "utf-8")
    print(f"{file}: {file.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
