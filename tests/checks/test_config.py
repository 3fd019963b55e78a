"""CFG001, CFG002, CFG003 and CFG004: sick configs, healthy twins, the trainer's own examples, and misspelt keys."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from zdoctor.doctor.configs import read_config
from zdoctor.tests.checks.config_cases import CORPUS, KAGGLE, LINUX, T4, examined, parses, seed
from zdoctor.tests.checks.mutations import Score, judge, slips


def changed(key: str, value: str, text: str = KAGGLE) -> str:
    """The Kaggle config with the first `key:` line set to another value, or, with "", taken out."""
    line = re.search(rf"^([ -]*){re.escape(key)}:.*\n", text, re.M)
    assert line is not None, key
    new = f"{line.group(1)}{key}: {value}\n" if value else ""
    return text[: line.start()] + new + text[line.end() :]


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, []),  # CUDA counts one of the two first, and nobody knows which
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ["Tesla T4"]),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}, ["Tesla T4"]),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}, []),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_bf16_is_asked_of_the_card_that_the_run_takes(environment: dict[str, str], found: list[str]) -> None:
    l4 = replace(T4, index=1, name="NVIDIA L4", capability=(8, 9))
    findings = examined(KAGGLE, "TRN002", gpus=[T4, l4], system=replace(LINUX, environment=environment))
    assert [finding.args["card"] for finding in findings] == found


@pytest.mark.parametrize("source", ["seed", "twin"])
def test_what_the_kaggle_config_hides(source: str) -> None:
    text = seed() if source == "seed" else KAGGLE
    if text is None:
        pytest.skip("the field notes are absent")
    findings = examined(text, "CFG", "TRN", "PTH002", gpus=[T4])
    said = {(f.rule, f.severity, f.args.get("key")) for f in findings}
    assert ("CFG003", "warning", "model/model_kwargs") in said
    assert ("CFG003", "warning", "train/do_differential_guidance") in said
    assert {f.rule for f in findings if f.rule.startswith("TRN")} == {"TRN001", "TRN002"}
    notes = [f for f in findings if f.severity == "note"]
    texts = " ".join(f.text() for f in notes)
    for words in ("low_vram has nothing to do with meta", "replaces qtype qfloat8 by float8"):
        assert words in texts
    inert = next(f.evidence["keys"] for f in notes if "keys" in f.evidence)
    assert set(inert) >= {
        "device", "sqlite_db_path", "train/bypass_guidance_embedding", "train/switch_boundary_every",
        "network/lokr_full_rank", "network/lokr_factor", "network/conv", "network/conv_alpha",
        "datasets/0/num_frames", "datasets/0/shrink_video_to_frames", "sample/num_frames",
    }  # fmt: skip
    assert not [f for f in findings if f.severity == "error" or f.rule in ("CFG001", "CFG002", "CFG004", "PTH002")]


@pytest.mark.parametrize("path", sorted(CORPUS.rglob("*.y*ml")) or [None], ids=lambda p: p.name if p else "absent")
def test_corpus_is_not_called_wrong(path: Path | None) -> None:
    if path is None:
        pytest.skip(f"the corpus is not at {CORPUS}")
    findings = examined(path.read_bytes(), "CFG", "PTH002", "TRN", path=path.name)
    errors = [f for f in findings if f.severity == "error"]
    if "omnigen2" in path.name:
        assert [(f.rule, f.where and f.where.line) for f in errors] == [("CFG001", 64)]
        return
    assert not errors
    assert not [f for f in findings if f.rule == "CFG002"]
    recovery = [f for f in findings if f.rule == "CFG004"]
    assert bool(recovery) == (path.name == "train_lora_qwen_image_edit_32gb.yaml")


@pytest.mark.parametrize(
    ("sick", "line", "words", "cured"),
    [
        ('a: "x\nb: "y"\n', 1, "quote", 'a: "x"\nb: "y"\n'),
        ("a:\n\tb: 1\n", 2, "tabs", "a:\n  b: 1\n"),
        ("a: b: c\n", 1, "second ':'", 'a: "b: c"\n'),
        ("a: @b\n", 1, "quotes", 'a: "@b"\n'),
        ('a: "C:\\Zed"\n', 1, "backslash", "a: 'C:\\Zed'\n"),
        ("a: [1, 2\nb: 3\n", 2, "bracket", "a: [1, 2]\nb: 3\n"),
        ("a: *b\n", 1, "quotes", 'a: "*b"\n'),
        ('a: "\\UFFFFFFFF"\n', 1, "backslash", "a: '\\UFFFFFFFF'\n"),
    ],
)
def test_unparsable(sick: str, line: int, words: str, cured: str) -> None:
    assert not parses(sick)
    assert parses(cured)
    (finding,) = examined("# first\n" + sick, "CFG001")
    assert finding.severity == "error"
    assert finding.where is not None and finding.where.line == line + 1
    assert words in finding.text()
    problem = examined("# first\n" + cured, "CFG001")
    assert all(f.evidence["kind"] == "foreign" for f in problem)


def test_sound_config_parses() -> None:
    assert not examined(KAGGLE, "CFG001", "CFG002", "CFG004")


@pytest.mark.parametrize(("trainer", "pattern"), [("ai-toolkit", "*.y*ml"), ("simpletuner", "config.json")])
def test_misspelt_keys_and_choices_are_caught(trainer: str, pattern: str) -> None:
    """Each name once; benchmarks/mutations.py misspells every one in every file in every way."""
    paths = sorted((CORPUS.parent / trainer).rglob(pattern))
    if not paths:
        pytest.skip(f"the corpus is not at {CORPUS.parent}")
    keys, values = Score(), Score()
    seen: set[tuple[str, str]] = set()
    for path in paths:
        for slip in slips(path, (), keys, seen):
            judge(slip, keys if slip.what == "key" else values)
    for score in (keys, values):
        print(score, *score.missed, sep="\n")
        assert score.tried > 30
        assert score.caught / score.tried >= 0.99
        assert score.right / score.caught >= 0.97


@pytest.mark.parametrize(
    ("old", "new", "nearest", "severity"),
    [
        ("      network:", "      netwrok:", "network", "error"),
        ("      train:", "      training:", "train", "error"),
        ("        steps:", "        max_train_steps:", None, "warning"),
        ("        quantize:", "        quantise:", "quantize", "warning"),
        ("      trigger_word:", "      lr:", "lr", "warning"),
    ],
)
def test_unknown_key(old: str, new: str, nearest: str | None, severity: str) -> None:
    findings = examined(KAGGLE.replace(old, new, 1), "CFG002")
    assert [(f.severity, f.args["key"]) for f in findings] == [(severity, new.strip(" :"))]
    if nearest is not None:
        assert findings[0].args["nearest"] == nearest
    where = findings[0].where
    assert where is not None and where.line is not None and where.column is not None
    assert (KAGGLE.replace(old, new, 1).splitlines()[where.line - 1][where.column - 1 :]).startswith(new.strip(" :"))


@pytest.mark.parametrize(
    "healthy",
    [
        KAGGLE.replace("          weight_decay:", "          my_own_setting:"),
        KAGGLE.replace("          low_cpu_mem_usage:", "          anything:"),
        KAGGLE.replace("meta:", "x-anchors: &a {b: 1}\nmeta:"),
        KAGGLE.replace('  version: "1.0"', "  author: me"),
    ],
)
def test_free_keys_are_free(healthy: str) -> None:
    assert healthy != KAGGLE
    assert not examined(healthy, "CFG002")


@pytest.mark.parametrize(
    ("sick", "key"),
    [
        (changed("linear_alpha", "16"), "network/linear_alpha"),
        (changed("noise_scheduler", '"ddpm"'), "train/timestep_type"),
        (changed("lr", "0.0001\n        unet_lr: 0.001"), "train/unet_lr"),
        (changed("low_vram", 'false\n        vae_path: "/x"'), "model/vae_path"),
        (changed("device", '"cuda:1"'), "device"),
        (changed("optimizer", '"prodigy"'), "train/lr"),
        (changed("train_text_encoder", "true"), "train/train_text_encoder"),
    ],
)
def test_inert(sick: str, key: str) -> None:
    before = {f.args.get("key") for f in examined(KAGGLE, "CFG003")}
    after = {f.args.get("key") for f in examined(sick, "CFG003") if f.severity == "warning"}
    assert key not in before
    assert key in after


@pytest.mark.parametrize(("architecture", "inert"), [("flux", True), ("flux_kontext", True), ("zimage", False)])
def test_offloading_is_nothing_to_the_loader_of_flux(architecture: str, inert: bool) -> None:
    text = changed("layer_offloading", "true", changed("arch", architecture))
    said = {f.args.get("key"): f.text() for f in examined(text, "CFG003")}
    assert ("model/layer_offloading" in said) is inert
    assert not inert or "all weights lie on the card" in said["model/layer_offloading"]


def test_inert_settings_wake_up() -> None:
    awake = changed("do_differential_guidance", "true\n        do_guidance_loss: true")
    awake = awake.replace("        model_kwargs:\n          low_cpu_mem_usage: false\n", "")
    keys = {f.args.get("key") for f in examined(awake, "CFG003")}
    assert keys.isdisjoint({"train/do_differential_guidance", "model/model_kwargs"})


VALUES = [
    ("optimizer", '"adamw8bits"', "train/optimizer", "adamw8bit"),
    ("optimizer", '"sgd"', "train/optimizer", None),
    ("timestep_type", '"sigmod"', "train/timestep_type", "sigmoid"),
    ("content_or_style", '"balance"', "train/content_or_style", "balanced"),
    ("lr", '"1e-4"', "train/lr", 1e-4),
    ("steps", '"2000"', "train/steps", 2000),
    ("steps", "null", "train/steps", None),
    ("lr", "~", "train/lr", None),
    ("batch_size", "null", "train/batch_size", None),
    ("gradient_accumulation", "null", "train/gradient_accumulation", None),
    ("caption_dropout_rate", "null", "datasets/0/caption_dropout_rate", None),
    ("caption_dropout_rate", "0.1\n          num_repeats: ", "datasets/0/num_repeats", None),
    ("resolution", "null", "datasets/0/resolution", None),
    ("linear", "'32'", "network/linear", 32),
    ("linear", "0", "network/linear", None),
    ("save_format", '"safetensor"', "save/save_format", "safetensors"),
    ("arch", '"z-image"', "model/arch", "zimage"),
    ("arch", '"zimage-turbo"', "model/arch", "zimage:turbo"),
    ("arch", '"Z_Image:turbo"', "model/arch", "zimage:turbo"),
    ("qtype", '"nf4"', "model/qtype", None),
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
    assert findings[0].evidence.get("new") == new


def test_samples_of_kontext_edit_an_image() -> None:
    text = changed("arch", '"flux_kontext"')
    findings = [f for f in examined(text, "CFG004") if f.severity == "error"]
    assert {f.args["key"] for f in findings} == {"model/assistant_lora_path", "sample/samples"}
    assert "edit an image" in next(f.text() for f in findings if f.args["key"] == "sample/samples")
    edited = text.replace("prompt: ", "ctrl_img: /c/a.png\n            prompt: ")
    assert edited != text
    assert [f.args["key"] for f in examined(edited, "CFG004")] == ["model/assistant_lora_path"]


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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("optimizer", '"AdamW8bit"'),
        ("optimizer", '"prodigy"'),
        ("timestep_type", '"weighted"'),
        ("lr", "1e-4"),
        ("lr", "1.5E-4"),
        ("caption_dropout_rate", '"0.05"'),
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
        range(0, empty)
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
    ("text", "rule", "severity"),
    [
        (
            changed("dtype", '"fp16"', KAGGLE.replace('dtype: "bf16"\n        save_every', "save_every")),
            "TRN003",
            "error",
        ),
        (changed("assistant_lora_path", ""), "TRN004", "warning"),
        (changed("guidance_scale", "4"), "TRN005", "warning"),
        (
            changed("unload_text_encoder", "true", changed("cache_text_embeddings", "false")),
            "TRN006",
            "warning",
        ),
    ],
)
def test_training_sense(text: str, rule: str, severity: str) -> None:
    assert (rule, severity) in {(f.rule, f.severity) for f in examined(text, "TRN")}
    assert rule not in {f.rule for f in examined(KAGGLE, "TRN")}


def test_float16_overflows_where_bfloat16_does_not() -> None:
    large = torch.tensor(70_000.0)
    assert torch.isinf(large.to(torch.float16)) and torch.isfinite(large.to(torch.bfloat16))


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_no_damage_makes_a_rule_crash(data: st.DataObject) -> None:
    """Characters are put in, cut out and swapped; reading and every config rule still answer."""
    text = KAGGLE
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        length = data.draw(st.sampled_from([0, 1, 2, 30]))
        put = data.draw(
            st.sampled_from(
                ['"', "'", "\\", ":", "\n", "\t", "- ", "{", "[", "&a ", "*a", "!!int ", "|", "#", "0", ""]
            )
        )
        text = text[:at] + put + text[at + length :]
    examined(text, "CFG", "PTH002", "TRN")


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_make_a_rule_crash(data: bytes) -> None:
    for path in ("c.yaml", "c.json"):
        examined(data, "CFG", "PTH002", path=path)


@pytest.mark.parametrize(
    "value", ["null", "[]", "{}", "5", "x", "'5'", "true", "[1, a]", "{a: 1}", "-1", "1e400", ".nan"]
)
def test_no_type_makes_a_rule_crash(value: str) -> None:
    """Each key in turn gets a value of another type."""
    config = read_config("c.yaml", KAGGLE.encode(), {}).config
    for pointer, written in list(config.values.items())[::3]:
        if pointer.count("/") > 3 and not isinstance(written.value, dict | list):
            examined(KAGGLE[: written.start] + value + KAGGLE[written.end :], "CFG", "TRN")
