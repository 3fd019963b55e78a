"""What one step of a user's own model shows: parameters that are not trained, and numbers that are none."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Config, Finding, MicroStep, Where, found
from ..doctor.model.amounts import few
from ..doctor.model.script import SCRIPT
from ..doctor.rules import rule

_CHECKPOINT = " torch also warned that a re-entrant checkpoint had no input that requires a gradient."
_SHOWN = 3


@rule("SRC020", "error", "micro-step-failed", trainers=(SCRIPT,))
def micro_step_failed(config: Config, microstep: MicroStep) -> Iterator[Finding]:
    """One step of the model does not go through.

    What: The script could not be imported, the function did not build a model and a batch, or the forward pass, the
    backward pass or the step of the optimizer raised an error or ended the process.
    Why: The first step of the training would end the same way, after everything was loaded.
    Repair: None by zdoctor; the message names the place in the script, and the cause where it is known.
    Signature: Any.
    """
    if not microstep.failed:
        return
    yield found(
        Where(config.path, microstep.line),
        "The step failed at {stage}: {error}",
        otherwise="The likely cause: {problem}" if microstep.why else "The training ends at this place, too.",
        evidence={"stage": microstep.stage},
        error=microstep.failed,
        problem=" ".join(filter(None, (microstep.why, microstep.do, microstep.avoid))),
    )


@rule("SRC021", "error", "loss-without-graph", trainers=(SCRIPT,))
def loss_without_graph(config: Config, microstep: MicroStep) -> Iterator[Finding]:
    """The loss does not depend on any trained parameter.

    What: The loss of one step has no graph, or it was made to require a gradient without having one.
    Why: There is nothing that backward could follow: it stops with an error, or, where the loss was forced to require
    a gradient, reaches no parameter. The usual causes are a whole model in re-entrant checkpointing, torch.no_grad()
    around the forward pass, detach() or item() on the way, and parameters that were frozen after the adapter.
    Repair: None by zdoctor; zdoctor check SCRIPT.py names checkpointing that does this.
    Signature: RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn
    """
    if not (microstep.detached or microstep.forced):
        return
    message = (
        "The loss was made to require a gradient, and it has no graph: no parameter is in it."
        if microstep.forced
        else "The loss has no graph: none of the {count} trainable tensors is in it."
    )
    yield found(
        Where(config.path),
        message + _CHECKPOINT * microstep.no_input_grads,
        otherwise="Backward runs and trains nothing; no error says so."
        if microstep.forced
        else "Backward stops with: element 0 of tensors does not require grad and does not have a grad_fn.",
        evidence={"no_input_grads": microstep.no_input_grads},
        count=len(microstep.trainable),
    )


@rule("SRC022", "error", "parameters-without-gradient", trainers=(SCRIPT,))
def parameters_without_gradient(config: Config, microstep: MicroStep) -> Iterator[Finding]:
    """Trainable parameters get no gradient.

    What: After backward the gradient of a trainable parameter is None, which is not the same as zero: the parameter
    was not part of the step. Or no parameter requires a gradient at all.
    Why: The optimizer passes such parameters over without a word, so a part of the model stays as it was, or all of
    it. A model may leave parameters out of one step on purpose; then this is no fault.
    Repair: None by zdoctor; use_reentrant=False where torch warned of a checkpoint without input gradients.
    Signature: None; UserWarning: None of the inputs have requires_grad=True. Gradients will be None
    """
    if microstep.failed or microstep.detached or microstep.forced:
        return
    lost, count = len(microstep.missing), len(microstep.trainable)
    if not count:
        yield found(
            Where(config.path),
            "No parameter of the model requires a gradient: there is nothing to train.",
            otherwise="The optimizer is made without parameters, or changes none.",
        )
    elif lost:
        yield found(
            Where(config.path),
            "{lost} of {count} trainable tensors get no gradient (None, not zero): {names}."
            + _CHECKPOINT * microstep.no_input_grads,
            otherwise="They stay as they are, however long the training runs, and no error says so.",
            evidence={"missing": list(microstep.missing), "no_input_grads": microstep.no_input_grads},
            severity="error" if lost == count or microstep.no_input_grads else "warning",
            lost=lost,
            count=count,
            names=few(microstep.missing, _SHOWN),
        )


def _is_broken(loss: float | None) -> bool:
    return loss is not None and not abs(loss) < float("inf")


@rule("SRC023", "error", "step-not-finite", trainers=(SCRIPT,))
def step_not_finite(config: Config, microstep: MicroStep) -> Iterator[Finding]:
    """The loss, a gradient or a parameter is infinite or not a number.

    What: One step with the batch that the script gives has a loss, gradients or, after the optimizer, parameters
    that are NaN or infinite.
    Why: From then on every step is, and the model with it. fp16 overflows beyond 65504; a division by zero or the
    logarithm of zero in the loss do the same; DeepSpeed before 0.17.1 reports it as: Got Long. Trained
    parameters in fp16 break in Adam, whose epsilon of 1e-8 is zero there.
    Repair: None by zdoctor; bf16 instead of fp16, and torch.autograd.set_detect_anomaly(True) names the operation.
    Signature: loss is nan
    """
    names, loss = microstep.infinite or microstep.broken, microstep.loss
    if _is_broken(loss):
        message = "The loss is {loss} at the first step."
    elif microstep.infinite:
        message = "The gradients of {count} trainable tensors are not finite: {names}."
    elif microstep.broken:
        message = "The first step of {optimizer} leaves {count} trainable tensors without finite values: {names}."
        if set(microstep.broken) <= set(microstep.half):
            message += " They are fp16, in which Adam's epsilon of 1e-8 is zero; what is trained belongs in fp32."
    else:
        return
    yield found(
        Where(config.path),
        message,
        otherwise="Every later step is not finite either, and what is saved is garbage.",
        evidence={"infinite": list(microstep.infinite), "broken": list(microstep.broken), "loss": loss},
        count=len(names),
        names=few(names, _SHOWN),
        optimizer=microstep.optimizer,
    )


@rule("SRC024", "warning", "parameters-unmoved", trainers=(SCRIPT,))
def parameters_unmoved(config: Config, microstep: MicroStep) -> Iterator[Finding]:
    """Trainable parameters that a step does not change.

    What: A parameter has a gradient, and is the same after the optimizer's step; or its gradient is zero everywhere,
    in a second step, too (at the first step of a LoRA one factor of each pair has none).
    Why: The optimizer was made before the parameter, or from another list; a learning rate so small that bf16 rounds
    it away; a part of the model that its output does not depend on.
    Repair: None by zdoctor; make the optimizer after the adapter, from the parameters that require gradients.
    Signature: None; the parameter never changes.
    """
    if microstep.infinite or microstep.broken or _is_broken(microstep.loss):
        return
    for names, message in (
        (microstep.unmoved, "a gradient, and {optimizer} does not change them"),
        (microstep.zero, "a gradient of zero everywhere, in two steps"),
    ):
        if names:
            yield found(
                Where(config.path),
                "{count} of {all} trainable tensors have " + message + ": {few}.",
                otherwise="They stay as they are, however long the training runs.",
                evidence={"names": list(names)},
                severity="error" if len(names) == len(microstep.trainable) else None,
                count=len(names),
                all=len(microstep.trainable),
                optimizer=microstep.optimizer,
                few=few(names, _SHOWN),
            )
