"""Each damage of a finished LoRA is found, for every family with a record, and healthy ones are silent."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from zdoctor.doctor.cli import main
from zdoctor.doctor.commands.check import check
from zdoctor.doctor.families import families, family_of
from zdoctor.doctor.families.lora_keys import published_config
from zdoctor.doctor.families.lora_programs import is_known
from zdoctor.doctor.model import Report
from zdoctor.tests.doctor.families.test_lora_programs import spelt
from zdoctor.tests.loras import as_kohya, as_peft, pairs_of, saved

# The first of each class, and those of other sizes.
FAMILIES = [
    *{one.class_name: one.name for one in reversed(families()) if one.knows_loras}.values(),
    *("sd15", "wan22_5b", "wan21_i2v"),
]
Tensors = dict[str, Tensor]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rules(report: Report) -> set[str]:
    return {finding.rule for finding in report.findings if finding.severity != "note"}


def beside_its_names(report: Report, family: str) -> set[str]:
    """OmniGen2's names and sizes are Lumina 2's, too, of which ComfyUI takes others (LOR007)."""
    return rules(report) - ({"LOR007"} if family == "omnigen2" else set())


# Under "transformer." ComfyUI looks for other names of these.
ORIGINAL = ("wan", "lumina2", "anima", "ltx2")


def of(family: str) -> Tensors:
    """As peft and the trainers write it, under names that ComfyUI and diffusers look for."""
    if family.startswith(ORIGINAL):
        return spelt(family, pairs_of(family), "diffusion_model.", "o", "A", None)
    if family_of(family).convolves:
        return spelt(family, pairs_of(family), "lora_unet_", "d", "down", None)
    return as_peft(pairs_of(family), "transformer.")


def looked_at(tensors: Tensors, base: str | None = None) -> Report:
    saved(Path("lora.safetensors"), tensors)
    return check("lora.safetensors", base=base)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("layout", ["diffusers", "kohya"])
def test_a_healthy_one_is_silent(family: str, layout: str) -> None:
    report = looked_at(
        of(family) if layout == "diffusers" else as_kohya(family, pairs_of(family), original=True), family
    )
    assert [finding.rule for finding in report.findings if finding.args.get("program") != "diffusers"] == []
    if layout == "diffusers":  # which take LoRAs of trainers of few families
        assert not report.findings
    known = is_known(family_of(family))
    assert [one.what for one in report.not_judged] == ["which programs apply it"] * (not known)
    assert report.exit_code == 0


def is_part(name: str, part: str) -> bool:
    return f"lora_{part}" in name or {"A": "lora_down", "B": "lora_up"}[part] in name


def zero_up(tensors: Tensors) -> None:
    for name in tensors:
        if is_part(name, "B"):
            tensors[name] = torch.zeros_like(tensors[name])


def zero_down(tensors: Tensors) -> None:
    for name in tensors:
        if is_part(name, "A"):
            tensors[name] = torch.zeros_like(tensors[name])


def one_nan(tensors: Tensors) -> None:
    list(tensors.values())[-1][-1, -1] = math.nan


def one_infinite(tensors: Tensors) -> None:
    next(iter(tensors.values()))[0, 0] = -math.inf


def other_names(tensors: Tensors) -> None:
    whole = dict(tensors)
    tensors.clear()
    tensors.update({name.replace("lora_", "x_"): value for name, value in whole.items()})


DAMAGES: dict[str, tuple[Callable[[Tensors], None], str]] = {
    "B zero": (zero_up, "LOR004"),
    "A zero": (zero_down, "LOR004"),
    "one NaN": (one_nan, "LOR003"),
    "one infinite": (one_infinite, "LOR003"),
    "no adapter": (other_names, "LOR002"),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found(family: str, damage: str) -> None:
    harm, id = DAMAGES[damage]
    tensors = of(family)
    harm(tensors)
    report = looked_at(tensors)
    assert beside_its_names(report, family) == {id}
    assert report.exit_code == 1


def test_modules_that_were_not_trained_are_a_note() -> None:
    tensors = of("zimage")
    first = next(name for name in tensors if "lora_B" in name)
    tensors[first] = torch.zeros_like(tensors[first])
    report = looked_at(tensors)
    assert [(finding.rule, finding.severity) for finding in report.findings] == [("LOR004", "note")]
    assert report.exit_code == 0


def test_alpha_of_zero_does_nothing() -> None:
    report = looked_at(as_kohya("flux", pairs_of("flux"), original=True, alpha=0))
    assert rules(report) == {"LOR004"}
    assert "alpha is zero" in report.errors[0].text()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_lora_of_another_family(family: str) -> None:
    """But for Chroma's and FramePack's, which without Flux's modulation fit Flux, too; Zeta Chroma's is a Z-Image."""
    alike = any(word in family for word in ("flux", "flex2", "chroma", "framepack")) and family != "zeta_chroma"
    other = "zimage" if alike else "flux"
    report = looked_at(of(family), base=other)
    assert beside_its_names(report, family) == {"LOR008"}


def test_what_fits_flux_and_chroma_is_what_its_metadata_or_its_base_say() -> None:
    tensors = of("chroma in diffusers")
    for told, base, model in (
        ({}, None, "Flux"),
        ({"ss_base_model_version": "chroma"}, None, "Chroma"),
        ({"ss_model_type": "chroma"}, "flux", "Chroma"),
        ({}, "lodestones/Chroma1-HD", "Chroma"),
    ):
        report = check(str(saved(Path("lora.safetensors"), tensors, told)), base=base)
        assert f"for {model}" in report.subject
        assert rules(report) == ({"LOR008"} if base == "flux" else set())


def test_a_lora_of_a_family_without_a_record() -> None:
    names = [f"diffusion_model.joint_blocks.0.x_block.{part}" for part in ("attn.qkv", "mlp.fc1")]
    tensors = as_peft({name: (torch.rand(2, 8), torch.rand(8, 2)) for name in names}, "")
    report = looked_at(tensors)
    assert not report.findings
    assert [one.what for one in report.not_judged] == ["which programs apply it"]
    assert "Stable Diffusion 3" in report.not_judged[0].reason
    assert rules(looked_at(tensors, base="flux")) == {"LOR008"}


def test_a_base_of_another_size(tmp_path: Path) -> None:
    small = {
        "dim": 768,
        "n_heads": 6,
        "n_layers": 2,
        "n_refiner_layers": 1,
        "_class_name": "ZImageTransformer2DModel",
    }
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "config.json").write_text(json.dumps(small))
    report = looked_at(of("zimage"), base="small")
    assert rules(report) == {"LOR008"}
    assert "made for 15360 x 256, the model has 3072 x 256" in report.errors[0].text()
    assert not looked_at(as_peft(pairs_of("zimage", small), "transformer."), base="small").findings


def test_a_base_that_is_not_known() -> None:
    report = looked_at(of("zimage"), base="somebody/something")
    assert not report.findings
    assert [one.what for one in report.not_judged] == ["whether it fits the base model"]


BAD: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "0 bytes"),
    "web page": (b"<!DOCTYPE html><html>" + b" " * 200, "web page"),
    "no header": (b"\xff" * 64, "safetensors"),
    "few bytes": (b"abc", "cut off"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files(kind: str) -> None:
    content, words = BAD[kind]
    Path("lora.safetensors").write_bytes(content)
    report = check("lora.safetensors")
    assert rules(report) == {"LOR001"}
    assert words in report.errors[0].text()


def test_a_cut_file() -> None:
    path = saved(Path("lora.safetensors"), of("zimage"))
    path.write_bytes(path.read_bytes()[:-100])
    report = check(str(path))
    assert rules(report) == {"LOR001"}
    assert "100 are missing" in report.errors[0].text()


def test_a_pickle_is_named_and_not_loaded() -> None:
    torch.save(of("zimage"), "lora.pt")
    report = check("lora.pt")
    assert rules(report) == {"LOR001"}
    assert "code" in report.errors[0].text()


def test_a_header_that_lies() -> None:
    path = saved(Path("lora.safetensors"), of("zimage"))
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"shape":[2,3840]', b'"shape":[9,3840]'))
    assert rules(check(str(path))) == {"LOR001"}


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "zeta_chroma"])  # a Z-Image with more
def test_a_whole_model_is_named(family: str) -> None:
    record = next(one for one in families() if one.name == family)
    assert record.transformer is not None
    names = list(record.transformer.tensors(published_config(record)))
    report = looked_at({name: torch.zeros(1) for name in names})
    assert rules(report) == {"LOR002"}
    assert record.transformer.title in report.errors[0].text()


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    saved(Path("lora.safetensors"), of("zimage"))
    assert main(["check", "lora.safetensors", "--base", "zimage"]) == 0
    assert "nothing found" in capsys.readouterr().out
    assert main(["check", "lora.safetensors", "--base", "flux"]) == 1
    assert main(["check", "gone.safetensors"]) == 2
    assert main(["check", "lora.safetensors", "--base", "nobody", "--strict"]) == 3


@pytest.mark.parametrize("format", ["json", "sarif", "html", "markdown", "junit", "github"])
def test_every_format_tells_it(format: str, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = of("zimage")
    zero_up(tensors)
    saved(Path("lora.safetensors"), tensors)
    assert main(["check", "lora.safetensors", "--format", format]) == 1
    out = capsys.readouterr().out
    assert "LOR004" in out and "lora.safetensors" in out


def lost(part: str) -> Callable[[Tensors], None]:
    def harm(tensors: Tensors) -> None:
        del tensors[next(name for name in tensors if is_part(name, part))]

    return harm


def another_rank(tensors: Tensors) -> None:
    name = next(name for name in tensors if is_part(name, "A"))
    tensors[name] = torch.cat([tensors[name], tensors[name]])


def scaled(by: float, dtype: torch.dtype = torch.bfloat16) -> Callable[[Tensors], None]:
    def harm(tensors: Tensors) -> None:
        for name, value in tensors.items():
            tensors[name] = (value.float() * by).to(dtype)

    return harm


def cut_off(tensors: Tensors) -> None:
    for name, value in tensors.items():
        tensors[name] = (value.float() * 1e9).clamp(-65504, 65504).half()


def with_prefix(prefix: str) -> Callable[[Tensors], None]:
    def harm(tensors: Tensors) -> None:
        whole = dict(tensors)
        tensors.clear()
        for name, value in whole.items():
            own = next(one for one in ("transformer.", "diffusion_model.", "lora_unet_") if name.startswith(one))
            tensors[prefix + name.removeprefix(own)] = value

    return harm


MORE: dict[str, tuple[Callable[[Tensors], None], str]] = {
    "a lora_A is missing": (lost("A"), "LOR006"),
    "a lora_B is missing": (lost("B"), "LOR006"),
    "A of another rank": (another_rank, "LOR006"),
    "an alpha alone": (lambda tensors: tensors.update({"transformer.x.alpha": torch.ones(())}), "LOR006"),
    "far too large": (scaled(1e6), "LOR005"),
    "cut off at the largest": (cut_off, "LOR005"),
    "far too small": (scaled(1e-4), "LOR005"),
    "a prefix that nobody knows": (with_prefix("base_model.model."), "LOR007"),
    "lycoris names": (with_prefix("lycoris."), "LOR007"),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("damage", MORE)
def test_more_damage_is_found(family: str, damage: str) -> None:
    harm, id = MORE[damage]
    if id == "LOR007" and not is_known(family_of(family)):
        return  # said to be not judged: test_a_healthy_one_is_silent
    tensors = of(family)
    harm(tensors)
    assert beside_its_names(looked_at(tensors), family) == {id}


def test_musubi_names_of_zimage_in_comfyui() -> None:
    report = looked_at(as_kohya("zimage", pairs_of("zimage"), original=False))
    assert [(f.rule, f.args["program"], f.args["rest"], f.args["total"]) for f in report.findings] == [
        ("LOR007", "ComfyUI", 4, 8)
    ]


def test_alpha_in_diffusers_metadata_alone() -> None:
    """diffusers reads it, ComfyUI does not: tests/doctor/families/test_lora_programs.py has both tried."""
    told = {"lora_adapter_metadata": json.dumps({"transformer.r": 2, "transformer.lora_alpha": 1})}
    saved(Path("lora.safetensors"), of("zimage"), told)
    report = check("lora.safetensors")
    assert rules(report) == {"LOR009"}
    assert "2 times" in report.findings[0].consequence()
    even = {"lora_adapter_metadata": json.dumps({"transformer.r": 2, "transformer.lora_alpha": 2})}
    saved(Path("lora.safetensors"), of("zimage"), even)
    assert not check("lora.safetensors").findings


def test_alpha_keys_that_were_lost() -> None:
    tensors = as_kohya("flux", pairs_of("flux"), original=True)
    told = {"ss_network_dim": "2", "ss_network_alpha": "1.0"}
    saved(Path("lora.safetensors"), tensors, told)
    assert not check("lora.safetensors").findings
    saved(Path("lora.safetensors"), {name: value for name, value in tensors.items() if "alpha" not in name}, told)
    assert rules(check("lora.safetensors")) == {"LOR009"}


def lokr(prefix: str = "diffusion_model.") -> Tensors:
    found: Tensors = {}
    for name in pairs_of("zimage"):
        found[f"{prefix}{name}.lokr_w1"] = torch.rand(4, 4)
        found[f"{prefix}{name}.lokr_w2"] = torch.rand(8, 8)
        found[f"{prefix}{name}.alpha"] = torch.tensor(0.0)
    return found


def test_a_lokr_that_does_nothing() -> None:
    """Its alpha has no say where both factors are whole."""
    assert not looked_at(lokr()).findings
    assert not looked_at(lokr(), base="zimage").findings
    zero = {name: torch.zeros_like(value) if "w2" in name else value for name, value in lokr().items()}
    assert rules(looked_at(zero)) == {"LOR004"}


def test_kinds_that_diffusers_does_not_apply() -> None:
    names = list(pairs_of("zimage"))
    parts = ("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b")
    loha = {f"diffusion_model.{name}.{part}": torch.rand(2, 2) for name in names for part in parts}
    report = looked_at(loha)
    assert [(finding.rule, finding.args["program"]) for finding in report.findings] == [("LOR007", "diffusers")]
    assert report.subject.startswith("LoHa for Z-Image")
    assert not [fix for finding in report.findings for fix in finding.fixes]


def test_modules_of_text_encoders_are_not_judged() -> None:
    tensors = as_kohya("flux", pairs_of("flux"), original=True)
    key = "lora_te1_text_model_encoder_layers_0_mlp_fc1"
    tensors |= {f"{key}.lora_down.weight": torch.rand(2, 8), f"{key}.lora_up.weight": torch.rand(8, 2)}
    report = looked_at(tensors, base="flux")
    assert not report.findings
    assert [one.what for one in report.not_judged] == ["its text encoders"]


def test_what_it_is_stands_in_a_line() -> None:
    tensors = as_kohya("flux", pairs_of("flux"), original=True, alpha=1)
    saved(
        Path("lora.safetensors"), tensors, {"ss_base_model_version": "flux1", "ss_sd_model_name": "dev\x1b[31m.sft"}
    )
    subject = check("lora.safetensors").subject
    words = ("LoRA for Flux", "rank 2", "alpha 1", "13 modules in BF16", "flux1", "ComfyUI, diffusers, sd-scripts")
    assert all(word in subject for word in words)
    assert "\x1b" not in subject


def test_a_folder_of_pictures_named_as_a_lora() -> None:
    Path("folder.safetensors").mkdir()
    report = check("folder.safetensors")
    assert not report.findings
    assert report.not_judged and not report.judged


def test_the_training_adapter_is_no_lora() -> None:
    name = "zimage_turbo_training_adapter_v2.safetensors"
    saved(Path(name), of("zimage"))
    assert rules(check(name)) == {"LOR010"}


@pytest.mark.parametrize(
    ("trained", "base", "noted"),
    [
        ("Z-Image-Turbo", "Tongyi-MAI/Z-Image", True),
        ("z_image_de_turbo.safetensors", "Tongyi-MAI/Z-Image-Turbo", True),
        ("Z-Image-Turbo", "Tongyi-MAI/Z-Image-Turbo", False),
        ("Z-Image", "zimage", False),
    ],
)
def test_a_lora_of_another_flavour(trained: str, base: str, noted: bool) -> None:
    saved(Path("lora.safetensors"), of("zimage"), {"ss_sd_model_name": trained})
    report = check("lora.safetensors", base=base)
    assert [(one.rule, one.severity) for one in report.findings] == [("LOR011", "note")] * noted


def test_numbers_of_a_type_that_is_not_read() -> None:
    report = looked_at({**of("zimage"), "diffusion_model.layers.0.x.scalar": torch.ones(3, dtype=torch.int32)})
    assert "the numbers" in [one.what for one in report.not_judged]
    assert "the numbers" not in report.judged


def test_a_recorded_machine_has_no_say() -> None:
    saved(Path("lora.safetensors"), of("zimage"))
    machine = Path(__file__).parents[2] / "examples" / "kaggle_t4x2.json"
    assert not check("lora.safetensors", machine=str(machine)).findings


def test_a_model_that_is_deeper_is_none_of_those_that_are_known() -> None:
    """HunyuanVideo has the names and sizes of Flux, and more blocks."""
    pairs = pairs_of("flux", {"num_layers": 20, "num_single_layers": 1}, blocks=20)
    tensors = spelt("flux", pairs, "diffusion_model.", "o", "A", None)
    report = looked_at({name: value[:16, :16].contiguous() for name, value in tensors.items()})
    assert "not known here" in report.subject
    assert [one.what for one in report.not_judged] == ["which programs apply it"]


def test_dots_behind_kohyas_prefix_are_looked_for_by_none() -> None:
    tensors = {
        name.replace("diffusion_model.blocks.0.", "lora_unet_blocks_0."): value for name, value in of("wan21").items()
    }
    report = looked_at(tensors)
    assert {finding.args["program"] for finding in report.findings} == {"ComfyUI", "diffusers"}
    assert [fix.safety for fix in report.findings[0].fixes] == ["safe"]


def test_what_comfyui_has_under_its_own_names_alone() -> None:
    """FLUX.2's modulation, of which its map has no names of diffusers' (benchmarks/lora_names.py)."""
    key = "double_stream_modulation_img.linear"
    for prefix, missed in (("transformer.", 1), ("diffusion_model.", 0)):
        name = key if missed else "double_stream_modulation_img.lin"
        family, names = "flux2_klein_4b in diffusers", "d" if missed else "o"
        tensors = spelt(family, pairs_of(family), prefix, names, "A", None)
        tensors |= {
            f"{prefix}{name}.lora_A.weight": torch.rand(2, 3072),
            f"{prefix}{name}.lora_B.weight": torch.rand(18432, 2),
        }
        found = [one for one in looked_at(tensors).findings if one.args.get("program") == "ComfyUI"]
        assert [one.args["total"] - one.args["rest"] for one in found] == [1] * missed


def test_families_that_are_alike_are_all_named() -> None:
    assert looked_at(of("wan21")).subject.startswith("LoRA for Wan 2.1 or Wan 2.2;")
    assert looked_at(of("wan22_5b")).subject.startswith("LoRA for Wan 2.2 5B;")
    assert looked_at(of("wan21_i2v")).subject.startswith("LoRA for Wan 2.1 from pictures;")
    assert looked_at(of("sd15")).subject.startswith("LoRA for Stable Diffusion 1.5;")
