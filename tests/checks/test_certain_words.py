"""A word that a trainer does not know: certain of the checkout at hand and of a slip, else it may be a fork's."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from pathlib import Path

import pytest

from zdoctor import check
from zdoctor.checks.keys.misspelled import one_slip
from zdoctor.doctor.model import Finding
from zdoctor.tests.doctor.schema.checkouts import AI_TOOLKIT, MUSUBI, SD_SCRIPTS, checkout

FORK = {**SD_SCRIPTS, "networks/lora_own.py": ""}
SHELL = "accelerate launch {place}flux_train_network.py --ae a.st --output_name x --output_dir o {more}\n"
DATASETS = '[[datasets]]\nbatch_size = 1\n[[datasets.subsets]]\nimage_dir = "i"\n'


def said(file: Path, text: str, key: str) -> list[Finding]:
    """What is said of that key of a config, or of its value."""
    file.write_text(text)
    found = check(str(file), selected=["CFG002", "CFG004", "KOH013"]).findings
    return [finding for finding in found if finding.evidence["key"] == key]


UNKNOWN = [
    ("an option", "t.sh", SHELL.format(place="", more="--latents_only"), "latents_only"),
    ("a choice", "t.sh", SHELL.format(place="", more="--precision fp4"), "precision"),
    ("an optimizer", "t.sh", SHELL.format(place="", more="--optimizer_type AdamW8Kahan"), "optimizer_type"),
    ("a schedule", "t.sh", SHELL.format(place="", more="--lr_scheduler flat"), "lr_scheduler"),
    ("a dataset's key", "d.toml", DATASETS + "latents_only = true\n", "latents_only"),
]


@pytest.mark.parametrize(("name", "text", "key"), [case[1:] for case in UNKNOWN], ids=[case[0] for case in UNKNOWN])
def test_an_unknown_word_is_certain_of_the_checkout_alone(name: str, text: str, key: str, tmp_path: Path) -> None:
    shipped = text.replace("--precision", "--mixed_precision")
    found = said(tmp_path / name, shipped, f"mixed_{key}" if key == "precision" else key)
    assert [one.severity for one in found] == ["warning"]
    assert "unless yours is a fork" in found[0].consequence()
    root = checkout(tmp_path / "any-name", SD_SCRIPTS)
    found = said(root / name, text, key)
    assert [one.severity for one in found] == ["error"]
    assert "unless" not in found[0].consequence()


def test_a_script_that_the_checkout_lacks_is_of_another_one(tmp_path: Path) -> None:
    """A script beside an old checkout starts a newer one at another place: the old one's keys say nothing of it."""
    root = checkout(tmp_path / "any-name", SD_SCRIPTS)
    text = "python /opt/newer/lumina_train_network.py --gemma2 g.st --ae a.st --output_dir o --latents_only\n"
    assert not said(root / "t.sh", text, "gemma2")
    assert [one.severity for one in said(root / "t.sh", text, "latents_only")] == ["warning"]


YAML = "job: extension\nconfig:\n  name: x\n  process:\n  - type: sd_trainer\n    train:\n      "
TOML = 'pretrained_model_name_or_path = "a.st"\nnetwork_module = "networks.lora"\nnetwork_dim = '
JSON = '{"model_family": "flux", "num_train_epochs": 0, "data_backend_config": "d.json", "max_train_steps": '
TEMPLATES = [
    ("t.yaml", YAML + 'steps: "{{ steps }}"\n', "CFG004"),
    ("t.yaml", YAML + 'steps: "{steps}"\n', "CFG004"),
    ("t.yaml", YAML + "steps: {{ steps }}\n", "CFG001"),
    ("t.toml", TOML + '"__DIM__"\n', "KOH015"),
    ("t.toml", TOML + "{{ dim }}\n", "CFG001"),
    ("t.json", JSON + '"$STEPS"}', "SIM003"),
    ("t.json", JSON + "{{ steps }}}", "CFG001"),
    ("t.toml", TOML + "{network-dim}\n", "CFG001"),
    ("t.toml", TOML + "$DIM\n", "CFG001"),
    ("t.toml", TOML + "<rank>\n", "CFG001"),
    ("t.toml", TOML + "__DIM__\n", "CFG001"),
    ("t.toml", TOML + "...\n", "CFG001"),
    ("t.toml", TOML + '"NETWORK_DIM"\n', "KOH015"),
    ("t.toml", TOML + '"<rank>"\n', "KOH015"),
    ("t.json", JSON + '"<steps>"}', "SIM003"),
    ("t.json", JSON + '"XX"}', "SIM003"),
    ("t.toml", TOML + "8\n... and so on ...\n", "CFG001"),
]


@pytest.mark.parametrize(("name", "text", "rule"), TEMPLATES)
def test_a_value_that_a_program_puts_in_is_no_error(name: str, text: str, rule: str, tmp_path: Path) -> None:
    """No trainer reads a template as it is."""
    (tmp_path / name).write_text(text)
    report = check(str(tmp_path / name), selected=[rule])
    (found,) = (one for one in report.findings if rule == "CFG001" or re.search("steps|_dim", one.evidence["key"]))
    unless = (
        "where the whole file holds what ... stands for." if "..." in text else "puts a value in its place before."
    )
    assert found.severity == "warning" and found.consequence().endswith(unless)
    if rule == "CFG001":  # nor is anything of it judged
        assert check(str(tmp_path / name)).exit_code == 3


FILLED = "sdxl_train_network.py --output_dir <folder> --network_module <module> --learning_rate {0} "
FILLED += "--dataset_config <data.toml> --network_dim {1} --optimizer_type AdamW8bit\n"


@pytest.mark.parametrize("name", ["t.sh", "t.bat", "t.ps1", "t.txt"])
@pytest.mark.parametrize(("rate", "rank"), [("<lr>", "<rank>"), ("LR", "N"), ("{lr:.1e}", "[RANK]")])
def test_a_command_for_a_reader_to_fill_in_is_no_error(name: str, rate: str, rank: str, tmp_path: Path) -> None:
    def told(text: str) -> list[str]:
        (tmp_path / name).write_text(text)
        return [one.rule for one in check(str(tmp_path / name), ignored=["KOH001", "KOH012"]).errors]

    assert not told(FILLED.format(rate, rank))
    assert told(FILLED.format("1e-4x", "8")) == ["KOH015"]


@pytest.mark.parametrize(
    ("line", "beside"),
    [
        ("lr_warmup_steps = 100", 'lr_scheduler = "constant"'),
        ("fused_backward_pass = true", 'optimizer_type = "AdamW"'),
        ('lr_scheduler = "adafactor"', 'optimizer_type = "AdamW"'),
        ('dit = "a.st"\nfp8_scaled = true', "fp8_base = false"),
    ],
)
def test_what_a_command_line_may_give_beside_a_file_is_no_error(line: str, beside: str, tmp_path: Path) -> None:
    def told(text: str) -> list[str | None]:
        start = "" if "dit" in line else 'pretrained_model_name_or_path = "m.st"\n'
        (tmp_path / "t.toml").write_text(f'{start}network_module = "networks.lora"\n{text}\n')
        return [one.severity for one in check(str(tmp_path / "t.toml"), selected=["KOH003"]).findings]

    assert told(line) == ["warning"]
    assert told(f"{line}\n{beside}") == ["error"]


def test_a_part_of_a_config_is_judged_by_what_it_holds(tmp_path: Path) -> None:
    def told(text: str) -> list[str | None]:
        (tmp_path / "t.json").write_text(text)
        return [one.severity for one in check(str(tmp_path / "t.json"), selected=["SIM002"]).findings]

    assert told('{"model_family": "flux", "max_train_steps": 100}') == ["warning"]
    assert told('{"model_family": "flux", "max_train_steps": 100, "output_dir": "o"}') == ["error"]
    assert told('{"model_family": "flux", "max_train_steps": 100, "num_train_epochs": 3}') == ["error"]


def test_a_part_of_a_file_of_datasets_is_no_config(tmp_path: Path) -> None:
    """SimpleTuner reads a list there; documents show an entry of it."""
    dataset = {"id": "a", "instance_data_dir": "x", "caption_strategy": "instanceprompt", "instance_prompt": "a"}
    for part in (dataset, {"datasets": [dataset]}):
        (tmp_path / "t.json").write_text(json.dumps(part))
        assert not check(str(tmp_path / "t.json")).errors
    (tmp_path / "t.json").write_text(json.dumps({"model_family": "flux", "datasets": [dataset]}))
    (found,) = check(str(tmp_path / "t.json"), selected=["CFG002"]).findings
    assert found.evidence["key"] == "datasets"


@pytest.mark.parametrize(("left", "severity"), [(" ...", "warning"), (" …", "warning"), ("", "error")])
def test_an_abridged_command_need_not_go_on(left: str, severity: str, tmp_path: Path) -> None:
    text = f"accelerate launch flux_train_network.py --ae a.st{left}\n  --network_module networks.lora_flux\n"
    (tmp_path / "t.sh").write_text(text)
    assert [one.severity for one in check(str(tmp_path / "t.sh"), selected=["CFG001"]).findings] == [severity]


def test_what_a_shell_fills_in_a_config_env_is_no_error(tmp_path: Path) -> None:
    def told(value: str) -> list[str | None]:
        text = f"MODEL_FAMILY=flux\nMODEL_TYPE=lora\nTRAIN_BATCH_SIZE={value}\n"
        (tmp_path / "config.env").write_text(text)
        found = check(str(tmp_path / "config.env"), selected=["SIM003"]).findings
        return [one.severity for one in found]

    assert told("$((2 * 2))") == ["warning"] and told("four") == ["error"]


@pytest.mark.parametrize(
    ("lines", "is_whole"),
    [
        ("# other settings\n    model: {name_or_path: x/y}", True),
        ("# ... other settings\n    model: {name_or_path: x/y}", False),
        ("# other settings", False),
    ],
)
def test_what_an_abridged_config_leaves_out_is_not_known(lines: str, is_whole: bool, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(f"{YAML}steps: 10\n      {lines}\n")
    report = check(str(tmp_path / "t.yaml"), selected=["CFG004"])
    assert any("no dataset" in one.text() for one in report.errors) == is_whole
    assert ("CFG004" in {one.rule for one in report.unknown}) != is_whole


READS_FORMS = """
class DatasetConfig:
    def __init__(self, **kwargs):
        def percent(key):
            raw = kwargs.get(key, 1.0)
            return 1.0 if isinstance(raw, str) else float(raw)

        self.bucket_tolerance = percent("bucket_tolerance")
        self.keep_tokens = kwargs.get("keep_tokens", 0)

def preprocess(raw):
    repeats = raw.get("num_repeats", 1)
    if isinstance(repeats, list):
        repeats = repeats[0]
"""


@pytest.mark.parametrize(
    ("line", "taken"), [("num_repeats: [4, 1]", True), ("bucket_tolerance: auto", True), ("keep_tokens: auto", False)]
)
def test_a_form_of_a_value_is_wrong_where_the_checkout_does_not_look_for_it(
    line: str, taken: bool, tmp_path: Path
) -> None:
    """A number that another version or a fork also takes as a word or a list."""
    text = (
        "job: extension\nconfig:\n  name: x\n  process:\n  - type: sd_trainer\n    training_folder: o\n"
        f"    datasets:\n    - folder_path: d\n      {line}\n"
    )

    def of(root: Path) -> list[str | None]:
        (root / "c.yaml").write_text(text)
        found = check(str(root / "c.yaml"), selected=["CFG004"]).findings
        return [one.severity for one in found if one.evidence["key"] == "datasets/0/" + line.partition(":")[0]]

    assert of(tmp_path) == ["warning"]
    files = {**AI_TOOLKIT, "toolkit/config_modules.py": AI_TOOLKIT["toolkit/config_modules.py"] + READS_FORMS}
    assert of(checkout(tmp_path / "fork", files)) == ([] if taken else ["error"])
    assert of(checkout(tmp_path / "plain", AI_TOOLKIT)) == ["error"]


def test_an_old_name_is_known_to_an_old_checkout(tmp_path: Path) -> None:
    """A dataset file for a musubi-tuner from before a key was renamed, beside that very version."""
    old, path = "qwen_image_edit_control_resolution", "src/musubi_tuner/dataset/config_utils.py"
    text = MUSUBI[path].replace('"image_directory": str', f'"image_directory": str, "{old}": [int]')
    root = checkout(tmp_path / "any-name", {**MUSUBI, path: text})
    (root / "d.toml").write_text(f'[[datasets]]\nimage_directory = "i"\n{old} = [1024, 1024]\nlatents_only = true\n')
    found = check(str(root / "d.toml"), selected=["CFG002"]).errors
    assert [one.evidence["key"] for one in found] == ["latents_only"]


OPTIMIZER = """
def setup_parser_common():
    parser = argparse.ArgumentParser()
    parser.add_argument("--optimizer_type", type=str, default="")
    parser.add_argument("--sdpa", action="store_true")
    parser.add_argument("--dit", type=str)
    return parser


class Trainer:
    def get_optimizer(self, args):
        {fork}
        return args.optimizer_type.lower() == "AdamW8bit".lower()
"""


@pytest.mark.parametrize(
    ("fork", "wrong"),
    [("", True), ('if not args.optimizer_type.strip():\n            args.optimizer_type = "AdamW"', False)],
)
def test_a_forks_own_default_is_read_where_it_is_put_in(fork: str, wrong: bool, tmp_path: Path) -> None:
    parser = {"src/musubi_tuner/training/parser_common.py": OPTIMIZER.format(fork=fork)}
    root = checkout(tmp_path / "any-name", {**MUSUBI, **parser})
    file = root / "t.sh"
    whole = "--sdpa --dit a.st --dataset_config d.toml --output_dir o --network_dim 4"
    file.write_text(f"python src/musubi_tuner/hv_train_network.py {whole}\n")
    assert bool(check(str(file), selected=["KOH013"]).errors) == wrong


@pytest.mark.parametrize("place", ["", "any-name/", "./any-name/"])
@pytest.mark.parametrize(
    "more", ["--optimizer_type Kahan", "--optimizer_type own", "--lr_scheduler rex", "--lr_te2 1"]
)
def test_a_forks_words_are_read_from_the_script_that_is_started(place: str, more: str, tmp_path: Path) -> None:
    root = checkout(tmp_path / "any-name", FORK)
    key = more.split()[0].removeprefix("--")
    text = SHELL.format(place=place, more=more)
    assert not said((tmp_path if place else root) / "t.sh", text, key)
    entered = SHELL.format(place="", more=more)
    assert said(tmp_path / "u.sh", entered, key)
    assert not said(tmp_path / "u.sh", f"cd any-name\n{entered}", key)


@pytest.mark.parametrize(
    ("one", "other", "slip"),
    [
        ("adamw8bti", "adamw8bit", True),
        ("bf61", "bf16", True),
        ("wan22", "wan21", False),
        ("flux", "flux2", False),
        ("int8", "int4", False),
    ],
)
def test_with_another_digit_it_is_another_name(one: str, other: str, slip: bool) -> None:
    assert one_slip(one, other) == slip


NETWORK = "--network_module networks.lora{}"


@pytest.mark.parametrize(("module", "wrong"), [("", True), ("_fluz", True), ("_flux", False), ("_own", False)])
def test_a_module_that_is_none_of_kohyas_may_be_a_forks(module: str, wrong: bool, tmp_path: Path) -> None:
    file = tmp_path / "t.sh"
    file.write_text(SHELL.format(place="", more=NETWORK.format(module)))
    assert bool(check(str(file), selected=["KOH002"]).errors) == wrong


def test_a_config_file_that_is_not_here_hides_what_is_left_out(tmp_path: Path) -> None:
    """On this machine it is missing; of the settings that may be in it nothing is said."""
    file = tmp_path / "t.sh"
    named = "--output_dir o --dataset_config d.toml --config_file nowhere"
    file.write_text(f"accelerate launch flux_train_network.py {named}\n")
    report = check(str(file))
    assert {finding.rule for finding in report.errors} == {"KOH012"}
    assert "nowhere.toml" in report.errors[0].text()
    assert "KOH002" in {outcome.rule for outcome in report.unknown}
    (tmp_path / "nowhere.toml").write_text('network_dim = 4\nlearning_rate = 1\nae = "ae.st"\n')
    assert {finding.rule for finding in check(str(file)).errors} >= {"KOH002"}


OWN = """[SD]
output_name = "a"
network_module = "networks.lora"
learning_rate = "1e-4"
[FLUX]
output_name = "b"
network_module = "networks.lora_flux"
learning_rate = "1e-5"
"""
MANY = 'network_module = "networks.lora_flux"\nlearning_rate = "1e-4"\n' + "".join(
    f"own_word_{n} = 1\n" for n in range(5)
)


@pytest.mark.parametrize("text", [OWN, OWN.partition("[FLUX]")[0], MANY])
def test_a_file_of_another_program_is_not_judged(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(text)
    report = check(str(tmp_path / "c.toml"))
    assert not report.errors
    assert report.not_judged
    own = text.partition("[FLUX]")[0].partition("own_word")[0].replace("[SD]", "[training_arguments]")
    (tmp_path / "c.toml").write_text(own)
    assert {finding.rule for finding in check(str(tmp_path / "c.toml")).errors} == {"KOH015"}


def test_a_word_that_stands_elsewhere_in_the_checkout_may_be_read_there(tmp_path: Path) -> None:
    root = checkout(tmp_path / "any-name", {**SD_SCRIPTS, "own/loader.py": 'x = dataset.pop("latents_only")\n'})
    found = said(root / "d.toml", DATASETS + "latents_only = true\n", "latents_only")
    assert [one.severity for one in found] == ["warning"]
    assert "stands in its source" in found[0].consequence()


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        *(("'--xformers'", False), ('"--xformers"', False), ("true", True), ("--caption_separator '-'", False)),
        *(("--caption_separator='; '", False), ("'--caption_separator=a b' --xformers", False)),
    ],
)
def test_quotes_make_no_value_of_an_option(more: str, wrong: bool, tmp_path: Path) -> None:
    """argparse never sees them."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    for name in ("--no_half_vae", "--xformers"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--caption_separator")
    stray = parser.parse_known_args(shlex.split(f"--no_half_vae {more}"))[1]
    assert bool(stray) == wrong
    file = tmp_path / "t.sh"
    file.write_text(SHELL.format(place="", more=f"--no_half_vae {more}"))
    assert bool(check(str(file), selected=["KOH015"]).errors) == wrong


def test_an_empty_text_is_no_switch_that_is_on(tmp_path: Path) -> None:
    assert not argparse.Namespace(enable_bucket="").enable_bucket
    file = tmp_path / "c.toml"
    for text, wrong in (('""', False), ('"false"', True)):
        file.write_text(f'network_module = "networks.lora"\nenable_bucket = {text}\n')
        assert bool(check(str(file), selected=["KOH015"]).errors) == wrong


@pytest.mark.parametrize(
    "abridged", ["(... other options ...)", "...", "[…]", "[more options]", "[other]", "--xformers ..."]
)
def test_nothing_is_said_of_what_an_abridged_command_leaves_out(abridged: str, tmp_path: Path) -> None:
    file = tmp_path / "t.sh"
    for more, wrong in ((abridged, False), ("", True)):
        file.write_text(SHELL.format(place="", more=f"--dataset_config d.toml --unet_lr 1 {more}"))
        assert bool(check(str(file), selected=["KOH002", "KOH015"]).errors) == wrong


def test_a_json_file_that_the_gui_did_not_write_is_no_config_of_kohyas(tmp_path: Path) -> None:
    file = tmp_path / "fields.json"
    file.write_text('{"network_module": "the path of a module", "lr_scheduler": "constant: fixed"}')
    report = check(str(file))
    assert not report.errors
    assert report.not_judged


def test_what_the_gui_begins_with_is_read_by_no_trainer(tmp_path: Path) -> None:
    """The config.toml of kohya's GUI: sections for its tabs, every field a text."""
    file = tmp_path / "config.toml"
    options = '[model]\noutput_name = "a"\ntrain_data_dir = "d"\npretrained_model_name_or_path = "m.st"\n'
    options += '[basic]\nseed = "1234"\n'
    for more, wrong in (("[accelerate_launch]\nnum_processes = 1\n", False), ("", True)):
        file.write_text(options + more)
        report = check(str(file), selected=["KOH015"])
        assert bool(report.errors) == wrong and bool(report.not_judged)


def test_a_comment_behind_a_value_of_an_env_file_is_said_once(tmp_path: Path) -> None:
    """Older versions let a shell read the file, which leaves it out; newer ones make it a part of the value."""
    file = tmp_path / "config.env"
    file.write_text("MODEL_FAMILY=flux # mine\nLEARNING_RATE=1e-4 #@param {}\nMODEL_TYPE=lora\n")
    report = check(str(file), selected=["SIM001", "SIM003", "CFG004"])
    assert not report.errors
    assert [finding.rule for finding in report.findings] == ["SIM001", "SIM001"]


def test_sizes_of_buckets_that_old_scripts_do_not_look_at_are_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "t.sh"
    options = "--pretrained_model_name_or_path m.st --output_name o --enable_bucket --bucket_reso_steps 1 "
    options += "--network_dim 4 --learning_rate 1"
    for model, severity in (("", "warning"), ("sdxl_", "error")):
        file.write_text(f"accelerate launch {model}train_network.py {options}\n")
        assert [finding.severity for finding in check(str(file), selected=["KOH003"]).findings] == [severity]
