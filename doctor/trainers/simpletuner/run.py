"""SimpleTuner's options in the words of every trainer, with its own defaults (field_registry of bc8e6ab7)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...configs.words import same
from ...configs.written import Setting, Written, fields_of
from ...families import families, family_of
from ...families.record.of_trainers import IN_FILE, Flavour, SimpleTuner
from ...model import Config, Dataset, Run, SamplePrompt
from ...model.field_names import with_fields
from ...model.recipe import Network, Recipe
from ...model.record import replace
from .datasets import datasets, settings
from .lycoris import KINDS, of_lycoris
from .network import excluded
from .options import PARSED, OptionFile

# The fields that one option says; `run` adds what is left.
_FIELDS = {
    "batch_size": Setting("train_batch_size", Written.whole, 4),
    "gradient_accumulation": Setting("gradient_accumulation_steps", Written.whole, 1),
    "gradient_checkpointing": Setting("gradient_checkpointing", Written.flag, True),
    "max_grad_norm": Setting("max_grad_norm", Written.number, 2.0),
    "learning_rate": Setting("learning_rate", Written.number, 4e-7),
    "scheduler": Setting("lr_scheduler", Written.text, "constant_with_warmup"),
    "loss_type": Setting("loss_type", Written.text, "l2"),
    "use_ema": Setting("use_ema", Written.flag),
    "ema_decay": Setting("ema_decay", Written.number, 0.995),
    "save_every": Setting("checkpoint_step_interval", Written.whole, 500),
    "keep_saves": Setting("checkpoints_total_limit", Written.whole, 5),
    "sample_every": Setting("validation_step_interval", Written.whole, 100),
}
KEYS: Mapping[str, str] = {
    **{name: setting.key for name, setting in _FIELDS.items()},
    **{name: name for name in ("optimizer", "seed", "num_train_epochs")},
    "process_type": "model_type",
    "name": "output_dir",
    "architecture": "model_family",
    "variant": "model_flavour",
    "base_model": "pretrained_model_name_or_path",
    "adapter": "assistant_lora_path",
    "output_folder": "output_dir",
    "datasets": "data_backend_config",
    "dtype": "mixed_precision",
    "quantization": "base_model_precision",
    "text_encoder_quantization": "text_encoder_1_precision",
    "rank": "lora_rank",
    "alpha": "lora_alpha",
    "network_type": "lora_type",
    "steps": "max_train_steps",
    "disable_sampling": "validation_disable",
    "samples": "validation_prompt",
    "clip_method": "grad_clip_method",
    "network.dropout": "lora_dropout",
    "network.initial_weights": "init_lora",
    "logging.report_to": "report_to",
    "validation.prompt_sizes": "validation_resolution",
    "validation.guidance": "validation_guidance",
    "validation.steps": "validation_num_inference_steps",
}
# each moves weights between card and host while it trains
_OFFLOADING = ("ramtorch", "enable_group_offload", "musubi_blocks_to_swap", "fsdp_enable", "deepspeed_config")
_ARCHITECTURES = {"z_image_omni": "zimage_omni"}  # of those without a record
_DTYPES = {"no": "fp32", "fp8": "bf16"}
# What a quantized Linear keeps for backward, as maintenance/simpletuner_products.py rehearses it; of others that
# quantize what they are given, too, that is not known.
_KEEPS = (
    ("quanto", "input-kept"),
    ("int8-torchao", "input-kept"),
    ("fp8wo-torchao", "copy-kept"),
    ("fp8-torchao", "scaled-kept"),
    ("sdnq", "nothing-kept"),
    ("bnb", "nothing-kept"),
    (IN_FILE, "file-kept"),
)
# the names that weights of the same kind have in every other place of zdoctor
_PRECISIONS = {
    "no_change": None,
    "int8-quanto": "qint8",
    "int4-quanto": "qint4",
    "int2-quanto": "qint2",
    "fp8-quanto": "qfloat8",
    "fp8uz-quanto": "qfloat8_e4m3fnuz",
    "nf4-bnb": "nf4",
    # torchao keeps the four bits of int8dq-int4 in bytes
    **dict.fromkeys(("int8-torchao", "int8dq-torchao", "int8dq-int4-torchao", "int8-sdnq"), "int8"),
    **dict.fromkeys(("fp8-torchao", "fp8wo-torchao", "fp8-native", "fp8-sdnq", IN_FILE), "float8"),
    **dict.fromkeys(("int4-torchao", "fp8-int4-torchao", "uint4-sdnq"), "uint4"),
    **dict.fromkeys(("int5-sdnq", "uint5-sdnq"), "uint5"),
    **dict.fromkeys(("int16-sdnq", "uint16-sdnq", "fp16-sdnq"), "int16"),
    "uint8-sdnq": "uint8",
    "int6-sdnq": "uint6",
    "uint3-sdnq": "uint3",
    "uint2-sdnq": "uint2",
}


def run(
    config: Config,
    file: OptionFile,
    read: set[str],
    backend: Config | None,
    lycoris: Config | None,
) -> Run:
    """The one run of a config.

    `read` are the options that were asked for so far, `backend` and `lycoris` the files beside it, if there are any.
    """
    of_network = {} if lycoris is None else {f"lycoris{pointer}": value for pointer, value in lycoris.values.items()}
    options = Written({**file.settings, **settings(backend), **of_network}, PARSED, read)
    found = datasets(options)
    architecture, flavour = _family(options)
    base = options.text("pretrained_model_name_or_path") or flavour.repo or None
    transformer = options.text("pretrained_transformer_model_name_or_path") or flavour.transformer
    output = options.text("output_dir", default="simpletuner-results")
    lora = options.text("model_type", default="full") == "lora"
    files = {"datasets": backend, "lycoris": lycoris}
    quantization = options.text("base_model_precision", default="no_change")
    if quantization == "no_change" and not (flavour.upcast and options.flag(flavour.upcast)):
        quantization = flavour.precision or quantization
    of_trainer = family_of(architecture).simpletuner
    of_text = options.text("text_encoder_1_precision", default="no_change")
    precision = options.text("mixed_precision", default="bf16")
    quantized = quantization != "no_change" and options.text("base_model_default_dtype", default="bf16") == "bf16"
    seed = options.whole("seed", default=-1)
    warmup = options.whole("lr_warmup_steps")
    prompt = options.text("validation_prompt")
    own = {
        "architecture": architecture,
        "variant": flavour.variant,
        "base_model": transformer or base,
        "extras_model": base if transformer else None,
        "adapter": _adapter(options, flavour.adapter) if lora else None,
        "datasets": found,
        "controls_match": True,  # their latents are those of a dataset beside the pictures
        "steps": max(0, options.whole("max_train_steps")),
        "cache_text_embeddings": not options.flag("text_cache_disable"),
        "seed": seed if seed > 0 else None,
        "dtype": "bf16" if quantized else _DTYPES.get(precision, precision),
        "quantization": _PRECISIONS.get(quantization, quantization),
        "text_encoder_quantization": _PRECISIONS.get(of_text, of_text),
        "network": _network(options, architecture, lora),
        "precision.keeps": next((kept for word, kept in _KEEPS if word in quantization), quantization),
        "precision.group": _group(options, quantization),
        "precision.spared": of_trainer.spared if of_trainer and "torchao" in quantization else "",
        **_segments(options, architecture),
        "offload.other": _offloading(options),
        "offload.attention": options.flag("gradient_checkpointing_offload_attention"),
        "optimizer": options.text("optimizer", default="adamw_bf16").lower(),
        "scheduler_settings": {"warmup_steps": warmup} if warmup else {},
        "noise_scheduler": "flowmatch",
        "save_dtype": "bf16",
        "disable_sampling": options.flag("validation_disable") or not prompt,
        "samples": _samples(options, prompt),
    }
    recipe = with_fields(Recipe(), fields_of(options, _FIELDS) | own)
    return Run(
        trainer="SimpleTuner",
        config=config.path,
        root=file.root,
        index=0,
        kind="lora" if lora else "finetune",
        process_type=options.text("model_type", default="full"),
        name=re.split(r"[/\\]", output.rstrip("/\\"))[-1] or "simpletuner-results",
        output_folder=output,
        settings=options.settings,
        keys={**KEYS, **_keys_of(found)},
        homes={name: (file.path, "") for name, file in files.items() if file is not None},
        spelled=file.spelled(name for name in {*KEYS.values(), *file.settings} if "/" not in name),
        recipe=recipe,
        read=frozenset(options.read),
    )


def _group(options: Written, quantization: str) -> int:
    """How many weights share a scale; of SDNQ alone they do not unless it is said."""
    own = 32 if quantization.endswith("sdnq") and not quantization.startswith("fp8") else 0
    return max(0, options.whole("sdnq_group_size", default=own)) if own else 0


def _segments(options: Written, architecture: str | None) -> dict[str, int]:
    """Which blocks are computed again (helpers/training/gradient_checkpointing_interval.py)."""
    of_trainer = family_of(architecture).simpletuner
    size = options.whole("gradient_checkpointing_interval")
    stride = options.whole("gradient_checkpointing_segment_stride")
    if size < 2 or of_trainer is None or not of_trainer.segments:
        return {}
    if of_trainer.segments == "apart":  # of `stride` blocks the first `size`, or one of `size`
        return {"offload.interval": max(1, stride // size) if stride else size}
    return {"offload.segment": size, "offload.interval": max(size, stride)}


def _offloading(options: Written) -> str:
    """The option by which weights or activations wait in host memory while the trainer computes."""
    of_weights = next((name for name in _OFFLOADING if not same(options.arrived(name), None)), "")
    if options.text("gradient_checkpointing_backend", default="torch") != "torch":
        return of_weights or "gradient_checkpointing_backend"
    return of_weights


def _keys_of(found: tuple[Dataset, ...]) -> dict[str, str]:
    folders = {f"{one.key}/folder_path": f"{one.key}/instance_data_dir" for one in found}
    return folders | {f"{one.key}/control_folders": f"{one.key}/conditioning_data" for one in found}


def _members(name: str) -> dict[str, SimpleTuner]:
    """The architectures of a model_family."""
    return {f.name: f.simpletuner for f in families() if f.simpletuner and f.simpletuner.family == name}


def flavours_of(name: str) -> frozenset[str]:
    """Every model_flavour of a model_family, none where it has no record."""
    return frozenset(flavour for member in _members(name).values() for flavour in (*member.flavours, *member.others))


def _family(options: Written) -> tuple[str | None, Flavour]:
    """The architecture that is trained, and its flavour; what is not known is taken by its name."""
    name = options.text("model_family").lower()
    members = _members(name)
    flavour = options.text("model_flavour") or next((m.default for m in members.values() if m.default), "")
    for architecture, member in members.items():
        if flavour in member.flavours:
            return architecture, member.flavours[flavour]
        if flavour in member.others:  # another model, which is not to be judged as this one
            return f"{name} {flavour}", Flavour("", flavour)
    return next(iter(members), _ARCHITECTURES.get(name, name)) or None, Flavour("", flavour or None)


def _adapter(options: Written, own: str | None) -> str | None:
    """The adapter of a distilled model, which the trainer fetches unasked."""
    if own is None or options.flag("disable_assistant_lora"):
        return None
    written = options.text("assistant_lora_path")
    if not written or written == "None":
        return own
    weight = own.rpartition("/")[2]
    return f"{written}/{weight}" if own.count("/") == 2 and written.count("/") == 1 else written


def _network(options: Written, architecture: str | None, lora: bool) -> Network:
    rank = options.whole("lora_rank", default=16)
    alpha = options.number("lora_alpha", default=rank)
    family = family_of(architecture)
    fused = bool(family.simpletuner and family.simpletuner.fuses) and options.flag("fuse_qkv_projections")
    network = Network("", rank, alpha, refiners=bool(family.refiners), fused=fused)
    if not lora:
        return network
    if options.text("lora_type", default="standard") != "lycoris":
        # switched off for what Quanto quantizes
        of_quanto = "quanto" in options.text("base_model_precision", default="no_change")
        kind = "dora" if options.flag("use_dora") and not of_quanto else "lora"
        return replace(network, type=kind, excluded=excluded(architecture, options))
    own = options.below("lycoris")
    network = of_lycoris(own, replace(network, type=own.text("algo", default="lycoris").lower()))
    return network if network.type in KINDS else replace(network, excluded=excluded(architecture, options))


def _samples(options: Written, prompt: str) -> tuple[SamplePrompt, ...]:
    """The validation prompt at each of the resolutions ("1024", "1024x768", "512,1024")."""
    made: list[SamplePrompt] = []
    for size in options.text("validation_resolution", default="256").split(",") if prompt else ():
        edges = re.fullmatch(r"\s*(\d{1,5})(?:\s*x\s*(\d{1,5}))?(?:\.0)?\s*", size.lower())
        width, height = (int(edges[1]), int(edges[2] or edges[1])) if edges else (1024, 1024)
        made.append(
            SamplePrompt(
                prompt=prompt,
                width=width,
                height=height,
                seed=options.whole("validation_seed"),
                steps=options.whole("validation_num_inference_steps", default=30),
                guidance=options.number("validation_guidance", default=7.5),
                negative=options.text("validation_negative_prompt"),
            )
        )
    return tuple(made)
