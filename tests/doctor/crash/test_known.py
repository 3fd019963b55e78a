"""The known failures as data: each has its source, and is found by its own words, whatever its log went through."""

from __future__ import annotations

import re
from functools import cache
from zlib import crc32

import pytest

from zdoctor.doctor.crash import explain
from zdoctor.doctor.crash.table import known
from zdoctor.doctor.model.crashes import Known

from .disguises import DISGUISES, mixed, woven
from .samples import log_of
from .shapes import script
from .test_cases import SIGNATURES

# What every entry takes in each way is tried of some of them, and of all where `-m thorough` asks for it.
SHARES = pytest.mark.parametrize("one_in", [3, pytest.param(1, marks=pytest.mark.thorough)], ids=["some", "all"])
SPOKEN = [(one, word) for one in known() for word in one.words if not (one.text or one.error or one.seen)]


def number(words: str) -> int:
    return crc32(words.encode())


def test_each_has_a_source_and_says_what_to_do() -> None:
    for one in known():
        assert one.source.startswith("https://"), one.cause
        assert one.cause.endswith(".") and one.do and not one.do.endswith(" "), one.cause


def test_each_is_reached_and_no_other_comes_before_it() -> None:
    for one in known():
        assert explain(log_of(one), SIGNATURES).known is one, log_of(one)


@SHARES
def test_each_is_known_in_disguise(one_in: int) -> None:
    """Each in one disguise; `python benchmarks/explain.py known` tries all of them.

    A log that ends amid a bar does so no more when another program writes behind it.
    """
    for one in known():
        if number(one.cause[::-1]) % one_in:
            continue
        disguise = DISGUISES[number(one.cause) % len(DISGUISES)]
        if one.error != "EndsLoading" or disguise not in (mixed, woven):
            log = disguise(log_of(one))
            assert explain(log, SIGNATURES).known is one, f"{disguise.__name__}\n{log}"


@SHARES
def test_most_are_found_by_their_words_in_a_traceback_and_without(one_in: int) -> None:
    """Where another one comes first, it is one that has the same words, and more, or a rule that sees it before."""
    for one, word in SPOKEN:
        for at, log in enumerate((f"{word} x\n", script(f"RuntimeError: {word} x"))):
            if (number(word) + at) % one_in:
                continue
            seen = explain(log, SIGNATURES)
            assert seen.failure is not None, log
            other = seen.known is not None and _first(word) is not one
            assert seen.known is one or seen.rules or other, f"{one.cause}\n{log}"


def test_words_may_be_told_by_the_end_of_their_line() -> None:
    seen = explain("Loading\nUnsupported operand 10\nexit code 1\n", SIGNATURES)
    assert seen.known is not None and "no checkpoint" in seen.known.cause


@cache
def _patterns() -> list[tuple[re.Pattern[str], Known]]:
    """More than `re` keeps."""
    return [(re.compile(one.pattern), one) for one in known() if not one.line]


@cache
def _first(word: str) -> Known:
    return next(one for pattern, one in _patterns() if pattern.search(word))


@SHARES
@pytest.mark.parametrize("before", ["the user may see ", "we fixed a bug about the error of kind "])
def test_amid_a_sentence_words_are_none_of_a_failure(before: str, one_in: int) -> None:
    for _, word in SPOKEN:
        if not word[0].isupper() or " " not in word or number(before + word) % one_in:
            continue
        assert explain(f"step 1\nIt was said that {before}{word} in the past\n", SIGNATURES).known is None, word
