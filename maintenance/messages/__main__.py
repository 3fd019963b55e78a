"""Find every text that a user may read, and bring it into the catalogue of each language.

python -m zdoctor.maintenance.messages              take new texts in, and count what is translated
python -m zdoctor.maintenance.messages check FILE   what is wrong with the translations of a catalogue
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which

from zdoctor.doctor.languages import DOMAINS, ENGLISH, FOLDER, LANGUAGES

from .catalogues import complaints, entries, merged, summary
from .registries import of_registries
from .texts import of_source


def messages() -> dict[str, dict[str, str]]:
    """Each domain's texts, and where each comes from. What the first domain has, no other one needs."""
    found: dict[str, dict[str, str]] = {domain: {} for domain in DOMAINS}
    for domain, text, place in (*of_source(), *of_registries()):
        found[domain].setdefault(text, place)
    for domain in DOMAINS[1:]:
        found[domain] = {text: place for text, place in found[domain].items() if text not in found["screen"]}
    return found


def main(words: list[str]) -> int:
    if words[:1] == ["check"]:
        return check([Path(word) for word in words[1:]])
    files = []
    for language in LANGUAGES:
        for domain, texts in messages().items() if language != ENGLISH else ():
            file = FOLDER / language / f"{domain}.po"
            file.parent.mkdir(exist_ok=True)
            file.write_text(merged(file, texts, language), encoding="utf-8")
            files.append(file)
    print(summary(files))
    return 0


def check(files: list[Path]) -> int:
    wrong = [line for file in files for line in faults(file)]
    print("\n".join([*wrong, summary(files)]))
    return 1 if wrong else 0


def faults(file: Path) -> Iterator[str]:
    """What is wrong with the translations of a catalogue, by gettext's own msgfmt, too, where there is one."""
    for english, other, fuzzy in entries(file):
        if other and not fuzzy:
            yield from (
                f"{file.parent.name}/{file.name}: {fault}\n  {english}\n  {other}"
                for fault in complaints(english, other)
            )
    if program := which("msgfmt"):
        done = subprocess.run([program, "-c", "-o", "-", str(file)], capture_output=True, check=False)
        if done.returncode or done.stderr:  # what it only warns of, too
            yield done.stderr.decode()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
