"""What has to stand in a text for a pattern to find it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zdoctor.doctor.crash.table import known
from zdoctor.doctor.model.literals import literals

PATTERNS = sorted({pattern for one in known() for pattern in (one.text, one.where) if pattern})


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("CUDA error: unspecified", ("CUDA error: unspecified",)),
        (r"size \d+ is out of bounds|no kernel image", (" is out of bounds", "no kernel image")),
        (r"torch\.Size\(\[\d+\]\)", ("torch.Size([",)),
        ("colou?rs are", ("rs are",)),
        ("fifty{2,3}0 of them", ("0 of them",)),
        ("a+bcd", ("bcd",)),
        ("(?:no )?[Ww]eights (?:were|are) lost|gone away", ("eights ", "gone away")),
        (r"ab|no kernel image", ()),  # ab is in most texts
        ("(?i)out of memory", ()),
        ("(?:either|or)", ()),
    ],
)
def test_the_longest_words_of_each_alternative(pattern: str, found: tuple[str, ...]) -> None:
    assert literals(pattern) == found


@given(st.sampled_from(PATTERNS).flatmap(lambda pattern: st.tuples(st.just(pattern), st.from_regex(pattern))))
def test_whatever_a_pattern_finds_has_one(case: tuple[str, str]) -> None:
    pattern, text = case
    assert re.search(pattern, text)
    assert not literals(pattern) or any(word in text for word in literals(pattern))


def test_most_patterns_have_some() -> None:
    assert sum(bool(literals(pattern)) for pattern in PATTERNS) > 0.6 * len(PATTERNS)
