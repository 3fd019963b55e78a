"""A damaged folder is replaced by a complete copy from the hub cache; the copy really loads."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from diffusers.models.transformers import transformer_z_image

from zdoctor.checks.model.files import incomplete_model_folder, unreadable_weight_file
from zdoctor.checks.model.tensors import missing_checkpoint_tensors
from zdoctor.doctor.apply import apply
from zdoctor.doctor.model import (
    ExtractFiles,
    Finding,
    Fix,
    Hub,
    HubFile,
    HubRepo,
    ModelFolder,
    Place,
    Plan,
    Run,
    SetValue,
    Speed,
    Storage,
)
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.storage import probe_storage
from zdoctor.fixes.model import (
    extract_from_the_cache,
    name_the_model,
    replace_by_a_complete_copy,
    say_what_to_download,
    take_parts_from_the_family,
)
from zdoctor.tests.models import copy_to, healthy, probed, run_of

ZImageTransformer2DModel: Any = transformer_z_image.ZImageTransformer2DModel
SSD = Speed("/", "ssd", "ext4", 1e-4, 5e8, 6e8, "measured")
DISK = Speed("/", "hdd", "ext4", 1e-2, 8e7, 9e7, "measured")


def cached(folder: Path, repo: str = "acme/Z-Tiny", bad: str = "", **changes: Any) -> HubRepo:
    """The healthy pipeline as a repository of a cache; the file `bad` is broken and has no other copy."""
    files = []
    for file in sorted(f for f in folder.rglob("*") if f.is_file()):
        name = str(file.relative_to(folder))
        digest = "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()
        state: Any = "wrong-content" if name == bad else "ok"
        files.append(HubFile(name, str(file), None, state, file.stat().st_size, digest))
    files.append(HubFile("README.md", "/gone", None, "missing", None, None, needed=False))
    known = HubRepo(repo, "/hub", "/hub/x", "ok", "", "", "0" * 40, str(folder), False, tuple(files))
    return replace(known, **changes)


def storage(tmp_path: Path, *, free: int = 10**12, now: Speed = SSD, speed: Speed | None = SSD) -> Storage:
    refused = Place("/read-only", free, SSD, "read-only file system")
    return Storage(now, 10**6, (refused, Place(str(tmp_path / "models"), free, speed)))


def truncated(folder: Path) -> Path:
    """A copy of the healthy folder in which one shard is cut."""
    copy_to(folder)
    shard = sorted((folder / "transformer").glob("*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:-10])
    return folder


def seen(run: Run) -> tuple[Finding, ModelFolder]:
    model = probed(run)
    for rule in (incomplete_model_folder, unreadable_weight_file, missing_checkpoint_tensors):
        for finding in rule(run, model):
            return finding, model
    raise AssertionError("nothing was found")


def carried_out(fix: Fix) -> str:
    """Copy what the fix says, and return the value it writes into the config."""
    value = ""
    for step in fix.steps:
        if isinstance(step, ExtractFiles):
            for item in step.items:
                target = Path(step.path) / item.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(item.source, target)
                assert target.stat().st_size == item.size
        else:
            assert isinstance(step, SetValue)
            value = step.value
    return value


def test_a_copy_that_was_cut_short_is_offered_again_where_its_rest_fits(tmp_path: Path) -> None:
    run = run_of(truncated(tmp_path / "my-Z-Tiny"))
    finding, model = seen(run)
    hub = Hub(("/hub",), (cached(healthy()),))

    def offered(place: Place) -> list[Fix]:
        return list(replace_by_a_complete_copy(finding, run, model, hub, Storage(SSD, 10**6, (place,))))

    (extract, _) = offered(Place(str(tmp_path / "models"), 10**12, SSD))[0].steps
    assert isinstance(extract, ExtractFiles)
    last = extract.items[-1].name

    def stop(done: int, total: int, name: str) -> None:
        if name == last:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="are kept in"):
        apply(Plan("c.yaml", (Fix("copy", (extract,)),)), state=tmp_path / "state", progress=stop)
    places = probe_storage(LiveWorld(cwd=str(tmp_path), home=str(tmp_path)), run, model).places
    here = next(place for place in places if place.folder == str(tmp_path / "models"))
    total = sum(item.size for item in extract.items)
    assert here.parts == (("Z-Tiny", total - extract.items[-1].size),)
    tight = replace(here, free=extract.items[-1].size + total // 50)
    assert [fix.steps[0] for fix in offered(tight)] == [extract]
    assert not any(fix.steps for fix in offered(replace(tight, parts=())))


def test_a_damaged_copy_of_one_cached_repository_is_replaced_safely(tmp_path: Path) -> None:
    run = run_of(truncated(tmp_path / "my-Z-Tiny"))
    finding, model = seen(run)
    with pytest.raises(OSError, match="Unable to load weights"):
        ZImageTransformer2DModel.from_pretrained(run.recipe.base_model, subfolder="transformer")
    before = sorted((f, f.stat().st_mtime_ns) for f in (tmp_path / "my-Z-Tiny").rglob("*"))
    hub = Hub(("/hub",), (cached(healthy()),))
    fix = next(replace_by_a_complete_copy(finding, run, model, hub, storage(tmp_path)))
    assert (fix.safety, fix.training_effect, fix.order) == ("safe", "none", 1)
    extract, setting = fix.steps
    assert isinstance(extract, ExtractFiles) and isinstance(setting, SetValue)
    assert extract.path == str(tmp_path / "models" / "Z-Tiny")
    assert setting.pointer == run.pointer("base_model")
    assert all(item.digest for item in extract.items)
    assert "README.md" not in {item.name for item in extract.items}
    cured = run_of(carried_out(fix))
    ZImageTransformer2DModel.from_pretrained(cured.recipe.base_model, subfolder="transformer").to("cpu")
    with pytest.raises(AssertionError, match="nothing"):
        seen(cured)
    assert before == sorted((f, f.stat().st_mtime_ns) for f in (tmp_path / "my-Z-Tiny").rglob("*"))


def test_a_folder_by_another_name_or_two_candidates_are_asked_about(tmp_path: Path) -> None:
    run = run_of(truncated(tmp_path / "mine"))
    finding, model = seen(run)
    one = cached(healthy())
    (fix,) = replace_by_a_complete_copy(finding, run, model, Hub((), (one,)), storage(tmp_path))
    assert fix.safety == "ask"
    two = Hub((), (one, replace(one, repo="acme/Other")))
    fixes = list(replace_by_a_complete_copy(finding, run, model, two, storage(tmp_path)))
    assert [fix.safety for fix in fixes] == ["ask", "ask"]


@pytest.mark.parametrize("case", ["none", "other sizes", "broken"])
def test_without_a_source_the_command_is_shown(case: str, tmp_path: Path) -> None:
    run = run_of(truncated(tmp_path / "Z-Tiny"))
    finding, model = seen(run)
    whole = cached(healthy())
    grown = replace(whole, files=tuple(replace(f, size=(f.size or 0) + 1) for f in whole.files))
    broken = cached(healthy(), bad="vae/config.json")
    repos = {"none": (), "other sizes": (grown,), "broken": (broken,)}[case]
    assert list(replace_by_a_complete_copy(finding, run, model, Hub((), repos), storage(tmp_path))) == []
    (fix,) = say_what_to_download(finding, run, model, Hub((), repos))
    assert fix.safety == "show" and not fix.steps
    assert fix.command.startswith("hf download ")


def test_a_good_copy_elsewhere_is_a_source(tmp_path: Path) -> None:
    run = run_of(truncated(tmp_path / "Z-Tiny"))
    finding, model = seen(run)
    repo = cached(healthy(), bad="vae/config.json")
    spare = tmp_path / "spare.json"
    shutil.copyfile(healthy() / "vae" / "config.json", spare)
    files = tuple(replace(f, good_copy=str(spare)) if f.name == "vae/config.json" else f for f in repo.files)
    hub = Hub((), (replace(repo, files=files),))
    fix = next(replace_by_a_complete_copy(finding, run, model, hub, storage(tmp_path)))
    extract = fix.steps[0]
    assert isinstance(extract, ExtractFiles)
    assert str(spare) in {item.source for item in extract.items}


def test_no_room_no_extraction(tmp_path: Path) -> None:
    run = run_of(truncated(tmp_path / "Z-Tiny"))
    finding, model = seen(run)
    hub = Hub((), (cached(healthy()),))
    (fix,) = replace_by_a_complete_copy(finding, run, model, hub, storage(tmp_path, free=1000))
    assert fix.safety == "show" and fix.title.startswith("free ") and "MB" in fix.title
    assert fix.command == f'cp -rL "{hub.repos[0].snapshot}" "<folder>"'
    there = Hub((), (replace(hub.repos[0], snapshot="C:\\hub\\a b"),))
    (fix,) = replace_by_a_complete_copy(finding, run, model, there, storage(tmp_path, free=1000))
    assert fix.command == 'robocopy "C:\\hub\\a b" "<folder>" /E'
    assert list(say_what_to_download(finding, run, model, hub)) == []


def on_the_hub(run: Run) -> ModelFolder:
    return replace(probed(run_of(healthy())), source=run.recipe.base_model or "", repo="acme/Z-Tiny", commit="0" * 40)


def test_slow_storage_is_left_for_a_faster_place_only(tmp_path: Path) -> None:
    run = run_of("acme/Z-Tiny")
    hub = Hub((), (cached(healthy()),))
    finding = Finding("slow", rule="DSK001")
    model = on_the_hub(run)
    slow = storage(tmp_path, now=DISK)
    (fix,) = extract_from_the_cache(finding, run, model, hub, slow)
    assert fix.safety == "safe" and carried_out(fix) == str(tmp_path / "models" / "Z-Tiny")
    assert list(extract_from_the_cache(finding, run, model, hub, storage(tmp_path))) == []
    assert list(extract_from_the_cache(finding, run, model, hub, storage(tmp_path, now=DISK, speed=None))) == []


def test_an_online_source_becomes_a_folder_or_the_snapshot_itself(tmp_path: Path) -> None:
    run = run_of("acme/Z-Tiny")
    hub = Hub((), (cached(healthy()),))
    finding = Finding("online", rule="HUB006")
    copy, direct = extract_from_the_cache(finding, run, on_the_hub(run), hub, storage(tmp_path, speed=None))
    assert isinstance(copy.steps[0], ExtractFiles)
    assert [step.value for step in direct.steps if isinstance(step, SetValue)] == [str(healthy())]


def test_parts_that_come_from_elsewhere_are_not_copied(tmp_path: Path) -> None:
    run = run_of("acme/Z-Tiny", extras_name_or_path="Tongyi-MAI/Z-Image-Turbo")
    hub = Hub((), (cached(healthy()),))
    copy = next(
        extract_from_the_cache(Finding("", rule="HUB006"), run, on_the_hub(run), hub, storage(tmp_path))
    ).steps[0]
    assert isinstance(copy, ExtractFiles)
    assert not any(item.name.startswith(("text_encoder/", "vae/", "tokenizer/")) for item in copy.items)


def test_missing_parts_are_named_from_the_cached_family() -> None:
    run = run_of(healthy() / "transformer")
    finding, _ = seen(run)
    turbo = cached(healthy(), "Tongyi-MAI/Z-Image-Turbo")
    (fix,) = take_parts_from_the_family(finding, run, Hub((), (turbo,)))
    (step,) = fix.steps
    assert isinstance(step, SetValue)
    assert (step.pointer, step.value, fix.safety) == (
        run.pointer("extras_model"),
        "Tongyi-MAI/Z-Image-Turbo",
        "safe",
    )
    cured = run_of(healthy() / "transformer", extras_name_or_path=str(healthy()))
    assert list(incomplete_model_folder(cured, probed(cured))) == []


def test_a_cache_root_is_replaced_by_its_snapshot(tmp_path: Path) -> None:
    root = tmp_path / "models--acme--Z-Tiny"
    copy_to(root / "snapshots" / ("0" * 40))
    run = run_of(root)
    finding, _ = seen(run)
    (fix,) = name_the_model(finding, run)
    assert carried_out(fix) == str(root / "snapshots" / ("0" * 40))
    (root / "snapshots" / ("1" * 40)).mkdir()
    finding, _ = seen(run)
    assert list(name_the_model(finding, run)) == []


def test_windows_paths_are_written_with_forward_slashes() -> None:
    run = run_of("acme/Z-Tiny")
    place = Storage(DISK, 1, (Place("D:\\data\\models", 10**12, SSD),))
    repo = cached(healthy())
    (fix,) = extract_from_the_cache(Finding("", rule="DSK001"), run, on_the_hub(run), Hub((), (repo,)), place)
    extract, setting = fix.steps
    assert isinstance(extract, ExtractFiles) and isinstance(setting, SetValue)
    assert (extract.path, setting.value) == ("D:\\data\\models\\Z-Tiny", "D:/data/models/Z-Tiny")
