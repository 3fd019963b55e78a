"""Peak of all live tensors of the VAE's encoder and decoder (the real layers, random weights), whole and in strips.

    python benchmarks/vae_strips.py [SIDE]

Strips of as many rows, for the side of the picture, as at 1024 x 1024.
"""

from __future__ import annotations

import sys

import torch
from diffusers import AutoencoderKL

from zdoctor.doctor.families.components.autoencoder_kl import VAE
from zdoctor.doctor.train.components import vae_strips as strips
from zdoctor.tests.doctor.train.components.test_vae_strips import peak


def main() -> None:
    side = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    strips.STRIP = strips.STRIP * side * side // 1024**2
    torch.manual_seed(0)
    vae = AutoencoderKL(**VAE).eval()
    pixels, latent = torch.zeros(1, 3, side, side), torch.zeros(1, 16, side // 8, side // 8)
    works = {"encode": (vae.encoder, lambda: vae.encode(pixels)), "decode": (vae.decoder, lambda: vae.decode(latent))}
    for name, (part, work) in works.items():
        whole = peak(work)
        with strips.in_strips(part):
            cut = peak(work)
        sizes = f"{whole / 2**20:.1f} MiB whole, {cut / 2**20:.1f} MiB in strips"
        print(f"{name} {side} x {side}: {sizes}, {cut / whole:.2f}")


if __name__ == "__main__":
    main()
