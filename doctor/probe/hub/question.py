"""The hub asked about repositories, in a process of the Python that will run the trainer."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...model import HubAnswer

PATIENCE = 15.0  # seconds for each repository; the client itself gives up after ten


def ask(python: str, wanted: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, HubAnswer]:
    """What the hub says of a file of each repository. Never raises: what was not answered says why."""
    text = Path(__file__).with_name("ask.py").read_text(encoding="utf-8")
    failed = "no answer came"
    try:
        done = subprocess.run(
            [python, "-c", text],
            input=json.dumps(wanted).encode(),
            capture_output=True,
            env=dict(variables),
            timeout=PATIENCE * len(wanted) + PATIENCE,
        )
        out = done.stdout
        if done.returncode:
            failed = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    except subprocess.TimeoutExpired as late:
        out, failed = late.stdout or b"", "no answer came in time"
    except OSError as error:
        out, failed = b"", f"{python} cannot be started: {error.strerror}"
    answers = {repo: HubAnswer(unasked=failed) for repo in wanted}
    for line in out.splitlines():
        with suppress(ValueError, TypeError, KeyError):  # what another program printed there
            told = json.loads(line)
            repo = told.pop("repo")
            answers[repo] = HubAnswer(**told)
    return answers
