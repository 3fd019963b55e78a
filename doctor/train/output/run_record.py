"""The run record (run.json, report.html) tells with what a LoRA was trained, for whoever finds it in a year."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime, timezone
from functools import cache
from glob import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ...model.field_names import by_name
from ...model.printable import redacted
from ...model.run import Run
from ..runtime.atomic_files import write_atomic
from .html_report import ReportSample, html_report

PACKAGES = ("zdoctor", "torch", "diffusers", "transformers", "safetensors", "bitsandbytes", "torchao")
GIT_SECONDS = 5
# The last word of keys whose value is nobody else's business.
HOW_IT_WAS_READ = ("settings", "keys", "metadata", "recipe", "homes", "spelled", "refused", "read", "unread")
SECRET = re.compile(r"(token|password|secret|api_?key|webhook)$", re.I)


def run_record(
    run: Run,
    *,
    device: str,
    dtype: str,
    other: Mapping[str, Any],
    seed: int,
    step: int,
    before: dict[str, Any],
    kernels: Mapping[str, str] = {},
) -> dict[str, Any]:
    """Returns everything that was decided before the first step.

    `kernels` say what computes on the device.
    `other` are the settings that are not as asked for, by their names in a recipe, with their values here; `before`
    is the record of the start that is gone on from.
    """
    start: dict[str, Any] = {
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "step": step,
        "command": redacted(" ".join(sys.argv), os.path.expanduser("~")),
    }
    own = {field.name: getattr(run, field.name) for field in fields(run) if field.name not in HOW_IT_WAS_READ}
    asked = {**own, **by_name(run.recipe)}
    leaves = {key: one.value for key, one in run.settings.items() if not isinstance(one.value, dict | list)}
    written = {key: _told(key, value) for key, value in leaves.items()}
    if isinstance(old := before.get("written"), dict) and old != written:
        keys = sorted(key for key in {**old, **written} if old.get(key) != written.get(key))
        start["changed"] = {key: [old.get(key), written.get(key)] for key in keys}
    return {
        "name": run.name,
        "config": str(Path(run.config).absolute()),
        "git": git_state(Path(run.config)),
        "starts": [*before.get("starts", []), start],
        "machine": {"python": platform.python_version(), "system": platform.platform(), "device": device},
        "packages": dict(_packages()),
        "computed_in": dtype,
        "kernels": dict(kernels),
        "seed": seed,
        "settings": {key: _plain(value) for key, value in {**asked, **other}.items()},
        "asked": {key: _plain(asked[key]) for key in other},
        "written": written,
    }


def _told(key: str, value: Any) -> Any:
    """A setting as it may be shown: login words are not."""
    secret = isinstance(value, str) and SECRET.search(key.rsplit("/", 1)[-1])
    return "***" if secret else redacted(value, os.path.expanduser("~")) if isinstance(value, str) else _plain(value)


def read_record(file: Path) -> dict[str, Any]:
    """Returns an earlier record, {} when there is none that can be read."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) and isinstance(record.get("starts", []), list) else {}


def git_state(config: Path) -> dict[str, Any] | None:
    """Returns the commit of the config's folder and whether the config differs from it; None without git.

    Git is asked for this one file, writes nothing, and gets five seconds.
    """

    def ask(*words: str) -> str:
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "-C", str(config.absolute().parent), *words],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=GIT_SECONDS,
            check=True,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
        return done.stdout.strip()

    try:
        lines = ask("status", "--porcelain=v2", "--branch", "--no-ahead-behind", "--", config.name).splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "(initial)")
    if commit == "(initial)":  # git's word for a branch without a commit
        return None
    return {"commit": commit, "config_differs": any(not line.startswith("#") for line in lines)}


class RunFolder:
    """The run's folder holds the record and the report. `record` is as `run_record` makes it."""

    def __init__(self, output: Path, run: Run, record: dict[str, Any]) -> None:
        self.output = output
        self.run = run
        self.record = record
        self.pictures: dict[Path, bytes] = {}
        self._write_record()

    def keep_peak(self, part: str, peak: dict[str, int]) -> None:
        """Records the most memory, in bytes, that this start has taken on its GPU in one phase of the run."""
        if peak:
            self.record["starts"][-1].setdefault("peak_memory", {})[part] = peak
            self._write_record()

    def _write_record(self) -> None:
        text = json.dumps(self.record, ensure_ascii=False, indent=1) + "\n"
        # names of files may hold what is no character; JSON can spell it
        write_atomic(self.output / "run.json", text.encode("utf-8", "backslashreplace"))

    def write(self, status: str, losses: list[float], evaluations: list[tuple[int, float]]) -> None:
        """Writes the report as of now. `status` in words: "saved at step 250 of 3000"."""
        text = html_report(self.record, status, losses, evaluations, self._samples())
        write_atomic(self.output / "report.html", text.encode("utf-8", "replace"), durable=False)

    def _samples(self) -> list[ReportSample]:
        found, prompts = [], self.run.recipe.validation.prompts
        for file in (self.output / "samples").glob(f"{escape(self.run.name)}_*.png"):
            match = re.fullmatch(re.escape(self.run.name) + r"_(\d{9})_(\d+)\.png", file.name)
            if match is not None:
                found.append((int(match[1]), int(match[2]), file))
        steps = _spread(sorted({step for step, _, _ in found}), 12)
        samples = []
        for step, number, file in sorted(found):
            if step in steps:
                prompt = prompts[number].prompt if number < len(prompts) else ""
                samples.append(ReportSample(step, number, prompt, f"samples/{file.name}", self._small(file)))
        return samples

    def _small(self, file: Path) -> bytes:
        """A JPEG of at most 256 pixels a side; empty when the picture cannot be read."""
        from io import BytesIO

        from PIL import Image

        if file not in self.pictures:
            buffer = BytesIO()
            try:
                with Image.open(file) as image:
                    small = image.convert("RGB")
                small.thumbnail((256, 256))
                small.save(buffer, "JPEG", quality=82)
            except (OSError, ValueError):
                return b""
            self.pictures[file] = buffer.getvalue()
        return self.pictures[file]


def _spread(steps: list[int], most: int) -> set[int]:
    """At most `most` of the steps, evenly, the first and the last among them."""
    if len(steps) <= most:
        return set(steps)
    return {steps[round(index * (len(steps) - 1) / (most - 1))] for index in range(most)}


@cache
def _packages() -> Mapping[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    if isinstance(value, str | int | float) or value is None:
        return value
    parts = vars(value) if hasattr(value, "__dataclass_fields__") else value
    return {str(key): _plain(part) for key, part in parts.items()} if isinstance(parts, Mapping) else str(value)
