"""A traceback without its end, or an assertion without words: what was going on there is told."""

from __future__ import annotations

import pytest

from zdoctor.doctor.crash import explain
from zdoctor.doctor.crash.messages import CUT_OFF
from zdoctor.doctor.model.crashes import Explanation

from .test_cases import SIGNATURES

HEAD = "Traceback (most recent call last):\n"
MAIN = '  File "/x/train.py", line 3, in main\n    train(args)\n'


def seen(text: str) -> Explanation:
    return explain(text, SIGNATURES)


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        (
            '  File "/x/vae.py", line 105, in load_vae\n    vae.load_state_dict(sd)\n',
            "loading the model's files at load_vae (vae.py:105)",
        ),
        ('  File "/x/train.py", line 8, in step\n    loss.backward()\n', "computing the gradients"),
        ('  File "/x/train.py", line 8, in step\n    optimizer.step()\n', "taking the optimizer's step"),
        (
            '  File "/x/a.py", line 8, in <module>\n    vae.set_use_memory_efficient_attention_xformers(True)\n',
            "switching xformers on",
        ),
        (
            '  File "/x/a.py", line 8, in <module>\n    import timm\n  File "/v/dataclasses.py", line 7, in wrap\n',
            "importing timm at <module> (a.py:8)",
        ),
        (
            '  File "/x/utils/dataset.py", line 8, in cache\n    dist.broadcast_object_list(queue)\n',
            "letting the processes of the cards meet",
        ),
        (
            '  File "/x/a.py", line 8, in <module>\n    from .models import *\n'
            '  File "/x/down.py", line 6, in <module>\n',
            "importing .models at <module> (a.py:8)",
        ),
    ],
)
def test_what_the_program_was_at_as_the_text_ends(frames: str, words: str) -> None:
    told = seen(HEAD + MAIN + frames)
    assert told.failure is not None and told.failure.name == CUT_OFF and words in told.cause


@pytest.mark.parametrize(
    "frames",
    [
        "",
        '  File "/x/models/safetensors/tor',
        # outer frames, arguments and names of files say what is trained with, not what failed
        '  File "/x/train.py", line 8, in train\n    accelerator.prepare(model, dataloader)\n'
        '  File "/v/deepspeed/runtime/engine.py", line 1763, in _configure_ze',
        '  File "/x/flux.py", line 173, in get_tokenize_strategy\n    analyze_checkpoint_state(path)\n'
        '  File "/x/flux_utils.py", line 70, in analyze_chec',
        '  File "/x/model.py", line 8, in load_dit_model\n    assert dtype is None\n',
    ],
)
def test_nothing_is_guessed_from_what_stands_around(frames: str) -> None:
    told = seen("Loading DiT model from /m/x.safetensors\n" + HEAD + MAIN + frames)
    assert told.failure is not None and "was" not in told.cause.replace("what went wrong", "")


def test_a_head_with_half_a_frame_is_a_failure() -> None:
    for rest in ("", '  File "/app/train.py", lin'):
        told = seen("step 3\nUnloading\n" + HEAD + rest)
        assert told.failure is not None and told.failure.name == CUT_OFF


def test_an_exception_above_a_traceback_without_an_end_is_its_own() -> None:
    told = seen("KeyError: 'WanTransformer3DModel'\nLoading models from: /m\n" + HEAD + MAIN)
    assert told.failure is not None and told.failure.name == "KeyError" and "WanTransformer3DModel" in told.cause


def test_lines_that_lost_their_ends_are_told_apart() -> None:
    one = HEAD.strip() + ' [rank0]: File "/x/train.py", line 8, in [rank0]: loss = engine.train_batch(it)'
    assert "computing a step" in seen("[rank0]: " + one).cause
    frames = 'File "C:\\a\\b.py", line 5, in run self.go() File "C:\\a\\c.py", line 6, in go'
    two = f"done {frames} raise ValueError( ValueError: it is odd"
    told = seen(two)
    assert told.failure is not None and (told.failure.name, told.failure.message) == ("ValueError", "it is odd")


def test_a_paste_that_begins_behind_the_rank_is_one_traceback() -> None:
    told = seen(
        'File "/x/attention.py", line 1, in flash\n[rank0]:     assert FLASH_ATTN_2_AVAILABLE\n'
        "[rank0]: AssertionError\n"
    )
    assert told.cause.startswith("flash (attention.py:1) needs the package flash-attn (FLASH_ATTN_2_AVAILABLE)")


def test_an_assertion_without_words_is_told_by_its_line() -> None:
    told = seen(HEAD + '  File "/x/a.py", line 8, in f\n    assert len(parts) == 3\nAssertionError\n')
    assert "asks at f (a.py:8) that len(parts) == 3" in told.cause
    assert seen(HEAD + '  File "/x/a.py", line 8, in f\n    go()\nAssertionError\n').known is None


def test_why_an_import_failed_is_taken_from_the_words() -> None:
    lead = (
        "RuntimeError: Failed to import diffusers.x because of the following error (look up to see its traceback):\n"
    )
    told = seen(HEAD + MAIN + lead + "cannot import name 'FluxKontextPipeline' from 'diffusers' (/v/x.py)\n")
    assert "diffusers 0.35.0 has diffusers.FluxKontextPipeline, 0.34.0 not yet" in told.cause
