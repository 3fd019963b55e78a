"""What is in the cache is what was put there, or it is made again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from zdoctor.doctor.train.encode.encoding_cache import EncodingCache

VALUES = {
    "states": torch.arange(600.0).view(20, 30).bfloat16(),
    "mask": torch.ones(20, dtype=torch.bool),
    "one": torch.tensor(3.5),
    "none": torch.zeros(0, 4),
}


def test_what_is_put_is_got(tmp_path: Path) -> None:
    cache = EncodingCache(tmp_path / "deep" / "cache")
    assert not cache.has("key")
    cache.put("key", {**VALUES, "turned": VALUES["states"].t()})
    assert cache.has("key") and not cache.has("other")
    found = cache.get("key")
    assert all(torch.equal(found[name], value) for name, value in VALUES.items())
    assert torch.equal(found["turned"], VALUES["states"].t())
    assert [file.name for file in cache.folder.iterdir()] == ["key.safetensors"]


@pytest.mark.parametrize("lost", ["all", "the end", "the end's content", "a byte"])
def test_what_never_reached_the_disk_is_absent(tmp_path: Path, lost: str) -> None:
    """As file systems leave it after a power failure: empty, cut off, or with zeros in it."""
    cache = EncodingCache(tmp_path)
    cache.put("key", VALUES)
    file = tmp_path / "key.safetensors"
    content = file.read_bytes()
    damaged = {
        "all": b"",
        "the end": content[:-10],
        "the end's content": content[:-512] + bytes(512),
        "a byte": content[:-70] + bytes([content[-70] ^ 1]) + content[-69:],
    }
    file.write_bytes(damaged[lost])
    assert not cache.has("key")
    cache.put("key", VALUES)
    assert cache.has("key")


def test_a_file_without_a_checksum_is_taken(tmp_path: Path) -> None:
    """Those of older versions."""
    cache = EncodingCache(tmp_path)
    cache.put("key", VALUES)
    file = tmp_path / "key.safetensors"
    save_file(load_file(file), file)
    assert cache.has("key")
