"""SRC001, SRC002, SRC003, SRC004: what a trainer's checkout carries, by its syntax trees, and its repairs."""

from __future__ import annotations

import ast
import json
import subprocess
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from zdoctor.checks.ai_toolkit.checkout import (
    checkout_older_than_layout,
    mended_by_a_later_commit,
    meta_tensor_patch,
    unguarded_size_file,
)
from zdoctor.doctor.cli import main
from zdoctor.doctor.configs.edit import apply_edits
from zdoctor.doctor.model import Checkout, Finding, ModelFolder, ReplaceText, WritePlace, Writes
from zdoctor.doctor.probe.gather import gather
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.doctor.probe.source.checkout import read_checkout
from zdoctor.doctor.rules import Unestablished
from zdoctor.tests.changes import changed
from zdoctor.tests.doctor.probe import checkout_sources as sources
from zdoctor.tests.machines import load
from zdoctor.tests.models import healthy, run_of
from zdoctor.tests.test_laws import first_look


def read(root: Path) -> Checkout:
    return read_checkout(str(root), "")


@pytest.mark.parametrize("name", sources.PATCHES)
def test_a_patch_is_found_and_can_be_made_to_fail_fast(name: str, tmp_path: Path) -> None:
    stem, text, kinds, editable = sources.PATCHES[name]
    checkout = read(sources.write(tmp_path, **{stem: text}))
    assert tuple(patch.kind for patch in checkout.patches) == kinds
    findings = list(meta_tensor_patch(checkout))
    assert len(findings) == len(kinds) and all("{" not in f.text() for f in findings)
    edits = [patch.edit for patch in checkout.patches if patch.edit is not None]
    assert bool(edits) is editable
    if not editable:
        return
    path = checkout.patches[0].where.path
    steps = [ReplaceText(path, e.start, e.end, e.old, e.new) for e in edits]
    cured = apply_edits(text, steps)
    again = read(sources.write(tmp_path, **{stem: cured}))
    assert not again.patches
    assert len(ast.dump(ast.parse(cured))) > 100


@pytest.mark.parametrize("name", sources.HEALTHY)
def test_a_healthy_checkout_is_silent(name: str, tmp_path: Path) -> None:
    stem, text = sources.HEALTHY[name]
    checkout = read(sources.write(tmp_path, **{stem: text}))
    assert not checkout.patches and not checkout.unparsed
    assert list(meta_tensor_patch(checkout)) == []


def test_the_generation_is_seen(tmp_path: Path) -> None:
    old = read(sources.write(tmp_path / "a", z_image=sources.Z_IMAGE_A))
    new = read(sources.write(tmp_path / "b"))
    other = read(sources.write(tmp_path / "c", z_image="class ZImageModel:\n    pass\n"))
    assert (old.generation, old.single_files) == ("A", False)
    assert (new.generation, new.single_files) == ("B", True)
    assert other.generation == ""


def test_whether_captions_in_json_are_looked_into(tmp_path: Path) -> None:
    new = sources.write(tmp_path)
    assert not read(new).json_captions
    captions = new / "toolkit/dataloader_mixins.py"
    captions.write_text("def load_caption(prompt_path):\n    if prompt_path.endswith('.json'):\n        pass\n")
    assert read(new).json_captions
    captions.write_text("def load_caption(prompt_path):\n    return open(prompt_path).read()\n")
    assert not read(new).json_captions


def test_a_place_is_named_by_line_and_offset_also_with_windows_line_ends(tmp_path: Path) -> None:
    stem, text, _, _ = sources.PATCHES["loads without low memory"]
    text = ("# größe\n" + text).replace("\n", "\r\n")
    patch = read(sources.write(tmp_path, **{stem: text})).patches[0]
    assert patch.edit is not None and text[patch.edit.start : patch.edit.end] == "False"
    assert patch.where.line == text.replace("\r\n", "\n").split("low_cpu_mem_usage")[0].count("\n") + 1
    assert patch.function == "load_model"


@pytest.mark.parametrize(
    "data", [b"def broken(:\n    x.to_empty()\n", b"\xff\xfe.to_empty(\0", b"(" * 9000 + b"x.to_empty("]
)
def test_source_that_does_not_parse_is_not_called_clean(data: bytes, tmp_path: Path) -> None:
    root = sources.write(tmp_path)
    (root / "toolkit/util/quantize.py").write_bytes(data)
    checkout = read(root)
    assert list(checkout.unparsed) == ["toolkit/util/quantize.py"]
    with pytest.raises(Unestablished, match=r"quantize\.py.*cannot parse"):
        list(meta_tensor_patch(checkout))


# --- the real library: what the patch hides


def test_the_patch_hides_missing_tensors_and_failing_fast_names_them(tmp_path: Path) -> None:
    """diffusers itself: without low_cpu_mem_usage an incomplete checkpoint loads, with random weights."""
    diffusers: Any = import_module("diffusers")
    model: Any = diffusers.AutoencoderTiny(
        encoder_block_out_channels=(4, 4),
        decoder_block_out_channels=(4, 4),
        num_encoder_blocks=(1, 1),
        num_decoder_blocks=(1, 1),
    )
    model.save_pretrained(tmp_path)
    file = tmp_path / "diffusion_pytorch_model.safetensors"
    kept = load_file(file)
    lost = next(name for name in kept if name.endswith("weight"))
    save_file({name: tensor for name, tensor in kept.items() if name != lost}, file, metadata={"format": "pt"})
    patched = diffusers.AutoencoderTiny.from_pretrained(tmp_path, low_cpu_mem_usage=False)
    weight = dict(patched.named_parameters())[lost]
    assert not weight.is_meta and not torch.equal(weight, kept[lost])  # no error, and not the weights
    honest = diffusers.AutoencoderTiny.from_pretrained(tmp_path)
    assert dict(honest.named_parameters())[lost].is_meta
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        honest.to("cpu", dtype=torch.float64)


# --- .aitk_size.json


def writes(*whats: str, refusal: str | None = "read-only file system") -> Writes:
    return Writes(
        tuple(WritePlace(what, "/data", "datasets/0/folder_path", "at its start", refusal) for what in whats)
    )


def size_findings(checkout: Checkout, seen: Writes) -> list[Finding]:
    return list(unguarded_size_file(run_of(healthy(), "zimage"), seen, checkout))


GUARDED = sources.patched(
    sources.DATA_LOADER,
    (
        "        with open(dataset_size_file, 'w') as f:\n            json.dump(self.size_database, f)\n",
        "        try:\n            with open(dataset_size_file, 'w') as f:\n"
        "                json.dump(self.size_database, f)\n"
        "        except OSError:\n            pass\n",
    ),
)


def test_the_unguarded_file_of_sizes(tmp_path: Path) -> None:
    checkout = read(sources.write(tmp_path))
    [alone] = size_findings(checkout, writes(".aitk_size.json"))
    assert "start" in alone.evidence and "all that the run writes" in alone.text()
    [more] = size_findings(checkout, writes(".aitk_size.json", "_t_e_cache"))
    assert "start" not in more.evidence and "_t_e_cache" in more.text()
    assert size_findings(checkout, writes(".aitk_size.json", refusal=None)) == []
    assert size_findings(read(sources.write(tmp_path, data_loader=GUARDED)), writes(".aitk_size.json")) == []


def test_the_guard_lets_the_real_statement_pass(tmp_path: Path) -> None:
    """Both versions run, on a folder in which the file cannot be opened for writing."""
    checkout = read(sources.write(tmp_path / "checkout"))
    assert checkout.size_file is not None and checkout.size_file.guard is not None
    guard = checkout.size_file.guard
    step = ReplaceText(checkout.size_file.where.path, guard.start, guard.end, guard.old, guard.new)
    cured = apply_edits(sources.DATA_LOADER, [step])
    (tmp_path / ".aitk_size.json").mkdir()  # not even root can open a folder for writing

    def start(source: str) -> Any:
        space: dict[str, Any] = {}
        exec(source, space)
        return space["AiToolkitDataset"](str(tmp_path))

    with pytest.raises(OSError):
        start(sources.DATA_LOADER)
    assert start(cured).done
    assert read(sources.write(tmp_path / "again", data_loader=cured)).size_file is not None
    assert size_findings(read(tmp_path / "again"), writes(".aitk_size.json")) == []


# --- what an older checkout cannot load


@pytest.mark.parametrize(
    ("layout", "source", "found"),
    [
        ("transformer-only", sources.Z_IMAGE_A, True),
        ("single-file", sources.Z_IMAGE_A, True),
        ("diffusers", sources.Z_IMAGE_A, False),
        ("transformer-only", sources.Z_IMAGE_B, False),
        ("single-file", sources.Z_IMAGE_B, False),
    ],
)
def test_a_checkout_that_is_older_than_the_layout(layout: Any, source: str, found: bool, tmp_path: Path) -> None:
    checkout = read(sources.write(tmp_path, z_image=source))
    model = ModelFolder("/models/z", layout, "/models/z")
    assert bool(list(checkout_older_than_layout(run_of(healthy(), "zimage"), model, checkout))) is found
    assert not list(checkout_older_than_layout(run_of(healthy(), "flux"), model, checkout))
    assert not list(checkout_older_than_layout(run_of(healthy(), "zimage"), model, None))


def test_what_the_older_checkout_does_fails_in_diffusers(tmp_path: Path) -> None:
    """It opens <folder>/transformer; the folder of the transformer itself has no such folder inside."""
    diffusers: Any = import_module("diffusers")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(OSError):
        diffusers.ZImageTransformer2DModel.from_pretrained(str(tmp_path / "transformer"), local_files_only=True)


# --- the whole way


CONFIG = """
job: extension
config:
  name: a
  process:
    - type: sd_trainer
      training_folder: out
      train:
        steps: 5
"""


# The lines that 82190b41 and ab5fef89 of ai-toolkit added.
UNMENDED = {
    "jobs/process/BaseSDTrainProcess.py": "class P:\n    def setup_ema(self):\n        pass\n",
    "toolkit/dataloader_mixins.py": "class C:\n    def get(self):\n        return self.caption_dropout_rate\n",
}
SINCE = {
    "jobs/process/BaseSDTrainProcess.py": "    def hook(self):\n        self.setup_ema()\n",
    "toolkit/dataloader_mixins.py": "    def get_blank_text_embedding_path(self):\n        pass\n",
}


@pytest.mark.parametrize(
    ("ema", "dropout", "cached", "told"),
    [
        (True, 0.0, False, ["82190b41"]),
        (False, 0.1, True, ["ab5fef89"]),
        (True, 0.1, True, ["82190b41", "ab5fef89"]),
        (False, 0.1, False, []),
        (False, 0.0, True, []),
    ],
)
def test_what_a_later_commit_mended(ema: bool, dropout: float, cached: bool, told: list[str], tmp_path: Path) -> None:
    run = changed(run_of("m"), ema={"use": ema}, cache_text_embeddings=cached)
    recipe = replace(run.recipe, datasets=tuple(replace(one, caption_dropout=dropout) for one in run.recipe.datasets))
    run = replace(run, recipe=recipe)
    for since, commits in (({}, told), (SINCE, [])):
        for path, text in UNMENDED.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text + since.get(path, ""))
        found = list(mended_by_a_later_commit(run, read(tmp_path)))
        assert [one.args["commit"] for one in found] == commits
    assert list(mended_by_a_later_commit(run, None)) == []


def test_the_command_offers_shows_applies_and_takes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stem, text, _, _ = sources.PATCHES["blocks passed over"]
    root = sources.write(tmp_path / "ai-toolkit", **{stem: text})
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / "canary.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    (tmp_path / "config.yaml").write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    file = root / "toolkit/util/quantize.py"

    assert main(["check", "config.yaml", "--select", "SRC001", "--format", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert [finding["rule"] for finding in made["findings"]] == ["SRC001"]
    assert any("git -C" in fix.get("command", "") for fix in made["findings"][0]["fixes"])

    main(["fix", "config.yaml", "--select", "SRC001", "--apply"])
    shown = capsys.readouterr().out
    assert "Nothing to repair" in shown and "-            continue" in shown and "+            raise Runtime" in shown
    assert file.read_text() == text

    main(["fix", "config.yaml", "--select", "SRC001", "--allow", "asked", "--apply"])
    assert "raise RuntimeError" in file.read_text() and "continue" not in file.read_text().split("raise")[0]
    assert "no error found; not judged: all else" in capsys.readouterr().out
    assert main(["undo"]) == 0 and file.read_text() == text
    assert main(["fix", "config.yaml", "--allow", "asked"]) == 2


def test_a_guarded_checkout_does_not_end_at_a_read_only_folder(tmp_path: Path) -> None:
    """PTH001 then says nothing of the file of sizes, and still names the caches."""
    reading = first_look("kaggle_healthy", "kaggle_healthy.yaml").reading
    world = RecordedWorld(load("kaggle_healthy"))

    def whats(checkout: Checkout | None) -> set[str]:
        facts = gather(world, reading.config, reading.runs[0], ["writes"], shared={"checkout": checkout})
        assert isinstance(facts.writes, Writes)
        return {place.what for place in facts.writes.places}

    guarded = read(sources.write(tmp_path, data_loader=GUARDED))
    assert whats(None) - whats(guarded) == {".aitk_size.json"} and "_t_e_cache" in whats(guarded)
