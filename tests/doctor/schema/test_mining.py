"""What is mined from a checkout: keys, defaults, choices, extensions; what does not parse; when it is mined anew."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.model import Key, Schema
from zdoctor.doctor.packages.requirements import of_texts
from zdoctor.doctor.schema import checkouts, tables
from zdoctor.doctor.trainers import names
from zdoctor.tests.doctor.schema.checkouts import AI_TOOLKIT, MUSUBI, SD_SCRIPTS, SIMPLETUNER, checkout


def mined(folder: Path, files: dict[str, str]) -> Schema:
    return checkouts.mine(checkout(folder, files))[0]


def test_ai_toolkit(tmp_path: Path) -> None:
    schema = mined(tmp_path, AI_TOOLKIT)
    assert schema.trainer == "ai-toolkit"
    assert set(schema.sections[""]) == {"name", "train", "model", "own_key", "type", "device"}
    train = schema.sections["train"]
    assert train["steps"] == Key("int", 1000, True)
    assert train["lr"] == Key("float", 1e-6, True)
    assert train["width"] == Key("int", 512, True)
    assert train["colour"] == Key("str", "red", True, ("red", "green"))
    assert "handed_on" in train
    assert train["loss_type"].choices == ("mae", "mse")
    assert train["optimizer"].choices == ("fancier", "fancy", "plain", "prodigy")
    assert set(schema.sections["train/inner"]) == {"depth"} == set(schema.sections["train/items/*"])
    assert schema.section("train/extra") is None  # handed on as it is
    assert schema.choices("model/arch") == {"old", "newest"}
    assert schema.choices("model/qtype") >= {"int8", "float8", "m4", "m5", "m6", "qint4"}


def test_a_process_of_ones_own_has_the_sections_that_it_reads(tmp_path: Path) -> None:
    schema = mined(tmp_path, AI_TOOLKIT)
    assert schema.processes == ("mine", "other_name", "sd_trainer")
    assert "side" in (schema.section("", "mine") or {})
    assert "own_key" not in (schema.section("", "mine") or {})
    assert {"side", "steps"} <= set(schema.section("side", "mine") or ())
    assert schema.section("side") is None
    assert schema.section("train", "mine") == schema.section("train")


def test_simpletuner(tmp_path: Path) -> None:
    schema = mined(tmp_path, SIMPLETUNER)
    options = schema.sections[""]
    assert set(options) == {
        "model_family", "max_steps", "steps", "te_1", "te_2", "flag_a", "flag_b", "dataset_only",
    }  # fmt: skip
    assert options["model_family"] == Key("str", None, False, ("tiny", "z_image"), strict=True)
    assert options["te_2"] == Key("str", "no_change", True, ("no_change", "int8"), strict=True)
    assert options["steps"].default == 10
    assert options["flag_a"] == Key("bool", False, True)
    assert schema.renamed == {"old_steps": "max_steps", "gone": ""}
    assert set(schema.sections["datasets/*"]) == {"id", "crop", "crop_style"}


def test_sd_scripts(tmp_path: Path) -> None:
    schema = mined(tmp_path, SD_SCRIPTS)
    common = {"lr", "lr_te1", "lr_te2", "precision", "xformers", "network_dim", "optimizer_type", "lr_scheduler"}
    assert set(schema.sections[""]) == {*common, "ae", "autoencoder"}
    assert set(schema.section("", "train_network") or ()) == common
    assert schema.sections[""]["precision"] == Key("str", "no", True, ("no", "bf16"), strict=True)
    assert schema.sections[""]["lr"] == Key("float", 2e-6, True)
    assert schema.choices("optimizer_type") == {"Kahan", "own"}
    assert schema.choices("lr_scheduler") == {"REX"}
    assert schema.sections["datasets/*/subsets/*"]["image_dir"] == Key("str")
    assert schema.sections["datasets/*"]["token_warmup_step"] == Key("float")
    assert {"flip_aug", "batch_size"} <= set(schema.sections["general"])


def test_musubi_tuner(tmp_path: Path) -> None:
    schema = mined(tmp_path, MUSUBI)
    assert set(schema.section("", "zimage_train_network") or ()) == {"sdpa", "fp8_llm"}
    assert set(schema.section("", "hv_train_network") or ()) == {"sdpa"}
    assert schema.sections["datasets/*"]["fp_1f_clean_indices"] == Key("list")
    assert "image_directory" not in schema.sections["general"]


def test_what_does_not_parse_is_named_and_the_rest_is_mined(tmp_path: Path) -> None:
    broken = {**AI_TOOLKIT, "extensions_built_in/sd_trainer/SDTrainer.py": "class SDTrainer(:\n"}
    schema = mined(tmp_path, broken)
    assert list(schema.unparsed) == ["extensions_built_in/sd_trainer/SDTrainer.py"]
    assert "steps" in schema.sections["train"]  # asked by the class below it, in a file that parses
    assert "own_key" not in schema.sections[""]
    whole = tables.completed(schema)
    assert {"steps", "lr_scheduler", "width"} <= set(whole.sections["train"])
    assert schema.choices("model/arch") == {"old", "newest"}


def test_choices_in_another_form_are_not_called_wrong(tmp_path: Path) -> None:
    registry = {
        "toolkit/optimizer.py": 'KNOWN = {"adamw": 1}\n\n\ndef get_optimizer(name):\n    return KNOWN[name]\n'
    }
    schema = mined(tmp_path, {**AI_TOOLKIT, **registry})
    assert not schema.choices("train/optimizer")  # nothing is compared there any more
    assert {"adamw8bit", "adafactor"} <= tables.completed(schema).choices("train/optimizer")
    assert "gradient_checkpointing" not in tables.completed(schema).sections["train"]


def test_nothing_to_mine_is_said(tmp_path: Path) -> None:
    with pytest.raises(checkouts.NoCheckout, match="no checkout"):
        checkouts.mine(tmp_path)
    checkout(tmp_path, {"toolkit/config_modules.py": "def (\n"})
    with pytest.raises(checkouts.NoCheckout, match="found no key"):
        checkouts.mine(tmp_path)


def test_odd_files_in_a_checkout_do_no_harm(tmp_path: Path) -> None:
    deep = "x = " + "[" * 3000 + "]" * 3000 + "\n"
    wide = "QTYPES_QTYPES = tuple(f'a{b}' for b in range(10 ** 9))\nMORE_QTYPES = list(range(9999999999999))\n"
    nested = "def f():\n    return " + "-" * 20_000 + "1\n"
    odd = {"toolkit/util/deep.py": deep, "toolkit/util/wide.py": wide, "extensions/mine/nested.py": nested}
    checkout(tmp_path, {**AI_TOOLKIT, **odd})
    (tmp_path / "extensions/mine/binary.py").write_bytes(b"\0\xff" * 100)
    (tmp_path / "extensions/mine/latin.py").write_bytes(b"class A:\n    arch = 'caf\xe9'\n")
    (tmp_path / "extensions/mine/loop").symlink_to(tmp_path / "extensions")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "extensions/mine/pipe.py")  # to open it would wait for ever
    schema, _ = checkouts.mine(tmp_path)
    assert "steps" in schema.sections["train"] and "newest" in schema.choices("model/arch")


def test_nothing_of_a_checkout_is_run(tmp_path: Path) -> None:
    bomb = f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\nraise SystemExit(9)\n"
    before = set(sys.modules)
    mined(tmp_path, {name: (bomb + text if name.endswith(".py") else text) for name, text in AI_TOOLKIT.items()})
    assert not (tmp_path / "ran").exists()
    assert not {name for name in set(sys.modules) - before if name.startswith(("toolkit", "jobs", "extensions"))}


@pytest.mark.parametrize("files", [AI_TOOLKIT, SIMPLETUNER, SD_SCRIPTS, MUSUBI])
def test_a_table_gives_back_what_was_mined(tmp_path: Path, files: dict[str, str]) -> None:
    schema = mined(tmp_path, files)
    back = tables.from_json(json.loads(json.dumps(tables.as_json(schema))))
    assert {path: dict(keys) for path, keys in back.sections.items()} == {
        path: dict(keys) for path, keys in schema.sections.items()
    }
    assert (back.processes, back.renamed) == (schema.processes, schema.renamed)


def test_a_checkout_is_mined_anew_only_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, state = checkout(tmp_path / "ai-toolkit", AI_TOOLKIT), tmp_path / "state"
    mined: list[Path] = []
    real = checkouts.mine

    def counted(root: Path, trainer: str | None = None) -> Any:
        mined.append(root)
        return real(root, trainer)

    monkeypatch.setattr(tables, "mine", counted)
    for _ in range(3):
        assert "steps" in tables.cached(root, "ai-toolkit", state).sections["train"]
    assert len(mined) == 1
    file = root / "toolkit/config_modules.py"
    file.write_text(file.read_text().replace('"steps"', '"steps_"'))
    assert "steps_" in tables.cached(root, "ai-toolkit", state).sections["train"]
    added = root / "extensions/mine/second.py"
    added.write_text('class Second:\n    arch = "second"\n')
    assert "second" in tables.cached(root, "ai-toolkit", state).choices("model/arch")
    assert len(mined) == 3
    note = next((state / "schemas").glob("*.json"))
    note.write_bytes(b"torn")
    assert "steps_" in tables.cached(root, "ai-toolkit", state).sections["train"]
    assert len(list((state / "schemas").iterdir())) == 1


def test_where_notes_cannot_be_kept_it_is_mined_each_time(tmp_path: Path) -> None:
    root = checkout(tmp_path / "ai-toolkit", AI_TOOLKIT)
    (tmp_path / "state").write_text("a file")
    assert "steps" in tables.cached(root, "ai-toolkit", tmp_path / "state").sections["train"]


def test_the_commit_is_read_without_git(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    (git / "refs/heads").mkdir(parents=True)
    assert checkouts.commit_of(tmp_path) == ""
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text(f"# pack-refs\n{'b' * 40} refs/heads/main\n")
    assert checkouts.commit_of(tmp_path) == "b" * 40
    (git / "refs/heads/main").write_text("a" * 40 + "\n")
    assert checkouts.commit_of(tmp_path) == "a" * 40
    (git / "HEAD").write_text("c" * 40)
    assert checkouts.commit_of(tmp_path) == "c" * 40
    (git / "HEAD").write_text("../../secret")
    assert checkouts.commit_of(tmp_path) == ""


def test_a_checkout_is_found_above_and_beside(tmp_path: Path) -> None:
    root = checkout(tmp_path / "ai-toolkit", AI_TOOLKIT)
    (root / "config" / "mine").mkdir(parents=True)
    assert checkouts.find("ai-toolkit", [os.fspath(root / "config" / "mine")]) == root
    assert checkouts.find("ai-toolkit", [os.fspath(tmp_path)]) == root
    assert checkouts.find("SimpleTuner", [os.fspath(root)]) is None
    assert checkouts.find("unheard-of", [os.fspath(root)]) is None


@pytest.mark.parametrize("trainer", sorted(names()))
def test_shipped_tables(trainer: str) -> None:
    schema = tables.shipped(trainer)
    assert schema is not None and schema.trainer == trainer
    assert len(schema.commit) == 40 and schema.repository.startswith("https://github.com/")
    assert len(schema.sections[""]) > 20
    for keys in schema.sections.values():
        assert all(isinstance(key, Key) for key in keys.values())
    assert not schema.unparsed
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", schema.date) and schema.requirements
    for lines in schema.requirements:
        assert [one.line for one in of_texts(lines, "", "").requirements] == list(lines)


def test_shipped_tables_hold_what_is_known_of_the_trainers() -> None:
    toolkit, tuner = tables.shipped("ai-toolkit"), tables.shipped("SimpleTuner")
    scripts, musubi = tables.shipped("sd-scripts"), tables.shipped("musubi-tuner")
    assert toolkit and tuner and scripts and musubi
    assert toolkit.sections["train"]["lr"].default == 1e-6 and len(toolkit.sections["train"]) == 126
    assert {"zimage", "flux", "flux_kontext"} <= toolkit.choices("model/arch")
    assert "content_or_style_reg" not in toolkit.sections["train"]
    assert "z_image" in tuner.choices("model_family") and "z-image" not in tuner.choices("model_family")
    assert "int8-quanto" in tuner.choices("base_model_precision")
    assert "text_encoder_precision" not in tuner.sections[""] and tuner.sections[""]["train_batch_size"].default == 4
    assert tuner.renamed["validation_steps"] == "validation_step_interval"
    assert {"ae", "t5xxl", "split_mode"} <= set(scripts.section("", "flux_train_network") or ())
    assert "ae" not in (scripts.section("", "train_network") or ())
    assert {"fp8_scaled", "fp8_llm"} <= set(musubi.section("", "zimage_train_network") or ())
    assert tables.shipped("unheard-of") is None
