"""sd-scripts' own buckets, dataset class and captions beside the runner's."""

from __future__ import annotations

import inspect
import itertools
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from corpus_oracle import imported
from words import compare_ids

from zdoctor.doctor.model.buckets import Buckets
from zdoctor.doctor.model.datasets import CaptionDraw
from zdoctor.doctor.train.dataset.captions import DrawnCaption, drawn_caption

from .made import (
    RESOLUTIONS,
    Counts,
    as_kohya,
    captions_in,
    compare_pixels,
    count_captions,
    count_sizes,
    drawn_by,
    numbered,
    ours,
    pictures_in,
    sizes_of,
    tiny_vae,
)


def compared(sizes: int, pictures: int, captions: int) -> Iterator[tuple[str, Counts]]:
    """Its BucketManager, and its dataset class for numbered folders."""
    util, vae, counts = imported("library.train_util"), tiny_vae(), Counter[str]()
    for resolution in RESOLUTIONS:
        for shape, no_upscale, step, least, most in (
            ((resolution, resolution), False, 64, 256, 1024),
            ((resolution, resolution), True, 64, 256, 1024),
            ((resolution, resolution * 3 // 4 // 16 * 16), False, 32, 320, 2048),
            ((resolution, resolution * 3 // 4 // 16 * 16), True, 16, 256, 2048),
        ):
            manager = util.BucketManager(no_upscale, shape, least, most, step)
            if not no_upscale:
                manager.make_buckets()
            how = Buckets(*shape, "sd-scripts", step, least, most, no_upscale, resampling="area", cut_first=True)
            counts["settings"] += 1
            for size in sizes_of(sizes):
                try:
                    bucket, scaled, _ = manager.select_bucket(*size)
                except (AssertionError, ZeroDivisionError):
                    continue  # too long for it
                if min(bucket) > 0:
                    count_sizes(counts, how, size, bucket, scaled)
    yield "sizes", counts
    with tempfile.TemporaryDirectory() as name:
        folder, counts = Path(name), Counter[str]()
        files = pictures_in(folder, pictures, turned=False, modes=("RGB", "L", "RGBA", "P", "RGB", "LA"))
        for resolution, no_upscale in ((256, False), (512, False), (512, True)):
            how = Buckets(
                resolution, resolution, "sd-scripts", 64, shrink_only=no_upscale, resampling="area", cut_first=True
            )
            its = _numbered_folder(util, folder, resolution, no_upscale)
            keyed = {
                str(i.picture.file): i
                for i in ours(as_kohya(how, first_line=True), folder, {}, literal_captions=True)
            }
            for path, info in ((one.absolute_path, one) for one in its.image_data.values()):
                if min(info.bucket_reso) <= 0:
                    continue
                image = util.load_image(path)
                cut = util.trim_and_resize_if_required(False, image, info.bucket_reso, info.resized_size)[0]
                compare_pixels(counts, vae, keyed[path], util.IMAGE_TRANSFORMS(cut))
        yield "pixels", counts
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = numbered(folder, captions)
        for file, text in zip(files, captions_in(folder, files, ".txt"), strict=True):
            if not text:
                file.with_suffix(".txt").unlink()  # it stops at an empty one
        its = _numbered_folder(util, folder, 512, False)
        dataset = replace(as_kohya(Buckets(512, 512), first_line=True), default_caption="a thing")
        keyed = {str(item.picture.file): item for item in ours(dataset, folder, {}, literal_captions=True)}
        pairs = [
            (its.process_caption(its.image_to_subset[one.image_key], one.caption), keyed[one.absolute_path].caption)
            for one in its.image_data.values()
        ]
        yield "captions", count_captions(pairs)
        yield "token ids", compare_ids("sd-scripts", folder, pairs)
        counts = Counter[str]()
        for shuffle, rate, keep in itertools.product((True, False), (0.0, 0.4), (0, 2)):
            how = CaptionDraw(shuffle=shuffle, dropout=rate, keep=keep)
            drawn = ours(replace(dataset, drawn=how), folder, {}, literal_captions=True)
            keyed = {str(item.picture.file): item for item in drawn}
            for number, one in enumerate(its.image_data.values()):
                subset = its.image_to_subset[one.image_key]
                subset.shuffle_caption, subset.caption_tag_dropout_rate, subset.keep_tokens = shuffle, rate, keep
                random.seed(number)
                text = its.process_caption(subset, one.caption)
                counts["draws"] += 1
                counts["draws that are equal"] += text == drawn_by(keyed[one.absolute_path], number)
        one, *_ = its.image_data.values()
        yield "draws", counts + _drawn_otherwise(its, its.image_to_subset[one.image_key])


# Texts and settings of captions that are more than tags between commas.
TEXTS = (
    "a {red|blue|dark green} cat, {{x}}, {one}|||two, three\nsecond line, b",
    "zc ||| a, b;;c , d ||| masterpiece, best",
    "a; b; c ||| d; e",
    "plain",
)
ASKED: tuple[dict[str, Any], ...] = (
    {"wildcards": True, "lines": True},
    {"wildcards": True, "lines": True, "before": "photo of", "after": "end", "shuffle": True, "keep": 1},
    {"shuffle": True, "keep_separator": "|||", "secondary": ";;", "dropout": 0.2},
    {"shuffle": True, "separator": ";", "keep_separator": "|||"},
    {"secondary": ";;", "after": "x"},
)
NAMES = {
    "wildcards": "enable_wildcard",
    "before": "caption_prefix",
    "after": "caption_suffix",
    "keep": "keep_tokens",
    "shuffle": "shuffle_caption",
    "dropout": "caption_tag_dropout_rate",
    "separator": "caption_separator",
    "secondary": "secondary_separator",
    "keep_separator": "keep_tokens_separator",
}


def _drawn_otherwise(its: Any, subset: Any) -> Counts:
    counts = Counter[str]()
    for text, asked, seed in itertools.product(TEXTS, ASKED, range(20)):
        how = CaptionDraw(**asked)
        for name, key in NAMES.items():
            setattr(subset, key, getattr(how, name))
        text = text if how.wildcards else text.partition("\n")[0]
        random.seed(seed)
        said = its.process_caption(subset, text)
        counts["draws"] += 1
        counts["draws that are equal"] += said == drawn_caption(DrawnCaption(text, how), random.Random(seed))
    return counts


def _numbered_folder(util: Any, folder: Path, resolution: int, no_upscale: bool) -> Any:
    """Its dataset of one folder, each setting that is not named as nothing."""

    def made(what: Any, **settings: Any) -> Any:
        needed = inspect.signature(what).parameters.values()
        empty = {one.name: settings.get(one.name, 0) for one in needed if one.default is one.empty}
        return what(**{**empty, **settings})

    subset = made(
        util.DreamBoothSubset,
        image_dir=str(folder),
        class_tokens="a thing",
        caption_extension=".txt",
        num_repeats=1,
        caption_separator=",",
        face_crop_aug_range=None,
        caption_prefix=None,
        caption_suffix=None,
    )
    dataset = made(
        util.DreamBoothDataset,
        subsets=[subset],
        is_training_dataset=True,
        batch_size=1,
        resolution=(resolution, resolution),
        network_multiplier=1.0,
        enable_bucket=True,
        min_bucket_reso=256,
        max_bucket_reso=1024,
        bucket_reso_steps=64,
        bucket_no_upscale=no_upscale,
        prior_loss_weight=1.0,
        validation_seed=None,
        resize_interpolation=None,
    )
    dataset.make_buckets()
    return dataset
