"""CFG001, CFG002 and CFG003: sick configs, healthy twins, the trainer's own examples, and misspelt keys."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zdoctor.doctor.trainers.read import read_config
from zdoctor.tests.checks.config_cases import CORPUS, KAGGLE, LINUX, T4, changed, examined, parses, seed
from zdoctor.tests.checks.mutations import Score, judge, slips


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
    assert [(f.severity, f.evidence["key"]) for f in findings] == [(severity, new.strip(" :"))]
    if nearest is not None:
        assert findings[0].evidence["nearest"] == nearest
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


@pytest.mark.parametrize(
    ("rate", "optimizer", "warned"),
    [
        ("5", "adamw8bit", True),
        ("0.1", "Lion", True),
        ("0.002", "adamw", False),
        ("1.0", "prodigy", False),
        ("1", "prodigy8bit", False),
        ("1.0", "dadaptationlion", False),
        ("0.5", "adafactor", False),
        ("0.5", "automagic", False),
    ],
)
def test_a_learning_rate_far_too_large_is_a_warning(rate: str, optimizer: str, warned: bool) -> None:
    text = changed("lr", rate, changed("optimizer", f'"{optimizer}"'))
    assert ("TRN015" in {f.rule for f in examined(text, "TRN")}) is warned


@pytest.mark.parametrize(("rate", "learns"), [(5.0, False), (1e-3, True)])
def test_such_a_rate_throws_a_model_off(rate: float, learns: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    base, wanted = (torch.randn(64, 64, generator=generator) / 50 for _ in range(2))
    x = torch.randn(256, 64, generator=generator)
    a = torch.nn.Parameter(torch.randn(8, 64, generator=generator) / 8)
    b = torch.nn.Parameter(torch.zeros(64, 8))
    optimizer = torch.optim.AdamW([a, b], lr=rate)
    losses = []
    for _ in range(20):
        loss = (x @ (base + b @ a - wanted).T).square().mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    assert (losses[-1] < losses[0]) is learns and (losses[1] > 1000 * losses[0]) is not learns


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
