"""The repaired copy of a LoRA is silent, is what diffusers applies, and can be taken back; the file stays."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from zdoctor.doctor.cli import main
from zdoctor.doctor.commands.check import check
from zdoctor.doctor.commands.fix import fix
from zdoctor.doctor.model.repairs import Fixed
from zdoctor.tests.doctor.families.test_lora_programs import (
    CHROMA,
    KLEIN,
    PREFIXES,
    applied,
    small_pairs,
    spelt,
)
from zdoctor.tests.loras import RANK, as_kohya, as_peft, pairs_of, saved

LORA, COPY = Path("lora.safetensors"), Path("lora-repaired.safetensors")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fixed(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None, *, asked: bool = False) -> Fixed:
    """What `fix` did; what stays in the folder is what it should be, and it found nothing in the copy."""
    before = saved(LORA, tensors, metadata).read_bytes()
    select = ("LOR003",) if asked else ()
    done = fix(str(LORA), apply=True, asked=asked, selected=select)
    assert LORA.read_bytes() == before
    if COPY.exists():
        assert done.after is not None and done.after.config == str(COPY) and not done.after.findings
    return done


def repaired(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None, *, asked: bool = False) -> bool:
    """Whether a copy was made, which has no finding."""
    fixed(tensors, metadata, asked=asked)
    return COPY.exists() and not check(str(COPY)).findings


# Of these diffusers' names can be read as the original ones, or the other way round.
NAMES = [
    *(("zimage", names, alpha) for names, alpha in (("d", None), ("o", 1.0))),
    *(("flux", names, alpha) for names, alpha in (("d", None), ("o", 1.0))),
    *((CHROMA, names, alpha) for names, alpha in (("d", None), ("o", 1.0))),
    *(("qwen_image", "d", alpha) for alpha in (None, 1.0)),
    *((KLEIN, names, alpha) for names, alpha in (("d", None), ("o", 1.0))),
    *(("wan21", names, alpha) for names in "do" for alpha in (None, 1.0)),
    *((name, names, None) for name in ("krea2 in diffusers", "anima") for names in "do"),
    *((name, "d", None) for name in ("hidream", "ltx2", "ernie_image")),
    *(("sd15", names, alpha) for names, alpha in (("d", None), ("o", 1.0))),
]
OFTEN = ("flux", "wan21")
SPELT = [pytest.param(*one, marks=[] if one[0] in OFTEN else [pytest.mark.thorough]) for one in NAMES]


@pytest.mark.parametrize(("family", "names", "alpha"), SPELT)
def test_every_spelling_that_is_passed_over_is_mended(family: str, names: str, alpha: float | None) -> None:
    pairs = small_pairs(family)
    made = 0
    for prefix in PREFIXES:
        for words in ("A", "A.default", "down", "dot"):
            tensors = spelt(family, pairs, prefix, names, words, alpha)
            wrong = bool(fixed(tensors).before.findings)
            assert COPY.exists() == wrong, (prefix, words)
            if wrong:
                made += 1
                scale = 1.0 if alpha is None else alpha / RANK
                if prefix == PREFIXES[-1] and words == "down":  # loading takes long
                    assert applied(family, load_file(COPY), pairs, scale) == len(pairs)
                COPY.unlink()
    assert made


def test_numbers_types_and_metadata_stay() -> None:
    pairs = pairs_of("zimage")
    told = {"format": "pt", "ss_output_name": "x", "sshs_model_hash": "0" * 64}
    assert repaired(as_kohya("zimage", pairs, original=False, alpha=1), told)
    copy = load_file(COPY)
    expected = as_peft(pairs, "diffusion_model.")
    assert {name for name in copy if not name.endswith(".alpha")} == expected.keys()
    for name, value in expected.items():
        assert copy[name].dtype == torch.bfloat16
        assert torch.equal(copy[name], value)
    with safe_open(str(COPY), framework="pt") as opened:
        assert opened.metadata() == {"format": "pt", "ss_output_name": "x"}


def test_half_pairs_are_left_out() -> None:
    tensors = as_peft(pairs_of("flux"), "transformer.")
    first = next(name for name in tensors if "lora_A" in name)
    del tensors[first]
    assert repaired(tensors)
    rest = {name: value for name, value in tensors.items() if name != first.replace("lora_A", "lora_B")}
    assert load_file(COPY).keys() == rest.keys()


def test_modules_that_are_not_finite_are_left_out_when_asked() -> None:
    tensors = as_peft(pairs_of("flux"), "transformer.")
    first = next(name for name in tensors if "lora_A" in name)
    tensors[first] = tensors[first].clone()  # the parts of a fused Linear have theirs in common
    tensors[first][0, 0] = math.nan
    assert not repaired(tensors)
    assert repaired(tensors, asked=True)
    assert len(load_file(COPY)) == len(tensors) - 2


def test_nothing_is_left_of_a_file_that_is_all_nan() -> None:
    tensors = {name: value * math.nan for name, value in as_peft(pairs_of("flux"), "transformer.").items()}
    assert not repaired(tensors, asked=True)


@pytest.mark.parametrize("family", ["zimage", "flux", "qwen_image"])
def test_alpha_of_the_metadata_becomes_keys(family: str) -> None:
    """The copy is as strong in ComfyUI, which looks at alpha keys alone, as the file was in diffusers."""
    pairs = small_pairs(family)
    told = {"lora_adapter_metadata": json.dumps({"transformer.r": RANK, "transformer.lora_alpha": RANK / 2})}
    assert repaired(as_peft(pairs, "transformer."), told)
    copy = load_file(COPY)
    assert {float(value) for name, value in copy.items() if name.endswith(".alpha")} == {RANK / 2}
    assert applied(family, copy, pairs, 0.5) == len(pairs)


def test_a_copy_is_taken_back_and_never_written_over(capsys: pytest.CaptureFixture[str]) -> None:
    tensors = as_kohya("zimage", pairs_of("zimage"), original=False)
    assert repaired(tensors)
    first = COPY.read_bytes()
    again = fix(str(LORA), apply=True)
    assert not again.applied
    assert "lora-repaired.safetensors is such a copy" in again.plan.shown[0].title
    assert COPY.read_bytes() == first
    assert main(["undo"]) == 0
    assert [path.name for path in Path().iterdir()] == ["lora.safetensors"]


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    saved(LORA, as_kohya("zimage", pairs_of("zimage"), original=False))
    assert main(["fix", str(LORA)]) == 0
    assert "lora-repaired.safetensors" in capsys.readouterr().out
    assert not COPY.exists()
    assert main(["fix", str(LORA), "--apply"]) == 0
    assert "nothing found" in capsys.readouterr().out
