"""DAT003 to DAT007: captions that Python refuses, that are absent (DAT004) or JSON (DAT007), pictures nobody meant.

DAT005 and DAT006 are about the pictures.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zdoctor.checks.captions import caption_not_utf8, captions_in_json, captions_missing
from zdoctor.checks.pictures import aids_trained_as_pictures, resolution_never_reached
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.model import Checkout, DatasetFolder, Finding, Run, SetValue, WriteText
from zdoctor.doctor.model.datasets import Garbled
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.probe.dataset import probe_datasets
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.doctor.probe.recorder import Recorder
from zdoctor.doctor.rules import Unestablished, all_rules
from zdoctor.doctor.train.dataset.images import read_images
from zdoctor.doctor.trainers.read import read_config
from zdoctor.fixes.values import name_the_ending, save_as_utf8
from zdoctor.tests.changes import changed
from zdoctor.tests.checks.test_dataset import picture


def config(folder: Path, *others: dict[str, Any], **settings: Any) -> str:
    """An ai-toolkit config; `settings` are keys of the first dataset, or of sections where they hold a slash."""
    process: dict[str, Any] = {
        "type": "diffusion_trainer",
        "training_folder": str(folder.parent / "out"),
        "network": {"type": "lora", "linear": 4},
        "train": {"dtype": "bf16", "steps": 10},
        "sample": {"prompts": ["a cat"]},
        "datasets": [{"folder_path": str(folder)}, *others],
        "model": {"name_or_path": "m", "arch": "zimage"},
    }
    for key, value in settings.items():
        section, _, name = key.rpartition("__")
        place = process.setdefault(section, {}) if section else process["datasets"][0]
        if key == "trigger_word" or key == "training_folder":
            place, name = process, key
        place[name] = value
    return json.dumps({"job": "extension", "config": {"name": "t", "process": [process]}})


def seen(text: str) -> tuple[Run, tuple[DatasetFolder, ...]]:
    run = read_config("/c/config.json", text.encode(), {}).runs[0]
    folders = probe_datasets(LiveWorld(), run)
    assert isinstance(folders, tuple)
    return run, folders


def pictures(folder: Path, **captions: bytes | str | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, caption in captions.items():
        (folder / f"{name}.png").write_bytes(PNG)
        if caption is not None:
            (folder / f"{name}.txt").write_bytes(caption if isinstance(caption, bytes) else caption.encode())
    return folder


PNG = picture("PNG", 32)
CURLY = b"a photo of tok\nit\x92s a dog"


@pytest.mark.parametrize(
    ("caption", "line", "encoding"),
    [
        (b"a photo", None, ""),
        ("eine Katze, Gr\u00fc\u00dfe \u732b \U0001f408".encode(), None, ""),
        ("\ufeffa photo".encode(), None, ""),
        (b"", None, ""),
        (CURLY, 2, "cp1252"),
        (b"caf\xe9", 1, "cp1252"),
        ("it\u2019s a dog".encode("utf-16"), 1, "utf-16"),
        ("\u7ea2\u8272\u7684\u732b".encode("gbk"), 1, ""),
        ("\u732b\u3067\u3059".encode("shift_jis"), 1, ""),
        (b"a\x81b", 1, ""),
    ],
)
def test_captions_that_python_refuses_are_named_and_no_others(
    caption: bytes, line: int | None, encoding: str, tmp_path: Path
) -> None:
    pictures(tmp_path, a=caption, b="fine")
    run, folders = seen(config(tmp_path))
    found = list(caption_not_utf8(run, folders))
    assert len(found) == (line is not None)
    if line is None:
        assert (tmp_path / "a.txt").read_text(encoding="utf-8") is not None
        return
    with pytest.raises(UnicodeDecodeError) as refused:  # as the trainer opens it
        (tmp_path / "a.txt").read_text(encoding="utf-8")
    (garbled,) = folders[0].garbled
    assert (garbled.byte, garbled.position) == (caption[refused.value.start], refused.value.start)
    assert (garbled.line, garbled.encoding) == (line, encoding)
    assert str(tmp_path / "a.txt") in found[0].text()
    fixes = list(save_as_utf8(found[0], folders))
    assert [fix.safety for fix in fixes] == ([] if not encoding else ["safe" if encoding == "utf-16" else "ask"])
    for fix in fixes:
        (step,) = fix.steps
        assert isinstance(step, WriteText) and step.text == caption.decode(encoding)


def test_the_repair_is_applied_and_cures(tmp_path: Path) -> None:
    data = pictures(tmp_path / "data", a="it\u2019s".encode("utf-16"), b="fine")
    file = tmp_path / "config.json"
    file.write_text(config(data))
    world = LiveWorld(environment={}, cwd=str(tmp_path), home=str(tmp_path))
    (found,) = (f for f in examine_config(str(file), world).report.findings if f.rule == "DAT003")
    assert "UnicodeDecodeError" in found.consequence() and found.fixes[0].safety == "safe"
    (step,) = found.fixes[0].steps
    assert isinstance(step, WriteText)
    (data / "a.txt").write_text(step.text, encoding="utf-8")
    assert not any(f.rule == "DAT003" for f in examine_config(str(file), world).report.findings)
    assert (data / "a.txt").read_text(encoding="utf-8") == "it\u2019s"


def test_a_long_caption_that_is_cut_inside_a_character_is_no_finding(tmp_path: Path) -> None:
    pictures(tmp_path, a="a" + "\u732b" * 30_000)
    assert seen(config(tmp_path))[1][0].garbled == ()


def test_several_are_counted_and_one_that_cannot_be_told_stops_the_repair(tmp_path: Path) -> None:
    pictures(tmp_path, a=CURLY, b=CURLY, c="fine")
    run, folders = seen(config(tmp_path, train__cache_text_embeddings=True))
    (found,) = caption_not_utf8(run, folders)
    assert found.text().startswith("2 captions in") and "after the model was loaded" in found.consequence()
    (fix,) = save_as_utf8(found, folders)
    assert len(fix.steps) == 2 and fix.safety == "ask"
    unknown = replace(folders[0], garbled=(*folders[0].garbled, Garbled("/x.txt", 200, 0, 1)))
    assert not list(save_as_utf8(found, (unknown,)))


def test_a_machine_file_does_not_hold_the_words_of_captions(tmp_path: Path) -> None:
    pictures(tmp_path, a="a secret", b=CURLY, c="", d="\u79d8\u5bc6")
    recorder = Recorder(LiveWorld())
    run, here = seen(config(tmp_path))
    assert probe_datasets(recorder, run) == here
    record = recorder.record("x")
    assert "c2VjcmV0" not in json.dumps(record) and b"tok" not in repr(record).encode()
    again = probe_datasets(RecordedWorld(record), run)
    assert isinstance(again, tuple)
    assert again[0].blank == here[0].blank == 1
    assert [one.byte for one in again[0].garbled] == [0x92]


def missing(text: str) -> list[Finding]:
    return list(captions_missing(*seen(text)))


@pytest.mark.parametrize(
    ("captions", "settings", "says"),
    [
        ({"a": "x", "b": "y"}, {}, ""),
        ({"a": None, "b": None}, {"trigger_word": "tok"}, ""),
        ({"a": None, "b": None}, {"default_caption": "a cat"}, ""),
        ({"a": None, "b": None}, {"is_reg": True}, ""),
        ({"a": None, "b": None}, {}, "No picture in {folder} has a caption, and there is no trigger_word"),
        (
            {"a": "x", "b": None},
            {"trigger_word": "tok"},
            "One of 2 pictures in {folder} has no caption: {folder}/b.png",
        ),
        ({"a": "x", "b": None, "c": None}, {}, "2 of 3 pictures in {folder} have no caption, {folder}/b.png"),
        ({"a": "x", "b": " \n"}, {}, "One caption in {folder} is an empty file."),
        ({"a": "x", "b": "", "c": ""}, {}, "2 captions in {folder} are empty files."),
        ({"a": "", "b": ""}, {"trigger_word": "tok"}, ""),
        ({"a": "x"}, {"caption_ext": "caption"}, "ends in .caption, but there are .txt files."),
        (
            {"a": "x"},
            {"caption_ext": "caption", "trigger_word": "tok"},
            "ends in .caption, but there are .txt files.",
        ),
    ],
)
def test_pictures_without_captions(
    captions: dict[str, str | None], settings: dict[str, Any], says: str, tmp_path: Path
) -> None:
    text = config(pictures(tmp_path, **captions), **settings)
    found = missing(text)
    assert [says.format(folder=tmp_path) in one.text() for one in found] == ([True] if says else [])
    for one in found:
        assert ("trigger word alone" in one.consequence()) == ("trigger_word" in settings)
        fixes = list(name_the_ending(one, read_config("/c/config.json", text.encode(), {}).config))
        steps = [step for fix in fixes for step in fix.steps]
        pointer = "/config/process/0/datasets/0/caption_ext"
        wanted = [SetValue("/c/config.json", pointer, ".txt")] if "caption_ext" in settings else []
        assert steps == wanted and all(fix.training_effect == "changes-result" for fix in fixes)


def test_of_captions_that_are_not_read_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unestablished, match="TRN006"):
        missing(config(pictures(tmp_path, a="x", b=None), train__unload_text_encoder=True))


@pytest.mark.parametrize("captionless", [True, False])
def test_the_runner_takes_an_empty_caption_without_a_word_as_well(captionless: bool, tmp_path: Path) -> None:
    text = config(pictures(tmp_path, a="x", b=None))
    run, folders = seen(text)
    dataset = replace(run.recipe.datasets[0], captionless=captionless)
    own = changed(run, datasets=(dataset,), trainer=RUNNER)
    assert RUNNER in next(rule for rule in all_rules() if rule.id == "DAT004").trainers
    (found,) = captions_missing(own, folders)
    taken = {picture.file.stem: picture.caption for picture in read_images(tmp_path, dataset, {}, None)}
    assert taken == ({"a": "x", "b": ""} if captionless else {"a": "x"})
    assert ("empty caption" if captionless else "left out") in found.consequence()
    for captions in ("names", "default"):
        other = changed(own, datasets=(replace(dataset, captions=captions),))
        assert not list(captions_missing(other, folders))


@pytest.mark.parametrize(
    ("ending", "files", "says", "fixes"),
    [
        ("json", {"a.json": '{"caption": "a cat"}'}, "The caption in {folder} ends in .json", 0),
        (".JSON", {"a.JSON": '{"caption": "a cat"}'}, "The caption in {folder} ends in .json", 0),
        ("json", {"a.json": '{"caption": "a cat"}', "a.txt": "a cat"}, "ends in .json", 1),
        ("json", {}, "", 0),
        ("txt", {"a.json": '{"caption": "a cat"}', "a.txt": "a cat"}, "", 0),
    ],
)
def test_captions_in_json_are_trained_as_they_stand(
    ending: str, files: dict[str, str], says: str, fixes: int, tmp_path: Path
) -> None:
    pictures(tmp_path, a=None)
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    text = config(tmp_path, caption_ext=ending)
    run, folders = seen(text)
    read = read_config("/c/config.json", text.encode(), {}).config
    for trainer in ("ai-toolkit", RUNNER):
        found = list(captions_in_json(replace(run, trainer=trainer), folders, None))
        assert [says.format(folder=tmp_path) in one.text() for one in found] == ([True] if says else [])
        assert [len(list(name_the_ending(one, read))) for one in found] == ([fixes] if says else [])
    (picture,) = read_images(tmp_path, run.recipe.datasets[0], {}, None)
    assert ("{" in picture.caption) is bool(says)


def test_captions_in_json_that_are_meant_so(tmp_path: Path) -> None:
    """A model whose prompts are JSON, and an ai-toolkit that still looked into such files."""
    pictures(tmp_path, a=None)
    (tmp_path / "a.json").write_text('{"caption": "a cat"}')
    run, folders = seen(config(tmp_path, caption_ext="json"))
    for architecture in ("ideogram4", "flux2"):
        other = changed(run, architecture=architecture)
        assert not list(captions_in_json(other, folders, None))
    dropped = changed(run, datasets=(replace(run.recipe.datasets[0], caption_dropout=1.0),))
    assert not list(captions_in_json(dropped, folders, None))
    old, new = (Checkout("/x", "", "B", json_captions=looked) for looked in (True, False))
    assert not list(captions_in_json(run, folders, old)) and list(captions_in_json(run, folders, new))
    assert list(captions_in_json(replace(run, trainer=RUNNER), folders, old))


def aids(text: str) -> list[Finding]:
    run, folders = seen(text)
    return list(aids_trained_as_pictures(run, folders, LiveWorld().system))


def test_masks_inside_the_dataset_are_trained_and_beside_it_they_are_not(tmp_path: Path) -> None:
    data = pictures(tmp_path / "data", a="x", b="y")
    pictures(data / "masks", a=None, b=None)
    (found,) = aids(config(data, mask_path=str(data / "masks")))
    assert "its 2 pictures are trained, too." in found.text()
    assert aids(config(data, mask_path=str(data / "masks"), control_path=[str(data / "masks")]))[1].evidence == {
        "key": "datasets/0/control_path",
        "count": 2,
    }
    (data / "masks").rename(tmp_path / "data-masks")
    assert not aids(config(data, mask_path=str(tmp_path / "data-masks")))
    pictures(data / ".masks", a=None)
    pictures(data / "_controls", a=None)
    assert not aids(config(data, mask_path=str(data / ".masks"), control_path=str(data / "_controls")))
    assert not aids(config(data, mask_path=str(data)))


def test_a_dataset_in_a_dataset_and_samples_among_the_pictures(tmp_path: Path) -> None:
    data = pictures(tmp_path / "data", a="x")
    pictures(data / "reg", b="y")
    other = {"folder_path": str(data / "reg"), "is_reg": True}
    (found,) = aids(config(data, other))
    assert found.severity == "warning" and "which trains its pictures as well" in found.text()
    inside = {"training_folder": str(data / "out")}
    (found,) = aids(config(data, **inside))
    assert "its own samples" in found.consequence()
    assert not aids(config(data, **inside, train__disable_sampling=True))


@pytest.mark.parametrize(
    ("resolution", "settings", "says"),
    [
        ([16, 24], {}, ""),
        (64, {}, ""),
        ([32, 48], {}, "none gets larger than that with 48."),
        ([64, 32, 48], {}, "none gets larger than that with 48 and 64."),
        ([16, 32, 48], {}, "none gets larger than that with 48."),
        ([32, 48], {"square_crop": True}, ""),
    ],
)
def test_sizes_that_no_picture_reaches(
    resolution: object, settings: dict[str, Any], says: str, tmp_path: Path
) -> None:
    run, folders = seen(config(pictures(tmp_path, a="x"), resolution=resolution, **settings))
    found = list(resolution_never_reached(run, folders))
    assert [says in one.text() for one in found] == ([True] if says else [])


@pytest.mark.parametrize(
    ("strategy", "options", "captions", "says"),
    [
        ("textfile", {}, {"a": "x", "b": ""}, ""),
        ("filename", {}, {"a": None}, ""),
        ("instanceprompt", {"instance_prompt": "x"}, {"a": None}, ""),
        ("textfile", {"only_instance_prompt": True}, {"a": None}, ""),
        ("textfile", {"skip_file_discovery": "text"}, {"a": None}, ""),
        ("textfile", {}, {"a": b"caf\xe9"}, ""),
        ("textfile", {}, {"a": "x", "b": None}, "b.png has no .txt file beside it."),
        ("textfile", {}, {"a": "x", "b": None, "c": None}, "2 of 3 pictures"),
    ],
)
def test_simpletuner_asks_for_every_text_file(
    strategy: str, options: dict[str, Any], captions: dict[str, str | bytes | None], says: str, tmp_path: Path
) -> None:
    """SIM010."""
    data = pictures(tmp_path / "data", **captions)
    entry = {"id": "a", "type": "local", "instance_data_dir": str(data), "caption_strategy": strategy, **options}
    (tmp_path / "data.json").write_text(json.dumps([entry]))
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps(
            {
                "model_family": "z_image",
                "model_type": "lora",
                "data_backend_config": str(tmp_path / "data.json"),
                "max_train_steps": 10,
                "num_train_epochs": 0,
                "output_dir": "out",
            }
        )
    )
    report = examine_config(str(file), LiveWorld(cwd=str(tmp_path))).report
    found = [finding for finding in report.findings if finding.rule == "SIM010"]
    garbled = [finding.severity for finding in report.findings if finding.rule == "DAT003"]
    assert garbled == ["warning"] * any(isinstance(caption, bytes) for caption in captions.values())
    assert [says in finding.text() for finding in found] == ([True] if says else [])
