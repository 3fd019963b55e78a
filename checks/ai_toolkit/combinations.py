"""The part of CFG004 about settings that are missing, or that exclude each other."""

from __future__ import annotations

from collections.abc import Iterator

from ...doctor.model import Finding, Run, found
from ..keys.values import CACHE, END, LORA, SAMPLE, START, STEP, bad


def missing(run: Run) -> Iterator[Finding]:
    recipe = run.recipe
    if run.output_folder is None:
        yield bad(run, "training_folder", "{key} is missing: the run has nowhere to write.", START)
    if recipe.base_model is None:
        yield bad(run, "model/name_or_path", "{key} is missing: there is no model to train.", START)
    samples_only = run.setting("train/steps") == 0
    if not recipe.datasets and not isinstance(run.setting("datasets"), dict) and not samples_only:
        when = START if recipe.cache_text_embeddings or run.setting("train/cache_text_embeddings") else STEP
        yield bad(run, "datasets", "The config names no dataset: there is nothing to train on.", when)
    for dataset in recipe.datasets:
        if dataset.folder is None:
            why = "{key} is missing, and dataset_path too: this dataset has no folder."
            yield bad(run, f"{dataset.key}/folder_path", why, CACHE)
        if run.setting(f"{dataset.key}/poi") is not None:
            yield bad(run, f"{dataset.key}/poi", "{key} is set, but the trainer no longer supports it.", START)
    rank = next((k for k in ("network/rank", "network/linear") if run.setting(k) is not None), "")
    number = run.setting(rank)
    if isinstance(number, int | float) and number <= 0 and recipe.network.type != "lokr":
        yield bad(run, rank, "{key} is {value}: a LoRA of this rank has no weights.", LORA)
    steps = run.setting("train/steps")
    if isinstance(steps, int | float) and not isinstance(steps, bool) and steps < 1:
        why = "{key} is {value}: the run trains nothing."
        yield bad(run, "train/steps", why, "the run ends at once", severity="warning")
    if run.setting("save/push_to_hub") and run.setting("save/hf_repo_id") is None:
        why = "{key} is on, but save/hf_repo_id does not name the repository to push to."
        yield bad(run, "save/push_to_hub", why, END)


def exclusive(run: Run) -> Iterator[Finding]:
    """Settings that the trainer refuses together."""
    recipe = run.recipe
    if run.setting("type") == "ui_trainer" and not (run.where("").path or "").endswith(".job_config.json"):
        why = "A process of type ui_trainer is for the web interface, which starts it with AITK_JOB_ID; run.py takes "
        why += "sd_trainer or diffusion_trainer."
        otherwise = "Started by run.py, the run ends at the start: AITK_JOB_ID not set, or no aitk_db.db."
        yield found(run.where("type"), why, otherwise=otherwise, severity="warning")

    def on(key: str) -> bool:
        return bool(run.setting(key))

    accumulation, steps = (run.setting(f"train/gradient_accumulation{end}") for end in ("", "_steps"))
    if isinstance(accumulation, int) and accumulation > 1 and isinstance(steps, int) and steps != 1:
        why = "gradient_accumulation and gradient_accumulation_steps exclude each other. Keep gradient_accumulation."
        yield bad(run, "train/gradient_accumulation_steps", why, START)
    qtype = run.setting("model/qtype")
    recovery = on("model/accuracy_recovery_adapter") or (isinstance(qtype, str) and "|" in qtype)
    if recipe.adapter is not None and recovery:
        why = "An assistant LoRA and an accuracy-recovery adapter (accuracy_recovery_adapter, or the part after '|' "
        why += "in qtype) exclude each other."
        yield bad(run, "model/assistant_lora_path", why, START)
    if on("train/train_text_encoder") and (recipe.cache_text_embeddings or on("train/unload_text_encoder")):
        why = "{key} is on, but a text encoder cannot be trained once it is unloaded (by cache_text_embeddings or "
        why += "unload_text_encoder)."
        yield bad(run, "train/train_text_encoder", why, CACHE)
    cached = [on(f"{dataset.key}/cache_text_embeddings") for dataset in recipe.datasets]
    if any(cached) and not all(cached) and not on("train/cache_text_embeddings"):
        why = "All datasets must cache text embeddings, or none: set train/cache_text_embeddings."
        yield bad(run, f"datasets/{cached.index(False)}/cache_text_embeddings", why, START)
    if on("train/diff_output_preservation") and on("train/blank_prompt_preservation"):
        why = "diff_output_preservation and blank_prompt_preservation exclude each other."
        yield bad(run, "train/blank_prompt_preservation", why, START)
    if on("train/diff_output_preservation") and recipe.trigger_word is None:
        yield bad(run, "train/diff_output_preservation", "{key} is on, but it needs a trigger_word.", START)
    if on("train/bypass_guidance_embedding") and on("train/do_guidance_loss"):
        why = "bypass_guidance_embedding and do_guidance_loss exclude each other."
        yield bad(run, "train/bypass_guidance_embedding", why, START)
    for key in ("model/attn_masking", "model/split_model_over_gpus"):
        # asked before arch is looked at, so arch: flux does not help
        if on(key) and not on("model/is_flux"):
            yield bad(run, key, "{key} is for Flux models only, and only where is_flux: true is written.", START)
    if on("model/inference_lora_path") and recipe.architecture in ("zimage", "zimage_l2p"):
        why = "{key} is set, but Z-Image has no place for an inference LoRA."
        yield bad(run, "model/inference_lora_path", why, SAMPLE)
    if not recipe.validation.disabled:
        yield from _while_sampling(run)


def _while_sampling(run: Run) -> Iterator[Finding]:
    """What this architecture cannot sample with."""
    recipe = run.recipe
    if recipe.architecture in ("flux_kontext", "flex2"):
        for key in ("model/assistant_lora_path", "model/inference_lora_path"):
            if run.setting(key):
                yield bad(run, key, "{key} is set, but this architecture has no place for such a LoRA.", SAMPLE)
    bare = [sample.prompt for sample in recipe.validation.prompts if not sample.control]
    if recipe.architecture in ("flux_kontext", "wan21_i2v") and bare:
        why = "Samples of Kontext edit an image, and '{prompt}' names none: give it ctrl_img (or --ctrl_img FILE "
        why += "in the prompt)."
        if recipe.architecture == "wan21_i2v":
            why = "Samples of this model start from an image, and '{prompt}' names none: give it ctrl_img."
        key = run.keys.get("samples", "sample/samples")
        yield bad(run, key, why, SAMPLE, prompt=bare[0])
