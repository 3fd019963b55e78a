"""The repository is asked for before the run, and gets the LoRA and its samples after it."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from zdoctor.doctor.examine.translate import for_runner
from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.train import TrainError
from zdoctor.tests.doctor.trainers.kohya.runs import run_of as kohya
from zdoctor.tests.doctor.trainers.kohya.runs import trained
from zdoctor.tests.doctor.trainers.simpletuner.runs import trained as simpletuner
from zdoctor.tests.doctor.trainers.test_every_key import AI_TOOLKIT, put, run_of

from ..patient import Recorder, go, run_with

PUSHED = {"push_to": "acme/circles", "push_private": True, "dtype": "float32"}


class Receiver(ThreadingHTTPServer):
    """What of the hub takes a repository and a commit of small files; `refuses` are paths with their status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.files: dict[str, bytes] = {}
        self.refuses: dict[str, int] = {}


class Handler(BaseHTTPRequestHandler):
    @property
    def hub(self) -> Any:
        return self.server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.partition("?")[0]
        if status := next((code for part, code in self.hub.refuses.items() if part in path), 0):
            return self.answer({"error": "no"}, status)
        if path.endswith("/commit/main"):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.hub.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            return self.answer({"commitUrl": f"{self.own()}/commit/1", "commitOid": "1", "hookOutput": ""})
        told = json.loads(body or b"{}")
        self.hub.asked.append((path, told))
        if "preupload" in path:
            files = [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in told["files"]]
            return self.answer({"files": files})
        return self.answer({"url": self.own(), "id": "acme/circles", "name": "acme/circles"})

    def own(self) -> str:
        return f"http://127.0.0.1:{self.hub.server_port}/acme/circles"

    def do_GET(self) -> None:
        self.answer({"id": "acme/circles", "sha": "0"})

    def answer(self, value: dict[str, Any], status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    server = Receiver()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield server
    server.shutdown()
    server.server_close()


def test_the_lora_and_its_samples_are_pushed(hub: Receiver, tiny: Path, circles: Path, tmp_path: Path) -> None:
    progress = Recorder()
    samples = {"disabled": False, "skip_first": True, "prompts": (SamplePrompt("a circle", 64, 64, 1, 2, 1.0),)}
    run = run_with(steps=2, checkpoints=PUSHED, validation=samples)
    result = go(run, tiny, circles, tmp_path, progress=progress)
    path, told = hub.asked[0]
    assert path == "/api/repos/create" and (told.get("private") is True or told["visibility"] == "private")
    assert hub.files.pop("circles.safetensors") == Path(result.lora).read_bytes()
    assert hub.files == {f"samples/{Path(file).name}": Path(file).read_bytes() for file in result.samples}
    assert result.samples and any("go to acme/circles on the Hugging Face Hub (private" in n for n in progress.notes)
    assert any(note.startswith("Pushed circles.safetensors to http://127.0.0.1") for note in progress.notes)


def test_without_the_right_the_run_does_not_begin(hub: Receiver, tiny: Path, circles: Path, tmp_path: Path) -> None:
    hub.refuses["create"] = 401
    with pytest.raises(TrainError, match=r"could not be pushed to acme/circles .* hf auth login"):
        go(run_with(checkpoints=PUSHED), tiny, circles, tmp_path)
    assert not list(tmp_path.glob("*.safetensors"))


def test_a_push_that_fails_leaves_the_lora(hub: Receiver, tiny: Path, circles: Path, tmp_path: Path) -> None:
    hub.refuses["commit"] = 403
    progress = Recorder()
    result = go(run_with(steps=1, checkpoints=PUSHED), tiny, circles, tmp_path, progress=progress)
    assert Path(result.lora).is_file() and result.stopped == "finished"
    assert any(f"Type: hf upload acme/circles {result.lora}" in note for note in progress.notes)


def test_what_the_other_trainers_call_it() -> None:
    saved = simpletuner({"push_to_hub": True, "hub_model_id": "cat", "model_card_private": True}).recipe.checkpoints
    assert (saved.push_to, saved.push_private) == ("cat", True)
    assert simpletuner({"hub_model_id": "cat"}).recipe.checkpoints.push_to == ""
    for visibility, private in (({}, True), ({"huggingface_repo_visibility": "public"}, False)):
        saved = trained(kohya(options={"huggingface_repo_id": "me/cat", **visibility})).recipe.checkpoints
        assert (saved.push_to, saved.push_private) == ("me/cat", private)


def test_whose_config_asks_for_it() -> None:
    schema = shipped("ai-toolkit")
    assert schema is not None
    for repository, reasons in (("acme/x", 0), ("", 1)):
        tree = put(put(AI_TOOLKIT, "save/push_to_hub", True), "save/hf_repo_id", repository)
        run = run_of("ai-toolkit", tree)
        assert run is not None and run.recipe.checkpoints.push_to == repository
        assert len(for_runner(run, schema).refused) == reasons
