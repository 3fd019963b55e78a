"""List the known failures whose words several packages say themselves.

    python -m zdoctor.maintenance.generic_words [PACKAGE …]

What packages say is read from the sources of those that are installed. An entry that is listed answers for each of
these where a log shows no frame: its cause and its cure have to be true of all of them, or it needs a `where`.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from zdoctor.doctor.crash import table
from zdoctor.doctor.crash.sources import RAISED
from zdoctor.doctor.model.crashes import Failure, Known

from .mine_names import sources_by_version
from .mine_raised import left_out
from .raising import Raised, told


def installed(package: str) -> Iterator[Raised]:
    """What a package that is installed raises; nothing of one that is not."""
    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        for sources in sources_by_version(package, [str(Path(folder).parent)]).values():
            yield from (one for path, text in sources().items() if not left_out(path) for one in told(text).raised)


def generic(packages: Iterable[str]) -> Iterator[tuple[Known, dict[str, str]]]:
    """Each such entry, with a text of each package."""
    said = [
        (package, Failure(one.error, one.words.replace("{}", "x"), (), 1))
        for package in packages
        for one in installed(package)
    ]
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
    mined = [file.name.partition(".")[0] for file in RAISED.glob("*.json.gz")]
    for entry, packages in generic(sys.argv[1:] or mined):
        print(f"{entry.cause}")
        for name, text in packages.items():
            print(f"    {name}: {text[:120]}")
