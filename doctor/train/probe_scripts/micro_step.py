"""This program makes one training step of a user's own model, and tells what came of it.

    python -m zdoctor.doctor.train.probe_scripts.micro_step
    < {"script": "/…/train.py", "function": "build_model", "batch": null}

A process of its own, started by `zdoctor probe`: it alone imports torch and runs the user's code. Each line of
standard output is an object: {"stage": …} when one begins, at last {"done": …} with the fields of MicroStep. What the
user's code prints goes to standard error.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import inspect
import json
import os
import sys
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

NO_INPUT_GRADS = "None of the inputs have requires_grad=True"
LEARNING_RATE = 1e-3
MOST_WARNINGS = 5


class Misbuilt(Exception):
    """The user's function returned nothing that a step can be made of."""


def main() -> None:
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer_to:
        os.dup2(2, 1)  # what the user's code prints is not the answer

        def say(**line: Any) -> None:
            print(json.dumps(line), file=answer_to, flush=True)

        question, made, started = json.load(sys.stdin), dict[str, Any](), time.perf_counter()
        try:
            step(question, made, lambda stage: say(stage=stage))
        except Misbuilt as error:
            made["failed"] = str(error)
        except BaseException as error:  # sys.exit of the user's code is an answer, too
            made["failed"] = traceback.format_exception_only(error)[-1].strip()
            made["trace"] = traceback.format_exc()
        made["seconds"] = time.perf_counter() - started
        made["peak_bytes"] = _peak()
        say(done=made)


def step(question: Mapping[str, Any], made: dict[str, Any], begin: Callable[[str], None]) -> None:
    """Builds the model and makes a step; what is found goes into `made`. Raises what the user's code raises.

    After a step that leaves gradients of zero a second one is made.
    """
    begin("importing the script")
    build = getattr(_module(question["script"]), question["function"])
    begin("importing torch")
    import torch

    begin("building the model")
    torch.manual_seed(0)
    module, batch, optimizer = _built(build() if question["batch"] is None else build(batch=question["batch"]))
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    made["trainable"] = list(trained)
    made["parameters"] = sum(p.numel() for p in trained.values())
    made["half"] = [name for name, p in trained.items() if p.dtype == torch.float16]
    made["device"] = str(next((p.device for p in module.parameters()), "cpu"))
    module.train()
    if not trained:
        return
    optimizer = optimizer or torch.optim.AdamW(trained.values(), lr=LEARNING_RATE, weight_decay=0.0)
    made["optimizer"] = type(optimizer).__name__
    before = {name: _bits(p) for name, p in trained.items()}
    if not _backward(module, batch, trained, made, begin):
        return
    begin("the step of the optimizer")
    optimizer.step()
    if made["zero"]:  # the first step of a LoRA leaves one of its two factors where it was
        again: dict[str, Any] = {}
        module.zero_grad(set_to_none=True)
        if _backward(module, batch, trained, again, begin):
            optimizer.step()
            made["zero"] = [name for name in made["zero"] if name in again["zero"]]
            made["infinite"] += again["infinite"]
    made.update(_outcome(trained, before, {*made["missing"], *made["zero"]}))


def _outcome(trained: Mapping[str, Any], before: Mapping[str, Any], still: set[str]) -> dict[str, list[str]]:
    """The parameters that the optimizer left where they were, but for those in `still`, and those that broke."""
    import torch

    return {
        "unmoved": [n for n, p in trained.items() if n not in still and _bits(p) == before[n]],
        "broken": [n for n, p in trained.items() if not bool(torch.isfinite(p).all())],
    }


def _module(script: str) -> Any:
    """The script as a module, as `python script.py` would find its neighbours; not as __main__."""
    file = Path(script)
    sys.path.insert(0, str(file.parent))
    sys.argv = [script]
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise Misbuilt(f"{script} is no Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def _built(returned: Any) -> tuple[Any, Any, Any]:
    import torch

    if not (
        isinstance(returned, tuple | list) and len(returned) in (2, 3) and isinstance(returned[0], torch.nn.Module)
    ):
        raise Misbuilt(
            f"The function returned {type(returned).__name__}; it must return (module, batch) or (module, loss "
            "function), or one of these with the optimizer as a third."
        )
    return returned[0], returned[1], returned[2] if len(returned) == 3 else None


def _backward(
    module: Any, batch: Any, trained: Mapping[str, Any], made: dict[str, Any], begin: Callable[[str], None]
) -> bool:
    """Forward and backward, noted; False when there was nothing to run backward from."""
    import torch

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            begin("the forward pass")
            loss, made["stand_in"] = _loss(module, batch)
            made["loss"] = float(loss.detach())
            made["detached"] = not loss.requires_grad
            made["forced"] = bool(loss.requires_grad and loss.grad_fn is None)
            if made["detached"] or made["forced"]:
                made["missing"] = list(trained)
                return False
            begin("the backward pass")
            loss.backward()
        finally:
            lines = (str(warning.message).partition("\n")[0] for warning in caught)
            texts = list(dict.fromkeys(filter(None, lines)))
            made["no_input_grads"] = any(text.startswith(NO_INPUT_GRADS) for text in texts)
            made["warnings"] = [text[:300] for text in texts][:MOST_WARNINGS]
    made["missing"] = [name for name, p in trained.items() if p.grad is None]
    graded = {name: p.grad for name, p in trained.items() if p.grad is not None}
    made["zero"] = [name for name, grad in graded.items() if not bool(grad.any())]
    made["infinite"] = [name for name, grad in graded.items() if not bool(torch.isfinite(grad).all())]
    return True


def _loss(module: Any, batch: Any) -> tuple[Any, bool]:
    """The loss as one number, and whether it is only our stand-in: the mean square of what the model returns."""
    import torch

    if callable(batch) and not isinstance(batch, torch.Tensor):
        out = batch(module) if inspect.signature(batch).parameters else batch()
    elif isinstance(batch, Mapping):
        out = module(**batch)
    elif isinstance(batch, tuple | list):
        out = module(*batch)
    else:
        out = module(batch)
    own = out.get("loss") if isinstance(out, Mapping) else getattr(out, "loss", None)
    if isinstance(own, torch.Tensor):
        out = own
    if isinstance(out, torch.Tensor) and out.numel() == 1:
        return out if out.dim() == 0 else out.reshape(()), False  # a view would give a leaf a graph
    tensors = _tensors(out)
    if not tensors:
        raise Misbuilt(f"The forward pass returned {type(out).__name__} without a tensor of numbers in it.")
    return torch.stack([tensor.float().pow(2).mean() for tensor in tensors]).sum(), True


def _tensors(out: Any) -> list[Any]:
    import torch

    if isinstance(out, torch.Tensor):
        return [out] if out.is_floating_point() else []
    inside = out.values() if isinstance(out, Mapping) else out if isinstance(out, tuple | list) else ()
    return [tensor for value in inside for tensor in _tensors(value)]


def _bits(parameter: Any) -> int:
    """A checksum of a tensor; it needs no copy of the whole."""
    data = parameter.detach().contiguous().cpu()
    return zlib.crc32((ctypes.c_char * data.nbytes).from_address(data.data_ptr())) if data.nbytes else 0


def _peak() -> int:
    """The most bytes so far: of the card where one is used, else of this process."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return int(torch.cuda.max_memory_allocated())
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    import resource

    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
    gc.freeze()  # as in zdoctor/__main__.py
