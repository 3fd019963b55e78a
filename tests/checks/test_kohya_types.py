"""Types in a dataset file, as the trainers' voluptuous schemas take them (sd-scripts 48d368fa, musubi 30c658c4)."""

from __future__ import annotations

import argparse
import ast
import shlex
from pathlib import Path

import pytest

from zdoctor.doctor.configs.edit import apply_edits
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.model import SetValue
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.rules import all_rules
from zdoctor.tests.doctor.schema.checkouts import SD_SCRIPTS as FORK
from zdoctor.tests.doctor.schema.checkouts import checkout

RULES = [rule for rule in all_rules() if rule.id == "KOH015"]
SD_SCRIPTS = '[[datasets]]\nresolution = 512\n[[datasets.subsets]]\nimage_dir = "x"\n'
INLINE = '[[datasets]]\nresolution = 512\nsubsets = [{image_dir = "x"}]\n'
MUSUBI = '[general]\nresolution = 512\n[[datasets]]\nvideo_directory = "x"\n'
# (the file, a line of it, what it is cured to: "" where it is taken, None where that is not certain)
TYPES: list[tuple[str, str, str | None]] = [
    (MUSUBI, "source_fps = 24", "source_fps = 24.0"),
    (MUSUBI, "source_fps = 24.0", ""),
    (MUSUBI, "max_frames = 33", ""),
    (MUSUBI, "max_frames = 33.0", "max_frames = 33"),
    (MUSUBI, 'max_frames = "33"', "max_frames = 33"),
    (MUSUBI, "target_frames = [1, 25]", ""),
    (MUSUBI, "target_frames = 25", None),
    (MUSUBI, "enable_bucket = 1", "enable_bucket = true"),
    (MUSUBI, "enable_bucket = 2", None),
    (MUSUBI, "num_repeats = true", ""),
    (MUSUBI, "resolution = [960, 544]", ""),
    (MUSUBI, "resolution = [960]", None),
    (MUSUBI, 'resolution = "960"', "resolution = 960"),
    (MUSUBI, "resolution = 960.0", "resolution = 960"),
    (MUSUBI, "frame_extraction = 5", 'frame_extraction = "5"'),
    (SD_SCRIPTS, "class_tokens = 2024", 'class_tokens = "2024"'),
    (SD_SCRIPTS, "caption_dropout_rate = 0", ""),
    (SD_SCRIPTS, 'caption_dropout_rate = "0.1"', "caption_dropout_rate = 0.1"),
    (SD_SCRIPTS, "is_reg = 0", "is_reg = false"),
    (SD_SCRIPTS, "custom_attributes = {}", ""),
    (INLINE, "network_multiplier = 1", "network_multiplier = 1.0"),
    (INLINE, "validation_split = 0.1", ""),
]


@pytest.mark.parametrize(("around", "line", "cure"), TYPES)
def test_types_in_a_dataset_file(tmp_path: Path, around: str, line: str, cure: str | None) -> None:
    around = around.replace("resolution = 512\n", "") if line.startswith("resolution") else around
    text = f"{around}{line}\n"
    report = examine_config(str(tmp_path / "data.toml"), LiveWorld(), RULES, text.encode()).report
    assert not report.crashed and len(report.findings) == (cure != "")
    for finding in report.findings:
        assert finding.text() and finding.consequence()
        steps = [step for fix in finding.fixes for step in fix.steps if isinstance(step, SetValue)]
        assert (apply_edits(text, steps) == text.replace(line, cure)) if cure else not steps


# argparse: expected one argument
@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--save_every_n_epochs", True),
        ("--save_every_n_epoch", True),
        ("--save_every_n_epochs 2", False),
        ("--optimizer_args", False),
        ("--sdpa", False),
    ],
)
def test_an_option_without_its_value(tmp_path: Path, option: str, said: bool) -> None:
    start = f"accelerate launch flux_train_network.py {option} --output_dir x\n".encode()
    report = examine_config(str(tmp_path / "train.sh"), LiveWorld(), RULES, start).report
    assert [f.rule for f in report.errors] == ["KOH015"] * said


# each was given to the trainers' own ConfigSanitizer: (the file, what it begins to say, None where it is taken)
SHAPES: list[tuple[str, str | None]] = [
    (SD_SCRIPTS, None),
    (INLINE, None),
    (MUSUBI, None),
    (SD_SCRIPTS.replace("[[datasets]]", "[datasets]", 1), "resolution stands in a table"),
    (SD_SCRIPTS.replace("[[datasets.subsets]]", "[datasets.subsets]"), "image_dir stands in a table"),
    ('[[datasets.subsets]]\nimage_dir = "x"\n', "subsets stands in a table"),
    (MUSUBI.replace("[general]", "[[general]]"), "general is a list"),
]


@pytest.mark.parametrize(("text", "said"), SHAPES)
def test_the_shape_of_a_dataset_file(tmp_path: Path, text: str, said: str | None) -> None:
    rules = [rule for rule in all_rules() if rule.id == "KOH019"]
    report = examine_config(str(tmp_path / "data.toml"), LiveWorld(), rules, text.encode()).report
    assert not report.crashed and [f.text().startswith(said or "-") for f in report.findings] == [True] * bool(said)


def test_what_stands_beside_the_datasets_is_no_option(tmp_path: Path) -> None:
    """extra keys not allowed @ data['resolution']; the run keeps its own resolution."""
    (tmp_path / "data.toml").write_text("resolution = 512\nseed = 1\n" + SD_SCRIPTS, encoding="utf-8")
    start = b"accelerate launch flux_train_network.py --dataset_config data.toml --resolution 768 --output_dir x\n"
    rules = [rule for rule in all_rules() if rule.id == "KOH019"]
    seen = examine_config(str(tmp_path / "train.sh"), LiveWorld(), rules, start)
    assert [f.text().partition(" ")[0] for f in seen.report.findings] == ["resolution", "seed"]
    (run,) = seen.reading.runs
    assert run.setting("resolution") == "768" and run.setting("seed") is None


def test_a_file_of_a_fork_may_hold_more_than_datasets(tmp_path: Path) -> None:
    """A fork's own reader takes what it looks for out before the schema looks; nobody else reads a strange word."""
    rules = [rule for rule in all_rules() if rule.id == "KOH019"]
    root = checkout(tmp_path / "any-name", {**FORK, "library/staging.py": 'STEPS = {"staging": 1}\n'})
    (root / "data.toml").write_text("staging = 1\nseed = 1\nbatch_size = 1\n" + SD_SCRIPTS, encoding="utf-8")
    start = f"accelerate launch {root.as_posix()}/flux_train_network.py --dataset_config {root.as_posix()}/data.toml "

    def told(file: Path, text: str) -> dict[str, str | None]:
        found = examine_config(str(file), LiveWorld(), rules, text.encode()).report.findings
        return {one.text().partition(" ")[0]: one.severity for one in found}

    named = told(root / "train.sh", start + "--output_dir x\n")
    assert named == {"staging": "warning", "seed": "error", "batch_size": "error"}


@pytest.mark.parametrize(("steps", "said"), [('"1600"', True), ('""', False), ("1600", False)])
def test_an_empty_text_is_mostly_nothing(tmp_path: Path, steps: str, said: bool) -> None:
    """A generator of such files writes max_train_steps = "" beside max_train_epochs, which then goes before."""
    text = (
        'pretrained_model_name_or_path = "a.safetensors"\nnetwork_module = "networks.lora"\n'
        f'output_dir = "out"\nmax_train_epochs = 8\nmax_train_steps = {steps}\n'
    )
    report = examine_config(str(tmp_path / "c.toml"), LiveWorld(), RULES, text.encode()).report
    assert not report.crashed and bool(report.findings) is said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('network_args = "algo=loha"', True),
        ('optimizer_args = "weight_decay=0.1"', True),
        ('network_args = ["algo=loha"]', False),
        ("network_args = []", False),
        ('network_args = ""', False),
    ],
)
def test_a_text_is_no_list_in_a_config_file(tmp_path: Path, line: str, said: bool) -> None:
    text = f'network_module = "lycoris.kohya"\nlearning_rate = 1e-4\n{line}\n'
    report = examine_config(str(tmp_path / "t.toml"), LiveWorld(), RULES, text.encode()).report
    assert [finding.rule for finding in report.findings] == ["KOH015"] * said
    entries = ast.literal_eval(line.partition(" = ")[2])  # as the trainer takes them apart
    assert all(len(entry.split("=")) == 2 for entry in entries) != said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--output_name my cat", "output_name takes one word, and 'cat' stands behind it"),
        ("--output_name= my", "output_name takes one word, and 'my' stands behind it"),
        ("--seed 1 2 3", "seed takes one word, and '2 3' stands behind it"),
        ("--output_name 'my cat'", ""),
        ("--output_name my > log.txt 2>&1", ""),
        ("--network_args conv_dim=8 conv_alpha=1", ""),
        ("--output_name my [more options]", ""),
        ("--output_name my $MORE", ""),
        ("--an_option_of_a_fork 1 2", ""),
    ],
)
def test_a_word_that_no_option_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"python train_network.py --network_module networks.lora --output_dir o {words}\n"
    report = examine_config(str(tmp_path / "t.sh"), LiveWorld(), all_rules(), text.encode()).report
    found = [finding.text() for finding in report.findings if "stands behind it: a value" in finding.text()]
    assert [line.startswith(said) for line in found] == ([True] if said else [])
    if "$" in words or "[" in words or "fork" in words:
        return
    parser = argparse.ArgumentParser(exit_on_error=False)
    for option in ("--output_dir", "--output_name", "--seed"):
        parser.add_argument(option)
    parser.add_argument("--network_args", nargs="*")
    left = parser.parse_known_args(shlex.split(words.partition(" > ")[0]))[1]
    assert bool(left) == bool(said)
