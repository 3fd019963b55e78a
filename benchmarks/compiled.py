"""How often torch.compile traces the blocks of a tiny Z-Image in a run of several sizes of picture.

    python benchmarks/compiled.py [SIZES [BACKEND]]

A LoRA on four layers, checkpointed; batches of two with captions of unlike lengths, then of one, an evaluation,
previews with guidance, and the model without its network. "eager" makes no kernels: what is counted is what Dynamo
traces, and with "inductor" it takes minutes. "left" are calls for which it gave up: they run uncompiled from then on.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn
from torch._dynamo.utils import counters

from zdoctor.doctor.train.families import zimage
from zdoctor.doctor.train.network.lora import add_network, lora_targets
from zdoctor.doctor.train.transformer.transformer_blocks import checkpoint_blocks, compile_blocks, transformer_blocks
from zdoctor.tests.doctor.train.patient import run_with


def main(count: int, backend: str) -> None:
    from diffusers.models.transformers.transformer_z_image import ZImageTransformer2DModel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    make: Any = ZImageTransformer2DModel
    model = make(
        dim=64,
        n_heads=2,
        n_kv_heads=2,
        n_layers=4,
        n_refiner_layers=1,
        cap_feat_dim=32,
        axes_dims=[8, 12, 12],
        axes_lens=[1536, 512, 512],
    ).requires_grad_(False)
    network = add_network(model, lora_targets(model), run_with(rank=4).recipe.network, 1)
    model.enable_gradient_checkpointing(gradient_checkpointing_func=checkpoint_blocks(model, network))
    whole = nn.Module.compile
    nn.Module.compile = lambda block: whole(block, backend=backend)  # type: ignore[method-assign, misc, assignment]
    compile_blocks(model)
    print(f"{len(transformer_blocks(model))} blocks, limit {torch._dynamo.config.recompile_limit}")
    sizes = [(8 + 2 * number, 40 - 2 * number) for number in range(count)]

    def call(what: str, batch: int, *, gradients: bool = False) -> None:
        for number, (height, width) in enumerate(sizes):
            texts = [{"states": torch.randn(tokens, 32)} for tokens in (9 + 20 * number, 30)[:batch]]
            with torch.set_grad_enabled(gradients):
                latent = torch.randn(batch, 16, height, width)
                out = zimage.predict(model, latent, torch.full((batch,), 0.5), texts)
            if gradients:
                out.square().mean().backward()  # type: ignore[no-untyped-call]
        frames = counters["frames"]
        print(f"{what:24} traced {frames['ok']:3}, left {frames['total'] - frames['ok']}", flush=True)

    modules: list[Any] = list(network.values())
    call("batches of two", 2, gradients=True)
    call("batches of one", 1, gradients=True)
    for module in modules:
        module.eval()
    call("an evaluation", 1)
    call("previews", 2)
    for module in modules:
        module.train()
        module.active = False
    call("without the network", 2)
    for module in modules:
        module.active = True
    call("batches of two again", 2, gradients=True)


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["12"])[0]), (sys.argv[2:] or ["eager"])[0])
