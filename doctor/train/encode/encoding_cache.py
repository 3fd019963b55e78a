"""The cache of the output folder holds latents, embeddings and masks, each under a key of what it is made of."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ..runtime.atomic_files import write_atomic
from ..runtime.train_error import TrainError, first_line

# The name of the checksum in a file's header.
SUM = "crc32"


class EncodingCache:
    """Named tensors by key in a folder: one safetensors file a key, whole or absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spent = [0.0, 0.0]  # seconds of reading, and those of the processor in it

    def has(self, key: str) -> bool:
        """Tells whether the entry is there and whole; after a power failure a file may lack bytes."""
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(self._file(key)), "pt") as file:
                made = (file.metadata() or {}).get(SUM)  # older files have none: they were written to the disk
                return made in (None, checksum({name: file.get_tensor(name) for name in file.keys()}))  # noqa: SIM118
        except (SafetensorError, OSError):
            return False

    def get(self, key: str) -> dict[str, Tensor]:
        """Returns the tensors of a key. Raises TrainError when there are none."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        file, begin, work = self._file(key), time.monotonic(), time.thread_time()
        try:
            found = load_file(str(file))
            self.spent[:] = self.spent[0] + time.monotonic() - begin, self.spent[1] + time.thread_time() - work
            return found
        except (SafetensorError, OSError) as error:
            raise TrainError(
                f"{file} cannot be read any more ({first_line(error)}): another program has removed or changed it "
                "since the run began, or its disk fails. The next start makes it again."
            ) from error

    def put(self, key: str, values: Mapping[str, Tensor]) -> None:
        from safetensors.torch import save

        kept = {name: value.contiguous().cpu() for name, value in values.items()}
        write_atomic(self._file(key), save(kept, metadata={SUM: checksum(kept)}), durable=False)

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.safetensors"


def checksum(values: Mapping[str, Tensor]) -> str:
    """Returns the CRC-32 of the bytes of contiguous tensors on the CPU."""
    found = 0
    for _, value in sorted(values.items()):
        found = zlib.crc32(value.flatten().view(torch.uint8).numpy().data, found)
    return f"{found:08x}"
