"""The trainers whose configs are read, and by which keys a config is recognised as theirs.

A dialect is a module of this package with one pure function, `read`:

    def read(config: Config, environment: Mapping[str, str], beside: Beside) -> Reading

`config` is decoded and not parsed; `reading` holds what a dialect needs (`tree_of`, `values_of`, `wrong`, …).
"""

from __future__ import annotations

import re

from ..model.record import dataclass


@dataclass(frozen=True)
class Dialect:
    """`marks`: any one of these sets of keys is enough, in lower case and without leading dashes."""

    trainer: str
    module: str
    marks: tuple[frozenset[str], ...]


def _any(*marks: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(mark.split("+")) for mark in marks)


# the first one that fits counts
DIALECTS = (
    Dialect("ai-toolkit", "ai_toolkit.read", _any("job+config", "job+process")),
    Dialect(
        "musubi-tuner",
        "kohya.musubi",
        _any("dit", "image_directory", "image_jsonl_file", "video_directory", "video_jsonl_file")
        + _any("network_module+num_timestep_buckets", "network_module+flash_attn")
        + _any("zimage_train_network", "zimage_train", "flux_kontext_train_network", "flux_2_train_network")
        + _any("hv_train_network", "wan_train_network", "fpack_train_network", "qwen_image_train_network"),
    ),
    Dialect(
        "sd-scripts",
        "kohya.sd_scripts",
        _any("network_module", "pretrained_model_name_or_path+train_data_dir")
        + _any(
            "pretrained_model_name_or_path+ae", "pretrained_model_name_or_path+dataset_config", "subsets", "image_dir"
        )
        + _any("flux1_checkbox", "lycoris_preset", "lora_type+network_dim", "caption_metadata_filename")
        + _any("flux_train_network", "sdxl_train_network", "sd3_train_network")
        + _any("flux_train+config_file", "train_network+config_file"),
    ),
    Dialect(
        "SimpleTuner",
        "simpletuner.read",
        _any(
            "model_family", "data_backend_config", "model_type+output_dir", "dataloader_config", "trainer_extra_args"
        )
        # a file of datasets, and a config.env that only says how the trainer is started
        + _any("instance_data_dir+id", "cache_dir_vae+id", "training_num_processes"),
    ),
)
TRAINERS = tuple(dialect.trainer for dialect in DIALECTS)
_CALLED = {name.lower(): name for name in TRAINERS} | {"musubi": "musubi-tuner"}
_KEYS = {
    "json": re.compile(r'"(?:--)?([\w.-]+)"[ \t\r\n]*:'),
    "yaml": re.compile(r"^\ufeff?[\"']?([\w.-]+)[\"']?[ \t]*:", re.M),
    "toml": re.compile(r"^\ufeff?[ \t]*(?:\[+[ \t]*)?[\"']?(?:--)?([\w-]+)[\"']?[ \t]*[=\]]", re.M),
    "shell": re.compile(r"(?:--|[\s/\\\"'.])([A-Za-z]\w+)(?=\.py|[\s=\"']|$)"),
    "env": re.compile(r"^\ufeff?[ \t]*(?:export[ \t]+)?(\w+)[ \t]*\+?=", re.M),
}


def trainer_called(word: str) -> str:
    """The trainer that somebody means by `word`, in any case; the word itself where there is none."""
    return _CALLED.get(word.lower(), word)


def recognise(text: str, format: str) -> Dialect | None:
    """Whose config a text is, by its keys; also when it does not parse."""
    keys = {key.lower() for key in _KEYS[format].findall(text)}
    return next((dialect for dialect in DIALECTS if any(mark <= keys for mark in dialect.marks)), None)


def dialect_of(trainer: str) -> Dialect:
    """The dialect of a trainer by its name in any case. Raises KeyError."""
    for dialect in DIALECTS:
        if dialect.trainer.lower() == trainer.lower():
            return dialect
    raise KeyError(trainer)
