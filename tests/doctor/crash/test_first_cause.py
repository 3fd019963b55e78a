"""Of several things that went wrong, the first one is told of, not what came of it."""

from __future__ import annotations

import pytest

from zdoctor.doctor.crash import explain

from .shapes import ai_toolkit, traceback
from .test_cases import SIGNATURES

_LIBRARY = "/v/lib/python3.11/site-packages/"
_TRIED = (
    "A matching Triton is not available, some optimizations will not be enabled\nTraceback (most recent call last):\n"
    f'  File "{_LIBRARY}xformers/__init__.py", line 57, in _is_triton_available\n    import triton  # noqa\n'
    "ModuleNotFoundError: No module named 'triton'\n"
)
_CUT = f'Traceback (most recent call last):\n  File "{_LIBRARY}gradio/queueing.py", line 625, in process_events\n'
_HUB = (
    "Can't load the model for 'acme/tiny'. If you were trying to load it from 'https://huggingface.co/models', make"
)
_NODE = (
    "RefreshInstalled Error Error: File not found: \n"
    "    at new WindowsPtyAgent (C:\\P\\lib\\windowsPtyAgent.js:81:36)\n"
    "    at new Promise (<anonymous>)\n    at Shell.prompt (C:\\P\\kernel\\shell.js:594:12)\n"
)
_OOM = (
    "################################################\n# OOM during training step, skipping batch 1/3 #\n"
    "################################################\n"
)
_UNSET = "local variable 'loss_dict' referenced before assignment"
_CHAINED = "\nDuring handling of the above exception, another exception occurred:\n\n"

# (a log, a word of what is said of it)
FIRST = {
    "a package that a library does without": (
        "ImportError: cannot import name 'packaging' from 'pkg_resources' (/v/p.py)\nStarted training\n"
        + _TRIED
        + _CUT,
        "setuptools 70",
    ),
    "what a handler lacked": (
        "Error running job: /usr/lib/python3.11/distutils/core.py\n"
        "Error running on_error: cannot access local variable 'job' where it is not associated with a value\n",
        "distutils",
    ),
    "a batch without room, then a name that it left unset": (
        _OOM + ai_toolkit(f"UnboundLocalError: {_UNSET}", "loss_dict = self.hook_train_loop(batch_list)"),
        "no memory for a step",
    ),
    "a name that is unset as the first exception came before it": (
        traceback(
            "FileNotFoundError: [Errno 2] No such file or directory: '/d/a.toml'", ("/t/run.py", "f", "open(p)")
        )
        + _CHAINED
        + traceback(f"UnboundLocalError: {_UNSET}", ("/t/run.py", "main", "print(loss_dict)")),
        "/d/a.toml",
    ),
    "the hub is not reached": (ai_toolkit(f"OSError: {_HUB}", "Qwen3.from_pretrained(p)"), "the hub was not reached"),
    "frames of node are no path": (_NODE, "could not start a shell"),
}


@pytest.mark.parametrize("name", FIRST)
def test_the_first_cause_is_told(name: str) -> None:
    log, word = FIRST[name]
    assert word in explain(log, SIGNATURES).cause


def test_a_library_that_does_without_a_package_has_not_failed() -> None:
    seen = explain(_TRIED + "step 1 loss 0.2\nstep 2 loss 0.1\n", SIGNATURES)
    assert seen.failure is None and seen.known is None


def test_a_package_that_a_program_needs_has() -> None:
    log = traceback("ModuleNotFoundError: No module named 'triton'", ("/t/kernels.py", "<module>", "import triton"))
    assert "triton is not installed" in explain(log, SIGNATURES).cause


# (the one frame that is left of a log, what was going on)
STAGES = {
    "batch = self._next_batch()": "fetching a batch from the dataset",
    "return torch.cuda.get_device_name(device)": "asking for the card",
    "super().run_command(command)": "building a package",
}


@pytest.mark.parametrize("code", STAGES)
def test_what_was_going_on_where_the_log_is_cut(code: str) -> None:
    log = f'Traceback (most recent call last):\n  File "/t/engine.py", line 3, in work\n    {code}\n'
    assert f"The program was {STAGES[code]} at " in explain(log, ()).cause


@pytest.mark.parametrize(
    ("script", "doing"),
    [
        ("wan_cache_latents.py", "caching latents"),
        ("wan_cache_text_encoder_outputs.py", "caching what becomes of captions"),
    ],
)
def test_by_the_script_where_no_more_is_left(script: str, doing: str) -> None:
    log = f'Traceback (most recent call last):\n  File "/m/{script}", line 9, in <module>\n    main()\n'
    assert f"The program was {doing} at {script}" in explain(log, ()).cause


def test_of_a_script_that_trains_nothing_is_guessed() -> None:
    log = 'Traceback (most recent call last):\n  File "/m/flux_train_network.py", line 9, in <module>\n    main()\n'
    assert "most often" not in explain(log, ()).cause


def test_what_an_outer_frame_was_at_is_told_beside_the_place_where_the_log_ends() -> None:
    log = (
        'Traceback (most recent call last):\n  File "/m/own.py", line 9, in start\n    it = P.from_pretrained(name)\n'
        '  File "/m/other.py", line 5, in odd\n    self.it = Oddly(3)\n'
    )
    cause = explain(log, ()).cause
    assert "is odd (other.py:5), as the program was loading the model's files at start (own.py:9)" in cause


@pytest.mark.parametrize(("own", "others"), [("494.00 MiB", True), ("12.31 GiB", True), ("", False)])
def test_a_card_that_others_hold_is_not_this_runs_fault(own: str, others: bool) -> None:
    """In a container the run itself is a process of another number, which is then the only one."""
    held = f"Including non-PyTorch memory, this process has {own} memory in use. " if own else ""
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 24.00 MiB. GPU 0 has a total capacity of "
        "39.38 GiB of which 3.81 MiB is free. Process 3774011 has 26.88 GiB memory in use. "
        f"{held}Of the allocated memory 62.54 MiB is allocated by PyTorch, and 17.46 MiB is reserved by PyTorch."
    )
    known = explain(text, ()).known
    assert known is not None and ("is not alone on it" in known.cause) == others
