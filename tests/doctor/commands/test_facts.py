"""`zdoctor facts`: nothing that was planted in the environment, the config, paths or files is in what it writes."""

from __future__ import annotations

import base64
import json
import random
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.model import System
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.doctor.probe.redaction import redact

CONFIG = """\
job: extension
config:
  name: {project}
  process:
    - type: sd_trainer
      training_folder: {home}/{project}/output
      network: {{type: lora, linear: 16, pretrained_lora_path: {home}/{project}/{person}.safetensors}}
      datasets:
        - folder_path: {disk}/{person} & friends/100%
          default_caption: a portrait of {person}
      logging: {{api_key: {secret}}}
      model:
        name_or_path: {company}/{project}
        hf_token: {token}
        mirror: https://{company}:{password}@{server}.{company}.example/models?sig={signature}
        share: '\\\\{server}\\{project}'
"""
PLANTED = ("user", "project", "person", "company", "server", "secret", "token", "password", "signature", "folder")


def planted(seed: int) -> dict[str, str]:
    chance = random.Random(seed)

    def word(length: int) -> str:
        return "".join(chance.choice("bdfgklmnprstvz") + chance.choice("aeiou") for _ in range(length)) + "q"

    made = {name: word(4) for name in PLANTED}
    return {**made, "token": "hf_" + word(12), "secret": word(16), "signature": word(10)}


@pytest.mark.parametrize("seed", range(6))
def test_nothing_that_was_planted_survives(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    has = planted(seed)
    home, disk = tmp_path / "home" / has["user"], tmp_path / has["folder"]
    data = disk / f"{has['person']} & friends" / "100%"
    data.mkdir(parents=True)
    (data / f"{has['person']}_01.txt").write_text(f"{has['person']} smiles")
    (data / f"{has['person']}_01.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(60))
    notes = {"ss_dataset_dirs": json.dumps({has["person"]: 1}), "ss_training_comment": has["password"]}
    header = json.dumps(
        {"__metadata__": notes, "a.lora_down.weight": tensor(0), "a.lora_up.weight": tensor(4)}
    ).encode()
    lora = home / has["project"] / f"{has['person']}.safetensors"
    lora.parent.mkdir(parents=True)
    lora.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    config = home / has["project"] / f"{has['person']}.yaml"
    config.write_text(CONFIG.format(**has, home=home, disk=disk))
    for name, value in {
        "HOME": str(home),
        "USER": has["user"],
        "HF_HOME": str(disk / "hub of " / has["company"]),
        "HF_TOKEN": has["token"],
        "WANDB_API_KEY": has["secret"],
        "HTTPS_PROXY": f"http://{has['user']}:{has['password']}@{has['server']}.{has['company']}.example:80",
        "NO_PROXY": f"localhost,.{has['company']}.example,{has['server']}",
        "HF_ENDPOINT": f"https://{has['server']}/hub",
        "HOSTNAME": has["server"],
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(config.parent)
    monkeypatch.setattr("socket.gethostname", lambda: has["server"])
    assert main(["facts", str(config), "-o", str(tmp_path / "me.json")]) == 0
    record = json.loads((tmp_path / "me.json").read_text(encoding="utf-8"))
    text = everything(record)
    assert [name for name, value in has.items() if value.lower() in text.lower()] == []
    assert record["config"]["text"].count("\n") == CONFIG.count("\n")
    told = capsys.readouterr().err
    for kind in ("home folder", "token or password", "host name", "word of a path or of the config"):
        assert re.search(rf"[1-9]\d* × {kind}", told) and record["redacted"][kind]


def tensor(at: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [1, 1], "data_offsets": [at, at + 4]}


def everything(record: dict[str, Any]) -> str:
    coded = [coded for entry in record["files"].values() for _, coded in (entry or {}).get("ranges", ())]
    return json.dumps(record, ensure_ascii=False) + "".join(base64.b64decode(one).decode("latin-1") for one in coded)


def test_the_bundle_replays_with_its_own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home" / "wilma"
    data = home / "pictures-of-fredo"
    data.mkdir(parents=True)
    (home / "flintcave.yaml").write_text(
        "job: extension\nconfig:\n  name: flintcave\n  process:\n    - type: sd_trainer\n"
        f"      network: {{type: lora, linear: 16, pretrained_lora_path: {data}}}\n"
        f"      datasets:\n        - folder_path: {home}/gone-barneyfolk\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    assert main(["facts", "flintcave.yaml", "-o", str(tmp_path / "me.json")]) == 0
    record = json.loads((tmp_path / "me.json").read_text(encoding="utf-8"))
    (home / "bundle.yaml").write_text(record["config"]["text"])
    live = examine_config("flintcave.yaml", LiveWorld()).report
    replayed = examine_config("bundle.yaml", RecordedWorld(record)).report
    found = sorted(f.rule for f in live.findings if f.rule.startswith("PTH"))
    assert found and sorted(f.rule for f in replayed.findings if f.rule.startswith("PTH")) == found


def test_paths_stay_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "flintcave.yaml"
    config.write_text("job: extension\nconfig: {name: flintcave, process: [{type: sd_trainer}]}\n")
    monkeypatch.setenv("HF_TOKEN", "hf_planted_secret_0123456789")
    assert main(["facts", str(config), "--keep-paths", "-o", str(tmp_path / "me.json")]) == 0
    text = (tmp_path / "me.json").read_text(encoding="utf-8")
    assert "flintcave.yaml" in text and "hf_planted" not in text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("C:\\Users\\wilma\\x and C:/Users/wilma/x", "C:\\Users\\user\\x and C:/Users/user/x"),
        ("C:\\\\Users\\\\WILMA\\\\x", "C:\\\\Users\\\\user\\\\x"),
        ("D:\\Users\\barney\\lora", "D:\\Users\\user2\\lora"),
        ("\\\\quarry\\lora and https://huggingface.co/x", "\\\\host\\lora and https://huggingface.co/x"),
        ("https://me:pw@github.com/a?token=abc&b=1", "https://***@github.com/a?token=***&b=1"),
        ("wilma@slate.example", "someone@host"),
        ("--hf_token=abcdefgh --lr=1e-4", "--hf_token=*** --lr=1e-4"),
        ("wilmas lora/wilma_lora", "wilmas lora/user_lora"),
    ],
)
def test_what_stands_in_for_what(text: str, left: str) -> None:
    system = System("windows", "Windows 11", "3.12", "C:\\w", "C:\\Users\\wilma", 8, 1, 1)
    record: dict[str, Any] = {name: [] for name in ("mounts", "speeds", "elsewhere")}
    record |= {"system": {"environment": {}}, "files": {}, "about": text}
    made = redact(record, system, {"USERNAME": "wilma"}, "desktop-1")
    assert made["about"] == left and sum(made["redacted"].values()) >= 1


def test_options_of_the_trainers_are_nobodys_words() -> None:
    record: dict[str, Any] = {name: [] for name in ("mounts", "speeds", "elsewhere")}
    record |= {
        "system": {"environment": {}},
        "files": {},
        "config": {"text": "--debiased_estimation_loss --flintcave"},
    }
    system = System("linux", "Linux 6", "3.12", "/w", "/home/wilma", 8, 1, 1)
    assert redact(record, system, {}, "")["config"]["text"] == "--debiased_estimation_loss --w1"
