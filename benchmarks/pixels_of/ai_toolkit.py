"""ai-toolkit's own dataset class beside the runner's."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from corpus_oracle import imported
from words import compare_ids

from zdoctor.doctor.files import fingerprints
from zdoctor.doctor.model.datasets import CaptionDraw, Dataset
from zdoctor.doctor.train.dataset.batch_sampler import epoch_batches
from zdoctor.doctor.train.dataset.training_items import TrainingItem

from .made import (
    RESOLUTIONS,
    Counts,
    Pairs,
    captions_in,
    compare_pixels,
    drawn_by,
    numbered,
    ours,
    pictures_in,
    sizes_of,
    tiny_vae,
)


def compared(sizes: int, pictures: int, captions: int) -> Iterator[tuple[str, Counts]]:
    """Its dataset class, its file items and its way to a prompt."""
    loader, config = imported("toolkit.data_loader"), imported("toolkit.config_modules")
    vae = tiny_vae()
    sd = SimpleNamespace(
        get_bucket_divisibility=lambda: 16,
        model_config=SimpleNamespace(latent_space_version="x", arch="x"),
        vae=vae,
        unet=SimpleNamespace(),
        **dict.fromkeys(("encode_control_in_text_embeddings", "use_raw_control_images"), False),
        **dict.fromkeys(("text_embedding_space_version", "te_padding_side"), "right"),
    )

    def theirs(folder: Path, batch: int = 1, **settings: Any) -> Any:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return loader.AiToolkitDataset(config.DatasetConfig(folder_path=str(folder), **settings), batch, sd)

    plain = Dataset("datasets/0", "", ".txt", (512,), keeps_blanks=True, batches_of="datasets/0")
    with tempfile.TemporaryDirectory() as name:
        yield "sizes", _their_sizes(Path(name), sizes, plain, theirs)
    with tempfile.TemporaryDirectory() as name:
        folder, counts = Path(name), Counter[str]()
        pictures_in(folder, pictures, turned=True, modes=("RGB", "L", "RGBA", "P", "RGB", "LA"))
        for resolution in (256, 512):
            its = theirs(folder, resolution=resolution, flip_x=True, flip_y=True)
            items = ours(replace(plain, resolutions=(resolution,), flip_x=True, flip_y=True), folder, {})
            keyed = {(str(item.picture.file), item.flip_x, item.flip_y): item for item in items}
            for one in its.file_list:
                one.load_and_process_image(its.transform)
                compare_pixels(counts, vae, keyed[one.path, one.flip_x, one.flip_y], one.tensor)
        yield "pixels", counts
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        captions_in(folder, numbered(folder, captions), ".cap")
        pairs: Pairs = []
        yield "captions", _their_captions(folder, replace(plain, caption_extension=".cap"), theirs, pairs)
        yield "token ids", compare_ids("ai-toolkit", folder, pairs)
        yield "draws", _their_draws(folder, replace(plain, caption_extension=".cap"), theirs)


def _their_sizes(folder: Path, count: int, plain: Dataset, theirs: Callable[..., Any]) -> Counts:
    counts = Counter[str]()
    files, sizes = numbered(folder, count), sizes_of(count)
    signature = imported("toolkit.basic").get_quick_signature_string
    noted = {
        str(f).replace(str(folder), ""): [*size, signature(str(f))] for f, size in zip(files, sizes, strict=True)
    }
    (folder / ".aitk_size.json").write_text(json.dumps({"__version__": "0.1.2", **noted}))
    known = {fingerprints.of_file(file): size for file, size in zip(files, sizes, strict=True)}
    settings = [(1, 1, False, False, False), (3, 2, True, False, False), (4, 1, True, True, False)]
    for resolution in RESOLUTIONS:
        for batch, repeats, flip_x, flip_y, square in [*settings, (2, 1, False, False, True)]:
            side = resolution // 16 * 16 if square else resolution  # the model can compute with no other square
            same = {"flip_x": flip_x, "flip_y": flip_y, "square_crop": square}
            its = theirs(folder, batch, resolution=side, num_repeats=repeats, **same)
            items = ours(replace(plain, resolutions=(side,), repeats=repeats, **same), folder, known)
            cuts, mine = Counter(map(_cut, its.file_list)), Counter(map(_own_cut, items))
            counts["settings"] += 1
            counts["pictures at their sizes"] += len(items)
            counts["of these with the same size, scaled size, crop and mirroring"] += (cuts & mine).total()
            groups = Counter(
                tuple(sorted(_cut(its.file_list[place])[:3] for place in bucket.file_list_idx))
                for bucket in its.buckets.values()
            )
            found: dict[tuple[int, int, str], list[tuple[Any, ...]]] = {}
            for item in items:
                found.setdefault((item.width, item.height, item.apart), []).append(_own_cut(item)[:3])
            same_groups = groups == Counter(tuple(sorted(group)) for group in found.values())
            counts["settings with the same groups for batches"] += same_groups
            as_many = len(its.batch_indices) == len(epoch_batches(items, batch, 0, 0))
            counts["settings with as many batches"] += as_many
    return counts


def _cut(one: Any) -> tuple[Any, ...]:
    size = (one.crop_width, one.crop_height, one.scale_to_width, one.scale_to_height)
    return (one.path, one.flip_x, one.flip_y, *size, one.crop_x, one.crop_y)


def _own_cut(item: TrainingItem) -> tuple[Any, ...]:
    wide, high = item.scaled or (0, 0)
    corner = (wide - item.width) // 2, (high - item.height) // 2
    return (str(item.picture.file), item.flip_x, item.flip_y, item.width, item.height, wide, high, *corner)


def _their_captions(folder: Path, plain: Dataset, theirs: Callable[..., Any], pairs: Pairs) -> Counts:
    counts, default = Counter[str](), "a thing, here"
    inject = imported("toolkit.prompt_utils").inject_trigger_into_prompt
    for trigger, is_cached, is_reg in itertools.product((None, "zcat", " zc "), (True, False), (True, False)):
        its = theirs(folder, caption_ext="cap", trigger_word=trigger, is_reg=is_reg, default_caption=default)
        dataset = replace(plain, is_regularisation=is_reg, default_caption=default)
        items = ours(dataset, folder, {}, trigger_word=trigger, cache_text_embeddings=is_cached)
        keyed = {str(item.picture.file): item for item in items}
        for one in its.file_list:
            one.load_caption()
            text, dropped = one.caption, one.get_dropout_caption() if is_cached else ""
            if not is_cached and trigger is not None:  # as process_general_training_batch does
                text, dropped = (inject(it, trigger, add_if_not_present=not is_reg) for it in (text, dropped))
            counts["captions"] += 1
            counts["captions that are equal"] += text == keyed[one.path].caption
            counts["dropped captions that are equal"] += dropped == keyed[one.path].dropped
            pairs += [(text, keyed[one.path].caption), (dropped, keyed[one.path].dropped)]
    return counts


def _their_draws(folder: Path, plain: Dataset, theirs: Callable[..., Any]) -> Counts:
    """Shuffled and dropped tags by the same random numbers."""
    counts = Counter[str]()
    inject = imported("toolkit.prompt_utils").inject_trigger_into_prompt
    for trigger, shuffle, rate, keep in itertools.product((None, "zcat"), (True, False), (0.0, 0.4, 1.0), (0, 2)):
        words = {"shuffle_tokens": shuffle, "token_dropout_rate": rate, "keep_tokens": keep}
        its = theirs(folder, caption_ext="cap", trigger_word=trigger, **words)
        how = CaptionDraw(shuffle=shuffle, dropout=rate, keep=keep, whole=True)
        items = ours(replace(plain, drawn=how), folder, {}, trigger_word=trigger)
        keyed = {str(item.picture.file): item for item in items}
        for number, one in enumerate(its.file_list):
            one.load_caption()
            random.seed(number)
            text = one.get_caption()
            if trigger is not None:
                text = inject(text, trigger, add_if_not_present=True)
            counts["draws"] += 1
            counts["draws that are equal"] += text == drawn_by(keyed[one.path], number)
    return counts
