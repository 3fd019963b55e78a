"""What programs of others find in zdoctor's formats and pages, and in its hook; nothing is what is meant.

    python benchmarks/judges.py NODE_MODULES

NODE_MODULES is where `npm install html-validate axe-core @microsoft/sarif-multitool` put them; the programs of
sarif-tools, junitparser, check-jsonschema and pre-commit (PyPI) are on the PATH. The exit code is 1 for a finding.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from playwright.sync_api import sync_playwright

REPO = Path(__file__).parent.parent
ZDOCTOR = (sys.executable, "-m", "zdoctor")
CONFIGS = ("examples/kaggle_zimage.yaml", "tests/configs/server_healthy.yaml", "tests/configs/windows_escapes.yaml")
MACHINES = ("examples/kaggle_t4x2.json",)
WIDTHS = (360, 1280)
SCHEMES = ("light", "dark")


def run(words: Sequence[str | Path], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program's end with what it said."""
    return subprocess.run(
        [*map(str, words)],
        cwd=folder,
        env={**os.environ, "ZDOCTOR_STATE": str(folder / "state"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def documents(folder: Path) -> tuple[list[Path], list[Path], list[Path], list[Path]]:
    """Writes what zdoctor writes: JSON, SARIF, JUnit and pages."""
    made: dict[str, list[Path]] = {"json": [], "sarif": [], "junit": [], "html": []}
    endings = {"json": "json", "sarif": "sarif", "junit": "xml", "html": "html"}
    configs = [shutil.copy(REPO / name, folder / Path(name).name) for name in CONFIGS]
    shutil.copy(REPO / MACHINES[0], folder / "machine.json")
    (folder / "train.log").write_text("RuntimeError: Cannot copy out of meta tensor; no data!\n")
    one = Path(configs[0]).name
    fits = folder / "demo"
    done = run((*ZDOCTOR, "demo", fits), folder)
    assert done.returncode == 0, done.stdout + done.stderr
    made["html"] += fits.rglob("*.html")  # the page of a run
    commands: dict[str, list[tuple[str, ...]]] = {
        "json": [
            *(("check", Path(c).name, "--machine", "machine.json") for c in configs),
            ("check", ".", "--machine", "machine.json"),
            ("check",),
            ("explain", "train.log"),
            ("explain", "PTH001"),
            ("fix", one),
            ("history",),
            ("rules",),
            ("cache",),
            ("memory", one, "--machine", "machine.json"),
        ],
    }
    commands["sarif"] = commands["junit"] = commands["json"][:5]
    commands["html"] = [*commands["json"][:5], commands["json"][-1]]
    for form, several in commands.items():
        for number, words in enumerate(several):
            file = folder / f"{form}{number}.{endings[form]}"
            done = run((*ZDOCTOR, *words, "--format", form), folder)
            assert done.stdout and "our bug" not in done.stderr, (words, form, done.stderr)
            file.write_text(done.stdout, encoding="utf-8")
            made[form].append(file)
    return made["json"], made["sarif"], made["junit"], made["html"]


def by_axe(pages: Sequence[Path], modules: Path) -> Iterator[str]:
    """What axe-core finds on each page, narrow and wide, light and dark."""
    program = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    script = (modules / "axe-core" / "axe.min.js").read_text("utf-8")
    with sync_playwright() as play, play.chromium.launch(executable_path=program, args=["--no-sandbox"]) as browser:
        for file in pages:
            for width in WIDTHS:
                for scheme in SCHEMES:
                    page = browser.new_page(
                        viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True
                    )
                    page.goto(file.resolve().as_uri())
                    page.evaluate("document.querySelectorAll('details').forEach((part) => part.open = true)")
                    page.add_script_tag(content=script)
                    for found in page.evaluate("axe.run()")["violations"]:
                        yield f"{file.name} {width} {scheme}: {found['id']}: {found['nodes'][0]['html'][:120]}"
                    page.close()


def judged(name: str, words: Sequence[str | Path], folder: Path) -> int:
    """Whether a judge found something: says what."""
    done = run(words, folder)
    print(f"{name}: {'nothing' if done.returncode == 0 else done.stdout + done.stderr}".strip(), flush=True)
    return int(done.returncode != 0)


def by_sarif_multitool(files: Sequence[Path], modules: Path, folder: Path) -> int:
    """Its notes are findings, too; they stand in the log that it writes."""
    program = modules / "@microsoft" / "sarif-multitool-linux" / "Sarif.Multitool"
    program.chmod(0o755)
    found: list[str] = []
    for file in files:
        log = folder / f"{file.stem}.validated.sarif"
        done = run(
            (program, "validate", file, "-o", log, "--log", "ForceOverwrite"),
            folder,
            DOTNET_SYSTEM_GLOBALIZATION_INVARIANT="1",
        )
        if not log.exists():
            found.append(f"{file.name}: {done.stdout}{done.stderr}")
            continue
        for result in (
            one for each in json.loads(log.read_text("utf-8-sig"))["runs"] for one in each["results"] or ()
        ):
            found.append(f"{file.name}: {result['ruleId']} {result.get('level', 'warning')} {result['message']}")
    print("sarif-multitool:", "\n".join(found) or "nothing", flush=True)
    return int(bool(found))


def by_pre_commit(folder: Path) -> int:
    """The hook of this repository over three configs, one of them sick: it must pass and fail as `check` does."""
    work = folder / "hooked"
    (work / "config").mkdir(parents=True)
    for name in CONFIGS:
        shutil.copy(REPO / name, work / "config")
    run(("git", "init", "-q"), work)
    run(("git", "add", "."), work)
    done = run(
        ("pre-commit", "try-repo", REPO, "zdoctor", "--all-files"), work, PRE_COMMIT_HOME=str(folder / "hooks")
    )
    said = f"{done.stdout}{done.stderr}"
    fits = "zdoctor check" in said and "exit code: 1" in said and "Traceback" not in said
    print(f"pre-commit: {'the hook reports the sick config' if fits else said}", flush=True)
    return int(not fits)


def main() -> int:
    modules = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        texts, sarif, junit, pages = documents(folder)
        failed = by_sarif_multitool(sarif, modules, folder)
        failed |= judged("sarif-tools", ("sarif", "summary", *sarif), folder)
        failed |= judged("junitparser", ("junitparser", "merge", *junit, folder / "all.xml"), folder)
        schema = REPO / "reports" / "documents.schema.json"
        failed |= judged("check-jsonschema, the schema", ("check-jsonschema", "--check-metaschema", schema), folder)
        failed |= judged("check-jsonschema", ("check-jsonschema", "--schemafile", schema, *texts), folder)
        node = ("node", modules / "html-validate" / "bin" / "html-validate.mjs")
        failed |= judged("html-validate", (*node, *pages), folder)
        wrong = [*by_axe(pages, modules)]
        print(f"axe-core, {len(pages)} pages, {WIDTHS} px, {SCHEMES}:", "\n".join(wrong) or "nothing", flush=True)
        return failed | bool(wrong) | by_pre_commit(folder)


if __name__ == "__main__":
    raise SystemExit(main())
