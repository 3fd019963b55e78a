"""sd-scripts and musubi-tuner: scripts with a parser each, and a dataset file."""

from __future__ import annotations

from ...model.schema import Key, Schema
from ...schema.arguments import Options
from ...schema.sources import Sources
from ..simpletuner import dataset_schema as datasets

SD_MARKER = "library/train_util.py"
MUSUBI_MARKER = "src/musubi_tuner/dataset/config_utils.py"
_MUSUBI = "src/musubi_tuner"


def mine_sd_scripts(sources: Sources) -> Schema:
    """Section "" holds the options of every training script, "flux_train_network:" those of one."""
    options = Options(sources)
    sections: dict[str, dict[str, Key]] = {}
    for file in sources.files("", deep=False):
        if "train" in file or "tune" in file:
            sections[f"{file.removesuffix('.py')}:"] = options.of(file, "setup_parser") or {}
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
    for file in sources.files(_MUSUBI, deep=False):
        if "train" in file:
            own = [
                getattr(node, "name", "") for node in sources.statements(file, rb"def (?:main|\w*setup_parser\w*)\(")
            ]
            made = [options.of(file, function) or {} for function in own]
            sections[f"{file.rpartition('/')[2].removesuffix('.py')}:"] = {
                k: v for keys in made for k, v in keys.items()
            }
    found = datasets.groups(sources, MUSUBI_MARKER)
    sections["general"] = datasets.joined(found, "DATASET_ASCENDABLE")
    sections["datasets/*"] = datasets.joined(found, "DATASET")
    return _schema("musubi-tuner", "https://github.com/kohya-ss/musubi-tuner", sections, sources)


def _schema(trainer: str, repository: str, scripts: dict[str, dict[str, Key]], sources: Sources) -> Schema:
    """With what all scripts take alike written once: section "" is the union, a script's own holds what it adds."""
    names = [name for name, keys in scripts.items() if name.endswith(":") and keys]
    union = {key: made for name in names for key, made in scripts[name].items()}
    return Schema(
        trainer=trainer,
        repository=repository,
        commit="",
        sections={"": union, **{name: keys for name, keys in scripts.items() if keys}},
        processes=tuple(sorted(name.rstrip(":") for name in names)),
        unparsed=sources.unparsed,
    )
