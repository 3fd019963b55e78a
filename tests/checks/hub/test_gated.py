"""HUB009: a model behind a gate, asked for from a hub on loopback by the real client, without and with a token."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zdoctor.checks.hub.use import gated_model_without_token
from zdoctor.doctor.families.gated import GATED
from zdoctor.doctor.model import Finding, Hub
from zdoctor.doctor.probe.hub import probe_hub
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.rules import Unestablished
from zdoctor.tests.hub_cases import run_with
from zdoctor.tests.hub_server import HubServer

REPO = "black-forest-labs/FLUX.1-dev"
TOKEN = "hf_made_up_for_this_test"
CLIENT = "import sys, huggingface_hub as h; h.hf_hub_download(sys.argv[1], 'config.json')"


def found(home: Path, repo: str = REPO, **variables: str) -> list[Finding]:
    world = LiveWorld(variables, cwd=str(home), home=str(home))
    hub = probe_hub(world, run_with(repo))
    assert isinstance(hub, Hub)
    return list(gated_model_without_token(run_with(repo), hub, {}))


def downloaded(home: Path, server: HubServer, **variables: str) -> subprocess.CompletedProcess[str]:
    own = {"HOME": str(home), "HF_ENDPOINT": server.url, "PATH": os.environ["PATH"], **variables}
    return subprocess.run([sys.executable, "-c", CLIENT, REPO], env=own, capture_output=True, text=True)


def test_the_client_is_refused_and_with_a_token_it_is_not(tmp_path: Path) -> None:
    with HubServer({REPO: {"config.json": b"{}"}}) as server:
        server.gated = TOKEN
        [finding] = found(tmp_path)
        assert finding.severity is None and f"https://huggingface.co/{REPO}" in finding.text()
        refused = downloaded(tmp_path, server)
        assert "GatedRepoError" in refused.stderr and "401 Client Error" in refused.stderr
        file = tmp_path / ".cache" / "huggingface" / "token"  # what `hf auth login` leaves
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(TOKEN)
        [finding] = found(tmp_path)
        assert finding.severity == "note" and finding.evidence["token"] == str(file)
        assert TOKEN not in repr(finding)
        assert downloaded(tmp_path, server).returncode == 0


@pytest.mark.parametrize(
    ("variables", "severity"),
    [
        ({}, None),
        ({"HF_TOKEN": TOKEN}, "note"),
        ({"HUGGING_FACE_HUB_TOKEN": TOKEN}, "note"),
        ({"HF_TOKEN": " "}, None),
        ({"HF_TOKEN": TOKEN, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, None),
        ({"HF_TOKEN_PATH": "nowhere"}, None),
    ],
)
def test_where_a_token_is_found(variables: dict[str, str], severity: str | None, tmp_path: Path) -> None:
    assert [finding.severity for finding in found(tmp_path, **variables)] == [severity]
    with HubServer({REPO: {"config.json": b"{}"}}) as server:
        server.gated = TOKEN
        assert (downloaded(tmp_path, server, **variables).returncode == 0) is (severity == "note")


@pytest.mark.parametrize("where", ["dotenv", "colab", "oidc"])
def test_a_token_that_may_come_from_elsewhere_is_not_known(where: str, tmp_path: Path) -> None:
    variables = {"colab": {"COLAB_RELEASE_TAG": "1"}, "oidc": {"HF_OIDC_RESOURCE": "x"}}.get(where, {})
    if where == "dotenv":
        (tmp_path / ".env").write_text("X=1")
    with pytest.raises(Unestablished, match="is gated"):
        found(tmp_path, **variables)


def test_open_models_and_offline_runs_are_silent(tmp_path: Path) -> None:
    assert found(tmp_path, "Tongyi-MAI/Z-Image-Turbo") == []
    assert found(tmp_path, HF_HUB_OFFLINE="1") == []


def test_the_list_names_repositories() -> None:
    assert all(repo.count("/") == 1 and seen[:2] == "20" for repo, seen in GATED.items())
