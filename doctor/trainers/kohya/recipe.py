"""What zdoctor's own runner makes of runs of sd-scripts and musubi-tuner: obeyed, without effect, or refused."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...configs.refused import Reason, converted, raise_unsupported, said
from ...configs.words import joined
from ...configs.written import Written
from ...families import family_of
from ...families.part_files import kohya_of, part_files, with_parts, with_whole
from ...model import Run, Schema, Unknown
from ...model.cards import CHOSEN
from ...model.field_names import with_fields
from ...model.recipe import Logging
from ...model.record import replace
from ...model.trainer import Folders
from .datasets import refused_sets, with_sets
from .names import METADATA, WITHOUT_EFFECT
from .network import SCRIPTS, network_of, of_unet, refused_network, text_rates
from .optimizer import OPTIMIZERS, PROCESSES, optimizer_of, rates_of, refused_rates
from .read import of_dataset
from .starts import PARSED
from .timesteps import noise_of, refused_noise

# One file that holds the whole model.
SINGLE = (
    "A model that is a single file is not opened, only a folder as diffusers has it. Type: python -c "
    '"from diffusers import StableDiffusionXLPipeline as P; '
    'P.from_single_file({file!r}).save_pretrained({folder!r})" and name {folder}'
)


def for_runner(run: Run, schema: Schema | Unknown, folders: Folders) -> Run:
    """The run as zdoctor's runner takes it. Raises UserError with every setting that it would not obey."""
    raise_unsupported(said(run, _script(run)))
    w = Written(run.settings, PARSED, set(run.read))
    w.raw(*(part.option for part in part_files(run)))  # which `with_parts` reads
    made = converted(
        run, w, schema, reasons(run, w), lambda: as_trained(run, w, folders), differences, _is_without_effect
    )
    if not made.recipe.datasets and any(dataset.key.endswith("_data_dir") for dataset in run.recipe.datasets):
        raise_unsupported(
            [f"{run.recipe.datasets[0].folder} holds no folders such as 10_name, with pictures in them."]
        )
    kohya, base = family_of(run.recipe.architecture).kohya[run.trainer], run.recipe.base_model or ""
    if kohya.files and not kohya.is_one_file:
        return with_parts(made, run)
    whole = base.lower().endswith(".safetensors")
    return with_whole(made, "pretrained_model_name_or_path") if whole else made


def _is_without_effect(key: str) -> bool:
    return key.rpartition("/")[2] in WITHOUT_EFFECT


def reasons(run: Run, w: Written) -> Iterator[Reason]:
    """Why the runner must not train this run, with words of its own for each."""
    for part in (refused_network, _model, _updates, refused_rates, refused_noise, refused_sets):
        yield from part(run, w)


def _script(run: Run) -> Iterator[Reason]:
    yield from ((name, f"{name}: {value.unknown}") for name, value in run.settings.items() if value.unknown)
    if run.unread:
        yield "", f"The command line is not known: {run.unread}"
    if run.process_type == "datasets":
        yield "datasets", "This file holds datasets only; name the config or script that starts the training"
    elif not run.process_type:
        module = run.setting("network_module", "that is not written")
        known = " or ".join(dict.fromkeys(SCRIPTS.values()))
        yield "network_module", f"network_module {module} is not supported; use {known}"
    elif run.process_type not in SCRIPTS:
        yield "network_module", f"Trainings by {run.process_type} are not supported; these are: {', '.join(SCRIPTS)}"


def _model(run: Run, w: Written) -> Iterator[Reason]:
    guided = family_of(run.recipe.architecture).guided or run.trainer != "sd-scripts" or of_unet(run)
    if not guided and (w.number("guidance_scale", default=3.5) != 0 or not w.flag("apply_t5_attn_mask")):
        yield (
            "guidance_scale",
            "Chroma is trained with apply_t5_attn_mask and guidance_scale 0 (unwritten it is 3.5); write both",
        )
    if of_unet(run):
        base, written = run.recipe.base_model or "", w.text("vae")
        if base.lower().endswith(".ckpt"):
            yield "base_model", SINGLE.format(file=base, folder=re.sub(r"\.\w+$", "", base))
        if written:
            yield "vae", "A VAE from a file of its own is not supported; put it into the model's folder"
    weights, factors = w.raw("base_weights"), w.raw("base_weights_multiplier")
    several = isinstance(weights, list) and len(weights) > 1
    own = family_of(run.recipe.architecture).own
    if weights and (own is None or own.adapter_key is None or several):
        yield "base_weights", "base_weights of Flux, or several of them, are not supported"
    elif weights and any(str(one) not in ("1", "1.0") for one in (factors if isinstance(factors, list) else [])):
        yield "base_weights_multiplier", "base_weights_multiplier is not supported; leave it at 1"


def _updates(run: Run, w: Written) -> Iterator[Reason]:
    if not run.recipe.precision.dtype:
        yield "dtype", "mixed_precision is not written, so accelerate's own settings would decide; write it"
    both = w.whole("save_every_n_epochs", "save_n_epoch_ratio") and w.whole("save_every_n_steps")
    if both and w.whole("save_last_n_steps", "save_last_n_epochs"):
        told = "Saves of epochs beside save_every_n_steps cannot be limited; leave save_last_n_… out"
        yield "save_every_n_epochs", told
    if w.whole("save_n_epoch_ratio") and not w.whole("max_train_epochs"):
        yield "save_n_epoch_ratio", "save_n_epoch_ratio without max_train_epochs is not supported"
    if w.whole("t5xxl_max_token_length", default=512) != 512:
        yield "t5xxl_max_token_length", "Another t5xxl_max_token_length than 512 is not supported"
    if w.text("log_with") in ("wandb", "all") and w.text("wandb_api_key"):
        yield "wandb_api_key", "wandb_api_key is not read; type wandb login, and leave it out"


def as_trained(run: Run, w: Written, folders: Folders) -> Run:
    """The run as the runner takes it; `folders` gives the names in the folder that holds the numbered ones."""
    run = with_sets(run, w, folders)
    recipe = run.recipe
    of_trainer = kohya_of(run)
    epochs, swapped = w.whole("max_train_epochs"), w.whole("blocks_to_swap")
    share = min(1.0, swapped / (of_trainer.blocks if of_trainer is not None and of_trainer.blocks else 38))
    painted, at_first = w.whole("sample_every_n_epochs"), w.flag("sample_at_first")
    network = network_of(run, w)
    text_quantization = recipe.precision.text_encoder_quantization if run.trainer == "musubi-tuner" else None
    return replace(
        run,
        output_folder=None if run.output_folder is None else joined(run.output_folder, run.name),
        metadata={key: w.text(name) for name, key in METADATA.items() if w.text(name)},
        recipe=with_fields(
            recipe,
            {
                **rates_of(run, w),
                **noise_of(run, w),
                **_checkpoints(run, w, epochs),
                "steps": 0 if epochs > 0 else recipe.steps,
                "epochs": max(0, epochs),
                # each process of the trainer has a batch of its own
                "gradient_accumulation": recipe.gradient_accumulation * w.raw(PROCESSES, default=1),
                "clip_method": "norm",
                "cache_text_embeddings": not network.text_rates,
                "train_text_encoder": bool(network.text_rates),
                "literal_captions": True,
                "mask_padding": w.flag("apply_t5_attn_mask"),
                "latent_mean": of_trainer is not None and of_trainer.mode,
                "tells_crops": of_unet(run),
                "network": network,
                "checkpoints.push_to": w.text("huggingface_repo_id"),
                "checkpoints.push_private": w.text("huggingface_repo_visibility") != "public",
                "text_encoder_quantization": text_quantization,
                "gradient_checkpointing": recipe.offload.gradient_checkpointing or swapped > 0,
                "offload.share": share if swapped > 0 else None,
                "disable_sampling": not (recipe.validation.every > 0 or painted > 0 or at_first),
                "skip_first_sample": not at_first,
                "validation.every_epochs": max(0, painted),
                "logging": _logging(run, w),
            },
        ),
    )


def _logging(run: Run, w: Written) -> Logging:
    if w.text("log_with") not in ("wandb", "all"):
        return Logging()
    name = w.text("log_tracker_name", default="network_train")
    return Logging(report_to=("wandb",), project=name, run_name=w.text("wandb_run_name", default=run.name), every=1)


def _checkpoints(run: Run, w: Written, epochs: int) -> dict[str, int]:
    """How often it saves, and how many saves stay: save_last_n_steps counts in steps, save_last_n_epochs in saves."""
    ratio, steps = w.whole("save_n_epoch_ratio"), run.recipe.checkpoints.every
    between = max(1, epochs // ratio) if ratio > 0 else w.whole("save_every_n_epochs")
    if steps > 0:
        last = w.whole("save_last_n_steps")
        kept = last // steps + 1 if last > 0 else 0
    else:
        kept = w.whole("save_last_n_epochs") if between > 0 else 0
    return {"keep_saves": kept, "checkpoints.every_epochs": max(0, between)}


def differences(run: Run, w: Written) -> Iterator[str]:
    """What the runner does in its own way, none of it written in the config; `run` is not refused."""
    recipe = run.recipe
    musubi = run.trainer == "musubi-tuner"
    family = family_of(recipe.architecture)
    of_trainer = kohya_of(run)  # of a version that does not exist there is none
    fused = "covers query, key and value each on its own, and " if of_trainer is not None and of_trainer.fused else ""
    yield f"all files of the run lie in {joined(run.output_folder or '', run.name)}"
    if not of_unet(run):  # whose names and alphas are kohya's
        yield f"the LoRA {fused}has names that diffusers and ComfyUI read, with alpha in its weights"
    yield "pictures are turned as their EXIF data say"
    if musubi and recipe.timestep_sampling.type != "sigma":
        yield "the model is told the noise level that it gets (musubi-tuner: 0.001 more)"
    if not musubi and recipe.precision.dtype == "bf16" and not of_unet(run):
        yield "the model is told the noise level that it gets (sd-scripts: rounded to bfloat16, up to 0.004 off)"
    if family.memory is not None and (padding := family.memory.padding) > 1:
        yield f"prompts and pictures are filled up to multiples of {padding} tokens, as the model was published"
    if not (musubi or w.flag("cache_latents") or w.flag("cache_latents_to_disk")):
        yield "each picture is encoded once (sd-scripts without cache_latents: anew for every step)"
    if not of_unet(run) and any(name == "CLIPTextModel" for name, _ in family.published.values()):
        yield f"CLIP computes with quick_gelu, as it was trained ({run.trainer}: gelu)"
    yield from _of_texts(run, w)
    if recipe.adapter:
        yield "samples are painted without base_weights"
    if recipe.precision.quantization is not None and not w.flag("fp8_scaled"):
        yield "float8 weights have a scale for each row"
    if not musubi and "schnell" in (recipe.base_model or "").lower():
        yield "T5 gets 512 tokens (sd-scripts: 256 for schnell)"
    if w.flag("full_bf16") or w.flag("full_fp16"):
        yield "the LoRA is trained in float32, which full_bf16 and full_fp16 would not"
    if w.flag("use_32bit_attention"):
        yield "attention is computed as the rest is, not in 32 bits"
    if recipe.batch_size > 1:
        yield "a batch that its size cannot fill is filled up with pictures of that size"
    if (processes := w.raw(PROCESSES, default=1)) > 1:
        yield f"the batches of the {processes} processes are accumulated, however many cards there are here"
    if (cards := w.raw(CHOSEN)) is not None:
        yield f"the card is one that CUDA_VISIBLE_DEVICES leaves here, whatever the script says ({cards})"
    if recipe.gradient_accumulation * processes > 1:
        yield "accumulation goes on over the end of an epoch"
    yield from _of_datasets(run, w)
    name = optimizer_of(run, w)
    if name.startswith("paged"):
        yield f"the optimizer is {OPTIMIZERS[name]}: the same updates as {name}, its state not paged"


def _of_texts(run: Run, w: Written) -> Iterator[str]:
    """The same of the text encoders."""
    of_trainer = kohya_of(run)
    trained = {of_trainer.files[name] for name in text_rates(run, w)} if of_trainer is not None else set()
    if "clip_l" in trained:
        yield "the LoRA of CLIP-L is in the same file, by names that diffusers and ComfyUI read"
    if "t5xxl" in trained:
        yield "the LoRA of T5 is in the same file, by names that ComfyUI reads; diffusers has no place for it"
    cached = run.recipe.cache_text_embeddings
    if not cached and w.flag("gradient_checkpointing") and "t5xxl" in run.settings:
        yield "T5 computes without its dropout of 0.1 (sd-scripts: with it, beside gradient_checkpointing)"


def _of_datasets(run: Run, w: Written) -> Iterator[str]:
    """The same of what the datasets hold."""
    own = [of_dataset(run.trainer, dataset.key, w) for dataset in run.recipe.datasets]
    if any(dataset.is_regularisation for dataset in run.recipe.datasets):
        yield "every other step is one of regularisation pictures, all of them in turns"
    if any(one.flag("flip_aug") for one in own):
        yield "each picture is learnt as it is and mirrored, in turns instead of by chance"
    if any(one.text("conditioning_data_dir") for one in own):
        yield "masks are cropped as their pictures are, not stretched to the bucket"
    if any(one.flag("random_crop") for one in own):
        yield "each repeat of a picture has a crop of its own, the same in every epoch"
    if family_of(run.recipe.architecture).edits:
        yield "control images are stretched to their pictures' shape instead of cropped"
