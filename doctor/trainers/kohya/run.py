"""A start of one of kohya's trainers as a run: what sd-scripts and musubi-tuner say in the same words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from ...configs.reading import Beside
from ...configs.written import Written
from ...model import Problem, Run
from ...model.recipe import Checkpoints, LrScheduler, Offload, Optimizer, Recipe, Validation
from ...model.record import replace
from .read import Made, with_datasets
from .samples import samples_of
from .starts import PARSED, Start, homes_of

_KEYS = {
    "output_folder": "output_dir",
    "name": "output_name",
    "datasets": "dataset_config",
    "dtype": "mixed_precision",
    "quantization": "fp8_base",
    "rank": "network_dim",
    "alpha": "network_alpha",
    "network_type": "network_module",
    "process_type": "network_module",
    "steps": "max_train_steps",
    "gradient_accumulation": "gradient_accumulation_steps",
    "optimizer": "optimizer_type",
    "optimizer_settings": "optimizer_args",
    "scheduler": "lr_scheduler",
    "scheduler_settings": "lr_scheduler_args",
    "timestep_type": "timestep_sampling",
    "save_every": "save_every_n_steps",
    "save_dtype": "save_precision",
    "sample_every": "sample_every_n_steps",
    "samples": "sample_prompts",
}
BATCH_SIZES = ("datasets/0/batch_size", "general/batch_size")


class OfTrainer(NamedTuple):
    """What only one of the trainers says of a start; `keys` are the settings behind its fields."""

    script: str
    kind: Literal["lora", "finetune", "other"]
    keys: Mapping[str, str]
    recipe: Recipe


def run_of(
    trainer: str, path: str, start: Start, index: int, beside: Beside, own: Callable[[Start, Written], OfTrainer]
) -> Made:
    """The run of one start, and the file of its datasets."""
    options = with_datasets(start, beside)
    if isinstance(options, Problem):
        return options
    settings, described = options
    w = Written(settings, PARSED, {"dataset_config"})
    script, kind, own_keys, recipe = own(start, w)
    keys = _KEYS | dict(own_keys)
    keys["batch_size"] = next((key for key in BATCH_SIZES if key in settings), keys["batch_size"])
    if w.whole("max_train_epochs") > 0:
        keys["steps"] = "max_train_epochs"
    recipe = replace(
        recipe,
        steps=w.whole("max_train_steps", default=1600),
        gradient_accumulation=w.whole("gradient_accumulation_steps", default=1),
        max_grad_norm=w.number("max_grad_norm", default=1.0),
        seed=w.whole("seed") if w.has("seed") else None,
        network=replace(
            recipe.network, rank=w.whole("network_dim", default=4), alpha=w.number("network_alpha", default=1.0)
        ),
        offload=Offload(gradient_checkpointing=w.flag("gradient_checkpointing")),
        optimizer=Optimizer(w.text("optimizer_type", default="adamw").lower(), w.pairs("optimizer_args")),
        lr_scheduler=LrScheduler(w.text("lr_scheduler", default="constant"), w.pairs("lr_scheduler_args")),
        timestep_sampling=replace(recipe.timestep_sampling, type=w.text("timestep_sampling", default="sigma")),
        checkpoints=Checkpoints(every=w.whole("save_every_n_steps"), dtype=w.text("save_precision", default="float")),
        validation=Validation(
            disabled=not w.has("sample_prompts"),
            every=w.whole("sample_every_n_steps"),
            prompts=samples_of(w.text("sample_prompts"), trainer, recipe.architecture, beside),
        ),
    )
    made = Run(
        trainer=trainer,
        config=path,
        root="",
        index=index,
        kind=kind,
        process_type=script,
        name=w.text("output_name", default="last"),
        recipe=recipe,
        output_folder=w.maybe("output_dir"),
        settings={key: value for key, value in settings.items() if key not in ("general", "datasets")},
        keys=keys,
        homes=homes_of(described),
        read=frozenset(w.read),
    )
    return made, described
