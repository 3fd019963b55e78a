"""What would lower the peak of a run whose config is ai-toolkit's, in its words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..architectures.sizes import Sizes
from ..model import Alternative, DatasetFolder, Gpu, Run, TrainingEffect, Value
from ..model.families import NEVER_OFFLOADED, OWN
from .peaks import highest_of, peak_of


def alternatives_of(
    run: Run,
    sizes: Sizes,
    datasets: Sequence[DatasetFolder],
    card: Gpu | None,
    host_peak: Callable[[Run], int],
    host_free: int,
) -> Iterator[Alternative]:
    """Settings of ai-toolkit that lower the peak, the harmless first, each on top of the ones before it.

    None takes more host memory than is free, unless the run as written does.
    """
    if run.trainer not in ("ai-toolkit", OWN) or run.keys.get("dtype") != "train/dtype":
        return
    best = highest_of(run, sizes, datasets, card)
    host_most = max(host_free, host_peak(run))
    while True:
        for settings, effect, change in _steps(run):
            changed = change(run)
            if host_peak(changed) <= host_most and (high := highest_of(changed, sizes, datasets, card)) < best:
                run, best = changed, high
                yield Alternative(settings, effect, peak_of(run, sizes, datasets, card), high)
                break  # what did not matter before may matter now, and the harmless come first again
        else:
            return


def _steps(run: Run) -> Iterator[tuple[tuple[tuple[str, Any], ...], TrainingEffect, Any]]:
    shuffled = any(
        run.setting(f"{dataset.key}/shuffle_tokens") is True or f"{dataset.key}/token_dropout_rate" in run.settings
        for dataset in run.datasets
    )
    if run.setting("model/low_vram") is not True:
        on = Value(True, run.where("model/low_vram"), 0, 0)
        key = (("model/low_vram", True),)
        yield key, "none", lambda r: replace(r, settings={**r.settings, "model/low_vram": on})
    if not run.cache_text_embeddings and not shuffled and run.setting("train/train_text_encoder") is not True:
        key = (("train/cache_text_embeddings", True),)
        yield key, "equivalent", lambda r: replace(r, cache_text_embeddings=True)
    if not run.gradient_checkpointing:
        key = (("train/gradient_checkpointing", True),)
        yield key, "equivalent", lambda r: replace(r, gradient_checkpointing=True)
    if run.batch_size > 1:
        accumulate = run.batch_size * run.gradient_accumulation
        yield (
            (
                (run.keys.get("gradient_accumulation", "train/gradient_accumulation"), accumulate),
                ("train/batch_size", 1),
            ),
            "equivalent",
            lambda r: replace(r, batch_size=1, gradient_accumulation=accumulate),
        )
    if run.quantization is None:
        # ai-toolkit quantizes the text encoder along with the transformer unless quantize_te says otherwise
        encoder = run.text_encoder_quantization if "model/quantize_te" in run.settings else "qfloat8"
        yield (
            (("model/quantize", True), ("model/qtype", "qfloat8")),
            "changes-result",
            lambda r: replace(r, quantization="qfloat8", text_encoder_quantization=encoder),
        )
    if run.text_encoder_quantization is None:
        key = (("model/quantize_te", True),)
        yield key, "changes-result", lambda r: replace(r, text_encoder_quantization="qfloat8")
    if _may_offload(run):
        away = Value(True, run.where("model/layer_offloading"), 0, 0)
        # ai-toolkit then takes float8 for qfloat8, which rounds in another way
        effect: TrainingEffect = (
            "changes-result" if run.trainer != OWN and run.quantization == "qfloat8" else "equivalent"
        )
        key = (("model/layer_offloading", True),)
        yield key, effect, lambda r: replace(r, settings={**r.settings, "model/layer_offloading": away})
    for limit in (1024, 768, 512):
        if not any(resolution > limit for dataset in run.datasets for resolution in dataset.resolutions):
            continue
        lowered = tuple(
            replace(dataset, resolutions=tuple(dict.fromkeys(min(r, limit) for r in dataset.resolutions)))
            for dataset in run.datasets
        )
        settings = tuple(
            (f"{new.key}/resolution", list(new.resolutions))
            for old, new in zip(run.datasets, lowered, strict=True)
            if old.resolutions != new.resolutions
        )
        yield settings, "changes-result", lambda r, lowered=lowered: replace(r, datasets=lowered)


def _may_offload(run: Run) -> bool:
    """Whether blocks can wait in host memory and do not yet. It takes time in every step, but no picture less."""
    loads = run.trainer == OWN or run.architecture not in NEVER_OFFLOADED
    together = not any(run.setting(f"model/{name}") for name in ("layer_offloading", "compile", "block_compile"))
    every = run.setting("train/gradient_checkpointing_interval", 1) == 1
    return loads and together and every and run.gradient_checkpointing
