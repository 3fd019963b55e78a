"""Which pictures are learnt with which captions, at which size and in which order."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from zdoctor.doctor.model.buckets import Buckets, bucket_size, scaled_size
from zdoctor.doctor.model.datasets import Dataset
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.dataset.batch_sampler import epoch_batches
from zdoctor.doctor.train.dataset.captions import with_trigger
from zdoctor.doctor.train.dataset.images import DatasetImage
from zdoctor.doctor.train.dataset.pixels import load_pixels
from zdoctor.doctor.train.dataset.training_items import TrainingItem, read_training_items, uncaptioned
from zdoctor.doctor.train.sampling.preview_samples import sample_text

from ..patient import DATASET, Recorder, go, run_with, written


def picture(folder: Path, name: str, size: tuple[int, int] = (64, 64), caption: bytes | None = None) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, "red").save(file)
    if caption is not None:
        file.with_suffix(".txt").write_bytes(caption)
    return file


def items_of(folder: Path, dataset: Dataset = DATASET, **run: Any) -> list[TrainingItem]:
    return read_training_items(run_with(datasets=(dataset,), **run).recipe, {dataset.key: str(folder)}, 16)


@given(st.integers(16, 6000), st.integers(16, 6000), st.sampled_from([256, 512, 768, 1024]))
def test_buckets_fit(width: int, height: int, resolution: int) -> None:
    how = Buckets(resolution, resolution, "ai-toolkit")
    w, h = bucket_size(how, width, height)
    wide, high = scaled_size(how, width, height)
    assert w % 16 == h % 16 == 0
    assert w <= wide and h <= high and (wide < w + 2 or high < h + 2)
    assert w * h <= resolution * resolution or min(w, h) == 16


@pytest.mark.parametrize(
    ("size", "resolution", "step", "bucket", "scaled"),
    [  # what get_bucket_for_image_size and setup_buckets of 27a03a91 made of them
        ((640, 400), 256, 16, (336, 192), (336, 210)),
        ((512, 512), 512, 16, (512, 512), (512, 512)),
        ((1024, 1024), 512, 16, (512, 512), (512, 512)),
        ((300, 300), 512, 16, (304, 304), (304, 304)),
        ((1920, 1080), 1024, 16, (1360, 768), (1366, 768)),
        ((1080, 1920), 1024, 16, (768, 1360), (768, 1366)),
        ((33, 2000), 512, 16, (32, 2000), (33, 2000)),
        ((10, 10), 512, 16, (16, 16), (16, 16)),
        ((4000, 700), 768, 32, (1824, 320), (1829, 320)),
        ((1000, 1500), 1000, 32, (800, 1248), (832, 1248)),
        ((17, 17), 256, 16, (16, 16), (16, 16)),
        ((1023, 1025), 1024, 16, (1024, 1024), (1024, 1027)),
    ],
)
def test_bucket_sizes(
    size: tuple[int, int], resolution: int, step: int, bucket: tuple[int, int], scaled: tuple[int, int]
) -> None:
    how = Buckets(resolution, resolution, "ai-toolkit", step)
    assert (bucket_size(how, *size), scaled_size(how, *size)) == (bucket, scaled)


def test_buckets_may_be_coarser(tmp_path: Path) -> None:
    picture(tmp_path, "a.png", (1200, 1000))
    for step, divisor, size in ((32, 16, (544, 480)), (16, 16, (560, 464)), (16, 32, (544, 480))):
        dataset = Dataset("datasets/0", str(tmp_path), ".txt", (512,), bucket_step=step)
        (item,) = read_training_items(run_with(datasets=(dataset,)).recipe, {"datasets/0": str(tmp_path)}, divisor)
        assert (item.width, item.height) == size


def test_a_picture_is_mirrored_before_it_is_cut_in_ai_toolkit(tmp_path: Path) -> None:
    """The odd row that is left over is cut off at the other end."""
    image = Image.new("L", (65, 48))
    image.putdata([x for _ in range(48) for x in range(65)])
    image.save(tmp_path / "a.png")
    plain, mirrored = items_of(tmp_path, Dataset("datasets/0", str(tmp_path), ".txt", (64,), flip_x=True))
    assert (plain.width, plain.scaled, left(plain), left(mirrored)) == (64, (65, 48), 0, 64)
    after = replace(mirrored, cut_first=True)
    assert left(after) == 63


@pytest.mark.parametrize(
    ("caption", "trigger", "expected"),
    [
        ("a cat", None, "a cat"),
        ("a cat", "zcat", "zcat a cat"),
        ("a zcat on a mat", "zcat", "a zcat on a mat"),
        ("[trigger] on a mat", "zcat", "zcat on a mat"),
        ("photo of [trigger]", None, "photo of "),
        ("", "zcat", "zcat "),
        (" a cat\n", "zcat", "zcat  a cat\n"),
        ("[name], there", " zc ", " zc , there"),
    ],
)
def test_trigger_words(caption: str, trigger: str | None, expected: str) -> None:
    assert with_trigger(caption, trigger) == expected


def test_captions_files_and_the_default(tmp_path: Path) -> None:
    picture(tmp_path, "a.png", caption=b"\xef\xbb\xbfa red square")
    picture(tmp_path, "b.JPG", caption="ein Würfel".encode())
    picture(tmp_path, "deep/c.webp")
    picture(tmp_path, ".hidden/d.png")
    picture(tmp_path, "_controls/e.png")
    (tmp_path / "notes.md").write_text("no picture")
    dataset = Dataset("datasets/0", str(tmp_path), ".txt", (64,), default_caption="a square", caption_dropout=0.1)
    items = items_of(tmp_path, dataset, trigger_word="zsq")
    assert [(item.picture.file.name, item.caption) for item in items] == [
        ("a.png", "zsq a red square"),
        ("b.JPG", "zsq ein Würfel"),
        ("c.webp", "zsq a square"),
    ]
    assert {(item.dropped, item.dropout) for item in items} == {("zsq ", 0.1)}


def test_captions_stay_as_written_and_blank_ones_are_the_default(tmp_path: Path) -> None:
    """In ai-toolkit with a blank more after each comma, and the white space around them."""
    picture(tmp_path, "a.png", caption=b"\nA cat.\r\n\r\nIt sits, on a mat \r")
    picture(tmp_path, "b.png", caption=b" \n")
    dataset = Dataset("datasets/0", str(tmp_path), ".txt", (64,), default_caption="a thing ")
    assert [item.caption for item in items_of(tmp_path, dataset)] == ["A cat.\n\nIt sits, on a mat", "a thing"]
    kept = replace(dataset, keeps_blanks=True)
    assert [item.caption for item in items_of(tmp_path, kept)] == ["\nA cat.\n\nIt sits,  on a mat \n", "a thing "]
    kept = replace(kept, default_caption="")
    assert items_of(tmp_path, kept)[1].caption == " \n"
    assert uncaptioned(items_of(tmp_path, kept)).startswith("1 of 2 pictures have no caption (first b.png)")


def test_pictures_without_a_caption_are_told_of(tmp_path: Path) -> None:
    picture(tmp_path, "a.png", caption=b"a cat")
    picture(tmp_path, "b.png", caption=b" ")
    dataset = Dataset("datasets/0", str(tmp_path), ".txt", (64,))
    said = uncaptioned(items_of(tmp_path, dataset))
    assert said.startswith("1 of 2 pictures have no caption (first b.png)")
    assert not uncaptioned(items_of(tmp_path, replace(dataset, default_caption="a thing")))
    assert not uncaptioned(items_of(tmp_path, replace(dataset, is_regularisation=True)))
    (tmp_path / "a.txt").unlink()
    assert uncaptioned(items_of(tmp_path, dataset)).startswith("No picture has a caption")


TRIGGERS: list[tuple[dict[str, Any], bool, str, str]] = [
    ({}, True, "zrun a cat", "zrun "),
    ({"datasets__0__trigger_word": "zset"}, True, "zset a cat", "zset "),
    ({"datasets__0__trigger_word": "zset"}, False, "zrun zset a cat", "zrun "),
]


@pytest.mark.parametrize(("settings", "cached", "caption", "dropped"), TRIGGERS)
def test_a_dataset_may_have_a_trigger_word_of_its_own(
    tmp_path: Path, settings: dict[str, Any], cached: bool, caption: str, dropped: str
) -> None:
    """ai-toolkit puts the run's word in as well where it encodes live."""
    picture(tmp_path, "a.png", caption=b"a cat")
    (item,) = items_of(tmp_path, trigger_word="zrun", cache_text_embeddings=cached, settings=written(**settings))
    assert (item.caption, item.dropped) == (caption, dropped)


def test_regularisation_pictures_have_no_trigger_and_their_own_weight(tmp_path: Path) -> None:
    picture(tmp_path, "a.png", caption=b"a cat, not [trigger]")
    dataset = Dataset("datasets/0", str(tmp_path), ".txt", (64,), is_regularisation=True)
    settings = written(train__reg_weight=0.5, datasets__0__loss_multiplier=0.5)
    (item,) = items_of(tmp_path, dataset, trigger_word="zcat", settings=settings)
    assert (item.caption, item.dropped, item.weight, item.regular) == ("a cat, not zcat", "", 0.5, True)


def test_random_crops_lie_anywhere_but_at_the_same_place_at_every_start(tmp_path: Path) -> None:
    image = Image.new("L", (256, 64))
    image.putdata([x for _ in range(64) for x in range(256)])
    image.save(tmp_path / "a.png")
    dataset = Dataset("datasets/0", str(tmp_path), ".txt", (48,), repeats=40, flip_x=True)
    settings = written(datasets__0__random_crop=True)
    items = items_of(tmp_path, dataset, settings=settings)
    assert items == items_of(tmp_path, dataset, settings=settings)
    assert len({item.crop for item in items}) == 80
    picture_ = items[0].picture
    lefts = [left(TrainingItem(picture_, 64, 64, "", "", 0.0, place=item.place)) for item in items]
    assert min(lefts) < 20 and max(lefts) > 172 and max(lefts) <= 192
    ends = [TrainingItem(picture_, 64, 64, "", "", 0.0, place=(share, 0.0)) for share in (0.0, 0.9999)]
    assert [left(item) for item in ends] == [0, 192]


def left(item: TrainingItem) -> int:
    """Where the crop of a picture begins whose pixels are as bright as their column's number."""
    return load_pixels(item).convert("L").tobytes()[0]


def test_square_crops_may_enlarge(tmp_path: Path) -> None:
    picture(tmp_path, "a.png", (40, 24))
    (item,) = items_of(tmp_path, settings=written(datasets__0__square_crop=True))
    assert (item.width, item.height, load_pixels(item).size) == (64, 64, (64, 64))


def test_resolutions_repeats_and_flips_multiply(tmp_path: Path) -> None:
    picture(tmp_path, "a.png", (128, 64))
    dataset = Dataset("datasets/0", str(tmp_path), ".txt", (32, 64), repeats=2, flip_x=True)
    sizes = [(item.width, item.height, item.flip_x) for item in items_of(tmp_path, dataset)]
    assert sizes == [(32, 32, False)] * 2 + [(32, 32, True)] * 2 + [(80, 48, False)] * 2 + [(80, 48, True)] * 2


def test_every_broken_image_is_named(tmp_path: Path) -> None:
    picture(tmp_path, "good.png")
    whole = picture(tmp_path, "cut.png", (256, 256)).read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[:200])
    (tmp_path / "page.jpg").write_bytes(b"<html>")
    with pytest.raises(TrainError, match=r"2 of 3 images .*cut\.png \(.*page\.jpg \(no picture\)"):
        items_of(tmp_path)


def test_a_picture_is_decoded_once(tmp_path: Path) -> None:
    picture(tmp_path, "a.png", (48, 32))
    known: dict[str, tuple[int, int]] = {}
    (first,) = read_training_items(run_with().recipe, {"datasets/0": str(tmp_path)}, 16, known)
    assert known == {first.picture.digest: (48, 32)}
    known[first.picture.digest] = (32, 16)
    (again,) = read_training_items(run_with().recipe, {"datasets/0": str(tmp_path)}, 16, known)
    assert (again.picture.width, again.picture.height) == (32, 16)


def test_a_run_without_a_broken_picture(tiny: Path, circles: Path, tmp_path: Path) -> None:
    broken = tmp_path / "pictures"
    shutil.copytree(circles, broken)
    (broken / "broken.png").write_bytes(b"<html>")
    with pytest.raises(TrainError, match=r"--skip-unreadable: .*broken\.png"):
        go(run_with(), tiny, broken, tmp_path / "out")
    progress = Recorder()
    go(run_with(), tiny, broken, tmp_path / "out", progress=progress, skip_unreadable=True)
    assert any("left out" in note and "broken.png" in note for note in progress.notes)


def test_broken_images_are_left_out_when_told(tmp_path: Path) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"")
    told: list[str] = []
    items = read_training_items(run_with().recipe, {"datasets/0": str(tmp_path)}, 16, skip=told.append)
    assert [item.picture.file.name for item in items] == ["good.png"]
    assert len(told) == 1 and told[0].startswith("1 of 2 images") and "bad.png" in told[0]
    (tmp_path / "good.png").unlink()
    with pytest.raises(TrainError, match="None of the 1 images"):
        read_training_items(run_with().recipe, {"datasets/0": str(tmp_path)}, 16, skip=told.append)


@pytest.mark.parametrize(
    ("captions", "default", "expected"),
    [("files", "d", "written"), ("names", "d", "a red circle"), ("default", "d", "d"), ("default", "", "")],
)
def test_where_captions_come_from(tmp_path: Path, captions: Any, default: str, expected: str) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "a_red_circle.png")
    (tmp_path / "a_red_circle.txt").write_text("written")
    dataset = replace(DATASET, captions=captions, default_caption=default)
    (item,) = read_training_items(run_with(datasets=(dataset,)).recipe, {"datasets/0": str(tmp_path)}, 16)
    assert item.caption == expected


def test_a_list_of_pictures_with_captions(tmp_path: Path) -> None:
    """As ai-toolkit reads a dataset_path: the keys are paths, and without a caption the file beside it counts."""
    for name in ("one", "two"):
        Image.new("RGB", (64, 64)).save(tmp_path / f"{name}.png")
    (tmp_path / "two.txt").write_text("from the file")
    listed = tmp_path / "pictures.json"
    listed.write_text(
        json.dumps({str(tmp_path / "one.png"): {"caption": " in the list "}, str(tmp_path / "two.png"): {}})
    )
    items = read_training_items(run_with().recipe, {"datasets/0": str(listed)}, 16)
    assert [item.caption for item in items] == ["in the list", "from the file"]
    listed.write_text('["one.png"]')
    with pytest.raises(TrainError, match="is not of the form"):
        read_training_items(run_with().recipe, {"datasets/0": str(listed)}, 16)
    listed.write_text("{")
    with pytest.raises(TrainError, match="cannot be read"):
        read_training_items(run_with().recipe, {"datasets/0": str(listed)}, 16)


def test_a_caption_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    picture(tmp_path, "a.png", caption=b"it\x92s")
    with pytest.raises(TrainError, match=r"a\.txt is not UTF-8 \(byte 0x92 at position 2\)"):
        items_of(tmp_path)


def test_empty_and_absent_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="no images"):
        items_of(tmp_path)
    with pytest.raises(TrainError, match="does not exist"):
        items_of(tmp_path / "nowhere")


def test_exif_rotation_is_honoured(tmp_path: Path) -> None:
    image = Image.new("RGB", (64, 32), "black")
    image.paste("white", (0, 0, 32, 32))  # the left half as stored is the top half as shown
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.jpg", exif=exif, quality=100)
    (item,) = items_of(tmp_path)
    assert (item.width, item.height) == (32, 64)
    shown = load_pixels(item)
    assert shown.size == (32, 64)
    assert shown.convert("L").getpixel((16, 8)) == 255
    assert shown.convert("L").getpixel((16, 56)) == 0


def test_pixels_are_cropped_around_the_middle_and_mirrored(tmp_path: Path) -> None:
    image = Image.new("RGB", (96, 32), "black")
    image.paste("white", (32, 0, 48, 32))
    image.save(tmp_path / "a.png")
    wide = DatasetImage(tmp_path / "a.png", 96, 32, "", "")
    plain = load_pixels(TrainingItem(wide, 32, 32, "", "", 0.0)).convert("L")
    mirrored = load_pixels(TrainingItem(wide, 32, 32, "", "", 0.0, flip_x=True)).convert("L")
    assert (plain.getpixel((4, 4)), plain.getpixel((28, 4))) == (255, 0)
    assert (mirrored.getpixel((4, 4)), mirrored.getpixel((28, 4))) == (0, 255)


def test_gray_of_16_bits_is_gray(tmp_path: Path) -> None:
    Image.new("I;16", (32, 32), 40000).save(tmp_path / "deep.png")
    deep = DatasetImage(tmp_path / "deep.png", 32, 32, "", "")
    assert load_pixels(TrainingItem(deep, 32, 32, "", "", 0.0)).getpixel((5, 5)) == (155, 155, 155)


def test_batches_hold_one_size_and_every_item() -> None:
    nowhere = DatasetImage(Path("x"), 64, 64, "", "")
    items = [TrainingItem(nowhere, 64, 64 if i % 3 else 32, "", "", 0.0) for i in range(10)]
    epoch = epoch_batches(items, 4, seed=1, epoch=0)
    assert {len(batch) for batch in epoch} == {4}
    assert all(len({items[i].height for i in batch}) == 1 for batch in epoch)
    assert {i for batch in epoch for i in batch} == set(range(10))
    assert epoch == epoch_batches(items, 4, seed=1, epoch=0)
    assert epoch != epoch_batches(items, 4, seed=1, epoch=1)


def test_batches_have_one_kind_of_target() -> None:
    """prior_reg is of a dataset, and a batch of two datasets would hold all its items to the model as it was."""
    nowhere = DatasetImage(Path("x"), 64, 64, "", "")
    items = [TrainingItem(nowhere, 64, 64, "", "", 0.0, prior=number % 2 == 0) for number in range(8)]
    epoch = epoch_batches(items, 4, seed=1, epoch=0)
    assert sorted(tuple({items[i].prior for i in batch}) for batch in epoch) == [(False,), (True,)]


def test_captions_of_other_trainers_are_as_written(tmp_path: Path) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("a [name] and a [trigger]")
    run = run_with(literal_captions=True)
    assert [item.caption for item in read_training_items(run.recipe, {"datasets/0": str(tmp_path)}, 16)] == [
        "a [name] and a [trigger]"
    ]
    assert sample_text(run.recipe, "a [name]") == "a [name]"
