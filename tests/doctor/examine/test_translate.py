"""A SimpleTuner config in the runner's words: every setting is obeyed, without effect, or refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.commands.train import train
from zdoctor.doctor.errors import UserError
from zdoctor.doctor.examine.translate import for_runner
from zdoctor.doctor.model import Run, Schema, Unknown
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.train.network.lora import lora_targets
from zdoctor.doctor.train.output.trackers import requested_trackers
from zdoctor.doctor.train.settings.refuse import refuse
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer
from zdoctor.doctor.trainers.read import Found, read_config
from zdoctor.doctor.trainers.simpletuner.recipe import _WITHOUT_EFFECT
from zdoctor.tests.doctor.train.conftest import circles, tiny
from zdoctor.tests.doctor.trainers.simpletuner.runs import differences

__all__ = ["circles", "tiny"]
CONFIG: dict[str, Any] = {
    "model_family": "z_image",
    "model_flavour": "base",
    "model_type": "lora",
    "output_dir": "output/lantern",
    "data_backend_config": "config/data.json",
    "max_train_steps": 10,
    "num_train_epochs": 0,
    "lora_rank": 4,
    "lr_scheduler": "constant",
    "vae_batch_size": 1,
    "validation_prompt_library": False,
    "tracker_run_name": "x",
}
SET: dict[str, Any] = {
    "id": "a",
    "type": "local",
    "instance_data_dir": "pictures",
    "caption_strategy": "textfile",
    "cache_dir_vae": "cache/vae",
}
TEXT = {"id": "b", "type": "local", "dataset_type": "text_embeds", "cache_dir": "cache/text"}


@pytest.fixture(scope="module")
def schema() -> Schema:
    found = shipped("SimpleTuner")
    assert found is not None
    return found


def run_of(written: dict[str, Any] | None = None, *sets: dict[str, Any]) -> Run:
    text = json.dumps(
        {name: value for name, value in {**CONFIG, **(written or {})}.items() if value is not ...}, indent=1
    )
    data = json.dumps([*(sets or [SET]), TEXT], indent=1)
    return read_config("config.json", text.encode(), {}, beside=lambda _: Found("data.json", data.encode())).runs[0]


def test_what_is_obeyed(schema: Schema) -> None:
    written = {
        "lr_scheduler": "constant_with_warmup",
        "lr_warmup_steps": 5,
        "optimizer": "bnb-adamw8bit",
        "base_model_precision": "int8-quanto",
        "mixed_precision": "bf16",
        "seed": 9,
        "train_batch_size": 2,
        "report_to": "comet_ml",
    }
    of_set = {**SET, "resolution": 768, "repeats": 2, "crop": True, "crop_style": "random"}
    run = for_runner(run_of(written, of_set), schema)
    assert (run.recipe.lr_scheduler.name, run.recipe.lr_scheduler.settings) == (
        "constant_with_warmup",
        {"num_warmup_steps": 5},
    )
    assert (
        run.recipe.optimizer.name,
        run.recipe.precision.quantization,
        run.recipe.precision.dtype,
        run.recipe.seed,
    ) == ("adamw8bit", "qint8", "bf16", 9)
    assert (run.recipe.batch_size, run.recipe.datasets[0].repeats, run.recipe.datasets[0].resolutions) == (
        2,
        3,
        (768,),
    )
    assert run.recipe.network.dropout == 0.1  # the trainer's default
    assert (run.recipe.loss.type, run.recipe.timestep_sampling.type, run.recipe.network.alpha) == (
        "mse",
        "drawn",
        4.0,
    )
    assert run.recipe.network.scale == 1.0 and run.recipe.clip_method == "value"
    assert requested_trackers(run) == ["comet_ml"] and run.recipe.logging.run_name == "x"
    (dataset,) = run.recipe.datasets
    assert dataset.random_crop and not dataset.square_crop
    assert dataset.buckets is not None and dataset.buckets.squared and dataset.buckets.height == 768


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"num_train_epochs": 0, "max_train_steps": 0}, "Neither max_train_steps nor num_train_epochs"),
        ({"lora_type": "lycoris"}, "The file that lycoris_config names is not there"),
        ({"lr_scheduler": "cosine_with_restarts"}, "lr_scheduler cosine_with_restarts"),
        ({"resume_from_checkpoint": "checkpoint-500"}, "resume_from_checkpoint"),
        ({"train_text_encoder": True}, "train_text_encoder true"),
        ({"controlnet": True}, "controlnet true"),
        ({"noise_offset": 0.2}, "noise_offset 0.2"),
        ({"snr_gamma": 5}, "snr_gamma 5"),
        ({"flow_use_beta_schedule": True}, "flow_use_beta_schedule"),
        ({"peft_lora_target_modules": ["to_q"]}, "peft_lora_target_modules …"),
        ({"tread_config": {"routes": []}}, "tread_config …"),
        ({"lr_scale": True}, "lr_scale true"),
        ({"minimum_image_size": 512}, "minimum_image_size 512"),
        ({"optimizer_config": "beta1=0.8"}, "optimizer_config"),
    ],
)
def test_what_is_refused(schema: Schema, written: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        for_runner(run_of(written), schema)
    assert said in str(error.value)
    assert "config.json:" in str(error.value)


@pytest.mark.parametrize(
    ("of_set", "said"),
    [
        ({"type": "huggingface"}, "type huggingface"),
        ({"caption_strategy": "parquet"}, "caption_strategy parquet"),
        ({"crop": True, "crop_aspect": "preserve"}, "crop_aspect preserve"),
        ({"crop": True, "crop_style": "face"}, "crop_style face"),
        ({"prepend_instance_prompt": True}, "prepend_instance_prompt true"),
        ({"dataset_type": "conditioning"}, "The conditioning dataset a is not supported"),
        ({"probability": 0.5}, "probability 0.5"),
        ({"caption_shuffle": {"enable": True}}, "caption_shuffle …"),
    ],
)
def test_what_is_refused_of_a_dataset(schema: Schema, of_set: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        for_runner(run_of({}, {**SET, **of_set}), schema)
    assert said in str(error.value)
    assert "data.json:" in str(error.value)


def test_what_has_no_effect_does_not_sound_as_if_it_changed_what_is_learnt(schema: Schema) -> None:
    without = {name for name in schema.sections[""] if _WITHOUT_EFFECT.fullmatch(name)}
    assert learnt_by_name(without) == set()


def learnt_by_name(names: set[str]) -> set[str]:
    """Names that sound as if they changed what is learnt."""
    words = ("lr_", "loss", "noise", "flow", "lora", "optimizer", "snr_g", "target_module", "guidance_value", "crepa")
    drawn = ("validation", "deepfloyd_validation", "ramtorch", "eval_")
    return {name for name in names if any(word in name for word in words) and not name.startswith(drawn)}


def test_values_at_their_default_are_no_setting(schema: Schema) -> None:
    plain = {"flow_schedule_shift": 3, "train_text_encoder": "false", "noise_offset": 0.1, "snr_gamma": None}
    for_runner(run_of({**plain, "minimum_image_size": 0, "flux_fast_schedule": False}), schema)


def test_what_differs_is_said() -> None:
    said = " ".join(differences(run_of()))
    assert all(words in said for words in ("cannot fill", "adamw_bf16"))
    assert "shift" not in said and "norm" not in said


@pytest.mark.parametrize(
    ("of_times", "drawn"),
    [
        ({}, {"density": "logit_normal", "spread": 1.0, "shift": 3.0}),
        ({"flow_schedule_shift": 1.5, "flow_sigmoid_scale": 0.8}, {"spread": 0.8, "shift": 1.5}),
        ({"flow_schedule_shift": 0}, {"shift": 1.0}),
        ({"flow_schedule_auto_shift": True}, {"shift": (256.0, 0.5, 4096.0, 1.15)}),
        ({"flow_use_uniform_schedule": True}, {"density": "uniform", "shift": 3.0}),
    ],
)
def test_noise_levels_follow_the_config(schema: Schema, of_times: dict[str, Any], drawn: dict[str, Any]) -> None:
    made = for_runner(run_of(of_times), schema).recipe.timestep_sampling.density
    assert made is not None and {**vars(made), **drawn} == vars(made)


def test_epochs_are_counted(schema: Schema) -> None:
    run = for_runner(run_of({"max_train_steps": ..., "num_train_epochs": 3}), schema)
    assert (run.recipe.steps, run.recipe.epochs) == (0, 3) and not refuse(run)


def test_the_attention_is_trained(schema: Schema, tiny: Path) -> None:
    model = build_empty_transformer(tiny / "transformer")
    names = lora_targets(model, for_runner(run_of(), schema).recipe.network.excluded)
    assert {name.split(".", 2)[2] for name in names} == {
        f"attention.{one}" for one in ("to_k", "to_q", "to_v", "to_out.0")
    }


@pytest.mark.parametrize(
    ("written", "schedule"),
    [
        ({"lr_scheduler": "constant", "lr_warmup_steps": 5}, {}),
        ({"lr_scheduler": ...}, {"num_warmup_steps": 0}),
        ({"lr_scheduler": "linear", "lr_warmup_steps": 5}, {"num_warmup_steps": 5}),
        ({"lr_scheduler": "polynomial"}, {"num_warmup_steps": 0, "lr_end": 4e-7, "power": 0.8}),
        ({"lr_scheduler": "polynomial", "lr_end": 1e-8, "lr_power": 1}, {"lr_end": 1e-8, "power": 1.0}),
    ],
)
def test_schedules_follow_the_config(schema: Schema, written: dict[str, Any], schedule: dict[str, Any]) -> None:
    run = for_runner(run_of({"learning_rate": 1e-4, **written}), schema)
    assert run.recipe.lr_scheduler.name == run_of(written).recipe.lr_scheduler.name and not refuse(run)
    assert {**run.recipe.lr_scheduler.settings, **schedule} == run.recipe.lr_scheduler.settings


def test_alpha_and_clipping_follow_the_config(schema: Schema) -> None:
    run = for_runner(run_of({"lora_alpha": 1, "grad_clip_method": "norm", "max_grad_norm": 0.5}), schema)
    assert run.recipe.network.scale == 0.25
    assert (run.recipe.clip_method, run.recipe.max_grad_norm) == ("norm", 0.5)
    assert for_runner(run_of({"optimizer": "prodigy"}), schema).recipe.max_grad_norm == 0.0


def test_other_trainers_are_sent_to_themselves(schema: Schema) -> None:
    with pytest.raises(UserError, match="takes configs of ai-toolkit, musubi-tuner, sd-scripts and SimpleTuner"):
        for_runner(replace(run_of(), trainer="OneTrainer"), schema)
    with pytest.raises(UserError, match="not known"):
        for_runner(run_of(), Unknown("no table"))


def test_a_simpletuner_config_is_trained(
    tiny: Path, circles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {
        **CONFIG,
        "pretrained_model_name_or_path": str(tiny),
        "output_dir": str(tmp_path / "output" / "lantern"),
        "max_train_steps": 2,
        "train_batch_size": 1,
        "base_model_precision": "int8-sdnq",
        "use_dora": True,
        "seed": 3,
    }
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.json").write_text(json.dumps(config))
    data = {**SET, "instance_data_dir": str(circles), "resolution": 128}
    (tmp_path / "config" / "data.json").write_text(json.dumps([data, TEXT]))
    monkeypatch.setenv("ZDOCTOR_CACHE", str(tmp_path / "cache"))
    result = train(str(tmp_path / "config" / "config.json"))
    assert (result.stopped, result.steps) == ("finished", 2)
    assert Path(result.lora) == tmp_path / "output" / "lantern" / "lantern.safetensors"
