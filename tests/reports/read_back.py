"""Reads each format with a parser of its own kind and says what it told: one report tells the same in all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from xml.etree import ElementTree

import jsonschema
from markdown_it import MarkdownIt

from zdoctor.doctor.model import Config, Report
from zdoctor.doctor.rules import Rule
from zdoctor.reports import Checked, render
from zdoctor.tests.reports.documents import valid
from zdoctor.tests.reports.sarif_schema import SARIF

VALID = jsonschema.Draft202012Validator(SARIF, format_checker=jsonschema.FormatChecker())
IDS = r"[A-Z]{3}\d{3}(?: [A-Z]{3}\d{3})*"


def in_full(
    format: str, report: Report, *, rules: Sequence[Rule] = (), config: Config | None = None, version: str = ""
) -> str:
    """The report with every finding in words of its own, as `--verbose` and a screen without an end have it."""
    return render(format, [Checked(report, rules, config)], version=version, verbose=True)


@dataclass
class Told:
    """Rule ids, once for each finding or outcome, and the exit code; `said` is all text that a reader sees."""

    errors: list[str]
    unknown: list[str]
    crashed: list[str]
    exit_code: int
    said: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        self.errors.sort()
        self.unknown.sort()
        self.crashed.sort()


def of(report: Report) -> Told:
    return Told(
        [f.rule for f in report.errors],
        [o.rule for o in report.unknown],
        [o.rule for o in report.crashed],
        report.exit_code,
    )


def concluded(errors: list[str], unknown: list[str], crashed: list[str], cut: bool, said: str) -> Told:
    """With the exit code that follows from what is shown, for formats that do not name it."""
    return Told(errors, unknown, crashed, 1 if errors else 3 if crashed or cut else 0, said)


def text(page: str) -> Told:
    page = re.sub(r"\n {5,}", " ", page)  # ids and reasons are wrapped

    def outcomes(kind: str) -> list[str]:
        return [id for ids in re.findall(rf"^{kind}: ({IDS}): ", page, re.M) for id in str(ids).split()]

    unknown, crashed = outcomes("not known"), outcomes(r"crashed \(our bug, please report\)")
    return concluded(re.findall(r"^error +([A-Z]{3}\d{3}) ", page, re.M), unknown, crashed, False, page)


def as_json(page: str) -> Told:
    data = valid(page)
    errors = [f["rule"] for f in data["findings"] if f["severity"] == "error"]
    told = concluded(
        errors, [o["rule"] for o in data["unknown"]], [o["rule"] for o in data["crashed"]], not data["ok"], page
    )
    assert data["ok"] == (told.exit_code == 0) and data["exit_code"] == told.exit_code
    return told


def markdown(page: str) -> Told:
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(page)
    seen: list[tuple[str, str]] = []
    for number, token in enumerate(tokens):
        assert token.type not in ("html_block", "table_open", "blockquote_open", "hr", "code_block"), token
        if token.type == "inline":
            for child in token.children or ():
                kinds = ("text", "code_inline", "softbreak", "em_open", "em_close", "strong_open", "strong_close")
                assert child.type in kinds, child
            plain = "".join(child.content or " " * (child.type == "softbreak") for child in token.children or ())
            seen.append((tokens[number - 1].type + tokens[number - 1].tag, plain))
        elif token.type == "fence":
            seen.append(("fence", token.content))
    part, cut = "", False
    errors: list[str] = []
    unknown: list[str] = []
    crashed: list[str] = []
    for kind, plain in seen:
        if kind.startswith("heading_open"):
            part = plain
            errors += re.findall(r"^error: (\S+)", plain) if kind.endswith("h3") else []
        elif found := re.match(rf"({IDS}):( |$)", plain):
            if part == "Not known":
                unknown += found[1].split()
            elif part.startswith("Crashed"):
                crashed += found[1].split()
        cut = cut or plain.startswith("Cut short: ")
    return concluded(errors, unknown, crashed, cut, " ".join(" ".join(plain for _, plain in seen).split()))


class _Page(HTMLParser):
    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[tuple[str, str]] = []
        self.rules: list[tuple[str, str]] = []
        self.verdict = self.said = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        assert tag not in ("script", "img", "link", "iframe", "a", "object")
        assert not {"src", "href", "style"} & set(known) and not any(name.startswith("on") for name in known)
        if tag not in self.VOID:
            self.open.append((tag, known.get("class", "")))
        if "data-rule" in known:
            around = next(kind for element, kind in reversed(self.open) if element == "article")
            self.rules.append((around, known["data-rule"]))
        if known.get("class", "").startswith("verdict "):
            self.verdict = known["class"].split()[1]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop()[0] == tag, tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1][0] != "style":
            self.said += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def html(page: str) -> Told:
    reader = _Page()
    reader.feed(page)
    reader.close()
    assert not reader.open
    ids = {
        kind: [id for around, id in reader.rules if around == kind]
        for kind in ("error", "unknown", "crashed", "note")
    }
    code = re.search(r"exit code (\d)", reader.said)
    assert code is not None
    told = Told(ids["error"], ids["unknown"], ids["crashed"], int(code[1]), reader.said)
    assert reader.verdict != "good" or not (told.errors or told.unknown or told.crashed), "not known is never green"
    return told


def sarif(page: str) -> Told:
    data = json.loads(page)
    VALID.validate(data)
    run = data["runs"][0]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"] if "ruleIndex" in result)
    invocation = run["invocations"][0]
    ids: dict[str, list[str]] = {"not-known": [], "not-judged": [], "crashed": [], "cut-short": []}
    for notification in invocation["toolExecutionNotifications"]:
        ids[notification["descriptor"]["id"]].append(notification.get("associatedRule", {}).get("id", ""))
    assert invocation["executionSuccessful"] or ids["crashed"] or ids["cut-short"] or ids["not-judged"]
    prints = [result["partialFingerprints"]["ruleAndKey/v1"] for result in run["results"]]
    assert len(set(prints)) == len(prints)
    return Told(
        [result["ruleId"] for result in run["results"] if result["level"] == "error"],
        ids["not-known"],
        ids["crashed"],
        invocation["exitCode"],
        "\n".join(item["message"]["text"] for item in (*run["results"], *invocation["toolExecutionNotifications"])),
    )


def junit(page: str) -> Told:
    top = ElementTree.fromstring(page.encode("utf-8"))
    suite = top[0]
    cases = suite.findall("testcase")
    names = [case.get("name", "") for case in cases]
    missed = any(case.find("error") is not None for case in cases if case.get("name", "").startswith("not judged: "))
    for tag, count in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert suite.get(count) == top.get(count) == str(sum(case.find(tag) is not None for case in cases))
    assert suite.get("tests") == str(len(cases))

    def having(tag: str) -> list[ElementTree.Element]:
        rules = (case for case in cases if not case.get("name", "").startswith("not judged: "))
        return [case for case in rules if case.find(tag) is not None]

    errors = [
        case.get("name", "")[:6]
        for case in having("failure")
        for _ in re.findall(r"^error:", case.findtext("failure") or "", re.M)
    ]
    crashed = [case.get("name", "")[:6] for case in having("error") if case.get("name") != "cut short"]
    unknown = [case.get("name", "")[:6] for case in having("skipped")]
    told = concluded(errors, unknown, crashed, missed or "cut short" in names, "".join(top.itertext()))
    told.said += "".join(e.get("message", "") for e in top.iter())
    codes = [p.get("value") for p in suite.iter("property") if p.get("name") == "exit_code"]
    assert codes == [str(told.exit_code)]
    return told


def github(page: str) -> Told:
    """As actions/runner reads a line of output: a command begins with ::, its data after the next ::."""
    *lines, last, end = page.split("\n")
    assert end == "" and not last.lstrip().startswith("::") and "##[" not in last
    errors: list[str] = []
    unknown: list[str] = []
    crashed: list[str] = []
    cut, said = False, last
    for line in lines:
        head, data = line[2:].split("::", 1)
        name, _, rest = head.partition(" ")
        assert line.startswith("::") and name in ("error", "warning", "notice"), line
        properties = dict(part.split("=", 1) for part in rest.split(","))
        assert set(properties) <= {"file", "line", "col", "title"} and properties["file"]
        title = _undone(properties["title"].replace("%3A", ":").replace("%2C", ","))
        said += "\n" + _undone(data)
        cut = cut or title == "cut short" or (name == "error" and title.startswith("not judged: "))
        if found := re.fullmatch(rf"({IDS}) (not known|crashed .*)", title):
            (unknown if found[2] == "not known" else crashed).extend(found[1].split())
        elif name == "error" and not title.startswith(("cut short", "not judged: ")):
            errors.append(title[:6])
    told = concluded(errors, unknown, crashed, cut, said)
    assert last.endswith(f"exit code {told.exit_code}")
    return told


def _undone(data: str) -> str:
    return data.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")


READERS: dict[str, Callable[[str], Told]] = {
    "text": text,
    "json": as_json,
    "markdown": markdown,
    "html": html,
    "sarif": sarif,
    "junit": junit,
    "github": github,
}
