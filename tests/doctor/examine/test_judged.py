"""What was judged and what was not: no word, colour, list or exit code is green of what nothing looked at."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from zdoctor.doctor.cli import main
from zdoctor.doctor.examine.engine import examine
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.examine.judged import judged
from zdoctor.doctor.model import Entry, Facts, Files, Finding, Hub, ModelFolder, Report, Unknown, Writes
from zdoctor.doctor.model.findings import NOT_SELECTED
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.doctor.rules import FACT_NAMES, NotApplicable, Rule, all_rules
from zdoctor.reports import FORMATS, Checked, render, words
from zdoctor.reports.painting import Screen
from zdoctor.tests.machines import load
from zdoctor.tests.qwen_image import healthy_qwen_image
from zdoctor.tests.reports.read_back import READERS, in_full

ROOT = Path(__file__).parents[3]
AI_TOOLKIT = """\
job: extension
config:
  name: lora
  process:
    - type: sd_trainer
      training_folder: output
      device: cuda:0
      network: {type: lora, linear: 16, linear_alpha: 16}
      datasets:
        - {folder_path: pictures, caption_ext: txt, cache_latents_to_disk: true, resolution: [512]}
      train: {steps: 100, batch_size: 1, lr: 1e-4, optimizer: adamw8bit, dtype: bf16, noise_scheduler: flowmatch}
      model: {name_or_path: base.safetensors, arch: ARCHITECTURE}
"""
MUSUBI = """\
accelerate launch --mixed_precision bf16 wan_train_network.py --task flf2v-14B --dit base.safetensors --sdpa \\
  --dataset_config data.toml --optimizer_type AdamW8bit --learning_rate 1e-4 --network_module networks.lora_wan \\
  --mixed_precision bf16 --output_dir output --output_name lora --max_train_steps 100
"""
MUSUBI_DATA = """\
[[datasets]]
resolution = [512, 512]
caption_extension = ".txt"
image_directory = "pictures"
cache_directory = "cache"
"""
HUNYUAN = """\
accelerate launch hunyuan_image_train_network.py --pretrained_model_name_or_path base.safetensors \\
  --network_module networks.lora_hunyuan_image --learning_rate 1e-4 --optimizer_type AdamW8bit \\
  --mixed_precision bf16 --dataset_config data.toml \\
  --output_dir output --output_name lora --max_train_steps 100 --cache_latents
"""
HUNYUAN_DATA = """\
[[datasets]]
resolution = 512
[[datasets.subsets]]
image_dir = "pictures"
caption_extension = ".txt"
"""
SIMPLETUNER = json.dumps(
    {
        "model_type": "lora",
        "model_family": "sana",
        "model_flavour": "t2v-480p-1.3b-2.1",
        "lora_rank": 16,
        "learning_rate": 1e-4,
        "max_train_steps": 100,
        "num_train_epochs": 0,
        "optimizer": "adamw_bf16",
        "data_backend_config": "backend.json",
        "output_dir": "output",
        "train_batch_size": 1,
    }
)
BACKEND = [
    {
        "id": "pictures",
        "type": "local",
        "instance_data_dir": "pictures",
        "caption_strategy": "textfile",
        "resolution": 512,
        "resolution_type": "pixel",
        "minimum_image_size": 256,
        "cache_dir_vae": "vae",
    },
    {"id": "text", "type": "local", "dataset_type": "text_embeds", "default": True, "cache_dir": "text"},
]
# What trains a model without a record: file, text, the file of its datasets, its text, and the name that is said.
FAMILIES = {
    "ai-toolkit Mage-Flow": ("config.yaml", AI_TOOLKIT.replace("ARCHITECTURE", "mageflow"), "", "", "mageflow"),
    "ai-toolkit MiniMax": ("config.yaml", AI_TOOLKIT.replace("ARCHITECTURE", "minimax_h3"), "", "", "minimax_h3"),
    "musubi-tuner Wan": ("train.sh", MUSUBI, "data.toml", MUSUBI_DATA, "wan_flf2v-14B"),
    "sd-scripts HunyuanImage": ("train.sh", HUNYUAN, "data.toml", HUNYUAN_DATA, "hunyuan_image"),
    "SimpleTuner Sana": ("config.json", SIMPLETUNER, "backend.json", json.dumps(BACKEND), "sana"),
}


def patient(folder: Path, file: str, text: str, beside: str, more: str) -> str:
    """A config in a folder with all that it names: three pictures with captions, caches, and a weight file."""
    (folder / file).write_text(text, encoding="utf-8")
    if beside:
        (folder / beside).write_text(more, encoding="utf-8")
    for name in ("pictures", "cache"):
        (folder / name).mkdir()
    for number in range(3):
        Image.new("RGB", (512, 512), (number, 2, 3)).save(folder / "pictures" / f"{number}.png")
        (folder / "pictures" / f"{number}.txt").write_text("a cat", encoding="utf-8")
        for ending in ("0512x0512_wan", "wan_te"):
            (folder / "cache" / f"{number}_{ending}.safetensors").touch()
    header = json.dumps({"blocks.0.weight": {"dtype": "BF16", "shape": [16, 16], "data_offsets": [0, 512]}}).encode()
    (folder / "base.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(512))
    return file


def green(report: Report) -> list[str]:
    """The formats in which a report reads, or looks, as if all were well."""
    told = {format: READERS[format](render(format, [Checked(report, all_rules())])).said for format in FORMATS}
    coloured = render("text", [Checked(report)], screen=Screen(color=True))
    found = [
        name for name, said in told.items() if "nothing found" in said or "not judged" not in said.replace("_", " ")
    ]
    return found + (["colour"] if words.tone(report) in ("good", "note") or "\x1b[1;32m" in coloured else [])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_without_a_record_is_said_first_and_is_not_green(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, text, beside, more, architecture = FAMILIES[name]
    monkeypatch.chdir(tmp_path)
    config = patient(tmp_path, file, text, beside, more)
    report = examine_config(config, LiveWorld()).report
    assert not report.errors, [finding.text() for finding in report.errors]
    assert {"settings", "datasets"} <= set(report.judged)
    assert {"model files", "memory"} <= {one.what for one in report.not_judged}
    assert words.with_reasons(report).startswith("no error found; not judged: model files")
    assert f"no record of {architecture}" in words.with_reasons(report)
    assert green(report) == []
    assert main(["check", config]) == 0
    assert main(["check", config, "--strict"]) == 3
    assert main(["check", config, "--select", "CFG,DAT", "--strict"]) == 0  # what was left out, was left out
    capsys.readouterr()


def test_a_family_of_which_not_all_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Qwen-Image it is not known whether float16 overflows, and that is said."""
    monkeypatch.chdir(tmp_path)
    text = AI_TOOLKIT.replace("ARCHITECTURE", "qwen_image").replace("base.safetensors", "model")
    config = patient(tmp_path, "config.yaml", text.replace("bf16", "fp16"), "", "")
    shutil.copytree(healthy_qwen_image(), tmp_path / "model")
    report = examine_config(config, LiveWorld()).report
    assert not report.errors and {"model files", "memory"} <= set(report.judged)
    assert not {"model files", "memory"} & {one.what for one in report.not_judged}
    assert any("float16 is not known" in one.reason for one in report.unknown)


@pytest.mark.parametrize("fact", sorted(FACT_NAMES))
def test_with_any_fact_taken_away_no_format_is_green(fact: str) -> None:
    text = (ROOT / "tests" / "configs" / "server_healthy.yaml").read_bytes()
    seen = examine_config("config.yaml", RecordedWorld(load("healthy")), text=text)
    assert seen.report.not_judged == () and words.verdict(seen.report) == "nothing found"
    assert green(seen.report)
    blind = Facts(**{**vars(seen.facts[0]), fact: Unknown("it was taken away")})
    report = examine(blind, all_rules(), config="c", trainer=None)
    assert green(judged(report, [blind], all_rules(), all_rules())) == []


def test_what_was_not_asked_is_not_judged() -> None:
    text = (ROOT / "tests" / "configs" / "server_healthy.yaml").read_bytes()
    rules = [rule for rule in all_rules() if rule.id == "CFG002"]
    report = examine_config("config.yaml", RecordedWorld(load("healthy")), rules, text=text).report
    assert report.judged == ("settings",) and report.passed == ("CFG002",)
    assert {one.reason for one in report.not_judged} == {NOT_SELECTED}
    assert words.with_reasons(report) == "no error found; not judged: all else: no rule about it was asked"
    assert report.exit_code == replace(report, strict=True).exit_code == 0


@pytest.mark.parametrize("format", FORMATS)
def test_strict_ends_with_3_in_every_format(format: str) -> None:
    text = (ROOT / "tests" / "configs" / "server_healthy.yaml").read_bytes().replace(b"zimage:turbo", b"mageflow")
    report = examine_config("config.yaml", RecordedWorld(load("healthy")), text=text).report
    strict = replace(report, strict=True)
    assert (report.exit_code, strict.exit_code) == (0, 3)
    if format not in ("text", "markdown"):  # which name no exit code
        assert READERS[format](in_full(format, strict)).exit_code == 3


def silent(name: str) -> Rule:
    def check(*facts: object) -> Iterator[Finding]:
        yield from ()

    return Rule("TST001", "a-name", "error", check, ("config", name))


def aside(config: object) -> Iterator[Finding]:
    raise NotApplicable
    yield


@pytest.mark.parametrize(
    ("rule", "fact", "applies"),
    [
        (silent("datasets"), (), False),
        (silent("adapter"), None, False),
        (silent("files"), Files({}), False),
        (silent("files"), Files({"a": Entry("/a", "file")}), True),
        (silent("writes"), Writes(()), False),
        (silent("hub"), Hub(("/hub",), ()), False),
        (silent("model"), ModelFolder("a/b", "absent", None), False),
        (silent("logins"), ("hub",), True),
        (Rule("TST001", "a-name", "error", aside, ("config",)), (), False),
    ],
)
def test_a_rule_with_nothing_to_look_at_did_not_pass(rule: Rule, fact: object, applies: bool) -> None:
    facts = Facts(**{"config": None, rule.needs[-1]: fact})  # type: ignore[arg-type]
    report = examine(facts, [rule], config="c", trainer=None)
    assert (report.passed, report.not_applicable) == ((("TST001",), ()) if applies else ((), ("TST001",)))
    assert words.outcomes(report) == f"{int(applies)} rule{'s' * (not applies)} passed"


@pytest.mark.parametrize(
    ("lost", "rule", "said"),
    [
        ("base.safetensors", "KOH001", "base.safetensors does not exist; it should be the model."),
        ("cache/*_wan.safetensors", "KOH006", "cache holds no cached latents (*_wan.safetensors)"),
        ("cache/*_wan_te.safetensors", "KOH006", "cache holds no cached text encoder outputs (*_wan_te.safetensors)"),
    ],
)
def test_what_such_a_run_opens_is_looked_for_all_the_same(
    lost: str, rule: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = patient(tmp_path, *FAMILIES["musubi-tuner Wan"][:4])
    for file in tmp_path.glob(lost):
        file.unlink()
    (finding,) = examine_config(config, LiveWorld()).report.errors
    assert finding.rule == rule and finding.text().startswith(said)


def test_a_pickle_that_such_a_model_is_published_as_is_not_complained_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Wan the VAE and the text encoder are, and nothing here would look into them in another form either."""
    monkeypatch.chdir(tmp_path)
    file, text, *beside, _ = FAMILIES["musubi-tuner Wan"]
    config = patient(tmp_path, file, text.replace("--sdpa", "--sdpa --vae Wan2.1_VAE.pth"), *beside)
    (tmp_path / "Wan2.1_VAE.pth").write_bytes(b"PK\3\4" + bytes(26) + b"archive/data.pkl")
    report = examine_config(config, LiveWorld()).report
    assert not report.findings, [finding.text() for finding in report.findings]


def test_a_dataset_that_nothing_looks_into_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of pictures, a dataset of another kind than a folder, and pictures beyond those that are opened."""
    monkeypatch.chdir(tmp_path)
    file, text, backend, *_ = FAMILIES["SimpleTuner Sana"]
    remote = [{**BACKEND[0], "type": "huggingface", "dataset_name": "a/b"}, BACKEND[1]]
    patient(tmp_path, file, text, backend, json.dumps(remote))
    assert reason(examine_config(file, LiveWorld()).report, "datasets") == (
        "datasets/0 names no folder that could be looked at"
    )
    for picture in (tmp_path / "pictures").iterdir():
        picture.unlink()
    (tmp_path / "pictures" / "shard-0.tar").touch()
    (tmp_path / backend).write_text(json.dumps(BACKEND), encoding="utf-8")
    assert reason(examine_config(file, LiveWorld()).report, "datasets") == (
        f"{tmp_path / 'pictures'} holds other files than pictures, and they are not looked into"
    )


def reason(report: Report, what: str) -> str:
    return next(one.reason for one in report.not_judged if one.what == what)


def test_of_a_slider_neither_paths_nor_disks_are_judged(tmp_path: Path) -> None:
    text = AI_TOOLKIT.replace("sd_trainer", "slider").replace("ARCHITECTURE", "sd1")
    report = examine_config(str(tmp_path / "slider.yaml"), LiveWorld(), text=text.encode()).report
    assert {"model files", "memory", "datasets", "paths", "disk space"} <= {one.what for one in report.not_judged}
