"""What diffusers' own loaders apply of a LoRA is what the table says, for every spelling; ComfyUI's by example."""

from __future__ import annotations

import inspect
from copy import deepcopy
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from zdoctor.doctor.families import families, family_of
from zdoctor.doctor.families.lora_keys import published_config, read_lora
from zdoctor.doctor.families.lora_programs import (
    LOADERS,
    common_names,
    is_known,
    passed_over,
    programs_of,
    without_magnitude,
)
from zdoctor.doctor.families.models.unet_names import processor_name
from zdoctor.doctor.families.record.single_file import original_parts
from zdoctor.doctor.model import Lora
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.world.safetensors import read_weight_file
from zdoctor.tests.loras import RANK, Pairs, as_kohya, as_peft, pairs_of, saved
from zdoctor.tests.often import often

CHROMA = "chroma in diffusers"
KLEIN = "flux2_klein_4b in diffusers"
KREA = "krea2 in diffusers"
# The real class with few blocks, and its pipeline in diffusers.
SMALL: dict[str, dict[str, Any]] = {
    "zimage": {"n_layers": 1, "n_refiner_layers": 1},
    "flux": {"num_layers": 1, "num_single_layers": 1},
    CHROMA: {"num_layers": 1, "num_single_layers": 1},
    "qwen_image": {"num_layers": 1},
    KLEIN: {"num_layers": 1, "num_single_layers": 1, "num_attention_heads": 24},
    "wan21": {"num_layers": 1},
    "wan21_i2v": {"num_layers": 1, "image_dim": 1280, "added_kv_proj_dim": 5120, "in_channels": 36},
    "lumina2": {"num_layers": 1, "num_refiner_layers": 1},
    "ltx2": {"num_layers": 1},
    "hidream": {
        "num_layers": 1,
        "num_single_layers": 1,
        "patch_size": 2,
        "num_routed_experts": 4,
        "caption_channels": [4096, 4096],
        "llama_layers": [0, 1],
    },
    KREA: {"num_layers": 1},
    "anima": {"num_layers": 1, "num_attention_heads": 16},
    "ernie_image": {"num_layers": 1},
    "sdxl": {},
    "sd15": {},
}
PIPELINES = {
    "zimage": "ZImagePipeline",
    "flux": "FluxPipeline",
    CHROMA: "ChromaPipeline",
    "qwen_image": "QwenImagePipeline",
    KLEIN: "Flux2KleinPipeline",
    "wan21": "WanPipeline",
    "wan21_i2v": "WanImageToVideoPipeline",
    "lumina2": "Lumina2Pipeline",
    "ltx2": "LTX2Pipeline",
    "hidream": "HiDreamImagePipeline",
    KREA: "Krea2Pipeline",
    "ernie_image": "ErnieImagePipeline",
    "sdxl": "StableDiffusionXLPipeline",
    "sd15": "StableDiffusionPipeline",
}
USUAL = ("transformer.", "diffusion_model.", "lora_unet_")
PREFIXES = (*USUAL, "lora_transformer_", "lycoris_", "", "unet.", "base_model.model.")
WORDS = {
    "A": (".lora_A.weight", ".lora_B.weight"),
    "A.default": (".lora_A.default.weight", ".lora_B.default.weight"),
    "down": (".lora_down.weight", ".lora_up.weight"),
    "dot": (".lora.down.weight", ".lora.up.weight"),
    "_lora": ("_lora.down.weight", "_lora.up.weight"),
}
# Without a prefix diffusers applies a Z-Image LoRA with alpha keys, and none without: no program writes such a file.
ODD = {("zimage", "", "d"), ("zimage", "", "o")}
# Of the original names diffusers applies what it calls the same, and attention.out in some spellings.
PARTLY = {("zimage", "diffusion_model.", "o"), ("zimage", "transformer.", "o")}


def spelt(family: str, pairs: Pairs, prefix: str, names: str, words: str, alpha: float | None) -> dict[str, Tensor]:
    record = family_of(family)
    assert record.transformer is not None
    owners = {f"{name}.weight": [f"{name}.weight"] for name in pairs}
    if names == "o":
        owners = original_parts(record.transformer.original, list(owners))
    elif names == "p":
        owners = {f"{processor_name(name)}.weight": [f"{name}.weight"] for name in pairs}
    found: dict[str, Tensor] = {}
    for owner, parts in owners.items():
        module = owner.removesuffix(".weight")
        key = prefix + (module.replace(".", "_") if prefix.endswith("_") else module)
        of = [pairs[part.removesuffix(".weight")] for part in parts]
        down, up = WORDS[words]
        found |= {f"{key}{down}": of[0][0], f"{key}{up}": torch.cat([one[1] for one in of])}
        if alpha is not None:
            found[f"{key}.alpha"] = torch.tensor(alpha).bfloat16()
    return found


def lora_of(tmp_path: Path, tensors: dict[str, Tensor]) -> Lora:
    path = str(saved(tmp_path / "lora.safetensors", tensors))
    return read_lora(path, read_weight_file(LiveWorld(), path))


def small_config(family: str) -> dict[str, Any]:
    """The config.json of the published model, but for its few blocks."""
    return {**published_config(family_of(family)), **SMALL[family]}


@cache
def small_pairs(family: str) -> Pairs:
    return pairs_of(family, small_config(family))


@cache
def built(family: str) -> Any:
    """The real class with few blocks, its weights never written."""
    import diffusers

    kind = getattr(diffusers, family_of(family).class_name)
    known = inspect.signature(kind.__init__).parameters
    with torch.device("meta"):
        model: Any = kind(**{key: value for key, value in small_config(family).items() if key in known})
    return model.to(torch.bfloat16).to_empty(device="cpu")


def loadable(family: str) -> tuple[Any, Any]:
    """Modules of its own, with the weights of all others, and its pipeline without other components."""
    import diffusers

    library: Any = diffusers
    record = family_of(family)
    whole = built(family)
    model = deepcopy(whole, {id(one): one for one in (*whole.parameters(), *whole.buffers())})
    if family == "anima":  # has modular pipelines alone
        from diffusers.loaders.lora_pipeline import AnimaLoraLoaderMixin

        class Loading(library.DiffusionPipeline, AnimaLoraLoaderMixin):  # type: ignore[misc]
            def __init__(self, transformer: Any, text_conditioner: Any) -> None:
                super().__init__()
                self.register_modules(transformer=transformer, text_conditioner=text_conditioner)

        return model, Loading(model, None)
    builder = getattr(library, PIPELINES[family])
    own = "unet" if record.convolves else "transformer"
    needed = {
        name for name, one in inspect.signature(builder.__init__).parameters.items() if one.default is one.empty
    }
    return model, builder(**{**dict.fromkeys(needed - {"self"}), own: model})


def applied(family: str, tensors: dict[str, Tensor], pairs: Pairs, scale: float) -> int:
    """How many of the layers diffusers adds the right product to; 0 where it refuses the file."""
    model, pipeline = loadable(family)
    try:
        pipeline.load_lora_weights(dict(tensors), adapter_name="x")
    except Exception:  # it refuses a file in many ways
        return 0
    return sum(
        _is_right(module, *pairs[name], scale)
        for name, module in model.named_modules()
        if name in pairs and "x" in getattr(module, "lora_A", ())
    )


def _is_right(module: Any, down: Tensor, up: Tensor, scale: float) -> bool:
    if module.lora_B["x"].weight.is_meta:  # nothing was loaded into it
        return False
    factors = module.lora_B["x"].weight, module.lora_A["x"].weight, up, down
    b, a, wanted_b, wanted_a = (one.flatten(1)[:16, :16].float() for one in factors)
    return torch.allclose(b @ a * module.scaling["x"], wanted_b @ wanted_a * scale, rtol=0.03, atol=1e-5)


def spellings(family: str, prefix: str) -> list[tuple[str, str, float | None]]:
    """Whose names, which words and which alpha are tried under a prefix."""
    record = family_of(family)
    assert record.transformer is not None
    words = ("A", "A.default", "down", "dot") if prefix in USUAL else ("A", "down")
    alike = all(
        record.transformer.original(name) == name for name in record.transformer.tensors(small_config(family))
    )
    if not record.convolves:
        return list(product("d" if alike else "do", words, (None, 1.0)))
    if prefix not in ("unet.", "lora_unet_"):  # loading takes long
        return [("d", "A", None), ("o", "down", 1.0)]
    return [*product("do", ("A", "down"), (None, 1.0)), ("d", "dot", None), ("p", "_lora", None)]


# Loading takes long: under each prefix those that diffusers' loaders tell apart by rules of their own.
OFTEN = ("flux", KLEIN, "sd15")
CASES = [
    pytest.param(prefix, family, marks=[] if family in OFTEN or prefix == USUAL[1] else [pytest.mark.thorough])
    for family, prefix in product(SMALL, PREFIXES)
]


@pytest.mark.parametrize(("prefix", "family"), CASES)
def test_diffusers_applies_what_the_table_says(family: str, prefix: str, tmp_path: Path) -> None:
    pairs = small_pairs(family)
    for names, words, alpha in spellings(family, prefix):
        of = {name: pair for name, pair in pairs.items() if ".to_" in name} if names == "p" else pairs
        tensors = spelt(family, of, prefix, names, words, alpha)
        count = applied(family, tensors, of, 1.0 if alpha is None else alpha / RANK)
        lora = lora_of(tmp_path, tensors)
        missed = {name for module in passed_over(lora, "diffusers") for name in module.linears}
        if (family, prefix, names) in ODD | PARTLY:
            assert count == len(of) or missed, (names, words, alpha)
        elif count == len(of):
            assert not missed, (names, words, alpha)
        else:
            assert missed == of.keys(), (names, words, alpha, count)


def test_comfyui_by_example(tmp_path: Path) -> None:
    """Its map has the original names under lora_unet_, and diffusers' under each family's own prefixes."""
    pairs = pairs_of("zimage")
    assert not passed_over(lora_of(tmp_path, as_peft(pairs, "diffusion_model.")), "ComfyUI")
    assert not passed_over(lora_of(tmp_path, as_peft(pairs, "transformer.")), "ComfyUI")
    assert not passed_over(lora_of(tmp_path, as_kohya("zimage", pairs, original=True)), "ComfyUI")
    missed = passed_over(lora_of(tmp_path, as_kohya("zimage", pairs, original=False)), "ComfyUI")
    assert {module.path for module in missed} == {
        f"layers_0_attention_{name}" for name in ("to_q", "to_k", "to_v", "to_out_0")
    }
    flux = pairs_of("flux")
    assert not passed_over(lora_of(tmp_path, as_peft(flux, "transformer.")), "ComfyUI")
    assert len(passed_over(lora_of(tmp_path, as_peft(flux, "diffusion_model.")), "ComfyUI")) == len(flux)


@pytest.mark.parametrize("family", SMALL)
@pytest.mark.parametrize("alpha", [None, 1.0])
def test_what_is_written_as_a_repair_is_read_by_all(family: str, alpha: float | None, tmp_path: Path) -> None:
    pairs = small_pairs(family)
    lora = lora_of(tmp_path, spelt(family, pairs, "diffusion_model.", "o", "A", alpha))
    common = common_names(lora, alpha is not None)
    if common is None:
        assert alpha is not None  # diffusers takes none of these families
        assert family in ("lumina2", "ltx2", "hidream", KREA, "anima", "ernie_image")
        return
    tensors = spelt(family, pairs, common.prefix, common.names, common.words, alpha)
    lora = lora_of(tmp_path, tensors)
    assert not any(passed_over(lora, program) for program in LOADERS)
    assert set(LOADERS) <= set(programs_of(lora))
    assert applied(family, tensors, pairs, 1.0 if alpha is None else alpha / RANK) == len(pairs)


@pytest.mark.parametrize("family", ["wan21", "lumina2"])
def test_names_of_which_diffusers_asks_for_whole_blocks(family: str, tmp_path: Path) -> None:
    prefix, words, alpha = ("lora_unet_", "down", 1.0) if family == "wan21" else ("diffusion_model.", "A", None)
    pairs = {name: pair for name, pair in small_pairs(family).items() if "attn" in name}
    tensors = spelt(family, pairs, prefix, "o", words, alpha)
    assert applied(family, tensors, pairs, 1.0 if alpha is None else alpha / RANK) == 0
    lora = lora_of(tmp_path, tensors)
    assert len(passed_over(lora, "diffusers")) == len(lora.modules)
    assert not passed_over(lora, "ComfyUI")


MAGNITUDES = ("lora_magnitude_vector", "dora_scale")


@pytest.mark.parametrize("family", ["zimage", "flux", "qwen_image", KLEIN, "wan21", "hidream", "ltx2", KREA])
@pytest.mark.parametrize("prefix", ["transformer.", "diffusion_model."])
@pytest.mark.parametrize("magnitude", MAGNITUDES)
def test_magnitudes_that_diffusers_takes(family: str, prefix: str, magnitude: str, tmp_path: Path) -> None:
    pairs = small_pairs(family)
    tensors = spelt(family, pairs, prefix, "d", "A", None)
    for key in [key for key in tensors if "lora_B" in key]:
        tensors[key.replace("lora_B.weight", magnitude)] = torch.rand(tensors[key].shape[0]).bfloat16()
    model, pipeline = loadable(family)
    try:
        pipeline.load_lora_weights(dict(tensors), adapter_name="x")
    except Exception:
        pairs_read = magnitudes_read = 0
    else:
        pairs_read = sum("x" in getattr(one, "lora_A", ()) for one in model.modules())
        magnitudes_read = sum("x" in getattr(one, "lora_magnitude_vector", ()) for one in model.modules())
    lora = lora_of(tmp_path, tensors)
    assert (len(passed_over(lora, "diffusers")) == len(pairs)) == (pairs_read == 0)
    assert len(without_magnitude(lora, "diffusers")) == pairs_read - magnitudes_read
    if not passed_over(lora, "ComfyUI"):
        assert bool(without_magnitude(lora, "ComfyUI")) == (magnitude == "lora_magnitude_vector")


LOKR = product(
    ("zimage", "flux", "qwen_image", KLEIN, "wan21", "hidream"), ("transformer.", "diffusion_model.", "lycoris_")
)


@pytest.mark.parametrize(("family", "prefix"), often(LOKR, 4))
@pytest.mark.parametrize("alpha", [None, 1.0])
def test_a_lokr_that_diffusers_takes(family: str, prefix: str, alpha: float | None, tmp_path: Path) -> None:
    pairs, tensors = small_pairs(family), {}
    for name, (down, up) in pairs.items():
        key = prefix + (name.replace(".", "_") if prefix == "lycoris_" else name)
        tensors[f"{key}.lokr_w1"] = torch.rand(4, 4).bfloat16()
        tensors[f"{key}.lokr_w2"] = torch.rand(up.shape[0] // 4, down.shape[1] // 4).bfloat16()
        if alpha is not None:
            tensors[f"{key}.alpha"] = torch.tensor(alpha)
    model, pipeline = loadable(family)
    try:
        pipeline.load_lora_weights(dict(tensors), adapter_name="x")
    except Exception:
        count = 0
    else:
        count = sum("x" in getattr(one, "lokr_w1", ()) for one in model.modules())
    assert count in (0, len(pairs))
    assert bool(passed_over(lora_of(tmp_path, tensors), "diffusers")) == (count == 0)


@pytest.mark.parametrize("family", ["sd15", "sdxl"])
def test_modules_of_clip(family: str, tmp_path: Path) -> None:
    """Of the text encoder's names diffusers takes kohya's and its own; ComfyUI all of these."""
    names = [f"encoder.layers.0.{part}" for part in ("self_attn.q_proj", "self_attn.out_proj", "mlp.fc1", "mlp.fc2")]
    unet = as_kohya(family, pairs_of(family), original=False)
    for prefix, words in product(("lora_te_", "lora_te1_", "lora_te2_", "text_encoder.", "text_encoder_2."), WORDS):
        tensors = dict(unet)
        for name in names:
            key = (
                f"{prefix}text_model.{name}".replace(".", "_")
                if prefix.endswith("_")
                else f"{prefix}text_model.{name}"
            )
            for end in WORDS[words]:
                tensors[f"{key}{end}"] = torch.rand(4, 4)
        lora = lora_of(tmp_path, tensors)
        kohya = prefix in ("lora_te_", "lora_te1_") or (prefix == "lora_te2_" and family == "sdxl")
        own = prefix == "text_encoder." or (prefix == "text_encoder_2." and family == "sdxl")
        taken = (kohya and words == "down") or (own and words == "A")
        assert bool(passed_over(lora, "diffusers")) != taken
        assert bool(passed_over(lora, "ComfyUI")) != (kohya or own)


def test_every_family_of_which_diffusers_loads_loras_is_known() -> None:
    known = {one.class_name for one in families() if one.knows_loras and is_known(one)}
    assert {family_of(name).class_name for name in SMALL} == known


@pytest.mark.parametrize("family", [name for name in SMALL if not family_of(name).convolves])
@pytest.mark.parametrize("lost", ["lora_A", "lora_B"])
def test_diffusers_does_not_apply_half_a_pair(family: str, lost: str, tmp_path: Path) -> None:
    """LOR006: the file is refused, or the module is not what was trained."""
    pairs = small_pairs(family)
    tensors = spelt(family, pairs, "transformer.", "d", "A", None)
    del tensors[next(name for name in tensors if lost in name)]
    assert applied(family, tensors, pairs, 1.0) < len(pairs)
    assert len(lora_of(tmp_path, tensors).whole_pairs) == len(pairs) - 1
