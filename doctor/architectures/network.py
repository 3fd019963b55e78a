"""What a run trains beside the frozen model and where that lies, by the words of its config."""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt

from ..model import Run
from ..model.families import NEVER_OFFLOADED


def lokr_factor(run: Run) -> int:
    """-1, unless a whole number above 0 is written: each side of a Linear is split into two that are most alike."""
    value = run.setting("network/lokr_factor")
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else -1


def lokr_rank(run: Run) -> int | None:
    """The rank of the larger factor of a LoKr, or None for full matrices, which is ai-toolkit's default."""
    return None if run.setting("network/lokr_full_rank", True) else run.rank


def scale(run: Run) -> float:
    """What B @ A is multiplied by: 1, as in ai-toolkit, or alpha / rank where the config's own trainer does that."""
    return float(run.setting("network/scale", 1.0))


def left_out(run: Run) -> str:
    """A pattern of the Linears that the config's own trainer leaves out, "" where it takes them all."""
    return str(run.setting("network/left_out", ""))


def plus(run: Run) -> float:
    """How many times the learning rate B has (LoRA+)."""
    return float(run.setting("network/plus", 1.0))


def described(run: Run) -> str:
    """What must be the same for a state to fit: rank and alpha of a LoRA, or the factors of a LoKr."""
    if run.network_type != "lokr":
        words = {
            f"alpha {scale(run) * run.rank:g}": scale(run) != 1.0,
            f"LoRA+ {plus(run):g}": plus(run) != 1.0,
            f"without {left_out(run)}": bool(left_out(run)),
        }
        return ", ".join([str(run.rank), *(word for word, said in words.items() if said)])
    rank = lokr_rank(run)
    return f"{'full' if rank is None else rank} (LoKr of factor {lokr_factor(run)})"


def offloaded_share(run: Run) -> float:
    """Which share of the blocks' frozen weights stays in host memory: ai-toolkit's layer_offloading."""
    never = run.trainer == "ai-toolkit" and run.architecture in NEVER_OFFLOADED
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


def trained_weights(run: Run, linears: Iterable[tuple[int, int]]) -> int:
    """How many numbers are trained on Linears of these (inputs, outputs)."""
    if run.network_type != "lokr":
        return run.rank * sum(sum(sides) for sides in linears)
    factor, rank = lokr_factor(run), lokr_rank(run)
    return sum(a * b for inputs, out in linears for a, b in lokr_shapes(out, inputs, factor, rank).values())
