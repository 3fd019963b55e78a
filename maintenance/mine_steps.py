"""Make doctor/families/record/held/ anew: what a training step holds, of every transformer that was mined.

    python -m zdoctor.maintenance.mine_steps [CLASS ...] [--source CHECKOUT] [--ways WAY,... [--table PLACE]]

The real class of full width, with few blocks of each list and a LoRA on every Linear of them, makes a step on tensors
without data (doctor/train/rehearsal), in pictures, prompts, batches and ranks of several sizes. What is held grows
with each of these by an amount of its own: these amounts are solved for and written down. A class of ai-toolkit's own
is taken from its checkout. A model without lists of equal blocks is taken whole. With --ways, of what the file holds
only these are mined, with --table those of one of its configs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from math import prod
from typing import Any

import torch

from zdoctor.doctor.families import family_with
from zdoctor.doctor.families.record.mined import mined_class_of, mined_tensors
from zdoctor.doctor.families.record.steps import FEW as FEW_TOKENS
from zdoctor.doctor.families.record.steps import HELD, NOTHING, WHOLE
from zdoctor.doctor.families.tensors import block_linears
from zdoctor.doctor.model.recipe import Network
from zdoctor.doctor.train.rehearsal.inputs import Batch
from zdoctor.doctor.train.rehearsal.step import WAYS, Step, rehearsed, rehearsed_vae
from zdoctor.doctor.train.rehearsal.watch import Held
from zdoctor.maintenance.amounts import Setting, grid_of, row_of, rows_of, wide_of
from zdoctor.maintenance.autocast import Autocast
from zdoctor.maintenance.mine_classes import written
from zdoctor.maintenance.mined_sizes import (
    CONFIGS,
    FEW,
    OF_FEW,
    OF_UNET,
    PICTURES,
    PROMPTS,
    SHALLOW,
    SIDE,
    SIZES,
    VAES,
)
from zdoctor.maintenance.native_meta import use_native_meta
from zdoctor.maintenance.of_trainers import OF_TRAINERS, own_of_trainer, shapes_of_trainer
from zdoctor.maintenance.trainer_classes import own


def mined(
    name: str, published: Mapping[str, Any], lists: Mapping[str, str], asked: Sequence[str] = ()
) -> dict[str, Any]:
    """The figures of one published config."""
    config = shallow(name, published, lists)
    if name in OF_TRAINERS:
        ways: Sequence[str] = OF_TRAINERS[name].ways
    else:
        ways = WAYS if _is_trained(name, published) else WAYS[:1] if WHOLE in lists else WAYS[:2]
    return {
        "config": {key: value for key, value in published.items() if isinstance(value, bool)},
        "numbers": _numbers_of_blocks(name, config, lists),
        "ways": {way: _of_pictures(name, config, lists, way) for way in asked or ways},
    }


def _of_pictures(name: str, config: Mapping[str, Any], lists: Mapping[str, str], way: str) -> dict[str, Any]:
    if name in OF_TRAINERS and OF_TRAINERS[name].alike:
        return dict.fromkeys(PICTURES, _of_all(name, config, lists, way, "one"))
    return {much: _of_all(name, config, lists, way, much) for much in PICTURES}


def _numbers_of_blocks(name: str, config: Mapping[str, Any], lists: Mapping[str, str]) -> dict[str, int]:
    """How many numbers the Linears of a block of each list have."""
    shapes_of = shapes_of_trainer if name in OF_TRAINERS else mined_tensors
    key, kinds = _unlike(name, config)
    each = [(count, shapes_of(name, {**config, key: value} if key else config)) for count, value in kinds]

    def numbers(one: str) -> int:
        blocks = (count * sum(map(prod, block_linears(shapes, (one,)).values())) for count, shapes in each)
        return sum(blocks) // (FEW * sum(count for count, _ in each))

    return {one: numbers(one) for one in lists if one}


def _unlike(name: str, config: Mapping[str, Any]) -> tuple[str, tuple[tuple[int, Any], ...]]:
    """The key by which blocks of this config differ, "" where they do not."""
    key, kinds = OF_TRAINERS[name].unlike if name in OF_TRAINERS else ("", ())
    return (key, kinds) if key in config else ("", ((1, None),))


def _of_all(name: str, config: Mapping[str, Any], lists: Mapping[str, str], way: str, much: str) -> dict[str, Any]:
    """The figures of a model whose blocks may differ: how many of each kind there are, with theirs."""
    key, kinds = _unlike(name, config)
    if not key:
        return _figures(name, config, lists, way, much)
    made = [(count, _figures(name, {**config, key: value}, lists, way, much)) for count, value in kinds]
    found: dict[str, Any] = {part: [row for _, one in made for row in one[part]] for part in ("drawing", "before")}
    found["lists"] = {part: {"parts": [[count, one["lists"][part]] for count, one in made]} for part in lists}
    return found


def _is_trained(name: str, published: Mapping[str, Any]) -> bool:
    """Whether our own runner trains the model of this class and config."""
    family = family_with(name)
    of_one = family.memory is None or not family.convolves or published == family.memory.config("")
    return family.own is not None and of_one


def shallow(name: str, published: Mapping[str, Any], lists: Mapping[str, str]) -> dict[str, Any]:
    """The config of a model with few blocks."""
    counts = {key: FEW for key in lists.values() if key.isidentifier()}
    return {**published, **counts, **SHALLOW.get(name.rpartition("/")[2], {})}


def _figures(name: str, config: Mapping[str, Any], lists: Mapping[str, str], way: str, much: str) -> dict[str, Any]:
    sizes = OF_UNET if WHOLE in lists and name in OF_TRAINERS else OF_FEW if FEW_TOKENS in way else SIZES
    key, prompt = PROMPTS.get(name, ("", 0))
    if config.get(key):
        sizes = [(cells, prompt, rank) for cells, _, rank in sizes]
    settings = [(PICTURES[much], *size) for size in sizes]
    grid, wide = grid_of(settings), grid_of(wide_of(settings))
    again, kept = ([_run(name, config, lists, way, again, one) for one in settings] for again in (True, False))
    found: dict[str, Any] = {
        "drawing": rows_of(grid, wide, [_above(held.drawing, held.static) for held in kept]),
        "before": rows_of(grid, wide, [_above(held.before, held.static) for held in again if held.before]),
        "lists": {},
    }
    if name in OF_TRAINERS and OF_TRAINERS[name].kept and way.endswith(OF_TRAINERS[name].kept):
        again = []
    if WHOLE in lists:
        nothing = [0.0] * (NOTHING + 1)
        rows = (rows_of(grid, wide, [_above(held.whole, held.static) for held in runs]) for runs in (again, kept))
        found["lists"][WHOLE] = {
            "carry": nothing,
            "keep": nothing,
            **dict(zip(("again", "moment"), rows, strict=True)),
        }
    before: list[str] = []
    for one in kept[0].after:
        before.append(one)
        found["lists"][one] = {
            "carry": row_of(grid, [_grown(held, one) for held in again]),
            "keep": row_of(grid, [_grown(held, one) for held in kept]),
            "again": rows_of(grid, wide, [_trail(held, one, before) for held in again]),
            "moment": rows_of(grid, wide, [_trail(held, one, before) for held in kept]),
        }
    return found


def _run(
    name: str,
    config: Mapping[str, Any],
    lists: Mapping[str, str],
    way: str,
    again: bool,
    setting: Setting,
) -> Held:
    size, cells, text, rank = setting
    batch = Batch(size, (1, *cells), text)
    left_out = OF_TRAINERS[name].excluded(way) if name in OF_TRAINERS else ""
    network = Network(rank=rank, alpha=rank, excluded=left_out)
    step = Step(
        name,
        config,
        list(lists),
        [WHOLE] if name in OF_TRAINERS and OF_TRAINERS[name].everywhere else list(lists),
        batch,
        network,
        way,
        checkpointing=again,
        own=own_of_trainer(name, way) or own(name),
    )
    return rehearsed(step, draws=not again)


def _grown(held: Held, name: str) -> int:
    """What one more block of a list leaves behind."""
    after = held.after[name]
    return after[1] - after[0]


def _trail(held: Held, name: str, before: Sequence[str]) -> list[int]:
    """What there is beside weights, what blocks left, and gradients, from when the last block of a list runs to when
    the gradient went back through it.
    """
    left = held.static + sum(FEW * _grown(held, one) for one in before)
    return _above(held.forward[name], left) + _above(held.backward[name], left + held.gradients[name])


def _above(trail: Sequence[int], base: int) -> list[int]:
    return [now - base for now in trail]


def lists_of(name: str) -> dict[str, str]:
    """The lists of blocks of a class, each with the key of its config that counts them; or all of it."""
    if name in OF_TRAINERS:
        return dict(OF_TRAINERS[name].lists)
    counted = mined_class_of(name)["tables"][0]["lists"]
    family = family_with(name)
    if family.convolves:
        return {WHOLE: ""}
    blocks = family.blocks or [one for one in counted if "." not in one]
    return {one: counted[one] for one in blocks} or {WHOLE: ""}


def main(names: list[str]) -> None:
    names, source = _taken(names, "--source")
    names, asked = _taken(names, "--ways")
    names, table = _taken(names, "--table")
    if source:
        sys.path.insert(0, source)
    version = f"diffusers {import_module('diffusers').__version__}, torch {torch.__version__.partition('+')[0]}"
    for name in names or (*CONFIGS, *OF_TRAINERS, *VAES):
        print(name, flush=True)
        file = HELD / f"{name}.json"
        if name in VAES:
            plain, under = rehearsed_vae(*VAES[name], SIDE), rehearsed_vae(*VAES[name], SIDE, Autocast().computes)
            peaks = {"encode": plain[0], "decode": plain[1], "decode under autocast": under[1]}
            found: dict[str, Any] = {
                "from": version,
                **{name: round(peak / SIDE**2, 1) for name, peak in peaks.items()},
            }
        else:
            lists = lists_of(name)
            configs = OF_TRAINERS[name].configs if name in OF_TRAINERS else CONFIGS[name]
            for way in asked.split(",") if asked else ():
                places = [int(table)] if table else range(len(configs))
                made = {place: mined(name, configs[place], lists, [way]) for place in places}
                empty: dict[str, Any] = {"from": version, "tables": [{} for _ in configs]}
                found = _merged(json.loads(file.read_text("utf-8")) if file.exists() else empty, made)
                file.write_text(written(found), "utf-8")
            if asked:
                continue
            found = {"from": version, "tables": [mined(name, config, lists) for config in configs]}
        file.parent.mkdir(exist_ok=True)
        file.write_text(written(found), "utf-8")


def _taken(words: list[str], option: str) -> tuple[list[str], str]:
    """The words without an option and its value, and that value."""
    if option not in words:
        return words, ""
    place = words.index(option)
    return [*words[:place], *words[place + 2 :]], words[place + 1]


def _merged(before: dict[str, Any], tables: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """What a file holds with the ways that were mined anew."""
    for place, new in tables.items():
        before["tables"] += [{} for _ in range(len(before["tables"]), place + 1)]
        before["tables"][place] = {**new, "ways": {**before["tables"][place].get("ways", {}), **new["ways"]}}
    return before


if __name__ == "__main__":
    use_native_meta()
    main(sys.argv[1:])
