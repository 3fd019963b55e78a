"""The file of datasets: the trainer reads it after the VAE and the text encoder were loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ...doctor.model import Config, Finding, Run, found
from ...doctor.rules import prevents, rule
from ..keys.misspelled import meant
from ..keys.values import bad, whole
from .lycoris import OF_TRAINER
from .options import SHRUNK_TO_NOTHING, TRAINER, of_another_unit, text

LATE = "after the VAE and the text encoder were loaded"
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "dataset_type": (
        *("image", "video", "audio", "conditioning", "eval", "text_embeds", "image_embeds"),
        *("conditioning_image_embeds", "distillation_cache", "caption", "grounding"),
    ),
    "resolution_type": ("pixel", "area", "pixel_area"),
    "caption_strategy": ("filename", "textfile", "parquet", "instanceprompt", "csv", "huggingface", "webshart"),
    "crop_aspect": ("square", "preserve", "random", "closest"),
    "crop_style": ("random", "corner", "center", "centre", "face"),
}
_FALSE = ("false", "no", "off", "0", "n")
_MOST_AREA = 5_000_000  # pixels: metadata/backends/base.py meets_resolution_requirements
_PICTURES = ("image", "video", "conditioning", "eval")


@rule("SIM006", "error", "refused-datasets", trainers=TRAINER)
@prevents("FileNotFoundError", r"Data backend config file .* not found")
@prevents("ValueError", r"Only one text embed backend can be marked as default")
@prevents("ValueError", r"A local backend requires instance_data_dir")
@prevents("ValueError", r"Unsupported caption strategy")
@prevents("ValueError", r"Text embed backend \S+ not found in data backend config file")
@prevents("ValueError", r"VAE image embed cache directory \S+ is the same as")
@prevents("ValueError", r"disable_vae_cache has been removed")
@prevents("ValueError", r"caption_strategy=instanceprompt, but no instance_prompt was provided")
@prevents("ValueError", r"must contain at least one image dataset AND at least one text_embed dataset")
def refused_datasets(config: Config, run: Run) -> Iterator[Finding]:
    """A file of datasets that the trainer refuses.

    What: The file that data_backend_config names does not parse or holds nothing to train on; an entry lacks what its
    kind needs, has a word that the trainer does not know, or shares its id or cache folder with another one.
    Why: The file is read after the VAE and the text encoder were fetched and loaded, some of it only after the
    captions were encoded. A slip in it costs those minutes each time.
    Repair: A word that is one slip away from a known one is put right; the rest is said.
    Upstream: SimpleTuner simpletuner/helpers/data_backend/factory.py, data_backend/config/base.py, helpers/prompts.py
    Signature: ValueError or FileNotFoundError with the same words.
    """
    if "datasets" not in run.homes:
        yield from _absent(run)
        return
    backend = config.file(run.homes["datasets"][0])
    if backend.problem is not None:
        yield found(
            backend.problem.where,
            "The file of datasets cannot be read: {problem}",
            otherwise="The trainer stops {when}.",
            evidence={"kind": backend.problem.kind, "message": backend.problem.message},
            problem=backend.problem.message,
            when=LATE,
        )
        return
    entries = [key for key in run.settings if key.startswith("datasets/") and key.count("/") == 1]
    off = [key for key in entries if run.setting(f"{key}/disabled") or run.setting(f"{key}/disable")]
    active = [key for key in entries if isinstance(run.setting(key), dict) and key not in off]
    for key in entries:
        if not isinstance(run.setting(key), dict):
            yield bad(run, key, "{key} is {value!r}, which is no dataset.", LATE)
    for key in entries:
        yield from _switches(run, key)
    for key in active:
        yield from _entry(run, key)
    yield from _together(run, active)
    if not any(_kind(run, key) in ("image", "video", "audio", "caption") for key in active):
        yield found(
            run.where("datasets"),
            "{file} holds no dataset to train on.",
            otherwise="The trainer stops {when}.",
            file=backend.path,
            when=LATE,
        )


def _absent(run: Run) -> Iterator[Finding]:
    """The file was looked for in the working directory and in every folder above the config."""
    name = text(run, "data_backend_config")
    if name.startswith(OF_TRAINER):
        return
    yield found(
        run.where("datasets"),
        "data_backend_config names {name}, which is neither here nor in a folder above the config."
        if name
        else "data_backend_config is missing, and there is no multidatabackend.json beside the config.",
        otherwise="The trainer stops {when}, unless it is started in a folder where the file is.",
        evidence={"file": name},
        severity="warning",
        name=name,
        when=LATE,
    )


def _switches(run: Run, key: str) -> Iterator[Finding]:
    """Texts where true or false is asked for: Python takes each of them for true."""
    for name in ("crop", "default", "disable", "disabled"):
        value = run.setting(f"{key}/{name}")
        if isinstance(value, str) and value:
            yield found(
                run.where(f"{key}/{name}"),
                "{name} is {value!r}, and any text counts as true. Write true or false without quotes.",
                otherwise="The setting is on.",
                severity=None if value.strip().lower() in _FALSE else "warning",
                evidence={"key": f"{key}/{name}", "value": value},
                name=name,
            )


def _kind(run: Run, key: str) -> str:
    if run.setting(f"{key}/conditioning_type"):
        return "conditioning"
    return str(run.setting(f"{key}/dataset_type") or "image").lower()


def _entry(run: Run, key: str) -> Iterator[Finding]:
    def of(name: str) -> Any:
        return run.setting(f"{key}/{name}")

    kind = _kind(run, key)
    for name in ("id", "type"):
        if of(name) in (None, ""):
            yield bad(run, f"{key}/{name}", "{key} is missing: every dataset needs it.", LATE)
    for name, known in _CHOICES.items():
        value = of(name)
        if value is None or str(value) in known or (name == "dataset_type" and str(value).lower() in known):
            continue
        certain, likely = meant(value, known)
        why = "{key} is {value!r}, which the trainer does not know. It knows {known}."
        yield bad(run, f"{key}/{name}", why, LATE, new=certain, likely=likely, unsure=True, known=", ".join(known))
    if of("disable_vae_cache") is not None:
        yield bad(run, f"{key}/disable_vae_cache", "{key} was removed; vae_cache_disable took its place.", LATE)
    if kind not in _PICTURES:
        return
    folder = of("instance_data_dir") or of("instance_data_root")
    if of("type") in (None, "local") and not folder and kind != "conditioning":  # those may be made from another one
        yield bad(run, f"{key}/instance_data_dir", "{key} is missing: a local dataset needs a folder.", LATE)
    yield from _captions(run, key, kind)
    yield from _sizes(run, key)
    shapes = isinstance(run.setting(f"{key}/crop_aspect_buckets"), list)
    if run.setting(f"{key}/crop_aspect") in ("random", "closest") and not shapes:
        why = "{key} is {value}, but crop_aspect_buckets does not list the shapes to crop to."
        yield bad(run, f"{key}/crop_aspect", why, LATE)


def _captions(run: Run, key: str, kind: str) -> Iterator[Finding]:
    strategy = str(run.setting(f"{key}/caption_strategy") or text(run, "caption_strategy", "filename"))
    source, at = run.setting(f"{key}/type"), f"{key}/caption_strategy"
    prompt = run.setting(f"{key}/instance_prompt")
    if kind in ("image", "video") and strategy == "instanceprompt" and not prompt:
        yield bad(run, at, "{key} is instanceprompt, but the dataset has no instance_prompt.", "after the captions")
    if kind in ("image", "video") and run.setting(f"{key}/prepend_instance_prompt") is True and prompt is None:
        why = "{key} is on, but the dataset has no instance_prompt."
        yield bad(run, f"{key}/prepend_instance_prompt", why, "after the captions")
    if strategy in ("huggingface", "webshart") and source not in (None, strategy):
        yield bad(run, at, "{key} is {value}, which is for datasets of that type only.", LATE)
    if strategy == "parquet" and run.setting(f"{key}/metadata_backend") in ("json", "discovery"):
        yield bad(run, at, "{key} is parquet, which needs metadata_backend: parquet.", LATE)
    if source == "csv" and strategy != "csv":
        yield bad(run, at, "A dataset of the type csv needs caption_strategy: csv.", LATE, new="csv")


def _sizes(run: Run, key: str) -> Iterator[Finding]:
    kind = str(run.setting(f"{key}/resolution_type") or text(run, "resolution_type", "pixel_area"))
    if kind not in _CHOICES["resolution_type"]:
        return  # in what unit they are is not known
    if run.setting(f"{key}/maximum_image_size") and not run.setting(f"{key}/target_downsample_size"):
        yield bad(run, f"{key}/maximum_image_size", "{key} is {value}, but " + SHRUNK_TO_NOTHING, LATE)
    for name in ("maximum_image_size", "target_downsample_size"):
        size = run.setting(f"{key}/{name}")
        is_size = isinstance(size, int | float) and not isinstance(size, bool) and size != 0
        if is_size and (why := of_another_unit(kind, size, is_large=size >= 20)):
            yield bad(run, f"{key}/{name}", why, LATE)
    yield from _least(run, key, kind)
    size = run.setting(f"{key}/resolution")
    if kind == "pixel_area" and size is not None and not (type(size) is int or str(size).isdigit()):
        why = "{key} is {value!r}, but with resolution_type: pixel_area it is a whole number of pixels."
        yield bad(run, f"{key}/resolution", why, LATE, new=whole(size) if isinstance(size, float) else None)


def _least(run: Run, key: str, kind: str) -> Iterator[Finding]:
    dataset = run.recipe.dataset(key)
    if dataset is None or dataset.least_area <= _MOST_AREA:
        return
    at = f"{key}/minimum_image_size"
    why = "minimum_image_size is {value}, which asks for {megapixels:g} megapixels; above 5 the trainer logs an "
    why += "error for each picture and takes none."
    if run.setting(at) is None:
        at = "minimum_image_size"
        why += " It is an edge in pixels only where the dataset itself says it." if kind == "pixel_area" else ""
    yield bad(run, at, why, LATE, megapixels=dataset.least_area / 1e6)


def _together(run: Run, active: list[str]) -> Iterator[Finding]:
    ids = {key: str(run.setting(f"{key}/id")) for key in active if run.setting(f"{key}/id") not in (None, "")}
    for name, count in Counter(ids.values()).items():
        if count > 1:
            key = [key for key, id in ids.items() if id == name][-1]
            yield bad(run, f"{key}/id", "{count} datasets have the id {name}.", LATE, count=count, name=name)
    texts = [key for key in active if _kind(run, key) == "text_embeds"]
    defaults = [key for key in texts if run.setting(f"{key}/default") is True]
    if len(defaults) > 1:
        why = "{count} datasets of text embeddings are marked as default; there can be one."
        yield bad(run, f"{defaults[-1]}/default", why, LATE, count=len(defaults))
    caches = {str(run.setting(f"{key}/cache_dir")): key for key in texts if run.setting(f"{key}/cache_dir")}
    named = {ids[key] for key in texts if key in ids}
    seen: dict[str, str] = {}
    for key in active:
        wanted = run.setting(f"{key}/text_embeds")
        if isinstance(wanted, str) and named and wanted not in named:
            why = "{key} is {value!r}, but no dataset of text embeddings has that id."
            yield bad(run, f"{key}/text_embeds", why, LATE, likely=meant(wanted, named)[1])
        cache = run.setting(f"{key}/cache_dir_vae")
        if not isinstance(cache, str) or not cache or _kind(run, key) not in ("image", "video"):
            continue
        cache = cache.replace("{id}", ids.get(key, ""))
        if cache in seen or cache in caches:
            other = seen.get(cache) or caches[cache]
            why = "{key} is {value!r}, the same folder as that of {other}."
            yield bad(run, f"{key}/cache_dir_vae", why, LATE, other=ids.get(other, other))
        seen[cache] = key
