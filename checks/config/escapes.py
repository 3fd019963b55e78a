"""PTH002: Windows paths in double quotes, found in raw text: also in a file that does not parse because of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...doctor.model import Config, Finding, Where, found
from ...doctor.model.pattern import pattern
from ...doctor.model.record import dataclass
from ...doctor.rules import prevents, rule
from ..keys.places import place_of

_OPEN = pattern(r'(?:(?<=[:\-,\[{])|(?<=[:\-,\[{][ \t])|(?<=[ \t]))"|^"')
_OPEN_TOML = pattern(r'(?:(?<=[=,\[{])|(?<=[ \t]))"|^"')
_QUOTED_KEY = pattern(r'"((?:[^"\\]|\\.)*)"[ \t]*:(?=[\s"\[{]|$)')
_CLOSE = pattern(r'"(?=[ \t]*(?:$|[,\]}]|[ \t]#))')
_KEY = pattern(r"(?:^|[\s{,\-])([A-Za-z_][\w.\-]*)[ \t]*:(?=[ \t\[{\"']|$)")
_KEY_TOML = pattern(r"(?:^|[\s{,])([A-Za-z_][\w.\-]*)[ \t]*=")
_BLOCK = pattern(r"(?::|-)[ \t]+[|>][-+0-9]*[ \t]*(?:#.*)?$")
_ABSOLUTE = pattern(r"[A-Za-z]:[\\/]|\\\\+[^\\]|%\w+%\\|\$\{\w+\}\\|~\\")
_RELATIVE = pattern(r"\.{1,2}\\|[\w][\w .\-]*\\")
_PATH_KEY = pattern(
    r"(?:^|_)(?:path|paths|dir|dirs|directory|folder|folders|root|file|files|cache)$|^log_dir$|^(?:ae|vae|dit|clip_l|t5xxl)$"
)
_RUN = pattern(r"\\+")
_NAMES = {"0": "NUL", "a": "BELL", "b": "BACKSPACE", "t": "TAB", "n": "LINE FEED", "v": "VT", "f": "FORM FEED"}
_NAMES |= {"r": "CR", "e": "ESC", "N": "NEXT LINE", "_": "NO-BREAK SPACE", "L": "LINE SEP", "P": "PARAGRAPH SEP"}
_ESCAPES = {"json": frozenset('bfnrt/"\\'), "toml": frozenset('bfnrt"\\')}
_HEX = {"x": 2, "u": 4, "U": 8}


@rule("PTH002", "error", "windows-path-escape")
@prevents("yaml.scanner.ScannerError", "found unknown escape character")
@prevents("yaml.scanner.ScannerError", "expected escape sequence of \\d+ hexadecimal")
@prevents("json.decoder.JSONDecodeError", "Invalid .?(escape|u)")
@prevents("toml.decoder.TomlDecodeError", "Reserved escape sequence used")
@prevents("OSError", r"couldn't connect to 'https://huggingface\.co'.*looks like [A-Za-z]:\s")
def windows_path_escape(config: Config) -> Iterator[Finding]:
    """A Windows path whose backslashes are read as escapes.

    What: A path with single backslashes inside double quotes.
    Why: In double quotes a backslash starts an escape. Some are refused ("C:\\ai-models\\Z-Image": \\Z is none), and
    the file does not parse. Others change the path without a word: "D:\\new\\train" has a line feed and a tab in it,
    and the trainer later says that the path does not exist, with a character in it that cannot be seen.
    Repair: The path is put in single quotes, where a backslash is a backslash (in JSON the backslashes are doubled).
    On Linux and macOS a relative path gets forward slashes. Forward slashes work on Windows, too.
    Signature: yaml.scanner.ScannerError: while scanning a double-quoted scalar ... found unknown escape character;
    expected escape sequence of 8 hexadecimal numbers; json.decoder.JSONDecodeError: Invalid \\escape;
    toml.decoder.TomlDecodeError: Reserved escape sequence used
    """
    if config.format not in ("yaml", "json", "toml") or "\\" not in config.text:
        return
    pointers = {value.start: pointer for pointer, value in config.values.items() if value.style == '"'}
    for sick in _escaped_paths(config.text, config.format):
        if config.problem is None and sick.start not in pointers:
            continue
        line, column = place_of(config.text, sick.at)
        message = "{path} is in double quotes, where a backslash starts an escape"
        message += ": {reads}, and the file does not parse" if sick.rejected else "; the trainer reads {reads}"
        yield found(
            Where(config.path, line, column, pointers.get(sick.start)),
            message + ". Use single quotes or forward slashes.",
            otherwise="The trainer stops at once, before it loads anything."
            if sick.rejected
            else "The trainer looks for a path that does not exist, and its message does not show why.",
            evidence={
                "start": sick.start,
                "end": sick.end,
                "old": config.text[sick.start : sick.end],
                "path": sick.path,
                "absolute": sick.absolute,
                "rejected": sick.rejected,
            },
            reads=sick.reads,
            key=sick.key,
        )


@dataclass(frozen=True)
class _EscapedPath:
    """A path that lost backslashes, or would make the file unreadable. Offsets count in the text.

    `start:end` is the value with its quotes, `at` its first harmful backslash, `path` what was meant, `reads` what
    the parser makes of it, `rejected` is true when it makes nothing of it.
    """

    key: str | None
    start: int
    end: int
    at: int
    path: str
    reads: str
    rejected: bool

    @property
    def absolute(self) -> bool:
        return bool(_ABSOLUTE.match(self.path))


def _escaped_paths(text: str, format: str) -> Iterator[_EscapedPath]:
    """Every double-quoted Windows path with single backslashes. A value that could be meant as escapes is left out.

    Certain is what the parser rejects and looks like a path, and what stands under a key that takes a path.
    """
    opened: list[tuple[int, str]] = []
    block: int | None = None
    offset = 1 if text.startswith("\ufeff") else 0
    for line in re.split(r"(?<=\n)|(?<=\r)(?!\n)", text[offset:]):
        body = line.rstrip("\r\n")
        indent = len(body) - len(body.lstrip(" "))
        if block is not None and (not body.strip() or indent > block):
            offset += len(line)
            continue
        block = None
        if body.strip() and not body.lstrip().startswith("#"):
            while opened and opened[-1][0] >= indent and not body.lstrip().startswith("- "):
                opened.pop()
            parent = opened[-1][1] if opened else None
            yield from _in_line(body, offset, parent, format)
            ending = re.search(r"([\w.\-]+)[\"']?[ \t]*:[ \t]*(?:\[|\{)?[ \t]*(?:#.*)?$", body)
            if ending:
                opened.append((indent, ending.group(1)))
            if format == "yaml" and _BLOCK.search(body):
                block = indent
        offset += len(line)


def _in_line(body: str, offset: int, parent: str | None, format: str) -> Iterator[_EscapedPath]:
    key, index = parent, 0
    opening, named_by = (_OPEN_TOML, _KEY_TOML) if format == "toml" else (_OPEN, _KEY)
    while found := opening.search(body, index):
        start = found.end() - 1
        plain = [match.group(1) for match in named_by.finditer(body, index, start)]
        key = plain[-1] if plain else key
        named = _QUOTED_KEY.match(body, start)
        if named:
            key, index = named.group(1), named.end()
            continue
        comment = re.search(r"(?:^|[ \t])#", body[index:start])
        closing = _CLOSE.search(body, start + 1)
        if comment or closing is None:
            return
        raw = body[start + 1 : closing.start()]
        index = closing.end()
        if (made := _judge(raw, key, format)) is not None:
            first, path, reads, rejected = made
            at = offset + start + 1 + first
            yield _EscapedPath(key, offset + start, offset + closing.end(), at, path, reads, rejected)


def _judge(raw: str, key: str | None, format: str) -> tuple[int, str, str, bool] | None:
    """First harmful backslash, path meant, reading, rejected; None for what is sound or no path."""
    takes_path = key is not None and _PATH_KEY.search(key) is not None
    if not (_ABSOLUTE.match(raw) or (takes_path and _RELATIVE.match(raw))):
        return None
    network = raw.startswith("\\\\") and not raw.startswith("\\\\\\\\")
    # "\\nas" without doubling reads as \nas: rejected or not, a backslash is gone
    first = next((run.start() for run in _RUN.finditer(raw) if len(run.group()) % 2), 0 if network else None)
    reads, rejected = _reading(raw, format)
    if first is None or not (rejected or takes_path):
        return None
    lead = "\\\\" if raw.startswith("\\\\") else ""
    rest = raw.lstrip("\\") if lead else raw
    return first, lead + re.sub(r"\\\\", r"\\", rest), reads, rejected


def _reading(raw: str, format: str) -> tuple[str, bool]:
    """The raw text of a double-quoted value as the parser reads it, or its complaint."""
    made = ""
    while raw:
        plain, escaped, raw = raw.partition("\\")
        made += plain
        if not escaped:
            break
        letter, raw = raw[:1], raw[1:]
        digits = _HEX.get(letter, 0) if format == "yaml" or letter == "u" or (format, letter) == ("toml", "U") else 0
        if not letter:
            return "the closing quote is escaped, so the text does not end here", True
        if digits:
            code, raw = raw[:digits], raw[digits:]
            if not re.fullmatch(rf"[0-9A-Fa-f]{{{digits}}}", code) or int(code, 16) > 0x10FFFF:
                return f"\\{letter} is not followed by {digits} hexadecimal digits that name a character", True
            made += f"<U+{int(code, 16):04X}>"
        elif letter in '\\"' or (letter == "/" and format != "toml") or (format == "yaml" and letter in " \t"):
            made += letter
        elif letter in _NAMES and (format == "yaml" or letter in _ESCAPES[format]):
            made += f"<{_NAMES[letter]}>"
        else:
            return f"\\{letter} is no escape", True
    return made, False
