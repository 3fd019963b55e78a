"""Models whose parts are files of their own, as zdoctor's own runner would open them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from zdoctor.checks.kohya.parts import missing_part_file
from zdoctor.checks.model.files import incomplete_model_folder, missing_tokenizer, unreadable_weight_file
from zdoctor.checks.model.layout import checkpoint_layout_mismatch
from zdoctor.checks.model.tensors import missing_checkpoint_tensors
from zdoctor.checks.paths import missing_path
from zdoctor.doctor.families.components.clip_text import CLIP_L
from zdoctor.doctor.families.components.t5 import T5_XXL
from zdoctor.doctor.families.part_files import with_parts
from zdoctor.doctor.families.record.shapes import Shapes
from zdoctor.doctor.families.tensors import needed_tensors
from zdoctor.doctor.memory import predict
from zdoctor.doctor.model import Finding, Memory, ModelFolder, Run
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.probe.files import probe_files
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.rules import Unestablished
from zdoctor.fixes.model import fetch_the_tokenizer
from zdoctor.tests import part_files as made

COMMIT = "a" * 40
CLIP, T5, QWEN = "openai/clip-vit-large-patch14", "google/t5-v1_1-xxl", "Tongyi-MAI/Z-Image"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache with the tokenizers of Flux and Z-Image, as far as they are loaded."""
    folder = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(folder))
    monkeypatch.setenv("HF_HOME", str(folder))
    store(folder, CLIP, "vocab.json", "merges.txt", "tokenizer_config.json", "config.json")
    store(folder, T5, "spiece.model", "tokenizer_config.json", "config.json")
    store(folder, QWEN, "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json")
    return folder


def store(cache: Path, repo: str, *names: str) -> Path:
    root = cache / f"models--{repo.replace('/', '--')}"
    for name in names:
        file = root / "snapshots" / COMMIT / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / "main").write_text(COMMIT)
    return root


def own(text: str) -> Run:
    run = made.run_of(text)
    return with_parts(replace(run, trainer=RUNNER, device="cpu"), run)


def said(run: Run, model: ModelFolder) -> list[tuple[str, Finding]]:
    """The rules that have something to say, with it."""
    world = LiveWorld()
    files = probe_files(world, run)
    config = made.reading_of(made.flux_command({})).config
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "KOH001": lambda: missing_part_file(config, run, files, model, "", world.system),
        "PTH004": lambda: missing_path(run, files, "", world.system),
        "MDL001": lambda: missing_checkpoint_tensors(run, model),
        "MDL002": lambda: checkpoint_layout_mismatch(run, model),
        "MDL003": lambda: incomplete_model_folder(run, model),
        "MDL004": lambda: unreadable_weight_file(run, model),
        "MDL007": lambda: missing_tokenizer(run, model),
    }
    found: list[tuple[str, Finding]] = []
    for rule, check in checks.items():
        with contextlib.suppress(Unestablished):
            found += [(rule, finding) for finding in check()]
    return found


def rules(found: list[tuple[str, Finding]]) -> list[str]:
    return [rule for rule, _ in found]


def kontext(files: dict[str, str]) -> str:
    """The files of Flux as musubi-tuner's options name them."""
    names = {"dit": "pretrained_model_name_or_path", "vae": "ae", "text_encoder1": "t5xxl", "text_encoder2": "clip_l"}
    text = made.zimage_command({option: files[name] for option, name in names.items()})
    return text.replace("zimage_train_network.py", "flux_kontext_train_network.py").replace(
        "lora_zimage", "lora_flux"
    )


@pytest.mark.parametrize(
    ("text", "tokenizers"),
    [
        (made.flux_command(made.flux_files()), 2),
        (made.zimage_command(made.zimage_files()), 1),
        (kontext(made.flux_files()), 2),
    ],
)
def test_sound_parts_are_whole_and_their_memory_is_known(cache: Path, text: str, tokenizers: int) -> None:
    run = own(text)
    model = made.probed(run)
    assert model.layout == "part-files"
    assert [(rule, finding.text()) for rule, finding in said(run, model)] == []
    assert len([name for name in model.components if name.startswith("tokenizer")]) == tokenizers
    for part in model.components.values():
        assert part.config is not None and (part.needed or part.name.startswith("tokenizer"))
    memory = predict(run, model, (), LiveWorld().system, ())
    assert isinstance(memory, Memory) and memory.peak.total > 10 * 10**9


def sdxl_vae() -> Shapes:
    return {**made.ae(), "encoder.conv_out.weight": (8, 512, 3, 3), "decoder.conv_in.weight": (512, 4, 3, 3)}


def clip_g() -> Shapes:
    config = {**CLIP_L, "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32}
    return needed_tensors("CLIPTextModel", config) or {}


def small_t5() -> Shapes:
    return needed_tensors("T5EncoderModel", {**T5_XXL, "d_model": 2048, "d_ff": 5120}) or {}


SICK: list[tuple[str, Callable[[], Shapes], str]] = [
    ("clip_l", made.t5xxl, "MDL002"),
    ("ae", made.flux, "MDL002"),
    ("ae", sdxl_vae, "MDL002"),
    ("clip_l", clip_g, "MDL002"),
    ("t5xxl", small_t5, "MDL002"),
    ("t5xxl", lambda: {**made.t5xxl(), "encoder.block.0.layer.0.SelfAttention.q.scale_weight": (1,)}, "MDL002"),
    ("ae", lambda: made.without(made.ae(), ".attn_1."), "MDL001"),
    ("ae", lambda: made.without(made.ae(), "encoder.down.0.block.1."), "MDL001"),
    ("t5xxl", lambda: made.without(made.t5xxl(), "encoder.block.23."), "MDL001"),
]


@pytest.mark.parametrize(("option", "shapes", "rule"), SICK)
def test_what_does_not_fit_is_said(
    cache: Path, tmp_path: Path, option: str, shapes: Callable[[], Shapes], rule: str
) -> None:
    files = {**made.flux_files(), option: str(made.write(tmp_path / "other.safetensors", shapes()))}
    run = own(made.flux_command(files))
    found = said(run, made.probed(run))
    assert set(rules(found)) == {rule}, [finding.text() for _, finding in found]
    assert "sd-scripts" not in found[0][1].text() + found[0][1].consequence()


def test_files_that_other_trainers_refuse_are_as_good(cache: Path, tmp_path: Path) -> None:
    """A VAE in diffusers' names, a CLIP without its prefix, a Z-Image with one: the names are not what counts."""
    clip = needed_tensors("CLIPTextModel", CLIP_L) or {}
    flux = {
        "ae": str(made.write(tmp_path / "vae.safetensors", made.diffusers_vae())),
        "clip_l": str(made.write(tmp_path / "clip.safetensors", clip)),
    }
    prefixed = {f"model.diffusion_model.{name}": shape for name, shape in made.zimage().items()}
    zimage = {"dit": str(made.write(tmp_path / "dit.safetensors", prefixed))}
    for text in (
        made.flux_command({**made.flux_files(), **flux}),
        made.zimage_command({**made.zimage_files(), **zimage}),
    ):
        run = own(text)
        assert [(rule, finding.text()) for rule, finding in said(run, made.probed(run))] == []


def test_a_part_that_is_not_named_or_not_there(cache: Path, tmp_path: Path) -> None:
    files = {**made.zimage_files(), "vae": None, "text_encoder": str(tmp_path / "gone.safetensors")}
    run = own(made.zimage_command(files))
    found = said(run, made.probed(run))
    assert [(rule, finding.severity) for rule, finding in found] == [("KOH001", None)] * 2
    assert "gone.safetensors" in found[0][1].text()
    assert "zdoctor train makes its caches itself" in found[1][1].text()


def test_a_gguf_file_is_none_of_weights(cache: Path, tmp_path: Path) -> None:
    gguf = tmp_path / "t5.gguf"
    gguf.write_bytes(b"GGUF" + bytes(1000))
    run = own(made.flux_command({**made.flux_files(), "t5xxl": gguf}))
    assert rules(said(run, made.probed(run))) == ["MDL004"]


def test_a_missing_tokenizer_comes_with_the_command(cache: Path) -> None:
    shutil.rmtree(cache / "models--openai--clip-vit-large-patch14")
    (cache / "models--google--t5-v1_1-xxl" / "snapshots" / COMMIT / "spiece.model").unlink()
    run = own(made.flux_command(made.flux_files()))
    found = said(run, made.probed(run))
    assert rules(found) == ["MDL007", "MDL007"]
    commands = [fix.command for _, finding in found for fix in fetch_the_tokenizer(finding)]
    assert commands[0] == f'hf download {CLIP} --include "*.json" --include "merges.txt"'
    assert commands[1] == f'hf download {T5} --include "*.json" --include "spiece.model"'


def test_tokenizers_of_the_diffusers_models_and_those_that_sd_scripts_keeps(cache: Path, tmp_path: Path) -> None:
    for name in (
        "models--openai--clip-vit-large-patch14",
        "models--google--t5-v1_1-xxl",
        "models--Tongyi-MAI--Z-Image",
    ):
        shutil.rmtree(cache / name)
    store(cache, T5, "spiece.model")
    schnell = store(cache, "black-forest-labs/FLUX.1-schnell", "tokenizer_2/tokenizer.json")
    turbo = store(cache, f"{QWEN}-Turbo", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json")
    kept = tmp_path / "kept" / "openai_clip-vit-large-patch14"
    kept.mkdir(parents=True)
    (kept / "tokenizer.json").write_text("{}")
    run = own(made.flux_command({**made.flux_files(), "tokenizer_cache_dir": kept.parent}))
    model = made.probed(run)
    assert said(run, model) == [] and model.components["tokenizer"].folder == str(kept)
    assert model.components["tokenizer_2"].folder == str(schnell / "snapshots" / COMMIT / "tokenizer_2")
    run = own(made.zimage_command(made.zimage_files()))
    model = made.probed(run)
    assert said(run, model) == []
    assert model.components["tokenizer"].folder == str(turbo / "snapshots" / COMMIT / "tokenizer")
