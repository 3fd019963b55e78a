"""Full-size model files that hold no data: a true header before a hole. A check reads headers only."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from functools import cache
from math import prod
from pathlib import Path

from zdoctor.doctor.examine.config_file import beside
from zdoctor.doctor.families import classes
from zdoctor.doctor.families.components.autoencoder_kl import VAE, original_names
from zdoctor.doctor.families.components.clip_text import CLIP_L
from zdoctor.doctor.families.components.qwen3 import QWEN3_4B
from zdoctor.doctor.families.components.t5 import T5_XXL
from zdoctor.doctor.families.flux.tensors import flux_original_name
from zdoctor.doctor.families.part_files import part_files
from zdoctor.doctor.families.record.shapes import Shapes
from zdoctor.doctor.families.record.single_file import original_layout
from zdoctor.doctor.families.tensors import needed_tensors
from zdoctor.doctor.families.zimage.tensors import zimage_original_name
from zdoctor.doctor.model import ModelFolder, Run
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.model import probe_model
from zdoctor.doctor.trainers.read import Reading, read_config

from .models import NO_HUB

FLUX = "FluxTransformer2DModel"
ZIMAGE = "ZImageTransformer2DModel"


def of(class_name: str, config: Mapping[str, object]) -> Shapes:
    shapes = needed_tensors(class_name, config)
    assert shapes is not None
    return shapes


def flux(**config: object) -> Shapes:
    """The transformer of FLUX.1-dev in the names of its authors."""
    return original_layout(flux_original_name, of(FLUX, {"guidance_embeds": True, **config}))


def clip_l() -> Shapes:
    return {f"text_model.{name}": shape for name, shape in of("CLIPTextModel", CLIP_L).items()}


def t5xxl() -> Shapes:
    return of("T5EncoderModel", T5_XXL)


def ae() -> Shapes:
    return original_names(of("AutoencoderKL", VAE))


def diffusers_vae() -> Shapes:
    return of("AutoencoderKL", VAE)


def zimage() -> Shapes:
    """The transformer of Z-Image in ComfyUI's names."""
    return original_layout(zimage_original_name, of(ZIMAGE, {}))


def qwen() -> Shapes:
    return of("Qwen3ForCausalLM", QWEN3_4B)


def without(shapes: Shapes, part: str) -> Shapes:
    return {name: shape for name, shape in shapes.items() if part not in name}


def write(file: Path, shapes: Shapes, dtype: str = "BF16", width: int = 2) -> Path:
    """A safetensors file of these tensors; on disk it takes no more than its header."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        size = prod(shape) * width
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as handle:
        handle.write(len(text).to_bytes(8, "little") + text)
        handle.truncate(8 + len(text) + offset)
    return file


@cache
def _sound() -> Path:
    """Where the sound files lie; never to be written to."""
    return Path(tempfile.mkdtemp(prefix="zdoctor-parts-"))


@cache
def _flux_files() -> dict[str, str]:
    made = {"pretrained_model_name_or_path": flux(), "clip_l": clip_l(), "t5xxl": t5xxl(), "ae": ae()}
    return {option: str(write(_sound() / f"{option}.safetensors", shapes)) for option, shapes in made.items()}


@cache
def _zimage_files() -> dict[str, str]:
    made = {"dit": zimage(), "text_encoder": qwen(), "vae": ae()}
    return {option: str(write(_sound() / f"{option}.safetensors", shapes)) for option, shapes in made.items()}


def flux_files() -> dict[str, str]:
    """The four files of a Flux training by sd-scripts, by their options."""
    return dict(_flux_files())


def zimage_files() -> dict[str, str]:
    """The three files of a Z-Image training by musubi-tuner, by their options."""
    return dict(_zimage_files())


# what musubi-tuner calls each of these, and what chooses it
OF_MUSUBI: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "qwen_image": ("qwen_image", {}),
    "qwen_image_edit": ("qwen_image", {"model_version": "edit"}),
    "qwen_image_edit_plus": ("qwen_image", {"model_version": "edit-2511"}),
    "flux2": ("flux_2", {}),
    "flux2_klein_4b": ("flux_2", {"model_version": "klein-base-4b"}),
    "flux2_klein_9b": ("flux_2", {"model_version": "klein-9b"}),
    "framepack": ("fpack", {"network_module": "networks.lora_framepack"}),
    "hunyuan_video": ("hv", {"network_module": "networks.lora"}),
    "krea2": ("krea2", {}),
    "wan21": ("wan", {"task": "t2v-14B"}),
    "wan21_1b": ("wan", {"task": "t2v-1.3B"}),
    "wan21_i2v": ("wan", {"task": "i2v-14B"}),
    "wan22_14b": ("wan", {"task": "t2v-A14B"}),
    "wan22_14b_i2v": ("wan", {"task": "i2v-A14B"}),
}


def musubi_command(architecture: str, options: Mapping[str, object]) -> str:
    model, chosen = OF_MUSUBI[architecture]
    more = {"network_module": f"networks.lora_{model}", **chosen, **options}
    return command(f"{model}_train_network.py", more)


@cache
def musubi_shapes(architecture: str) -> Mapping[str, Shapes]:
    """What the files of a training by musubi-tuner hold, by their options."""
    run = run_of(musubi_command(architecture, {"dit": "d.safetensors", "mixed_precision": "bf16"}))
    kinds = {part.option: (classes()[part.class_name], part.config) for part in part_files(run)}
    return {option: kind.by_kohya(config, (), False) for option, (kind, config) in kinds.items()}


@cache
def musubi_files(architecture: str) -> Mapping[str, str]:
    """The files of such a training, by their options."""
    every = musubi_shapes(architecture).items()
    return {option: str(write(_sound() / f"{architecture}_{option}.safetensors", held)) for option, held in every}


# what a command tells of a LoRA beside its files
LORA = {"output_dir": "out", "learning_rate": "1e-4"}


def flux_command(options: Mapping[str, object]) -> str:
    return command("flux_train_network.py", {"network_module": "networks.lora_flux", **LORA, **options})


def sdxl_command(options: Mapping[str, object]) -> str:
    return command("sdxl_train_network.py", {"network_module": "networks.lora", **options})


def zimage_command(options: Mapping[str, object]) -> str:
    return command("zimage_train_network.py", {"network_module": "networks.lora_zimage", **LORA, **options})


def command(script: str, options: Mapping[str, object]) -> str:
    """A command for bash, an option to a line; True is a flag, None leaves an option out."""
    words = [f"accelerate launch --mixed_precision bf16 {script}"]
    for name, value in options.items():
        if value is True:
            words.append(f"  --{name}")
        elif isinstance(value, list):
            words.append(f"  --{name} " + " ".join(f"'{entry}'" for entry in value))
        elif value is not None:
            words.append(f"  --{name} '{value}'")
    return " \\\n".join(words) + "\n"


def reading_of(text: str, folder: Path | None = None) -> Reading:
    path = str((folder or Path("/nowhere")) / "train.sh")
    reading = read_config(path, text.encode(), {}, beside=beside(path))
    assert reading.runs, (reading.config.problem, reading.reason)
    return reading


def run_of(text: str, folder: Path | None = None) -> Run:
    return reading_of(text, folder).runs[0]


def probed(run: Run) -> ModelFolder:
    seen = probe_model(LiveWorld(), run, NO_HUB)
    assert isinstance(seen, ModelFolder), seen
    return seen
