"""Peaks of a training step of the full-size models, traced without their weights, beside what is predicted.

    python benchmarks/trace.py [zimage | flux] [half]

The real transformer with the runner's LoRA (rank 16) and AdamW runs two steps on tensors without data (FakeTensor),
which takes no GPU and little memory. `half`: an int8 base and the runner's float16, as on a card without bf16.
Counted are the bytes of all tensors that are alive, each rounded up to 512, and not CUDA's context, workspaces and
fragmentation. Minutes on a CPU.
"""

from __future__ import annotations

import sys
import time
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from zdoctor.doctor.memory import GIB, predict
from zdoctor.doctor.model import Gpu, Memory, ModelFolder, Run, System
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.train.families import flux, zimage
from zdoctor.doctor.train.kernels.quantized_linear import QuantizedLinear
from zdoctor.doctor.train.network.lora import add_network, lora_targets, trainable_parameters
from zdoctor.doctor.train.transformer.transformer_blocks import checkpoint_blocks, use_float16
from zdoctor.doctor.train.weights.materialize import linear_shapes
from zdoctor.doctor.train.weights.materialize import replace_module as put
from zdoctor.doctor.trainers.read import read_config

RANK = 16
SYSTEM = System("linux", "6", "3.11", "/c", "/h", 4, 32 * GIB, 28 * GIB)
CARD = Gpu(0, "a card", 200 * GIB, 190 * GIB, (9, 0), "1", "assumed")
OLD_CARD = replace(CARD, capability=(7, 5))
# (checkpointing, resolution, batch size, with control images)
CASES = [
    (True, 512, 1, False),
    (True, 1024, 1, False),
    (True, 1024, 2, False),
    (True, 1024, 1, True),
    (False, 512, 1, False),
    (False, 1024, 1, False),
]


class Alive(TorchDispatchMode):
    """Counts the bytes of the storages that are alive, `now` and at the `peak`."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: set[int] = set()

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, -(-storage.nbytes() // 512) * 512
        if key not in self.known:
            self.known.add(key)
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self.gone, key, size)

    def gone(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for value in tree_iter(found):
            if isinstance(value, torch.Tensor):
                self.add(value)
        return found


def quantize(model: Any, family: Any) -> None:
    """Put int8 Linears without data in the place of those that the runner quantizes."""
    for name, (rows, columns) in linear_shapes(model).items():
        if family.RECORD.is_quantized(name):
            codes, scale = torch.empty(rows, columns, dtype=torch.int8), torch.empty(rows)
            bias = model.get_submodule(name).bias
            put(model, name, QuantizedLinear(codes, scale, None if bias is None else bias.data, columns))


def traced(run: Run, size: int, half: bool) -> int:
    """Bytes at the peak of the second step."""
    from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel
    from diffusers.models.transformers.transformer_z_image import ZImageTransformer2DModel

    of_flux = run.architecture != "zimage"
    family: Any = flux if of_flux else zimage
    make: Any = FluxTransformer2DModel if of_flux else ZImageTransformer2DModel
    options = {"guidance_embeds": True} if of_flux else {}
    with FakeTensorMode(allow_non_fake_inputs=True):
        kind = torch.float32 if half else torch.bfloat16
        torch.set_default_dtype(kind)
        model = make(**options).eval().requires_grad_(False)
        torch.set_default_dtype(torch.float32)
        if half:
            quantize(model, family)
            use_float16(model)
        network = add_network(model, lora_targets(model), run.recipe.network, 0)
        parameters = list(trainable_parameters(network, "").values())
        if run.gradient_checkpointing:
            model.enable_gradient_checkpointing(gradient_checkpointing_func=checkpoint_blocks(model, network))
        optimizer = torch.optim.AdamW(parameters, foreach=False)
        latent = torch.zeros(run.batch_size, 16, size // 8, size // 8, dtype=kind)
        control = torch.zeros_like(latent) if run.architecture == "flux_kontext" else None
        states = torch.zeros(512, 4096) if of_flux else torch.zeros(256, 2560)
        text = {"states": states.bfloat16(), "pooled": torch.zeros(768, dtype=torch.bfloat16)}
        with Alive() as alive:
            for tensor in (*model.parameters(), *model.buffers()):
                alive.add(tensor)
            for _ in range(2):
                alive.peak = alive.now
                guess = family.predict(
                    model, latent, torch.full((run.batch_size,), 0.5), [text] * run.batch_size, 1.0, control
                )
                loss = guess.square().mean()
                del guess
                loss.backward()
                del loss
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
    return alive.peak


def predicted(run: Run, half: bool) -> float:
    if half:
        run = replace(run, trainer=RUNNER, quantization="int8")
    memory = predict(
        run, ModelFolder(run.base_model or "", "absent", None), (), SYSTEM, (OLD_CARD if half else CARD,)
    )
    assert isinstance(memory, Memory), memory
    step = next(phase for phase in memory.phases if phase.name == "training step")
    return (step.total - step.items["CUDA context (assumed)"]) / GIB


def run_of(architecture: str, model: str, size: int) -> Run:
    text = (
        "job: extension\nconfig:\n  name: t\n  process:\n  - type: sd_trainer\n    training_folder: out\n"
        f"    network: {{type: lora, linear: {RANK}}}\n"
        "    train: {dtype: bf16, cache_text_embeddings: true, disable_sampling: true}\n"
        f"    datasets: [{{folder_path: d, resolution: {size}, cache_latents_to_disk: true}}]\n"
        f"    model: {{name_or_path: {model}, arch: {architecture}}}\n"
    )
    return read_config("t.yaml", text.encode(), {}).runs[0]


def main(which: str, half: bool) -> None:
    print(f"{'case':44} {'traced':>8} {'predicted':>9}  GiB of tensors, torch {torch.__version__}")
    for checkpointed, size, batch, edits in CASES:
        if which == "zimage":
            if edits:
                continue
            run = run_of("zimage", "Tongyi-MAI/Z-Image-Turbo", size)
        else:
            name = "black-forest-labs/FLUX.1-" + ("Kontext-dev" if edits else "dev")
            run = run_of("flux_kontext" if edits else "flux", name, size)
        if edits:
            run = replace(run, datasets=tuple(replace(d, control_folders=("c",)) for d in run.datasets))
        run = replace(run, gradient_checkpointing=checkpointed, batch_size=batch)
        began = time.monotonic()
        found, said = traced(run, size, half) / GIB, predicted(run, half)
        words = f"{run.architecture} {size}, batch {batch}, {'' if checkpointed else 'not '}checkpointed"
        print(
            f"{words:44} {found:8.2f} {said:9.2f}  {said / found - 1:+.1%}, {time.monotonic() - began:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main("zimage" if "zimage" in sys.argv else "flux", "half" in sys.argv)
