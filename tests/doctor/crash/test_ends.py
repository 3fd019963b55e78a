"""What is told of a text that ends without an error: what the program was at, by its last lines."""

from __future__ import annotations

import pytest

from zdoctor.doctor.crash import explain
from zdoctor.doctor.crash.table import ends

from .test_cases import SIGNATURES

ENDS = {
    "Fetching 23 files:  13%|#3        | 3/23 [00:02<00:14,  1.35it/s]": "as files are fetched",
    "Loading checkpoint shards:  50%|#####     | 1/2 [00:11<00:11, 11.2s/it]\nLoading VAE": "as the model",
    "INFO     make buckets                    train_util.py:859": "as the pictures or videos are read",
    "[2026-03-01 10:00:00,000] [INFO] [real_accelerator.py:222:get_accelerator] Setting ds_accelerator to cuda": (
        "amid what DeepSpeed prints"
    ),
    "10:00:00-000000 INFO     Validating /data/img existence... SUCCESS": "before the training itself says anything",
    "epoch is incremented. current_epoch: 0, epoch: 1": "before the first step is done",
    "  Cloning https://github.com/huggingface/diffusers.git to /tmp/x\n  Running command git clone --quiet": (
        "as packages are fetched or compiled"
    ),
    r"copying flash_attn\ops\a.py -> build\lib.win-amd64\flash_attn\ops": "no ready build of flash-attn",
    r"creating build\lib.win-amd64-cpython-312\flash_attn\ops": "no ready build of flash-attn",
    r"copying mine\a.py -> build\lib.win-amd64-cpython-312\mine": "as packages are fetched or compiled",
    "copying xformers/ops/rope.py -> build/lib.linux-x86_64/xformers/ops": "no ready build of this package",
    "Train finished\nPrompt executed in 17.67 seconds": "however the training ended",
    "2026-05-18 18:27:50 INFO Loading settings from": "had said nothing more",
    "[launch.py:256:main] process 8947 spawned with command: ['python', '-u', 'train.py']": "DeepSpeed's launcher",
}


@pytest.mark.parametrize("text", ENDS)
def test_what_it_was_at(text: str) -> None:
    seen = explain(f"Some words\n{text}\nmore words\n", SIGNATURES)
    assert seen.failure is None and seen.ends is not None and ENDS[text] in seen.ends.cause
    assert not seen.explained  # what became of the run is not known


@pytest.mark.parametrize("end", ["RuntimeError: something odd", "100%|##########| 20/20 [01:00<00:00]\nmodel saved."])
def test_where_the_text_tells_more_nothing_is_guessed(end: str) -> None:
    for text in ENDS:
        assert explain(f"{text}\n{end}\n", SIGNATURES).ends is None


def test_the_last_line_counts() -> None:
    first, last = list(ENDS)[2], list(ENDS)[5]
    seen = explain(f"{first}\n{last}\n", SIGNATURES).ends
    assert seen is not None and ENDS[last] in seen.cause
    assert explain("Nothing at all was said\n", SIGNATURES).ends is None


def test_each_has_words_a_source_and_what_to_do() -> None:
    for one in ends():
        assert one.words and one.source.startswith("https://") and one.cause.endswith(".") and one.do.endswith("."), (
            one
        )


def test_what_was_said_long_before_the_end_is_no_end() -> None:
    said = next(iter(ENDS))
    odd = "".join(f"word {n}\n" for n in range(12))
    assert explain(f"{said}\n{odd}", SIGNATURES).ends is None
