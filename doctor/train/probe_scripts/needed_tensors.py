"""This program asks the installed libraries which tensors they want of a component, by loading names without data.

    python -m zdoctor.doctor.train.probe_scripts.needed_tensors
    < {"parts": {"transformer": {"class": …, "config": …, "tensors": …}}}

A process of its own, started by `check --deep` for classes that zdoctor has no table of: it imports torch, and its
models lie on the "meta" device, so that they take no memory. The answer is the last line of standard output.
Only classes that diffusers or transformers themselves export are built; code from a model folder is never run.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

Shapes = dict[str, tuple[int, ...]]


def main() -> None:
    answer_to = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is not the answer
    parts = json.load(sys.stdin)["parts"]
    made: dict[str, Any] = {}
    for name, part in parts.items():
        try:
            made[name] = {"needed": needed(part["class"], part["config"], part["tensors"])}
        except Exception as error:  # whatever a library says about a config is the answer for this part
            made[name] = {"unknown": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
    answer_to.write(json.dumps({"parts": made}) + "\n")
    answer_to.close()


def needed(class_name: str, config: Mapping[str, Any], present: Mapping[str, list[int]]) -> Shapes:
    """Returns name -> shape of every tensor that loading takes, under the file's names where it finds them.

    `present` are the tensors of the files. Raises what the library raises on a config it cannot build, and
    ValueError for a class or a format that this cannot judge.
    """
    if config.get("quantization_config") is not None:
        raise ValueError("the weights are stored quantized")
    build = _diffusers if "_class_name" in config else _transformers
    return build(class_name, config, present)


def _diffusers(class_name: str, config: Mapping[str, Any], present: Mapping[str, list[int]]) -> Shapes:
    import diffusers
    import torch

    chosen: Any = getattr(diffusers, class_name, None)
    base: Any = getattr(diffusers, "ModelMixin")  # noqa: B009 - exported lazily, which type checkers do not see
    if not (isinstance(chosen, type) and issubclass(chosen, base)):
        raise ValueError(f"diffusers {diffusers.__version__} has no model {class_name}")
    build: Any = chosen
    with torch.device("meta"):
        model = build.from_config(dict(config))
    wanted: Shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    # The loader renames tensors of older files in place; the marks tell what became of which.
    marks = {name: torch.empty(tuple(shape), device="meta") for name, shape in present.items()}
    renamed = dict(marks)
    model._fix_state_dict_keys_on_load(renamed)
    names: dict[int, str] = {id(tensor): name for name, tensor in marks.items()}
    return {str(names.get(id(renamed.get(name)), name)): shape for name, shape in wanted.items()}


def _transformers(class_name: str, config: Mapping[str, Any], present: Mapping[str, list[int]]) -> Shapes:
    import torch
    import transformers
    from transformers.utils import logging

    quiet: Any = logging
    chosen: Any = getattr(transformers, class_name, None)
    if not (isinstance(chosen, type) and issubclass(chosen, transformers.PreTrainedModel)):
        raise ValueError(f"transformers {transformers.__version__} has no model {class_name}")
    build: Any = chosen
    settings = build.config_class.from_dict(dict(config))
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    _, report = build.from_pretrained(
        None,
        config=settings,
        state_dict={name: torch.empty(tuple(shape), device="meta") for name, shape in present.items()},
        device_map={"": "meta"},
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    unused = {*report["unexpected_keys"]}
    shapes: Shapes = {name: tuple(shape) for name, shape in present.items() if name not in unused}
    with torch.device("meta"):
        own = {name: tuple(tensor.shape) for name, tensor in build(settings).state_dict().items()}
    shapes |= {name: own[name] for name in report["missing_keys"] if name in own}
    for name, _, shape in report["mismatched_keys"]:
        shapes[name] = tuple(shape)
    return shapes


if __name__ == "__main__":
    main()
    gc.freeze()  # as in zdoctor/__main__.py
