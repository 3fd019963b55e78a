"""What the kohya GUI's own code makes of its JSON files in corpus.tsv: a script of sd-scripts and its config file.

    PYTHON benchmarks/gui_commands.py KOHYA_SS CLONES commands.json [CDEF]

KOHYA_SS is a checkout of bmaltais/kohya_ss with one of sd-scripts in its folder sd-scripts; PYTHON has what its LoRA
tab imports (gradio, toml, easygui, psutil). The tab is built without a display, each file is loaded by the GUI's
own open_configuration into the values of its fields, and "print training command" is pressed. Folders and models
are taken for there: pictures lie in a folder of their own. `gui_oracle.py` reads commands.json, with another Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDERS = ("train_data_dir", "output_dir", "logging_dir")
ELSEWHERE = (
    *("reg_data_dir", "resume", "dataset_config", "sample_prompts", "network_weights", "vae"),
    "log_tracker_config",
)
CHECKS = ("validate_file_path", "validate_folder_path", "validate_model_path", "require_writable_directory")


def listed(halves: str) -> Iterator[tuple[str, str, str]]:
    """Name, repository at its commit and path of each JSON file of sd-scripts."""
    for line in (Path(__file__).parent / "corpus.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        half, trainer, repository, commit, path, block = line.split("\t")
        if half in halves and trainer == "sd-scripts" and path.endswith(".json") and block == "-":
            yield f"{repository}/{path}", repository, f"{commit}:{path}"


def built(gui: Any) -> list[tuple[str, Any]]:
    """The fields of the LoRA tab by the names of their values."""
    import gradio
    from kohya_gui.class_gui_config import KohyaSSGUIConfig

    with gradio.Blocks():
        gui.lora_tab(headless=True, config=KohyaSSGUIConfig(config_file_path="none.toml"))
    fields: list[tuple[str, Any]] = gui.last_built_field_registry
    return fields


def as_shown(value: object) -> object:
    """A value as it comes back from the browser, where 64.0 and 64 are one number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def made(gui: Any, fields: list[tuple[str, Any]], file: Path, folder: Path) -> dict[str, Any]:
    """The command line and the text of the config file that the GUI prints for a saved file, or why it does not."""
    said: list[str] = []
    printed: list[tuple[list[str], str]] = []
    gui.output_message = lambda msg="", **_: said.append(msg)
    gui.log.error = lambda msg, *_: said.append(str(msg))
    gui.print_command_and_toml = lambda command, toml: printed.append((command, Path(toml).read_text("utf-8")))
    named = {name: component.value for name, component in fields}
    loaded = gui.open_configuration(False, False, str(file), training_preset="none", **named)
    values = {name: as_shown(value) for name, value in zip(named, loaded[1:], strict=False)}
    values |= {name: str(folder / name) for name in FOLDERS}
    values |= dict.fromkeys((name for name in ELSEWHERE if name in values), "")
    gui.train_model(headless=True, print_only=True, **values)
    if not printed:
        return {"refused": " ".join(said) or "no command was printed"}
    command, toml = printed[0]
    at = next(number for number, word in enumerate(command) if word.endswith(".py"))
    words = [word for word in command[at + 1 :] if word != "--config_file" and not word.endswith(".toml")]
    return {"script": Path(command[at]).stem, "words": words, "toml": toml}


def main(root: Path, clones: Path, into: Path, halves: str) -> None:
    sys.path.insert(0, str(root))
    import kohya_gui.lora_gui as gui

    for name in CHECKS:
        setattr(gui, name, lambda *_, **__: True)
    answers: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as made_folder:
        folder = Path(made_folder)
        for name in FOLDERS:
            (folder / name / "10_thing").mkdir(parents=True)
        (folder / "train_data_dir" / "10_thing" / "a.png").write_bytes(b"")
        (folder / "accelerate").write_text("")  # looked up, never started
        (folder / "accelerate").chmod(0o755)
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
        fields = built(gui)
        for name, repository, place in listed(halves):
            text = subprocess.run(["git", "-C", clones / repository, "show", place], capture_output=True).stdout
            file = folder / "saved.json"
            file.write_bytes(text)
            try:
                is_lora = "LoRA_type" in json.loads(text)
                answers[name] = made(gui, fields, file, folder) if is_lora else {"unknown": "no LoRA"}
            except Exception as error:  # what the GUI raises is its answer
                answers[name] = {"refused": f"{type(error).__name__}: {error}"}
    into.write_text(json.dumps(answers, indent=0), encoding="utf-8")
    for kind in ("script", "refused", "unknown"):
        print(kind, sum(kind in answer for answer in answers.values()))


if __name__ == "__main__":
    given = sys.argv[1:]
    main(*(Path(word).resolve() for word in given[:3]), given[3] if len(given) > 3 else "ABCDEFG")
