"""SimpleTuner: its own classes under autocast, its segments, its formats, and what others measured of them."""

from __future__ import annotations

from typing import Any

import pytest

from zdoctor.doctor.families.record.steps import mined_tables
from zdoctor.doctor.memory import GIB, predict, started_with
from zdoctor.doctor.memory.case import CONTEXT
from zdoctor.doctor.model import Gpu, Memory, ModelFolder, Unknown
from zdoctor.doctor.model.environment import Environment
from zdoctor.doctor.model.memory import STEP
from zdoctor.doctor.model.record import replace
from zdoctor.tests.doctor.trainers.simpletuner.runs import SET, run_of, trained

from .runs import SYSTEM

CARD = Gpu(0, "a card", 96 * GIB, 95 * GIB, (9, 0), "560", "assumed")
TURBO = {"model_flavour": "turbo", "lora_rank": 64, "optimizer": "optimi-lion", "train_batch_size": 1}
ONE_SIGN = {**SET, "resolution": 512, "caption_strategy": "instanceprompt", "instance_prompt": "x"}
INT8 = {"base_model_precision": "int8-sdnq", "sdnq_group_size": -1}


def predicted(options: dict[str, Any], one: dict[str, Any] = ONE_SIGN) -> Memory | Unknown:
    run = run_of({**TURBO, **options}, one)
    return predict(run, ModelFolder(run.recipe.base_model or "", "absent", None), (), SYSTEM, (CARD,))


def step_of(options: dict[str, Any], one: dict[str, Any] = ONE_SIGN) -> dict[str, int]:
    memory = predicted(options, one)
    assert isinstance(memory, Memory), memory
    return dict(next(phase for phase in memory.phases if phase.name == STEP).items)


@pytest.mark.parametrize(
    ("options", "measured"),
    [
        ({"gradient_checkpointing": False}, 21.25),
        ({}, 12.87),
        ({"gradient_checkpointing_interval": 2}, 13.04),
        ({"gradient_checkpointing_interval": 2, "gradient_checkpointing_segment_stride": 4}, 16.88),
        ({**INT8, "gradient_checkpointing": False}, 15.60),
        (INT8, 7.25),
        ({**INT8, "gradient_checkpointing_interval": 2, "gradient_checkpointing_segment_stride": 4}, 11.25),
    ],
)
def test_z_image_takes_what_was_measured(options: dict[str, Any], measured: float) -> None:
    """SEGMENTED_CHECKPOINTING.md of SimpleTuner: what PyTorch gave out on an H100 (all: benchmarks/outside.py)."""
    total = sum(step_of(options).values()) - CONTEXT
    assert total / GIB == pytest.approx(measured, rel=0.05)


OFFLOAD = {"gradient_checkpointing_offload_attention": True}
FP8 = {"base_model_precision": "fp8-torchao"}
SD3 = {
    "model_family": "sd3",
    "model_flavour": ...,
    "lora_rank": 128,
    "optimizer": "adamw_bf16",
    "train_batch_size": 3,
}
KREA2 = {"model_family": "krea2", "model_flavour": "raw", "fuse_qkv_projections": True}
HIDREAM = {"model_family": "hidream", "model_flavour": "full", "lora_rank": 128}
QWEN = {"model_family": "qwen_image", "model_flavour": "v1.0", "lora_rank": 8}


@pytest.mark.parametrize(
    ("options", "pixels", "measured", "near"),
    [
        (OFFLOAD, 512, 13.24, 0.05),
        ({**INT8, **OFFLOAD}, 512, 7.61, 0.05),
        (FP8, 512, 7.93, 0.05),
        ({**FP8, "gradient_checkpointing": False}, 512, 37.50, 0.07),
        ({**QWEN, **INT8, "gradient_checkpointing": False}, 1024, 63.48, 0.07),
        ({**QWEN, **FP8}, 1024, 25.34, 0.05),
        ({**SD3, "gradient_checkpointing": False}, 1024, 34.59, 0.06),
        (SD3, 1024, 7.67, 0.07),
        (
            {**SD3, "gradient_checkpointing_interval": 2, "gradient_checkpointing_segment_stride": 4},
            1024,
            20.14,
            0.06,
        ),
        ({**KREA2, "gradient_checkpointing": False}, 512, 40.09, 0.05),
        (KREA2, 512, 30.06, 0.05),
        ({**KREA2, **OFFLOAD}, 512, 30.50, 0.05),
        ({**HIDREAM, "gradient_checkpointing": False}, 512, 44.58, 0.05),
        ({**HIDREAM, **INT8}, 512, 17.99, 0.05),
    ],
)
def test_more_of_its_families_take_what_was_measured(
    options: dict[str, Any], pixels: int, measured: float, near: float
) -> None:
    total = sum(step_of(options, {**ONE_SIGN, "resolution": pixels}).values()) - CONTEXT
    assert total / GIB == pytest.approx(measured, rel=near)


BOOGU = {"model_family": "boogu_image", "model_flavour": "v0.1-base", "lora_rank": 16, "optimizer": "adamw_bf16"}
IDEOGRAM = {"model_family": "ideogram", "model_flavour": "fp8", "lora_rank": 32}
UPCAST = {"ideogram_fp8_base_upcast": True}
STRIDE = {"gradient_checkpointing_interval": 2, "gradient_checkpointing_segment_stride": 4}


@pytest.mark.parametrize(
    ("options", "measured"),
    [
        ({**BOOGU, "gradient_checkpointing": False}, 59.14),
        (BOOGU, 23.44),
        ({**BOOGU, **INT8, "gradient_checkpointing": False}, 53.24),
        ({**BOOGU, **INT8, "gradient_checkpointing_interval": 2}, 34.12),
        ({**BOOGU, **FP8}, 18.48),
        (IDEOGRAM, 12.33),
        ({**IDEOGRAM, **STRIDE}, 36.28),
        ({**IDEOGRAM, **UPCAST}, 20.51),
        ({**IDEOGRAM, **INT8, **STRIDE}, 28.19),
    ],
)
def test_what_was_measured_is_in_the_range(options: dict[str, Any], measured: float) -> None:
    """By PyTorch 2.11, before autocast made rms_norm 32 bits; with a newer one it is more, which is what is told."""
    run = run_of({**TURBO, **options}, {**ONE_SIGN, "resolution": 1024})
    folder = ModelFolder(run.recipe.base_model or "", "absent", None)
    older = replace(run, recipe=replace(run.recipe, precision=replace(run.recipe.precision, half_norms=True)))
    new, old = (predict(one, folder, (), SYSTEM, (CARD,)) for one in (run, older))
    assert isinstance(new, Memory) and isinstance(old, Memory)
    told, then = (max(p.total for p in one.phases if p.name == STEP) - CONTEXT for one in (new, old))
    assert then / GIB == pytest.approx(measured, rel=0.06)
    assert told > then
    peak, before = (max(phase.total for phase in one.phases) for one in (new, old))
    assert peak - new.below <= before  # of all phases, of which the step is not always the highest


def test_the_pytorch_of_the_environment_says_which_norms_it_is() -> None:
    """Autocast makes 32 bits of what they are given since 2.12; where none is known the range reaches down."""
    run = run_of({**TURBO, **IDEOGRAM, **STRIDE}, {**ONE_SIGN, "resolution": 1024})
    folder = ModelFolder(run.recipe.base_model or "", "absent", None)

    def range_by(environment: Environment | Unknown) -> tuple[int, int]:
        found = predict(started_with(environment, run), folder, (), SYSTEM, (CARD,))
        assert isinstance(found, Memory)
        return found.peak.total - found.below, found.peak.total

    low, high = range_by(Unknown("no Python"))
    older, newer = (range_by(Environment("python", {"torch": torch})) for torch in ("2.11.0+cu128", "2.13.0"))
    assert low < older[1] < newer[0] < high == newer[1]
    assert range_by(Environment("python", {})) == (low, high)


def test_float8_of_a_flavour_stays_unless_another_precision_is_asked_for() -> None:
    def found(**options: Any) -> tuple[str | None, str]:
        precision = run_of({**TURBO, **options}, ONE_SIGN).recipe.precision
        return precision.quantization, precision.keeps

    assert found(**IDEOGRAM) == ("float8", "file-kept")
    assert found(**IDEOGRAM, **UPCAST)[0] is None
    assert found(**IDEOGRAM, **INT8) == ("int8", "nothing-kept")
    assert found(**{**BOOGU, "model_flavour": "v0.1-base-fp8"}) == ("float8", "scaled-kept")


def test_what_torchao_leaves_as_it_is_has_sixteen_bits() -> None:
    kinds = (INT8, FP8)
    whole, spared = (step_of({**BOOGU, **kind})["transformer"] for kind in kinds)
    refiners, keys_and_values = 2 * 178_752_000, 2 * (32 + 3 * 8 + 4) * 840 * 3360
    assert spared - whole == pytest.approx(refiners + keys_and_values, rel=0.01)


def test_a_fused_projection_is_there_beside_the_three() -> None:
    apart, fused = (step_of({**KREA2, "fuse_qkv_projections": one}) for one in (False, True))
    assert fused["transformer"] - apart["transformer"] == 2 * (28 * 6144 * 9216 + 4 * 2560 * 7680)
    assert fused["LoRA weights"] < apart["LoRA weights"]


def test_a_film_has_its_pictures() -> None:
    film = {**SET, "resolution": 512, "dataset_type": "video", "video": {"num_frames": 49}}
    options = {"model_family": "hidream", "model_flavour": "full"}
    assert run_of(options, film).recipe.datasets[0].frames == 49
    assert run_of(options, {**film, "video": {}}).recipe.datasets[0].frames == 150
    assert run_of(options, ONE_SIGN).recipe.datasets[0].frames == 1


@pytest.mark.parametrize(("again", "measured"), [(False, 2.87), (True, 1.98)])
def test_sd_1_5_takes_what_was_measured(again: bool, measured: float) -> None:
    options = {"model_family": "sd1x", "model_flavour": "dreamshaper", "lora_rank": 16, "optimizer": "adamw_bf16"}
    total = sum(step_of({**options, "gradient_checkpointing": again}).values()) - CONTEXT
    assert total / GIB == pytest.approx(measured, rel=0.05)


LOKR = {"algo": "lokr", "bypass_mode": True, "linear_dim": 10000, "linear_alpha": 1, "factor": 12}


def of_lokr(options: dict[str, Any]) -> Memory | Unknown:
    attention = {"target_module": ["Attention"], "module_algo_map": {"Attention": {"factor": 12}}}
    base = {"model_family": "sdxl", "model_flavour": "base-1.0", "train_batch_size": 1, "optimizer": "adamw_bf16"}
    run = run_of({**base, **options}, {**ONE_SIGN, "resolution": 1024}, lycoris={**LOKR, "apply_preset": attention})
    return predict(run, ModelFolder(run.recipe.base_model or "", "absent", None), (), SYSTEM, (CARD,))


@pytest.mark.parametrize(("options", "measured"), [({}, 13.03), (INT8, 13.72), (FP8, 26.22)])
def test_a_lokr_on_a_unet_takes_what_was_measured(options: dict[str, Any], measured: float) -> None:
    memory = of_lokr({**options, "gradient_checkpointing": False})
    assert isinstance(memory, Memory), memory
    total = sum(next(phase for phase in memory.phases if phase.name == STEP).items.values()) - CONTEXT
    assert total / GIB == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize("options", [{}, INT8, FP8])
def test_a_lokr_on_a_unet_that_computes_again_is_not_guessed(options: dict[str, Any]) -> None:
    told = of_lokr(options)
    assert isinstance(told, Unknown) and "gradient_checkpointing" in told.reason


def test_what_a_format_keeps_for_backward_is_known_or_not_guessed() -> None:
    none = {"gradient_checkpointing": False}
    kinds = ("int8-sdnq", "int8-quanto", "fp8wo-torchao")
    held = {kind: step_of({**none, "base_model_precision": kind})["activations"] for kind in kinds}
    assert held["int8-sdnq"] < held["int8-quanto"] < held["fp8wo-torchao"]
    unknown = predicted({"base_model_precision": "int8dq-torchao"})
    assert isinstance(unknown, Unknown) and "int8" in unknown.reason
    away = predicted({"gradient_checkpointing_offload_attention": True, "base_model_precision": "int8-quanto"})
    assert isinstance(away, Unknown) and "gradient_checkpointing_offload_attention" in away.reason


def test_scales_of_groups_are_counted() -> None:
    rows, groups = (step_of({**INT8, "sdnq_group_size": size})["transformer"] for size in (-1, 32))
    assert groups - rows == pytest.approx(6.0e9 * 4 / 32, rel=0.05)


def test_a_lora_has_sixteen_bits_and_its_gradients_stay() -> None:
    items = step_of({})
    assert items["LoRA weights"] == items["gradients"] == items["optimizer state"] // 2


def test_captions_that_the_config_writes_are_as_long_as_they_are() -> None:
    long = {**ONE_SIGN, "instance_prompt": "word " * 400}
    files = {**SET, "resolution": 512}
    whole, known, short = (step_of({}, one)["activations"] for one in (files, long, ONE_SIGN))
    assert whole == known > short


def test_blocks_are_computed_again_together_or_apart() -> None:
    both = {"gradient_checkpointing_interval": 2, "gradient_checkpointing_segment_stride": 4}
    offload = run_of({**both, "model_family": "qwen_image", "model_flavour": "v1.0"}).recipe.offload
    assert (offload.segment, offload.interval) == (1, 2)
    offload = run_of({**both, "model_family": "sdxl", "model_flavour": ...}).recipe.offload
    assert (offload.segment, offload.interval) == (1, 1)
    assert (run_of(both).recipe.offload.segment, run_of(both).recipe.offload.interval) == (2, 4)
    assert (trained(both).recipe.offload.segment, trained(both).recipe.offload.interval) == (1, 2)


@pytest.mark.parametrize(
    "name", ["ZImageTransformer2DModel", "QwenImageTransformer2DModel", "FluxTransformer2DModel"]
)
def test_its_own_classes_were_mined_in_every_way(name: str) -> None:
    ways = [set(table["ways"]) for table in mined_tables(f"SimpleTuner/{name}")]
    assert ways and all(one >= {"autocast", "nothing-kept", "input-kept", "copy-kept"} for one in ways)
