"""Values and keys as text, in the format of a file."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from .node import Node
from .parse import parse
from .text import Expanded, Lines

_PLAIN = re.compile(r"[A-Za-z_/.][\w/.+-]*")
# What YAML shows only escaped. (Named by what is left out: the set of all others takes 10 ms to compile.)
_UNPRINTABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


class EditError(Exception):
    """The edit cannot be made without changing something else; nothing was changed."""


def key_text(name: str, format: str) -> str:
    if format == "toml" and re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return name
    return name if format == "yaml" and _reads_as_itself(name) else literal(name, format)


def assigned(name: str, value: Any, format: str) -> str:
    """A key with its value, as it stands between braces."""
    return f"{key_text(name, format)}{' =' if format == 'toml' else ':'} {literal(value, format)}"


def _reads_as_itself(text: str) -> bool:
    if not _PLAIN.fullmatch(text):
        return False
    tree = parse("", Expanded(text), "yaml", Lines("", text))
    return isinstance(tree, Node) and isinstance(tree.value, str) and tree.value == text


def literal(value: Any, format: str = "yaml", *, plain: bool = False) -> str:
    """A value as config text. Text with a backslash or a quote is single-quoted in YAML."""
    if format == "json":
        return json.dumps(value, ensure_ascii=False)
    if format == "env":
        text = plain_text(value)
        return f'"{text}"' if "'" in text else f"'{text}'"
    match value:
        case list() | tuple():
            return "[" + ", ".join(literal(entry, format) for entry in value) + "]"
        case dict():
            return "{" + ", ".join(assigned(str(name), inner, format) for name, inner in value.items()) + "}"
        case None if format == "toml":
            raise EditError("TOML has no way to write nothing")
        case None | bool() | int():
            return json.dumps(value)
        case float():
            return repr(value) if format == "toml" else _yaml_number(value)
    if format == "toml":
        # a JSON string is a TOML string, but for the one control character that JSON leaves as it is
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    return _yaml_text(str(value), plain)


def _yaml_number(value: float) -> str:
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else (".inf" if value > 0 else "-.inf")
    shown = repr(value)
    return shown.replace("e", ".0e", 1) if "e" in shown and "." not in shown else shown


def _yaml_text(text: str, plain: bool) -> str:
    if plain and _reads_as_itself(text):
        return text
    if _UNPRINTABLE.search(text):
        return '"' + "".join(map(_escaped, text)) + '"'
    if "\\" in text or '"' in text:
        return "'" + text.replace("'", "''") + "'"
    return f'"{text}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character == "\n":
        return "\\n"
    if not _UNPRINTABLE.match(character):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plain_text(value: Any) -> str:
    """A value as a variable holds it: text."""
    if isinstance(value, list | tuple | dict):
        raise EditError("a variable holds no list")
    return json.dumps(value) if isinstance(value, bool) or value is None else str(value)
