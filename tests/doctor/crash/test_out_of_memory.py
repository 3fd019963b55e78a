"""The card's memory is out: what PyTorch's own words count, in which phase, and which options are left."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zdoctor.doctor.crash import explain
from zdoctor.doctor.crash.card_memory import GIB, MIB, card_of
from zdoctor.doctor.crash.levers import command_of, levers
from zdoctor.doctor.crash.lines import clean
from zdoctor.doctor.crash.options import options_of
from zdoctor.doctor.crash.phases import phases
from zdoctor.doctor.model.crashes import Explanation

from .shapes import traceback
from .test_cases import SIGNATURES

# The words of torch's allocators (CUDA's to 2.0 and since, HIP's, CUDA's own, XPU's, MPS'), as public logs show them.
TO_2_0 = (
    "Tried to allocate {asked} (GPU 0; {total} total capacity; {allocated} already allocated; {free} free; "
    "{reserved} reserved in total by PyTorch) If reserved memory is >> allocated memory try setting "
    "max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
FROM_2_1 = (
    "Tried to allocate {asked}. GPU 0 has a total capac{y} of {total} of which {free} is free. {processes}Of the "
    "allocated memory {allocated} is allocated by PyTorch, and {spare} is reserved by PyTorch but unallocated. If "
    "reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation."
)
ASYNC = (
    "Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 6.51 GiB\n"
    "Requested               : 1.00 GiB\nDevice limit            : 8.00 GiB\nFree (according to CUDA): 0 bytes\n"
    "PyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB"
)
MPS = (
    "MPS backend out of memory (MPS allocated: {allocated}, other allocations: {apart}, max allowed: {total}). Tried "
    "to allocate {asked} on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory "
    "allocations (may cause system failure)."
)

OWN = "Including non-PyTorch memory, this process has {} memory in use. "


def older(asked: str, total: str, allocated: str, free: str, reserved: str) -> str:
    words = TO_2_0.format(asked=asked, total=total, allocated=allocated, free=free, reserved=reserved)
    return f"torch.cuda.OutOfMemoryError: CUDA out of memory. {words}"


def newer(
    asked: str, total: str, free: str, allocated: str, spare: str, processes: str = "", of: str = "CUDA"
) -> str:
    words = FROM_2_1.format(
        asked=asked, total=total, free=free, allocated=allocated, spare=spare, processes=processes, y="ity"
    )
    return f"torch.OutOfMemoryError: {of} out of memory. {words}"


def told(error: str, *code: str, before: str = "", after: str = "") -> Explanation:
    frames = [("/w/train.py", "main", one) for one in code or ("main(args)",)]
    return explain(before + traceback(error, *frames) + after, SIGNATURES)


def test_what_each_form_counts() -> None:
    card = card_of(older("1024.00 MiB", "14.75 GiB", "4.53 GiB", "656.81 MiB", "4.54 GiB"))
    assert (card.asked, card.total) == (GIB, int(14.75 * GIB))
    assert card.kept == int(4.54 * GIB) and card.scattered == int(4.54 * GIB) - int(4.53 * GIB)
    listed = f"Process 7 has 2.00 GiB memory in use. {OWN.format('20.00 GiB')}"
    card = card_of(newer("2.00 GiB", "23.51 GiB", "98.31 MiB", "19.00 GiB", "512.00 MiB", listed))
    assert (card.own, card.processes, card.spare) == (20 * GIB, (2 * GIB,), 512 * MIB) and card.counted
    assert card_of(FROM_2_1.replace("{y}", "ty").format(
        asked="8.00 GiB", total="23.69 GiB", free="7.11 GiB", allocated="16.01 GiB", spare="7.47 MiB", processes=""
    )).total == int(23.69 * GIB)  # fmt: skip
    card = card_of(ASYNC)
    assert (card.allocated, card.asked, card.total, card.free) == (int(6.51 * GIB), GIB, 8 * GIB, 0)
    card = card_of(MPS.format(allocated="8.00 GB", apart="1.20 GB", total="9.07 GB", asked="512.00 MB"))
    assert (card.allocated, card.apart, card.total) == (8 * GIB, int(1.2 * GIB), int(9.07 * GIB))
    assert card_of("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has").asked == 2 * GIB
    assert card_of("CUDA error: out of memory") == card_of("")


@pytest.mark.parametrize(
    ("error", "words", "others"),
    [
        (older("128.00 MiB", "14.76 GiB", "167.82 MiB", "4.75 MiB", "190.00 MiB"), "The other 14.1 GiB are", True),
        (older("58.00 MiB", "14.75 GiB", "13.25 GiB", "6.81 MiB", "13.42 GiB"), "this run holds 13.2 GiB", False),
        (
            newer("24.00 MiB", "39.38 GiB", "3.81 MiB", "62.54 MiB", "17.46 MiB",
                  f"Process 3774011 has 38.88 GiB memory in use. {OWN.format('494.00 MiB')}"),
            "others hold 38.9 GiB of 39.4 GiB, and this run 494 MiB", True,
        ),
        (  # in a container the run itself is a process with a number
            newer("512.00 MiB", "14.74 GiB", "352.12 MiB", "14.21 GiB", "53.24 MiB",
                  "Process 1 has 14.39 GiB memory in use. "),
            "this run holds 14.2 GiB of 14.7 GiB, and 512 MiB more", False,
        ),
        (
            newer("108.00 MiB", "23.51 GiB", "98.31 MiB", "20.58 GiB", "10.00 MiB",
                  OWN.format("20.99 GiB")),
            "About 2.4 GiB are held by others", False,
        ),
        (
            newer("1.00 GiB", "23.51 GiB", "98.31 MiB", "12.00 GiB", "10.00 MiB",
                  OWN.format("23.00 GiB")),
            "10.5 GiB of 23.5 GiB outside of PyTorch", False,
        ),
        (newer("48.00 MiB", "15.93 GiB", "8.76 GiB", "6.06 GiB", "1.45 MiB"), "refused 48 MiB although", False),
        (older("48.00 MiB", "15.93 GiB", "6.06 GiB", "8.76 GiB", "6.07 GiB"), "refused 48 MiB although", False),
        (newer("192.00 MiB", "31.89 GiB", "13.22 GiB", "17.00 GiB", "1.00 GiB", of="XPU"), "although by the", False),
        (newer("3.15 GiB", "39.56 GiB", "1.80 GiB", "31.66 GiB", "4.11 GiB", of="HIP"), "run holds 31.7 GiB", False),
        (newer("1.15 GiB", "39.56 GiB", "0.80 GiB", "31.66 GiB", "6.11 GiB", of="HIP"), "6.1 GiB of the card", False),
        (newer("31.67 GiB", "32.00 GiB", "24.39 GiB", "6.30 GiB", "0.25 GiB"), "a single tensor of 31.7 GiB", False),
        (newer("64.00 MiB", "8.00 GiB", "0 bytes", "11.20 GiB", "0.30 GiB"), "more than the 8.0 GiB of", False),
        (f"torch.OutOfMemoryError: {ASYNC}", "this run holds 6.5 GiB of 8.0 GiB, and 1.0 GiB more", False),
        (
            f"RuntimeError: {MPS.format(allocated='8.14 GiB', apart='11.95 GiB', total='20.13 GiB', asked='1 GiB')}",
            "other programs hold 11.9 GiB of the 20.1 GiB that this Mac gives", False,
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 114.00 MiB. GPU", "not enough memory", False),
    ],
)  # fmt: skip
def test_who_holds_the_card(error: str, words: str, others: bool) -> None:
    seen = told(error)
    assert words in seen.cause and seen.known is not None
    assert ("end what else is on the card" in seen.do.lower()) is others
    assert seen.rules == (() if "refused" in words or "although" in words else ("MEM001",))


FULL = newer("20.00 MiB", "10.57 GiB", "13.12 MiB", "10.32 GiB", "31.14 MiB")


@pytest.mark.parametrize(
    ("code", "doing"),
    [
        (
            ("images = pipeline(example['prompt']).images", "generate_class_images(args)"),
            "generating the class images",
        ),
        (("unet = unet.to(torch.float32)",), "casting the whole model"),
        (("sample_images(accelerator, args)", "unet(latents)"), "drawing a sample"),
        (("images = log_validation(vae, unet)", "self.vae.decode(latents)"), "drawing a sample"),
        (("accelerator.backward(loss)",), "computing the gradients"),
        (("optimizer.step()", "exp_avg = torch.zeros_like(p)"), "taking the optimizer's step"),
        (("ema_unet.step(unet.parameters())",), "keeping the averaged weights"),
        (("embeds = encode_prompt(text_encoders, prompts)",), "encoding captions"),
        (("latents = vae.encode(pixels).latent_dist.sample()",), "encoding pictures"),
        (("quantize_(self.transformer, cfg)",), "quantizing"),
        (("pipe.fuse_lora()",), "putting a LoRA"),
        (("transformer.to(device)",), "loading the model"),
        (("self.train_step(batch)", "return self.forward(x.to(device))"), "computing a step"),
        (("loss.backward()", "return self.forward(x)"), "computing the gradients"),
    ],
)
def test_the_phase_by_the_frames(code: tuple[str, ...], doing: str) -> None:
    assert f"The program was {doing}" in told(FULL, *code).cause


def test_a_bar_says_what_goes_on_until_it_is_full() -> None:
    begun = told(FULL, "main(args)", before="Generating class images:   0% 0/13 [00:36<?, ?it/s]\n")
    assert "The program was generating the class images." in begun.cause and "sample_batch_size" in begun.do
    done = told(FULL, "loss.backward()", before="Caching latents: 100%|##| 50/50 [00:09<00:00, 5.1it/s]\n")
    assert "The program was computing the gradients." in done.cause


STEPS = "Steps: {}%|#####     | {} [17:04<{}, 2.51s/it, loss=0.112, lr=0.0001]\n"


@pytest.mark.parametrize(
    ("bar", "code", "fitted"),
    [
        (STEPS.format(100, "400/400", "00:00"), "unet = unet.to(torch.float32)", False),
        (STEPS.format(0, "0/400", "?"), "loss.backward()", False),
        (STEPS.format(50, "200/400", "?"), "loss.backward()", False),  # goes on from 200
        (STEPS.format(50, "200/400", "08:00"), "loss.backward()", True),
        (STEPS.format(50, "200/400", "08:00"), "sample_images(args)", False),
        ("my_lora:  50%|##| 200/400 [9:00<9:00, 2.5s/it, lr: 1e-04 loss: 1.2e-01]\n", "loss.backward()", True),
        ("Fetching 15 files: 100%|##| 15/15 [00:01<00:00, 9it/s]\n", "loss.backward()", False),
    ],
)
def test_steps_that_fitted_say_that_a_later_one_takes_more(bar: str, code: str, fitted: bool) -> None:
    assert ("The steps before it fitted" in told(FULL, code, before=bar).cause) is fitted


def launched(script: str, *options: str) -> str:
    listed = ", ".join(f"'{word}'" for word in ("/usr/bin/python3", script, *options))
    return f"subprocess.CalledProcessError: Command '[{listed}]' returned non-zero exit status 1.\n"


@pytest.mark.parametrize(
    ("script", "options", "expected"),
    [
        (
            "train_text_to_image.py",
            ("--train_batch_size=2", "--gradient_checkpointing", "--mixed_precision=no"),
            ("--train_batch_size 1 (now 2)", "--use_8bit_adam", "--mixed_precision fp16 or bf16 (now no)"),
        ),
        (
            "train_text_to_image_lora.py",
            ("--resolution=512",),
            ("--gradient_checkpointing", "--mixed_precision fp16 or bf16"),
        ),
        (
            "flux_train_network.py",
            ("--mixed_precision", "bf16", "--gradient_checkpointing", "--cache_latents", "--highvram"),
            ("--fp8_base", "--blocks_to_swap N", "--cache_text_encoder_outputs"),
        ),
        ("flux_train_network.py", ("--config_file", "a.toml"), ()),  # what is missing may stand there
        ("my_own.py", ("--resolution=512",), ()),
        (
            "sdxl_train.py",
            (
                "--gradient_checkpointing",
                "--optimizer_type=AdamW",
                "--mixed_precision=bf16",
                "--cache_latents_to_disk",
            ),
            ("--optimizer_type AdamW8bit (now AdamW)", "--cache_text_encoder_outputs"),
        ),
    ],
)
def test_the_levers_that_a_command_leaves(script: str, options: tuple[str, ...], expected: tuple[str, ...]) -> None:
    seen = told(FULL, "self.train_step(batch)", after=launched(script, *options))
    for lever in expected:
        assert lever in seen.do
    assert ("Change in what the log shows" in seen.do) is bool(expected)


def test_a_command_that_was_typed_and_one_that_is_cut_off() -> None:
    typed = clean(
        "accelerate launch --mixed_precision bf16 \\\n  sd-scripts/flux_train_network.py \\\n"
        "  --fp8_base \\\n  --highvram\n"
    )
    command = command_of(typed, 4)
    assert command is not None and command.whole and set(command.options) == {"fp8_base", "highvram"}
    assert levers(command, ("highvram", "fp8_base"), typed, 4) == ("no --highvram",)
    cut = clean("subprocess.CalledProcessError: Command '['/x/python', '/y/sdxl_train.py', '--")
    command = command_of(cut, 1)
    assert command is not None and command.script == "sdxl_train" and command.trains_all and not command.whole
    assert levers(command, ("gradient_checkpointing",), cut, 1) == ()


def test_settings_that_are_written_out() -> None:
    lines = clean("  batch_size: 4\n  quantize: false\n  low_vram: true\n  gradient_checkpointing: False\n")
    found = levers(None, ("batch_size", "gradient_checkpointing", "quantize", "low_vram"), lines, 9)
    assert found == ("batch_size 1 (now 4)", "gradient_checkpointing: true", "quantize: true")


def test_each_option_of_the_table_is_one_of_a_script() -> None:
    scripts = (
        *("flux_train_network", "train_dreambooth", "train_text_to_image", "wan_cache_text_encoder_outputs"),
        *("fpack_cache_latents", "zimage_train_network", "qwen_image_cache_text_encoder_outputs", "train_network"),
    )
    known = {option for script in scripts for option in options_of(script)} | {"quantize", "low_vram"}
    for phase in phases():
        assert not set(phase.options) - known, phase.doing


@pytest.mark.parametrize("own", [lambda error: f"{error}\n", lambda error: f"ERROR {error}\n"])
def test_a_message_alone_is_read_too(own: Callable[[str], str]) -> None:
    seen = explain(own(FULL), SIGNATURES)
    assert "by the message this run holds 10.3 GiB of 10.6 GiB" in seen.cause


def test_what_knows_more_than_that_the_card_is_full_stays() -> None:
    for error in ("RuntimeError: CUDA error: out of memory", "RuntimeError: CUDA driver error: out of memory"):
        assert "by the message" not in told(error).cause
    skipped = explain("# OOM during training step, skipping batch 1/3\n", SIGNATURES)
    assert "ai-toolkit leaves such a step out" in skipped.cause
