"""sd-scripts, musubi-tuner, SimpleTuner and scripts of one's own."""

from __future__ import annotations

from ..shapes import META, launcher, musubi, panel, script, sd_scripts, simpletuner

CASES: dict[str, tuple[str, str, str]] = {
    # sd-scripts and musubi-tuner
    "VAE of another kind": (
        sd_scripts(META, "vae.to(accelerator.device, dtype=vae_dtype)"),
        "MDL001",
        "missing from its files",
    ),
    "Flux of another kind": (
        panel(
            META,
            r"C:\kohya_ss\sd-scripts\flux_train_network.py",
            "cache_text_encoder_outputs_if_needed",
            'unet.to("cpu")',
        ),
        "MDL001",
        "missing from its files",
    ),
    "8-bit embedding": (
        sd_scripts("RuntimeError: \"index_select_cuda\" not implemented for 'Float8_e4m3fn'"),
        "",
        "8 bits",
    ),
    "8-bit kind": (sd_scripts("ValueError: Unsupported fp8 model dtype: torch.float8_e5m2"), "KOH003", ""),
    "not named": (sd_scripts("TypeError: expected str, bytes or os.PathLike object, not NoneType"), "KOH001", ""),
    "no text encoder loaded": (
        sd_scripts("AttributeError: 'NoneType' object has no attribute 'to'", "text_encoders[0].to(device)"),
        "KOH003",
        "not loaded",
    ),
    "no network module": (
        sd_scripts("AttributeError: 'NoneType' object has no attribute 'startswith'"),
        "KOH002",
        "",
    ),
    "Flux without blocks": (sd_scripts("ValueError: max() arg is an empty sequence"), "KOH016", ""),
    "cached with random_crop": (
        sd_scripts("AssertionError: when caching latents, either color_aug or random_crop cannot be used / latentを"),
        "KOH003",
        "",
    ),
    "too many swapped": (
        sd_scripts("AssertionError: Cannot swap more than 17 double blocks and 36 single blocks. Requested 18"),
        "KOH003",
        "",
    ),
    "swap and offload": (
        sd_scripts(
            "AssertionError: blocks_to_swap is not supported with cpu_offload_checkpointing / blocks_to_swapは"
        ),
        "KOH003",
        "",
    ),
    "broken TOML": (
        sd_scripts("toml.decoder.TomlDecodeError: Key name found without value (line 1 column 1 char 0)"),
        "CFG001",
        "",
    ),
    "wrong key in a dataset file": (
        sd_scripts("voluptuous.error.MultipleInvalid: extra keys not allowed @ data['datasets'][0]['resoluton']"),
        "CFG002",
        "",
    ),
    "no pictures, no training": (
        "                    ERROR    No data found. Please verify arguments (train_data_dir   train_network.py:576\n"
        "                             must be the parent of folders with images) / 画像がありません。\n",
        "KOH004",
        "without training",
    ),
    "access violation": (sd_scripts("x").split("Traceback")[0] + "\n" + launcher(3221225477), "MEM002", "0xC0000005"),
    "no caches": (
        musubi(
            "ValueError: No training items found in the dataset. Please ensure that the latent/Text Encoder cache"
        ),
        "KOH006",
        "",
    ),
    "fp8_scaled": (
        musubi("AssertionError: fp8_scaled requires fp8_base / fp8_scaledはfp8_baseが必要です"),
        "KOH003",
        "",
    ),
    # SimpleTuner
    "model_family z-image": (
        simpletuner(
            "argparse.ArgumentError: argument --model_family: invalid choice: 'z-image' (choose from 'z_image')"
        )
        + "ValueError: Could not parse command line arguments:\n",
        "CFG004",
        "",
    ),
    "printed by argparse": (
        "usage: train.py [-h]\ntrain.py: error: argument --base_model_precision: invalid choice: 'int8' (choose "
        "from)\n" + launcher(2),
        "CFG004",
        "",
    ),
    "unknown option": ("train.py: error: unrecognized arguments: --quantise=1\n" + launcher(2), "CFG002", ""),
    "steps and epochs": (
        simpletuner(
            "ValueError: When using --max_train_steps (MAX_NUM_STEPS), you must set --num_train_epochs "
            "(NUM_EPOCHS) to 0."
        ),
        "SIM002",
        "",
    ),
    "no bf16": (
        simpletuner("ValueError: Model is not using bf16 precision, but the optimizer adamw_bf16 requires it."),
        "SIM003",
        "",
    ),
    "two engines": (
        simpletuner("ValueError: Cannot enable Quanto and TorchAO together. One quant engine must be used for all"),
        "SIM003",
        "",
    ),
    "DeepSpeed": (
        "[RANK 0] 2026-11-21 10:00:00,123 [ERROR] LoRA can not be trained with DeepSpeed. Please disable "
        "DeepSpeed via\n" + launcher(1),
        "SIM003",
        "DeepSpeed",
    ),
    "offloading of Quanto's weights": (
        simpletuner(
            "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 "
            "and cpu!",
            "x",
            "/usr/lib/python3/dist-packages/diffusers/hooks/group_offloading.py",
        ),
        "SIM005",
        "Quanto",
    ),
    "no dataset file": (
        simpletuner("FileNotFoundError: Data backend config file nope.json not found."),
        "SIM006",
        "",
    ),
    "no dataset folder": (
        simpletuner(
            "FileNotFoundError: The following dataset directories do not exist:\n  - (id=a) instance_data_dir: /x"
        ),
        "PTH004",
        "",
    ),
    "no text file": (simpletuner("FileNotFoundError: Caption file /data/a.txt not found."), "SIM010", ""),
    "two defaults": (simpletuner("ValueError: Only one text embed backend can be marked as default."), "SIM006", ""),
    "unknown text embeds": (
        simpletuner("ValueError: Text embed backend te not found in data backend config file."),
        "SIM006",
        "",
    ),
    "one cache twice": (
        simpletuner(
            "ValueError: VAE image embed cache directory c/v is the same as another VAE image embed cache directory."
        ),
        "SIM006",
        "",
    ),
    "zero batches": (
        simpletuner("ValueError: Dataset configuration will produce zero usable batches.\n\nCurrent configuration:"),
        "SIM007",
        "",
    ),
    "no usable samples": (
        simpletuner("ValueError: (id=cats) Dataset produced no usable samples. This typically"),
        "SIM007",
        "",
    ),
    "nothing discovered": (
        simpletuner("Exception: No images were discovered by the bucket manager in the dataset: cats"),
        "SIM007",
        "",
    ),
    "nothing to sample": (
        simpletuner("Exception: No images found in the dataset: {}\n-> Unseen images: []"),
        "SIM007",
        "",
    ),
    "caption strategy": (
        simpletuner("ValueError: Unsupported caption strategy: textfiles. Supported: 'filename'"),
        "SIM006",
        "",
    ),
    "trailing comma": (
        simpletuner(
            "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 51 column 1"
        ),
        "CFG001",
        "",
    ),
    "kernels": (script("ValueError: Either a revision or a version must be specified."), "", "kernels"),
    "no accelerator": (
        simpletuner("RuntimeError: Cannot access accelerator device when none is available."),
        "MEM003",
        "finds no card",
    ),
    # scripts, DeepSpeed
    "not loaded by ComfyUI": (
        "lora key not loaded: diffusion_model.layers.0.attention.to_q.lora_A.weight\n" * 3,
        "",
        "ComfyUI",
    ),
    "got long": (
        script("RuntimeError: linalg.vector_norm: Expected a floating point or complex tensor as input. Got Long"),
        "SRC015",
        "not finite",
    ),
    "no gradient": (
        script("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"),
        "SRC010",
        "any trained parameter",
    ),
    "captions opened as pictures": (
        script("PIL.UnidentifiedImageError: cannot identify image file 'data_cap/img2.txt'"),
        "",
        "captions too",
    ),
    "SiLU": (
        script("ValueError: Target module SiLU() is not supported. Currently, only the following modules"),
        "",
        "SiLU",
    ),
    "no names in common": (
        script("peft.utils.error.NoMatchingPeftModuleError: Target modules not found"),
        "",
        "none of the model's",
    ),
    "unpacked twice": (
        script(
            "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Unpack is being triggered for a "
            "tensor that "
            "was already unpacked once."
        ),
        "",
        "twice",
    ),
}
