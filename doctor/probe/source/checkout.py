"""An ai-toolkit checkout: its generation, and the patches against meta tensors that circulate. By syntax trees alone.

None of the patterns looked for here stands in these files in any commit of ai-toolkit from 2024-07-15 to 27a03a91
(2026-08-21, searched with git log -S), so that each of them is somebody's change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from ...configs.python_tree import Source, Tree, Unparsable, argument, constant, dotted, last_name, parsed
from ...mining.sources import Sources
from ...model.checkout import Checkout, Edit, Patch, SizeFile

Z_IMAGE = "extensions_built_in/diffusion_models/z_image/z_image.py"
MIXIN = "toolkit/models/v2/_mixin.py"
DATA_LOADER = "toolkit/data_loader.py"
CAPTIONS = "toolkit/dataloader_mixins.py"
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
_LOOKS_INTO_JSON = re.compile(rb"^[^#\n]*prompt_path\.endswith\(\s*[\"']\.json[\"']", re.M)
_LOADS = re.compile(
    r"ZImageTransformer2DModel\s*\.\s*(?:from_pretrained|load_model)|endswith\(\s*[\"']\.safetensors[\"']"
)
_MARKS = re.compile(
    r"low_cpu_mem_usage|ignore_mismatched_sizes|to_empty|is_meta"
    r"|[\"']meta[\"']\s*(?:[!=]=|in\b)|(?:[!=]=|\bin)\s*\(?[\"']meta[\"']"
)
# What a later commit mended: the file, what it has either way, and what it has only since then.
_MENDED = {
    "ema": ("jobs/process/BaseSDTrainProcess.py", b"def setup_ema(", b"self.setup_ema()"),
    "caption-dropout": ("toolkit/dataloader_mixins.py", b"caption_dropout_rate", b"get_blank_text_embedding_path"),
}
_SIZES = re.compile(re.escape(SIZE_FILE))
_METHOD = re.compile(r"^(?=(?:    )?(?:async )?def |class |@)", re.M)
_GUARDS = ("OSError", "IOError", "PermissionError", "EnvironmentError", "Exception", "BaseException")


def read_checkout(root: str, commit: str) -> Checkout:
    """What a checkout holds."""
    sources = Sources(Path(root))
    unparsed: dict[str, str] = {}

    def marked(path: str, mark: re.Pattern[str]) -> Iterator[tuple[Source, ast.Module]]:
        """The functions of a file in which a mark stands."""
        text = sources.text(path).decode("utf-8", "surrogateescape")
        try:
            trees = _trees(text, mark) if mark.search(text) else []
        except Unparsable as error:
            trees, unparsed[path] = [], str(error)
        yield from ((Source(f"{root.rstrip('/')}/{path}", text), tree) for tree in trees)

    generation: Literal["A", "B", ""] = ""
    single = False
    for _, tree in marked(Z_IMAGE, _LOADS):
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        names = {dotted(call.func) for call in calls}
        single = single or any(_reads_single_files(call) for call in calls)
        if f"{_TRANSFORMER}.load_model" in names:
            generation = "B"
        elif f"{_TRANSFORMER}.from_pretrained" in names:
            generation = "A"
    carried = [patch for path in PATCHED for found in marked(path, _MARKS) for patch in patches(*found)]
    sizes = [size for found in marked(DATA_LOADER, _SIZES) for size in _size_files(*found)]
    return Checkout(
        root=root,
        commit=commit,
        generation=generation,
        single_files=single,
        json_captions=_LOOKS_INTO_JSON.search(sources.text(CAPTIONS)) is not None,
        unmended=frozenset(
            name
            for name, (path, always, since) in _MENDED.items()
            if always in sources.text(path) and since not in sources.text(path)
        ),
        patches=tuple(dict.fromkeys(carried)),
        size_file=sizes[0] if sizes else None,
        is_git=sources.text(".git/HEAD") != b"",
        unparsed=unparsed,
    )


def _trees(text: str, mark: re.Pattern[str]) -> list[ast.Module]:
    """Of each function and method in which a mark stands, at its lines; of all where one does not parse by itself."""
    made = []
    try:
        for start, end in pairwise([0, *(found.start() for found in _METHOD.finditer(text)), len(text)]):
            if mark.search(text, start, end):
                line = text.count("\n", 0, start)
                above = "\n" * (line - 1) + "class _:\n" if text[start] == " " else "\n" * line
                made.append(parsed(above + text[start:end]))
        return made
    except Unparsable:
        return [parsed(text)]


def _reads_single_files(node: ast.Call) -> bool:
    """`model_path.endswith(".safetensors")`, a test of what is loaded (`output_path` is one of what is saved)."""
    return (
        isinstance(node.func, ast.Attribute)
        and node.func.attr == "endswith"
        and "output" not in dotted(node.func.value)
        and any(constant(argument) == ".safetensors" for argument in node.args)
    )


def _size_files(source: Source, root: ast.AST) -> Iterator[SizeFile]:
    """Where the file of sizes is written: `with open(NAME, "w")` of a NAME that was made of its name."""
    tree = Tree(root)
    names = {
        target.id
        for node in tree.nodes
        if isinstance(node, ast.Assign) and any(constant(n) == SIZE_FILE for n in ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in tree.nodes:
        if isinstance(node, ast.With) and any(_opens(item.context_expr, names) for item in node.items):
            yield SizeFile(source.where(node), None if _is_guarded(node, tree) else _guard(source, node))


def _opens(node: ast.expr, names: set[str]) -> bool:
    if not (isinstance(node, ast.Call) and dotted(node.func) == "open" and node.args):
        return False
    written = str(constant(argument(node, "mode", 1)) or "").startswith(("w", "a", "x"))
    return written and isinstance(node.args[0], ast.Name) and node.args[0].id in names


def _is_guarded(node: ast.AST, tree: Tree) -> bool:
    caught = [handler.type for up in tree.tries(node) for handler in up.handlers]
    kinds = [kind for one in caught for kind in (one.elts if isinstance(one, ast.Tuple) else [one])]
    return any(kind is None or last_name(kind) in _GUARDS for kind in kinds)


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


_REASON = "this model has tensors without data: its files lack them"


def patches(source: Source, node: ast.AST) -> Iterator[Patch]:
    """Every patch below a node."""
    tree = Tree(node)
    for node in tree.nodes:
        if isinstance(node, ast.Call):
            yield from _loads_anything(source, node, tree)
            if isinstance(node.func, ast.Attribute) and node.func.attr == "to_empty":
                yield Patch("to-empty", source.where(node), _name(tree, node), source.code(node), _to(source, node))
        elif isinstance(node, ast.If) and (skipped := _skips_meta(node, tree)) is not None:
            edit = None if _is_swallowed(node, tree) else _raise(source, skipped)
            edit = _bare(source, node, tree) if skipped in node.orelse or skipped is node else edit
            code = f"if {source.code(node.test)}"
            yield Patch("meta-skipped", source.where(node), _name(tree, node), code, edit)


def _name(tree: Tree, node: ast.AST) -> str:
    function = tree.function(node)
    return "" if function is None else function.name


def _loads_anything(source: Source, call: ast.Call, tree: Tree) -> Iterator[Patch]:
    if not isinstance(call.func, ast.Attribute) or not re.match(
        r"(?:aitk_)?from_pretrained|load_model", call.func.attr
    ):
        return
    for name, value, kind in (
        ("low_cpu_mem_usage", False, "random-weights"),
        ("ignore_mismatched_sizes", True, "mismatch-ignored"),
    ):
        said = argument(call, name)
        if said is not None and constant(said) is value:
            start, end = source.span(said)
            edit = Edit(start, end, str(value), str(not value))
            made: Any = kind
            yield Patch(made, source.where(said), _name(tree, call), f"{name}={value}", edit)


def _to(source: Source, call: ast.Call) -> Edit | None:
    """`x.to_empty(device=d)` as `x.to(device=d)`, which refuses what has no data."""
    if not isinstance(call.func, ast.Attribute) or any(k.arg != "device" for k in call.keywords):
        return None
    end = source.span(call.func)[1]
    return Edit(end - len("to_empty"), end, "to_empty", "to")


def _skips_meta(node: ast.If, tree: Tree) -> ast.stmt | None:
    """The statement with which an `if` leaves tensors without data as they are; None when it does no such thing."""
    negated, about = _about_meta(node.test, node, tree)
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


def _about_meta(test: ast.expr, at: ast.AST, tree: Tree | None) -> tuple[bool, bool]:
    """(whether the test holds for tensors that do have data, whether it is about the meta device at all)."""
    negated = False
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        negated, test = not negated, test.operand
    if isinstance(test, ast.Name):  # is_meta = any(p.device.type == "meta" for p in …)
        function = None if tree is None else tree.function(at)
        for node in () if function is None else ast.walk(function):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if any(isinstance(target, ast.Name) and target.id == test.id for target in targets):
                assert isinstance(node, ast.Assign)
                inner, about = _about_meta(node.value, at, None)
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


def _bare(source: Source, node: ast.If, tree: Tree) -> Edit | None:
    """What is done to tensors that have data, without the test, and without the try around it that only prints.

    torch itself refuses to move what has no data. None where other statements stand in the try.
    """
    around: ast.stmt = node
    if _is_swallowed(node, tree):
        up = tree.parents.get(id(node))
        if not isinstance(up, ast.Try) or up.finalbody or up.orelse:
            return None
        if any(not isinstance(s, ast.Assign) for s in up.body if s is not node) or _is_swallowed(up, tree):
            return None
        around = up
    if any(statement.lineno != statement.end_lineno for statement in node.body):
        return None
    start, end = source.span(around)
    old = source.text(around)
    newline = ("\r\n" if "\r\n" in old else "\n") + " " * around.col_offset
    return Edit(start, end, old, newline.join(source.text(statement) for statement in node.body))


def _is_swallowed(node: ast.AST, tree: Tree) -> bool:
    """Whether an error that is raised here would be caught and only printed, inside of its function."""
    handlers = [handler for up in tree.tries(node) for handler in up.handlers]
    return any(not any(isinstance(node, ast.Raise) for node in ast.walk(handler)) for handler in handlers)
