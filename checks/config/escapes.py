"""PTH002: Windows paths in double quotes."""

from __future__ import annotations

from collections.abc import Iterator

from ...doctor.model import Config, Finding, Where, found
from ...doctor.rules import prevents, rule
from ..keys.places import place_of
from .windows_paths import escaped_paths


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
    for sick in escaped_paths(config.text, config.format):
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
