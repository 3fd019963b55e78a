"""What a run trains beside the frozen model and where that lies, by the words of its config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isqrt

from ..model import Run
from . import family_of


def lokr_factor(run: Run, name: str = "") -> int:
    """-1, unless a whole number above 0 is written: each side of a Linear is split into two that are most alike.

    The Linear `name` may have a factor of its own, by a part of its name.
    """
    value = next((own for part, own in _factors(run).items() if part in name.split(".")), None)
    value = run.setting("network/lokr_factor") if value is None else value
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else -1


def _factors(run: Run) -> Mapping[str, int]:
    """Factors of LoKr by a part of the names of their Linears."""
    found = run.setting("network/lokr_factors")
    return found if isinstance(found, dict) else {}


def lokr_rank(run: Run) -> int | None:
    """The rank of the larger factor of a LoKr, or None for full matrices, which is ai-toolkit's default."""
    return None if run.setting("network/lokr_full_rank", True) else run.recipe.network.rank


def scale(run: Run) -> float:
    """What B @ A is multiplied by: 1, as in ai-toolkit, or alpha / rank where the config's own trainer does that."""
    return float(run.setting("network/scale", 1.0))


def left_out(run: Run) -> str:
    """A pattern of the Linears that the config's own trainer leaves out, "" where it takes them all."""
    return str(run.setting("network/left_out", ""))


def refiners(run: Run) -> bool:
    """Whether the Linears of Z-Image's refiners are trained, too, as in SimpleTuner."""
    return run.trainer == "SimpleTuner" or bool(run.setting("network/refiners"))


def plus(run: Run) -> float:
    """How many times the learning rate B has (LoRA+)."""
    return float(run.setting("network/plus", 1.0))


def described(run: Run) -> str:
    """What must be the same for a state to fit: rank and alpha of a LoRA, or the factors of a LoKr."""
    recipe = run.recipe
    if recipe.network.type != "lokr":
        words = {
            f"alpha {scale(run) * recipe.network.rank:g}": scale(run) != 1.0,
            f"LoRA+ {plus(run):g}": plus(run) != 1.0,
            f"without {left_out(run)}": bool(left_out(run)),
            "with the refiners": refiners(run),
        }
        return ", ".join([str(recipe.network.rank), *(word for word, said in words.items() if said)])
    rank = lokr_rank(run)
    factors = "".join(f", {part} of {factor}" for part, factor in _factors(run).items())
    without = f", without {left_out(run)}" if left_out(run) else ""
    more = ", with the refiners" if refiners(run) else ""
    return f"{'full' if rank is None else rank} (LoKr of factor {lokr_factor(run)}{factors}{without}{more})"


def offloaded_share(run: Run) -> float:
    """Which share of the blocks' frozen weights stays in host memory: ai-toolkit's layer_offloading."""
    never = run.trainer == "ai-toolkit" and not family_of(run.recipe.architecture).ai_toolkit.offloads
    if never or not run.setting("model/layer_offloading"):
        return 0.0
    share = run.setting("model/layer_offloading_transformer_percent", 1.0)
    return min(1.0, max(0.0, float(share))) if isinstance(share, int | float) else 1.0


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


def trained_weights(run: Run, linears: Mapping[str, tuple[int, int]]) -> int:
    """How many numbers are trained on those of these Linears, name -> (inputs, outputs), that are not left out."""
    covered, without = linears, left_out(run)
    if without:
        covered = {name: sides for name, sides in linears.items() if not re.search(without, name)}
    if run.recipe.network.type != "lokr":
        return run.recipe.network.rank * sum(sum(sides) for sides in covered.values())
    shapes = (
        lokr_shapes(out, inputs, lokr_factor(run, name), lokr_rank(run)) for name, (inputs, out) in covered.items()
    )
    return sum(a * b for of_one in shapes for a, b in of_one.values())
