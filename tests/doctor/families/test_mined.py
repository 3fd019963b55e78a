"""What was mined of the model classes is what their libraries build; what was not mined is not guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import torch
from diffusers.loaders.single_file_utils import (
    convert_chroma_transformer_checkpoint_to_diffusers,
    convert_flux2_transformer_checkpoint_to_diffusers,
    convert_krea2_transformer_checkpoint_to_diffusers,
)

from zdoctor.doctor.families import classes
from zdoctor.doctor.families.models.flux2 import KLEIN_4B_CONFIG
from zdoctor.doctor.families.models.krea2 import CONFIG
from zdoctor.doctor.families.record import mined
from zdoctor.doctor.families.record.inferred import inferred
from zdoctor.doctor.families.record.shapes import BadConfig, Tensors
from zdoctor.doctor.families.record.single_file import same_name
from zdoctor.maintenance.classes import CLASSES, Source
from zdoctor.maintenance.mine_classes import mine, real_shapes, written

NAMES = [source.name for source in CLASSES]
FOUND: Mapping[str, Any] = {name: mined.mined_class_of(name) for name in NAMES}
OF_LIBRARIES = [source for source in CLASSES if not source.trainer]


@cache
def mined_now(name: str) -> Any:
    return mine(next(source for source in CLASSES if source.name == name))


def few_blocks(source: Source, published: Mapping[str, Any]) -> dict[str, Any]:
    """A published model with two blocks in each list, so that it is built in no time."""
    config = json.loads(json.dumps(published))
    for table in FOUND[source.name]["tables"]:
        for key in table["lists"].values():
            *outer, last = key.split(".")
            place = config
            for part in outer:
                place = place.setdefault(part, {})
            if " " not in key:  # no sum of others
                place[last] = 2
    return dict(config)


def test_every_class_was_mined() -> None:
    assert sorted(mined.mined_classes()) == sorted(NAMES)
    for name, found in FOUND.items():
        assert (mined.CLASSES / f"{name}.json").read_text("utf-8") == written(found)


@pytest.mark.parametrize("source", OF_LIBRARIES, ids=lambda source: source.name)
def test_a_class_is_as_it_is_built(source: Source) -> None:
    """One of another diffusers or transformers says here what moved; `python -m zdoctor.maintenance.mine_classes`."""
    for published in source.configs:
        config = few_blocks(source, published)
        assert mined.mined_tensors(source.name, config) == real_shapes(source, config)


@pytest.mark.parametrize(
    ("name", "config", "convert", "theirs"),
    [
        ("Flux2", {}, convert_flux2_transformer_checkpoint_to_diffusers, "Flux2Transformer2DModel"),
        ("Flux2", KLEIN_4B_CONFIG, convert_flux2_transformer_checkpoint_to_diffusers, "Flux2Transformer2DModel"),
        ("SingleStreamDiT", CONFIG, convert_krea2_transformer_checkpoint_to_diffusers, "Krea2Transformer2DModel"),
        ("Chroma", {}, convert_chroma_transformer_checkpoint_to_diffusers, "ChromaTransformer2DModel"),
    ],
)
def test_a_class_of_a_trainer_is_what_diffusers_converts(
    name: str, config: Mapping[str, Any], convert: Any, theirs: str
) -> None:
    """Its tensors, under diffusers' names, are those of the class that diffusers builds for the same model."""
    file = {one: torch.empty(shape, device="meta") for one, shape in mined.mined_tensors(name, config).items()}
    source = next(one for one in CLASSES if one.name == theirs)
    published = source.configs[1 if config is KLEIN_4B_CONFIG else 0]
    assert {one: tuple(value.shape) for one, value in convert(file).items()} == real_shapes(source, published)


@pytest.mark.parametrize("name", ["Ideogram4Transformer2DModel"])
def test_a_class_that_is_mined_again_is_the_same(name: str) -> None:
    assert json.loads(json.dumps(mined_now(name))) == FOUND[name]


_IN_FOLDERS = {"HiDreamImageTransformer2DModel", "UNet2DConditionModel", "AnimaTextConditioner"}  # with a config.json
_IN_FILES = [s for s in CLASSES if s.module == "diffusers" and s.name not in _IN_FOLDERS]


@pytest.mark.parametrize("source", _IN_FILES, ids=lambda s: s.name)
def test_the_config_is_read_out_of_the_tensors(source: Source) -> None:
    """What a single file holds tells the config that its class is built from."""
    for published in source.configs:
        shapes = mined.mined_tensors(source.name, published)
        config = inferred(FOUND[source.name], "", (), Tensors(shapes, same_name))
        assert mined.mined_tensors(source.name, config) == shapes


@pytest.mark.parametrize("value", ["x", -1, 0, 10**9, 10**400, [], {}, True, 1.5, None, [1] * 70, {"a": 1}])
@pytest.mark.parametrize("name", NAMES)
def test_any_value_of_any_key_is_survived(name: str, value: object) -> None:
    for key in FOUND[name]["defaults"]:
        try:
            shapes = mined.mined_tensors(name, {key: value})
        except BadConfig as error:
            assert len(str(error)) <= 300
        else:
            assert len(shapes) < 100_000


def test_what_was_not_mined_is_not_guessed() -> None:
    with pytest.raises(BadConfig, match="use_additional_t_cond True"):
        mined.mined_tensors("QwenImageTransformer2DModel", {"use_additional_t_cond": True})
    with pytest.raises(BadConfig, match="qk_norm 'layer_norm'"):  # a word of which no model was mined
        mined.mined_tensors("SD3Transformer2DModel", {"qk_norm": "layer_norm"})
    with pytest.raises(BadConfig, match=r"dual_attention_layers \[0\]"):
        mined.mined_tensors("SD3Transformer2DModel", {"dual_attention_layers": [0]})
    with pytest.raises(BadConfig, match="qk_norm False"):
        mined.mined_tensors("ZImageTransformer2DModel", {"qk_norm": False})


def test_a_key_that_follows_another() -> None:
    wide = mined.mined_tensors("FluxTransformer2DModel", {"in_channels": 384})
    assert wide["proj_out.weight"][0] == 384
    for out in (None, 64):
        shapes = mined.mined_tensors("FluxTransformer2DModel", {"in_channels": 384, "out_channels": out})
        assert shapes["proj_out.weight"][0] == (out or 384)


def test_torch_is_left_as_it_was() -> None:
    """Mining changes what `int` is for the libraries' modules, and how a Parameter is made, only while it mines."""
    before = torch.nn.Parameter.__new__
    mined_now("Ideogram4Transformer2DModel")
    assert torch.nn.Parameter.__new__ is before
    from diffusers.models.transformers import transformer_ideogram4

    assert not {"int", "min", "max"} & vars(transformer_ideogram4).keys()


_ALIKE = (
    {"AutoencoderKLQwenImage", "WanVAE_"},  # as both have it in files
    {"AutoencoderKLQwenImage", "AutoencoderKLWan"},  # they differ in their config alone
    {"Flux2AutoEncoder", "Flux2AutoEncoderSmall"},  # and these in widths
    *({"AutoencoderKLFlux2", name} for name in ("Flux2AutoEncoder", "Flux2AutoEncoderSmall")),  # of one model
    {"ZImageTransformer2DModel", "ZImageDCT"},  # the second of each builds on the first
    {"FluxTransformer2DModel", "HunyuanVideoTransformer3DModelPacked"},
    {"Lumina2Transformer2DModel", "OmniGen2Transformer2DModel"},
    {"Lumina2Transformer2DModel", "BooguImageTransformer2DModel"},
    {"OmniGen2Transformer2DModel", "BooguImageTransformer2DModel"},
)


@pytest.mark.parametrize(
    "kind", [kind for kind in classes().values() if kind.name in FOUND], ids=lambda kind: kind.name
)
def test_no_other_class_has_the_mark_of_a_class(kind: Any) -> None:
    for source in CLASSES:
        if source.name != kind.name and {source.name, kind.name} not in _ALIKE:
            for published in source.configs:
                assert not set(kind.marks) & mined.mined_tensors(source.name, published).keys()
