"""Make doctor/crash/names/PACKAGE.json anew: the names that only some versions of a package have.

    python -m zdoctor.maintenance.mine_names PACKAGE SOURCE ...

A SOURCE is a wheel of one version, or a git directory whose tags vX.Y.0 are read from OLDEST on. Names are what
modules bind at their top level (submodules too, and what a package hands out lazily), and the parameters of functions
that take no **kwargs. Written down is each that some of the versions lack: the first that has it, and the first that
has it no more. One that came and went more than once is left out.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from zdoctor.doctor.crash.versions import NAMES, release

OLDEST = {
    "diffusers": "0.27",
    "transformers": "4.42",
    "peft": "0.9",
    "huggingface_hub": "0.20",
    "accelerate": "0.27",
    "torchao": "0.5",
    "bitsandbytes": "0.41",
}
_TAG = re.compile(r"v?(\d+\.\d+\.0)")
# Parts of packages that nobody outside of them imports.
_INNER = re.compile(
    r"_|tests?$|test_utils$|testing|prototype$|experimental$|commands$|cli$|scripts$|dummy_|doc$|benchmarks?$"
)
_LAZY = ("_import_structure", "_SUBMOD_ATTRS", "_SUBMODULES", "_class_to_module")
Sources = Callable[[], Mapping[str, str]]  # a module's path to its text
Names = Mapping[str, frozenset[str]]


def mined(package: str, versions: Mapping[str, Sources]) -> dict[str, object]:
    """The document of a package."""
    order = sorted(versions, key=release)
    had: dict[tuple[str, str], list[bool]] = defaultdict(lambda: [False] * len(order))
    owners: list[Names] = []
    own: set[tuple[str, str]] = set()
    for at, version in enumerate(order):
        names, defined = _names(package, versions[version]())
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


def _names(package: str, sources: Mapping[str, str]) -> tuple[Names, set[tuple[str, str]]]:
    """What each module binds, and "Class.method" and functions with their parameters, as "name()"; and which of these
    are made there, and not only imported for a module's own use."""
    found: dict[str, set[str]] = defaultdict(set)
    own: set[tuple[str, str]] = set()
    taken: set[str] = set()
    for path, text in sources.items():
        parts = [part for part in path.removesuffix(".py").split("/") if part != "__init__"]
        if any(map(_INNER.match, parts[1:])):
            continue
        module = ".".join(parts)
        for at in range(1, len(parts)):
            found[".".join(parts[:at])].add(parts[at])
            own.add((".".join(parts[:at]), parts[at]))
        if package == "transformers" and "models" in parts[1:2] and len(parts) > 2:
            continue  # of these the package itself hands out what is asked for
        bound, functions = _read(text, package)
        lazy = any(word in text for word in _LAZY)  # what such a package imports for itself it does not hand out
        found[module] |= {name for name, made in bound if made or not lazy}
        own |= {(module, name) for name, made in bound if made or path.endswith("__init__.py")}
        for function, parameters in functions:
            found[f"{function}()"] |= parameters
            own |= {(f"{function}()", name) for name in parameters}
            if "**" in parameters:
                taken.add(f"{function}()")
    if package == "transformers":  # which hands out what its models' modules name in __all__
        handed = {
            name
            for path, text in sources.items()
            if "/models/" in path
            for name in _all(text)
            if not re.match("TF[A-Z]|Flax", name)
        }
        found[package] |= handed
        own |= {(package, name) for name in handed}
    # Of what is no package's own to hand out, somebody else's may bear the same name.
    kept = {owner for owner in found if not owner.endswith("()") or re.split(r"[.(]", owner)[0] in found[package]}
    return {owner: frozenset(found[owner]) for owner in kept - taken}, own


@cache
def _read(text: str, package: str) -> tuple[tuple[tuple[str, bool], ...], tuple[tuple[str, set[str]], ...]]:
    """What a module binds, and its functions. Most modules are the same in several versions."""
    tree = ast.parse(text)
    return tuple(_bound(tree.body, package)), tuple(_functions(tree.body))


def _bound(body: Iterable[ast.stmt], package: str) -> Iterator[tuple[str, bool]]:
    """The names that these statements bind, and whether they are made here."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                yield from _public([node.name], made=True)
            case ast.ImportFrom() if node.level or (node.module or "").split(".")[0] == package:
                yield from _public((alias.asname or alias.name for alias in node.names), made=False)
            case ast.If() | ast.Try() | ast.With():
                blocks = [getattr(node, part, []) for part in ("body", "orelse", "finalbody")]
                for block in (*blocks, *(handler.body for handler in getattr(node, "handlers", []))):
                    yield from _bound(block, package)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                lazy = node.value is not None and any(_root(target) in _LAZY for target in targets)
                names = _strings(node.value) if lazy else (one.id for one in targets if isinstance(one, ast.Name))
                yield from _public(names, made=True)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner))) if _root(owner) in _LAZY:
                yield from _public(_strings(node.value), made=True)


def _public(names: Iterable[str], *, made: bool) -> Iterator[tuple[str, bool]]:
    yield from ((name, made) for name in names if not re.match("_|TF[A-Z]|Flax[A-Z]|dummy_", name))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _strings(node: ast.AST | None) -> Iterator[str]:
    words = (one.value for one in (ast.walk(node) if node else ()) if isinstance(one, ast.Constant))
    yield from (word for word in words if isinstance(word, str) and word.isidentifier())


def _all(text: str) -> Iterator[str]:
    for found in re.finditer(r"^__all__ = \[([^\]]*)\]", text, re.M):
        yield from re.findall(r"[\"'](\w+)[\"']", found[1])


def _functions(body: Iterable[ast.stmt]) -> Iterator[tuple[str, set[str]]]:
    for node in body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, _parameters(node)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and (part.name == "__init__" or not part.name.startswith("_")):
                    yield f"{node.name}.{part.name}", _parameters(part)


def _parameters(node: ast.FunctionDef) -> set[str]:
    told = node.args
    names = {one.arg for one in (*told.args, *told.kwonlyargs)} - {"self", "cls"}
    # What a decorator hands on may be another signature.
    return names | ({"**"} if told.kwarg or node.decorator_list else set())


def _of_wheel(package: str, wheel: Path) -> Sources:
    def read() -> Mapping[str, str]:
        with zipfile.ZipFile(wheel) as file:
            names = [name for name in file.namelist() if name.startswith(f"{package}/") and name.endswith(".py")]
            return {name: file.read(name).decode() for name in names}

    return read


def _of_tag(package: str, folder: Path, tag: str) -> Sources:
    def read() -> Mapping[str, str]:
        git = ["git", f"--git-dir={folder}"]
        listed = subprocess.check_output([*git, "ls-tree", "-r", tag], text=True).splitlines()
        rows = [line.split(None, 3) for line in listed if line.endswith(".py")]
        blobs = {re.sub(r"^src/", "", path): blob for _, _, blob, path in rows}
        blobs = {path: blob for path, blob in blobs.items() if path.startswith(f"{package}/")}
        asked = "".join(f"{blob}\n" for blob in blobs.values())
        data = subprocess.run([*git, "cat-file", "--batch"], input=asked.encode(), capture_output=True, check=True)
        texts, at = [], 0
        for _ in blobs:
            end = data.stdout.index(b"\n", at)
            size = int(data.stdout[at:end].split()[-1])
            texts.append(data.stdout[end + 1 : end + 1 + size].decode())
            at = end + size + 2
        return dict(zip(blobs, texts, strict=True))

    return read


def main(package: str, *sources: str) -> None:
    versions: dict[str, Sources] = {}
    for source in map(Path, sources):
        if source.suffix == ".whl":
            versions[source.name.split("-")[1]] = _of_wheel(package, source)
            continue
        tags = subprocess.check_output(["git", f"--git-dir={source}", "tag"], text=True).split()
        for tag in tags:
            if (found := _TAG.fullmatch(tag)) and release(found[1]) >= release(OLDEST[package]):
                versions.setdefault(found[1], _of_tag(package, source, tag))
    file = NAMES / f"{package}.json"
    file.write_text(json.dumps(mined(package, versions), indent=0, separators=(",", ":")) + "\n", "utf-8")
    print(f"{file}: {file.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
