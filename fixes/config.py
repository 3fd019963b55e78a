"""Repairs of the config itself: what is certain is put right, what was probably meant is offered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ..doctor.model import Config, Finding, Fix, ReplaceText, System, WriteText
from ..doctor.model.shell import setting
from ..doctor.rules import repair
from .edits import text_at


@repair("CFG001", "SIM006")
def make_it_parse(finding: Finding, config: Config, system: System) -> Iterator[Fix]:
    """An encoding, a byte-order mark, an unclosed quote, trailing commas, tabs, a variable that is not set."""
    if "kind" not in finding.evidence or finding.where is None:
        return
    config = config.file(finding.where.path)
    message = str(finding.evidence["message"])
    kind = finding.evidence["kind"]
    if config.byte_order_mark and "BOM" in message:
        yield Fix("remove the byte-order mark", (ReplaceText(config.path, 0, 1, "\ufeff", ""),))
    elif kind == "encoding" and config.encoding.startswith("utf-16"):
        text = config.text.removeprefix("\ufeff")
        yield Fix("save the file as UTF-8", (WriteText(config.path, text),))
    elif kind == "encoding" and "not UTF-8" in message:
        raw = config.text.encode(config.encoding, "surrogateescape")
        try:
            text = raw.decode("cp1252")
        except UnicodeDecodeError:
            return
        yield Fix("save the file as UTF-8, read as Windows-1252", (WriteText(config.path, text),), safety="ask")
    elif kind == "environment":
        name = re.search(r"environment variable (.+?) is not set", message)
        if name is not None:
            command = setting([(name.group(1), "...")], system.shell)
            yield Fix(f"set {name.group(1)} before you start the trainer", (), safety="show", command=command)
    elif config.format == "json":
        yield from _json(finding, config)
    elif config.format == "yaml" and kind == "syntax":
        yield from _yaml(finding, config)


def _json(finding: Finding, config: Config) -> Iterator[Fix]:
    if not re.search("property name|trailing comma", str(finding.evidence["message"])):
        return
    start, end = _line(config.text, finding)
    commas = [match for match in re.finditer(r",(?=\s*[}\]])", config.text) if not _in_string(config.text, match)]
    if any(start - 401 <= match.start() <= end for match in commas):
        steps = tuple(ReplaceText(config.path, match.start(), match.end(), ",", "") for match in commas)
        several = f"each of the {len(steps)} commas" if len(steps) > 1 else "the comma"
        yield Fix(f"remove {several} after a last entry", steps)


def _in_string(text: str, match: re.Match[str]) -> bool:
    """Whether a place of a JSON text lies inside a string: strings do not span lines."""
    line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
    return len(re.findall(r'(?<!\\)(?:\\\\)*"', line)) % 2 == 1


def _yaml(finding: Finding, config: Config) -> Iterator[Fix]:
    start, end = _line(config.text, finding)
    line = config.text[start:end]
    if str(finding.evidence["message"]).startswith("the quote"):
        column = finding.where.column if finding.where is not None and finding.where.column else 1
        opening = start + column - 1 + (1 if start == 0 and config.byte_order_mark else 0)
        quote = config.text[opening : opening + 1]
        rest = config.text[opening + 1 : end]
        if quote in ('"', "'") and quote not in rest and "\\" not in rest and " #" not in rest and rest.strip():
            place = opening + 1 + len(rest.rstrip())
            last = config.text[place - 1]
            # an empty ReplaceText cannot say where it belongs, so the last character is written again
            step = ReplaceText(config.path, place - 1, place, last, last + quote)
            number = len(re.findall(r"\r\n|\r|\n", config.text[:start])) + 1
            yield Fix(f"close the quote at the end of line {number}", (step,))
    elif "\\t" in str(finding.evidence["message"]) and "\t" in line[: len(line) - len(line.lstrip())]:
        tabs = line[: len(line) - len(line.lstrip())].count("\t")
        *_, depth = [0, *map(len, re.findall(r"^( +)[^\s#]", config.text[:start], re.M))]
        yield _spaces_for_tabs(config, depth // tabs if depth % tabs == 0 and depth else 2)


def _spaces_for_tabs(config: Config, width: int) -> Fix:
    """Whether the width is right shows when the result is examined: a wrong one moves a key to another section."""
    steps = tuple(
        ReplaceText(config.path, match.start(), match.end(), match.group(), match.group().expandtabs(width))
        for match in re.finditer(r"^[ \t]*\t[ \t]*(?=\S)", config.text, re.M)
    )
    return Fix(f"indent with {width} spaces for each tab", steps, safety="ask")


def _line(text: str, finding: Finding) -> tuple[int, int]:
    """Offsets of the line that the finding points at, without its line end."""
    number = finding.where.line if finding.where is not None and finding.where.line else 1
    starts = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", text))]
    start = starts[min(number, len(starts)) - 1]
    end = re.compile(r"[\r\n]|$").search(text, start)
    return start, end.start() if end else start


@repair("CFG002")
def rename_the_key(finding: Finding) -> Iterator[Fix]:
    """The nearest key of the same section. What it then does is another training, so it is asked."""
    if (step := text_at(finding)) is not None:
        yield Fix(f"rename {step.old} to {step.new}", (step,), safety="ask", training_effect="changes-result")


@repair("PTH002")
def quote_the_path(finding: Finding, config: Config, system: System) -> Iterator[Fix]:
    """Single quotes keep every backslash; JSON doubles them; away from Windows a relative path gets slashes."""
    seen = finding.evidence
    path = str(seen["path"])
    if not seen["absolute"] and system.os != "windows":
        path = path.replace("\\", "/")
    doubled = config.format == "json" or (config.format == "toml" and "'" in path)
    new = json.dumps(path, ensure_ascii=False) if doubled else "'" + path.replace("'", "''") + "'"
    step = ReplaceText(config.path, seen["start"], seen["end"], seen["old"], new)
    yield Fix(f"write the path as {new}", (step,))
