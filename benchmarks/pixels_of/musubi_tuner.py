"""musubi-tuner's own buckets, pictures and captions beside the runner's."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
from corpus_oracle import imported
from words import compare_ids

from zdoctor.doctor.model.buckets import Buckets

from .made import (
    RESOLUTIONS,
    Counts,
    as_kohya,
    captions_in,
    compare_pixels,
    count_captions,
    count_sizes,
    numbered,
    ours,
    pictures_in,
    sizes_of,
    tiny_vae,
)


def compared(sizes: int, pictures: int, captions: int) -> Iterator[tuple[str, Counts]]:
    """Its BucketSelector, resize_image_to_bucket and its source of pictures and captions."""
    bucket = imported("musubi_tuner.dataset.bucket")
    media, sources = imported("musubi_tuner.dataset.media_utils"), imported("musubi_tuner.dataset.datasources")
    vae, counts = tiny_vae(), Counter[str]()
    for resolution in RESOLUTIONS:
        for shape, enabled, no_upscale in (
            ((resolution, resolution), True, False),
            ((resolution, resolution), True, True),
            ((resolution, resolution * 3 // 4 // 16 * 16), True, False),
            ((resolution, resolution * 3 // 4 // 16 * 16), False, False),
        ):
            selector = bucket.BucketSelector(shape, enabled, no_upscale, bucket.ARCHITECTURE_Z_IMAGE)
            how = Buckets(*shape, "musubi-tuner" if enabled else "one", shrink_only=no_upscale, resampling="area")
            counts["settings"] += 1
            for size in sizes_of(sizes):
                if min(made := selector.get_bucket_resolution(size)) > 0:
                    count_sizes(counts, how, size, made, None)
    yield "sizes", counts
    with tempfile.TemporaryDirectory() as name:
        folder, counts = Path(name), Counter[str]()
        files = pictures_in(folder, pictures, turned=False, modes=("RGB", "L", "RGB", "P", "RGB", "LA"))
        captions_in(folder, files, ".txt")
        source = sources.ImageDirectoryDatasource(str(folder), ".txt")
        for resolution, no_upscale in ((256, False), (512, False), (512, True)):
            how = Buckets(resolution, resolution, "musubi-tuner", shrink_only=no_upscale, resampling="area")
            selector = bucket.BucketSelector((resolution, resolution), True, no_upscale, bucket.ARCHITECTURE_Z_IMAGE)
            keyed = {str(item.picture.file): item for item in ours(as_kohya(how), folder, {}, literal_captions=True)}
            for place in range(len(source)):
                path, images, _, _ = source.get_image_data(place)
                cut = media.resize_image_to_bucket(images[0], selector.get_bucket_resolution(images[0].size))
                tensor = torch.from_numpy(cut[..., :3].copy()).permute(2, 0, 1) / 127.5 - 1.0
                compare_pixels(counts, vae, keyed[path], tensor)
        yield "pixels", counts
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        captions_in(folder, numbered(folder, captions), ".txt")
        source = sources.ImageDirectoryDatasource(str(folder), ".txt")
        keyed = {str(i.picture.file): i for i in ours(as_kohya(Buckets(512, 512)), folder, {}, literal_captions=True)}
        pairs = [(text, keyed[path].caption) for path, text in map(source.get_caption, range(len(source)))]
        yield "captions", count_captions(pairs)
        yield "token ids", compare_ids("musubi-tuner", folder, pairs)
