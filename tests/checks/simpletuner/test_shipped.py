"""The trainer itself: what its loader makes of values, and its own examples."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from zdoctor.doctor.configs.written import Written
from zdoctor.doctor.examine.config_file import beside
from zdoctor.doctor.examine.engine import cures, examine
from zdoctor.doctor.model import Facts, Unknown
from zdoctor.doctor.rules import all_repairs, all_rules
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.trainers.read import read_config
from zdoctor.doctor.trainers.simpletuner.options import PARSED, from_mapping

ROOT = Path(__file__).resolve().parents[3]
CHECKOUT = ROOT.parent / "SimpleTuner"


@pytest.fixture(scope="module")
def real() -> Any:
    """The trainer's own function that makes a command line of a config, from its checkout."""
    folder = CHECKOUT / "simpletuner" / "helpers" / "configuration"
    if not folder.is_dir():
        pytest.skip(f"there is no checkout of SimpleTuner at {CHECKOUT}")
    above = [
        "simpletuner",
        "simpletuner.helpers",
        "simpletuner.helpers.configuration",
        "simpletuner.helpers.training",
    ]
    made = {name: ModuleType(name) for name in above}
    for module in made.values():
        module.__path__ = []
    tracker = ModuleType("simpletuner.helpers.training.state_tracker")
    tracker.StateTracker = object  # type: ignore[attr-defined]
    sys.modules.update({**made, tracker.__name__: tracker})
    try:
        for name in ("template_vars", "cli_utils"):
            at = f"simpletuner.helpers.configuration.{name}"
            spec = importlib.util.spec_from_file_location(at, folder / f"{name}.py")
            assert spec is not None and spec.loader is not None
            sys.modules[at] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[at])
        yield sys.modules["simpletuner.helpers.configuration.cli_utils"].mapping_to_cli_args
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "simpletuner"]:
            del sys.modules[name]


@pytest.mark.parametrize(
    "value", ["false", "False", False, True, "true", "no", {"a": 1}, [1, 2], [], None, "", " x ", 7, 1e3, "None"]
)
@pytest.mark.parametrize("name", ["gradient_checkpointing", "--lora_rank", "webhook_config"])
def test_what_arrives_is_what_the_trainer_makes(real: Any, name: str, value: Any) -> None:
    words = real({name: value})
    reading = read_config("config.json", json.dumps({name: value}).encode(), {}, trainer="SimpleTuner")
    options = from_mapping(reading.config.values, "")
    ours = next((Written(options.settings, PARSED).raw(key) for key in options.settings if "/" not in key), None)
    if not words:
        assert ours is None
        return
    option, _, theirs = words[-1].partition("=")
    assert option[2:] in options.settings
    shown = json.dumps(ours) if isinstance(ours, dict | list) else str(ours)
    assert shown == theirs or (not theirs and ours is True) or (theirs == "false" and ours is False)


CORPUS = ROOT.parent / "shared" / "corpus" / "simpletuner"
SHIPPED = ("config.json", "config.env", "multidatabackend*.json", "default.json")
# true of these files: a mapping that the trainer's loader drops, and files of datasets that are not in the corpus
KNOWN = {"flux.peft-controlnet-lora": ("SIM001",), "sd3.peft-controlnet-lora": ("SIM001",)}


@pytest.mark.parametrize(
    "path",
    [*(path for name in SHIPPED for path in sorted(CORPUS.rglob(name)))] if CORPUS.is_dir() else [None],
    ids=lambda path: f"{path.parent.name}/{path.name}" if path else "absent",
)
def test_what_the_trainer_ships_is_not_called_wrong(path: Path | None) -> None:
    if path is None:
        pytest.skip(f"the corpus is not at {CORPUS}")
    reading = read_config(str(path), path.read_bytes(), {}, beside=beside(str(path)))
    run = reading.runs[0] if reading.runs else Unknown(reading.reason)
    facts = Facts(config=reading.config, run=run, schema=shipped("SimpleTuner") or Unknown("no table"))
    chosen = [rule for rule in all_rules() if rule.id.startswith(("SIM", "CFG", "TRN")) and rule.suits("SimpleTuner")]
    report = cures(examine(facts, chosen, config=str(path), trainer="SimpleTuner"), facts, all_repairs())
    assert not report.crashed
    said = [finding for finding in report.findings if finding.severity != "note"]
    if path.parent.name == "hidream.peft-controlnet-lora" and path.name == "config.json":
        assert [(f.rule, f.where and f.where.line) for f in said] == [("CFG001", 52)]
        return
    left = [f for f in said if f.rule not in KNOWN.get(path.parent.name, ()) and "neither here nor" not in f.text()]
    left = [f for f in left if "data_backend_config is missing" not in f.text()]  # the web interface's empty form
    assert left == [], [finding.text() for finding in left]
