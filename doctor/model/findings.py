"""What is wrong, and what was found out: findings and the report that carries them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .plans import Fix
from .record import dataclass, field
from .run import Where
from .said import filled
from .shell import Shell, command_line, quoted

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
CONFIG_UNREAD = "the config cannot be read, see CFG001"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    `message` and `otherwise` are templates over `args` and `evidence`, so they can be translated and redacted by
    argument; `otherwise` says what happens if nothing is done, and when the trainer would have shown it.
    A rule leaves `rule`, `name` and `severity` empty: the engine fills them from the rule's declaration
    (a severity that the rule did set stays).
    """

    message: str
    where: Where | None = None
    otherwise: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity | None = None
    rule: str = ""
    name: str = ""
    fixes: tuple[Fix, ...] = ()

    def text(self) -> str:
        return filled(self.message, {**self.evidence, **self.args})

    def consequence(self) -> str:
        return filled(self.otherwise, {**self.evidence, **self.args})


def found(
    where: Where | None,
    message: str,
    *,
    otherwise: str = "",
    evidence: Mapping[str, Any] | None = None,
    severity: Severity | None = None,
    **args: Any,
) -> Finding:
    """A Finding with those template arguments as keywords that are no evidence."""
    return Finding(message, where, otherwise, args, evidence or {}, severity)


@dataclass(frozen=True)
class Outcome:
    """A rule that did not answer: `reason` says which fact was missing, or how the rule crashed."""

    rule: str
    reason: str


@dataclass(frozen=True)
class Allowed:
    """A finding that a comment of the config allows, for the reason that it gives."""

    finding: Finding
    reason: str


@dataclass(frozen=True)
class Baselined:
    """The findings that the baseline `file` knows, and how many of its entries are `gone`.

    `problem` says why nothing or less is known than could be, "" where that is not so.
    """

    file: str
    known: tuple[Finding, ...] = ()
    gone: int = 0
    problem: str = ""


@dataclass(frozen=True)
class Unjudged:
    """What of a run was not looked at, or not as a whole ("model files", "memory"), and why."""

    what: str
    reason: str


OF_COMMANDS = ("check", "memory")  # what can be asked of a command in place of a config
HERE = "here"  # as the machine that was asked for: this one, whatever the settings file says
NOT_SELECTED = "no rule about it was asked"


@dataclass(frozen=True)
class Report:
    """What a check found. Of the rules without a finding `passed` looked at something; those of `not_applicable` had
    nothing to look at. `judged` and `not_judged` share out what can be known of a run; with `strict` the exit code
    tells of the latter and of warnings, too. `outputs` are the folders that the runs will write to, as the config
    names them; `deep` when the model's files were read as a whole; `trainable` when `zdoctor train` would start,
    `held_back` the rules by whose errors alone it would not.
    `command` is what was asked for, `options` how (machine, trainer, trainer-source, each with its value);
    `subject` is a line about what was looked at, "" where that is a config.
    `python` is a line about the interpreter whose packages were looked at, and why it is that one, "" where none was.
    `cut_short` says what a deadline ended, "" when nothing was. `settings` is the settings file that was obeyed, ""
    where there is none; what a `baseline` knows is no finding. `shell` is where commands will be typed, None where
    that is not known. `elsewhere` is how it shows that the config is for another machine, "" where nothing says so.
    `words` are those of the command that the config was made of, where it is none that somebody wrote.
    """

    config: str
    trainer: str | None
    findings: tuple[Finding, ...] = ()
    unknown: tuple[Outcome, ...] = ()
    crashed: tuple[Outcome, ...] = ()
    passed: tuple[str, ...] = ()
    not_applicable: tuple[str, ...] = ()
    judged: tuple[str, ...] = ()
    not_judged: tuple[Unjudged, ...] = ()
    elapsed_ms: float = 0.0
    machine: str | None = None
    outputs: tuple[str, ...] = ()
    deep: bool = False
    trainable: bool = True
    held_back: tuple[str, ...] = ()
    command: str = "check"
    options: tuple[tuple[str, str], ...] = ()
    cut_short: str = ""
    strict: bool = False
    allowed: tuple[Allowed, ...] = ()
    subject: str = ""
    python: str = ""
    settings: str = ""
    baseline: Baselined | None = None
    shell: Shell | None = None
    elsewhere: str = ""
    words: tuple[str, ...] = ()

    @property
    def started(self) -> str:
        """The command that was looked at, as it is typed; "" where a config was."""
        return command_line(self.words, self.shell)

    def typed(self, command: str, *words: str) -> str:
        """What to type for another command to look at the same config in the same way."""
        options = [
            f"--{name} {quoted(value, self.shell)}"
            for name, value in self.options
            if command != "train" or name == "trainer"
        ]
        deep = ("--deep",) if self.deep and command != "train" else ()
        if self.words and command in OF_COMMANDS:
            return " ".join(("zdoctor", command, *options, *deep, *words, "--", self.started))
        config = (quoted(self.config, self.shell),) if self.config else ()
        return " ".join(("zdoctor", command, *config, *options, *deep, *words))

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity == "error")

    @property
    def failing(self) -> tuple[Finding, ...]:
        """The findings by which the exit code is 1: errors, with `strict` warnings, too."""
        return tuple(f for f in self.findings if f.severity == "error" or (self.strict and f.severity == "warning"))

    @property
    def known(self) -> tuple[Finding, ...]:
        """The findings that the baseline knows."""
        return self.baseline.known if self.baseline is not None else ()

    @property
    def exit_code(self) -> int:
        """0 no finding that counts, 1 findings at error level, 3 nothing could be judged, or not all that was asked.

        That is where the config could not be read, a rule crashed or a deadline cut it short; with `strict` also
        where something was not judged, but for what the user left out, and 1 for warnings.
        """
        if self.failing:
            return 1
        return 3 if self.crashed or self.cut_short or self.missed else 0

    @property
    def missed(self) -> tuple[Unjudged, ...]:
        """What was not judged and had to be: by the user's own word, or all of a config that was not read at all.

        Where an error says why it was not, that is enough.
        """
        unread = () if self.errors else (CONFIG_UNREAD,)
        asked = (one for one in self.not_judged if one.reason != NOT_SELECTED)
        return tuple(one for one in asked if self.strict or one.reason in unread)

    @property
    def ok(self) -> bool:
        return self.exit_code == 0
