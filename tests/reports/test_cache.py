"""The inventory of the hub caches as a person and a program read it. Regenerate with `--golden`."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from zdoctor.doctor import languages
from zdoctor.doctor.model.caches import Inventory, Waste
from zdoctor.doctor.probe.hub.inventory import probe_inventory
from zdoctor.reports import cache, cache_json
from zdoctor.reports.painting import Screen, paint
from zdoctor.reports.waste import _delete
from zdoctor.tests.doctor.probe.test_hub import COMMIT, MODEL, POSIX, cached, machine
from zdoctor.tests.hub_server import sha256
from zdoctor.tests.reports.test_reports import compare

OLD = "a" * 40


def seen(os: str = "linux") -> Inventory:
    """Two caches with one of everything: made up, small, and the same on every machine."""
    files = cached(os, MODEL)
    good, bad = f"{POSIX}/models--acme--tiny", f"{POSIX}/models--acme--broken"
    files |= {path.replace(good, bad): dict(entry) for path, entry in cached(os, MODEL).items()}
    files[f"{bad}/blobs/{sha256(MODEL['vae/diffusion_pytorch_model.safetensors'].encode())}"] = {"text": "cut"}
    for name in MODEL:
        files[f"{bad}/snapshots/{OLD}/{name}"] = {"text": MODEL[name]}
    files[f"{bad}/trees/{OLD}.json"] = dict(files[f"{bad}/trees/{COMMIT}.json"])
    files |= {
        f"{good}/blobs/{'e' * 64}": {"size": 3_000_000_000},
        f"{good}/blobs/{'f' * 64}.0a1b2c3d.incomplete": {"size": 700_000_000},
        f"{good}/blobs/{'f' * 64}.4e5f6a7b.incomplete": {"size": 80_000_000, "modified_ns": 10**18},
        f"{good}/.zdoctor-quarantine/20260102-030405-000000-aa/quarantine/blobs/x": {"size": 2_000_000},
        f"{POSIX}/models--evil--\x1b[2Jname/refs/main": {"text": COMMIT},
        f"{POSIX}/models--acme--locked/snapshots": {"unknown": "EACCES: Permission denied"},
        f"{POSIX}/datasets--acme--pictures/snapshots/{COMMIT}/train.parquet": {"size": 5_000_000},
        f"{POSIX}/blobs/.huggingface-shared-blobs": {"text": "1\n"},
    }
    for entry in (path for path in list(files) if path.startswith(POSIX)):
        files[entry.replace(POSIX, "/mnt/data/hf/hub", 1)] = files[entry]
    kept = {p: e for p, e in files.items() if "/mnt/" not in p or "--acme--tiny/" in p}
    return probe_inventory(machine(os, kept, elsewhere=["/mnt/data/hf/hub"]))


def test_terminal(request: pytest.FixtureRequest) -> None:
    compare("cache.txt", paint(cache.lines(seen())), request)


@pytest.mark.parametrize("language", ["zh_CN", "zh_TW", "vi"])
def test_no_text_stays_english(language: str) -> None:
    languages.speak(language)
    try:
        text = paint(cache.lines(seen()))
    finally:
        languages.speak(languages.ENGLISH)
    left = [line for line in text.splitlines() if re.search(r"\b(of|is|are|it|to|the|was|repair|empty)\b", line)]
    assert not [line for line in left if "$ " not in line and not line.strip().startswith("/")]


def test_json(request: pytest.FixtureRequest) -> None:
    compare("cache.json", cache_json.render(seen()), request)


def test_colour_changes_no_word() -> None:
    plain, coloured = paint(cache.lines(seen())), paint(cache.lines(seen()), Screen(color=True))
    assert "\x1b[" in coloured and "\x1b" not in plain
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in bare.splitlines()] == plain.splitlines()
    assert "\x1b[2J" not in coloured


def test_json_carries_what_a_terminal_must_not_see() -> None:
    text = cache_json.render(seen())
    assert "\x1b" not in text
    data: dict[str, Any] = json.loads(text)
    assert "evil/\x1b[2Jname" in [repo["repo"] for repo in data["caches"][0]["repos"]]


@pytest.mark.parametrize(
    ("folder", "command"),
    [("/hub/a b", 'rm -r "/hub/a b"'), ("C:\\hub\\a b", 'cmd /c rmdir /s "C:\\hub\\a b"')],  # also in PowerShell
)
def test_what_deletes_a_folder(folder: str, command: str) -> None:
    assert _delete(Waste("quarantine", "org/name", (folder,), 1)) == command
