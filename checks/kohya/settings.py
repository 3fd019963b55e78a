"""Settings that kohya's trainers assert, each after it has loaded what it could have done without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...doctor.model import Config, Finding, ModelFolder, Run, Severity
from ...doctor.rules import NotApplicable, Unestablished, prevents, rule
from . import DATA, ELSEWHERE, TRAINERS, anywhere, left_to_the_command_line, number, on, refused, trains
from .buckets import bucket_sizes
from .swaps import most_swapped

_MODEL = "while the model is loaded"
_NETWORK = "after the model was loaded and all was cached"
_START = "at the start"
_TRAIN_TEXT_ENCODERS = ("sdxl_train_network", "anima_train_network")  # and take no cached outputs of them
_ATTENTION = ("sdpa", "flash_attn", "flash3", "xformers")


@rule("KOH003", "error", "settings-that-exclude-each-other", trainers=TRAINERS)
@prevents("AssertionError", r"when caching latents, either color_aug or random_crop cannot be used")
@prevents("AssertionError", r"when caching [Tt]ext [Ee]ncoder output, (either caption_dropout_rate|shuffle_caption)")
@prevents("AssertionError", r"network for Text Encoder cannot be trained with caching Text Encoder outputs")
@prevents("AssertionError", r"(weighted_captions|cache_text_encoder_outputs) is not supported when ")
@prevents("AssertionError", r"(min|max)_bucket_reso must be equal or (less|greater) than resolution")
@prevents("AssertionError", r"blocks_to_swap is not supported with cpu_offload_checkpointing")
@prevents("AssertionError", r"Cannot swap more than \d+ ")
@prevents("AssertionError", r"fp8_base requires mixed precision")
@prevents("AssertionError", r"full_(bf16|fp16) requires mixed precision")
@prevents("AssertionError", r"fp8_scaled requires fp8_base")
@prevents("AssertionError", r"apply_t5_attn_mask must be True for Chroma")
@prevents("AssertionError", r"both option use_8bit_adam and optimizer_type are specified")
@prevents("ValueError", r"T5XXL is trained, so cache_text_encoder_outputs cannot be used")
@prevents("ValueError", r"does not require `num_warmup_steps`")
@prevents("ValueError", r"SageAttention doesn't support training")
@prevents("ValueError", r"either --sdpa, --flash-attn")
@prevents("ValueError", r"cache directory should be unique")
@prevents("ValueError", r"Unsupported fp8 model dtype")
def settings_that_exclude_each_other(config: Config, run: Run, model: ModelFolder) -> Iterator[Finding]:
    """Settings of which the trainer takes one or the other.

    What: What the trainers assert: cached latents with color_aug or random_crop, cached text encoder outputs with
    anything that changes captions or with a text encoder that is trained (SDXL, Anima), block swap with
    cpu_offload_checkpointing or of more blocks than there are, a resolution that is no size between the smallest and
    the largest bucket, fp8 without mixed precision, fp8_scaled without fp8_base, no attention or one that cannot
    train, a warm-up for a constant schedule or for Adafactor's own, that schedule without relative_step,
    use_8bit_adam beside optimizer_type, one cache folder for two datasets, an 8-bit format that cannot be trained on.
    Why: Only the parser's own words are checked at the start. The rest is asserted one by one: the dataset's before
    the model is loaded, that of the network and the schedule after minutes of loading and caching.
    Repair: Leave one of the two out.
    Upstream: sd-scripts flux_train_network.py, train_network.py, library/train_util.py (48d368fa); musubi-tuner
    training/trainer_base.py (30c658c4)
    Signature: AssertionError: when caching latents, …; fp8_scaled requires fp8_base; Cannot swap more than …
    """
    if not trains(run):
        raise NotApplicable
    if why := run.unknown("scheduler", "optimizer", "dtype", "quantization"):
        raise Unestablished(why)
    yield from _shared(config, run)
    yield from _swap(run, model)
    if run.trainer == "sd-scripts":
        yield from _changed_though_cached(config, run)
        yield from _sd_scripts(config, run, model)
    else:
        yield from _musubi(config, run)


def _against(config: Config, run: Run, key: str, why: str, when: str, *beside: str, **args: Any) -> Finding:
    """A setting that the trainer refuses for what the options `beside` say, or for what they are by default."""
    elsewhere = left_to_the_command_line(config, run, *beside)
    severity: Severity | None = "warning" if elsewhere else None
    return refused(run, key, why + ELSEWHERE * elsewhere, when, severity=severity, **args)


def _shared(config: Config, run: Run) -> Iterator[Finding]:
    schedule, optimizer = run.recipe.lr_scheduler.name, run.recipe.optimizer.name
    relative = optimizer == "adafactor" and _is_relative(run)
    if number(run, "lr_warmup_steps") > 0 and relative:
        why = "With relative_step, its default, Adafactor makes its own schedule, which takes no warm-up."
        yield _against(config, run, "lr_warmup_steps", why, _NETWORK, "optimizer_args")
    elif number(run, "lr_warmup_steps") > 0 and schedule == "constant" and not optimizer.endswith("schedulefree"):
        why = "{key} is {warmup}, and the schedule {schedule} takes none; constant_with_warmup does."
        warmup = run.setting("lr_warmup_steps")
        beside = ("lr_scheduler", "lr_scheduler_type")
        yield _against(config, run, "lr_warmup_steps", why, _NETWORK, *beside, warmup=warmup, schedule=schedule)
    if schedule.startswith("adafactor") and not optimizer.startswith("adafactor"):
        why = "The schedule {schedule} works with the optimizer Adafactor only, and this run has {optimizer}."
        args = {"schedule": schedule, "optimizer": optimizer}
        yield _against(config, run, "scheduler", why, _NETWORK, "optimizer_type", **args)
    elif schedule == "adafactor" and not relative:
        why = "The schedule {schedule} is for relative_step, which optimizer_args turn off; constant works."
        yield refused(run, "scheduler", why, _NETWORK, schedule=schedule)
    for name in ("network_args", "optimizer_args"):
        bad = next((entry for entry in _entries(run, name) if "=" not in entry), None)
        if bad is not None:
            yield refused(run, name, "{bad} in {key} has no '='; each entry is key=value.", _NETWORK, bad=bad)


def _is_relative(run: Run) -> bool:
    """Whether Adafactor finds its own rate, as it does unless it is told not to."""
    given = dict(entry.split("=", 1) for entry in _entries(run, "optimizer_args") if "=" in entry)
    return given.get("relative_step", "True") != "False" or given.get("warmup_init", "False") == "True"


def _entries(run: Run, name: str) -> list[str]:
    listed = run.setting(name)
    return [entry for entry in listed if isinstance(entry, str)] if isinstance(listed, list) else []


def _swap(run: Run, model: ModelFolder) -> Iterator[Finding]:
    """How many blocks may be swapped follows from how many there are."""
    swapped = int(number(run, "blocks_to_swap"))
    limit = most_swapped(run, model.components.get("transformer")) if swapped > 0 else None
    if limit is not None and swapped > limit[0]:
        why = "{key} is {swapped}; of this model at most {most} can be swapped (" + limit[1] + ")."
        yield refused(run, "blocks_to_swap", why, _MODEL, swapped=swapped, most=limit[0])


def _changed_though_cached(config: Config, run: Run) -> Iterator[Finding]:
    """What would change pictures or captions in every epoch, or who encodes them, and these are encoded once."""
    pictures = on(run, "cache_latents") or on(run, "cache_latents_to_disk")
    for name in ("color_aug", "random_crop") if pictures else ():
        if (key := anywhere(run, name)) is not None:
            yield refused(run, key, "{name} needs pictures, and cached latents are none.", DATA, name=name)
    if not run.recipe.cache_text_embeddings:
        return
    script, module = run.process_type, run.setting("network_module")
    for name in ("caption_dropout_rate", "shuffle_caption", "token_warmup_step", "caption_tag_dropout_rate"):
        taken = name == "caption_dropout_rate" and script.startswith("anima")
        if not taken and (key := anywhere(run, name)) is not None:
            why = "{name} changes captions, and with cache_text_encoder_outputs they are encoded once."
            yield refused(run, key, why, DATA, name=name)
    if "train_t5xxl=True" in _entries(run, "network_args"):
        why = "train_t5xxl trains T5, whose outputs are cached."
        yield refused(run, "network_args", why, "after the model was loaded")
    for name in ("train_text_encoder", "weighted_captions") if script == "sdxl_train" else ():
        if on(run, name):
            yield refused(run, name, "{key} and cache_text_encoder_outputs exclude each other.", _START)
    # a file of options names no script; only SDXL's has both that module and that option
    trains_one = script in _TRAIN_TEXT_ENCODERS or (not script and module == "networks.lora")
    if trains_one and not on(run, "network_train_unet_only"):
        toml = config.format == "toml"
        why = "Without network_train_unet_only the text encoders are trained, too, and their outputs are cached."
        severity: Severity | None = "warning" if toml else None
        yield refused(run, "cache_text_embeddings", why + ELSEWHERE * toml, DATA, severity=severity)


def _sd_scripts(config: Config, run: Run, model: ModelFolder) -> Iterator[Finding]:
    recipe = run.recipe
    named = run.setting("optimizer_type") not in (None, "")
    for name in ("use_8bit_adam", "use_lion_optimizer"):
        if on(run, name) and named and not run.config.lower().endswith(".json"):  # of which a GUI makes one
            yield refused(run, name, "{key} and optimizer_type exclude each other.", _NETWORK)
    eight_bits, dtype = recipe.precision.quantization is not None, recipe.precision.dtype
    if number(run, "blocks_to_swap") > 0 and on(run, "cpu_offload_checkpointing"):
        why = "blocks_to_swap and cpu_offload_checkpointing exclude each other."
        yield refused(run, "blocks_to_swap", why, DATA)
    whole = config.format != "toml"  # else a command line may give what is left out
    precise = whole or run.setting("mixed_precision") is not None
    if eight_bits and dtype == "fp32" and precise:
        why = "fp8_base needs mixed_precision bf16 or fp16, and without that option it is no."
        yield refused(run, "dtype", why, _NETWORK)
    for name, asked in (("full_bf16", "bf16"), ("full_fp16", "fp16")):
        if on(run, name) and dtype != asked and precise:
            yield refused(run, name, "{key} needs mixed_precision {dtype}.", _NETWORK, dtype=asked)
    if recipe.architecture == "chroma" and whole and not on(run, "apply_t5_attn_mask"):
        yield refused(run, "apply_t5_attn_mask", "Chroma is trained with apply_t5_attn_mask only.", DATA)
    yield from bucket_sizes(config, run)
    if recipe.optimizer.name != "adafactor" and on(run, "fused_backward_pass"):
        why = "{key} works with the optimizer Adafactor only."
        yield _against(config, run, "fused_backward_pass", why, _NETWORK, "optimizer_type")
    part = model.components.get("transformer")
    wide = {tensor.dtype for tensor in part.tensors.values() if len(tensor.shape) == 2} if part is not None else ()
    if recipe.architecture == "flux" and eight_bits and wide == {"F8_E5M2"}:
        why = "The weights are float8 e5m2; with fp8_base only e4m3fn is taken."
        yield refused(run, "base_model", why, "after the transformer was read")


def _musubi(config: Config, run: Run) -> Iterator[Finding]:
    if on(run, "fp8_scaled") and not on(run, "fp8_base"):
        yield _against(config, run, "fp8_scaled", "fp8_scaled needs fp8_base beside it.", _START, "fp8_base")
    if on(run, "sage_attn"):
        yield refused(run, "sage_attn", "SageAttention cannot train; sdpa can.", _START)
    elif not any(on(run, name) for name in _ATTENTION) and config.format == "shell":
        why = "No attention is chosen; --sdpa needs nothing installed."
        yield refused(run, "sdpa", why, "when it loads the model")
    folders = set()
    for dataset in run.recipe.datasets:
        key = f"{dataset.key}/cache_directory"
        cache = run.setting(key)
        folder = cache if isinstance(cache, str) and cache else dataset.folder
        if folder is not None and folder in folders:
            why = "{folder} is the cache of two datasets; each needs its own."
            yield refused(run, key, why, _START, folder=folder)
        folders.add(folder)
