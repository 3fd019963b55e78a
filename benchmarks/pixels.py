"""Hold what the runner makes of pictures and captions against the trainers' own code, on the same folders.

    python benchmarks/pixels.py TRAINER CHECKOUT [--sizes 5000] [--pictures 60] [--captions 500]

TRAINER is ai-toolkit, sd-scripts, musubi-tuner or simpletuner. The trainer's own modules are imported from its
checkout; OpenCV and torchvision (simpletuner: trainingsample) have to be installed, what else it imports and is not
here is stood in for. Sizes are random, told by the trainer's own notes of sizes where it keeps them; pictures are
noise, waves and slopes in several modes, turned by EXIF where the trainer turns them, whole tensors compared.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import itertools
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from corpus_oracle import StandIn, imported
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from PIL import Image
from words import compare_ids

from zdoctor.doctor.configs.written import Written
from zdoctor.doctor.files import fingerprints
from zdoctor.doctor.model.buckets import Buckets, bucket_size, scaled_size
from zdoctor.doctor.model.datasets import CaptionDraw, Dataset
from zdoctor.doctor.model.recipe import Recipe
from zdoctor.doctor.train.components.vae import Vae
from zdoctor.doctor.train.dataset.batch_sampler import epoch_batches
from zdoctor.doctor.train.dataset.captions import DrawnCaption, drawn_caption
from zdoctor.doctor.train.dataset.pixels import load_pixels
from zdoctor.doctor.train.dataset.training_items import TrainingItem, read_training_items
from zdoctor.doctor.train.encode.latents import encode_image
from zdoctor.doctor.trainers.simpletuner.datasets import buckets_of
from zdoctor.doctor.trainers.simpletuner.options import PARSED
from zdoctor.tests.doctor.train.patient import written

RESOLUTIONS = (256, 512, 768, 1000, 1024)
Counts = Counter[str]
Pairs = list[tuple[str, str]]  # captions, by the trainer and by the runner


def told(counts: Counts) -> str:
    """What agrees and what does not, in the order of asking."""
    return "\n".join(f"  {what}: {count}" for what, count in counts.items())


def sizes_of(count: int) -> list[tuple[int, int]]:
    """Random sizes, from thumbnails to photographs, and the usual ones."""
    draw = random.Random(7)
    usual = [(640, 400), (1024, 1024), (1920, 1080), (1080, 1920), (512, 768), (16, 16), (4000, 700), (33, 2000)]
    return [*usual, *((int(16 * 400 ** draw.random()), int(16 * 400 ** draw.random())) for _ in range(count))][:count]


def numbered(folder: Path, count: int) -> list[Path]:
    """So many small pictures, each of its own bytes."""
    files = []
    for number in range(count):
        files.append(folder / f"{number:05}.png")
        Image.new("RGB", (1, 1), (number % 256, number // 256 % 256, number // 65536)).save(files[-1])
    return files


def pictures_in(folder: Path, count: int, *, turned: bool, modes: tuple[str, ...]) -> list[Path]:
    """Pictures of several kinds of content, sizes, modes and files."""
    draw = np.random.default_rng(3)
    files = []
    for number in range(count):
        wide, high = (int(side) for side in draw.integers(90, 1400, 2))
        if number % 7 == 0:
            wide, high = 64 * int(draw.integers(2, 20)), 64 * int(draw.integers(2, 20))
        if number % 11 == 0:
            wide, high = wide // 4 + 40, high // 4 + 40
        rows, columns = np.indices((high, wide))
        waves = np.stack([127 + 120 * np.sin(rows / (3 + c) + columns / (5 + number % 9)) for c in range(3)], -1)
        noise = draw.integers(0, 256, (high, wide, 3))
        slope = np.stack([(rows * (c + 1) + columns) % 256 for c in range(3)], -1)
        image = Image.fromarray((noise, waves, slope)[number % 3].astype(np.uint8)).convert(
            modes[number % len(modes)]
        )
        if image.mode == "RGBA":
            image.putalpha(Image.linear_gradient("L").resize(image.size))
        exif = Image.Exif()
        exif[0x0112] = 1 + number % 8 if turned else 1
        lossy = number % 5 == 0 and image.mode in ("RGB", "L")
        files.append(folder / f"{number:03}.{'jpg' if lossy else 'png'}")
        image.save(files[-1], exif=exif)
    return files


def captions_in(folder: Path, files: list[Path], extension: str) -> list[str]:
    """Captions with commas, blanks, line ends, other scripts and places for the trigger word, one for each file."""
    draw = random.Random(5)
    words = ["a cat", " red", "[trigger]", "zcat", "", "Würfel", "猫", "1girl", "  long hair ", "photo of [name]"]
    words += ["<|im_end|>", "</s>", "<|endoftext|>", "e\u0301", "\tsoft  light", "🎨", "\u00a0IT'S", "x" * 90]
    texts = []
    for file in files:
        count = 700 if draw.random() < 0.02 else draw.randint(0, 6)  # more than any text encoder takes
        text = ",".join(draw.choice(words) for _ in range(count))
        text += draw.choice(["", "\n", "\r\n", " ", "\n\nsecond line, here", "\r"])
        file.with_suffix(extension).write_bytes(text.encode())
        texts.append(text)
    return texts


def tiny_vae() -> Vae:
    """A VAE of random weights, eight times smaller latents."""
    torch.manual_seed(0)
    make: Any = AutoencoderKL  # whose annotations are of tuples of one
    model = make(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(8, 8, 16, 16),
        norm_num_groups=4,
        latent_channels=4,
    )
    return Vae(model.eval(), 8)


def drawn_by(item: TrainingItem, seed: int) -> str:
    """The caption of an item as it is drawn by this seed."""
    return drawn_caption(item.drawn, random.Random(seed)) if item.drawn else item.caption


def compare_pixels(counts: Counts, vae: Vae, item: TrainingItem, theirs: torch.Tensor) -> None:
    """Counts whether the tensor, channels x height x width from -1 to 1, is that of the item, and their latents."""
    flat = torch.frombuffer(bytearray(load_pixels(item).tobytes()), dtype=torch.uint8)
    ours = flat.reshape(item.height, item.width, 3).permute(2, 0, 1).float() / 255 * 2 - 1
    counts["pictures"] += 1
    if ours.shape != theirs.shape:
        counts["pictures of another size"] += 1
        return
    apart = (ours - theirs).abs().max().item()
    counts["pictures whose pixels are equal"] += apart < 1e-6
    with torch.no_grad():
        latent = vae.model.encode(theirs[None].float()).latent_dist.mean[0] * vae.model.config.scaling_factor
    same = encode_image(vae, item, 0, middle=True)
    counts["pictures whose latents are within 1e-4"] += ((latent - same).norm() / latent.norm()).item() < 1e-4
    if apart >= 1e-6:
        where = f"{item.picture.file.name} {item.picture.width}x{item.picture.height} {item.crop}"
        print(f"    {where}: {apart * 127.5:.1f} of 255 at most", file=sys.stderr)


def ours(dataset: Dataset, folder: Path, known: dict[str, tuple[int, int]], step: int = 16, **recipe: Any) -> Any:
    return read_training_items(Recipe(datasets=(dataset,), **recipe), {dataset.key: str(folder)}, step, known)


def ai_toolkit(sizes: int, pictures: int, captions: int) -> Iterator[tuple[str, Counts]]:
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


def _sized(counts: Counts, how: Buckets, size: tuple[int, int], bucket: Any, scaled: Any) -> None:
    """Counts whether a picture of this size gets this bucket, and this size before (None: not told)."""
    same = bucket_size(how, *size) == tuple(bucket)
    counts["pictures at their sizes"] += 1
    counts["of these with the same size"] += same
    if scaled is not None:
        counts["of these with the same scaled size, too"] += same and scaled_size(how, *size) == tuple(scaled)


def sd_scripts(sizes: int, pictures: int, captions: int) -> Iterator[tuple[str, Counts]]:
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
                    _sized(counts, how, size, bucket, scaled)
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
                for i in ours(_as_kohya(how, first_line=True), folder, {}, literal_captions=True)
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
        dataset = replace(_as_kohya(Buckets(512, 512), first_line=True), default_caption="a thing")
        keyed = {str(item.picture.file): item for item in ours(dataset, folder, {}, literal_captions=True)}
        pairs = [
            (its.process_caption(its.image_to_subset[one.image_key], one.caption), keyed[one.absolute_path].caption)
            for one in its.image_data.values()
        ]
        yield "captions", _compared(pairs)
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


def _compared(pairs: Pairs) -> Counts:
    return Counter({"captions": len(pairs), "captions that are equal": sum(one == other for one, other in pairs)})


def _as_kohya(how: Buckets, **words: Any) -> Dataset:
    return Dataset("datasets/0", "", ".txt", (512,), recursive=False, buckets=how, **words)


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


def musubi(sizes: int, pictures: int, captions: int) -> Iterator[tuple[str, Counts]]:
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
                    _sized(counts, how, size, made, None)
    yield "sizes", counts
    with tempfile.TemporaryDirectory() as name:
        folder, counts = Path(name), Counter[str]()
        files = pictures_in(folder, pictures, turned=False, modes=("RGB", "L", "RGB", "P", "RGB", "LA"))
        captions_in(folder, files, ".txt")
        source = sources.ImageDirectoryDatasource(str(folder), ".txt")
        for resolution, no_upscale in ((256, False), (512, False), (512, True)):
            how = Buckets(resolution, resolution, "musubi-tuner", shrink_only=no_upscale, resampling="area")
            selector = bucket.BucketSelector((resolution, resolution), True, no_upscale, bucket.ARCHITECTURE_Z_IMAGE)
            keyed = {str(item.picture.file): item for item in ours(_as_kohya(how), folder, {}, literal_captions=True)}
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
        keyed = {
            str(i.picture.file): i for i in ours(_as_kohya(Buckets(512, 512)), folder, {}, literal_captions=True)
        }
        pairs = [(text, keyed[path].caption) for path, text in map(source.get_caption, range(len(source)))]
        yield "captions", _compared(pairs)
        yield "token ids", compare_ids("musubi-tuner", folder, pairs)


def simpletuner(sizes: int, pictures: int, captions: int) -> Iterator[tuple[str, Counts]]:
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
            _sized(counts, how, size, bucket, scaled if bucket != scaled else None)
    yield "sizes", counts
    with tempfile.TemporaryDirectory() as name:
        folder, counts = Path(name), Counter[str]()
        files = pictures_in(folder, pictures, turned=False, modes=("RGB", "L", "RGB"))
        for resolution, unit, crop in ((256, "area", False), (512, "pixel", False), (512, "area", True)):
            how = settled(resolution, unit, crop)
            keyed = {item.picture.file: item for item in ours(_as_kohya(how), folder, {}, literal_captions=True)}
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
            _as_kohya(Buckets(512, 512), drawn=CaptionDraw(lines=True)), folder, {}, literal_captions=True
        ):
            text = handler.prepare_instance_prompt_from_textfile(str(item.picture.file), True, False, disk)
            theirs = handler._normalize_caption_payload(text) or [""]  # as it caches them
            lines = {drawn_by(item, n) for n in range(60)}
            pairs += zip(sorted({*theirs}), sorted(lines), strict=True)
        yield "captions", _compared(pairs)
        yield "token ids", compare_ids("simpletuner", folder, pairs)


TRAINERS = {"ai-toolkit": ai_toolkit, "sd-scripts": sd_scripts, "musubi-tuner": musubi, "simpletuner": simpletuner}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("trainer", choices=TRAINERS)
    parser.add_argument("checkout", type=Path)
    for name, default in (("sizes", 5000), ("pictures", 60), ("captions", 500)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    root = asked.checkout.resolve()
    sys.meta_path.insert(0, StandIn(root))
    sys.path[:0] = [str(root), str(root / "src")]
    for what, counts in TRAINERS[asked.trainer](asked.sizes, asked.pictures, asked.captions):
        print(f"{asked.trainer}, {what}:\n{told(counts)}", flush=True)


if __name__ == "__main__":
    main()
