"""Tensors of two types, devices or shapes that meet. Read in torch 2.13.0."""

from __future__ import annotations

from ...model.crashes import Known

_CAST = (
    "Set one type for all (in the trainer's settings mixed precision and the types of model, VAE and text encoder), "
    "best bf16."
)
_TORCH = "https://github.com/pytorch/pytorch/blob/v2.13.0/"

KNOWN = (
    Known(
        "A layer with weights in 8 bits (fp8) was called as if they were of 16: fp8 is a way to store them, and "
        "there "
        "is no arithmetic for it here.",
        "Let the trainer load that part in 16 bits, or switch its own fp8 setting on (fp8_base, quantize), which "
        "converts at every use.",
        text=r"not implemented for 'Float8|Promotion for Float8 Types is not supported"
        r"|(?:type|dtype)s?\b.*\bFloat8_e\w+.*(?:should be the same|same dtype)|expected (?:m1 and m2|mat1 and mat2)"
        r".*Float8|mul_cuda.*Float8|\"\w+\" not implemented for 'c10::Float8",
        words=("not implemented for 'Float8", "Promotion for Float8 Types", "c10::Float8", "Float8_e4m3fn"),
        source="https://github.com/kohya-ss/sd-scripts/issues/1453",
    ),
    Known(
        "This computation is not there for half precision on the processor: the model runs on the CPU in 16 bits.",
        "Let it run on the card: a torch without CUDA, or device: cpu, is the cause. On the processor take float32.",
        text=r"\"\w+\" not implemented for '(?:Half|BFloat16)'",
        words=("not implemented for 'Half'", "not implemented for 'BFloat16'"),
        source=_TORCH + "aten/src/ATen/Dispatch.h",
    ),
    Known(
        "Input and weights of a layer are of different types: a part of the model was not converted, or mixed "
        "precision is not switched on for the launcher.",
        f"{_CAST} With accelerate: --mixed_precision bf16, as accelerate launch and the trainer both take it.",
        words=("Input type (",),
        text=r"Input type \(.*\) and (?:bias|weight) type \(.*\) should be the same",
        source="https://github.com/kohya-ss/musubi-tuner/issues/164",
    ),
    Known(
        "Two tensors of different types meet: a part of the model was not converted, or mixed precision is not "
        "switched on.",
        _CAST,
        text=r"(?:mat1 and mat2|mat1 and mat2|m1 and m2|query, key,? and value|Query and Key|self and mat2)"
        r"\b.* (?:must have|to have|have) the same d?type|Expected query, key, and value to have the same dtype"
        r"|expected scalar type \w+ but found \w+|expected m1 and m2 to have the same dtype",
        words=("must have the same dtype", "to have the same dtype", "expected scalar type"),
        source=_TORCH + "aten/src/ATen/native/LinearAlgebra.cpp",
    ),
    Known(
        "A gradient scaler, as fp16 has one, got gradients that are in fp16 themselves: the trained weights are "
        "loaded "
        "in fp16.",
        "Set mixed precision to bf16, or keep the trained weights in float32.",
        words=("Attempting to unscale FP16 gradients",),
        source=_TORCH + "torch/amp/grad_scaler.py",
    ),
    Known(
        "The gradient scaler of fp16 has no code for bf16: mixed precision is fp16, and weights are bf16.",
        "Set mixed precision to bf16, too.",
        text=r"_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16'",
        words=("_amp_foreach_non_finite_check_and_unscale_cuda",),
        source=_TORCH + "torch/amp/grad_scaler.py",
    ),
    Known(
        "The model is Flux Fill, which takes 384 channels, and is built as a Flux that takes 64.",
        "Take flux1-dev; the trainer's page tells whether it can train Fill.",
        text=r"(?=.*size mismatch for \S*(?:img_in|x_embedder)\.weight).*\[3072, 384\].*\[3072, 64\]",
        words=("size mismatch for",),
        rule="MDL002",
        source="https://github.com/Akegarasu/lora-scripts/issues/666",
    ),
    Known(
        "Tensors of the file are of another size than the model that was built: another model, another size of the "
        "same one, or a model version in the settings that does not belong to the file.",
        "Compare the file with the model that the settings name (for example klein 4B, klein 9B and dev of FLUX.2).",
        avoid="ignore_mismatched_sizes=True fills what does not fit with random weights.",
        words=("size mismatch for ",),
        text=r"^(?!.*state_dict for (?:LoRA|Lora|Peft)).*size mismatch for (?!lora|\S*\.lora_)",
        rule="MDL002",
        source="https://github.com/kohya-ss/musubi-tuner/issues/860",
    ),
    Known(
        "Parts of two models meet: what one layer hands over is not as wide as the next one takes it. Most often a "
        "text encoder, LoRA, ControlNet or cached embedding of another family than the transformer.",
        "Take all parts of one model; caches of embeddings that another text encoder made have to be made again.",
        words=("mat1 and mat2 shapes cannot be multiplied",),
        source="https://github.com/ShmuelRonen/ComfyUI-FramePackWrapper_Plus/issues/12",
    ),
    Known(
        "A convolution got a picture or latent with another number of channels than it takes: a VAE or a transformer "
        "of another family (latents of 4, 16, 32 or 128 channels), or a picture with transparency.",
        "Take the VAE that belongs to the model, and make cached latents again; save pictures without transparency.",
        text=r"[Ee]xpected input\[?.* to have \d+ channels, but got \d+ channels instead",
        words=("channels, but got",),
        source=_TORCH + "aten/src/ATen/native/Convolution.cpp",
    ),
    Known(
        "A layer has no weight: the part of the model that it belongs to was not loaded.",
        "See whether an earlier line names missing keys, and compare the file with the model; with quantized weights "
        "see whether the trainer can read that kind.",
        text=r"linear\(\): argument 'weight' .*must be Tensor, not (?:NoneType|\w+Param\w*)",
        words=("linear(): argument 'weight'",),
        source="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/functional.py",
    ),
    Known(
        "The loss is no single number, so that no gradient can be computed from it.",
        "In a script of one's own take loss.mean() before loss.backward(); in a trainer look at the setting for the "
        "reduction or the mask of the loss.",
        words=("grad can be implicitly created only for scalar outputs",),
        source=_TORCH + "torch/autograd/__init__.py",
    ),
)
