"""The text encoder's own program encodes the prompts of one request."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from ...progress import Progress
from ..runtime.heavy_imports import QUANTIZERS, explained_imports, without
from ..runtime.train_error import TrainError
from .text_encoder_process import EncodeRequest

WATCH_SECONDS = 0.5


def main() -> int:
    """Encodes what one request on stdin asks for, for the process whose number is the only argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the other one ends this one
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer

    def say(**answer: object) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    try:
        with explained_imports():
            import torch

            with without(QUANTIZERS):
                import transformers.modeling_utils  # noqa: F401

            from ..runtime.gpu_failures import explain_gpu_failures
            from .text_embeddings import encode_texts
        # Not before the imports, nor in a thread: on Windows a library that looks at stdin as it is loaded, as
        # NumPy's does, waits for ever while something reads there (numpy/numpy#24290).
        request = sys.stdin.buffer.readline()
        if not request.endswith(b"\n"):
            return 0  # the other process is gone
        asked = EncodeRequest(**json.loads(request))
        torch.set_num_threads(asked.threads)
        with explain_gpu_failures():
            encode_texts(asked, _Answers(say))
    except TrainError as error:
        say(error=str(error))
        return 1
    say(done=True)
    return 0


class _Answers(Progress):
    """Whatever is told here, the other process tells."""

    def __init__(self, say: Callable[..., None]) -> None:
        self.say = say

    def phase(self, text: str) -> None:
        self.say(phase=text)

    def count(self, done: int, total: int, pieces: str) -> None:
        self.say(count=(done, total, pieces))


def _end_with(other: int) -> None:
    """End this process soon after the other has ended.

    That need not be the parent: in a virtual environment of Windows python.exe starts the real one, and waits for it.
    """
    import psutil

    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(other)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(WATCH_SECONDS)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
