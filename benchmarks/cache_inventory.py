"""CPU time of a look at hub caches, in one process: a typical repository, and one of very many files.

    python benchmarks/cache_inventory.py [FILES]

The typical one is a pipeline of 40 files (20 shards of 15 tensors each with sparse data, 20 configs); the large one
is a dataset of FILES (50,000) links to as many blobs. Bar: the typical one in 10 ms.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path

from zdoctor.doctor.probe.hub.inventory import probe_inventory
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.tests.hub_server import git_sha1

COMMIT = "c" * 40


def typical(cache: Path) -> None:
    repo = cache / "models--acme--pipeline"
    (repo / "blobs").mkdir(parents=True)
    listed = {}
    for number in range(20):
        tensors = {
            f"layer.{number}.{n}": {"dtype": "BF16", "shape": [1 << 20], "data_offsets": [n << 21, (n + 1) << 21]}
            for n in range(15)
        }
        header = json.dumps(tensors).encode()
        size, name = 8 + len(header) + (15 << 21), f"transformer/model-{number}.safetensors"
        address = hashlib.sha256(name.encode()).hexdigest()  # never compared: nothing large is read in this look
        with (repo / "blobs" / address).open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(size)
        listed[name] = {"size": size, "blob_id": git_sha1(name.encode()), "lfs_sha256": address}
    for number in range(20):
        text = json.dumps({"number": number, "text": "x" * 2000}).encode()
        (repo / "blobs" / git_sha1(text)).write_bytes(text)
        listed[f"part{number}/config.json"] = {"size": len(text), "blob_id": git_sha1(text)}
    for name, entry in listed.items():
        link = repo / "snapshots" / COMMIT / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(Path("../../../blobs") / str(entry.get("lfs_sha256", entry["blob_id"])))
    (repo / "trees").mkdir()
    (repo / "trees" / f"{COMMIT}.json").write_text(json.dumps({"format_version": 1, "files": listed}))
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)


def large(cache: Path, files: int) -> None:
    repo = cache / "datasets--acme--pictures"
    (repo / "blobs").mkdir(parents=True)
    snapshot = repo / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for number in range(files):
        (repo / "blobs" / f"{number:040x}").touch()
        (snapshot / f"{number}.txt").symlink_to(f"../../blobs/{number:040x}")


def main() -> None:
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    with tempfile.TemporaryDirectory() as folder:
        for name, rounds in (("typical", 20), ("large", 3)):
            cache = Path(folder) / name
            typical(cache) if name == "typical" else large(cache, files)
            world = LiveWorld({"HF_HUB_CACHE": str(cache)}, cwd=folder, home=folder)
            seconds = []
            for _ in range(rounds):
                started = time.process_time()
                found = probe_inventory(world)
                seconds.append(time.process_time() - started)
            (repo,) = found.repos
            low, high = min(seconds) * 1e3, max(seconds) * 1e3
            print(
                f"{name}: {repo.health}, median {statistics.median(seconds) * 1e3:.1f} ms ({low:.1f} to {high:.1f})"
            )


if __name__ == "__main__":
    main()
