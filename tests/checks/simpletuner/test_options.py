"""Options that SimpleTuner loses, refuses or does not follow; those it follows are silent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.families import family_of
from zdoctor.doctor.rules import all_rules
from zdoctor.doctor.trainers.read import read_config

from .runs import HEALTHY, ids, looked_at


def test_the_healthy_one_is_silent() -> None:
    assert ids(looked_at(HEALTHY)) == []


# what is written instead of the healthy value, the rule, a word of what is said
SICK: Sequence[tuple[dict[str, Any], str, str]] = [
    ({"gradient_checkpointing": "false"}, "SIM001", "stays on"),
    ({"quantization_config": {"bits": 4}}, "SIM001", "mapping"),
    ({"ramtorch_target_modules": ["a", "b"]}, "SIM001", "last entry, 'b'"),
    ({"num_train_epochs": ...}, "SIM002", "its default is 1"),
    ({"num_train_epochs": 3}, "SIM002", "only one of them"),
    ({"num_train_epochs": "3"}, "SIM002", "only one of them"),
    ({"max_train_steps": 1e3}, "SIM003", "whole number"),
    ({"train_batch_size": "two"}, "SIM003", "whole number"),
    ({"train_batch_size": "1e400"}, "SIM003", "whole number"),
    ({"learning_rate": "1e-4x"}, "SIM003", "a number"),
    ({"adam_weight_decay": "many"}, "SIM003", "a number"),
    ({"use_ema": "maybe"}, "SIM003", "true or false"),
    ({"compress_disk_cache": 2}, "SIM003", "true or false"),
    ({"model_flavour": "trubo", "pretrained_model_name_or_path": ...}, "SIM003", "Did you mean turbo?"),
    ({"gradient_accumulation_steps": 0}, "SIM003", "at least 1"),
    ({"model_type": "full"}, "SIM003", "only a LoRA"),
    ({"mixed_precision": "fp8"}, "SIM003", "Use bf16"),
    ({"base_model_precision": "int8-sdnq", "quantize_via": "pipeline"}, "SIM003", "pipeline"),
    ({"base_model_precision": "int8-quanto", "fsdp_enable": True}, "SIM003", "Quanto"),
    ({"deepspeed_config": {"zero_optimization": {"stage": 2}}}, "SIM003", "no LoRA with DeepSpeed"),
    ({"ramtorch": True, "enable_group_offload": True}, "SIM003", "exclude each other"),
    ({"ramtorch": True, "musubi_blocks_to_swap": 4}, "SIM003", "exclude each other"),
    ({"maximum_image_size": 1024}, "SIM003", "target_downsample_size"),
    (
        {"maximum_image_size": 1024, "target_downsample_size": 1, "resolution_type": "area"},
        "SIM003",
        "counts megapixels",
    ),
    ({"lora_type": "lycoris"}, "SIM003", "lycoris_config"),
    ({"lora_type": "lycoris", "lycoris_config": "config/nowhere.json"}, "SIM003", "neither here nor"),
    ({"model_family": "flux", "model_flavour": "schnell"}, "SIM003", "flux_fast_schedule"),
    ({"text_encoder_1_precision": "int8-quanto"}, "SIM003", "already quantizes with torchao"),
    ({"text_encoder_1_precision": "int8-sdnq"}, "SIM003", "does not go with"),
    ({"group_offload_use_stream": True, "enable_group_offload": True}, "SIM004", "no effect"),
    ({"group_offload_vae": True}, "SIM004", "never offloads"),
    ({"use_dora": True, "base_model_precision": "int8-quanto"}, "SIM004", "switches it off"),
    ({"adam_weight_decay": 0.0}, "SIM004", "optimizer_config: weight_decay=… does what it says"),
    ({"adam_beta2": "0.99"}, "SIM004", "only DeepSpeed looks at it"),
    ({"optimizer": "prodigy", "learning_rate": 1e-4}, "SIM004", "with a rate of 1"),
    ({"enable_group_offload": True, "base_model_precision": "int8-quanto"}, "SIM005", "int8-quanto"),
    (
        {"model_flavour": "base", "pretrained_model_name_or_path": "Tongyi-MAI/Z-Image-Turbo"},
        "SIM008",
        "flavours turbo",
    ),
    ({"disable_assistant_lora": True}, "SIM008", "without its training adapter"),
    # what the trainer's own guides say, and its parser refuses
    ({"model_family": "z-image"}, "CFG004", "z_image"),
    ({"base_model_precision": "int8"}, "CFG004", "Did you mean int8-torchao?"),
    ({"base_model_precision": "nf4"}, "CFG004", "Did you mean nf4-bnb?"),
    ({"text_encoder_precision": "int8-quanto"}, "CFG002", "text_encoder_1_precision"),
]


@pytest.mark.parametrize(("written", "rule", "said"), SICK, ids=range(len(SICK)))
def test_sick(written: dict[str, Any], rule: str, said: str) -> None:
    report = looked_at({**HEALTHY, **written})
    found = [finding for finding in report.findings if finding.rule == rule]
    assert found, ids(report)
    assert any(said in finding.text() for finding in found), [finding.text() for finding in found]
    assert all(finding.consequence() for finding in found)


HARMLESS: Sequence[dict[str, Any]] = [
    {"gradient_checkpointing": False, "use_ema": "false"},  # off is the default there
    {"tread_config": {"routes": []}, "publishing_config": {"a": 1}},
    {"max_train_steps": ..., "num_train_epochs": 5},
    {"max_train_steps": 0, "num_train_epochs": 5},
    {"learning_rate": "1e-4", "train_batch_size": "1", "seed": "7"},
    {"base_model_precision": "int8-quanto", "quantize_via": "pipeline"},
    {"model_type": "full", "base_model_precision": "no_change", "model_flavour": "base"},
    {"ramtorch": True, "musubi_blocks_to_swap": 0, "enable_group_offload": False},
    {"maximum_image_size": 1024, "target_downsample_size": 1024},
    {"lora_type": "lycoris", "lycoris_config": "config/examples/lycoris_config.json"},
    {"model_family": "flux", "model_flavour": "schnell", "flux_fast_schedule": True},
    {"group_offload_use_stream": True, "enable_group_offload": True, "gradient_checkpointing": False},
    {"enable_group_offload": True, "base_model_precision": "int8-sdnq"},
    {"model_flavour": "ostris-de-turbo"},
    {"text_encoder_1_precision": "int8-torchao"},
    {"text_encoder_1_precision": "int8-torchao", "base_model_precision": "int8-sdnq"},
    {"text_encoder_1_precision": "int8-sdnq", "base_model_precision": "no_change"},
    {"model_flavour": ...},
    {"mixed_precision": "no", "base_model_precision": "no_change", "optimizer": "adamw_bf16"},
    {"save_total_limit": 3, "checkpointing_steps": 50, "vae_cache_preprocess": True, "repeats": 3},
    {"--seed": 3},
    {"adam_weight_decay": 0.01, "adam_epsilon": 1e-08, "adam_beta1": 0.9, "adam_beta2": 0.999},
    {"optimizer": "prodigy", "learning_rate": 1},
    {"optimizer_config": "weight_decay=0.0,eps=1e-8", "optimizer_beta1": 0.9, "optimizer_beta2": 0.99},
]


@pytest.mark.parametrize("written", HARMLESS, ids=range(len(HARMLESS)))
def test_harmless(written: dict[str, Any]) -> None:
    report = looked_at({**HEALTHY, **written})
    assert ids(report) == [], [finding.text() for finding in report.findings]


def test_the_web_interface_fills_in_the_epochs() -> None:
    text = '{"_metadata": {}, "config": {"--model_family": "flux", "--max_train_steps": 5}}'
    assert "SIM002" not in ids(looked_at({}, text=text))


@pytest.mark.parametrize(
    ("network", "missing"),
    [
        ({"algo": "lokr", "multiplier": 1.0, "linear_dim": 10000, "linear_alpha": 1}, []),
        ({"algo": "lokr", "multiplier": 1.0, "full_matrix": True, "linear_alpha": 1}, []),
        ({"algo": "lokr", "linear_alpha": 1}, ["multiplier", "linear_dim"]),
        ([], ["algo", "multiplier", "linear_dim", "linear_alpha"]),
        ({"algo": 3, "multiplier": 1, "linear_dim": "x", "linear_alpha": "y"}, []),
    ],
)
def test_the_file_of_the_network(network: object, missing: list[str]) -> None:
    config = {**HEALTHY, "lora_type": "lycoris", "lycoris_config": "config/lycoris.json"}
    report = looked_at(config, network=network)
    assert [finding.args["name"] for finding in report.findings if finding.rule == "SIM003"] == missing
    assert all(f.where is not None and f.where.path == "/st/config/lycoris.json" for f in report.findings)


WHOLE = {"algo": "lokr", "multiplier": 1.0, "linear_dim": 10000, "linear_alpha": 1, "factor": 16}
PRESET = {"target_module": ["Attention"], "module_algo_map": {"FeedForward": {"factor": 8}}}
KLEIN = {"model_family": "flux2", "model_flavour": "klein-9b"}
OWN = {"target_module": ["Flux2Attention", "Flux2FeedForward"]}
# (what the config says, the preset, whether a module is found)
COVERED: list[tuple[dict[str, object], Mapping[str, object] | None, bool]] = [
    ({"base_model_precision": "int8-quanto"}, None, False),
    ({"base_model_precision": "int8-quanto"}, {}, False),
    ({"base_model_precision": "int8-quanto"}, PRESET, True),
    ({"base_model_precision": "int8-quanto"}, {"target_name": ["layers.*"]}, True),
    ({"base_model_precision": "int8-torchao"}, None, True),
    ({"base_model_precision": "int8-quanto", "init_lora": "old.safetensors"}, None, True),
    ({**KLEIN}, PRESET, False),
    ({**KLEIN}, OWN, True),
    ({**KLEIN}, {"target_module": ["Attention", "Linear"]}, True),
]


@pytest.mark.parametrize(("changed", "preset", "found"), COVERED)
def test_whether_lycoris_finds_a_module(
    changed: dict[str, object], preset: Mapping[str, object] | None, found: bool
) -> None:
    config = {**HEALTHY, "lora_type": "lycoris", "lycoris_config": "config/lycoris.json", **changed}
    network = WHOLE if preset is None else {**WHOLE, "apply_preset": preset}
    said = [finding for finding in looked_at(config, network=network).errors if finding.rule == "SIM003"]
    assert (not said) == found
    for finding in said:
        assert finding.evidence["key"] == "lycoris/apply_preset" and finding.text()


def test_what_lycoris_finds_by_the_names_of_classes() -> None:
    """The library itself: an empty list without a preset in Quanto's model, and in Flux2 by others' names."""
    lycoris, quanto = pytest.importorskip("lycoris"), pytest.importorskip("optimum.quanto")
    torch, diffusers = pytest.importorskip("torch"), pytest.importorskip("diffusers")

    def found(model: Any, preset: Mapping[str, object]) -> int:
        default = ["Linear", "Conv1d", "Conv2d", "Conv3d", "GroupNorm", "LayerNorm"]
        lycoris.LycorisNetwork.apply_preset({"target_module": default, "module_algo_map": {}, **preset})
        return len(lycoris.create_lycoris(model, 1.0, linear_dim=4, linear_alpha=1, algo="lora").loras)

    class Attention(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.to_q = torch.nn.Linear(64, 64)

    model = torch.nn.Sequential(Attention())
    assert found(model, {}) == 1
    quanto.quantize(model, weights=quanto.qint8)
    quanto.freeze(model)
    assert found(model, {}) == 0
    assert found(model, PRESET) == 1
    sizes = {"attention_head_dim": 16, "num_attention_heads": 2, "joint_attention_dim": 32}
    axes = {"axes_dims_rope": (4, 4, 4, 4), "num_layers": 1, "num_single_layers": 1}
    flux2 = diffusers.Flux2Transformer2DModel(**sizes, **axes)
    assert found(flux2, PRESET) == 0
    assert found(flux2, OWN) > 0
    record = family_of("flux2_klein_9b in diffusers").simpletuner
    holding = {
        type(one).__name__ for one in flux2.modules() if any("Linear" in type(m).__name__ for m in one.modules())
    }
    assert record is not None and holding == set(record.classes)


def test_a_variable_that_the_trainer_does_not_look_at() -> None:
    text = "MODEL_FAMILY=flux\nNUM_EPOCHS=1\nLORA_RANK=64\nMY_NOTE=x\nTRAINER_EXTRA_ARGS='--lora_alpha=64'\n"
    found = looked_at({}, path="c/config.env", text=text).findings
    lost = [finding for finding in found if finding.rule == "SIM001"]
    assert [(finding.where and finding.where.line, finding.args["option"]) for finding in lost] == [(3, "lora_rank")]


OPTIMIZER_FILE = Path(__file__).resolve().parents[4] / "SimpleTuner/simpletuner/helpers/training/optimizer_param.py"


@pytest.mark.parametrize(
    ("name", "severity", "meant"),
    [
        ("adamw_bf16", None, None),
        ("bnb-lion8bit-paged", None, None),
        ("adamw8bit", "error", "bnb-adamw8bit"),
        ("adafactor", "error", "torch-adafactor"),
        ("optimi-lions", "error", "optimi-lion"),
        ("lion", "warning", "bnb-lion"),
        ("of_tomorrow", "warning", None),
    ],
)
def test_optimizers_that_there_are(name: str, severity: str | None, meant: str | None) -> None:
    found = [f for f in looked_at({**HEALTHY, "optimizer": name}).findings if f.rule == "SIM003"]
    assert [(f.severity, f.evidence.get("new", f.evidence.get("likely"))) for f in found] == (
        [(severity, meant)] if severity else []
    )
    assert all(f.text() and f.consequence() for f in found)
    if OPTIMIZER_FILE.is_file():
        assert (f'"{name}": {{' in OPTIMIZER_FILE.read_text()) == (severity is None)


def test_a_comment_behind_a_value_belongs_to_it() -> None:
    """env_file.parse_env_file reads the lines anew after train.sh has sourced them."""
    text = "MODEL_FAMILY=flux\nOUTPUT_DIR=out # of today\nMODEL_TYPE=lora\n# own\nTRACKER_RUN_NAME='a # b'\n"
    text += "VALIDATION_PROMPT=a#b\n"
    found = looked_at({}, path="c/config.env", text=text).findings
    lost = [finding for finding in found if finding.rule == "SIM001"]
    assert [(finding.where and finding.where.line, finding.args["comment"]) for finding in lost] == [
        (2, "# of today")
    ]


def test_samples_of_turbo() -> None:
    drawn = {"validation_prompt": "a lantern", "validation_guidance": 5, "validation_num_inference_steps": 8}
    reading = read_config("config.json", json.dumps({**HEALTHY, **drawn}, indent=1).encode(), {})
    (rule,) = [rule for rule in all_rules() if rule.id == "TRN005"]
    (finding,) = rule.check(reading.runs[0])
    assert (finding.where and finding.where.line, finding.evidence["pointer"]) == (15, "/validation_guidance")


def test_words_of_one_variable_are_not_edited() -> None:
    text = "MODEL_FAMILY=flux\nTRAINER_EXTRA_ARGS='--max_train_steps=5 --num_train_epochs=2'\n"
    report = looked_at({}, path="c/config.env", text=text)
    found = next(finding for finding in report.findings if finding.rule == "SIM002")
    assert found.where is not None
    assert found.where.line == 2
    assert found.fixes == ()
