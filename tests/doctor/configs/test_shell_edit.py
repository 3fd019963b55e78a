"""One option of a training command is set; everything else stays byte for byte."""

from __future__ import annotations

import pytest

from zdoctor.doctor.configs.edit import EditError, apply_edits
from zdoctor.doctor.model import ReplaceText, SetValue

SCRIPT = """\
M=/m
accelerate launch flux_train_network.py \\
  --ae "$M/ae" --mixed_precision="fp16" \\
  --seed 1
echo done
"""
LAUNCHED = "accelerate launch --mixed_precision bf16 train_network.py --mixed_precision bf61 --seed 1\n"
EDITS = [
    ("a value", "t.sh", SCRIPT, "/seed", 2, ("--seed 1", "--seed 2")),
    ("a value behind =", "t.sh", SCRIPT, "/mixed_precision", "bf16", ('="fp16"', "=bf16")),
    ("a new option", "t.sh", SCRIPT, "/network_dim", 8, ("--seed 1", "--seed 1 --network_dim 8")),
    ("a new flag", "t.sh", SCRIPT, "/sdpa", True, ("--seed 1", "--seed 1 --sdpa")),
    ("blanks", "t.sh", SCRIPT, "/output_dir", "/a b", ("--seed 1", "--seed 1 --output_dir '/a b'")),
    ("a quote", "t.ps1", "python train_network.py --a 1", "/b", "it's 1", ("--a 1", "--a 1 --b 'it''s 1'")),
    (
        *("not the launcher's", "t.sh", LAUNCHED, "/mixed_precision", "bf16"),
        ("--mixed_precision bf61", "--mixed_precision bf16"),
    ),
    ("the last of two", "t.sh", SCRIPT.replace("--seed 1", "--seed 1 --seed 3"), "/seed", 4, ("3", "4")),
    ("cmd", "t.bat", "python train_network.py --a 1\r\n", "/a", "b c", ("--a 1", '--a "b c"')),
]


@pytest.mark.parametrize(
    ("path", "text", "pointer", "value", "change"), [case[1:] for case in EDITS], ids=[case[0] for case in EDITS]
)
def test_one_option(path: str, text: str, pointer: str, value: object, change: tuple[str, str]) -> None:
    assert apply_edits(text, [SetValue(path, pointer, value)]) == text.replace(*change)
    assert apply_edits(text.replace(*change), [SetValue(path, pointer, value)]) == text.replace(*change)


@pytest.mark.parametrize(
    ("text", "pointer", "value"),
    [
        (SCRIPT, "/ae", "/x"),
        (SCRIPT, "/datasets/0/x", 1),
        (SCRIPT, "/network_args", ["a=1"]),
        (SCRIPT + SCRIPT, "/seed", 2),
        ("echo no training\n", "/seed", 2),
        ("python train_network.py --ae\n", "/ae", "/x"),
    ],
)
def test_what_cannot_be_set(text: str, pointer: str, value: object) -> None:
    with pytest.raises(EditError):
        apply_edits(text, [SetValue("t.sh", pointer, value)])


def test_a_replacement_keeps_the_commands() -> None:
    start = SCRIPT.index("--seed")
    step = ReplaceText("t.sh", start, start + 6, "--seed", "--sed")
    assert "--sed 1" in apply_edits(SCRIPT, [step])
    with pytest.raises(EditError):
        apply_edits(SCRIPT, [ReplaceText("t.sh", start, start + 6, "--seed", "\n\nx")])
