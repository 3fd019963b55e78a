"""The training adapter against the model it is merged into."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Finding, ModelFolder, Run, WeightFile, found
from ..doctor.rules import Unestablished, rule
from .model_files import PROBLEMS

_KEY = "diffusion_model.layers.0.attention.to_k.lora_A.weight"


@rule("MDL005", "error", "adapter-layout-mismatch", prevents=(("KeyError", r"diffusion_model\.layers\.0\."),))
def adapter_layout_mismatch(run: Run, adapter: WeightFile | None, model: ModelFolder) -> Iterator[Finding]:
    """A training adapter that does not fit the model.

    What: The file behind assistant_lora_path is damaged, uses the tensor names of another program, or was made for
    a model of another width.

    Why: For Z-Image, ai-toolkit reads the adapter's rank from one fixed name. It does so after the whole
    transformer has been loaded.

    Repair: Use the adapter published for this model (for Z-Image-Turbo, a file of
    ostris/zimage_turbo_training_adapter).

    Signature: KeyError: 'diffusion_model.layers.0.attention.to_k.lora_A.weight'
    """
    if adapter is None or run.kind == "other":
        return
    place = run.where("adapter")
    if adapter.problem in ("missing", "pickle", "unreadable"):
        raise Unestablished(f"the adapter {adapter.name} cannot be read: {adapter.detail or adapter.problem}")
    if adapter.problem:
        yield found(
            place,
            "The adapter {path} is {problem}: {detail}.",
            otherwise="Opening it fails, after the whole transformer has been loaded.",
            evidence={"problem": adapter.problem},
            path=adapter.path,
            problem=PROBLEMS[adapter.problem],
            detail=adapter.detail,
        )
        return
    if run.architecture not in ("zimage", "z_image"):
        raise Unestablished(f"the layout that {run.architecture} expects of an adapter is not known")
    key = adapter.tensors.get(_KEY)
    if key is None:
        yield found(
            place,
            "The adapter {path} has no tensor {key}, the one the trainer asks for; its first name is {example}."
            if adapter.tensors
            else "The adapter {path} holds no tensor at all; the trainer asks for {key}.",
            otherwise="The run ends with KeyError: '{key}', after the whole transformer has been loaded.",
            evidence={"names": list(adapter.tensors)[:5]},
            path=adapter.path,
            key=_KEY,
            example=next(iter(adapter.tensors), None),
        )
        return
    transformer = model.components.get("transformer")
    needed = (transformer.needed or {}).get("layers.0.attention.to_k.weight") if transformer is not None else None
    if needed is not None and (len(key.shape) != 2 or key.shape[1] != needed[1]):
        yield found(
            place,
            "The adapter {path} was made for a model of width {theirs}; this transformer is {ours} wide (from the "
            "headers of both).",
            otherwise="Merging it fails with a size mismatch, after the whole transformer has been loaded.",
            evidence={"shape": list(key.shape)},
            path=adapter.path,
            theirs=key.shape[-1] if key.shape else 0,
            ours=needed[1],
        )
