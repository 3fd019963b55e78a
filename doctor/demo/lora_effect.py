"""What a trained LoRA does to the pipeline, loaded as any user would load it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def largest_change(model_folder: str, lora: str) -> float:
    """The largest change that the LoRA makes to the pipeline's latents."""
    import transformers.utils.logging as transformers_log
    from diffusers.pipelines.z_image.pipeline_z_image import ZImagePipeline
    from diffusers.utils import logging as diffusers_log

    for log in (diffusers_log, transformers_log):
        quiet: Any = log.disable_progress_bar
        quiet()
    pipe: Any = ZImagePipeline.from_pretrained(model_folder, local_files_only=True)
    pipe.set_progress_bar_config(disable=True)

    def paint() -> torch.Tensor:
        out: Any = pipe(
            "testarossa a red circle on a white table",
            height=64,
            width=64,
            num_inference_steps=2,
            guidance_scale=0.0,
            generator=torch.Generator().manual_seed(0),
            output_type="latent",
        )
        latents: torch.Tensor = out.images
        return latents

    before = paint()
    pipe.load_lora_weights(str(Path(lora).parent), weight_name=Path(lora).name)
    return float((paint() - before).abs().max())
