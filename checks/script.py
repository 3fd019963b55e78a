"""A user's own training script: checkpointing that loses gradients, and cures that hide it. Read, never run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..doctor.model import Finding, Script, Severity, found
from ..doctor.model.checkout import Edit
from ..doctor.model.script import SCRIPT, Checkpoint
from ..doctor.rules import prevents, rule

_GRAD = prevents("RuntimeError", r"element 0 of tensors does not require grad")
_NOTHING = "Backward stops with: element 0 of tensors does not require grad and does not have a grad_fn."


@rule("SRC010", "error", "whole-model-checkpointing", trainers=(SCRIPT,))
@_GRAD
def whole_model_checkpointing(script: Script) -> Iterator[Finding]:
    """A whole model is checkpointed re-entrantly, and none of its inputs requires a gradient.

    What: checkpoint(model, …) with use_reentrant=True, or without a word about it, or DeepSpeed's checkpoint; the
    inputs are data: latents, embeddings of prompts, timesteps.
    Why: Re-entrant checkpointing runs the function without a graph, and ties its output to one only where an input
    requires a gradient. Data does not. So the output is detached, whatever is trained inside.
    Repair: use_reentrant=False, and checkpoint each block, not the whole: one big recomputation saves little memory.
    In diffusers, model.enable_gradient_checkpointing() does both. With DeepSpeed: non_reentrant_checkpoint.
    Upstream: https://docs.pytorch.org/docs/stable/checkpoint.html
    Signature: RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn
    """
    for call in script.checkpoints:
        if _certain(script, call):
            yield _about(
                call,
                "{called} wraps all of {wraps} re-entrantly, and none of its inputs requires a gradient.",
                _NOTHING + " requires_grad_(True) on the output only silences that: every gradient stays missing.",
            )


def _certain(script: Script, call: Checkpoint) -> bool:
    return call.may_be_reentrant and call.whole and call.fed == "no" and not script.input_grads


def _about(call: Checkpoint, message: str, otherwise: str, severity: Severity | None = None) -> Finding:
    names = {"called": call.called, "wraps": call.wraps}
    return Finding(message, call.where, otherwise, names, _evidence(call.edit), severity)


def _evidence(edit: Edit | None) -> Mapping[str, Any]:
    """Where the repair goes."""
    return {} if edit is None else dict(vars(edit))


@rule("SRC011", "error", "gradient-forced-on-output", trainers=(SCRIPT,))
def gradient_forced_on_output(script: Script) -> Iterator[Finding]:
    """requires_grad_(True) on an output or on the loss silences the error and trains nothing.

    What: The result of a re-entrant checkpoint, the value that a forward returns around one, or the loss itself is
    made to require a gradient.
    Why: A tensor without a graph becomes a leaf of its own. Backward then runs without an error and reaches no
    parameter: every gradient is None, the gradient norm is 0, and the loss stays where it is.
    Repair: Leave the line out and cure the cause: use_reentrant=False, or inputs that require a gradient before the
    first block.
    Upstream: https://github.com/huggingface/peft/issues/1142
    Signature: None; the loss is the same at every step.
    """
    for forced in script.forced:
        if forced.is_loss:
            yield found(
                forced.where,
                "{name} is made to require a gradient just before backward. Where it has a graph, that does nothing; "
                "where it has none, backward reaches no parameter.",
                otherwise="The run may go on to its end without training anything, and no error says so.",
                severity="warning",
                name=forced.name,
            )
        elif forced.fed == "no" and not script.input_grads:
            yield found(
                forced.where,
                "{name} comes out of a re-entrant checkpoint without a graph, and requires_grad_(True) hides that.",
                otherwise="Backward runs, every gradient before this place is None, and the run ends untrained.",
                name=forced.name,
            )


@rule("SRC012", "warning", "reentrant-checkpoint", trainers=(SCRIPT,))
@_GRAD
def reentrant_checkpoint(script: Script) -> Iterator[Finding]:
    """Re-entrant checkpointing where only some parameters are trained.

    What: Blocks are checkpointed with use_reentrant=True or by DeepSpeed's checkpoint, in a script that trains an
    adapter or freezes a part, and nothing makes the inputs of the first block require a gradient.
    Why: A re-entrant block whose inputs need no gradient is not trained. With frozen embedders that is the first
    block, then the next, and so on to the end. Leaving the first block out helps only as long as it is trained.
    Repair: use_reentrant=False; with DeepSpeed non_reentrant_checkpoint.
    Upstream: https://github.com/huggingface/peft/issues/1142
    Signature: UserWarning: None of the inputs have requires_grad=True. Gradients will be None
    """
    for call in script.checkpoints:
        said = call.api == "deepspeed" or call.reentrant is True
        if said and _doubtful(script, call) and not _certain(script, call):
            yield _about(
                call,
                "{called} runs {wraps} re-entrantly, and nothing in this script makes its inputs require a gradient.",
                "Blocks before the first trained one stay untrained; when none is, backward stops with: element 0 of "
                "tensors does not require grad.",
            )


def _doubtful(script: Script, call: Checkpoint) -> bool:
    return script.partly_frozen and call.fed != "yes" and not script.input_grads and not call.skips_first


@rule("SRC013", "note", "missing-use-reentrant", trainers=(SCRIPT,))
def missing_use_reentrant(script: Script) -> Iterator[Finding]:
    """torch's checkpoint is called without use_reentrant.

    What: A call of torch.utils.checkpoint does not say whether it is re-entrant.
    Why: It then is, with a warning; torch announces that the parameter will have to be given. Where only an adapter
    is trained, it matters: a re-entrant block whose inputs need no gradient is not trained.
    Repair: use_reentrant=False.
    Upstream: https://docs.pytorch.org/docs/stable/checkpoint.html
    Signature: UserWarning: torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly
    """
    for call in script.checkpoints:
        if call.api != "torch" or call.reentrant is not None or _certain(script, call):
            continue
        message = "{called} of {wraps} does not say use_reentrant, so it is re-entrant"
        if _doubtful(script, call):
            message += ", and nothing in this script makes its inputs require a gradient."
            otherwise = "A block whose inputs need no gradient is not trained, and no error says so."
            yield _about(call, message, otherwise, severity="warning")
        else:
            yield _about(call, message + ".", "A later torch will refuse the call.")


@rule("SRC014", "error", "peft-without-input-gradients", trainers=(SCRIPT,))
@_GRAD
def peft_without_input_gradients(script: Script, packages: Mapping[str, str]) -> Iterator[Finding]:
    """Re-entrant checkpointing is enabled on a PEFT model whose inputs require no gradient.

    What: gradient_checkpointing_enable with use_reentrant=True after get_peft_model, and no
    enable_input_require_grads, in a transformers before 5 or for a model that reads pictures.
    Why: PEFT makes the inputs require gradients only when checkpointing was on before it wrapped the model. Enabled
    afterwards, every block is re-entrant over inputs that need no gradient. transformers 5 does so itself, for models
    that read text.
    Repair: use_reentrant=False, or enable checkpointing before get_peft_model, or call enable_input_require_grads().
    Upstream: https://github.com/huggingface/transformers/issues/42489
    Signature: RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn
    """
    helped = _version(packages.get("transformers", "5")) >= (5,) and not script.vision
    for call in script.enabled:
        if call.after_peft and not script.input_grads and not helped:
            yield found(
                call.where,
                "Re-entrant checkpointing is enabled after PEFT wrapped the model, and nothing makes its inputs "
                "require a gradient.",
                otherwise=_NOTHING,
                evidence=_evidence(call.edit),
            )


@rule("SRC015", "note", "deepspeed-hides-overflow", trainers=(SCRIPT,))
@prevents("RuntimeError", r"vector_norm.*Got Long")
def deepspeed_hides_overflow(script: Script, packages: Mapping[str, str]) -> Iterator[Finding]:
    """A DeepSpeed that answers gradients which are not finite with a message about Long.

    What: ZeRO stage 1 or 2 with the optimizer offloaded to the CPU, and a DeepSpeed from 0.13.2 to 0.17.0.
    Why: When a gradient is infinite or NaN, this combination hands the integer -1 to the norm of the gradients. The
    message speaks of a Long tensor, and there is no parameter of that type to be found.
    Repair: None by zdoctor; upgrade DeepSpeed to 0.17.1 or newer. What is not finite remains to be found.
    Upstream: https://github.com/deepspeedai/DeepSpeed/issues/5241, fixed by pull request 6976
    Signature: RuntimeError: linalg.vector_norm: Expected a floating point or complex tensor as input. Got Long
    """
    version = packages.get("deepspeed")
    if version is None or not (0, 13, 2) <= _version(version) < (0, 17, 1):
        return
    for config in script.deepspeed:
        zero = _part(config.settings, "zero_optimization")
        on_cpu = _part(zero, "offload_optimizer").get("device") == "cpu" or zero.get("cpu_offload")
        if zero.get("stage") in (1, 2) and on_cpu:
            yield found(
                config.where,
                "DeepSpeed {version} with ZeRO stage {stage} and the optimizer on the CPU reports a gradient that is "
                "not finite as: vector_norm … Got Long.",
                otherwise="The first overflow ends the run with a message about a type, and the search goes wrong.",
                version=version,
                stage=zero["stage"],
            )


def _part(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, Mapping) else {}


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3])


@rule("SRC016", "warning", "half-precision-flow-model", trainers=(SCRIPT,))
def half_precision_flow_model(script: Script) -> Iterator[Finding]:
    """A flow-matching model is trained in fp16.

    What: The script uses Flux, Z-Image, SD3 or another flow-matching model, and fp16: in DeepSpeed's config, in
    Accelerator(mixed_precision="fp16") or in autocast.
    Why: The activations of these transformers can exceed what fp16 holds, 65504. The loss becomes NaN, or the scaler
    skips step after step.
    Repair: None by zdoctor; use bf16. A card without bf16 trains in fp32.
    Upstream: https://github.com/Tongyi-MAI/Z-Image/issues/14
    Signature: loss is nan; OVERFLOW! Skipping step (DeepSpeed)
    """
    half = [c.where for c in script.deepspeed if _part(c.settings, "fp16").get("enabled") is True]
    for where in (*script.half, *half) if script.flow else ():
        yield found(
            where,
            "The script chooses fp16 for a flow-matching model ({flow}), whose activations can overflow in it.",
            otherwise="The loss becomes NaN within the first steps, or every step is skipped.",
            flow=script.flow,
        )
