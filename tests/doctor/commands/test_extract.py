"""`zdoctor extract`: a cached repository as a plain folder, from a cache that the real client made."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from zdoctor.doctor.apply import ApplyError, apply, undo
from zdoctor.doctor.cli import main
from zdoctor.doctor.commands.extract import plan_extraction
from zdoctor.doctor.errors import UserError
from zdoctor.doctor.model import CopyItem, ExtractFiles, Fix, Plan
from zdoctor.doctor.probe.live import STEADY_FILESYSTEMS, LiveWorld
from zdoctor.doctor.state.receipts import Key, Receipts
from zdoctor.tests.hub_cache import BIG, MODEL, REPO, Cache, download
from zdoctor.tests.hub_server import HubServer

SHARD = next(name for name in MODEL if name.startswith("transformer/") and name.endswith(".safetensors"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    with HubServer({REPO: MODEL}) as server:
        yield download(server, tmp_path_factory.mktemp("hub") / "linked", "linked")


@pytest.fixture
def cache(made: Cache, tmp_path: Path) -> Cache:
    return made.copy(tmp_path / "hub")


def names(plan: Plan) -> set[str]:
    return {item.name for step in plan.steps if isinstance(step, ExtractFiles) for item in step.items}


@pytest.mark.parametrize("revision", ["", "@{commit}", "@main", "@v1.0", "@refs/pr/1", "@{prefix}"])
def test_every_file_arrives_and_can_be_taken_back(cache: Cache, tmp_path: Path, revision: str) -> None:
    for ref in ("v1.0", "refs/pr/1"):
        (cache.repo / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (cache.repo / "refs" / ref).write_text(cache.commit)
    source = REPO + revision.format(commit=cache.commit, prefix=cache.commit[:7])
    plan = plan_extraction(cache.world(), source, str(tmp_path / "model"))
    done = apply(plan, state=tmp_path / "state")
    found = {p.relative_to(tmp_path / "model").as_posix(): p for p in (tmp_path / "model").rglob("*") if p.is_file()}
    note = f".cache/huggingface/trees/{cache.commit}.json"  # where the client keeps it in a folder
    expected = {**MODEL, note: cache.manifest.read_bytes()}
    assert {name: path.read_bytes() for name, path in found.items()} == expected
    assert not any(path.is_symlink() for path in found.values())
    undo(done.id, state=tmp_path / "state")
    assert not (tmp_path / "model").exists()


def test_a_revision_that_is_not_here_or_not_clear(cache: Cache, tmp_path: Path) -> None:
    other = cache.commit[:9] + "".join("0" if digit != "0" else "1" for digit in cache.commit[9:])
    shutil.copytree(cache.file(""), cache.repo / "snapshots" / other, symlinks=True)
    (cache.repo / "refs" / "gone").write_text("f" * 40)
    for revision, says in (
        ("v2", "not at v2"),
        ("gone", "not at gone"),
        ("f" * 40, "not at ffff"),
        (cache.commit[:6], "not at"),
        (cache.commit[:9], "stands for 2 commits"),
        ("../main", "not at"),
    ):
        with pytest.raises(UserError, match=says) as error:
            plan_extraction(cache.world(), f"{REPO}@{revision}", str(tmp_path / "model"))
        assert "digits" in error.value.hint or "main" in error.value.hint
    plan = plan_extraction(cache.world(), f"{REPO}@{other[:10]}", str(tmp_path / "model"))
    assert names(plan) == set(MODEL)


def test_a_slip_in_the_name(cache: Cache, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        plan_extraction(cache.world(), REPO.replace("image", "imag"), str(tmp_path / "model"))
    assert caught.value.hint == f"Did you mean {REPO}?"


def test_only_the_model(cache: Cache, tmp_path: Path) -> None:
    plan = plan_extraction(cache.world(), REPO, str(tmp_path / "model"), model_only=True)
    assert SHARD in names(plan) and "README.md" not in names(plan)


def test_only_some_parts_also_when_another_one_is_damaged(cache: Cache, tmp_path: Path) -> None:
    cache.blob(SHARD).unlink()
    plan = plan_extraction(cache.world(), REPO, str(tmp_path / "model"), only=("vae", "model_index.json"))
    note = f".cache/huggingface/trees/{cache.commit}.json"
    assert names(plan) == {note, "model_index.json", *(name for name in MODEL if name.startswith("vae/"))}
    with pytest.raises(UserError, match="no vea") as error:
        plan_extraction(cache.world(), REPO, str(tmp_path / "model"), only=("vea",))
    assert "transformer, vae" in error.value.hint
    with pytest.raises(UserError, match=SHARD):
        plan_extraction(cache.world(), REPO, str(tmp_path / "model"), only=("transformer",))


def test_hard_links_are_the_files_of_the_cache(cache: Cache, tmp_path: Path) -> None:
    plan = plan_extraction(cache.world(), REPO, str(tmp_path / "model"), hardlink=True)
    before = {name: (path.stat().st_mode, path.read_bytes()) for name in MODEL for path in [cache.blob(name)]}
    done = apply(plan, state=tmp_path / "state")
    for name in MODEL:
        assert (tmp_path / "model" / name).samefile(cache.blob(name)), name
    undo(done.id, state=tmp_path / "state")
    assert {name: (path.stat().st_mode, path.read_bytes()) for name in MODEL for path in [cache.blob(name)]} == before
    flipped = bytearray(MODEL[BIG])
    flipped[-1] ^= 1
    cache.blob(BIG).chmod(0o644)
    cache.blob(BIG).write_bytes(flipped)
    with pytest.raises(ApplyError, match="is corrupt"):
        apply(plan, state=tmp_path / "state")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("name", ["../../../evil", "/evil", "C:evil", "a\\..\\evil", "nul\0", "vae/../../evil"])
def test_a_file_list_that_leads_out_of_the_folder_is_not_followed(cache: Cache, tmp_path: Path, name: str) -> None:
    entry = {"size": 2, "blob_id": "a" * 40}
    cache.manifest.write_text(json.dumps({"format_version": 1, "files": {name: entry}}))
    plan = plan_extraction(cache.world(), REPO, str(tmp_path / "model"))
    assert names(plan) == set(MODEL)


def test_a_damaged_file_is_named_and_nothing_is_copied(cache: Cache, tmp_path: Path) -> None:
    blob = cache.blob(SHARD)
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes()[:-5])
    with pytest.raises(UserError, match=SHARD):
        plan_extraction(cache.world(), REPO, str(tmp_path / "model"))


def test_the_command_says_what_could_not_be_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where links are refused and the client is old, no blob name and no file list says what a file should hold."""
    with HubServer({REPO: MODEL}) as server:
        cache = download(server, tmp_path / "plain", "plain")
    monkeypatch.setenv("HF_HUB_CACHE", str(cache.root))
    assert main(["extract", REPO, str(tmp_path / "one"), "--only", "vae"]) == 0
    assert "every file verified" in capsys.readouterr().out
    cache.manifest.unlink()
    assert main(["extract", REPO, str(tmp_path / "two"), "--only", "vae"]) == 0
    said = capsys.readouterr().out
    assert "2 files could not be verified" in said and "every file verified" not in said
    assert (tmp_path / "two" / BIG).read_bytes() == MODEL[BIG]


def test_a_deep_check_need_not_read_what_was_extracted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extraction hashed the files of the cache, and says so in receipts."""
    source, digest = tmp_path / "large", "sha256:" + hashlib.sha256(bytes(5 << 20)).hexdigest()
    source.write_bytes(bytes(5 << 20))
    really = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: really() + 10 * 10**9)  # as if it had lain there for a while
    plan = Plan(
        "c", (Fix("t", (ExtractFiles(str(tmp_path / "m"), (CopyItem(str(source), "x", 5 << 20, digest),)),)),)
    )
    apply(plan, state=tmp_path / "state")
    if LiveWorld().mount(str(source)).filesystem not in STEADY_FILESYSTEMS:  # type: ignore[union-attr]
        pytest.skip("the temporary folder lies on a file system that is not trusted")
    assert Receipts(tmp_path / "state").recall(Key.of(source.stat()), "sha256") == digest
    assert Receipts(tmp_path / "state").recall(Key.of((tmp_path / "m" / "x").stat()), "sha256") is None


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("x" * 300, "File name too long. Nothing was done."),
        ("x" * 250, "zdoctor-part: File name too long. Nothing was done."),
        ("~no-such-user/x", "there is no such user"),
        ("file/x", "file is no folder. Nothing was done."),
        ("", "already exists"),
        (".", "already exists"),
        ("hub/mine", "lies inside the hub cache"),
    ],
)
def test_a_target_that_cannot_be_is_one_clear_line(
    cache: Cache,
    tmp_path: Path,
    target: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(cache.root))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(["extract", REPO, target]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "says"),
    [("nobody/nothing", "in no hub cache"), ("one-word", "names no repository"), ("../x", "no hub cache|names no")],
)
def test_what_is_not_there_is_said(cache: Cache, tmp_path: Path, source: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        plan_extraction(cache.world(), source, str(tmp_path / "model"))
