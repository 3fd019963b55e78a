"""The closed form against traces of the full-size models, and what each phase holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zdoctor.doctor.families import families, family_of
from zdoctor.doctor.families.record.steps import mined_tables
from zdoctor.doctor.memory import GIB, buckets, predict
from zdoctor.doctor.model import (
    DatasetFolder,
    Gpu,
    Image,
    Memory,
    ModelFolder,
    Run,
    SamplePrompt,
    Unknown,
    Value,
    Where,
)
from zdoctor.doctor.model.buckets import Buckets
from zdoctor.doctor.model.memory import STEP
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.tests.changes import changed
from zdoctor.tests.models import healthy, probed, run_of

from .runs import A6000, ROOMY_T4, SYSTEM, T4, flux, predicted, zimage

# GiB at the peak of a step, traced on the full FLUX.1-dev without quantization: (resolution, checkpointing, batch
# size, with control images); those that compute nothing again as a card with one kernel for rms_norm has it.
TRACED_FLUX = [
    (512, True, 1, False, 23.91),
    (1024, True, 1, False, 25.44),
    (1024, True, 2, False, 27.74),
    (1024, True, 1, True, 27.49),
    (512, False, 1, False, 33.43),
    (1024, False, 1, False, 53.71),
]


@pytest.mark.parametrize(("resolution", "checkpointing", "batch", "control", "traced"), TRACED_FLUX)
def test_a_step_of_the_full_flux_is_predicted_within_three_percent(
    resolution: int, checkpointing: bool, batch: int, control: bool, traced: float
) -> None:
    run = flux(resolution, control, trainer=RUNNER, batch_size=batch, gradient_checkpointing=checkpointing)
    step = next(phase for phase in predicted(run, A6000).phases if phase.name == "training step")
    tensors = (step.total - step.items["CUDA context (assumed)"]) / GIB
    assert tensors == pytest.approx(traced, rel=0.03)


def test_flux_is_loaded_side_by_side() -> None:
    """ai-toolkit quantizes the transformer on the card, unless low_vram, and loads T5 whole beside it."""
    run = flux(quantization="qfloat8", text_encoder_quantization="qfloat8")
    phases = {phase.name: phase for phase in predicted(run, A6000).phases}
    assert phases["quantizing the transformer"].total / GIB == pytest.approx(22.17 + 0.45, rel=0.01)
    assert phases["loading the text encoder"].total / GIB == pytest.approx(11.1 + 9.1 + 0.45, rel=0.01)
    low = {"model/low_vram": Value(True, Where("c"), 0, 4)}
    careful = predicted(changed(run, settings={**run.settings, **low}), A6000)
    assert "quantizing the transformer" not in {phase.name for phase in careful.phases}


def test_blocks_that_keep_what_they_made_take_memory() -> None:
    """Every one of 30 blocks again, every second, none."""
    run = zimage(1024, quantization="int8")
    every = Value(2, Where("c"), 0, 1)
    second = changed(run, settings={**run.settings, "train/gradient_checkpointing_interval": every})
    one, two, none = (
        predicted(each, A6000).phases[-1].items["activations"]
        for each in (run, second, changed(run, offload={"gradient_checkpointing": False}))
    )
    assert two == pytest.approx(one + (none - one) / 2, rel=0.1)


@pytest.mark.parametrize(("percent", "waiting"), [(1.0, 32), (0.5, 15), (0.0, 0)])
def test_offloaded_blocks_are_not_on_the_card(percent: float, waiting: int) -> None:
    """Of the 34, two are there at a time; the others wait in host memory."""
    run = zimage(1024, quantization="int8")
    written = {"layer_offloading": True, "layer_offloading_transformer_percent": percent}
    settings = {f"model/{key}": Value(value, Where("c"), 0, 4) for key, value in written.items()}
    plain, away = predicted(run, A6000), predicted(changed(run, settings={**run.settings, **settings}), A6000)
    block = 6.142e9 / 34
    saved = plain.phases[-1].items["transformer"] - away.phases[-1].items["transformer"]
    assert saved == pytest.approx(waiting * block, rel=0.01)
    assert away.host_peak >= plain.host_peak and away.host_peak >= percent * 6.142e9


def test_batch_two() -> None:
    run = zimage(1024, trainer=RUNNER, quantization="nf4", batch_size=2)
    step = next(phase for phase in predicted(run, A6000).phases if phase.name == "training step")
    assert (step.total - step.items["CUDA context (assumed)"]) / GIB == pytest.approx(8.18, rel=0.03)


def test_the_text_encoder_stands_whole_on_the_card_before_it_is_quantized() -> None:
    run = zimage(text_encoder_quantization="qfloat8", quantization="qfloat8")
    first = predicted(run, A6000).phases[0]
    assert first.items["text encoder before quantizing"] / GIB == pytest.approx(7.49, rel=0.01)


def test_old_cards_hold_the_attention_scores() -> None:
    run = zimage(quantization="qfloat8")

    def scores(run: Run, gpu: Gpu) -> int:
        return sum(phase.items.get("attention scores", 0) for phase in predicted(run, gpu).phases)

    assert scores(run, A6000) == 0
    assert scores(run, T4) / GIB == pytest.approx(2.1, rel=0.03)
    assert scores(changed(run, precision={"dtype": "fp16"}), T4) == 0


def test_the_card_that_the_run_takes_is_the_budget() -> None:
    memory = predicted(zimage(trainer=RUNNER, device="cuda:1"), A6000, replace(A6000, index=7, memory_free=9 * GIB))
    assert (memory.device, memory.free, memory.budget_source) == ("GPU 7, RTX A6000", 9 * GIB, "recorded: an A6000")
    here = predicted(zimage(trainer=RUNNER, device="cpu"), T4)
    assert (here.device, here.free) == ("cpu", 28 * GIB)
    assert not any("CUDA" in item for phase in here.phases for item in phase.items)
    hidden = replace(SYSTEM, environment={"CUDA_VISIBLE_DEVICES": ""})
    seen = predict(zimage(), probed(zimage()), (), hidden, (T4,))
    assert isinstance(seen, Memory) and seen.device == "cpu"


def test_of_unlike_cards_the_one_with_the_most_room_is_taken_for_the_first() -> None:
    """CUDA counts the fastest first, by a measure that nobody tells."""
    memory = predicted(zimage(), T4, A6000)
    assert memory.device == "GPU 1, RTX A6000" and memory.elsewhere is None and memory.cards == 1
    assert "assumes" in memory.assumptions and "that CUDA counts GPU 1, RTX A6000 first" in memory.assumptions
    assert "that CUDA counts" not in predicted(zimage(), A6000, replace(A6000, index=2)).assumptions


def test_a_card_that_is_not_there_is_no_card_with_room() -> None:
    run = zimage(trainer=RUNNER, device="cuda:2")
    seen = predict(run, probed(run), (), SYSTEM, (A6000, A6000))
    assert isinstance(seen, Unknown) and "there is no cuda:2" in seen.reason


def test_only_visible_cards_share_a_run() -> None:
    gpus = tuple(replace(A6000, index=index, memory_free=(9 + index) * GIB) for index in range(3))
    for visible, cards, least in ((None, 3, 9), ("2,1", 2, 10), ("2", 1, 11)):
        environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        memory = predict(zimage(), probed(zimage()), (), replace(SYSTEM, environment=environment), gpus)
        assert isinstance(memory, Memory)
        assert (memory.cards, memory.least_free) == (cards, least * GIB)


@pytest.mark.parametrize(
    ("free", "fits"),
    [((47,), True), ((47, 46), True), ((47, 2), False), ((14, 14), True), ((14, 2), False)],
)
def test_a_card_that_somebody_else_fills_takes_no_part(free: tuple[int, ...], fits: bool) -> None:
    """Two of 14 GiB hold the bf16 base together."""
    run = zimage(trainer=RUNNER, quantization=None)
    gpus = tuple(replace(A6000, index=index, memory_free=gib * GIB) for index, gib in enumerate(free))
    memory = predict(run, probed(run), (), SYSTEM, gpus)
    assert isinstance(memory, Memory) and memory.fits_all() is fits


def test_pictures_are_sized_as_in_the_training() -> None:
    run = run_of("m")
    run = changed(run, datasets=tuple(replace(d, resolutions=(512, 1024)) for d in run.recipe.datasets))
    key = run.recipe.datasets[0].key
    folder = DatasetFolder(key, "/d", (Image("a.png", 640, 480, True), Image("b.png", 200, 100, True)))
    assert buckets(run, [folder]) == [(576, 448), (640, 480)]
    assert buckets(run, []) == [(512, 512), (1024, 1024)]
    assert buckets(run, [replace(folder, more=3)]) == [(512, 512), (1024, 1024)]


def test_a_run_of_kohyas_enlarges_pictures() -> None:
    run = run_of("m")
    key = run.recipe.datasets[0].key
    sizes = Buckets(512, 512, kind="sd-scripts", step=64)
    run = changed(run, datasets=tuple(replace(dataset, buckets=sizes) for dataset in run.recipe.datasets))
    folder = DatasetFolder(key, "/d", (Image("a.png", 400, 300, True), Image("b.png", 300, 900, True)))
    assert buckets(run, [folder]) == [(576, 448)]
    assert buckets(run, []) == [(512, 512)]


def test_the_tiny_model_is_measured_by_its_own_config() -> None:
    run = run_of(healthy())
    memory = predicted(run, T4)
    assert memory.peak.total < GIB
    assert memory.assumptions.count("published") == 0


def test_a_lokr_has_the_weights_of_its_two_matrices() -> None:
    full = predicted(zimage(network_type="lokr"), T4)
    # to_q, to_k, to_v, to_out: 60x60 + 64x64; w1, w3: 80x60 + 128x64; w2: 60x80 + 64x128; adaLN: 120x16 + 128x16
    weights = 30 * (4 * (3600 + 4096) + 3 * (4800 + 8192) + 1920 + 2048)
    step = next(phase for phase in full.phases if phase.name == "training step")
    assert step.items["LoRA weights"] == 4 * weights


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "finetune"}, "LoRA"),
        ({"network_type": "lorm"}, "LoRA"),
        ({"architecture": "nucleus_image"}, "Nucleus-Image"),
        ({"dtype": "bf17"}, "bf17"),
        ({"quantization": "convrot4"}, "convrot4"),
    ],
)
def test_what_was_not_worked_out_is_unknown(changes: dict[str, Any], reason: str) -> None:
    run = changed(zimage(), **changes)
    memory = predict(run, probed(run), (), SYSTEM, (T4,))
    assert isinstance(memory, Unknown)
    assert reason in memory.reason


def test_absurd_numbers_are_survived() -> None:
    sample = SamplePrompt("p", -3, 10**12, 0, 1, 1.0)
    run = zimage(batch_size=-1, rank=-5, samples=(sample,))
    run = changed(run, datasets=tuple(replace(d, resolutions=(0, -7, 10**9)) for d in run.recipe.datasets))
    assert predicted(run, T4).peak.total > 0


def test_simpletuner_encodes_before_it_loads_the_transformer() -> None:
    precision = {"quantization": "qint8", "keeps": "input-kept"}
    run = zimage(trainer="SimpleTuner", precision=precision, keys={})
    for gpus in ((T4,), ()):
        memory = predicted(run, *gpus)
        assert "loading the models side by side" not in [phase.name for phase in memory.phases]
        early = [phase for phase in memory.phases if phase.name.startswith(("loading", "caching"))]
        assert len(early) == 3
        assert not any("transformer" in phase.items for phase in early)
        assert memory.alternatives == ()
    offloaded = changed(run, offload={"other": "ramtorch"})
    unknown = predict(offloaded, probed(run), (), SYSTEM, (T4,))
    assert isinstance(unknown, Unknown)
    assert "ramtorch" in unknown.reason


# The same where zdoctor's runner multiplies in float16 on an int8 base: (run, resolution, batch size, checkpointing,


def absent(architecture: str, **changes: Any) -> Memory | Unknown:
    """What is predicted on a roomy card of a published model that is not on this machine."""
    name = list(family_of(architecture).repos.values())[-1]
    run = changed(run_of(name, architecture), **{"rank": 16, "cache_text_embeddings": True, **changes})
    return predict(run, ModelFolder(name, "absent", name, {}), (), SYSTEM, (ROOMY_T4,))


@pytest.mark.parametrize(
    "architecture",
    [f.name for f in families() if f.memory and f.repos and f.memory.word == "" and mined_tables(f.class_name)],
)
def test_a_published_model_is_judged_before_it_is_fetched(architecture: str) -> None:
    told = absent(architecture)
    if architecture == "ernie_image":  # of which no config of a text encoder is known here
        assert isinstance(told, Unknown) and "text encoder" in told.reason
        return
    assert isinstance(told, Memory) and told.as_published
    step = next(phase for phase in told.phases if phase.name == STEP)
    assert all(
        step.items[name] > 1 << 20 for name in ("transformer", "LoRA weights", "optimizer state", "activations")
    )
    wider = absent(architecture, rank=32)
    assert isinstance(wider, Memory) and wider.peak.total >= told.peak.total


def test_a_text_encoder_counts_as_the_card_holds_it() -> None:
    """Klein's is quantized on the processor, FLUX.2's on the card; with layer_offloading its layers wait, too."""
    quantized = {"text_encoder_quantization": "qfloat8", "quantization": "qfloat8"}

    def loading(architecture: str, **changes: Any) -> int:
        told = absent(architecture, **{**quantized, **changes})
        assert isinstance(told, Memory)
        return next(phase.items for phase in told.phases if "loading" in phase.name)["text encoder before quantizing"]

    whole = loading("flux2_klein_9b", text_encoder_quantization=None)
    assert 0.5 * whole < loading("flux2_klein_9b") < 0.53 * whole
    assert loading("flux2") == loading("flux2", text_encoder_quantization=None) > 40 * GIB
    assert loading("flux2_klein_9b", **{"offload.share": 1.0}) == 0
    # of HiDream's four only the largest is there before it is quantized
    assert loading("hidream") < 0.9 * loading("hidream", text_encoder_quantization=None)
