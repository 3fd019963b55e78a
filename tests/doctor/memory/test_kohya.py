"""sd-scripts and musubi-tuner: blocks that are swapped, weights in 8 bits, one part after the other on the card."""

from __future__ import annotations

from dataclasses import replace

import pytest

from zdoctor.doctor.families import _FAMILIES as known_families
from zdoctor.doctor.families import families, family_of
from zdoctor.doctor.families.record.steps import mined_tables
from zdoctor.doctor.memory import GIB, Placed, placed, predict
from zdoctor.doctor.memory.case import HOST_BASE
from zdoctor.doctor.memory.fitting import fitting
from zdoctor.doctor.memory.phases import LOADING, OFFLOADING
from zdoctor.doctor.model import Dataset, Gpu, Memory, ModelFolder, Unknown
from zdoctor.doctor.model.buckets import Buckets
from zdoctor.doctor.model.memory import STEP
from zdoctor.doctor.trainers.read import read_config

from .runs import SYSTEM

CARD = Gpu(0, "a card", 96 * GIB, 95 * GIB, (8, 9), "560", "assumed")
FLUX = """accelerate launch --mixed_precision bf16 flux_train_network.py --mixed_precision bf16 --fp8_base \\
  --pretrained_model_name_or_path flux1-dev.safetensors --clip_l l.safetensors --t5xxl t5.safetensors \\
  --ae ae.safetensors --network_module networks.lora_flux --network_train_unet_only --gradient_checkpointing \\
  --cache_latents --cache_text_encoder_outputs --optimizer_type AdamW8bit --resolution 1024,1024 \\
  --train_data_dir d --output_dir o --output_name n"""
ZIMAGE = """accelerate launch --mixed_precision bf16 zimage_train_network.py --mixed_precision bf16 \\
  --dit zi.safetensors --vae ae.safetensors --text_encoder qwen.safetensors --dataset_config d.toml --sdpa \\
  --network_module networks.lora_zimage --network_dim 16 --gradient_checkpointing --output_dir o --output_name n"""

QWEN_IMAGE = """accelerate launch --mixed_precision bf16 qwen_image_train_network.py --mixed_precision bf16 \\
  --dit q.safetensors --vae v.safetensors --text_encoder t.safetensors --dataset_config d.toml --xformers \\
  --network_module networks.lora_qwen_image --network_dim 16 --gradient_checkpointing --output_dir o \\
  --output_name n"""


def predicted(script: str) -> Memory | Unknown:
    run = read_config("t.sh", script.encode(), {}).runs[0]
    return predict(run, ModelFolder(run.recipe.base_model or "", "absent", None), (), SYSTEM, (CARD,))


def known(script: str) -> Memory:
    memory = predicted(script)
    assert isinstance(memory, Memory), memory
    return memory


def step_of(script: str) -> dict[str, int]:
    return dict(next(phase for phase in known(script).phases if phase.name == STEP).items)


@pytest.mark.parametrize(("swapped", "card"), [(0, 16), (16, 12), (22, 10), (28, 8)])
def test_flux_fits_the_cards_that_the_trainer_says(swapped: int, card: int) -> None:
    """docs/flux_train_network.md of sd-scripts: what to set for a card of so many GB."""
    peak = known(f"{FLUX} --blocks_to_swap {swapped}").peak.total / GIB
    assert 0.7 * card < peak < 0.95 * card


SDXL = """accelerate launch --mixed_precision bf16 sdxl_train_network.py --mixed_precision bf16 \\
  --pretrained_model_name_or_path x.safetensors --network_module networks.lora --network_train_unet_only \\
  --network_dim 32 --cache_latents --optimizer_type AdamW8bit --xformers --resolution 1024,1024 --train_data_dir d \\
  --output_dir o --output_name n"""


@pytest.mark.parametrize(
    ("options", "measured"),
    [("", 17.4), ("--gradient_checkpointing", 9.4), ("--gradient_checkpointing --full_bf16", 9.1)],
)
def test_what_cards_show_of_sdxl_lies_in_the_range_that_is_told(options: str, measured: float) -> None:
    """Points of benchmarks/outside_points.tsv: what convolutions take beside their tensors is not traced."""
    memory = known(f"{SDXL} {options}")
    assert memory.peak.total - memory.below < measured * GIB < memory.peak.total + memory.margin
    assert memory.margin > 3 * memory.below  # further above than below


def test_a_unet_in_32_bits_holds_what_was_rehearsed_of_it() -> None:
    """`python benchmarks/trace.py sd-scripts/SdxlUNet2DConditionModel`: 11.13 GiB at rank 16, 1024 px."""
    whole = SDXL.replace("bf16", "no").replace("--network_dim 32", "--network_dim 16 --gradient_checkpointing")
    step = step_of(whole)
    held = sum(step[name] for name in ("transformer", "LoRA weights", "gradients", "activations"))
    assert held / GIB == pytest.approx(11.13, abs=0.02)
    scores = predicted(whole.replace("--xformers", ""))  # attention that keeps its scores was not
    assert isinstance(scores, Unknown)
    assert "float32 full" in scores.reason


def test_what_was_not_rehearsed_is_no_way_out() -> None:
    """Attention without a kernel was rehearsed in 16 bits alone, so that fp8_base is not proposed for it."""
    whole = SDXL.replace("sdxl_train", "train").replace("1024,1024", "512,512").replace("--xformers", "")
    run = read_config("t.sh", whole.encode(), {}).runs[0]
    small = replace(CARD, memory_total=4 * GIB, memory_free=3 * GIB)
    memory = predict(run, ModelFolder(run.recipe.base_model or "", "absent", None), (), SYSTEM, (small,))
    assert isinstance(memory, Memory) and memory.peak.total > small.memory_free
    assert memory.alternatives and not any("fp8" in str(step.settings) for step in memory.alternatives)


@pytest.mark.parametrize(
    ("options", "measured"),
    [
        ("", 42),
        ("--fp8_base --fp8_scaled", 30),
        ("--fp8_base --fp8_scaled --blocks_to_swap 16", 24),
        ("--fp8_base --fp8_scaled --blocks_to_swap 45", 12),
    ],
)
def test_qwen_image_takes_what_musubi_tuners_guide_measured(
    options: str, measured: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/qwen_image.md has it of August 2025, when modulation stayed in sixteen bits (0df4bee changed that)."""
    family = family_of("qwen_image")
    kohya = family.kohya["musubi-tuner"]
    assert kohya.memory is not None and not kohya.memory.unscaled
    before = replace(kohya, memory=replace(kohya.memory, unscaled=r"_mod\."))
    monkeypatch.setitem(known_families, "qwen_image", replace(family, kohya={"musubi-tuner": before}))
    script = f"{QWEN_IMAGE} {options}"
    run = read_config("t.sh", script.encode(), {}).runs[0]
    dataset = Dataset("datasets/0", "/d", "txt", resolutions=(1024,))
    run = replace(run, recipe=replace(run.recipe, datasets=(dataset,)))
    memory = predict(run, ModelFolder(run.recipe.base_model or "", "absent", None), (), SYSTEM, (CARD,))
    assert isinstance(memory, Memory), memory
    assert memory.peak.total / GIB == pytest.approx(measured, rel=0.08)


def test_swapped_blocks_wait_in_host_memory_with_their_linears_alone() -> None:
    """Eight double blocks of 113 million weights and sixteen single ones of 38 and, of both, modulation."""
    some = known(f"{FLUX} --blocks_to_swap 16")
    gone = step_of(FLUX)["transformer"] - step_of(f"{FLUX} --blocks_to_swap 16")["transformer"]
    double, single = 3072**2 * (2 * (4 + 8 + 6)), 3072**2 * (7 + 5 + 3)
    assert gone == 8 * double + 16 * single
    assert some.host_phases[OFFLOADING] == HOST_BASE + gone


def test_no_more_blocks_wait_than_there_are() -> None:
    assert step_of(f"{FLUX} --blocks_to_swap 90")["transformer"] > 0


def test_eight_bits_need_a_block_in_sixteen_while_it_computes() -> None:
    whole = FLUX.replace(" --fp8_base", "")
    assert step_of(FLUX)["transformer"] < 0.51 * step_of(whole)["transformer"]
    assert step_of(FLUX)["activations"] > step_of(whole)["activations"]


def test_what_fp8_scaled_leaves_stays_in_sixteen_bits() -> None:
    plain, scaled = (step_of(f"{ZIMAGE} --fp8_base{more}")["transformer"] for more in ("", " --fp8_scaled"))
    modulation, blocks = 32 * 256 * 4 * 3840, 34 * 176_947_200
    assert scaled - plain == pytest.approx(modulation + 2 / 64 * blocks, rel=0.01)


def test_a_ring_of_buffers_stays_on_the_card() -> None:
    swapped = f"{ZIMAGE} --blocks_to_swap 20"
    ring, fewer = (step_of(swapped + more) for more in (" --block_swap_h2d_only", ""))
    assert ring["transformer"] == step_of(f"{ZIMAGE} --blocks_to_swap 18")["transformer"] > fewer["transformer"]


def test_text_encoders_are_on_the_card_alone_and_musubi_tuners_for_samples_only() -> None:
    names = [phase.name for phase in known(FLUX).phases]
    assert names == ["encoding the prompts", "caching the latents", STEP]
    assert "text encoder" in step_of(FLUX.replace(" --cache_text_encoder_outputs", ""))
    assert [phase.name for phase in known(ZIMAGE).phases] == [STEP]


@pytest.mark.parametrize("option", ["--cpu_offload_checkpointing", "--mixed_precision no"])
def test_what_was_not_measured_is_not_guessed(option: str) -> None:
    assert isinstance(predicted(f"{FLUX} {option}"), Unknown)


def test_what_makes_it_fit_is_said_in_the_trainers_words() -> None:
    small = Gpu(0, "a card", 12 * GIB, 11 * GIB, (8, 9), "560", "assumed")
    run = read_config("t.sh", FLUX.encode(), {}).runs[0]
    memory = predict(run, ModelFolder("flux1-dev.safetensors", "absent", None), (), SYSTEM, (small,))
    assert isinstance(memory, Memory)
    only = memory.alternatives[0]
    assert [key for key, _ in only.settings] == ["blocks_to_swap"] and only.high <= small.memory_free
    fewer = replace(small, memory_free=only.high - 1)
    another = predict(run, ModelFolder("flux1-dev.safetensors", "absent", None), (), SYSTEM, (fewer,))
    assert isinstance(another, Memory) and dict(another.alternatives[0].settings) != dict(only.settings)
    on = placed(run, ModelFolder("flux1-dev.safetensors", "absent", None), (), SYSTEM, (small,))
    assert isinstance(on, Placed) and fitting(on.case, small.memory_free, 28 * GIB)[0].settings == only.settings


def test_every_class_that_a_record_names_was_mined() -> None:
    named = {one.memory for family in families() for one in family.kohya.values() if one.memory}
    for memory in named:
        tables = mined_tables(memory.steps)
        assert tables, memory.steps
        ways = [table["ways"] for table in tables]
        every = {"autocast", "autocast float8", "autocast full", "float32"}
        assert all({"autocast"} <= set(one) <= every for one in ways)
        lists = {tuple(filter(None, way["one"]["lists"])) for one in ways for way in one.values()}
        assert lists == {memory.lists}, memory.steps


WAN = """accelerate launch --mixed_precision bf16 wan_train_network.py --mixed_precision bf16 --task {task} \\
  --dit w.safetensors --dataset_config d.toml --sdpa --network_module networks.lora_wan --network_dim 32 \\
  --fp8_base --fp8_scaled --gradient_checkpointing --output_dir o --output_name n"""
TWO = "--dit_high_noise h.safetensors"


def of_wan(task: str, options: str = "", frames: int = 25) -> Memory | Unknown:
    run = read_config("t.sh", f"{WAN.format(task=task)} {options}".encode(), {}).runs[0]
    how = Buckets(832, 480)
    dataset = Dataset("datasets/0", "/d", "txt", resolutions=(832,), buckets=how, frames=frames)
    run = replace(run, recipe=replace(run.recipe, datasets=(dataset,)))
    return predict(run, ModelFolder(run.recipe.base_model or "", "absent", None), (), SYSTEM, (CARD,))


def step_of_wan(task: str, options: str = "", frames: int = 25) -> dict[str, int]:
    memory = of_wan(task, options, frames)
    assert isinstance(memory, Memory), memory
    return dict(next(phase for phase in memory.phases if phase.name == STEP).items)


def test_films_hold_as_many_tokens_as_their_frames_have() -> None:
    """Four frames after the first make one more of latents; blocks are given 5120 numbers a token in 16 bits."""
    one, film = (step_of_wan("t2v-14B", frames=frames)["activations"] for frames in (1, 25))
    assert film - one > 40 * 6 * 52 * 30 * 5120 * 2
    assert one == step_of_wan("t2v-14B", frames=4)["activations"]


def test_films_that_are_taken_as_long_as_they_are_are_not_guessed() -> None:
    told = of_wan("t2v-14B", frames=0)
    assert isinstance(told, Unknown) and "how long" in told.reason


def test_wan_2_2_is_told_the_time_of_each_token() -> None:
    """Six vectors in 32 bits for a token, unless the trainer is told to do as for 2.1."""
    first, second = (step_of_wan(task)["activations"] for task in ("t2v-14B", "t2v-A14B"))
    assert second - first > 7 * 52 * 30 * 6 * 5120 * 4


def test_what_blocks_were_given_may_wait_in_host_memory() -> None:
    here, away = (step_of_wan("t2v-14B", more) for more in ("", "--gradient_checkpointing_cpu_offload"))
    assert here["activations"] - away["activations"] > 35 * 7 * 52 * 30 * 5120 * 2


def test_the_other_expert_is_on_the_card_unless_it_is_offloaded() -> None:
    one, two, away = (step_of_wan("t2v-A14B", more) for more in ("", TWO, f"{TWO} --offload_inactive_dit"))
    assert two["transformer"] == 2 * one["transformer"] and away["transformer"] == one["transformer"]
    assert two["LoRA weights"] == one["LoRA weights"]  # which both have in common
    some = of_wan("t2v-A14B", f"{TWO} --offload_inactive_dit")
    assert isinstance(some, Memory) and some.host_phases[OFFLOADING] > one["transformer"]


def test_wan_is_cast_to_eight_bits_on_the_card_beside_what_was_read() -> None:
    """load_wan_model still holds what it read while the model is cast; with scales each is made as it is read."""
    run = read_config("t.sh", WAN.format(task="t2v-14B").replace(" --fp8_scaled", "").encode(), {}).runs[0]
    memory = predict(run, ModelFolder("w.safetensors", "absent", None), (), SYSTEM, (CARD,))
    assert isinstance(memory, Memory) and memory.peak.name == LOADING
    assert 39 < memory.peak.total / GIB < 43
    scaled = of_wan("t2v-14B", frames=1)
    assert isinstance(scaled, Memory) and [phase.name for phase in scaled.phases] == [STEP]
