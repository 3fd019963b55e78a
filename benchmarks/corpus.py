"""Configs found outside, checked as their owners would: which errors are said of them, and which of these are false.

    python benchmarks/corpus.py CLONES                    all of them: counts per rule, false ones by name
    python benchmarks/corpus.py CLONES --half A -v        every error-level finding of one half
    python benchmarks/corpus.py CLONES --fetch            first fetches the named commits into CLONES from GitHub
    python benchmarks/corpus.py CLONES --accepted F.json  with what the trainers' own parsers said (corpus_oracle.py)
    python benchmarks/corpus.py CLONES --write            writes doctor/rules/precision.json, which `explain` reads

corpus.tsv lists them: repository, commit, path, and the code block of a document or the job that ai-toolkit's own
interface makes (which needs node and npx). Nothing of them is kept here. CLONES/OWNER/NAME is a git directory or a
checkout. The half is a hash of repository and path, drawn before any was checked: rules were mended by half A. C to
G are fresh draws of other repositories, each made when the ones before were mended: nothing was mended by one before
its first figure. H and I are one more, halved by the same hash: rules were mended by H, I was looked at once, at the
end. L and M are the halves of one more, by the same hash; nothing was mended between them.
N is what was left. O is of other repositories, and of whole files that earlier draws left in theirs; P of blocks of
documents that they left: both looked at once, before anything was mended by either.

The machine is one of which nothing is known: what depends on its files, cards and packages is not judged. Where the
repository holds a trainer's source, it lies where its owner has it, and is found and read as on the owner's machine.
corpus_verdicts.tsv says of every kind of error that was found whether the trainer's source makes it one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from zdoctor.doctor.commands.check import check
from zdoctor.doctor.configs.reading import text_of
from zdoctor.doctor.errors import UserError
from zdoctor.doctor.model import Report
from zdoctor.doctor.probe.gather import near_sources
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.schema.checkouts import find
from zdoctor.doctor.trainers import trainers
from zdoctor.doctor.trainers.read import recognise

HERE = Path(__file__).parent
PRECISION = HERE.parent / "doctor" / "rules" / "precision.json"
READ = (
    ".toml",
    ".yaml",
    ".yml",
    ".json",
    ".env",
    ".sh",
    ".bat",
    ".ps1",
    ".cmd",
    ".md",
)  # a config, and its companions
LARGEST = 200_000  # bytes of a config or document
FENCE = re.compile(r"\s*(```+|~~~+)")
MACHINE = {
    "schema": "zdoctor.machine/1",
    "about": "a machine of which nothing is known",
    "complete": False,
    "gpus": "not judged",
    "system": {
        "os": "linux",
        "release": "Linux",
        "python": "3.11.9",
        "cpus": 8,
        "environment": {},
        "memory_total": 1 << 40,  # so much that nothing is said of it
        "memory_available": 1 << 40,
    },
}


@dataclass(frozen=True)
class Entry:
    """A line of corpus.tsv. `block` is "-", the number of a document's code block and its suffix, or a job's name."""

    half: str
    trainer: str
    repository: str
    commit: str
    path: str
    block: str

    @property
    def name(self) -> str:
        return f"{self.repository}/{self.path}" + (f" {self.block}" if self.block != "-" else "")


@dataclass(frozen=True)
class Verdict:
    """What was found of an error by reading the trainer's source: rule, a part of its words, whether it is false."""

    rule: str
    where: str
    words: str
    false: bool
    why: str


def entries(half: str = "") -> list[Entry]:
    lines = (HERE / "corpus.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [entry for entry in (Entry(*line.split("\t")) for line in lines) if half in ("", entry.half)]


def blocks(document: str) -> list[str]:
    """The fenced code blocks of a Markdown document, in order."""
    found: list[str] = []
    fence, lines = "", list[str]()
    for line in document.splitlines(keepends=True):
        at = FENCE.match(line)
        if not fence and at:
            fence, lines = at[1], []
        elif fence and at and at[1].startswith(fence) and not line[at.end() :].strip():
            found.append("".join(lines))
            fence = ""
        elif fence:
            lines.append(line)
    return found


def fetch(clones: Path, entry: Entry) -> None:
    """The named commit, from GitHub, into a bare repository."""
    folder = clones / entry.repository
    if not (folder / "HEAD").exists():
        subprocess.run(["git", "init", "-q", "--bare", folder], check=True)
    if subprocess.run(["git", "-C", folder, "cat-file", "-e", entry.commit], capture_output=True).returncode:
        source = f"https://github.com/{entry.repository}"
        subprocess.run(["git", "-C", folder, "fetch", "-q", "--depth", "1", source, entry.commit], check=True)


def extracted(clones: Path, repository: str, commit: str, into: Path) -> Path:
    """A folder with the files of that commit which may be configs, or belong to one, and with a trainer's source."""
    tree = into / repository / commit
    if tree.exists():
        return tree
    tree.mkdir(parents=True)
    git = ["git", "-C", str(clones / repository)]
    listed = subprocess.run([*git, "ls-tree", "-r", "-l", "-z", commit], capture_output=True, check=True).stdout
    rows = [row.split("\t", 1) for row in listed.decode(errors="surrogateescape").split("\0") if row]
    markers = [f"/{trainer.marker}" for trainer in trainers()]
    roots = tuple(
        f"/{path}".removesuffix(marker) + "/" for _, path in rows for marker in markers if f"/{path}".endswith(marker)
    )
    sizes = {path: int(told.split()[-1]) for told, path in rows if told.split()[-1].isdigit()}
    configs = [path for path, size in sizes.items() if path.lower().endswith(READ) and size < LARGEST]
    wanted = configs + [path for path in sizes if path.endswith(".py") and f"/{path}".startswith(roots)]
    for start in range(0, len(wanted), 500):
        archive = subprocess.run(
            [*git[:1], "--literal-pathspecs", *git[1:], "archive", commit, "--", *wanted[start : start + 500]],
            capture_output=True,
            check=True,
        ).stdout
        subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)
    return tree


def interface_jobs(clones: Path, entry: Entry, into: Path) -> dict[str, str]:
    """The job that ai-toolkit's interface makes for each architecture that one can choose, by its own code."""
    root = into / "interface"
    if not root.exists():
        root.mkdir()
        git = [
            "git",
            "-C",
            str(clones / entry.repository),
            "archive",
            entry.commit,
            "--",
            "ui/src",
            "ui/tsconfig.json",
        ]
        archive = subprocess.run(git, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", root], input=archive, check=True)
        (root / "ui" / "jobs.ts").write_text((HERE / "corpus_jobs.ts").read_text())
        (root / "ui" / "stub.js").write_text(
            "export const createElement = () => null; export default { createElement };"
        )
        alias = [f"--alias:{name}" for name in ("@=./src", "react=./stub.js", "next/link=./stub.js")]
        words = ["--bundle", "--platform=node", "--jsx=transform", "--log-level=error", "--outfile=jobs.js", *alias]
        subprocess.run(["npx", "--yes", "esbuild@0.25", "jobs.ts", *words], cwd=root / "ui", check=True)
    printed = subprocess.run(["node", root / "ui" / "jobs.js"], capture_output=True, text=True, check=True).stdout
    jobs = (json.loads(line) for line in printed.splitlines())
    return {job["arch"]: json.dumps(job["job"], indent=2) for job in jobs}


def written(clones: Path, entry: Entry, into: Path) -> tuple[Path, Path]:
    """The config as a file, and the folder of its repository."""
    if entry.block.startswith("job "):
        name = entry.block.removeprefix("job ")
        file = into / "jobs" / (name.replace(":", "_") + ".json")
        file.parent.mkdir(exist_ok=True)
        file.write_text(interface_jobs(clones, entry, into)[name])
        return file, file.parent
    tree = extracted(clones, entry.repository, entry.commit, into)
    file = tree / entry.path
    if entry.block == "-":
        return file, tree
    number, _, suffix = entry.block.partition(".")
    text = blocks(file.read_text(encoding="utf-8", errors="replace"))[int(number) - 1]
    block = file.with_name(f"{file.stem}.block{number}.{suffix}")
    block.write_text(text, encoding="utf-8")
    return block, tree


def checked(file: Path, tree: Path, machine: Path) -> Report | str:
    record = {**MACHINE, "system": {**MACHINE["system"], "cwd": str(tree), "home": "/home/you"}}  # type: ignore[dict-item]
    machine.write_text(json.dumps(record))
    os.chdir(tree)
    config = text_of(str(file), file.read_bytes())
    trainer = recognise(config.text, config.format)
    source = trainer and find(trainer.name, near_sources(LiveWorld(), config))
    try:
        return check(str(file), machine=str(machine), trainer_source=str(source) if source else None)
    except UserError as error:
        return str(error)


def verdicts() -> list[Verdict]:
    lines = (HERE / "corpus_verdicts.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = (line.split("\t") for line in lines)
    return [Verdict(rule, where, words, false == "false", why) for rule, where, words, false, why in rows]


def verdict_of(rule: str, name: str, text: str, known: list[Verdict]) -> Verdict | None:
    return next((v for v in known if v.rule == rule and v.where in ("*", name) and v.words in text), None)


def reports(clones: Path, chosen: list[Entry], into: Path) -> Iterator[tuple[Entry, Report | str]]:
    for entry in chosen:
        file, tree = written(clones, entry, into)
        yield entry, checked(file, tree, into / "machine.json")


@dataclass
class Tally:
    """Errors by rule: all, false ones, those that nobody judged. `failed`: what could not be checked, or crashed."""

    found: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    unjudged: Counter[str] = field(default_factory=Counter)
    configs: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)

    def add(self, entry: Entry, report: Report | str, known: list[Verdict]) -> Iterator[tuple[str, str]]:
        """Counts a report; what was judged of each of its errors, and the line that says so."""
        if isinstance(report, str):
            self.failed.append(f"{entry.name}: {report}")
            return
        self.configs[entry.trainer] += bool(report.errors)
        self.failed += [f"{entry.name}: {outcome.rule} crashed: {outcome.reason}" for outcome in report.crashed]
        for finding in report.errors:
            text = finding.text().replace("\n", " ")
            verdict = verdict_of(finding.rule, entry.name, text, known)
            told = "not judged" if verdict is None else ("FALSE" if verdict.false else "true")
            self.found[finding.rule] += 1
            self.false[finding.rule] += told == "FALSE"
            self.unjudged[finding.rule] += told == "not judged"
            yield told, f"{finding.rule} {entry.name}: {text[:300]}"

    def lines(self, chosen: list[Entry]) -> Iterator[str]:
        yield f"{len(chosen)} configs, {sum(self.configs.values())} with an error: {dict(self.configs)}"
        for rule, count in sorted(self.found.items()):
            yield f"{rule}: {count} errors, {self.false[rule]} false, {self.unjudged[rule]} not judged"
        total, false = sum(self.found.values()), sum(self.false.values())
        yield f"{total} errors, {false} false, precision {1 - false / max(1, total):.1%}"
        yield from self.failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", type=Path)
    parser.add_argument("--half", choices=tuple("ABCDEFGHIJKLMNOP"), default="")
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--accepted", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("-v", action="store_true")
    options = parser.parse_args()
    chosen, clones, known = entries(options.half), options.clones.resolve(), verdicts()
    if options.fetch:
        for entry in chosen:
            fetch(clones, entry)
    accepted = set(json.loads(options.accepted.read_text())) if options.accepted else set()
    os.environ["ZDOCTOR_STATE"] = tempfile.mkdtemp()
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        for entry, report in reports(clones, chosen, Path(folder).resolve()):
            for told, line in tally.add(entry, report, known):
                against = " (its trainer's own parser takes it)" if entry.name in accepted else ""
                if options.v or told != "true" or against:
                    print(f"{told}: {line.replace(folder, '')}{against}")
    print(*tally.lines(chosen), sep="\n")
    if options.write:
        rules = {rule: [count, tally.false[rule]] for rule, count in sorted(tally.found.items())}
        first_seen = json.loads(PRECISION.read_text())["unseen"]  # of H to P, each before anything was mended by it
        written_now = {"configs": len(chosen), "errors": rules, "unseen": first_seen}
        PRECISION.write_text(json.dumps(written_now) + "\n")


if __name__ == "__main__":
    main()
