"""What a run was doing as it failed, by what a line of its code calls, and what fails there most."""

from __future__ import annotations

import re
from pathlib import PureWindowsPath

from ..model.crashes import Frame

_DISK = (
    "a folder that is gone or may not be written to, a disk that is full, or want of RAM for a copy of the weights"
)
_CARD = "the card's memory, or types, sizes or devices of tensors that do not go together"
_KIND = (
    "a file of another model or layout than this script is for, a path that is wrong, or a program older than "
    "the model"
)
# What is called there, what that does, and what fails there most; "x/" is a package whose code is at work.
PHASES = (
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
        r"_configure_\w*optimizer|_prepare_deepspeed|ds_initialize|deepspeed\.initialize",
        "setting DeepSpeed up",
        "a task without an optimizer, or an optimizer or a ZeRO stage that do not go together",
    ),
    (
        r"\(params, defaults|(?:init|get|create|build|make)_\w*optimizer\b|optimizer_(?:class|cls)\(",
        "making the optimizer",
        "nothing that is to be trained (a LoRA whose names of layers are another model's), or arguments that this "
        "optimizer does not take",
    ),
    (
        r"eval_batch|\b_?evaluate(?:_single)?\(",
        "computing the loss of the evaluation",
        "the card's memory, types, sizes or devices of tensors that do not go together, or block swap",
    ),
    (
        r"\b(?:p2p|dist|cdb)\.(?:send|recv)|_exec_(?:send|recv)",
        "handing tensors from card to card",
        "a tensor that still lies on the CPU, or another process that failed first",
    ),
    (
        r"analyze_checkpoint|detect_\w*(?:dtype|type|version)|handle_model_specific_args|infer_diffusers_model",
        "looking what kind of model the file holds",
        _KIND,
    ),
    (
        r"scheduler\.step|convert_model_output",
        "taking a step of the sampler",
        "a model of another kind than the pipeline is for (image to video), or sizes that do not go together",
    ),
    (
        r"forward_preprocess|unit_runner|unit\.process|prepare_inputs",
        "preparing what a step computes with",
        "a picture, video, mask or control that is missing or of another size, or a part of the model that is "
        "not loaded",
    ),
    (
        r"\b[Vv]alidation\(|init_validations|build_validation|run_validation",
        "preparing the validation",
        "a prompt, adapter or picture of the validation that is missing, or a fault of this version",
    ),
    (
        r"start_next_epoch|refresh_cache|DiskCache",
        "caching what becomes of pictures and captions",
        "the card's memory, a picture that is damaged, or a full disk",
    ),
    (
        r"(?:pipe\w*|pipeline|module|model|transformer|unet|vae|text_encoder\w*|\bsuper\(.*?)\.to\(|_apply\b|\bconvert\(t",
        "moving a part of the model to the card",
        "the card's memory, or parameters without data (on meta), as the file lacks them",
    ),
    (
        r"optimizer\.step|_opt(?:imizer)?_step\b|scaler\.step",
        "taking the optimizer's step",
        "where a run was continued, a saved state of another optimizer or version of it (begin with the weights "
        "alone); the card's memory, or an optimizer that does not go with what is trained",
    ),
    (
        r"setuptools\.setup|run_commands?\(|build_ext|bdist_wheel|build_wheel",
        "building a package",
        "a compiler, nvcc or headers (CUDA_HOME, cuDNN) that are not there, or a torch that the build does not see "
        "(pip install --no-build-isolation)",
    ),
    (
        r"get_device_(?:name|properties|capability)|_lazy_init|cuda\.(?:init|current_device|set_device|mem_get_info)",
        "asking for the card",
        "a torch without CUDA (the build for the processor, or a Mac, whose device is mps), a driver that is "
        "missing, or the number of a card that is not there",
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
        r"grad_?norm|gradient_(?:norm|stat)|clip_grad",
        "measuring the gradients",
        "an option for plain LoRA that does not go with this kind of network (LoKr, LoHa), or weights without a "
        "gradient; switch the logging or limiting of norms off",
    ),
    (
        r"broadcast|all_reduce|all_gather|barrier\(|init_process_group|init_distributed|TorchBackend|c10d|rendezvous|TCPStore",
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
        "a folder that is gone or may not be written to, or a disk that is full",
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
        r"load_(?:state_dict|file|torch_file|checkpoint|weights|vae|dit|unet|transformer|text_encoders?(?:_\w+)?|t5|clip\w*|models?|sd\w*)\b"
        r"|load_\w+_model|safe_open|torch\.load|from_pretrained|from_single_file|set_module_tensor"
        r"|load_pretrained|model_loader|\b_*load_internal",
        "loading the model's files",
        "a file of another model or kind, one that is cut short or not all there, or want of memory",
    ),
    (
        r"(?i)cache_(?:latents|batch)|encode_(?:images?|video|pixels)|vae\.\w*encode|\bvae\b.*\(|autoencoder",
        "encoding pictures with the VAE",
        _CARD,
    ),
    (
        r"(?i)encode_prompt|text_encoder|prompt_embeds|encode_text|encode_tokens|_pool_workaround",
        "encoding captions",
        _CARD,
    ),
    (
        r"\b(?:do_|__)?sample(?:r?_images?|_during|_inference|_loop|_base)?\(|model_to_sample|generate_(?:images?|single)",
        "drawing a sample",
        "the card's memory, types, sizes or devices of tensors that do not go together, block swap or offloading "
        "that samples do not bear, or a picture that samples of this model need",
    ),
    (
        r"(?i)_next_batch|load_micro_batch|dataset|dataloader|data_loader|bucket|__getitem__|collate|get_next_item|data\.reraise|_process_data|_next_data"
        r"|\bnext\(",
        "reading the dataset",
        "a picture, caption or cache that is missing, damaged or of another version (make the caches anew), pictures "
        "of several sizes in one batch (batch size 1), or settings of the dataset",
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
        r"train_batch|training_step|hook_train_loop|train_single|_run_stage|forward|predict_noise|noise_pred|\bpredict\("
        r"|_call_impl|train_step|process_batch|(?:^|[ ._])(?:transformer|dit|unet|model)\((?: |$)",
        "computing a step",
        _CARD,
    ),
    (
        r"\b(?:uvicorn|starlette|fastapi|gradio|gradio_client)/",
        "answering a request of its web page",
        "gradio, fastapi, starlette and pydantic whose versions do not go together (an older gradio breaks with "
        "pydantic 2.11: pip install pydantic==2.10.6)",
    ),
    (
        r"\b(?:runpod|paramiko|fabric|vastai)/",
        "talking to a machine in the cloud",
        "a key or token that is missing or wrong, a field that the provider now asks for (update the program), or no "
        "such machine to be had",
    ),
    (
        r"\b(?:customtkinter|tkinter)/",
        "drawing its window",
        "a part of the window that was closed before; training itself does not need it",
    ),
)


def doing(call: str, function: str) -> tuple[str, str] | None:
    """What a run was doing in a line of code and what fails there most, by what is called there; None where that is
    no word of ours. The arguments of a call say what is trained with, not what was going on."""
    return _first(call) or _first(f"{function}(")


def working(package: str) -> tuple[str, str] | None:
    """What a package does whose code is at work, and what fails there most often."""
    return _first(f"{package}/")


def _first(text: str) -> tuple[str, str] | None:
    return next(((phase, often) for called, phase, often in PHASES if re.search(called, text)), None)


def place_of(frame: Frame) -> str:
    """A frame in a few words."""
    name = PureWindowsPath(frame.file).name
    place = f"{name}:{frame.line}" if frame.line else name
    return f"{frame.function} ({place})" if frame.function else place
