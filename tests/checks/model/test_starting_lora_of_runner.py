"""MDL009: what it says of a LoRA to start from is what the runner says of it, without torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from zdoctor.checks.ai_toolkit.starting_lora import starting_lora_refused
from zdoctor.doctor.families.network import is_kohya, network_shapes, target_linears
from zdoctor.doctor.model import Finding, ModelFolder, Run, Unknown, Value, Where
from zdoctor.doctor.model.remains import own_state
from zdoctor.doctor.model.start import Start
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.start import probe_start, probe_starting_lora
from zdoctor.doctor.rules import Unestablished
from zdoctor.doctor.train.families import FamilyModule, family_of
from zdoctor.doctor.train.network.lora import lora_targets, read_initial_weights
from zdoctor.doctor.train.runtime.train_error import TrainError
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer
from zdoctor.tests.changes import changed
from zdoctor.tests.doctor.train.network.test_kohya_lora import RANK, kohya
from zdoctor.tests.flux import healthy_flux
from zdoctor.tests.models import healthy, probed, run_of

Tensors = dict[str, torch.Tensor]
MODELS = {"zimage": healthy, "flux": healthy_flux}


def run_with(architecture: str, output: Path, **network: Any) -> Run:
    network = {"type": "lora", "linear": RANK, **network}
    run = run_of(MODELS[architecture](), architecture, network=network)
    return replace(run, trainer=RUNNER, output_folder=str(output))


def of_runner(run: Run) -> tuple[dict[str, tuple[int, ...]], FamilyModule, str]:
    model = build_empty_transformer(Path(run.recipe.base_model or "") / "transformer")
    return lora_targets(model, run.recipe.network.excluded), family_of(model), type(model).__name__


def whole(run: Run) -> Tensors:
    """A file that fits the run."""
    linears, family, _ = of_runner(run)
    return {
        family.RECORD.lora_prefix + name: torch.ones(shape)
        for name, shape in network_shapes(run.recipe.network, linears).items()
    }


def start_seen(run: Run, model: ModelFolder | Unknown) -> Start | Unknown | None:
    file = probe_starting_lora(LiveWorld(), run)
    return file if isinstance(file, Unknown) else probe_start(LiveWorld(), run, file, model)


def findings(run: Run) -> list[Finding]:
    start = start_seen(run, probed(run))
    assert start is None or isinstance(start, Start), start
    return list(starting_lora_refused(run, start))


def said_by_the_runner(run: Run) -> str:
    linears, family, _ = of_runner(run)
    try:
        read_initial_weights(run.recipe.network, linears, family.RECORD)
    except TrainError as error:
        return str(error)
    return ""


def renamed(run: Run) -> Tensors:
    """Names without a prefix, with the alpha of other trainers beside them: taken all the same."""
    held = {key.split(".", 1)[1]: value for key, value in whole(run).items()}
    return held | {next(iter(held)).replace("lora_A.weight", "alpha"): torch.tensor(1.0)}


def of_kohya(run: Run) -> Tensors:
    linears, _, class_name = of_runner(run)
    return kohya(linears, class_name)


def narrow_kohya(run: Run) -> Tensors:
    return {
        key: value[..., : value.shape[-1] // 2 or 1] if value.ndim else value for key, value in of_kohya(run).items()
    }


def half(run: Run) -> Tensors:
    return dict(list(whole(run).items())[::2])


def other_rank(run: Run) -> Tensors:
    return whole(changed(run, network={"rank": RANK // 2}))


def lokr(run: Run) -> Tensors:
    return whole(changed(run, network={"type": "lokr"}))


def wider(run: Run) -> Tensors:
    return {key: value.repeat(1, 2) if "lora_A" in key else value for key, value in whole(run).items()}


def foreign(run: Run) -> Tensors:
    return {f"x.{key}": value for key, value in whole(run).items()}


@pytest.mark.parametrize("architecture", list(MODELS))
@pytest.mark.parametrize(
    ("made", "words"),
    [
        (whole, ""),
        (renamed, ""),
        (of_kohya, ""),
        (narrow_kohya, "does not fit"),
        (half, "absent there"),
        (other_rank, "4 x .* there and 8 x"),
        (lokr, "does not fit"),
        (wider, "does not fit"),
        (foreign, "another architecture"),
        (lambda run: {"x": torch.zeros(1)}, "another architecture .* holds x,"),
    ],
)
def test_as_the_runner_says_it(tmp_path: Path, architecture: str, made: Callable[[Run], Tensors], words: str) -> None:
    file = tmp_path / "old.safetensors"
    run = run_with(architecture, tmp_path / "out", pretrained_lora_path=str(file))
    tensors = made(run)
    save_file({key: value.contiguous() for key, value in tensors.items()}, file)
    found, said = findings(run), said_by_the_runner(run)
    assert [finding.text() for finding in found] == ([said] if said else [])
    assert bool(words) is bool(found) and re.search(words, said)
    assert all("nothing is trained" in finding.consequence() for finding in found)
    assert is_kohya(tensors) is (made in (of_kohya, narrow_kohya))


def test_a_file_that_is_not_there_a_folder_or_damaged(tmp_path: Path) -> None:
    file = tmp_path / "old.safetensors"
    for written, content, words in (
        (file, None, "does not exist"),
        (tmp_path, None, r"is a folder; name the"),
        (file, b"", "is empty"),
        (file, b"\x40" + bytes(200), "is damaged|is cut short"),
    ):
        if content is not None:
            file.write_bytes(content)
        run = run_with("zimage", tmp_path / "out", pretrained_lora_path=str(written))
        (finding,) = findings(run)
        assert re.search(words, finding.text()) and said_by_the_runner(run)
    torch.save({"a": torch.zeros(1)}, tmp_path / "old.pt")
    run = run_with("zimage", tmp_path / "out", pretrained_lora_path=str(tmp_path / "old.pt"))
    assert "is a pickle" in findings(run)[0].text() and "cannot be read" in said_by_the_runner(run)


def test_the_key_of_sd_scripts(tmp_path: Path) -> None:
    run = run_with("zimage", tmp_path / "out")
    gone, place = str(tmp_path / "gone.safetensors"), Where("train.sh", 3, 9, "/network_weights")
    run = replace(
        run,
        recipe=replace(run.recipe, network=replace(run.recipe.network, initial_weights=gone)),
        settings={**run.settings, "network_weights": Value(gone, place, 0, 0)},
        keys={**run.keys, "network.initial_weights": "network_weights"},
    )
    (finding,) = findings(run)
    assert finding.where == place and said_by_the_runner(run)


def test_silent_where_no_file_is_opened(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.safetensors")
    run = run_with("zimage", tmp_path, pretrained_lora_path=gone)
    assert findings(run) and findings(run_with("zimage", tmp_path)) == []
    (tmp_path / own_state(run.name)).touch()
    assert findings(run) == []


def test_what_is_not_known_is_not_passed(tmp_path: Path) -> None:
    run = run_with("zimage", tmp_path, pretrained_lora_path=str(tmp_path / "a.safetensors"))
    absent = probed(changed(run, base_model="acme/gone"))
    assert isinstance(start_seen(run, absent), Unknown)
    assert isinstance(start_seen(run, Unknown("no model")), Unknown)
    assert start_seen(run_with("zimage", tmp_path), Unknown("no model")) is None
    null = run_with("zimage", tmp_path, pretrained_lora_path="a\0b")
    assert isinstance(start_seen(null, absent), Unknown)
    seen = start_seen(run, probed(run))
    assert isinstance(seen, Start)
    shut = replace(seen, file=replace(seen.file, problem="unreadable", detail="Permission denied"))
    with pytest.raises(Unestablished, match="Permission denied"):
        list(starting_lora_refused(run, shut))


@pytest.mark.parametrize("architecture", list(MODELS))
@pytest.mark.parametrize("pattern", ["", "modulation|norm"])
def test_the_linears_are_those_of_the_runner(tmp_path: Path, architecture: str, pattern: str) -> None:
    run = run_with(architecture, tmp_path)
    part = probed(run).components["transformer"]
    model = build_empty_transformer(Path(part.folder))
    assert part.config is not None
    assert target_linears(part.class_name, part.config, pattern) == lora_targets(model, pattern)
    assert target_linears("UNet", {}) is None


def test_a_lora_of_the_demo_is_another_model_for_flux(tmp_path: Path) -> None:
    file = tmp_path / "zimage.safetensors"
    save_file(whole(run_with("zimage", tmp_path)), file)
    run = run_with("flux", tmp_path / "out", pretrained_lora_path=str(file))
    assert load_file(file) and [f.text() for f in findings(run)] == [said_by_the_runner(run)]
