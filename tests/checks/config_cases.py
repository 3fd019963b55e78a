"""What the tests of the config rules share: reading a text and running the rules that need no machine."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from zdoctor.doctor.examine.engine import cures, examine
from zdoctor.doctor.model import Facts, Finding, Gpu, System, Unknown
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.rules import all_repairs, all_rules
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.trainers.read import read_config

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
CORPUS = SHARED / "corpus" / "ai-toolkit"
KAGGLE = (ROOT / "tests" / "configs" / "kaggle_zimage.yaml").read_text(encoding="utf-8")
LINUX = System("linux", "6.8", "3.12", "/kaggle/working", "/root", 4, 32 << 30, 30 << 30)
WINDOWS = System("windows", "11", "3.12", "C:\\ai", "C:\\Users\\me", 16, 64 << 30, 60 << 30)
T4 = Gpu(0, "Tesla T4", 15 << 30, 15 << 30, (7, 5), "570", "recorded")


def examined(
    text: str | bytes,
    *rules: str,
    path: str = "c.yaml",
    system: System = LINUX,
    gpus: Sequence[Gpu] = (),
    environment: dict[str, str] | None = None,
    own: bool = False,
) -> list[Finding]:
    """The findings of the named rules (or families, "CFG") for a config text; none may crash.

    With `own` they are those of `zdoctor train`.
    """
    data = text if isinstance(text, bytes) else text.encode()
    reading = read_config(path, data, environment or {})
    chosen = [rule for rule in all_rules() if rule.id.startswith(rules)]
    made: list[Finding] = []
    runs = [replace(run, trainer=RUNNER) for run in reading.runs] if own else reading.runs
    for run in runs or (Unknown(reading.reason),):
        schema = shipped(reading.config.trainer or "") or Unknown("no table")
        facts = Facts(config=reading.config, run=run, system=system, gpus=tuple(gpus), schema=schema)
        report = cures(examine(facts, chosen, config=path, trainer=reading.config.trainer), facts, all_repairs())
        assert not report.crashed, report.crashed
        made.extend(report.findings)
    for finding in made:
        assert finding.text() and finding.consequence()
    return made


def changed(key: str, value: str, text: str = KAGGLE) -> str:
    """The Kaggle config with the first `key:` line set to another value, or, with "", taken out."""
    line = re.search(rf"^([ -]*){re.escape(key)}:.*\n", text, re.M)
    assert line is not None, key
    new = f"{line.group(1)}{key}: {value}\n" if value else ""
    return text[: line.start()] + new + text[line.end() :]


def seed() -> str | None:
    """The config at the end of the first field note, None where the notes are absent."""
    notes = sorted((SHARED / "seeds").glob("000*.txt"))
    return notes[0].read_text(encoding="utf-8").split('r"""', 1)[1].split('"""')[0] if notes else None


def parses(text: str) -> bool:
    """Whether the real PyYAML reads it."""
    try:
        yaml.safe_load(text)
    except (yaml.YAMLError, OverflowError):
        return False
    return True
