"""Peaks of training steps that are rehearsed without data, beside what is predicted in a closed form.

    python benchmarks/trace.py [full] [FAMILY ...] [TRAINER/CLASS ...] [--source CHECKOUT]

The real transformer with a LoRA makes a step on tensors without data (doctor/train/rehearsal), which takes no GPU
and little memory: with few blocks in many settings, or as it is published in few (`full`). Counted are the bytes of
all tensors that are alive, each rounded up to 512, but for the optimizer's, and not CUDA's context, workspaces and
fragmentation. Of a class of ai-toolkit's own it is that of its checkout; one of musubi-tuner or sd-scripts is named
as maintenance/of_trainers.py has it, and computes as these trainers do. The prediction is what `zdoctor check` says
of the same model and settings. Minutes on a CPU.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import ceil
from typing import NamedTuple

from trace_models import FEWER, MODELS, OF_KOHYA, OF_SD_SCRIPTS, OF_UNET, OURS

from zdoctor.doctor.families import family_of, trained
from zdoctor.doctor.families.tensors import needed_tensors
from zdoctor.doctor.memory import GIB, Placed, placed, predict
from zdoctor.doctor.memory.case import Case
from zdoctor.doctor.memory.rehearsal import asked_of
from zdoctor.doctor.model import Component, Dataset, Gpu, Memory, ModelFolder, Run, System, Unknown
from zdoctor.doctor.model.memory import STEP
from zdoctor.doctor.model.recipe import Network
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.train.rehearsal.inputs import Batch
from zdoctor.doctor.train.rehearsal.step import Step
from zdoctor.doctor.train.rehearsal.step import rehearsed as run_step
from zdoctor.doctor.trainers.read import Found, read_config
from zdoctor.maintenance.cases import held_by_trainer
from zdoctor.maintenance.native_meta import use_native_meta
from zdoctor.maintenance.sd_scripts_classes import OF_SD_SCRIPTS as OWN_OF_SD_SCRIPTS
from zdoctor.maintenance.trainer_classes import own

SYSTEM = System("linux", "6", "3.11", "/c", "/h", 4, 32 * GIB, 28 * GIB)
CARD = Gpu(0, "a card", 900 * GIB, 890 * GIB, (9, 0), "1", "assumed")
COUNTED = ("transformer", "LoRA weights", "gradients", "activations")
OLD_CARD = replace(CARD, capability=(7, 5))


class Setting(NamedTuple):
    architecture: str
    trainer: str
    pixels: int
    batch: int
    rank: int
    quantized: bool
    checkpointing: bool
    controls: int = 0
    is_old: bool = False
    frames: int = 1
    offloads: bool = False
    more: str = ""


def _is_given_images(architecture: str) -> bool:
    """Whether nobody trains it without control images."""
    edits = family_of(architecture).edits
    return edits is not None and not edits.at_most


def settings(architecture: str, *, full: bool) -> Iterator[Setting]:
    """A runner's step on an old card is one in float16 on 8 bits."""
    edits = _is_given_images(architecture)
    controls = (1, 2) if architecture == "qwen_image_edit_plus" else (1,) if edits else (0,)
    if full:
        for again, size, count in ((True, 1024, 1), (True, 512, 2), (False, 512, 1)):
            yield Setting(architecture, "ai-toolkit", size, count, 16, again, again, controls[0])
        return
    if family_of(architecture).own is not None and architecture not in trained():
        yield from of_runner(architecture, 0)
        return
    if architecture not in OURS:
        for size, count, rank, again in FEWER:
            quantized = again and count == 1 and bool(family_of(architecture).quantized_blocks)
            yield Setting(architecture, "ai-toolkit", size, count, rank, quantized, again, controls[-1])
        if family_of(architecture).own is not None:
            yield from of_runner(architecture, controls[-1])
        return
    for size, count, rank, again in product((512, 1024, 1536), (1, 2), (16, 96), (True, False)):
        yield Setting(architecture, "ai-toolkit", size, count, rank, (rank > 16) == again, again, controls[-1])
    if family_of(architecture).own is not None:
        yield from of_runner(architecture, controls[-1])


def of_runner(architecture: str, controls: int) -> Iterator[Setting]:
    for size, count, rank, old in product((512, 1024), (1, 2), (16, 64), (False, True)):
        yield Setting(architecture, RUNNER, size, count, rank, True, count == 1, controls, old)


def run_of(one: Setting) -> Run:
    if "/" in one.trainer:
        return (run_of_simpletuner if one.trainer.startswith("SimpleTuner/") else run_of_kohya)(one)
    folders = "".join(f", control_path_{n + 1}: c" for n in range(one.controls))
    again = str(one.checkpointing).lower()
    quantize = "quantize: true, qtype: qfloat8, quantize_te: false, " if one.quantized else ""
    text = (
        "job: extension\nconfig:\n  name: t\n  process:\n  - type: sd_trainer\n    training_folder: out\n"
        f"    network: {{type: lora, linear: {one.rank}, linear_alpha: {one.rank}}}\n"
        f"    train: {{dtype: bf16, batch_size: {one.batch}, gradient_checkpointing: {again}, "
        "cache_text_embeddings: true, disable_sampling: true}\n"
        f"    datasets: [{{folder_path: d, resolution: {one.pixels}, cache_latents_to_disk: true{folders}}}]\n"
        f"    model: {{{quantize}name_or_path: /m, arch: {one.architecture}}}\n"
    )
    run = read_config("t.yaml", text.encode(), {}).runs[0]
    if one.trainer != RUNNER:
        return run
    precision = replace(run.recipe.precision, quantization="int8")
    return replace(run, trainer=RUNNER, recipe=replace(run.recipe, precision=precision))


def settings_of_kohya(name: str) -> Iterator[Setting]:
    architecture = OF_KOHYA[name][0]
    controls = int(_is_given_images(architecture))
    if name in OWN_OF_SD_SCRIPTS:
        for size, count, rank, again, quantized, more in (*OF_SD_SCRIPTS, *(OF_UNET if "UNet" in name else ())):
            yield Setting(architecture, name, size, count, rank, quantized, again, more=more)
        return
    memory = family_of(architecture).memory
    films = memory is not None and memory.frames > 0
    for size, count, rank, again, quantized in product((512, 1024), (1, 2), (16, 96), (True, False), (True, False)):
        if (size, count, again) != (1024, 2, False):  # which nobody trains
            one = Setting(architecture, name, size, count, rank, quantized, again, controls)
            yield one._replace(frames=17 if films and size == 512 else 1, offloads=films and again and quantized)


def run_of_simpletuner(one: Setting) -> Run:
    """In int8 by SDNQ, where it is quantized: a LoRA on what SimpleTuner takes unless it is told."""
    of_trainer = family_of(one.architecture).simpletuner
    assert of_trainer is not None
    options = {
        "model_family": of_trainer.family,
        "model_flavour": next(iter(of_trainer.flavours)),
        "model_type": "lora",
        "lora_rank": one.rank,
        "train_batch_size": one.batch,
        "gradient_checkpointing": one.checkpointing,
        "base_model_precision": "int8-sdnq" if one.quantized else "no_change",
        "sdnq_group_size": -1,
        "mixed_precision": "bf16",
        "output_dir": "o",
        "data_backend_config": "d.json",
    }
    pictures = [{"id": "a", "type": "local", "instance_data_dir": "d", "resolution": one.pixels}]
    pictures[0] |= {"resolution_type": "pixel", "caption_strategy": "textfile"}
    found = {"d.json": Found("d.json", json.dumps(pictures).encode())}
    text = json.dumps(options).encode()
    return read_config("c.json", text, {}, trainer="SimpleTuner", beside=found.get).runs[0]


def run_of_kohya(one: Setting) -> Run:
    trainer = one.trainer.partition("/")[0]
    kohya = family_of(one.architecture).kohya[trainer]
    flags = " --gradient_checkpointing" * one.checkpointing + " --fp8_base" * one.quantized
    flags += " --model_type chroma" * (one.architecture == "chroma")
    flags += " --gradient_checkpointing_cpu_offload" * one.offloads
    flags += " --split_attn" * one.trainer.endswith("Split")
    flags += "" if one.more == "in full" else f" --sdpa {one.more}"
    text = (
        f"accelerate launch {kohya.script}.py --{next(iter(kohya.files.values()))} /m/t --mixed_precision bf16 "
        f"--output_dir o --network_module {kohya.network_module} --network_dim {one.rank} --dataset_config d.toml "
        f"--network_train_unet_only --cache_latents --cache_text_encoder_outputs{flags}"
    )
    run = read_config("t.sh", text.encode(), {}, trainer=trainer).runs[0]
    folders = ("/c",) * one.controls
    made = Dataset("datasets/0", "/d", "txt", resolutions=(one.pixels,), control_folders=folders, frames=one.frames)
    recipe = replace(run.recipe, architecture=one.architecture, batch_size=one.batch, datasets=(made,))
    return replace(run, recipe=replace(recipe, controls_match=True))


def predicted(memory: Memory | Unknown) -> int:
    assert isinstance(memory, Memory), memory
    step = next(phase for phase in memory.phases if phase.name == STEP)
    return sum(size for name, size in step.items.items() if name in COUNTED)


def rehearsed(case: Case, of_kohya: str) -> int:
    if of_kohya:
        return held_by_trainer(case, of_kohya, OF_KOHYA[of_kohya][1]).peak
    asked = asked_of(case)
    batch = Batch(asked.batch, asked.cells, asked.text, tuple(asked.controls))
    network = Network(rank=asked.rank, alpha=float(asked.rank))
    step = Step(
        asked.class_name,
        asked.config,
        asked.blocks,
        asked.trained,
        batch,
        network,
        asked.way,
        quantized=asked.quantized,
        checkpointing=asked.checkpointing,
        own=own(asked.class_name),
    )
    return run_step(step).peak


def _encoders(architecture: str) -> dict[str, Component]:
    """Text encoders of which only the files would say how large they are: no part of a step."""
    family = family_of(architecture)
    names = family.loader.others if family.loader else ()
    unknown = (name for name in names if name.startswith("text_encoder") and name not in family.published)
    return {name: Component(name, "/m/e", "", {}, (), needed={"a.weight": (1, 1)}) for name in unknown}


def of_trainer(name: str, architecture: str) -> str:
    """The class that says how large its parts are."""
    family = family_of(architecture)
    kohya = family.kohya.get(name.partition("/")[0])
    own = {} if kohya is None else kohya.classes
    return own[family.loader.main][0] if family.loader and family.loader.main in own else family.class_name


def main(families: list[str], *, full: bool) -> None:
    print(f"{'setting':84} {'rehearsed':>9} {'predicted':>9}  GiB")
    errors: list[float] = []
    for asked in families or (*MODELS, *OF_KOHYA):
        of_kohya = asked if "/" in asked else ""
        architecture, config = OF_KOHYA[asked] if of_kohya else (asked, MODELS[asked][full])
        name = of_trainer(of_kohya, architecture)
        main = loader.main if (loader := family_of(architecture).loader) else "transformer"
        part = Component(main, "/m/t", name, config, (), needed=needed_tensors(name, config))
        folder = ModelFolder("/m", "diffusers", "/m", {main: part, **_encoders(architecture)})
        for one in settings_of_kohya(of_kohya) if of_kohya else settings(architecture, full=full):
            began = time.monotonic()
            run, card = run_of(one), OLD_CARD if one.is_old else CARD
            on = placed(run, folder, (), SYSTEM, (card,))
            assert isinstance(on, Placed), on
            found, said = rehearsed(on.case, of_kohya), predicted(predict(run, folder, (), SYSTEM, (card,)))
            errors.append(said / found - 1)
            words = (
                f"{architecture} {one.trainer} {one.pixels} px, batch {one.batch}, rank {one.rank}, "
                f"{'8 bits' if one.quantized else 'bf16'}, {'' if one.checkpointing else 'not '}checkpointed"
                f"{', float16' if one.is_old else ''} {one.more}"
            )
            seconds = time.monotonic() - began
            print(f"{words:84} {found / GIB:9.2f} {said / GIB:9.2f}  {errors[-1]:+.1%}, {seconds:.0f} s", flush=True)
    sizes_off = sorted(map(abs, errors))
    print(
        f"{len(errors)} settings: median error {statistics.median(sizes_off):.2%}, worst {sizes_off[-1]:.1%}, "
        f"19 of 20 within {sizes_off[ceil(0.95 * len(sizes_off)) - 1]:.1%}"
    )


if __name__ == "__main__":
    words = sys.argv[1:]
    if "--source" in words:
        place = words.index("--source")
        sys.path.insert(0, words[place + 1])
        del words[place : place + 2]
    use_native_meta()
    main([word for word in words if word != "full"], full="full" in words)
