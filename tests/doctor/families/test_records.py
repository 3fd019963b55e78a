"""Every family answers every question, and whoever asks one finds an answer for every family that is trained."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import pytest

from zdoctor.doctor.families import add, classes, families, family_of, family_with, loader_of, registry, trained
from zdoctor.doctor.families.components import CLASSES
from zdoctor.doctor.families.flux.record import FLUX
from zdoctor.doctor.families.lora_keys import published_config, published_linears, read_lora
from zdoctor.doctor.families.part_files import class_in, part_files
from zdoctor.doctor.families.record import Family
from zdoctor.doctor.families.record.blocks import is_within
from zdoctor.doctor.families.record.mined import mined_classes
from zdoctor.doctor.families.record.steps import WHOLE, mined_tables, vae_bytes
from zdoctor.doctor.families.tensors import block_linears, needed_tensors, parameters, published_size
from zdoctor.doctor.families.zimage.record import ZIMAGE
from zdoctor.doctor.model import Run
from zdoctor.doctor.model.recipe import Recipe
from zdoctor.doctor.model.record import replace
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.model.weights import Tensor, WeightFile
from zdoctor.doctor.train.families import FamilyModule, family_named, family_titles, flux, module_of, zimage
from zdoctor.doctor.trainers import names, trainers
from zdoctor.doctor.trainers.kohya.network import SCRIPTS

SPARE = {"Gemma2ForCausalLM", "CLIPVisionModelWithProjection"}  # taken as well, and said to be not known
TRAINED = [family for family in families() if family.own is not None]
_: tuple[FamilyModule, ...] = (zimage, flux)  # the type checker asks both for every name


def named(family: Family) -> str:
    return family.name


def run_of(family: Family, trainer: str) -> Run:
    return Run(trainer, "", "", 0, "lora", "", "", recipe=Recipe(architecture=family.name))


def test_a_forgotten_field_is_no_record() -> None:
    """No field has a default: a family that leaves one out is a TypeError where it is written."""
    fields: dict[str, Any] = {name: getattr(ZIMAGE, name) for name in Family.__match_args__}
    assert len(fields) > 25 and Family(**fields) == ZIMAGE
    for name in fields:
        with pytest.raises(TypeError, match=name):
            Family(**{key: value for key, value in fields.items() if key != name})


def test_every_trained_architecture_is_a_family() -> None:
    of_qwen = ("qwen_image", "qwen_image_edit", "qwen_image_edit_plus")
    assert trained() == (
        "zimage",
        "flux",
        "flux_kontext",
        *of_qwen,
        "chroma",
        "flux2",
        "flux2_klein_4b",
        "flux2_klein_9b",
        "sdxl",
    )
    names = {
        "Z-Image": "ZImage",
        "Flux": "Flux",
        "Qwen-Image": "QwenImage",
        "Chroma": "Chroma",
        "FLUX.2": "Flux2",
    }
    titles = [f"{title} ({name}Transformer2DModel)" for title, name in names.items()]
    assert family_titles() == ", ".join([*titles, "SDXL (UNet2DConditionModel)"])
    own = [family_of(family_of(name).in_diffusers or name) for name in trained()]
    assert {one.name for one in own} == {one.name for one in TRAINED}
    assert not any(family.in_diffusers for family in own)


@pytest.mark.parametrize("family", families(), ids=named)
def test_names_find_their_record(family: Family) -> None:
    assert family.title and all(family_of(name) is family for name in (family.name, *family.aliases))
    assert family.transformer is None or family_with(family.class_name).class_name == family.class_name
    assert loader_of(run_of(family, RUNNER)) is family.own
    assert loader_of(run_of(family, "ai-toolkit")) is family.loader
    assert all(loader_of(run_of(family, trainer)) is words.folder for trainer, words in family.kohya.items())
    assert family.kohya.keys() <= {trainer.name for trainer in trainers() if trainer.component_files}


@pytest.mark.parametrize("family", [f for f in families() if f.loader or f.own], ids=named)
def test_components_have_classes_that_are_known(family: Family) -> None:
    for loader in filter(None, (family.loader, family.own)):
        for component, classes_of in loader.components.items():
            known = {*classes(), *mined_classes()}
            assert component.startswith(("tokenizer", "scheduler")) or set(classes_of) - SPARE <= known
        assert loader.components[loader.main] == (family.class_name,)
        assert all(fit.component in loader.components for fit in family.fits)
        assert loader.adapter_key is None or re.match(family.lora_names, loader.adapter_key)


@pytest.mark.parametrize("family", TRAINED, ids=named)
def test_a_trained_family_is_known_whole(family: Family) -> None:
    """A hole would be silence: no memory, no samples, no LoRA that other programs read."""
    assert family.transformer is not None and family.loader is not None and family.memory is not None
    shapes = needed_tensors(family.class_name, family.memory.config("")) or {}
    assert all(any(is_within(name, (one,)) for name in shapes) for one in (*family.blocks, *family.lora_blocks))
    assert set(family.blocks) <= set(family.quantized_blocks)
    assert set(family.lora_blocks) <= set(family.blocks) or family.convolves
    assert set(family.refiners) <= set(family.blocks)
    assert family.targets(refiners=True) == (*family.lora_blocks, *family.refiners)
    linears = block_linears(shapes, family.lora_blocks)
    assert linears and all(family.is_quantized(name) for name in block_linears(shapes, family.blocks))
    assert not any(family.is_quantized(name) for name in ("x_embedder", "conv_in", "time_embedding.linear_1"))
    assert all(re.match(family.lora_names, f"{family.lora_prefix}{name}.lora_A.weight") for name in linears)
    assert family.base_version and family.repos and family.tokenizers
    scheduler = family.scheduler(family.memory.config(""))
    kind = scheduler.pop("_class_name", "FlowMatchEulerDiscreteScheduler")
    assert getattr(import_module("diffusers"), kind)(**scheduler)
    of_class, module = family_named(family.class_name), module_of(family)
    assert of_class is not None and of_class.RECORD.transformer is family.transformer
    assert module is import_module(family.runner, "zdoctor.doctor.train.families")
    assert module.predict is of_class.predict and module.RECORD.runner == family.runner
    built = getattr(import_module(module.MODULE), family.class_name)
    assert built.__name__ == family.class_name
    assert set(module.TEXT_PARTS) == {name for name in family.own.others if name != "vae"} if family.own else False
    assert {tokenizer.name for tokenizer in family.tokenizers} == {
        n for n, kind in module.TEXT_PARTS.items() if not kind
    }


def tables_of(family: Family) -> Sequence[Mapping[str, Any]]:
    return mined_tables(family.class_name)


@pytest.mark.parametrize("family", [f for f in families() if f.memory and tables_of(f)], ids=named)
def test_a_family_whose_memory_is_predicted_has_mined_steps(family: Family) -> None:
    memory = family.memory
    assert memory is not None and family.transformer is not None and tables_of(family)
    shapes = family.transformer.tensors(memory.config(""))
    for table in tables_of(family):
        for of_way in table["ways"].values():
            lists = (WHOLE,) if memory.whole else family.blocks
            assert set(of_way["one"]["lists"]) == set(of_way["several"]["lists"]) == set(lists)
    assert all(any(is_within(name, (one,)) for name in shapes) for one in (*family.blocks, *memory.lora))
    assert all(needed_tensors(*known) for known in family.published.values())
    assert "vae" not in family.published or vae_bytes(memory.vae or family.published["vae"][0]) is not None
    assert family.blocks or memory.whole


@pytest.mark.parametrize("family", TRAINED, ids=named)
def test_the_memory_figures_of_a_trained_family(family: Family) -> None:
    memory = family.memory
    assert memory is not None and family.own is not None
    switches = {key: value for key, value in memory.config("").items() if isinstance(value, bool)}
    tables = [table for table in tables_of(family) if not memory.whole or table["config"] == switches]
    assert tables and all(
        set(table["ways"]) == {"copied", "bfloat16", "float32", "float16", "eight bits"} for table in tables
    )
    assert family.published.keys() == {name for name in family.own.others if not name.startswith("tokenizer")}
    for name, (class_name, config) in family.published.items():
        assert class_name in family.own.components[name] and needed_tensors(class_name, config)
    assert published_size(family.name, next(iter(family.repos.values()))) > 2_500_000_000
    assert published_size(family.name, "somebody/else") == 0 or not memory.word  # all have one config


@pytest.mark.parametrize("family", TRAINED, ids=named)
def test_every_trainer_has_its_words_for_a_trained_family(family: Family) -> None:
    if family.simpletuner is not None:
        assert family.simpletuner.flavours and family.simpletuner.default in (*family.simpletuner.flavours, "")
    for trainer, words in family.kohya.items():
        assert SCRIPTS.get(words.script) == words.network_module
        if not words.files:
            assert not family.is_known_to(trainer)
            continue
        files = part_files(run_of(family, trainer))
        assert files[0].class_name == family.class_name
        assert words.blocks > 0 or (words.memory is not None and not words.memory.lists)
        assert {file.name for file in files} == {"unet" if family.convolves else "transformer", *family.published}
        assert all(file.class_name in family.files or file.name in words.names for file in files)
        assert bool(words.cache) == (trainer == "musubi-tuner")
    assert {"ai-toolkit", "SimpleTuner", *family.kohya} <= set(names())


# Wan's VAE has the names of Qwen-Image's, Llama no name that no other text encoder has
@pytest.mark.parametrize(
    "kind",
    [kind for kind in classes().values() if kind.name not in ("WanVAE_", "LlamaForCausalLM", "LlamaModel")],
    ids=lambda kind: kind.name,
)
def test_a_class_is_told_by_its_own_files(kind: Any) -> None:
    told = classes()[class_in(kind.marks) or ""]
    assert kind.marks == told.marks and kind.title == told.title and kind.infer is told.infer
    others = {mark for other in classes().values() if other.infer is not kind.infer for mark in other.marks}
    assert kind.marks and not others & set(kind.marks)


@pytest.mark.parametrize("family", [one for one in families() if one.transformer], ids=named)
def test_a_whole_model_is_taken_for_no_other(family: Family) -> None:
    """Also where one class has all names of another, as Zeta Chroma has Z-Image's."""
    assert family.transformer is not None
    assert class_in(family.transformer.tensors(published_config(family))) == family.class_name


@pytest.mark.parametrize("name", ["omnigen2", "lumina2"])
def test_loras_of_models_with_equal_names_are_told_by_their_sizes(name: str) -> None:
    linears = {n: s for n, s in published_linears(family_of(name)).items() if n.startswith("layers.")}
    tensors = {f"transformer.{n}.lora_A.weight": Tensor("F16", (4, s[1])) for n, s in linears.items()}
    tensors |= {f"transformer.{n}.lora_B.weight": Tensor("F16", (s[0], 4)) for n, s in linears.items()}
    assert read_lora("a.safetensors", WeightFile("a.safetensors", "a.safetensors", 1, tensors)).families == (name,)


def test_components_are_of_no_family() -> None:
    assert not {kind.name for kind in CLASSES} & {family.class_name for family in families()}


def test_an_architecture_without_a_record_promises_nothing() -> None:
    for name in (None, "", "wan22", "pixart"):
        family = family_of(name)
        assert not family.name and family.own is None and family.loader is None and family.memory is None
        assert not family.edits and not family.overflows and not family.packages and not family.kohya
    assert not family_with("PixArtTransformer2DModel").name


def test_two_families_of_one_name() -> None:
    with pytest.raises(ValueError, match="two model families are called 'z_image'"):
        registry((ZIMAGE, replace(FLUX, aliases=("z_image",))))
    before = families()
    with pytest.raises(ValueError, match="no name"):
        add((replace(FLUX, name=""),))
    with pytest.raises(ValueError, match="'flux'"):
        add((replace(FLUX, title="Another"),))
    assert families() == before


def test_the_published_transformers() -> None:
    assert parameters(needed_tensors("ZImageTransformer2DModel", {}) or {}) == published_size("zimage", "x/Z-Image")
    assert published_size("z_image", "Tongyi-MAI/Z-Image-Turbo") == 6_154_908_736
    assert published_size("flux", "black-forest-labs/FLUX.1-schnell") == 11_891_178_560


def test_a_trainer_of_component_files_has_no_loader_of_folders_for_any_family() -> None:
    for name in trained():
        recipe = Recipe(architecture=name, base_model="m.safetensors")
        run = Run("sd-scripts", "c.toml", "", 0, "lora", "", "n", recipe)
        assert loader_of(run) is None and loader_of(replace(run, trainer="ai-toolkit")) is not None
