"""A run on a device that is not the CPU: nothing of it meets what lies on the CPU, and the numbers are the CPU's."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageChops

from zdoctor.doctor.model.objective import ConceptSlider
from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.model.run import Run
from zdoctor.tests.doctor.train.card import Asked, answers_of, compiled

from .patient import DATASET, go, run_with
from .runtime.test_gpu_failures import TAKEN

SAMPLE = SamplePrompt("a red circle", 64, 64, 2, 3, 3.0)
TEXT = {"rank": 4, "alpha": 4.0, "text_rates": {"text_encoder": 1e-2, "text_encoder_2": 1e-3}}
OFF = {"gradient_checkpointing": True, "share": 1.0}
LATER = "\nCUDA kernel errors might be asynchronously reported at some other API call"
FIRST = "The last good save is of step 1 ({}); the same command goes on from there."
# What a card says, after which step (0: before the first), what the user reads of it, and what is said to be saved.
FAILURES = {
    f"CUDA error: unspecified launch failure{LATER}": (2, "Xid 79", FIRST),
    f"CUDA error: the launch timed out and was terminated{LATER}": (2, "its screen", FIRST),  # a driver that is reset
    f"CUDA error: unknown error{LATER}": (0, "Xid 79", ""),
    TAKEN: (2, "Process 4242 holds 20.5 GiB of the card: end it", "The run is saved at step 2; the same command"),
}
SLIDER = ConceptSlider("a large circle", "a small circle", "a circle", "a square", 2.0, 0.5)


@dataclass(frozen=True)
class Way:
    """A family by the fixture of its model, and a way to train it; `controls` images for each picture, or masks."""

    fixture: str
    changes: dict[str, Any] = field(default_factory=dict)
    controls: int = 0
    masks: bool = False
    samples: bool = False
    adapter: bool = False
    old: bool = False  # without arithmetic in bfloat16


SEVERAL = {"gradient_accumulation": 3, "batch_size": 2}
SDXL = {"architecture": "sdxl", "noise_scheduler": "ddpm"}
# Each family, each format and precision, and whatever else decides what lies where.
WAYS = {
    "nf4, EMA, samples": Way("tiny", {"quantization": "uint4", "use_ema": True}, samples=True, adapter=True),
    "offloaded": Way("tiny", {"offload": OFF}, samples=True),
    "bf16, offloaded in part": Way("tiny", {"offload": {**OFF, "share": 0.5}, "dtype": "bf16", "quantization": None}),
    "no bfloat16, every second block": Way("tiny", {"offload": {"interval": 2}, "quantization": "float8"}, old=True),
    "masks, several batches": Way("tiny", {**SEVERAL, "loss": {"background_weight": 0.5}}, masks=True),
    "slider": Way("tiny", {"loss": {"slider": SLIDER}}),
    "Flux, text encoders": Way("flux", {"architecture": "flux", "network": TEXT}),
    "Kontext, masked prompts": Way("flux", {"architecture": "flux_kontext", "mask_padding": True}, controls=1),
    "Klein": Way("flux2", {"architecture": "flux2_klein_4b in diffusers", "dtype": "fp16"}, controls=2),
    "FLUX.2 dev, DoRA": Way(
        "flux2_dev", {"architecture": "flux2 in diffusers", "offload": OFF, "network_type": "dora"}
    ),
    "Chroma, LoKr": Way("chroma", {"architecture": "chroma in diffusers", "network_type": "lokr"}),
    "Edit-Plus, LoHa": Way(
        "qwen_image_edit",
        {"architecture": "qwen_image_edit_plus", "controls_match": True, "network_type": "loha"},
        controls=2,
    ),
    "OFT, Automagic": Way("tiny", {"network_type": "oft", "network": {"rank": 2}, "optimizer": "automagic"}),
    "Qwen-Image": Way("qwen_image", {"architecture": "qwen_image", "batch_size": 2}, samples=True),
    "SDXL": Way("sdxl", {**SDXL, "quantization": None, "loss": {"min_snr_gamma": 5.0}}, samples=True),
}
# Of a loss, where a card multiplies in 16 bits or encodes pictures by convolutions of its own.
NEAR_ON_CARDS = 0.03
# Where diffusers' own classes wait, as each pass begins: a table that Chroma makes anew, prompts of unlike lengths.
OWN = {
    "Chroma, LoKr": {"transformer_chroma.py:forward"},
    "Qwen-Image": {f"transformer_qwenimage.py:{name}" for name in ("forward", "compute_text_seq_len_from_mask")},
}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """A CUDA device for a PyTorch without one; None where there is a real card."""
    if torch.cuda.is_available():
        return None
    compiler = shutil.which("g++")
    if compiler is None or not sys.platform.startswith("linux") or torch.version.cuda is not None:
        pytest.skip("needs a card, or g++ on Linux and a PyTorch without CUDA")
    return compiled(tmp_path_factory.mktemp("card"))


def on_card(library: Path | None, asked: list[Asked]) -> list[Any]:
    return answers_of("card", library, asked)


def run_of(way: Way, circles: Path) -> Run:
    dataset = replace(
        DATASET,
        control_folders=(str(circles),) * way.controls,
        mask_folder=str(circles) if way.masks else None,
    )
    samples = (SAMPLE,) if way.samples else ()
    changes = {"steps": 2, "batch_size": 1, **way.changes}
    return run_with(**changes, datasets=(dataset,), samples=samples, disable_sampling=not samples)


OFTEN = ("nf4, EMA, samples", "bf16, offloaded in part")
SELDOM = [name for name in WAYS if name not in OFTEN]


@pytest.mark.parametrize(
    "names",
    [OFTEN, *(pytest.param(names, marks=pytest.mark.thorough) for names in (SELDOM[:6], SELDOM[6:]))],
    ids=["often", "some", "others"],
)
def test_a_run_on_a_card_is_that_on_the_cpu(
    names: Sequence[str],
    library: Path | None,
    request: pytest.FixtureRequest,
    circles: Path,
    adapter: Path,
    tmp_path: Path,
) -> None:
    asked, here = [], []
    for name in names:
        way = WAYS[name]
        model: Path = request.getfixturevalue(way.fixture)
        run, held = run_of(way, circles), int(way.samples)
        merged = adapter if way.adapter else None
        plain = replace(run, recipe=replace(run.recipe, precision=replace(run.recipe.precision, dtype="fp32")))
        here.append(go(plain, model, circles, tmp_path / name / "here", adapter=merged, held_out=held, fresh=True))
        on = replace(run, device="cuda")
        place, able = tmp_path / name / "there", (7, 5) if way.old else (8, 0)
        asked.append(Asked(on, model, circles, place, adapter=merged, capability=able, held_out=held))
    for name, result, answer in zip(names, here, on_card(library, asked), strict=True):
        assert isinstance(answer, dict), (name, answer)
        way = WAYS[name]
        if library is not None:
            check_watched(name, answer)
        near = 1e-5 if "dtype" not in way.changes and library is not None else NEAR_ON_CARDS
        assert answer["losses"] == pytest.approx(result.losses, rel=near), name
        losses = [loss for _, loss in result.evaluations]
        assert [loss for _, loss in answer["evaluations"]] == pytest.approx(losses, rel=max(near, 1e-4)), name
        for one, other in zip(result.samples, answer["samples"], strict=True):
            with Image.open(one) as first, Image.open(other) as second:
                assert max(ImageChops.difference(first, second).tobytes()) <= (1 if library is not None else 8)


def check_watched(name: str, answer: dict[str, Any]) -> None:
    """What can be seen of a card that is none: what lies there when, and each wait."""
    there, waits = answer["there"], answer["waits"][-1]
    assert answer["emptied"] >= 2 + WAYS[name].samples  # as it starts, after the VAE, and after it has painted
    loading = next(phase for phase in there if phase.startswith("Loading the transformer"))
    before = there["Checking the model files"]  # some of an earlier run
    assert there["Reading the dataset"] == there[loading] == before  # the adapter waits on the CPU
    assert any(note.startswith("Attention: ") for note in answer["notes"])
    assert waits.pop("trainer.py:advance") == 1  # for the losses and the norm together
    assert set(waits) | set(answer["drawing"]) <= OWN.get(name, set()), name


@pytest.mark.thorough
@pytest.mark.skipif(torch.cuda.is_available(), reason="nobody breaks a real card")
def test_a_card_that_fails_leaves_the_last_good_save(
    library: Path | None, tiny: Path, circles: Path, tmp_path: Path
) -> None:
    changes = {"steps": 3, "save_every": 1, "gradient_checkpointing": False}
    run = replace(run_of(Way("tiny", changes), circles), device="cuda")
    places = {words: tmp_path / str(number) / "out" for number, words in enumerate(FAILURES)}
    asked = [
        Asked(
            run,
            tiny,
            circles,
            place,
            fails=(FAILURES[words][0], words),
            encoded=tmp_path / "0/out" if number else None,
        )
        for number, (words, place) in enumerate(places.items())
    ]
    *answers, again = on_card(library, [*asked, Asked(run, tiny, circles, places[TAKEN])])
    for (words, place), answer in zip(places.items(), answers, strict=True):
        _, told, saved = FAILURES[words]
        assert told in answer and saved.format(place / "circles_000000001.safetensors") in answer, answer
    assert len(again["losses"]) == 3 and len(again["waits"]) == 1  # it goes on with the third step
