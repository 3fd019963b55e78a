"""The keys of ai-toolkit: processes that ask `get_conf`, config classes that take `**kwargs`, extensions by uid."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from ...mining.constant_folding import constants, folded, texts
from ...mining.mapping_reads import Reads, Sections, forms_asked
from ...mining.sources import Sources
from ...model.record import replace
from ...model.schema import Key, Schema
from .read import TRAINERS

REPOSITORY = "https://github.com/ostris/ai-toolkit"
_EXTENSIONS = ("extensions_built_in", "extensions")
_QUANTO = ("qint2", "qint4", "qint8", "qfloat8", "qfloat8_e4m3fn", "qfloat8_e4m3fnuz", "qfloat8_e5m2")
# key -> (file, function or "" for every one, the name that is compared there)
_COMPARED = (
    ("train/optimizer", "toolkit/optimizer.py", "get_optimizer", "lower_type"),
    ("train/lr_scheduler", "toolkit/scheduler.py", "get_lr_scheduler", "name"),
    ("train/dtype", "toolkit/train_tools.py", "get_torch_dtype", "dtype_str"),
    ("train/timestep_type", "toolkit/samplers/custom_flowmatch_sampler.py", "", "timestep_type"),
    ("train/timestep_type", "jobs/process/BaseSDTrainProcess.py", "", "timestep_type"),
    ("train/content_or_style", "jobs/process/BaseSDTrainProcess.py", "", "content_or_style"),
    ("train/loss_type", "extensions_built_in/sd_trainer/SDTrainer.py", "", "loss_type"),
    ("train/noise_scheduler", "toolkit/sampler.py", "get_sampler", "sampler"),
    ("sample/sampler", "toolkit/sampler.py", "get_sampler", "sampler"),
    ("model/arch", "toolkit/config_modules.py", "", "arch"),
)
_SAME = {"save/dtype": "train/dtype", "model/qtype_te": "model/qtype"}
_UID = re.compile(rb"^\s+uid\b.*=", re.M)
# a class's `arch = "…"`, in files of thousands of lines beside it
_ARCH = re.compile(rb"""^(?:async )?(class|def)\b|^    arch\b[^=\n]*=\s*(["'])([^"'\n]+)\2""", re.M)


def mine(sources: Sources) -> Schema:
    """The schema of an ai-toolkit checkout. What does not parse is left out and named."""
    reads = Reads(sources)
    processes = dict(_extensions(sources))
    base: Sections = {}
    for uid in TRAINERS:
        if uid in processes:
            reads.process(*processes[uid], base)
    if not base.get(""):  # the file of the trainer itself does not parse; most is asked by what it is made of
        reads.process("jobs/process/BaseSDTrainProcess.py", "BaseSDTrainProcess", base)
    sections: Sections = {path: keys for path, keys in base.items() if keys}
    jobs = sources.constants("jobs/TrainJob.py").get(
        "process_dict", {}
    )  # the types of `job: train`, by their classes
    for uid, (file, name) in {**processes, **{u: (f"jobs/process/{n}.py", n) for u, n in jobs.items()}}.items():
        if uid in TRAINERS or b"SDTrain" not in sources.text(file):  # what is no trainer asks for other sections
            continue
        own: Sections = {}
        reads.process(file, name, own)
        own[""] = {"type": Key("str"), "device": Key("str"), **own.get("", {})}
        sections |= {f"{uid}:{path}": keys for path, keys in own.items() if keys and keys != base.get(path)}
    if "" in sections:
        sections[""].setdefault("type", Key("str", choices=tuple(sorted(processes))))
        sections[""].setdefault("device", Key("str"))  # of the job; written in every example, and harmless
        sections |= {f"{uid}:": sections[""] for uid in TRAINERS if uid in processes}
    for path, choices in _choices(sources).items():
        section, _, name = path.rpartition("/")
        if name in sections.get(section, {}):
            key = sections[section][name]
            stated = {*choices, *key.choices, *texts(key.default)}
            sections[section][name] = replace(key, kind="str", choices=tuple(sorted(stated)))
    forms = frozenset(key for node in sources.body("toolkit/config_modules.py") for key in _forms(node))
    return Schema(
        "ai-toolkit", REPOSITORY, "", sections, tuple(sorted(processes)), unparsed=sources.unparsed, forms=forms
    )


def _forms(node: ast.stmt) -> Iterator[str]:
    for one in node.body if isinstance(node, ast.ClassDef) else [node]:
        if isinstance(one, ast.FunctionDef):
            yield from forms_asked(one)


def _extensions(sources: Sources) -> Iterator[tuple[str, tuple[str, str]]]:
    """uid -> (file, name) of the process class of every extension."""
    for file in (file for folder in _EXTENSIONS for file in sources.files(folder)):
        processes: dict[str, tuple[str, str]] = {}
        for definition in sources.body(file) if _UID.search(sources.text(file)) else ():
            if isinstance(definition, ast.ClassDef):
                inherited = (
                    processes[b.id] for b in definition.bases if isinstance(b, ast.Name) and b.id in processes
                )
                process = _process(sources, file, definition) or next(inherited, None)
                uid = constants(definition.body).get("uid")
                if process is not None and isinstance(uid, str):
                    processes[definition.name] = process
                    yield uid, process


def _process(sources: Sources, file: str, definition: ast.ClassDef) -> tuple[str, str] | None:
    """The class that get_process returns: (file that knows it, name)."""
    for function in definition.body:
        match function:
            case ast.FunctionDef("get_process", body=[*body, ast.Return(ast.Name(name))]):
                imported = [at for node in body for _, at in sources.imported(file, node, name)]
                found = next((at for at in imported if sources.text(at)), None if imported else file)
                return (found, name) if found is not None else None
    return None


def _choices(sources: Sources) -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = {"model/qtype": set(_qtypes(sources))}
    for path, file, function, name in _COMPARED:
        for node in sources.body(file):
            if not function or (isinstance(node, ast.FunctionDef) and node.name == function):
                found.setdefault(path, set()).update(_compared(node, name))
    found.setdefault("model/arch", set()).update(_architectures(sources))
    found |= {path: found.get(other, set()) for path, other in _SAME.items()}
    return {path: values for path, values in found.items() if values}


def _compared(node: ast.AST, name: str) -> Iterator[str]:
    """The texts that a variable or attribute of this name is compared with."""
    for inner in ast.walk(node):
        match inner:
            case ast.Compare(ast.Name(one) | ast.Attribute(_, one), [ast.Eq() | ast.In()], [other]) if one == name:
                yield from texts(folded(other, {}))
            case ast.Call(ast.Attribute(ast.Name(one), "startswith"), [ast.Constant(str() as start)]) if one == name:
                if start.isalnum():
                    yield start


def _architectures(sources: Sources) -> Iterator[str]:
    for file in (file for folder in (*_EXTENSIONS, "toolkit/models") for file in sources.files(folder)):
        inside = b""
        for found in _ARCH.finditer(sources.text(file)):
            inside = found.group(1) or inside
            if found.group(3) and inside == b"class":
                yield found.group(3).decode("utf-8", "replace")


def _qtypes(sources: Sources) -> Iterator[str]:
    if not sources.text("toolkit/util/quantize.py"):
        return
    yield from _QUANTO
    for file in sources.files("toolkit/util"):
        for statement in sources.body(file):
            match statement:
                case ast.Assign([ast.Name(name)], value) if name.endswith(("_QTYPES", "_qtypes")):
                    for listed in value.keys if isinstance(value, ast.Dict) else [value]:
                        yield from texts(folded(listed, {}))
