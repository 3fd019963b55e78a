"""One tiny model for all tests of the runner, and a dataset of six circles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw

from zdoctor.doctor.demo.tiny import build_tiny_adapter, build_tiny_pipeline
from zdoctor.tests.chroma import trainable_chroma
from zdoctor.tests.flux import trainable_flux
from zdoctor.tests.flux2 import trainable_flux2, trainable_flux2_dev
from zdoctor.tests.qwen_image import trainable_qwen_image, trainable_qwen_image_edit
from zdoctor.tests.sdxl import trainable_sdxl

COLOURS = ("red", "green", "blue", "yellow", "white", "black")


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors gain nothing from threads, and lose much on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny pipeline. Read only: copy what a test changes."""
    folder = tmp_path_factory.mktemp("tiny") / "model"
    build_tiny_pipeline(folder)
    return folder


@pytest.fixture(scope="session")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny pipeline with blocks enough to come and go. Read only."""
    folder = tmp_path_factory.mktemp("deep") / "model"
    build_tiny_pipeline(folder, layers=4)
    return folder


@pytest.fixture(scope="session")
def flux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny pipeline of Flux.1-dev. Read only: copy what a test changes."""
    return trainable_flux(tmp_path_factory.mktemp("flux") / "model")


@pytest.fixture(scope="session")
def chroma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny pipeline of Chroma. Read only: copy what a test changes."""
    return trainable_chroma(tmp_path_factory.mktemp("chroma") / "model")


@pytest.fixture(scope="session")
def flux2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny pipeline of FLUX.2 Klein. Read only: copy what a test changes."""
    return trainable_flux2(tmp_path_factory.mktemp("flux2") / "model")


@pytest.fixture(scope="session")
def sdxl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny pipeline of SDXL. Read only: copy what a test changes."""
    return trainable_sdxl(tmp_path_factory.mktemp("sdxl") / "model")


@pytest.fixture(scope="session")
def flux2_dev(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny pipeline of FLUX.2 dev. Read only: copy what a test changes."""
    return trainable_flux2_dev(tmp_path_factory.mktemp("dev") / "model")


@pytest.fixture(scope="session")
def qwen_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny pipeline of Qwen-Image. Read only: copy what a test changes."""
    return trainable_qwen_image(tmp_path_factory.mktemp("qwen") / "model")


@pytest.fixture(scope="session")
def qwen_image_edit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny pipeline of Qwen-Image-Edit. Read only: copy what a test changes."""
    return trainable_qwen_image_edit(tmp_path_factory.mktemp("edit") / "model")


@pytest.fixture(scope="session")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("adapter") / "adapter.safetensors"
    build_tiny_adapter(file)
    return file


@pytest.fixture(scope="session")
def circles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six pictures of 160 x 128 pixels with captions. Read only."""
    folder = tmp_path_factory.mktemp("circles")
    for number, colour in enumerate(COLOURS):
        image = Image.new("RGB", (160, 128), "gray")
        ImageDraw.Draw(image).ellipse((20 + 5 * number, 20, 90 + 5 * number, 100), fill=colour)
        image.save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"a photo of a {colour} circle", encoding="utf-8")
    return folder
