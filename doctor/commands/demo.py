"""`zdoctor demo`: build the patient, then walk check → fix → check → train as a user would, and hold the result."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from ..configs.edit import apply_edits
from ..errors import INTERRUPTED, UserError
from ..model import Report, SetValue, Unknown
from ..model.findings import HERE
from ..model.said import said
from ..progress import open_progress
from . import console
from .check import check
from .examined import examined
from .train import train

if TYPE_CHECKING:
    from ..demo.patient import Patient
    from ..train import TrainResult

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "tensors missing from the files (meta tensors)": ("MDL001",),
    "a folder that refuses writes": ("PTH001",),
    "Windows paths in YAML": ("PTH002",),
    "an adapter path that is a folder": ("PTH003",),
    "a broken hub cache": ("HUB001", "HUB002", "HUB003", "HUB004"),
    "slow storage": ("DSK001",),
    "more memory than the card has": ("MEM001",),
}
NEEDED = ("torch", "diffusers", "transformers", "peft", "PIL")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", metavar="DIR", help="a new or empty folder (default: a temporary one)")


def run(options: argparse.Namespace) -> int:
    return walk(options.folder, options.zdoctor)


def walk(folder: str | None, zdoctor: Callable[[Sequence[str]], int]) -> int:
    """Run the demo in a new or empty folder; `zdoctor` is the command line, called with its words.

    Returns 0 when everything the demo promises came true, 130 when it was stopped, else 1.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"the demo trains for real and needs {', '.join(missing)}.", 'python -m pip install "zdoctor[train]"'
        )
    started = time.perf_counter()
    root = _room(folder)
    console.say("A tiny Z-Image pipeline, its hub cache, eight pictures and an adapter are being made in")
    console.say(f"  {root}")
    try:
        with open_progress() as progress:
            progress.doing("building the pipeline")
            from ..demo.patient import build

            patient = build(root)
        console.say("\nThis machine does not have all seven troubles, so some are recorded (machine.json):")
        for line in patient.shown:
            console.say(f"  - {said(line)}")
        with _inside(patient):
            return _walk(patient, zdoctor, started)
    except KeyboardInterrupt:
        console.tell(f"the demo was stopped. Its folder stays; to delete it: {_delete(root)}")
        return INTERRUPTED


def _walk(patient: Patient, zdoctor: Callable[[Sequence[str]], int], started: float) -> int:
    machine = ["--machine", patient.machine.name]

    def looked() -> Report:
        with open_progress() as progress:
            progress.doing(f"checking {patient.config.name}")
            return check(patient.config.name, machine=patient.machine.name)

    sick = looked()

    def run(*words: str) -> None:
        print(f"\n$ zdoctor {' '.join(words)}\n", flush=True)
        if zdoctor(words) == INTERRUPTED:
            raise KeyboardInterrupt

    run("check", patient.config.name, *machine)
    run("fix", patient.config.name, "--apply", *machine)
    console.say("\nWhat is left changes how the run trains, so it waits for your word:")
    run("fix", patient.config.name, "--apply", "--allow", "result", *machine)
    cured = looked()

    console.say(
        "\nAll that is about the recorded machine, whose card is not here. A second config says to train on this "
        "machine's processor (device: cpu)."
    )
    on_cpu = _on_cpu(patient.config)
    print(f"\n$ zdoctor train {on_cpu.name}\n", flush=True)
    result = train(on_cpu.name)
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    with open_progress() as progress:
        progress.doing("loading the LoRA into ZImagePipeline, and painting without and with it")
        from ..demo.lora_effect import largest_change

        change = largest_change(_model_folder(patient.config.name), result.lora)
    return _verdict(sick, cured, result, change, time.perf_counter() - started, patient.folder)


def _on_cpu(config: Path) -> Path:
    """A second config for the processor: an edit of the first would stand in the way of undo."""
    text = config.read_text(encoding="utf-8")
    made = config.with_name(f"{config.stem}_cpu{config.suffix}")
    made.write_text(apply_edits(text, [SetValue(config.name, "/config/process/0/device", "cpu")]), encoding="utf-8")
    return made


def _model_folder(config: str) -> str:
    model = examined(config, machine=HERE).facts[0].model
    folder = None if isinstance(model, Unknown) else model.folder
    assert folder is not None, "it was trained a moment ago"
    return folder


def _verdict(sick: Report, cured: Report, result: TrainResult, change: float, seconds: float, folder: Path) -> int:
    found = {finding.rule for finding in sick.findings}
    left = {finding.rule for finding in cured.findings}
    console.say("\nWhat the demo showed\n")
    good = True
    for family, rules in FAMILIES.items():
        seen, gone = [r for r in rules if r in found], not any(r in left for r in rules)
        ok = len(seen) == len(rules) and gone
        good &= ok
        state = "" if not seen else "found, repaired" if gone else "found, NOT repaired"
        print(f"  {'ok ' if ok else 'NO '} {family:<48} {' '.join(seen) or 'not found':<28} {state}")
    quarter = max(1, len(result.losses) // 4)
    first, last = fmean(result.losses[:quarter] or [0.0]), fmean(result.losses[-quarter:] or [0.0])
    means = f"mean loss {first:.4f} in the first quarter, {last:.4f} in the last"
    for ok, text in (
        (not cured.errors, f"green: {len(cured.passed)} rules passed, {len(cured.errors)} errors"),
        (last < first, f"trained {result.steps} steps: {means}"),
        (change > 0, f"the LoRA loads into ZImagePipeline and moves its latents by up to {change:.3g}"),
    ):
        good &= ok
        console.say(f"  {'ok ' if ok else 'NO '} {said(text)}")
    console.say(f"\n{seconds:.0f} s in all. Look around in {folder}. The last of its two repairs is taken back with")
    console.say(f"  {_undo(folder)}")
    return 0 if good else 1


def _delete(folder: Path) -> str:
    """For cmd and PowerShell on Windows, where they have few words in common."""
    return f'cmd /c rmdir /s "{folder}"' if sys.platform == "win32" else f"rm -r {shlex.quote(str(folder))}"


def _undo(folder: Path) -> str:
    state = str(folder / "state")
    if sys.platform == "win32":
        return f'cmd /c "set ZDOCTOR_STATE={state}&& zdoctor undo"'
    return f"ZDOCTOR_STATE={shlex.quote(state)} zdoctor undo"


def _room(folder: str | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="zdoctor-demo-"))
    root = Path(folder).absolute()
    try:
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise UserError(f"{folder} is not an empty folder.", "Name a folder that does not exist yet.")
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be used: {error.strerror}.") from None
    if shutil.disk_usage(root).free < 200 << 20:
        raise UserError(f"{folder} has less than 200 MB of room.")
    return root


@contextlib.contextmanager
def _inside(patient: Patient) -> Iterator[None]:
    """The patient's folder as working directory, its hub cache and zdoctor's folders in it; then as before."""
    cwd, before = Path.cwd(), dict(os.environ)
    state, cache = str(patient.folder / "state"), str(patient.folder / "cache")
    os.environ |= {"HF_HOME": str(patient.hub_home), "ZDOCTOR_STATE": state, "ZDOCTOR_CACHE": cache}
    for name in ("HF_HUB_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        os.environ.pop(name, None)
    os.chdir(patient.folder)
    try:
        yield
    finally:
        os.chdir(cwd)
        os.environ.clear()
        os.environ |= before
