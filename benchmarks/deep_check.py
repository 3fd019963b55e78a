"""CPU seconds of `zdoctor check --deep` against bare hashlib and `hf cache verify`, over the same cached files.

    python benchmarks/deep_check.py [ROUNDS [MIB_PER_FILE]]

Four random safetensors files in a hub cache, in the page cache; every round runs each contender once, in turn.
The fixed cost of a check is that of the same check without --deep. Then a second deep check, with receipts: how
many bytes it reads beyond the check without --deep (rchar of /proc/self/io).
Bars: the deep check <= 1.05 x bare hashlib + the fixed cost, and <= 0.9 x `hf cache verify`; receipts read < 1 MB.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zdoctor.tests.configs_on_disk import write_config
from zdoctor.tests.hub_server import HubServer, git_sha1

FILES = 4
REPO = "acme/large-image"
BARE = """
import hashlib, mmap, sys
buffer = memoryview(mmap.mmap(-1, 1 << 20))  # a bytearray is not page-aligned, and costs a third more
for path in sys.argv[1:]:
    state = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            state.update(buffer[:count])
    state.hexdigest()
"""
READS = """
import sys
from zdoctor.doctor.cli import main
main(sys.argv[1:])
print(open("/proc/self/io").readline().split()[1], file=sys.stderr)
"""


class ListServer(HubServer):
    """Serves only the list of files."""

    listing: list[dict[str, Any]]

    def _tree(self, files: Mapping[str, bytes]) -> list[dict[str, Any]]:
        return self.listing


def weights(path: Path, size: int) -> str:
    """A safetensors file of one random tensor; returns its sha256."""
    tensor = {"w": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}}
    text = json.dumps(tensor).encode()
    state = hashlib.sha256()
    with path.open("wb") as file:
        for piece in (struct.pack("<Q", len(text)) + text, *(os.urandom(1 << 20) for _ in range(size >> 20))):
            state.update(piece)
            file.write(piece)
    return state.hexdigest()


def build(cache: Path, commit: str, mib: int) -> list[dict[str, Any]]:
    """The cache as the hub client leaves it; returns what the hub's list of files says."""
    repo = cache / ("models--" + REPO.replace("/", "--"))
    folder = repo / "snapshots" / commit / "transformer"
    for made in (folder, repo / "blobs", repo / "refs", repo / "trees"):
        made.mkdir(parents=True, exist_ok=True)
    (repo / "refs" / "main").write_text(commit)
    listing: list[dict[str, Any]] = []

    def add(blob: Path, name: str, address: str, lfs: bool) -> None:
        target = repo / "blobs" / address
        size = blob.rename(target).stat().st_size
        (folder / name).symlink_to(Path("../../../blobs") / address)
        entry = {"type": "file", "path": f"transformer/{name}", "size": size, "oid": git_sha1(name.encode())}
        entry |= {"lfs": {"oid": address, "size": size, "pointerSize": 130}} if lfs else {"oid": address}
        listing.append(entry)

    names = [f"diffusion_pytorch_model-{n + 1:05d}-of-{FILES:05d}.safetensors" for n in range(FILES)]
    part = repo / "part"
    for name in names:
        add(part, name, weights(part, mib << 20), lfs=True)
    index = {"metadata": {}, "weight_map": {f"w{n}": name for n, name in enumerate(names)}}
    for name, data in (("config.json", {}), ("diffusion_pytorch_model.safetensors.index.json", index)):
        part.write_text(json.dumps(data))
        add(part, name, git_sha1(part.read_bytes()), lfs=False)
    files = {
        e["path"]: {"size": e["size"], "blob_id": e["oid"]}
        | ({"lfs_sha256": e["lfs"]["oid"], "lfs_size": e["size"]} if "lfs" in e else {})
        for e in listing
    }
    (repo / "trees" / f"{commit}.json").write_text(json.dumps({"format_version": 1, "files": files}))
    return listing


def cost(command: list[str], environment: Mapping[str, str]) -> tuple[float, float, str]:
    """(CPU seconds, seconds, standard error) of one process."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    after, elapsed = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, elapsed, done.stdout + done.stderr


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    mib = int(sys.argv[2]) if len(sys.argv) > 2 else 512
    hub = ListServer({REPO: {"transformer/config.json": b"{}"}})
    with tempfile.TemporaryDirectory() as name, hub:
        root = Path(name)
        cache, state = root / "hub", root / "state"
        hub.listing = build(cache, hub.head(REPO), mib)
        blobs = [str(p) for p in sorted((cache / ("models--" + REPO.replace("/", "--")) / "blobs").iterdir())]
        config = str(write_config(root, name_or_path=REPO))
        # Without bytecode every start would compile the package anew, which no user's does.
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "HF_HUB_CACHE": str(cache),
            "HF_ENDPOINT": hub.url,
            "ZDOCTOR_STATE": str(state),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }
        check = ["check", config, "--format", "json"]
        python = sys.executable
        contenders = {
            "check": [python, "-m", "zdoctor", *check],
            "check --deep": [python, "-m", "zdoctor", *check, "--deep"],
            "the same, only HUB001": [python, "-m", "zdoctor", *check, "--deep", "--select", "HUB001"],
            "cache --deep": [python, "-m", "zdoctor", "cache", REPO, "--deep"],
            "python, nothing to hash": [python, "-c", BARE],
            "bare hashlib": [python, "-c", BARE, *blobs],
            "hf cache verify": [
                str(Path(python).with_name("hf")),
                "cache",
                "verify",
                REPO,
                "--cache-dir",
                str(cache),
            ],
        }
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
        for turn in range(rounds + 1):
            for name, command in contenders.items():
                shutil.rmtree(state, ignore_errors=True)
                cpu, wall, said = cost(command, environment)
                if "check" in command and "--deep" in command:
                    assert f"{FILES + 2} of {FILES + 2} cached files" in said, said
                if name == "hf cache verify":
                    assert "erified" in said, said
                if turn:  # the first round fills the page cache and the bytecode cache
                    measured[name].append((cpu, wall))
        median = {name: statistics.median(cpu for cpu, _ in runs) for name, runs in measured.items()}
        for name, runs in measured.items():
            walls = statistics.median(wall for _, wall in runs)
            print(
                f"{name:24} CPU {median[name]:.3f} s  ("
                + " ".join(f"{c:.3f}" for c, _ in runs)
                + f")  wall {walls:.2f} s"
            )
        deep, fixed = median["check --deep"], median["check"]
        bare = median["bare hashlib"] - median["python, nothing to hash"]
        print(f"deep check less its fixed cost / hashing alone: {(deep - fixed) / bare:.3f}  (bar 1.05)")
        for name in ("check --deep", "the same, only HUB001", "cache --deep"):
            print(f"{name} / hf cache verify: {median[name] / median['hf cache verify']:.3f}  (bar 0.9)")

        shutil.rmtree(state, ignore_errors=True)
        read = {}
        for what in ("plain", "first deep", "second deep"):
            words = check if what == "plain" else [*check, "--deep"]
            cpu, wall, said = cost([python, "-c", READS, *words], environment)
            read[what] = int(said.split()[-1])
            print(f"{what:12} reads {read[what] / 1e6:10.2f} MB  CPU {cpu:.3f} s  wall {wall:.2f} s")
        print(f"with receipts, beyond the plain check: {(read['second deep'] - read['plain']) / 1e6:.3f} MB  (bar 1)")


if __name__ == "__main__":
    main()
