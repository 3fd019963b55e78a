"""The catalogues hold every text of the house, with the places of the English text; complete ones stay complete."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from zdoctor.doctor.languages import DOMAINS, ENGLISH, FOLDER, LANGUAGES
from zdoctor.maintenance.messages.__main__ import faults, messages
from zdoctor.maintenance.messages.catalogues import entries

OTHERS = [language for language in LANGUAGES if language != ENGLISH]
COMPLETE = [(language, domain) for language in OTHERS for domain in DOMAINS]


@cache
def texts() -> dict[str, dict[str, str]]:
    return messages()


@pytest.mark.parametrize(("language", "domain"), COMPLETE)
def test_a_complete_catalogue_has_every_message(language: str, domain: str) -> None:
    known = {english for english, other, fuzzy in entries(FOLDER / language / f"{domain}.po") if other and not fuzzy}
    left = [f"{place}: {text}" for text, place in texts()[domain].items() if text not in known]
    assert not left, "python -m zdoctor.maintenance.messages takes them in:\n" + "\n".join(left)


@pytest.mark.parametrize("language", OTHERS)
def test_every_translation_has_the_places_and_the_code_of_its_text(language: str) -> None:
    files = [FOLDER / language / f"{domain}.po" for domain in DOMAINS]
    assert not [fault for file in files for fault in faults(file)]


def test_the_extraction_finds_texts_of_each_kind() -> None:
    """One of a rule, a repair, a reason, a help text, an error, the runner, a known failure and a docstring."""
    found = {text for domain in texts().values() for text in domain}
    assert {
        "{text} is a placeholder: put in the real path of {what}.",
        "set assistant_lora_path to {path}",
        "the adapter file does not exist",
        "say what would go wrong; changes nothing",
        "{word} is no language that zdoctor speaks.",
        "lines {lines}",
        "An adapter path names a folder or a repository where the trainer opens a file.",
    } <= found
    assert not {text for text in found if text != text.strip() or not text}


def test_a_fault_is_told(tmp_path: Path) -> None:
    file = tmp_path / "rules.po"
    entry = '\n#, python-brace-format\nmsgid "{key} is `true`"\nmsgstr "{khoa} là true"\n'
    file.write_text('msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n' + entry, encoding="utf-8")
    told = os.linesep.join(faults(file))
    assert "places: ['{key}'] became ['{khoa}']" in told and "code of the English text" in told
