"""What SimpleTuner's options train: the network, its scale and the Linears that it covers, in the runner's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...families import family_of
from ...model import Run, Value
from ...model.record import replace
from .lycoris import refused_network as refused_lycoris
from .options import Options

# flux/model.py get_lora_target_layers: how the names of the Linears end, but for those of fused ones.
_CONTEXT = ("add_k_proj", "add_q_proj", "add_v_proj", "to_add_out")
_ALL = ("to_k", "to_q", "to_v", "to_out.0", *_CONTEXT)
_CONTEXT_FFS = ("ff_context.net.0.proj", "ff_context.net.2")
_FFS = ("ff.net.0.proj", "ff.net.2", *_CONTEXT_FFS, "proj_mlp", "proj_out")
_TARGETS: Mapping[str, tuple[str, ...]] = {
    "all": _ALL,
    "context": _CONTEXT,
    "context+ffs": (*_CONTEXT, *_CONTEXT_FFS),
    "all+ffs": (*_ALL, *_FFS),
    "ai-toolkit": (*_ALL, *_FFS, "norm.linear", "norm1.linear", "norm1_context.linear"),
    "tiny": ("single_transformer_blocks.7.proj_out", "single_transformer_blocks.20.proj_out"),
    "nano": ("single_transformer_blocks.7.proj_out",),
}
OBEYED = ("lora_type", "lycoris_config", "lora_dropout", "flux_lora_target", "use_dora")


def refused_network(run: Run) -> Iterator[tuple[str, str]]:
    """The option that is at fault, and a sentence about it without its full stop."""
    options = Options(run.settings)
    kind = options.text("lora_type", "standard").lower()
    if run.recipe.network.type == "dora":
        yield "use_dora", "use_dora true is not supported; leave it out"
    target = options.text("flux_lora_target", "all")
    if kind == "lycoris":
        yield from refused_lycoris(run)
    elif kind != "standard":
        yield "network_type", f"lora_type {kind} is not supported; use standard or lycoris"
    elif _of_flux(run) and target not in _TARGETS:
        yield "flux_lora_target", f"flux_lora_target {target} is not supported; use {', '.join(_TARGETS)}"


def network_of(run: Run) -> dict[str, Value]:
    """The settings of a LoRA; most of a LoKr's were put into the runner's words as its file was read."""
    recipe = run.recipe
    options = Options(run.settings)
    place = run.settings.get("lora_dropout") or Value(0.1, run.where("rank"), 0, 0)
    refiners = {"network/refiners": replace(place, value=True)} if family_of(recipe.architecture).refiners else {}
    if recipe.network.type == "lokr":
        return refiners
    scale = recipe.network.alpha / recipe.network.rank if recipe.network.rank else 1.0
    return {
        **refiners,
        "network/dropout": replace(place, value=options.number("lora_dropout", 0.1)),
        "network/scale": replace(place, value=scale),
    }


def left_out(run: Run) -> dict[str, Value]:
    """The Linears that a LoRA leaves out: a pattern of their names."""
    if run.recipe.network.type == "lokr" or run.kind != "lora":
        return {}
    value = _left_out(run, Options(run.settings))
    return {"network/left_out": Value(value, run.where("rank"), 0, 0)}


def differences(run: Run) -> Iterator[str]:
    """What of the network is the runner's own way."""
    options = Options(run.settings)
    if options.flag("fuse_qkv_projections"):
        yield "query, key and value have a network each (SimpleTuner with fuse_qkv_projections: one for all three)"
    if run.recipe.network.type != "lokr" and options.number("lora_dropout", 0.1) > 0:
        yield "dropout leaves out inner values of the LoRA (SimpleTuner: its inputs; lora_dropout is 0.1 by default)"


def _left_out(run: Run, options: Options) -> str:
    """A pattern of the Linears whose names end in none of the targets."""
    targets = _TARGETS.get(options.text("flux_lora_target", "all"), _ALL) if _of_flux(run) else _ALL
    ends = "|".join(target.replace(".", r"\.") for target in targets)
    return rf"^(?!(?:.*\.)?(?:{ends})$)"


def _of_flux(run: Run) -> bool:
    of_trainer = family_of(run.recipe.architecture).simpletuner
    return of_trainer is not None and of_trainer.targets
