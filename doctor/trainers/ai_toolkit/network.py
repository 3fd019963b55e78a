"""The network of ai-toolkit's LoRAs: its rank, and the layers that it covers (commit 27a03a91)."""

from __future__ import annotations

import re
from typing import Any

from ...configs.written import Written

# The network_kwargs that choose among the layers by parts of their names, and what all names begin with there.
CHOOSING, _ROOT, _KOHYA_ROOT = ("ignore_if_contains", "only_if_contains"), "transformer.", "lora_unet."
# What they train as a whole.
FULL = "full_if_contains"
# A setting of sd-scripts, which zdoctor's runner takes beside them.
PLUS = "loraplus_lr_ratio"
NETWORK_TYPES = frozenset(("lora", "locon", "lycoris", "lorm", "lokr", "dora", "fullrank", "lierla", "c3lier"))


def network_type(w: Written, key: str, *, default: str) -> str:
    """In any case; what ai-toolkit does not know is a plain LoRA."""
    name = w.text(key, default=default).lower()
    return name if name in NETWORK_TYPES else "lora"


def network_of(w: Written, kohya: bool) -> dict[str, Any]:
    """The fields of the network. `kohya`: a LoRA's names and its alpha are as kohya's trainers have them."""
    factor = w.raw("network/lokr_factor")
    left_out, full, unread = _chosen_layers(w.raw("network/network_kwargs"), _KOHYA_ROOT if kohya else _ROOT)
    rank = w.whole("network/rank", "network/linear", default=4)
    alpha = w.number("network/linear_alpha", default=w.number("network/alpha", default=1.0))
    of_windows = {}
    if kohya:
        windows = w.whole("network/conv")
        scale = w.number("network/conv_alpha", default=float(windows)) / windows if windows > 0 else 1.0
        of_windows = {"network.conv_rank": max(0, windows), "network.conv_scale": scale}
        of_windows["network.scale"] = alpha / rank if rank > 0 else 1.0
    is_dora = network_type(w, "network/type", default="lora") == "dora"
    return {
        "rank": rank,
        "network.start_deviation": rank**-0.5 if is_dora and rank > 0 else 0.0,
        "alpha": alpha,
        **of_windows,
        "network.excluded": left_out,
        "network.lora_plus_ratio": w.number(f"network/network_kwargs/{PLUS}", default=1.0),
        "network.narrowed": unread,
        "network.full": full,
        "network.lokr_factor": factor if type(factor) is int and factor > 0 else -1,
    }


def _chosen_layers(kwargs: object, root: str) -> tuple[str, str, bool]:
    """Patterns of the Linears that network_kwargs leave out and of those that they train as a whole, and whether they
    hold anything but such words.

    A layer is called transformer.NAME there, or with another `root`; words are looked for anywhere in it.
    """
    if not isinstance(kwargs, dict):
        return "", "", bool(kwargs)
    whole = kwargs.get(FULL)
    lists = {name: kwargs.get(name) for name in CHOOSING} | {FULL: [whole] if isinstance(whole, str) else whole}
    if any(not _are_words(words) for words in lists.values() if words is not None):
        return "", "", True
    without, only, full = lists.values()
    patterns = [_inside(word, root) for word in without or ()]
    if only is not None:
        patterns.append(f"^(?!.*(?:{'|'.join(_inside(word.replace('$$', '.'), root) for word in only) or '(?!)'}))")
    others = any(value is not None for name, value in kwargs.items() if name not in (*CHOOSING, FULL, PLUS))
    return "|".join(patterns), "|".join(_inside(word.replace("$$", "."), root) for word in full or ()), others


def _are_words(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _inside(word: str, root: str) -> str:
    """A pattern that finds in NAME what `word` would find in transformer.NAME, or in NAME behind another root."""
    if word in root:
        return "^"
    rests = (word[count:] for count in range(1, len(word)) if root.endswith(word[:count]))
    return "|".join([re.escape(word), *(f"^{re.escape(rest)}" for rest in rests)])
