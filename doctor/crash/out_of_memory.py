"""The card's memory is out: who holds it by the words, in which phase of the run, and what would need less of it."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..model.crashes import Failure, Known, Ran
from ..model.record import replace
from . import table
from .card_memory import Card, card_of, size_of
from .failures import SAID
from .levers import command_of, levers
from .lines import Lines
from .phases import Phase, of_a_step, phase_of
from .ran import ran

RULE = "MEM001"
_SAYS = re.compile(r"out of memory|Allocation on device|ALLOC_FAILED")
_FAR = 4000  # lines at the end in which the bar of its steps stands
_WRAPPED = 6  # lines over which a message goes on that is no exception's
_CHECK = "zdoctor check CONFIG predicts the peak of each phase and names the least harmful setting that fits."
_END_OTHERS = (
    "End what else is on the card: an earlier run that hangs, a notebook whose cell still holds a model (restart its "
    "kernel), ComfyUI, a game; nvidia-smi names them. Or take another card by CUDA_VISIBLE_DEVICES."
)
_OTHERS_FIRST = "Smaller settings for this run help little as long as the others hold the card."
_WINDOWS = "https://learn.microsoft.com/en-us/windows/win32/memory/memory-limits-for-windows-releases"


def out_of_memory(known: Known | None, failure: Failure, lines: Lines) -> Known | None:
    """`known`; where it says no more than that the card is full, with what the log tells of that."""
    if known is None or known.rule != RULE or known.line or known not in table.of("memory"):
        return known
    part = next((one for one in failure.chain if _SAYS.search(one.message)), failure)
    words = "\n".join([part.message, *(lines.between(part.at)[:_WRAPPED] if part.name == SAID else ())])
    phase = phase_of(part, lines)
    told = next((one for reason in _REASONS if (one := reason(known, card_of(words))) is not None), known)
    if told.alone:
        return told
    doing = phase.doing if phase is not None else ""
    during = f"The program was {doing}." if doing else ""
    later = _later(ran(lines.last(_FAR)), phase)
    if told.avoid == _OTHERS_FIRST:
        return replace(told, cause=_sentences(told.cause, during))
    command = command_of(lines, part.at)
    script = (
        command.script if command is not None and command.trains_all and (phase is None or phase.training) else ""
    )
    whole = (
        f"{script} trains the whole model, with gradients and an optimizer's states of all its weights: a LoRA needs "
        "a fraction of that."
    )
    left = ", ".join(found := levers(command, phase.options if phase is not None else of_a_step(), lines, part.at))
    change = f"Change in what the log shows to be set, the surest first: {left}." if left else ""
    helps = known.do if phase is None else "" if phase.training and len(found) > 1 else phase.helps
    check = _CHECK if phase is not None and (phase.training or phase.loading) else ""
    first = told.do if told.do != known.do else ""
    cause, do = (
        _sentences(told.cause, during, later, whole if script else ""),
        _sentences(first, change, helps, check),
    )
    return told if (cause, do) == (told.cause, told.do) else replace(told, cause=cause, do=do)


def _sentences(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _later(came: Ran | None, phase: Phase | None) -> str:
    """What it means that steps before this one fitted."""
    if came is None or came.resumed or not 1 < came.done < came.of or not (phase is None or phase.training):
        return ""
    return (
        "The steps before it fitted: this one takes more (larger pictures or a longer caption in the batch, memory "
        "that samples left scattered), or another program came onto the card."
    )


def _refused(known: Known, card: Card) -> Known | None:
    if not card.is_refused or card.free is None or card.asked is None:
        return None
    asked, free = size_of(card.asked), size_of(card.free)
    return replace(
        known,
        cause=f"The driver refused {asked} although by the message {free} of the card are free, so it was not "
        "the card that was full. On Windows each piece of the card's memory also takes room in RAM and page file "
        "together (the commit limit); elsewhere it is a limit on the process (MIG, set_per_process_memory_fraction).",
        do="On Windows let the page file be managed by the system, or make it 64 GB and more on a disk with room, "
        "and start Windows anew; end what else takes RAM. Elsewhere look for that limit.",
        avoid="A smaller batch or resolution changes nothing while files are loaded.",
        rule="",
        alone=True,
        source=_WINDOWS,
    )


def _lent(known: Known, card: Card) -> Known | None:
    if not card.is_lent or card.kept is None or card.total is None:
        return None
    kept, total = size_of(card.kept), size_of(card.total)
    return replace(
        known,
        cause=f"By the message PyTorch holds {kept}, more than the {total} of the card: the driver (on Windows) "
        "lends RAM in its place, which is many times slower, and that is full now, too.",
    )


def _shared(known: Known, card: Card) -> Known | None:
    if not card.is_shared or card.kept is None or card.total is None:
        return None
    mine, total = size_of(card.own if card.own is not None else card.kept), size_of(card.total)
    others = size_of(card.others)
    if card.apart is not None:
        cause = (
            f"By the message other programs hold {others} of the {total} that this Mac gives to graphics, and "
            f"PyTorch {mine}."
        )
        return replace(known, cause=cause, do="Close other programs (browsers above all), and start anew.")
    cause = (
        f"The card is full, and this run is not alone on it: by the message others hold {others} of {total}, and "
        f"this run {mine}."
        if card.counted
        else f"The card is full, and not with this run's tensors: by the message PyTorch holds {mine} of {total}. "
        f"The other {others} are another process's (an earlier run, another notebook or cell), or this one holds "
        "them outside of PyTorch."
    )
    return replace(known, cause=cause, do=_END_OTHERS, avoid=_OTHERS_FIRST)


def _outside(known: Known, card: Card) -> Known | None:
    if not card.is_outside or card.kept is None or card.total is None:
        return None
    kept, outside, total = size_of(card.kept), size_of(card.outside), size_of(card.total)
    return replace(
        known,
        cause=f"By the message this process holds {outside} of {total} outside of PyTorch, and {kept} in it: "
        "another library (TensorFlow, JAX, onnxruntime) in the same process, or buffers of NCCL.",
        do="Keep those off the card (TensorFlow and onnxruntime of a tagger: their CPU packages, or a process of "
        "their own).",
    )


def _one_piece(known: Known, card: Card) -> Known | None:
    if not card.is_one_piece or card.asked is None or card.total is None:
        return None
    asked, total = size_of(card.asked), size_of(card.total)
    return replace(
        known,
        cause=f"By the message a single tensor of {asked} was asked for on a card of {total}: such a one comes of "
        "pictures or videos that are much too large, of a large batch, or of attention computed as one matrix.",
        do="Look at the sizes of the pictures (buckets) and the number of frames first, and take sdpa or flash "
        "attention.",
    )


def _scattered(known: Known, card: Card) -> Known | None:
    if not card.is_scattered or card.asked is None:
        return None
    asked, spare = size_of(card.asked), size_of(card.scattered)
    return replace(
        known,
        cause=f"By the message {spare} of the card lay there unused in pieces that were too small for the {asked} "
        "asked for (fragmentation).",
        do="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (newer: PYTORCH_ALLOC_CONF) before the start; "
        "where PyTorch warns that this platform has none of these, max_split_size_mb:128 and one size of pictures.",
        avoid="",
    )


def _full(known: Known, card: Card) -> Known | None:
    held = card.allocated if card.allocated is not None else card.own
    if held is None or card.total is None or card.asked is None:
        return None
    mine, total, asked = size_of(held), size_of(card.total), size_of(card.asked)
    cause = f"The card is full: by the message this run holds {mine} of {total}, and {asked} more were asked for."
    others = size_of(card.beside)
    beside = (
        f"About {others} are held by others (a desktop, browsers), which is lost to the run." if card.beside else ""
    )
    return replace(known, cause=_sentences(cause, beside))


# The first that fits counts.
_REASONS: tuple[Callable[[Known, Card], Known | None], ...] = (
    *(_refused, _lent, _shared, _outside, _one_piece, _scattered, _full),
)
