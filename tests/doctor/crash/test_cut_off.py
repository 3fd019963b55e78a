"""A traceback without its end, or an assertion without words: what was going on there is told."""

from __future__ import annotations

import re

import pytest

from zdoctor.doctor.crash import explain
from zdoctor.doctor.crash.messages import CUT_OFF
from zdoctor.doctor.crash.stages import stages
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
        (
            '  File "/x/sd.py", line 1458, in load_clip\n    clip = load_text_encoder_state_dicts(clip_data)\n',
            "loading the model's files at load_clip (sd.py:1458)",
        ),
        ('  File "/x/train.py", line 8, in step\n    loss.backward()\n', "computing the gradients"),
        ('  File "/x/train.py", line 8, in step\n    optimizer.step()\n', "taking the optimizer's step"),
        (
            '  File "/x/a.py", line 8, in <module>\n    vae.set_use_memory_efficient_attention_xformers(True)\n',
            "switching xformers on",
        ),
        (
            '  File "/x/a.py", line 8, in <module>\n    import zork\n  File "/v/dataclasses.py", line 7, in wrap\n',
            "importing zork at <module> (a.py:8)",
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
        # an import whose line is not there, by Python's own code for it
        (
            '  File "/v/site-packages/diffusers/utils/import_utils.py", line 8, in _get_module\n'
            "    return importlib.import_module(name)\n"
            '  File "<frozen importlib._bootstrap>", line 1050, in _gcd_import\n',
            "importing a module at _get_module (import_utils.py:8)",
        ),
        # where the last call is no word of ours, the frames around it tell
        (
            '  File "/x/trainer.py", line 8, in step\n    retval = optimizer.step(*args)\n'
            '  File "/v/site-packages/torch/optim/x.py", line 7, in wrapper\n    return func.__get__(opt)()\n',
            "taking the optimizer's step at step (trainer.py:8)",
        ),
        # also where the package does something else most of the time
        (
            '  File "/x/app.py", line 8, in <module>\n    import gradio as gr\n'
            '  File "/v/site-packages/gradio/x.py", line 7, in <module>\n    from gradio.components import base\n',
            "importing gradio.components at <module> (x.py:7)",
        ),
        # of some packages it is known why their import fails
        (
            '  File "/x/a.py", line 8, in <module>\n    from torchcodec.decoders import AudioDecoder\n'
            '  File "/v/site-packages/torchcodec/__init__.py", line 7, in <module>\n',
            "no shared libraries of FFmpeg",
        ),
        # whose files are at work, even where the line is cut or was only handed on
        (
            '  File "/x/train.py", line 9, in call_dit\n    pred = model(x)\n'
            '  File "/v/site-packages/torch/_dynamo/eval_frame.py", line 663, in _fn\n    raise e from None\n'
            '  File "/v/site-packages/torch/_inducto',
            "compiling the model (torch.compile) at call_dit (train.py:9)",
        ),
        (
            '  File "/v/Lib/site-packages/triton/runtime/jit.py", line 617, in run\n    kernel.run(grid_0, stream)\n'
            '  File "/v/Lib/site-packages/triton/compiler/compiler.py", line ',
            "compiling or starting a kernel of Triton",
        ),
        (
            '  File "/x/wan_video_vae.py", line 8, in forward\n    x = self.conv(x)\n',
            "encoding pictures with the VAE at forward (wan_video_vae.py:8)",
        ),
        (
            '  File "/x/train.py", line 8, in evaluate_single\n'
            "    batches = get_data_iterator_for_step(eval_dataloader, engine)\n",
            "an evaluation set has too few items for a batch",
        ),
        # the package that pip builds
        (
            '  File "/tmp/pip-install-czq/odd-torch_8f96b99566704602b10015a5c090d4ad/setup.py", line 5, in <module>\n'
            "    setuptools.setup(\n"
            '  File "/v/site-packages/setuptools/_distutils/core.py", line 8, in setup\n    run_commands(dist)\n',
            "building a package at odd-torch;",
        ),
        # what the script is for, where its last call is no word of ours
        (
            '  File "/x/wan_cache_latents.py", line 8, in start\n    thing(1).build(2)\n',
            "caching latents at wan_cache_latents.py",
        ),
        # of an exception's name two letters are left
        ('  File "/x/train.py", line 8, in step\n    optimizer.step()\nAt', "taking the optimizer's step"),
        # or whose code is at work
        (
            '  File "/v/site-packages/starlette/routing.py", line 8, in app\n    await wrapped(scope)\n',
            "answering a request of its web page at app (routing.py:8)",
        ),
    ],
)
def test_what_the_program_was_at_as_the_text_ends(frames: str, words: str) -> None:
    told = seen(HEAD + MAIN + frames)
    assert told.failure is not None and told.failure.name == CUT_OFF and words in told.cause


def test_checkpointing_is_no_compiling() -> None:
    """torch's own way to switch dynamo off goes through its files, too."""
    frames = (
        '  File "/x/model.py", line 8, in forward\n    x = checkpoint(block, x)\n'
        '  File "/v/site-packages/torch/_compile.py", line 32, in inner\n    return disable_fn(*args)\n'
        '  File "/v/site-packages/torch/_dynamo/eval_frame.py", line 600, in _fn\n    return fn(*args)\n'
    )
    assert "computing a step" in seen(HEAD + MAIN + frames).cause


def test_code_of_two_checkouts_is_told() -> None:
    two = (
        '  File "/a/musubi-tuner/cache.py", line 4, in <module>\n    main()\n'
        '  File "/b/musubi-tuner/src/musubi_tuner/cache.py", line 369, in main\n    thing(1).build(2)\n'
    )
    assert "/a/musubi-tuner was started, and what it imports comes from /b/musubi-tuner" in seen(HEAD + two).cause
    assert "two copies" not in seen(HEAD + two.replace("/b/", "/a/")).cause


def test_each_stage_of_the_table_says_enough_and_can_be_found() -> None:
    for stage in stages():
        assert stage.often and (stage.doing or stage.imports), stage
        by = [stage.calls, stage.files, stage.package, stage.said, stage.script, stage.imports]
        assert any(by), stage
        for pattern in by:
            re.compile(pattern)


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
    ],
)
def test_nothing_is_guessed_from_what_stands_around(frames: str) -> None:
    told = seen("Loading DiT model from /m/x.safetensors\n" + HEAD + MAIN + frames)
    assert told.failure is not None
    assert not any(word in told.cause for word in ("tokenizer", "dataset", "picture", "safetensors", "DiT"))


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        # a frame that is cut in its own line is what the one before it calls
        (
            '  File "/x/flux.py", line 173, in get_tokenize_strategy\n    kind = '
            "flux_utils.analyze_checkpoint_state(path)\n"
            '  File "/x/flux_utils.py", line 70, in analyze_chec',
            "looking what kind of model the file holds",
        ),
        (
            '  File "/x/engine.py", line 360, in __init__\n    self.optimizer = '
            "self._configure_zero_optimizer(None)\n"
            '  File "/v/deepspeed/runtime/engine.py", line 1763, in _configure_ze',
            "setting DeepSpeed up",
        ),
        (
            '  File "/x/lion.py", line 87, in __init__\n    super().__init__(params, defaults)\n  File '
            '"/opt/venv/lib/py',
            "making the optimizer at __init__ (lion.py:87)",
        ),
        (
            '  File "/x/run.py", line 8, in start\n    odd = self.helper.spin(wheel(3), 4)\n  File "/x/hel',
            "The last call that it shows is self.helper.spin, at start (run.py:8)",
        ),
        (
            '  File "/x/model.py", line 8, in load_dit_model\n    assert dtype is None\n',
            "asks at load_dit_model (model.py:8) that dtype is None",
        ),
    ],
)
def test_the_last_call_that_is_shown_is_told(frames: str, words: str) -> None:
    assert words in seen(HEAD + MAIN + frames).cause


def test_an_exception_without_its_words_is_told_like_an_end_that_lacks() -> None:
    cell = (
        "RuntimeError                              Traceback (most recent call last)\nCell In[5], line 1\n"
        '----> 1 pipeline.load_lora_weights("x")\n\nFile ~/lib/diffusers/loaders/lora_pipeline.py:155\n'
    )
    assert "loading a LoRA at Cell In[5]:1" in seen(cell).cause


def test_the_name_of_an_exception_that_is_cut_off_is_completed() -> None:
    told = seen(HEAD + MAIN + "torch.OutOfMem")
    assert told.failure is not None and told.failure.type == "torch.OutOfMemoryError" and told.rules == ("MEM001",)
    other = seen(HEAD + MAIN + "torch.Odd")
    assert other.failure is not None and other.failure.type == "torch.Odd"


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
    told = seen(HEAD + '  File "/x/a.py", line 8, in f\n    assert False\nAssertionError\n')
    assert "takes for impossible, at f (a.py:8)" in told.cause
    assert seen(HEAD + '  File "/x/a.py", line 8, in f\n    go()\nAssertionError\n').known is None


def test_why_an_import_failed_is_taken_from_the_words() -> None:
    lead = (
        "RuntimeError: Failed to import diffusers.x because of the following error (look up to see its traceback):\n"
    )
    told = seen(HEAD + MAIN + lead + "cannot import name 'FluxKontextPipeline' from 'diffusers' (/v/x.py)\n")
    assert "diffusers 0.35.0 has diffusers.FluxKontextPipeline, 0.34.0 not yet" in told.cause


def test_where_no_frame_tells_it_is_what_the_lines_before_it_say() -> None:
    cut = HEAD + '  File "/x/ui.py", line 3, in __training_thread_func'
    assert "By the lines before it the program was saving;" in seen("Saving /o/a.safetensors\n" + cut).cause
    assert "By the lines before it" not in seen("Using the default loss\n" + cut).cause


def test_a_line_that_imports_is_told_as_that_whatever_its_file_is_for() -> None:
    log = (
        'Traceback (most recent call last):\n  File "/m/autoencoder_odd.py", line 32, in <module>\n'
        "    from diffusers.loaders.odd import Odd\n"
    )
    assert "importing diffusers.loaders.odd at " in explain(log, ()).cause
