"""What a report says to type next: zdoctor's own trainer, the repairs, the config's trainer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..doctor.model import Fix, Plan, Report
from ..doctor.model.findings import CONFIG_UNREAD, HERE
from ..doctor.model.lora import LORA
from ..doctor.model.record import replace
from ..doctor.model.script import SCRIPT
from ..doctor.model.shell import quoted
from ..doctor.model.trainer import RUNNER
from ..doctor.trainers import trainer_of


def own_trainer(report: Report) -> str:
    """That zdoctor's own trainer does without what the errors are about, or what keeps it alone from starting."""
    if report.held_back and not report.errors and not report.crashed:
        rules = ", ".join(report.held_back)
        if report.machine:  # `train` is about the machine that it runs on
            return f"on that machine zdoctor's own trainer would not start ({rules})"
        return f"zdoctor's own trainer would not start ({rules}): {report.typed('train')} says why"
    if not report.errors or not report.trainable or report.crashed:
        return ""
    return f"zdoctor's own trainer can run it as it is: {_train(report)[0]}"


def _train(report: Report) -> tuple[str, str]:
    """What starts zdoctor's own trainer, which stops at pictures that cannot be read unless it is told to go on."""
    if any(finding.rule == "DAT002" for finding in report.findings):
        return report.typed("train", "--skip-unreadable"), "leaves out the pictures that cannot be read"
    return report.typed("train"), ""


def next_steps(report: Report, repaired: bool = False) -> list[tuple[str, str]]:
    """What to type next and what it does, the best first: a second one is another way to the same.

    After a repair that is the user's own trainer, where nothing keeps it from starting any more.
    """
    if told := _repairs(report):
        return [told]
    if any(finding.evidence.get("kind") == "foreign" for finding in report.findings):
        return [(report.typed("check", "--trainer", "NAME"), "reads it as a config of the trainer of that name")]
    if any(outcome.reason == CONFIG_UNREAD for outcome in report.unknown):  # and the rule that says why was not asked
        return [(report.typed("check"), "says why the config cannot be read")]
    if report.crashed:
        return []
    if report.elsewhere:
        it_is_this_one = report.typed("check", f"--machine {HERE}"), "where it is this machine after all"
        return [(report.typed("check"), "on the machine that will train: looks at all of it"), it_is_this_one]
    if report.trainer == SCRIPT and report.command == "check":
        typed = f"zdoctor probe {quoted(f'{report.config}:build_model', report.shell)}"
        return [(typed, "runs one step and says what of it is not trained")]
    ways = [*_train_step(report), *_run_step(report)]
    return ways[::-1] if repaired else ways


def _repairs(report: Report) -> tuple[str, str] | None:
    """What to type about the errors and the repairs that are ready, where there are any."""
    ready = {fix for f in report.findings for fix in f.fixes if fix.safety == "safe" and fix.steps}
    if any(fix.training_effect == "none" for fix in ready):
        there = "on that machine " if report.machine else ""
        return report.typed("fix"), f"shows the plan; {there}--apply carries it out"
    if not report.errors:
        return None
    if ready:
        return report.typed("fix", "--allow result"), "shows the repairs that change training"
    if any(fix.steps for finding in report.errors for fix in finding.fixes):
        return report.typed("fix"), "shows what is yours to decide"
    first = report.errors[0]  # causes come first
    alike = sum(finding.rule == first.rule for finding in report.errors)
    about = f"is about {alike} of the {len(report.errors)} errors" if len(report.errors) > 1 else ""
    return f"zdoctor explain {first.rule}", about


def _train_step(report: Report) -> Iterator[tuple[str, str]]:
    """By zdoctor's own trainer, where it would start."""
    if report.trainable:
        command, about = _train(report)
        yield command, "; ".join(filter(None, ("on that machine" if report.machine else "", about)))


def _run_step(report: Report) -> Iterator[tuple[str, str]]:
    """By the config's own trainer."""
    if not report.ok or not report.config or report.trainer in (None, SCRIPT, LORA, RUNNER):
        return
    there = "on that machine: " if report.machine else ""
    about = f"{there}checks once more and starts {report.trainer}"
    start = trainer_of(report.trainer).start
    if report.words:
        yield f"zdoctor run -- {report.started}", about
    elif start:
        yield f"zdoctor run -- {start.format(config=quoted(report.config, report.shell))}", about
    else:
        yield "zdoctor run -- COMMAND", f"{about}, COMMAND being what you type for it"


def to_apply(report: Report, allowed: Sequence[str], selected: Sequence[str]) -> tuple[str, str]:
    """What to type to carry a shown plan out, and on which machine."""
    words = [*(f"--allow {what}" for what in allowed), *([f"--select {','.join(selected)}"] if selected else [])]
    if not report.machine:
        return report.typed("fix", *words, "--apply"), ""
    others = tuple(pair for pair in report.options if pair[0] != "machine")
    by_settings = (("machine", HERE),) if others == report.options else ()
    there = replace(report, options=(*others, *by_settings))
    return there.typed("fix", *words, "--apply"), "on that machine"


def decisions(report: Report, plan: Plan) -> dict[Fix, str]:
    """What to type for each repair that a plan leaves to the user and that zdoctor can carry out."""
    typed: dict[Fix, str] = {}
    for finding in report.findings:
        asked = [fix for fix in finding.fixes if fix.steps and fix.safety == "ask"]
        for fix in finding.fixes:
            by_word = fix.safety == "safe" or asked == [fix]
            if fix in plan.shown and fix.steps and not fix.command and by_word:
                words = [f"--select {finding.rule}"]
                words += ["--allow asked"] if fix in asked else []
                words += ["--allow result"] if fix.training_effect != "none" else []
                words += [] if report.machine else ["--apply"]
                typed[fix] = report.typed("fix", *words)
    return typed
