"""What a run was doing as it failed, and at which part of the model, by the frames of its traceback."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PureWindowsPath
from typing import NamedTuple

from ..model.crashes import Failure, Frame, Known
from .messages import CUT_OFF

# Parts of a model by the names of files, functions and variables that are about them.
PARTS = (
    (
        "a LoRA",
        re.compile(
            r"(?:load|convert|inject|apply|merge)\w*_(?:lora|adapter)|lora_(?:state_dict|conversion|base|pipeline)|networks?[/\\]\w*lora",
            re.I,
        ),
    ),
    ("T5", re.compile(r"t5xxl|modeling_u?mt?5|[./\\_]u?mt?5(?:_|\b)", re.I)),
    ("CLIP", re.compile(r"\bclip_[lg]\b|modeling_clip", re.I)),
    ("the tokenizer", re.compile(r"tokeniz|sentencepiece", re.I)),
    (
        "the text encoder",
        re.compile(
            r"text_?encoder|text_model|encode_prompt|prompt_embeds|modeling_(?:qwen|gemma|llama|mistral)|conditioner",
            re.I,
        ),
    ),
    ("the VAE", re.compile(r"\bvae\b|_vae\b|vae[._]|autoencoder|\bae\.to\b", re.I)),
    ("the optimizer", re.compile(r"optimizer\.step|[/\\]optim(?:izers?)?[/\\]", re.I)),
    ("the transformer", re.compile(r"transformer|unet|\bdit\b|[._]dit\b|diffusion_model|flux\.to|model\.to", re.I)),
)
# Files that only hand a call on.
_HANDS_ON = re.compile(
    r"[/\\]torch[/\\](?:nn[/\\]modules[/\\]module|autograd|utils[/\\](?:checkpoint|_contextlib)|_tensor|_compile|_dynamo)"
    r"|[/\\](?:click|typer|runpy)\b|_validators\.py|nvtx\.py|c10d_logger|^<frozen "
)
_WRAPS = re.compile(r"[/\\]torch[/\\](?:_compile|_dynamo[/\\](?:eval_frame|external_utils))|_validators\.py|nvtx\.py")
_IMPORT = re.compile(r"(?:from (?P<module>[\w.]+) import|import (?P<whole>[\w.]+))")
_DISK = "a folder that is gone or may not be written to, or a disk that is full"
_CARD = "the card's memory, or types, sizes or devices of tensors that do not go together"


class _Phase(NamedTuple):
    """What a run was doing: words of its frames, or of the line of the log before them, and what fails there most."""

    frames: str
    name: str
    often: str
    line: str = ""


# Looked for from the last frame on.
_PHASES = (
    _Phase(
        r"save_file|save_pretrained|save_state|save_weights|torch\.save|save_checkpoint|serialize_file",
        "saving",
        _DISK,
        r"\b[Ss]aving\b",
    ),
    _Phase(
        r"\.backward\(|autograd[/\\]|run_backward|unpack_hook|recompute",
        "computing the gradients",
        "the card's memory, or block swap, offloading or torch.compile that does not go with gradient checkpointing",
    ),
    _Phase(
        r"optimizer\.step|[/\\]optim(?:izers?)?[/\\]|_optimizer_step",
        "taking the optimizer's step",
        "the card's memory, or an optimizer that does not go with what is trained",
    ),
    _Phase(
        r"_inductor|_dynamo|[/\\]triton[/\\]|cpp_extension|torch\.compile",
        "compiling",
        "a compiler or headers that are not there, or a triton of another version",
    ),
    _Phase(
        r"hf_hub_download|snapshot_download|file_download|[/\\](?:httpx|urllib3|requests)[/\\]|hf_raise_for_status",
        "fetching files",
        "a model that is gated or not there, a token that is missing, or the net",
        r"\b(?:[Dd]ownloading|[Ff]etching)\b",
    ),
    _Phase(
        r"(?i)tokeniz|sentencepiece",
        "making the tokenizer",
        "files of the tokenizer that are missing, or a transformers or tokenizers of another version",
        r"oading\s+tokenizer",
    ),
    _Phase(
        r"broadcast|all_reduce|all_gather|barrier\(|init_process_group|c10d|rendezvous|TCPStore",
        "letting the processes of the cards meet (NCCL, torch.distributed)",
        "another process that failed first, or a card or driver that NCCL cannot use; on Windows USE_LIBUV",
    ),
    _Phase(
        r"popen_spawn|popen_fork|dataloader\.py "
        r"__init|_MultiProcessingData|reduction\.dump|w\.start\(\)|BackgroundInit",
        "starting processes that read the dataset",
        "something that Windows cannot hand to another process (set the number of workers to 0), or want of RAM",
    ),
    _Phase(
        r"(?i)offload|weights_to_device|block_swap|swap_weight|pin_memory|to_cpu",
        "moving weights between the card and RAM",
        "want of RAM (pinned memory above all), or offloading that does not go with another setting",
    ),
    _Phase(
        r"_load_dll_libraries|_load_library|ctypes[/\\]|CDLL",
        "loading a compiled library",
        "on Windows the Visual C++ runtime that is missing or old, or a package that is not installed whole",
    ),
    _Phase(
        r"prepare_optimizer_params|add_adapter|inject_adapter|create_and_replace|update_layer|get_peft_model|create_network|apply_to\b",
        "putting a LoRA on the model",
        "a peft that does not go with torch or the quantization, or names of layers that the model has not",
    ),
    _Phase(
        r"(?i)memory_efficient|xformers",
        "switching xformers on",
        "an xformers that is not built for this torch or card (torch's own attention, sdpa, does as well)",
    ),
    _Phase(r"tempfile|mkstemp|mkdir|makedirs", "making a file or folder", _DISK),
    _Phase(
        r"quantize_?\(|[/\\](?:torchao|quanto)[/\\]|freeze\(",
        "quantizing",
        "a torchao, quanto or bitsandbytes that does not go with this torch, or the memory",
        r"[Qq]uantizing",
    ),
    _Phase(
        r"(?i)load_lora|lora_state_dict|lora_conversion|convert\w*lora",
        "loading a LoRA",
        "a LoRA of another model, or with names that this program does not know",
        r"oading\s+LoRA",
    ),
    _Phase(
        r"load_(?:state_dict|file|torch_file|checkpoint|weights|vae|dit|unet|transformer|text_encoders?|t5|clip\w*"
        r"|models?|sd\w*)\b|load_\w+_model|safe_open|torch\.load|from_pretrained|from_single_file|set_module_tensor"
        r"|load_pretrained|model_loader|[/\\]safetensors[/\\]",
        "loading the model's files",
        "a file of another model or kind, one that is cut short or not all there, or want of memory",
        r"\b[Ll]oading (?!.*(?:dataset|image|config))",
    ),
    _Phase(
        r"(?i)cache_(?:latents|batch)|encode_(?:images?|video|pixels)|vae\.\w*encode|\bvae\b.*\(|autoencoder",
        "encoding pictures with the VAE",
        _CARD,
        r"(?i)caching latents",
    ),
    _Phase(
        r"(?i)encode_prompt|text_encoder|prompt_embeds|encode_text",
        "encoding captions",
        _CARD,
        r"(?i)caching text",
    ),
    _Phase(
        r"\b(?:do_)?sample(?:_images?|_during)?\(|generate_(?:images?|single)|[/\\]pipelines?[/\\].*__call__",
        "drawing a sample",
        _CARD,
        r"(?i)(?:generating|validation|sample) (?:images?|prompts?)",
    ),
    _Phase(
        r"(?i)dataset|dataloader|data_loader|bucket|__getitem__|collate",
        "reading the dataset",
        "a picture, caption or cache that is missing or damaged, or settings of the dataset",
    ),
    _Phase(
        r"spawn|\bPopen\b|launch_command|simple_launcher|elastic[/\\]",
        "starting the processes",
        "a process that failed first, with its own words above",
    ),
    _Phase(
        r"parse_args|load_config|toml\.load|yaml\.|json\.load|read_config|parse_config",
        "reading the settings",
        "a slip in the config",
    ),
    _Phase(
        r"train_batch|training_step|hook_train_loop|train_single|forward|predict_noise|noise_pred|_call_impl"
        r"|train_step|process_batch",
        "computing a step",
        _CARD,
    ),
)


def doing(frames: Sequence[Frame], above: Sequence[str] = ()) -> tuple[str, str] | None:
    """What the run was doing, and what fails there most; None where neither the frames nor the lines above them "
    "tell."""
    shown = [
        (f"{frame.file} {frame.function} {frame.code}", "frames")
        for frame in reversed(frames)
        if not _WRAPS.search(frame.file)
    ]
    for text, kind in (*shown, *((line, "line") for line in reversed(above))):
        for phase in _PHASES:
            pattern = getattr(phase, kind)
            if pattern and re.search(pattern, text):
                return phase.name, phase.often
    return None


def part_of(frames: Sequence[Frame]) -> str:
    """The part of the model that the last frames are about; "" where they name none."""
    for frame in reversed(frames):
        shown = f"{PureWindowsPath(frame.file).name} {frame.function} {frame.code}"
        if name := next((name for name, pattern in PARTS if pattern.search(shown)), ""):
            return name
    return ""


def place_of(frame: Frame) -> str:
    """A frame in a few words."""
    name = PureWindowsPath(frame.file).name
    place = f"{name}:{frame.line}" if frame.line else name
    return f"{frame.function} ({place})" if frame.function else place


def cut_off(failure: Failure, above: Sequence[str]) -> Known | None:
    """What is told of a traceback without an end: what was going on there. `above` are the lines before it."""
    if failure.name != CUT_OFF or not failure.frames:
        return None
    shown = [one for one in failure.frames if one.line and not _HANDS_ON.search(one.file)] or failure.frames
    last = shown[-1]
    told = doing(failure.frames, ())
    at = [last] if told is not None else [one for one in reversed(failure.frames) if _IMPORT.match(one.code)][:1]
    imported = _IMPORT.match(at[0].code) if at else None
    if imported is not None:
        what = imported["module"] or imported["whole"]
        place = place_of(at[0])
        cause = (
            "The log ends amid a traceback, before it says what went wrong. The program was importing "
            f"{what} at {place}: most often a package is missing there, or two packages are of versions that do not "
            "go together."
        )
        do = f'Look at the end of the output; python -c "import {what}" in the same environment shows the error, too.'
        return Known(cause, do, error=CUT_OFF, source=_SOURCE)
    told = told or doing((), above)
    if told is None:
        return None
    phase, often = told
    part = part_of(failure.frames)
    about = f" ({part})" if part else ""
    return Known(
        f"The log ends amid a traceback, before it says what went wrong. The program was {phase}{about} at "
        f"{place_of(last)}; "
        f"what fails there most often: {often}.",
        "Look at the end of the output where it was made: the line that names the error comes after the last frame.",
        error=CUT_OFF,
        source=_SOURCE,
    )


_SOURCE = "https://docs.python.org/3/library/traceback.html"
