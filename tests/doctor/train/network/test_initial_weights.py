"""A run may begin with the weights of a file, which must be a network of the same kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from zdoctor.doctor.train import TrainError

from ..patient import Recorder, go, run_with, written


def starting(file: Path, **changes: Any) -> Any:
    return run_with(settings=written(network__pretrained_lora_path=str(file)), **changes)


@pytest.mark.parametrize("network", ["lora", "lokr"])
@pytest.mark.parametrize("prefix", ["diffusion_model.", "transformer."])
def test_a_run_begins_with_the_files_weights(
    tiny: Path, circles: Path, tmp_path: Path, network: str, prefix: str
) -> None:
    first = load_file(go(run_with(steps=3, network_type=network), tiny, circles, tmp_path / "a").lora)
    file = tmp_path / "first.safetensors"
    other = {key.replace("diffusion_model.", prefix): value for key, value in first.items()}
    save_file({**other, f"{prefix}layers.0.attention.to_q.alpha": torch.tensor(4.0)}, str(file))
    run = starting(file, steps=1, network_type=network, learning_rate=1e-12, use_ema=True)
    second = go(run, tiny, circles, tmp_path / "b")
    assert second.steps == 1  # its own steps are counted, not the file's
    tensors = load_file(second.lora)
    assert tensors.keys() == first.keys()
    for key, value in first.items():
        torch.testing.assert_close(tensors[key], value, rtol=1e-5, atol=1e-9)


def test_what_does_not_fit_is_refused_before_anything_is_loaded(tiny: Path, circles: Path, tmp_path: Path) -> None:
    lora = Path(go(run_with(steps=1), tiny, circles, tmp_path / "a").lora)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(lora.read_bytes()[:200])
    other = tmp_path / "flux.safetensors"
    save_file({"transformer.single_blocks.0.attn.to_q.lora_A.weight": torch.zeros(8, 96)}, str(other))
    for run, words in (
        (starting(lora, rank=4, alpha=4), r"lora_A\.weight is 8 x \d+ there and 4 x \d+ in this run"),
        (starting(lora, network_type="lokr"), "is absent there and .* in this run"),
        (starting(cut), "cannot be read"),
        (starting(tmp_path), "is a folder; name the"),
        (starting(other), r"another architecture .* holds transformer\.single.*trains layers\.0"),
        (starting(tmp_path / "none"), "cannot be read"),
    ):
        recorder = Recorder()
        with pytest.raises(TrainError, match=words):
            go(run, tiny, circles, tmp_path / "b", progress=recorder)
        assert recorder.phases == ["Checking the model files"]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="nothing tells what is mapped")
def test_the_file_may_be_written_again(tiny: Path, circles: Path, tmp_path: Path) -> None:
    """A lost state is made good with the LoRA that the run then replaces; Windows replaces none that is mapped."""
    lora = go(run_with(steps=1), tiny, circles, tmp_path / "a").lora
    mapped: list[bool] = []
    recorder = Recorder(lambda step: mapped.append(lora in Path("/proc/self/maps").read_text()))
    go(starting(Path(lora), steps=1), tiny, circles, tmp_path / "b", progress=recorder)
    assert mapped == [False]


def test_a_run_that_goes_on_needs_the_file_no_more(tiny: Path, circles: Path, tmp_path: Path) -> None:
    lora = Path(go(run_with(steps=1), tiny, circles, tmp_path / "a").lora)
    go(starting(lora, steps=1), tiny, circles, tmp_path / "b")
    lora.unlink()
    assert len(go(starting(lora, steps=2), tiny, circles, tmp_path / "b").losses) == 2
