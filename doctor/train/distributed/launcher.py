"""The launcher starts several processes of one run on this machine and waits for them.

Unlike torchrun it leaves them time to save when they are told to stop.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

from ..runtime.stop_signals import BEGAN, own_signals

# How long the others may take to save after one has failed.
GRACE = 900.0


def launch_ranks(count: int, arguments: Sequence[str]) -> int:
    """Runs `zdoctor train` with these arguments in `count` processes; returns the exit code."""
    import psutil

    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "GROUP_RANK": "0",
        BEGAN: os.environ.get(BEGAN) or str(psutil.Process().create_time()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // count)),
    }
    command = [sys.executable, "-m", "zdoctor", "train", *arguments]
    processes: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        if sys.platform != "win32":  # there Ctrl-C reaches them by itself, and SIGTERM would end them unsaved
            for process in processes:
                process.send_signal(signal.SIGTERM)

    with own_signals(pass_on):
        try:
            for rank in range(count):
                own = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                processes.append(subprocess.Popen(command, env=own))
            return _wait(processes)
        finally:
            for process in processes:
                process.kill()
                process.wait()


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Until all have ended. When one has failed, the others have GRACE seconds to save."""
    told: set[int] = set()
    until = None
    while any(process.poll() is None for process in processes):
        for rank, process in enumerate(processes):
            code = process.poll()
            if code and rank not in told:
                told.add(rank)
                until = until or time.monotonic() + GRACE
                if code < 0:
                    name = signal.Signals(-code).name
                    why = " (SIGKILL often means that memory ran out)" if name == "SIGKILL" else ""
                    print(f"zdoctor: process {rank} of {len(processes)} was ended by {name}{why}.", file=sys.stderr)
        if until is not None:
            _end_stopped(processes)
            if time.monotonic() >= until:
                return 1
        time.sleep(0.1)
    codes = [process.returncode for process in processes]
    failed = [code for code in codes if code]
    return 0 if not failed else codes[0] if codes[0] > 0 else max(1, *failed)


def _end_stopped(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End those that are stopped (SIGSTOP): they will not save, and would be waited for."""
    import psutil

    for rank, process in enumerate(processes):
        with suppress(psutil.NoSuchProcess):
            if process.poll() is None and psutil.Process(process.pid).status() == psutil.STATUS_STOPPED:
                print(f"zdoctor: process {rank} of {len(processes)} is stopped, so it is ended.", file=sys.stderr)
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
