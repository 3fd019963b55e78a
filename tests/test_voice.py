"""One voice: what the law matrix finds, what rules and repairs hold ready, and what the runner says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from zdoctor.doctor.model import Finding
from zdoctor.doctor.rules import all_rules
from zdoctor.tests.test_laws import PAIRS, first_look

ROOT = Path(__file__).parent.parent
# A place, key, value or argument may stand at the start as it is written; a plain word starts with a capital letter.
PLAIN_WORD = re.compile(r"[a-z]+(?=[ ,:;.!?]|$)")
NAMES = re.compile(r"(config|linear|bf16|poi|ai-toolkit|low_vram|refs|alpha)\b")
# A sentence ends as sentences do, or with what a trainer or parser said, which nobody alters.
ENDS = re.compile(r"[.?!…]$|\{error\}$|: \{problem\}$|no data!$|\{path\}$|\} \| \{shown\}$|^\{problem\}$")
TITLE = re.compile(r"[a-z]")


def findings() -> Iterator[Finding]:
    for machine, config in PAIRS:
        yield from first_look(machine, config).report.findings


def complaints(text: str) -> list[str]:
    """What is wrong with the style of one message or its template."""
    said: list[str] = []
    if PLAIN_WORD.match(text) and not NAMES.match(text):
        said.append("starts with a lower-case word")
    if not ENDS.search(text):
        said.append("does not end like a sentence")
    if "(s)" in text or "0.0 GB" in text or "0.0 MB" in text:
        said.append("is written for machines")
    if re.search(r"[.!?] [a-z]+ ", text) and not re.search(r"[.!?] (config|cosine)\b", text):
        said.append("goes on in lower case")
    if ".." in text.replace("...", "").replace("../", ""):
        said.append("has two periods")
    return said


def test_findings_of_every_machine_and_config_are_sentences() -> None:
    seen: set[str] = set()
    wrong: set[str] = set()
    for finding in findings():
        seen.add(finding.rule)
        for template in (finding.message, finding.otherwise):
            wrong |= {f"{finding.rule} {fault}: {template}" for fault in complaints(template) if template}
        shown = [finding.text(), finding.consequence()]
        wrong |= {
            f"{finding.rule} is not filled in: {text}" for text in shown if re.search(r"\{\w+\}|\bNone\b", text)
        }
        wrong |= {
            f"{finding.rule} is written for machines: {text}" for text in shown if re.search(r"\(s\)|\.\.$", text)
        }
        if finding.severity != "note" and not finding.otherwise:
            wrong.add(f"{finding.rule} does not say what happens otherwise: {finding.message}")
    assert not wrong, "\n".join(sorted(wrong))
    assert len(seen) > 10


def test_titles_of_fixes_complete_the_word_fix() -> None:
    titles = {(finding.rule, fix.title) for finding in findings() for fix in finding.fixes}
    assert titles
    wrong = {
        t for t in titles if not TITLE.match(t[1]) or t[1].endswith(".") or re.search(r"\(s\)|\b0\.0 [GM]i?B", t[1])
    }
    assert not wrong


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_the_explanation_of_a_rule_is_in_sentence_case(rule: object) -> None:
    doc = str(getattr(rule, "doc", ""))
    for word in re.findall(r"^(?:What|Why|Repair|Signature): +(\S+)", doc, re.M):
        known = re.match(r"(diffusers|transformers|safetensors|pip|bf16|loss)$", word)
        assert known or not re.fullmatch(r"[a-z]+[,;.]?", word), f"{rule}: {word}"


def templates(file: Path) -> Iterator[tuple[str, int, ast.expr]]:
    """The message and `otherwise` expressions of every call of `found` in a file."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("found", "bad", "inert")
        ):
            place = {"found": 1, "bad": 2, "inert": 1}[node.func.id]
            if len(node.args) > place:
                yield "message", node.lineno, node.args[place]
            yield from (("otherwise", node.lineno, k.value) for k in node.keywords if k.arg == "otherwise")


def whole_texts(expression: ast.expr) -> Iterator[str]:
    """The texts an expression may be, where it is written out: a constant, or a choice between them."""
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        yield expression.value
    elif isinstance(expression, ast.IfExp):
        yield from whole_texts(expression.body)
        yield from whole_texts(expression.orelse)


@pytest.mark.parametrize("file", sorted((ROOT / "checks").rglob("*.py")), ids=lambda p: p.name)
def test_templates_written_in_the_rules(file: Path) -> None:
    """Also those that no machine of the test bed brings up; none is an f-string."""
    for kind, line, expression in templates(file):
        assert not any(isinstance(node, ast.JoinedStr) for node in ast.walk(expression)), f"{file.name}:{line}"
        if "inert" not in file.name:  # its reasons follow a colon
            for text in whole_texts(expression):
                assert not complaints(text), f"{file.name}:{line} {kind} {complaints(text)}: {text}"


@pytest.mark.parametrize("file", sorted((ROOT / "fixes").rglob("*.py")), ids=lambda p: p.name)
def test_titles_written_in_the_repairs(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Fix" and node.args:
            title = node.args[0]
            first = title.values[0] if isinstance(title, ast.JoinedStr) else title
            for text in whole_texts(first):
                assert TITLE.match(text) and not text.endswith(".") and "(s)" not in text, f"{file.name}: {text}"


@pytest.mark.parametrize("file", sorted((ROOT / "doctor" / "train").glob("*.py")), ids=lambda p: p.name)
def test_errors_and_notes_of_the_runner_are_sentences(file: Path) -> None:
    """Where a text begins and ends with words of ours, it begins and ends a sentence."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
        if name in ("TrainError", "note") and parts:
            first, last = (
                str(part.value) if isinstance(part, ast.Constant) else "" for part in (parts[0], parts[-1])
            )
            assert not first or not PLAIN_WORD.match(first) or NAMES.match(first), f"{file.name}: {first}"
            assert not last or last.endswith((".", "?", '"zdoctor[train]"')), f"{file.name}: {last}"
