"""Pickled checkpoints, and model folders that lack a file. Read in torch 2.13.0, transformers 5.23, diffusers "
"0.42.1."""

from __future__ import annotations

from ...model.crashes import Known

_ONE_FILE = "Find the file and fetch it, and only it, again."
_NO_REPLACE = "Downloading the whole model again with the hub client does not replace a file that exists."
_LOAD = "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/serialization.py"

KNOWN = (
    Known(
        "The file is no checkpoint: it is a git-lfs pointer of some hundred bytes (118 is the letter v, with which "
        "it "
        "begins).",
        "Fetch the file itself: in the clone git lfs pull, or hf download REPOSITORY FILE.",
        avoid="weights_only=False does not make it one.",
        words=("Unsupported operand 118", "invalid load key, 'v'"),
        rule="MDL004",
        source="https://github.com/tencent-ailab/SongGeneration/issues/63",
    ),
    Known(
        "The file is no checkpoint: it is a web page, or text.",
        "Fetch the file itself, with the button for downloads or hf download REPOSITORY FILE.",
        avoid="weights_only=False does not make it one.",
        words=(
            "Unsupported operand 10\n",
            "Unsupported operand 60",
            "invalid load key, '<'",
            "invalid load key, '\\x0a",
        ),
        text=r"Unsupported operand (?:10|60)\b(?!\d)|invalid load key, '(?:<|\\x0a|\\n)'",
        rule="MDL004",
        source=_LOAD,
    ),
    Known(
        "The file ends with .pt, .pth or .bin, and holds something else: most often a safetensors file of another "
        "name.",
        "Look at its first bytes (head -c 100 FILE); give a safetensors file its own ending.",
        avoid=_NO_REPLACE,
        error="UnpicklingError",
        text=r"invalid load key, '\\x",
        rule="MDL004",
        source=_LOAD,
    ),
    Known(
        "torch since 2.6 reads nothing but weights from a pickled file, and this one holds other objects, or is "
        "damaged.",
        "Take the model as safetensors where there is such a file. From a source that you trust: "
        "torch.serialization.add_safe_globals([…]) with the names of the message, or weights_only=False.",
        avoid="weights_only=False runs whatever the file contains; not with files of strangers.",
        words=(
            "Weights only load failed",
            "default value of the `weights_only` argument in `torch.load`",
            "WeightsUnpickler error",
        ),
        source=_LOAD,
    ),
    Known(
        "transformers refuses to read pickled weights with a torch before 2.6.",
        "Take the model as safetensors where there is such a file, or upgrade torch, torchvision and torchaudio "
        "together.",
        words=("we now require users to upgrade torch to at least v2.6",),
        source="https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/utils/import_utils.py",
    ),
    Known(
        "The checkpoint is cut short, or is another file (a web page, a git-lfs pointer).",
        _ONE_FILE,
        avoid=_NO_REPLACE,
        words=(
            "PytorchStreamReader failed",
            "failed finding central directory",
            "file in archive is not in a subdirectory",
        ),
        rule="MDL004",
        source="https://github.com/hanyangyu1021/LMGaussian/issues/13",
    ),
    Known(
        "The checkpoint is cut short: it ends before all was read.",
        _ONE_FILE,
        avoid=_NO_REPLACE,
        error="EOFError",
        text=r"Ran out of input",
        rule="MDL004",
        source=_LOAD,
    ),
    Known(
        "The checkpoint is empty or cut short.",
        _ONE_FILE,
        avoid=_NO_REPLACE,
        error="EOFError",
        rule="MDL004",
        where=r"torch[/\\](?:serialization|_weights_only_unpickler)\.py",
        source=_LOAD,
    ),
    Known(
        "A JSON file of the model (a config, an index or a tokenizer) is damaged: cut short, or a web page.",
        "Find the file by the path above and fetch it, and only it, again.",
        avoid=_NO_REPLACE,
        words=("It looks like the config file at",),
        text=r"config file at .* is not a valid JSON file",
        alone=True,
        source="https://github.com/huggingface/diffusers/blob/v0.42.1/src/diffusers/configuration_utils.py",
    ),
    Known(
        "A JSON file of the model (a config, an index or a tokenizer) is damaged: cut short, or a web page.",
        "Find the file by the frames above and fetch it, and only it, again.",
        avoid=_NO_REPLACE,
        error="JSONDecodeError",
        where=r"(?:transformers|diffusers|peft|tokenizers)[/\\].*\.py",
        alone=True,
        source="https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/tokenization_utils_base.py",
    ),
    Known(
        "The folder of an adapter has no adapter_config.json, or there is no such folder: it is no LoRA of peft.",
        "Name the folder that holds adapter_config.json and adapter_model.safetensors; a single .safetensors file "
        "of a "
        "trainer is loaded with the tool that reads such files (load_lora_weights).",
        words=("Can't find 'adapter_config.json' at",),
        rule="MDL003",
        source="https://github.com/huggingface/peft/blob/v0.21.2/src/peft/config.py",
    ),
    Known(
        "The adapter was written by another peft than the one that is installed, which does not know its kind or one "
        "of its settings.",
        "pip install -U peft, as far as the trainer's requirements allow it.",
        error="KeyError",
        where=r"peft[/\\](?:mapping\w*|config|peft_model|auto)\.py",
        source="https://github.com/huggingface/peft/blob/v0.21.2/src/peft/config.py",
    ),
    Known(
        "The adapter was written by a newer peft than the one that is installed, which does not know one of its "
        "settings.",
        "pip install -U peft, as far as the trainer's requirements allow it.",
        text=r"(?:LoraConfig|LoHaConfig|LoKrConfig|PeftConfig)\.__init__\(\) got an unexpected keyword argument",
        words=("Config.__init__() got an unexpected keyword argument",),
        source="https://github.com/huggingface/peft/issues/2208",
    ),
    Known(
        "The single file is not there; what is no file is taken for an address, which it is not, either.",
        "Correct the path; write it out, with / between folders.",
        words=("Invalid `pretrained_model_name_or_path` provided. Please set it to a valid URL",),
        rule="PTH004",
        source="https://github.com/huggingface/diffusers/blob/v0.42.1/src/diffusers/loaders/single_file_utils.py",
    ),
    Known(
        "The folder holds no weights of the names that accelerate looks for.",
        "Name the folder in which model.safetensors or its index lies.",
        words=("is not a folder containing a `.index.json` file",),
        rule="MDL003",
        source="https://github.com/huggingface/accelerate/blob/v1.15.0/src/accelerate/utils/modeling.py",
    ),
    Known(
        "The device_map sends parts of the model to the disk, and no folder for them is named: RAM and card together "
        "do not hold it.",
        "Let the trainer's own setting for offloading or quantization do the work; else pass offload_folder.",
        words=("please pass along an `offload_folder`", "We need an `offload_dir` to dispatch this model"),
        text=r"pass along an `offload_folder`|We need an `offload_dir`|please provide an `offload_folder`",
        source="https://github.com/huggingface/accelerate/blob/v1.15.0/src/accelerate/big_modeling.py",
    ),
    Known(
        "The device_map leaves parts of the model out.",
        'Write device_map="auto", or {"": 0} for one card.',
        words=("doesn't have any device set", "does not give any device for the following parameters"),
        source="https://github.com/huggingface/accelerate/blob/v1.15.0/src/accelerate/utils/modeling.py",
    ),
    Known(
        "The folder of the model (or of one of its parts) lacks the file with the weights, or it bears another name "
        "there.",
        "Compare the folder with the list of files on the model's page and fetch what is missing; a part of the "
        "model "
        "lies in its own folder (text_encoder, vae, transformer).",
        text=r"Error no (?:or no unique )?file named",
        words=("Error no file named", "no file named diffusion_pytorch_model", "no file named model.safetensors"),
        rule="MDL003",
        source="https://github.com/AcademiaSD/sd-forge-fluxcontrolnet/issues/20",
    ),
    Known(
        "The folder or repository that is named has no such file: it is no model of the kind that is asked for, or "
        "not "
        "all of it was downloaded.",
        "Compare it with the list of files on the model's page; name the folder in which model_index.json or "
        "config.json lies.",
        words=("does not appear to have a file named", "does not appear to have files named"),
        rule="MDL003",
        source="https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/utils/hub.py",
    ),
    Known(
        "The tokenizer could not be built: its files are not all there, or the packages sentencepiece, tiktoken or "
        "protobuf are missing.",
        "pip install sentencepiece tiktoken protobuf; then compare the tokenizer's folder with the model's page.",
        text=r"Couldn't instantiate the backend tokenizer|Can't load tokenizer for|Unable to load vocabulary from "
        r"file"
        r"|requires the (?:SentencePiece|tiktoken|protobuf) library",
        words=("Couldn't instantiate the backend tokenizer", "Can't load tokenizer for", "Unable to load vocabulary"),
        source="https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/tokenization_utils_base.py",
    ),
    Known(
        "The config of the model names a kind that this transformers does not know: it is older than the model.",
        "In the trainer's folder and its environment: pip install -r requirements.txt; without requirements: "
        "pip install -U transformers",
        words=("Transformers does not recognize this architecture",),
        source="https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/auto/auto_factory.py",
    ),
    Known(
        "The folder that is named is no model or part of one that transformers loads: it has no config.json, or one "
        "without model_type (diffusers' parts have none).",
        "Name the folder of the text encoder itself; when it is that one, fetch its config.json.",
        words=("Unrecognized model in ", "Should have a `model_type` key in its config.json"),
        rule="MDL003",
        source="https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/auto/configuration_auto.py",
    ),
    Known(
        "The file is mapped into memory, which its file system cannot do (a share of Windows in WSL, some network "
        "drives), or a folder is named where one file is opened.",
        "Name the .safetensors file itself; if it is one, copy it to a disk of the system that runs this (in WSL: "
        "not "
        "below /mnt).",
        words=("No such device (os error 19)",),
        rule="PTH003",
        source="https://github.com/ostris/ai-toolkit/issues/836",
    ),
    Known(
        "Where the model's name stands, the loader expected text: a path of the config is empty, or written in "
        "another form.",
        "Look for the model's path in the config, and for quotes and colons about it.",
        error="TypeError",
        text=r"expected str, bytes or os\.PathLike object, not (?:dict|list|tuple)",
        source="https://docs.python.org/3/library/os.html#os.fspath",
    ),
)
