"""Logs in which nothing failed, or nothing that is known: no cause may be made up for them."""

from __future__ import annotations

import pytest

from zdoctor.doctor.crash import explain

from .shapes import META, OOM, ai_toolkit, launcher, panel, script, torchrun, traceback
from .test_cases import SIGNATURES
from .worked import WORKED

_BARS = "".join(f"steps: {n}%|###   | {n}/100 [00:{n:02}<01:00, 1.2s/it, avr_loss=0.{n:03}]\n" for n in range(60))
_PICTURE = traceback(
    "OSError: image file is truncated (3 bytes not processed)", ("/t/data_loader.py", "init", "open(f)")
)

QUIET = {
    "nothing": "",
    "losses": "step 100/3000 loss 0.231 lr 1e-4 2.1 it/s\nstep 101/3000 loss 0.137 lr 1e-4\nsaved\n",
    "numbers that are exit codes elsewhere": "step 137/3000 loss 0.139 -9 -11 137 139 134 3221225477it\n",
    "an exit code of success": "process exited with code 0\nexit status 0\n",
    "an accuracy": "exit code coverage: 137.5%\n",
    "gradients are warned about": "UserWarning: None of the inputs have requires_grad=True. Gradients will be None\n",
    "new weights are warned about": "Some weights of X were not initialized from the model checkpoint: ['a.b']\n",
    "killed by a filter": "Skipped 3 images that were killed by the filter\n",
    "a word in a sentence": "The word Traceback (most recent call last): in a sentence\n",
    "a caption": "caption: a robot shows an Error: CUDA out of memory, killed by its own signal 9\nstep 1 loss 0.2\n",
    "a prompt about errors": "Generating: 'ValueError: Unknown optimizer type, oil painting'\n",
    "a library": "ERROR: ld.so: object 'a.so' from LD_PRELOAD cannot be preloaded: ignored.\nuploaded\n",
    "forks": "huggingface/tokenizers: The current process just got forked. Disabling parallelism\n",
    "memory is reported": "GPU memory: 12.1 GiB of 15.8; out of memory events: 0\n",
    "hf_xet is missing": (
        "Xet Storage is enabled for this repo, but the 'hf_xet' package is not installed. Falling back\n"
    ),
    "resumed": "#### IMPORTANT RESUMING FROM /o/cat_000000500.safetensors ####\n" + _BARS,
    "rubbish": "\x00\x01\x02 binary \xff\xfe rubbish",
    "a header only": "Traceback (most recent call last):\n",
    "frames of a warning": '  File "/x/y.py", line 3, in f\n    warnings.warn("deprecated")\nDeprecationWarning\n',
    "a picture that was left out": _PICTURE + "Error processing image: /d/a.png\n" + _BARS,
    "a step without room": traceback(OOM, ("/t/train.py", "step", "loss.backward()")) + _BARS,
    "two losses after it": traceback("ValueError: retry", ("/t/a.py", "f", "g()")) + "loss: 0.21\nstep\nloss: 0.19\n",
    "once not finite": "loss is nan\n" + _BARS,
    "a rank among others": "".join(f"[rank{n % 2}]: step {n} loss 0.{n}\n" for n in range(20)),
    "bars only": _BARS,
    "a LoRA of a transformer": "No LoRA keys associated to CLIPTextModel found with the prefix='text_encoder'.\n",
    "a table": "| steps | loss |\n|---|---|\n| 137 | 0.2 |\n",
    "accelerate's defaults": "The following values were not passed to `accelerate launch` and had defaults used:\n"
    "\t`--num_processes` was set to a value of `1`\n",
    "a web server": '127.0.0.1 - "GET /api HTTP/1.1" status: 134\n',
    "told of DeepSpeed": "[INFO] DeepSpeed is not used; LoRA is trained with accelerate\n",
}


@pytest.mark.parametrize("name", WORKED)
def test_a_run_that_worked_has_not_failed(name: str) -> None:
    seen = explain(WORKED[name], SIGNATURES)
    assert seen.failure is None and seen.known is None and not seen.rules


@pytest.mark.parametrize("name", list(WORKED)[::5])
def test_a_run_that_failed_after_the_same_words_has(name: str) -> None:
    bars = "steps:  61%|######    | 61/100 [00:59<01:00,  1.20s/it]"
    log = WORKED[name].partition("Saved checkpoint")[0].partition("model saved")[0].partition("Model weights")[0]
    seen = explain(log + bars + ai_toolkit(META, "transformer.to(d)"), SIGNATURES)
    assert seen.rules == ("MDL001",)


@pytest.mark.parametrize("name", QUIET)
def test_where_nothing_ended_the_run_nothing_is_explained(name: str) -> None:
    seen = explain(QUIET[name], SIGNATURES)
    assert seen.failure is None and seen.known is None and not seen.rules


# Each is like one that is known, and of another cause.
UNKNOWN = {
    "odd value": script("ValueError: the second value is odd", "a, b = mine(x)"),
    "a key": script("KeyError: 'config'", "a = mine['config']"),
    "a key that is a qtype elsewhere": script("KeyError: 'nf4'", "mine['nf4']"),
    "two sizes": script("RuntimeError: The size of tensor a (64) must match the size of tensor b (32)", "mine(a, b)"),
    "an error of one's own": script("MyOwnError", "mine()"),
    "an index": script("IndexError: pop from an empty deque", "mine.pop()"),
    "nothing to iterate": script("TypeError: 'NoneType' object is not iterable", "for x in mine:"),
    "no input": script("OverflowError: mine", "mine = input()"),
    "an assertion": script("AssertionError", "assert mine"),
    "number of channels": script("ValueError: max() arg is empty", "max(mine)"),
    "in a panel": panel("ValueError: nothing that is known", "/home/li/train.py", "main", "mine(x)"),
    "of two ranks": torchrun(traceback("ValueError: odd", ("/home/li/train.py", "main", "mine(x)"))),
    "under a launcher": script("ValueError: odd", "mine(x)") + launcher(1),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_is_said_with_the_frame_that_matters(name: str) -> None:
    seen = explain(UNKNOWN[name], SIGNATURES)
    assert seen.failure is not None and seen.known is None and not seen.rules
    assert seen.failure.frame is not None and "mine" in seen.failure.frame.code


def test_a_failure_after_one_that_was_survived_is_the_one() -> None:
    text = _PICTURE + _BARS + ai_toolkit(META, "transformer.to(d)")
    seen = explain(text, SIGNATURES)
    assert (seen.rules, seen.others) == (("MDL001",), 1)


def test_killed_after_a_failure_that_was_survived() -> None:
    seen = explain(_PICTURE + _BARS + "Killed\n", SIGNATURES)
    assert seen.rules == ("MEM002",)


def test_other_ranks_that_go_on_for_a_while_do_not_hide_the_one_that_failed() -> None:
    failed = traceback(OOM, ("/w/train.py", "main", "model.to(d)"))
    ranks = torchrun(failed).split("\nW1121")
    seen = explain(ranks[0] + "\n" + "\n".join(_BARS.splitlines()[:20]) + "\nW1121" + ranks[1], SIGNATURES)
    assert seen.rules == ("MEM001",)
