"""What SimpleTuner's options train: the network, its scale and the Linears that it covers, in the runner's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...configs.refused import Reason, one_of
from ...configs.written import Written
from ...families import family_of
from ...model import Run
from ...model.recipe import Network
from ...model.record import replace
from .lycoris import refused_network as refused_lycoris

# get_lora_target_layers of flux/model.py and chroma/model.py: how the names of the Linears end, but for fused ones.
_CONTEXT = ("add_k_proj", "add_q_proj", "add_v_proj", "to_add_out")
_ATTENTION = ("to_k", "to_q", "to_v", "to_out.0")
_ALL = (*_ATTENTION, *_CONTEXT)
_FUSED = ("to_qkv", "to_out.0")
_CONTEXT_FFS = ("ff_context.net.0.proj", "ff_context.net.2")
_FFS = ("ff.net.0.proj", "ff.net.2", *_CONTEXT_FFS, "proj_mlp", "proj_out")
_OF_BOTH: Mapping[str, tuple[str, ...]] = {
    "all": _ALL,
    "context": _CONTEXT,
    "context+ffs": (*_CONTEXT, *_CONTEXT_FFS),
    "all+ffs": (*_ALL, *_FFS),
    "ai-toolkit": (*_ALL, *_FFS, "norm.linear", "norm1.linear", "norm1_context.linear"),
}
_TARGETS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "flux": {
        **_OF_BOTH,
        "tiny": ("single_transformer_blocks.7.proj_out", "single_transformer_blocks.20.proj_out"),
        "nano": ("single_transformer_blocks.7.proj_out",),
    },
    "chroma": {**_OF_BOTH, "tiny": (*_ATTENTION, "ff.net.0.proj")},
}


def refused_network(run: Run, options: Written) -> Iterator[Reason]:
    kind = options.text("lora_type", default="standard").lower()
    target = options.text("flux_lora_target", default="all")
    family = family_of(run.recipe.architecture)
    if family.simpletuner is not None and not family.simpletuner.taken:
        yield "architecture", f"SimpleTuner's configs of {family.title} are not supported"
    if kind == "lycoris":
        yield from refused_lycoris(run, options)
    elif kind == "standard" and (known := _targets(run.recipe.architecture)):
        yield from one_of("flux_lora_target", "flux_lora_target", target, known, ", ".join(known))
    else:
        yield from one_of("network_type", "lora_type", kind, ("standard",), "standard or lycoris")


def network_of(run: Run, options: Written) -> Network:
    """The network as the runner takes it; most of LyCORIS's was found as its file was read."""
    network = run.recipe.network
    if network.type not in ("lora", "dora"):
        return network
    return replace(
        network,
        dropout=options.number("lora_dropout", default=0.1),
        scale=network.alpha / network.rank if network.rank else 1.0,
        initial_weights=options.text("init_lora"),
    )


def differences(run: Run, options: Written) -> Iterator[str]:
    """What of the network is the runner's own way."""
    if options.flag("fuse_qkv_projections"):
        yield "query, key and value have a network each (SimpleTuner with fuse_qkv_projections: one for all three)"
    if run.recipe.network.type in ("lora", "dora") and options.number("lora_dropout", default=0.1) > 0:
        yield "dropout leaves out inner values of the LoRA (SimpleTuner: its inputs; lora_dropout is 0.1 by default)"


def excluded(architecture: str | None, options: Written) -> str:
    """A pattern of the Linears whose names end in none of the targets of a LoRA."""
    of_trainer = family_of(architecture).simpletuner
    own = _ALL if of_trainer is None else of_trainer.linears or _ALL
    if of_trainer is not None and of_trainer.fuses and options.flag("fuse_qkv_projections"):
        own = _FUSED
    known = _targets(architecture)
    targets = known.get(options.text("flux_lora_target", default="all"), _ALL) if known else own
    ends = "|".join(target.replace(".", r"\.") for target in targets)
    return rf"^(?!(?:.*\.)?(?:{ends})$)"


def _targets(architecture: str | None) -> Mapping[str, tuple[str, ...]]:
    """What flux_lora_target chooses among; {} where it says nothing."""
    of_trainer = family_of(architecture).simpletuner
    return _TARGETS.get(of_trainer.targets, {}) if of_trainer is not None else {}
