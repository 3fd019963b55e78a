"""CFG004: values that ai-toolkit refuses late or replaces, and those that look so and are sound."""

from typing import Any, cast

import pytest
import torch
import yaml

from zdoctor.tests.checks.config_cases import KAGGLE, changed, examined

VALUES = [
    ("optimizer", '"adamw8bits"', "train/optimizer", "adamw8bit"),
    ("timestep_type", '"sigmod"', "train/timestep_type", "sigmoid"),
    ("content_or_style", '"balance"', "train/content_or_style", "balanced"),
    ("lr", '"1e-4"', "train/lr", 1e-4),
    ("steps", '"2000"', "train/steps", 2000),
    ("batch_size", '"2.0"', "train/batch_size", 2),
    ("steps", "null", "train/steps", None),
    ("lr", "~", "train/lr", None),
    ("batch_size", "null", "train/batch_size", None),
    ("gradient_accumulation", "null", "train/gradient_accumulation", None),
    ("caption_dropout_rate", "null", "datasets/0/caption_dropout_rate", None),
    ("caption_dropout_rate", "0.1\n          num_repeats: ", "datasets/0/num_repeats", None),
    ("resolution", "null", "datasets/0/resolution", None),
    ("max_step_saves_to_keep", "null", "save/max_step_saves_to_keep", None),
    ("lr", "1.0e-4\n        max_grad_norm: ", "train/max_grad_norm", None),
    ("linear", "'32'", "network/linear", 32),
    ("linear", "0", "network/linear", None),
    ("linear", "16.5", "network/linear", None),
    ("linear", "16.0", "network/linear", 16),
    ("gradient_accumulation", "1.5", "train/gradient_accumulation", None),
    ("max_step_saves_to_keep", "4.0", "save/max_step_saves_to_keep", 4),
    ("sample_steps", "20.5", "sample/sample_steps", None),
    ("save_format", '"safetensor"', "save/save_format", "safetensors"),
    ("arch", '"z-image"', "model/arch", "zimage"),
    ("arch", '"zimage-turbo"', "model/arch", "zimage:turbo"),
    ("arch", '"Z_Image:turbo"', "model/arch", "zimage:turbo"),
    ("arch", '"wan22_14b_t2v"', "model/arch", "wan22_14b:t2v"),
    ("lr", "0.0001\n        lr_scheduler: step", "train/lr_scheduler", None),
    ("lr", "0.0001\n        lr_scheduler: polynomial", "train/lr_scheduler", None),
    ("lr", "0.0001\n        lr_scheduler: cosin", "train/lr_scheduler", "cosine"),
    ("training_folder", "", "training_folder", None),
    ("name_or_path", "", "model/name_or_path", None),
    ("gradient_accumulation", "2\n        gradient_accumulation_steps: 2", "train/gradient_accumulation_steps", None),
    ("train_text_encoder", "true", "train/train_text_encoder", None),
    ("qtype", '"uint3|a/b/c.safetensors"', "model/assistant_lora_path", None),
    ("resolution", '["768", 1024]', "datasets/0/resolution", [768, 1024]),
    ("push_to_hub", "true", "save/push_to_hub", None),
    ("low_vram", "true\n        attn_masking: true", "model/attn_masking", None),
    ("arch", '"flex2"', "model/assistant_lora_path", None),
]


@pytest.mark.parametrize(("key", "value", "where", "new"), VALUES)
def test_invalid_values(key: str, value: str, where: str, new: Any) -> None:
    findings = [f for f in examined(changed(key, value), "CFG004") if f.severity == "error"]
    assert [f.args["key"] for f in findings] == [where]
    assert repr(findings[0].evidence.get("new")) == repr(new)  # 2 is not 2.0


@pytest.mark.parametrize(("key", "where"), [("caption_dropout_rate", "datasets/0/"), ("seed", "sample/")])
def test_a_word_for_a_number_may_be_one_that_a_fork_knows(key: str, where: str) -> None:
    """A fork takes "auto" for a share of layers; the checkout at hand tells (test_certain_words.py)."""
    text = changed(key, "many")
    (finding,) = [f for f in examined(text, "CFG004") if f.args.get("key") == where + key]
    assert finding.severity == "warning" and "unless yours is a fork" in finding.consequence()
    assert [f.severity for f in examined(text, "CFG004", own=True) if f.args.get("key") == where + key] == ["error"]


def test_samples_of_kontext_edit_an_image() -> None:
    text = changed("arch", '"flux_kontext"')
    findings = [f for f in examined(text, "CFG004") if f.severity == "error"]
    assert {f.args["key"] for f in findings} == {"model/assistant_lora_path", "sample/samples"}
    assert "edit an image" in next(f.text() for f in findings if f.args["key"] == "sample/samples")
    edited = text.replace("prompt: ", "ctrl_img: /c/a.png\n            prompt: ")
    assert edited != text
    assert [f.args["key"] for f in examined(edited, "CFG004")] == ["model/assistant_lora_path"]


def test_samples_of_wan_i2v_start_from_an_image() -> None:
    """toolkit/models/wan21/wan21_i2v.py: "I2V samples must have a control image"; Wan 2.2 starts without one."""

    def keys(arch: str, more: str = "") -> list[str]:
        text = changed("arch", f'"{arch}"').replace("prompt: ", f"{more}prompt: ")
        return [f.args["key"] for f in examined(text, "CFG004") if "ctrl_img" in f.text()]

    assert keys("wan21_i2v:14b") == ["sample/samples"]
    assert keys("wan21_i2v:14b", "ctrl_img: /c/a.png\n            ") == []
    assert keys("wan21:14b") == keys("wan22_14b_i2v") == []


def test_a_job_of_the_interface_is_told_from_one_of_run_py() -> None:
    """extensions_built_in/sd_trainer/UITrainer.py: "AITK_JOB_ID not set"."""
    text = changed("type", "ui_trainer")
    (finding,) = [f for f in examined(text, "CFG004") if "ui_trainer" in f.text()]
    assert finding.severity == "warning" and "AITK_JOB_ID" in finding.consequence()
    assert not [f for f in examined(changed("type", "diffusion_trainer"), "CFG004") if "ui_trainer" in f.text()]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("loss_type", '"huber"'),
        ("train_unet", '"false"'),
        ("lr", "0.0001\n        lr_scheduler: linear"),
        ("lr", "0.0001\n        lr_scheduler: constant_with_warmup"),
        ("arch", '"brand_new_model"'),
        ("noise_scheduler", '"flow_match"'),
    ],
)
def test_silently_replaced_values(key: str, value: str) -> None:
    findings = examined(changed(key, value), "CFG004")
    assert [f.severity for f in findings] == ["warning"]


def test_a_word_that_waits_behind_another_slip_is_said_too() -> None:
    """The trainer looks at timestep_type only where noise_scheduler is flowmatch to the letter."""
    text = changed("timestep_type", "wieghted", changed("noise_scheduler", "flowmatchx"))
    findings = examined(text, "CFG004")
    assert [(f.severity, f.args["key"]) for f in findings] == [
        ("warning", "train/noise_scheduler"),
        ("warning", "train/timestep_type"),
    ]
    assert "with flowmatch the run stops" in findings[1].consequence()
    assert [f.severity for f in examined(text.replace("flowmatchx", "flowmatch"), "CFG004")] == ["error"]


def repeated(value: object) -> list[str]:
    """A list of pictures as ai-toolkit's data loader repeats it."""
    files: Any = ["a.png"]
    number: Any = value
    return list(files * number if number > 1 else files)


@pytest.mark.parametrize(
    ("value", "severity", "of_runner", "new"),
    [
        (3, None, None, None),
        (1.0, None, None, None),
        (True, None, None, None),
        (2.0, "error", None, 2),
        (2.5, "error", "error", None),
        (float("inf"), "error", "error", None),
        (0, "warning", "warning", None),
        (-3, "warning", "warning", None),
        (0.5, "warning", "warning", None),
    ],
)
def test_repeats(value: float, severity: str | None, of_runner: str | None, new: int | None) -> None:
    text = changed("caption_ext", f"txt\n          num_repeats: {yaml.safe_dump(value).split()[0]}")
    found = examined(text, "CFG004")
    assert [f.severity for f in found] == ([severity] if severity else [])
    assert [f.severity for f in examined(text, "CFG004", own=True)] == ([of_runner] if of_runner else [])
    assert all(f.where is not None and f.evidence.get("new") == new for f in found)
    if severity == "error":
        with pytest.raises(TypeError):
            repeated(value)
    elif severity is not None:
        assert repeated(value) == ["a.png"]
        (finding,) = examined(text, "CFG004", own=True)
        assert "does not start" not in finding.consequence()


@pytest.mark.parametrize("key", ["batch_size", "gradient_accumulation"])
@pytest.mark.parametrize(("value", "new", "of_runner"), [(2.5, None, True), (2.0, 2, False), (2, 2, False)])
def test_counts_with_a_point(key: str, value: float, new: int | None, of_runner: bool) -> None:
    """Both are given to Python's range."""
    text = changed(key, str(value))
    found = examined(text, "CFG004")
    assert bool(examined(text, "CFG004", own=True)) is of_runner
    if isinstance(value, float):
        with pytest.raises(TypeError):
            range(0, 4, cast(int, value))
        assert [finding.evidence.get("new") for finding in found] == [new]
    else:
        assert not found


@pytest.mark.parametrize(("value", "new"), [("'2'", 2), ("'2.0'", 2), ("'2.5'", None), ("'a'", None)])
def test_repeats_in_quotes_are_cured_in_one_step_or_not_at_all(value: str, new: int | None) -> None:
    text = changed("caption_ext", f"txt\n          num_repeats: {value}")
    (finding,) = examined(text, "CFG004")
    assert finding.evidence.get("new") == new
    if new is not None:
        assert not examined(changed("num_repeats", str(new), text), "CFG004")


def split_by_size(datasets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """preprocess_dataset_raw_config: what is left of the datasets."""
    return [{**one, "resolution": size} for one in datasets for size in one["resolution"]]


@pytest.mark.parametrize(
    ("more", "severity", "of_runner"),
    [("", "error", "error"), ("\n        - folder_path: other\n          resolution: [512]", "warning", "error")],
)
def test_a_list_of_no_sizes_leaves_the_dataset_out(more: str, severity: str, of_runner: str) -> None:
    text = changed("resolution", "[]" + more)
    assert split_by_size([{"resolution": []}]) == []
    assert [f.severity for f in examined(text, "CFG004")] == [severity]
    assert [f.severity for f in examined(text, "CFG004", own=True)] == [of_runner]
    assert not examined(text.replace("resolution: []", "resolution: [768]"), "CFG004")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("optimizer", '"AdamW8bit"'),
        ("optimizer", '"prodigy"'),
        ("timestep_type", '"weighted"'),
        ("lr", "1e-4"),
        ("lr", "1.5E-4"),
        ("caption_dropout_rate", '"0.05"'),
        ("seed", '"42"'),
        ("linear", "16.5\n        type: LoKr"),
        ("arch", '"flux"'),
        ("arch", '"flex1"'),
        ("loss_type", '"mae"'),
        ("qtype", '"qint4"'),
        ("lr", "1e-4\n        lr_scheduler: cosine"),
        (
            "lr",
            "1e-4\n        lr_scheduler: constant_with_warmup\n        lr_scheduler_params: {num_warmup_steps: 10}",
        ),
        ("dtype", '"bfloat16"'),
        ("save_every", "null"),
        ("sample_every", "null"),
        ("linear", "null"),
        ("max_step_saves_to_keep", "null\n        save_every: 2000"),
        ("max_step_saves_to_keep", "null\n        save_every: null"),
        ("optimizer", "adafactor\n        max_grad_norm: null"),
    ],
)
def test_sound_values(key: str, value: str) -> None:
    assert not examined(changed(key, value), "CFG004")


def test_the_real_libraries_refuse_them() -> None:
    """torch refuses what CFG004 reports, and takes what it does not."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([parameter], lr=1e-4)
    empty: Any = None
    with pytest.raises(TypeError):
        torch.optim.AdamW([parameter], lr=float(empty))
    with pytest.raises(TypeError):
        range(empty)
    with pytest.raises(TypeError):
        torch.nn.utils.clip_grad_norm_([parameter], empty)
    with pytest.raises(TypeError):
        ["a", "b"][:-empty]
    with pytest.raises(TypeError, match="total_iters"):
        torch.optim.lr_scheduler.StepLR(optimizer, total_iters=10)  # type: ignore[call-arg]
    torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0, total_iters=10)
    rising = torch.optim.lr_scheduler.LinearLR(torch.optim.AdamW([parameter], lr=1.0), total_iters=10)
    first = rising.get_last_lr()[0]
    for _ in range(10):
        rising.optimizer.step()
        rising.step()
    assert rising.get_last_lr()[0] > first
    quoted = yaml.safe_load('lr: "1e-4"')["lr"]
    with pytest.raises(TypeError):
        torch.optim.lr_scheduler.ConstantLR(torch.optim.AdamW([parameter], lr=quoted), factor=1.0)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("'false'", "Write false without quotes"),
        ("flase", "Write true or false without quotes"),
        ("ture", "Write true or false without quotes"),
        ("'true'", ""),
        ("yes", ""),
        ("false", ""),
    ],
)
def test_any_text_is_true(written: str, said: str) -> None:
    """What PyYAML makes of the word is text, which Python takes for true, whatever is meant."""
    loaded = yaml.safe_load(f"quantize: {written}")["quantize"]
    assert isinstance(loaded, bool) is (written in ("yes", "false"))
    found = examined(changed("quantize", written), "CFG004")
    assert [(finding.severity, said in finding.text()) for finding in found] == ([("warning", True)] if said else [])


@pytest.mark.parametrize(("steps", "said"), [(2000, True), (0, False)])
def test_who_only_samples_needs_no_dataset(steps: int, said: bool) -> None:
    """With steps: 0 the trainer makes no loader, and its loop is empty."""
    tree = yaml.safe_load(KAGGLE)
    process = tree["config"]["process"][0]
    process["datasets"], process["train"]["steps"] = [], steps
    texts = [finding.text() for finding in examined(yaml.safe_dump(tree), "CFG004")]
    assert any("names no dataset" in text for text in texts) is said
