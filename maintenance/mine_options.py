"""Make doctor/crash/options/PROGRAM.json.gz anew: which options each script of a program has taken, and when.

    python -m zdoctor.maintenance.mine_options PROGRAM GIT_DIRECTORY

Of trainers a commit of each month is read, of diffusers its examples, tag by tag. A script is a file that makes a
parser of its own. Each has its options by "since gone", as the names of mine_names.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from zdoctor.doctor.crash.options import OPTIONS
from zdoctor.doctor.mining.argparse_options import ParserOptions
from zdoctor.doctor.mining.sources import Sources
from zdoctor.doctor.schema.checkouts import NoCheckout, mine

from .mine_names import commits
from .mine_raised import by_span, span, written

PLACES = {"diffusers": ":(glob)examples/**/*.py"}  # of the others all is read
# Whose parser is made of records, and of which script it is.
BY_RECORDS = {"SimpleTuner": "train"}


def scripts(root: Path, program: str) -> dict[str, frozenset[str]]:
    """The options of each script below a folder, by the script's name without its ending."""
    sources = Sources(root)
    options = ParserOptions(sources)
    found: dict[str, set[str]] = defaultdict(set)
    for file in sources.files(""):
        text = sources.text(file)
        if b"parse_args(" in text or b"parse_known_args(" in text:
            found[Path(file).stem].update(*(options.below(file, node) for node in sources.body(file)))
    if script := BY_RECORDS.get(program):
        with suppress(NoCheckout):
            found[script] |= set(mine(root, program)[0].sections[""])
    return {name: frozenset(taken) for name, taken in found.items() if taken}


def mined(program: str, git_directory: Path) -> dict[str, object]:
    """The document of a program."""
    order, had = [], defaultdict[str, dict[str, dict[str, bool]]](lambda: defaultdict(dict))
    for version, commit in commits(program, git_directory):
        order.append(version)
        for name, taken in scripts_of(program, git_directory, commit).items():
            for word in taken:
                had[name][word][version] = True
        print(f"{program} {version}: {len(had)} scripts", file=sys.stderr)
    return {"versions": order, "scripts": dict(_spans(had, order))}


def _spans(
    had: Mapping[str, Mapping[str, Mapping[str, bool]]], order: list[str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """What came with its script, and goes with it, is no news: only within a script's own life it counts."""
    for name, words in sorted(had.items()):
        lived = [version for version in order if any(version in versions for versions in words.values())]
        yield (
            name,
            by_span({word: span([version in seen for version in lived], lived) for word, seen in words.items()}),
        )


def scripts_of(program: str, git_directory: Path, commit: str) -> dict[str, frozenset[str]]:
    git = ["git", f"--git-dir={git_directory}", "archive", commit, PLACES.get(program, ":(glob)**/*.py")]
    with TemporaryDirectory() as folder:
        archive = subprocess.run(git, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        return scripts(Path(folder), program)


def main(program: str, git_directory: str) -> None:
    file = OPTIONS / f"{program}.json.gz"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(written(mined(program, Path(git_directory))))
    print(f"{file.name}: {file.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
