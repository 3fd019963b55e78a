"""An exception of a shape that only the program's own code makes is told as its fault, and how to go on meanwhile."""

from __future__ import annotations

import pytest

from zdoctor.doctor.crash import explain
from zdoctor.doctor.model.crashes import Explanation

from .test_cases import SIGNATURES


def told(error: str, *frames: tuple[str, str, str]) -> Explanation:
    shown = "".join(f'  File "{file}", line 8, in {function}\n    {code}\n' for file, function, code in frames)
    return explain(f"Traceback (most recent call last):\n{shown}{error}\n", SIGNATURES)


HELPER = "/w/SimpleTuner/helpers/training/trainer.py"


@pytest.mark.parametrize(
    ("error", "file", "code", "words"),
    [
        ("NameError: name 'oddly' is not defined", HELPER, "x = oddly(cmd)", "A fault of SimpleTuner at step"),
        (
            "UnboundLocalError: cannot access local variable 'odd' where it is not associated with a value",
            "C:\\w\\AI-Toolkit\\jobs\\process\\X.py",
            "return odd",
            "ai-toolkit goes on without a value that it has not set: it uses odd before",
        ),
        (
            "AttributeError: 'Model' object has no attribute 'ODD'",
            HELPER,
            "x == self.ODD",
            "own Model has no ODD",
        ),
        ("AttributeError: 'tuple' object has no attribute 'odd'", HELPER, "x.odd", "a tuple comes where something"),
        (
            "TypeError: unsupported operand type(s) for *: 'NoneType' and 'float'",
            HELPER,
            "t = t * 0.5",
            "SimpleTuner does not set it",
        ),
    ],
)
def test_it_is_the_programs(error: str, file: str, code: str, words: str) -> None:
    assert words in told(error, (file, "step", code)).cause


@pytest.mark.parametrize(
    ("error", "file", "code"),
    [
        # code of a library, and of nobody knows whom
        ("NameError: name 'oddly' is not defined", "/v/lib/python3.12/site-packages/odd/a.py", "x = oddly(cmd)"),
        ("NameError: name 'oddly' is not defined", "/w/mine.py", "x = oddly(cmd)"),
        # a setting may hold a text where it should not; another's attribute may be of another version
        ("AttributeError: 'str' object has no attribute 'odd'", HELPER, "config.odd"),
        ("AttributeError: 'Model' object has no attribute 'odd'", HELPER, "model.odd"),
    ],
)
def test_it_may_be_anothers(error: str, file: str, code: str) -> None:
    assert "A fault of" not in told(error, (file, "step", code)).cause


def test_a_name_that_a_package_lacks_is_what_it_could_not_load() -> None:
    file = "/v/lib/python3.12/site-packages/bitsandbytes/functional.py"
    seen = told(
        "NameError: name 'odd_8bit' is not defined", (HELPER, "step", "opt()"), (file, "update", "f = odd_8bit")
    )
    assert seen.cause.startswith("bitsandbytes lacks odd_8bit in its own code") and "Install it anew" in seen.do


def test_what_it_was_at_can_be_left_out_meanwhile() -> None:
    frames = (("/w/ai-toolkit/run.py", "main", "job.generate_images(x)"), ("/w/ai-toolkit/a.py", "go", "odd()"))
    assert "disable_sampling" in told("NameError: name 'odd' is not defined", *frames).do
