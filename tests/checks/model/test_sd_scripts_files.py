"""The files that sd-scripts opens of each family: the healthy ones are silent, and no damage is called well."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from zdoctor.checks.kohya.parts import missing_part_file, script_of_another_model
from zdoctor.checks.model.files import unreadable_weight_file
from zdoctor.checks.model.layout import checkpoint_layout_mismatch
from zdoctor.checks.model.tensors import missing_checkpoint_tensors
from zdoctor.doctor.families import family_of
from zdoctor.doctor.families.tensors import needed_tensors
from zdoctor.doctor.model import Finding, ModelFolder, Run
from zdoctor.doctor.probe.files import probe_files
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.rules import NotApplicable, Unestablished
from zdoctor.doctor.trainers.read import Reading
from zdoctor.tests.often import often
from zdoctor.tests.part_files import ae, flux, probed, write
from zdoctor.tests.patients import BROKEN, CHANGES, Part, patient
from zdoctor.tests.patients import write as write_header
from zdoctor.tests.sd_scripts_files import FAMILIES, files_of, parts_of, reading_with, run_with

Shapes = Mapping[str, tuple[int, ...]]
SCRIPT = script_of_another_model.__name__
FIRST = "pretrained_model_name_or_path"


Found = tuple[str, Finding]


def said(run: Run, model: ModelFolder) -> tuple[list[Found], bool]:
    """What is found, by which rule, and whether all was compared."""
    found: list[Found] = []
    compared = True
    for check in (
        script_of_another_model,
        checkpoint_layout_mismatch,
        missing_checkpoint_tensors,
        unreadable_weight_file,
    ):
        with contextlib.suppress(NotApplicable):
            try:
                found += [(check.__name__, one) for one in check(run, model)]
            except Unestablished:
                compared = False
    return found, compared


@pytest.mark.parametrize("alone", [False, True], ids=["together", "alone"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_healthy_model_is_silent(name: str, alone: bool) -> None:
    run = run_with(name, files_of(name, alone=alone))
    assert said(run, probed(run)) == ([], True)


@pytest.mark.parametrize("name", often(FAMILIES, 2))
def test_every_damage_is_found(name: str, tmp_path: Path) -> None:
    parts, count = parts_of(name), 0
    for component, (option, shapes) in parts.items():
        beside = {n: s for c, (o, held) in parts.items() if o == option and c != component for n, s in held.items()}
        file = tmp_path / f"{component}.safetensors"
        reading = reading_with(name, {**files_of(name), option: str(file)})
        for kind, (change, dtype) in CHANGES.items():
            changed = change(dict(shapes))
            if changed == shapes:  # convolutions alone
                continue
            write_header(file, {**beside, **changed}, dtype)
            assert _is_told(reading, component), f"{component}: {kind}"
            count += 1
        for kind, damage in BROKEN.items():
            if kind == "no file":  # which another rule says
                continue
            write_header(file, {**beside, **shapes})
            damage(Part(component, tmp_path, file, "", shapes))
            assert _is_told(reading, component), f"{component}: {kind}"
            count += 1
    assert count >= 20


def _is_told(reading: Reading, component: str) -> bool:
    [run] = reading.runs
    model = probed(run)
    found = [one for _, one in said(run, model)[0]]
    if component not in model.components:  # none of it is in the first file: it has to be named
        world = LiveWorld()
        found += missing_part_file(reading.config, run, probe_files(world, run), model, "", world.system)
    assert all(one.text() and one.consequence() for one in found)
    return bool(found)


OTHERS = [
    (
        "SDXL for the script of 1.5",
        "sd15",
        "sdxl",
        "sdxl_train_network.py trains this one",
    ),
    ("1.5 for SDXL's script", "sdxl", "sd15", "train_network.py trains this one"),
    ("3.5 for SDXL's script", "sdxl", "sd3", "sd3_train_network.py"),
    ("SDXL for the script of 3.5", "sd3", "sdxl", "sdxl_train_network.py"),
    ("Lumina for Anima's script", "anima", "lumina2", "lumina_train_network.py"),
    ("Anima for Lumina's script", "lumina2", "anima", "anima_train_network.py"),
]


@pytest.mark.parametrize(("name", "other", "words"), [c[1:] for c in OTHERS], ids=[c[0] for c in OTHERS])
def test_the_file_of_another_family(name: str, other: str, words: str) -> None:
    files = {**files_of(name), FIRST: files_of(other)[FIRST]}
    run = run_with(name, files)
    found, _ = said(run, probed(run))
    [(rule, one)] = found
    assert rule == SCRIPT and words in one.text()


def test_flux_for_the_script_of_sdxl(tmp_path: Path) -> None:
    run = run_with("sdxl", {FIRST: str(write(tmp_path / "flux1-dev.safetensors", flux()))})
    found, _ = said(run, probed(run))
    [(rule, one)] = found
    assert rule == SCRIPT and "flux_train_network.py" in one.text()


PARTS = [
    ("SDXL: Flux's VAE", "sdxl", "vae", ae),
    ("SDXL: a VAE in diffusers' names", "sdxl", "vae", lambda: made_vae("sdxl")),
    ("1.5: Flux's VAE", "sd15", "vae", ae),
    ("3.5: SDXL's VAE", "sd3", "vae", lambda: parts_of("sdxl", alone=True)["vae"][1]),
    ("3.5: CLIP-G for CLIP-L", "sd3", "clip_l", lambda: parts_of("sd3")["text_encoder_2"][1]),
    ("3.5: CLIP-L for CLIP-G", "sd3", "clip_g", lambda: parts_of("sd3")["text_encoder"][1]),
    ("3.5: CLIP for T5", "sd3", "t5xxl", lambda: parts_of("sd3")["text_encoder"][1]),
    ("Lumina: Qwen3 for Gemma", "lumina2", "gemma2", lambda: parts_of("anima")["text_encoder"][1]),
    ("Lumina: Qwen-Image's VAE", "lumina2", "ae", lambda: parts_of("anima")["vae"][1]),
    ("Anima: Gemma for Qwen3", "anima", "qwen3", lambda: parts_of("lumina2")["text_encoder"][1]),
    ("Anima: Flux's VAE", "anima", "vae", ae),
]


def made_vae(name: str) -> Shapes:
    """What its class builds, in diffusers' own names."""
    family = family_of(name)
    shapes = needed_tensors(*family.published["vae"])
    assert shapes is not None
    return shapes


@pytest.mark.parametrize(("name", "option", "shapes"), [c[1:] for c in PARTS], ids=[c[0] for c in PARTS])
def test_another_part(name: str, option: str, shapes: Callable[[], Shapes], tmp_path: Path) -> None:
    other = str(write(tmp_path / "other.safetensors", dict(shapes())))
    run = run_with(name, {**files_of(name, alone=True), option: other})
    found, _ = said(run, probed(run))
    assert found and {one.where and one.where.pointer for _, one in found} == {f"/{option}"}


def held(name: str) -> dict[str, tuple[int, ...]]:
    """The tensors of its first file."""
    return {n: s for option, shapes in parts_of(name).values() if option == FIRST for n, s in shapes.items()}


SOUND = [
    ("an old name of 1.5's text encoder", "sd15", lambda s: {n.replace("text_model.", ""): x for n, x in s.items()}),
    (
        "position_ids",
        "sdxl",
        lambda s: {**s, "conditioner.embedders.0.transformer.text_model.embeddings.position_ids": (1, 77)},
    ),
    ("logit_scale", "sdxl", lambda s: {**s, "conditioner.embedders.1.model.logit_scale": ()}),
    ("what else a checkpoint holds", "sd15", lambda s: {**s, "model_ema.decay": (), "betas": (1000,)}),
    ("Linears in the VAE's attention", "sdxl", lambda s: {n: x[:2] if ".attn_1." in n else x for n, x in s.items()}),
    (
        "convolutions in the UNet of 2",
        "sd2",
        lambda s: {n: (*x, 1, 1) if "proj_in.weight" in n and len(x) == 2 else x for n, x in s.items()},
    ),
    ("the prefix of Lumina in ComfyUI", "lumina2", lambda s: {f"model.diffusion_model.{n}": x for n, x in s.items()}),
    ("the prefix of Anima", "anima", lambda s: {f"net.{n}": x for n, x in s.items()}),
]


@pytest.mark.parametrize(("name", "change"), [c[1:] for c in SOUND], ids=[c[0] for c in SOUND])
def test_what_the_scripts_take_is_silent(name: str, change: Callable[[Shapes], Shapes], tmp_path: Path) -> None:
    file = write(tmp_path / "model.safetensors", dict(change(held(name))))
    run = run_with(name, {**files_of(name), FIRST: str(file)})
    assert said(run, probed(run)) == ([], True)


def test_text_encoders_inside_a_file_of_3_5_are_not_found(tmp_path: Path) -> None:
    """The script takes the prefix off up to "transformer.", which its classes do not have: as its own code does."""
    inside = {
        f"text_encoders.{short}.transformer.{name}": shape
        for part, short in (("text_encoder", "clip_l"), ("text_encoder_2", "clip_g"), ("text_encoder_3", "t5xxl"))
        for name, shape in parts_of("sd3")[part][1].items()
    }
    file = write(tmp_path / "model.safetensors", {**held("sd3"), **inside})
    run = run_with("sd3", {FIRST: str(file)})
    found, _ = said(run, probed(run))
    assert {one.evidence["component"] for _, one in found} == {"text_encoder", "text_encoder_2", "text_encoder_3"}
    assert all("meta tensor" in one.consequence() for _, one in found)
    run = run_with("sd3", {**files_of("sd3"), FIRST: str(file)})  # CLIP-L's own file goes first, the others' do not
    found, _ = said(run, probed(run))
    assert {one.evidence["component"] for _, one in found} == {"text_encoder_2", "text_encoder_3"}


def test_a_folder_is_read_as_diffusers_has_it(tmp_path: Path) -> None:
    """With a tokenizer less than the class has: the scripts bring the first one themselves."""
    family = family_of("sdxl")
    made = patient(family, tmp_path / "m")
    (tmp_path / "m" / "model" / "tokenizer" / "tokenizer.json").unlink()
    run = run_with("sdxl", {FIRST: made.source})
    assert said(run, probed(run)) == ([], True)
    part = made.parts["unet"]
    write_header(part.file, dict(list(part.shapes.items())[:-1]))
    found, _ = said(run, probed(run))
    assert [rule for rule, _ in found] == [missing_checkpoint_tensors.__name__]


def test_a_pickle_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "v1-5.ckpt").write_bytes(b"PK\x03\x04" + b"archive/data.pkl" * 40)
    run = run_with("sd15", {FIRST: str(tmp_path / "v1-5.ckpt")})
    assert said(run, probed(run)) == ([], False)
