"""The parts that the models of several families have in common: text encoders and the VAE."""

from __future__ import annotations

from . import autoencoder_kl, clip_text, latents, qwen3, t5, vision_language, wan_encoders

# A file is taken for the first of these of which it has a mark.
CLASSES = (
    *latents.CLASSES,
    *autoencoder_kl.CLASSES,
    *clip_text.CLASSES,
    *t5.CLASSES,
    *wan_encoders.CLASSES,
    *qwen3.CLASSES,
    *vision_language.CLASSES,
)
