"""`zdoctor cache` as a user meets it: what is shown, exit codes, and the repair of a repository without a config."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.commands.cache import inventory, repair
from zdoctor.tests.doctor.trees import snapshot
from zdoctor.tests.hub_cache import BIG, MODEL, REPO, SHARD, Cache, load
from zdoctor.tests.hub_cases import SICK, Sickness, in_one_layout
from zdoctor.tests.hub_server import HubServer
from zdoctor.tests.reports.documents import valid

Caches = dict[str, Cache]


@pytest.fixture(autouse=True)
def of_its_own(server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command looks at the machine it runs on: home, caches and hub are those of the test."""
    for name in ("HF_HOME", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> int:
    try:
        return main(["cache", *words])
    except SystemExit as stop:
        return int(stop.code or 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["acme/tiny-imag"], f"Did you mean {REPO}?"),
        (["somebody/else"], "zdoctor cache lists what is cached"),
        (["--fix"], "needs the name"),
        ([REPO, "--apply"], "goes with --fix"),
        (["acme/pictures", "--fix"], "repairs models"),
        (["--format", "yaml"], "invalid choice"),
    ],
)
def test_a_mistake_is_one_clear_line(
    words: list[str], says: str, caches: Caches, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    (cache.root / "datasets--acme--pictures").mkdir()
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert says in error and error.startswith("zdoctor: ")


def test_a_machine_without_a_cache(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert "nothing is cached here" in capsys.readouterr().out


def test_the_formats_agree(caches: Caches, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    caches["plain"].copy(tmp_path / "home" / ".cache" / "huggingface" / "hub")
    before = snapshot(tmp_path)
    for spoiled in (False, True):
        if spoiled:
            cache.blob(SHARD).unlink()
            before = snapshot(tmp_path)
        assert run() == run("--format", "json") == int(spoiled)
        text, _, data = capsys.readouterr().out.partition('{\n  "schema"')
        found = valid('{"schema"' + data)
        assert found["schema"] == "zdoctor.cache/1" and found["ok"] == (not spoiled)
        assert [c["active"] for c in found["caches"]] == [True, False]
        for shown in found["caches"]:
            assert shown["path"] in text
            assert all(f"{repo['health']:<11} {repo['repo']}" in text for repo in shown["repos"])
        assert (f"zdoctor cache {REPO} --fix" in text) == spoiled
        assert found["duplicates"][0]["waste"] == len(MODEL[BIG])
    assert snapshot(tmp_path) == before  # looking changes nothing


def test_deep_proves_and_says_so(caches: Caches, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    caches["linked"].copy(tmp_path / "hub")
    assert run(REPO) == 0 and "next: zdoctor cache acme/tiny-image --deep" in capsys.readouterr().out
    assert run(REPO, "--deep") == 0
    text = capsys.readouterr().out
    assert "verified    acme/tiny-image" in text and "next:" not in text


@pytest.mark.parametrize(("sickness", "layout"), in_one_layout(SICK))
def test_a_cure_without_a_config(
    sickness: Sickness, layout: str, caches: Caches, server: HubServer, tmp_path: Path
) -> None:
    cache = caches[layout].copy(tmp_path / "hub")
    sickness.spoil(cache)
    before, served = snapshot(cache.root), server.served
    plan = repair(REPO, deep=sickness.deep)[0].plan
    assert {fix.rule for fix in plan.fixes} - {"HUB004"} == {sickness.rule} and snapshot(cache.root) == before
    done = repair(REPO, deep=sickness.deep, apply=True)[0]
    assert server.served - served == sickness.bytes
    assert load(cache) == MODEL
    found = inventory(REPO, deep=True)
    unlisted = not cache.manifest.exists()
    assert (found.exit_code, found.repos[0].health) == (0, "unknown" if unlisted else "verified")
    assert main(["undo", done.applied[0]]) == 0
    assert snapshot(cache.root) == before


def test_what_only_a_deep_look_finds_is_mended_by_what_it_says(
    caches: Caches, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = caches["linked"].copy(tmp_path / "hub")
    sickness = next(case for case in SICK if case.deep)
    sickness.spoil(cache)
    assert run(REPO, "--deep") == 1
    command = capsys.readouterr().out.split("next: zdoctor cache ", 1)[1].split("   ")[0]
    assert run(*command.split()) == 1
    again = capsys.readouterr().out.split("next: zdoctor cache ", 1)[1].split("\n")[0]
    assert run(*command.split(), "--format", "json") == 1
    plan = valid(capsys.readouterr().out)
    assert plan["next"][0]["command"] == f"zdoctor cache {again}" and plan["applied"] is None
    assert {step["kind"] for fix in plan["fixes"] for step in fix["steps"]} == {"fetch-file"}
    assert run(*again.split(), "--format", "json") == 0
    done = valid(capsys.readouterr().out)
    assert done["applied"]["what"] and done["exit_code"] == 0 and done["before"]["exit_code"] == 1
    assert load(cache) == MODEL


def test_files_that_no_trainer_loads_are_mended_too(caches: Caches, server: HubServer, tmp_path: Path) -> None:
    """Without a config nobody says what is loaded: every file that is there should be as it was published."""
    cache = caches["linked"].copy(tmp_path / "hub")
    cache.blob("README.md").write_bytes(b"# A tiny image mode1\n")
    cache.blob("assets/sample.png").unlink()
    found = inventory(REPO)
    assert [(f.name, f.state) for f in found.repos[0].live[0].faults] == [
        ("README.md", "wrong-content"),
        ("assets/sample.png", "dangling"),
    ]
    served = server.served
    assert run(REPO, "--fix", "--apply") == 0
    assert server.served - served == len(MODEL["README.md"]) + len(MODEL["assets/sample.png"])
    assert load(cache) == MODEL


def test_every_cache_and_every_branch_is_mended(caches: Caches, tmp_path: Path) -> None:
    """The same model in two caches: each is mended from the other; and a second branch of the first."""
    cache = caches["linked"].copy(tmp_path / "hub")
    other = caches["plain"].copy(tmp_path / "home" / ".cache" / "huggingface" / "hub")
    branch = Cache(cache.root, "b" * 40)
    shutil.copytree(cache.file(""), branch.file(""), symlinks=True)
    shutil.copy(cache.manifest, branch.manifest)
    (cache.repo / "refs" / "beta").write_text(branch.commit)
    branch.file("vae/config.json").unlink()
    cache.blob(SHARD).unlink()
    other.file(BIG).unlink()
    assert inventory(REPO).exit_code == 1
    repair(REPO, apply=True)
    found = inventory(REPO, deep=True)
    assert [repo.health for repo in found.repos] == ["verified", "verified"]
    assert {ref for revision in found.repos[0].revisions for ref in revision.refs} == {"main", "beta"}
