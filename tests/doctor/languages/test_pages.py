"""What `explain` says is in the reader's language to the last paragraph, with whatever is filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from zdoctor.doctor import languages
from zdoctor.doctor.commands.explain import page
from zdoctor.doctor.crash.table import known
from zdoctor.doctor.model.said import said
from zdoctor.doctor.rules import all_rules
from zdoctor.maintenance.messages.texts import is_prose
from zdoctor.reports.painting import Wrapped

AS_THEY_ARE = ("Upstream", "Signature")


def is_english(text: str) -> bool:
    return is_prose(text) and said(text) == text


@pytest.fixture(scope="module")
def chinese() -> Iterator[None]:
    languages.speak("zh_CN", "explain")
    yield
    languages.speak(languages.ENGLISH)


@pytest.mark.usefixtures("chinese")
def test_every_paragraph_of_the_page_of_a_rule_is_translated() -> None:
    left = []
    for rule in all_rules():
        heading = ""
        for line in page(rule):
            if isinstance(line, Wrapped):
                heading = line.lead or heading
                kept = heading.startswith(tuple(map(said, AS_THEY_ARE)))
                left += [f"{rule.id}: {line.text}"] * (is_english(line.text) and not kept)
    assert not left, "\n".join(left)


@pytest.mark.usefixtures("chinese")
def test_what_is_said_of_a_known_failure_is_translated_whatever_it_names() -> None:
    left = []
    for failure in known():
        for text in filter(None, (failure.cause, failure.do, failure.avoid)):
            told = re.sub(r"\{\w+\}", "models/a_b.py", text)
            left += [f"{failure.source}: {told}"] * is_english(told)
    assert not left, "\n".join(left)
