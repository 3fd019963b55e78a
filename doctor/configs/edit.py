"""A config is changed by source span: only the characters of a value move, comments and layout stay.

The result is parsed again, and its tree must be the old one with exactly the declared values changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ..model import Problem, ReplaceText, SetValue
from ..model.record import replace
from .literals import EditError, assigned, key_text, literal, plain_text
from .node import Node, escaped
from .parse import parse
from .text import Expanded, Lines, format_of, newline_of

__all__ = ["EditError", "apply_edits"]

_VARIABLE = re.compile(r"\$\{[^}]+\}")


def apply_edits(text: str, edits: Sequence[SetValue | ReplaceText]) -> str:
    """The text with the edits made. All of them must be for one file; offsets count in the given text.

    Raises EditError when an edit does not fit the text, or when the result would differ from the original in
    anything but the declared keys. A text that did not parse must parse afterwards, or fail further down.
    """
    if not edits:
        return text
    path = edits[0].path
    format = format_of(path, text)
    replacements = [edit for edit in edits if isinstance(edit, ReplaceText)]
    settings = [edit for edit in edits if isinstance(edit, SetValue)]
    done = _spliced(text, replacements)
    if format == "shell":
        from .shell_edit import same_commands, set_option

        same_commands(path, text, done)
        for setting in settings:
            done = set_option(path, done, setting)
    elif format == "python":
        from .python_tree import Unparsable, parsed

        try:
            parsed(done)
        except Unparsable as error:
            raise EditError(f"the file would no longer parse: {error.why}") from error
    else:
        if replacements:
            _require_only(text, done, replacements, format)
        if format == "env":
            settings = [
                edit if isinstance(edit.value, str) else replace(edit, value=plain_text(edit.value))
                for edit in settings
            ]
        try:
            done = _set(done, settings, format)
        except EditError:
            if len(settings) == 1:
                raise
            for setting in settings:  # of which one makes the section that another is for
                done = _set(done, [setting], format)
    return done


def _tree(text: str, format: str) -> Node | Problem:
    # a variable is filled in by the trainer; here it stands as digits of the same length
    closed = text.rfind("}") + 1  # behind it every "${" would be searched to the end of the text
    masked = _VARIABLE.sub(lambda match: "1" * len(match.group()), text[:closed]) + text[closed:]
    return parse("", Expanded(masked), format, Lines("", text))


def _spliced(text: str, edits: Sequence[ReplaceText]) -> str:
    done = text
    end = len(text) + 1
    for edit in sorted(edits, key=lambda e: e.start, reverse=True):
        if text[edit.start : edit.end] != edit.old or edit.end > end:
            raise EditError(f"the text at {edit.start} is no longer {edit.old!r}")
        done = done[: edit.start] + edit.new + done[edit.end :]
        end = edit.start
    return done


def _require_only(text: str, done: str, edits: Sequence[ReplaceText], format: str) -> None:
    """Raises EditError where the edits changed more than the values and the keys that they replace."""
    before, after = _tree(text, format), _tree(done, format)
    if isinstance(before, Problem):
        if isinstance(after, Problem) and _place(after) <= _place(before):
            raise EditError(f"the file would still not parse: {after.message}")
        return
    if isinstance(after, Problem):
        raise EditError(f"the file would no longer parse: {after.message}")
    allowed: set[str] = set()
    renamed: set[str] = set()
    _touched(before, "", edits, allowed, renamed)
    for pointer in _differences(before, after, ""):
        inside = any(pointer == p or pointer.startswith(p + "/") for p in allowed)
        if not inside and pointer.rpartition("/")[0] not in renamed:
            raise EditError(f"the replacement would also change {pointer}")
    if renamed and _count(before) != _count(after):
        raise EditError("the new key is already there")


def _place(problem: Problem) -> tuple[int, int]:
    return (problem.where.line or 0, problem.where.column or 0)


def _touched(node: Node, pointer: str, edits: Sequence[ReplaceText], allowed: set[str], renamed: set[str]) -> None:
    """Collect the leaves whose source is replaced, and the mappings in which a key is."""
    for name, child in node.items():
        at = f"{pointer}/{escaped(name)}"
        for edit in edits:
            if child.key is not None and edit.start < child.key[1] and edit.end > child.key[0]:
                renamed.add(pointer)
            if child.children is None and edit.start <= child.end and edit.end >= child.start:
                allowed.add(at)
        _touched(child, at, edits, allowed, renamed)


def _differences(before: Node, after: Node, pointer: str) -> list[str]:
    if before.children is None or after.children is None or type(before.children) is not type(after.children):
        return [] if _same(before.value, after.value) else [pointer]
    old, new = dict(before.items()), dict(after.items())
    found = [f"{pointer}/{escaped(name)}" for name in sorted(old.keys() ^ new.keys())]
    for name in sorted(old.keys() & new.keys()):
        found += _differences(old[name], new[name], f"{pointer}/{escaped(name)}")
    return found


def _count(node: Node) -> int:
    return 1 + sum(_count(child) for _, child in node.items())


def _same(one: Any, other: Any) -> bool:
    """Equal in type too: 1, 1.0 and true are three things."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _set(text: str, edits: Sequence[SetValue], format: str) -> str:
    """The text with these values, written from the last to the first, so that places above stay what they were."""
    if not edits:
        return text
    before = _tree(text, format)
    if isinstance(before, Problem):
        raise EditError(f"the file does not parse: {before.message}")
    found = [_found(before, edit) for edit in edits]
    done = text
    for edit, parts, depth, node in sorted(found, key=lambda one: _end_of(one[3]), reverse=True):
        if depth < len(parts):
            done = _insert(done, node, parts[depth:], edit.value, format)
        elif not _same(node.value, edit.value):
            done = _overwrite(done, node, edit.value, format)
    if done == text:
        return text
    after = _tree(done, format)
    if isinstance(after, Problem):
        raise EditError(f"the file would no longer parse: {after.message}")
    if not _same(_expected(before.value, [(parts, edit.value) for edit, parts, _, _ in found]), after.value):
        pointers = ", ".join(edit.pointer for edit in edits[:3])
        raise EditError(f"setting {pointers} would also change something else (an anchor, or a merged section)")
    return done


def _found(root: Node, edit: SetValue) -> tuple[SetValue, list[str], int, Node]:
    """The edit, the parts of its pointer, how many of them are there, and the node of these."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in edit.pointer.split("/")[1:]]
    if not parts:
        raise EditError("the whole file is no value")
    node, depth = root, 0
    while depth < len(parts):
        child = node.child(parts[depth])
        if child is None or child.merged:
            break
        node, depth = child, depth + 1
    return edit, parts, depth, node


def _end_of(node: Node) -> int:
    """Where a value ends, or where a key is put into a section."""
    return max((node.end, *(child.end for _, child in node.items() if not child.merged)))


def _expected(tree: Any, settings: Sequence[tuple[list[str], Any]]) -> Any:
    tree = json.loads(json.dumps(tree))  # what anchors share is copied
    for parts, value in settings:
        above = tree
        for part in parts[:-1]:
            place: Any = int(part) if isinstance(above, list) else part
            if isinstance(above, dict) and not isinstance(above.get(part), dict | list):
                above[part] = {}
            above = above[place]
        above[int(parts[-1]) if isinstance(above, list) else parts[-1]] = value
    return tree


def _overwrite(text: str, node: Node, value: Any, format: str) -> str:
    if format == "toml" and node.block:
        raise EditError("a table with a header is no value")
    written = text[node.start : node.end]
    new = literal(value, format, plain=node.style == "" and not node.flow and bool(written))
    if not written:
        return f"{text[: node.start]} {new}{text[node.end :]}"
    if node.style in ("|", ">"):
        new += written[len(written.rstrip()) :] or "\n"
    if node.block and node.key is not None and _column(text, node.start) <= _column(text, node.key[0]):
        new = "  " + new  # a list may stand at the column of its key, a flow value may not
    return text[: node.start] + new + text[node.end :]


def _insert(text: str, node: Node, parts: list[str], value: Any, format: str) -> str:
    """Put a missing key into the mapping `node`; sections on the way are created."""
    inner: Any = value
    for part in reversed(parts[1:]):
        inner = {part: inner}
    if format in ("toml", "env") and node.block:
        return _insert_line(text, node, f"{_left_side(parts, format)}{literal(value, format)}", newline_of(text))
    if node.children is None and node.value is None and format == "yaml":
        return _overwrite(text, node, {parts[0]: inner}, format)
    if not isinstance(node.children, dict) or node.alias:
        raise EditError(f"there is no section for {parts[0]}")
    own = [child for child in node.children.values() if not child.merged]
    if node.block:
        return _insert_in_block(text, node, own, parts, value)
    return _insert_in_braces(text, node, own, assigned(parts[0], inner, format))


def _insert_in_braces(text: str, node: Node, own: list[Node], entry: str) -> str:
    if not own:
        inside = text[node.start + 1 : node.end - 1]
        return text[: node.start + 1] + entry + (", " if inside.strip() else "") + text[node.start + 1 :]
    last = max(child.end for child in own)
    first = min(child.key[0] for child in own if child.key is not None)
    line = _line_start(text, first)
    on_own_line = first > 0 and line > node.start and not text[line:first].strip()
    gap = newline_of(text) + text[line:first] if on_own_line else " "
    return f"{text[:last]},{gap}{entry}{text[last:]}"


def _insert_in_block(text: str, node: Node, own: list[Node], parts: list[str], value: Any) -> str:
    newline, indent = newline_of(text), " " * _column(text, node.start)
    lines = [f"{indent}{'  ' * depth}{key_text(part, 'yaml')}:" for depth, part in enumerate(parts)]
    entry = f"{newline.join(lines)} {literal(value)}"
    end = max((child.end for child in own), default=node.start)
    if end > 0 and text[end - 1] in "\r\n":
        return text[:end] + entry + newline + text[end:]
    end = _line_end(text, end)
    return text[:end] + newline + entry + text[end:]


def _insert_line(text: str, node: Node, entry: str, newline: str) -> str:
    """A new line of a table, below its own values: what follows may belong to another table."""
    if not isinstance(node.children, dict):
        raise EditError("a list of tables has no place for a key")
    own = [child for child in node.children.values() if not child.block]
    if not own and node.key is None:
        start = 1 if text.startswith("\ufeff") else 0
        return f"{text[:start]}{entry}{newline}{text[start:]}"
    after = max((child.end for child in own), default=text.find("]", node.start))
    end = _line_end(text, after)
    return f"{text[:end]}{newline}{entry}{text[end:]}"


def _left_side(parts: list[str], format: str) -> str:
    """The left side of an assignment, with the sign."""
    if format == "env":
        if len(parts) > 1:
            raise EditError("a variable has no sections")
        return f"export {parts[0]}="
    return ".".join(key_text(part, format) for part in parts) + " = "


def _line_start(text: str, offset: int) -> int:
    return max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1


def _line_end(text: str, offset: int) -> int:
    line = re.compile(r"[^\r\n]*").match(text, offset)
    return line.end() if line else offset


def _column(text: str, offset: int) -> int:
    start = _line_start(text, offset)
    return offset - start - (1 if start == 0 and text.startswith("\ufeff") else 0)
