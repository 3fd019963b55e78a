"""Captions whose tags are shuffled or left out, or that have several lines, are those that the trainer would draw."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.examine.translate import for_runner
from zdoctor.doctor.model.datasets import CaptionDraw
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.train.dataset.captions import drawn_caption, with_trigger
from zdoctor.doctor.train.dataset.training_items import TrainingItem, read_training_items
from zdoctor.tests.doctor.trainers.kohya.runs import run_of as kohya
from zdoctor.tests.doctor.trainers.kohya.runs import trained
from zdoctor.tests.doctor.trainers.test_every_key import AI_TOOLKIT, BASES, put, run_of

from ..patient import DATASET, Recorder, go, run_with

TEXTS = ("a cat, red,  long hair , , 1girl", "one tag", "", "a,b,c,d,e", "the [trigger], zc sits, here")


def by_ai_toolkit(text: str, rate: float, keep: int, shuffle: bool, words: tuple[str | None, ...]) -> str:
    """get_caption of its dataloader, and what its training step makes of the caption, with the global draws."""
    tags = text.split(",")
    if rate > 0:
        kept = []
        for place, tag in enumerate(tags):
            if place < keep or (rate < 1.0 and random.random() > rate):
                kept.append(tag)
        tags = kept
    if shuffle:
        random.shuffle(tags)
    caption = with_trigger(", ".join(tags), words[0])
    if shuffle:
        tags = caption.split(",")
        random.shuffle(tags)
        caption = ", ".join(tags)
    return with_trigger(caption, words[1])


def by_sd_scripts(text: str, rate: float, keep: int, shuffle: bool, words: tuple[str | None, ...]) -> str:
    """process_caption of its dataset."""
    tags = [tag.strip() for tag in text.strip().split(",")]
    fixed, rest = tags[:keep], tags[keep:]
    if shuffle:
        random.shuffle(rest)
    if rate > 0:
        rest = [tag for tag in rest if random.random() >= rate]
    return ", ".join(fixed + rest)


def item_of(text: str, draw: CaptionDraw, words: tuple[str | None, ...], tmp_path: Path) -> TrainingItem:
    from PIL import Image

    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    dataset = replace(DATASET, drawn=draw, keeps_blanks=draw.whole, trigger_word=words[0])
    recipe = replace(run_with(trigger_word=words[1]).recipe, datasets=(dataset,), literal_captions=not draw.whole)
    (item,) = read_training_items(recipe, {dataset.key: str(tmp_path)}, 16)
    return item


@pytest.mark.parametrize(("rate", "keep", "shuffle"), [(0, 0, True), (0.4, 1, False), (0.4, 2, True), (1.0, 1, True)])
@pytest.mark.parametrize(
    ("trainer", "whole", "words"),
    [(by_ai_toolkit, True, ("zc", "zc")), (by_ai_toolkit, True, (None, None)), (by_sd_scripts, False, (None, None))],
)
def test_each_draw_is_the_trainer_s(
    trainer: Callable[..., str], whole: bool, words: Any, rate: float, keep: int, shuffle: bool, tmp_path: Path
) -> None:
    for text in TEXTS:
        item = item_of(text, CaptionDraw(shuffle=shuffle, dropout=rate, keep=keep, whole=whole), words, tmp_path)
        for seed in range(20):
            random.seed(seed)
            assert item.drawn is not None
            assert drawn_caption(item.drawn, random.Random(seed)) == trainer(text, rate, keep, shuffle, words)


def test_one_of_several_lines_is_drawn(tmp_path: Path) -> None:
    item = item_of("a cat \n\n  a red cat\n", CaptionDraw(lines=True), (None, None), tmp_path)
    assert item.caption == "a cat"
    assert {item.caption_at(7, index, 0) for index in range(40)} == {"a cat", "a red cat"}
    assert [item.caption_at(7, n, 1) for n in range(9)] == [item.caption_at(7, n, 1) for n in range(9)]
    assert item_of("a cat\n", CaptionDraw(lines=True), (None, None), tmp_path).drawn is None


@pytest.mark.parametrize(
    ("base", "changes", "drawn"),
    [
        ("ai-toolkit zimage", {"datasets/0/shuffle_tokens": True}, CaptionDraw(shuffle=True, whole=True)),
        (
            "ai-toolkit zimage",
            {"datasets/0/token_dropout_rate": 0.2, "datasets/0/keep_tokens": 2},
            CaptionDraw(dropout=0.2, keep=2, whole=True),
        ),
        ("ai-toolkit zimage", {}, None),
        ("SimpleTuner zimage", {}, CaptionDraw(lines=True)),
        ("SimpleTuner zimage", {"datasets/0/disable_multiline_split": True}, None),
    ],
)
def test_what_a_config_says_of_captions(base: str, changes: dict[str, Any], drawn: CaptionDraw | None) -> None:
    trainer, _, tree = BASES[base]
    for key, value in changes.items():
        tree = put(tree, key, value)
    run = run_of(trainer, tree)
    assert run is not None and not run.refused and run.recipe.datasets[0].drawn == drawn


def test_what_sd_scripts_is_told_of_captions() -> None:
    words = {"shuffle_caption": True, "keep_tokens": 2, "caption_tag_dropout_rate": 0.1}
    (dataset,) = trained(kohya(of_subset=words)).recipe.datasets
    assert dataset.drawn == CaptionDraw(shuffle=True, dropout=0.1, keep=2)


@pytest.mark.parametrize(
    ("text", "how", "made"),
    [
        ("a {red|blue} {{cat}}", {"wildcards": True}, {"a red {cat}", "a blue {cat}"}),
        ("one\ntwo {x}", {"wildcards": True, "lines": True}, {"one", "two x"}),
        ("a cat", {"before": "photo of", "after": "by me"}, {"photo of a cat by me"}),
        ("a;;b, c", {"secondary": ";;"}, {"a,b, c"}),
        ("a; b; c", {"separator": ";", "shuffle": True, "keep": 1}, {"a, b, c", "a, c, b"}),
        ("zc ||| a, b ||| last", {"shuffle": True, "keep_separator": "|||"}, {"zc, a, b, last", "zc, b, a, last"}),
        ("zc ||| a, b", {"dropout": 1.0, "keep_separator": "|||"}, {"zc"}),
    ],
)
def test_captions_of_sd_scripts(text: str, how: dict[str, Any], made: set[str], tmp_path: Path) -> None:
    """What process_caption (48d368fa) makes of them; benchmarks/pixels.py asks it itself."""
    item = item_of(text, CaptionDraw(**how), (None, None), tmp_path)
    assert item.drawn and {drawn_caption(item.drawn, random.Random(seed)) for seed in range(20)} == made
    assert item.caption in made or how.get("shuffle") or how.get("dropout")


def test_what_sd_scripts_is_told_of_wildcards_and_separators() -> None:
    (dataset,) = trained(kohya(of_subset={"enable_wildcard": True, "caption_prefix": "of"})).recipe.datasets
    assert dataset.drawn == CaptionDraw(lines=True, wildcards=True, before="of") and not dataset.first_line
    words = {"shuffle_caption": True, "caption_separator": ";", "keep_tokens_separator": "|||"}
    (dataset,) = trained(kohya(of_subset={**words, "secondary_separator": ";;"})).recipe.datasets
    assert dataset.drawn == CaptionDraw(shuffle=True, separator=";", secondary=";;", keep_separator="|||")
    (dataset,) = trained(kohya(of_subset={"caption_separator": ";"})).recipe.datasets
    assert dataset.drawn is None and dataset.first_line


def test_what_is_drawn_once_only_is_refused() -> None:
    tree = put(put(AI_TOOLKIT, "datasets/0/shuffle_tokens", True), "train/cache_text_embeddings", True)
    run, schema = run_of("ai-toolkit", tree), shipped("ai-toolkit")
    assert run is not None and schema is not None
    obeyed = for_runner(run, schema)
    assert any("shuffle_tokens does not go with" in what for _, what in obeyed.refused)


def test_a_run_encodes_what_it_draws_and_goes_on_with_it(tiny: Path, circles: Path, tmp_path: Path) -> None:
    drawn = replace(DATASET, drawn=CaptionDraw(lines=True, shuffle=True))
    folder = tmp_path / "pictures"
    folder.mkdir()
    for file in circles.glob("*.png"):
        (folder / file.name).write_bytes(file.read_bytes())
        file_of_words = folder / file.with_suffix(".txt").name
        file_of_words.write_text("red, round, large\nblue, square, small", encoding="utf-8")
    run = run_with(steps=4, datasets=(drawn,))
    whole = go(run, tiny, folder, tmp_path / "whole", fresh=True, progress=(told := Recorder()))
    assert next(phase for phase in told.phases if "text encoder" in phase) != "Loading the text encoder for 1 prompt"
    go(run_with(steps=2, datasets=(drawn,)), tiny, folder, tmp_path / "parts", fresh=True)
    assert go(run, tiny, folder, tmp_path / "parts", fresh=True).losses == whole.losses
