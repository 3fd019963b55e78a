"""SimpleTuner's configs: its defaults and aliases, its formats, and the file of datasets beside the config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from zdoctor.doctor.examine.config_file import beside
from zdoctor.doctor.model import Run
from zdoctor.doctor.trainers.read import Found, Reading, read_config
from zdoctor.tests.changes import value_of

CORPUS = Path(__file__).resolve().parents[3].parent / "shared" / "corpus" / "simpletuner"
BROKEN = "hidream.peft-controlnet-lora/config.json"
CONFIG = {
    "model_family": "z_image",
    "model_flavour": "turbo",
    "model_type": "lora",
    "output_dir": "output/lantern",
    "data_backend_config": "config/data.json",
    "learning_rate": 1e-4,
    "validation_steps": 50,
    "validation_prompt": "a lantern",
    "validation_resolution": "1024x768",
}
DATA = [
    {
        "id": "lanterns",
        "type": "local",
        "instance_data_dir": "datasets/{id}",
        "caption_strategy": "textfile",
        "resolution": 768,
        "repeats": 3,
    },
    {"id": "embeds", "type": "local", "dataset_type": "text_embeds", "cache_dir": "cache/text"},
    {"id": "off", "type": "local", "instance_data_dir": "elsewhere", "disabled": True},
    {"id": "mega", "type": "local", "instance_data_dir": "mega", "resolution": 1, "resolution_type": "area"},
]


def read(config: object, data: object = DATA, path: str = "config.json", trainer: str | None = None) -> Reading:
    text = config if isinstance(config, str) else json.dumps(config, indent=1)
    files: Mapping[str, Found] = {
        "config/data.json": Found("/st/config/data.json", json.dumps(data, indent=1).encode())
    }
    return read_config(path, text.encode(), {}, trainer=trainer, beside=files.get)


def run_of(config: object, **options: object) -> Run:
    reading = read(config, **options)  # type: ignore[arg-type]
    assert reading.config.problem is None, reading.config.problem
    return reading.runs[0]


def test_a_config_with_its_datasets() -> None:
    run = run_of(CONFIG)
    assert (run.trainer, run.kind, run.recipe.architecture, run.recipe.variant) == (
        "SimpleTuner",
        "lora",
        "zimage",
        "turbo",
    )
    assert (run.recipe.base_model, run.name) == ("TONGYI-MAI/Z-Image-Turbo", "lantern")
    assert run.recipe.adapter == "ostris/zimage_turbo_training_adapter/zimage_turbo_training_adapter_v1.safetensors"
    assert (
        run.recipe.learning_rate,
        run.recipe.batch_size,
        run.recipe.network.rank,
        run.recipe.network.alpha,
        run.recipe.validation.every,
    ) == (1e-4, 4, 16, 16.0, 50)
    assert [(d.folder, d.resolutions, d.repeats, d.caption_extension) for d in run.recipe.datasets] == [
        ("datasets/lanterns", (768,), 4, ".txt"),
        ("mega", (1000,), 1, ".txt"),
    ]
    assert [(s.width, s.height, s.guidance, s.steps) for s in run.recipe.validation.prompts] == [(1024, 768, 7.5, 30)]


def test_everything_has_its_place() -> None:
    reading = read(CONFIG)
    run = reading.runs[0]
    assert run.where("sample_every").line == 8
    assert run.pointer("sample_every") == "/validation_steps"
    assert run.pointer("batch_size") == "/train_batch_size"
    where = run.where("datasets/0/folder_path")
    assert (where.path, where.line) == ("/st/config/data.json", 5)
    assert run.pointer("datasets/0/folder_path") == "/0/instance_data_dir"
    assert run.pointer("datasets/3/repeats") == "/3/repeats"
    assert reading.config.file(where.path).text.splitlines()[4].strip() == '"instance_data_dir": "datasets/{id}",'


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("config.json", '{"--model_family": "flux", "--model_type": "lora", "--lora_rank": "8", "-seed": 7}'),
        ("config.toml", 'model_family = "flux"\nmodel_type = "lora"\n"--lora_rank" = 8\nseed = 7\n'),
        (
            "config.env",
            "export MODEL_FAMILY='flux'\nMODEL_TYPE=lora\nTRAINER_EXTRA_ARGS='--lora_rank=8 '\n"
            'export TRAINER_EXTRA_ARGS+=" --use_dora"\nexport TRAINING_SEED=7\nLORA_RANK=99\n',
        ),
        (
            "default.json",
            '{"_metadata": {"name": "x"}, "config": {"model_family": "FLUX ", "model_type": "lora", "lora_rank": 8, '
            '"--seed": 7}}',
        ),
    ],
)
def test_every_way_of_writing_it(path: str, text: str) -> None:
    run = run_of(text, path=path)
    assert (run.recipe.architecture, run.kind, run.recipe.network.rank, run.recipe.seed) == ("flux", "lora", 8, 7)
    assert run.recipe.base_model == "black-forest-labs/flux.1-krea-dev"
    assert run.where("rank").line is not None


def test_a_new_key_is_spelled_as_the_others() -> None:
    assert run_of({"--model_family": "flux", "--model_type": "lora"}).pointer("rank") == "/--lora_rank"
    assert run_of("MODEL_FAMILY=flux\n", path="config.env").pointer("batch_size") == "/TRAIN_BATCH_SIZE"


def test_a_variable_of_false_is_no_option() -> None:
    """The trainer's loader of variables hands on `true` as a flag, and nothing of `false`."""
    text = "MODEL_FAMILY=flux\nexport USE_XFORMERS={}\nexport ALLOW_TF32=True\n"
    assert set(run_of(text.format("False"), path="config.env").settings) == {"model_family", "allow_tf32"}
    assert "enable_xformers_memory_efficient_attention" in run_of(text.format("true"), path="config.env").settings
    wrapped = {"_metadata": {}, "config": {"--model_family": "flux"}}
    assert run_of(wrapped).pointer("rank") == "/config/--lora_rank"


@pytest.mark.parametrize(
    ("written", "name", "expected"),
    [
        ({"gradient_checkpointing": "false"}, "gradient_checkpointing", True),  # dropped on the way to the parser
        ({"gradient_checkpointing": False}, "gradient_checkpointing", False),
        ({"gradient_checkpointing": "no"}, "gradient_checkpointing", False),
        ({"lora_rank": [4, 64]}, "rank", 64),
        ({"lora_rank": None}, "rank", 16),
        ({"learning_rate": "2e-5"}, "learning_rate", 2e-5),
        ({"learning_rate": {"a": 1}}, "learning_rate", 4e-7),
        ({"seed": 0}, "seed", None),
        ({"mixed_precision": "no"}, "dtype", "fp32"),
        ({"mixed_precision": "no", "base_model_precision": "int8-quanto"}, "dtype", "bf16"),
        ({"base_model_precision": "int8-quanto"}, "quantization", "qint8"),
        ({"base_model_precision": "uint5-sdnq"}, "quantization", "uint5"),
        ({"model_flavour": None}, "adapter", "ostris/zimage_turbo_training_adapter/zimage_turbo_training_adapter_v2.safetensors"),  # noqa: E501
        ({"disable_assistant_lora": True}, "adapter", None),
        ({"model_flavour": "base"}, "adapter", None),
        ({"model_flavour": "ostris-de-turbo"}, "base_model", "ostris/Z-Image-De-Turbo"),
        ({"assistant_lora_path": "me/adapter"}, "adapter", "me/adapter/zimage_turbo_training_adapter_v1.safetensors"),
        ({"lora_type": "lycoris"}, "network_type", "lycoris"),
        ({"model_type": "full"}, "kind", "finetune"),
    ],
)  # fmt: skip
def test_what_the_trainer_makes_of_it(written: dict[str, object], name: str, expected: object) -> None:
    assert value_of(run_of({**CONFIG, **written}), name) == expected


def test_without_the_dataset_file() -> None:
    run = run_of({**CONFIG, "data_backend_config": "config/none.json"})
    assert run.recipe.datasets == ()


@pytest.mark.parametrize("data", ["[", {}, [1, "x"], [{"resolution": 1e300, "id": 4}], []])
def test_odd_dataset_files_do_no_harm(data: object) -> None:
    files = {"config/data.json": Found("d.json", (data if isinstance(data, str) else json.dumps(data)).encode())}
    reading = read_config("config.json", json.dumps(CONFIG).encode(), {}, beside=files.get)
    assert reading.config.problem is None
    assert (reading.config.beside[0].problem is None) == isinstance(data, list)


def test_other_files_of_the_trainer_say_what_they_are() -> None:
    assert "file of datasets" in read(json.dumps(DATA), path="multidatabackend.json").reason
    assert "how the trainer is started" in read("export TRAINING_NUM_PROCESSES=1\n", path="config.env").reason
    assert read("{}", trainer="SimpleTuner").config.problem is not None
    assert read("3", trainer="SimpleTuner").config.problem is not None


@pytest.mark.parametrize(
    "path",
    sorted([*CORPUS.rglob("config.json"), *CORPUS.rglob("config.env"), CORPUS / "default.json"])
    if CORPUS.is_dir()
    else [None],
    ids=lambda path: f"{path.parent.name}/{path.name}" if path else "absent",
)
def test_corpus(path: Path | None) -> None:
    if path is None:
        pytest.skip(f"the corpus is not at {CORPUS}")
    reading = read_config(str(path), path.read_bytes(), {}, beside=beside(str(path)))
    assert reading.config.trainer == "SimpleTuner"
    if str(path).endswith(BROKEN):
        assert reading.config.problem is not None
        assert reading.config.problem.where.line == 52
        return
    assert reading.config.problem is None
    if path.name == "config.env":
        assert not reading.runs
        return
    run = reading.runs[0]
    assert run.kind == "lora"
    for field in run.keys:
        written = run.written(field)
        if written is not None and written.where.path == str(path):
            assert reading.config.text[written.start : written.end]


def test_a_name_that_the_trainer_does_not_look_for() -> None:
    problem = read("model_family: flux\nmodel_type: lora\n", path="c.yaml", trainer="SimpleTuner").config.problem
    assert problem is not None
    assert ".json" in problem.message
