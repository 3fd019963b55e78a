"""The keys of sd-scripts and musubi-tuner: a parser for each script, voluptuous for the dataset file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...configs.json_schema import section_schema
from ...mining.argparse_options import ParserOptions
from ...mining.constant_folding import KINDS
from ...mining.sources import Sources
from ...model.record import replace
from ...model.schema import Key, Kind, Schema

_QUOTED = re.compile(rb"[\"']([a-z]\w{2,60})[\"']", re.ASCII)


def mine_sd_scripts(sources: Sources) -> Schema:
    """Section "" holds the options of every training script, "flux_train_network:" those of one."""
    sections = _scripts(sources, "", ("train", "tune"), re.compile("setup_parser"))
    known = _dataset_keys(sources, "library/config_util.py")
    shared = {**_joined(known, "DATASET_ASCENDABLE"), **_joined(known, "SUBSET_ASCENDABLE")}
    sections["general"] = shared
    sections["datasets/*"] = {**shared, "subsets": Key("list")}
    sections["datasets/*/subsets/*"] = _joined(known, "SUBSET")
    return _schema("sd-scripts", "https://github.com/kohya-ss/sd-scripts", sections, sources, "library")


def mine_musubi(sources: Sources) -> Schema:
    """Section "" holds the options of every training script, "zimage_train_network:" those of one."""
    sections = _scripts(sources, "src/musubi_tuner", ("train",), re.compile(r"main|\w*setup_parser\w*"))
    known = _dataset_keys(sources, "src/musubi_tuner/dataset/config_utils.py")
    sections["general"] = _joined(known, "DATASET_ASCENDABLE")
    sections["datasets/*"] = _joined(known, "DATASET")
    repository, folders = (
        "https://github.com/kohya-ss/musubi-tuner",
        ("src/musubi_tuner", "src/musubi_tuner/training"),
    )
    return _schema("musubi-tuner", repository, sections, sources, *folders)


def _scripts(
    sources: Sources, folder: str, words: tuple[str, ...], functions: re.Pattern[str]
) -> dict[str, dict[str, Key]]:
    """The options of every script with such a word in its name, as its functions that make a parser declare them."""
    options = ParserOptions(sources)
    found: dict[str, dict[str, Key]] = {}
    for file in sources.files(folder, deep=False):
        if any(word in file for word in words):
            made = found[f"{file.rpartition('/')[2].removesuffix('.py')}:"] = {}
            for node in sources.body(file):
                if isinstance(node, ast.FunctionDef) and functions.fullmatch(node.name):
                    made |= options.of(file, node.name)
    return found


def _schema(
    trainer: str, repository: str, scripts: dict[str, dict[str, Key]], sources: Sources, *folders: str
) -> Schema:
    """With what all scripts take alike written once: section "" is the union, a script's own holds what it adds.

    In one of `folders` lies what looks optimizers and schedules up by their names.
    """
    names = [name for name, keys in scripts.items() if name.endswith(":") and keys]
    for key, function in (("optimizer_type", "get_optimizer"), ("lr_scheduler", r"get_(lr_)?scheduler(_fix)?")):
        functions = list(_functions(sources, folders, function))
        choices, own = tuple(sorted(_compared(functions))), next(_assigned(functions, key), None)
        for keys in scripts.values():
            if key in keys:
                made = replace(keys[key], choices=choices)
                keys[key] = made if own is None else replace(made, default=own, has_default=True)
    union = {key: made for name in names for key, made in scripts[name].items()}
    sections = {"": union, **{name: keys for name, keys in scripts.items() if keys}}
    processes = tuple(sorted(name.rstrip(":") for name in names))
    words = frozenset(word.decode() for file in sources.files("") for word in _QUOTED.findall(sources.text(file)))
    return Schema(trainer, repository, "", sections, processes, unparsed=sources.unparsed, words=words)


def _functions(sources: Sources, folders: tuple[str, ...], name: str) -> Iterator[ast.FunctionDef]:
    """The functions by this name in files of these folders."""
    begun = re.compile(rf"def {name}\(".encode())
    files = (file for folder in folders for file in sources.files(folder, deep=False))
    trees = (node for file in files if begun.search(sources.text(file)) for node in sources.body(file))
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef) and re.fullmatch(name, node.name):
            yield node


def _assigned(functions: list[ast.FunctionDef], option: str) -> Iterator[str]:
    """The texts that a function writes into an option itself, as where a fork has a default of its own."""
    for node in (node for function in functions for node in ast.walk(function)):
        match node:
            case ast.Assign([ast.Attribute(_, name)], ast.Constant(str() as text)) if name == option:
                yield text


def _compared(functions: list[ast.FunctionDef]) -> set[str]:
    """The texts that a function, or one inside it, compares its argument with."""
    return {
        found.value
        for defined in functions
        for node in ast.walk(defined)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.In)
        for side in node.comparators
        for found in ast.walk(side)
        if isinstance(found, ast.Constant) and isinstance(found.value, str) and found.value.isidentifier()
    }


def _dataset_keys(sources: Sources, file: str) -> dict[str, dict[str, Key]]:
    """The dictionaries of a ConfigSanitizer (`DATASET_ASCENDABLE_SCHEMA`), which say what a dataset file may hold."""
    found: dict[str, dict[str, Key]] = {}
    sanitizer = sources.defined(file, "ConfigSanitizer")
    for statement in sanitizer[1].body if sanitizer is not None else ():
        match statement:
            case ast.Assign([ast.Name(name)], ast.Dict(keys, values)) if name.endswith("_SCHEMA"):
                known = found[name] = {}
                for key, value in zip(keys, values, strict=True):
                    match key:
                        case ast.Constant(str() as spelt) | ast.Call(_, [ast.Constant(str() as spelt), *_]):
                            known[spelt] = Key(_kind(value))  # Required("image_dir"): str
    return found


def _kind(value: ast.expr) -> Kind:
    match value:
        case ast.Name(name) | ast.Call(ast.Name("Any"), [ast.Name("float" as name), *_]):
            return KINDS.get(name, "")
        case ast.List():
            return "list"
    return ""


def _joined(known: Mapping[str, Mapping[str, Key]], word: str) -> dict[str, Key]:
    """The keys of every dictionary whose name holds the word."""
    return {key: made for name, keys in known.items() if word in name for key, made in keys.items()}


def for_editor(schema: Schema) -> dict[str, Any]:
    """A config file, whose sections have any name and no meaning, or a dataset file."""
    options = section_schema(schema, "")
    return {
        "type": "object",
        "properties": {
            **options["properties"],
            "general": section_schema(schema, "general"),
            "datasets": {"type": "array", "items": section_schema(schema, "datasets/*")},
        },
        "additionalProperties": {"$ref": "#/$defs/options"},
        "$defs": {"options": options},
    }
