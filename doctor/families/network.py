"""What a run trains beside the frozen model, and what the file of a LoRA or another network holds to begin with."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from math import isqrt, prod
from typing import Any

from ..model import Run
from ..model.recipe import Network
from . import classes, family_of, family_with
from .record import Family
from .record.blocks import is_within
from .record.single_file import original_parts
from .tensors import block_linears, needed_tensors

_KOHYA = "lora_unet_"
Linears = Mapping[str, tuple[int, ...]]  # (out, in) by name; of a convolution its window, too
Shapes = dict[str, tuple[int, ...]]  # of what is trained on one Linear, by the names that a file has after its own


def lokr_factor(network: Network, name: str) -> int:
    """The factor of a LoKr for the Linear `name`; -1: each side is split into two that are most alike."""
    value = next((own for part, own in network.lokr_factors.items() if part in name.split(".")), network.lokr_factor)
    return value if value > 0 else -1


def lokr_rank(network: Network) -> int | None:
    """The rank of the larger factor of a LoKr, or None for full matrices, which is ai-toolkit's default."""
    return None if network.lokr_full_rank else network.rank


def described(network: Network) -> str:
    """What must be the same for a state to fit: rank and alpha of a LoRA, or the factors of a LoKr."""
    without = f", without {network.excluded}" if network.excluded else ""
    without += f", whole {network.full}" if network.full else ""
    more = ", with the refiners" if network.refiners else ""
    more += "".join(f", with the {part}" for part in sorted(network.text_rates))
    if network.type != "lokr":
        kind = "" if network.type == "lora" else f" ({TITLES[network.type]})"
        alpha = f", alpha {network.scale * network.rank:g}" if network.scale != 1.0 else ""
        plus = f", LoRA+ {network.lora_plus_ratio:g}" if network.lora_plus_ratio != 1.0 else ""
        return f"{network.rank}{kind}{alpha}{plus}{without}{more}"
    rank = lokr_rank(network)
    factors = "".join(f", {part} of {factor}" for part, factor in network.lokr_factors.items())
    return f"{'full' if rank is None else rank} (LoKr of factor {network.lokr_factor}{factors}{without}{more})"


def offloaded_share(run: Run) -> float:
    """Which share of the blocks' frozen weights stays in host memory: ai-toolkit's layer_offloading."""
    never = run.trainer == "ai-toolkit" and not family_of(run.recipe.architecture).ai_toolkit.offloads
    return 0.0 if never else run.recipe.offload.share or 0.0


def factors(size: int, factor: int) -> tuple[int, int]:
    """The two numbers that one side of a Linear is split into, as LyCORIS and ai-toolkit do it.

    `factor` and the rest where `factor` divides `size`; else, and for -1, the two that are most alike, the smaller
    first and (but for -1) at most `factor`.
    """
    if factor > 0 and size % factor == 0:
        return factor, size // factor
    most = size if factor == -1 else factor
    small = max(n for n in range(1, isqrt(size) + 1) if size % n == 0 and n <= most)
    return small, size // small


def lokr_shapes(out: int, inputs: int, factor: int, rank: int | None) -> dict[str, tuple[int, int]]:
    """Name -> shape of the matrices of one LoKr: kron(w1, w2), w2 being w2_a @ w2_b where that is smaller."""
    (left, rows), (inner, columns) = factors(out, factor), factors(inputs, factor)
    first = {"lokr_w1": (left, inner)}
    if rank is None or rank >= max(rows, columns) / 2:
        return {**first, "lokr_w2": (rows, columns)}
    return {**first, "lokr_w2_a": (rows, rank), "lokr_w2_b": (rank, columns)}


def _lora_shapes(network: Network, name: str, out: int, inputs: int) -> Shapes:
    return {"lora_A.weight": (network.rank, inputs), "lora_B.weight": (out, network.rank)}


def _conv_shapes(network: Network, out: int, inputs: int, *window: int) -> Shapes:
    rank = rank_of(network, (out, inputs, *window))
    return {"lora_A.weight": (rank, inputs, *window), "lora_B.weight": (out, rank, 1, 1)}


def _dora_shapes(network: Network, name: str, out: int, inputs: int) -> Shapes:
    return {**_lora_shapes(network, name, out, inputs), MAGNITUDE: (out,)}


def _lokr_shapes(network: Network, name: str, out: int, inputs: int) -> Shapes:
    return {**lokr_shapes(out, inputs, lokr_factor(network, name), lokr_rank(network))}


def _loha_shapes(network: Network, name: str, out: int, inputs: int) -> Shapes:
    sides = {"a": (out, network.rank), "b": (network.rank, inputs)}
    return {f"hada_w{number}_{side}": shape for number in (1, 2) for side, shape in sides.items()}


def _oft_shapes(network: Network, name: str, out: int, inputs: int) -> Shapes:
    size = out // network.rank
    return {"oft_blocks": (network.rank, size, size)}


def _full_shapes(network: Network, name: str, out: int, inputs: int) -> Shapes:
    return {"diff": (out, inputs)}  # and the bias, where it has one


# The kinds of networks: what each trains on a Linear, as LyCORIS and diffusers name it in a file.
SHAPES: Mapping[str, Callable[[Network, str, int, int], Shapes]] = {
    "lora": _lora_shapes,
    "dora": _dora_shapes,
    "lokr": _lokr_shapes,
    "loha": _loha_shapes,
    "oft": _oft_shapes,
    "full": _full_shapes,
}
TITLES = {"lora": "LoRA", "dora": "DoRA", "lokr": "LoKr", "loha": "LoHa", "oft": "OFT"}
MAGNITUDE = "lora_magnitude_vector"
_PARAMETER = re.compile(r"\.((?:lora|lokr|hada|oft)_[^.]+(?:\.weight)?|diff(?:_b)?)$")
# The matrix that takes the scale of a network in, so that its file is used at scale 1.
SCALED = ("lora_B.weight", "hada_w1_a", "lokr_w2_a")


def rank_of(network: Network, shape: tuple[int, ...]) -> int:
    """The rank on a layer of this shape; convolutions that see more than one place have one of their own."""
    return network.rank if prod(shape[2:]) == 1 else network.conv_rank


def kind_at(network: Network, name: str) -> str:
    """Which kind of network the Linear `name` gets."""
    return "full" if network.full and re.search(network.full, name) else network.type


def file_prefix(network: Network, prefix: str) -> str:
    """What the keys of a file begin with: the family's own, but diffusers opens DoRAs under its own name only."""
    return "transformer." if network.type == "dora" else prefix


def trained_weights(network: Network, linears: Linears) -> int:
    """How many numbers are trained on those of these Linears that are not left out."""
    return sum(map(prod, network_shapes(network, _without(linears, network.excluded)).values()))


def _without(linears: Linears, left_out: str) -> Linears:
    pattern = re.compile(left_out or r"(?!)")
    return {name: shape for name, shape in linears.items() if not pattern.search(name)}


def target_linears(
    class_name: str | None,
    config: Mapping[str, Any],
    left_out: str = "",
    *,
    refiners: bool = False,
    windows: bool = False,
) -> Linears | None:
    """(out, in) by name of the Linears that the runner trains a LoRA on: all of the main blocks, and of the
    `refiners` before them, but those in whose name `left_out` is found. Of a UNet the convolutions of one place, with
    `windows` those of several, too. None where the transformer is not known.
    """
    shapes, family = needed_tensors(class_name or "", config), family_with(class_name)
    if shapes is None:
        return None
    targets = family.targets(refiners=refiners)
    found = block_linears(shapes, targets) | (convolutions(shapes, targets, windows) if family.convolves else {})
    return _without(found, left_out)


def convolutions(
    shapes: Mapping[str, tuple[int, ...]], lists: Collection[str], windows: bool
) -> dict[str, tuple[int, ...]]:
    """The shapes by name of the convolutions in these lists: of one place, with `windows` of several, too."""
    return {
        name.removesuffix(".weight"): shape
        for name, shape in shapes.items()
        if len(shape) == 4 and is_within(name, lists) and (windows or prod(shape[2:]) == 1)
    }


def spelled(key: str, family: Family) -> str:
    """A trained parameter's key as a file has it: of a family with kohya's prefix as kohya's trainers write it."""
    found = _PARAMETER.search(key)
    if found is None or family.transformer is None or family.lora_prefix != _KOHYA:
        return key
    name = family.transformer.original(f"{key[len(_KOHYA) : found.start()]}.weight").removesuffix(".weight")
    parameter = found[1].replace("lora_A", "lora_down").replace("lora_B", "lora_up")
    return f"{_KOHYA}{name.replace('.', '_')}.{parameter}"


def network_shapes(network: Network, linears: Linears) -> dict[str, tuple[int, ...]]:
    """The shapes of what is trained, by the names that a saved file has after its prefix."""
    return {
        f"{name}.{part}": shape
        for name, (out, inputs, *window) in linears.items()
        for part, shape in (
            _conv_shapes(network, out, inputs, *window)
            if window
            else SHAPES.get(kind_at(network, name), _lora_shapes)(network, name, out, inputs)
        ).items()
    }


def is_kohya(keys: Collection[str]) -> bool:
    """Whether a file has the names of sd-scripts and musubi-tuner."""
    return any(key.startswith(_KOHYA) for key in keys)


def sources(keys: Collection[str], linears: Linears, class_name: str) -> dict[str, tuple[str, slice | None]]:
    """By the names as in `network_shapes`: the key in the file, and which of its rows (None: the whole tensor).

    A LoRA of kohya's on a fused Linear (query, key and value) becomes one of each of its parts, with the same A and
    the rows of B that are the part's: together they compute the same. Alpha has no say, as in the trainers, which
    begin with such files; what is there for a text encoder is left out.
    """
    if not is_kohya(keys):
        whole = (key for key in keys if not key.endswith(".alpha"))
        return {key.removeprefix("transformer.").removeprefix("diffusion_model."): (key, None) for key in whole}
    found: dict[str, tuple[str, slice | None]] = {}
    for original, names in original_parts(
        classes()[class_name].original, [f"{name}.weight" for name in linears]
    ).items():
        parts = [name.removesuffix(".weight") for name in names]
        for owner, covered in ((original.removesuffix(".weight"), parts), *((part, [part]) for part in parts)):
            key = _KOHYA + owner.replace(".", "_")
            down, up = f"{key}.lora_down.weight", f"{key}.lora_up.weight"
            if down not in keys or up not in keys:
                continue
            row = 0
            for part in covered:
                found[f"{part}.lora_A.weight"] = down, None
                found[f"{part}.lora_B.weight"] = up, slice(row, row + linears[part][0])
                row += linears[part][0]
    return found


def shape_of(shape: tuple[int, ...], rows: slice | None) -> tuple[int, ...]:
    """The shape of these rows of a tensor."""
    return shape if rows is None or not shape else (len(range(shape[0])[rows]), *shape[1:])
