"""An ai-toolkit checkout: its generation, and the patches against meta tensors that circulate. By syntax trees alone.

None of the patterns looked for here stands in these files in any commit of ai-toolkit from 2024-07-15 to 27a03a91
(2026-08-21, searched with git log -S), so that each of them is somebody's change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Literal

from ...configs.python_tree import Source, Tree, Unparsable, constant, dotted, keyword, parsed
from ...model.checkout import Checkout, Edit, SizeFile
from .patches import patches

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
_LOADS = re.compile(rb"ZImageTransformer2DModel\s*\.\s*(?:from_pretrained|load_model)")
_SINGLE = re.compile(rb"endswith\(\s*[\"']\.safetensors[\"']")
_LOOKS_INTO_JSON = re.compile(rb"^[^#\n]*prompt_path\.endswith\(\s*[\"']\.json[\"']", re.M)
_MARKS = re.compile(
    rb"^[^#\n]*(?:low_cpu_mem_usage\s*=\s*False|ignore_mismatched_sizes\s*=\s*True|\.to_empty\(|\.is_meta\b"
    rb"|[\"']meta[\"']\s*(?:==|!=|in\b)|(?:==|!=|\bin)\s*\(?[\"']meta[\"'])",
    re.M,
)
_WORDS = (b"low_cpu_mem_usage", b"ignore_mismatched_sizes", b"to_empty", b"is_meta", b'"meta"', b"'meta'")  # quicker
_METHOD = re.compile(rb"^(?=(?:    )?(?:async )?def |class |@)", re.M)
_GUARDS = ("OSError", "IOError", "PermissionError", "EnvironmentError", "Exception", "BaseException")

Piece = tuple[Source, ast.AST]


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
    carried = [patch for path in PATCHED for piece in pieces(path, _MARKS) for patch in patches(*piece)]
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
        json_captions=_LOOKS_INTO_JSON.search(read(CAPTIONS) or b"") is not None,
        patches=tuple(dict.fromkeys(carried)),
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
    given = node.args[1] if len(node.args) > 1 else getattr(keyword(node, "mode"), "value", None)
    written = str(constant(given) or "").startswith(("w", "a", "x"))
    return written and isinstance(node.args[0], ast.Name) and node.args[0].id in names


def _is_guarded(node: ast.AST, tree: Tree) -> bool:
    caught = [handler.type for up in tree.tries(node) for handler in up.handlers]
    kinds = [kind for one in caught for kind in (one.elts if isinstance(one, ast.Tuple) else [one])]
    return any(kind is None or dotted(kind).rpartition(".")[2] in _GUARDS for kind in kinds)


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
