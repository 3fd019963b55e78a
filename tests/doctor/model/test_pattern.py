"""Expressions compiled on first use do what compiled ones do."""

from __future__ import annotations

import re

import pytest

from zdoctor.doctor.model.pattern import pattern


def test_it_is_compiled_when_it_is_used() -> None:
    word = pattern("a(b+)", re.IGNORECASE)
    assert "search" not in vars(word)
    found = word.search("xABBy")
    assert found is not None and found[1] == "BB" and word.pattern == "a(b+)"
    assert "search" in vars(word) and "sub" not in vars(word)
    assert word.sub("-", "abab") == "--" and word.search("x") is None
    assert word.flags & re.IGNORECASE and pattern(b"a").fullmatch(b"a")


def test_what_is_none_is_said_when_it_is_used() -> None:
    wrong = pattern("(")
    with pytest.raises(re.error):
        wrong.search("")
