"""What an editor shows beside a key: what is known of it beside its default, and which rule speaks of it."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.schema import Key

# ai-toolkit, at commit 27a03a91; each is what the rule says when it finds it
KNOWN: Mapping[str, tuple[str, str]] = {
    "network/linear_alpha": ("CFG003", "For transformer models the trainer sets it to the rank."),
    "network/alpha": ("CFG003", "For transformer models the trainer sets it to the rank."),
    "network/conv": ("CFG003", "Z-Image has no convolutions, so it does nothing there."),
    "train/do_differential_guidance": ("CFG003", "The trainer looks at it only when do_guidance_loss is true."),
    "train/timestep_type": ("CFG003", "It counts only with noise_scheduler: flowmatch."),
    "train/unet_lr": ("CFG003", "The trainer reads it and then uses lr for everything."),
    "train/text_encoder_lr": ("CFG003", "The trainer reads it and then uses lr for everything."),
    "train/lr_scheduler": ("CFG004", "linear rises to lr and never falls; the one that decays is cosine."),
    "train/dtype": ("CFG004", "It replaces model/dtype, too. Without it the trainer computes in fp32."),
    "train/optimizer": ("CFG004", "An unknown name stops the trainer after the model was loaded and quantized."),
    "train/loss_type": ("CFG004", "An unknown name is mse."),
    "model/arch": ("CFG004", "What stands behind a colon is a tag. An unknown name is taken for Stable Diffusion 1."),
    "model/model_kwargs": ("CFG003", "The Z-Image loader never reads it."),
    "model/low_vram": ("CFG003", "It lowers the peak of the loading, not that of the training."),
    "model/name_or_path": ("MDL001", "A repository on the hub, a folder or a file."),
    "model/assistant_lora_path": ("PTH003", "For Z-Image a file, or owner/repository/file on the hub; not a folder."),
    "model/inference_lora_path": ("CFG004", "Z-Image has no place for it."),
    "datasets/*/folder_path": ("PTH001", "The trainer writes its size list and its caches into this folder."),
    "sample/guidance_scale": ("TRN005", "A turbo model wants 1."),
    "training_folder": ("PTH001", "The run is written to a folder of its name in it."),
    "device": ("CFG003", "The trainer takes the first visible card; CUDA_VISIBLE_DEVICES chooses it."),
    "sqlite_db_path": ("CFG003", "It does nothing in a run started from a terminal."),
    "save/dtype": ("CFG004", "The precision of the saved LoRA."),
}  # fmt: skip


def hover(trainer: str, path: str, key: Key) -> str:
    """One or two sentences about a key; "" where nothing is known of it."""
    said: list[str] = []
    if key.has_default and key.default is not None:
        said.append(f"Default: {_shown(key.default)}.")
    rule, sentence = KNOWN.get(path, ("", "")) if trainer == "ai-toolkit" else ("", "")
    if sentence:
        said.append(f"{sentence} (zdoctor explain {rule})")
    elif key.strict:
        said.append("Any other value stops the trainer. (zdoctor explain CFG004)")
    return " ".join(said)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, str) else str(value)
