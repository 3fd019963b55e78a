"""sd-scripts, read at 48d368fa of February 2026, and musubi-tuner, read at 30c658c of June 2026."""

from __future__ import annotations

from ...model.crashes import Known

KNOWN = (
    Known(
        "sd-scripts found no picture and ended without training, with the exit code of success.",
        "train_data_dir is the folder above folders such as 10_cat, which hold the pictures.",
        rule="KOH004",
        line="No data found. Please verify",
        source="https://github.com/kohya-ss/sd-scripts/blob/48d368fa/flux_train.py",
    ),
    Known(
        "A text encoder was loaded in 8 bits, and its embedding has no such arithmetic.",
        "For Flux take --fp8_base_unet in the place of --fp8_base: the text encoders then stay in 16 bits.",
        error="RuntimeError",
        text=r"not implemented for 'Float8",
        source="https://github.com/kohya-ss/sd-scripts/issues/1453",
    ),
    Known(
        "A text encoder is to be used that was not loaded: its outputs are cached while it is to be trained, or its "
        "file is not named.",
        "Either train it or cache its outputs (--network_train_unet_only), and name --clip_l and --t5xxl.",
        error="AttributeError",
        text=r"'NoneType' object has no attribute '(to|dtype|device)'",
        rule="KOH003",
        where=r"text_encoder|t5xxl|clip_l",
        source="https://github.com/kohya-ss/sd-scripts/issues/1518",
    ),
    Known(
        "The loss is not a number, from then on for good: the weights that are saved hold none, either.",
        "Begin again: make the caches of latents and text encoder outputs anew, take bf16 in the place of fp16 (for "
        "SDXL --no_half_vae), a lower learning rate, and a base model that is not in an 8-bit form of its own.",
        avoid="What was saved since cannot be mended, and going on from it gives no number again.",
        line="avr_loss=nan",
        least=2,
        source="https://github.com/kohya-ss/musubi-tuner/issues/26",
    ),
    Known(
        "The VAE gave no numbers for this picture: in fp16 it overflows.",
        "For SDXL write --no_half_vae; elsewhere let the VAE run in bf16 or float32. When it is one picture only, "
        "look "
        "at that one.",
        words=("NaN detected in latents",),
        source="https://github.com/kohya-ss/sd-scripts/blob/48d368fa/library/train_util.py",
    ),
    Known(
        "A text encoder gave no numbers for a caption: in fp16 T5 and others overflow.",
        "Let the text encoder run in bf16 or float32 and make the caches of its outputs anew.",
        words=("NaN detected in text encoder outputs",),
        source="https://github.com/kohya-ss/sd-scripts/blob/48d368fa/library/train_util.py",
    ),
    Known(
        "musubi-tuner found nothing to train on: no picture or video of the dataset has both caches, of latents and "
        "of "
        "text encoder outputs.",
        "Run the model's two cache scripts with this same dataset config, then look whether they found pictures; "
        "cache_directory has to be the same as then, and a caption has to be there for each picture.",
        rule="KOH006",
        words=("No training items found in the dataset",),
        source="https://github.com/kohya-ss/musubi-tuner/issues/412",
    ),
    Known(
        "The dataset is empty: no picture was found, or none with the caches that are to be made before.",
        "Look at the lines above that count the pictures; with musubi-tuner run the cache scripts with this same "
        "dataset config.",
        words=("num_samples should be a positive integer value, but got num_samples=0",),
        source="https://github.com/kohya-ss/musubi-tuner/issues/43",
    ),
    Known(
        "The dataset's folder holds no video (or picture) with a known ending directly in it.",
        "Name the folder itself that holds them: subfolders are not looked into.",
        rule="KOH004",
        words=("found 0 videos", "found 0 images"),
        source="https://github.com/kohya-ss/musubi-tuner/issues/168",
    ),
    Known(
        "Pictures or videos of the dataset have no control picture of the same name.",
        "Put one of the same name into control_directory for each, or name control_path in the JSONL file.",
        rule="DAT008",
        words=(
            "Could not find matching control",
            "do not have control paths in JSONL data",
            "Not enough control images",
        ),
        source="https://github.com/kohya-ss/musubi-tuner/blob/30c658c/src/musubi_tuner/dataset/datasources.py",
    ),
    Known(
        "Two datasets share one cache folder.",
        "Give each dataset a cache_directory of its own.",
        words=("cache directory should be unique for each dataset",),
        source="https://github.com/kohya-ss/musubi-tuner/blob/30c658c/src/musubi_tuner/dataset/config_utils.py",
    ),
    Known(
        "An entry of optimizer_args, network_args or lr_scheduler_args is not of the form name=value.",
        "Write each as name=value without blanks, several apart by blanks, each in quotes of its own.",
        error="ValueError",
        text=r"not enough values to unpack \(expected 2, got 1\)|too many values to unpack \(expected 2",
        where=r"arg\.split\([\"']=|get_optimizer|prepare_optimizer",
        source="https://github.com/kohya-ss/sd-scripts/blob/48d368fa/library/train_util.py",
    ),
)
