"""HUB013: what the hub says when it is asked, by a hub on loopback that answers as the real one does.

The headers are those of huggingface.co, as huggingface_hub's hf_raise_for_status and its issues have them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from zdoctor.checks.hub.answers import hub_refuses_download
from zdoctor.checks.hub.use import gated_model_without_token
from zdoctor.doctor.cli import main
from zdoctor.doctor.model import Finding, Hub
from zdoctor.doctor.model.environment import Environment
from zdoctor.doctor.probe.hub import probe_hub
from zdoctor.doctor.probe.hub.client import probe_answers
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.rules import Unestablished
from zdoctor.tests.certificate import write_certificate
from zdoctor.tests.hub_cases import run_with
from zdoctor.tests.hub_server import HubServer

REPO = "black-forest-labs/FLUX.1-dev"
TOKEN = "hf_made_up_for_this_test"
CLIENT = "import sys, huggingface_hub as h; h.hf_hub_download(sys.argv[1], 'model_index.json')"
HEADERS = ("X-Error-Code", "X-Error-Message")
Said = tuple[int, str, str]

RESTRICTED = f"Access to model {REPO} is restricted and you are not in the authorized list."
FINE_GRAINED = "Please enable access to public gated repositories in your fine-grained token settings to view this."
# by a name: whether a token is sent, the hub's status, code and message; what the finding says, the client's error
REFUSALS: Mapping[str, tuple[bool, Said, str, str]] = {
    "gated, no token": (False, (401, "GatedRepo", f"Access to model {REPO} is restricted."), "no token", "GatedRepo"),
    "not accepted": (True, (403, "GatedRepo", RESTRICTED), "has not accepted its licence", "GatedRepoError"),
    "awaiting": (
        True,
        (403, "GatedRepo", "Your request is awaiting a review."),
        "not yet",
        "GatedRepo",
    ),
    "rejected": (True, (403, "GatedRepo", "Your request has been rejected by the authors."), "rejected", "GatedRepo"),
    "fine-grained": (True, (403, "", FINE_GRAINED), "may not read gated", "403 Forbidden"),
    "dead token": (True, (401, "", "Invalid credentials in Authorization header"), "does not take the token", "401"),
    "nothing of that name": (True, (404, "RepoNotFound", "Repository not found"), "account of the token", "NotFound"),
    "private, no token": (
        False,
        (401, "RepoNotFound", "Invalid username or password."),
        "without a token",
        "NotFound",
    ),
    "no such revision": (True, (404, "RevisionNotFound", "Invalid rev id: main"), "no revision", "RevisionNotFound"),
    "too many requests": (True, (429, "", ""), "but in 55 s", "429"),
    "out of order": (True, (503, "", ""), "out of order (503)", "503"),
    "disabled": (
        True,
        (403, "", "Access to this resource is disabled."),
        "is disabled. This is what the hub answers",
        "disabled",
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[HubServer]:
    with HubServer({REPO: {"model_index.json": b"{}"}}) as hub:
        yield hub


def found(home: Path, variables: Mapping[str, str], repo: str = REPO, *, dotenv: bool = False) -> list[Finding]:
    if dotenv:
        (home / ".env").write_text("X=1")
    own = {"HOME": str(home), "PATH": os.environ["PATH"], **variables}
    world = LiveWorld(own, cwd=str(home), home=str(home), online=True)
    run = run_with(repo)
    hub = probe_hub(world, run)
    assert isinstance(hub, Hub)
    answers = probe_answers(world, hub, Environment(sys.executable, world.packages()))
    told = list(hub_refuses_download(run, hub, world.system, answers)) if answers else []
    return told + list(gated_model_without_token(run, hub, answers))


def download(home: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    own = {"HOME": str(home), "PATH": os.environ["PATH"], **variables}
    return subprocess.run([sys.executable, "-c", CLIENT, REPO], env=own, capture_output=True, text=True)


@pytest.mark.parametrize("case", REFUSALS)
def test_each_refusal_is_told_apart(case: str, server: HubServer, tmp_path: Path) -> None:
    with_token, (status, code, message), words, error = REFUSALS[case]
    variables = {"HF_ENDPOINT": server.url, **({"HF_TOKEN": TOKEN} if with_token else {})}
    headers = {name: text for name, text in zip(HEADERS, (code, message), strict=True) if text}
    if status == 429:
        headers |= {"RateLimit": '"resolvers";r=0;t=55', "RateLimit-Policy": '"fixed window";"resolvers";q=500;w=300'}
    server.answer_all = status, headers
    server.tokens.clear()
    try:
        [finding] = found(tmp_path, variables)
        assert server.tokens == ({f"Bearer {TOKEN}"} if with_token else {None})
        refused = None if status in (429, 503) else download(tmp_path, variables)  # which it would ask for a minute
    finally:
        server.answer_all = None
    assert words in finding.text() and finding.consequence()
    assert (finding.severity == "warning") is (status in (429, 503))
    assert TOKEN not in repr(finding)
    assert refused is None or error in refused.stderr


def test_what_the_hub_gives_is_silent(server: HubServer, tmp_path: Path) -> None:
    assert found(tmp_path, {"HF_ENDPOINT": server.url}) == []
    assert download(tmp_path, {"HF_ENDPOINT": server.url}).returncode == 0


def test_the_file_that_is_asked_for_need_not_be_there(server: HubServer, tmp_path: Path) -> None:
    server.push("acme/other", {"unet.bin": b""})
    assert found(tmp_path, {"HF_ENDPOINT": server.url}, "acme/other") == []


def test_a_hub_out_of_reach_is_named_with_the_way_there(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        [finding] = found(tmp_path, {"HF_ENDPOINT": f"http://127.0.0.1:{port}"})
        assert "cannot be reached" in finding.text() and f"HF_ENDPOINT=http://127.0.0.1:{port}" in finding.text()
        [finding] = found(tmp_path, {"HTTPS_PROXY": f"http://me:{TOKEN}@127.0.0.1:{port}"})
        assert f"HTTPS_PROXY=http://127.0.0.1:{port}" in finding.text() and TOKEN not in repr(finding)


def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    own = write_certificate(tmp_path)
    with HubServer({REPO: {"model_index.json": b"{}"}}, own) as hub:
        [finding] = found(tmp_path, {"HF_ENDPOINT": hub.url})
        assert "SSL_CERT_FILE" in finding.text()
        assert found(tmp_path, {"HF_ENDPOINT": hub.url, "SSL_CERT_FILE": own[0]}) == []


def test_a_token_that_may_come_from_elsewhere(server: HubServer, tmp_path: Path) -> None:
    server.answer_all = 401, {"X-Error-Code": "GatedRepo"}
    try:
        with pytest.raises(Unestablished, match="where the run takes its own from is not known"):
            found(tmp_path, {"HF_ENDPOINT": server.url}, dotenv=True)
    finally:
        server.answer_all = None


def test_a_python_that_cannot_ask_leaves_the_shipped_list(tmp_path: Path) -> None:
    world = LiveWorld({"HOME": str(tmp_path)}, cwd=str(tmp_path), home=str(tmp_path), online=True)
    run = run_with(REPO)
    hub = probe_hub(world, run)
    assert isinstance(hub, Hub)
    for python in (str(tmp_path / "python"), str(tmp_path)):
        answers = probe_answers(world, hub, Environment(python, {"huggingface_hub": "1"}))
        with pytest.raises(Unestablished, match="could not be asked"):
            list(hub_refuses_download(run, hub, world.system, answers))
        assert [finding.severity for finding in gated_model_without_token(run, hub, answers)] == [None]


@pytest.mark.parametrize("why", ["offline", "complete", "not online"])
def test_what_need_not_be_asked_is_not(why: str, server: HubServer, tmp_path: Path) -> None:
    variables = {"HF_ENDPOINT": server.url, "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    if why == "complete":
        assert download(tmp_path, variables).returncode == 0
    if why == "offline":
        variables["HF_HUB_OFFLINE"] = "1"
    server.requests.clear()
    world = LiveWorld(variables, cwd=str(tmp_path), home=str(tmp_path), online=why != "not online")
    hub = probe_hub(world, run_with(REPO))
    assert isinstance(hub, Hub)
    if why == "complete":
        file = replace(hub.repos[0].files[0], needed=True)
        hub = replace(hub, repos=(replace(hub.repos[0], files=(file,)),))
    assert probe_answers(world, hub, Environment(sys.executable, world.packages())) == {}
    assert server.requests == []


def test_the_command_asks_only_when_it_is_told_to(
    server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "job.yaml"
    model = {"name_or_path": REPO, "arch": "flux"}
    process = {"type": "sd_trainer", "model": model, "network": {"type": "lora", "linear": 16}}
    config.write_text(json.dumps({"job": "extension", "config": {"name": "x", "process": [process]}}))
    for name, value in {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path), "HF_TOKEN": TOKEN}.items():
        monkeypatch.setenv(name, value)
    server.answer_all = 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": RESTRICTED}
    try:
        server.requests.clear()
        main(["check", str(config), "--format", "json", "--select", "HUB009,HUB013"])
        assert server.requests == []
        main(["check", str(config), "--format", "json", "--select", "HUB009,HUB013", "--online"])
    finally:
        server.answer_all = None
    quiet, asked = capsys.readouterr().out.split("\n}\n", 1)
    assert '"HUB009"' in quiet and '"HUB013"' in asked and TOKEN not in quiet + asked
