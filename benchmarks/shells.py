"""Whether every bash script below some folders that `bash -n` takes is read, and what zdoctor makes of the trainings.

    python benchmarks/shells.py path/to/kohya_ss path/to/SimpleTuner /usr …

Counts the scripts, what either refuses, and the starts of trainings with what is not known of them. Nothing is run.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from zdoctor.doctor.configs.command_line import commands
from zdoctor.doctor.configs.node import Unreadable
from zdoctor.doctor.examine.certain import doubts_of
from zdoctor.doctor.trainers.read import read_config, recognise


def main(folders: list[str]) -> None:
    seen: Counter[str] = Counter()
    files = {path.resolve() for folder in folders for path in Path(folder).rglob("*") if path.suffix in SUFFIXES}
    for file in sorted(path for path in files if path.is_file()):
        data = file.read_bytes()
        text = data.decode("utf-8", "surrogateescape")
        is_bash = file.suffix in (".sh", ".bash")
        refused = is_bash and subprocess.run(["bash", "-n", str(file)], capture_output=True).returncode != 0
        seen["bash" if is_bash else "others"] += 1
        seen["refused by bash -n"] += refused
        try:
            commands(str(file), text, {})
        except Unreadable as error:
            seen["refused here"] += 1
            if not refused:
                print(f"{file}: {error}, at character {error.offset}")
        if recognise(text, "shell") is not None:
            for run in read_config(str(file), data, {}).runs:
                seen["trainings"] += 1
                seen["trainings with something unknown"] += next(doubts_of(run), None) is not None
    print(", ".join(f"{name}: {count}" for name, count in seen.items()))


SUFFIXES = (".sh", ".bash", ".bat", ".cmd", ".ps1")

if __name__ == "__main__":
    main(sys.argv[1:])
