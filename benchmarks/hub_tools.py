"""What each tool makes of each defect of a hub cache: writes docs/hub-tools.md.

    python benchmarks/hub_tools.py [DEFECT …]

Real commands in processes of their own, on a cache that the real client downloaded from a hub on loopback; one fresh
copy per command that may write. The defects are those of tests/hub_cases.py and a few more. With names of defects the
table goes to the terminal only.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from hub_defects import MORE, WORDS

from zdoctor import __version__
from zdoctor.tests.configs_on_disk import write_config
from zdoctor.tests.hub_cache import MODEL, REPO, SHARD, Cache, download
from zdoctor.tests.hub_cases import CASES, SICK, Sickness
from zdoctor.tests.hub_server import HubServer

PAGE = Path(__file__).parent.parent / "docs" / "hub-tools.md"
HF = [sys.executable, "-m", "huggingface_hub.cli.hf"]
ZDOCTOR = [sys.executable, "-m", "zdoctor"]
SECONDS = 60


@dataclass(frozen=True)
class Said:
    code: int | None
    text: str


@dataclass(frozen=True)
class Bench:
    root: Path
    server: HubServer
    healthy: Cache
    layout: str

    def copy(self, sickness: Sickness) -> Cache:
        folder = Path(tempfile.mkdtemp(dir=self.root))
        cache = self.healthy.copy(folder / "hub")
        sickness.spoil(cache)
        return cache

    def run(self, cache: Cache, command: list[str], *words: str, offline: bool = False) -> Said:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGINGFACE_"))}
        environment = {
            **kept,
            "HF_HUB_CACHE": str(cache.root),
            "HF_ENDPOINT": self.server.url,
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_SYMLINKS": str(int(self.layout == "plain")),
            "HOME": str(self.root / "home"),
            "ZDOCTOR_STATE": str(cache.root.parent / "state"),
            "NO_COLOR": "1",
            **({"HF_HUB_OFFLINE": "1"} if offline else {}),
        }
        try:
            done = subprocess.run(
                [*command, *words], capture_output=True, text=True, env=environment, timeout=SECONDS, cwd=self.root
            )
        except subprocess.TimeoutExpired:
            return Said(None, "")
        return Said(done.returncode, done.stdout + done.stderr)


def verify(bench: Bench, cache: Cache, sickness: Sickness, *, offline: bool) -> str:
    said = bench.run(cache, HF, "cache", "verify", REPO, offline=offline)
    if said.code is None:
        return f"no answer in {SECONDS} s"
    if offline and "offline mode is enabled" in said.text:
        return "cannot run"
    if said.code == 0:
        return "warns, rc 0" if "Warning" in said.text else "silent"
    return "**found**" if not sickness.file or sickness.file in said.text else "rc 1, another reason"


def listed(bench: Bench, cache: Cache) -> str:
    said = bench.run(cache, HF, "cache", "ls")
    if "inconsistencies" in said.text:
        return "hides the repository"
    return "silent" if REPO in said.text else "not listed"


def pruned(bench: Bench, cache: Cache) -> str:
    said = bench.run(cache, HF, "cache", "prune", "--dry-run")
    if "Nothing to prune" in said.text:
        return "silent"
    return "would delete the left-over" if "incomplete" in said.text.lower() else "would delete something"


def fetched(bench: Bench, sickness: Sickness, *, offline: bool) -> str:
    cache = bench.copy(sickness)
    before = bench.server.served
    said = bench.run(cache, HF, "download", REPO, offline=offline)
    served = bench.server.served - before
    whole = is_whole(cache)
    if offline:
        return "error" if said.code else ("ok" if whole else "“Downloaded”, rc 0")
    if said.code:
        return "error"
    rest = ", but noted as absent" if _noted(cache) else ""
    return f"whole, {served:,} B{rest}" if whole else f"“Downloaded”, {served:,} B, still broken"


def is_whole(cache: Cache) -> bool:
    """Every file as it was published, where a trainer looks for it."""
    try:
        files = all(cache.file(name).read_bytes() == data for name, data in MODEL.items())
        return files and cache.ref.read_text() == cache.commit
    except OSError:
        return False


def _noted(cache: Cache) -> bool:
    """Whether the client still notes that the repository has no such file: loaders then do not see it."""
    return (cache.repo / ".no_exist" / cache.commit / SHARD).exists()


def checked(bench: Bench, cache: Cache) -> str:
    config = write_config(cache.root.parent, name_or_path=REPO)
    rules = "HUB001,HUB002,HUB003,HUB004"
    said = bench.run(cache, ZDOCTOR, "check", str(config), "--format", "json", "--select", rules, offline=True)
    try:
        findings = json.loads(said.text)["findings"]
    except (ValueError, KeyError):
        return f"rc {said.code}"
    found = sorted({finding["rule"] for finding in findings})
    return f"**{', '.join(found)}**" if found else "silent"


def inventoried(bench: Bench, cache: Cache, sickness: Sickness) -> str:
    said = bench.run(cache, ZDOCTOR, "cache", "--deep", "--format", "json", offline=True)
    try:
        (repo,) = json.loads(said.text)["caches"][0]["repos"]
    except (ValueError, KeyError):
        return f"rc {said.code}"
    named = {fault["name"] for revision in repo["revisions"] for fault in revision["faults"]}
    waste = ", ".join(sorted({waste["kind"] for waste in repo["waste"]} - {"quarantine"}))
    bad = repo["health"] in ("damaged", "incomplete")
    health = f"**{repo['health']}**" if bad else repo["health"]
    missed = bad and sickness.file and repo["revisions"] and sickness.file not in named
    return health + (f", {waste}" if waste else "") + (", another file" if missed else "")


def mended(bench: Bench, sickness: Sickness) -> str:
    cache = bench.copy(sickness)
    before = bench.server.served
    deep = ["--deep"] if sickness.deep else []
    said = bench.run(cache, ZDOCTOR, "cache", REPO, "--fix", "--apply", *deep)
    served = bench.server.served - before
    if not is_whole(cache) or _noted(cache):
        return "left to you" if said.code in (0, 1) else f"rc {said.code}"
    return f"whole, {served:,} B" if "Applied as" in said.text else "nothing to do"


HEAD = """\
# A broken hub cache and the tools

Made by `python benchmarks/hub_tools.py` with zdoctor {zdoctor}, {versions},
Python {python}, {system}; not edited by hand. The model has {files} files of {size:,} bytes; the hub is a server on
loopback that counts the bytes of files that it sends (B). `linked` is the usual cache, `plain` one without symbolic
links (Windows), `shared` one with its weights in the store of all repositories. Offline: HF_HUB_OFFLINE=1. Each
command that may write gets a new copy. The defects are those of [tests/hub_cases.py](../tests/hub_cases.py); the last
rows of each cache are others, which the sums leave out.
"""
COLUMNS = (
    "`hf cache verify`",
    "the same, offline",
    "`hf cache ls`",
    "`hf cache prune`",
    "`hf download`, offline",
    "`hf download`, online",
    "`zdoctor check`, offline",
    "`zdoctor cache --deep`, offline",
    "`zdoctor cache REPO --fix --apply`",
)


def row(bench: Bench, sickness: Sickness) -> list[str]:
    cache = bench.copy(sickness)
    return [
        verify(bench, cache, sickness, offline=False),
        verify(bench, cache, sickness, offline=True),
        listed(bench, cache),
        pruned(bench, cache),
        fetched(bench, sickness, offline=True),
        fetched(bench, sickness, offline=False),
        checked(bench, cache),
        inventoried(bench, cache, sickness),
        mended(bench, sickness),
    ]


def page(rows: dict[tuple[str, str], list[str]]) -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in ("huggingface_hub", "hf_xet", "safetensors"))
    python, size = ".".join(map(str, sys.version_info[:3])), sum(map(len, MODEL.values()))
    lines = [
        HEAD.format(
            zdoctor=__version__, versions=versions, python=python, system=sys.platform, files=len(MODEL), size=size
        ),
        *summary(rows),
        "",
        "| defect | cache | " + " | ".join(COLUMNS) + " |",
        "|---" * (len(COLUMNS) + 2) + "|",
    ]
    for (name, layout), cells in rows.items():
        lines.append("| " + " | ".join([WORDS.get(name, name), layout, *cells]) + " |")
    return "\n".join(lines) + "\n"


def summary(rows: dict[tuple[str, str], list[str]]) -> list[str]:
    """What the table says of the defects proper, in numbers."""
    sick = {sickness.name for sickness in SICK}
    defects = [cells for (name, _), cells in rows.items() if name in sick]

    def count(column: int, pattern: str) -> int:
        return sum(bool(re.search(pattern, cells[column])) for cells in defects)

    def served(column: int) -> int:
        numbers = [re.search(r"([\d,]+) B", cells[column]) for cells in defects]
        return sum(int(number[1].replace(",", "")) for number in numbers if number)

    found, warned, offline = count(0, "found"), count(0, "warns"), count(1, "found")
    unsaid, left, healed = count(4, "Downloaded"), count(5, "Downloaded"), count(5, "whole")
    return [
        f"Of {len(defects)} defects:",
        "",
        f"- `hf cache verify` finds {found} online and warns of {warned} more, with exit code 0;",
        f"  offline it finds {offline}.",
        f"- `hf cache ls` names none; for {count(2, 'hides')} it hides the repository.",
        f"- `hf download` says “Downloaded” for {unsaid} offline. Online it mends {healed} ({served(5):,} bytes)",
        f"  and says “Downloaded” for the {left} that stay broken.",
        f"- `zdoctor check` finds {count(6, 'HUB')} without reading large files, `zdoctor cache --deep`",
        f"  {count(7, 'damaged|incomplete')}, both offline.",
        f"- `zdoctor cache REPO --fix --apply` mends {count(8, 'whole')}; the hub sends {served(8):,} bytes.",
    ]


def main(names: list[str]) -> None:
    rows: dict[tuple[str, str], list[str]] = {}
    with tempfile.TemporaryDirectory() as folder, HubServer({REPO: MODEL}) as server:
        for layout in dict.fromkeys(layout for _, layout in CASES):
            root = Path(folder) / layout
            bench = Bench(root, server, download(server, root / "hub", layout), layout)
            for sickness in MORE:
                if layout in sickness.layouts and (not names or sickness.name in names):
                    rows[sickness.name, layout] = row(bench, sickness)
                    print(sickness.name, layout, *rows[sickness.name, layout], sep=" | ", flush=True)
    text = page(rows)
    if names:
        print(text)
    else:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
