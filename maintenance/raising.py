"""What a module raises and asserts, by its syntax tree: the words, where they stand, and what holds there."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

# A condition of more characters says less than the words themselves.
LONGEST = 90
MOST_NAMES = 4
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_DOTTED = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*)(\()?")  # one that is called is none
_NO_NAMES = {*dir(builtins), *keyword.kwlist}
# As much of a text as is written down; two that begin alike are told alike.
MOST_WORDS = 150
ALIASES = {"EnvironmentError": "OSError", "IOError": "OSError"}
# What writes an error, or ends with one.
_LOGS = re.compile(r"[\w.]*log\w*\.(?:error|critical|exception)|sys\.exit|\w*parser\.error")
# What is printed of a failure.
_GIVES_UP = re.compile(r"\b(?:[Cc]annot|can't|[Uu]nable to|[Ff]ailed|[Ee]rror|ERROR|[Ii]nvalid)\b")
# What packages say after Python, where they compute what an object has.
_PYTHONS = re.compile(r"has no attribute|\bunexpected keyword|NoneType|cannot import name|No module named")
_AVAILABLE = re.compile(r"(?:\w+\.)*is_(?!torch_(?:cuda|mps|xpu))(\w+?)_available\(.*\)")
_EXISTS = re.compile(r"os\.path\.(?:exists|isfile|isdir)\((.+)\)|(.+)\.(?:exists|is_file|is_dir)\(\)")
_OPPOSITE = {ast.Is: ast.IsNot, ast.Eq: ast.NotEq, ast.In: ast.NotIn, ast.Lt: ast.GtE, ast.Gt: ast.LtE}
_OPPOSITES = {**_OPPOSITE, **{there: here for here, there in _OPPOSITE.items()}}


class Raised(NamedTuple):
    """`words` has {} for each value; `holds` is a kind of condition and what it is about, "" where that is not plain.

    `argument` is the parameter of the function that the condition looks at.
    """

    error: str
    words: str
    function: str
    holds: tuple[str, ...]
    argument: str


class Told(NamedTuple):
    """What a module raises, the classes and functions that it makes, and every name that something has or takes."""

    raised: tuple[Raised, ...]
    made: frozenset[str]
    names: frozenset[str]


@cache
def told(text: str, logged: bool = False) -> Told:
    """Most modules are the same in several versions of a package. `logged`: with what it logs as an error, too."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return Told((), frozenset(), frozenset())
    return Told(tuple(_of(tree.body, (), logged)), frozenset(_made(tree)), frozenset(_named(tree)))


def _made(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.FunctionDef) and "_" in node.name.strip("_"):
            yield f"{node.name}()"


def _named(tree: ast.Module) -> Iterator[str]:
    """Whatever may be an attribute or an argument."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.ClassDef():
                yield node.name
                for part in node.body:
                    if isinstance(part, ast.Assign | ast.AnnAssign):
                        yield from (one.id for one in ast.walk(part) if isinstance(one, ast.Name))
            case ast.arg():
                yield node.arg
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value=str(name)), *_]):
                yield name
            case ast.Call(func=ast.Attribute(attr="register_buffer"), args=[ast.Constant(value=str(name)), *_]):
                yield name


def _of(body: Iterable[ast.stmt], inside: tuple[str, ...], logged: bool) -> Iterator[Raised]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _of(node.body, (*inside, node.name), logged)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _Function(node, ".".join((*inside, node.name)), logged).found(node.body, ())
            yield from _of(node.body, (*inside, node.name), logged)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For):
            yield from _of((one for one in ast.iter_child_nodes(node) if isinstance(one, ast.stmt)), inside, logged)


class _Function:
    """The raise and assert statements of a function, each with the tests that lead to it."""

    def __init__(self, node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, logged: bool) -> None:
        told = node.args
        self.name = name
        self.logged = logged
        self.parameters = {one.arg for one in (*told.posonlyargs, *told.args, *told.kwonlyargs)} - {"self", "cls"}
        self.texts = {
            target.id: one.value
            for one in ast.walk(node)
            if isinstance(one, ast.Assign) and isinstance(target := one.targets[0], ast.Name)
        }

    def found(self, body: Sequence[ast.stmt], tests: tuple[ast.expr, ...]) -> Iterator[Raised]:
        for node in body:
            match node:
                case ast.Raise(exc=ast.Call(func=func, args=[first, *_])):
                    yield from self._made(ast.unparse(func).rpartition(".")[2], first, tests)
                case ast.Assert(test=test, msg=ast.expr() as message):
                    yield from self._made("AssertionError", message, (ast.UnaryOp(ast.Not(), test),))
                case ast.Expr(value=ast.Call(func=func, args=[first, *_])) if self.logged and _LOGS.fullmatch(
                    ast.unparse(func)
                ):
                    yield from self._made("", first, tests)
                case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=[first])) if (
                    self.logged and _GIVES_UP.search(_words(first, self.texts) or "")
                ):
                    yield from self._made("", first, tests)
                case ast.If():
                    yield from self.found(node.body, (*tests, node.test))
                    yield from self.found(node.orelse, (*tests, ast.UnaryOp(ast.Not(), node.test)))
                case ast.Try():
                    yield from self.found([*node.body, *node.orelse, *node.finalbody], tests)
                    for handler in node.handlers:
                        yield from self.found(handler.body, ())
                case ast.With() | ast.For() | ast.While() | ast.AsyncWith() | ast.AsyncFor():
                    yield from self.found(node.body, tests if isinstance(node, ast.With) else ())
                    yield from self.found(getattr(node, "orelse", []), ())
                case ast.Match():
                    for case in node.cases:
                        yield from self.found(case.body, ())

    def _made(self, error: str, message: ast.expr, tests: tuple[ast.expr, ...]) -> Iterator[Raised]:
        words = _words(message, self.texts)
        if (not error or error[:1].isupper()) and words is not None and says_much(words):
            kind = _holds(tests)
            names = re.findall(r"(?<![\w.\"'])[A-Za-z_]\w*", " ".join(kind[1:2]))
            argument = next((name for name in names if name in self.parameters), "")
            yield Raised(ALIASES.get(error, error), words[:MOST_WORDS], self.name, kind, argument)


def says_much(words: str) -> bool:
    """Whether nobody else says so by chance."""
    plain = re.findall(r"[A-Za-z_]{2,}", words.replace("{}", " "))
    return (
        not _PYTHONS.search(words)
        and len(plain) >= 3
        and sum(map(len, plain)) >= 14
        and max(map(len, words.split("{}"))) >= 10
    )


def _words(node: ast.expr, texts: dict[str, ast.expr], depth: int = 0) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            made: str | None = text
        case ast.JoinedStr():
            made = "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
        case ast.BinOp(op=ast.Add()):
            sides = (_words(node.left, texts, depth), _words(node.right, texts, depth))
            made = None if sides == (None, None) else "".join(side or "{}" for side in sides)
        case ast.BinOp(op=ast.Mod()):
            whole = _words(node.left, texts, depth)
            made = re.sub(r"%(?:\(\w+\))?[-.\d]*[srdfi]", "{}", whole) if whole else None
        case ast.Call(func=ast.Attribute(attr="format", value=template)):
            whole = _words(template, texts, depth)
            made = re.sub(r"\{[^{}]*\}", "{}", whole) if whole else None
        case ast.Name() if node.id in texts and depth < 2:
            return _words(texts[node.id], texts, depth + 1)
        case _:
            return None
    return " ".join(made.split()) if made else made


def _holds(tests: tuple[ast.expr, ...]) -> tuple[str, ...]:
    """The last of the tests, in a kind of its own where it is one of the usual."""
    if not tests:
        return ()
    chain = _chain(tests)
    if chain is not None:
        return _short(chain)
    test = _plain(tests[-1])
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) and _is_none_of(test.values):
        test = test.values[0]
    return _short(_kind(test))


def _is_none_of(values: Sequence[ast.expr]) -> bool:
    """ "x is None or not x": the first says it all."""
    return len({_kind(_plain(one))[:2] for one in values}) == 1


def _chain(tests: tuple[ast.expr, ...]) -> tuple[str, ...] | None:
    """if x == 1 … elif x == 2 … else: x is neither."""
    allowed: list[str] = []
    what = ""
    for test in reversed(tests):
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
                asked, given = ast.unparse(left), [ast.unparse(right)]
            case ast.UnaryOp(
                op=ast.Not(),
                operand=ast.Compare(left=left, ops=[ast.In()], comparators=[right]),
            ):
                asked, given = ast.unparse(left), [_listed(right)]
            case _:
                break
        if what not in ("", asked):
            break
        what, allowed = asked, [*given, *allowed]
    return ("outside", what, ", ".join(allowed)) if len(allowed) > 1 else None


def _plain(test: ast.expr) -> ast.expr:
    """Without a "not" where that can be said otherwise."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=ast.UnaryOp(op=ast.Not(), operand=inner)):
            return _plain(inner)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Compare(left=left, ops=[op], comparators=right)):
            return ast.Compare(left, [_OPPOSITES[type(op)]()], right)
        case ast.UnaryOp(op=ast.Not(), operand=ast.BoolOp(op=op, values=values)):
            other: ast.boolop = ast.And() if isinstance(op, ast.Or) else ast.Or()
            return ast.BoolOp(other, [_plain(ast.UnaryOp(ast.Not(), one)) for one in values])
        case _:
            return test


def _kind(test: ast.expr) -> tuple[str, ...]:
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            alone = next((inner for one in values if (inner := _kind(_plain(one)))[0] == "lacking"), None)
            return alone or ("asks", ast.unparse(test))
        case ast.Compare(left=left, ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
            return "none", ast.unparse(left)
        case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return "given", ast.unparse(left)
        case ast.Compare(left=left, ops=[ast.NotIn()], comparators=[right]):
            return "outside", ast.unparse(left), _listed(right)
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="len"), args=[what]), ops=[ast.Eq()], comparators=[ast.Constant(value=0)]
        ):
            return "empty", ast.unparse(what)
        case ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]):
            return "differ", ast.unparse(left), ast.unparse(right)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Name(id="isinstance"), args=[what, kind])):
            return "kind", ast.unparse(what), _listed(kind)
        case ast.UnaryOp(op=ast.Not(), operand=what):
            code = ast.unparse(what)
            if (lacking := _AVAILABLE.fullmatch(code)) is not None:
                return "lacking", lacking[1]
            if (path := _EXISTS.fullmatch(code)) is not None:
                return "path", path[1] or path[2]
            return ("empty", code) if isinstance(what, ast.Name | ast.Attribute) else ("asks", code)
        case _:
            return "asks", ast.unparse(test)


def _listed(node: ast.expr) -> str:
    several = isinstance(node, ast.List | ast.Tuple | ast.Set)
    return ", ".join(map(ast.unparse, node.elts)) if several else ast.unparse(node)  # type: ignore[attr-defined]


def _short(kind: tuple[str, ...]) -> tuple[str, ...]:
    code = "".join(kind)
    if not all(kind[1:]) or len(code) > LONGEST or re.search(r"[\n`]|[.!?] |; ", code):
        return ()
    kind = tuple(part.replace("self.", "") for part in kind)
    return kind if kind[0] != "asks" and all(map(_is_plain, kind[1:])) else _asked(kind[1:])


def _asked(parts: Iterable[str]) -> tuple[str, ...]:
    """Of a condition that is more than a name and its values only what it looks at: code is the package's own."""
    found = (one for part in parts for one in _DOTTED.finditer(_QUOTED.sub("", part)))
    few = list(dict.fromkeys(one[1] for one in found if not one[2] and one[1] not in _NO_NAMES))
    return ("asks", ", ".join(few)) if 0 < len(few) <= MOST_NAMES else ()


def _is_plain(part: str) -> bool:
    try:
        return _plainly(ast.parse(part, mode="eval").body)
    except SyntaxError:
        return part.isidentifier()


def _plainly(node: ast.expr) -> bool:
    match node:
        case ast.Name() | ast.Constant():
            return True
        case ast.UnaryOp(op=ast.USub(), operand=inner) | ast.Attribute(value=inner):
            return _plainly(inner)
        case ast.Subscript(value=what, slice=index):
            return _plainly(what) and _plainly(index)
        case ast.Tuple(elts=several):
            return all(map(_plainly, several))
        case ast.Call(func=what, args=args, keywords=[]):
            return _plainly(what) and len(args) < 2 and all(map(_plainly, args))
        case _:
            return False
