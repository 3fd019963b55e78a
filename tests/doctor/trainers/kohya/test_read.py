"""sd-scripts and musubi-tuner: command lines, config files, dataset files and the GUI's settings as runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from zdoctor.doctor.model import Gpu, Run, SamplePrompt, Unknown
from zdoctor.doctor.model.cards import ALL, CHOSEN, taken
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.model.unfinished import PART
from zdoctor.doctor.trainers.read import Found, Reading, read_config
from zdoctor.tests.changes import value_of

DATASETS = """\
[general]
caption_extension = ".txt"

[[datasets]]
resolution = [1024, 768]
batch_size = 2

  [[datasets.subsets]]
  image_dir = "/data/cat"
  class_tokens = "a cat"
  num_repeats = 10

  [[datasets.subsets]]
  image_dir = '/data/other'
  is_reg = true
"""
CONFIG = """\
[model]
pretrained_model_name_or_path = "/m/flux1-dev.safetensors"
ae = "/m/ae.safetensors"
clip_l = "/m/clip_l.safetensors"
t5xxl = "/m/t5xxl_fp16.safetensors"

[training]
network_module = "networks.lora_flux"
network_dim = 8
learning_rate = 1e-4
dataset_config = "data.toml"
mixed_precision = "bf16"
"""
FLUX = "accelerate launch --num_cpu_threads_per_process 1 flux_train_network.py "
MUSUBI_DATA = """\
[general]
resolution = [960, 544]
caption_extension = ".txt"

[[datasets]]
image_directory = "/data/cat"
cache_directory = "/data/cache"
num_repeats = 2
"""
ZIMAGE = """\
python src/musubi_tuner/zimage_cache_latents.py --dataset_config m.toml --vae /m/ae.safetensors
accelerate launch --mixed_precision bf16 src/musubi_tuner/zimage_train_network.py \\
  --dit /m/z.safetensors --dataset_config m.toml --network_module networks.lora_zimage \\
  --fp8_base --fp8_scaled --base_weights /m/adapter.safetensors --blocks_to_swap 20
"""
FILES = {"data.toml": DATASETS, "cfg.toml": CONFIG, "m.toml": MUSUBI_DATA}


def read(path: str, text: str | bytes, files: Mapping[str, str] = FILES, **known: Any) -> Reading:
    data = text if isinstance(text, bytes) else text.encode()
    environment: dict[str, str] = {}
    return read_config(
        path,
        data,
        environment,
        beside=lambda name: Found(f"/w/{name}", files[name].encode()) if name in files else None,
        **known,
    )


def only(reading: Reading) -> Run:
    assert reading.config.problem is None, reading.config.problem
    (run,) = reading.runs
    return run


def fields(run: Run, *names: str) -> list[Any]:
    return [value_of(run, name) for name in names]


def test_a_command_line_wins_over_its_config_file() -> None:
    run = only(
        read("/w/t.sh", FLUX + "--config_file cfg --network_dim 16 --output_dir out --output_name x --fp8_base")
    )
    assert fields(run, "trainer", "process_type", "kind", "architecture") == [
        "sd-scripts",
        "flux_train_network",
        "lora",
        "flux",
    ]
    assert fields(run, "rank", "learning_rate", "dtype", "quantization", "batch_size", "output_folder") == [
        16,
        1e-4,
        "bf16",
        "float8",
        2,
        "out",
    ]
    assert (run.where("rank").path, run.where("rank").line) == ("/w/t.sh", 1)
    assert (run.where("base_model").path, run.where("base_model").line) == ("/w/cfg.toml", 2)
    assert run.pointer("base_model") == "/model/pretrained_model_name_or_path"


def test_datasets_take_what_they_leave_out_from_above() -> None:
    run = only(read("/w/cfg.toml", CONFIG))
    first, second = run.recipe.datasets
    assert (first.folder, first.repeats, first.caption_extension, first.default_caption) == (
        "/data/cat",
        10,
        ".txt",
        "a cat",
    )
    assert first.resolutions == (1024, 768)
    assert second.is_regularisation and second.repeats == 1
    place = run.where(f"{second.key}/folder_path")
    assert (place.path, place.line, place.pointer) == ("/w/data.toml", 14, "/datasets/0/subsets/1/image_dir")


def test_numbered_folders_are_one_dataset_until_they_are_looked_at() -> None:
    run = only(read("/w/t.sh", FLUX + "--train_data_dir /d/train --resolution=1024,768 --cache_latents_to_disk"))
    (dataset,) = run.recipe.datasets
    assert (dataset.key, dataset.folder, dataset.resolutions) == ("train_data_dir", "/d/train", (1024, 768))
    assert dataset.cache_latents and dataset.caption_extension == ".caption"
    assert run.where(f"{dataset.key}/folder_path").pointer == "/train_data_dir"


@pytest.mark.parametrize(
    ("command", "architecture", "kind"),
    [
        ("python flux_train_network.py --model_type chroma", "chroma", "lora"),
        ("python -m sd_scripts.sdxl_train_network --network_dim 4", "sdxl", "lora"),
        ("python ./sd-scripts/flux_train.py --fused_backward_pass", "flux", "finetune"),
        ("python train_network.py --v2", "sd2", "lora"),
        ("python train_network.py", "sd1", "lora"),
        ("python C:\\\\k\\\\sd3_train_network.py --clip_g a", "sd3", "lora"),
        ("python train_textual_inversion.py --token_string x", "sd1", "other"),
    ],
)
def test_scripts(command: str, architecture: str, kind: str) -> None:
    run = only(read("/w/t.sh", command, trainer="sd-scripts"))
    assert (run.recipe.architecture, run.kind) == (architecture, kind)


def test_zimage_by_musubi() -> None:
    run = only(read("/w/z.sh", ZIMAGE))
    assert fields(run, "trainer", "process_type", "architecture", "base_model", "adapter", "dtype") == [
        "musubi-tuner",
        "zimage_train_network",
        "zimage",
        "/m/z.safetensors",
        "/m/adapter.safetensors",
        "bf16",
    ]
    (dataset,) = run.recipe.datasets
    assert (dataset.folder, dataset.repeats, dataset.caption_extension) == ("/data/cat", 2, ".txt")
    assert run.where("datasets/0/folder_path").path == "/w/m.toml"


def test_a_file_of_datasets_alone() -> None:
    assert only(read("/w/data.toml", DATASETS)).process_type == "datasets"
    assert only(read("/w/m.toml", MUSUBI_DATA)).trainer == "musubi-tuner"


PROMPTS = {
    "p.txt": "a cat --w 768 --h 512 --d 3 --s 8 --l 4 --g 1.5 --n a dog\n\n# not this\nplain\n",
    "p.json": json.dumps([{"prompt": "a cat", "width": 768, "cfg_scale": 1.0}, "plain --ci c.png"]),
    "p.toml": '[prompt]\nheight = 512\n[[prompt.subset]]\nprompt = "a cat"\nseed = 9\n',
}


@pytest.mark.parametrize(
    ("command", "name", "samples"),
    [
        (
            FLUX,
            "p.txt",
            [SamplePrompt("a cat", 768, 512, 3, 8, 1.5, "a dog"), SamplePrompt("plain", 512, 512, 0, 20, 3.5)],
        ),
        (
            ZIMAGE,
            "p.txt",
            [SamplePrompt("a cat", 768, 512, 3, 8, 5.0, "a dog"), SamplePrompt("plain", 256, 256, 0, 20, 5.0)],
        ),
        (
            ZIMAGE,
            "p.json",
            [
                SamplePrompt("a cat", 768, 256, 0, 20, 1.0),
                SamplePrompt("plain", 256, 256, 0, 20, 5.0, control="c.png"),
            ],
        ),
        (FLUX, "p.toml", [SamplePrompt("a cat", 512, 512, 9, 20, 3.5)]),
        (FLUX, "gone.txt", []),
    ],
)
def test_samples(command: str, name: str, samples: list[SamplePrompt]) -> None:
    files = {**FILES, **PROMPTS}
    run = only(read("/w/t.sh", command.rstrip() + f" --sample_prompts {name}", files))
    assert list(run.recipe.validation.prompts) == samples and not run.recipe.validation.disabled


GUI = {
    "LoRA_type": "Flux1",
    "LyCORIS_preset": "full",
    "ae": "/m/ae.safetensors",
    "flux1_checkbox": True,
    "flux1_cache_text_encoder_outputs": True,
    "fp8_base": True,
    "max_resolution": "1024,1024",
    "max_train_epochs": 0,
    "max_train_steps": 800,
    "mixed_precision": "bf16",
    "network_dim": 16,
    "num_cpu_threads_per_process": 2,
    "optimizer": "AdamW8bit",
    "pretrained_model_name_or_path": "/m/flux1-dev.safetensors",
    "train_data_dir": "/d/train",
    "vae": "",
    "xformers": "sdpa",
}


def test_the_gui_speaks_other_words() -> None:
    run = only(read("/w/gui.json", json.dumps(GUI, indent=1)))
    assert fields(run, "process_type", "architecture", "optimizer", "cache_text_embeddings", "steps", "rank") == [
        "flux_train_network",
        "flux",
        "adamw8bit",
        True,
        800,
        16,
    ]
    assert "vae" not in run.settings and run.settings["sdpa"].value is True


@pytest.mark.parametrize(
    ("written", "made"),
    [
        ({"unet_lr": 3e-4}, {"network_train_unet_only": True}),
        ({"unet_lr": 3e-4, "text_encoder_lr": 1e-5}, {"network_train_unet_only": None}),
        ({"rank_dropout": 0.1, "split_qkv": True}, {"network_args": ["rank_dropout=0.1", "split_qkv=True"]}),
        ({"module_dropout": 0, "ggpo_beta": 0.1, "in_dims": ""}, {"network_args": None}),
        ({"train_lora_ggpo": True, "ggpo_beta": 0.1}, {"network_args": ["ggpo_beta=0.1"]}),
        ({"lr_warmup": 10}, {"lr_warmup_steps": 0.1}),
        ({"lr_warmup": "10", "lr_warmup_steps": 50}, {"lr_warmup_steps": 50}),
        ({"max_train_steps": 0, "epoch": 3}, {"max_train_epochs": 3}),
        ({"max_train_steps": 700, "epoch": 3}, {"max_train_epochs": None}),
        (
            {"additional_parameters": "--network_train_unet_only --sigmoid_scale=2 --network_args a=1 b=2"},
            {"network_train_unet_only": True, "sigmoid_scale": "2", "network_args": ["a=1", "b=2"]},
        ),
    ],
)
def test_what_the_gui_makes_of_its_settings(written: dict[str, Any], made: dict[str, Any]) -> None:
    run = only(read("/w/gui.json", json.dumps({**GUI, **written}, indent=1)))
    assert {name: run.setting(name) for name in made} == made
    assert run.recipe.datasets[0].resolutions == (1024,)
    assert run.pointer("optimizer") == "/optimizer"


def test_a_tab_of_another_model_is_not_judged() -> None:
    """Stable Cascade's tab starts a script of its own, and hands on less."""
    own = {"model_list": "custom", "num_cpu_threads_per_process": 2, "lr_warmup": 10, "lr_scheduler": "constant"}
    text = json.dumps({"effnet_checkpoint_path": "e.st", **own})
    reading = read("/w/gui.json", text, trainer="sd-scripts")
    assert not reading.runs and "a tab of kohya's GUI" in reading.reason


def test_older_settings_of_the_gui() -> None:
    old = {"LoRA_type": "Standard", "network_dim": 8, "max_token_length": "75", "xformers": True, "sdxl": True}
    run = only(read("/w/gui.json", json.dumps({**old, "timestep_sampling": "sigma", "epoch": 1})))
    assert (run.process_type, run.recipe.architecture, run.recipe.network.rank) == ("sdxl_train_network", "sdxl", 8)
    assert "max_token_length" not in run.settings and run.settings["xformers"].value is True


DOUBTS = [
    ("a variable", FLUX + "--ae $AE/ae.safetensors --seed 1", {"ae"}, False),
    ("a variable that may be options", FLUX + "--fp8_base $EXTRA_ARGS", {"fp8_base"}, True),
    ("a list that nobody sets", FLUX + '--seed 1 "${ARGS[@]}"', set(), True),
    ("what the script is started with", FLUX + '--seed 1 "$@"', set(), True),
    ("a list with more on a condition", "A=(--seed 1)\n[[ $X ]] && A+=(--ae b)\n" + FLUX + '"${A[@]}"', set(), True),
    ("a list that is known", "A=(--seed 1)\n" + FLUX + '"${A[@]}"', set(), False),
    ("a config file that nobody names", FLUX + '--config_file "$CONFIG"', {"config_file"}, True),
    ("the same by a short name, which argparse takes", FLUX + '--config "$CONFIG"', {"config"}, True),
    (
        "a config file that the script writes",
        "cat > new.toml <<E\nseed = 1\nE\n" + FLUX + "--config_file new.toml",
        {"config_file"},
        True,
    ),
    (
        "datasets that the script writes",
        "cat > d.toml <<E\nE\n" + FLUX + "--dataset_config d.toml",
        {"dataset_config"},
        False,
    ),
    (
        "datasets that another program writes",
        "python make.py --to d.toml\n" + FLUX + "--dataset_config d.toml",
        {"dataset_config"},
        False,
    ),
    (
        "a model that is fetched",
        "hf download a/b --local-dir /m/x\n" + FLUX + "--ae /m/x/ae.safetensors",
        {"ae"},
        False,
    ),
    (
        "a word that another program has, too",
        "python resize.py --to bf16\n" + FLUX + "--mixed_precision bf16",
        set(),
        False,
    ),
    ("a folder that is made", "mkdir -p /m/x\n" + FLUX + "--ae /m/x/ae.safetensors", set(), False),
    (
        "another folder",
        "cd /opt/sd-scripts\n" + FLUX + "--ae m/ae.safetensors --clip_l /m/c.safetensors",
        {"ae"},
        False,
    ),
    ("xargs", f"echo --seed 1 | xargs {FLUX} --ae a.st --output_dir o", set(), True),
    ("a number by the shell", FLUX + "--max_train_steps $((10 * 3))", {"max_train_steps"}, False),
]


@pytest.mark.parametrize(("text", "names", "more"), [case[1:] for case in DOUBTS], ids=[case[0] for case in DOUBTS])
def test_what_only_the_shell_can_tell(text: str, names: set[str], more: bool) -> None:
    run = only(read("/w/t.sh", text))
    assert {name for name, value in run.settings.items() if value.unknown} == names
    assert (run.unread not in ("", PART)) is more


@pytest.mark.parametrize(
    "line",
    [
        "echo starting flux_train_network.py --fp8_base",
        "[ -f flux_train_network.py ] || exit 1",
        "pkill -f flux_train_network.py",
        "cp flux_train_network.py /w/",
        "if [[ ! -f sd-scripts/flux_train_network.py ]]; then exit 1; fi",
    ],
)
def test_what_only_speaks_of_a_script_starts_none(line: str) -> None:
    assert len(read("/w/t.sh", f"{line}\n{FLUX} --fp8_base\n").runs) == 1


@pytest.mark.parametrize("last", ["--network_dim 8", "--fp8_base --network_dim 8"])
def test_a_command_without_model_and_dataset_is_a_part_of_one(last: str) -> None:
    run = only(read("/w/t.sh", f"python flux_train_network.py {last}\n"))
    assert run.unread == PART and fields(run, "rank") == [8]
    named = ["--dataset_config data.toml", "--pretrained_model_name_or_path m.st", "--output_dir o", "--unet_lr 1"]
    for left in named:  # one may be forgotten
        others = " ".join(one for one in named if one != left)
        assert not only(read("/w/t.sh", f"python flux_train_network.py {others} {last}\n")).unread


@pytest.mark.parametrize("last", ["--help", "-h", "--output_config"])
def test_what_ends_before_it_trains_is_no_run(last: str) -> None:
    reading = read("/w/t.sh", f"docker run --rm image flux_train_network.py {last}\n")
    assert not reading.runs and "no start of a training" in reading.reason
    assert len(read("/w/t.sh", f"{FLUX} {last}\n{FLUX} --fp8_base\n").runs) == 1


def test_what_shows_its_datasets_is_judged_by_these() -> None:
    for option in ("--debug_dataset", "--show_timesteps=image"):
        run = only(read("/w/t.sh", f"python zimage_train_network.py --dataset_config m.toml {option}\n"))
        assert fields(run, "trainer", "process_type") == ["musubi-tuner", "datasets"]


@pytest.mark.parametrize(
    "front",
    [
        "CUDA_VISIBLE_DEVICES=0 python",
        "exec python",
        "nohup python",
        "torchrun --nproc_per_node 1",
        "uv run",
        "uv run --extra cu124 accelerate launch --mixed_precision bf16",
        "conda run -n x python",
        "poetry run python",
        "cd /w && source venv/bin/activate && python",
        "if python",
        "docker run --rm image python",
    ],
)
def test_how_a_script_is_started(front: str) -> None:
    behind = "; then :; fi" if front == "if python" else " &"
    run = only(read("/w/t.sh", f"{front} flux_train_network.py --seed 1 --network_dim 2{behind}\n"))
    assert fields(run, "seed", "rank", "process_type") == [1, 2, "flux_train_network"]
    assert only(read("/w/t.sh", f"{front} -m musubi_tuner.zimage_train_network --seed 1\n")).trainer == "musubi-tuner"


def test_a_shell_takes_other_bytes_than_those_of_utf8() -> None:
    assert only(read("/w/t.sh", "# \u8bad\u7ec3\n".encode("gbk") + FLUX.encode() + b"--seed 1")).recipe.seed == 1
    assert only(read("/w/t.ps1", (FLUX + "--seed 1").encode("utf-16"))).recipe.seed == 1
    assert read("/w/t.sh", (FLUX + "--seed 1").encode("utf-16")).config.problem is not None


@pytest.mark.parametrize(
    ("text", "trainer"),
    [
        ("accelerate launch train.py --train_data_meta x --network_module y", "sd-scripts"),
        ("accelerate launch scripts/flux/train.py --pretrained_model_name_or_path x --ae y", "sd-scripts"),
        ("export MODEL_FAMILY=flux MODEL_TYPE=lora\naccelerate launch simpletuner/train.py", "SimpleTuner"),
    ],
)
def test_scripts_of_others_are_not_judged(text: str, trainer: str) -> None:
    found = read("/w/t.sh", text, trainer=trainer)
    assert found.config.problem is None and not found.runs and found.reason


def test_a_training_may_go_on_with_what_the_one_above_it_writes() -> None:
    second = "--pretrained_model_name_or_path /o/last.safetensors --ae /m/ae.safetensors --output_dir /o/b"
    runs = read("/w/t.sh", f"{FLUX} --output_dir /o\n{FLUX} {second}\n").runs
    assert [[name for name, value in run.settings.items() if value.unknown] for run in runs] == [
        [],
        ["pretrained_model_name_or_path"],
    ]


def test_the_beginning_of_an_option_is_taken_for_the_whole() -> None:
    assert only(read("/w/t.sh", FLUX + "--config cfg")).recipe.network.rank == 8
    assert only(read("/w/t.sh", FLUX + "--config $CFG")).unread


def test_old_names_are_read_as_the_new_ones_which_go_before() -> None:
    old = MUSUBI_DATA + "flux_kontext_no_resize_control = true\nqwen_image_edit_control_resolution = [512, 512]\n"
    run = only(read("/w/m.toml", old))
    assert run.settings["datasets/0/no_resize_control"].value is True
    assert run.pointer("datasets/0/no_resize_control") == "/datasets/0/flux_kontext_no_resize_control"
    assert "datasets/0/qwen_image_edit_control_resolution" not in run.settings
    both = only(read("/w/m.toml", old + "no_resize_control = false\n"))
    assert both.settings["datasets/0/no_resize_control"].value is False


def test_scripts_that_only_fill_caches_are_judged_by_their_datasets() -> None:
    text = "python zimage_cache_latents.py --dataset_config m.toml --vae /m/ae.safetensors\n"
    run = only(read("/w/t.sh", text))
    assert fields(run, "trainer", "process_type") == ["musubi-tuner", "datasets"]
    assert run.recipe.datasets[0].folder == "/data/cat"
    assert only(read("/w/t.txt", text.replace("zimage_cache", "wan_cache"))).trainer == "musubi-tuner"
    both = read("/w/t.sh", ZIMAGE)
    assert [run.process_type for run in both.runs] == ["zimage_train_network"]


BAD = [
    ("a lost line", "/w/t.sh", FLUX + "--ae /a \\ \n --fp8_base\n", "does not go on", 1),
    ("an open quote", "/w/t.sh", FLUX + "--ae 'a\n", "not closed", 1),
    ("broken toml", "/w/cfg.toml", CONFIG + "x = [1,\n", "", 13),
    ("a key twice", "/w/cfg.toml", "mixed_precision = 'no'\nmixed_precision = 'no'\nae = 'x'\n", "already exists", 2),
    ("a mark", "/w/cfg.toml", b"\xef\xbb\xbf" + CONFIG.encode(), "byte-order mark", 1),
    ("utf-16", "/w/cfg.toml", CONFIG.encode("utf-16"), "UTF-16", 1),
    ("a windows path in quotes", "/w/cfg.toml", 'pretrained_model_name_or_path = "C:\\models"\nae="x"\n', "", 1),
]


@pytest.mark.parametrize(("path", "text", "said", "line"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_what_the_trainer_would_refuse(path: str, text: str | bytes, said: str, line: int) -> None:
    problem = read(path, text, trainer="sd-scripts").config.problem
    assert problem is not None and said in problem.message and problem.where.line == line, problem


def test_a_problem_in_another_file_is_placed_there() -> None:
    problem = read("/w/cfg.toml", CONFIG, {"data.toml": "[general\n"}).config.problem
    assert problem is not None and problem.where.path == "/w/data.toml"


@pytest.mark.parametrize("text", [CONFIG.replace("\n", "\r\n"), FLUX + "\\\r\n  --ae x\r\n"])
def test_windows_line_ends(text: str) -> None:
    only(read("/w/t.sh" if text.startswith("acc") else "/w/cfg.toml", text))


def test_a_script_without_a_training() -> None:
    reading = read("/w/t.sh", "python zimage_cache_latents.py --dit x", trainer="musubi-tuner")
    assert not reading.runs and reading.config.problem is None and "no start of a training" in reading.reason
    assert read("/w/t.sh", "echo hello\n").config.problem is not None


START = "flux_train_network.py --config_file cfg.toml"


@pytest.mark.parametrize(
    ("path", "text", "cards"),
    [
        ("run.sh", f"accelerate launch {START}", [None]),
        ("run.sh", f"accelerate launch --gpu_ids all {START}", [None]),
        ("run.sh", f"accelerate launch --gpu_ids 1 --num_processes 1 {START}", ["1"]),
        ("run.sh", f"accelerate launch --gpu_ids=2,1 {START}", ["2,1"]),
        ("run.sh", f"export CUDA_VISIBLE_DEVICES=1\naccelerate launch {START}", ["1"]),
        ("run.sh", f"GPU=1\nexport CUDA_VISIBLE_DEVICES=$GPU\naccelerate launch {START}", ["1"]),
        ("run.sh", f"export CUDA_VISIBLE_DEVICES=$GPU\naccelerate launch {START}", ["$GPU"]),
        ("run.sh", f"export CUDA_VISIBLE_DEVICES=`cat card`\npython {START}", ["`cat card`"]),
        ("run.bat", f"set CUDA_VISIBLE_DEVICES=!card!\r\npython {START}", ["!card!"]),
        ("run.sh", f"export CUDA_VISIBLE_DEVICES=0\naccelerate launch --gpu_ids 1 {START}", ["1"]),
        ("run.sh", f"export CUDA_VISIBLE_DEVICES=\npython {START}", [""]),
        ("run.sh", f"CUDA_VISIBLE_DEVICES=1 python {START}\npython {START}", ["1", None]),
        ("run.sh", f"env CUDA_VISIBLE_DEVICES=1 python {START}", ["1"]),
        ("run.bat", f"set CUDA_VISIBLE_DEVICES=1\r\npython {START}", ["1"]),
        ("run.bat", f'set "CUDA_VISIBLE_DEVICES=1"\r\npython {START}', ["1"]),
        ("run.ps1", f'$env:CUDA_VISIBLE_DEVICES = "1"\npython {START}', ["1"]),
        ("run.ps1", f"$env:CUDA_VISIBLE_DEVICES=1; python {START}", ["1"]),
    ],
)
def test_the_cards_that_a_script_chooses(path: str, text: str, cards: list[str | None]) -> None:
    runs = read(path, text).runs
    assert [run.setting(CHOSEN) for run in runs] == cards
    gpus = tuple(Gpu(index, "A6000", 48 << 30, 47 << 30, (8, 6), "580", "recorded") for index in range(3))
    for run, chosen in zip(runs, cards, strict=True):
        found, first = taken(run, gpus, {}), (chosen or "0")[0]
        assert (
            isinstance(found, Unknown) if first in "$`!" else found == ((gpus[int(first)],) if chosen != "" else ())
        )
        # zdoctor's own runner is not started by that script
        assert taken(replace(run, trainer=RUNNER), gpus, {}) == (gpus[0],)


@pytest.mark.parametrize(
    ("path", "text", "chosen"),
    [
        ("run.sh", f"export CUDA_VISIBLE_DEVICES=1\nunset CUDA_VISIBLE_DEVICES\npython {START}", ALL),
        ("run.sh", f"unset PYTHONPATH CUDA_VISIBLE_DEVICES; python {START}", ALL),
        ("run.sh", f"unset CUDA_VISIBLE_DEVICES\nexport CUDA_VISIBLE_DEVICES=1\npython {START}", "1"),
        ("run.sh", f"unset PYTHONPATH\npython {START}", None),
        ("run.bat", f"set CUDA_VISIBLE_DEVICES=\r\npython {START}", ALL),
        ("run.ps1", f'$env:CUDA_VISIBLE_DEVICES = ""\npython {START}', ALL),
    ],
)
def test_a_script_that_takes_the_choice_away(path: str, text: str, chosen: str | None) -> None:
    """Whatever the terminal says then, the trainer is shown all cards."""
    (run,) = read(path, text).runs
    assert run.setting(CHOSEN) == chosen
    gpus = tuple(Gpu(index, "A6000", 48 << 30, 47 << 30, (8, 6), "580", "recorded") for index in range(3))
    found = taken(run, gpus, {"CUDA_VISIBLE_DEVICES": "2"})
    assert found == (gpus[{ALL: 0, "1": 1, None: 2}[chosen]],)


def test_the_gui_chooses_cards() -> None:
    runs = [only(read("/w/gui.json", json.dumps({**GUI, "gpu_ids": ids}))) for ids in ("", "1", None)]
    assert [run.setting(CHOSEN) for run in runs] == [None, "1", None]


def test_accelerate_makes_that_of_gpu_ids() -> None:
    words = "--no_python --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no --gpu_ids 2,1"
    command = [sys.executable, "-m", "accelerate.commands.launch", *words.split(), "printenv", "CUDA_VISIBLE_DEVICES"]
    made = subprocess.run(command, env={**os.environ, "CUDA_VISIBLE_DEVICES": "7"}, capture_output=True, check=True)
    assert made.stdout.split() == [b"2,1"]
