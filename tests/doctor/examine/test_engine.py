"""The engine: need by signature, unknown, crashed, merged, prescribed."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import pytest

from zdoctor.doctor.examine.engine import Answers, cures, examine, merge, prescribe
from zdoctor.doctor.model import Facts, Finding, Fix, Gpu, Report, SetValue, System, Unknown, Where, found
from zdoctor.doctor.model.record import replace
from zdoctor.doctor.rules import Repair, Rule, RuleError, Unestablished, all_repairs, all_rules, repair, rule

SYSTEM = System("linux", "Linux 6", "3.11", "/", "/root", 2, 8 << 30, 4 << 30)


def made(check: object, id: str = "TST001", severity: str = "error", needs: tuple[str, ...] = ("system",)) -> Rule:
    return Rule(id, f"name-{id.lower()}", severity, check, needs)  # type: ignore[arg-type]


def complains(system: System) -> Iterator[Finding]:
    yield found(Where("c.yaml", 3, 1), "{os} again", os=system.os)


def silent(system: System) -> Iterator[Finding]:
    yield from ()


def crashes(system: System) -> Iterator[Finding]:
    raise ZeroDivisionError("oops")
    yield


def half_known(system: System) -> Iterator[Finding]:
    raise Unestablished("only half of it was read")
    yield


def ours(finding: Finding) -> Iterator[Fix]:
    yield Fix("ours", (), "show")


def run(*rules: Rule, facts: Facts | None = None, repairs: dict[str, tuple[Repair, ...]] | None = None) -> Report:
    known = facts or Facts(system=SYSTEM)
    return cures(examine(known, rules, config="c.yaml", trainer="t"), known, repairs or {})


def test_a_rule_gets_the_facts_its_parameters_name() -> None:
    (finding,) = run(made(complains)).findings
    assert (finding.text(), finding.rule, finding.severity) == ("linux again", "TST001", "error")


@pytest.mark.parametrize(
    ("rule", "where", "exit_code"),
    [
        (made(silent), "passed", 0),
        (made(crashes), "crashed", 3),
        (made(half_known), "unknown", 0),
        (made(silent, needs=("gpus",)), "unknown", 0),
    ],
)
def test_outcomes_are_told_apart(rule: Rule, where: str, exit_code: int) -> None:
    report = run(rule)
    outcomes = {"passed": report.passed, "crashed": report.crashed, "unknown": report.unknown}
    assert [name for name, found in outcomes.items() if found] == [where]
    assert report.exit_code == exit_code


def test_a_proven_absence_is_a_fact() -> None:
    """No card at all is an answer; a driver that does not answer is none."""

    def count(gpus: tuple[Gpu, ...]) -> Iterator[Finding]:
        if not gpus:
            yield found(None, "no card")

    rule = made(count, needs=("gpus",))
    assert run(rule, facts=Facts(gpus=())).findings
    assert run(rule, facts=Facts(gpus=Unknown("no answer"))).unknown[0].reason == "no answer"


def test_one_crash_does_not_stop_the_others_and_errors_outrank_it() -> None:
    report = run(made(crashes), made(complains, "TST002"))
    assert len(report.findings) == len(report.crashed) == 1
    assert report.exit_code == 1


def test_a_crashing_repair_is_reported_and_the_finding_stays() -> None:
    def cure(finding: Finding) -> Iterator[Fix]:
        raise KeyError("x")
        yield

    report = run(made(complains), repairs={"TST001": (Repair("TST001", cure, ()),)})
    assert report.findings and "its repair" in report.crashed[0].reason


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (found(None, "{lost}"), "KeyError: 'lost'"),
        (found(None, "m", otherwise="{lost}"), "KeyError: 'lost'"),
        (found(None, "m", severity="fatal"), "'fatal' is no severity"),  # type: ignore[arg-type]
        ("text", "it yields str, no Finding"),
    ],
)
def test_a_finding_that_cannot_be_said_is_the_rule_s_crash(found: Finding, why: str) -> None:
    def check(system: System) -> Iterator[Finding]:
        yield found

    report = run(made(check), made(complains, "TST002"))
    assert [outcome.rule for outcome in report.crashed] == ["TST001"] and why in report.crashed[0].reason
    assert [finding.rule for finding in report.findings] == ["TST002"]


def test_a_plug_in_that_alters_a_record_is_named_and_alters_nothing() -> None:
    def sets(system: System) -> Iterator[Finding]:
        system.cpus = 99  # type: ignore[misc]
        yield found(None, "never")

    def fills(system: System) -> Iterator[Finding]:
        system.environment["a"] = "b"  # type: ignore[index]
        yield found(None, "never")

    checks = (sets, fills, complains)
    rules = [replace(made(check, f"LAB00{number}"), plugin="lab_rules") for number, check in enumerate(checks)]
    facts = Facts(system=SYSTEM)
    before = deepcopy(facts)
    report = run(*rules, facts=facts)
    assert facts == before
    assert [(outcome.rule, outcome.reason) for outcome in report.crashed] == [
        ("LAB000", "the plug-in lab_rules: FrozenInstanceError: cannot assign to field 'cpus'"),
        ("LAB001", "the plug-in lab_rules: RuleError: it alters system"),
    ]
    assert [finding.rule for finding in report.findings] == ["LAB002"] and report.exit_code == 1


def test_a_plug_in_s_cure_is_held_to_the_same() -> None:
    def alters(finding: Finding) -> Iterator[Fix]:
        finding.args["os"] = "windows"  # type: ignore[index]
        yield Fix("never", ())

    def yields(finding: Finding) -> Iterator[Fix]:
        yield "a text"  # type: ignore[misc]

    repairs = {"TST001": tuple(Repair("TST001", cure, (), "lab_rules") for cure in (alters, yields, ours))}
    report = run(made(complains), repairs=repairs)
    assert [outcome.reason for outcome in report.crashed] == [
        "its repair: the plug-in lab_rules: RuleError: it alters the finding",
        "its repair: the plug-in lab_rules: RuleError: it yields str, no Fix",
    ]
    assert [fix.title for fix in report.findings[0].fixes] == ["ours"]
    assert report.findings[0].text() == "linux again"


def test_no_rule_is_asked_twice_about_the_same_facts() -> None:
    calls: list[object] = []

    def counts(system: System) -> Iterator[Finding]:
        calls.append(system)
        yield found(None, "m")

    answers = Answers()
    facts = Facts(system=SYSTEM)
    one, again, other = (
        examine(known, [made(counts)], config="c", trainer=None, answers=answers)
        for known in (facts, replace(facts, gpus=()), Facts(system=replace(SYSTEM)))
    )
    assert one == again == other and len(one.findings) == 1
    assert len(calls) == 2


def test_merge_says_the_same_once_and_keeps_the_worst() -> None:
    bad, good = run(made(complains)), run(made(silent))
    both = merge([bad, bad, good])
    assert len(both.findings) == 1
    assert both.passed == ()


def fix(title: str, value: int, **how: object) -> Fix:
    return Fix(title, (SetValue("c.yaml", "/a", value),), **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fixes", "allow", "chosen", "shown"),
    [
        ([fix("a", 1)], "none", ["a"], []),
        ([fix("a", 1, safety="ask")], "none", [], ["a"]),
        ([fix("a", 1, training_effect="equivalent")], "none", [], ["a"]),
        ([fix("a", 1, training_effect="equivalent")], "changes-result", ["a"], []),
        ([fix("a", 1, training_effect="changes-result"), fix("b", 2)], "changes-result", ["a"], []),
        ([fix("a", 1, safety="show"), fix("b", 2)], "none", ["b"], []),
        ([Fix("type this", (), safety="show", command="ls")], "changes-result", [], ["type this"]),
    ],
)
def test_only_what_is_safe_and_allowed_is_chosen(
    fixes: list[Fix], allow: str, chosen: list[str], shown: list[str]
) -> None:
    finding = Finding("m", severity="error", rule="TST001", fixes=tuple(fixes))
    plan = prescribe(Report("c.yaml", None, (finding,)), allow=allow)  # type: ignore[arg-type]
    assert [f.title for f in plan.fixes] == chosen
    assert [f.title for f in plan.shown] == shown


@pytest.mark.parametrize(
    ("fixes", "chosen"),
    [
        ([fix("a", 1, safety="ask")], ["a"]),
        ([fix("a", 1, safety="ask"), fix("b", 2, safety="ask")], []),  # which of them is still a question
        ([fix("a", 1, safety="ask"), Fix("type this", (), safety="show", command="ls")], ["a"]),
        ([fix("a", 1, safety="ask", training_effect="changes-result")], []),
        ([fix("a", 1, safety="show")], []),
    ],
)
def test_a_decision_that_was_taken_is_carried_out(fixes: list[Fix], chosen: list[str]) -> None:
    finding = Finding("m", severity="error", rule="TST001", fixes=tuple(fixes))
    plan = prescribe(Report("c.yaml", None, (finding,)), asked=True)
    assert [f.title for f in plan.fixes] == chosen


def test_two_fixes_never_write_the_same_key() -> None:
    findings = tuple(Finding("m", severity="error", rule=f"TST00{n}", fixes=(fix(str(n), n),)) for n in (1, 2))
    assert [f.title for f in prescribe(Report("c.yaml", None, findings)).fixes] == ["1"]


@pytest.mark.parametrize(
    ("id", "name", "parameter"),
    [("X1", "good-name", "system"), ("TST001", "Bad Name", "system"), ("TST001", "good-name", "nothing")],
)
def test_a_wrong_declaration_is_refused_when_it_is_made(id: str, name: str, parameter: str) -> None:
    namespace: dict[str, object] = {}
    exec(f"def check({parameter}): yield", namespace)
    with pytest.raises(RuleError):
        rule(id, "error", name)(namespace["check"])  # type: ignore[arg-type]


def test_a_repair_names_facts_too() -> None:
    with pytest.raises(RuleError, match="nothing"):

        @repair("TST001")
        def cure(finding: Finding, nothing: int) -> Iterator[Fix]:
            yield from ()


def test_discovery_finds_rules_and_repairs() -> None:
    ids = [rule.id for rule in all_rules()]
    assert ids == sorted(set(ids))
    assert {"PTH001", "PTH003", "DSK001", "HUB001"} <= set(ids)
    assert "PTH001" in all_repairs()
