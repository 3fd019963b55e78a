"""What a run was doing as it failed, by the last frame of a traceback of which the end is not there."""

from __future__ import annotations

import re
from pathlib import PureWindowsPath

from ..model.crashes import Failure, Frame, Known
from .messages import CUT_OFF

# Files that only hand a call on.
_HANDS_ON = re.compile(
    r"[/\\]torch[/\\](?:nn[/\\]modules[/\\]module|autograd|utils[/\\](?:checkpoint|_contextlib)|_tensor|_compile|_dynamo)"
    r"|[/\\](?:click|typer|runpy)\b|_validators\.py|nvtx\.py|c10d_logger|^<frozen "
)
# What a line of code calls, without the arguments.
_CALLED = re.compile(r"[\w.]+\(")
_IMPORT = re.compile(r"(?:from (?P<module>[\w.]+) import|import (?P<whole>[\w.]+))")
_DISK = "a folder that is gone or may not be written to, or a disk that is full"
_CARD = "the card's memory, or types, sizes or devices of tensors that do not go together"
# What is called there, what that does, and what fails there most.
_PHASES = (
    (
        r"save_file|save_pretrained|save_state|save_weights|torch\.save|save_checkpoint|serialize_file",
        "saving",
        _DISK,
    ),
    (
        r"\.backward\(|run_backward|unpack_hook|recompute",
        "computing the gradients",
        "the card's memory, or block swap, offloading or torch.compile that does not go with gradient checkpointing",
    ),
    (
        r"optimizer\.step|_optimizer_step",
        "taking the optimizer's step",
        "the card's memory, or an optimizer that does not go with what is trained",
    ),
    (
        r"_inductor|_dynamo|cpp_extension|torch\.compile",
        "compiling",
        "a compiler or headers that are not there, or a triton of another version",
    ),
    (
        r"hf_hub_download|snapshot_download|file_download|hf_raise_for_status",
        "fetching files",
        "a model that is gated or not there, a token that is missing, or the net",
    ),
    (
        r"(?i)tokeniz|sentencepiece",
        "making the tokenizer",
        "files of the tokenizer that are missing, or a transformers or tokenizers of another version",
    ),
    (
        r"broadcast|all_reduce|all_gather|barrier\(|init_process_group|c10d|rendezvous|TCPStore",
        "letting the processes of the cards meet (NCCL, torch.distributed)",
        "another process that failed first, or a card or driver that NCCL cannot use; on Windows USE_LIBUV",
    ),
    (
        r"popen_spawn|popen_fork|_MultiProcessingData|reduction\.dump|w\.start\(\)|BackgroundInit",
        "starting processes that read the dataset",
        "something that Windows cannot hand to another process (set the number of workers to 0), or want of RAM",
    ),
    (
        r"(?i)offload|weights_to_device|block_swap|swap_weight|pin_memory|to_cpu",
        "moving weights between the card and RAM",
        "want of RAM (pinned memory above all), or offloading that does not go with another setting",
    ),
    (
        r"_load_dll_libraries|_load_library|CDLL",
        "loading a compiled library",
        "on Windows the Visual C++ runtime that is missing or old, or a package that is not installed whole",
    ),
    (
        r"prepare_optimizer_params|add_adapter|inject_adapter|create_and_replace|update_layer"
        r"|get_peft_model|create_network|apply_to\b",
        "putting a LoRA on the model",
        "a peft that does not go with torch or the quantization, or names of layers that the model has not",
    ),
    (
        r"(?i)memory_efficient|xformers",
        "switching xformers on",
        "an xformers that is not built for this torch or card (torch's own attention, sdpa, does as well)",
    ),
    (
        r"tempfile|mkstemp|mkdir|makedirs",
        "making a file or folder",
        _DISK,
    ),
    (
        r"quantize_?\(|freeze\(",
        "quantizing",
        "a torchao, quanto or bitsandbytes that does not go with this torch, or the memory",
    ),
    (
        r"(?i)load_lora|lora_state_dict|lora_conversion|convert\w*lora",
        "loading a LoRA",
        "a LoRA of another model, or with names that this program does not know",
    ),
    (
        r"load_(?:state_dict|file|torch_file|checkpoint|weights|vae|dit|unet|transformer|text_encoders?|t5|clip\w*|models?|sd\w*)\b"
        r"|load_\w+_model|safe_open|torch\.load|from_pretrained|from_single_file|set_module_tensor"
        r"|load_pretrained|model_loader",
        "loading the model's files",
        "a file of another model or kind, one that is cut short or not all there, or want of memory",
    ),
    (
        r"(?i)cache_(?:latents|batch)|encode_(?:images?|video|pixels)|vae\.\w*encode|\bvae\b.*\(|autoencoder",
        "encoding pictures with the VAE",
        _CARD,
    ),
    (
        r"(?i)encode_prompt|text_encoder|prompt_embeds|encode_text",
        "encoding captions",
        _CARD,
    ),
    (
        r"\b(?:do_)?sample(?:_images?|_during)?\(|generate_(?:images?|single)",
        "drawing a sample",
        _CARD,
    ),
    (
        r"(?i)dataset|dataloader|data_loader|bucket|__getitem__|collate",
        "reading the dataset",
        "a picture, caption or cache that is missing or damaged, or settings of the dataset",
    ),
    (
        r"spawn|\bPopen\b|launch_command|simple_launcher",
        "starting the processes",
        "a process that failed first, with its own words above",
    ),
    (
        r"parse_args|load_config|yaml\.|json\.load|read_config|parse_config",
        "reading the settings",
        "a slip in the config",
    ),
    (
        r"train_batch|training_step|hook_train_loop|train_single|forward|predict_noise|noise_pred"
        r"|_call_impl|train_step|process_batch",
        "computing a step",
        _CARD,
    ),
)


def doing(frame: Frame) -> tuple[str, str] | None:
    """What a run was doing in a frame and what fails there most, by what is called there; None where that is no word
    of ours. Outer frames and the arguments of a call say what is trained with, not what was going on."""
    for text in (" ".join(_CALLED.findall(frame.code)), frame.function):
        for called, phase, often in _PHASES:
            if re.search(called, text):
                return phase, often
    return None


def place_of(frame: Frame) -> str:
    """A frame in a few words."""
    name = PureWindowsPath(frame.file).name
    place = f"{name}:{frame.line}" if frame.line else name
    return f"{frame.function} ({place})" if frame.function else place


def cut_off(failure: Failure) -> Known | None:
    """What is told of a traceback without an end: what was going on in its last frame that says more than a file."""
    if failure.name != CUT_OFF or not failure.frames:
        return None
    shown = [one for one in failure.frames if one.line and not _HANDS_ON.search(one.file)] or failure.frames
    last = shown[-1]
    told = None if last.code.startswith("assert ") else doing(last)
    imports = [] if told else [one for one in failure.frames if _IMPORT.match(one.code)]
    imported = _IMPORT.match(imports[-1].code) if imports else None
    if imported is not None:
        what = imported["module"] or imported["whole"]
        place = place_of(imports[-1])
        cause = (
            "The log ends amid a traceback, before it says what went wrong. The program was importing "
            f"{what} at {place}: most often a package is missing there, or two packages are of versions that do not "
            "go together."
        )
        tried = (
            f'Look at the end of the output; python -c "import {what}" in the same environment shows the error, too.'
        )
        return Known(cause, _LOOK if what.startswith(".") else tried, error=CUT_OFF, source=_SOURCE)
    if told is None:
        return None
    phase, often = told
    return Known(
        "The log ends amid a traceback, before it says what went wrong. "
        f"The program was {phase} at {place_of(last)}; what fails there most often: {often}.",
        _LOOK,
        error=CUT_OFF,
        source=_SOURCE,
    )


_LOOK = "Look at the end of the output where it was made: the line that names the error comes after the last frame."
_SOURCE = "https://docs.python.org/3/library/traceback.html"
