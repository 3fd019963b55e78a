"""What a trainer's own parser and validation say of the configs of corpus.tsv: which it takes.

    python benchmarks/corpus_oracle.py TRAINER CHECKOUT CLONES accepted.json [CDE]

TRAINER is ai-toolkit, SimpleTuner, sd-scripts or musubi-tuner, CHECKOUT its source. The names of the configs that it
takes are added to accepted.json, for `corpus.py --accepted`; the others are printed with what it said. The last word
are the draws to look at; without it all.

Run are: SimpleTuner's loader of JSON, TOML and env files and its argument parser; the parser of each script of
sd-scripts and musubi-tuner on the words of a command and on a --config_file; their voluptuous schemas on a dataset's
TOML; ai-toolkit's reader and its config classes. They need voluptuous, toml and oyaml, and torch, diffusers,
transformers and accelerate, which zdoctor's runner has. Other modules that are not installed are stood in for: no
parser uses them. Words that only a shell would know ($NAME, $(…)) are not judged.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from corpus import entries, written

Judge = Callable[[Path, str], str | None]  # a config's file and text -> why it is refused, None where it is taken
UNKNOWN = "not judged"
GONE = "ZDOCTOR_CORPUS_GONE"
OF_MACHINE = re.compile(
    "CUDA|is not installed|Could not find|No module named|Environment variable"
)  # says nothing of the config


class Absent(type):
    """A class whose every attribute is a class like it, and which takes any arguments."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(name, (), {"__init__": lambda self, *args, **kwargs: None})


class StandIn(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what the trainer's source imports and is not installed: an empty module, every name in it an `Absent`.

    Installed packages, which ask what else is installed, are told the truth.
    """

    def __init__(self, root: Path) -> None:
        texts = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in root.rglob("*.py"))
        named = set(re.findall(r"(?m)^\s*(?:import|from)\s+(\w+)", texts))
        own = {path.stem for path in (*root.glob("*"), *root.glob("src/*"))}
        self.absent = {name for name in named - own if importlib.util.find_spec(name) is None}
        self.root = str(root)

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in self.absent:
            return None
        frame = sys._getframe(1)
        while "importlib" in frame.f_code.co_filename and frame.f_back is not None:
            frame = frame.f_back
        if not frame.f_code.co_filename.startswith(self.root):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__getattr__ = lambda name: Absent.__getattr__(Absent, name)  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


def imported(name: str) -> ModuleType:
    """A module of the trainer. What a newer version of an installed package has no more is stood in for.

    That is seen when an import fails; this program then starts anew, so that nothing is left of the failed one.
    """
    gone = json.loads(os.environ.get(GONE, "[]"))
    for attempt in range(2):  # transformers is made anew while it is imported
        for module, missing in gone:
            setattr(importlib.import_module(module), missing, Absent(missing, (), {}))
        try:
            return importlib.import_module(name)
        except ImportError as error:
            named = re.match(r"cannot import name '(\w+)' from '([\w.]+)'", str(error))
            if named is None or attempt:
                raise
            if [named[2], named[1]] not in gone:
                os.environ[GONE] = json.dumps([*gone, [named[2], named[1]]])
                os.execv(sys.executable, [sys.executable, *sys.argv])
    raise ImportError(name)


def refusal(action: Callable[[], object]) -> str | None:
    """The last line of what it said when it ended the program or raised; None where it did not."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            action()
    except SystemExit as end:
        lines = said.getvalue().strip().splitlines()
        return (lines[-1] if lines else str(end)) if end.code else None
    except Exception as error:
        said_last = f"{type(error).__name__}: {error}".strip().splitlines()[-1][:300]
        return UNKNOWN if OF_MACHINE.search(said_last) else said_last
    return None


class Parsed(Exception):
    """The parser of a script, which was about to parse."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def parser_of(script: str, package: str) -> argparse.ArgumentParser:
    module = imported(package + script)
    if hasattr(module, "setup_parser"):
        return module.setup_parser()  # type: ignore[no-any-return]
    real = argparse.ArgumentParser.parse_args

    def parse(self: argparse.ArgumentParser, *_: object) -> None:
        raise Parsed(self)

    argparse.ArgumentParser.parse_args = parse  # type: ignore[assignment]
    try:
        module.main()
    except Parsed as caught:
        return caught.parser
    finally:
        argparse.ArgumentParser.parse_args = real  # type: ignore[method-assign]
    raise ValueError(f"{script} parses nothing")


GOES_ON = {".bat": r"\^", ".cmd": r"\^", ".ps1": "`"}


def commands(text: str, suffix: str) -> list[tuple[str, list[str]]] | None:
    """Each script that is started, with its words: lines are joined and plain variables filled in.

    None where options stand on a line of their own, to which the one above does not go on.
    """
    text = re.sub(r"(?m)^\s*(#|REM |::).*$", "", text, flags=re.IGNORECASE)
    text = re.sub(GOES_ON.get(suffix, r"\\") + r"\r?\n", " ", text)
    if re.search(r"(?m)\.py\b[^\n]*\n\s*--\w", text):
        return None
    values = dict(re.findall(r"(?m)^\s*(?:export\s+)?(\w+)=[\"']?([^\"'\n$`]*)[\"']?\s*$", text))
    text = re.sub(r"\$\{?(\w+)\}?", lambda found: values.get(found[1], found[0]), text)
    found = []
    for line in text.splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        at = next((i for i, word in enumerate(words) if re.search(r"(^|[\w/\\])\w+\.py$", word)), None)
        if at is not None:
            end = next((i for i, word in enumerate(words[at:], at) if word in ("|", "&&", ";", "||", "&", ">")), None)
            found.append((Path(words[at].replace("\\", "/")).stem, words[at + 1 : end]))
    return found


def kohya(root: Path, package: str, helpers: str, datasets: str, *supported: bool) -> Judge:
    import toml

    read = imported(helpers).read_config_from_file
    schema = imported(datasets)
    folder = root / package.replace(".", "/")

    def command(script: str, words: list[str]) -> str | None:
        if not (folder / f"{script}.py").exists() or not re.search("train|cache", script):
            return UNKNOWN
        if any(sign in word for word in words for sign in ("$", "<", "…", "%", "`", "[@]", "^-")):
            return UNKNOWN
        parser = parser_of(script, package)
        return refusal(lambda: parser.parse_args(words))

    def judge(file: Path, text: str) -> str | None:
        if file.suffix in (".sh", ".bat", ".ps1", ".cmd"):
            found = commands(text, file.suffix)
            if found is None:
                return "a shell ends the command before its options"
            said = [command(*start) for start in found]
            refused = [what for what in said if what not in (None, UNKNOWN)]
            return refused[0] if refused else UNKNOWN if UNKNOWN in said or not said else None
        if file.suffix != ".toml":
            return UNKNOWN
        try:
            if "datasets" in toml.loads(text):
                made = schema.ConfigSanitizer(*supported)
                return refusal(lambda: made.sanitize_user_config(schema.load_user_config(str(file))))
        except (toml.TomlDecodeError, IndexError) as error:
            return f"toml: {error}"
        script = "train_network" if not package else "wan_train_network"
        parser = parser_of(script, package)
        read_args = argparse.Namespace(config_file=str(file), output_config=False)
        sys.argv = [script, "--config_file", str(file)]
        return refusal(lambda: read(read_args, parser))

    return judge


def sd_scripts(root: Path) -> Judge:
    sys.path.insert(0, str(root))
    return kohya(root, "", "library.train_util", "library.config_util", True, True, True, True)


def musubi_tuner(root: Path) -> Judge:
    sys.path.insert(0, str(root / "src"))
    common = "musubi_tuner.training.parser_common"
    return kohya(root / "src", "musubi_tuner.", common, "musubi_tuner.dataset.config_utils")


def simpletuner(root: Path) -> Judge:
    sys.path.insert(0, str(root))
    load = imported("simpletuner.helpers.configuration.loader").load_config

    def judge(file: Path, text: str) -> str | None:
        kept = dict(os.environ)
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            Path("config").mkdir()
            name = f"config{file.suffix}"
            Path("config", name).write_text(text, encoding="utf-8")
            os.environ["SIMPLETUNER_CONFIG_BACKEND"] = file.suffix.removeprefix(".")
            sys.argv = ["train"]
            try:
                return refusal(lambda: load(exit_on_error=True))
            finally:
                os.environ.clear()
                os.environ.update(kept)
                os.chdir("/")

    return judge


def ai_toolkit(root: Path) -> Judge:
    sys.path.insert(0, str(root))
    modules = imported("toolkit.config_modules")
    get_config = imported("toolkit.config").get_config
    sections = {
        "network": modules.NetworkConfig,
        "save": modules.SaveConfig,
        "sample": modules.SampleConfig,
        "logging": modules.LoggingConfig,
        "adapter": modules.AdapterConfig,
    }

    def build(file: Path) -> None:
        for process in get_config(str(file))["config"]["process"]:
            for name, made in sections.items():
                if process.get(name) is not None:
                    made(**process[name])
            if "train" not in process or "model" not in process:
                continue
            train, model = modules.TrainConfig(**process["train"]), modules.ModelConfig(**process["model"])
            datasets = [modules.DatasetConfig(**dataset) for dataset in process.get("datasets") or ()]
            modules.validate_configs(train, model, modules.SaveConfig(**process.get("save", {})), datasets)

    return lambda file, text: refusal(lambda: build(file))


TRAINERS = {
    "ai-toolkit": ai_toolkit,
    "SimpleTuner": simpletuner,
    "sd-scripts": sd_scripts,
    "musubi-tuner": musubi_tuner,
}


def main(trainer: str, root: Path, clones: Path, kept: Path, halves: str) -> None:
    sys.meta_path.append(StandIn(root))
    chosen = [entry for entry in entries() if entry.trainer == trainer and entry.half in halves]
    torch.cuda.current_device = lambda: 0  # a default of functions that no parser calls
    judge = TRAINERS[trainer](root)
    accepted: set[str] = set(json.loads(kept.read_text())) if kept.exists() else set()
    unknown = 0
    with tempfile.TemporaryDirectory() as folder:
        for entry in chosen:
            file, _ = written(clones, entry, Path(folder))
            said = judge(file, file.read_text(encoding="utf-8", errors="replace"))
            unknown += said == UNKNOWN
            if said is None:
                accepted.add(entry.name)
            elif said != UNKNOWN:
                print(f"{entry.half} {entry.name}: {said}", flush=True)
    taken = sum(entry.name in accepted for entry in chosen)
    print(f"{trainer}: {len(chosen)} configs, {taken} taken, {unknown} not judged")
    kept.write_text(json.dumps(sorted(accepted), indent=0))


if __name__ == "__main__":
    given = sys.argv[1:]
    source, commits, told = (Path(word).resolve() for word in given[1:4])
    main(given[0], source, commits, told, given[4] if len(given) > 4 else "ABCDEFGHIJKLMNOP")
