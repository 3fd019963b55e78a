"""Every text that a user may read, as the templates that translators get: English as it stands in the source.

A text between quotes is one as soon as it reads like prose. What an f-string fills in becomes a `{name}`; where it
chooses between words ("s" or ""), each choice is a template of its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

# Which catalogue the texts of a file go into: the first folder that it lies below.
DOMAINS = (
    ("reports/", "screen"),
    ("doctor/progress/", "screen"),
    ("doctor/train/", "train"),
    ("doctor/demo/", "commands"),
    ("doctor/commands/", "commands"),
    ("doctor/cli.py", "commands"),
    ("doctor/errors/", "commands"),
    ("doctor/apply/", "commands"),
    ("doctor/editor/", "commands"),
    ("doctor/schema/", "commands"),
    ("doctor/memory/", "commands"),
    ("doctor/state/", "commands"),
    ("doctor/rules/", "commands"),
    ("doctor/", "rules"),
    ("checks/", "rules"),
    ("fixes/", "rules"),
)
MACHINES = re.compile(
    r"reports/(\w*json|sarif|junit|github)\.py|doctor/(families/record|families/models|schema/mine\w*|train/kernels|train/families/(qwen|flux2_dev))"
)
HELP = {"add_argument", "add_argument_group", "add_parser", "Parser", "ArgumentParser"}
# Calls whose texts nobody is told: patterns, tables of attributes, errors of programmers.
SILENT = re.compile(
    r"(re\.|pattern$|compile$|prevents$|rule$|repair$|getattr$|startswith$|endswith$|removeprefix$|removesuffix$|"
    r"(Value|Type|Key|Runtime|Assertion|Attribute|NotImplemented|Import|Lookup)Error$|frozenset$|"
    r"encode$|decode$|import_module$|parse$|warn$|filterwarnings$|environ|shell$|Signature$)"
)
MOST_VARIANTS = 12
_NAME = re.compile(r"[^\W\d]\w*")
_WORD = re.compile(r"(?<![\w/.\\-])[A-Za-z][a-z]+(?![\w/\\(=])")
_CODE = re.compile(
    r"^(zdoctor|pip|hf|python|export|chmod|mount|powershell|docker|conda|printf|http\S*|cmd|from \w+ import) "
    r"(?!.*\.$)|"
    r"\\[bdwsS]|\(\?|</?\w+[ >].*>|^(bold|dim)( (\{\w+\}|link|red|green|yellow|cyan|magenta|0))*$|"
    r":[^;{}]+;.*[}:]|\w\{[\w-]+:|\{%"
)
# names of keys and values, no sentence
_KEYS = re.compile(
    r"(?=.*\w_\w)(?!.*\b(?:is|are|of|the|not|with|to|a|than|leave|holds?)\b)[\w+-]+(?:\s+[\w+-]+){4,}", re.S
)
_PLACE = re.compile(r"\{(\w*)(?:[:!][^{}]*)?\}")

Texts = Iterator[tuple[str, str]]
"""(template, the file that it stands in)."""


def is_prose(text: str) -> bool:
    """Whether it has two plain words in a row, so that it is meant for a reader and no name, key or command."""
    plain = _PLACE.sub("0", text)
    found = _WORD.findall(plain)
    sentence = "{" in text and text.endswith(".") and bool(found)
    reads = sentence or (len(found) >= 2 and max(map(len, found)) > 2)
    return reads and " " in plain.strip() and not _CODE.search(plain) and not _KEYS.fullmatch(plain)


def is_label(text: str) -> bool:
    """Whether it is one word before or behind something: "next: ", "machine: {name}", "{count} known"."""
    label = re.fullmatch(r" *[A-Za-z]+: +|[ ,]*\{\w+\} [a-z]+|[A-Za-z]+:? \{\w+\}", text)
    return label is not None and not _CODE.search(text)


def variants(node: ast.expr) -> list[str]:
    """The templates that an expression may be, as far as it is written out; else a single place for it."""
    return list(islice(_variants(node), MOST_VARIANTS))


def _variants(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Constant(str(text)):
            yield text
        case ast.JoinedStr(values):
            yield from map("".join, product(*(_parts(value) for value in values)))
        case ast.BinOp(left, ast.Add(), right):
            yield from map("".join, product(variants(left), variants(right)))
        case ast.BinOp(ast.Constant(str(text)), ast.Mult(), _):
            yield from ("", text)
        case ast.IfExp(_, body, orelse):
            yield from (*_variants(body), *_variants(orelse))
        case _:
            yield f"{{{_named(node)}}}"


def _parts(value: ast.expr) -> list[str]:
    """What a piece of an f-string may be: its literal text with the braces of a template, or what is filled in."""
    if isinstance(value, ast.Constant):
        return [str(value.value).replace("{", "{{").replace("}", "}}")]
    assert isinstance(value, ast.FormattedValue)
    choices = variants(value.value)
    return choices if value.format_spec is None and value.conversion == -1 else [f"{{{_named(value.value)}}}"]


def _named(node: ast.expr) -> str:
    """A name for what is filled in: the last one that the expression has."""
    names = [n for n in _NAME.findall(re.sub(r"'[^']*'|\"[^\"]*\"", "", ast.unparse(node))) if n not in _NO_NAMES]
    last = names[-1] if names else "value"
    return {"self": "value"}.get(last, last)


_NO_NAMES = {
    "join",
    "if",
    "else",
    "for",
    "in",
    "not",
    "and",
    "or",
    "str",
    "len",
    "f",
    "r",
    "map",
    "sorted",
    "max",
    "min",
}


def numbered(template: str) -> str:
    """The template with a name of its own for each place."""
    seen: dict[str, int] = {}

    def name(place: re.Match[str]) -> str:
        word = place[1] or "value"
        seen[word] = seen.get(word, 0) + 1
        return f"{{{word}}}" if seen[word] == 1 else f"{{{word}{seen[word]}}}"

    return _PLACE.sub(name, template)


class _Reader(ast.NodeVisitor):
    def __init__(self, labels: bool) -> None:
        self.found: list[tuple[str, bool]] = []
        self.labels = labels
        self.help = False

    def take(self, node: ast.expr) -> None:
        for text in variants(node):
            made = numbered(text) if any(isinstance(one, ast.JoinedStr) for one in ast.walk(node)) else text
            if is_prose(made) or (self.labels and is_label(made)):
                # of a line's parts each is led back by itself, without the comma before it
                part = made.removeprefix(", ") if self.labels else made
                self.found.append((part.strip(), self.help))

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.take(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self.take(node)
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                self.visit(value.value)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        parts = list(_sum(node))
        if any(isinstance(one, ast.Constant | ast.JoinedStr) for one in parts):
            self.take(node)
            parts = [one for one in parts if not isinstance(one, ast.Constant | ast.JoinedStr | ast.IfExp)]
        for one in parts if len(parts) > 1 or isinstance(node.op, ast.Add) else (node.left, node.right):
            self.visit(one)

    def visit_Call(self, node: ast.Call) -> None:
        name = ast.unparse(node.func)
        if SILENT.search(name) or (name.endswith(".split") and isinstance(node.func.value, ast.Constant)):  # type: ignore[attr-defined]
            return
        if name == "plural" and isinstance(node.args[1], ast.Constant):
            self.found += ((f"{{number}} {node.args[1].value!s}{end}", self.help) for end in ("", "s"))
            return
        if name in ("said", "_said") and isinstance(node.args[0], ast.Constant):
            self.found.append((str(node.args[0].value).strip(), self.help))
            return
        before, self.help = self.help, self.help or name.rpartition(".")[2] in HELP
        self.generic_visit(node)
        self.help = before

    def visit_Compare(self, node: ast.Compare) -> None:
        pass

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.value)

    def _body(self, node: ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef | ast.Module) -> None:
        body = node.body[ast.get_docstring(node, clean=False) is not None :]
        for one in body:
            self.visit(one)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        self._body(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._body(node)

    def visit_Module(self, node: ast.Module) -> None:
        self._body(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a comment on a value
            self.visit(node.value)


def _sum(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _sum(node.left)
        yield from _sum(node.right)
    else:
        yield node


def _put_together(tree: ast.Module) -> ast.Module:
    """`text = A` with `text += B` right below it as `text = A + B`."""
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            lines = getattr(node, name, None)
            if isinstance(lines, list):
                setattr(node, name, list(_merged(lines)))
    return tree


def _merged(lines: list[ast.stmt]) -> Iterator[ast.stmt]:
    last: ast.stmt | None = None
    for line in lines:
        match last, line:
            case ast.Assign([ast.Name(one)], first), ast.AugAssign(ast.Name(other), ast.Add(), more) if one == other:
                last = ast.Assign([ast.Name(one)], ast.BinOp(first, ast.Add(), more))
                continue
        if last is not None:
            yield last
        last = line
    if last is not None:
        yield last


def of_file(file: Path, labels: bool) -> list[tuple[str, bool]]:
    """The templates of one module, with `labels` single words too, and whether each is of the command line's help."""
    reader = _Reader(labels)
    reader.visit(_put_together(ast.parse(file.read_text(encoding="utf-8"))))
    return reader.found


def of_source(root: Path = ROOT) -> Iterator[tuple[str, str, str]]:
    """(domain, template, file) of all modules that may tell a user something."""
    for top in ("reports", "checks", "fixes", "doctor"):
        for file in sorted((root / top).rglob("*.py")):
            place = file.relative_to(root).as_posix()
            if MACHINES.match(place):
                continue
            domain = next(name for start, name in DOMAINS if place.startswith(start))
            for text, helps in of_file(file, labels=domain == "screen"):
                yield ("help" if helps or place == "doctor/cli.py" else domain), text, place
