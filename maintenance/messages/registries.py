"""Texts that are no texts of the source's own prose: single words, docstrings of rules, known failures, argparse."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import get_args

from zdoctor.doctor.crash import likely
from zdoctor.doctor.crash.phases import phases
from zdoctor.doctor.crash.stages import stages
from zdoctor.doctor.crash.table import ends, known, warned
from zdoctor.doctor.examine.judged import AREAS
from zdoctor.doctor.model import SEVERITIES
from zdoctor.doctor.model.caches import HEALTHS
from zdoctor.doctor.model.repairs import RepairState
from zdoctor.doctor.rules import all_rules
from zdoctor.reports import words

# What argparse says itself.
ARGPARSE = (
    *("usage:", "options", "positional arguments", "commands", "show this help message and exit"),
    *("show program's version number and exit", "the following arguments are required: {names}"),
    *("unrecognized arguments: {words}", "argument {name}: expected one argument"),
    *("argument {name}: expected at least one argument", "argument {name}: invalid {type} value: {value}"),
    *("argument {name}: invalid choice: {value} (choose from {known})", "argument {name}: {problem}"),
    *("argument {name}: not allowed with argument {other}", "one of the arguments {names} is required"),
)
# Of one word, or written where no text is looked for.
SHORT = (
    "on {device}",
    "install {package}",
    "recorded: {machine}",
    "measured: {how}",
    "the other process",
    "assumes {what}",
    "word of a path or of the config",
)
HEADINGS = ("What", "Why", "Repair", "Upstream", "Signature", "Measured")
ON_THE_PAGE_OF_A_RUN = ("smoothed", "step {number}", "Finished", "Stopped", "Saved")
# What memory is held for, in one or two words; none is a key of a config.
HELD = (
    "LoRA weights",
    "activations",
    "gradients",
    "attention scores",
    "optimizer state",
    "encoding",
    "drawing",
    "decoding",
)


def of_registries() -> Iterator[tuple[str, str, str]]:
    """(domain, template, where it comes from)."""
    for word in (*SEVERITIES, *words.SAFETY.values(), *HEADINGS, words.CRASHED.capitalize()):
        yield "screen", word, "reports/words.py"
    for safety, effect in product(words.SAFETY.values(), words.EFFECTS.values()):
        yield "screen", f"{{title}} [{safety}{effect}]", "reports/words.py"
    for lead in ("not known", words.CRASHED):
        yield "screen", f"{lead}:", "reports/terminal.py"
    for one, several in words.PLURALS.items():
        yield from (("screen", f"{{count}} {word}", "reports/words.py") for word in (one, several))
    for area in ("settings", *AREAS):
        yield "screen", area, "doctor/examine/judged.py"
    yield from (("commands", name, "doctor/memory/phases.py") for name in HELD)
    yield from (("train", text, "doctor/train/output/html_report.py") for text in ON_THE_PAGE_OF_A_RUN)
    yield from (("commands", state, "doctor/commands/history.py") for state in get_args(RepairState))
    for health in (*HEALTHS, "empty"):
        yield "screen", health, "reports/cache.py"
    yield from (("screen", f"{{number}} {health}", "reports/cache.py") for health in HEALTHS)
    yield from (("help", text, "argparse") for text in ARGPARSE)
    yield from (("rules", text, "maintenance/messages/registries.py") for text in SHORT)
    for rule in all_rules():
        yield "explain", rule.title, f"{rule.id} {rule.name}"
        for name, text in words.sections(rule):
            if name not in ("Upstream", "Signature"):
                yield from (("explain", part, f"{rule.id} {name}") for part in words.paragraphs(text))
    for stage in stages():
        texts = (stage.doing, stage.often, stage.do, stage.skip)
        yield from (("rules", text, "doctor/crash/stages.yaml") for text in texts if text)
    for phase in phases():
        yield from (("rules", text, "doctor/crash/phases.yaml") for text in (phase.doing, phase.helps))
    for line in likely.table():
        yield from (("crash", text, line.source) for text in (line.cause, line.do))
    for failure in (*known(), *warned(), *ends()):
        texts = (failure.cause, failure.do, failure.avoid, failure.also)
        yield from (("crash", text, failure.source) for text in texts if text)
