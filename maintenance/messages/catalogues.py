"""The .po files: what of them still stands, what is new, what was only reworded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from zdoctor.doctor.languages import catalogue
from zdoctor.doctor.languages.catalogue import plain, quoted

ALIKE = 0.8  # of a text that was reworded and the text before
HEADER = """\
msgid ""
msgstr ""
"Project-Id-Version: zdoctor\\n"
"PO-Revision-Date: 2026-11-24 00:00+0000\\n"
"Last-Translator: zdoctor\\n"
"Language-Team: {language}\\n"
"Language: {language}\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"""
_PLACES = re.compile(r"(?<!\{)\{\w+[^{}]*\}")


def entries(file: Path) -> Iterator[tuple[str, str, bool]]:
    """(English, translation, whether it is marked as fuzzy) of each entry of a .po file but its header."""
    data = file.read_bytes() if file.exists() else b""
    for block in data.split(b"\n\n"):
        for english, after in catalogue.entries(block, fuzzy=True).items():
            yield plain(english), catalogue.translation(after), b"\n#, fuzzy" in b"\n" + block


def merged(file: Path, texts: Mapping[str, str], language: str) -> str:
    """What the file will hold: every text with the translation that it had. A text that is only reworded takes over
    that of the old one, marked as fuzzy, which a translator has to look through; other old ones are gone."""
    before = {english: (other, fuzzy) for english, other, fuzzy in entries(file)}
    gone = [english for english, (other, _) in before.items() if english not in texts and other]
    made = [_header(file) or HEADER.format(language=language)]
    for english, source in texts.items():
        other, fuzzy = before.get(english, ("", False))
        near = get_close_matches(english, gone, 1, ALIKE) if not other and gone else []
        if near:
            other, fuzzy = before[near[0]][0], True
        made.append(_entry(english, other, fuzzy, source))
    return "\n".join(made)


def _header(file: Path) -> str:
    """What the file begins with, which translators' editors keep; "" where it is new."""
    head, blank, _ = file.read_text(encoding="utf-8").partition("\n\n") if file.exists() else ("", "", "")
    return f"{head}\n" if blank and head.startswith('msgid ""\n') else ""


def _entry(english: str, other: str, fuzzy: bool, source: str) -> str:
    flags = ["fuzzy"] * fuzzy + ["python-brace-format"] * bool(_PLACES.search(english))
    comments = [f"#: {source.replace(' ', '_')}\n", *([f"#, {', '.join(flags)}\n"] if flags else [])]
    return f'{"".join(comments)}msgid "{quoted(english)}"\nmsgstr "{quoted(other)}"\n'


def complaints(english: str, other: str) -> list[str]:
    """What is wrong with a translation: another place, code that is not as it was, a blank at an end."""
    said: list[str] = []
    if sorted(_PLACES.findall(english)) != sorted(_PLACES.findall(other)):
        said.append(f"places: {sorted(_PLACES.findall(english))} became {sorted(_PLACES.findall(other))}")
    for name, pattern in (("code", "`[^`]+`"), ("options", r"(?<![\w-])--[a-z][\w-]+")):
        if set(re.findall(pattern, english)) - set(re.findall(pattern, other)):
            said.append(f"{name} of the English text that the translation lacks")
    if other != other.strip():
        said.append("a blank at its beginning or end")
    return said


def summary(files: Iterable[Path]) -> str:
    """How many messages and words of each catalogue are translated."""
    rows = [f"{'catalogue':<24}{'messages':>10}{'open':>8}{'words open':>12}"]
    for file in files:
        texts = list(entries(file))
        left = [english for english, other, fuzzy in texts if fuzzy or not other]
        name = f"{file.parent.name}/{file.name}"
        rows.append(f"{name:<24}{len(texts):>10}{len(left):>8}{sum(len(one.split()) for one in left):>12}")
    return "\n".join(rows)
