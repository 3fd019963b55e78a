"""Rules for sd-scripts and musubi-tuner: each sick setting is named at its place, the healthy one is silent."""

from __future__ import annotations

import argparse
import glob
import inspect
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from transformers.optimization import TYPE_TO_SCHEDULER_FUNCTION, Adafactor
from transformers.trainer_utils import SchedulerType

from zdoctor import check
from zdoctor.checks.kohya import late
from zdoctor.doctor.configs.edit import apply_edits
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.model import ReplaceText, Report, SetValue
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.rules import all_rules
from zdoctor.doctor.trainers.kohya import arguments
from zdoctor.tests import part_files as made

RULES = [rule for rule in all_rules() if rule.id.startswith("KOH")]
FLUX: Mapping[str, object] = {
    "output_dir": "out",
    "mixed_precision": "bf16",
    "learning_rate": "1e-4",
    "lr_scheduler": "constant_with_warmup",
    "lr_warmup_steps": 10,
    "guidance_scale": "1.0",
    "model_prediction_type": "raw",
    "timestep_sampling": "flux_shift",
    "fp8_base": True,
    "blocks_to_swap": 35,
    "cache_latents_to_disk": True,
    "cache_text_encoder_outputs": True,
    "caption_dropout_rate": "0.0",
    "caption_extension": ".txt",
    "resolution": "512,512",
    "enable_bucket": True,
    "bucket_reso_steps": 64,
    "network_args": ["train_blocks=single"],
    "sdpa": True,
}
ZIMAGE: Mapping[str, object] = {
    "dataset_config": "data.toml",
    "output_dir": "out",
    "learning_rate": "1e-4",
    "optimizer_type": "adamw8bit",
    "sdpa": True,
    "fp8_base": True,
    "fp8_scaled": True,
    "blocks_to_swap": 28,
}
DATA = """\
[general]
resolution = [512, 512]
caption_extension = ".txt"
[[datasets]]
image_directory = "cats"
cache_directory = "cache"
"""
LISTED = DATA.replace('image_directory = "cats"', 'image_jsonl_file = "nowhere.jsonl"')


def pictures(folder: Path, caption: str = ".txt", count: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    header = (
        b"\x89PNG\r\n\x1a\n" + (13).to_bytes(4, "big") + b"IHDR" + (64).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0"
    )
    for number in range(count):
        (folder / f"{number}.png").write_bytes(header + bytes(4) + bytes(64))
        if caption:
            (folder / f"{number}{caption}").write_text("a cat")


def checked(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.chdir(path.parent)
    return examine_config(str(path), LiveWorld(), RULES, text.encode()).report


def flux(folder: Path, monkeypatch: pytest.MonkeyPatch, **changed: object) -> Report:
    pictures(folder / "d" / "10_cat")
    options = {**made.flux_files(), "train_data_dir": "d", **FLUX, **changed}
    return checked(folder / "train.sh", made.flux_command(options), monkeypatch)


def zimage(folder: Path, monkeypatch: pytest.MonkeyPatch, data: str = DATA, **changed: object) -> Report:
    pictures(folder / "cats")
    (folder / "cache").mkdir(exist_ok=True)
    for name in ("0_0064x0064_zi", "0_zi_te"):
        (folder / "cache" / f"{name}.safetensors").touch()
    (folder / "data.toml").write_text(data)
    (folder / "p.txt").write_text("a cat")
    options = {**made.zimage_files(), **ZIMAGE, **changed}
    return checked(folder / "train.sh", made.zimage_command(options), monkeypatch)


def findings(report: Report) -> list[tuple[str, str | None]]:
    for finding in report.findings:
        assert finding.text() and finding.consequence()
    assert not report.crashed, report.crashed
    return [(f.rule, f.where.pointer if f.where is not None else None) for f in report.findings]


def test_healthy_flux_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = flux(tmp_path, monkeypatch)
    assert not findings(report) and not report.unknown, report


def test_healthy_zimage_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = zimage(tmp_path, monkeypatch)
    assert not findings(report) and not report.unknown, report


FLUX_SICK: list[tuple[str, dict[str, object], tuple[str, str]]] = [
    ("no VAE", {"ae": None}, ("KOH001", "")),
    ("a file that is not there", {"clip_l": "/nowhere/clip_l.safetensors"}, ("KOH001", "/clip_l")),
    ("a hub id", {"pretrained_model_name_or_path": "black-forest-labs/FLUX.1-dev"}, ("KOH001", "/pretrained_model")),
    ("a folder", {"t5xxl": "d"}, ("KOH001", "/t5xxl")),
    ("a placeholder", {"ae": "<path to AE model>"}, ("KOH001", "/ae")),
    ("no module", {"network_module": None}, ("KOH002", "")),
    ("the module of SD", {"network_module": "networks.lora"}, ("KOH002", "/network_module")),
    ("warm-up of nothing", {"lr_scheduler": "constant"}, ("KOH003", "/lr_warmup_steps")),
    ("Adafactor's schedule", {"lr_scheduler": "adafactor:1e-4"}, ("KOH003", "/lr_scheduler")),
    ("an entry without =", {"network_args": ["train_blocks"]}, ("KOH003", "/network_args")),
    ("too many blocks", {"blocks_to_swap": 36}, ("KOH003", "/blocks_to_swap")),
    ("swap and offload", {"cpu_offload_checkpointing": True}, ("KOH003", "/blocks_to_swap")),
    ("cached and cropped", {"random_crop": True}, ("KOH003", "/random_crop")),
    ("cached and shuffled", {"shuffle_caption": True}, ("KOH003", "/shuffle_caption")),
    ("cached and dropped", {"caption_dropout_rate": "0.1"}, ("KOH003", "/caption_dropout_rate")),
    ("cached and trained", {"network_args": ["train_t5xxl=True"]}, ("KOH003", "/network_args")),
    ("fp8 in 32 bits", {"mixed_precision": None}, ("KOH003", "")),
    ("full bf16 in fp16", {"mixed_precision": "fp16", "full_bf16": True}, ("KOH003", "/full_bf16")),
    ("odd buckets", {"bucket_reso_steps": 48}, ("KOH003", "/bucket_reso_steps")),
    ("above the largest bucket", {"resolution": "1280,720"}, ("KOH003", "/resolution")),
    ("above it when rounded", {"resolution": "1088,720", "max_bucket_reso": 1000}, ("KOH003", "/max_bucket_reso")),
    ("below the smallest bucket", {"min_bucket_reso": 640}, ("KOH003", "/min_bucket_reso")),
    ("fused with AdamW", {"fused_backward_pass": True}, ("KOH003", "/fused_backward_pass")),
    ("the folder of the pictures", {"train_data_dir": "d/10_cat"}, ("KOH004", "/train_data_dir")),
    ("the default caption ending", {"caption_extension": None}, ("KOH005", "")),
    ("guidance as in the parser", {"guidance_scale": None}, ("KOH007", "")),
    ("prediction as in the parser", {"model_prediction_type": None}, ("KOH007", "")),
    ("no rate", {"learning_rate": None}, ("KOH010", "")),
    ("nowhere to write", {"output_dir": None}, ("KOH011", "")),
    ("no prompts", {"sample_prompts": "nowhere.txt"}, ("KOH012", "/sample_prompts")),
    ("prompts in place of a file", {"sample_prompts": "d"}, ("KOH012", "/sample_prompts")),
    ("no weights", {"network_weights": "/nowhere.safetensors"}, ("KOH012", "/network_weights")),
    ("no list of pictures", {"in_json": "/nowhere.json", "train_data_dir": "d/10_cat"}, ("KOH012", "/in_json")),
    ("an optimizer's slip", {"optimizer_type": "AdamW8bits"}, ("KOH013", "/optimizer_type")),
    ("torch's, in small letters", {"optimizer_type": "rmsprop"}, ("KOH013", "/optimizer_type")),
    ("a schedule's slip", {"lr_scheduler": "cosine_with_restart"}, ("KOH013", "/lr_scheduler")),
    ("two words for it", {"optimizer_type": "AdamW8bit", "use_8bit_adam": True}, ("KOH003", "/use_8bit_adam")),
    ("warm-up of its own schedule", {"optimizer_type": "Adafactor"}, ("KOH003", "/lr_warmup_steps")),
    (
        "its schedule, turned off",
        {"optimizer_type": "Adafactor", "optimizer_args": ["relative_step=False"], "lr_scheduler": "adafactor"},
        ("KOH003", "/lr_scheduler"),
    ),
    ("another's argument", {"optimizer_args": ["scale_parameter=False"]}, ("KOH020", "/optimizer_args")),
    ("a rate twice", {"optimizer_args": ["lr=1e-4"]}, ("KOH020", "/optimizer_args")),
    ("an argument of none", {"optimizer_args": ["weigth_decay=0.1"]}, ("KOH020", "/optimizer_args")),
    ("polynomial's argument", {"lr_scheduler_args": ["lr_end=1e-6"]}, ("KOH020", "/lr_scheduler_args")),
]


@pytest.mark.parametrize(("changed", "expected"), [c[1:] for c in FLUX_SICK], ids=[c[0] for c in FLUX_SICK])
def test_flux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, object], expected: tuple[str, str]
) -> None:
    ((rule, pointer),) = findings(flux(tmp_path, monkeypatch, **changed))
    assert rule == expected[0] and pointer is not None and pointer.startswith(expected[1])
    assert expected[1] or not pointer


# (in the dataset, in the subset, the options, what is said)
GOES_BEFORE: list[tuple[str, str, dict[str, object], str]] = [
    ("bucket_reso_steps = 64", "", {"bucket_reso_steps": 1}, ""),
    ("", "", {"bucket_reso_steps": 1}, "/bucket_reso_steps"),
    ("enable_bucket = false", "", {"bucket_reso_steps": 1}, ""),
    ("bucket_reso_steps = 1", "", {"bucket_reso_steps": 64}, "/datasets/0/bucket_reso_steps"),
    ("bucket_reso_steps = 1", 'conditioning_data_dir = "d/10_cat"', {"masked_loss": True}, ""),
    ("max_bucket_reso = 448", "", {}, "/datasets/0/max_bucket_reso"),
    ("max_bucket_reso = 449", "", {}, ""),  # rounded up to 512
    ("max_bucket_reso = 448", "", {"enable_bucket": None}, ""),
    ("", "random_crop = false", {"random_crop": True}, ""),
    ("random_crop = true", "random_crop = false", {}, ""),
    ("random_crop = true", "", {}, "/datasets/0/random_crop"),
]


@pytest.mark.parametrize(("dataset", "subset", "options", "said"), GOES_BEFORE)
def test_a_dataset_file_goes_before_the_options(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dataset: str,
    subset: str,
    options: dict[str, object],
    said: str,
) -> None:
    (tmp_path / "data.toml").write_text(
        f'[[datasets]]\nresolution = 512\n{dataset}\n[[datasets.subsets]]\nimage_dir = "d/10_cat"\n{subset}\n'
    )
    report = flux(tmp_path, monkeypatch, train_data_dir=None, dataset_config="data.toml", **options)
    assert findings(report) == ([("KOH003", said)] if said else [])


ZIMAGE_SICK: list[tuple[str, dict[str, object], str, tuple[str, str]]] = [
    ("no DiT", {"dit": "/nowhere.safetensors"}, DATA, ("KOH001", "/dit")),
    ("samples without a VAE", {"sample_prompts": "p.txt", "vae": None}, DATA, ("KOH001", "")),
    ("the module of Wan", {"network_module": "networks.lora_wan"}, DATA, ("KOH002", "/network_module")),
    ("scaled alone", {"fp8_base": None}, DATA, ("KOH003", "/fp8_scaled")),
    ("no attention", {"sdpa": None}, DATA, ("KOH003", "")),
    ("sage", {"sage_attn": True}, DATA, ("KOH003", "/sage_attn")),
    ("too many blocks", {"blocks_to_swap": 29}, DATA, ("KOH003", "/blocks_to_swap")),
    ("one cache for two", {}, DATA + DATA.partition("[[")[2].join(("[[", "")), ("KOH003", "/datasets/1/cache_dir")),
    ("no picture", {}, DATA.replace('"cats"', '"cache"'), ("KOH004", "/datasets/0/image_directory")),
    ("no caption ending", {}, DATA.replace("caption_extension", "# "), ("KOH005", "/datasets/0")),
    ("another caption ending", {}, DATA.replace(".txt", ".caption"), ("KOH005", "/datasets/0")),
    ("an ending without a dot", {}, DATA.replace('".txt"', '"txt"'), ("KOH005", "/datasets/0")),
    ("no rate", {"learning_rate": None}, DATA, ("KOH010", "")),
    ("no datasets", {"dataset_config": "nowhere.toml"}, DATA, ("KOH012", "/dataset_config")),
    ("no list of pictures", {}, LISTED, ("KOH012", "/datasets/0/image_jsonl_file")),
    ("no control pictures", {}, f'{DATA}control_directory = "no"\n', ("KOH012", "/datasets/0/control_directory")),
    ("no optimizer", {"optimizer_type": None}, DATA, ("KOH013", "")),
    ("no adapter", {"base_weights": ["/nowhere.safetensors"]}, DATA, ("KOH012", "/base_weights")),
]


@pytest.mark.parametrize(
    ("changed", "data", "expected"), [c[1:] for c in ZIMAGE_SICK], ids=[c[0] for c in ZIMAGE_SICK]
)
def test_zimage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, object],
    data: str,
    expected: tuple[str, str],
) -> None:
    ((rule, pointer),) = findings(zimage(tmp_path, monkeypatch, data, **changed))
    assert rule == expected[0] and pointer is not None and pointer.startswith(expected[1])


def test_the_scripts_that_make_the_caches_open_the_dataset_file_too(tmp_path: Path) -> None:
    start = b"python cache_latents.py --dataset_config nowhere.toml --vae v.safetensors\n"
    report = examine_config(str(tmp_path / "cache.sh"), LiveWorld(cwd=str(tmp_path)), text=start).report
    assert [f.rule for f in report.errors] == ["KOH012"]


def test_a_folder_of_videos_is_no_folder_of_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clips").mkdir()
    for name in ("a.mp4", "a.txt", "b.MKV", "b.txt"):
        (tmp_path / "clips" / name).write_text("a cat")
    data = DATA.replace("image_directory", "video_directory")
    assert not findings(zimage(tmp_path, monkeypatch, data.replace('"cats"', '"clips"')))
    assert findings(zimage(tmp_path, monkeypatch, data)) == [("KOH004", "/datasets/0/video_directory")]


@pytest.mark.parametrize(("name", "known"), [("no_resize_control", True), ("no_size_control", False)])
def test_old_names_of_a_dataset_file_are_known(tmp_path: Path, name: str, known: bool) -> None:
    (tmp_path / "m.toml").write_text(DATA + f"qwen_image_edit_{name} = true\nflux_kontext_{name} = true\n")
    report = check(str(tmp_path / "m.toml"), selected=["CFG002"])
    assert (not report.findings) == known


def test_what_accelerate_takes_for_a_saved_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accelerate = pytest.importorskip("accelerate")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    accelerator, layer = accelerate.Accelerator(cpu=True), torch.nn.Linear(2, 2)
    accelerator.prepare(layer, torch.optim.AdamW(layer.parameters()))
    accelerator.save_state(str(tmp_path / "x-state"))
    (tmp_path / "x-state" / "train_state.json").touch()
    (tmp_path / "x.safetensors").touch()
    (tmp_path / "empty").mkdir()
    for name in ("x-state", "empty", "x.safetensors", "."):
        try:
            accelerator.load_state(str(tmp_path / name))
        except (OSError, ValueError):
            expected = [("KOH012", "/resume")]
        else:
            expected = []
        assert findings(flux(tmp_path, monkeypatch, resume=str(tmp_path / name))) == expected
        assert bool(expected) == (name != "x-state")


def test_sd_scripts_adds_the_dot_of_a_caption_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not findings(flux(tmp_path, monkeypatch, caption_extension="txt"))


def test_numbers_without_an_end_crash_no_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("inf", "nan", "1e999"):
        findings(flux(tmp_path, monkeypatch, blocks_to_swap=value, bucket_reso_steps=value))


def test_samples_need_the_encoders_and_training_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not findings(zimage(tmp_path, monkeypatch, vae=None, text_encoder=None))


def test_caches_that_the_same_script_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = zimage(tmp_path, monkeypatch, DATA.replace('"cache"', '"cats"'))
    assert [rule for rule, _ in findings(report)] == ["KOH006", "KOH006"]
    text = made.zimage_command({**made.zimage_files(), **ZIMAGE})
    text = (
        "python zimage_cache_latents.py --vae v\npython zimage_cache_text_encoder_outputs.py --text_encoder t\n"
        + text
    )
    assert not findings(checked(tmp_path / "train.sh", text, monkeypatch))


@pytest.mark.parametrize(
    ("folder", "found"), [("cache [v2]", False), ("a[1]/b", False), ("cache (v2)", True), ("a[b", True), ("[x", True)]
)
def test_a_cache_folder_is_searched_as_a_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, found: bool
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    for name in ("0_0064x0064_zi", "0_zi_te"):
        (tmp_path / folder / f"{name}.safetensors").touch()
    report = zimage(tmp_path, monkeypatch, DATA.replace('"cache"', f'"{folder}"'))
    assert bool(glob.glob(os.path.join(folder, "*_zi.safetensors"))) == found
    assert findings(report) == ([] if found else [("KOH018", "/datasets/0/cache_directory")])


def test_turbo_wants_its_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turbo = str(made.write(tmp_path / "z_image_turbo_bf16.safetensors", made.zimage()))
    assert findings(zimage(tmp_path, monkeypatch, dit=turbo)) == [("KOH009", "/dit")]
    (tmp_path / "adapter_v2.safetensors").touch()
    assert not findings(zimage(tmp_path, monkeypatch, dit=turbo, base_weights=["adapter_v2.safetensors"]))
    freed = str(made.write(tmp_path / "z_image_de_turbo_v1.safetensors", made.zimage()))
    assert not findings(zimage(tmp_path, monkeypatch, dit=freed))


def test_eight_bits_are_a_matter_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eight = str(made.write(tmp_path / "fp8.safetensors", made.flux(), "F8_E4M3", 1))
    other = str(made.write(tmp_path / "e5m2.safetensors", made.flux(), "F8_E5M2", 1))
    assert not findings(flux(tmp_path, monkeypatch, pretrained_model_name_or_path=eight))
    report = flux(tmp_path, monkeypatch, pretrained_model_name_or_path=eight, fp8_base=None)
    assert [(f.rule, f.severity) for f in report.findings] == [("KOH008", "note")]
    assert "24 GB" in report.findings[0].text()
    assert findings(flux(tmp_path, monkeypatch, pretrained_model_name_or_path=other)) == [
        ("KOH003", "/pretrained_model_name_or_path")
    ]


def test_pictures_of_a_list_need_no_numbered_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures(tmp_path / "e")
    (tmp_path / "meta.json").write_text("{}")
    assert not findings(flux(tmp_path, monkeypatch, train_data_dir="e", in_json="meta.json"))
    assert findings(flux(tmp_path, monkeypatch, train_data_dir="e")) == [("KOH004", "/train_data_dir")]


def test_a_folder_of_one_caption_is_a_way_to_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures(tmp_path / "e" / "5_a cat", caption="")
    (tmp_path / "e" / "notes").mkdir()
    assert not findings(flux(tmp_path, monkeypatch, train_data_dir="e"))
    pictures(tmp_path / "e", count=1)
    assert findings(flux(tmp_path, monkeypatch, train_data_dir="e")) == [("KOH004", "/train_data_dir")]


@pytest.mark.parametrize("name", ["prodigy", "PagedLion8bit", "RMSprop", "bitsandbytes.optim.AdEMAMix8bit", "Muon"])
def test_optimizers_that_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert not findings(flux(tmp_path, monkeypatch, optimizer_type=name))


HEALTHY: list[dict[str, object]] = [
    {"optimizer_type": "Adafactor", "optimizer_args": ["relative_step=False", "beta1=0.9"]},
    {"optimizer_type": "Adafactor", "lr_scheduler": "adafactor", "lr_warmup_steps": None},
    {"optimizer_type": "AdamW8bit", "optimizer_args": ["betas=0.9,0.99", "block_wise=True", "is_paged=True"]},
    {"optimizer_type": "Prodigy", "optimizer_args": ["decouple=True", "d_coef=0.8", "safeguard_warmup=True"]},
    {"optimizer_type": "some.module.Class", "optimizer_args": ["anything=1"]},
    {"use_8bit_adam": True, "optimizer_args": ["weight_decay=0.1"]},
    {"lr_scheduler": "polynomial", "lr_scheduler_args": ["lr_end=1e-6"]},
    {"lr_scheduler_type": "CosineAnnealingLR", "lr_scheduler_args": ["T_max=100"], "lr_warmup_steps": None},
]


@pytest.mark.parametrize("changed", HEALTHY)
def test_arguments_that_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, object]
) -> None:
    assert not findings(flux(tmp_path, monkeypatch, **changed))


def test_an_argument_that_another_version_may_have_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = flux(tmp_path, monkeypatch, optimizer_args=["quite_new=True"])
    assert [(f.rule, f.severity) for f in report.findings] == [("KOH020", "warning")]


def test_what_the_constructors_take() -> None:
    classes = {
        "adamw": torch.optim.AdamW,
        "sgdnesterov": torch.optim.SGD,
        "adafactor": Adafactor,
        "prodigy": pytest.importorskip("prodigyopt").Prodigy,
    }
    for name, kind in classes.items():
        taken = set(inspect.signature(kind).parameters) - {"params", "lr", "nesterov"}
        assert taken == arguments.OPTIMIZERS[name], name
    weights = [torch.nn.Parameter(torch.ones(2))]
    for kind, wrong in ((torch.optim.AdamW, {"scale_parameter": False}), (Adafactor, {"betas": (0.9, 0.99)})):
        with pytest.raises(TypeError, match="got an unexpected keyword argument"):
            kind(weights, lr=1e-4, **wrong)
    optimizer = torch.optim.AdamW(weights)
    given = {"optimizer", "num_warmup_steps", "num_training_steps", "num_stable_steps", "num_decay_steps"}
    given |= {"power", "timescale", "min_lr_rate", "min_lr_ratio", "last_epoch"}
    for name, also in arguments.SCHEDULES.items():
        function = TYPE_TO_SCHEDULER_FUNCTION[SchedulerType(name)]
        own = set(inspect.signature(function).parameters) - given
        assert own - (set() if name == "cosine" else {"num_cycles"}) == also, name
    with pytest.raises(TypeError, match="unexpected keyword argument 'lr_end'"):
        TYPE_TO_SCHEDULER_FUNCTION[SchedulerType("constant_with_warmup")](optimizer, num_warmup_steps=1, lr_end=1e-6)


def test_what_the_libraries_say_of_names() -> None:
    with pytest.raises(AttributeError, match=r"module 'torch\.optim' has no attribute"):
        getattr(torch.optim, "")
    assert {name for name in dir(torch.optim) if name[0].isupper()} - {"Optimizer"} <= set(late._TORCH)
    assert {one.value for one in SchedulerType} <= set(late._SCHEDULES)
    with pytest.raises(ValueError, match="is not a valid SchedulerType"):
        SchedulerType("cosine_with_restart")


def test_a_picture_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures(tmp_path / "d" / "10_cat")
    (tmp_path / "d" / "10_cat" / "x.png").write_bytes(b"<!doctype html>")
    (tmp_path / "d" / "10_cat" / "x.txt").write_text("a cat")
    assert findings(flux(tmp_path, monkeypatch)) == [("KOH014", "/train_data_dir")]


@pytest.mark.parametrize(("whole", "said"), [(2, {"KOH014"}), (0, {"KOH004"})])
def test_of_pictures_only_the_trainers_own_rules_speak(tmp_path: Path, whole: int, said: set[str]) -> None:
    """What ai-toolkit does with such a folder (DAT001, DAT002) is not what these trainers do."""
    pictures(tmp_path / "d" / "10_cat", count=whole)
    (tmp_path / "d" / "10_cat" / "x.png").write_bytes(b"<!doctype html>")
    (tmp_path / "d" / "10_cat" / "x.txt").write_text("a cat")
    text = made.flux_command({**made.flux_files(), **FLUX, "train_data_dir": str(tmp_path / "d")})
    report = examine_config(str(tmp_path / "train.sh"), LiveWorld(), text=text.encode()).report
    about = {finding.rule for finding in report.findings if "10_cat" in finding.text()}
    assert about == said


def test_without_a_transformer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings(flux(tmp_path, monkeypatch, pretrained_model_name_or_path=None)) == [("KOH001", "")]


def test_the_script_of_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "python sdxl_train_network.py --network_module networks.lora --learning_rate 1 --output_dir o --cache_latents"
    )
    base = made.flux_files()["pretrained_model_name_or_path"]
    text = f"{script} --pretrained_model_name_or_path {base} \n"
    assert findings(checked(tmp_path / "t.sh", text, monkeypatch)) == [("KOH016", "/pretrained_model_name_or_path")]
    unet = {"model.diffusion_model.input_blocks.0.0.weight": (320, 4, 3, 3), "first_stage_model.x": (4,)}
    unet["model.diffusion_model.label_emb.0.0.weight"] = (1280, 2816)
    sdxl = made.write(tmp_path / "sdxl.safetensors", unet)
    assert not findings(checked(tmp_path / "t.sh", text.replace(base, str(sdxl)), monkeypatch))
    assert not findings(checked(tmp_path / "t.sh", text.replace(base, "stabilityai/sdxl-base"), monkeypatch))


SD15 = "model.diffusion_model.input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight"
# (channels of the first convolution, numbers of a word, v2, a word of what is said)
VERSIONS = [
    (4, 768, False, ""),
    (4, 1024, True, ""),
    (4, 768, True, "leave it out"),
    (4, 1024, False, "--v2 only"),
    (9, 768, False, "inpainting"),
]


@pytest.mark.parametrize(("channels", "wide", "v2", "said"), VERSIONS)
def test_the_version_of_stable_diffusion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, channels: int, wide: int, v2: bool, said: str
) -> None:
    first = "model.diffusion_model.input_blocks.0.0.weight"
    unet = {first: (320, channels, 3, 3), SD15: (320, wide), "first_stage_model.x": (4,)}
    base = made.write(tmp_path / "sd.safetensors", unet)
    text = "python train_network.py --network_module networks.lora --learning_rate 1 --output_dir o "
    text += f"--pretrained_model_name_or_path {base} {'--v2' * v2}\n"
    report = checked(tmp_path / "t.sh", text, monkeypatch)
    assert findings(report) == ([("KOH016", "/pretrained_model_name_or_path")] if said else [])
    assert all(said in finding.text() for finding in report.findings)
    if channels > 4:  # as versions of 2026 train it
        again = checked(tmp_path / "t.sh", text.rstrip() + " --train_inpainting\n", monkeypatch)
        assert "KOH016" not in [finding.rule for finding in again.findings]
    kind = pytest.importorskip("diffusers").UNet2DConditionModel
    with torch.device("meta"):
        model = kind(cross_attention_dim=1024 if v2 else 768)
    names: dict[str, tuple[int, ...]] = {"conv_in.weight": (320, channels, 3, 3)}
    names["down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k.weight"] = (320, wide)
    fits = all(tuple(model.state_dict()[name].shape) == shape for name, shape in names.items())
    assert fits == (not said)


@pytest.mark.parametrize(
    ("option", "entry"),
    [("weight_decay", "optimizer_args"), ("conv_dim", "network_args"), ("args", ""), ("quite_new", "")],
)
def test_an_entry_that_is_written_as_an_option(tmp_path: Path, option: str, entry: str) -> None:
    command = made.flux_command({**made.flux_files(), "output_dir": "o", option: "1"})
    report = examine_config(str(tmp_path / "t.sh"), LiveWorld(), all_rules(), command.encode()).report
    (finding,) = [finding for finding in report.findings if finding.rule == "CFG002"]
    assert (f"stands in {entry}, as {option}=VALUE" in finding.text()) == bool(entry)


@pytest.mark.parametrize(
    ("base", "more", "said"),
    [
        ("stabilityai/stable-diffusion-xl-base-1.0", "--mixed_precision fp16", True),
        ("sd_xl_base_1.0_0.9vae.safetensors", "--mixed_precision fp16", True),
        ("sd_xl_base_1.0.safetensors", "--mixed_precision fp16 --no_half_vae", False),
        ("sd_xl_base_1.0.safetensors", "--mixed_precision fp16 --vae fixed.safetensors", False),
        ("sd_xl_base_1.0.safetensors", "--mixed_precision bf16", False),
        ("sd_xl_base_1.0.safetensors", "", False),
        ("my_sdxl.safetensors", "--mixed_precision fp16", False),
    ],
)
def test_the_vae_of_sdxl_as_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str, more: str, said: bool
) -> None:
    """docs/sdxl_train_network.md of sd-scripts: "Since SDXL's VAE can be unstable in float16"."""
    text = f"python sdxl_train_network.py --pretrained_model_name_or_path {base} --network_module networks.lora "
    report = checked(tmp_path / "t.sh", f"{text} --learning_rate 1 --output_dir o {more}\n", monkeypatch)
    found = [f for f in report.findings if f.rule == "KOH021"]
    assert bool(found) == said and all("no_half_vae" in f.text() and f.consequence() for f in found)


def test_a_config_file_alone_is_perhaps_not_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f'network_module = "networks.lora_flux"\nae = "{made.flux_files()["ae"]}"\nt5xxl = ""\n'
    text += f'pretrained_model_name_or_path = "{made.flux_files()["pretrained_model_name_or_path"]}"\n'
    report = checked(tmp_path / "config.toml", text, monkeypatch)
    assert [(f.rule, f.severity) for f in report.findings] == [("KOH001", "warning")] * 2
    (tmp_path / "config.toml").write_text(text)
    report = checked(
        tmp_path / "t.sh",
        "python flux_train_network.py --config_file config --output_dir o --learning_rate 1",
        monkeypatch,
    )
    assert ("KOH001", "error") in [(f.rule, f.severity) for f in report.findings]


def test_a_config_file_of_another_program_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of LoRA_Easy_Training_Scripts, whose [general_args.args] sd-scripts reads as one option."""
    text = '[[subsets]]\nimage_dir = "a"\n\n[general_args.args]\npretrained_model_name_or_path = "/m/a.safetensors"\n'
    (tmp_path / "easy.toml").write_text(text)
    report = checked(tmp_path / "t.sh", "python train_network.py --config_file easy.toml", monkeypatch)
    assert not [f.text() for f in report.findings if "easy.toml" in f.text() and "does not exist" in f.text()]
    report = checked(tmp_path / "t.sh", "python train_network.py --config_file gone.toml", monkeypatch)
    assert [f.text() for f in report.findings if "gone.toml" in f.text() and "does not exist" in f.text()]


TYPES = [
    ('learning_rate = "1e-4"', "learning_rate = 0.0001"),
    ('network_dim = "16"', "network_dim = 16"),
    ('network_dim = "16.0"', "network_dim = 16"),
    ('network_dim = "16.5"', None),
    ('fp8_base = "false"', None),
    ("resolution = 512", 'resolution = "512"'),
    ('lr_warmup_steps = "10%"', ""),
    ('output_name = "16"', ""),
    ("seed = 1", ""),
]


@pytest.mark.parametrize(("line", "cure"), TYPES, ids=[line for line, _ in TYPES])
def test_types_in_a_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, cure: str | None) -> None:
    text = f'network_module = "networks.lora_flux"\nlr_scheduler = "cosine"\n{line}\nnetwork_alpha = 1\n'
    report = checked(tmp_path / "config.toml", text, monkeypatch)
    said = [finding for finding in report.findings if finding.rule == "KOH015"]
    assert len(said) == (0 if cure == "" else 1)
    for finding in said:
        assert finding.text() and finding.consequence()
        steps = [step for fix in finding.fixes for step in fix.steps if isinstance(step, SetValue)]
        assert (apply_edits(text, steps) == text.replace(line, cure)) if cure else not steps


def test_a_misspelt_option_is_renamed_in_the_script(tmp_path: Path) -> None:
    text = made.flux_command({**made.flux_files(), "output_dir": "o", "learnin_rate": "1e-4", "seed": 1})
    report = examine_config(str(tmp_path / "t.sh"), LiveWorld(), all_rules(), text.encode()).report
    (finding,) = [finding for finding in report.findings if finding.rule == "CFG002"]
    (fix,) = finding.fixes
    steps = [step for step in fix.steps if isinstance(step, ReplaceText)]
    assert apply_edits(text, steps) == text.replace("--learnin_rate", "--learning_rate")


def test_what_a_parser_does_with_a_namespace() -> None:
    """What sd-scripts does with a config file, by argparse itself: nothing is converted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", type=float, default=2e-6)
    parser.add_argument("--fp8_base", action="store_true")
    read = parser.parse_args([], namespace=argparse.Namespace(learning_rate="1e-4", fp8_base="false", typo=1))
    assert read.learning_rate == "1e-4" and read.fp8_base and read.typo == 1
    with pytest.raises(TypeError, match="'<=' not supported between instances of 'float' and 'str'"):
        torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=read.learning_rate)  # pyright: ignore[reportArgumentType]


def test_types_in_a_dataset_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = DATA + 'num_repeats = "2"\nbatch_size = 2\n'
    assert findings(zimage(tmp_path, monkeypatch, data)) == [("KOH015", "/datasets/0/num_repeats")]
    for number in ("2.5", "2.0"):
        data = DATA + f"num_repeats = {number}\nbatch_size = 2\n"
        assert findings(zimage(tmp_path, monkeypatch, data)) == [("KOH015", "/datasets/0/num_repeats")]


def test_the_loss_of_a_perfect_model() -> None:
    """The formulas of sd-scripts: `raw` is 0 for the velocity itself, `sigma_scaled` is not."""
    latents, noise, sigma = torch.tensor([1.0, 2.0]), torch.tensor([-1.0, 3.0]), 0.25
    noisy = (1 - sigma) * latents + sigma * noise
    velocity = noise - latents
    assert torch.equal(velocity - (noise - latents), torch.zeros(2))
    scaled = velocity * -sigma + noisy
    assert torch.allclose(scaled, latents) and not torch.allclose(scaled, noise - latents)


@pytest.mark.parametrize(("option", "value"), [("guidance_scale", "1.0"), ("learning_rate", "1e-4")])
def test_a_repair_is_offered_and_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: str
) -> None:
    pictures(tmp_path / "d" / "10_cat")
    options = {**made.flux_files(), "train_data_dir": "d", **FLUX, option: None}
    text, path = made.flux_command(options), tmp_path / "train.sh"
    report = checked(path, text, monkeypatch)
    (fix,) = report.findings[0].fixes
    cured = apply_edits(text, list(fix.steps))  # type: ignore[arg-type]
    assert f"--{option} {value}" in cured and not findings(checked(path, cured, monkeypatch))


# an option of each kind, by the type that the trainers' parsers give it; argparse itself judges each word
TYPED: list[tuple[str, object, bool]] = [
    ("network_dim", "16", True),
    ("network_dim", "16.0", False),
    ("network_dim", "1e2", False),
    ("network_dim", "many", False),
    ("guidance_scale", "1", True),
    ("guidance_scale", "3,5", False),
    ("learning_rate", "many", False),
    ("gradient_checkpointing", True, True),
    ("gradient_checkpointing", "true", False),
    ("gradient_checkpointing", "false", False),
    ("lr_warmup_steps", "10", True),
]


@pytest.mark.parametrize(("name", "written", "taken"), TYPED)
def test_a_word_that_the_parser_does_not_take(
    name: str, written: object, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--network_dim", type=int)
    parser.add_argument("--gradient_checkpointing", action="store_true")
    for option in ("guidance_scale", "learning_rate", "lr_warmup_steps"):
        parser.add_argument(f"--{option}", type=float)
    try:
        _, left = parser.parse_known_args([f"--{name}", *([] if written is True else [str(written)])])
        accepted = not left
    except argparse.ArgumentError:
        accepted = False
    assert accepted is taken
    said = [pair for pair in findings(flux(tmp_path, monkeypatch, **{name: written})) if pair[0] == "KOH015"]
    assert said == ([] if taken else [("KOH015", f"/{name}")])


def test_a_part_of_the_steps_is_a_warm_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The type of --lr_warmup_steps takes 10 % for a tenth of all steps (library/train_util.py int_or_float)."""
    assert not findings(flux(tmp_path, monkeypatch, lr_warmup_steps="10%"))
