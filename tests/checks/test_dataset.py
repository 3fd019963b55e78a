"""DAT001 and DAT002: what Pillow refuses is named, and what it reads is left alone."""

from __future__ import annotations

import io
import json
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pictures
from PIL import ImageOps

from zdoctor.checks.dataset import no_images, unreadable_images
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.model import DatasetFolder, Finding, Image, Run, Unknown, Value, Where
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.probe.dataset import probe_datasets
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.rules import Unestablished, all_rules, select
from zdoctor.tests.changes import changed
from zdoctor.tests.models import run_of

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


def picture(form: str, side: int = 96, **options: object) -> bytes:
    made = io.BytesIO()
    Pictures.effect_noise((side, side), 80).convert("RGB").save(made, form, **options)
    return made.getvalue()


def turned() -> bytes:
    exif = Pictures.Exif()
    exif[0x0112] = 6
    return picture("JPEG", exif=exif.tobytes())


# name, content, and what becomes of it in the trainer.
CONTENTS: list[tuple[str, Callable[[], bytes], str]] = [
    ("empty.jpg", lambda: b"", "left out"),
    ("zeros.png", lambda: bytes(5000), "left out"),
    ("pointer.png", lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "left out"),
    ("page.jpg", lambda: b"\n<!DOCTYPE html><html><body>403</body></html>", "left out"),
    ("vector.png", lambda: b"<?xml version='1.0'?><svg/>", "left out"),
    ("phone.jpg", lambda: b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(900), "left out"),
    ("film.jpg", lambda: b"\0\0\0\x18ftypisom" + bytes(900), "left out"),
    ("cut.webp", lambda: picture("WEBP")[:-40], "left out"),
    ("cut.png", lambda: picture("PNG")[:-400], "left out"),
    ("stub.png", lambda: picture("PNG")[:33], "left out"),
    ("cut.jpg", lambda: picture("JPEG")[:-400], "left out"),
    ("stub.jpg", lambda: picture("JPEG")[:33], "left out"),
    ("turned.jpg", lambda: turned()[:-400], "left out"),
    ("a.png", lambda: picture("PNG"), "read"),
    ("A.JPG", lambda: picture("JPEG", progressive=True), "read"),
    ("thumbnail.jpg", lambda: picture("JPEG", exif=b"Exif\0\0" + picture("JPEG", 32)), "read"),
    ("appended.jpg", lambda: picture("JPEG") + bytes(9) + b"MotionPhoto" + bytes(70_000), "read"),
    ("half-appended.jpg", lambda: picture("JPEG") + picture("JPEG", 32)[:-90], "read"),
    ("trailing.png", lambda: picture("PNG") + b"editor's notes", "read"),
    ("padding.webp", lambda: picture("WEBP") + b"\0", "read"),
    ("disguised.jpg", lambda: picture("GIF"), "read"),
    ("disguised.png", lambda: picture("BMP"), "read"),
]


def trained(folder: Path) -> tuple[list[str], list[str]]:
    """What the trainer makes of a folder, with the real Pillow: (left out, read)."""
    left_out: list[str] = []
    read: list[str] = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "_controls"]
        for name in names:
            if name.startswith(".") or not name.lower().endswith(SUFFIXES):
                continue
            path = os.path.join(root, name)
            try:
                ImageOps.exif_transpose(Pictures.open(path)).convert("RGB")
                read.append(path)
            except Exception:
                left_out.append(path)
    return left_out, read


def run(folder: Path, **values: object) -> Run:
    base = run_of("m")
    data = replace(base.recipe.datasets[0], folder=str(folder), cache_latents_to_disk=True)
    written = {f"datasets/0/{key}": Value(value, Where("c"), 0, 0) for key, value in values.items()}
    return changed(base, datasets=(data,), settings={**base.settings, **written})


def seen(folder: Path) -> tuple[DatasetFolder, ...]:
    found = probe_datasets(LiveWorld(), run(folder))
    assert isinstance(found, tuple)
    return found


def findings(folder: Path, **values: object) -> list[Finding]:
    asked, folders = run(folder, **values), seen(folder)
    return [*no_images(asked, folders), *unreadable_images(asked, folders)]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
def test_a_picture_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "good.png").write_bytes(picture("PNG"))
    (tmp_path / "shut.png").write_bytes(picture("PNG"))
    (tmp_path / "shut.png").chmod(0)
    assert trained(tmp_path)[0] == [str(tmp_path / "shut.png")]
    (finding,) = findings(tmp_path)
    assert finding.args["why"] == "may not be read by this user"


def test_a_picture_that_is_refused_counts_as_unreadable(tmp_path: Path) -> None:
    """What the system says for a user who may not read it, and what a machine file does not hold."""

    class Refusing(LiveWorld):
        def read(self, path: str, start: int = 0, length: int | None = None) -> bytes | Unknown:
            refused = {"shut.png": f"{path}: EACCES: Permission denied", "absent.png": "not recorded"}
            reason = refused.get(Path(path).name)
            return super().read(path, start, length) if reason is None else Unknown(reason)

    for name in ("good.png", "shut.png", "absent.png"):
        (tmp_path / name).write_bytes(picture("PNG"))
    (folder,) = probe_datasets(Refusing(), run(tmp_path))  # type: ignore[misc]
    assert list(folder.unreadable) == [str(tmp_path / "shut.png")] and folder.more == 1


@pytest.mark.parametrize(("name", "content", "fate"), CONTENTS, ids=[name for name, _, _ in CONTENTS])
def test_what_pillow_refuses_is_named_and_nothing_else(
    name: str, content: Callable[[], bytes], fate: str, tmp_path: Path
) -> None:
    (tmp_path / "good.png").write_bytes(picture("PNG"))
    (tmp_path / name).write_bytes(content())
    assert len(trained(tmp_path)[0]) == (fate == "left out")
    found = findings(tmp_path)
    assert len(found) == (fate == "left out")
    assert all(name in f.text() for f in found)
    (tmp_path / name).write_bytes(picture("PNG"))
    assert findings(tmp_path) == [] and not trained(tmp_path)[0]


WHOLE = {form: picture(form, 48) for form in ("PNG", "JPEG", "WEBP")}


@settings(deadline=None, max_examples=150)
@given(
    form=st.sampled_from(sorted(WHOLE)),
    at=st.floats(0, 1),
    harm=st.one_of(st.binary(max_size=40), st.sampled_from([None, 300])),
)
def test_what_is_named_is_refused_however_it_was_broken(form: str, at: float, harm: bytes | int | None) -> None:
    """Scribbled over in one place, cut off, or cut off and filled up with zeros.

    Not so a JPEG with nothing but its last bytes scribbled over, which Pillow opens and the rule calls cut off.
    """
    whole = WHOLE[form]
    if form == "JPEG" and isinstance(harm, bytes):
        harm = harm[: max(0, len(whole) - 2 - int(at * len(whole)))]
    place = int(at * len(whole))
    rest = harm + whole[place + len(harm) :] if isinstance(harm, bytes) else bytes(harm or 0)
    content = whole[:place] + rest
    with TemporaryDirectory() as folder:
        (Path(folder) / "a.jpg").write_bytes(content)
        named = bool(seen(Path(folder))[0].unreadable)
        assert not named or trained(Path(folder))[0]


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "takes .jpg, .jpeg, .png, .webp files."),
        ({"a.heic": b"x", "b.heic": b"x", "notes.txt": b"x"}, "2 .heic: convert"),
        ({"photos.zip": b"PK"}, ".zip archives: unpack"),
        ({"film.mp4": b"x", "README": b"x", "b.mp4": b"x"}, "2 .mp4: videos are looked for"),
        ({"a.psd": b"x", "b.psd": b"x"}, "there are 2 .psd"),
        ({"_controls/a.depth.jpg": b"x", ".thumbs/a.jpg": b"x", "._a.jpg": b"x"}, "holds no picture"),
        ({"a.jpg": b""}, "The only picture in {folder} cannot be opened: {folder}/a.jpg is empty."),
        ({"a.jpg": b"", "b.png": b"<html>"}, "None of the 2 pictures"),
    ],
)
def test_a_folder_without_a_picture(files: dict[str, bytes], says: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert not trained(tmp_path)[1]
    (found,) = findings(tmp_path)
    assert says.format(folder=tmp_path) in found.text()
    assert f"no images found in {tmp_path}" in found.consequence()


@pytest.mark.parametrize("name", ["A.JPEG", "deep/er/a.png", "set.jpg/a.webp", "notes.txt/a.png", "a.b.c.png"])
def test_one_picture_anywhere_is_enough(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    form = {"jpeg": "JPEG", "webp": "WEBP"}.get(name.rpartition(".")[1].lower(), "PNG")
    (tmp_path / name).write_bytes(picture(form))
    assert trained(tmp_path)[1] and findings(tmp_path) == []


@pytest.mark.parametrize(("sides", "opened"), [((16320, 12240), False), ((13376, 13376), True)])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_picture_of_too_many_pixels(sides: tuple[int, int], opened: bool, tmp_path: Path) -> None:
    """The largest that phones take, and one that Pillow only warns of."""
    (tmp_path / "a.png").write_bytes(picture("PNG"))
    data = picture("PNG")
    head = b"IHDR" + sides[0].to_bytes(4, "big") + sides[1].to_bytes(4, "big") + data[24:29]
    file = tmp_path / "b.png"
    file.write_bytes(data[:12] + head + zlib.crc32(head).to_bytes(4, "big") + data[33:])
    assert [finding.text() for finding in findings(tmp_path)] == (
        [] if opened else [f"{file} has 199,756,800 pixels, and Pillow opens 178,956,970 at most."]
    )
    if opened:
        Pictures.open(file)
    else:
        with pytest.raises(Pictures.DecompressionBombError):
            Pictures.open(file)


def test_a_linked_folder_is_not_walked_and_a_linked_picture_is_read(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "a.png").write_bytes(picture("PNG"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "inside").symlink_to(tmp_path / "far")
    assert not trained(tmp_path / "data")[1] and len(findings(tmp_path / "data")) == 1
    (tmp_path / "data" / "a.png").symlink_to(tmp_path / "far" / "a.png")
    assert trained(tmp_path / "data")[1] and findings(tmp_path / "data") == []
    (tmp_path / "data" / "gone.png").symlink_to(tmp_path / "far" / "b.png")
    (found,) = findings(tmp_path / "data")
    assert len(trained(tmp_path / "data")[0]) == 1 and "gone.png is a link to something that is gone" in found.text()


@pytest.mark.parametrize("values", [{"num_frames": 41}, {"auto_frame_count": True}])
def test_folders_of_videos_are_left_to_video_runs(values: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"x")
    assert findings(tmp_path, **values) == []
    assert len(findings(tmp_path, num_frames=1)) == 1


def test_other_models_and_missing_folders_are_none_of_its_business(tmp_path: Path) -> None:
    asked, folders = run(tmp_path), seen(tmp_path)
    (rule,) = select(all_rules(), ["DAT001"], [])
    assert list(no_images(changed(asked, architecture="ace_step_15"), folders)) == []
    job = {"type": "extract", "datasets": [{"folder_path": str(tmp_path)}]}
    (tmp_path / "c.json").write_text(json.dumps({"job": "extension", "config": {"name": "t", "process": [job]}}))
    assert not examine_config(str(tmp_path / "c.json"), LiveWorld(), [rule]).report.findings
    assert list(no_images(asked, seen(tmp_path / "absent"))) == []


def test_a_folder_that_was_not_seen_whole_is_not_called_empty(tmp_path: Path) -> None:
    with pytest.raises(Unestablished, match="could not be listed"):
        list(no_images(run(tmp_path), (DatasetFolder("datasets/0", str(tmp_path), (), unlisted=1),)))
    assert list(no_images(run(tmp_path), (DatasetFolder("datasets/0", str(tmp_path), (), more=1),))) == []


@pytest.mark.parametrize(
    ("name", "content", "taken"),
    [
        ("faces.json", b'{"/data/a.png": {"caption": "x"}}', True),
        ("list.txt", b' \n{"/data/a.png": {}}', True),
        ("a.png", picture("PNG"), False),
        ("faces.zip", b"PK\3\4" + bytes(90), False),
        ("captions.txt", b"a cat\n", False),
        ("empty.json", b"", False),
        ("list.json", b'["/data/a.png"]', False),
    ],
)
def test_a_file_in_place_of_a_folder_must_be_a_list(name: str, content: bytes, taken: bool, tmp_path: Path) -> None:
    """As the trainer opens it: `json.load(open(path))`, then its keys."""
    file = tmp_path / name
    file.write_bytes(content)
    try:
        with open(file, encoding="utf-8") as opened:
            list(json.load(opened).keys())
        assert taken
    except (ValueError, AttributeError):
        assert not taken
    assert [finding.rule or finding.args["folder"] for finding in findings(file)] == ([] if taken else [str(file)])


@pytest.mark.parametrize(
    ("sizes", "more", "said"),
    [
        (
            [(64, 64), (100, 80)],
            0,
            "None of the 2 pictures in /p is as large as minimum_image_size asks; the largest is",
        ),
        ([(64, 64)], 0, "The only picture in /p is smaller than minimum_image_size asks: 64 x 64 pixels."),
        ([(64, 64), (128, 128)], 0, ""),
        ([(64, 64)], 3, ""),  # those that were not looked into may be large
        ([(0, 0)], 0, ""),
        ([(16, 1024)], 0, ""),
    ],
)
def test_pictures_that_are_all_too_small(sizes: list[tuple[int, int]], more: int, said: str) -> None:
    run = run_of("model")
    asked = replace(run.recipe.datasets[0], least_area=128 * 128)
    images = tuple(Image(f"/p/{number}.png", *size, caption=True) for number, size in enumerate(sizes))
    folder = DatasetFolder(asked.key, "/p", images, more=more)
    for trainer in ("ai-toolkit", RUNNER):
        found = list(no_images(changed(run, datasets=(asked,), trainer=trainer), (folder,)))
        assert [finding.text().startswith(said) for finding in found] == ([True] if said else [])
    assert not list(no_images(run, (folder,)))
