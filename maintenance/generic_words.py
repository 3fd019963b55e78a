"""List the known failures whose words several packages say themselves.

    python -m zdoctor.maintenance.generic_words

What packages say is what mine_raised found in their sources. An entry that is listed answers for each of these
packages where a log shows no frame: its cause and its cure have to be true of all of them, or it needs a `where`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from zdoctor.doctor.crash import raised, table
from zdoctor.doctor.model.crashes import Failure, Known


def generic() -> Iterator[tuple[Known, dict[str, str]]]:
    """Each such entry, with a text of each package."""
    said = [(one.package, Failure(one.error, one.words.replace("{}", "x"), (), 1)) for one in raised.texts()]
    for known in table.known():
        if known.line or known.where or known in table.general():
            continue
        found: dict[str, list[str]] = defaultdict(list)
        for package, failure in said:
            near = not known.words or any(word in failure.message for word in known.words)
            if near and known.matches(failure):
                found[package].append(failure.message)
        if len(found) > 1:
            yield known, {package: texts[0] for package, texts in found.items()}


if __name__ == "__main__":
    for entry, packages in generic():
        print(f"{entry.cause}")
        for name, text in packages.items():
            print(f"    {name}: {text[:120]}")
