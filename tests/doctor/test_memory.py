"""The closed form against traces of the full-size model, and the ladder of settings that lower a peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from zdoctor.doctor.architectures import needed_tensors
from zdoctor.doctor.memory import GIB, buckets, predict
from zdoctor.doctor.model import (
    Component,
    DatasetFolder,
    Gpu,
    Image,
    Memory,
    ModelFolder,
    Run,
    SamplePrompt,
    System,
    Unknown,
    Value,
    Where,
)
from zdoctor.doctor.model.families import OWN
from zdoctor.tests.models import healthy, probed, run_of

SYSTEM = System("linux", "6", "3.11", "/c", "/h", 4, 32 * GIB, 28 * GIB)
T4 = Gpu(0, "Tesla T4", 15 * GIB, int(14.6 * GIB), (7, 5), "560", "recorded: a T4")
SAMPLE = SamplePrompt("p", 1024, 1024, 1, 8, 4.0)
A6000 = Gpu(1, "RTX A6000", 48 * GIB, 47 * GIB, (8, 6), "560", "recorded: an A6000")


def zimage(resolution: int = 1024, **changes: Any) -> Run:
    """The published Z-Image-Turbo, rank 16, AdamW, with latents and text embeddings cached."""
    run = run_of("Tongyi-MAI/Z-Image-Turbo")
    datasets = tuple(replace(d, resolutions=(resolution,), cache_latents=True) for d in run.datasets)
    return replace(run, **{"rank": 16, "cache_text_embeddings": True, "datasets": datasets, **changes})


def predicted(run: Run, *gpus: Gpu, datasets: tuple[DatasetFolder, ...] = ()) -> Memory:
    memory = predict(run, probed(run), datasets, SYSTEM, gpus)
    assert isinstance(memory, Memory), memory
    return memory


# GiB of tensors at the peak of a step, traced on the full-size model: (quantization, resolution, checkpointing).
TRACED = [
    (None, 1024, True, 14.25),
    (None, 1024, False, 46.8),
    ("int8", 512, True, 6.94),
    ("int8", 1024, True, 8.53),
    ("int8", 512, False, 16.56),
    ("int8", 1024, False, 41.1),
    ("nf4", 512, True, 4.40),
    ("nf4", 768, True, 4.99),
    ("nf4", 1024, True, 5.84),
    ("nf4", 1024, False, 38.4),
]


@pytest.mark.parametrize(("quantization", "resolution", "checkpointing", "traced"), TRACED)
def test_a_step_of_the_full_model_is_predicted_within_three_percent(
    quantization: str | None, resolution: int, checkpointing: bool, traced: float
) -> None:
    run = zimage(resolution, quantization=quantization, gradient_checkpointing=checkpointing)
    step = next(phase for phase in predicted(run, A6000).phases if phase.name == "training step")
    tensors = (step.total - step.items["CUDA context (assumed)"]) / GIB
    assert tensors == pytest.approx(traced, rel=0.03)


# The same of FLUX.1-dev without quantization: (resolution, checkpointing, batch size, with control images).
TRACED_FLUX = [
    (512, True, 1, False, 23.91),
    (1024, True, 1, False, 25.44),
    (1024, True, 2, False, 27.74),
    (1024, True, 1, True, 27.49),
    (512, False, 1, False, 34.43),
    (1024, False, 1, False, 56.71),
]


def flux(resolution: int = 1024, control: bool = False, **changes: Any) -> Run:
    """The published FLUX.1-dev or Kontext, rank 16, AdamW, with latents and text embeddings cached."""
    model = "black-forest-labs/FLUX.1-" + ("Kontext-dev" if control else "dev")
    run = run_of(model, "flux_kontext" if control else "flux")
    folders = ("/c",) if control else ()
    datasets = tuple(
        replace(dataset, resolutions=(resolution,), cache_latents=True, control_folders=folders)
        for dataset in run.datasets
    )
    return replace(run, **{"rank": 16, "cache_text_embeddings": True, "datasets": datasets, **changes})


@pytest.mark.parametrize(("resolution", "checkpointing", "batch", "control", "traced"), TRACED_FLUX)
def test_a_step_of_the_full_flux_is_predicted_within_three_percent(
    resolution: int, checkpointing: bool, batch: int, control: bool, traced: float
) -> None:
    run = flux(resolution, control, batch_size=batch, gradient_checkpointing=checkpointing)
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
    careful = predicted(replace(run, settings={**run.settings, **low}), A6000)
    assert "quantizing the transformer" not in {phase.name for phase in careful.phases}


def test_blocks_that_keep_what_they_made_take_memory() -> None:
    """Every one of 30 blocks again, every second, none."""
    run = zimage(1024, quantization="int8")
    every = Value(2, Where("c"), 0, 1)
    second = replace(run, settings={**run.settings, "train/gradient_checkpointing_interval": every})
    one, two, none = (
        predicted(each, A6000).phases[-1].items["activations"]
        for each in (run, second, replace(run, gradient_checkpointing=False))
    )
    assert two == pytest.approx(one + (none - one) / 2, rel=0.1)


@pytest.mark.parametrize(("percent", "waiting"), [(1.0, 32), (0.5, 15), (0.0, 0)])
def test_offloaded_blocks_are_not_on_the_card(percent: float, waiting: int) -> None:
    """Of the 34, two are there at a time; the others wait in host memory."""
    run = zimage(1024, quantization="int8")
    written = {"layer_offloading": True, "layer_offloading_transformer_percent": percent}
    settings = {f"model/{key}": Value(value, Where("c"), 0, 4) for key, value in written.items()}
    plain, away = predicted(run, A6000), predicted(replace(run, settings={**run.settings, **settings}), A6000)
    block = 6.142e9 / 34
    saved = plain.phases[-1].items["transformer"] - away.phases[-1].items["transformer"]
    assert saved == pytest.approx(waiting * block, rel=0.01)
    assert away.host_peak >= plain.host_peak and away.host_peak >= percent * 6.142e9


def test_batch_two() -> None:
    run = zimage(1024, quantization="nf4", batch_size=2)
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
    assert scores(replace(run, dtype="fp16"), T4) == 0


def test_the_card_that_the_run_takes_is_the_budget() -> None:
    memory = predicted(zimage(trainer=OWN, device="cuda:1"), A6000, replace(A6000, index=7, memory_free=9 * GIB))
    assert (memory.device, memory.free, memory.budget_source) == ("GPU 7, RTX A6000", 9 * GIB, "recorded: an A6000")
    here = predicted(zimage(trainer=OWN, device="cpu"), T4)
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
    run = zimage(trainer=OWN, device="cuda:2")
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
    run = zimage(trainer=OWN, quantization=None)
    gpus = tuple(replace(A6000, index=index, memory_free=gib * GIB) for index, gib in enumerate(free))
    memory = predict(run, probed(run), (), SYSTEM, gpus)
    assert isinstance(memory, Memory) and memory.fits_all() is fits


def test_pictures_are_never_enlarged() -> None:
    run = run_of("m")
    run = replace(run, datasets=tuple(replace(d, resolutions=(512, 1024)) for d in run.datasets))
    key = run.datasets[0].key
    folder = DatasetFolder(key, "/d", (Image("a.png", 640, 480, True), Image("b.png", 200, 100, True)))
    assert buckets(run, [folder]) == [(576, 432), (640, 480)]
    assert buckets(run, []) == [(512, 512), (1024, 1024)]
    assert buckets(run, [replace(folder, more=3)]) == [(512, 512), (1024, 1024)]


def test_a_run_of_kohyas_enlarges_pictures() -> None:
    run = run_of("m")
    key = run.datasets[0].key
    sizes = {"width": 512, "height": 512, "kind": "sd-scripts", "step": 64, "least": 256, "most": 1024}
    run = replace(run, settings={f"{key}/bucket_sizes": Value(sizes, Where("c"), 0, 0)})
    folder = DatasetFolder(key, "/d", (Image("a.png", 400, 300, True), Image("b.png", 300, 900, True)))
    assert buckets(run, [folder]) == [(576, 448)]
    assert buckets(run, []) == [(512, 512)]


def test_the_ladder_goes_down_and_names_the_harmless_first() -> None:
    run = replace(zimage(cache_text_embeddings=False, gradient_checkpointing=False, batch_size=2))
    memory = predicted(run, T4)
    peaks = [step.peak for step in memory.alternatives]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < memory.peak.total
    assert memory.alternatives[0].effect == "equivalent"
    keys = [key for step in memory.alternatives for key, _ in step.settings]
    assert {"model/quantize", "train/gradient_checkpointing"} <= set(keys)


@pytest.mark.parametrize("trainer", ["ai-toolkit", OWN])
def test_what_the_ladder_promises_is_what_the_changed_run_needs(trainer: str) -> None:
    changed = zimage(1024, cache_text_embeddings=False, gradient_checkpointing=False, batch_size=4, trainer=trainer)
    fields = {
        "train/cache_text_embeddings": "cache_text_embeddings",
        "train/gradient_checkpointing": "gradient_checkpointing",
        "train/batch_size": "batch_size",
        "train/gradient_accumulation": "gradient_accumulation",
    }
    for step in predicted(changed, T4).alternatives:
        for key, value in step.settings:
            if key in fields:
                changed = replace(changed, **{fields[key]: value})
            elif key == "model/qtype":
                changed = replace(changed, quantization=value, text_encoder_quantization=value)
            elif key.endswith("/resolution"):
                lower = tuple(replace(dataset, resolutions=tuple(value)) for dataset in changed.datasets)
                changed = replace(changed, datasets=lower)
            elif key in ("model/low_vram", "model/layer_offloading"):
                changed = replace(changed, settings={**changed.settings, key: Value(value, Where("c"), 0, 4)})
        again = predicted(changed, T4)
        assert (again.peak.total, again.peak.total + again.margin) == (step.peak, step.high)


ON = Value(True, Where("c"), 0, 4)


@pytest.mark.parametrize(
    ("run", "free", "offered"),
    [
        (zimage(1024, trainer=OWN, quantization="int8"), 28, True),
        (zimage(1024, trainer=OWN, quantization="int8"), 6, False),  # host memory, in which the blocks would wait
        (zimage(1024, quantization="qint8"), 28, True),
        (zimage(1024, trainer=OWN, quantization="int8", settings={"model/compile": ON}), 28, False),
        (zimage(1024, trainer=OWN, quantization="int8", settings={"model/layer_offloading": ON}), 28, False),
        (
            zimage(1024, trainer=OWN, settings={"train/gradient_checkpointing_interval": replace(ON, value=2)}),
            28,
            False,
        ),
    ],
)
def test_blocks_are_sent_to_host_memory_where_that_helps_and_goes(run: Run, free: int, offered: bool) -> None:
    memory = predict(run, probed(run), (), replace(SYSTEM, memory_available=free * GIB), (T4,))
    assert isinstance(memory, Memory)
    keys = [key for step in memory.alternatives for key, _ in step.settings]
    assert ("model/layer_offloading" in keys) is offered
    if offered:  # nothing is lost by it but time; fewer pixels come after it
        assert not any(key.endswith("/resolution") for key in keys[: keys.index("model/layer_offloading")])


def test_layer_offloading_of_flux_is_nothing_to_ai_toolkit() -> None:
    """Its loader of Flux.1 never asks for it; zdoctor's runner does."""
    for trainer, saved in (("ai-toolkit", 0), (OWN, 10 * GIB)):
        run = flux(512, trainer=trainer, quantization="qint8")
        away = replace(run, settings={**run.settings, "model/layer_offloading": ON})
        here, there = (predicted(each, ROOMY_T4).phases for each in (run, away))
        steps = [
            next(p for p in phases if p.name == "training step").items["transformer"] for phases in (here, there)
        ]
        assert steps[0] - steps[1] >= saved and (saved or steps[0] == steps[1])
        keys = [key for step in predicted(run, T4).alternatives for key, _ in step.settings]
        assert ("model/layer_offloading" in keys) is (trainer == OWN)


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
    assert step.items["gradients"] == step.items["LoRA weights"] == 4 * weights


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "finetune"}, "LoRA"),
        ({"network_type": "lorm"}, "LoRA"),
        ({"architecture": "flex2"}, "flex2"),
        ({"dtype": "bf17"}, "bf17"),
        ({"quantization": "convrot4"}, "convrot4"),
    ],
)
def test_what_was_not_worked_out_is_unknown(changes: dict[str, Any], reason: str) -> None:
    run = replace(zimage(), **changes)
    memory = predict(run, probed(run), (), SYSTEM, (T4,))
    assert isinstance(memory, Unknown)
    assert reason in memory.reason


def test_absurd_numbers_are_survived() -> None:
    sample = SamplePrompt("p", -3, 10**12, 0, 1, 1.0)
    run = zimage(batch_size=-1, rank=-5, samples=(sample,))
    run = replace(run, datasets=tuple(replace(d, resolutions=(0, -7, 10**9)) for d in run.datasets))
    assert predicted(run, T4).peak.total > 0


def test_simpletuner_encodes_before_it_loads_the_transformer() -> None:
    run = zimage(quantization="qint8", trainer="SimpleTuner")
    for gpus in ((T4,), ()):
        memory = predicted(run, *gpus)
        assert "loading the models side by side" not in [phase.name for phase in memory.phases]
        early = [phase for phase in memory.phases if phase.name.startswith(("loading", "caching"))]
        assert len(early) == 3
        assert not any("transformer" in phase.items for phase in early)
        assert memory.alternatives == ()
    offloaded = replace(run, settings={"ramtorch": Value(True, Where("c"), 0, 1)})
    unknown = predict(offloaded, probed(run), (), SYSTEM, (T4,))
    assert isinstance(unknown, Unknown)
    assert "ramtorch" in unknown.reason


# The same where zdoctor's runner multiplies in float16 on an int8 base: (run, resolution, batch size, checkpointing,
# traced by benchmarks/trace.py).
TRACED_HALF = [
    (zimage, 512, 1, True, 7.44),
    (zimage, 1024, 1, True, 10.13),
    (zimage, 1024, 2, True, 13.93),
    (zimage, 512, 1, False, 20.55),
    (flux, 512, 1, True, 13.85),
    (flux, 1024, 1, True, 16.86),
    (flux, 1024, 2, True, 21.38),
    (flux, 512, 1, False, 30.97),
]
ROOMY_T4 = replace(T4, memory_total=100 * GIB, memory_free=100 * GIB)


@pytest.mark.parametrize(("made", "resolution", "batch", "checkpointing", "traced"), TRACED_HALF)
def test_a_step_in_float16_is_predicted_within_three_percent(
    made: Callable[..., Run], resolution: int, batch: int, checkpointing: bool, traced: float
) -> None:
    run = made(resolution, trainer=OWN, quantization="int8", batch_size=batch, gradient_checkpointing=checkpointing)
    step = next(phase for phase in predicted(run, ROOMY_T4).phases if phase.name == "training step")
    tensors = (step.total - step.items["CUDA context (assumed)"]) / GIB
    assert tensors == pytest.approx(traced, rel=0.03)


@pytest.mark.parametrize(("quantization", "resolution", "checkpointing", "traced"), TRACED)
def test_a_step_of_the_runner_is_the_traced_one(
    quantization: str | None, resolution: int, checkpointing: bool, traced: float
) -> None:
    run = zimage(resolution, trainer=OWN, quantization=quantization, gradient_checkpointing=checkpointing)
    memory = predicted(run, A6000)
    step = next(phase for phase in memory.phases if phase.name == "training step")
    assert (step.total - step.items["CUDA context (assumed)"]) / GIB == pytest.approx(traced, rel=0.03)


def test_the_runner_keeps_one_thing_at_a_time() -> None:
    """Flux on 16 GB: ai-toolkit holds the whole transformer beside what it quantizes, zdoctor's runner a tensor."""
    run = flux(512, quantization="nf4", text_encoder_quantization="qfloat8", samples=(SAMPLE,))
    theirs, ours = (predicted(replace(run, trainer=trainer), T4) for trainer in ("ai-toolkit", OWN))
    assert theirs.peak.total > T4.memory_free > ours.peak.total + ours.margin
    early = [phase for phase in ours.phases if phase.name.startswith("encoding")]
    assert len(early) == 2 and not any("transformer" in phase.items for phase in early)
    late = [phase for phase in ours.phases if phase not in early]
    assert late and not any("text encoder" in phase.items for phase in late)
    # measured: 1.001 times the quantized weights and the largest tensor (benchmarks/load.py)
    assert ours.host_peak == pytest.approx(0.6 * GIB + 2 * 56.6e6, rel=0.01)


def test_loading_takes_what_was_measured() -> None:
    """924 MiB anonymous above the imports for 0.930 billion parameters in int8 (benchmarks/load.py)."""
    config = {"dim": 2304, "n_heads": 18, "n_kv_heads": 18, "n_layers": 12, "n_refiner_layers": 1}
    needed = needed_tensors("ZImageTransformer2DModel", config)
    part = Component("transformer", "/m/transformer", "ZImageTransformer2DModel", config, (), needed=needed)
    run = zimage(trainer=OWN, quantization="int8", device="cpu")
    memory = predict(run, ModelFolder("/m", "diffusers", "/m", {"transformer": part}), (), SYSTEM, ())
    assert isinstance(memory, Memory)
    (loading,) = [phase for phase in memory.phases if phase.name == "loading the transformer"]
    assert (loading.total - loading.items["Python and its libraries"]) / 2**20 == pytest.approx(924, rel=0.02)


def test_what_does_not_fit_is_encoded_in_host_memory() -> None:
    small = replace(T4, memory_free=8 * GIB)
    run = flux(512, trainer=OWN, quantization="nf4", text_encoder_quantization=None)
    memory = predicted(run, small)
    assert "encoding the captions" not in [phase.name for phase in memory.phases]
    # T5 and CLIP: 4.63 billion weights of Linears in float16, the rest in float32
    assert memory.host_peak / GIB == pytest.approx(0.6 + 9.6, rel=0.02)
    assert predicted(run, ROOMY_T4).host_peak < GIB


@pytest.mark.parametrize(("precision", "parts"), [("float8", 0.55), ("nf4", 0.35), ("none", 1.0)])
def test_a_text_encoder_is_quantized_but_for_its_embeddings(precision: str, parts: float) -> None:
    run = zimage(trainer=OWN, text_encoder_quantization=None if precision == "none" else precision)
    (encoding,) = [phase for phase in predicted(run, A6000).phases if phase.name == "encoding the captions"]
    assert encoding.items["text encoder"] / (2 * 4.022e9) == pytest.approx(parts, abs=0.02)


def test_blocks_that_wait_in_host_memory_are_made_there() -> None:
    on = {"model/layer_offloading": Value(True, Where("c"), 0, 4)}
    plain = zimage(trainer=OWN, quantization="int8")
    away, here = (predicted(run, T4) for run in (replace(plain, settings={**plain.settings, **on}), plain))
    assert away.host_peak - here.host_peak == pytest.approx(6.16e9, rel=0.03)
    steps = [next(p for p in memory.phases if p.name == "training step").total for memory in (away, here)]
    assert steps[0] < steps[1] - 5 * GIB


def test_an_adapter_waits_in_host_memory_until_it_is_merged() -> None:
    for gpus in ((A6000,), ()):
        plain = zimage(512, trainer=OWN, quantization="int8", adapter=None)
        without, with_it = (predicted(run, *gpus) for run in (plain, replace(plain, adapter="a")))
        more = {b.name: b.total - a.total for a, b in zip(without.phases, with_it.phases, strict=True)}
        early = [more[name] for name in more if name.startswith(("encoding", "loading"))]
        assert len(early) == 3 and more["training step"] == 0
        # rank 16 on 30 layers of eight Linears, in float32
        waits = pytest.approx(4 * 16 * 30 * (4 * 2 * 3840 + 3 * (3840 + 10240) + 256 + 15360), rel=0.01)
        if gpus:
            assert early == [0, 0, 0] and with_it.host_peak - without.host_peak == waits
        else:
            assert early == [waits] * 3


def test_a_processor_may_have_to_compute_in_float32() -> None:
    """bfloat16 arithmetic is not asked for here: unquantized weights may take twice as much."""
    memory = predicted(zimage(512, trainer=OWN, quantization=None), *())
    assert memory.margin > 10 * GIB
