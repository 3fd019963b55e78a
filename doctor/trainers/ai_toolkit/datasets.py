"""The datasets of ai-toolkit's configs (commit 27a03a91)."""

from __future__ import annotations

from ...configs.written import Setting, Written, fields_of
from ...model.datasets import CaptionDraw, Dataset

# The fields that one setting says; `dataset_of` adds what is left.
_FIELDS = {
    "default_caption": Setting("default_caption", Written.text),
    "caption_dropout": Setting("caption_dropout_rate", Written.number),
    "repeats": Setting("num_repeats", Written.whole, 1),
    "is_regularisation": Setting("is_reg", Written.flag),
    "frames": Setting("num_frames", Written.whole, 1),
    "mask_folder": Setting("mask_path"),
    "mask_min_value": Setting("mask_min_value", Written.number),
    "trigger_word": Setting("trigger_word"),
    "loss_multiplier": Setting("loss_multiplier", Written.number, 1.0),
    **{
        name: Setting(name, Written.flag)
        for name in ("flip_x", "flip_y", "square_crop", "alpha_mask", "invert_mask", "prior_reg")
    },
}
KEYS_OF_DATASET = {
    **{name: setting.key for name, setting in _FIELDS.items()},
    "resolutions": "resolution",
    "control_folders": "control_path",
}


def dataset_of(w: Written, number: int, bucket_step: int = 16) -> Dataset:
    key = f"datasets/{number}"
    own = w.below(key)
    written = own.raw("resolution")
    sizes = written if isinstance(written, list) else [written]
    extension = own.text("caption_ext", default=".txt")
    extension = extension if extension.startswith(".") else "." + extension
    controls = own.raw("controls")
    controls = [controls] if isinstance(controls, str) else controls if isinstance(controls, list) else []
    augmented = bool(own.raw("augments")) or bool(own.raw("augmentations"))
    return Dataset(
        key=key,
        folder=own.maybe("dataset_path") or own.maybe("folder_path"),
        caption_extension=own.text("caption_type", default=extension),
        resolutions=tuple(int(s) for s in sizes if isinstance(s, int) and not isinstance(s, bool)) or (512,),
        # the trainer turns latent caching off when images are augmented
        cache_latents_to_disk=own.flag("cache_latents_to_disk") and not augmented,
        cache_latents=own.flag("cache_latents") and not augmented,
        bucket_step=bucket_step,
        random_crop=own.flag("random_crop") and not own.flag("square_crop"),
        keeps_blanks=True,
        batches_of=key,
        controls=tuple(c for c in controls if isinstance(c, str) and c.strip()),
        control_folders=_control_folders(own),
        varied_captions=own.raw("shuffle_tokens") is True or own.raw("token_dropout_rate") is not None,
        drawn=_drawn(own),
        **fields_of(own, _FIELDS),
    )


def _drawn(own: Written) -> CaptionDraw | None:
    dropout = own.number("token_dropout_rate")
    if not own.flag("shuffle_tokens") and dropout <= 0:
        return None
    return CaptionDraw(shuffle=own.flag("shuffle_tokens"), dropout=dropout, keep=own.whole("keep_tokens"), whole=True)


def _control_folders(own: Written) -> tuple[str, ...]:
    """What is edited, by the names of the pictures; the numbered keys count before the plain one."""
    numbered = [folder for n in (1, 2, 3) if (folder := own.maybe(f"control_path_{n}"))]
    plain = own.raw("control_path")
    folders = numbered or (plain if isinstance(plain, list) else [plain])
    return tuple(folder for folder in folders if isinstance(folder, str) and folder)
