"""Make doctor/families/record/held/ anew: what a training step holds, of every transformer that was mined.

    python -m zdoctor.maintenance.mine_steps [CLASS ...] [--source CHECKOUT]

The real class of full width, with few blocks of each list and a LoRA on every Linear of them, makes a step on tensors
without data (doctor/train/rehearsal), in pictures, prompts, batches and ranks of several sizes. What is held grows
with each of these by an amount of its own: these amounts are solved for and written down. A class of ai-toolkit's own
is taken from its checkout. A model without lists of equal blocks is taken whole.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
import torch

from zdoctor.doctor.families import family_with
from zdoctor.doctor.families.components.autoencoder_kl import VAE
from zdoctor.doctor.families.models.flux2 import KLEIN_4B_CONFIG, KLEIN_9B_CONFIG
from zdoctor.doctor.families.models.wan import WAN22_5B
from zdoctor.doctor.families.record.mined import mined_class_of, mined_tensors
from zdoctor.doctor.families.record.steps import HELD, WHOLE, Tokens, terms
from zdoctor.doctor.families.tensors import block_linears
from zdoctor.doctor.model.recipe import Network
from zdoctor.doctor.train.rehearsal.inputs import Batch
from zdoctor.doctor.train.rehearsal.step import WAYS, Step, rehearsed, rehearsed_vae
from zdoctor.doctor.train.rehearsal.watch import Held
from zdoctor.maintenance.autocast import Autocast
from zdoctor.maintenance.classes import CLASSES
from zdoctor.maintenance.of_trainers import OF_TRAINERS, own_of_trainer, shapes_of_trainer
from zdoctor.maintenance.trainer_classes import own

_PUBLISHED = {source.name: source.configs for source in CLASSES}
# What of the published configs differs from the class's defaults, where that changes what a block is.
CONFIGS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "ZImageTransformer2DModel": ({},),
    "FluxTransformer2DModel": ({"guidance_embeds": True},),
    "QwenImageTransformer2DModel": ({}, {"zero_cond_t": True}),
    "Flux2Transformer2DModel": (
        {},
        {"guidance_embeds": False, "num_attention_heads": 24, "joint_attention_dim": 7680},
        {"guidance_embeds": False, "num_attention_heads": 32, "joint_attention_dim": 12288},
    ),
    "Krea2Transformer2DModel": ({},),
    "ChromaTransformer2DModel": ({},),
    "WanTransformer3DModel": (
        {},
        {"num_attention_heads": 12, "ffn_dim": 8960},
        {"num_attention_heads": 24, "ffn_dim": 14336, "in_channels": 48, "out_channels": 48},
        {"image_dim": 1280, "added_kv_proj_dim": 5120, "in_channels": 36},
    ),
    "UNet2DConditionModel": _PUBLISHED["UNet2DConditionModel"],
    "Flux2": ({}, KLEIN_4B_CONFIG, KLEIN_9B_CONFIG),
    "SingleStreamDiT": _PUBLISHED["SingleStreamDiT"],
    "Chroma": _PUBLISHED["Chroma"],
    "Ideogram4": ({},),
    "ZImageDCT": ({"in_channels": 3072},),
    **{
        name: _PUBLISHED[name]
        for name in (
            "Lumina2Transformer2DModel",
            "CosmosTransformer3DModel",
            "LTX2VideoTransformer3DModel",
            "HiDreamImageTransformer2DModel",
            "OmniGen2Transformer2DModel",
            "BooguImageTransformer2DModel",
            "ErnieImageTransformer2DModel",
            "NucleusMoEImageTransformer2DModel",
        )
    },
    "PRXTransformer2DModel": _PUBLISHED["PRXTransformer2DModel"][1:],
    "SD3Transformer2DModel": (
        {"num_attention_heads": 38, "caption_projection_dim": 2432, "pos_embed_max_size": 192, "qk_norm": "rms_norm"},
    ),
    "Ideogram4Transformer2DModel": ({},),
}
# what it is called -> its class, and its config
VAES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "AutoencoderKL": ("AutoencoderKL", VAE),
    "AutoencoderKLFlux2": ("AutoencoderKLFlux2", {}),
    "AutoencoderKLQwenImage": ("AutoencoderKLQwenImage", {}),
    "AutoencoderKLWan": ("AutoencoderKLWan", {}),
    "AutoencoderKLWan2.2": WAN22_5B.published["vae"],
    "AutoencoderKLLTX2Video": ("AutoencoderKLLTX2Video", {}),
}
# Of classes whose depths no keys of their own count.
SHALLOW: Mapping[str, Mapping[str, Any]] = {
    "BooguImageTransformer2DModel": {"num_layers": 6, "num_double_stream_layers": 3},
    "HiDreamImageTransformer2DModel": {"llama_layers": [0] * 6},
}
SIDE = 1024  # pixels of the picture that a VAE is mined with; what it takes grows with the picture's area
FEW = 3  # blocks of each list
# (height and width in tokens, tokens of a prompt, rank), from small to large
SIZES = [
    ((32, 32), 256, 16),
    ((64, 64), 256, 16),
    ((64, 64), 1024, 16),
    ((48, 64), 256, 128),
    ((128, 128), 512, 4),
    ((16, 32), 512, 128),
    ((96, 64), 768, 32),
]
# of a UNet, whose prompts have so many tokens
OF_UNET = [
    ((32, 32), 77, 16),
    ((64, 64), 77, 16),
    ((48, 64), 77, 128),
    ((128, 128), 77, 4),
    ((96, 64), 77, 32),
]
# One picture is often a view of what several are a copy of.
PICTURES = {"one": 1, "several": 2}


def mined(name: str, published: Mapping[str, Any], lists: Mapping[str, str]) -> dict[str, Any]:
    """The figures of one published config."""
    config = shallow(name, published, lists)
    if name in OF_TRAINERS:
        ways: Sequence[str] = OF_TRAINERS[name].ways
        shapes: Mapping[str, tuple[int, ...]] = shapes_of_trainer(name, config)
    else:
        ways = WAYS if _is_trained(name, published) else WAYS[:1] if WHOLE in lists else WAYS[:2]
        shapes = mined_tensors(name, config)
    return {
        "config": {key: value for key, value in published.items() if isinstance(value, bool)},
        "numbers": {one: sum(map(prod, block_linears(shapes, (one,)).values())) // FEW for one in lists if one},
        "ways": {way: {much: _figures(name, config, lists, way, much) for much in PICTURES} for way in ways},
    }


def _is_trained(name: str, published: Mapping[str, Any]) -> bool:
    """Whether our own runner trains the model of this class and config."""
    family = family_with(name)
    of_one = family.memory is None or not family.convolves or published == family.memory.config("")
    return family.own is not None and of_one


def shallow(name: str, published: Mapping[str, Any], lists: Mapping[str, str]) -> dict[str, Any]:
    """The config of a model with few blocks."""
    counts = {key: FEW for key in lists.values() if key.isidentifier()}
    return {**published, **counts, **SHALLOW.get(name, {})}


def _figures(name: str, config: Mapping[str, Any], lists: Mapping[str, str], way: str, much: str) -> dict[str, Any]:
    sizes = OF_UNET if WHOLE in lists and name in OF_TRAINERS else SIZES
    settings = [(PICTURES[much], *size) for size in sizes]
    counted = (Tokens(count, cells[0] * cells[1], text, rank) for count, cells, text, rank in settings)
    grid = np.array(list(map(terms, counted)), float)
    again, kept = ([_run(name, config, lists, way, again, one) for one in settings] for again in (True, False))
    found: dict[str, Any] = {
        "drawing": _rows(grid, [_above(held.drawing, held.static) for held in kept]),
        "before": _rows(grid, [_above(held.before, held.static) for held in again if held.before]),
        "lists": {},
    }
    if WHOLE in lists:
        nothing = [0.0] * grid.shape[1]
        rows = (_rows(grid, [_above(held.whole, held.static) for held in runs]) for runs in (again, kept))
        found["lists"][WHOLE] = {
            "carry": nothing,
            "keep": nothing,
            **dict(zip(("again", "moment"), rows, strict=True)),
        }
    before: list[str] = []
    for one in kept[0].after:
        before.append(one)
        found["lists"][one] = {
            "carry": _row(grid, [_grown(held, one) for held in again]),
            "keep": _row(grid, [_grown(held, one) for held in kept]),
            "again": _rows(grid, [_trail(held, one, before) for held in again]),
            "moment": _rows(grid, [_trail(held, one, before) for held in kept]),
        }
    return found


def _run(
    name: str,
    config: Mapping[str, Any],
    lists: Mapping[str, str],
    way: str,
    again: bool,
    setting: tuple[int, tuple[int, int], int, int],
) -> Held:
    size, cells, text, rank = setting
    batch = Batch(size, (1, *cells), text)
    left_out = OF_TRAINERS[name].left_out if name in OF_TRAINERS else ""
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


def _rows(grid: Any, trails: Sequence[Sequence[int]]) -> list[list[float]]:
    """The places of a trail that are its highest in one of the settings, each as a row of amounts."""
    if not trails:
        return []
    lengths = {len(trail) for trail in trails}
    if len(lengths) > 1:
        raise SystemExit(f"the settings do not run alike: {sorted(lengths)} new tensors")
    places = dict.fromkeys(max(range(len(trail)), key=trail.__getitem__) for trail in trails)
    rows = [_row(grid, [trail[place] for trail in trails]) for place in places]
    return [row for index, row in enumerate(rows) if row not in rows[:index]]


def _row(grid: Any, values: Sequence[int], *, pairs: bool = False) -> list[float]:
    """The amounts by which these values grow with each term; with pairs of tokens where these are needed."""
    varies = np.ptp(grid, axis=0) > 0
    varies[-2] = pairs
    varies[-1] = True  # the one for nothing
    scale = grid[:, varies].max(axis=0)
    found = np.zeros(grid.shape[1])
    found[varies] = np.linalg.lstsq(grid[:, varies] / scale, np.array(values, float), rcond=None)[0] / scale
    off = np.abs(grid @ found - values).max()
    if off > 1 << 20 and not pairs:
        return _row(grid, values, pairs=True)
    if off > 1 << 20:
        print(f"    off by up to {off / 2**20:.0f} MiB of {max(values) / 2**20:.0f}", flush=True)
    return [round(float(one), 2) + 0.0 for one in found]


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
    if "--source" in names:
        place = names.index("--source")
        sys.path.insert(0, names[place + 1])
        names = [*names[:place], *names[place + 2 :]]
    version = f"diffusers {import_module('diffusers').__version__}, torch {torch.__version__.partition('+')[0]}"
    for name in names or (*CONFIGS, *OF_TRAINERS, *VAES):
        print(name, flush=True)
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
            found = {"from": version, "tables": [mined(name, config, lists) for config in configs]}
        file = HELD / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text_of(found), "utf-8")


def text_of(found: Mapping[str, Any]) -> str:
    """The file's text: a line for each list of figures."""
    text = json.dumps(found, indent=1)
    return re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: "[" + re.sub(r"\s*\n\s*", " ", m.group(1)) + "]", text) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
