"""sd-scripts and musubi-tuner: scripts with a parser each, and a dataset file."""

from __future__ import annotations

from ..model.schema import Key, Schema
from . import datasets
from .arguments import Options
from .sources import Sources

SD_MARKER = "library/train_util.py"
MUSUBI_MARKER = "src/musubi_tuner/dataset/config_utils.py"
_SCRIPTS = (
    "train_network",
    "sdxl_train_network",
    "flux_train_network",
    "sd3_train_network",
    "lumina_train_network",
    "hunyuan_image_train_network",
    "anima_train_network",
    "flux_train",
)
_MUSUBI = "src/musubi_tuner/"


def mine_sd_scripts(sources: Sources) -> Schema:
    """Section "" holds the options of every training script, "flux_train_network:" those of one."""
    options = Options(sources)
    sections: dict[str, dict[str, Key]] = {}
    for script in _SCRIPTS:
        if sources.text(f"{script}.py") is not None:
            sections[f"{script}:"] = options.of(f"{script}.py", "setup_parser") or {}
    found = datasets.groups(sources, "library/config_util.py")
    subset = datasets.joined(found, "SUBSET")
    shared = {**datasets.joined(found, "DATASET_ASCENDABLE"), **datasets.joined(found, "SUBSET_ASCENDABLE")}
    sections["general"] = shared
    sections["datasets/*"] = {**shared, "subsets": Key("list")}
    sections["datasets/*/subsets/*"] = subset
    return _schema("sd-scripts", "https://github.com/kohya-ss/sd-scripts", sections, sources)


def mine_musubi(sources: Sources) -> Schema:
    """Section "" holds the options of every training script, "zimage_train_network:" those of one."""
    options = Options(sources)
    sections: dict[str, dict[str, Key]] = {}
    common = options.of(f"{_MUSUBI}training/parser_common.py", "setup_parser_common") or {}
    for file in sources.files(_MUSUBI.rstrip("/")):
        script = file.removeprefix(_MUSUBI).removesuffix(".py")
        if script.endswith("_train_network") and "/" not in script:
            names = [
                node.name
                for node in sources.statements(file, rb"def \w*setup_parser\w*\(")
                if hasattr(node, "name") and isinstance(node.name, str)
            ]
            own = {name: key for function in names for name, key in (options.of(file, function) or {}).items()}
            sections[f"{script}:"] = {**common, **own}
    found = datasets.groups(sources, MUSUBI_MARKER)
    sections["general"] = datasets.joined(found, "DATASET_ASCENDABLE")
    sections["datasets/*"] = datasets.joined(found, "DATASET")
    return _schema("musubi-tuner", "https://github.com/kohya-ss/musubi-tuner", sections, sources)


def _schema(trainer: str, repository: str, scripts: dict[str, dict[str, Key]], sources: Sources) -> Schema:
    """With what all scripts take alike written once: section "" is the union, a script's own holds what it adds."""
    names = [name for name in scripts if name.endswith(":")]
    union = {key: made for name in names for key, made in scripts[name].items()}
    return Schema(
        trainer=trainer,
        repository=repository,
        commit="",
        sections={"": union, **{name: keys for name, keys in scripts.items() if keys}},
        processes=tuple(name.rstrip(":") for name in names),
        unparsed=sources.unparsed,
    )
