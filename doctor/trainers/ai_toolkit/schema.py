"""ai-toolkit's idiom: process classes that ask `get_conf`, config classes that take `**kwargs`, extensions by uid."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from ...model.record import replace
from ...model.schema import Key, Schema
from ...schema.fold import constants, folded
from ...schema.reads import Reads, Sections
from ...schema.sources import Sources

REPOSITORY = "https://github.com/ostris/ai-toolkit"
MARKER = "toolkit/config_modules.py"
TRAINERS = ("sd_trainer", "diffusion_trainer", "ui_trainer")
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
    ("model/arch", MARKER, "", "arch"),
)
_KEPT = re.compile(rb"get_conf|kwargs|config\.get\(|config\[|_type\b|_style\b|\buid\b|\barch\b")
_SAME = {"save/dtype": "train/dtype", "model/qtype_te": "model/qtype"}


def mine(sources: Sources) -> Schema:
    """The schema of an ai-toolkit checkout. What does not parse is left out and named."""
    sources.keep = _KEPT
    reads = Reads(sources)
    processes = dict(_extensions(sources))
    base: Sections = {}
    for uid in TRAINERS:
        if uid in processes:
            reads.process(*processes[uid], base)
    if not base.get(""):  # the file of the trainer itself does not parse; most is asked by what it is made of
        reads.process("jobs/process/BaseSDTrainProcess.py", "BaseSDTrainProcess", base)
    sections: Sections = {path: keys for path, keys in base.items() if keys}
    for uid, (file, name) in {**processes, **_jobs(sources)}.items():
        if uid in TRAINERS or not _trains(sources, file):
            continue
        own: Sections = {}
        reads.process(file, name, own)
        own[""] = {"type": Key("str"), "device": Key("str"), **own.get("", {})}
        sections |= {f"{uid}:{path}": keys for path, keys in own.items() if keys and keys != base.get(path)}
    if "" in sections:
        sections[""].setdefault("type", Key("str", choices=tuple(sorted(processes))))
        sections[""].setdefault("device", Key("str"))  # of the job; written in every example, and harmless
    sections |= {f"{uid}:": sections[""] for uid in TRAINERS if uid in processes and "" in sections}
    for path, choices in _choices(sources).items():
        section, _, name = path.rpartition("/")
        if name in sections.get(section, {}):
            key = sections[section][name]
            stated = {*choices, *key.choices, *([key.default] if isinstance(key.default, str) else [])}
            sections[section][name] = replace(key, kind="str", choices=tuple(sorted(stated)))
    return Schema(
        trainer="ai-toolkit",
        repository=REPOSITORY,
        commit="",
        sections=sections,
        processes=tuple(sorted(processes)),
        unparsed=sources.unparsed,
    )


def _extensions(sources: Sources) -> Iterator[tuple[str, tuple[str, str]]]:
    """uid -> (file, name) of the process class of every extension."""
    for folder in _EXTENSIONS:
        for file in sources.files(folder):
            if b"uid" not in (text := sources.text(file) or b"") or not re.search(rb"^\s+uid\b.*=", text, re.M):
                continue
            tree = sources.tree(file)
            uids: dict[str, tuple[str, str]] = {}
            for definition in tree.body if tree is not None else ():
                if isinstance(definition, ast.ClassDef):
                    inherited = next(
                        (uids[b.id] for b in definition.bases if isinstance(b, ast.Name) and b.id in uids), None
                    )
                    process = _process(sources, file, definition) or inherited
                    uid = _assigned(definition, "uid")
                    if process is not None and isinstance(uid, str):
                        uids[definition.name] = process
                        yield uid, process


def _process(sources: Sources, file: str, definition: ast.ClassDef) -> tuple[str, str] | None:
    """The class that get_process returns: (file that knows it, name)."""
    for function in definition.body:
        if isinstance(function, ast.FunctionDef) and function.name == "get_process":
            returned = [
                n.value.id for n in function.body if isinstance(n, ast.Return) and isinstance(n.value, ast.Name)
            ]
            for name in returned:
                for node in function.body:
                    if isinstance(node, ast.ImportFrom) and any(name == (a.asname or a.name) for a in node.names):
                        return next(
                            ((at, name) for at in sources.modules(file, node, name) if sources.text(at)), None
                        )
                return file, name
    return None


def _jobs(sources: Sources) -> dict[str, tuple[str, str]]:
    """The process types of `job: train`, by the dictionary that names their classes."""
    named: dict[str, str] = {}
    for statement in sources.statements("jobs/TrainJob.py", rb"process_dict\b"):
        named = constants([statement]).get("process_dict", {})
    return {uid: (f"jobs/process/{name}.py", name) for uid, name in named.items()}


def _trains(sources: Sources, file: str) -> bool:
    """Whether a process may be a trainer, which asks for the same sections; the others are not looked into."""
    return b"SDTrain" in (sources.text(file) or b"")


def _assigned(definition: ast.ClassDef, name: str) -> Any:
    for statement in definition.body:
        match statement:
            case ast.Assign([ast.Name(target)], value) | ast.AnnAssign(ast.Name(target), _, value) if target == name:
                return folded(value, {})
            case _:
                pass
    return None


def _choices(sources: Sources) -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path, file, function, name in _COMPARED:
        found.setdefault(path, set()).update(_compared(sources, file, function, name))
    found["model/arch"] |= set(_architectures(sources))
    found["model/qtype"] = set(_qtypes(sources))
    for path, other in _SAME.items():
        found[path] = found[other]
    return {path: values for path, values in found.items() if values}


def _compared(sources: Sources, file: str, function: str, name: str) -> Iterator[str]:
    """The texts that a variable or attribute of this name is compared with."""
    lines = (sources.text(file) or b"").split(b"\n")
    asked = re.compile(rb"\b" + name.encode() + rb"\s*(?:==|in\b)")
    if function:
        body = list(sources.statements(file, rb"def " + function.encode() + rb"\("))
    else:
        tree = sources.tree(file)
        body = tree.body if tree is not None else []
    for node in _functions(body):
        if not function and not any(map(asked.search, lines[node.lineno - 1 : node.end_lineno])):
            continue
        for inner in ast.walk(node):
            match inner:
                case ast.Compare(ast.Name(one) | ast.Attribute(_, one), [ast.Eq() | ast.In()], [other]) if (
                    one == name
                ):
                    values = folded(other, {}, ())
                    yield from (v for v in (values if isinstance(values, list) else [values]) if isinstance(v, str))
                case ast.Call(ast.Attribute(ast.Name(one), "startswith"), [ast.Constant(str() as start)]) if (
                    one == name
                ):
                    if start.isalnum():
                        yield start
                case _:
                    pass


def _functions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef]:
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body)


def _architectures(sources: Sources) -> Iterator[str]:
    """Every `arch = "…"` in the body of a class. A file holds thousands of lines beside it: they are not parsed."""
    for folder in (*_EXTENSIONS, "toolkit/models"):
        for file in sources.files(folder):
            text = sources.text(file) or b""
            for found in (
                () if b"\n    arch" not in text else re.finditer(rb"^    (arch\b[^=\n]*=[^=\n]+)$", text, re.M)
            ):
                opening = re.compile(rb"^(?:async )?(class|def)\b", re.M).findall(text, 0, found.start())
                if opening and opening[-1] == b"class":
                    with suppress(SyntaxError, ValueError):
                        match ast.parse(found.group(1)).body:
                            case [
                                ast.Assign(_, ast.Constant(str() as arch))
                                | ast.AnnAssign(_, _, ast.Constant(str() as arch))
                            ]:
                                yield arch


def _qtypes(sources: Sources) -> Iterator[str]:
    if sources.text("toolkit/util/quantize.py") is None:
        return
    yield from _QUANTO
    for file in sources.files("toolkit/util"):
        for statement in sources.statements(file, rb"\w+(?:_QTYPES|_qtypes)\b"):
            match statement:
                case ast.Assign(_, ast.Dict(keys, _)):
                    yield from (
                        key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
                    )
                case ast.Assign(_, value):
                    yield from (entry for entry in folded(value, {}, ()) if isinstance(entry, str))
                case _:
                    pass
