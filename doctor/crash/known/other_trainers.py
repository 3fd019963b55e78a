"""Trainers that have no room of their own, and what DeepSpeed and accelerate say of their settings.

Read in OneTrainer of October 2026, diffusion-pipe of September 2026, lora-scripts 1.12, accelerate 1.15.0 and
DeepSpeed 0.18.
"""

from __future__ import annotations

from ...model.crashes import Known

KNOWN = (
    Known(
        "The script makes its own optimizer or schedule, and so does the DeepSpeed config: accelerate wants a "
        "placeholder in the place of the one.",
        "Remove optimizer and scheduler from the DeepSpeed config; or in the script take accelerate.utils.DummyOptim "
        "and DummyScheduler where they are there.",
        words=("`DummyOptim`", "DummyOptim", "`DummyScheduler`"),
        text=r"(?:You cannot|Please).*\bDummy(?:Optim|Scheduler)\b",
        source="https://github.com/huggingface/accelerate/blob/v1.15.0/src/accelerate/accelerator.py",
    ),
    Known(
        "The DeepSpeed config and the script say different things about the same setting; the message lists them.",
        'Write "auto" for these values in the DeepSpeed config.',
        words=("Please correct the following DeepSpeed config values that mismatch",),
        source="https://github.com/huggingface/accelerate/blob/v1.15.0/src/accelerate/utils/deepspeed.py",
    ),
    Known(
        "The optimizer that DeepSpeed keeps in RAM is compiled at its first use, for which the compiler or the CUDA "
        "toolkit is missing, or of another version.",
        "Install g++, ninja and the CUDA toolkit of torch.version.cuda; or do without offload of the optimizer.",
        text=r"'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'|Error building extension 'cpu_adam'"
        r"|Unable to JIT load the (?:cpu_adam|fused_adam)",
        words=("has no attribute 'ds_opt_adam'", "Error building extension 'cpu_adam'", "Unable to JIT load the"),
        source="https://github.com/deepspeedai/DeepSpeed/blob/v0.18.0/op_builder/builder.py",
    ),
    Known(
        "lora-scripts does not know the kind of the model from its file, or the file is of another kind than the "
        "page "
        "that was chosen.",
        "Choose the page of the model's own kind (SD, SDXL, Flux), and the file of the transformer or checkpoint.",
        words=("Can't match model type from", "Can't match model type"),
        source="https://github.com/Akegarasu/lora-scripts/issues/647",
    ),
    Known(
        "The text encoder's file is not of the model that was chosen, or is not named; Forge and ComfyUI take a file "
        "for each model.",
        "Choose the text encoder and VAE that belong to this model, and update the program when the model is new.",
        text=r"You do not have \w+ state dict",
        words=("You do not have",),
        source="https://github.com/Haoming02/sd-webui-forge-classic/issues/416",
    ),
    Known(
        "The LoRA was written by musubi-tuner in its own layout, whose names ComfyUI does not know for this model.",
        "Convert it with musubi-tuner's convert_lora.py --target other, then load the new file.",
        line="lora key not loaded: lora_unet_",
        source="https://github.com/kohya-ss/musubi-tuner/blob/main/src/musubi_tuner/convert_lora.py",
    ),
    Known(
        "The tokenizer was pickled by another transformers than the one that is installed.",
        "In the program's folder and its environment: pip install -r requirements.txt; the pickled model works with "
        "the transformers of its time only.",
        words=("CLIPTokenizer has no attribute split_special_tokens", "has no attribute split_special_tokens"),
        source="https://github.com/cure-lab/GuardT2I/issues/4",
    ),
    Known(
        "A name for the LoRA stands for a module of a kind that takes none (a norm, an activation, a block).",
        "Name the layers more exactly: only linear and convolution layers and embeddings take a LoRA.",
        words=("Target module ",),
        text=r"Target module (?!SiLU\(\)).* is not supported\. Currently, only",
        source="https://github.com/huggingface/peft/blob/v0.21.2/src/peft/tuners/lora/model.py",
    ),
    Known(
        "The names of layers for the LoRA are in no layer of this model.",
        "Take the names of this model's own layers (print its named_modules), or leave the setting out: the "
        "trainer's "
        "own list belongs to the model.",
        text=r"Target modules? .* not found in the base model",
        words=("not found in the base model",),
        source="https://github.com/huggingface/peft/blob/v0.21.2/src/peft/tuners/tuners_utils.py",
    ),
    Known(
        "The loss was not a number for too long, and the trainer gave up.",
        "Lower the learning rate, take bf16 in the place of fp16, and begin again from a checkpoint from before.",
        words=("Training loss diverged or is NaN", "loss is NaN. This is usually caused", "NaN loss encountered"),
        source="https://github.com/Nerogar/OneTrainer/blob/master/modules/trainer/GenericTrainer.py",
    ),
)
