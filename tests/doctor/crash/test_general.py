"""What is told of any failure of a shape: what its words name is filled in, and whatever knows more comes before."""

from __future__ import annotations

import re

import pytest

from zdoctor.doctor.crash import clean, explain, failures
from zdoctor.doctor.crash.table import general, known
from zdoctor.doctor.model.crashes import Failure

from .shapes import META, script, traceback
from .test_cases import SIGNATURES

PLACE = re.compile(r"\{(\w*)\}")
OWN = "/home/ana/trainer/library/train_util.py"


def cause(log: str) -> str:
    return explain(log, SIGNATURES).cause


def test_what_an_entry_fills_in_is_found_by_its_pattern() -> None:
    for one in known():
        named = set(PLACE.findall(one.cause + one.do))
        assert named <= set(re.compile(one.text).groupindex), one.cause
        assert not PLACE.search(one.avoid), one.cause


def test_what_is_told_names_what_the_log_names() -> None:
    told = explain(script("ImportError: cannot import name 'Foo' from 'other.models' (/v/other/__init__.py)"), ())
    assert told.cause.startswith("other.models, as it is installed here, has no Foo:")
    assert "outside of other.models)" in told.do


def test_all_of_them_are_filled() -> None:
    for one in known():
        for words in (one.cause, one.do):
            assert not PLACE.search(one.filled(words, Failure("RuntimeError", "none of its words", (), 1)))


def test_what_a_program_says_as_it_stops() -> None:
    log = traceback("ValueError: rank has to be even", (OWN, "parse", 'raise ValueError("rank has to be even")'))
    own = log.replace("/usr/local/lib/python3.11/dist-packages/torch/nn/modules/module.py", OWN)
    assert cause(own).endswith("stopped by itself. It said: rank has to be even.")
    library = own.replace(OWN, "/v/lib/python3.11/site-packages/other/core.py")
    assert cause(library) == ""


def test_as_much_of_it_as_fits() -> None:
    long = "rank has to be even " * 40
    log = traceback(f"ValueError: {long}", (OWN, "parse", 'raise ValueError("rank")')).replace("t.to(", "t.of(")
    assert len(cause(log)) < 300


def test_rules_and_other_entries_come_before() -> None:
    assert explain(script(META), SIGNATURES).rules == ("MDL001",)
    removed = explain(script("ImportError: cannot import name 'cached_download' from 'huggingface_hub'"), SIGNATURES)
    assert removed.known not in general() and (removed.known or removed.rules)


@pytest.mark.parametrize(
    "words",
    ["'NoneType' object has no attribute 'to'", "object has no attribute 'x'", "got an unexpected keyword argument"],
)
def test_words_that_any_warning_may_have_tell_nothing_of_a_failure_that_is_known(words: str) -> None:
    log = f"WARNING: plugin: {words}\n" + script(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB."
    )
    told = explain(log, SIGNATURES)
    assert told.known not in general() and (told.known or told.rules)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("torch._dynamo.exc.Unsupported: call_function BuiltinVariable", "Unsupported"),
        ("httpx.ConnectTimeout: _ssl.c:989: The handshake operation timed out", "ConnectTimeout"),
        (
            "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated",
            "BrokenProcessPool",
        ),
        ("triton.runtime.errors.OutOfResources: out of resource: shared memory", "OutOfResources"),
        ("cv2.error: OpenCV(4.11.0) error: (-215:Assertion failed) !_src.empty()", "error"),
    ],
)
def test_exceptions_whose_names_do_not_end_in_error(error: str, name: str) -> None:
    for log in (script(error), f"Loading\n{error}\n"):
        assert name in {failure.name for failure in failures(clean(log))}


@pytest.mark.parametrize(
    "before",
    [
        "Exception ignored in: <function Pool.__del__ at 0x7f>",
        "Exception ignored while calling deallocator <function Pool.__del__ at 0x7f>:",
        "--- Logging error ---",
        "Task exception was never retrieved",
    ],
)
def test_what_ended_nothing_is_no_failure(before: str) -> None:
    assert explain(f"{before}\n{script('OSError: [Errno 9] Bad file descriptor')}", SIGNATURES).failure is None
    told = explain(f"{before}\n{script('OSError: [Errno 9] Bad file descriptor')}{script(META)}", SIGNATURES)
    assert told.rules == ("MDL001",)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ('assert SM89_ENABLED, "SM89 kernel is not available. Make sure you GPUs', "SageAttention"),
        ('raise ValueError(f"Unsupported CUDA architecture: sm75', "SageAttention"),
    ],
)
def test_a_log_that_ends_before_its_exception_has_the_words_in_its_last_line_of_code(code: str, told: str) -> None:
    log = f'Traceback (most recent call last):\n  File "/x/core.py", line 666, in attention\n    {code}\n'
    assert told in cause(log)


def test_what_ended_the_process_stands_before_its_end() -> None:
    assert "AMD card" in cause(
        "Memory access fault by GPU node-1 on address 0x7f. Reason: x\nAborted (core dumped)\n"
    )
    assert cause("step 1\nAborted (core dumped)\n").startswith("A compiled library ended the process")


def test_the_compiled_part_of_another_package_than_torch() -> None:
    error = "ImportError: DLL load failed while importing _C"
    frame = (
        'Traceback (most recent call last):\n  File "C:\\v\\Lib\\site-packages\\{}", line 1, in <module>\n    {}\n'
    )
    other = cause(frame.format("nunchaku\\linear.py", "from ..._C.ops import gemm") + error)
    assert other.startswith("The compiled part of the package in whose folder")
    assert cause(frame.format("torch\\__init__.py", "from torch._C import *") + error).startswith("torch's libraries")


def test_a_paste_that_begins_amid_a_frame_has_that_frame() -> None:
    said = cause(
        'app/data/plugin.py", line 1094, in process\n    x = getattr(self.grapher, "size")\n'
        "AttributeError: 'NoneType' object has no attribute 'size'\n"
    )
    assert said.startswith("self.grapher is nothing (None) at plugin.py:1094, in process:")


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        ("'NoneType' object has no attribute 'to'", "self.model.to(device)", "self.model"),
        ("'NoneType' object has no attribute 'shape'", "x = f(a.shape[0], get(b).shape)", ""),
        ("'NoneType' object has no attribute 'shape'", "size = parts[0].text.shape", "parts[0].text"),
        ("'NoneType' object is not subscriptable", 'path = config["model"]', "config"),
        ("'NoneType' object is not subscriptable", "path = config[names[0]]", ""),
        ("'NoneType' object is not callable", "self.step()", "self.step"),
        ("'NoneType' object is not callable", "a(b(c))", ""),
        ("'NoneType' object has no attribute 'size'", 'x = getattr(self.grapher, "size")', "self.grapher"),
        ("object of type 'NoneType' has no len()", "count = len(batch.prompts) + 1", "batch.prompts"),
        ("object of type 'NoneType' has no len()", "assert len(a) == len(b)", ""),
        ("argument of type 'NoneType' is not iterable", 'if "lora" in config.names:', "config.names"),
        ("cannot unpack non-iterable NoneType object", "mean, std = self.stats[0]", "self.stats[0]"),
    ],
)
def test_which_expression_was_none(words: str, code: str, what: str) -> None:
    said = cause(
        f'Traceback (most recent call last):\n  File "{OWN}", line 3, in step\n    {code}\nTypeError: {words}\n'
    )
    begin = f"{what} is nothing (None) at train_util.py:3, in step:" if what else "What should be there is not (None)"
    assert said.startswith(begin)


def test_words_that_end_with_a_point_are_told_with_one() -> None:
    error = script("ValueError: No adapter is there. Load one first.", 'raise ValueError("No adapter is there.")')
    assert explain(error, SIGNATURES).cause.endswith("It said: No adapter is there. Load one first.")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("Rank mismatch: stored=3840, wanted=16, please correct it.", "and the settings differ"),
        ("'The training cache is missing odd_rows'", "Make the caches of the dataset anew"),
        ("No adapter loaded. Please load an adapter first.", "A step that comes before was left out"),
        ("odd offloading can only be used with an even optimizer", "Two settings do not go together"),
        ("Unknown kind of odd sampler: x", "Choose a value that the program's page names"),
        ("the odd thing stands beside an even one", "Change the setting or the file that those words name"),
    ],
)
def test_what_to_do_is_told_by_the_shape_of_the_words(words: str, told: str) -> None:
    seen = explain(script(f"ValueError: {words}", 'raise ValueError("…")'), SIGNATURES)
    assert told in seen.do and seen.do.endswith("look for them in its issues."), seen.do
    bare = explain(script(f"ValueError: {words}", "odd(x)"), SIGNATURES)
    assert bare.cause == "" or "stopped by itself" not in bare.cause  # no code of the program's own raises it
