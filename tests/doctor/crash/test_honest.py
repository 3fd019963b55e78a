"""What is not known is said so: words of an error are never "no failure", nor get another failure's answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.crash import explain, table

from .shapes import OOM, script, traceback
from .test_cases import SIGNATURES

_BARS = "".join(f"steps: {n}%|###   | {n}/100 [00:{n:02}<01:00, 1.2s/it, avr_loss=0.{n:03}]\n" for n in range(9))

LAST_WORDS = (
    "2026-11-21 10:00:00 ERROR    It is odd        train.py:33",
    "2026-11-21 10:00:00,123 - ERROR - It is odd",
    "2026-11-21 10:00:00.123 | CRITICAL | train:main:33 - It is odd",
    "[2026-11-21 10:00:00,123][trainer][ERROR] - It is odd",
    "[ERROR] It is odd",
    "ERROR:root:It is odd",
    '{"level": "error", "msg": "It is odd"}',
    'level=error msg="It is odd"',
    "Fatal: It is odd",
    "❌ It is odd",
    "An error occurred: It is odd",
    "Error while loading the model: It is odd",
    "Caught exception: It is odd",
    "Failed to load the model: It is odd",
    "Could not load the model: It is odd",
    "Training failed: It is odd",
    "thread 'main' panicked at src/x.rs:3:5: It is odd",
    "错误: It is odd",
)


@pytest.mark.parametrize("line", LAST_WORDS)
@pytest.mark.parametrize("log", ["{}\n", "Loading\n{}\n", "Loading\n" + _BARS + "{}\nsaving the log\n"])
def test_an_error_in_any_words_is_a_failure_whose_words_are_shown(line: str, log: str) -> None:
    told = explain(log.format(line), SIGNATURES)
    assert told.failure is not None and "It is odd" in told.failure.message
    assert told.known is None and not told.rules and not told.explained and line in told.excerpt


@pytest.mark.parametrize("line", LAST_WORDS)
def test_one_after_which_the_run_went_on_is_none(line: str) -> None:
    assert explain(f"Loading\n{line}\n{_BARS}", SIGNATURES).failure is None


@pytest.mark.parametrize(
    "line",
    [
        "Process finished with exit code 1",
        "trainer exited with status 3",
        "Terminated",
        "slurmstepd: error: *** JOB 3 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
        "{'loss': nan, 'learning_rate': 1e-4}",
        "step 3, train_loss: nan",
        "  num batches per epoch / 1epochのバッチ数: 0",
        "/x/diffusers/image_processor.py:147: RuntimeWarning: invalid value encountered in cast",
    ],
)
def test_an_end_numbers_that_are_none_and_a_run_that_did_nothing_are_failures(line: str) -> None:
    assert explain(f"Loading\n{_BARS}{line}\n", SIGNATURES).failure is not None


@pytest.mark.parametrize("line", ["Process finished with exit code 0", "step 3, train_loss: 0.3", "nan_guard: on"])
def test_a_good_end_and_numbers_are_none(line: str) -> None:
    told = explain(f"Loading\n{_BARS}{line}\n", SIGNATURES)
    assert told.failure is None and told.worked and told.explained


WARNED = (
    "WARNING: CUDA out of memory. Tried to allocate 2.00 GiB, retrying with less\n",
    "UserWarning: Torch not compiled with CUDA enabled\n",
    "Could not load libtorchcodec, falling back to pyav\n",
)
UNKNOWN = ("ValueError: it is odd\n", "[ERROR] it is odd\n", script("ValueError: it is odd", "mine(x)"))


@pytest.mark.parametrize("warned", [*WARNED, traceback(OOM, ("/t/train.py", "step", "go()")) + _BARS])
@pytest.mark.parametrize("unknown", UNKNOWN)
def test_what_was_warned_of_or_caught_answers_no_other_failure(warned: str, unknown: str) -> None:
    told = explain(f"Loading\n{warned}Loading the rest\n{unknown}", SIGNATURES)
    assert told.failure is not None and "it is odd" in told.failure.message
    assert told.known is None and not told.rules


@pytest.mark.parametrize("unknown", UNKNOWN[:2])
def test_known_words_far_above_are_of_something_else(unknown: str) -> None:
    told = explain("DLL load failed while importing x\n" + "loading\n" * 20 + unknown, SIGNATURES)
    assert told.known is None and told.failure is not None and "it is odd" in told.failure.message


def test_a_log_without_steps_and_end_is_not_said_to_be_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text("torch 2.9.1\nLoading the model from /home/ana/models\n")
    assert main(["explain", str(log)]) == 3
    out = capsys.readouterr().out
    assert "What became of the run is not known." in " ".join(out.split()) and "/home/***/models" in out
    log.write_text("Loading\n" + _BARS)
    assert main(["explain", str(log)]) == 0
    assert "shows no failure: no traceback" in capsys.readouterr().out


WARNED = (
    "loss_type=None` was set in the config but it is unrecognised. Using the default loss: `ForCausalLMLoss`.",
    "Skipping import of cpp extensions due to incompatible torch version 2.8.0+cu129 for torchao version 0.14.0",
    "UserWarning: User provided device_type of 'cuda', but CUDA is not available. Disabling",
)


@pytest.mark.parametrize("line", WARNED)
def test_what_only_warns_is_told_and_is_no_failure(line: str) -> None:
    seen = explain(line, SIGNATURES)
    assert seen.failure is None and seen.known is None and seen.warned is not None
    assert explain(line + "\n" + _BARS, SIGNATURES).warned is None  # a run that went on
    assert explain(script(OOM) + line, SIGNATURES).warned is None


def test_every_warning_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for one in table.warned():
        assert one.source.startswith("https://") and one.cause.endswith(".")
        for word in one.words:
            assert explain(f"x: {word} y\n", SIGNATURES).warned is one, word
    (log := tmp_path / "a.log").write_text(WARNED[0])
    assert main(["explain", str(log)]) == 3 and "warns:" in capsys.readouterr().out


def test_other_causes_of_the_same_words_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each entry that has some says how to tell them from the first."""
    several = [one for one in table.known() if one.also]
    assert len(several) > 5 and all(one.also.endswith(".") for one in several)
    (log := tmp_path / "a.log").write_text(script("NotImplementedError: Cannot copy out of meta tensor; no data!"))
    main(["explain", str(log)])
    told = capsys.readouterr().out
    assert "\nor:    " in told and "device_map" in told


def test_what_came_right_before_a_vague_failure_is_its_cause() -> None:
    """The words of the exception above are filled in, not only its entry taken."""
    text = "ImportError: cannot import name 'OddPipeline' from 'oddpackage'\n"
    told = explain(text + "NameError: name 'OddPipeline' is not defined\n", SIGNATURES)
    assert told.cause.startswith("oddpackage, as it is installed here, has no OddPipeline")


def test_what_a_line_is_known_for_comes_before_what_its_end_says() -> None:
    tail = (
        "CUDA kernel errors might be asynchronously reported. Compile with `TORCH_USE_CUDA_DSA` to enable assertions."
    )
    told = explain(f" CUDA error: unknown error {tail}", SIGNATURES)
    assert told.cause.startswith("The card or its driver has failed")
    assert "first line" in explain(tail.replace(". ", ".\n"), SIGNATURES).cause


@pytest.mark.parametrize(
    ("error", "certain"),
    [
        ("RuntimeError: shape '[2, 24, 128]' is invalid for input of size 15194", False),
        ("KeyError: 'double_blocks.0.img_attn.proj.weight'", False),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0", True),
    ],
)
def test_one_of_several_causes_is_told_as_no_more(
    error: str, certain: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (log := tmp_path / "a.log").write_text(script(error, "go(x)"))
    main(["explain", str(log)])
    out = capsys.readouterr().out
    assert ("cause:" in out) is certain and ("maybe:" in out and "several causes" in out) is not certain
    main(["explain", str(log), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["certain"] is certain


@pytest.mark.parametrize("line", ["[已退出进程，代码为 1 (0x00000001)]", "[process exited with code 3 (0x00000003)]"])
def test_a_windows_terminal_says_in_any_language_how_the_process_ended(line: str) -> None:
    assert explain(f"Loading\n{_BARS}{line}\n", SIGNATURES).failure is not None
    assert explain(f"Loading\n{_BARS}[已退出进程，代码为 0 (0x00000000)]\n", SIGNATURES).failure is None


def test_bars_of_loading_are_no_steps_of_a_training() -> None:
    bars = "".join(f"Loading checkpoint shards:  {n}0%|## | {n}/10 [00:0{n}<00:13, 13.01s/it]\n" for n in range(5))
    told = explain(f"torch 2.9.1\n{bars}Loadi\n", SIGNATURES)
    assert told.failure is None and not told.worked and told.ends is not None
