"""What SimpleTuner refuses, loses and leaves unused: sick configs, and healthy ones that look alike."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from zdoctor.checks.simpletuner.pictures import _shape
from zdoctor.doctor.configs import Found, read_config
from zdoctor.doctor.configs.edit import apply_edits
from zdoctor.doctor.configs.simpletuner.options import from_mapping
from zdoctor.doctor.engine import examine, prescribe
from zdoctor.doctor.examine import beside
from zdoctor.doctor.model import DatasetFolder, Facts, Image, ReplaceText, Report, SetValue, Unknown
from zdoctor.doctor.rules import all_repairs, all_rules
from zdoctor.doctor.schema.tables import shipped

ROOT = Path(__file__).resolve().parents[2]
CHECKOUT = ROOT.parent / "SimpleTuner"
HEALTHY: dict[str, Any] = {
    "model_family": "z_image",
    "model_flavour": "turbo",
    "model_type": "lora",
    "output_dir": "output/lantern",
    "data_backend_config": "config/data.json",
    "max_train_steps": 1000,
    "num_train_epochs": 0,
    "train_batch_size": 1,
    "learning_rate": 1e-4,
    "validation_steps": 50,
    "gradient_checkpointing": True,
    "base_model_precision": "int8-torchao",
}
SET: dict[str, Any] = {
    "id": "lanterns",
    "type": "local",
    "instance_data_dir": "/data/lanterns",
    "caption_strategy": "textfile",
    "resolution": 1024,
    "cache_dir_vae": "cache/vae/{id}",
}
TEXT: dict[str, Any] = {"id": "text", "type": "local", "dataset_type": "text_embeds", "cache_dir": "cache/text"}


def looked_at(
    config: dict[str, Any],
    data: object = (SET, TEXT),
    images: int = 20,
    sizes: Sequence[tuple[int, int]] | None = None,
    path: str = "/st/config/config.json",
    text: str | None = None,
    network: object = None,
) -> Report:
    files = {"config/data.json": Found("/st/config/data.json", json.dumps(data, indent=1).encode())}
    if network is not None:
        files["config/lycoris.json"] = Found("/st/config/lycoris.json", json.dumps(network).encode())
    written = json.dumps({name: value for name, value in config.items() if value is not ...}, indent=1)
    reading = read_config(path, (text or written).encode(), {}, beside=files.get)
    run = reading.runs[0] if reading.runs else Unknown(reading.reason)
    all = enumerate(sizes or [(1024, 1024)] * images)
    pictures = tuple(Image(f"/data/lanterns/{index}.jpg", *size, caption=True) for index, size in all)
    folders = (DatasetFolder("datasets/0", "/data/lanterns", pictures),)
    schema = shipped("SimpleTuner")
    assert schema is not None
    facts = Facts(config=reading.config, run=run, schema=schema, datasets=folders)
    chosen = [rule for rule in all_rules() if rule.id.startswith(("SIM", "CFG")) and rule.suits("SimpleTuner")]
    report = examine(facts, chosen, all_repairs(), config=path, trainer="SimpleTuner")
    assert not report.crashed, report.crashed
    return report


def ids(report: Report) -> list[str]:
    return [finding.rule for finding in report.findings]


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
    ({"model_family": "flux", "model_flavour": "schnell"}, "SIM003", "flux_fast_schedule"),
    ({"text_encoder_1_precision": "int8-quanto"}, "SIM003", "already quantizes with torchao"),
    ({"text_encoder_1_precision": "int8-sdnq"}, "SIM003", "does not go with"),
    ({"group_offload_use_stream": True, "enable_group_offload": True}, "SIM004", "no effect"),
    ({"group_offload_vae": True}, "SIM004", "never offloads"),
    ({"use_dora": True, "base_model_precision": "int8-quanto"}, "SIM004", "switches it off"),
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
    {"lora_type": "lycoris", "lycoris_config": "config/lycoris_config.json"},
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
]


@pytest.mark.parametrize("written", HARMLESS, ids=range(len(HARMLESS)))
def test_harmless(written: dict[str, Any]) -> None:
    report = looked_at({**HEALTHY, **written})
    assert ids(report) == [], [finding.text() for finding in report.findings]


SICK_DATA: Sequence[tuple[object, str]] = [
    ([], "no dataset to train on"),
    ([TEXT], "no dataset to train on"),
    ([{**SET, "disabled": True}, TEXT], "no dataset to train on"),
    ({"a": 1}, "must be a list"),
    ([SET, 3], "no dataset."),
    ([{**SET, "id": ""}], "id is missing"),
    ([{**SET, "type": None}], "type is missing"),
    ([{**SET, "instance_data_dir": None}], "needs a folder"),
    ([{**SET, "caption_strategy": "text_file"}], "textfile"),
    ([{**SET, "caption_strategy": "instanceprompt"}], "no instance_prompt"),
    ([{**SET, "caption_strategy": "huggingface"}], "of that type only"),
    ([{**SET, "resolution_type": "pixel_area|area|pixel"}], "does not know"),
    ([{**SET, "dataset_type": "images"}], "image"),
    ([{**SET, "crop_style": "middle"}], "does not know"),
    ([{**SET, "crop_aspect": "random"}], "crop_aspect_buckets"),
    ([{**SET, "maximum_image_size": 2048}], "target_downsample_size"),
    ([{**SET, "resolution_type": "area", "maximum_image_size": 2048, "target_downsample_size": 1}], "megapixels"),
    ([{**SET, "resolution_type": "pixel", "maximum_image_size": 4, "target_downsample_size": 512}], "pixels"),
    ([{**SET, "resolution": 1024.5}], "whole number of pixels"),
    ([{**SET, "disable_vae_cache": True}], "vae_cache_disable"),
    ([SET, {**SET, "cache_dir_vae": "other"}], "have the id lanterns"),
    ([SET, {**SET, "id": "two", "cache_dir_vae": "cache/vae/lanterns"}], "same folder"),
    ([{**SET, "cache_dir_vae": "cache/text"}, TEXT], "same folder"),
    ([SET, {**TEXT, "default": True}, {**TEXT, "id": "b", "default": True}], "marked as default"),
    ([{**SET, "text_embeds": "txt"}, TEXT], "has that id"),
]


@pytest.mark.parametrize(("data", "said"), SICK_DATA, ids=range(len(SICK_DATA)))
def test_sick_datasets(data: object, said: str) -> None:
    report = looked_at(HEALTHY, data)
    found = [finding for finding in report.findings if finding.rule == "SIM006"]
    assert any(said in finding.text() for finding in found), [finding.text() for finding in report.findings]
    assert all(finding.where is not None and finding.consequence() for finding in found)


HARMLESS_DATA: Sequence[list[dict[str, Any]]] = [
    [SET],  # the trainer makes a text cache of its own
    [SET, {**SET, "id": "two"}, TEXT],
    [{**SET, "id": "off", "disabled": True, "caption_strategy": "nonsense"}, SET, TEXT],
    [{**SET, "caption_strategy": "instanceprompt", "instance_prompt": "a lantern"}],
    [{**SET, "type": "huggingface", "caption_strategy": "huggingface", "instance_data_dir": None}],
    [{**SET, "resolution": 1, "resolution_type": "area", "maximum_image_size": 4, "target_downsample_size": 2}],
    [{**SET, "crop_aspect": "closest", "crop_aspect_buckets": [0.5, 1.0]}],
    [SET, {"id": "canny", "type": "local", "dataset_type": "conditioning"}, TEXT],
]


@pytest.mark.parametrize("data", HARMLESS_DATA, ids=range(len(HARMLESS_DATA)))
def test_harmless_datasets(data: list[dict[str, Any]]) -> None:
    report = looked_at(HEALTHY, data)
    assert ids(report) == [], [finding.text() for finding in report.findings]


def test_the_file_of_datasets_is_said_with_its_line() -> None:
    report = looked_at(HEALTHY, [{**SET, "caption_strategy": "textfle"}])
    where = report.findings[0].where
    assert where is not None
    assert (where.path, where.line) == ("/st/config/data.json", 6)
    step = prescribe(report).steps[0]
    assert step == SetValue("/st/config/data.json", "/0/caption_strategy", "textfile")


@pytest.mark.parametrize("name", ["config/none.json", "config/examples/multidatabackend-x.json", ...])
def test_a_file_of_datasets_that_is_not_there(name: Any) -> None:
    found = looked_at({**HEALTHY, "data_backend_config": name}).findings
    assert [(f.rule, f.severity) for f in found] == ([] if "examples" in str(name) else [("SIM006", "warning")])


@pytest.mark.parametrize(
    ("images", "written", "of_set", "needed"),
    [
        (0, {}, {}, -1),
        (3, {"train_batch_size": 4}, {}, 1),
        (3, {"train_batch_size": ...}, {}, 1),  # 4 is the default
        (1, {"train_batch_size": 2, "gradient_accumulation_steps": 4}, {"repeats": 3}, 7),
        (3, {"train_batch_size": 4}, {"repeats": 1}, None),
        (4, {"train_batch_size": 4}, {}, None),
        (3, {"train_batch_size": 4, "allow_dataset_oversubscription": True}, {}, None),
    ],
)
def test_too_few_images(images: int, written: dict[str, Any], of_set: dict[str, Any], needed: int | None) -> None:
    found = looked_at({**HEALTHY, **written}, [{**SET, **of_set}], images).findings
    assert [finding.rule for finding in found] == ([] if needed is None else ["SIM007"])
    if needed is not None and needed > 0:
        assert found[0].evidence["likely"] == needed
        each = (
            written.get("train_batch_size", 4) if written.get("train_batch_size", 4) is not ... else 4
        ) * written.get("gradient_accumulation_steps", 1)
        assert images * (needed + 1) >= each > images * needed


@pytest.mark.parametrize(
    ("sizes", "written", "of_set", "left"),
    [
        ([(1024, 1024)] * 4, {}, {}, None),
        ([(1024, 1024)] * 4 + [(1500, 1000)], {}, {}, 1),
        ([(1024, 1024)] * 4 + [(1024, 1000)], {}, {}, None),  # the same after rounding to 64 pixels
        ([(1024, 1024)] * 4 + [(1500, 1000)], {}, {"repeats": 3}, None),
        ([(1024, 1024)] * 4 + [(1500, 1000)], {"train_batch_size": 1}, {}, None),
        ([(1024, 1024)] * 4 + [(1500, 1000)], {}, {"crop": True}, None),
        ([(1024, 1024)] * 4 + [(1500, 1000)], {"allow_dataset_oversubscription": True}, {}, None),
        ([(600, 900)] * 3 + [(900, 600)] * 4, {}, {"resolution_type": "pixel", "resolution": 512}, 3),
    ],
)
def test_shapes_that_too_few_pictures_have(
    sizes: list[tuple[int, int]], written: dict[str, Any], of_set: dict[str, Any], left: int | None
) -> None:
    report = looked_at({**HEALTHY, "train_batch_size": 4, **written}, [{**SET, **of_set}], sizes=sizes)
    assert ids(report) == ([] if left is None else ["SIM009"])
    if left is not None:
        assert sum(report.findings[0].evidence["shapes"].values()) == left


@pytest.mark.parametrize(
    ("size", "edge", "kind", "shape"),
    [
        # what MultiaspectImage of bc8e6ab7 computes, run for these sizes
        ((1024, 1024), 1024, "pixel_area", 1.0),
        ((1500, 1000), 1024, "pixel_area", 1.54),
        ((1000, 1500), 1024, "pixel_area", 0.65),
        ((4000, 300), 512, "area", 14.5),
        ((901, 900), 768, "pixel", 1.0),
        ((1500, 1000), 512, "pixel", 1.5),
    ],
)
def test_shapes_are_the_trainers(size: tuple[int, int], edge: int, kind: str, shape: float) -> None:
    assert _shape(*size, edge, kind, 64, 2) == shape


def cured(
    config: dict[str, Any], path: str = "/st/config/config.json", text: str | None = None
) -> tuple[str, Report]:
    """The config's text after every repair that needs no asking, or would be said yes to; and what is said then."""
    text = text or json.dumps({name: value for name, value in config.items() if value is not ...}, indent=1)
    for _ in range(3):
        report = looked_at({}, path=path, text=text)
        steps = [fix.steps for finding in report.findings for fix in finding.fixes if fix.steps]
        mine = [step for step in (steps[0] if steps else ()) if isinstance(step, SetValue | ReplaceText)]
        if not mine:
            break
        text = apply_edits(text, mine)
    return text, looked_at({}, path=path, text=text)


def test_the_quickstart_is_put_right() -> None:
    """The trainer's own guide, with what its parser refuses."""
    quickstart = {**HEALTHY, "model_family": "z-image", "base_model_precision": "int8", "num_train_epochs": ...}
    text, after = cured(quickstart)
    made = json.loads(text)
    assert (made["model_family"], made["num_train_epochs"]) == ("z_image", 0)
    assert made["base_model_precision"] == "int8-torchao"
    assert ids(after) == []


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("c/config.json", '{"--model_family": "flux", "--max_train_steps": 5}', '"--num_train_epochs": 0'),
        ("c/config.toml", 'model_family = "flux"\nmax_train_steps = 5 # few\n', "\nnum_train_epochs = 0\n"),
        ("c/config.env", "export MODEL_FAMILY=flux\nMAX_NUM_STEPS=5\n", "\nexport NUM_EPOCHS='0'\n"),
        (
            "c/config.toml",
            'model_family = "flux"\ngradient_checkpointing = "false"\n',
            "\ngradient_checkpointing = false",
        ),
    ],
)
def test_repairs_in_every_format(path: str, before: str, after: str) -> None:
    text, report = cured({}, path, before)
    assert after in text
    assert not {"SIM001", "SIM002"} & set(ids(report))


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


def test_a_variable_that_the_trainer_does_not_look_at() -> None:
    text = "MODEL_FAMILY=flux\nNUM_EPOCHS=1\nLORA_RANK=64\nMY_NOTE=x\nTRAINER_EXTRA_ARGS='--lora_alpha=64'\n"
    found = looked_at({}, path="c/config.env", text=text).findings
    lost = [finding for finding in found if finding.rule == "SIM001"]
    assert [(finding.where and finding.where.line, finding.args["option"]) for finding in lost] == [(3, "lora_rank")]


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


@pytest.fixture(scope="module")
def real() -> Any:
    """The trainer's own function that makes a command line of a config, from its checkout."""
    folder = CHECKOUT / "simpletuner" / "helpers" / "configuration"
    if not folder.is_dir():
        pytest.skip(f"there is no checkout of SimpleTuner at {CHECKOUT}")
    above = [
        "simpletuner",
        "simpletuner.helpers",
        "simpletuner.helpers.configuration",
        "simpletuner.helpers.training",
    ]
    made = {name: ModuleType(name) for name in above}
    for module in made.values():
        module.__path__ = []
    tracker = ModuleType("simpletuner.helpers.training.state_tracker")
    tracker.StateTracker = object  # type: ignore[attr-defined]
    sys.modules.update({**made, tracker.__name__: tracker})
    try:
        for name in ("template_vars", "cli_utils"):
            at = f"simpletuner.helpers.configuration.{name}"
            spec = importlib.util.spec_from_file_location(at, folder / f"{name}.py")
            assert spec is not None and spec.loader is not None
            sys.modules[at] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[at])
        yield sys.modules["simpletuner.helpers.configuration.cli_utils"].mapping_to_cli_args
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "simpletuner"]:
            del sys.modules[name]


@pytest.mark.parametrize(
    "value", ["false", "False", False, True, "true", "no", {"a": 1}, [1, 2], [], None, "", " x ", 7, 1e3, "None"]
)
@pytest.mark.parametrize("name", ["gradient_checkpointing", "--lora_rank", "webhook_config"])
def test_what_arrives_is_what_the_trainer_makes(real: Any, name: str, value: Any) -> None:
    words = real({name: value})
    reading = read_config("config.json", json.dumps({name: value}).encode(), {}, trainer="SimpleTuner")
    options = from_mapping(reading.config.values, "")
    ours = next((options.raw(key) for key in options.settings if "/" not in key), None)
    if not words:
        assert ours is None
        return
    option, _, theirs = words[-1].partition("=")
    assert option[2:] in options.settings
    shown = json.dumps(ours) if isinstance(ours, dict | list) else str(ours)
    assert shown == theirs or (not theirs and ours is True) or (theirs == "false" and ours is False)


CORPUS = ROOT.parent / "shared" / "corpus" / "simpletuner"
SHIPPED = ("config.json", "config.env", "multidatabackend*.json", "default.json")
# true of these files: a mapping that the trainer's loader drops, and files of datasets that are not in the corpus
KNOWN = {"flux.peft-controlnet-lora": ("SIM001",), "sd3.peft-controlnet-lora": ("SIM001",)}


@pytest.mark.parametrize(
    "path",
    [*(path for name in SHIPPED for path in sorted(CORPUS.rglob(name)))] if CORPUS.is_dir() else [None],
    ids=lambda path: f"{path.parent.name}/{path.name}" if path else "absent",
)
def test_what_the_trainer_ships_is_not_called_wrong(path: Path | None) -> None:
    if path is None:
        pytest.skip(f"the corpus is not at {CORPUS}")
    reading = read_config(str(path), path.read_bytes(), {}, beside=beside(str(path)))
    run = reading.runs[0] if reading.runs else Unknown(reading.reason)
    facts = Facts(config=reading.config, run=run, schema=shipped("SimpleTuner") or Unknown("no table"))
    chosen = [rule for rule in all_rules() if rule.id.startswith(("SIM", "CFG", "TRN")) and rule.suits("SimpleTuner")]
    report = examine(facts, chosen, all_repairs(), config=str(path), trainer="SimpleTuner")
    assert not report.crashed
    said = [finding for finding in report.findings if finding.severity != "note"]
    if path.parent.name == "hidream.peft-controlnet-lora" and path.name == "config.json":
        assert [(f.rule, f.where and f.where.line) for f in said] == [("CFG001", 52)]
        return
    left = [f for f in said if f.rule not in KNOWN.get(path.parent.name, ()) and "neither here nor" not in f.text()]
    left = [f for f in left if "data_backend_config is missing" not in f.text()]  # the web interface's empty form
    assert left == [], [finding.text() for finding in left]
