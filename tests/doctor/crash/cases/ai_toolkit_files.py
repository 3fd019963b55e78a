"""ai-toolkit: paths, files and the model."""

from __future__ import annotations

from ..shapes import META, ai_toolkit

_HUB = (
    "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the "
    "cached files."
)
_Z = "extensions_built_in/diffusion_models/z_image/z_image.py"

CASES: dict[str, tuple[str, str, str]] = {
    # ai-toolkit: paths and files
    "adapter is a folder": (ai_toolkit("OSError: No such device (os error 19)", file=_Z), "PTH003", ""),
    "adapter is a repository": (
        ai_toolkit("ValueError: Assistant LoRA path ostris/adapter is not a valid local path or hub path.", file=_Z),
        "PTH003",
        "",
    ),
    "adapter folder on Windows": (
        ai_toolkit(
            "FileNotFoundError: No such file or directory: C:\\ai\\adapter", "self.load_training_adapter(x)", file=_Z
        ),
        "PTH003",
        "one file",
    ),
    "adapter cannot be fetched": (
        ai_toolkit("ValueError: Failed to download assistant LoRA from /a/b.safetensors: 404", file=_Z),
        "PTH004",
        "",
    ),
    "adapter of another layout": (
        ai_toolkit("KeyError: 'diffusion_model.layers.0.attention.to_k.lora_A.weight'", file=_Z),
        "MDL005",
        "",
    ),
    "size file on a read-only mount": (
        ai_toolkit("OSError: [Errno 30] Read-only file system: '/kaggle/input/cats/.aitk_size.json'"),
        "PTH001",
        "",
    ),
    "text cache on a read-only mount": (
        ai_toolkit("OSError: [Errno 30] Read-only file system: '/kaggle/input/cats/_t_e_cache'"),
        "PTH001",
        "",
    ),
    "folder missing": (ai_toolkit("FileNotFoundError: [Errno 2] No such file or directory: 'nope'"), "PTH004", ""),
    "folder empty": (ai_toolkit("AssertionError: no images found in /data/cats"), "DAT001", ""),
    "model is a backslash path": (
        ai_toolkit(
            "huggingface_hub.errors.HFValidationError: Repo id must use alphanumeric chars: 'C:\\m'.", file=_Z
        ),
        "PTH004",
        "",
    ),
    "silently corrupted path": (
        ai_toolkit(
            f"{_HUB} Check your connection or see if it looks like C:\temp\x08ob is not the path to a directory"
        ),
        "PTH002",
        "",
    ),
    "missing local model offline": (
        ai_toolkit(
            f"{_HUB} it looks like /models/none is not the path to a directory containing a config.json file."
        ),
        "PTH004",
        "",
    ),
    "hub cannot be reached": (
        ai_toolkit(f"{_HUB} it looks like Tongyi-MAI/Z-Image is not the path to a directory containing config.json."),
        "HUB006",
        "could not be reached",
    ),
    "no single file": (
        ai_toolkit(
            "ValueError: 'x.safetensors' is not a local file or a hub file reference "
            "('org/repo/filename.safetensors')."
        ),
        "PTH004",
        "",
    ),
    "log file without a folder": (
        ai_toolkit(
            "FileNotFoundError: [Errno 2] No such file or directory: ''", "os.makedirs(x)", "setup_log_to_file"
        ),
        "",
        "-l",
    ),
    # ai-toolkit: the model
    "missing tensors": (
        ai_toolkit(META, "transformer.to(self.device_torch)", file=_Z),
        "MDL001",
        "missing from its files",
    ),
    "missing tensors, quantized": (
        ai_toolkit(META, "block.to(base_model.device_torch)", file="toolkit/util/quantize.py"),
        "MDL001",
        "missing from its files",
    ),
    "no text encoder": (
        ai_toolkit(
            "OSError: Error no file named model.safetensors, or pytorch_model.bin, found in directory /m/note."
        ),
        "MDL003",
        "",
    ),
    "no tokenizer": (
        ai_toolkit("ValueError: Couldn't instantiate the backend tokenizer from one of: (1) a `tokenizers` library"),
        "MDL003",
        "",
    ),
    "no tokenizer, older": (ai_toolkit("OSError: Can't load tokenizer for '/m'. If you were trying"), "MDL003", ""),
    "no config": (
        ai_toolkit("OSError: Can't load config for 'a/b'. If you were trying to load it from"),
        "MDL003",
        "",
    ),
    "cache root": (
        ai_toolkit("OSError: Error no file named config.json found in directory /hub/models--a--b."),
        "MDL003",
        "",
    ),
    "missing index": (
        ai_toolkit("OSError: Error no file named diffusion_pytorch_model.bin found in directory /m."),
        "MDL003",
        "",
    ),
    "missing shard": (
        ai_toolkit("FileNotFoundError: /m does not appear to have a file named x-00002-of-00003.safetensors."),
        "MDL003",
        "",
    ),
    "text encoder's shards absent": (
        ai_toolkit("FileNotFoundError: No such file or directory: /m/text_encoder/model-00001-of-00003.safetensors"),
        "MDL003",
        "",
    ),
    "cut shard": (
        ai_toolkit("OSError: Unable to load weights from checkpoint file for '/m/x' at '/m/x'."),
        "MDL004",
        "cut short",
    ),
    "cut file": (
        ai_toolkit(
            "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not "
            "fully covered"
        ),
        "HUB001",
        "cut short",
    ),
    "cut file, older": (
        ai_toolkit("safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer"),
        "HUB001",
        "cut short",
    ),
    "a web page": (
        ai_toolkit("safetensors_rust.SafetensorError: Error while deserializing header: header too large"),
        "HUB001",
        "web page",
    ),
    "hole in a file": (
        ai_toolkit("safetensors_rust.SafetensorError: invalid offset for tensor `a`"),
        "HUB001",
        "weight file",
    ),
    "pointer for a checkpoint": (ai_toolkit("_pickle.UnpicklingError: invalid load key, 'v'."), "MDL004", "git-lfs"),
    "another shape": (
        ai_toolkit(
            "ValueError: Cannot load /m because layers.0.w expected shape torch.Size([2]), but got torch.Size([3])."
        ),
        "MDL002",
        "another shape",
    ),
    "extra keys in a single file": (
        ai_toolkit("RuntimeError: Error(s) in loading state_dict for ZImageTransformer2DModel:\n\tMissing key(s)"),
        "MDL002",
        "another model",
    ),
    "older checkout": (
        ai_toolkit(
            "OSError: /m/transformer is not a local folder and is not a valid model identifier listed on the hub"
        ),
        "SRC003",
        "",
    ),
    "parts left on the disk": (
        ai_toolkit("RuntimeError: You can't move a model that has some modules offloaded to cpu or disk."),
        "",
        "device_map",
    ),
}
