"""Chroma: as its authors' own files have it, and in diffusers' class, which zdoctor's runner opens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...model.record import replace
from ...model.weights import Tensor
from ..flux.record import FLUX
from ..flux.tensors import flux_original_name
from ..record import Family, Fit, Loader, Memory, Origin, Tokenizer
from ..record.block_swap import halves
from ..record.mined import mined_class
from ..record.of_trainers import AiToolkit, Flavour, KohyaMemory, SimpleTuner

_HD = "lodestones/Chroma1-HD"
_BASE = "lodestones/Chroma1-Base"
_REPOS: Mapping[str, str] = {"chroma1-hd": _HD, "chroma1-base": _BASE}
_GUIDANCE = "distilled_guidance_layer."
_NAMED_BY_FILES = ("double_blocks", "single_blocks")
_COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "transformer": ("ChromaTransformer2DModel",),
    "text_encoder": ("T5EncoderModel", "T5ForConditionalGeneration", "T5Model"),
    "tokenizer": ("T5Tokenizer", "T5TokenizerFast"),
    "vae": ("AutoencoderKL",),
}
_PUBLISHED = {"text_encoder": FLUX.published["text_encoder_2"], "vae": FLUX.published["vae"]}
# What gives all blocks their modulation has its authors' names for parts of a layer.
_OF_GUIDANCE = {".linear_1.": ".in_layer.", ".linear_2.": ".out_layer."}


def _chroma_file(repo: str) -> str:
    """Chroma1-HD.safetensors of lodestones/Chroma1-HD; of others ai-toolkit takes a file alone (chroma_model.py)."""
    return f"{repo.rpartition('/')[2]}.safetensors" if repo.startswith("lodestones/Chroma1-") else ""


def _chroma(tensors: Mapping[str, Tensor]) -> tuple[str, Mapping[str, Any]]:
    """As many blocks as a file has are built; of one without any those that are published."""
    lists = {"double_blocks": "depth", "single_blocks": "depth_single_blocks"}
    found: dict[str, int] = {}
    for name in tensors:
        place, _, rest = name.partition(".")
        number = rest.partition(".")[0]
        if place in lists and number.isdigit():
            found[lists[place]] = max(found.get(lists[place], 0), int(number) + 1)
    return "Chroma", found


_EXTRAS = "ostris/Flex.1-alpha"
CHROMA = replace(
    FLUX,
    name="chroma",
    title="Chroma",
    transformer=mined_class("Chroma", "a Chroma transformer", ("distilled_guidance_layer.norms.0.scale",)),
    loader=Loader(
        components={
            "transformer": ("Chroma",),
            "text_encoder": _COMPONENTS["text_encoder"],
            "tokenizer": ("T5TokenizerFast",),
            "vae": _COMPONENTS["vae"],
        },
        origins={
            "transformer": Origin(file=_chroma_file, built=_chroma),
            "text_encoder": Origin(repo=_EXTRAS, folder="text_encoder_2"),
            "tokenizer": Origin(repo=_EXTRAS, folder="tokenizer_2"),
            "vae": Origin(repo=_EXTRAS),
        },
    ),
    own=None,
    fits=(),
    lora_prefixes=(),
    base_version="chroma",
    blocks=_NAMED_BY_FILES,
    lora_blocks=(),
    quantized_blocks=_NAMED_BY_FILES,
    guided=False,
    published=_PUBLISHED,
    memory=Memory(
        word="", config=lambda name: {}, heads=("num_heads", 24), text=512, beside=True, drawn=1, lora=_NAMED_BY_FILES
    ),
    repos=_REPOS,
    files={},
    tokenizers=(),
    ai_toolkit=AiToolkit(bucket_step=32, more_cells=True),
    simpletuner=None,
    kohya={
        "sd-scripts": replace(
            FLUX.kohya["sd-scripts"],
            files={"transformer": "pretrained_model_name_or_path", "text_encoder": "t5xxl", "vae": "ae"},
            guidance=1.0,
            memory=KohyaMemory("sd-scripts/Chroma", _NAMED_BY_FILES, halves),
        )
    },
    runner="",
    in_diffusers="chroma in diffusers",
)


def chroma_original_name(name: str) -> str:
    """The name in its authors' files of a tensor that diffusers calls `name`; several may share one, as in Flux."""
    if not name.startswith(_GUIDANCE):
        return flux_original_name(name)
    if name.startswith(f"{_GUIDANCE}norms."):
        return name.replace(".weight", ".scale")
    for ours, theirs in _OF_GUIDANCE.items():
        name = name.replace(ours, theirs)
    return name


def _scheduler(config: Mapping[str, Any]) -> dict[str, Any]:
    """As ai-toolkit has it: that of Flux.1-dev, though nothing here is guided by a number."""
    return FLUX.scheduler({"guidance_embeds": True})


IN_DIFFUSERS = replace(
    FLUX,
    name="chroma in diffusers",
    title="Chroma",
    transformer=mined_class(
        "ChromaTransformer2DModel",
        "a Chroma transformer",
        (f"{_GUIDANCE}norms.0.weight",),
        head="attention_head_dim",
        axes=(16, 56, 56),
        original=chroma_original_name,
    ),
    loader=Loader(_COMPONENTS),
    own=Loader(_COMPONENTS, single_file=_HD, bare=True, extras=True),
    fits=(
        Fit("text_encoder", "d_model", ("joint_attention_dim",), 4096),
        Fit("vae", "latent_channels", ("out_channels", "in_channels"), 64, factor=4),
    ),
    published=_PUBLISHED,
    base_version="chroma",
    guided=False,
    overflows=None,
    scheduler=_scheduler,
    # a prompt has as many tokens as it has words for, at most 512; that of what is not wanted is drawn by itself
    memory=Memory(word="chroma", config=lambda name: {}, heads=("num_attention_heads", 24), text=512, drawn=1),
    packages=(("diffusers", (0, 34), "ChromaPipeline"),),
    repos=_REPOS,
    files={
        "ChromaTransformer2DModel": (
            ("base", f"{_BASE} Chroma1-Base.safetensors"),
            ("", f"{_HD} Chroma1-HD.safetensors"),
        ),
        **{name: FLUX.files[name] for name in ("T5EncoderModel", "AutoencoderKL")},
    },
    tokenizers=(
        Tokenizer(
            "tokenizer",
            (("google/t5-v1_1-xxl", ""), *((repo, "tokenizer") for repo in (_HD, _BASE))),
            FLUX.tokenizers[-1].command,
        ),
    ),
    ai_toolkit=CHROMA.ai_toolkit,
    # simpletuner/helpers/models/chroma/model.py (bc8e6ab7)
    simpletuner=SimpleTuner(
        family="chroma",
        flavours={
            "base": Flavour(_BASE),
            "hd": Flavour(_HD),
            "flash": Flavour("lodestones/Chroma1-Flash"),
        },
        default="base",
        targets="chroma",
        masked=True,
        bent=True,
        segments="apart",
    ),
    kohya={},
    runner=".chroma",
)
FAMILIES: tuple[Family, ...] = (CHROMA, IN_DIFFUSERS)
