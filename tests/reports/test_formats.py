"""Markdown, HTML, SARIF, JUnit and workflow commands: what they say, whatever is in the words."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zdoctor.doctor.cli import main
from zdoctor.doctor.examine.examination import Examination, examine_config
from zdoctor.doctor.model import (
    SEVERITIES,
    Config,
    Finding,
    Fix,
    Outcome,
    Quarantine,
    ReplaceText,
    Report,
    Where,
    found,
)
from zdoctor.doctor.model.findings import CONFIG_UNREAD
from zdoctor.doctor.model.printable import UNPRINTABLE
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.doctor.rules import all_rules
from zdoctor.reports import FORMATS, Checked, markdown, render, words
from zdoctor.tests.machines import load
from zdoctor.tests.reports.read_back import READERS, VALID, Told, in_full, of
from zdoctor.tests.reports.test_reports import CASES, compare

ROOT = Path(__file__).parents[2]
ENDINGS = {"markdown": "md", "html": "html", "sarif": "sarif", "junit": "junit.xml", "github": "github.txt"}
NOTE = Finding("M.", rule="CFG003", name="inert-setting", severity="note")


def seen(case: str) -> Examination:
    machine, config = CASES[case]
    text = (ROOT / config).read_text(encoding="utf-8")
    made = examine_config(Path(config).name, RecordedWorld(load(machine)), text=text.encode())
    return replace(made, report=replace(made.report, elapsed_ms=42.0))


def rendered(format: str, made: Examination) -> str:
    return in_full(format, made.report, rules=made.rules, version="0.1.0", config=made.written)


@pytest.mark.parametrize("case", ["kaggle", "healthy", "windows"])
def test_golden(case: str, request: pytest.FixtureRequest) -> None:
    made = seen(case)
    for format, ending in ENDINGS.items():
        compare(f"{case}.{ending}", rendered(format, made), request)


def test_sarif_names_addresses_where_there_are_some() -> None:
    made = seen("kaggle")
    checked = [Checked(made.report, made.rules, made.written)]

    def driver(**addresses: str) -> Any:
        page = render("sarif", checked, version="0.1.0", addresses=addresses)
        VALID.validate(json.loads(page))
        return json.loads(page)["runs"][0]["tool"]["driver"]

    bare = driver()
    assert "informationUri" not in bare and not any("helpUri" in rule for rule in bare["rules"])
    full = driver(homepage="https://example.org", rules="https://example.org/rules.md")
    assert full["informationUri"] == "https://example.org"
    headings = re.findall("^## (.+)", (ROOT / "docs" / "rules.md").read_text(encoding="utf-8"), re.M)
    # GitHub's own way: small letters, blanks as dashes, no other marks
    anchors = {re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-")) for heading in headings}
    helped = [rule["helpUri"].partition("https://example.org/rules.md#")[2] for rule in full["rules"]]
    assert len(helped) > 3 and {*helped} <= anchors


def test_every_format_has_a_reader() -> None:
    assert set(FORMATS) == set(READERS) == {"text", "json", *ENDINGS}


@pytest.mark.parametrize(
    "report",
    [
        Report("c.yaml", None),
        Report("c.yaml", None, unknown=(Outcome("MEM001", "no driver answered"), Outcome("MEM001", "again"))),
        Report("c.yaml", None, crashed=(Outcome("PTH001", "KeyError: 'x'"),)),
        Report("c.yaml", None, (NOTE,), crashed=(Outcome("PTH001", "its repair: x"),)),
        Report(
            "c.yaml",
            "ai-toolkit",
            (Finding("An error.", rule="PTH001", name="n", severity="error"), replace(NOTE, severity="warning")),
            unknown=(Outcome("PTH001", "of another run"),),
            crashed=(Outcome("PTH001", "its repair: KeyError"),),
            passed=("CFG001",),
        ),
    ],
)
def test_what_is_not_known_and_what_crashed_shows(report: Report) -> None:
    for format in FORMATS:
        told = READERS[format](in_full(format, report, rules=all_rules()))
        assert told == of(report), format
        assert all(outcome.reason in " ".join(told.said.split()) for outcome in report.unknown), format


COUNTED = {
    "text": "not known: {n} rules: ",
    "markdown": "- **{n} rules**: ",
    "github": "title={n} rules not known::",
    "html": "<b>{n} rules</b>",
}


@pytest.mark.parametrize("data", [b'job: "x\nconfig: 1\n', bytes(range(256)), b"a: 1\n", b"[a]\nb =\n"])
def test_rules_that_an_unreadable_config_leaves_open_are_counted(data: bytes) -> None:
    """Nearly every rule waits for the config: a person reads how many, a program which."""
    name = "c.toml" if data.startswith(b"[") else "c.yaml"
    made = examine_config(name, RecordedWorld(load("healthy")), text=data)
    waiting = [outcome.rule for outcome in made.report.unknown if outcome.reason == CONFIG_UNREAD]
    assert len(waiting) > 40 and made.report.exit_code == (3 if data == b"a: 1\n" else 1)
    for format in FORMATS:
        page = rendered(format, made)
        if format in COUNTED:
            assert COUNTED[format].format(n=len(waiting)) in page, format
            assert page.count(CONFIG_UNREAD) <= 3, format  # the rules, the verdict and, on GitHub, its annotation
        if format not in ("text", "markdown", "github"):
            assert READERS[format](page) == of(made.report), format
        else:
            assert waiting[-1] not in page, format


def test_a_check_that_was_cut_short_is_not_green() -> None:
    report = Report("c.yaml", None, command="probe", cut_short="five minutes were not enough")
    for format in ENDINGS:
        told = READERS[format](in_full(format, report))
        assert told.exit_code == 3 and report.cut_short in told.said, format


# fmt: off
PIECES = (
    "\x00", "\x07", "\x1b[31m", "\x7f", "\x9b2J", "\r\n", "\n", "\r", "\t", "\u2028", "\u202e", "\u2066",
    "\u200f", "\u200b", "\ud800", "\udcff", "\ufffe", "\ufdd0", "\uffff", "😀", "é", "ש", "]]>", "<b>",
    "<script>alert(1)</script>", "</style>", "<!--", "-->", "<![CDATA[", "&lt;", "&", "\"", "'", "::",
    "::error::", "::add-mask::x", "##[error]", "%", "%0A", "%25", ",", "=", ":", ";", "`", "``", "```", "~~~",
    "~~x~~", "*", "**x**", "_x_", "__x__", "@someone", "#1", "GH-1", "www.example.org", "http://example.org",
    "a@b.org", "[x](http://e.org)", "![x](y)", "|", "|--|", "$x$", "\\", "\\`", ">", "#", "-", "+", "1.",
    "1)", "===", "---", "{0}", "{}", ":smile:", "/a/b.c", "C:\\d\\e",
)
# fmt: on
HOSTILE = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=6), st.just(" ")), min_size=1, max_size=9).map(
    "".join
)


@st.composite
def hostile_reports(draw: st.DrawFn) -> Report:
    def finding(number: int) -> Finding:
        where = Where(draw(HOSTILE), draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(HOSTILE))
        fix = Fix(draw(HOSTILE), (Quarantine("x"),), rule="PTH001", command=draw(HOSTILE))
        severity = draw(st.sampled_from(SEVERITIES))
        made = found(where, "{a}", otherwise="So: {b}", severity=severity, a=draw(HOSTILE), b=draw(HOSTILE))
        return replace(made, rule=f"PTH00{number}", name="some-name", fixes=(fix,))

    return Report(
        draw(HOSTILE),
        draw(HOSTILE),
        tuple(finding(number) for number in range(draw(st.integers(0, 2)))),
        (Outcome("MEM001", draw(HOSTILE)),),
        draw(st.sampled_from([(), (Outcome("DSK001", "ZeroDivisionError"),)])),
        ("CFG001",),
        machine=draw(HOSTILE),
    )


def squeezed(text: str) -> str:
    return " ".join(words.clean(text).split())


@settings(max_examples=60, deadline=None, report_multiple_bugs=False)
@given(hostile_reports())
def test_no_word_breaks_a_format(report: Report) -> None:
    """Each parses, tells the same as the others, shows every message whole and no control character."""
    for format in ENDINGS:
        page = in_full(format, report, rules=all_rules()[:3], version="0.1.0")
        page.encode("utf-8")
        assert not UNPRINTABLE.search(page), format
        told = READERS[format](page)
        assert told == of(report), format
        for finding in report.findings:
            message = squeezed(finding.text())
            expected = message.replace("](", "] (") if format == "sarif" else message
            assert expected in squeezed(told.said), format


def test_very_long_words_take_no_time_and_stay_whole() -> None:
    for word in ("a.-" * 30_000, "(" * 50_000 + ".", "`" * 20_000, "x" * 100_000 + "!"):
        report = Report("c", None, (replace(found(None, "{w}", w=word, severity="error"), rule="PTH001"),))
        for format in ENDINGS:
            assert word in READERS[format](in_full(format, report)).said, format


@pytest.mark.parametrize("format", FORMATS)
def test_the_command_line_writes_every_format(format: str, tmp_path: Path) -> None:
    file = tmp_path / "report"
    config, machine = ROOT / "examples" / "kaggle_zimage.yaml", ROOT / "examples" / "kaggle_t4x2.json"
    code = main(["check", str(config), "--machine", str(machine), "--format", format, "-v", "-o", str(file)])
    told = READERS[format](file.read_text(encoding="utf-8"))
    assert code == told.exit_code == 1 and "MDL003" in told.errors and "DSK001" in told.unknown


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("configs/my run.yaml", "configs/my%20run.yaml"),
        ("a:b.yaml", "a%3Ab.yaml"),
        ("/data/ü#1.yaml", "file:///data/%C3%BC%231.yaml"),
        ("C:\\me\\a b.yaml", "file:///C:/me/a%20b.yaml"),
        ("\\\\server\\share\\c.yaml", "file://server/share/c.yaml"),
        ("bad\udcff.yaml", "bad%3F.yaml"),
    ],
)
def test_paths_become_uris(path: str, uri: str) -> None:
    assert words.uri(path) == uri


@pytest.mark.parametrize("before", ["", "a: 1\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_fix_of_text_can_be_carried_out_from_the_sarif_alone(mark: str, before: str) -> None:
    """An editor that knows lines and columns, and no byte-order mark, gets the text that zdoctor would write."""
    text = f'{mark}{before}b: "C:\\new"\r\nc: 3\r\n'
    start = text.index('"C')
    step = ReplaceText("c.yaml", start, start + 8, '"C:\\new"', "'C:\\new'")
    others = (
        Fix("move it", (Quarantine("x"),)),
        Fix("mark", (ReplaceText("c.yaml", 0, 1, mark, ""),)) if mark else None,
    )
    fixes = (Fix("use single quotes", (step,)), *(fix for fix in others if fix))
    finding = replace(found(Where("c.yaml", 2, 4), "M.", severity="error"), rule="PTH002", fixes=fixes)
    page = in_full("sarif", Report("c.yaml", None, (finding,)), config=Config("c.yaml", text, None))
    data: dict[str, Any] = json.loads(page)
    (fix,) = data["runs"][0]["results"][0]["fixes"]
    (replacement,) = fix["artifactChanges"][0]["replacements"]
    region = replacement["deletedRegion"]
    plain = text.removeprefix("\ufeff")
    lines = plain.splitlines(keepends=True)
    begin, end = (
        sum(map(len, lines[: region[f"{side}Line"] - 1])) + region[f"{side}Column"] - 1 for side in ("start", "end")
    )
    assert plain[:begin] + replacement["insertedContent"]["text"] + plain[end:] == plain.replace('"', "'")


def test_the_fingerprint_outlives_a_moved_line_and_a_new_number() -> None:
    def prints(line: int, amount: int) -> str:
        finding = found(Where("c.yaml", line, 1, "/a/b"), "{n} bytes are too many.", n=amount, severity="error")
        run = json.loads(in_full("sarif", Report("c.yaml", None, (replace(finding, rule="MEM001"),))))["runs"][0]
        return str(run["results"][0]["partialFingerprints"])

    assert prints(3, 10) == prints(30, 11)


def test_no_message_of_sarif_holds_a_link() -> None:
    finding = replace(found(None, "{w}", w="[here](http://example.org)", severity="error"), rule="PTH001")
    told = READERS["sarif"](in_full("sarif", Report("c.yaml", None, (finding,))))
    assert told.said == "[here] (http://example.org)"


def test_findings_that_say_the_same_have_fingerprints_of_their_own() -> None:
    report = Report("c.yaml", None, (NOTE, NOTE, replace(NOTE, where=Where("c.yaml", 3))))
    READERS["sarif"](in_full("sarif", report))


def test_the_rules_of_sarif_carry_their_documentation() -> None:
    outcomes = tuple(Outcome(rule.id, "taken away") for rule in all_rules())
    data = json.loads(in_full("sarif", Report("c.yaml", None, unknown=outcomes), rules=all_rules()))
    VALID.validate(data)
    described = data["runs"][0]["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in described] == [rule.id for rule in all_rules()]
    assert all("**What.**" in rule["help"]["markdown"] and "What:" in rule["help"]["text"] for rule in described)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("The folder /a/b_c is gone.", "The folder `/a/b_c` is gone."),
        ("It's 10.2 GiB (computed), not 9%!", "It's 10.2 GiB (computed), not 9%!"),
        ("1. is no list, and 2. neither", "`1`. is no list, and 2. neither"),
        ("ask @someone about #12", "ask `@someone` about `#12`"),
        ("a `b` c", "a `` `b` `` c"),
        ("see www.example.org (GH-12)", "see `www.example.org` (`GH-12`)"),
        ("3 个错误，3 个警告；a_b（/x）没有。", "3 个错误，3 个警告；`a_b`（`/x`）没有。"),
    ],
)
def test_plain_words_stay_plain_in_markdown(text: str, shown: str) -> None:
    assert markdown.prose(text) == shown


def test_a_message_that_closes_a_code_block_stays_in_it() -> None:
    finding = found(None, "{text}", text="one\n```\n# two", severity="error")
    told = READERS["markdown"](in_full("markdown", Report("c", None, (replace(finding, rule="CFG001"),))))
    assert "one ``` # two" in told.said


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\r\nc\rd", "a\tb\nc\nd"),
        ("\x00\x1b\x7f\x85\x9b", "\ufffd" * 5),
        ("\u202a\u202e\u2066\u2069", "\ufffd" * 4),
        ("\ud800\udcff\ufdd0\ufffe\uffff", "\ufffd" * 5),
        ("é ש 中 😀 \u200f", "é ש 中 😀 \u200f"),
    ],
)
def test_what_is_unprintable_is_replaced(text: str, shown: str) -> None:
    assert words.clean(text) == shown


def test_a_message_of_several_lines_keeps_them() -> None:
    finding = found(None, "It says:\n{problem}", problem="  a: b\n    ^ here", severity="error")
    report = Report("c", None, (replace(finding, rule="CFG001"),))
    assert "```text\nIt says:\n  a: b\n    ^ here\n```" in in_full("markdown", report)
    assert "%0A  a: b%0A    ^ here" in in_full("github", report)
    told: Told = READERS["html"](in_full("html", report))
    assert "It says:\n  a: b\n    ^ here" in told.said
