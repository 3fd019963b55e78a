"""`zdoctor completion SHELL`: what bash completes, and that the other shells' scripts hold the same words."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from zdoctor.doctor.cli import COMMANDS, main
from zdoctor.doctor.commands.completion import SHELLS
from zdoctor.doctor.rules import all_rules
from zdoctor.doctor.trainers import names
from zdoctor.reports import FORMATS


@pytest.fixture(scope="module")
def scripts() -> dict[str, str]:
    made: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch:
        from zdoctor.doctor.commands import console

        for shell in SHELLS:
            patch.setattr(console, "emit", lambda text, shell=shell: made.update({shell: text}))
            assert main(["completion", shell]) == 0
    return made


def completed(script: str, folder: Path, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    typed = " ".join(map(shlex.quote, words))
    ask = f"""{script}
COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}
function=$(complete -p zdoctor | sed 's/.*-F //; s/ .*//')
"$function" zdoctor {shlex.quote(words[-1])} {shlex.quote(words[-2])}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "--norc", "-s"], input=ask, capture_output=True, text=True, cwd=folder, check=True)
    assert "syntax" not in done.stderr and "not found" not in done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ch"], ["check"]),
        (["check", "--form"], ["--format"]),
        (["check", "--format", ""], list(FORMATS)),
        (["check", "--trainer", ""], list(names())),
        (["check", "--select", "PTH00"], ["PTH001", "PTH002", "PTH003", "PTH004"]),
        (["check", "--ignore", "MDL,PTH003,CFG00"], [f"MDL,PTH003,CFG00{n}" for n in range(1, 7)]),
        (["fix", "--allow", ""], ["result", "asked"]),
        (["check", "a"], ["a.yaml"]),
        (["check", "--machine", "f"], ["facts.json"]),
        (["explain", "t"], ["train.log"]),
        (["explain", "PTH003"], ["PTH003"]),
        (["schema", "ai"], ["ai-toolkit"]),
        (["completion", "f"], ["fish"]),
    ],
)
def test_bash_completes(scripts: dict[str, str], tmp_path: Path, words: list[str], offered: list[str]) -> None:
    for name in ("a.yaml", "facts.json", "train.log"):
        (tmp_path / name).touch()
    assert sorted(completed(scripts["bash"], tmp_path, "zdoctor", *words)) == sorted(offered)


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_holds_every_command_rule_and_value(scripts: dict[str, str], shell: str) -> None:
    told = [*COMMANDS, *(rule.id for rule in all_rules()), *FORMATS, *names(), "write-baseline"]
    assert [word for word in told if word not in scripts[shell]] == []


def test_its_help_says_where_each_script_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["completion", "--help"])
    told = capsys.readouterr().out
    assert all(f"zdoctor completion {shell}" in told for shell in SHELLS)


def test_another_shell_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["completion", "fsh"])
    assert stop.value.code == 2
    assert "Did you mean fish?" in capsys.readouterr().err
