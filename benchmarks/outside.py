"""What others measured of a training's memory, beside what is predicted of the same settings.

    python benchmarks/outside.py [--rehearsed CHECKOUTS] [CONFIG ...]

The points are in outside_points.tsv, each with its address and the figure as it is given there. What a point does not
say is its config's below, which is the trainer's own example. "allocated" is the most that PyTorch's allocator gave
out, in which CUDA's context is not, but two of cuBLAS's workspaces are (32 MiB each on an H100); of "steps" alone, or
of "all" phases. "nvidia-smi" or "of the process" is what the allocator took from the driver, and the context: it
keeps what it gave out before, in pieces. Where it is "not said" what was looked at, it is taken for that. GB of tools
that count in 1024s are taken as GiB. The prediction is what `zdoctor check` says of a model that is not on this
machine: what is given out at the peak, and the context. With --rehearsed (the checkouts of SimpleTuner, of
musubi-tuner, its src, and of sd-scripts, "A:B:C") steps are rehearsed in full on a copy of PyTorch's allocator
(doctor/train/rehearsal/allocator.py), which says what it counts as given out, and what nvidia-smi would show: the
last column, beside its error. `usable` is how many of three people, who saw the points and their sources alone and no
prediction, would take one for a measurement: of a run that was made, and of which the source fixes all that moves the
peak by 5 %. A point that is none to any has a star, and is summed up apart.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from zdoctor.doctor.families import _FAMILIES as known_families
from zdoctor.doctor.families import family_of
from zdoctor.doctor.memory import GIB, Placed, placed, predict, sizes
from zdoctor.doctor.memory.case import CONTEXT
from zdoctor.doctor.model import Dataset, Gpu, Memory, ModelFolder, Run, System, Unknown
from zdoctor.doctor.model.buckets import Buckets
from zdoctor.doctor.model.memory import STEP
from zdoctor.doctor.trainers.read import Found, read_config

POINTS = Path(__file__).with_name("outside_points.tsv")
SYSTEM = System("linux", "6", "3.11", "/c", "/h", 4, 400 * GIB, 390 * GIB)
CARD = Gpu(0, "a card", 900 * GIB, 890 * GIB, (9, 0), "560", "assumed")
WORKSPACES = 2 * 32 << 20
_SMALL, _LARGE = (
    {"resolution": 512, "resolution_type": "pixel"},
    {"resolution": 1024, "resolution_type": "pixel_area"},
)
_ONE = {"train_batch_size": 1}
_LOKR = {
    "algo": "lokr",
    "bypass_mode": True,
    "multiplier": 1.0,
    "linear_dim": 10000,
    "linear_alpha": 1,
    "factor": 12,
    "apply_preset": {"target_module": ["Attention"], "module_algo_map": {"Attention": {"factor": 12}}},
}
# simpletuner/examples of SimpleTuner bc8e6ab7: what of their options bears on memory, and their pictures
EXAMPLES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "z-image-turbo.peft-lora": (
        {
            "model_family": "z_image",
            "model_flavour": "turbo",
            "lora_rank": 64,
            "optimizer": "optimi-lion",
            "train_batch_size": 1,
        },
        _SMALL,
    ),
    "qwen_image.peft-lora": (
        {
            "model_family": "qwen_image",
            "model_flavour": "v1.0",
            "lora_rank": 8,
            "optimizer": "optimi-lion",
            "train_batch_size": 1,
        },
        _LARGE,
    ),
    "sd3.peft-lora": (
        {"model_family": "sd3", "lora_rank": 128, "optimizer": "adamw_bf16", "train_batch_size": 3},
        _LARGE,
    ),
    "sdxl.lycoris-lokr": (
        {
            "model_family": "sdxl",
            "lora_type": "lycoris",
            "lycoris_config": "lycoris.json",
            "optimizer": "adamw_bf16",
            "train_batch_size": 1,
        },
        _LARGE,
    ),
    "sd1x-dreamshaper.peft-lora": (
        {
            "model_family": "sd1x",
            "model_flavour": "dreamshaper",
            "lora_rank": 16,
            "optimizer": "adamw_bf16",
            "train_batch_size": 1,
        },
        _SMALL,
    ),
    "lumina2.peft-lora": (
        {"model_family": "lumina2", "lora_rank": 16, "optimizer": "adamw_bf16", "train_batch_size": 2},
        _SMALL,
    ),
    "chroma.peft-lora": (
        {"model_family": "chroma", "lora_rank": 16, "optimizer": "adamw_bf16", "train_batch_size": 1},
        _SMALL,
    ),
    "krea2.peft-lora": (
        {
            "model_family": "krea2",
            "model_flavour": "raw",
            "lora_rank": 64,
            "optimizer": "optimi-lion",
            "train_batch_size": 1,
            "fuse_qkv_projections": True,
        },
        _SMALL,
    ),
    "hidream.peft-lora": (
        {"model_family": "hidream", "model_flavour": "full", "lora_rank": 128, "optimizer": "optimi-lion", **_ONE},
        _SMALL,
    ),
    "boogu-image-v0.1.peft-lora": (
        {
            "model_family": "boogu_image",
            "model_flavour": "v0.1-base",
            "lora_rank": 16,
            "optimizer": "adamw_bf16",
            **_ONE,
        },
        _LARGE,
    ),
    "ideogram-fp8.peft-lora": (
        {"model_family": "ideogram", "model_flavour": "fp8", "lora_rank": 32, "optimizer": "optimi-lion", **_ONE},
        _LARGE,
    ),
}
# what the pages of kohya's trainers say of all their points, or what their readers leave out; the edge of a picture
SCRIPTS: Mapping[str, str] = {
    "qwen_image_train_network": (
        "--dit q.safetensors --vae v.safetensors --text_encoder t.safetensors --dataset_config d.toml --xformers "
        "--mixed_precision bf16 --network_module networks.lora_qwen_image --network_dim 16 --gradient_checkpointing"
    ),
    "wan_train_network": (
        "--dit w.safetensors --dataset_config d.toml --sdpa --mixed_precision bf16 --optimizer_type adamw8bit "
        "--gradient_checkpointing --network_module networks.lora_wan --network_dim 32"
    ),
    "hv_train_network": (
        "--dit h.safetensors --dataset_config d.toml --sdpa --mixed_precision bf16 --optimizer_type adamw8bit "
        "--gradient_checkpointing --network_module networks.lora --network_dim 32"
    ),
    "fpack_train_network": (
        "--dit f.safetensors --vae v.safetensors --text_encoder1 l.safetensors --text_encoder2 c.safetensors "
        "--image_encoder i.safetensors --dataset_config d.toml --sdpa --mixed_precision bf16 "
        "--optimizer_type adamw8bit --gradient_checkpointing --network_module networks.lora_framepack "
        "--network_dim 32"
    ),
    # what this page leaves out, by how its own figures differ: 96 ranks more are 2.6 GB, as of the U-Net alone with
    # 8 bits of state, and 1.2 in full_bf16; fp8_base saves 3.0 GB, more than the U-Net has, so that the text encoders
    # stay on the card; sd-scripts 0.8.3 (2024-02)
    "sdxl_train_network": (
        "--pretrained_model_name_or_path x.safetensors --dataset_config d.toml --xformers --mixed_precision bf16 "
        "--network_module networks.lora --network_train_unet_only --cache_latents --optimizer_type AdamW8bit"
    ),
}


class Point(NamedTuple):
    config: str
    options: tuple[str, ...]
    figure: float
    unit: str
    measured: str
    address: str
    usable: int


def points() -> Iterator[Point]:
    for line in POINTS.read_text("utf-8").splitlines()[1:]:
        config, options, figure, unit, measured, address, usable = line.split("\t")
        yield Point(config, tuple(options.split()), float(figure), unit, measured, address, int(usable))


def run_of(point: Point) -> Run:
    """Its run; of a trainer before a commit that changed what counts, as it was then."""
    config, _, before = point.config.partition(" before ")
    point = point._replace(config=config)
    if before == "7cd94e43":  # "Add Qwen Image segmented checkpointing support": these options did nothing
        point = point._replace(options=tuple(one for one in point.options if not one.startswith("gradient_")))
    return of_simpletuner(point) if config in EXAMPLES else of_kohya(point)


def of_simpletuner(point: Point) -> Run:
    example, pictures = EXAMPLES[point.config]
    said = dict(option.split("=") for option in point.options)
    edge = said.pop("resolution", "")
    if "validation_resolution" in said:
        said |= {"validation_prompt": "p"}
    written = {
        name: json.loads(value) if value[0].isdigit() and value.isdigit() else value for name, value in said.items()
    }
    options = {
        "model_type": "lora",
        "mixed_precision": "bf16",
        "gradient_checkpointing": True,
        "quantize_via": "cpu",
        "output_dir": "o",
        "data_backend_config": "data.json",
        "max_train_steps": 1000,
        **example,
        **{name: value == "true" if value in ("true", "false") else value for name, value in written.items()},
    }
    own = {"id": "a", "type": "local", "instance_data_dir": "d", "crop": True, "crop_aspect": "square", **pictures}
    own |= {"caption_strategy": "instanceprompt", "instance_prompt": "🟫"}
    if edge:
        own |= {"resolution": int(edge), "resolution_type": "pixel"}
    files = {
        "data.json": Found("data.json", json.dumps([own]).encode()),
        "lycoris.json": Found("lycoris.json", json.dumps(_LOKR).encode()),
    }
    reading = read_config("config.json", json.dumps(options).encode(), {}, trainer="SimpleTuner", beside=files.get)
    run = reading.runs[0]
    # by PyTorch 2.11, which this SimpleTuner installs (setup.py: at least that), as all points of rms_norm say
    precision = replace(run.recipe.precision, half_norms=True)
    return replace(run, recipe=replace(run.recipe, precision=precision))


def of_kohya(point: Point) -> Run:
    told = ("resolution=", "frames=", "batch=")
    said = dict(one.split("=") for one in point.options if one.startswith(told))
    width, _, height = said.get("resolution", "1024").partition("x")
    how = Buckets(int(width), int(height or width))
    options = " ".join(one for one in point.options if not one.startswith(told))
    script = f"accelerate launch {point.config}.py {SCRIPTS[point.config]} --output_dir o --output_name n {options}"
    run = read_config("t.sh", script.encode(), {}).runs[0]
    frames = int(said.get("frames", "1"))
    dataset = Dataset(
        "datasets/0", "/d", "txt", resolutions=(how.width,), buckets=how, frames=frames, cache_latents=True
    )
    return replace(run, recipe=replace(run.recipe, datasets=(dataset,), batch_size=int(said.get("batch", "1"))))


def predicted(point: Point) -> int | Unknown:
    """Bytes, counted as the point counts them."""
    run = run_of(point)
    if point.config.endswith(" before 0df4bee"):  # which made 8 bits of the modulation, too
        family = family_of(run.recipe.architecture)
        kohya = family.kohya[run.trainer]
        assert kohya.memory is not None
        older = replace(kohya, memory=replace(kohya.memory, unscaled=r"_mod\."))
        known_families[family.name] = replace(family, kohya={**family.kohya, run.trainer: older})
        sizes._sizes.cache_clear()  # which remembers them by the family's name
        try:
            return _predicted(point, run)
        finally:
            known_families[family.name] = family
            sizes._sizes.cache_clear()
    return _predicted(point, run)


def _predicted(point: Point, run: Run) -> int | Unknown:
    folder = ModelFolder(run.recipe.base_model or "", "absent", run.recipe.base_model)
    memory = predict(run, folder, (), SYSTEM, (CARD,))
    if not isinstance(memory, Memory):
        return memory
    every = point.measured.endswith("all")
    peak = max(phase.total for phase in memory.phases if every or phase.name == STEP)
    return peak - CONTEXT + WORKSPACES if point.measured.startswith("allocated") else peak


def measured_more(point: Point) -> int:
    """Bytes that PyTorch's allocator counts, as the point does, beyond the tensors at the peak of two steps."""
    from zdoctor.maintenance.cases import held_by_trainer
    from zdoctor.maintenance.native_meta import use_native_meta

    use_native_meta()
    run = run_of(point)
    if run.recipe.offload.interval > 1:  # segments, which are not rehearsed
        return 0
    folder = ModelFolder(run.recipe.base_model or "", "absent", run.recipe.base_model)
    on = placed(run, folder, (), SYSTEM, (CARD,))
    assert isinstance(on, Placed), on
    of_kohya, class_name = on.case.sizes.of_kohya, family_of(run.recipe.architecture).class_name
    name = of_kohya.steps if of_kohya else f"{run.trainer}/{class_name}"
    held = held_by_trainer(on.case, name, {}, steps=2, exact=True)
    return (held.allocated if point.measured.startswith("allocated") else held.reserved) - held.peak


def main(configs: list[str], *, rehearsed: bool) -> None:
    errors: dict[bool, list[float]] = {True: [], False: []}
    exact: dict[bool, list[float]] = {True: [], False: []}
    unknown = 0
    for point in points():
        if configs and point.config not in configs:
            continue
        said, words = predicted(point), f"{point.config} {' '.join(point.options)}" + " *" * (not point.usable)
        if isinstance(said, Unknown):
            unknown += point.usable > 0
            print(f"{words:110} {point.figure:7.2f}        – {said.reason}")
            continue
        counts = point.usable > 0
        errors[counts].append(said / GIB / point.figure - 1)
        line = f"{words:110} {point.figure:7.2f} {said / GIB:8.2f} {errors[counts][-1]:+7.1%}"
        if rehearsed:
            most = (said + measured_more(point)) / GIB
            exact[counts].append(most / point.figure - 1)
            line += f" {most:8.2f} {exact[counts][-1]:+7.1%}"
        print(line, flush=True)
    for counts, which in ((True, f"points predicted, {unknown} not"), (False, "points (*) apart")):
        for found, by in ((errors, "in what is given out"), (exact, "as it was measured")):
            if found[counts]:
                print(f"{len(found[counts])} {which}; {by}: {_summed(found[counts])}")


def _summed(errors: list[float]) -> str:
    near, low = (sum(map(held, errors)) for held in (lambda one: abs(one) <= 0.1, lambda one: one < -0.05))
    span = f"from {min(errors):+.1%} to {max(errors):+.1%}"
    return f"{near / len(errors):.0%} within 10 %, {low} more than 5 % too low, {span}"


if __name__ == "__main__":
    given = sys.argv[1:]
    if "--rehearsed" in given:
        place = given.index("--rehearsed")
        sys.path[:0] = given[place + 1].split(os.pathsep)
        main(given[:place] + given[place + 2 :], rehearsed=True)
    else:
        main(given, rehearsed=False)
