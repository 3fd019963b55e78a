"""Training scripts of one's own: gradients, checkpointing, DeepSpeed, diffusers' examples."""

from __future__ import annotations

from ...model.crashes import Known

KNOWN = (
    Known(
        "A gradient was not finite. DeepSpeed 0.13.2 to 0.17.0 with an optimizer on the CPU then hands an integer to "
        "the norm, and this message hides it.",
        "Upgrade DeepSpeed to 0.17.1 or newer, then look for the first loss or gradient that is not finite: learning "
        "rate, fp16, loss.",
        avoid="There is no parameter of type Long; do not look for one.",
        text=r"vector_norm.*Got Long|Expected a floating point or complex tensor as input\. Got Long",
        rule="SRC015",
        source="https://github.com/deepspeedai/DeepSpeed/blob/v0.17.0/deepspeed/runtime/zero/stage_1_and_2.py",
    ),
    Known(
        "The loss does not depend on any trained parameter: most often a whole model was wrapped in re-entrant "
        "checkpointing, and none of its inputs requires a gradient.",
        "Checkpoint each block with use_reentrant=False (in diffusers: enable_gradient_checkpointing()).",
        avoid="requires_grad_(True) on the output silences the message, and every gradient is then missing.",
        text=r"element 0 of tensors does not require grad and does not have a grad_fn",
        source="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/checkpoint.py",
    ),
    Known(
        "ComfyUI does not know the names in the LoRA. For Z-Image this is a ComfyUI from before it could read "
        "such files.",
        "Update ComfyUI, then load the LoRA again.",
        avoid="Nothing has to be trained again.",
        line="lora key not loaded: diffusion_model.layers.",
        source="https://github.com/Comfy-Org/ComfyUI/blob/master/comfy/sd.py",
    ),
    Known(
        "A custom autograd.Function reads ctx.saved_tensors twice in its backward, which checkpointing does not "
        "bear.",
        "Read ctx.saved_tensors once and keep what it gives.",
        text=r"Unpack is being triggered for a tensor that was already unpacked",
        source="https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/checkpoint.py",
    ),
    Known(
        "The script opens every file of its folder as a picture, captions too. diffusers' DreamBooth examples do, "
        "and read no captions from files.",
        "Keep only pictures in the folder; captions go through --dataset_name and --caption_column.",
        error="UnidentifiedImageError",
        text=r"cannot identify image file '[^']*\.(txt|caption|json|toml|npz|safetensors)'",
        alone=True,
        source="https://github.com/huggingface/diffusers/blob/v0.42.1/examples/dreambooth/train_dreambooth_lora_flux.py",
    ),
    Known(
        "The list of layers for the LoRA names adaLN_modulation.0, which is a SiLU in the last layer of Z-Image.",
        "Name the layers more exactly, or leave adaLN_modulation.0 out of --lora_layers.",
        error="ValueError",
        text=r"Target module SiLU\(\) is not supported",
        source="https://github.com/huggingface/peft/blob/v0.21.2/src/peft/tuners/lora/model.py",
    ),
)
