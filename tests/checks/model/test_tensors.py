"""Each damage really stops the real loaders, or makes a model that is not the one on disk; each cure really loads."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers.models.autoencoders import autoencoder_kl
from diffusers.models.transformers import transformer_z_image
from safetensors import SafetensorError
from transformers import AutoTokenizer, Qwen3ForCausalLM

from zdoctor.checks.model.files import incomplete_model_folder, unreadable_weight_file
from zdoctor.checks.model.layout import checkpoint_layout_mismatch
from zdoctor.checks.model.tensors import missing_checkpoint_tensors
from zdoctor.doctor.model import Finding
from zdoctor.doctor.rules import Unestablished
from zdoctor.tests.models import INDEX, copy_to, edit_json, healthy, probed, rewrite, run_of, shard_of

ZImageTransformer2DModel: Any = transformer_z_image.ZImageTransformer2DModel
AutoencoderKL: Any = autoencoder_kl.AutoencoderKL

RULES = {
    "MDL001": missing_checkpoint_tensors,
    "MDL002": checkpoint_layout_mismatch,
    "MDL003": incomplete_model_folder,
    "MDL004": unreadable_weight_file,
}
NAME = "layers.1.attention.to_q.weight"


def findings(folder: Path | str, architecture: str = "zimage", **settings: Any) -> dict[str, list[Finding]]:
    run = run_of(folder, architecture, **settings)
    model = probed(run)
    seen: dict[str, list[Finding]] = {}
    for id, rule in RULES.items():
        try:
            found = list(rule(run, model))
        except Unestablished:
            continue
        for finding in found:
            assert finding.text() and finding.consequence()
        if found:
            seen[id] = found
    return seen


def load(folder: Path) -> None:
    """What ai-toolkit's Z-Image loader does, ending with the move that meta tensors fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformer = ZImageTransformer2DModel.from_pretrained(
            folder, subfolder="transformer", torch_dtype=torch.bfloat16
        )
        transformer.to("cpu")
        assert not any(parameter.is_meta for parameter in transformer.parameters())
        AutoTokenizer.from_pretrained(folder, subfolder="tokenizer")("a photo")
        Qwen3ForCausalLM.from_pretrained(folder, subfolder="text_encoder", dtype=torch.bfloat16)
        AutoencoderKL.from_pretrained(folder, subfolder="vae").to("cpu")


def drop_from_shard(folder: Path) -> None:
    rewrite(shard_of(folder, NAME), lambda t: {n: v for n, v in t.items() if n != NAME})


def drop_everywhere(folder: Path) -> None:
    drop_from_shard(folder)
    edit_json(folder / "transformer" / INDEX, lambda tree: tree["weight_map"].pop(NAME))


def drop_shard_from_index(folder: Path) -> None:
    shard = shard_of(folder, NAME).name

    def change(tree: dict[str, Any]) -> None:
        tree["weight_map"] = {name: file for name, file in tree["weight_map"].items() if file != shard}

    edit_json(folder / "transformer" / INDEX, change)


def rename_one(folder: Path) -> None:
    rewrite(shard_of(folder, NAME), lambda t: {f"model.{n}" if n == NAME else n: v for n, v in t.items()})


def rename_all(folder: Path) -> None:
    for shard in (folder / "transformer").glob("*.safetensors"):
        rewrite(shard, lambda t: {f"model.diffusion_model.{n}": v for n, v in t.items()})


def more_layers(folder: Path) -> None:
    edit_json(folder / "transformer" / "config.json", lambda tree: tree.update(n_layers=6))


def siglip(folder: Path) -> None:
    edit_json(folder / "transformer" / "config.json", lambda tree: tree.update(siglip_feat_dim=24))


def wrong_shape(folder: Path) -> None:
    rewrite(shard_of(folder, NAME), lambda t: {n: v[:4].clone() if n == NAME else v for n, v in t.items()})


def remove_shard(folder: Path) -> None:
    shard_of(folder, NAME).unlink()


def remove_index(folder: Path) -> None:
    (folder / "transformer" / INDEX).unlink()


def truncate(folder: Path) -> None:
    file = shard_of(folder, NAME)
    file.write_bytes(file.read_bytes()[:-100])


def empty(folder: Path) -> None:
    shard_of(folder, NAME).write_bytes(b"")


def lfs_pointer(folder: Path) -> None:
    (folder / "vae" / "diffusion_pytorch_model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    )


def page(folder: Path) -> None:
    (folder / "text_encoder" / "model.safetensors").write_text("<!DOCTYPE html><title>Sign in</title>")


def no_config(folder: Path) -> None:
    (folder / "transformer" / "config.json").unlink()


def no_tokenizer(folder: Path) -> None:
    for file in (folder / "tokenizer").iterdir():
        file.unlink()
    (folder / "tokenizer").rmdir()


def empty_tokenizer(folder: Path) -> None:
    for file in (folder / "tokenizer").iterdir():
        file.unlink()


def no_text_encoder_weights(folder: Path) -> None:
    (folder / "text_encoder" / "model.safetensors").unlink()


def no_vae(folder: Path) -> None:
    (folder / "vae" / "config.json").unlink()
    (folder / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    (folder / "vae").rmdir()


SICK: dict[str, tuple[Callable[[Path], None], str]] = {
    "key absent from shard and index": (drop_everywhere, "MDL001"),
    "key absent from shard only": (drop_from_shard, "MDL001"),
    "shard dropped from index": (drop_shard_from_index, "MDL001"),
    "one key renamed": (rename_one, "MDL001"),
    "all keys renamed": (rename_all, "MDL002"),
    "config with more layers": (more_layers, "MDL001"),
    "config with siglip": (siglip, "MDL001"),
    "wrong shape": (wrong_shape, "MDL002"),
    "shard missing": (remove_shard, "MDL003"),
    "index missing": (remove_index, "MDL003"),
    "no config": (no_config, "MDL003"),
    "no tokenizer": (no_tokenizer, "MDL003"),
    "empty tokenizer": (empty_tokenizer, "MDL003"),
    "no text encoder weights": (no_text_encoder_weights, "MDL003"),
    "no vae": (no_vae, "MDL003"),
    "shard truncated": (truncate, "MDL004"),
    "shard empty": (empty, "MDL004"),
    "git-lfs pointer": (lfs_pointer, "MDL004"),
    "web page": (page, "MDL004"),
}


@pytest.mark.parametrize("case", SICK)
def test_the_real_loaders_fail_and_exactly_one_rule_says_why(case: str, tmp_path: Path) -> None:
    damage, expected = SICK[case]
    folder = copy_to(tmp_path / "m")
    damage(folder)
    with pytest.raises((OSError, ValueError, RuntimeError, SafetensorError)):
        load(folder)
    seen = findings(folder)
    assert list(seen) == [expected]
    assert len(seen[expected]) == 1


def test_the_meta_crash_is_foretold_in_its_own_words(tmp_path: Path) -> None:
    folder = copy_to(tmp_path / "m")
    drop_everywhere(folder)
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        load(folder)
    (finding,) = findings(folder)["MDL001"]
    assert "Cannot copy out of meta tensor; no data!" in finding.consequence()
    assert NAME in finding.text() and "parts of layers.1" in finding.text()
    assert finding.evidence["missing"] == 1
    more_layers(folder)
    (finding,) = findings(folder)["MDL001"]
    assert "all of layers.4, layers.5, parts of layers.1" in finding.text()


def test_a_text_encoder_with_holes_loads_as_if_nothing_were_wrong(tmp_path: Path) -> None:
    folder = copy_to(tmp_path / "m")
    hole = "model.layers.1.mlp.up_proj.weight"
    rewrite(folder / "text_encoder" / "model.safetensors", lambda t: {n: v for n, v in t.items() if n != hole})
    load(folder)  # no error: the hole is filled with random numbers
    weights = Qwen3ForCausalLM.from_pretrained(folder, subfolder="text_encoder").state_dict()[hole]
    original = Qwen3ForCausalLM.from_pretrained(healthy(), subfolder="text_encoder").state_dict()[hole]
    assert not torch.equal(weights, original)
    (finding,) = findings(folder)["MDL001"]
    assert "random numbers" in finding.consequence()
    assert hole in finding.text()


def untouched(folder: Path) -> None:
    """Nothing is done to it."""


def extra_key(folder: Path) -> None:
    rewrite(shard_of(folder, NAME), lambda t: {**t, "some.extra": torch.zeros(2)})


def key_only_missing_from_index(folder: Path) -> None:
    edit_json(folder / "transformer" / INDEX, lambda tree: tree["weight_map"].pop(NAME))


def other_shard_names(folder: Path) -> None:
    shard = shard_of(folder, NAME)
    shard.rename(shard.with_name("part two.safetensors"))
    text = (folder / "transformer" / INDEX).read_text()
    (folder / "transformer" / INDEX).write_text(text.replace(shard.name, "part two.safetensors"))


def bare_text_encoder_names(folder: Path) -> None:
    rewrite(
        folder / "text_encoder" / "model.safetensors", lambda t: {n.removeprefix("model."): v for n, v in t.items()}
    )


def untied_head_absent(folder: Path) -> None:
    edit_json(folder / "text_encoder" / "config.json", lambda tree: tree.update(tie_word_embeddings=False))


def half_precision(folder: Path) -> None:
    for shard in (folder / "transformer").glob("*.safetensors"):
        rewrite(shard, lambda t: {n: v.to(torch.float8_e4m3fn) if v.ndim == 2 else v for n, v in t.items()})


def old_vae_names(folder: Path) -> None:
    new = {".to_q.": ".query.", ".to_k.": ".key.", ".to_v.": ".value.", ".to_out.0.": ".proj_attn."}

    def old(name: str) -> str:
        for ours, theirs in new.items():
            name = name.replace(f"attentions.0{ours}", f"attentions.0{theirs}")
        return name

    rewrite(folder / "vae" / "diffusion_pytorch_model.safetensors", lambda t: {old(n): v for n, v in t.items()})


def vocabulary_in_two_files(folder: Path) -> None:
    tokens = folder / "tokenizer"
    model = json.loads((tokens / "tokenizer.json").read_text())["model"]
    (tokens / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tokens / "merges.txt").write_text("\n".join(m if isinstance(m, str) else " ".join(m) for m in model["merges"]))
    (tokens / "tokenizer.json").unlink()


def links(folder: Path) -> None:
    """As a hub snapshot lies: every file a link elsewhere."""
    for file in [f for f in folder.rglob("*") if f.is_file()]:
        target = folder.parent / "blobs" / str(file.relative_to(folder)).replace("/", "_")
        target.parent.mkdir(exist_ok=True)
        file.rename(target)
        file.symlink_to(target)


WELL = [
    untouched,
    extra_key,
    key_only_missing_from_index,
    other_shard_names,
    bare_text_encoder_names,
    untied_head_absent,
    half_precision,
    old_vae_names,
    vocabulary_in_two_files,
    links,
]


@pytest.mark.parametrize("change", WELL, ids=lambda change: change.__name__)
def test_what_loads_is_silent(change: Callable[[Path], None], tmp_path: Path) -> None:
    folder = copy_to(tmp_path / "m")
    change(folder)
    load(folder)
    assert findings(folder) == {}


def test_layers_that_the_config_forgets_are_dropped_without_a_word(tmp_path: Path) -> None:
    folder = copy_to(tmp_path / "m")
    edit_json(folder / "transformer" / "config.json", lambda tree: tree.update(n_layers=3))
    load(folder)
    (finding,) = findings(folder)["MDL002"]
    assert "layers.3" in finding.text()


def test_scales_are_dropped_by_the_loader(tmp_path: Path) -> None:
    folder = copy_to(tmp_path / "m")
    rewrite(
        shard_of(folder, NAME),
        lambda t: {
            **{n: (v / 2).to(torch.float8_e4m3fn) if n == NAME else v for n, v in t.items()},
            "layers.1.attention.to_q.scale_weight": torch.tensor(2.0),
        },
    )
    load(folder)
    model = ZImageTransformer2DModel.from_pretrained(folder, subfolder="transformer")
    right = ZImageTransformer2DModel.from_pretrained(healthy(), subfolder="transformer")
    ratio = model.state_dict()[NAME].float().norm() / right.state_dict()[NAME].float().norm()
    assert 0.4 < ratio < 0.6
    assert list(findings(folder)) == ["MDL002"]
    # a config that says how the weights are quantized makes the loader read the scales
    edit_json(folder / "transformer" / "config.json", lambda tree: tree.update(quantization_config={"a": 1}))
    assert findings(folder) == {}


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [("text_encoder", "hidden_size", 48), ("vae", "latent_channels", 4), ("transformer", "_class_name", "Flux")],
)
def test_parts_of_different_models(part: str, key: str, value: object, tmp_path: Path) -> None:
    folder = copy_to(tmp_path / "m")
    edit_json(folder / part / "config.json", lambda tree: tree.update({key: value}))
    seen = findings(folder)
    assert "MDL002" in seen
    texts = " ".join(finding.text() for finding in seen["MDL002"])
    assert str(value) in texts


def cache_root(folder: Path) -> Path:
    root = folder / "models--acme--Z-Tiny"
    snapshot = root / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    copy_to(snapshot)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("0" * 40)
    return root


def test_a_cache_root_is_no_model_folder_but_its_snapshot_is(tmp_path: Path) -> None:
    root = cache_root(tmp_path)
    with pytest.raises(OSError, match=r"config\.json"):
        load(root)
    (finding,) = findings(root)["MDL003"]
    snapshot = finding.evidence["snapshot"]
    assert snapshot == str(root / "snapshots" / ("0" * 40))
    load(Path(snapshot))
    assert findings(Path(snapshot)) == {}


def test_a_transformer_alone_needs_a_source_for_the_rest(tmp_path: Path) -> None:
    alone = healthy() / "transformer"
    with pytest.raises((OSError, ValueError)):
        AutoTokenizer.from_pretrained(alone, subfolder="tokenizer")
    (finding,) = findings(alone)["MDL003"]
    assert "text_encoder/, tokenizer/, vae/" in finding.text()
    assert findings(alone, extras_name_or_path=str(healthy())) == {}


def test_a_folder_with_its_own_text_encoder_overrides_the_extras(tmp_path: Path) -> None:
    folder = copy_to(tmp_path / "m")
    no_vae(folder)
    assert "MDL003" in findings(folder, extras_name_or_path=str(healthy()))


def test_pickles_are_a_warning_and_leave_completeness_open(tmp_path: Path) -> None:
    folder = copy_to(tmp_path / "m")
    (folder / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    torch.save({}, folder / "vae" / "diffusion_pytorch_model.bin")
    (finding,) = findings(folder)["MDL004"]
    assert finding.severity == "warning"
    run = run_of(folder)
    with pytest.raises(Unestablished, match="vae"):
        list(missing_checkpoint_tensors(run, probed(run)))


def test_nothing_here_is_unknown_never_green(tmp_path: Path) -> None:
    run = run_of("Tongyi-MAI/Z-Image-Turbo")
    model = probed(run)
    assert model.layout == "absent" and model.repo == "Tongyi-MAI/Z-Image-Turbo"
    with pytest.raises(Unestablished, match="on this machine"):
        list(missing_checkpoint_tensors(run, model))
    assert list(incomplete_model_folder(run, model)) == []
