"""The quantized LoRA runner; the only folder that imports torch and diffusers."""
