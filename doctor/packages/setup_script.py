"""What a setup.py hands to setup(), read by its syntax tree: literals, and what the file's own names make of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

Names = Mapping[str, ast.AST]
DEEPEST = 20  # names that lead to each other


def declared(text: str) -> dict[str, object]:
    """`dependencies`, `optional-dependencies` and `requires-python` as pyproject.toml has them; {} of no such script.

    An entry that only the running script knows is left out.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    call = next((node for node in calls if ast.unparse(node.func) in ("setup", "setuptools.setup")), None)
    if call is None:
        return {}
    names = _names(tree)
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    extras = _followed(given.get("extras_require"), names)
    pairs = zip(extras.keys, extras.values, strict=True) if isinstance(extras, ast.Dict) else ()
    return {
        "dependencies": list(_texts(given.get("install_requires"), names)),
        "optional-dependencies": {
            key.value: list(_texts(value, names)) for key, value in pairs if isinstance(key, ast.Constant)
        },
        "requires-python": next(_texts(given.get("python_requires"), names), None),
    }


def _names(tree: ast.Module) -> Names:
    """What each name at the left edge stands for; a function without arguments for what it returns."""
    known: dict[str, ast.AST] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign([ast.Name(name)], value):
                known[name] = value
            case ast.FunctionDef(name, ast.arguments([], [])):
                made = [node.value for node in ast.walk(statement) if isinstance(node, ast.Return) and node.value]
                if made:
                    known[name] = made[0]
    return known


def _followed(node: ast.AST | None, names: Names, depth: int = 0) -> ast.AST | None:
    """What an expression stands for, as far as names, calls without arguments and keys of dictionaries tell."""
    match node:
        case ast.Name(name) | ast.Call(ast.Name(name), [], []) if name in names and depth < DEEPEST:
            return _followed(names[name], names, depth + 1)
        case ast.Call(ast.Name("list"), [inner], []):
            return _followed(inner, names, depth + 1)
        case ast.Subscript(owner, ast.Constant(key)):
            table = _followed(owner, names, depth + 1)
            if isinstance(table, ast.Dict):
                for at, value in zip(table.keys, table.values, strict=True):
                    if isinstance(at, ast.Constant) and at.value == key:
                        return _followed(value, names, depth + 1)
    return node


def _texts(node: ast.AST | None, names: Names, depth: int = 0) -> Iterator[str]:
    """The texts in a list, and in the lists that it spreads or is added to."""
    match _followed(node, names) if depth < DEEPEST else None:
        case ast.Constant(str(text)):
            yield text
        case ast.Starred(inner):
            yield from _texts(inner, names, depth + 1)
        case ast.List(entries) | ast.Tuple(entries):
            for entry in entries:
                yield from _texts(entry, names, depth + 1)
        case ast.BinOp(left, ast.Add(), right):
            yield from _texts(left, names, depth + 1)
            yield from _texts(right, names, depth + 1)
