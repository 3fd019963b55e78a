"""How ai-toolkit (commit 27a03a91) and zdoctor's own runner take the parts of a model, a record an architecture."""

from __future__ import annotations

from collections.abc import Mapping

from ..model.record import dataclass, replace
from ..model.run import Run


@dataclass(frozen=True)
class Fit:
    """Two numbers that must agree: `key` of a part's config.json, times `factor`, and the first set one of `own`
    in the transformer's, `default` where none is.
    """

    part: str
    key: str
    own: tuple[str, ...]
    default: int
    factor: int = 1


@dataclass(frozen=True)
class Family:
    """What the loader of one architecture opens.

    `parts` maps each part, in the order of a diffusers folder, to the classes its config.json may name, the one that
    is built first. `lora_names` is a pattern of the names in a LoRA that is read back. `single_file` is the
    repository that serves a single file with its other parts and its config, None where no single file is opened.
    `bare` says whether a folder may be the transformer itself, `extras` whether `extras_model` names the source of
    the other parts. `adapter_key` is the tensor from which the rank of a training adapter is read, None where no
    adapter is taken. `vae_path` says whether that key names the source of the VAE.
    """

    name: str
    parts: Mapping[str, tuple[str, ...]]
    fits: tuple[Fit, ...]
    lora_names: str
    single_file: str | None = None
    bare: bool = False
    extras: bool = False
    adapter_key: str | None = None
    vae_path: bool = False

    @property
    def others(self) -> tuple[str, ...]:
        """The parts beside the transformer."""
        return tuple(part for part in self.parts if part != "transformer")


_ZIMAGE = Family(
    name="Z-Image",
    parts={
        "transformer": ("ZImageTransformer2DModel",),
        "text_encoder": ("Qwen3ForCausalLM", "Qwen3Model"),
        "tokenizer": (),
        "vae": ("AutoencoderKL",),
    },
    fits=(
        Fit("text_encoder", "hidden_size", ("cap_feat_dim",), 2560),
        Fit("vae", "latent_channels", ("in_channels",), 16),
    ),
    lora_names=r"(diffusion_model|transformer)\.layers\.\d+\..+\.lora_(A|B|down|up)\.weight$",
    single_file="Tongyi-MAI/Z-Image-Turbo",
    bare=True,
    extras=True,
    adapter_key="diffusion_model.layers.0.attention.to_k.lora_A.weight",
)
_FLUX = Family(
    name="Flux",
    parts={
        "transformer": ("FluxTransformer2DModel",),
        "text_encoder": ("CLIPTextModel", "CLIPTextModelWithProjection", "CLIPModel"),
        "text_encoder_2": ("T5EncoderModel", "T5ForConditionalGeneration", "T5Model"),
        "tokenizer": ("CLIPTokenizer",),
        "tokenizer_2": ("T5TokenizerFast",),
        "vae": ("AutoencoderKL",),
        "scheduler": ("FlowMatchEulerDiscreteScheduler",),
    },
    fits=(
        Fit("text_encoder", "hidden_size", ("pooled_projection_dim",), 768),
        Fit("text_encoder_2", "d_model", ("joint_attention_dim",), 4096),
        Fit("vae", "latent_channels", ("out_channels", "in_channels"), 64, factor=4),
    ),
    lora_names=r"transformer\.(single_)?transformer_blocks\.\d+\..+\.lora_(A|B|down|up)\.weight$",
    adapter_key="transformer.single_transformer_blocks.0.attn.to_k.lora_A.weight",
    vae_path=True,
)
# Kontext and Flex.2 bring their own scheduler, and have no place for a training adapter.
_LATER = replace(
    _FLUX,
    parts={part: names for part, names in _FLUX.parts.items() if part != "scheduler"},
    adapter_key=None,
    vae_path=False,
)
_KONTEXT = replace(_LATER, name="Flux Kontext", extras=True)
_FAMILIES = {
    "zimage": _ZIMAGE,
    "z_image": _ZIMAGE,
    "flux": _FLUX,
    "flux_kontext": _KONTEXT,
    "flex2": replace(_LATER, name="Flex.2"),
}


OWN = "zdoctor"  # the trainer of a run that zdoctor's own runner is to train
BY_FILES = ("sd-scripts", "musubi-tuner")  # see part_files
OTHERS = ("ai-toolkit", "SimpleTuner", *BY_FILES)
# The architectures of zdoctor's own runner, and what it opens of each:
# doctor/train/transformer/load_transformer.py, base_model.py.
_OWN = {
    "zimage": _ZIMAGE,
    "flux": replace(_LATER, name="Flux", single_file="black-forest-labs/FLUX.1-dev", bare=True, extras=True),
    "flux_kontext": replace(_KONTEXT, single_file="black-forest-labs/FLUX.1-Kontext-dev", bare=True),
}
TRAINED = tuple(_OWN)
# ai-toolkit's layer_offloading counts for the loaders that look at it; these do not.
NEVER_OFFLOADED = ("flux", "flux_kontext")
EDITING = ("flux_kontext",)  # those of them that are given a control image


def family_of(run: Run) -> Family | None:
    """How this run's architecture is loaded; None where that is not known here, or parts are files of their own."""
    if run.trainer == OWN:
        return _OWN.get(run.recipe.architecture or "")
    return None if run.trainer in BY_FILES else _FAMILIES.get(run.recipe.architecture or "")


def architecture_of(class_name: str | None) -> str | None:
    """The architecture, as ai-toolkit spells it, whose transformer this class is."""
    return next((name for name, family in _FAMILIES.items() if class_name in family.parts["transformer"]), None)
