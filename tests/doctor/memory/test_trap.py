"""The memory budget for real: a training step in a process that may not have more memory than the prediction says.

Without checkpointing the real model runs out of memory under a limit that lies between the two predictions; with
checkpointing, the cure that is offered, the same step fits.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from zdoctor.doctor.memory import predict
from zdoctor.doctor.model import Dataset, Hub, Memory, ModelFolder, Run
from zdoctor.doctor.model.recipe import Offload, Precision, Recipe, Validation
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.model import probe_model

CONFIG = {
    "dim": 192,
    "n_heads": 4,
    "n_kv_heads": 4,
    "n_layers": 8,
    "n_refiner_layers": 1,
    "in_channels": 16,
    "cap_feat_dim": 32,
    "axes_dims": [16, 16, 16],
    "axes_lens": [1024, 512, 512],
    "all_patch_size": [2],
    "all_f_patch_size": [1],
}
SIDE = 512

STEPS = textwrap.dedent(
    """
    import json, os, resource, sys, traceback
    import torch
    from diffusers.models.transformers.transformer_z_image import ZImageTransformer2DModel

    config, side, budget = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    def data():
        lines = dict(l.split(":", 1) for l in open("/proc/self/status") if ":" in l)
        return int(lines["VmData"].split()[0]) << 10
    def step(checkpointing):
        torch.manual_seed(0)
        model = ZImageTransformer2DModel(**config)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("layers" in name and parameter.ndim == 2)
        if checkpointing:
            model.enable_gradient_checkpointing()
            model.train()
        small = [torch.randn(16, 1, 16, 16)]
        caption = [torch.randn(32, 32)]
        model(small, torch.tensor([0.5]), caption)[0][0].sum().backward()  # what is set up once is not counted
        model.zero_grad(set_to_none=False)
        limit = data() + budget
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        picture = [torch.randn(16, 1, side // 8, side // 8)]
        model(picture, torch.tensor([0.5]), caption)[0][0].float().pow(2).mean().backward()
    for checkpointing in (False, True):
        child = os.fork()
        if child == 0:
            try:
                step(checkpointing)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
)


def predicted(folder: Path, checkpointing: bool) -> int:
    """The bytes of activations of one step, from the closed form."""
    run = Run(
        trainer="ai-toolkit",
        config="c.yaml",
        root="/config/process/0",
        index=0,
        kind="lora",
        process_type="sd_trainer",
        name="n",
        device="cpu",
        recipe=Recipe(
            architecture="zimage",
            base_model=str(folder),
            datasets=(Dataset("datasets/0", None, ".txt", (SIDE,)),),
            precision=Precision(dtype="fp32"),
            offload=Offload(gradient_checkpointing=checkpointing),
            validation=Validation(disabled=True),
        ),
    )
    world = LiveWorld(environment={}, cwd=str(folder), home=str(folder))
    model = probe_model(world, run, Hub((), ()))
    assert isinstance(model, ModelFolder)
    memory = predict(run, model, (), world.system, ())
    assert isinstance(memory, Memory), memory
    (step,) = [phase for phase in memory.phases if phase.name == "training step"]
    return step.items["activations"]


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on a process's data is Linux's")
def test_the_step_that_does_not_fit_and_the_cure_that_does(tmp_path: Path) -> None:
    from diffusers.models.transformers.transformer_z_image import ZImageTransformer2DModel

    ZImageTransformer2DModel(**CONFIG).save_pretrained(str(tmp_path / "transformer"))
    without, with_it = predicted(tmp_path, False), predicted(tmp_path, True)
    assert with_it < 0.5 * without
    budget = (without + with_it) // 2

    argument = json.dumps([CONFIG, SIDE, budget])
    done = subprocess.run([sys.executable, "-c", STEPS, argument], capture_output=True, text=True)
    sick, cured = done.stdout.split()
    assert sick != "0" and "memory" in done.stderr
    assert cured == "0", done.stderr
