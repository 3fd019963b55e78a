"""SimpleTuner's own samples and prompts beside the runner's."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from corpus_oracle import imported
from words import compare_ids

from zdoctor.doctor.configs.written import Written
from zdoctor.doctor.model.buckets import Buckets
from zdoctor.doctor.model.datasets import CaptionDraw
from zdoctor.doctor.trainers.simpletuner.datasets import buckets_of
from zdoctor.doctor.trainers.simpletuner.options import PARSED
from zdoctor.tests.doctor.train.patient import written

from .made import (
    RESOLUTIONS,
    Counts,
    Pairs,
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
    """Its TrainingSample, with crops from the middle, and its PromptHandler."""
    sample = imported("simpletuner.helpers.image_manipulation.training_sample")
    load = imported("simpletuner.helpers.image_manipulation.load").load_image
    tracker, vae, counts = sample.StateTracker, tiny_vae(), Counter[str]()
    tracker.get_args = lambda: SimpleNamespace(aspect_bucket_alignment=64, aspect_bucket_rounding=2)
    tracker.get_resolution_by_aspect = lambda **_: None
    tracker.set_resolution_by_aspect = lambda **_: None
    for name in ("get_model", "get_metadata_by_filepath", "get_webhook_handler"):
        setattr(tracker, name, lambda *_, **__: None)

    def settled(resolution: int, unit: str, crop: bool) -> Buckets:
        size = resolution if unit == "pixel" else resolution * resolution / 1e6
        words = {"resolution": size, "resolution_type": unit, "crop": crop}
        words |= {"crop_style": "center", "crop_aspect": "square"}
        tracker.get_data_backend_config = lambda _: words
        settings = written(**{f"datasets__0__{name}": value for name, value in words.items()})
        return buckets_of("datasets/0", Written(settings, PARSED), 64)

    sides = [side // 16 * 16 for side in RESOLUTIONS]  # the model can compute with no other square
    for resolution, unit, crop in itertools.product(sides, ("pixel", "area"), (False, True)):
        how = settled(resolution, unit, crop)
        counts["settings"] += 1
        for size in sizes_of(sizes):
            its = sample.TrainingSample(None, "d", {"original_size": size})
            try:
                bucket, scaled, _ = its.calculate_target_size()
            except ZeroDivisionError:
                continue  # so narrow that its shape is rounded to 0
            count_sizes(counts, how, size, bucket, scaled if bucket != scaled else None)
    yield "sizes", counts
    with tempfile.TemporaryDirectory() as name:
        folder, counts = Path(name), Counter[str]()
        files = pictures_in(folder, pictures, turned=False, modes=("RGB", "L", "RGB"))
        for resolution, unit, crop in ((256, "area", False), (512, "pixel", False), (512, "area", True)):
            how = settled(resolution, unit, crop)
            keyed = {item.picture.file: item for item in ours(as_kohya(how), folder, {}, literal_captions=True)}
            for file in files:
                image = sample.TrainingSample(load(str(file)), "d", {}, str(file)).prepare().image
                tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255 * 2 - 1
                compare_pixels(counts, vae, keyed[file], tensor)
        yield "pixels", counts
    handler = imported("simpletuner.helpers.prompts").PromptHandler
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        captions_in(folder, numbered(folder, captions), ".txt")
        disk = SimpleNamespace(exists=lambda path: Path(path).exists(), read=lambda path: Path(path).read_bytes())
        pairs: Pairs = []
        for item in ours(
            as_kohya(Buckets(512, 512), drawn=CaptionDraw(lines=True)), folder, {}, literal_captions=True
        ):
            text = handler.prepare_instance_prompt_from_textfile(str(item.picture.file), True, False, disk)
            theirs = handler._normalize_caption_payload(text) or [""]  # as it caches them
            lines = {drawn_by(item, n) for n in range(60)}
            pairs += zip(sorted({*theirs}), sorted(lines), strict=True)
        yield "captions", count_captions(pairs)
        yield "token ids", compare_ids("simpletuner", folder, pairs)
