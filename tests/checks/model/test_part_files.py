"""Models whose parts are files of their own: what sd-scripts and musubi-tuner would make of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from zdoctor.checks.model.files import unreadable_weight_file
from zdoctor.checks.model.layout import checkpoint_layout_mismatch
from zdoctor.checks.model.tensors import missing_checkpoint_tensors
from zdoctor.doctor.families import family_of, in_diffusers
from zdoctor.doctor.families.record.shapes import Shapes
from zdoctor.doctor.model import Finding, ModelFolder, Run
from zdoctor.doctor.rules import Unestablished
from zdoctor.tests import part_files as made
from zdoctor.tests.often import often
from zdoctor.tests.patients import OF_FILE, Part, scaled


def said(run: Run, model: ModelFolder) -> list[Finding]:
    found: list[Finding] = []
    for check in (checkpoint_layout_mismatch, missing_checkpoint_tensors, unreadable_weight_file):
        with contextlib.suppress(Unestablished):
            found += list(check(run, model))
    return found


def prefixed(shapes: Shapes) -> Shapes:
    return {f"model.diffusion_model.{name}": shape for name, shape in shapes.items()}


def before(shapes: Shapes) -> Shapes:
    """As transformers named what sees and what reads before 4.52."""
    return {
        name.replace("model.language_model.", "model.").replace("model.visual.", "visual."): shape
        for name, shape in shapes.items()
    }


def shards(folder: Path, shapes: Shapes, name: str, count: int) -> str:
    names = sorted(shapes)
    for number in range(count):
        some = {name: shapes[name] for name in names[number::count]}
        made.write(folder / f"{name}-{number + 1:05d}-of-{count:05d}.safetensors", some)
    return str(folder / f"{name}-00001-of-{count:05d}.safetensors")


FLUX: list[tuple[str, str, Callable[[], Shapes], list[str]]] = [
    ("sound", "ae", made.ae, []),
    ("schnell", "pretrained_model_name_or_path", lambda: made.flux(guidance_embeds=False), []),
    ("ComfyUI's prefix", "pretrained_model_name_or_path", lambda: prefixed(made.flux()), []),
    ("diffusers' names, which are converted", "pretrained_model_name_or_path", lambda: made.of(made.FLUX, {}), []),
    ("fewer blocks, as distilled models have", "pretrained_model_name_or_path", lambda: made.flux(num_layers=8), []),
    ("one more tensor", "clip_l", lambda: {**made.clip_l(), "text_projection.weight": (768, 768)}, []),
    ("the other name of the embedding", "t5xxl", lambda: {**made.t5xxl(), "encoder.embed_tokens.weight": (2, 2)}, []),
    ("a VAE of diffusers", "ae", made.diffusers_vae, ["ae"]),
    ("a decoder alone", "ae", lambda: made.without(made.ae(), "encoder."), ["ae"]),
    ("a VAE of SDXL", "ae", lambda: {**made.ae(), "decoder.conv_in.weight": (512, 4, 3, 3)}, ["ae"]),
    (
        "a block lacks",
        "pretrained_model_name_or_path",
        lambda: made.without(made.flux(), "double_blocks.3.img_mlp"),
        ["t"],
    ),
    ("a LoRA", "pretrained_model_name_or_path", lambda: {"lora_unet_x.lora_down.weight": (4, 4)}, ["t"]),
    ("T5 in place of CLIP", "clip_l", made.t5xxl, ["clip_l"]),
    ("CLIP in place of T5", "t5xxl", made.clip_l, ["t5xxl"]),
    ("scaled", "t5xxl", lambda: {**made.t5xxl(), "scaled_fp8": (0,)}, ["t5xxl"]),
]


@pytest.mark.parametrize(("option", "shapes", "keys"), [case[1:] for case in FLUX], ids=[case[0] for case in FLUX])
def test_flux_by_sd_scripts(tmp_path: Path, option: str, shapes: Callable[[], Shapes], keys: list[str]) -> None:
    files = {**made.flux_files(), option: str(made.write(tmp_path / "other.safetensors", shapes()))}
    run = made.run_of(made.flux_command(files))
    found = said(run, made.probed(run))
    assert len(found) == len(keys), [finding.text() for finding in found]
    for finding in found:
        finding.consequence()
        assert finding.where is not None and finding.where.pointer == f"/{option}"


def test_the_site_of_the_crash_names_the_part(tmp_path: Path) -> None:
    sick = made.write(tmp_path / "sick.safetensors", made.without(made.ae(), "decoder.mid.attn_1"))
    run = made.run_of(made.flux_command({**made.flux_files(), "ae": sick}))
    (finding,) = said(run, made.probed(run))
    assert "vae.to(accelerator.device)" in finding.consequence() and "fp8_base" in finding.consequence()
    assert "sd-scripts asks for" in finding.text()


def test_a_file_in_8_bits_is_as_good_as_any(tmp_path: Path) -> None:
    eight = made.write(tmp_path / "fp8.safetensors", made.flux(), "F8_E4M3", 1)
    run = made.run_of(made.flux_command({**made.flux_files(), "pretrained_model_name_or_path": eight}))
    assert not said(run, made.probed(run))


def test_three_shards_by_their_folder(tmp_path: Path) -> None:
    files = made.flux_files()
    shards(
        tmp_path / "dev" / "transformer", made.of(made.FLUX, {"guidance_embeds": True}), "diffusion_pytorch_model", 3
    )
    run = made.run_of(made.flux_command({**files, "pretrained_model_name_or_path": tmp_path / "dev"}))
    model = made.probed(run)
    assert len(model.components["transformer"].weights) == 3 and not said(run, model)


ZIMAGE: list[tuple[str, str, Callable[[], Shapes], int]] = [
    ("sound", "vae", made.ae, 0),
    ("a VAE of diffusers, which is converted", "vae", made.diffusers_vae, 0),
    ("diffusers' names", "dit", lambda: made.of(made.ZIMAGE, {}), 0),
    ("the tied head", "text_encoder", lambda: {**made.qwen(), "lm_head.weight": (151936, 2560)}, 0),
    ("a prefix", "dit", lambda: prefixed(made.zimage()), 1),
    ("a name too many", "dit", lambda: {**made.zimage(), "norm_final.weight": (3840,)}, 1),
    ("a name too few", "dit", lambda: made.without(made.zimage(), "cap_embedder.0"), 1),
    ("Flux", "dit", made.flux, 1),
]


@pytest.mark.parametrize(("option", "shapes", "count"), [c[1:] for c in ZIMAGE], ids=[case[0] for case in ZIMAGE])
def test_zimage_by_musubi(tmp_path: Path, option: str, shapes: Callable[[], Shapes], count: int) -> None:
    files = {**made.zimage_files(), option: str(made.write(tmp_path / "other.safetensors", shapes()))}
    run = made.run_of(made.zimage_command(files))
    found = said(run, made.probed(run))
    assert len(found) == count, [finding.text() for finding in found]
    assert all("RuntimeError" in finding.consequence() for finding in found)


MUSUBI: list[tuple[str, str, str, Callable[[Shapes], Shapes], int]] = [
    ("a prefix", "qwen_image", "dit", prefixed, 0),
    ("ComfyUI's mark of 2511", "qwen_image_edit_plus", "dit", lambda s: {**s, "__index_timestep_zero__": (0,)}, 0),
    ("a block lacks", "qwen_image", "dit", lambda s: made.without(s, "transformer_blocks.59.img_mlp"), 1),
    ("a VAE of diffusers", "qwen_image", "vae", lambda s: made.of("AutoencoderKLQwenImage", {}), 0),
    ("a VAE of Flux", "qwen_image", "vae", lambda s: made.ae(), 1),
    ("later names", "qwen_image", "text_encoder", lambda s: {f"model.{n}": shape for n, shape in s.items()}, 1),
    ("a prefix", "flux2", "dit", prefixed, 1),
    ("Klein in place of dev", "flux2", "dit", lambda s: made.musubi_shapes("flux2_klein_4b")["dit"], 1),
    ("4B in place of 9B", "flux2_klein_9b", "dit", lambda s: made.musubi_shapes("flux2_klein_4b")["dit"], 1),
    ("a VAE of Flux.1", "flux2_klein_4b", "vae", lambda s: made.ae(), 1),
    ("a prefix", "krea2", "dit", prefixed, 1),
    ("ComfyUI's names", "krea2", "text_encoder", before, 0),
    ("ComfyUI's prefix, as 1.3B has it", "wan21_1b", "dit", prefixed, 0),
    ("diffusers' names", "wan21", "dit", lambda s: made.of("WanTransformer3DModel", {}), 1),
    ("one that sees pictures", "wan21", "dit", lambda s: made.musubi_shapes("wan21_i2v")["dit"], 1),
    ("1.3B in place of 14B", "wan21", "dit", lambda s: made.musubi_shapes("wan21_1b")["dit"], 1),
    (
        "Wan 2.1 in place of 2.2",
        "wan22_14b_i2v",
        "dit_high_noise",
        lambda s: made.musubi_shapes("wan21_i2v")["dit"],
        1,
    ),
    ("ComfyUI's text encoder", "wan21", "t5", lambda s: made.t5xxl(), 1),
    ("a tensor too many", "wan21", "vae", lambda s: {**s, "stranger.weight": (8,)}, 0),
    ("a tensor too many", "wan21", "t5", lambda s: {**s, "stranger.weight": (8,)}, 1),
    ("a block lacks", "flux2_klein_4b", "dit", lambda s: made.without(s, "single_blocks.19."), 1),
]


@pytest.mark.parametrize("architecture", made.OF_MUSUBI)
def test_a_sound_model_of_musubi_tuner_is_silent(architecture: str) -> None:
    run = made.run_of(
        made.musubi_command(architecture, {**made.musubi_files(architecture), "sample_prompts": "p.txt"})
    )
    model = made.probed(run)
    assert run.recipe.architecture == architecture
    assert set(model.components) == set(family_of(architecture).kohya["musubi-tuner"].files)
    assert not said(run, model), [finding.text() for finding in said(run, model)]


@pytest.mark.parametrize(
    ("architecture", "option", "change", "count"), [c[1:] for c in MUSUBI], ids=[f"{c[1]}: {c[0]}" for c in MUSUBI]
)
def test_other_models_of_musubi_tuner(
    tmp_path: Path, architecture: str, option: str, change: Callable[[Shapes], Shapes], count: int
) -> None:
    shapes = change(dict(made.musubi_shapes(architecture)[option]))
    files = {**made.musubi_files(architecture), option: str(made.write(tmp_path / "other.safetensors", shapes))}
    run = made.run_of(made.musubi_command(architecture, {**files, "sample_prompts": "p.txt"}))
    found = said(run, made.probed(run))
    assert min(len(found), 1) == count, [finding.text() for finding in found]


OF_FILES_ALONE = [name for name in made.OF_MUSUBI if in_diffusers(family_of(name)).own is None]


@pytest.mark.parametrize("architecture", often(OF_FILES_ALONE, 2))
def test_every_damage_to_a_model_of_musubi_tuner_is_found(architecture: str, tmp_path: Path) -> None:
    found = 0
    for option, shapes in made.musubi_shapes(architecture).items():
        part = Part(option, tmp_path, tmp_path / f"{option}.safetensors", "", shapes)
        files = {**made.musubi_files(architecture), option: str(part.file), "sample_prompts": "p.txt"}
        run = made.run_of(made.musubi_command(architecture, files))
        kinds = {name: one for name, one in OF_FILE.items() if name != "no file"}  # which is another rule's
        for name, damage in kinds.items():
            if name == "scaled 8-bit weights" and scaled(dict(shapes)) == shapes:  # convolutions alone
                continue
            made.write(part.file, shapes)
            damage(part)
            assert said(run, made.probed(run)), (option, name)
            found += 1
    assert found >= 20


def test_what_is_published_as_a_pickle_is_not_judged_and_not_warned_about(tmp_path: Path) -> None:
    pickle = tmp_path / "Wan2.1_VAE.pth"
    pickle.write_bytes(b"PK" + bytes(64))
    files = {**made.musubi_files("wan21"), "vae": str(pickle), "sample_prompts": "p.txt"}
    run = made.run_of(made.musubi_command("wan21", files))
    model = made.probed(run)
    assert not said(run, model)
    with pytest.raises(Unestablished, match="vae: its weight files cannot be compared"):
        list(missing_checkpoint_tensors(run, model))


def test_shards_by_the_name_of_the_first(tmp_path: Path) -> None:
    first = shards(tmp_path, made.of(made.ZIMAGE, {}), "diffusion_pytorch_model", 2)
    run = made.run_of(made.zimage_command({**made.zimage_files(), "dit": first}))
    model = made.probed(run)
    assert len(model.components["transformer"].weights) == 2 and not said(run, model)


def test_torch_hides_what_lacks_until_it_moves() -> None:
    """What sd-scripts does with each file, by torch itself: the error has nothing to do with 8 bits."""

    def loaded(names: list[str], dtype: torch.dtype) -> torch.nn.Module:
        with torch.device("meta"):
            model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
        state = {name: torch.zeros(model.state_dict()[name].shape).to(dtype) for name in names}
        model.load_state_dict(state, strict=False, assign=True)
        return model

    whole = ["0.weight", "0.bias", "1.weight", "1.bias"]
    loaded(whole, torch.float8_e4m3fn).to("cpu")
    sick = loaded(whole[:3], torch.bfloat16)
    sick.to(torch.float32)  # a cast is silent
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        sick.to("cpu")
