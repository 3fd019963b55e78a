"""Flux: each damage really stops the real loaders, or makes a model that is not the one on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.transformers import transformer_flux
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from zdoctor.checks.model.tensors import missing_checkpoint_tensors
from zdoctor.doctor.architectures import needed_tensors
from zdoctor.doctor.architectures.single_file import original_layout
from zdoctor.doctor.model import Hub, HubRepo, SetValue
from zdoctor.doctor.rules import Unestablished
from zdoctor.fixes.model import name_the_architecture, name_the_whole_model
from zdoctor.tests.flux import DEV, AutoencoderKL, copy_flux, healthy_flux, load_flux
from zdoctor.tests.models import INDEX, edit_json, healthy, probed, rewrite, run_of, shard_of

from .test_tensors import findings as findings_of
from .test_tensors import load as load_zimage

FluxTransformer2DModel: Any = transformer_flux.FluxTransformer2DModel
NAME = "single_transformer_blocks.1.proj_mlp.weight"
ADDED = "transformer_blocks.1.attn.add_k_proj.bias"


def findings(folder: Path | str, architecture: str = "flux", **settings: Any) -> dict[str, list[Any]]:
    return findings_of(folder, architecture, **settings)


def every_shard(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    for shard in (folder / "transformer").glob("*.safetensors"):
        rewrite(shard, change)


def drop(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        every_shard(folder, lambda tensors: {n: v for n, v in tensors.items() if n != name})

    return damage


def schnell_files_as_dev(folder: Path) -> None:
    every_shard(folder, lambda tensors: {n: v for n, v in tensors.items() if ".guidance_embedder." not in n})


def original_names(folder: Path) -> None:
    """The file of Black Forest Labs put into transformer/ under diffusers' file name."""
    needed = needed_tensors("FluxTransformer2DModel", DEV) or {}
    for file in (folder / "transformer").glob("diffusion*"):
        file.unlink()
    tensors = {n: torch.zeros(s) for n, s in original_layout("FluxTransformer2DModel", needed).items()}
    save_file(tensors, folder / "transformer" / "diffusion_pytorch_model.safetensors")


def remove(*parts: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        place = folder.joinpath(*parts)
        for file in [place] if place.is_file() else place.iterdir():
            file.unlink()
        if place.is_dir():
            place.rmdir()

    return damage


def more_layers(folder: Path) -> None:
    edit_json(folder / "transformer" / "config.json", lambda tree: tree.update(num_single_layers=4))


def wrong_shape(folder: Path) -> None:
    rewrite(shard_of(folder, NAME), lambda t: {n: v[:4].clone() if n == NAME else v for n, v in t.items()})


def diffusers_vae_missing_tensor(folder: Path) -> None:
    file = folder / "vae" / "diffusion_pytorch_model.safetensors"
    rewrite(file, lambda t: {n: v for n, v in t.items() if n != "decoder.conv_in.weight"})


def truncate(folder: Path) -> None:
    file = folder / "text_encoder_2" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


SICK: dict[str, tuple[Callable[[Path], None], str]] = {
    "a tensor of a single block": (drop(NAME), "MDL001"),
    "a bias of a double block": (drop(ADDED), "MDL001"),
    "schnell's tensors with dev's config": (schnell_files_as_dev, "MDL001"),
    "more layers in the config": (more_layers, "MDL001"),
    "a tensor of the VAE": (diffusers_vae_missing_tensor, "MDL001"),
    "the names of Black Forest Labs": (original_names, "MDL002"),
    "wrong shape": (wrong_shape, "MDL002"),
    "no transformer": (remove("transformer"), "MDL003"),
    "no VAE": (remove("vae"), "MDL003"),
    "no T5": (remove("text_encoder_2"), "MDL003"),
    "no CLIP": (remove("text_encoder"), "MDL003"),
    "no scheduler": (remove("scheduler"), "MDL003"),
    "an empty scheduler": (remove("scheduler", "scheduler_config.json"), "MDL003"),
    "no merges": (remove("tokenizer", "merges.txt"), "MDL003"),
    "no index": (remove("transformer", INDEX), "MDL003"),
    "no weights of T5": (remove("text_encoder_2", "model.safetensors"), "MDL003"),
    "T5 cut short": (truncate, "MDL004"),
}


@pytest.mark.parametrize("case", SICK)
def test_the_real_loaders_fail_and_exactly_one_rule_says_why(case: str, tmp_path: Path) -> None:
    damage, expected = SICK[case]
    folder = copy_flux(tmp_path / "m")
    damage(folder)
    with pytest.raises((OSError, ValueError, RuntimeError, SafetensorError)):
        load_flux(folder)
    seen = findings(folder)
    assert list(seen) == [expected]
    assert len(seen[expected]) == 1


@pytest.mark.parametrize("part", ["tokenizer", "tokenizer_2"])
@pytest.mark.parametrize("empty", [True, False])
def test_a_tokenizer_without_words_loads_and_knows_none(part: str, empty: bool, tmp_path: Path) -> None:
    folder = copy_flux(tmp_path / "m")
    remove(part)(folder)
    if empty:
        (folder / part).mkdir()
    words = load_flux(folder)[part]("a b")["input_ids"]
    assert words != load_flux(healthy_flux())[part]("a b")["input_ids"]
    (finding,) = findings(folder)["MDL003"]
    assert part in finding.text() and "vocabulary" in finding.consequence()


@pytest.mark.parametrize(
    ("part", "hole"),
    [
        ("text_encoder", "encoder.layers.1.mlp.fc1.weight"),
        ("text_encoder_2", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
        ("text_encoder_2", "shared.weight"),
    ],
)
def test_text_encoders_with_holes_load_as_if_nothing_were_wrong(part: str, hole: str, tmp_path: Path) -> None:
    folder = copy_flux(tmp_path / "m")
    rewrite(folder / part / "model.safetensors", lambda t: {n: v for n, v in t.items() if n != hole})
    made, right = load_flux(folder)[part], load_flux(healthy_flux())[part]
    assert not torch.equal(made.state_dict()[hole], right.state_dict()[hole])
    (finding,) = findings(folder)["MDL001"]
    assert hole in finding.text() and "random numbers" in finding.consequence()


def untouched(folder: Path) -> None:
    """Nothing is done to it."""


def prefixed_clip(folder: Path) -> None:
    """As published, with the position ids of older versions."""
    rewrite(
        folder / "text_encoder" / "model.safetensors",
        lambda t: (
            {f"text_model.{n}": v for n, v in t.items()}
            | {"text_model.embeddings.position_ids": torch.arange(77)[None]}
        ),
    )


def other_name_of_the_tied_embedding(folder: Path) -> None:
    rewrite(
        folder / "text_encoder_2" / "model.safetensors",
        lambda t: {n.replace("shared.", "encoder.embed_tokens."): v for n, v in t.items()},
    )


def both_names_of_the_tied_embedding(folder: Path) -> None:
    rewrite(
        folder / "text_encoder_2" / "model.safetensors",
        lambda t: {**t, "encoder.embed_tokens.weight": t["shared.weight"].clone()},
    )


def whole_t5(folder: Path) -> None:
    edit_json(
        folder / "text_encoder_2" / "config.json", lambda t: t.update(architectures=["T5ForConditionalGeneration"])
    )
    rewrite(
        folder / "text_encoder_2" / "model.safetensors",
        lambda t: {**t, "decoder.final_layer_norm.weight": torch.zeros(24), "lm_head.weight": torch.zeros(8, 24)},
    )


def beside_another_precision(folder: Path) -> None:
    for part in ("text_encoder", "vae"):
        file = next((folder / part).glob("*.safetensors"))
        file.with_name(f"{file.stem}.fp16.safetensors").write_bytes(b"half a file")


def extra_tensor(folder: Path) -> None:
    rewrite(shard_of(folder, NAME), lambda t: {**t, "some.extra": torch.zeros(2)})


def schnell(folder: Path) -> None:
    schnell_files_as_dev(folder)
    edit_json(folder / "transformer" / "config.json", lambda tree: tree.update(guidance_embeds=False))


def eight_bit_without_scales(folder: Path) -> None:
    every_shard(folder, lambda t: {n: v.to(torch.float8_e4m3fn) if v.ndim == 2 else v for n, v in t.items()})


def fast_tokenizer_alone(folder: Path) -> None:
    (folder / "tokenizer_2" / "tokenizer_config.json").unlink()


def no_architectures(folder: Path) -> None:
    for part in ("text_encoder", "text_encoder_2"):
        edit_json(folder / part / "config.json", lambda tree: tree.pop("architectures"))


WELL = [
    untouched,
    prefixed_clip,
    other_name_of_the_tied_embedding,
    both_names_of_the_tied_embedding,
    whole_t5,
    beside_another_precision,
    extra_tensor,
    schnell,
    eight_bit_without_scales,
    fast_tokenizer_alone,
    no_architectures,
]


@pytest.mark.parametrize("change", WELL, ids=lambda change: change.__name__)
def test_what_loads_is_silent(change: Callable[[Path], None], tmp_path: Path) -> None:
    folder = copy_flux(tmp_path / "m")
    change(folder)
    made, right = load_flux(folder), load_flux(healthy_flux())
    for part in ("text_encoder", "text_encoder_2"):
        theirs = right[part].state_dict()
        assert all(torch.equal(value, theirs[name]) for name, value in made[part].state_dict().items())
    for architecture in ("flux", "flux_kontext", "flex2"):
        assert findings(folder, architecture) == {}


def test_dev_with_the_config_of_schnell_forgets_its_guidance(tmp_path: Path) -> None:
    folder = copy_flux(tmp_path / "m")
    edit_json(folder / "transformer" / "config.json", lambda tree: tree.update(guidance_embeds=False))
    assert not any("guidance" in name for name in load_flux(folder)["transformer"].state_dict())
    (finding,) = findings(folder)["MDL002"]
    assert "guidance" in finding.text()


def test_scales_of_an_eight_bit_t5_are_dropped(tmp_path: Path) -> None:
    """As ComfyUI's t5xxl files are, put into text_encoder_2/ under the name that the loader asks for."""
    folder = copy_flux(tmp_path / "m")
    name = "encoder.block.0.layer.1.DenseReluDense.wo.weight"
    rewrite(
        folder / "text_encoder_2" / "model.safetensors",
        lambda t: {
            **{n: (v / 2).to(torch.float8_e4m3fn) if n == name else v for n, v in t.items()},
            name.replace("weight", "scale_weight"): torch.tensor(2.0),
            "scaled_fp8": torch.zeros(0).to(torch.float8_e4m3fn),
        },
    )
    made, right = (load_flux(place)["text_encoder_2"].state_dict()[name] for place in (folder, healthy_flux()))
    assert 0.4 < made.float().norm() / right.float().norm() < 0.6
    (finding,) = findings(folder)["MDL002"]
    assert "scales" in finding.text() and "garbage" in finding.consequence()


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [("text_encoder", "hidden_size", 48), ("text_encoder_2", "d_model", 48), ("vae", "latent_channels", 16)],
)
def test_parts_of_different_models(part: str, key: str, value: int, tmp_path: Path) -> None:
    folder = copy_flux(tmp_path / "m")
    edit_json(folder / part / "config.json", lambda tree: tree.update({key: value}))
    texts = " ".join(finding.text() for finding in findings(folder)["MDL002"])
    assert f"{part} has {key} {value}" in texts


@pytest.mark.parametrize(
    ("folder", "written", "meant"), [(healthy, "flux", "zimage"), (healthy_flux, "zimage", "flux")]
)
def test_a_model_under_another_architecture(folder: Callable[[], Path], written: str, meant: str) -> None:
    with pytest.raises((OSError, ValueError, RuntimeError, TypeError)):
        (load_flux if written == "flux" else load_zimage)(folder())
    (finding,) = findings(folder(), written)["MDL002"]
    assert f"arch {meant}" in finding.text()
    (fix,) = name_the_architecture(finding, run_of(folder(), written))
    assert (fix.safety, fix.training_effect) == ("ask", "changes-result")
    (step,) = fix.steps
    assert isinstance(step, SetValue) and step.value == meant and findings(folder(), step.value) == {}


def test_the_transformer_alone_is_no_flux_model(tmp_path: Path) -> None:
    alone = copy_flux(tmp_path / "m") / "transformer"
    with pytest.raises(OSError):
        load_flux(alone)
    # the rest lies beside it: its own folder was named where the whole model's is wanted
    (finding,) = findings(alone)["MDL003"]
    assert finding.evidence["whole"] == str(tmp_path / "m")
    (fix,) = name_the_whole_model(finding, run_of(alone, "flux"))
    (step,) = fix.steps
    assert isinstance(step, SetValue) and step.value == str(tmp_path / "m") and fix.safety == "safe"
    load_flux(Path(step.value))
    remove("vae")(tmp_path / "m")
    (finding,) = findings(alone)["MDL003"]
    assert "transformer/" in finding.text() and "text_encoder_2/" in finding.text()
    # Kontext takes the other parts from the extras, but the transformer still from a folder of that name
    (finding,) = findings(alone, "flux_kontext", extras_name_or_path=str(healthy_flux()))["MDL003"]
    assert "no transformer/." in finding.text()


@pytest.mark.parametrize("inside", ["", "vae"])
def test_flux_takes_its_vae_from_a_path_of_its_own(inside: str, tmp_path: Path) -> None:
    folder = copy_flux(tmp_path / "m")
    remove("vae")(folder)
    own = healthy_flux() / "vae" if not inside else healthy_flux()
    assert AutoencoderKL.from_pretrained(own, subfolder=inside or None)
    assert findings(folder, vae_path=str(own)) == {}
    assert list(findings(folder, "flux_kontext", vae_path=str(own))) == ["MDL003"]


def test_a_vae_path_that_is_a_file_or_nothing(tmp_path: Path) -> None:
    file = tmp_path / "ae.safetensors"
    save_file({"decoder.up.0.block.0.conv1.weight": torch.zeros(2)}, file)
    for path, words in ((file, "opens a folder"), (tmp_path / "gone", "does not exist")):
        for subfolder in (None, "vae"):
            with pytest.raises((OSError, ValueError)):
                AutoencoderKL.from_pretrained(path, subfolder=subfolder, local_files_only=True)
        (finding,) = findings(healthy_flux(), vae_path=str(path))["MDL003"]
        assert words in finding.text() and str(path) in finding.text()
    run = run_of(healthy_flux(), "flux", vae_path="acme/vae")
    with pytest.raises(Unestablished, match="vae: not found"):
        list(missing_checkpoint_tensors(run, probed(run)))


def test_only_kontext_reads_the_extras(tmp_path: Path) -> None:
    folder = copy_flux(tmp_path / "m")
    for part in ("text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2", "vae"):
        remove(part)(folder)
    extras = {"extras_name_or_path": str(healthy_flux())}
    assert findings(folder, "flux_kontext", **extras) == {}
    assert list(findings(folder, "flux", **extras)) == list(findings(folder, "flex2", **extras)) == ["MDL003"]


def test_a_single_file_is_no_flux_model(tmp_path: Path) -> None:
    folder = copy_flux(tmp_path / "m")
    original_names(folder)
    file = tmp_path / "flux1-dev.safetensors"
    (folder / "transformer" / "diffusion_pytorch_model.safetensors").rename(file)
    for path, subfolder in ((f"{file}/transformer", None), ("acme/flux/flux1-dev.safetensors", "transformer")):
        with pytest.raises(OSError, match=r"config\.json"):
            FluxTransformer2DModel.from_pretrained(path, subfolder=subfolder)
    (finding,) = findings(file)["MDL002"]
    assert "Black Forest Labs" in finding.text() and "config.json" in finding.consequence()
    assert load_file(file)
    (finding,) = findings("acme/flux/flux1-dev.safetensors")["MDL002"]
    assert "single file" in finding.text()


def test_parts_that_are_not_here_are_not_judged(tmp_path: Path) -> None:
    folder = copy_flux(tmp_path / "m")
    remove("text_encoder")(folder)
    run = run_of(folder, "flux_kontext", extras_name_or_path="acme/Flux")
    with pytest.raises(Unestablished, match="text_encoder_2: not found on this machine"):
        list(missing_checkpoint_tensors(run, probed(run)))


def test_a_repository_that_lacks_the_parts_is_not_passed(tmp_path: Path) -> None:
    """As a hub id of a repository that holds a transformer alone: the hub rules know its files, not the trainer."""
    snapshot = str(healthy_flux() / "transformer")
    repo = HubRepo("acme/flux", "/hub", "/hub/x", "main", "ok", "", "", "0" * 40, snapshot, False, ())
    run = run_of("acme/flux", "flux")
    with pytest.raises(Unestablished, match="transformer: missing"):
        list(missing_checkpoint_tensors(run, probed(run, Hub((), (repo,)))))


def test_the_index_lists_what_a_config_has() -> None:
    assert (
        json.loads((healthy_flux() / "transformer" / INDEX).read_text())["weight_map"].keys()
        == (needed_tensors("FluxTransformer2DModel", DEV) or {}).keys()
    )
