"""A tiny model in real hub caches, as the real client makes them."""

from __future__ import annotations

import json
import os
import shutil
import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from huggingface_hub import constants, snapshot_download
from safetensors import safe_open

from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.tests.hub_server import Files, HubServer, etag, sha256

REPO = "acme/tiny-image"
SHARD = "transformer/diffusion_pytorch_model-00002-of-00002.safetensors"
BIG = "vae/diffusion_pytorch_model.safetensors"
VAE = "vae/config.json"
LAYOUTS = ("linked", "plain", "shared")


def weights(names: tuple[str, ...], numbers: int) -> bytes:
    """A safetensors file of float32 vectors."""
    header = {
        name: {"dtype": "F32", "shape": [numbers], "data_offsets": [4 * numbers * at, 4 * numbers * (at + 1)]}
        for at, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    data = struct.pack(f"<{numbers}f", *(len(names) + n % 97 for n in range(numbers))) * len(names)
    return struct.pack("<Q", len(text)) + text + data


_SHARDS = [f"diffusion_pytorch_model-0000{n}-of-00002.safetensors" for n in (1, 2)]
MODEL: Files = {
    ".gitattributes": b"*.safetensors filter=lfs\n",
    "README.md": b"# A tiny image model\n",
    "assets/sample.png": b"\x89PNG not really\n",
    "model_index.json": b'{"_class_name": "TinyPipeline"}',
    "transformer/config.json": b'{"layers": 2}',
    "transformer/diffusion_pytorch_model.safetensors.index.json": json.dumps(
        {"metadata": {}, "weight_map": {"a": _SHARDS[0], "b": _SHARDS[1], "c": _SHARDS[1]}}
    ).encode(),
    f"transformer/{_SHARDS[0]}": weights(("a",), 2000),
    f"transformer/{_SHARDS[1]}": weights(("b", "c"), 3000),
    "text_encoder/config.json": b'{"hidden_size": 8}',
    "text_encoder/model.safetensors": weights(("embed",), 5000),
    "tokenizer/tokenizer.json": b'{"version": "1.0"}',
    "tokenizer/tokenizer_config.json": b'{"model_max_length": 512}',
    "vae/config.json": b'{"latent_channels": 16}',
    BIG: weights(("decoder",), 400_000),
    "scheduler/scheduler_config.json": b'{"shift": 3.0}',
}


@dataclass(frozen=True)
class Cache:
    """A hub cache folder that holds REPO at `commit`."""

    root: Path
    commit: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def repo(self) -> Path:
        return self.root / ("models--" + REPO.replace("/", "--"))

    @property
    def ref(self) -> Path:
        return self.repo / "refs" / "main"

    def file(self, name: str) -> Path:
        return self.repo / "snapshots" / self.commit / name

    def blob(self, name: str) -> Path:
        return self.repo / "blobs" / etag(name, MODEL[name])

    @property
    def manifest(self) -> Path:
        return self.repo / "trees" / f"{self.commit}.json"

    def copy(self, target: Path) -> Cache:
        shutil.copytree(self.root, target, symlinks=True)
        return Cache(target, self.commit, self.environment)

    def world(self, **environment: str) -> LiveWorld:
        variables = {"HF_HUB_CACHE": str(self.root), **self.environment, **environment}
        return LiveWorld(variables, cwd=str(self.root.parent), home=str(self.root.parent / "home"))


def download(server: HubServer, root: Path, layout: str) -> Cache:
    """A cache as the real client makes it, with links or (as on Windows without the right to make them) without.

    Or "shared": with the weights in the store that all repositories of a cache have in common.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", layout == "plain")
        snapshot_download(REPO, endpoint=server.url, cache_dir=root)
    cache = Cache(root, server.head(REPO))
    return share(cache) if layout == "shared" else cache


def share(cache: Cache) -> Cache:
    """Move the weights into the store that all repositories of a cache share, as the client does with hf_xet."""
    store = cache.root / "blobs"
    store.mkdir()
    (store / ".huggingface-shared-blobs").write_text("1\n")
    for name in MODEL:
        if name.endswith(".safetensors"):
            address = sha256(b"xet of " + name.encode())
            payload = store / address[:2] / address
            payload.parent.mkdir(exist_ok=True)
            blob = cache.blob(name)
            blob.rename(payload)
            payload.chmod(0o444)
            blob.symlink_to(os.path.relpath(payload, blob.parent))
    return cache


def load(cache: Cache) -> dict[str, bytes]:
    """What an offline run gets: the client finds the snapshot, the libraries read every file of it."""
    folder = Path(snapshot_download(REPO, cache_dir=cache.root, local_files_only=True))
    content = {}
    for name in MODEL:
        if name.endswith(".safetensors"):
            with safe_open(folder / name, "np") as file:
                for tensor in file.keys():  # noqa: SIM118 - the file is no mapping
                    file.get_tensor(tensor)
        if name.endswith(".json"):
            json.loads((folder / name).read_bytes())
        content[name] = (folder / name).read_bytes()
    return content


def picture(folder: Path) -> dict[str, object]:
    """Every name below a folder with its link text or bytes."""
    seen: dict[str, object] = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(root) / name
            seen[str(path.relative_to(folder))] = (
                path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
            )
    return seen
