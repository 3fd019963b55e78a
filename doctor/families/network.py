"""What a run trains beside the frozen model and where that lies, by the words of its config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isqrt

from ..model import Run
from ..model.recipe import Network
from . import family_of


def lokr_factor(network: Network, name: str) -> int:
    """The factor of a LoKr for the Linear `name`; -1: each side is split into two that are most alike."""
    value = next((own for part, own in network.lokr_factors.items() if part in name.split(".")), network.lokr_factor)
    return value if value > 0 else -1


def lokr_rank(network: Network) -> int | None:
    """The rank of the larger factor of a LoKr, or None for full matrices, which is ai-toolkit's default."""
    return None if network.lokr_full_rank else network.rank


def described(network: Network) -> str:
    """What must be the same for a state to fit: rank and alpha of a LoRA, or the factors of a LoKr."""
    if network.type != "lokr":
        words = {
            f"alpha {network.scale * network.rank:g}": network.scale != 1.0,
            f"LoRA+ {network.lora_plus_ratio:g}": network.lora_plus_ratio != 1.0,
            f"without {network.excluded}": bool(network.excluded),
            "with the refiners": network.refiners,
        }
        return ", ".join([str(network.rank), *(word for word, said in words.items() if said)])
    rank = lokr_rank(network)
    factors = "".join(f", {part} of {factor}" for part, factor in network.lokr_factors.items())
    without = f", without {network.excluded}" if network.excluded else ""
    more = ", with the refiners" if network.refiners else ""
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


def trained_weights(network: Network, linears: Mapping[str, tuple[int, int]]) -> int:
    """How many numbers are trained on those of these Linears, name -> (inputs, outputs), that are not left out."""
    covered = linears
    if network.excluded:
        covered = {name: sides for name, sides in linears.items() if not re.search(network.excluded, name)}
    if network.type != "lokr":
        return network.rank * sum(sum(sides) for sides in covered.values())
    shapes = (
        lokr_shapes(out, inputs, lokr_factor(network, name), lokr_rank(network))
        for name, (inputs, out) in covered.items()
    )
    return sum(a * b for of_one in shapes for a, b in of_one.values())
