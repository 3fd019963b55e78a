"""Z-Image: what the loaders make of a folder that is not whole, and what the rules say of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from zdoctor.checks.model.files import incomplete_model_folder
from zdoctor.checks.model.tensors import missing_checkpoint_tensors
from zdoctor.doctor.rules import Unestablished
from zdoctor.tests.models import copy_to, healthy, probed, rewrite, run_of, shard_of

from .folders import configured, findings, remove
from .zimage_folders import NAME, drop_everywhere, load


def test_the_meta_crash_is_foretold_in_its_own_words(tmp_path: Path) -> None:
    folder = copy_to(tmp_path / "m")
    drop_everywhere(folder)
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        load(folder)
    (finding,) = findings(folder)["MDL001"]
    assert "Cannot copy out of meta tensor; no data!" in finding.consequence()
    assert NAME in finding.text() and "parts of layers.1" in finding.text()
    assert finding.evidence["missing"] == 1
    configured("transformer", n_layers=4)(folder)
    (finding,) = findings(folder)["MDL001"]
    assert "all of layers.2, layers.3, parts of layers.1" in finding.text()


def test_layers_that_the_config_forgets_are_dropped_without_a_word(tmp_path: Path) -> None:
    folder = copy_to(tmp_path / "m")
    configured("transformer", n_layers=1)(folder)
    load(folder)
    (finding,) = findings(folder)["MDL002"]
    assert "layers.1" in finding.text()


def test_scales_are_dropped_by_the_loader(tmp_path: Path) -> None:
    folder = copy_to(tmp_path / "m")
    rewrite(
        shard_of(folder, NAME),
        lambda t: {
            **{n: (v / 2).to(torch.float8_e4m3fn) if n == NAME else v for n, v in t.items()},
            "layers.1.attention.to_q.scale_weight": torch.tensor(2.0),
        },
    )
    made, right = (load(place)["transformer"].state_dict()[NAME] for place in (folder, healthy()))
    ratio = made.float().norm() / right.float().norm()
    assert 0.4 < ratio < 0.6
    assert list(findings(folder)) == ["MDL002"]
    # a config that says how the weights are quantized makes the loader read the scales
    configured("transformer", quantization_config={"a": 1})(folder)
    assert findings(folder) == {}


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


def test_a_transformer_alone_needs_a_source_for_the_rest() -> None:
    alone = healthy() / "transformer"
    with pytest.raises((OSError, ValueError)):
        AutoTokenizer.from_pretrained(alone, subfolder="tokenizer")
    (finding,) = findings(alone)["MDL003"]
    assert "text_encoder/, tokenizer/, vae/" in finding.text()
    assert findings(alone, extras_name_or_path=str(healthy())) == {}


def test_a_folder_with_its_own_text_encoder_overrides_the_extras(tmp_path: Path) -> None:
    folder = copy_to(tmp_path / "m")
    remove("vae")(folder)
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


def test_nothing_here_is_unknown_never_green() -> None:
    run = run_of("Tongyi-MAI/Z-Image-Turbo")
    model = probed(run)
    assert model.layout == "absent" and model.repo == "Tongyi-MAI/Z-Image-Turbo"
    with pytest.raises(Unestablished, match="on this machine"):
        list(missing_checkpoint_tensors(run, model))
    assert list(incomplete_model_folder(run, model)) == []
