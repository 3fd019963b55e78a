"""ai-toolkit's dialect: a parsed config to Runs, with the trainer's own defaults and aliases (commit 27a03a91)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ...configs.words import joined
from ...configs.written import Written
from ...model import Run, Value
from .recipe import keys_of, recipe_of

JOBS = ("extension", "train", "extract", "generate", "mod")
TRAINERS = ("sd_trainer", "diffusion_trainer", "ui_trainer")
OTHER_TRAINING = (
    "textual_inversion_trainer",
    "concept_slider",
    "image_reference_slider_trainer",
    "ultimate_slider_trainer",
    "concept_replacer",
    "slider",
    "slider_old",
    "vae",
    "lora_hack",
    "rescale_sd",
    "esrgan",
    "reference",
)


def misspelt(process_type: object) -> str | None:
    """The trainer that was meant by a process type that is none; extensions of one's own stay as they are."""
    if not isinstance(process_type, str) or process_type in TRAINERS + OTHER_TRAINING:
        return None
    from difflib import get_close_matches

    near = get_close_matches(process_type, (*TRAINERS, *OTHER_TRAINING[:5]), 1, 0.85)
    return near[0] if near else None


def runs(path: str, values: Mapping[str, Value]) -> tuple[tuple[Run, ...], str]:
    """The training runs of a parsed config by its values, and why there are none."""
    job = values["/job"].value
    processes = values["/config/process"].value
    if job not in ("extension", "train"):
        return (), f"this is an {job} job: nothing is trained" if job == "extract" else f"a {job} job trains nothing"
    trained = [index for index, process in enumerate(processes) if process["type"] in TRAINERS + OTHER_TRAINING]
    if not trained:
        return (), f"the process type {processes[0]['type']} trains nothing that zdoctor knows"
    return tuple(_run(path, values, index) for index in trained), ""


def _run(path: str, values: Mapping[str, Value], index: int) -> Run:
    root = f"/config/process/{index}"
    prefix = root + "/"
    settings = {pointer[len(prefix) :]: value for pointer, value in values.items() if pointer.startswith(prefix)}
    w = Written(settings)
    whole = Written(values)
    keys = keys_of(w)
    recipe = recipe_of(w, keys)
    job_name = str(whole.raw("/config/name"))
    name = w.text("name", default=job_name)
    folder = w.maybe("training_folder")
    if folder is None and whole.raw("/job") == "train":
        folder = whole.maybe("/config/training_folder")
    return Run(
        trainer="ai-toolkit",
        config=path,
        root=root,
        index=index,
        kind=_kind(w),
        process_type=w.text("type"),
        name=name,
        device=w.text("device", default="cuda"),
        output_folder=None if folder is None else joined(folder, name),
        metadata=whole.mapping("/meta"),
        settings=settings,
        keys=keys,
        recipe=recipe,
        read=frozenset(w.read),
    )


def _kind(w: Written) -> Literal["lora", "finetune", "other"]:
    if w.text("type") not in TRAINERS:
        return "other"
    if w.has("network"):
        return "lora"
    if w.has("embedding") or w.has("decorator") or w.below("adapter").flag("train"):
        return "other"
    return "finetune"
