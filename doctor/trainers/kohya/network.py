"""The network of kohya's trainers in the runner's words: which Linears it covers, and how fast they learn."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from ...configs.refused import Reason
from ...configs.written import Written
from ...families import families, family_of, in_diffusers
from ...families.part_files import kohya_of
from ...model import Run
from ...model.recipe import Network
from ...model.record import replace
from .optimizer import OPTIMIZERS, optimizer_of

# Of those that the runner trains: the script and the module that goes with it.
SCRIPTS = {
    of_trainer.script: of_trainer.network_module
    for family in families()
    for of_trainer in family.kohya.values()
    if in_diffusers(family).own is not None
}
# Their other kinds of networks for these models.
MODULES: Mapping[str, Mapping[str, str]] = {
    "musubi-tuner": {"networks.loha": "loha", "networks.lokr": "lokr"},
    "sd-scripts": {"networks.oft_flux": "oft"},
}
# The words that each of these has for itself.
_OWN_WORDS = {"lokr": ("factor",), "oft": ("enable_all_linear",)}
# Without effect where there is no convolution, with what they are where there are some.
_CONV = {"conv_dim": r"\d+", "conv_alpha": r"\d+(?:\.\d+)?"}
_HARMLESS = ("verbose", *_CONV)
_OFF = ("split_qkv", "train_t5xxl")
DROPOUTS = ("rank_dropout", "module_dropout")
_RATIOS = ("loraplus_unet_lr_ratio", "loraplus_lr_ratio")
_TEXT_RATIOS = ("loraplus_text_encoder_lr_ratio", "loraplus_lr_ratio")
_T5, _ONLY = "train_t5xxl", "network_train_unet_only"
# Of Flux: the names of diffusers for the two kinds of blocks, and how many there are.
_KINDS = {"double": ("transformer_blocks", 19), "single": ("single_transformer_blocks", 38)}
_INDICES = {kind: f"train_{kind}_block_indices" for kind in _KINDS}
# musubi-tuner leaves the modulation out.
_MODULATION = r"adaLN_modulation|\.norm\w*\.linear$"

# Of a UNet: what a LoRA covers there, and with conv_dim.
_ATTENTION, _ALL = r"^(?!.*\.attentions\.)", r"^(?!.*\.(?:attentions|resnets|downsamplers|upsamplers)\.)"


def of_unet(run: Run) -> bool:
    return family_of(run.recipe.architecture).convolves


def refused_network(run: Run, w: Written) -> Iterator[Reason]:
    is_unet = of_unet(run)
    taken = (SCRIPTS[run.process_type], *(() if is_unet else MODULES[run.trainer]))
    module, words = w.text("network_module"), w.pairs("network_args")
    if module not in taken:
        wanted = " or ".join(taken)
        yield "network_module", f"network_module {module or 'that is not written'} is not supported; use {wanted}"
    if is_unet and not w.flag(_ONLY):
        yield _ONLY, "Training both CLIPs of SDXL is not supported; write network_train_unet_only"
    for name, value in words.items():
        if not _is_known(run, w, name, value):
            yield "network_args", f"network_args {name}={value} is not supported; leave it out"
        if name in DROPOUTS and not _share(value):
            yield "network_args", f"network_args {name}={value} is no number from 0 to below 1"
        if is_unet and name in _CONV and not re.fullmatch(_CONV[name], value):
            yield "network_args", f"network_args {name}={value} is no number from 0"
    if _kind(run, w) == "lokr" and not (value := words.get("factor", "-1")).lstrip("-").isdigit():
        yield "network_args", f"network_args factor={value} is no whole number"
    try:
        if not is_unet and blocks_left_out(words) == "|".join(_whole(name) for name, _ in _KINDS.values()):
            yield "network_args", "The network_args leave no block of Flux with a LoRA"
    except ValueError:
        yield "network_args", "The network_args name blocks that are none of Flux, whose last are 18 and 37"
    try:
        for ratios in (_RATIOS, _TEXT_RATIOS):
            plus_of(words, ratios)
    except ValueError:
        yield "network_args", "The ratio of LoRA+ in network_args is no number above 0"
        return
    if not is_unet:
        yield from _refused_text(run, w, words)


def _is_known(run: Run, w: Written, name: str, value: str) -> bool:
    """Whether the runner obeys a word of network_args, or need not."""
    if of_unet(run):
        return name in (*_HARMLESS, *DROPOUTS, *_RATIOS)
    kind = _kind(run, w)
    if name in (*_HARMLESS, *_OWN_WORDS.get(kind, ())) or (name in _OFF and value == "False"):
        return True
    of_lora = (_RATIOS[-1], *DROPOUTS)
    if run.trainer == "sd-scripts":
        text = (_T5,) if family_of(run.recipe.architecture).ai_toolkit.trained_text else ()
        of_lora += ("train_blocks", *text, *_RATIOS, *_TEXT_RATIOS, *_INDICES.values())
    return kind == "lora" and name in of_lora


def _refused_text(run: Run, w: Written, words: Mapping[str, str]) -> Iterator[Reason]:
    """Why the text encoders must not be trained as it is written."""
    try:
        rates = text_rates(run, w)
    except (ValueError, TypeError):
        yield (
            "text_encoder_lr",
            f"text_encoder_lr {w.raw('text_encoder_lr')} is neither a number from 0 nor two of them",
        )
        return
    if words.get(_T5) == "True" and w.flag(_ONLY):
        yield _ONLY, "network_train_unet_only keeps T5 as it is, which train_t5xxl=True trains; leave one of them out"
    if rates and words.get(_T5) == "True" and run.recipe.cache_text_embeddings:
        yield (
            "cache_text_embeddings",
            "network_args train_t5xxl=True does not go with cached outputs of T5; leave one of them out",
        )
    if rates and w.text("network_weights"):
        yield (
            "network_weights",
            "network_weights beside trained text encoders is not supported; write network_train_unet_only",
        )
    prodigy = OPTIMIZERS.get(optimizer_of(run, w)) == "prodigy"
    if prodigy and any(rate != run.recipe.learning_rate for rate in rates.values()):
        yield "text_encoder_lr", "Another text_encoder_lr than the learning rate beside Prodigy is not supported"


def _kind(run: Run, w: Written) -> str:
    return MODULES[run.trainer].get(w.text("network_module"), "lora")


def _share(value: str) -> bool:
    try:
        return 0 <= float(value) < 1
    except ValueError:
        return False


def text_rates(run: Run, w: Written) -> dict[str, float]:
    """The learning rates of the text encoders that are trained, by their components. Raises ValueError, TypeError.

    CLIP-L is where nothing keeps it from that, T5 on request; only a LoRA has anything to train on them.
    """
    if run.trainer != "sd-scripts" or w.flag(_ONLY) or _kind(run, w) != "lora":
        return {}
    written = w.raw("text_encoder_lr")
    given = [float(rate) for rate in (written if isinstance(written, list) else [] if written is None else [written])]
    clip, t5 = (given or [w.number("learning_rate", default=2e-6)] * 2) if len(given) != 1 else given * 2
    if not all(0 <= rate < math.inf for rate in (clip, t5)):
        raise ValueError(written)
    by_option = {"clip_l": clip, **({"t5xxl": t5} if w.pairs("network_args").get(_T5) == "True" else {})}
    of_trainer = kohya_of(run)
    files = {} if of_trainer is None else of_trainer.files
    return {name: by_option[option] for name, option in files.items() if by_option.get(option)}


def plus_of(words: Mapping[str, str], names: tuple[str, ...] = _RATIOS) -> float:
    """How many times faster B learns. Raises ValueError."""
    written = next((words[name] for name in names if name in words), "1")
    ratio = float(written)
    if not 0 < ratio < math.inf:
        raise ValueError(written)
    return ratio


def network_of(run: Run, w: Written) -> Network:
    """The network as the runner takes it."""
    words, kind = w.pairs("network_args"), _kind(run, w)
    network = replace(run.recipe.network, type=kind, initial_weights=w.text("network_weights"))
    if kind == "oft":  # dim counts its blocks, alpha is the constraint, and there is no dropout
        without = "" if words.get("enable_all_linear") else r"^(?!transformer_blocks\.\d+\.attn\.)"
        return replace(network, excluded=without)
    alpha = network.alpha or float(network.rank)  # no alpha is as much as the rank
    network = replace(network, alpha=alpha, scale=alpha / network.rank if network.rank else 1.0)
    if kind != "lora":
        factor = int(words.get("factor", -1))
        return replace(network, excluded=_MODULATION, lokr_full_rank=False, lokr_factor=factor)
    network = replace(
        network,
        lora_plus_ratio=plus_of(words),
        dropout=w.number("network_dropout"),
        rank_dropout=float(words.get("rank_dropout", 0)),
        module_dropout=float(words.get("module_dropout", 0)),
    )
    if of_unet(run):
        windows = int(words.get("conv_dim", 0))
        scale = float(words.get("conv_alpha", 1)) / windows if windows else 1.0
        return replace(network, excluded=_ALL if windows else _ATTENTION, conv_rank=windows, conv_scale=scale)
    return replace(
        network,
        text_rates=text_rates(run, w),
        text_plus_ratio=plus_of(words, _TEXT_RATIOS),
        excluded=_MODULATION if run.trainer == "musubi-tuner" else blocks_left_out(words),
    )


def blocks_left_out(words: Mapping[str, str]) -> str:
    """A pattern of the Linears of Flux without a LoRA, by diffusers' names; "" where it covers all of them.

    It goes by train_blocks and the indices of blocks ("0-3,7", "all", "none"). Raises ValueError.
    """
    chosen = words.get("train_blocks", "all")
    if chosen not in ("all", *_KINDS):
        raise ValueError(chosen)
    patterns: list[str] = []
    for kind, (name, count) in _KINDS.items():
        indices = _indices(words.get(_INDICES[kind], "all"), count)
        if chosen not in ("all", kind) or not indices:
            patterns.append(_whole(name))
        elif len(indices) < count:
            patterns.append(rf"^{name}\.(?!(?:{'|'.join(map(str, sorted(indices)))})\.)")
    return "|".join(patterns)


def _whole(name: str) -> str:
    """A pattern of all Linears of one kind of blocks."""
    return rf"^{name}\."


def _indices(selection: str, count: int) -> set[int]:
    if selection == "all":
        return set(range(count))
    found: set[int] = set()
    for part in [] if selection in ("none", "") else selection.split(","):
        first, dash, last = part.partition("-")
        found |= set(range(int(first), int(last if dash else first) + 1))
    if not found <= set(range(count)):
        raise ValueError(selection)
    return found
