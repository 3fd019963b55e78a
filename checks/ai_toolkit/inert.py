"""CFG003: settings that are read and do nothing for this run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...doctor.families import family_of
from ...doctor.model import Config, Finding, Run, found
from ...doctor.rules import rule
from ..keys.places import key_where
from ..keys.values import without_effect
from .known_keys import TRANSFORMERS

_VIDEO = ("wan", "ltx", "minimax", "ace_step")
_ZIMAGE = ("zimage", "zimage_l2p")

# model keys that name something the user wants, and that the Z-Image loader never looks at
_UNREAD_BY_ZIMAGE = (
    "model/vae_path",
    "model/te_name_or_path",
    "model/unet_path",
    "model/lora_path",
    "model/model_paths",
    "model/vae_device",
    "model/te_device",
    "model/text_encoder_bits",
    "model/quantize_kwargs",
    "model/in_context",
)


@rule("CFG003", "warning", "inert-setting", trainers=("ai-toolkit",))
def inert_setting(config: Config, run: Run) -> Iterator[Finding]:
    """A real key that has no effect here.

    What: A setting that the trainer reads but that changes nothing for this architecture, or together with the
    other settings. What somebody may have counted on is a warning; left-over defaults are one note.
    Why: People tune, compare and wait for hours on a setting that does nothing. `model_kwargs: low_cpu_mem_usage`
    is passed on as a cure for meta tensors, but the Z-Image loader never reads model_kwargs; a meta tensor means
    that weights are missing from the files. `do_differential_guidance` is only looked at inside do_guidance_loss.
    `linear_alpha` is overwritten by the rank for every transformer model.
    Repair: Nothing has to change. Remove the key, or set the one that it depends on.
    Upstream: https://github.com/ostris/ai-toolkit/pull/974 https://github.com/ostris/ai-toolkit/issues/157
    Signature: None; the run trains as if the key were absent.
    """
    if run.kind not in ("lora", "finetune"):
        return
    counted_on = list(_counted_on(config, run))
    yield from counted_on
    if counted_on:  # these only help someone who is looking for a setting that acts
        yield from _explained(config, run)
    left_over = sorted(set(_left_over(run)), key=lambda key: (run.settings[key].start, key))
    if left_over and left_over != ["device"]:
        yield found(
            key_where(config, run.settings[left_over[0]]),
            "These settings do nothing in this run ({architecture}): {keys}.",
            otherwise="Nothing happens: they can stay or go.",
            evidence={"keys": left_over, "lines": [run.settings[key].where.line for key in left_over]},
            severity="note",
            architecture=run.recipe.architecture,
            keys=", ".join(left_over),
        )


def _counted_on(config: Config, run: Run) -> Iterator[Finding]:
    """Settings with an effect that somebody expects and does not get."""
    yield from _counted_on_in_training(config, run)
    yield from _counted_on_in_model(config, run)


def _counted_on_in_training(config: Config, run: Run) -> Iterator[Finding]:
    recipe = run.recipe
    inert = partial(without_effect, config, run)
    architecture = recipe.architecture or ""
    if run.setting("train/do_differential_guidance") and not run.setting("train/do_guidance_loss"):
        yield inert(
            "train/do_differential_guidance",
            "the trainer looks at it only when do_guidance_loss is true (a slip upstream, pull request 974), "
            "so this run trains with the plain loss",
        )
    alpha = next((k for k in ("network/linear_alpha", "network/alpha") if run.setting(k) is not None), None)
    if (
        alpha is not None
        and architecture in TRANSFORMERS
        and recipe.network.type in ("lora", "dora", "locon")
        and isinstance(run.setting(alpha), int | float)
        and run.setting(alpha) != recipe.network.rank
    ):
        yield inert(
            alpha,
            "for transformer models the trainer sets alpha to the rank ({rank}), because the saved format has no "
            "alpha; the LoRA works at full strength, not at {alpha}/{rank}. To train weaker, lower the learning rate",
            rank=recipe.network.rank,
            alpha=run.setting(alpha),
        )
    if architecture in TRANSFORMERS and recipe.timestep_sampling.noise_scheduler != "flowmatch":
        key = next((k for k in ("train/timestep_type", "train/noise_scheduler") if k in run.settings), None)
        if key == "train/timestep_type":
            yield inert(
                key,
                "it counts only with noise_scheduler: flowmatch, and this run has {scheduler}; the model is trained "
                "with its own static timesteps, mostly at high noise",
                scheduler=recipe.timestep_sampling.noise_scheduler,
            )
    yield from _unread(config, run)


def _unread(config: Config, run: Run) -> Iterator[Finding]:
    """Settings that the trainer, or the loader of this architecture, passes over."""
    recipe = run.recipe
    inert = partial(without_effect, config, run)
    for key in ("train/unet_lr", "train/text_encoder_lr"):
        if run.setting(key) is not None and run.setting(key) != run.setting("train/lr"):
            yield inert(key, "the trainer reads it and then uses lr ({lr}) for everything", lr=recipe.learning_rate)
    lr = run.setting("train/lr")
    if recipe.optimizer.name.startswith(("prodigy", "dadaptation")) and isinstance(lr, int | float) and 0 < lr < 0.1:
        yield inert(
            "train/lr",
            "{optimizer} finds the rate by itself, and the trainer replaces an lr below 0.1 by 1",
            optimizer=run.setting("train/optimizer"),
        )


def _counted_on_in_model(config: Config, run: Run) -> Iterator[Finding]:
    inert = partial(without_effect, config, run)
    architecture = run.recipe.architecture or ""
    kwargs = run.setting("model/model_kwargs")
    if isinstance(kwargs, dict) and kwargs and architecture in _ZIMAGE:
        why = "the Z-Image loader never reads model_kwargs ({names})"
        if "low_cpu_mem_usage" in kwargs or "device_map" in kwargs:
            why += (
                ". It is no cure for 'Cannot copy out of meta tensor' either: that error means that tensors are "
                "missing from the checkpoint files"
            )
        yield inert("model/model_kwargs", why, names=", ".join(map(str, kwargs)))
    if architecture in _ZIMAGE:
        if run.setting("train/train_text_encoder"):
            why = "the LoRA takes only CLIP's attention and MLP from a text encoder, and Z-Image's is Qwen3"
            yield inert("train/train_text_encoder", why)
        for key in _UNREAD_BY_ZIMAGE:
            value = run.setting(key)
            if value not in (None, "", False, {}, 16):
                yield inert(key, "the Z-Image loader never reads it")
    if run.setting("model/layer_offloading") and not family_of(architecture).ai_toolkit.offloads:
        yield inert(
            "model/layer_offloading",
            "the loader of Flux.1 never looks at it, so all weights lie on the card. What lowers the peak there is "
            "quantize, low_vram while it loads, and a smaller resolution",
        )
    device = run.setting("device")
    if isinstance(device, str) and ":" in device and device != "cuda:0":
        yield inert(
            "device",
            "the trainer always takes the first visible card; to train on {device} set CUDA_VISIBLE_DEVICES={number}",
            device=device,
            number=device.rpartition(":")[2],
        )


def _explained(config: Config, run: Run) -> Iterator[Finding]:
    """Notes on settings that work, but not as the field notes say."""
    recipe = run.recipe
    low_vram = run.settings.get("model/low_vram")
    kwargs = run.setting("model/model_kwargs")
    if low_vram is not None and recipe.architecture in _ZIMAGE and isinstance(kwargs, dict) and kwargs:
        yield found(
            key_where(config, low_vram),
            "low_vram has nothing to do with meta tensors: it only keeps the transformer in RAM while the text "
            "encoder and the VAE load, which lowers the peak of the loading, not that of the training.",
            otherwise="Nothing happens; true is the better choice on a small card.",
            severity="note",
        )
    if recipe.architecture in _ZIMAGE and recipe.adapter is not None and recipe.precision.quantization == "qfloat8":
        value = run.settings.get("model/qtype") or run.settings["model/assistant_lora_path"]
        yield found(
            key_where(config, value),
            "With an assistant LoRA the trainer replaces qtype qfloat8 by float8 for Z-Image.",
            otherwise="Nothing happens; both are eight bits wide.",
            severity="note",
        )


def _left_over(run: Run) -> Iterator[str]:
    """Written keys that do nothing here and that nobody counts on."""
    recipe = run.recipe
    architecture = recipe.architecture or ""

    def written(*keys: str) -> Iterator[str]:
        return (key for key in keys if run.setting(key) is not None)

    if run.setting("device") in ("cuda", "cuda:0", "mps", "cpu"):
        yield "device"
    yield from written("sqlite_db_path")
    if architecture not in ("flux", "flux_kontext", "flex2", "chroma"):
        yield from written("train/bypass_guidance_embedding")
    if not architecture.startswith("wan22_14b"):
        yield from written("train/switch_boundary_every")
    if recipe.network.type != "lokr":
        yield from written("network/lokr_full_rank", "network/lokr_factor", "network/old_lokr_format")
    if architecture in _ZIMAGE:
        yield from written("network/conv", "network/conv_alpha")
    if not recipe.ema.use:
        yield from written("train/ema_config/ema_decay")
    if not run.setting("model/layer_offloading"):
        yield from written(
            "model/layer_offloading_text_encoder_percent", "model/layer_offloading_transformer_percent"
        )
    if not run.setting("train/diff_output_preservation"):
        yield from written("train/diff_output_preservation_multiplier", "train/diff_output_preservation_class")
    if not run.setting("train/do_differential_guidance") or not run.setting("train/do_guidance_loss"):
        yield from written("train/differential_guidance_scale")
    yield from written("model/dtype")
    if recipe.precision.quantization is None:
        yield from written("model/qtype")
    if recipe.precision.text_encoder_quantization is None:
        yield from written("model/qtype_te")
    if architecture and not architecture.startswith(_VIDEO):
        yield from _of_videos(run)
    for dataset in recipe.datasets:
        if run.setting(f"{dataset.key}/mask_path") is None and not run.setting(f"{dataset.key}/alpha_mask"):
            yield from written(f"{dataset.key}/mask_min_value", f"{dataset.key}/invert_mask")


def _of_videos(run: Run) -> Iterator[str]:
    """Written keys that only say something of videos."""
    for key, value in run.settings.items():
        parent, _, name = key.rpartition("/")
        if value.value is None:
            continue
        if parent.startswith("datasets/") and parent.count("/") == 1:
            if name in ("shrink_video_to_frames", "do_i2v", "do_audio", "fps"):
                yield key
            if name == "num_frames" and value.value == 1:
                yield key
        if parent == "sample" and (name == "fps" or (name == "num_frames" and value.value == 1)):
            yield key
