"""Two sizes that meet tell whose they are: as torch itself says them, and as the families' records have them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zdoctor.doctor.crash import explain
from zdoctor.doctor.crash.model_widths import LATENTS, TEXT, TEXT_LAYERS
from zdoctor.doctor.families import classes, families

from .shapes import script
from .test_cases import SIGNATURES


def told(error: str) -> str:
    return explain(script(error, "model(x)"), SIGNATURES).cause


LOADED = "RuntimeError: Error(s) in loading state_dict for X:\nsize mismatch for {}: copying a param with shape "
LOADED += "torch.Size({}) from checkpoint, the shape in current model is torch.Size({})."


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            LOADED.format("img_in.weight", [3072, 128], [6144, 128]),
            "FLUX.2-klein-base-4B in the file, FLUX.2-dev as built (img_in.weight: 3072 × 128 and 6144 × 128)",
        ),
        (
            LOADED.format("patch_embedding.weight", [5120, 36, 1, 2, 2], [5120, 16, 1, 2, 2]),
            "Wan2.1-I2V-14B-480P-Diffusers",
        ),
        (LOADED.format("lora_unet_x.lora_down.weight", [16, 64], [32, 64]), "has rank 16, and the settings say 32"),
        (LOADED.format("x.lora_A.weight", [16, 3072], [16, 5120]), "a model whose layer is 3072 wide"),
        (
            "RuntimeError: The size of tensor a (36) must match the size of tensor b (16) at non-singleton "
            "dimension 1",
            "this part takes 36, as of Wan-I2V",
        ),
        (
            "RuntimeError: The size of tensor a (64) must match the size of tensor b (63) at non-singleton "
            "dimension 3",
            "Two sizes differ by one (64 and 63)",
        ),
        (
            "RuntimeError: The size of tensor a (77) must match the size of tensor b (154) at non-singleton "
            "dimension 1",
            "longer than CLIP's 77 tokens",
        ),
        (
            "RuntimeError: shape '[1, 8, 64, 2, 64, 2]' is invalid for input of size 262144",
            "2 times as many numbers as the code cuts it into",
        ),
        ("RuntimeError: shape '[4, 16, 40, 2, 40, 2]' is invalid for input of size 25600", "as if it had 16"),
        (
            "RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 21 but got size 81 for "
            "tensor number 1 in the list.",
            "counts frames (81), and the other latent frames (21, one for each 4)",
        ),
        (
            "RuntimeError: The size of tensor a (1024) must match the size of tensor b (128) at non-singleton "
            "dimension 3",
            "counted in pixels (1024), and the other in latents (128, one for each 8)",
        ),
    ],
)
def test_what_the_sizes_tell(error: str, words: str) -> None:
    assert words in told(error)


def test_torch_s_own_words_are_read() -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional

    def meta(*shape: int) -> object:
        return torch.empty(*shape, device="meta")

    calls: tuple[tuple[Callable[[], object], str], ...] = (
        (
            lambda: functional.linear(meta(512, 4096), meta(3840, 2560)),
            "2560 numbers a token (Z-Image), and is handed 4096",
        ),
        (
            lambda: functional.linear(meta(4096, 384), meta(3072, 64)),
            "What comes has 384 channels, as latents of FLUX.1 Fill",
        ),
        (lambda: functional.linear(meta(77, 3072), meta(16, 5120)), "A LoRA whose layers take 5120 numbers"),
        (
            lambda: functional.conv2d(torch.empty(1, 16, 8, 8), torch.empty(8, 33, 2, 2)),
            "It is one for inpainting (InP, Fill), trained or run as a plain one",
        ),
        (
            lambda: functional.conv3d(torch.empty(1, 16, 3, 8, 8), torch.empty(8, 36, 1, 2, 2)),
            "It is one for image-to-video",
        ),
        (lambda: torch.empty(1, 1024, 64).view(1, 4, 4, 16, 2, 2), "a height and width that are 8 times too small"),
        (lambda: torch.empty(1, 1024, 64).view(1, 64, 64, 16, 2, 2), "2 times too large"),
        (
            lambda: functional.conv2d(torch.empty(1, 16, 8, 8), torch.empty(320, 4, 3, 3)),
            "this part takes 4, as of SD1.5/SDXL",
        ),
        (lambda: functional.layer_norm(torch.empty(1, 4, 4096), (2560,)), "is handed 4096 (as T5-XXL"),
    )
    for call, words in calls:
        with pytest.raises(RuntimeError) as failed:
            call()
        assert words in told(f"RuntimeError: {failed.value}"), failed.value


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x17 and 19x23)",
        "RuntimeError: The size of tensor a (697) must match the size of tensor b (2) at non-singleton dimension 2",
        LOADED.format("head.weight", [3, 4], [5, 4]),
        "RuntimeError: shape '[1, 16, 64, 2, 63, 2]' is invalid for input of size 262144",
    ],
)
def test_sizes_that_are_nobody_s_are_told_without_a_name(error: str) -> None:
    answer = told(error)
    assert answer and not any(name in answer for name in ("FLUX", "Wan", "SDXL", "Klein", "Z-Image"))


# The layer that takes a text encoder's states in; behind it some models refine them.
FIRST_OF_TEXT = (
    *("txt_in.weight", "txt_in.linear_1.weight", "txt_in.input_embedder.weight", "context_embedder.weight"),
    "text_embedder.linear_1.weight",
)


def test_the_tables_are_what_the_records_say() -> None:
    taken = {
        (shape[1], shape[0])
        for family in families()
        if family.transformer is not None
        for word in ("", *family.repos.values())
        for name, shape in family.transformer.tensors(family.memory.config(word) if family.memory else {}).items()
        if len(shape) == 2 and name.endswith(FIRST_OF_TEXT)
    }
    other = {(inside, out) for inside, out in taken if inside != out} - TEXT_LAYERS.keys()
    assert not other
    widths = {
        config[key]
        for family in families()
        for kind, config in family.published.values()
        if kind in classes() and "AutoencoderKL" not in kind
        for key in ("hidden_size", "d_model")
        if key in config
    }
    assert widths <= TEXT.keys()
    channels = {
        config.get("latent_channels", config.get("z_dim")) for f in families() for _, config in f.published.values()
    }
    assert channels - {None} <= LATENTS.keys()


def test_positions_and_tokens_are_told_by_the_frame() -> None:
    error = "RuntimeError: The size of tensor a (6932) must match the size of tensor b (6868) at non-singleton "
    error += "dimension 1"
    rotary = explain(script(error, "x_rotated * freqs_cis"), SIGNATURES).cause
    assert "6932 tokens, and positions for 6868" in rotary
    assert "positions for" not in told(error)


@pytest.mark.parametrize(
    ("code", "file", "shapes", "words"),
    [
        (
            "x = torch.cat(a, b)",
            "qwen_image_edit_pipeline.py",
            ((1, 2048, 8), (1, 4096, 8)),
            "2048 tokens of a picture in one place and 4096 in another, 2 times",
        ),
        ("x = a + b", "train.py", ((1, 2048, 8), (1, 4096, 8)), ""),
    ],
)
def test_what_the_code_tells_of_two_lengths(
    code: str, file: str, shapes: tuple[tuple[int, ...], ...], words: str
) -> None:
    torch = pytest.importorskip("torch")
    one, other = shapes
    with pytest.raises(RuntimeError) as failed:
        torch.empty(*one) + torch.empty(*other)
    frame = f'  File "/w/{file}", line 3, in step\n    {code}\n'
    log = f"Traceback (most recent call last):\n{frame}RuntimeError: {failed.value}\n"
    cause = explain(log, SIGNATURES).cause
    assert words in cause
    assert words or "tokens of a picture" not in cause
