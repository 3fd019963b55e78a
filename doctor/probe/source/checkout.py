"""An ai-toolkit checkout: its generation, and the patches against meta tensors that circulate. By syntax trees alone.

None of the patterns looked for here stands in these files in any commit of ai-toolkit from 2024-07-15 to 27a03a91
(2026-08-21, searched with git log -S), so that each of them is somebody's change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Literal

from ...configs.python_tree import Source, Unparsable, constant, dotted, keyword, parsed
from ...model import Schema, Unknown
from ...model.checkout import Checkout, Edit, Patch, SizeFile
from ..world import World

Z_IMAGE = "extensions_built_in/diffusion_models/z_image/z_image.py"
MIXIN = "toolkit/models/v2/_mixin.py"
DATA_LOADER = "toolkit/data_loader.py"
# where the model is loaded, moved, quantized and merged into
PATCHED = (
    Z_IMAGE,
    MIXIN,
    "toolkit/models/v2/z_image.py",
    "toolkit/util/quantize.py",
    "toolkit/network_mixins.py",
    "toolkit/models/base_model.py",
    "jobs/process/BaseSDTrainProcess.py",
)
SIZE_FILE = ".aitk_size.json"
_TRANSFORMER = "ZImageTransformer2DModel"
_LOADS = re.compile(rb"ZImageTransformer2DModel\s*\.\s*(?:from_pretrained|load_model)")
_SINGLE = re.compile(rb"endswith\(\s*[\"']\.safetensors[\"']")
_MARKS = re.compile(
    rb"^[^#\n]*(?:low_cpu_mem_usage\s*=\s*False|ignore_mismatched_sizes\s*=\s*True|\.to_empty\(|\.is_meta\b"
    rb"|[\"']meta[\"']\s*(?:==|!=|in\b)|(?:==|!=|\bin)\s*\(?[\"']meta[\"'])",
    re.M,
)
_WORDS = (b"low_cpu_mem_usage", b"ignore_mismatched_sizes", b"to_empty", b"is_meta", b'"meta"', b"'meta'")  # quicker
_METHOD = re.compile(rb"^(?=(?:    )?(?:async )?def |class |@)", re.M)
_GUARDS = ("OSError", "IOError", "PermissionError", "EnvironmentError", "Exception", "BaseException")
_REASON = "this model has tensors without data: its files lack them"

Piece = tuple[Source, ast.AST]


def probe_checkout(world: World, schema: Schema | Unknown) -> Checkout | Unknown | None:
    """The checkout that the config's schema was mined from; None where there is none at hand."""
    if isinstance(schema, Unknown):
        return schema
    if schema.trainer != "ai-toolkit" or not schema.source:
        return None
    root = schema.source
    return read_checkout(root, schema.commit, lambda path: world.source(root, path))


def read_checkout(root: str, commit: str, read: Callable[[str], bytes | None]) -> Checkout:
    """What a checkout holds; `read` gives the bytes of a file below it, None where there is none."""
    unparsed: dict[str, str] = {}

    def pieces(path: str, mark: re.Pattern[bytes]) -> Iterator[Piece]:
        data = read(path)
        if data is None or not (mark is not _MARKS or any(word in data for word in _WORDS)) or not mark.search(data):
            return
        try:
            yield from _pieces(_join(root, path), data, mark)
        except Unparsable as error:
            unparsed[path] = str(error)

    generation: Literal["A", "B", ""] = ""
    single = False
    for _, tree in pieces(Z_IMAGE, _LOADS):
        names = {dotted(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        if f"{_TRANSFORMER}.load_model" in names:
            generation = "B"
        elif f"{_TRANSFORMER}.from_pretrained" in names:
            generation = "A"
    for _, tree in pieces(Z_IMAGE, _SINGLE):
        single = single or any(_reads_single_files(node) for node in ast.walk(tree))
    patches = [patch for path in PATCHED for piece in pieces(path, _MARKS) for patch in _patches(*piece)]
    sizes = [
        found
        for piece in pieces(DATA_LOADER, re.compile(re.escape(SIZE_FILE).encode()))
        for found in _size_files(*piece)
    ]
    return Checkout(
        root=root,
        commit=commit,
        generation=generation,
        single_files=single,
        patches=tuple(dict.fromkeys(patches)),
        size_file=sizes[0] if sizes else None,
        is_git=read(".git/HEAD") is not None,
        unparsed=unparsed,
    )


def _join(root: str, path: str) -> str:
    return f"{root.rstrip('/')}/{path}"


def _pieces(path: str, data: bytes, mark: re.Pattern[bytes]) -> Iterator[Piece]:
    """The functions and methods in which a mark stands, parsed by themselves if that works, else the whole file."""
    text = data.decode("utf-8", "surrogateescape")
    starts = [0, *(found.start() for found in _METHOD.finditer(data)), len(data)]
    trees: list[ast.AST] = []
    for start, end in pairwise(starts):
        part = data[start:end]
        if not mark.search(part):
            continue
        head = b"class _:\n" if part.startswith(b"    ") else b"\n"
        lines = data.count(b"\n", 0, start)
        if not part.startswith((b"    def ", b"    async def ", b"def ", b"async def ")) or lines == 0:
            trees = []
            break
        try:
            trees.append(parsed((b"\n" * (lines - 1) + head + part).decode("utf-8", "surrogateescape")))
        except Unparsable:
            trees = []
            break
    if not trees:
        trees = [parsed(text)]
    for tree in trees:
        yield Source(path, text), tree


def _reads_single_files(node: ast.AST) -> bool:
    """`model_path.endswith(".safetensors")`, a test of what is loaded (`output_path` is one of what is saved)."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "endswith"
        and "output" not in dotted(node.func.value)
        and any(constant(argument) == ".safetensors" for argument in node.args)
    )


def _patches(source: Source, tree: ast.AST) -> Iterator[Patch]:
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from _loads_anything(source, node, parents)
            if isinstance(node.func, ast.Attribute) and node.func.attr == "to_empty":
                code, edit = source.code(node), _to(source, node)
                yield Patch("to-empty", source.where(node), _function(node, parents), code, edit)
        elif isinstance(node, ast.If):
            skipped = _skips_meta(node, parents)
            if skipped is not None:
                edit = _raise(source, skipped) if not _swallowed(node, parents) else None
                code = f"if {source.code(node.test)}"
                yield Patch("meta-skipped", source.where(node), _function(node, parents), code, edit)


def _loads_anything(source: Source, call: ast.Call, parents: dict[int, ast.AST]) -> Iterator[Patch]:
    if not isinstance(call.func, ast.Attribute) or not re.match(
        r"(?:aitk_)?from_pretrained|load_model", call.func.attr
    ):
        return
    for name, value, kind in (
        ("low_cpu_mem_usage", False, "random-weights"),
        ("ignore_mismatched_sizes", True, "mismatch-ignored"),
    ):
        said = keyword(call, name)
        if said is not None and constant(said.value) is value:
            start, end = source.span(said.value)
            edit = Edit(start, end, str(value), str(not value))
            made: Any = kind
            yield Patch(made, source.where(said.value), _function(call, parents), f"{name}={value}", edit)


def _to(source: Source, call: ast.Call) -> Edit | None:
    """`x.to_empty(device=d)` as `x.to(device=d)`, which refuses what has no data."""
    if not isinstance(call.func, ast.Attribute) or any(k.arg != "device" for k in call.keywords):
        return None
    end = source.span(call.func)[1]
    return Edit(end - len("to_empty"), end, "to_empty", "to")


def _skips_meta(node: ast.If, parents: dict[int, ast.AST]) -> ast.stmt | None:
    """The statement with which an `if` leaves tensors without data as they are; None when it does no such thing."""
    negated, about = _about_meta(node.test, node, parents)
    if not about:
        return None
    branch = node.orelse if negated else node.body
    if any(isinstance(inner, ast.Raise) for statement in branch for inner in ast.walk(statement)):
        return None
    if not branch:
        return node if negated else None
    last = branch[-1]
    leaves = isinstance(last, ast.Continue | ast.Return | ast.Pass)
    only_says = all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Call | ast.Constant) for s in branch)
    return last if leaves or (negated and only_says) else None


def _about_meta(test: ast.expr, at: ast.AST, parents: dict[int, ast.AST]) -> tuple[bool, bool]:
    """(whether the test holds for tensors that do have data, whether it is about the meta device at all)."""
    negated = False
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        negated, test = not negated, test.operand
    if isinstance(test, ast.Name):  # is_meta = any(p.device.type == "meta" for p in …)
        up: ast.AST | None = at
        while up is not None and not isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef):
            up = parents.get(id(up))
        for node in ast.walk(up) if up is not None else ():
            targets = node.targets if isinstance(node, ast.Assign) else []
            if any(isinstance(target, ast.Name) and target.id == test.id for target in targets):
                assert isinstance(node, ast.Assign)
                inner, about = _about_meta(node.value, at, {})
                if about:
                    return inner != negated, True
        return negated, False
    for node in ast.walk(test):
        if isinstance(node, ast.Attribute) and node.attr == "is_meta":
            return negated, True
        if isinstance(node, ast.Compare) and any(constant(side) == "meta" for side in (node.left, *node.comparators)):
            return negated != isinstance(node.ops[0], ast.NotEq | ast.NotIn), True
    return negated, False


def _raise(source: Source, skipped: ast.stmt) -> Edit | None:
    """An error in the place of the statement that skips."""
    if isinstance(skipped, ast.If):  # `if not is_meta: move()` without an else
        return None
    start, end = source.span(skipped)
    return Edit(start, end, source.text(skipped), f'raise RuntimeError("{_REASON}")')


def _swallowed(node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    """Whether an error that is raised here would be caught and only printed, inside of its function."""
    child, up = node, parents.get(id(node))
    while up is not None and not isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef):
        if isinstance(up, ast.Try) and child in up.body and any(not _raises(handler) for handler in up.handlers):
            return True
        child, up = up, parents.get(id(up))
    return False


def _raises(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for statement in handler.body for node in ast.walk(statement))


def _function(node: ast.AST, parents: dict[int, ast.AST]) -> str:
    up = parents.get(id(node))
    while up is not None and not isinstance(up, ast.FunctionDef | ast.AsyncFunctionDef):
        up = parents.get(id(up))
    return up.name if up is not None else ""


def _size_files(source: Source, tree: ast.AST) -> Iterator[SizeFile]:
    """Where the file of sizes is written: `with open(NAME, "w")` of a NAME that was made of its name."""
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    names = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(constant(n) == SIZE_FILE for n in ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.With) or not any(_opens(item.context_expr, names) for item in node.items):
            continue
        yield SizeFile(source.where(node), None if _guarded(node, parents) else _guard(source, node))


def _opens(node: ast.expr, names: set[str]) -> bool:
    if not (isinstance(node, ast.Call) and dotted(node.func) == "open" and node.args):
        return False
    given = node.args[1] if len(node.args) > 1 else getattr(keyword(node, "mode"), "value", None)
    written = str(constant(given) or "").startswith(("w", "a", "x"))
    return written and isinstance(node.args[0], ast.Name) and node.args[0].id in names


def _guarded(node: ast.AST, parents: dict[int, ast.AST]) -> bool:
    child, up = node, parents.get(id(node))
    while up is not None:
        if isinstance(up, ast.Try) and child in up.body:
            for handler in up.handlers:
                caught = handler.type
                kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
                if any(kind is None or dotted(kind).rpartition(".")[2] in _GUARDS for kind in kinds):
                    return True
        child, up = up, parents.get(id(up))
    return False


def _guard(source: Source, node: ast.With) -> Edit:
    """A try around the statement, as deep as it stands."""
    start, end = source.span(node)
    old = source.text(node)
    newline = "\r\n" if "\r\n" in old else "\n"
    indent = " " * node.col_offset
    inside = newline.join(f"    {line}" if line.strip() else line for line in old.split(newline))
    new = newline.join(
        (
            "try:",
            f"{indent}{inside}",
            f"{indent}except OSError as error:",
            f'{indent}    print(f"The sizes of the images are not kept: {{error}}")',
        )
    )
    return Edit(start, end, old, new)
