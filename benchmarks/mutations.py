"""One slip at a time in the trainers' own example configs: how many are caught, by model family and kind of slip.

    python benchmarks/mutations.py CLONES [FAMILY,…] [-v] [--kinds KIND,…]

Only families that begin so, only slips of these kinds; -v names what is missed.

CLONES/OWNER/NAME are git directories or checkouts of the four trainers; which files and blocks of documents are
examples is in corpus.tsv (see corpus.py, which fetches them). Each key of a family has each kind of slip once. A slip
is caught where a check says something that it does not say of the untouched config, and counted apart where that is
an error. What the trainer takes as it takes the value that stood there is none (TAKEN, UNOPENED). Nothing is known of
the machine, but paths are looked for on this one. A report that reads "nothing found" would be green of what nobody
looked at, and is counted apart.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from corpus import checked, entries, written

from zdoctor.checks.keys.places import key_span
from zdoctor.doctor.commands.check import check
from zdoctor.doctor.configs.reading import text_of
from zdoctor.doctor.examine.config_file import beside
from zdoctor.doctor.model import Config, Key, Report, Run, Value
from zdoctor.doctor.trainers.read import read_config
from zdoctor.reports import words
from zdoctor.tests.checks.mutations import KINDS, misspelt, schema_of

OWN = ("ostris/ai-toolkit", "bghira/SimpleTuner", "kohya-ss/sd-scripts", "kohya-ss/musubi-tuner")
READ = re.compile(
    r"(_path|_dir|_directory|_folder|_file|_config|_root)$|^(dit|vae|t5|clip|ae|text_encoder|gemma2|qwen3)\w*$"
)
TEXTS = ("validation_prompt_library", "skip_file_discovery")  # switches, or text
# values that are taken whatever they are, as read in the trainers' source at the commits of corpus.tsv
TAKEN = {
    "ai-toolkit": re.compile(
        r"sample/neg"  # a text; its default is false
        r"|adapter/train|model/model_kwargs/\w+"  # any text is true
        r"|model/text_encoder_bits"  # only compared with 4 and 8
        r"|sample/network_multiplier"  # 1.0 in its place, which is printed
        r"|train/weight_jitter"  # read in its own section only
        r"|slider/(targets/\*/shuffle|batch_full_slide)"  # any text is true
    ),
    # what is handed on from JSON is asked only for its truth, and any text is true
    "SimpleTuner": re.compile(r"(lycoris|distillation_config)/.+|datasets/\*/(video|audio)/\w+"),
}
UNOPENED = re.compile(r"vae|text_encoder\w*|t5|clip")  # by musubi-tuner, without sample_prompts
WRITTEN = re.compile(r"output|cache|logging|training_folder")


@dataclass(frozen=True)
class Slip:
    """What stands at `start:end` of a file of the config, and what is put there."""

    kind: str
    place: str
    file: Path
    start: int
    end: int
    new: str


def slips(config: Config, runs: tuple[Run, ...], tree: Path) -> Iterator[Slip]:
    """Every slip in every value of the files that the config is read from."""
    run = runs[0]
    schema = schema_of(run.trainer)
    names = {id(value): key for one in runs for key, value in one.settings.items()}
    of_files = {id(value): value for one in (config, *config.beside) for value in one.values.values()}
    for value in (*of_files.values(), *(v for one in runs for v in one.settings.values() if id(v) not in of_files)):
        file = config.file(value.where.path)
        path = Path(value.where.path) if Path(value.where.path).is_absolute() else tree / value.where.path
        if id(value) not in names or value.where.line is None:
            continue
        key = names[id(value)]
        place = re.sub(r"/\d+(?=/|$)", "/*", key)
        known = schema.key(place, run.process_type)
        free = schema.section(place.rpartition("/")[0], run.process_type) is None
        name = place.rpartition("/")[2]
        for kind, start, end, new in [*_of_key(file, value, name, free), *_of_value(file, value, name, known)]:
            if (kind == "type" and place_is_taken(run, place)) or (kind == "path" and is_unopened(run, name)):
                continue
            yield Slip(kind, place, path, start, end, new)
    for at, (start, end, new) in enumerate(_of_syntax(config)):
        yield Slip("syntax", f"line {at}", Path(config.path), start, end, new)


def place_is_taken(run: Run, place: str) -> bool:
    taken = TAKEN.get(run.trainer)
    return taken is not None and taken.fullmatch(place) is not None


def is_unopened(run: Run, name: str) -> bool:
    samples = run.setting("sample_prompts") is not None
    return run.trainer == "musubi-tuner" and not samples and UNOPENED.fullmatch(name) is not None


def _of_key(file: Config, value: Value, name: str, free: bool) -> Iterator[tuple[str, int, int, str]]:
    """The key with a slip in it, and its line a second time with another number."""
    span = key_span(file, value)
    if span is None or free or name == "*" or file.text[slice(*span)] != name or name.startswith("_"):
        return
    ways = (KINDS[zlib.crc32(name.encode()) % 4], "dropped")
    if new := next(filter(None, (misspelt(name, way) for way in ways)), None):
        yield "key", *span, new
    start = file.text.rfind("\n", 0, span[0]) + 1
    line = file.text[start : file.text.find("\n", value.end) + 1]
    alone = line.count("\n") == 1 and re.match(rf"[ \t]*[\"']?{name}[\"']?\s*[:=]", line)
    if (
        alone
        and file.format != "shell"
        and isinstance(value.value, int | float)
        and not isinstance(value.value, bool)
    ):
        again = line.replace(file.text[value.start : value.end], str(value.value + 1), 1)
        if file.format != "json" or again.rstrip().endswith(","):
            yield "twice", start, start, again


def _of_value(file: Config, value: Value, name: str, known: Key | None) -> Iterator[tuple[str, int, int, str]]:
    """A word where a number or a switch is asked for, a choice with a slip in it, a path that leads nowhere."""
    quotes = len(value.style or "")
    inside = value.start + quotes, value.end - quotes
    quote = "" if quotes else '"'
    kind, choices = (known.kind, known.choices) if known is not None else ("", ())
    if isinstance(value.value, list | dict) or value.style in ("|", ">"):
        return
    if file.format == "shell" and value.value is True:
        yield "type", value.end, value.end, " maybe"
    elif name in TEXTS:
        return
    elif isinstance(value.value, bool) or kind in ("bool", "int", "float"):
        yield "type", *inside, f"{quote}many{quote}"
    elif isinstance(value.value, str) and value.value in choices:
        if (new := misspelt(value.value, "dropped")) and new not in choices:
            yield "word", *inside, new
    elif isinstance(value.value, str) and READ.search(name) and not WRITTEN.search(name) and "/" in value.value:
        yield "path", *inside, "/nowhere/at/all" + Path(value.value).suffix


def _of_syntax(config: Config) -> Iterator[tuple[int, int, str]]:
    """One slip of the hand for each format, at a few places: a tab, a comma, a quote or a backslash too few."""
    pattern = {
        "yaml": (r"^ {4,}(?=[a-z_]+:)", "\t"),
        "json": (r",(?=[ \t]*\n)", ""),
        "toml": (r'(?<=[\w/])"(?=[ \t]*\n)', ""),
        "shell": (r"\\(?=\n)", ""),
    }.get(config.format)
    if pattern is None:
        return
    found = list(re.finditer(pattern[0], config.text, re.M))
    for match in found[:: max(1, len(found) // 3)][:3]:
        yield *match.span(), pattern[1]


class Count(Counter[str]):
    """Slips by "kind", those caught by "kind caught", those by an error by "kind error"."""

    def row(self, kinds: tuple[str, ...]) -> str:
        return " | ".join(
            f"{self[f'{kind} caught']}/{self[kind]}, {self[f'{kind} error']} by an error" if self[kind] else ""
            for kind in kinds
        )


def said(report: Report | str) -> set[tuple[str, str]]:
    """What is said, with its severity."""
    if isinstance(report, str):
        return {("error", report)}
    return {
        (one.severity or "", f"{one.rule} {one.text()} {one.where and one.where.pointer}") for one in report.findings
    }


def looked(file: Path, tree: Path, into: Path, here: bool) -> Report | str:
    """What a check says of the config, on this machine or on one of which nothing is known."""
    if not here:
        return checked(file, tree, into / "machine.json")
    os.chdir(tree)
    return check(str(file))


def main(clones: Path, wanted: str, verbose: bool, kinds: tuple[str, ...]) -> None:
    counts: dict[tuple[str, str], Count] = {}
    seen: set[tuple[str, str, str, str]] = set()
    green: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder)
        for entry in entries():
            if entry.repository not in OWN or entry.block.startswith("job "):
                continue
            file, tree = written(clones, entry, into)
            reading = read_config(str(file), file.read_bytes(), {}, beside=beside(str(file)))
            config, runs = reading.config, reading.runs
            if config.problem is not None or not runs or config.trainer is None:
                continue
            family = runs[0].recipe.architecture or ("datasets" if runs[0].process_type == "datasets" else "unknown")
            if not family.startswith(tuple(wanted.split(","))):
                continue
            count = counts.setdefault((config.trainer, family), Count())
            before = {here: said(looked(file, tree, into, here)) for here in (False, True)}
            for slip in slips(config, runs, tree):
                place = entry.name + slip.place if slip.kind == "syntax" else slip.place
                once = (config.trainer, family, place, slip.kind)
                if once in seen or slip.kind not in kinds or not slip.file.is_file():
                    continue
                seen.add(once)
                data = slip.file.read_bytes()
                text = text_of(str(slip.file), data).text
                slip.file.write_text(text[: slip.start] + slip.new + text[slip.end :], encoding="utf-8")
                here = slip.kind == "path"
                report = looked(file, tree, into, here)
                slip.file.write_bytes(data)
                new = said(report) - before[here]
                caught = bool(new)
                count[f"{slip.kind} error"] += any(severity == "error" for severity, _ in new)
                count[slip.kind] += 1
                count[f"{slip.kind} caught"] += caught
                if verbose and not caught:
                    change = f"{text[slip.start : slip.end][:40]!r} -> {slip.new[:40]!r}"
                    print(f"missed: {config.trainer} {family} {slip.kind} {slip.place}: {change}  {entry.name}")
                if not isinstance(report, str) and words.tone(report) == "good":
                    green.append(entry.name)
    print("| trainer | family | " + " | ".join(kinds) + " |\n" + "|---" * (len(kinds) + 2) + "|")
    for (trainer, family), count in sorted(counts.items()):
        print(f"| {trainer} | {family} | {count.row(kinds)} |")
    every = sum(counts.values(), Count())
    print(f"| all | | {Count(every).row(kinds)} |\ngreen of what was not judged: {len(green)}")
    print(json.dumps(sorted(set(green))[:20]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("clones", type=Path)
    parser.add_argument("families", nargs="?", default="")
    parser.add_argument("-v", action="store_true")
    parser.add_argument("--kinds", default="key,word,type,path,twice,syntax")
    asked = parser.parse_args()
    main(asked.clones.absolute(), asked.families, asked.v, tuple(asked.kinds.split(",")))
