"""Repairs of the config itself: what is certain is put right, what was probably meant is offered."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..doctor.model import Config, Finding, Fix, ReplaceText, SetValue, System, WriteText
from ..doctor.model.shell import setting
from ..doctor.rules import repair


@repair("CFG001")
def make_it_parse(finding: Finding, config: Config, system: System) -> Iterator[Fix]:
    """An encoding, a byte-order mark, an unclosed quote, a trailing comma, tabs, a variable that is not set."""
    message = str(finding.evidence["message"])
    kind = finding.evidence["kind"]
    if kind == "encoding" and config.encoding.startswith("utf-16"):
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
            command = setting([(name.group(1), "...")], system.os)
            yield Fix(f"set {name.group(1)} before you start the trainer", (), safety="show", command=command)
    elif config.format == "json":
        yield from _json(finding, config)
    elif config.format == "yaml" and kind == "syntax":
        yield from _yaml(finding, config)


def _json(finding: Finding, config: Config) -> Iterator[Fix]:
    if config.byte_order_mark and "BOM" in str(finding.evidence["message"]):
        yield Fix("remove the byte-order mark", (ReplaceText(config.path, 0, 1, "\ufeff", ""),))
        return
    start, end = _line(config.text, finding)
    before = config.text[:end]
    trailing = [match for match in re.finditer(r",(?=\s*[}\]])", config.text) if not _in_string(config.text, match)]
    if "property name" in str(finding.evidence["message"]) or "trailing comma" in str(finding.evidence["message"]):
        near = [match for match in trailing if match.start() <= len(before) and match.end() >= start - 400]
        if near:
            place = near[0].start()
            yield Fix("remove the comma after the last entry", (ReplaceText(config.path, place, place + 1, ",", ""),))


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
            yield Fix(f"close the quote at the end of line {_number(config.text, start)}", (step,))
    elif "\\t" in str(finding.evidence["message"]) and "\t" in line[: len(line) - len(line.lstrip())]:
        steps = tuple(
            ReplaceText(config.path, match.start(), match.end(), match.group(), match.group().replace("\t", "  "))
            for match in re.finditer(r"^[ \t]*\t[ \t]*(?=\S)", config.text, re.M)
        )
        yield Fix("indent with two spaces for each tab", steps, safety="ask")


def _line(text: str, finding: Finding) -> tuple[int, int]:
    """Offsets of the line that the finding points at, without its line end."""
    number = finding.where.line if finding.where is not None and finding.where.line else 1
    starts = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", text))]
    start = starts[min(number, len(starts)) - 1]
    found = re.compile(r"[^\r\n]*").match(text, start)
    return start, found.end() if found else start


def _number(text: str, start: int) -> int:
    return len(re.findall(r"\r\n|\r|\n", text[:start])) + 1


@repair("CFG002")
def rename_the_key(finding: Finding, config: Config) -> Iterator[Fix]:
    """The nearest key of the same section. What it then does is another training, so it is asked."""
    seen = finding.evidence
    if "start" not in seen:
        return
    start, end, old, new = int(seen["start"]), int(seen["end"]), str(seen["old"]), str(seen["new"])
    step = ReplaceText(file_of(finding, config), start, end, old, new)
    yield Fix(f"rename {seen['old']} to {seen['new']}", (step,), safety="ask", training_effect="changes-result")


@repair("CFG004")
def write_what_was_meant(finding: Finding, config: Config) -> Iterator[Fix]:
    """The one spelling that is near, or the number without its quotes; the trainer would refuse the present one."""
    seen = finding.evidence
    if "/TRAINER_EXTRA_ARGS/" in str(seen.get("pointer")):  # one word among others in a variable
        return
    if "new" in seen:
        new = seen["new"]
        yield Fix(f"set {seen['key']} to {new}", (SetValue(file_of(finding, config), str(seen["pointer"]), new),))
    elif "likely" in seen:
        new = seen["likely"]
        step = SetValue(file_of(finding, config), str(seen["pointer"]), new)
        yield Fix(f"set {seen['key']} to {new}", (step,), safety="ask", training_effect="changes-result")


def file_of(finding: Finding, config: Config) -> str:
    """The file that the finding is about: the config, or one beside it."""
    return finding.where.path if finding.where is not None else config.path
