"""sd-scripts and musubi-tuner."""

from __future__ import annotations

from ...model.crashes import Known

KNOWN = (
    Known(
        "sd-scripts found no picture and ended without training, with the exit code of success.",
        "train_data_dir is the folder above folders such as 10_cat, which hold the pictures.",
        rule="KOH004",
        line="No data found. Please verify",
    ),
    Known(
        "A text encoder was loaded in 8 bits, and its embedding has no such arithmetic.",
        "For Flux take --fp8_base_unet in the place of --fp8_base: the text encoders then stay in 16 bits.",
        error="RuntimeError",
        text=r"not implemented for 'Float8",
    ),
    Known(
        "A text encoder is to be used that was not loaded: its outputs are cached while it is to be trained, or its "
        "file is not named.",
        "Either train it or cache its outputs (--network_train_unet_only), and name --clip_l and --t5xxl.",
        error="AttributeError",
        text=r"'NoneType' object has no attribute '(to|dtype|device)'",
        rule="KOH003",
        where=r"text_encoder|t5xxl|clip_l",
    ),
)
