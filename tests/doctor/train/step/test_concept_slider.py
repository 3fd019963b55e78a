"""A concept slider's gradients are those of ai-toolkit's get_guided_loss (ConceptSliderTrainer.py, 27a03a91)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from zdoctor.doctor.examine.translate import for_runner
from zdoctor.doctor.model.objective import ConceptSlider
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.train.settings.refuse import refuse
from zdoctor.tests.doctor.trainers.test_every_key import AI_TOOLKIT, run_of

from .test_output_preservation import parts, trainer


def expected(made: Any, index: int, slider: ConceptSlider) -> Tensor:
    """The two halves of the loss, each with its anchor, from the model's answers at both signs."""
    items = made.batches.batch(index)
    batch = made.objective._draw(index, items)

    def answer(prompt: str, scale: float) -> Tensor:
        for module in made.network.values():
            module.active, module.scale = scale != 0, scale or 1.0
        said: Tensor = made.objective.predict(batch.clean, batch.noise, batch.t, None, [prompt] * len(items))
        for module in made.network.values():
            module.active, module.scale = True, 1.0
        return said if scale else said.detach()

    def normed(value: Tensor, other: Tensor) -> Tensor:
        return (value - value.mean()) / (value.std() + 1e-8) * other.std() + other.mean()

    mse = torch.nn.functional.mse_loss
    plus, minus, neutral = (answer(text, 0) for text in (slider.positive, slider.negative, slider.target))
    total = torch.zeros(())
    for sign in (1.0, -1.0):
        way = sign * ((plus - neutral) - (minus - neutral))
        enhance = normed(neutral + slider.strength * way, neutral)
        erase = normed(neutral - slider.strength * -way, neutral)
        guess = answer(slider.target, sign)
        part = mse(guess, enhance) + mse(guess, erase)
        if slider.anchor is not None:
            part = part + slider.anchor_strength * mse(answer(slider.anchor, sign), answer(slider.anchor, 0))
        total = total + part / 3.0
    return total


@pytest.mark.parametrize(("network", "anchor"), [("lora", "a square"), ("lokr", None)])
def test_loss_and_gradients(network: str, anchor: str | None, tiny: Path, circles: Path, tmp_path: Path) -> None:
    slider = ConceptSlider("a large circle", "a small circle", "a circle", anchor, 2.0, 0.5)
    made = trainer(tiny, circles, tmp_path, network_type=network, loss={"slider": slider})
    weights = list(made.parameters.values())
    for loss in parts(made, 0):
        loss.backward()  # type: ignore[no-untyped-call]
    ours = [weight.grad for weight in weights]
    made.objective.model.disable_gradient_checkpointing()  # type: ignore[operator]  # it goes by the sign of the moment
    theirs = torch.autograd.grad(expected(made, 0, slider), weights)
    assert len(list(parts(made, 0))) == (2 if anchor is None else 4)
    for one, other in zip(ours, theirs, strict=True):
        assert one is not None
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        (
            {"slider": {"target_class": "a", "positive_prompt": "b"}, "network": {"type": "dora", "linear": 4}},
            "LoRA or LoKr",
        ),
        ({"slider": {"positive_prompt": "b"}}, "needs target_class"),
        ({"type": "sd_trainer"}, "The section slider is not supported"),
    ],
)
def test_whose_config_asks_for_it(changes: dict[str, Any], why: str) -> None:
    own = {"target_class": "a cat", "positive_prompt": "fat", "negative_prompt": "thin", "guidance_strength": 4}
    run = run_of("ai-toolkit", AI_TOOLKIT | {"type": "concept_slider", "slider": own} | changes)
    schema = shipped("ai-toolkit")
    assert run is not None and schema is not None
    reasons = refuse(for_runner(run, schema))
    assert all(why in reason for reason in reasons) and bool(reasons) == bool(why), reasons
    if not changes:
        assert run.recipe.loss.slider == ConceptSlider("fat", "thin", "a cat", None, 4.0)
