"""SimpleTuner: what it logs before it ends with code 1, without an exception.

Read at bc8e6ab77 of August 2026.
"""

from __future__ import annotations

from ...model.crashes import Known

_SOURCE = "https://github.com/bghira/SimpleTuner/blob/bc8e6ab77/simpletuner/helpers/training/"


def _refused(line: str, cause: str, do: str) -> Known:
    return Known(cause, do, rule="SIM003", line=line, source=_SOURCE)


KNOWN = (
    _refused(
        "LoRA can not be trained with DeepSpeed",
        "SimpleTuner trains no LoRA with DeepSpeed.",
        "Remove deepspeed_config, and answer no to DeepSpeed in accelerate config; FSDP2 shares a LoRA run out.",
    ),
    _refused(
        "RamTorch is incompatible with Musubi block swap",
        "ramtorch and musubi_blocks_to_swap exclude each other.",
        "Set musubi_blocks_to_swap: 0, or ramtorch: false.",
    ),
    _refused(
        "LyCORIS training is not meant to be combined with --train_text_encoder",
        "With lora_type: lycoris the text encoder is not trained.",
        "Set train_text_encoder: false.",
    ),
    _refused(
        "Schnell requires --flux_fast_schedule",
        "Flux schnell is trained with its own schedule only.",
        "Set flux_fast_schedule: true.",
    ),
    _refused(
        "tuning is not compatible with quantisation",
        "Only a LoRA is trained on a quantized model.",
        "Set model_type: lora, or base_model_precision: no_change.",
    ),
    Known(
        "Group offloading of a model that Quanto quantized leaves parts of it on another device; nothing in "
        "SimpleTuner refuses the two together.",
        "Quantize with int8-torchao in the place of int8-quanto, or switch enable_group_offload off.",
        error="RuntimeError",
        text=r"Expected all tensors to be on the same device",
        rule="SIM005",
        where=r"group_offload|optimum.quanto",
        source="https://github.com/bghira/SimpleTuner/blob/bc8e6ab77/simpletuner/helpers/training/default_settings/safety_check.py",
    ),
    Known(
        "SimpleTuner looked for its config in a place where it is not. A container that sets ENV for its shell "
        "(ENV=/etc/shinit_v2) is taken for the name of a config.",
        "unset ENV before the start, or ENV=default; and start in the folder in which config/ lies.",
        words=("Cannot find config file: ", "Can not find config file: "),
        source="https://github.com/bghira/SimpleTuner/issues/1683",
    ),
    Known(
        "A dataset gives no batch at all: too few pictures for the batch size, the cards and the accumulation, or "
        "all "
        "were left out for their size or shape.",
        "Lower train_batch_size or gradient_accumulation_steps, raise repeats, or loosen minimum_image_size and the "
        "filters of the dataset.",
        rule="SIM007",
        words=("ataset produced no usable samples",),
        source="https://github.com/bghira/SimpleTuner/blob/bc8e6ab77/simpletuner/helpers/data_backend/factory.py",
    ),
)
