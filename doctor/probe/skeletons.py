"""Asks the training environment's own libraries which tensors a model part is made of. Only a deep check does."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from ..model import Component, ModelFolder, Unknown
from ..model.record import replace
from .world import Shapes, World

DEADLINE = 180.0  # importing torch and diffusers from a cold disk takes half a minute


def with_skeletons(world: World, model: ModelFolder) -> ModelFolder:
    """The model with what each part needs, where no table says and the library can."""
    asked = {
        name: part
        for name, part in model.components.items()
        if part.needed is None
        and part.config is not None
        and part.class_name is not None
        and part.tensors
        and not any(weight.problem for weight in part.weights)
    }
    if not asked:
        return model
    answers = world.skeletons(asked)
    parts = dict(model.components)
    for name, answer in answers.items():
        if isinstance(answer, Unknown):
            parts[name] = replace(parts[name], needed_reason=answer.reason)
        else:
            parts[name] = replace(parts[name], needed=answer, needed_reason="")
    return replace(model, components=parts)


def ask_libraries(parts: Mapping[str, Component]) -> dict[str, Shapes | Unknown]:
    """The answers of a child process of this interpreter; Unknown, with the reason, where there is none."""
    import subprocess

    question = {
        name: {
            "class": part.class_name,
            "config": part.config,
            "tensors": {tensor: known.shape for tensor, known in part.tensors.items()},
        }
        for name, part in parts.items()
    }
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "TQDM_DISABLE": "1"}
    command = [sys.executable, "-m", "zdoctor.doctor.train.probe_scripts.needed_tensors"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps({"parts": question}),
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=DEADLINE,
            env=environment,
        )
        answer = json.loads(done.stdout.splitlines()[-1])["parts"] if done.stdout.strip() else {}
    except subprocess.TimeoutExpired:
        return dict.fromkeys(parts, Unknown(f"the libraries did not build it within {DEADLINE:.0f} s"))
    except (OSError, ValueError, KeyError) as error:
        return dict.fromkeys(parts, Unknown(f"the libraries could not be asked ({type(error).__name__})"))
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:300]
    nothing = {"unknown": f"the libraries could not be asked: {last}"}
    return {name: _understood(answer.get(name, nothing)) for name in parts}


def _understood(answer: Any) -> Shapes | Unknown:
    if "needed" not in answer:
        return Unknown(str(answer.get("unknown")))
    return {name: tuple(shape) for name, shape in answer["needed"].items()}
