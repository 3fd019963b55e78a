"""What the tensors of an adapter are called: which part of which kind of network each is. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..model.pattern import pattern

_PART = pattern(
    r"(.+?)(?:"
    r"\.lora_(A|B|down|up|mid)(?:\.(?!weight$|bias$)\w+)?(?:\.(weight|bias))?"
    r"|[._]lora(?:_linear_layer|\d)?\.(down|up)\.weight"
    r"|\.(alpha|dora_scale|magnitude|lora_magnitude_vector|w_norm|b_norm|diff_b|diff|set_weight|reshape_weight"
    r"|lokr_(?:w1|w2|t2)(?:_[ab])?|hada_[wt][12](?:_[ab])?|oft_\w+|on_input|rescale|scalar|[ab][12])(?:\.weight)?"
    r")"
)
_FORMS = {
    "A": r"\.lora_[AB]\.weight",
    "A.default": r"\.lora_[AB]\.default\.weight",
    "down": r"\.lora_(down|up)\.weight",
    "dot": r"\.lora\.(down|up)\.weight",
    "_lora": r"_lora\.(down|up)\.weight",
    "linear": r"\.lora_linear_layer\.(down|up)\.weight",
    "bare": r"\.lora_[AB]",
}
_PAIR = {"A": "A", "down": "A", "B": "B", "up": "B", "mid": "mid"}
_KINDS = {
    **dict.fromkeys(("A", "B"), "LoRA"),
    "lokr": "LoKr",
    "hada": "LoHa",
    "oft": "OFT",
    "on": "IA3",
    "a1": "GLoRA",
    "b1": "GLoRA",
    **dict.fromkeys(("diff", "w", "set"), "full difference"),
}
MAGNITUDES = ("dora_scale", "magnitude", "lora_magnitude_vector")


def split(name: str) -> tuple[str, str] | None:
    """The module that a tensor is of, and which part of it; None where it is part of no adapter."""
    found = _PART.fullmatch(name)
    return None if found is None else (found[1], _part(found))


def _part(found: re.Match[str]) -> str:
    factor = found[2] or found[4]
    if factor is None:
        return found[5]
    return _PAIR[factor] + (".bias" if found[3] == "bias" else "")


def kind_of(parts: Iterable[str]) -> str:
    """The kind of adapter that the parts make up, "" where they are none."""
    kinds = {kind for part in parts if (kind := _KINDS.get(part) or _KINDS.get(part.partition("_")[0]))}
    if kinds == {"LoRA"} and not set(MAGNITUDES).isdisjoint(parts):
        return "DoRA"
    if kinds > {"LoRA"}:  # norms and biases as differences beside the pairs
        kinds -= {"full difference"}
    return " and ".join(sorted(kinds))


def words_of(factor: str) -> str:
    """What the factors of a pair are called whose A or B is `factor` behind the module's name."""
    return next((words for words, form in _FORMS.items() if re.fullmatch(form, factor)), "")
