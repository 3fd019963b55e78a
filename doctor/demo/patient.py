"""The patient: a config in the shape users share, a hub cache, a dataset and an adapter, broken in seven ways.

Everything is made on the spot from a seed and lies inside one folder. What this machine cannot really have (a slow
disk, a small shared card and, for root, a folder that refuses writes) is put into a partial machine file, and the
walk says so.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from ..files import fingerprints
from .tiny import build_tiny_adapter, build_tiny_pipeline

MODEL = "Tongyi-MAI/Z-Image-Turbo"
REUPLOAD = "somebody/Z-Image-Turbo-copy"
ADAPTER = "adapters/zimage_turbo_training_adapter"
ADAPTER_FILE = "zimage_turbo_training_adapter_v2.safetensors"
INDEX = "diffusion_pytorch_model.safetensors.index.json"
COMMIT, REUPLOAD_COMMIT, LOST_COMMIT = "a1" * 20, "b2" * 20, "d4" * 20
OLD_NS = 1_700_000_000 * 10**9
IMAGES = 8
SIDE = 256


@dataclass(frozen=True)
class Patient:
    """Where the patient lies. `shown` says, per family, what is recorded because this machine does not have it."""

    folder: Path
    config: Path
    machine: Path
    hub_home: Path
    shown: tuple[str, ...]


def build(folder: Path, *, steps: int = 60) -> Patient:
    """Make the patient in `folder` and break it. Needs the `train` extra."""
    hub = folder / "hf" / "hub"
    model = folder / "build" / "model"
    build_tiny_pipeline(model, seed=7)
    files = {p.relative_to(model).as_posix(): p for p in sorted(model.rglob("*")) if p.is_file()}
    snapshot = lay_out(hub, MODEL, COMMIT, files)
    lay_out(hub, REUPLOAD, REUPLOAD_COMMIT, files)
    (folder / ADAPTER).mkdir(parents=True)
    build_tiny_adapter(folder / ADAPTER / ADAPTER_FILE, seed=11)
    shutil.rmtree(folder / "build")
    data = folder / "data" / "testarossa"
    paint(data)

    break_cache(snapshot)
    config = folder / "config.yaml"
    text = Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    config.write_text(text.format(model=MODEL, adapter=ADAPTER, side=SIDE, steps=steps), encoding="utf-8")
    machine, shown = record(folder, data)
    return Patient(folder, config, machine, folder / "hf", shown)


def lay_out(hub: Path, repo: str, commit: str, files: dict[str, Path]) -> Path:
    """Lay files out as the hub client does: blobs by content, a snapshot of links, a ref, the tree listing.

    Returns the snapshot folder. Weight files are LFS files (named by sha256), the others by git's sha1.
    """
    root = hub / f"models--{repo.replace('/', '--')}"
    snapshot = root / "snapshots" / commit
    tree: dict[str, dict[str, object]] = {}
    for name, source in files.items():
        data = source.read_bytes()
        git = fingerprints.of_bytes(data, "git-sha1")
        sha = fingerprints.of_bytes(data) if name.endswith(".safetensors") else None
        blob = root / "blobs" / (sha or git)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(data)
        link = snapshot / name
        link.parent.mkdir(parents=True, exist_ok=True)
        _link(link, blob)
        tree[name] = {"size": len(data), "blob_id": git}
        if sha is not None:
            tree[name] = {**tree[name], "lfs_sha256": sha, "lfs_size": len(data)}
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text(commit, encoding="ascii")
    (root / "trees").mkdir()
    listing = {"format_version": 1, "files": tree}
    (root / "trees" / f"{commit}.json").write_text(json.dumps(listing), encoding="utf-8")
    return snapshot


def _link(link: Path, blob: Path) -> None:
    try:
        link.symlink_to(os.path.relpath(blob, link.parent))
    except OSError:  # Windows without developer mode: the hub keeps plain files there, and so do we
        shutil.copyfile(blob, link)


def paint(folder: Path) -> None:
    """Eight pictures of a shape on a ground, with captions."""
    from PIL import Image, ImageDraw

    folder.mkdir(parents=True)
    colors = ["red", "green", "blue", "orange"]
    for index in range(IMAGES):
        color, shape = colors[index % 4], ("circle", "square")[index // 4]
        picture = Image.new("RGB", (SIDE, SIDE), "white")
        draw = ImageDraw.Draw(picture)
        edge = SIDE // 5 + index
        box = (edge, edge, SIDE - edge, SIDE - edge)
        (draw.ellipse if shape == "circle" else draw.rectangle)(box, fill=color)
        picture.save(folder / f"{index:02d}.png")
        (folder / f"{index:02d}.txt").write_text(f"a {color} {shape} on a white table\n", encoding="utf-8")


def break_cache(snapshot: Path) -> None:
    """An interrupted update as found in the wild: a half re-saved shard, a lost file, a lost ref, a leftover."""
    index = json.loads((snapshot / "transformer" / INDEX).read_text(encoding="utf-8"))
    shard = snapshot / "transformer" / index["weight_map"]["layers.1.attention.to_q.weight"]
    _drop_tensors(shard, "layers.1.attention")
    lost = snapshot / "vae" / "diffusion_pytorch_model.safetensors"
    lost.resolve().unlink()
    root = snapshot.parent.parent
    (root / "refs" / "main").write_text(LOST_COMMIT, encoding="ascii")
    partial = root / "blobs" / f"{'e' * 64}.1a2b3c4d.incomplete"
    partial.write_bytes(b"\0" * 70_000)
    os.utime(partial, ns=(OLD_NS, OLD_NS))


def _drop_tensors(shard: Path, prefix: str) -> None:
    """Rewrite a shard without the tensors below `prefix`: readable, and not the model."""
    from safetensors.torch import load, save_file

    real = shard.resolve()
    held = load(real.read_bytes())  # not mapped: Windows replaces no file that is
    tensors = {name: tensor for name, tensor in held.items() if not name.startswith(prefix)}
    whole = real.with_name("rewritten")
    save_file(tensors, str(whole), metadata={"format": "pt"})
    os.replace(whole, real)


def record(folder: Path, data: Path) -> tuple[Path, tuple[str, ...]]:
    """The partial machine file, and what of it stands for something this machine does not have."""
    free = 768 << 20
    shown = [
        "a slow disk under the hub cache (a fragmented hard disk, at the scale of the tiny model)",
        f"a shared card: NVIDIA RTX A6000, {free >> 20} MiB of its 48 GiB left by the others",
    ]
    mounts: list[dict[str, object]] = []
    if not _refuses_writes(data):
        mounts.append({"point": str(data), "filesystem": "ext4", "refusal": "read-only file system"})
        shown.append("a dataset folder that refuses writes (you are root, whom file modes do not stop)")
    card = {"name": "NVIDIA RTX A6000", "memory_total": 48 << 30, "memory_free": free}
    disk = {"path": str(folder / "hf"), "kind": "hdd", "filesystem": "ext4", "latency": 0.013}
    source = "recorded: a fragmented hard disk, at the scale of the tiny model"
    recorded = {
        "schema": "zdoctor.machine/1",
        "about": "the demo's recorded parts, the rest is this machine",
        "live": True,
        "mounts": mounts,
        "gpus": [{**card, "capability": [8, 6], "driver": "580.65"}],
        "speeds": [{**disk, "low": 45e3, "high": 130e3, "source": source}],
    }
    machine = folder / "machine.json"
    machine.write_text(json.dumps(recorded, indent=1), encoding="utf-8")
    return machine, tuple(shown)


def _refuses_writes(data: Path) -> bool:
    """Make the folder read-only by its mode; false where that stops nobody (root, Windows)."""
    if sys.platform == "win32" or os.geteuid() == 0:
        return False
    data.chmod(0o555)
    return True
