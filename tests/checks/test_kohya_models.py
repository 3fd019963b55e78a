"""What the models of kohya's trainers let be swapped, and what musubi-tuner's script of one model refuses."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from zdoctor.checks.kohya.swaps import most
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.families.record.shapes import Shapes
from zdoctor.doctor.model import Report
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.rules import all_rules
from zdoctor.tests import part_files as made

RULES = [rule for rule in all_rules() if rule.id in ("KOH003", "KOH017")]
CHECKOUTS = Path(__file__).resolve().parents[3]
MUSUBI = "musubi-tuner/src/musubi_tuner"
# (family, double blocks, single blocks, what enable_block_swap takes at most, the file that it is in)
SWAPS = [
    ("flux", 19, 38, 35, "sd-scripts/library/flux_models.py"),
    ("hunyuan_image", 20, 40, 37, "sd-scripts/library/hunyuan_image_models.py"),
    ("sd3", 24, 0, 22, "sd-scripts/library/sd3_models.py"),
    ("sd3", 38, 0, 36, "sd-scripts/library/sd3_models.py"),
    ("lumina", 26, 0, 24, "sd-scripts/library/lumina_models.py"),
    ("anima", 28, 0, 26, "sd-scripts/library/anima_models.py"),
    ("flux_kontext", 19, 38, 34, f"{MUSUBI}/flux/flux_models.py"),
    ("zimage", 30, 0, 28, f"{MUSUBI}/zimage/zimage_model.py"),
    ("wan", 40, 0, 39, f"{MUSUBI}/wan/modules/model.py"),
    ("wan", 30, 0, 29, f"{MUSUBI}/wan/modules/model.py"),
    ("qwen_image", 60, 0, 59, f"{MUSUBI}/qwen_image/qwen_image_model.py"),
    ("hv", 20, 40, 38, f"{MUSUBI}/hunyuan_model/models.py"),
    ("fpack", 20, 40, 38, f"{MUSUBI}/frame_pack/hunyuan_video_packed.py"),
    ("hv_1_5", 54, 0, 51, f"{MUSUBI}/hunyuan_video_1_5/hunyuan_video_1_5_models.py"),
    ("krea2", 28, 0, 26, f"{MUSUBI}/krea2/krea2_mmdit.py"),
    ("ideogram4", 34, 0, 33, f"{MUSUBI}/ideogram4/ideogram4_model.py"),
    ("flux_2", 8, 48, 29, f"{MUSUBI}/flux_2/flux2_models.py"),
    ("flux_2", 8, 24, 16, f"{MUSUBI}/flux_2/flux2_models.py"),
    ("flux_2", 5, 20, 13, f"{MUSUBI}/flux_2/flux2_models.py"),
]


@pytest.mark.parametrize(("family", "doubles", "singles", "expected", "file"), SWAPS)
def test_as_many_blocks_as_the_model_takes(family: str, doubles: int, singles: int, expected: int, file: str) -> None:
    assert most(family, doubles, singles) == expected
    if (source := CHECKOUTS / file).is_file():
        assert _taken(source, doubles, singles) == list(range(1, expected + 1))


def _taken(source: Path, doubles: int, singles: int) -> list[int]:
    """The numbers that the trainer's own function takes."""
    functions = (node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.FunctionDef))
    function = next(node for node in functions if node.name == "enable_block_swap")
    for argument in function.args.args:
        argument.annotation = None

    def nothing(*given: object, **named: object) -> None:
        pass

    around: dict[str, Any] = {
        "create_offloader": nothing,
        "logger": SimpleNamespace(info=nothing),
        "print": nothing,
        "custom_offloading_utils": SimpleNamespace(ModelOffloader=nothing),
    }
    exec(compile(ast.Module([function], []), str(source), "exec"), around)
    lists = ("blocks", "double_blocks", "joint_blocks", "layers", "transformer_blocks")
    held = {name: [0] * doubles for name in lists}
    held |= {name: [0] * singles for name in ("single_blocks", "single_transformer_blocks")}
    counts = {"num_blocks": doubles, "num_double_blocks": doubles, "num_single_blocks": singles}
    options = SimpleNamespace(device="cpu", supports_backward=True, h2d_only=False)
    taken = []
    for number in range(1, doubles + singles + 1):
        try:
            around["enable_block_swap"](
                SimpleNamespace(**held, **counts, cpu_offload_checkpointing=False), number, options
            )
        except AssertionError:
            continue
        taken.append(number)
    return taken


WAN: Shapes = {"blocks.0.cross_attn.k.weight": (8, 8)}
WAN_IN_COMFYUI: Shapes = {f"model.diffusion_model.{name}": shape for name, shape in WAN.items()}
QWEN: Shapes = {"transformer_blocks.0.attn.to_q.weight": (8, 8)}
EDIT_2511: Shapes = {**QWEN, "__index_timestep_zero__": (1,)}
# (script, tensors of --dit and their dtype, options, the options that are said to be wrong)
REFUSED: list[tuple[str, Shapes, str, str, list[str]]] = [
    ("wan", WAN, "BF16", "--mixed_precision bf16", []),
    ("wan", WAN, "BF16", "--mixed_precision no", []),
    ("wan", WAN, "BF16", "--mixed_precision fp16", ["mixed_precision"]),
    ("wan", WAN, "BF16", "", ["mixed_precision"]),
    ("wan", WAN_IN_COMFYUI, "F16", "--mixed_precision bf16", ["mixed_precision"]),
    ("wan", WAN, "F32", "", []),
    ("wan", WAN, "F8_E4M3", "", []),
    ("wan", WAN, "F8_E4M3", "--fp8_base --fp8_scaled", ["fp8_scaled"]),
    ("wan", WAN, "F32", "--blocks_to_swap 39", []),
    ("wan", WAN, "F32", "--blocks_to_swap 40", ["blocks_to_swap"]),
    ("wan", WAN, "F32", "--task t2v-1.3B --blocks_to_swap 30", ["blocks_to_swap"]),
    ("qwen_image", QWEN, "BF16", "", []),
    ("qwen_image", QWEN, "BF16", "--model_version Edit-2509", []),
    ("qwen_image", QWEN, "BF16", "--model_version edit2509", ["model_version"]),
    ("qwen_image", EDIT_2511, "BF16", "--model_version edit-2511", []),
    ("qwen_image", EDIT_2511, "BF16", "--model_version edit-2509", ["model_version"]),
    ("qwen_image", EDIT_2511, "BF16", "--edit_plus", ["model_version"]),
    ("qwen_image", QWEN, "BF16", "--blocks_to_swap 60", ["blocks_to_swap"]),
    ("flux_kontext", {}, "BF16", "--fp8_t5", []),
    ("flux_kontext", {}, "BF16", "--fp8_t5 --sample_prompts p.txt", ["fp8_t5"]),
    ("flux_kontext", made.flux(), "BF16", "--blocks_to_swap 34", []),
    ("flux_kontext", made.flux(), "BF16", "--blocks_to_swap 35", ["blocks_to_swap"]),
    ("krea2", {}, "BF16", "--fp8_base", ["fp8_base"]),
    ("krea2", {}, "BF16", "--fp8_base --fp8_scaled", []),
    ("krea2", {}, "BF16", "--turbo_dit t.safetensors --blocks_to_swap 4", ["turbo_dit"]),
    ("ideogram4", {}, "BF16", "--weighting_scheme none", []),
    ("ideogram4", {}, "BF16", "--weighting_scheme sigma_sqrt", ["weighting_scheme"]),
    ("flux_2", {}, "BF16", "--model_version klein-4b --blocks_to_swap 14", ["blocks_to_swap"]),
    ("kandinsky5", {}, "BF16", "--blocks_to_swap 99", []),
]


@pytest.mark.parametrize(("script", "tensors", "dtype", "options", "wrong"), REFUSED)
def test_what_the_script_of_one_model_refuses(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    tensors: Shapes,
    dtype: str,
    options: str,
    wrong: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    made.write(tmp_path / "model.safetensors", tensors, dtype, {"F32": 4, "F8_E4M3": 1}.get(dtype, 2))
    launched = f"accelerate launch --mixed_precision bf16 {script}_train_network.py {LORA}"
    report = _checked(tmp_path, f"{launched} --sdpa --dit model.safetensors {options}\n")
    assert [str(finding.evidence["key"]) for finding in report.findings] == wrong
    for finding in report.findings:
        assert finding.text() and finding.consequence()


# what every command tells of a LoRA
LORA = "--dataset_config d.toml --output_dir o --network_dim 4 --learning_rate 1"


def _checked(folder: Path, text: str) -> Report:
    report = examine_config(str(folder / "train.sh"), LiveWorld(), RULES, text.encode()).report
    assert not report.crashed
    return report


# (the start of a command, options, what of them is refused)
ENCODED_ONCE = [
    ("sdxl_train_network", "--cache_text_encoder_outputs", "cache_text_encoder_outputs"),
    ("sdxl_train_network", "--cache_text_encoder_outputs_to_disk", "cache_text_encoder_outputs_to_disk"),
    ("sdxl_train_network", "--cache_text_encoder_outputs --network_train_unet_only", None),
    ("sdxl_train_network", "", None),
    ("anima_train_network", "--cache_text_encoder_outputs", "cache_text_encoder_outputs"),
    (
        *("anima_train_network", "--cache_text_encoder_outputs --network_train_unet_only --caption_dropout_rate 0.1"),
        None,
    ),
    ("flux_train_network", "--cache_text_encoder_outputs", None),
    ("sdxl_train", "--cache_text_encoder_outputs", None),
    ("sdxl_train", "--cache_text_encoder_outputs --train_text_encoder", "train_text_encoder"),
    ("sdxl_train", "--cache_text_encoder_outputs --weighted_captions", "weighted_captions"),
]


@pytest.mark.parametrize(("script", "options", "wrong"), ENCODED_ONCE)
def test_a_text_encoder_whose_outputs_are_cached_is_not_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, options: str, wrong: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    model = f"--pretrained_model_name_or_path m.safetensors --train_data_dir d {LORA}"
    findings = _checked(tmp_path, f"python {script}.py {model} {options}\n").findings
    assert [finding.severity for finding in findings] == ([] if wrong is None else ["error"])
    assert wrong is None or ((where := findings[0].where) is not None and where.pointer == f"/{wrong}")
    source = CHECKOUTS / "sd-scripts" / f"{script}.py"
    if wrong is not None and script.endswith("network") and source.is_file():
        assert "args.network_train_unet_only or not args.cache_text_encoder_outputs" in source.read_text()


def test_a_file_of_options_may_get_the_other_one_from_the_command_line(tmp_path: Path) -> None:
    text = 'pretrained_model_name_or_path = "m.st"\nnetwork_module = "networks.lora"\n'
    cached = text + "cache_text_encoder_outputs = true\n"
    for written, said in ((cached, ["warning"]), (cached + "network_train_unet_only = true\n", []), (text, [])):
        report = examine_config(str(tmp_path / "c.toml"), LiveWorld(), RULES, written.encode()).report
        assert [finding.severity for finding in report.findings] == said


def test_by_the_name_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        "python qwen_image_train_network.py --sdpa --dit qwen_image_edit_2511_bf16.safetensors --model_version edit\n"
    )
    (finding,) = _checked(tmp_path, text).findings
    assert finding.severity == "warning"
    assert not _checked(tmp_path, text.replace("version edit", "version edit-2511")).findings


def test_the_dtype_that_torch_does_not_have() -> None:
    with pytest.raises(AttributeError, match="module 'torch' has no attribute 'float8e4m3fn'"):
        torch.float8e4m3fn  # type: ignore[attr-defined]  # noqa: B018
    assert torch.float8_e4m3fn.itemsize == 1


# (script, the least step of its buckets)
STEPS = [
    ("train_network", 64),
    ("sdxl_train_network", 32),
    ("anima_train_network", 16),
    ("hunyuan_image_train_network", 32),
]
STEPS += [("lumina_train", 16), ("sd3_train", 8), ("fine_tune", 64)]


@pytest.mark.parametrize(("script", "least"), STEPS)
def test_the_steps_of_buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, least: int) -> None:
    monkeypatch.chdir(tmp_path)
    for steps in (least, least // 2):
        model = f"--pretrained_model_name_or_path m.safetensors --train_data_dir d {LORA}"
        text = f"python {script}.py {model} --enable_bucket --bucket_reso_steps {steps}\n"
        keys = [str(finding.evidence["key"]) for finding in _checked(tmp_path, text).findings]
        assert keys == ([] if steps == least else ["bucket_reso_steps"])
    if (source := CHECKOUTS / "sd-scripts" / f"{script}.py").is_file():
        assert f"verify_bucket_reso_steps({least})" in source.read_text()
