"""Faults that are the same whichever trainer's patient has them: the hub cache, the pictures, the machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from zdoctor.tests.pairs.patient import Fault, Impossible, Patient, picture, spoil

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 335304388\n" % (b"ab" * 32)
PAGE = b"<!DOCTYPE html><html>rate limited</html>\n" * 9
OLD_NS = 1_700_000_000 * 10**9


def edit(old: str, new: str, name: str = "") -> Callable[[Patient], None]:
    return lambda patient: patient.edit(old, new, name)


def behind(line: str, new: str, name: str = "") -> Callable[[Patient], None]:
    return lambda patient: patient.behind(line, new, name)


def hub(repo: str) -> list[Fault]:
    """Every way in which a cached model is half there."""
    folder = f"hf/hub/models--{repo.replace('/', '--')}"

    def at(patient: Patient, name: str) -> Path:
        (snapshot,) = (patient.root / folder / "snapshots").iterdir()
        path = snapshot / name
        if not os.path.lexists(path):
            raise Impossible(name)
        return path

    def changed(name: str, change: Callable[[bytes], bytes]) -> Callable[[Patient], None]:
        return lambda patient: spoil(at(patient, name), change)

    def lost(patient: Patient) -> None:
        path = at(patient, "transformer/diffusion_pytorch_model-00002-of-00002.safetensors")
        Path(os.path.realpath(path)).unlink()
        path.unlink()

    def dangling(patient: Patient) -> None:
        Path(os.path.realpath(at(patient, "scheduler/scheduler_config.json"))).unlink()

    def left_over(patient: Patient) -> None:
        partial = patient.root / folder / "blobs" / f"{'e' * 64}.1a2b3c4d.incomplete"
        partial.write_bytes(b"\0" * 7000)
        os.utime(partial, ns=(OLD_NS, OLD_NS))

    def no_branch(patient: Patient) -> None:
        (patient.root / folder / "refs" / "main").write_text("d4" * 20, encoding="ascii")

    return [
        Fault("shard-lost", ("HUB002",), "00002-of-00002", lost),
        Fault("link-to-nothing", ("HUB002",), "scheduler_config", dangling),
        Fault("download-cut-short", ("HUB004",), "", left_over),
        Fault("weights-cut-off", ("HUB001",), "text_encoder/model", changed("text_encoder/model.safetensors", cut)),
        Fault("pointer-for-weights", ("HUB001",), "vae", changed(VAE_FILE, lambda data: POINTER)),
        Fault("page-for-json", ("HUB001",), "tokenizer_config", changed(_TOKENS, lambda data: PAGE)),
        Fault("config-cut-off", ("HUB001",), "transformer/config", changed("transformer/config.json", cut)),
        Fault("branch-to-nothing", ("HUB003",), "main", no_branch),
    ]


VAE_FILE = "vae/diffusion_pytorch_model.safetensors"
_TOKENS = "tokenizer/tokenizer_config.json"


def cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


def pictures(folder: str = "data/faces", ending: str = "caption_ext: txt") -> list[Fault]:
    """What may be wrong with the pictures, each in another file of the dataset.

    `ending` is what the config says of the captions' files.
    """

    def broken(patient: Patient) -> None:
        patient.take("pictures")
        path = patient.file(f"{folder}/00.png")
        path.write_bytes(cut(path.read_bytes()))

    def uncaptioned(patient: Patient) -> None:
        patient.file(f"{folder}/01.txt").unlink()

    def another_encoding(patient: Patient) -> None:
        patient.file(f"{folder}/02.txt").write_bytes("Testarossa im Gr\xfcnen, sch\xf6n".encode("cp1252"))

    def captions_as_json(patient: Patient) -> None:
        patient.edit(ending, ending.replace("txt", "json"))
        for path in sorted((patient.job / folder).glob("*.txt")):
            path.with_suffix(".json").write_bytes(b'{"caption": "' + path.read_bytes().strip() + b'"}')
            path.unlink()

    def masks_inside(patient: Patient) -> None:
        patient.take("pictures")
        patient.take("masks")
        patient.behind(ending.partition(":")[0], f"mask_path: {folder}/masks")
        (patient.job / folder / "masks").mkdir()
        for number in range(6):
            (patient.job / folder / "masks" / f"{number:02d}.png").write_bytes(picture((256, 256), 255))

    def none_left(patient: Patient) -> None:
        patient.take("pictures")
        for path in sorted(patient.file(folder).rglob("*.png")):
            path.unlink()

    return [
        Fault("picture-cut-off", ("DAT002",), "00.png", broken),
        Fault("caption-missing", ("DAT004",), "", uncaptioned),
        Fault("caption-in-cp1252", ("DAT003",), "/02.", another_encoding),
        Fault("caption-is-json", ("DAT007",), "", captions_as_json),
        Fault("masks-inside", ("DAT005",), "masks", masks_inside),
        Fault("no-pictures", ("DAT001",), "data/faces", none_left),
    ]


def _slow(patient: Patient) -> None:
    patient.kind = "hdd"


def _little_memory(patient: Patient) -> None:
    patient.memory = 1 << 20


def _full(output: str) -> Callable[[Patient], None]:
    def plant(patient: Patient) -> None:
        patient.take("output")
        patient.refuse(output, None, 1000)

    return plant


def _no_output(output: str) -> Callable[[Patient], None]:
    def plant(patient: Patient) -> None:
        patient.take("output")
        (patient.root / output).mkdir(exist_ok=True)
        patient.refuse(output)

    return plant


def machine(output: str = "job/output", data: str = "job/data/faces") -> list[Fault]:
    """What may be wrong with the machine: its disks, its cards, its packages."""
    return [
        Fault("card-full", ("MEM001",), "", lambda p: p.card(memory_free=64 << 20)),
        Fault("card-without-bf16", ("TRN002",), "", lambda p: p.card(capability=[7, 5])),
        Fault("driver-old", ("PKG003",), "", lambda p: p.card(driver="470.82")),
        Fault("little-memory", ("MEM002",), "", _little_memory),
        Fault("slow-disk", ("DSK001",), "", _slow),
        Fault("disk-full", ("DSK002",), "", _full(output)),
        Fault("output-read-only", ("PTH001",), output, _no_output(output)),
        Fault("pictures-read-only", ("PTH001",), data, lambda p: p.refuse(data)),
        Fault("torch-for-cpu", ("PKG001",), "", lambda p: p.package("torch", "2.13.0+cpu")),
        Fault("no-bitsandbytes", ("PKG005",), "bitsandbytes", lambda p: p.package("bitsandbytes", None)),
    ]


def old_packages() -> list[Fault]:
    """Packages from before the model."""
    return [
        Fault("diffusers-old", ("PKG004",), "diffusers", lambda p: p.package("diffusers", "0.30.0")),
        Fault("transformers-old", ("PKG004",), "transformers", lambda p: p.package("transformers", "4.40.0")),
    ]
