"""What sd-scripts says of the commands that the kohya GUI makes of its JSON files, until it would load a model.

    python benchmarks/gui_oracle.py SD_SCRIPTS commands.json CLONES accepted.json

SD_SCRIPTS is a checkout, commands.json was made by gui_commands.py. Each command's own script parses its words and
its config file, makes the datasets (of a folder with one picture) and asserts what it asserts, and is stopped where
it would ask for the graphics card. The names of those that come so far are added to accepted.json. Printed are the
refused files of which zdoctor says no error, and the taken ones of which it says one. It needs what
corpus_oracle.py needs, and the training packages of zdoctor.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from corpus import Entry, checked, entries, written
from corpus_oracle import UNKNOWN, StandIn, imported, refusal
from PIL import Image

from zdoctor.doctor.model import Report


class Reached(Exception):
    """The place where a run asks for its graphics card."""


class NoTokens:
    """Stands for the tokenizers, which are asked for by name and used for captions later."""

    def __getattr__(self, name: str) -> None:
        return None


def judge(answer: dict[str, Any], folder: Path) -> str | None:
    """Why a command is refused; None where it is taken."""
    if "script" not in answer:
        return answer.get("refused", UNKNOWN)
    text = answer["toml"]
    for name in ("train_data_dir", "output_dir", "logging_dir"):
        text = re.sub(rf'(?m)^{name} = ".*"$', f'{name} = "{folder / name}"', text)
    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    module, shared = imported(answer["script"]), imported("library.train_util")
    owner = next(kind for name, kind in vars(module).items() if name.endswith("Trainer") and isinstance(kind, type))

    def stop(*_: object) -> None:
        raise Reached

    shared.prepare_accelerator = stop
    owner.get_tokenize_strategy = lambda *_: NoTokens()  # else it fetches a tokenizer
    shared.setup_logging = imported("library.utils").setup_logging = lambda *_, **__: None

    for kind in vars(imported("library.strategy_base")).values():
        if hasattr(kind, "_strategy"):
            kind._strategy = None  # of the run before

    def run() -> None:
        sys.argv = [answer["script"], *answer["words"], "--config_file", str(file)]
        parser = module.setup_parser()
        options = parser.parse_args()
        shared.verify_command_line_training_args(options)
        try:
            owner().train(shared.read_config_from_file(options, parser))
        except Reached:
            return
        raise ValueError("it ended before it asked for a graphics card: no data found")

    return refusal(run)


def main(root: Path, commands: Path, clones: Path, kept: Path) -> None:
    sys.meta_path.append(StandIn(root))
    sys.path.insert(0, str(root))
    answers = json.loads(commands.read_text(encoding="utf-8"))
    chosen: dict[str, Entry] = {entry.name: entry for entry in entries() if entry.name in answers}
    accepted = set(json.loads(kept.read_text()) if kept.exists() else ())
    counts = {"taken": 0, "refused": 0, UNKNOWN: 0}
    os.environ["ZDOCTOR_STATE"] = tempfile.mkdtemp()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made).resolve()
        pictures = folder / "train_data_dir" / "10_thing"
        pictures.mkdir(parents=True)
        Image.new("RGB", (1024, 1024)).save(pictures / "a.png")
        for name, entry in chosen.items():
            said = judge(answers[name], folder)
            counts["taken" if said is None else UNKNOWN if said == UNKNOWN else "refused"] += 1
            if said == UNKNOWN:
                continue
            file, tree = written(clones, entry, folder)
            report = checked(file, tree, folder / "machine.json")
            errors = [f"{one.rule} {one.text()[:150]}" for one in report.errors] if isinstance(report, Report) else []
            if said is None:
                accepted.add(name)
            if (said is None) == bool(errors):
                print(f"{entry.half} {name}: {said or 'taken'}; zdoctor: {errors or 'no error'}", flush=True)
    print(counts)
    kept.write_text(json.dumps(sorted(accepted), indent=0))


if __name__ == "__main__":
    main(*(Path(word).resolve() for word in sys.argv[1:5]))
