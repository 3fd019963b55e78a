"""CFG003: settings that are read and do nothing for this run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from ...doctor.families import family_of
from ...doctor.model import Config, Finding, Run, found
from ...doctor.rules import rule
from ...doctor.trainers.ai_toolkit.model_keys import unread_kwargs, unread_model_keys
from ..keys.places import key_where
from ..keys.values import without_effect
from .value_words import TRANSFORMERS

_VIDEO = ("wan", "ltx", "minimax", "ace_step")
_ZIMAGE = ("zimage", "zimage_l2p")

_OF_LOKR = ("lokr_full_rank", "lokr_factor", "old_lokr_format")
_OFFLOADED = ("text_encoder", "transformer")
_PRESERVATION = "train/diff_output_preservation"


@rule("CFG003", "warning", "inert-setting", trainers=("ai-toolkit",))
def inert_setting(config: Config, run: Run) -> Iterator[Finding]:
    """A real key that has no effect here.

    What: A setting that the trainer reads but that changes nothing for this architecture, or together with the
    other settings. What somebody may have counted on is a warning; left-over defaults are one note.
    Why: People tune, compare and wait for hours on a setting that does nothing. `model_kwargs: low_cpu_mem_usage`
    is passed on as a cure for meta tensors, but most models read nothing of model_kwargs; a meta tensor means that
    weights are missing from the files. `do_differential_guidance` is only looked at inside do_guidance_loss.
    `linear_alpha` is overwritten by the rank for every transformer model.
    Repair: Nothing has to change. Remove the key, or set the one that it depends on.
    Upstream: https://github.com/ostris/ai-toolkit/pull/974 https://github.com/ostris/ai-toolkit/issues/157
    Signature: None; the run trains as if the key were absent.
    """
    counted_on = [*_in_training(config, run), *_in_model(config, run)]
    yield from counted_on
    if counted_on:  # these only help someone who is looking for a setting that acts
        yield from _explained(config, run)
    left_over = sorted(set(_left_over(run)), key=lambda key: (run.settings[key].start, key))
    if left_over and left_over != ["device"]:
        yield found(
            key_where(config, run.settings[left_over[0]]),
            "These settings do nothing in this run ({architecture}): {named}.",
            otherwise="Nothing happens: they can stay or go.",
            evidence={"keys": left_over, "lines": [run.settings[key].where.line for key in left_over]},
            severity="note",
            architecture=run.recipe.architecture,
            named=", ".join(left_over),
        )


def _in_training(config: Config, run: Run) -> Iterator[Finding]:
    """Settings of the training with an effect that somebody expects and does not get."""
    recipe = run.recipe
    inert = partial(without_effect, config, run)
    transformer = recipe.architecture in TRANSFORMERS
    if run.setting("train/do_differential_guidance") and not run.setting("train/do_guidance_loss"):
        why = "the trainer looks at it only when do_guidance_loss is true (a slip upstream, pull request 974), so "
        why += "this run trains with the plain loss"
        yield inert("train/do_differential_guidance", why)
    key = next((k for k in ("network/linear_alpha", "network/alpha") if run.setting(k) is not None), "")
    alpha, rank = run.setting(key), recipe.network.rank
    is_lora = transformer and recipe.network.type in ("lora", "dora", "locon")
    if is_lora and isinstance(alpha, int | float) and alpha != rank:
        why = "for transformer models the trainer sets alpha to the rank ({rank}), because the saved format has no "
        why += "alpha; the LoRA works at full strength, not at {alpha}/{rank}. To train weaker, lower the "
        why += "learning rate"
        yield inert(key, why, rank=rank, alpha=alpha)
    scheduler = recipe.timestep_sampling.noise_scheduler
    if transformer and scheduler != "flowmatch" and "train/timestep_type" in run.settings:
        why = "it counts only with noise_scheduler: flowmatch, and this run has {scheduler}; the model is trained "
        why += "with its own static timesteps, mostly at high noise"
        yield inert("train/timestep_type", why, scheduler=scheduler)
    lr = run.setting("train/lr")
    for key in ("train/unet_lr", "train/text_encoder_lr"):
        if run.setting(key) not in (None, lr):
            yield inert(key, "the trainer reads it and then uses lr ({lr}) for everything", lr=recipe.learning_rate)
    if recipe.optimizer.name.startswith(("prodigy", "dadaptation")) and isinstance(lr, int | float) and 0 < lr < 0.1:
        why = "{optimizer} finds the rate by itself, and the trainer replaces an lr below 0.1 by 1"
        yield inert("train/lr", why, optimizer=run.setting("train/optimizer"))


def _in_model(config: Config, run: Run) -> Iterator[Finding]:
    """Settings of the model with an effect that somebody expects and does not get."""
    inert = partial(without_effect, config, run)
    architecture = run.recipe.architecture or ""
    if kwargs := unread_kwargs(run):
        why = "nothing of this model reads {names}"
        if "low_cpu_mem_usage" in kwargs or "device_map" in kwargs:
            why = (
                "nothing of this model reads {names}. It is no cure for 'Cannot copy out of meta tensor' either: "
                "that error means that tensors are missing from the checkpoint files"
            )
        yield inert("model/model_kwargs", why, names=", ".join(kwargs))
    if architecture in _ZIMAGE and run.setting("train/train_text_encoder"):
        why = "the LoRA takes only CLIP's attention and MLP from a text encoder, and Z-Image's is Qwen3"
        yield inert("train/train_text_encoder", why)
    for key in unread_model_keys(run):
        yield inert(key, "nothing of this model reads it")
    if run.setting("model/layer_offloading") and not family_of(architecture).ai_toolkit.offloads:
        why = "the loader of Flux.1 never looks at it, so all weights lie on the card. What lowers the peak there is "
        why += "quantize, low_vram while it loads, and a smaller resolution"
        yield inert("model/layer_offloading", why)
    device = run.setting("device")
    if isinstance(device, str) and ":" in device and device != "cuda:0":
        why = "the trainer always takes the first visible card; to train on {device} set "
        why += "CUDA_VISIBLE_DEVICES={number}"
        yield inert("device", why, device=device, number=device.rpartition(":")[2])


def _explained(config: Config, run: Run) -> Iterator[Finding]:
    """Notes on settings that work, but not as the field notes say."""
    recipe = run.recipe
    if recipe.architecture not in _ZIMAGE:
        return
    low_vram = run.settings.get("model/low_vram")
    kwargs = run.setting("model/model_kwargs")
    if low_vram is not None and isinstance(kwargs, dict) and kwargs:
        yield found(
            key_where(config, low_vram),
            "low_vram has nothing to do with meta tensors: it only keeps the transformer in RAM while the text "
            "encoder and the VAE load, which lowers the peak of the loading, not that of the training.",
            otherwise="Nothing happens; true is the better choice on a small card.",
            severity="note",
        )
    if recipe.adapter is not None and recipe.precision.quantization == "qfloat8":
        yield found(
            key_where(config, run.settings.get("model/qtype") or run.settings["model/assistant_lora_path"]),
            "With an assistant LoRA the trainer replaces qtype qfloat8 by float8 for Z-Image.",
            otherwise="Nothing happens; both are eight bits wide.",
            severity="note",
        )


def _left_over(run: Run) -> Iterator[str]:
    """Written keys that do nothing here and that nobody counts on."""
    recipe = run.recipe
    architecture = recipe.architecture or ""
    guided = run.setting("train/do_differential_guidance") and run.setting("train/do_guidance_loss")
    for acts, *keys in (
        (run.setting("device") not in ("cuda", "cuda:0", "mps", "cpu"), "device"),
        (False, "sqlite_db_path", "model/dtype"),
        (architecture in ("flux", "flux_kontext", "flex2", "chroma"), "train/bypass_guidance_embedding"),
        (architecture.startswith("wan22_14b"), "train/switch_boundary_every"),
        (recipe.network.type == "lokr", *(f"network/{key}" for key in _OF_LOKR)),
        (architecture not in _ZIMAGE, "network/conv", "network/conv_alpha"),
        (recipe.ema.use, "train/ema_config/ema_decay"),
        (run.setting("model/layer_offloading"), *(f"model/layer_offloading_{part}_percent" for part in _OFFLOADED)),
        (run.setting(_PRESERVATION), f"{_PRESERVATION}_multiplier", f"{_PRESERVATION}_class"),
        (guided, "train/differential_guidance_scale"),
        (recipe.precision.quantization, "model/qtype"),
        (recipe.precision.text_encoder_quantization, "model/qtype_te"),
        *(
            (
                run.setting(f"{dataset.key}/mask_path") is not None or run.setting(f"{dataset.key}/alpha_mask"),
                f"{dataset.key}/mask_min_value",
                f"{dataset.key}/invert_mask",
            )
            for dataset in recipe.datasets
        ),
    ):
        yield from () if acts else (key for key in keys if run.setting(key) is not None)
    if architecture and not architecture.startswith(_VIDEO):
        yield from filter(partial(_is_of_videos, run), run.settings)


def _is_of_videos(run: Run, key: str) -> bool:
    """Whether a written key only says something of videos."""
    section, _, name = re.sub(r"/\d+", "", key).rpartition("/")
    value = run.setting(key)
    if value is None or section not in ("datasets", "sample"):
        return False
    words = ("shrink_video_to_frames", "do_i2v", "do_audio", "fps") if section == "datasets" else ("fps",)
    return name in words or (name == "num_frames" and value == 1)
