"""Preservation compares with the model as it was, on the prompts of ai-toolkit, and leaves gradients exact."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from zdoctor.doctor.model.datasets import Dataset
from zdoctor.doctor.progress import Progress
from zdoctor.doctor.train.components.vae import VaeFiles
from zdoctor.doctor.train.dataset.images import DatasetImage
from zdoctor.doctor.train.dataset.training_items import TrainingItem, read_training_items
from zdoctor.doctor.train.distributed.ranks import Ranks
from zdoctor.doctor.train.encode.encoding_cache import EncodingCache
from zdoctor.doctor.train.encode.latents import Latents
from zdoctor.doctor.train.encode.loss_masks import LossMasks
from zdoctor.doctor.train.encode.text_embeddings import TextEmbeddings
from zdoctor.doctor.train.families import zimage
from zdoctor.doctor.train.network.lora import add_network, lora_targets
from zdoctor.doctor.train.sampling.preview_samples import prompts_to_encode
from zdoctor.doctor.train.step.batch_loss import BatchLoss
from zdoctor.doctor.train.step.loss import preserved_prompt
from zdoctor.doctor.train.step.trainer import Trainer
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer
from zdoctor.tests.changes import changed
from zdoctor.tests.often import often

from ..patient import Recorder, go, run_with, written

CPU = torch.device("cpu")
CLASS = {"train__diff_output_preservation": True, "train__diff_output_preservation_class": "thing"}
BLANK = {"train__blank_prompt_preservation": True}


def bare(tiny: Path) -> Any:
    model = build_empty_transformer(tiny / "transformer")
    fill_transformer(model, tiny / "transformer", quantization="none", adapter={}, dtype=torch.float32, device=CPU)
    return model


def trainer(tiny: Path, circles: Path, cache: Path, **changes: Any) -> Trainer:
    """A trainer whose network already has an effect."""
    run = run_with(timestep_type="linear", trigger_word="circle", **changes)
    items = read_training_items(run.recipe, {"datasets/0": str(circles)}, 16)
    latents = Latents(EncodingCache(cache), VaeFiles(tiny / "vae", "AutoencoderKL"))
    texts = TextEmbeddings(
        EncodingCache(cache), zimage, {name: tiny / name for name in zimage.TEXT_PARTS}, torch.float32
    )
    latents.prepare(items, CPU, Progress())
    texts.prepare(prompts_to_encode(run.recipe, items), CPU, Progress())
    model = bare(tiny)
    network = add_network(model, lora_targets(model), run.recipe.network, 0)
    generator = torch.Generator().manual_seed(1)
    masks = LossMasks(EncodingCache(cache), 8)
    masks.prepare(items, lambda _: None)
    objective = BatchLoss(run.recipe, model, network, latents, texts, masks, 7, CPU, torch.float32, Ranks())
    made = Trainer(objective, items, Recorder())
    for parameter in made.parameters.values():
        parameter.data = 0.05 * torch.randn(parameter.shape, generator=generator)
    return made


def parts(made: Trainer, index: int) -> Iterator[Tensor]:
    """Those of the loss of a batch."""
    return made.objective.batch_losses(index, made.batches.batch(index))


def answers(made: Trainer, model: Any, index: int, texts: list[str], monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """What `model` says to the batch's noisy latents with other prompts."""
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    real = made.objective.predict

    def watched(
        clean: Tensor,
        noise: Tensor,
        t: Tensor,
        controls: Sequence[Tensor],
        captions: Sequence[str],
        items: Sequence[TrainingItem],
    ) -> Tensor:
        seen.append((clean, noise, t))
        return real(clean, noise, t, controls, captions, items)

    with monkeypatch.context() as patch:
        patch.setattr(made.objective, "predict", watched)
        next(parts(made, index))
    clean, noise, t = seen[0]
    noisy = (1 - t.view(-1, 1, 1, 1)) * clean + t.view(-1, 1, 1, 1) * noise
    with torch.no_grad():
        said = model(
            [x.unsqueeze(1) for x in noisy],
            1 - t,
            [made.objective.texts.get(text)["states"] for text in texts],
            return_dict=False,
        )
    return -torch.stack([value.float() for value in said[0]]).squeeze(2)


@pytest.mark.parametrize("network", ["lora", "lokr"])
@pytest.mark.parametrize(
    ("settings", "factor"),
    often([(CLASS, 1.0), (BLANK, 1.0), ({**BLANK, "train__blank_prompt_preservation_multiplier": 0.5}, 0.5)], 2),
)
def test_the_second_part_is_what_has_changed(
    tiny: Path,
    circles: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    network: str,
    settings: Any,
    factor: float,
) -> None:
    made = trainer(tiny, circles, tmp_path, network_type=network, settings=written(**settings))
    first, second = parts(made, 0)
    items = made.batches.batch(0)
    texts = ["" if settings is not CLASS else item.caption.replace("circle", "thing") for item in items]
    before = answers(made, bare(tiny), 0, texts, monkeypatch)
    after = answers(made, made.objective.model, 0, texts, monkeypatch)
    assert second.item() == pytest.approx(factor * (after - before).square().mean().item(), rel=1e-3)
    assert second.item() > 1e-5
    plain = trainer(tiny, circles, tmp_path, network_type=network)
    assert [part.item() for part in parts(plain, 0)] == [first.item()]


def test_both_parts_are_followed_back(tiny: Path, circles: Path, tmp_path: Path) -> None:
    made = trainer(tiny, circles, tmp_path, settings=written(**BLANK), gradient_checkpointing=True)
    together = sum(parts(made, 0))
    assert isinstance(together, Tensor)
    names, parameters = zip(*made.parameters.items(), strict=True)
    expected = torch.autograd.grad(together, parameters)
    for part in parts(made, 0):
        part.backward()  # type: ignore[no-untyped-call]
    for name, parameter, gradient in zip(names, parameters, expected, strict=True):
        assert parameter.grad is not None, name
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-7)


def test_the_target_of_a_prior_set_is_the_model_without_the_network(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(tiny, circles, tmp_path, settings=written(datasets__0__prior_reg=True))
    (part,) = parts(made, 0)
    texts = [item.caption for item in made.batches.batch(0)]
    before, after = (answers(made, model, 0, texts, monkeypatch) for model in (bare(tiny), made.objective.model))
    assert part.item() == pytest.approx((after - before).square().mean().item(), rel=1e-3)
    for parameter in made.parameters.values():
        parameter.data.zero_()
    assert next(parts(made, 0)).item() == 0.0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, None), (CLASS, "a red thing"), (BLANK, ""), ({"train__diff_output_preservation": True}, "a red ")],
)
def test_prompts_that_are_preserved(settings: dict[str, Any], expected: str | None) -> None:
    item = TrainingItem(DatasetImage(Path("x"), 64, 64, "", ""), 64, 64, "a red zc", "zc", 0.1, trigger="zc")
    run = run_with(settings=written(**settings))
    assert preserved_prompt(run.recipe.loss, item, item.caption) == expected
    weighed = run_with(
        settings=written(**CLASS, train__diff_output_preservation_multiplier=3)
    ).recipe.loss.preservation
    assert weighed is not None and weighed.weight == 3.0


def test_the_loss_of_a_batch_is_bounded(tiny: Path, circles: Path, tmp_path: Path) -> None:
    losses = [
        next(parts(trainer(tiny, circles, tmp_path, settings=written(**s)), 0)).item()
        for s in ({}, {"train__max_loss": 0.5})
    ]
    assert losses[0] > 0.6 and losses[1] == pytest.approx(0.5)


def test_a_run_with_preservation_and_regularisation(tiny: Path, circles: Path, tmp_path: Path) -> None:
    """Step 2 is the regularisation set's, and what it is compared with is the model as it was."""
    run = run_with(steps=4, trigger_word="circle", save_every=100)
    regular = Dataset("datasets/1", "circles", ".txt", (64,), is_regularisation=True)
    settings = written(**CLASS, datasets__1__prior_reg=True)
    losses = go(
        changed(run, datasets=(*run.recipe.datasets, regular), settings=settings), tiny, circles, tmp_path
    ).losses
    assert 0 < losses[2] < 0.3 * min(losses[0], losses[1], losses[3])
