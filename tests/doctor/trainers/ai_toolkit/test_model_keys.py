"""What of the model section ai-toolkit's loaders look at; where its checkout lies beside this one, it is asked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from zdoctor.checks.ai_toolkit.value_words import TRANSFORMERS
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.examine.translate import for_runner
from zdoctor.doctor.model import Report
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.rules import all_rules
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.trainers.ai_toolkit import model_keys
from zdoctor.doctor.trainers.read import read_config

RULES = [rule for rule in all_rules() if rule.id == "CFG003"]
CHECKOUT = Path(__file__).resolve().parents[5] / "ai-toolkit"
# (architecture, the model section, what of it does nothing)
MODELS: list[tuple[str, dict[str, object], list[str]]] = [
    ("zimage", {"model_kwargs": {"low_cpu_mem_usage": False}}, ["model/model_kwargs"]),
    ("qwen_image", {"model_kwargs": {"low_cpu_mem_usage": False}}, ["model/model_kwargs"]),
    ("qwen_image_edit_plus", {"model_kwargs": {"match_target_res": True}}, []),
    ("qwen_image_edit_plus", {"model_kwargs": {"match_target_res": True, "x": 1}}, ["model/model_kwargs"]),
    ("flux", {"model_kwargs": {"x": 1}}, ["model/model_kwargs"]),
    ("flux2", {"model_kwargs": {"match_target_res": True}}, []),
    ("wan22_14b", {"model_kwargs": {"train_high_noise": False}}, []),
    ("krea2", {"model_kwargs": {"edit": True}}, []),
    ("somebodys_own", {"model_kwargs": {"x": 1}, "unet_path": "/x"}, []),
    ("zimage", {"unet_path": "/x", "vae_path": "/x"}, ["model/unet_path", "model/vae_path"]),
    ("flux", {"unet_path": "/x", "vae_path": "/x"}, ["model/unet_path"]),
    ("auraflow", {"unet_path": "/x"}, []),
    ("lumina2", {"te_name_or_path": "/x"}, []),
    ("ideogram4", {"unconditional_lora_path": "/x"}, []),
]


def text_of(architecture: str, model: dict[str, object], **more: object) -> bytes:
    process = {
        "type": "sd_trainer",
        "training_folder": "out",
        "network": {"type": "lora", "linear": 16, "linear_alpha": 16},
        "train": {"noise_scheduler": "flowmatch", "dtype": "bf16"},
        "model": {"name_or_path": "/models/z", "arch": architecture, **model},
        "datasets": [{"folder_path": "/data/cat"}],
        **more,
    }
    return yaml.safe_dump({"job": "extension", "config": {"name": "x", "process": [process]}}).encode()


def said(architecture: str, model: dict[str, object]) -> Report:
    report = examine_config("config.yaml", LiveWorld(), RULES, text_of(architecture, model)).report
    assert not report.crashed
    return report


@pytest.mark.parametrize(("architecture", "model", "inert"), MODELS)
def test_what_does_nothing(architecture: str, model: dict[str, object], inert: list[str]) -> None:
    found = [finding for finding in said(architecture, model).findings if finding.severity == "warning"]
    assert sorted(str(finding.args["key"]) for finding in found) == inert
    assert all(finding.text() for finding in found)


@pytest.mark.parametrize(
    ("model", "more", "named"),
    [
        ({"model_kwargs": {"no_such_word": 1}}, {}, "no_such_word"),
        ({"unet_path": "/x"}, {}, "unet_path"),
        ({}, {"guidance": {"guidance_scale": 3.0}}, "guidance"),
    ],
)
def test_the_runner_need_not_obey_what_nothing_reads(
    model: dict[str, object], more: dict[str, object], named: str
) -> None:
    schema = shipped("ai-toolkit")
    assert schema is not None
    (run,) = read_config("c.yaml", text_of("zimage", model, **more), {}).runs
    made = for_runner(run, schema)
    assert not made.refused
    assert named in " ".join(made.differences)


def test_as_the_source_has_it() -> None:
    """Of the keys that have readers here, some file beside config_modules.py names them; of the others, none."""
    if not (CHECKOUT / "toolkit").is_dir():
        return
    files = [
        file for folder in ("toolkit", "jobs", "extensions_built_in") for file in (CHECKOUT / folder).rglob("*.py")
    ]
    sources = [file.read_text(errors="replace") for file in files if file.name != "config_modules.py"]
    for name, readers in model_keys._READ_BY.items():
        assert any(re.search(rf"model_config\.{name}\b", source) for source in sources) == bool(readers), name
    for architecture, names in model_keys._WITH_KWARGS.items():
        for name in names - {""}:
            assert any(f'"{name}"' in source or f"'{name}'" in source for source in sources), (architecture, name)
    assert not any("self.guidance_config." in source for source in sources)
    saved_without_alpha = [source for source in sources if "self.is_transformer = True" in source]
    named = {
        name for source in saved_without_alpha for name in re.findall(r"""^    arch = ["'](.+)["']$""", source, re.M)
    }
    assert named - {"example"} <= TRANSFORMERS
