"""Whole runs on the tiny model: they learn, they resume exactly, and their LoRA is the one that was trained."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.pipelines.z_image.pipeline_z_image import ZImagePipeline
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.families import scheduler_of, zimage
from zdoctor.doctor.train.network.lora import add_network, lora_targets, trainable_parameters
from zdoctor.doctor.train.runtime.precision import has_bfloat16
from zdoctor.doctor.train.sampling.sampler import denoise
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer
from zdoctor.doctor.train.weights.materialize import linear_shapes
from zdoctor.doctor.train.weights.training_adapter import read_training_adapter

from .patient import Recorder, go, run_with

CPU = torch.device("cpu")
PROMPT = SamplePrompt("a photo of a red circle", 64, 64, 3, 3, 1.0)


def quarter(losses: Sequence[float], last: bool) -> float:
    count = len(losses) // 4
    return sum(losses[-count:] if last else losses[:count]) / count


@pytest.mark.parametrize(
    "kind", ["int8", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("qfloat8", "uint4"))]
)
def test_a_run_learns(tiny: Path, adapter: Path, circles: Path, tmp_path: Path, kind: str) -> None:
    run = run_with(steps=40, quantization=kind, timestep_type="weighted", rank=16, alpha=16)
    result = go(run, tiny, circles, tmp_path, adapter=adapter)
    assert (result.stopped, result.steps, len(result.losses)) == ("finished", 40, 40)
    assert quarter(result.losses, last=True) < 0.85 * quarter(result.losses, last=False)


def test_the_saved_file_has_the_layout_that_programs_read(tiny: Path, circles: Path, tmp_path: Path) -> None:
    run = run_with(trigger_word="zcircle", save_dtype="bf16", metadata={"version": "1.0"}, alpha=4)
    recorder = Recorder()
    result = go(run, tiny, circles, tmp_path, progress=recorder)
    assert result.lora == str(tmp_path / "circles.safetensors")
    with safe_open(result.lora, framework="pt") as file:
        facts = file.metadata()
    tensors = load_file(result.lora)
    assert len(tensors) == 2 * 8 * 2
    assert tensors["diffusion_model.layers.0.attention.to_q.lora_A.weight"].shape == (8, 96)
    assert tensors["diffusion_model.layers.1.adaLN_modulation.0.lora_B.weight"].shape == (384, 8)
    assert {value.dtype for value in tensors.values()} == {torch.bfloat16}
    assert json.loads(facts["training_info"])["step"] == 4
    assert (facts["format"], facts["ss_base_model_version"], facts["version"]) == ("pt", "zimage", "1.0")
    assert json.loads(facts["ss_tag_frequency"]) == {"1_zcircle": {"zcircle": 1}}
    assert any("alpha 4 is ignored" in note for note in recorder.notes)


def test_the_lora_in_the_real_pipeline_is_the_trained_model(tiny: Path, circles: Path, tmp_path: Path) -> None:
    result = go(run_with(steps=6, quantization=None), tiny, circles, tmp_path)
    pipe = pipeline(tiny)
    ours = trained_latent(tiny, result.lora, pipe)
    before = pipeline_latent(pipe)
    pipe.load_lora_weights(result.lora)
    after = pipeline_latent(pipe)
    assert (after - before).abs().max() > 1e-2
    torch.testing.assert_close(ours, after, rtol=1e-4, atol=1e-4)


def pipeline(tiny: Path) -> Any:
    pipe: Any = ZImagePipeline.from_pretrained(str(tiny))
    pipe.set_progress_bar_config(disable=True)
    return pipe


def trained_latent(tiny: Path, lora: str, pipe: Any) -> Tensor:
    """A preview latent by the runner's own model with the trained weights in place."""
    model = build_empty_transformer(tiny / "transformer")
    fill_transformer(model, tiny / "transformer", quantization="none", adapter={}, dtype=torch.float32, device=CPU)
    parameters = trainable_parameters(
        add_network(model, lora_targets(model), run_with().recipe.network, 0), zimage.RECORD.lora_prefix
    )
    tensors = load_file(lora)
    assert parameters.keys() == tensors.keys()
    for key, parameter in parameters.items():
        parameter.data.copy_(tensors[key])
    return sampled(model, tiny, pipe, PROMPT)


def sampled(model: Any, tiny: Path, pipe: Any, prompt: SamplePrompt) -> Tensor:
    (positive,), (negative,) = pipe.encode_prompt(prompt.prompt, negative_prompt=prompt.negative)
    latent = denoise(
        model,
        scheduler_of(zimage.RECORD, tiny, model),
        prompt,
        {"states": positive},
        {"states": negative},
        shrink=8,
        dtype=torch.float32,
        device=CPU,
    )
    assert latent is not None
    return latent


def pipeline_latent(pipe: Any, guidance: float = 0.0) -> Tensor:
    latent = pipe(
        prompt=PROMPT.prompt,
        height=64,
        width=64,
        num_inference_steps=3,
        guidance_scale=guidance,
        generator=torch.Generator().manual_seed(3),
        output_type="latent",
    ).images
    assert isinstance(latent, Tensor)
    return latent


def test_previews_are_those_of_the_pipeline(tiny: Path) -> None:
    pipe = pipeline(tiny)
    guided = SamplePrompt(PROMPT.prompt, 64, 64, 3, 3, 4.0)
    torch.testing.assert_close(sampled(pipe.transformer, tiny, pipe, PROMPT), pipeline_latent(pipe))
    torch.testing.assert_close(sampled(pipe.transformer, tiny, pipe, guided), pipeline_latent(pipe, 3.0))


def test_previews_are_painted_without_the_adapter(tiny: Path, adapter: Path, circles: Path, tmp_path: Path) -> None:
    """At step 0 the LoRA is zero: base + adapter - adapter must paint what the base alone paints."""
    run = run_with(steps=2, quantization=None, disable_sampling=False, samples=(PROMPT,), sample_every=1)
    result = go(run, tiny, circles, tmp_path / "with", adapter=adapter)
    plain = go(run, tiny, circles, tmp_path / "without")
    names = [Path(file).name for file in result.samples]
    assert names == [f"circles_{step:09d}_0.png" for step in (0, 1, 2)]
    first, other = (Image.open(files.samples[0]) for files in (result, plain))
    assert first.size == (64, 64)
    pairs = zip(first.tobytes(), other.tobytes(), strict=True)
    assert max(abs(a - b) for a, b in pairs) <= 1
    shapes = linear_shapes(build_empty_transformer(tiny / "transformer"))
    assert len(read_training_adapter(adapter, shapes)) == 16
    assert result.losses != plain.losses  # training did see the adapter


def test_sampling_can_be_switched_off(tiny: Path, circles: Path, tmp_path: Path) -> None:
    run = run_with(steps=2, disable_sampling=False, samples=(PROMPT,), sample_every=0, skip_first_sample=True)
    assert [Path(file).name for file in go(run, tiny, circles, tmp_path).samples] == ["circles_000000002_0.png"]
    assert not (tmp_path / "none").exists()
    assert go(run_with(steps=1), tiny, circles, tmp_path / "none").samples == ()


def test_a_run_that_is_stopped_where_previews_are_due_paints_them_when_it_goes_on(
    tiny: Path, circles: Path, tmp_path: Path
) -> None:
    sample = replace(PROMPT, steps=1)
    run = run_with(steps=2, disable_sampling=False, samples=(sample,), sample_every=1, skip_first_sample=True)
    whole = [Path(file) for file in go(run, tiny, circles, tmp_path / "whole").samples]
    halted = Recorder(lambda step: os.kill(os.getpid(), signal.SIGINT))
    assert go(run, tiny, circles, tmp_path / "halted", progress=halted).samples == ()
    rest = [Path(file) for file in go(run, tiny, circles, tmp_path / "halted").samples]
    assert [file.name for file in rest] == [file.name for file in whole] and len(whole) == 2
    assert all(one.read_bytes() == other.read_bytes() for one, other in zip(rest, whole, strict=True))


def test_the_same_seed_gives_the_same_losses_and_another_seed_others(
    tiny: Path, circles: Path, tmp_path: Path
) -> None:
    first, again = (go(run_with(), tiny, circles, tmp_path / name) for name in "ab")
    other = go(run_with(seed=8), tiny, circles, tmp_path / "c")
    assert first.losses == again.losses
    assert first.losses != other.losses


@pytest.mark.parametrize(
    "changes",
    [
        {"gradient_accumulation": 2, "scheduler": "cosine", "use_ema": True},
        {"dtype": "bf16", "quantization": "float8", "scheduler": "linear", "batch_size": 1},
        pytest.param({"optimizer": "adafactor", "scheduler": "polynomial"}, marks=pytest.mark.thorough),
        {"optimizer": "prodigy", "learning_rate": 1.0, "scheduler": "constant_with_warmup"},
    ],
)
def test_a_stopped_run_goes_on_bit_for_bit(
    tiny: Path, circles: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    if changes.get("optimizer") == "prodigy":
        pytest.importorskip("prodigyopt")
    run = run_with(steps=6, **changes)
    straight = go(run, tiny, circles, tmp_path / "straight")

    def stop(step: int) -> None:
        if step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    halted = go(run, tiny, circles, tmp_path / "halted", progress=Recorder(stop))
    assert (halted.stopped, halted.steps) == ("interrupted", 3)
    assert Path(halted.lora).name == "circles_000000003.safetensors"
    recorder = Recorder()
    resumed = go(run, tiny, circles, tmp_path / "halted", progress=recorder)
    assert recorder.steps == [4, 5, 6]
    assert resumed.losses == straight.losses
    a, b = load_file(straight.lora), load_file(resumed.lora)
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_bfloat16_is_not_emulated(tiny: Path, circles: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    go(run_with(steps=1, dtype="bf16"), tiny, circles, tmp_path, progress=recorder)
    loaded = next(phase for phase in recorder.phases if "transformer" in phase)
    assert ("bfloat16" in loaded) == has_bfloat16()
    assert any("no bfloat16 arithmetic" in note for note in recorder.notes) != has_bfloat16()


def test_checkpointing_changes_no_loss(tiny: Path, circles: Path, tmp_path: Path) -> None:
    with_it = go(run_with(gradient_checkpointing=True), tiny, circles, tmp_path / "a")
    without = go(run_with(gradient_checkpointing=False), tiny, circles, tmp_path / "b")
    assert with_it.losses == without.losses


def test_a_finished_run_is_not_trained_again_but_can_be_prolonged(tiny: Path, circles: Path, tmp_path: Path) -> None:
    first = go(run_with(), tiny, circles, tmp_path)
    recorder = Recorder()
    assert go(run_with(), tiny, circles, tmp_path, progress=recorder).losses == first.losses
    assert recorder.steps == []
    assert len(go(run_with(steps=5), tiny, circles, tmp_path).losses) == 5


def test_the_second_start_loads_neither_text_encoder_nor_vae(tiny: Path, circles: Path, tmp_path: Path) -> None:
    first, second = Recorder(), Recorder()
    go(run_with(steps=1), tiny, circles, tmp_path, progress=first, fresh=True)
    go(run_with(steps=2), tiny, circles, tmp_path, progress=second)
    assert sum("Loading the" in phase for phase in first.phases) == 3
    assert [phase for phase in second.phases if "Loading the" in phase] == ["Loading the transformer (int8, float32)"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"rank": 4}, "rank 8; this run has rank 4"), ({"quantization": None}, "quantization int8")],
)
def test_a_state_of_another_run_is_refused(
    tiny: Path, circles: Path, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    go(run_with(steps=1), tiny, circles, tmp_path)
    with pytest.raises(TrainError, match=words):
        go(run_with(**changes), tiny, circles, tmp_path)


def test_a_state_of_another_model_or_adapter_is_refused(
    tiny: Path, adapter: Path, circles: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(tiny, tmp_path / "model"))
    go(run_with(steps=1), model, circles, tmp_path / "out")
    with pytest.raises(TrainError, match="adapter none"):
        go(run_with(), model, circles, tmp_path / "out", adapter=adapter)
    shard = sorted((model / "transformer").glob("*.safetensors"))[0]
    tensors = load_file(str(shard))
    save_file({key: value + 1 for key, value in tensors.items()}, str(shard), metadata={"format": "pt"})
    with pytest.raises(TrainError, match="base model"):
        go(run_with(), model, circles, tmp_path / "out")


def test_periodic_saves_keep_the_newest(tiny: Path, circles: Path, tmp_path: Path) -> None:
    go(run_with(steps=5, save_every=1, keep_saves=2), tiny, circles, tmp_path)
    names = sorted(path.name for path in tmp_path.glob("*.safetensors"))
    assert names == ["circles.safetensors", "circles_000000003.safetensors", "circles_000000004.safetensors"]
    assert not list(tmp_path.rglob("*.part"))


def test_the_average_is_what_is_saved(tiny: Path, circles: Path, tmp_path: Path) -> None:
    plain = load_file(go(run_with(), tiny, circles, tmp_path / "a").lora)
    average = load_file(go(run_with(use_ema=True), tiny, circles, tmp_path / "b").lora)
    key = "diffusion_model.layers.0.attention.to_q.lora_B.weight"
    assert 0 < average[key].norm() < plain[key].norm()


def test_the_average_moves_by_the_configs_decay_from_the_first_step(
    tiny: Path, circles: Path, tmp_path: Path
) -> None:
    plain = load_file(go(run_with(steps=1), tiny, circles, tmp_path / "a").lora)
    average = load_file(go(run_with(steps=1, use_ema=True, ema_decay=0.9), tiny, circles, tmp_path / "b").lora)
    key = "diffusion_model.layers.0.attention.to_q.lora_B.weight"  # zero at the start
    torch.testing.assert_close(average[key], 0.1 * plain[key])


def test_losses_that_are_not_finite_end_the_run_with_a_diagnosis(tiny: Path, circles: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(tiny, tmp_path / "model"))
    for shard in (model / "transformer").glob("*.safetensors"):
        tensors = load_file(str(shard))
        if "layers.1.attention_norm1.weight" in tensors:
            tensors["layers.1.attention_norm1.weight"][0] = float("nan")
            save_file(tensors, str(shard), metadata={"format": "pt"})
    recorder = Recorder()
    with pytest.raises(
        TrainError, match=r"at the steps 1, 2, 3 .*non-finite weights \(layers\.1\.attention_norm1\.weight\)"
    ):
        go(run_with(), model, circles, tmp_path / "out", progress=recorder)
    assert recorder.steps == [1, 2]
    assert not (tmp_path / "out" / "circles.safetensors").exists()


def test_what_cannot_be_done_fails_before_anything_is_read(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="optimizer automagicexperiment"):
        go(run_with(optimizer="automagicexperiment"), tmp_path / "nowhere", tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_wrong_adapter_fails_before_the_models_are_loaded(tiny: Path, circles: Path, tmp_path: Path) -> None:
    file = tmp_path / "flux.safetensors"
    save_file({"transformer.single_blocks.0.lora_A.weight": torch.zeros(4, 96)}, str(file))
    recorder = Recorder()
    with pytest.raises(TrainError, match="another architecture"):
        go(run_with(), tiny, circles, tmp_path / "out", adapter=file, progress=recorder)
    assert recorder.phases == ["Checking the model files"]


def test_eight_bit_adam_without_cuda_is_not_silent(tiny: Path, circles: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    run = run_with(steps=1, optimizer="adamw8bit")
    eight = go(run, tiny, circles, tmp_path / "a", progress=recorder)
    assert any("Plain AdamW is used" in note for note in recorder.notes)
    assert eight.losses == go(run_with(steps=1), tiny, circles, tmp_path / "b").losses
