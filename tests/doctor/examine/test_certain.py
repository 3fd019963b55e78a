"""What only a shell can tell is unknown: no rule says anything of it, and none that would have is passed."""

from __future__ import annotations

from pathlib import Path

import pytest

from zdoctor import check
from zdoctor.doctor.configs.words import words
from zdoctor.doctor.model.unfinished import UNLESS_FILLED, UNLESS_WHOLE, UNLESS_YOURS
from zdoctor.doctor.schema.tables import shipped

FLUX = "accelerate launch --mixed_precision bf16 flux_train_network.py --sdpa --network_module networks.lora_flux "
BARE = FLUX.replace("--network_module networks.lora_flux ", "--ae a ")
FILES = "--pretrained_model_name_or_path no/m.safetensors --ae no/ae.st --clip_l no/c.st --t5xxl no/t.st "
MORE = "--train_data_dir no/data --learning_rate 1e-4 "
REST = "--train_data_dir no/data --output_dir out --learning_rate 1e-4 --fp8_base --mixed_precision bf16 "


def errors(folder: Path, text: str) -> tuple[set[str], set[str]]:
    script = folder / "train.sh"
    script.write_text(text)
    report = check(str(script))
    return {finding.rule for finding in report.errors}, {outcome.rule for outcome in report.unknown}


@pytest.mark.parametrize(
    ("rule", "sick", "doubtful"),
    [
        ("KOH001", FLUX + REST + FILES, FLUX + REST + FILES.replace(" no/", " $NO/")),
        ("KOH002", BARE + REST, BARE + REST + '"${ARGS[@]}"'),
        ("KOH002", BARE + REST, BARE + REST + '--config_file "$CONFIG"'),
        ("KOH002", BARE + REST, "A=()\n[[ $X ]] && A+=(--network_module x)\n" + BARE + REST + '"${A[@]}"'),
        ("KOH013", FLUX + REST + FILES + "--optimizer_type adamW8bti", FLUX + REST + FILES + '--optimizer_type "$O"'),
        ("KOH011", FLUX + FILES + MORE, FLUX + FILES + MORE + "$EXTRA_ARGS"),
        ("CFG004", FLUX + REST + FILES + "--mixed_precision bf61", FLUX + REST + FILES + "--mixed_precision $P"),
        ("KOH003", FLUX + REST + FILES + "--lr_warmup_steps 9", FLUX + REST + FILES + "--lr_warmup_steps 9 $ARGS"),
    ],
)
def test_only_what_is_known_is_called_an_error(rule: str, sick: str, doubtful: str, tmp_path: Path) -> None:
    assert rule in errors(tmp_path, sick)[0]
    found, unknown = errors(tmp_path, doubtful)
    assert rule not in found
    assert rule in unknown


OPTIONS = words("""
    pretrained_model_name_or_path ae clip_l t5xxl vae text_encoder dit dataset_config output_dir output_name
    network_module network_dim network_args optimizer_type optimizer_args lr_scheduler lr_warmup_steps max_train_steps
    save_every_n_steps mixed_precision blocks_to_swap timestep_sampling sample_prompts network_weights resume
    learning_rate train_batch_size guidance_scale model_prediction_type resolution train_data_dir
    """)


@pytest.mark.parametrize(
    "value", ['"$X"', "${X[@]}", "$(cat x)", "`cat x`", "$((X + 1))", "${X##*/}", "/x/{a,b}", "$1"]
)
@pytest.mark.parametrize("script", ["flux_train_network", "zimage_train_network"])
def test_nothing_is_certain_where_no_value_is(script: str, value: str, tmp_path: Path) -> None:
    names = [name for name in sorted(OPTIONS) if _takes(script, name)]
    options = " ".join(f"--{name} {value}" for name in names)
    assert not errors(tmp_path, f"accelerate launch {script}.py {options}")[0]


def _takes(script: str, name: str) -> bool:
    schema = shipped("sd-scripts" if script.startswith("flux") else "musubi-tuner")
    return schema is not None and schema.key(name, script) is not None


def test_what_is_not_known_is_said_first(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(FLUX + REST + FILES + "--seed $SEED")
    (gap,) = [gap for gap in check(str(script)).not_judged if gap.what == "settings"]
    assert gap.reason == "seed: $SEED is what only the shell can tell"


def test_another_programs_script_of_the_same_name_is_not_judged(tmp_path: Path) -> None:
    options = "--train_data_meta a --image_sample_size 9 --checkpointing_steps 9 --adam_epsilon 9 --vae_mini_batch 1 "
    for script in ("train_network.py", "wan_train.py", "sdxl_train.py"):
        found, unknown = errors(
            tmp_path, f"accelerate launch {script} {options} --output_dir x --seed 1 --network_module a"
        )
        assert not found and "KOH002" in unknown
    own = f"accelerate launch train_network.py --network_module networks.lora {REST} --adam_epsilon 9"
    assert "PTH004" in errors(tmp_path, own)[0]  # one strange option is not enough


def test_no_memory_is_predicted_of_what_is_not_known(tmp_path: Path) -> None:
    assert "MEM001" in errors(tmp_path, FLUX + REST + FILES + "--train_batch_size $N")[1]


EXCLUDED = FLUX + REST + FILES + "--lr_warmup_steps 9 --lr_scheduler constant "
JOB = """job: extension
config:
  name: x
  process:
  - type: sd_trainer
    model: {name_or_path: x/y}
    datasets: [{folder_path: data}]
    train:
      gradient_accumulation: 2
      gradient_accumulation_steps: 2
"""


@pytest.mark.parametrize(
    ("name", "text", "doubt", "unless"),
    [
        ("t.sh", EXCLUDED, "--network_dim {dim}", UNLESS_FILLED),
        ("t.sh", EXCLUDED, "--words_of_a_fork 1", UNLESS_YOURS),
        ("t.yaml", JOB, "      # ...\n", UNLESS_WHOLE),
    ],
)
def test_what_need_not_come_true_is_a_warning(name: str, text: str, doubt: str, unless: str, tmp_path: Path) -> None:
    """A template, a config for a fork and an abridged one are not what the trainer that is known will be given."""
    for written, severity, end in ((text, "error", ""), (text + doubt, "warning", unless)):
        (tmp_path / name).write_text(written)
        report = check(str(tmp_path / name), ignored=["CFG003"])
        found = next(one for one in report.findings if one.rule in ("KOH003", "CFG004"))
        assert found.severity == severity and found.consequence().endswith(end)


def test_an_excerpt_lacks_what_it_does_not_name(tmp_path: Path) -> None:
    """One thing is forgotten; of two or more the text is a part of a command, as documents show them."""
    whole = BARE + REST
    assert "KOH002" in errors(tmp_path, whole)[0]
    found, unknown = errors(tmp_path, whole.replace("--learning_rate 1e-4", ""))
    assert "KOH002" not in found and "KOH002" in unknown


def test_a_slip_is_one_in_a_template_too(tmp_path: Path) -> None:
    assert "CFG002" in errors(tmp_path, FLUX + REST + FILES + "--network_dim {dim} --network_alhpa 4")[0]
