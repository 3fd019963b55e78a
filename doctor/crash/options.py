"""What a script's parser refuses: whose option it is, how it is written, and which version of the script takes it.

maintenance/mine_options.py writes `options/PROGRAM.json.gz`: of each script its options by "since gone", of a trainer
in months, of diffusers' examples in releases.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PureWindowsPath

from ..model.crashes import Failure, Known
from .sources import lifetimes
from .versions import source_of

Options = Mapping[str, tuple[str, str]]  # by their names, since when and until when (sources.lifetimes)
OPTIONS = Path(__file__).with_name("options")
_REFUSED = re.compile(r"^(?P<program>[^:]+): unrecognized arguments: (?P<words>.+)")
_LAUNCHERS = {
    "accelerate": re.compile(r"[Aa]ccelerate\b"),
    "torchrun": re.compile(r"torchrun\b|launch(?:\.py)?$"),
    "deepspeed": re.compile(r"deepspeed\b|runner\.py$"),
}
# What a launcher says last of the process that it started; a parser that refuses its options ends with 2.
_GIVEN = re.compile(r"Command '\[(?P<words>[\s\S]+?)(?:\]' returned non-zero exit status (?P<status>\d+)|$)")
_WORD = re.compile(r"'([^']+)'")
MOST_TOLD = 3
_NEAR = 0.8


def refused_options(failure: Failure) -> Known | None:
    """What is known of options that a script or a launcher does not take, where that is more than its words."""
    refused = _REFUSED.match(failure.message)
    if refused is None:
        return None
    program = refused["program"]
    written = (word.partition("=")[0].lstrip("-") for word in refused["words"].split() if word.startswith("--"))
    words = list(dict.fromkeys(written))
    launcher = next((name for name, pattern in _LAUNCHERS.items() if pattern.match(program)), "")
    if launcher and words:
        return Known(
            f"{launcher} got --{words[0]} itself, and does not know it: options of a script stand behind the "
            "script's name, and this one stands before it, or the name is missing.",
            f"Write {launcher}, its own options, the script, and then --{words[0]}. Where the line is broken over "
            "several, nothing may stand behind the backslash (or ^) at an end.",
            alone=True,
            source="https://docs.python.org/3/library/argparse.html",
        )
    script = Path(program).stem
    of_script = _scripts().get(script, {})
    if len(of_script) > 1:  # several programs have a script of this name
        return None
    name, taken = next(iter(of_script.items()), ("", {}))
    told = [told for word in words if (told := _told(name, script, taken, word)) is not None]
    if not told and (others := _others(name, script, words)) is not None:
        told = [others]
    if not told:
        return None
    causes, cures, mined = zip(*told[:MOST_TOLD], strict=True)
    cause, do = " ".join(causes), " ".join(dict.fromkeys(cures))
    return Known(cause, do, rule="CFG002", alone=True, source=source_of(mined[0]))


def options_of(script: str) -> frozenset[str]:
    """The options that a script takes, of each program that has one of this name; none of one that is not known."""
    having = [
        {name for name, (_, gone) in taken.items() if not gone} for taken in _scripts().get(script, {}).values()
    ]
    return frozenset(set.intersection(*having)) if having else frozenset()


def given_options(failure: Failure) -> Known | None:
    """The same of the command in a launcher's last word, where its script's own words are not shown."""
    given = _GIVEN.search(failure.message)
    if given is None or given["status"] not in (None, "2"):
        return None
    words = _WORD.findall(given["words"])
    script = next((PureWindowsPath(word).stem for word in words if word.endswith(".py")), "")
    of_script = _scripts().get(script, {})
    if len(of_script) != 1:
        return None
    (name, taken), *_ = of_script.items()
    options = (word.partition("=")[0].removeprefix("--") for word in words if word.startswith("--"))
    told = _others(name, script, [option for option in options if option not in taken])
    if told is None:
        return None
    return Known(told[0], told[1], rule="CFG002", alone=True, vague=True, source=source_of(told[2]))


def _told(program: str, script: str, taken: Options, word: str) -> tuple[str, str, str] | None:
    """Cause, cure and the program whose table says so, of an option that the script has, had, or has alike."""
    if word in taken:
        since, gone = taken[word]
        if gone:
            return (
                f"{program} took --{word} in {script} until {gone}; the version that ran has it no more.",
                f"Look in the documentation of {program} for what has come in its place, or leave it away.",
                program,
            )
        update = f"Update {program}: git pull, and pip install -r requirements.txt in its environment."
        if since:
            return f"{script} of {program} takes --{word} since {since}; the one that ran is older.", update, program
        return f"{script} of {program} takes --{word}; the one that ran is much older, or a fork's.", update, program
    if near := _nearest(word, taken):
        return f"{script} has no option --{word}; it has --{near}.", f"Write --{near}.", program
    return None


def _others(program: str, script: str, words: Sequence[str]) -> tuple[str, str, str] | None:
    """The same of options of other scripts: those that have most of them, of the same program and kind first."""
    having: dict[tuple[str, str], list[str]] = {}
    for word in words:
        for place in _having(word):
            having.setdefault(place, []).append(word)
    if not having:
        return None

    def near(place: tuple[str, str]) -> tuple[int, bool, bool, str]:
        return -len(having[place]), place[0] != program, place[1].split("_")[0] != script.split("_")[0], place[1]

    (owner, _), *_ = places = sorted(having, key=near)
    theirs = having[places[0]]
    names = [name for of, name in places if of == owner and having[of, name] == theirs]
    options, scripts = (", ".join(some[:MOST_TOLD]) for some in ([f"--{word}" for word in theirs], names))
    return (
        f"{options}: of another script, {scripts} ({owner}); {script} does not take it.",
        "Leave it away here, or start the script that it is of.",
        owner,
    )


def _nearest(word: str, options: Iterable[str]) -> str:
    from difflib import get_close_matches

    same = [name for name in options if name.replace("-", "_") == word.replace("-", "_")]
    return next(iter(same or get_close_matches(word, list(options), 1, _NEAR)), "")


def _having(word: str) -> Iterator[tuple[str, str]]:
    """The programs and scripts that take an option now."""
    for script, programs in _scripts().items():
        for program, taken in programs.items():
            if word in taken and not taken[word][1]:
                yield program, script


@cache
def _scripts() -> dict[str, dict[str, Options]]:
    """The options of each script, by the programs that have a script of that name."""
    found: dict[str, dict[str, Options]] = {}
    for file in sorted(OPTIONS.glob("*.json.gz")):
        for script, spans in json.loads(gzip.decompress(file.read_bytes()))["scripts"].items():
            found.setdefault(script, {})[file.name.removesuffix(".json.gz")] = lifetimes(spans)
    return found
