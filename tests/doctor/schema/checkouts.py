"""Tiny checkouts in the idioms of the trainers, written by hand for the tests."""

from pathlib import Path

AI_TOOLKIT = {
    "toolkit/config_modules.py": '''
from typing import Literal, Optional

Colour = Literal["red", "green"]
WIDE = 2 * 256


class Inner:
    def __init__(self, outer, **kwargs):
        self.depth: int = kwargs.get("depth", 3)


class TrainConfig:
    def __init__(self, **kwargs):
        self.steps: int = kwargs.get("steps", 1000)
        self.lr = kwargs.get("lr", 1e-6)
        self.colour: Colour = kwargs.get("colour", "red")
        self.width = kwargs.get("width", WIDE)
        self.loss_type = kwargs.get("loss_type", "mse")
        self.extra: Optional[dict] = kwargs.get("extra", {})
        self.optimizer = kwargs.get("optimizer", "plain")
        raw = kwargs.get("inner", None)
        if raw is not None:
            self.inner = Inner(self, **raw)
        self.items = [Inner(self, **item) for item in kwargs.get("items", [])]
        self.handed_on = kwargs["handed_on"]


class ModelConfig:
    def __init__(self, **kwargs):
        self.arch = kwargs.get("arch", None)
        self.qtype = kwargs.get("qtype", "qfloat8")
        if self.arch == "old":
            pass
''',
    "toolkit/optimizer.py": '''
def get_optimizer(params, optimizer_type):
    lower_type = optimizer_type.lower()
    if lower_type.startswith("prodigy"):
        return 1
    elif lower_type == "plain" or lower_type in ("fancy", "fancier"):
        return 2
''',
    "toolkit/util/quantize.py": 'torchao_qtypes = {"int8": object(), "float8": object()}\n',
    "toolkit/util/more.py": 'MORE_QTYPES = ("m4",) + tuple(f"m{b}" for b in range(5, 7))\n',
    "jobs/process/__init__.py": "from .BaseSDTrainProcess import BaseSDTrainProcess\n",
    "jobs/process/BaseSDTrainProcess.py": '''
from toolkit.config_modules import TrainConfig, ModelConfig


class BaseSDTrainProcess:
    def __init__(self, process_id, job, config):
        self.name = self.get_conf("name", "x")
        self.train_config = TrainConfig(**self.get_conf("train", {}))
        model = self.get_conf("model", {})
        model["dtype"] = "bf16"
        self.model_config = ModelConfig(**model)
''',
    "extensions_built_in/sd_trainer/__init__.py": '''
class TrainerExtension(Extension):
    uid = "sd_trainer"

    @classmethod
    def get_process(cls):
        from .SDTrainer import SDTrainer
        return SDTrainer


class Alias(TrainerExtension):
    uid = "other_name"
''',
    "extensions_built_in/sd_trainer/SDTrainer.py": '''
from jobs.process import BaseSDTrainProcess


class SDTrainer(BaseSDTrainProcess):
    def __init__(self, process_id, job, config):
        super().__init__(process_id, job, config)
        self.path = self.config.get("own_key", "a")

    def loss(self):
        if self.train_config.loss_type == "mae":
            return 1
''',
    "extensions/mine/__init__.py": '''
class MineExtension(Extension):
    uid = "mine"

    @classmethod
    def get_process(cls):
        from .process import MineProcess
        return MineProcess
''',
    "extensions/mine/process.py": '''
from jobs.process import BaseSDTrainProcess
from toolkit.config_modules import TrainConfig


class SideConfig(TrainConfig):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.side = kwargs.get("side", True)


class MineProcess(BaseSDTrainProcess):
    def __init__(self, process_id, job, config):
        self.side = SideConfig(**self.get_conf("side", {}))
''',
    "extensions/mine/model.py": '''
"""A model."""


class Model:
    arch = "newest"

    def load(self):
        arch = "no_class_attribute"


def helper():
    arch = "nor_this"
''',
}  # fmt: skip

SIMPLETUNER = {
    "simpletuner/helpers/configuration/cmd_args.py": "",
    "simpletuner/helpers/configuration/cli_utils.py": '''
@_legacy_handler("old_steps")
def _steps(value, cli_args, extras):
    cli_args.append(_format_key_value("max_steps", value))
    return True


@_legacy_handler("gone")
def _gone(value, cli_args, extras):
    return True
''',
    "simpletuner/helpers/training/__init__.py": 'quantised_precision_levels = [\n    "no_change",\n    "int8",\n]\n',
    "simpletuner/helpers/models/model_metadata.json": '{"tiny": {}, "z_image": {}}',
    "simpletuner/simpletuner_sdk/server/services/field_registry/sections/model.py": '''
def register(registry):
    levels = [{"value": v, "label": v.title()} for v in quantised_precision_levels]
    registry._add_field(ConfigField(name="model_family", arg_name="--model_family", field_type=FieldType.SELECT,
                                    choices=[{"value": f} for f in Registry.families().keys()]))
    registry._add_field(ConfigField(name="max_steps", arg_name="--max_steps", field_type=FieldType.NUMBER,
                                    default_value=10, aliases=["--steps"]))
    for index in range(1, 3):
        registry._add_field(ConfigField(name=f"te_{index}", arg_name=f"--te_{index}", field_type=FieldType.SELECT,
                                        default_value="no_change", choices=levels))
    for name, option in [("a", "--flag_a"), ("b", "--flag_b")]:
        registry._add_field(ConfigField(name=name, arg_name=option, field_type=FieldType.CHECKBOX,
                                        default_value=False))
    registry._add_field(ConfigField(name="dataset_only", arg_name=None, field_type=FieldType.TEXT))
    registry._add_field(ConfigField(name="web", arg_name="web", field_type=FieldType.TEXT))
''',
    "simpletuner/helpers/data_backend/factory.py": '''
def configure(backend):
    backend["id"]
    if "crop" in backend and backend.get("crop_style", "random"):
        pass
''',
}  # fmt: skip

SD_SCRIPTS = {
    "library/__init__.py": "",
    "library/train_util.py": '''
def add_training_arguments(parser, flag):
    parser.add_argument("--lr", type=float, default=2.0e-6, help="""
text at the margin
""")
    parser.add_argument("--precision", type=str, default="no", choices=["no", "bf16"])
    if flag:
        parser.add_argument("--xformers", action="store_true")
    for part in ["te1", "te2"]:
        parser.add_argument(f"--lr_{part}", type=float)
    parser.add_argument("--optimizer_type", type=str, default="")
    parser.add_argument("--lr_scheduler", type=str, default="constant")


def get_optimizer(args, trainable_params):
    if args.optimizer_type.lower() == "Kahan".lower() or optimizer_type in ("own", "other one"):
        return 1
    elif optimizer_type != "unequal":
        return "no name"


def get_scheduler_fix(args):
    def inner(name):
        if name.upper() == "REX":
            return 1
''',
    "library/config_util.py": '''
class ConfigSanitizer:
    SUBSET_ASCENDABLE_SCHEMA = {"flip_aug": bool, "num_repeats": int}
    DB_SUBSET_DISTINCT_SCHEMA = {Required("image_dir"): str}
    DATASET_ASCENDABLE_SCHEMA = {"batch_size": int, "token_warmup_step": Any(float, int)}
''',
    "train_network.py": '''
import library.train_util as train_util
from library import (
    train_util,
)


def setup_parser():
    parser = argparse.ArgumentParser()
    train_util.add_training_arguments(parser, True)
    parser.add_argument("--network_dim", type=int, default=None)
    return parser
''',
    "flux_train_network.py": '''
import train_network


def setup_parser():
    parser = train_network.setup_parser()
    add_own(parser)
    return parser


def add_own(parser):
    parser.add_argument("--ae", "--autoencoder", type=str)
''',
}  # fmt: skip

MUSUBI = {
    "src/musubi_tuner/dataset/config_utils.py": '''
class ConfigSanitizer:
    DATASET_ASCENDABLE_SCHEMA = {"batch_size": int}
    IMAGE_DATASET_DISTINCT_SCHEMA = {"image_directory": str, "fp_1f_clean_indices": [int]}
''',
    "src/musubi_tuner/training/parser_common.py": '''
def _add_general(parser):
    parser.add_argument("--sdpa", action="store_true")


def setup_parser_common():
    parser = argparse.ArgumentParser()
    _add_general(parser)
    return parser
''',
    "src/musubi_tuner/zimage_train_network.py": '''
from musubi_tuner.hv_train_network import setup_parser_common


def zimage_setup_parser(parser):
    parser.add_argument("--fp8_llm", action="store_true")
    return parser


def main():
    parser = setup_parser_common()
    parser = zimage_setup_parser(parser)
''',
    "src/musubi_tuner/hv_train_network.py": '''
from musubi_tuner.training.parser_common import (
    setup_parser_common,
)


def main():
    parser = setup_parser_common()
''',
}  # fmt: skip


def checkout(folder: Path, files: dict[str, str]) -> Path:
    """A folder that holds these files."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder
