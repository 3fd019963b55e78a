"""Configs that `zdoctor check` finds errors in for ai-toolkit, and what `zdoctor train` makes of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from zdoctor.doctor.cli import main
from zdoctor.doctor.commands.examined import examined
from zdoctor.doctor.families.network import network_shapes, target_linears
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.rules import all_rules
from zdoctor.tests.models import run_of
from zdoctor.tests.modes import modes_apply
from zdoctor.tests.often import often

from .test_command_families import config
from .weights.test_single_file_checkpoint import single

QUIET: dict[str, list[str]] = {"prompts": []}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory of its own."""
    monkeypatch.chdir(tmp_path)


def fp16(tiny: Path, flux: Path, data: Path) -> str:
    return config(tiny, data, "zimage", train={"dtype": "fp16"}, sample=QUIET)


def steps_down(tiny: Path, flux: Path, data: Path) -> str:
    schedule = {"lr_scheduler": "step", "lr_scheduler_params": {"step_size": 1}}
    return config(tiny, data, "zimage", train=schedule, sample=QUIET)


def four_bits(tiny: Path, flux: Path, data: Path) -> str:
    return config(tiny, data, "zimage", model={"qtype": "nf4"}, sample=QUIET)


def flux_file(tiny: Path, flux: Path, data: Path) -> str:
    file = single(flux, Path("flux.safetensors"), "model.diffusion_model.")
    return config(file, data, "flux", model={"extras_name_or_path": str(flux)}, sample=QUIET)


@pytest.mark.parametrize(
    ("made", "errors"),
    often([(fp16, {"TRN003"}), (steps_down, {"CFG004"}), (flux_file, {"MDL002"})]),
)
def test_what_stops_ai_toolkit_is_trained(
    tiny: Path,
    flux: Path,
    circles: Path,
    made: Callable[[Path, Path, Path], str],
    errors: set[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = made(tiny, flux, circles)
    assert main(["check", name]) == 1
    said = capsys.readouterr().out
    assert {finding.rule for finding in examined(name).report.errors} == errors
    assert f"zdoctor's own trainer can run it as it is: zdoctor train {name}" in said
    assert main(["train", name]) == 0, capsys.readouterr()
    assert load_file("out/circles/circles.safetensors")


def test_a_word_that_a_fork_may_know_is_trained(tiny: Path, flux: Path, circles: Path) -> None:
    """ai-toolkit itself has no nf4; without its checkout at hand that is a warning."""
    name = four_bits(tiny, flux, circles)
    assert main(["check", name]) == 0
    findings = examined(name).report.findings
    assert [finding.rule for finding in findings if finding.severity == "warning"] == ["CFG004"]
    assert main(["train", name]) == 0
    assert load_file("out/circles/circles.safetensors")


def test_a_read_only_dataset_is_trained(tiny: Path, circles: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = Path(shutil.copytree(circles, "data")).absolute()
    name = config(tiny, data, "zimage", sample=QUIET)
    data.chmod(0o555)
    before = sorted(data.iterdir())
    with modes_apply():
        assert main(["check", name]) == 1
        assert "PTH001" in (said := capsys.readouterr().out) and "own trainer can run it" in said
        assert main(["train", name]) == 0, capsys.readouterr()
    data.chmod(0o755)
    assert load_file("out/circles/circles.safetensors") and sorted(data.iterdir()) == before


def lacking(tiny: Path, data: Path) -> str:
    folder = Path(shutil.copytree(tiny, Path("model")))
    file = next((folder / "transformer").glob("*.safetensors"))
    held = load_file(file)
    held.popitem()
    save_file(held, file, metadata={"format": "pt"})
    return config(folder, data, "zimage", train={"dtype": "fp16"}, sample=QUIET)


def absent(tiny: Path, data: Path) -> str:
    return config(tiny, Path("nowhere").absolute(), "zimage", train={"dtype": "fp16"}, sample=QUIET)


def shut(tiny: Path, data: Path) -> str:
    Path("shut").mkdir(mode=0o555)
    return config(tiny, data, "zimage", output=str(Path("shut/out").absolute()), sample=QUIET)


def quoted(tiny: Path, data: Path) -> str:
    return config(tiny, data, "zimage", train={"dtype": "fp16", "lr": "0.001"}, sample=QUIET)


@pytest.mark.parametrize(
    ("made", "rule"), [(lacking, "MDL001"), (absent, "PTH004"), (shut, "PTH001"), (quoted, "CFG004")]
)
def test_what_stops_any_trainer_stops_zdoctor_too(
    tiny: Path,
    circles: Path,
    made: Callable[[Path, Path], str],
    rule: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = made(tiny, circles)
    with modes_apply():
        assert main(["check", name]) == 1
        assert "zdoctor train" not in capsys.readouterr().out
        assert main(["train", name]) == 1
    said = capsys.readouterr()
    assert rule in said.err and "ai-toolkit" not in said.out
    assert not Path("out").exists()


def test_a_green_check_offers_only_what_would_start(
    tiny: Path, circles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ai-toolkit has this optimizer, the runner does not."""
    for optimizer, offered in (("adamw", True), ("automagicexperiment", False)):
        name = config(tiny, circles, "zimage", train={"optimizer": optimizer}, sample=QUIET)
        assert main(["check", name]) == 0
        assert ("next: zdoctor train" in capsys.readouterr().out) is offered


@pytest.mark.parametrize(("rank", "offered"), [(4, True), (8, False)])
def test_a_lora_to_start_from_is_held_against_the_runner(
    tiny: Path, circles: Path, rank: int, offered: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """ai-toolkit goes on with one of another rank, and says so in a line; the runner refuses it."""
    described = json.loads((tiny / "transformer" / "config.json").read_text())
    linears = target_linears("ZImageTransformer2DModel", described) or {}
    run = run_of(tiny, network={"type": "lora", "linear": rank})
    shapes = network_shapes(run.recipe.network, linears)
    save_file({f"diffusion_model.{name}": torch.ones(shape) for name, shape in shapes.items()}, "old.safetensors")
    name = config(tiny, circles, "zimage", sample=QUIET)
    written = json.loads(Path(name).read_text())
    written["config"]["process"][0]["network"]["pretrained_lora_path"] = "old.safetensors"
    Path(name).write_text(json.dumps(written))
    assert main(["check", name]) == 0
    checked = capsys.readouterr().out
    assert ("next: zdoctor train" in checked) is offered and ("MDL008" in checked) is not offered
    if offered:
        return
    assert main(["train", name]) == 1
    said = capsys.readouterr()
    assert "MDL009 starting-lora-refused" in said.err and "lora_A.weight is 8 x" in " ".join(said.out.split())


def test_somebody_who_moves_over_is_told_why_it_would_not_start(
    tiny: Path, circles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ai-toolkit itself would go on from its own LoRA, so nothing is found for it."""
    name = config(tiny, circles, "zimage", sample=QUIET)
    folder = Path("out/circles")
    folder.mkdir(parents=True)
    metadata = {"software": json.dumps({"name": "ai-toolkit"}), "training_info": json.dumps({"step": 1})}
    save_file({"a.lora_A.weight": torch.ones(4, 4)}, folder / "circles_000000001.safetensors", metadata)
    assert main(["check", name]) == 0
    said = capsys.readouterr().out
    assert (
        "no error found" in said
        and "next: zdoctor run -- python run.py" in said
        and "next: zdoctor train" not in said
    )
    assert f"own trainer would not start (TRN012): zdoctor train {name} says why" in " ".join(said.split())
    assert main(["check", name, "--select", "DAT"]) == 0 and "TRN012" not in capsys.readouterr().out
    assert main(["train", name]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "(but by ai-toolkit)" in out and "another name and set network.pretrained_lora_path: " in out


def test_of_the_kaggle_notebook_only_the_missing_files_remain() -> None:
    """The read-only dataset and the card without bf16 are nothing to the runner."""
    example = Path(__file__).parents[3] / "examples"
    config, machine = str(example / "kaggle_zimage.yaml"), str(example / "kaggle_t4x2.json")
    theirs, ours = (examined(config, machine=machine, as_runner=own).report for own in (False, True))
    assert {"PTH001", "TRN002", "TRN001", "CFG003"} <= {finding.rule for finding in theirs.findings}
    assert {finding.rule for finding in ours.findings} == {"MDL003"}
    assert not theirs.trainable


def test_which_rules_do_not_concern_the_runner() -> None:
    """They speak of what the other trainers' own code does."""
    ours = {rule.id for rule in all_rules() if rule.suits(RUNNER)}
    others = {rule.id for rule in all_rules() if rule.suits("ai-toolkit") or rule.suits("SimpleTuner")} - ours
    own_code = {"CFG003", "HUB005", "HUB006", "HUB007", "MDL006", "TRN001", "TRN002", "TRN003", "TRN006"}
    of_simpletuner = {rule.id for rule in all_rules() if rule.id.startswith("SIM")}
    assert others >= own_code | of_simpletuner | {"SRC001", "SRC002", "SRC003"}
    files = {f"HUB00{n}" for n in (1, 2, 3, 4, 8)} | {f"MDL00{n}" for n in (1, 2, 3, 4, 5)}
    rest = {
        "PTH001",
        "PTH002",
        "PTH003",
        "PTH004",
        "DAT001",
        "DAT002",
        "DSK001",
        "DSK002",
        "CFG001",
        "CFG002",
        "CFG004",
    }
    assert ours >= files | rest | {"MEM001", "MEM002", "MEM003", "TRN004", "TRN005"}
