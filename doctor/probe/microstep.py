"""One step of a user's own model, tried in a child process: it may hang, crash or be killed, and we go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress

from ..model import Unknown
from ..model.record import dataclass
from ..model.script import MicroStep
from .from_json import from_json

_TAIL = 4000


@dataclass(frozen=True)
class Tried:
    """What came back. `trace` is the traceback of a failure, or the last that a process said which died."""

    step: MicroStep | Unknown
    trace: str = ""


def try_step(script: str, function: str, *, batch: int | None = None, deadline: float) -> Tried:
    """Run one step of what `function` of `script` (an absolute path) builds; at most `deadline` seconds."""
    question = json.dumps({"script": script, "function": function, "batch": batch})
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            [sys.executable, "-m", "zdoctor.doctor.train.probe_scripts.micro_step"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,  # so that its own children end with it, and Ctrl-C reaches only us
        )
        late = False
        try:
            out, _ = child.communicate(question.encode(), timeout=deadline)
        except subprocess.TimeoutExpired:
            late = True
            _end(child)
            out, _ = child.communicate()
        finally:
            _end(child)
        said.seek(max(0, said.seek(0, os.SEEK_END) - _TAIL))
        tail = said.read().decode("utf-8", "replace")
    return _understood(f"{script}:{function}", out, child.returncode, tail, deadline if late else None)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child and what it started."""
    with suppress(OSError):
        if sys.platform == "win32":
            child.kill()
        else:
            os.killpg(child.pid, signal.SIGKILL)
    if child.poll() is None:
        child.wait()


def _understood(target: str, out: bytes, code: int, tail: str, late: float | None) -> Tried:
    stage, done = "starting Python", None
    for line in out.splitlines():
        with suppress(ValueError):
            told = json.loads(line)
            stage, done = told.get("stage", stage), told.get("done", done)
    if late is not None:
        advice = (
            " A script that starts training when it is imported must do so under: if __name__ == '__main__'."
            if stage == "importing the script"
            else ""
        )
        return Tried(Unknown(f"{stage} did not end within {late:g} s (--timeout gives it more).{advice}"), tail)
    if done is None:
        return Tried(MicroStep(target, stage, failed=f"The process {_ended(code)}"), tail)
    step = from_json(MicroStep, {**done, "target": target, "stage": stage})
    return Tried(step, str(done.get("trace", "")))


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended by itself with exit code {code}."
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (most often: no memory was left)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}."
