"""Repositories of the hub whose owner lets in who has accepted a licence, with the month it was last seen so.

Sources: public threads in which the hub said "Access to model … is restricted" of it; for Stability AI the licence
questions in the repositories' own cards.
"""

from collections.abc import Mapping

GATED: Mapping[str, str] = {
    "black-forest-labs/FLUX.1-dev": "2025-09",  # github.com/ZiYang-xie/WorldGen/issues/22
    "black-forest-labs/FLUX.1-schnell": "2025-04",  # github.com/mudler/LocalAI/issues/5190
    "black-forest-labs/FLUX.2-klein-9B": "2026-05",  # github.com/mflux-community/mflux/issues/418
    "google/gemma-2-2b-it": "2024-12",  # github.com/city96/ComfyUI_ExtraModels/issues/99
    "stabilityai/stable-diffusion-3-medium-diffusers": "2024-08",
    "stabilityai/stable-diffusion-3.5-large": "2024-11",
    "stabilityai/stable-diffusion-3.5-large-turbo": "2024-11",
    "stabilityai/stable-diffusion-3.5-medium": "2024-11",
}
