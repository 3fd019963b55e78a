"""The Linears that flux_lora_target names are trained, as PEFT finds them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from zdoctor.doctor.memory import predict
from zdoctor.doctor.model import Memory, ModelFolder
from zdoctor.doctor.train.network.lora import lora_targets
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer
from zdoctor.tests.doctor.memory.runs import SYSTEM
from zdoctor.tests.doctor.train.conftest import chroma, flux

from .runs import SET, differences, run_of, said, trained

__all__ = ["chroma", "flux"]
PAIRED = (
    {**SET, "conditioning_data": ["b"]},
    {
        "id": "b",
        "type": "local",
        "dataset_type": "conditioning",
        "conditioning_type": "reference_strict",
        "instance_data_dir": "before",
    },
)
CONTEXT = {"attn.add_k_proj", "attn.add_q_proj", "attn.add_v_proj", "attn.to_add_out"}
ALL = CONTEXT | {"attn.to_k", "attn.to_q", "attn.to_v", "attn.to_out.0"}
CONTEXT_FFS = {"ff_context.net.0.proj", "ff_context.net.2"}
FFS = CONTEXT_FFS | {"ff.net.0.proj", "ff.net.2", "proj_mlp", "proj_out"}
NORMS = {"norm.linear", "norm1.linear", "norm1_context.linear"}


@pytest.mark.parametrize(
    ("target", "names"),
    [
        # get_lora_target_layers of flux/model.py (bc8e6ab7)
        ("all", ALL),
        ("context", CONTEXT),
        ("context+ffs", CONTEXT | CONTEXT_FFS),
        ("all+ffs", ALL | FFS),
        ("ai-toolkit", ALL | FFS | NORMS),
    ],
)
def test_the_linears_of_flux(flux: Path, target: str, names: set[str]) -> None:
    written = {"model_family": "flux", "model_flavour": "dev", "flux_lora_target": target}
    covered = lora_targets(build_empty_transformer(flux / "transformer"), trained(written).recipe.network.excluded)
    assert {name.split(".", 2)[2] for name in covered} == names


@pytest.mark.parametrize(("target", "blocks"), [("tiny", [7, 20]), ("nano", [7])])
def test_single_blocks_of_flux(target: str, blocks: list[int]) -> None:
    pattern = trained(
        {"model_family": "flux", "model_flavour": "dev", "flux_lora_target": target}
    ).recipe.network.excluded
    names = [f"single_transformer_blocks.{block}.proj_out" for block in range(38)]
    assert [name for name in names if not re.search(pattern, name)] == [names[block] for block in blocks]


def test_the_linears_of_qwen_image() -> None:
    """DEFAULT_LORA_TARGET of qwen_image/model.py (bc8e6ab7): nothing of what reads the prompt."""
    found = trained({"model_family": "qwen_image", "model_flavour": "v1.0"}).recipe
    names = [f"transformer_blocks.0.{name}" for name in (*sorted(ALL), "img_mlp.net.2", "img_mod.1")]
    covered = {name.rpartition("attn.")[2] for name in names if not re.search(found.network.excluded, name)}
    assert covered == {"to_k", "to_q", "to_v", "to_out.0"} and found.datasets[0].buckets_at(0).step == 32


@pytest.mark.parametrize(
    ("flavour", "architecture", "base"),
    [
        (..., "qwen_image", "Qwen/Qwen-Image-2512"),
        ("v1.0", "qwen_image", "Qwen/Qwen-Image"),
        ("edit-v1", "qwen_image_edit", "Qwen/Qwen-Image-Edit"),
        ("edit-v2+", "qwen_image_edit_plus", "Qwen/Qwen-Image-Edit-2509"),
        ("edit-v3", "qwen_image_edit_plus", "Qwen/Qwen-Image-Edit-2511"),
    ],
)
def test_the_flavours_of_qwen_image(flavour: object, architecture: str, base: str) -> None:
    """HUGGINGFACE_PATHS and DEFAULT_MODEL_FLAVOUR of qwen_image/model.py (bc8e6ab7)."""
    run = run_of({"model_family": "qwen_image", "model_flavour": flavour})
    assert (run.recipe.architecture, run.recipe.base_model) == (architecture, base)
    assert isinstance(predict(run, ModelFolder(base, "absent", None), (), SYSTEM, ()), Memory)


@pytest.mark.parametrize(
    ("flavour", "architecture", "base"),
    [
        (..., "flux2_klein_9b in diffusers", "black-forest-labs/FLUX.2-klein-base-9B"),
        ("klein-4b", "flux2_klein_4b in diffusers", "black-forest-labs/FLUX.2-klein-base-4B"),
        ("dev", "flux2 in diffusers", "black-forest-labs/FLUX.2-dev"),
    ],
)
def test_the_flavours_of_flux2(flavour: object, architecture: str, base: str) -> None:
    """HUGGINGFACE_PATHS, DEFAULT_MODEL_FLAVOUR and DEFAULT_LORA_TARGET of flux2/model.py (bc8e6ab7)."""
    run = run_of({"model_family": "flux2", "model_flavour": flavour})
    assert (run.recipe.architecture, run.recipe.base_model) == (architecture, base)
    assert isinstance(predict(run, ModelFolder(base, "absent", None), (), SYSTEM, ()), Memory)
    names = [f"transformer_blocks.0.{name}" for name in ("attn.to_q", "attn.add_q_proj", "ff.linear_in")]
    names += [f"single_transformer_blocks.0.attn.{name}" for name in ("to_qkv_mlp_proj", "to_out")]
    covered = [name for name in names if not re.search(run.recipe.network.excluded, name)]
    assert covered == [names[0], names[3]]
    written = {"model_family": "flux2", "model_flavour": flavour}
    made = trained(written).recipe
    assert made.latent_mean and not made.mask_padding and made.loss.embedded_guidance == 1.0
    assert made.network.excluded == run.recipe.network.excluded and made.datasets[0].buckets_at(0).step == 16
    assert "flow_schedule_auto_shift true is not supported" in said({**written, "flow_schedule_auto_shift": True})
    assert "only Flux Kontext is given images" in said(written, *PAIRED)


@pytest.mark.parametrize(
    ("target", "names"),
    [
        (..., ALL),
        ("context+ffs", CONTEXT | CONTEXT_FFS),
        ("ai-toolkit", ALL | FFS),  # its norms have no Linear
        ("tiny", {"attn.to_k", "attn.to_q", "attn.to_v", "attn.to_out.0", "ff.net.0.proj"}),
    ],
)
def test_chroma(chroma: Path, target: object, names: set[str]) -> None:
    """get_lora_target_layers and _apply_chroma_flow_schedule of chroma/model.py (bc8e6ab7)."""
    written = {"model_family": "chroma", "model_flavour": "hd", "flux_lora_target": target}
    made = trained(written).recipe
    covered = lora_targets(build_empty_transformer(chroma / "transformer"), made.network.excluded)
    assert {name.split(".", 2)[2] for name in covered} == names
    density = made.timestep_sampling.density
    assert made.mask_padding and not made.latent_mean and density is not None
    assert (density.density, density.shift, density.bent) == ("logit_normal", 3.0, True)
    even = trained({**written, "flow_use_uniform_schedule": True}).recipe.timestep_sampling.density
    assert even is not None and not even.bent
    assert "flux_lora_target nano is not supported" in said({**written, "flux_lora_target": "nano"})


@pytest.mark.parametrize(
    ("written", "shift"),
    [
        ({"model_family": "flux", "model_flavour": "dev"}, (256.0, 0.5, 4096.0, 1.15)),
        ({"model_family": "chroma"}, (256.0, 0.5, 4096.0, 1.15)),
        ({"model_family": "qwen_image"}, (256.0, 0.5, 8192.0, 0.9)),
    ],
)
def test_auto_shift_goes_by_the_models_own_scheduler(written: dict[str, str], shift: tuple[float, ...]) -> None:
    density = trained({**written, "flow_schedule_auto_shift": True}).recipe.timestep_sampling.density
    assert density is not None and density.shift == shift


@pytest.mark.parametrize("target", ["all+ffs+embedder", "controlnet", "mine"])
def test_other_targets_are_refused(target: str) -> None:
    why = said({"model_family": "flux", "model_flavour": "dev", "flux_lora_target": target})
    assert f"flux_lora_target {target} is not supported; use all, context" in why


def test_targets_of_flux_say_nothing_of_z_image() -> None:
    assert trained({"flux_lora_target": "nano"}).recipe.network.excluded == trained().recipe.network.excluded


def test_fused_projections_are_told() -> None:
    assert "one for all three" in " ".join(differences(run_of({"fuse_qkv_projections": True})))
