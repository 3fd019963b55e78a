"""Options that a script or a launcher refuses: whose they are, how they are written, and which version takes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from zdoctor.doctor.crash import explain
from zdoctor.maintenance import mine_options

from .test_cases import SIGNATURES

REFUSED = {
    "a script's own, misspelt": (
        "flux_train_network.py: error: unrecognized arguments: --blocks_to_swp 18",
        "flux_train_network has no option --blocks_to_swp; it has --blocks_to_swap.",
    ),
    "dashes for underscores": (
        "wan_train_network.py: error: unrecognized arguments: --network-dim=32",
        "wan_train_network has no option --network-dim; it has --network_dim.",
    ),
    "of the script that makes pictures": (
        "qwen_image_train_network.py: error: unrecognized arguments: --control_image_path=/a.png --prompt x "
        "--resize_control_to_official_size",
        "--control_image_path, --prompt, --resize_control_to_official_size: of another script, "
        "qwen_image_generate_image (musubi-tuner); qwen_image_train_network does not take it.",
    ),
    "younger than the script": (
        "wan_train_network.py: error: unrecognized arguments: --timestep_boundary 0.9",
        "wan_train_network of musubi-tuner takes --timestep_boundary since 2025-09-01; the one that ran is older.",
    ),
    "gone": (
        "train_network.py: error: unrecognized arguments: --validation_every_n_step 5",
        "sd-scripts took --validation_every_n_step in train_network until 2025-02-01",
    ),
    "accelerate's": (
        "usage: accelerate <command> [<args>]\nAccelerate CLI tool: error: unrecognized arguments: --network_dim",
        "accelerate got --network_dim itself",
    ),
    "torchrun's": ("torchrun: error: unrecognized arguments: --dit x", "torchrun got --dit itself"),
    "deepspeed's": (
        "deepspeed: error: unrecognized arguments: --resume_from_checkpoint",
        "deepspeed got --resume_from_checkpoint itself",
    ),
}
# Of these no more is known than what the words say.
UNKNOWN = (
    "flux_train_network.py: error: unrecognized arguments: --quux_zork 1",
    "mine.py: error: unrecognized arguments: --quux_zork",
    "train.py: error: unrecognized arguments: --resume_from_checkpoint",  # several programs have a train.py
    "flux_train_network.py: error: unrecognized arguments: of two words",
)


@pytest.mark.parametrize("name", REFUSED)
def test_whose_it_is(name: str) -> None:
    text, cause = REFUSED[name]
    seen = explain(f"usage: x [-h]\n{text}\n", SIGNATURES)
    assert seen.known is not None and seen.known.cause.startswith(cause), seen.known
    assert seen.rules == (() if " itself" in cause else ("CFG002",))  # none about the value of an option


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_nobody_has_is_told_as_that(text: str) -> None:
    known = explain(f"usage: x [-h]\n{text}\n", SIGNATURES).known
    assert known is not None and known.cause.startswith("This version of the script has no such option"), known


SHARED = "def add(parser):\n    parser.add_argument('--shared')\n"
SCRIPT = """\
import argparse
import shared

def setup_parser():
    parser = argparse.ArgumentParser()
    shared.add(parser)
    parser.add_argument("--{own}")
    return parser

if __name__ == "__main__":
    parser = setup_parser()
    parser.add_argument("--here")
    parser.parse_args()
"""


def test_a_script_is_mined_as_it_was_month_by_month(tmp_path: Path) -> None:
    def git(*words: str, day: str = "2025-01-10") -> None:
        when = {"GIT_AUTHOR_DATE": f"{day}T00:00", "GIT_COMMITTER_DATE": f"{day}T00:00"}
        names = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        subprocess.run(["git", "-C", tmp_path, *names, *words], check=True, env=when, capture_output=True)

    git("init")
    (tmp_path / "shared.py").write_text(SHARED)
    for own, day in (("old", "2025-01-10"), ("new", "2025-03-10"), ("new", "2025-05-10")):
        (tmp_path / "train_it.py").write_text(SCRIPT.format(own=own) + f"# {day}\n")
        git("add", ".")
        git("commit", "-m", day, day=day)
    spans = {"2025-04-01 -": "new", "- -": "here shared", "- 2025-04-01": "old"}
    assert mine_options.mined("sd-scripts", tmp_path / ".git")["scripts"] == {"train_it": spans}


PYTHON = r"subprocess.CalledProcessError: Command '['C:\\v\\python.exe', "
COMMAND = f"{PYTHON}'D:/k/sd-scripts/train_network.py', '--network_dim=8', "


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ("'--cache_text_encoder_outputs', '--seed=1']' returned non-zero exit status 2.", True),
        ("'--cache_text_encoder_outputs', '--pretrained_model_name_or_path=D:/a", True),  # cut off
        ("'--cache_text_encoder_outputs', '--seed=1']' returned non-zero exit status 1.", False),  # no parser's end
        ("'--cache_latents', '--seed=1']' returned non-zero exit status 2.", False),
    ],
)
def test_a_launcher_s_command_with_options_of_another_script(rest: str, told: bool) -> None:
    answer = explain(f"Traceback (most recent call last):\n{COMMAND}{rest}\n", SIGNATURES)
    assert answer.cause.startswith("--cache_text_encoder_outputs: of another script") is told
    assert answer.known is not None and (answer.known.messenger or not answer.certain)
