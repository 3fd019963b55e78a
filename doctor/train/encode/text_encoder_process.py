"""The text encoder works in a process of its own, beside the one that trains.

Only it imports transformers, which takes as long as torch, while the other imports diffusers. When it ends, all of
its memory goes back to the system and to the GPU; and when the system ends it for want of memory, the run can say so.
It reads one request, a line of JSON, and answers in lines of JSON: {"phase": text} and {"count": [done, total,
pieces]} any number of times, then {"done": true} or {"error": text}. It ends when the other process does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING

from ...progress import Progress
from ..runtime.train_error import TrainError

if TYPE_CHECKING:
    from ..kernels.quantized_linear import Quantization


@dataclass(frozen=True)
class EncodeRequest:
    """The request: `family` is its record's name, `texts` are prompts by their key in the cache.

    `seen` are the files of the images that are looked at with some of them.
    """

    family: str
    folders: Mapping[str, str]
    kind: Quantization
    dtype: str
    device: str
    cache: str
    texts: Mapping[str, str]
    threads: int
    masked: bool = False
    seen: Mapping[str, Sequence[str]] = field(default_factory=dict)


class TextEncoderProcess:
    """The process is started when it is needed, or before (`start`); there is never more than one."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None
        self.errors: IO[str] | None = None
        self.writer: threading.Thread | None = None
        self.asked = False

    def ask(self, request: EncodeRequest) -> None:
        """Hands over the request and returns at once. Raises TrainError when it cannot be started."""
        stream = self.start().stdin
        line = json.dumps(asdict(request)) + "\n"

        def write() -> None:
            assert stream is not None
            with suppress(OSError):  # it is gone; `finish` says why
                stream.write(line)
                stream.flush()

        # It reads only when its imports are done, and a pipe holds no more than 64 KiB.
        self.writer = threading.Thread(target=write, daemon=True)
        self.writer.start()
        self.asked = True

    def finish(self, progress: Progress) -> None:
        """Waits until the process has done what it was asked for, if anything, and has ended. Raises TrainError."""
        if not self.asked or self.process is None or self.process.stdout is None:
            return self.close()
        for line in self.process.stdout:
            answer = json.loads(line) if line.endswith("\n") else {}
            if "phase" in answer:
                progress.phase(answer["phase"])
            elif "count" in answer:
                progress.count(*answer["count"])
            elif answer:
                self.close()
                if "error" in answer:
                    raise TrainError(answer["error"])
                return
        raise TrainError(self._why(self.process.wait()))

    def close(self) -> None:
        """Ends the process, whatever it does."""
        process, self.process, self.asked = self.process, None, False
        if process is not None:
            process.kill()
            process.wait()
            if self.writer is not None:
                self.writer.join()
                self.writer = None
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):  # what was not written yet
                        stream.close()
        if self.errors is not None:
            self.errors.close()
            self.errors = None

    def start(self) -> subprocess.Popen[str]:
        """Starts the process, which imports what it will need, if it does not run yet. Raises TrainError."""
        if self.process is None:
            self.errors = tempfile.TemporaryFile(  # noqa: SIM115  # closed with the process
                "w+", encoding="utf-8", errors="replace"
            )
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", f"{__package__}.text_encoder_worker", str(os.getpid())],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self.errors,
                    encoding="utf-8",
                )
            except OSError as error:
                raise TrainError(f"The process for the text encoder cannot be started: {error}.") from error
        return self.process

    def _why(self, code: int) -> str:
        """Why it has ended too early."""
        said = ""
        if self.errors is not None:
            self.errors.seek(0)
            said = next((line.strip() for line in reversed(self.errors.readlines()) if line.strip()), "")
        self.close()
        if code == -getattr(signal, "SIGKILL", 9):
            return (
                "The process with the text encoder was killed (SIGKILL), as the system does when memory runs out. "
                "Close other programs, or quantize the text encoder (quantize_te: true)."
            )
        last = f"Its last line: {said}" if said else "It said nothing."
        return f"The process with the text encoder ended with code {code}. {last}"
