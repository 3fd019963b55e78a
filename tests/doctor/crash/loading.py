"""What the real libraries raise while they load: each case does it in an empty folder, with a hub on loopback."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from zdoctor.tests.hub_server import HubServer

Case = Callable[[Path, HubServer], object]
REPO = "acme/tiny"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 5\n"
HEADERS = {
    "cut short": struct.pack("<Q", 60)
    + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}'.ljust(60)
    + b"\0" * 8,
    "a header beyond the file": struct.pack("<Q", 5000) + b"{}",
    "a header beyond all measure": struct.pack("<Q", 1 << 60) + b"{}",
    "three bytes": b"abc",
    "no JSON in the header": struct.pack("<Q", 8) + b"nonsense",
    "a hole between tensors": struct.pack("<Q", 64)
    + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}'.ljust(64)
    + b"\0" * 8,
    "a web page": b"<!doctype html><html>" + b"x" * 200,
    "a pointer of git-lfs": LFS,
}
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 8,
}
UNET = {"_class_name": "AutoencoderTiny", "in_channels": 3, "out_channels": 3, "encoder_block_out_channels": [8]}


class Kept:
    """An object of one's own, as old checkpoints hold them."""


def _file(folder: Path, name: str, data: object) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return path


def _download(hub: HubServer, folder: Path, name: str = "config.json", **more: Any) -> object:
    from huggingface_hub import hf_hub_download

    return hf_hub_download(REPO, name, endpoint=hub.url, cache_dir=folder / "hub", **more)


def _refused(status: int, code: str) -> Case:
    def case(folder: Path, hub: HubServer) -> object:
        hub.refused["config.json"] = (status, code)
        return _download(hub, folder)

    return case


def _other(repo: str = REPO, **more: Any) -> Case:
    def case(folder: Path, hub: HubServer) -> object:
        from huggingface_hub import hf_hub_download

        return hf_hub_download(repo, "config.json", cache_dir=folder / "hub", **{"endpoint": hub.url, **more})

    return case


def _offline(folder: Path, hub: HubServer) -> object:
    from huggingface_hub import constants, snapshot_download

    with _set(constants, "HF_HUB_OFFLINE", True):
        return snapshot_download(REPO, cache_dir=folder / "hub")


def _incomplete(folder: Path, hub: HubServer) -> object:
    """The cache knows the files of the commit, and one of them is gone from it."""
    from huggingface_hub import snapshot_download

    snapshot = Path(snapshot_download(REPO, cache_dir=folder / "hub", endpoint=hub.url))
    (snapshot / "config.json").unlink()
    return snapshot_download(REPO, cache_dir=folder / "hub", endpoint="http://127.0.0.1:9")


def _no_token(folder: Path, hub: HubServer) -> object:
    import os

    from huggingface_hub import constants

    kept = {name: os.environ.pop(name, None) for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")}
    try:
        with _set(constants, "HF_TOKEN_PATH", str(folder / "none")):
            return _download(hub, folder, token=True)
    finally:
        os.environ.update({name: value for name, value in kept.items() if value is not None})


class _Page(BaseHTTPRequestHandler):
    """A page that is no hub, as the login of a hotel's network is."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Circle(_Page):
    """A page that leads back to itself, as a mirror that is set up wrongly does."""

    def do_HEAD(self) -> None:
        self.send_response(302)
        self.send_header("Location", self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _instead(page: type[_Page]) -> Case:
    def case(folder: Path, hub: HubServer) -> object:
        with ThreadingHTTPServer(("127.0.0.1", 0), page) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            try:
                return _other(endpoint=f"http://127.0.0.1:{server.server_port}")(folder, hub)
            finally:
                server.shutdown()

    return case


def _outside(folder: Path, hub: HubServer) -> object:
    return _download(hub, folder, "../config.json", local_dir=folder)


def _dduf(name: str, compression: int) -> Case:
    def case(folder: Path, hub: HubServer) -> object:
        from huggingface_hub import read_dduf_file

        with zipfile.ZipFile(folder / "a.dduf", "w", compression) as file:
            file.writestr(name, "{}")
        return read_dduf_file(folder / "a.dduf")

    return case


@contextmanager
def _set(owner: object, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


HUB: dict[str, Case] = {
    "GatedRepoError, 401": _refused(401, "GatedRepo"),
    "GatedRepoError, 403": _refused(403, "GatedRepo"),
    "RepositoryNotFoundError, 401": _refused(401, "RepoNotFound"),
    "RepositoryNotFoundError, 404": _other("acme/none"),
    "RemoteEntryNotFoundError": _refused(404, "EntryNotFound"),
    "RevisionNotFoundError": _refused(404, "RevisionNotFound"),
    "HfHubHTTPError, 429": _refused(429, ""),
    "HfHubHTTPError, 500": _refused(500, ""),
    "HfHubHTTPError, 503": _refused(503, ""),
    "HfHubHTTPError, 401": _refused(401, ""),
    "HfHubHTTPError, 403": _refused(403, ""),
    "LocalEntryNotFoundError, local files only": _other(local_files_only=True),
    "LocalEntryNotFoundError, no line": _other(endpoint="http://127.0.0.1:9"),
    "HFValidationError": _other("~/models/a/b"),
    "OfflineModeIsEnabled": _offline,
    "IncompleteSnapshotError": _incomplete,
    "LocalTokenNotFoundError": _no_token,
    "FileMetadataError": _instead(_Page),
    "TooManyRedirects": _instead(_Circle),
    "ValueError, a name that leads out": _outside,
    "BadRequestError": _refused(400, ""),
    "DDUFCorruptedFileError": _dduf("model_index.json", zipfile.ZIP_DEFLATED),
    "DDUFInvalidEntryNameError": _dduf("run.py", zipfile.ZIP_STORED),
}


def _safetensors(data: bytes) -> Case:
    def case(folder: Path, hub: HubServer) -> object:
        from safetensors.torch import load_file

        return load_file(_file(folder, "model.safetensors", data))

    return case


def _absent_tensor(folder: Path, hub: HubServer) -> object:
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, folder / "a.safetensors")
    with safe_open(folder / "a.safetensors", "pt") as file:
        return file.get_tensor("b")


def _absent_file(folder: Path, hub: HubServer) -> object:
    from safetensors.torch import load_file

    return load_file(folder / "none.safetensors")


def _other_layers(folder: Path, hub: HubServer) -> object:
    import torch
    from safetensors.torch import load_model, save_file

    save_file({"a": torch.zeros(1)}, folder / "a.safetensors")
    return load_model(torch.nn.Linear(2, 2), folder / "a.safetensors")


SAFETENSORS: dict[str, Case] = {
    **{f"SafetensorError, {name}": _safetensors(data) for name, data in HEADERS.items()},
    "SafetensorError, no such tensor": _absent_tensor,
    "FileNotFoundError": _absent_file,
    "RuntimeError, other layers": _other_layers,
}


def _torch_load(data: bytes) -> Case:
    def case(folder: Path, hub: HubServer) -> object:
        import torch

        return torch.load(_file(folder, "model.pt", data))

    return case


def _cut_checkpoint(folder: Path, hub: HubServer) -> object:
    import torch

    torch.save({"a": torch.zeros(100)}, folder / "a.pt")
    data = (folder / "a.pt").read_bytes()
    return torch.load(_file(folder, "b.pt", data[: len(data) // 2]))


def _state(folder: Path, hub: HubServer) -> object:
    import torch

    return torch.nn.Linear(2, 2).load_state_dict({"weight": torch.zeros(3, 3)})


def _no_state(folder: Path, hub: HubServer) -> object:
    """A checkpoint that holds something else than weights by their names."""
    import torch

    torch.save([1], folder / "a.pt")
    return torch.nn.Linear(2, 2).load_state_dict(torch.load(folder / "a.pt"))


def _of_another_card(folder: Path, hub: HubServer) -> object:
    import torch

    torch.save({"a": torch.zeros(1)}, folder / "a.pt")
    return torch.load(folder / "a.pt", map_location="cuda")


def _program(folder: Path, hub: HubServer) -> object:
    import torch

    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(folder / "a.pt"))
    return torch.load(folder / "a.pt")


def _meta(folder: Path, hub: HubServer) -> object:
    import torch

    return torch.nn.Linear(2, 2, device="meta").to("cpu")


def _ram(folder: Path, hub: HubServer) -> object:
    import torch

    return torch.empty(1 << 50, dtype=torch.uint8)


TORCH: dict[str, Case] = {
    "UnpicklingError, a pointer of git-lfs": _torch_load(LFS),
    "UnpicklingError, a web page": _torch_load(b"<!doctype html>" * 9),
    "UnpicklingError, safetensors": _torch_load(HEADERS["cut short"]),
    "UnpicklingError, an object": _torch_load(pickle.dumps(Kept())),
    "EOFError": _torch_load(b""),
    "PytorchStreamReader": _cut_checkpoint,
    "RuntimeError, a state dict of another size": _state,
    "TypeError, no weights": _no_state,
    "RuntimeError, of a card": _of_another_card,
    "RuntimeError, a program": _program,
    "UnpicklingError, an old file": _torch_load(pickle.dumps(7) + pickle.dumps(8)),
    "NotImplementedError, meta": _meta,
    "RuntimeError, RAM": _ram,
}
