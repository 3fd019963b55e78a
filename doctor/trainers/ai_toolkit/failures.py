"""ai-toolkit, read at 27a03a91 of August 2026."""

from __future__ import annotations

from ...model.crashes import Known

_TOOLKIT = r"toolkit|extensions_built_in|BaseSDTrainProcess|SDTrainer"

KNOWN = (
    Known(
        "qtype or qtype_te names a quantization that ai-toolkit does not know.",
        "The usual ones are qfloat8, float8, int8 and uint4; zdoctor check CONFIG lists all of them.",
        error="KeyError",
        text=r"^'[\w.|-]*'$",
        rule="CFG004",
        where=r"get_qtype",
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/toolkit/util/quantize.py",
    ),
    Known(
        "The accuracy recovery adapter (the part of qtype after '|') is neither a file here nor of the form "
        "user/repository/file.safetensors.",
        "Write all three parts, or the path of a file that is there.",
        error="IndexError",
        text=r"list index out of range",
        rule="CFG004",
        where=r"path_split",
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/toolkit/util/quantize.py",
    ),
    Known(
        "assistant_lora_path names a folder, or a file that is not there; ai-toolkit opens it as one file.",
        "Name the .safetensors file itself.",
        error="FileNotFoundError",
        text=r"No such file or directory",
        rule="PTH003",
        where=r"assistant_lora|load_training_adapter|load_assistant",
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/extensions_built_in/diffusion_models/z_image/z_image.py",
    ),
    Known(
        "The log file (-l) is named without a folder, and ai-toolkit tries to make the folder ''.",
        "Write -l ./train.log",
        error="FileNotFoundError",
        text=r"No such file or directory: ''",
        where=r"setup_log_to_file",
        alone=True,
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/toolkit/print.py",
    ),
    Known(
        "training_folder is missing in the config.",
        "Name the folder that the LoRA is to be written to.",
        error="TypeError",
        text=r"expected str, bytes or os\.PathLike object, not NoneType",
        rule="CFG004",
        where=r"BaseTrainProcess",
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/jobs/process/BaseTrainProcess.py",
    ),
    Known(
        "cache_text_embeddings is on, and the process has no datasets.",
        "Write the datasets, beside train and model, indented like these.",
        error="TypeError",
        text=r"'NoneType' object is not iterable",
        rule="CFG004",
        where=r"raw_datasets",
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/jobs/process/BaseSDTrainProcess.py",
    ),
    Known(
        "inference_lora_path is set, but this architecture has no place for such a LoRA.",
        "Remove inference_lora_path.",
        error="AttributeError",
        text=r"'NoneType' object has no attribute 'is_active'",
        rule="CFG004",
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/extensions_built_in/sd_trainer/SDTrainer.py",
    ),
    Known(
        "The config is not written in UTF-8.",
        "Save it again as UTF-8, without a byte-order mark.",
        error="UnicodeDecodeError",
        text=r"codec can't decode",
        rule="CFG001",
        where=r"toolkit[/\\]config\.py",
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/toolkit/config.py",
    ),
    Known(
        "A caption file is not written in UTF-8; the log does not name it. The position in the message is the place "
        "in that file.",
        "In the dataset's folder type grep -laxv '.*' *.txt to list such files; save each again as UTF-8.",
        error="UnicodeDecodeError",
        text=r"codec can't decode",
        rule="DAT003",
        where=r"data_loader|dataloader_mixins|load_caption|get_caption",
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/toolkit/dataloader_mixins.py",
    ),
    Known(
        "The cached text embeddings (_t_e_cache) are not as wide as this model takes them: they were made with "
        "another text encoder.",
        "Move the folder _t_e_cache away from beside the pictures; it is made again.",
        error="RuntimeError",
        text=r"The size of tensor a \(\d+\) must match the size of tensor b \(\d+\)",
        where=r"cap_embedder|cap_feats",
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/extensions_built_in/diffusion_models/z_image/z_image.py",
    ),
    Known(
        "Parts of the model lie on the card and others in RAM. With layer_offloading and Z-Image this is a defect of "
        "ai-toolkit before December 2025.",
        "Update the checkout (git pull), or switch layer_offloading off.",
        error="RuntimeError",
        text=r"Expected all tensors to be on the same device",
        where=_TOOLKIT,
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/extensions_built_in/diffusion_models/z_image/z_image.py",
    ),
    Known(
        "ai-toolkit found no such file; if one of that name lies in its own config folder, it refuses the bare name.",
        "Name the config with its whole path.",
        error="ValueError",
        text=r"Could not find config file",
        alone=True,
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/toolkit/config.py",
    ),
    Known(
        "The hub asked for a token, and nobody could answer: push_to_hub is on, and HF_TOKEN is not set.",
        "The LoRA is saved. Set HF_TOKEN before the next start, or push_to_hub: false.",
        error="EOFError",
        text=r"EOF when reading a line",
        rule="TRN011",
        where=r"interpreter_login|push_to_hub",
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/jobs/process/BaseSDTrainProcess.py",
    ),
    Known(
        "The loss was not a finite number for several steps. ai-toolkit puts 0 in its place and goes on, so these "
        "steps trained nothing.",
        "With Z-Image set dtype: bf16, for fp16 overflows; elsewhere lower the learning rate, and begin again from a "
        "checkpoint from before.",
        rule="TRN003",
        line="loss is nan",
        least=3,
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/extensions_built_in/sd_trainer/SDTrainer.py",
    ),
    Known(
        "Layers could not be quantized. ai-toolkit goes on with them as they are, which takes the memory of the "
        "whole model.",
        "The words after the last colon say why; most often quanto or torchao do not go with this PyTorch.",
        text=r"^Failed to quantize \S+: ",
        line="Failed to quantize ",
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/toolkit/util/quantize.py",
    ),
    Known(
        "unload_text_encoder is on without cache_text_embeddings: the captions are not read, and every picture is "
        "trained with the same prompt.",
        "Set cache_text_embeddings: true, or unload_text_encoder: false.",
        rule="TRN006",
        line="This will train only with a blank prompt or trigger word",
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/extensions_built_in/sd_trainer/SDTrainer.py",
    ),
    Known(
        "An edit model is trained with control images, and pictures of the dataset have none, or a sample has none.",
        "Give the dataset control_path (or control_path_1 …) with a picture of the same name for each one, and each "
        "sample its ctrl_img; zdoctor check CONFIG names the pictures without one.",
        rule="DAT008",
        words=("Missing control images for", "requires control (reference) images"),
        source="https://github.com/ostris/ai-toolkit/issues/471",
    ),
    Known(
        "The text encoder of an edit model was given no picture: a picture of the dataset or a sample has no control "
        "image.",
        "Give the dataset control_path with a picture of the same name for each one, and each sample its ctrl_img.",
        error="KeyError",
        text=r"^'pixel_values'$",
        rule="DAT008",
        source="https://github.com/ostris/ai-toolkit/issues/441",
    ),
    Known(
        "A process of type ui_trainer was started from a terminal; only the web page can start it.",
        "Write type: diffusion_trainer (or sd_trainer) in the config, or start the job on the web page.",
        words=("AITK_JOB_ID not set",),
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/extensions_built_in/sd_trainer/UITrainer.py",
    ),
    Known(
        "None of the names that the network is to train is in this model.",
        "Correct or remove only_if_contains, ignore_if_contains and target_lin_modules in network_kwargs.",
        words=("There are not any lora modules in this network",),
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/toolkit/network_mixins.py",
    ),
    Known(
        "Somebody stopped the job on the web page, or it was put back into the queue.",
        "Nothing has to be repaired.",
        error="Exception",
        text=r"^Job (?:stopped|returning to queue)$",
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/extensions_built_in/sd_trainer/UITrainer.py",
    ),
    Known(
        "A trigger word or a network is missing for diff_output_preservation, or the text encoder is trained with "
        "it.",
        "Set trigger_word, keep network, and train_text_encoder: false; or switch the preservation off.",
        words=(
            "diff_output_preservation re",
            "diff_output_preservation is not supported",
            "blank_prompt_preservation re",
        ),
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/extensions_built_in/sd_trainer/SDTrainer.py",
    ),
    Known(
        "unload_text_encoder is on while the text encoder is to be trained.",
        "Set train_text_encoder: false, or unload_text_encoder: false.",
        words=("Cannot unload text encoder if training text encoder",),
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/extensions_built_in/sd_trainer/SDTrainer.py",
    ),
    Known(
        "A key is missing in the config; the message names it and its place.",
        "Write it there, indented like its neighbours; zdoctor check CONFIG tells more.",
        words=("config file error. Missing", "config file is invalid. ", "config file must have a"),
        source="https://github.com/ostris/ai-toolkit/blob/27a03a91/jobs/BaseJob.py",
    ),
    Known(
        "torchaudio is not installed, which ai-toolkit imports at its start since LTX-2, whatever is trained.",
        "Install it in the version of this torch, from the same index as torch (pip install torchaudio --index-url "
        "https://download.pytorch.org/whl/cu128).",
        avoid="pip install torchaudio alone may replace torch by a build without CUDA.",
        words=("No module named 'torchaudio'",),
        source="https://github.com/Tavris1/AI-Toolkit-Easy-Install/issues/3",
    ),
)
