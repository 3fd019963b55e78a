"""`zdoctor extract`: a cached repository as a plain folder, from a cache that the real client made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from zdoctor.doctor.apply import apply, undo
from zdoctor.doctor.errors import UserError
from zdoctor.doctor.extract import plan_extraction
from zdoctor.tests.hub_cases import MODEL, REPO, Cache, download
from zdoctor.tests.hub_server import HubServer

SHARD = next(name for name in MODEL if name.startswith("transformer/") and name.endswith(".safetensors"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cache]:
    with HubServer({REPO: MODEL}) as server:
        yield download(server, tmp_path_factory.mktemp("hub") / "linked", "linked")


@pytest.fixture
def cache(made: Cache, tmp_path: Path) -> Cache:
    return made.copy(tmp_path / "hub")


@pytest.mark.parametrize("pinned", [False, True])
def test_every_file_arrives_and_can_be_taken_back(cache: Cache, tmp_path: Path, pinned: bool) -> None:
    source = f"{REPO}@{cache.commit}" if pinned else REPO
    plan = plan_extraction(cache.world(), source, str(tmp_path / "model"))
    done = apply(plan, state=tmp_path / "state")
    found = {p.relative_to(tmp_path / "model").as_posix(): p for p in (tmp_path / "model").rglob("*") if p.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == MODEL
    assert not any(path.is_symlink() for path in found.values())
    undo(done.id, state=tmp_path / "state")
    assert not (tmp_path / "model").exists()


def test_only_the_model(cache: Cache, tmp_path: Path) -> None:
    (plan,) = plan_extraction(cache.world(), REPO, str(tmp_path / "model"), model_only=True).fixes
    names = {item.name for step in plan.steps for item in step.items}  # type: ignore[union-attr]
    assert SHARD in names and "README.md" not in names


def test_a_damaged_file_is_named_and_nothing_is_copied(cache: Cache, tmp_path: Path) -> None:
    blob = cache.blob(SHARD)
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes()[:-5])
    with pytest.raises(UserError, match=SHARD):
        plan_extraction(cache.world(), REPO, str(tmp_path / "model"))


@pytest.mark.parametrize(
    ("source", "says"),
    [("nobody/nothing", "in no hub cache"), ("one-word", "names no repository"), ("../x", "no hub cache|names no")],
)
def test_what_is_not_there_is_said(cache: Cache, tmp_path: Path, source: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        plan_extraction(cache.world(), source, str(tmp_path / "model"))
