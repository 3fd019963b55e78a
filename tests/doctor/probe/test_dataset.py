"""Image headers read by hand agree with Pillow; the walk sees what the trainer's walk sees."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import pytest
from PIL import Image as Pictures

from zdoctor.doctor.model import DatasetFolder, Run, System
from zdoctor.doctor.probe import dataset
from zdoctor.doctor.probe.dataset import probe_datasets
from zdoctor.doctor.probe.image import dimensions
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.tests.changes import changed
from zdoctor.tests.models import run_of


def run(folder: Path, extension: str = ".txt") -> Run:
    base = run_of("m")
    return changed(
        base, datasets=(replace(base.recipe.datasets[0], folder=str(folder), caption_extension=extension),)
    )


def probed(folder: Path, extension: str = ".txt") -> DatasetFolder:
    seen = probe_datasets(LiveWorld(), run(folder, extension))
    assert isinstance(seen, tuple)
    return seen[0]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("a.png", {}),
        ("a.jpg", {}),
        ("a.jpg", {"progressive": True, "quality": 30}),
        ("a.jpeg", {"exif": b"Exif\0\0" + b"x" * 60000, "comment": b"hello"}),
        ("a.webp", {}),
        ("a.webp", {"lossless": True}),
        ("a.webp", {"exif": b"Exif\0\0xx"}),
    ],
)
@pytest.mark.parametrize("size", [(1, 1), (513, 17), (2000, 1111)])
def test_dimensions_are_what_pillow_says(
    name: str, options: dict[str, object], size: tuple[int, int], tmp_path: Path
) -> None:
    file = tmp_path / name
    Pictures.new("RGB", size, (9, 99, 199)).save(file, **options)  # type: ignore[arg-type]
    with Pictures.open(file) as opened:
        assert dimensions(LiveWorld(), str(file), file.read_bytes()[:64]) == opened.size == size


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xd8",
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xe0\0\0" * 99,
        b"RIFF1234WEBPVP8 ",
        b"\x89PNG\r\n\x1a\n",
        b"<html>",
    ],
)
def test_broken_headers_have_no_dimensions(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.jpg"
    file.write_bytes(content)
    assert dimensions(LiveWorld(), str(file), file.read_bytes()[:64]) is None
    seen = probed(tmp_path)
    assert set(seen.unreadable) == {str(file)} or seen.more == 1  # odd, and then Pillow is not spoken for


def test_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = Pictures.new("RGB", (32, 16))
    for name in ("a.png", "b.JPG", "sub/c.webp", ".hidden/d.png", "_controls/e.png", "sub/deep/f.png", "g.gif"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        picture.save(tmp_path / name)
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "sub" / "c.caption").write_text("c")
    (tmp_path / "notes.txt").write_text("n")
    seen = probed(tmp_path)
    assert {str(Path(i.path).relative_to(tmp_path)): i.caption for i in seen.images} == {
        "a.png": True,
        "b.JPG": False,
        "sub/c.webp": False,
        "sub/deep/f.png": False,
    }
    assert all((i.width, i.height) == (32, 16) for i in seen.images)
    assert {Path(i.path).name: i.caption for i in probed(tmp_path, "caption").images}["c.webp"]
    monkeypatch.setattr(dataset, "MOST_IMAGES", 2)
    assert (len(probed(tmp_path).images), probed(tmp_path).more) == (2, 2)


def test_folders_that_are_not_there_are_left_to_the_path_rules(tmp_path: Path) -> None:
    assert probe_datasets(LiveWorld(), run(tmp_path / "absent")) == ()
    file = tmp_path / "list.json"
    file.write_text("{}")
    assert probe_datasets(LiveWorld(), run(file)) == ()


@pytest.mark.parametrize("os", ["linux", "darwin"])
def test_a_caption_in_other_case_is_found_where_the_system_finds_it(
    os: Literal["linux", "darwin"], tmp_path: Path
) -> None:
    for name in ("a.txt", "b.TXT"):
        (tmp_path / name).write_text("a cat")
        Pictures.new("RGB", (8, 8)).save(tmp_path / f"{name[0]}.png")

    class Elsewhere(LiveWorld):
        @cached_property
        def system(self) -> System:
            return replace(super().system, os=os)

    seen = probe_datasets(Elsewhere(), run(tmp_path))
    assert isinstance(seen, tuple)
    assert [image.caption for image in seen[0].images] == [True, os != "linux"]
