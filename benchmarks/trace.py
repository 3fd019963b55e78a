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
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import ceil
from typing import Any, NamedTuple

from zdoctor.doctor.families import family_of, trained
from zdoctor.doctor.families.models.anima import OWN_CONFIG as ANIMA_OF_SD_SCRIPTS
from zdoctor.doctor.families.models.flux2 import KLEIN_4B_CONFIG, KLEIN_9B_CONFIG
from zdoctor.doctor.families.models.flux2_in_diffusers import CONFIG_4B, CONFIG_9B
from zdoctor.doctor.families.models.hidream import CONFIG as HIDREAM_CONFIG
from zdoctor.doctor.families.models.hunyuan_video import FRAMEPACK, HUNYUAN_VIDEO
from zdoctor.doctor.families.models.krea2 import CONFIG as KREA2_CONFIG
from zdoctor.doctor.families.models.lumina2 import NEXT_DIT
from zdoctor.doctor.families.models.omnigen2 import CONFIG as OMNIGEN2_CONFIG
from zdoctor.doctor.families.models.prx import CONFIG as PRX_CONFIG
from zdoctor.doctor.families.models.sd3 import LARGE as SD3_LARGE
from zdoctor.doctor.families.models.sd3 import MEDIUM as SD35_MEDIUM
from zdoctor.doctor.families.models.stable_diffusion import SD15_CONFIG, SDXL_CONFIG
from zdoctor.doctor.families.models.wan import CONFIG_5B as WAN_5B
from zdoctor.doctor.families.models.wan import CONFIG_SEEING as WAN_SEEING
from zdoctor.doctor.families.models.wan import WAN_14B, WAN_22, WAN_SEEING_22
from zdoctor.doctor.families.models.wan import WAN_SEEING as WAN_SEEING_OF_MUSUBI
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
ANIMA: dict[str, Any] = {"num_attention_heads": 16, "extra_pos_embed_type": None}
# architecture -> what of its config makes it small, and as it is published
MODELS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "zimage": ({"n_layers": 3}, {}),
    "flux": ({"num_layers": 2, "num_single_layers": 2, "guidance_embeds": True}, {"guidance_embeds": True}),
    "flux_kontext": ({"num_layers": 2, "num_single_layers": 2, "guidance_embeds": True}, {"guidance_embeds": True}),
    "qwen_image": ({"num_layers": 3}, {}),
    "qwen_image_edit_plus": ({"num_layers": 3}, {}),
    "flux2": ({"depth": 2, "depth_single_blocks": 4}, {}),
    "flux2_klein_4b": ({**KLEIN_4B_CONFIG, "depth": 2, "depth_single_blocks": 4}, dict(KLEIN_4B_CONFIG)),
    "flux2_klein_9b": ({**KLEIN_9B_CONFIG, "depth": 4, "depth_single_blocks": 2}, dict(KLEIN_9B_CONFIG)),
    "flux2 in diffusers": ({"num_layers": 2, "num_single_layers": 4}, {}),
    "flux2_klein_4b in diffusers": ({**CONFIG_4B, "num_layers": 2, "num_single_layers": 4}, dict(CONFIG_4B)),
    "flux2_klein_9b in diffusers": ({**CONFIG_9B, "num_layers": 4, "num_single_layers": 2}, dict(CONFIG_9B)),
    "chroma in diffusers": ({"num_layers": 2, "num_single_layers": 4}, {}),
    "krea2": ({**KREA2_CONFIG, "layers": 5}, dict(KREA2_CONFIG)),
    "chroma": ({"depth": 2, "depth_single_blocks": 4}, {}),
    "sdxl": (dict(SDXL_CONFIG), dict(SDXL_CONFIG)),
    "sd15": (dict(SD15_CONFIG), dict(SD15_CONFIG)),
    "wan21": ({"num_layers": 4}, {}),
    "wan21_i2v": ({**WAN_SEEING, "num_layers": 4}, dict(WAN_SEEING)),
    "wan22_5b": ({**WAN_5B, "num_layers": 4}, dict(WAN_5B)),
    "lumina2": ({"cap_feat_dim": 2304, "num_layers": 5}, {"cap_feat_dim": 2304}),
    "hidream": (
        {**HIDREAM_CONFIG, "num_layers": 2, "num_single_layers": 4, "llama_layers": [0] * 6},
        dict(HIDREAM_CONFIG),
    ),
    "ltx2": ({"num_layers": 4}, {}),
    "ideogram4": ({"num_layers": 4}, {}),
    "omnigen2": ({**OMNIGEN2_CONFIG, "num_layers": 4}, dict(OMNIGEN2_CONFIG)),
    "anima": ({**ANIMA, "num_layers": 4}, ANIMA),
    "boogu_image": ({"num_layers": 5, "num_double_stream_layers": 2}, {}),
    "ernie_image": ({"num_layers": 4}, {}),
    "prx_pixel": ({**PRX_CONFIG, "depth": 4}, dict(PRX_CONFIG)),
    "zeta_chroma": ({"in_channels": 3072, "n_layers": 4}, {"in_channels": 3072}),
}
OURS = tuple(MODELS)[:5]  # in many settings
# (pixels, batch, rank, checkpointing) of a family that only ai-toolkit trains
FEWER = (
    *((1024, 1, 16, True), (512, 2, 96, True), (1536, 1, 32, True)),
    *((768, 1, 128, True), (1024, 1, 16, False), (512, 2, 64, False)),
)


HUNYUAN_OF_FEW: dict[str, Any] = {**HUNYUAN_VIDEO, "mm_double_blocks_depth": 2, "mm_single_blocks_depth": 4}
# architecture in which a class of kohya's trainers is tried, with a config that has few blocks
OF_KOHYA: Mapping[str, tuple[str, dict[str, Any]]] = {
    "sd-scripts/Flux": ("flux", {"num_layers": 2, "num_single_layers": 4, "guidance_embeds": True}),
    "sd-scripts/Chroma": ("chroma", {"depth": 2, "depth_single_blocks": 4}),
    "musubi-tuner/Flux": ("flux_kontext", {"num_layers": 4, "num_single_layers": 2, "guidance_embeds": True}),
    "musubi-tuner/ZImageTransformer2DModel": ("zimage", {"n_layers": 4}),
    "musubi-tuner/QwenImageTransformer2DModel": ("qwen_image", {"num_layers": 4}),
    "SimpleTuner/ZImageTransformer2DModel": ("zimage", {"n_layers": 4}),
    "SimpleTuner/QwenImageTransformer2DModel": ("qwen_image", {"num_layers": 4}),
    "SimpleTuner/Lumina2Transformer2DModel": ("lumina2", {"cap_feat_dim": 2304, "num_layers": 5}),
    "SimpleTuner/ChromaTransformer2DModel": ("chroma in diffusers", {"num_layers": 2, "num_single_layers": 4}),
    "SimpleTuner/SD3Transformer2DModel": (
        "sd3",
        {**SD35_MEDIUM, "num_layers": 4, "dual_attention_layers": [0, 1]},
    ),
    "SimpleTuner/Krea2Transformer2DModel": ("krea2 in diffusers", {"num_layers": 4}),
    "SimpleTuner/HiDreamImageTransformer2DModel": (
        "hidream",
        {**HIDREAM_CONFIG, "num_layers": 2, "num_single_layers": 4, "llama_layers": [0] * 6},
    ),
    "SimpleTuner/WanTransformer3DModel": ("wan21", {"num_layers": 4}),
    "SimpleTuner/LTX2VideoTransformer3DModel": ("ltx2", {"num_layers": 4}),
    "SimpleTuner/ErnieImageTransformer2DModel": ("ernie_image", {"num_layers": 4}),
    "SimpleTuner/FluxTransformer2DModel": (
        "flux",
        {"num_layers": 2, "num_single_layers": 4, "guidance_embeds": True},
    ),
    "musubi-tuner/SingleStreamDiT": ("krea2", {**KREA2_CONFIG, "layers": 4}),
    "musubi-tuner/WanModel": ("wan21", {**WAN_14B, "num_layers": 4}),
    "musubi-tuner/WanModelI2V": ("wan21_i2v", {**WAN_SEEING_OF_MUSUBI, "num_layers": 4}),
    "musubi-tuner/WanModel2.2": ("wan22_14b", {**WAN_22, "num_layers": 4}),
    "musubi-tuner/WanModel2.2I2V": ("wan22_14b_i2v", {**WAN_SEEING_22, "num_layers": 4}),
    "musubi-tuner/HYVideoDiffusionTransformer": ("hunyuan_video", HUNYUAN_OF_FEW),
    "musubi-tuner/HYVideoDiffusionTransformerSplit": ("hunyuan_video", HUNYUAN_OF_FEW),
    "musubi-tuner/HunyuanVideoTransformer3DModelPacked": (
        "framepack",
        {**FRAMEPACK, "num_layers": 2, "num_single_layers": 4},
    ),
    "sd-scripts/UNet2DConditionModel": ("sd15", dict(SD15_CONFIG)),
    "sd-scripts/SdxlUNet2DConditionModel": ("sdxl", dict(SDXL_CONFIG)),
    "sd-scripts/MMDiT": ("sd3", {**SD3_LARGE, "num_layers": 4}),
    "sd-scripts/NextDiT": ("lumina2", {**NEXT_DIT, "n_layers": 4}),
    "sd-scripts/Anima": ("anima", {**ANIMA_OF_SD_SCRIPTS, "num_blocks": 4}),
    "musubi-tuner/Flux2": ("flux2_klein_9b", {**KLEIN_9B_CONFIG, "depth": 2, "depth_single_blocks": 4}),
}


# (pixels, batch, rank, checkpointing, in 8 bits, other options) of sd-scripts' families
OF_SD_SCRIPTS = (
    *((512, 1, 16, True, False, ""), (512, 2, 96, True, False, ""), (1024, 1, 16, True, False, "")),
    *((1024, 1, 96, True, True, ""), (1024, 2, 16, True, False, ""), (768, 2, 32, True, True, "")),
    *((512, 1, 16, False, False, ""), (512, 2, 64, False, False, ""), (1024, 1, 32, False, False, "")),
    *((512, 1, 96, False, True, ""), (1024, 1, 64, True, False, "--full_bf16")),
    (512, 1, 64, False, False, "--full_bf16"),
)
OF_UNET = (
    *(
        (1024, 1, 32, True, False, "--network_args conv_dim=32"),
        (512, 1, 32, False, False, "--network_args conv_dim=32"),
    ),
    (512, 1, 16, False, False, "in full"),
    *((1024, 1, 16, True, False, "--mixed_precision no"), (512, 2, 64, False, False, "--mixed_precision no")),
)


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
