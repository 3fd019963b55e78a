"""HUB010, HUB011, HUB012: what the environment tells the hub client, and what the real client makes of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from zdoctor.checks.hub import reach
from zdoctor.doctor.model import Finding, Hub, HubClient, Unknown
from zdoctor.doctor.model.environment import Environment
from zdoctor.doctor.probe.hub import probe_hub
from zdoctor.doctor.probe.hub.client import probe_client
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.rules import NotApplicable
from zdoctor.fixes.hub import set_variable
from zdoctor.tests.certificate import write_certificate
from zdoctor.tests.hub_cases import run_with
from zdoctor.tests.hub_server import HubServer

REPO = "acme/tiny"
SOCKS = "127.0.0.1:9"
CLIENT = "import sys, huggingface_hub as h; h.hf_hub_download(sys.argv[1], 'config.json')"
HEADERS = "import sys, huggingface_hub as h; h.get_hf_file_metadata(h.hf_hub_url(sys.argv[1], 'config.json'))"


@pytest.fixture(scope="module")
def server() -> Iterator[HubServer]:
    with HubServer({REPO: {"config.json": b"{}"}}) as hub:
        yield hub


def found(home: Path, variables: Mapping[str, str], version: str = "", **more: str) -> list[Finding]:
    """What the rules say in this environment; of the installed huggingface_hub, or of one of another version."""
    world = LiveWorld(variables, cwd=str(home), home=str(home))
    run = run_with(REPO)
    versions = {**world.packages(), **more}
    if version:
        versions["huggingface_hub"] = version
    hub, client = probe_hub(world, run), probe_client(world, Environment(sys.executable, versions))
    assert isinstance(hub, Hub) and isinstance(client, HubClient)
    told: list[Finding] = []
    with suppress(NotApplicable):
        told += reach.hub_client_cannot_start(run, hub, client)
    with suppress(NotApplicable):
        told += reach.hf_transfer_without_effect(run, hub, client)
    with suppress(NotApplicable):
        told += reach.certificates_not_read(run, hub, client, world.system)
    return told


def download(home: Path, variables: Mapping[str, str], code: str = CLIENT) -> str:
    """What the real client ends with; "" where it downloads the file, or finds it in the cache."""
    own = {"HOME": str(home), "PATH": os.environ["PATH"], "HF_HUB_DISABLE_XET": "1", **variables}
    done = subprocess.run([sys.executable, "-c", code, REPO], env=own, capture_output=True, text=True)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


SICK = {
    "socks of no version": ({"ALL_PROXY": f"socks://{SOCKS}"}, "Unknown scheme", {"ALL_PROXY": ""}),
    "socks4": ({"all_proxy": f"socks4://{SOCKS}"}, "Unknown scheme", {"all_proxy": ""}),
    "small letters count": ({"HTTPS_PROXY": "", "https_proxy": f"socks://{SOCKS}"}, "Unknown scheme", None),
    "no socksio": ({"HTTPS_PROXY": f"socks5h://{SOCKS}"}, "socksio", {"NO_PROXY": "*"}),
    "past the hub": ({"ALL_PROXY": f"socks5://{SOCKS}", "NO_PROXY": "127.0.0.1"}, "socksio", {"NO_PROXY": "*"}),
    "quotes of cmd": ({"HTTPS_PROXY": '"http://127.0.0.1:9"'}, "Unknown scheme", None),
    "no certificates": ({"SSL_CERT_FILE": "nowhere.pem"}, "FileNotFoundError", None),
    "no certificate in it": ({"SSL_CERT_FILE": "empty.pem"}, "SSLError", None),
    "no scheme": ({"HF_ENDPOINT": "hf-mirror.com"}, "UnsupportedProtocol", None),
    "endpoint in quotes": ({"HF_ENDPOINT": '"http://127.0.0.1"'}, "UnsupportedProtocol", None),
    "endpoint set and empty": ({"HF_ENDPOINT": ""}, "UnsupportedProtocol", None),
}


@pytest.mark.parametrize("case", SICK)
def test_the_client_ends_and_with_the_variable_mended_it_does_not(
    case: str, server: HubServer, tmp_path: Path
) -> None:
    variables, error, mended = SICK[case]
    (tmp_path / "empty.pem").write_text("")
    places = {name: str(tmp_path / value) if value.endswith(".pem") else value for name, value in variables.items()}
    sick = {"HF_ENDPOINT": server.url, **places}
    [finding] = found(tmp_path, sick)
    assert (finding.severity, finding.evidence["version"]) == (None, LiveWorld().packages()["huggingface_hub"])
    assert finding.text() and finding.consequence()
    assert error in download(tmp_path, sick)
    if mended is None:  # the command that is shown
        fix = next(iter(set_variable(replace(finding, rule="HUB010"), LiveWorld().system)))
        name, new = finding.evidence["variable"], finding.args["new"]
        assert fix.command == (f"export {name}={new}" if new else f"unset {name}")
        mended = {name: server.url if name == "HF_ENDPOINT" else new}
    cured = {name: value for name, value in {**sick, **mended, "NO_PROXY": "*"}.items() if value}
    assert found(tmp_path, cured) == []
    assert download(tmp_path, cured) == ""


def test_httpx_ends_for_a_cached_model_and_offline_too(server: HubServer, tmp_path: Path) -> None:
    assert download(tmp_path, {"HF_ENDPOINT": server.url}) == ""
    offline = {"HF_ENDPOINT": "hf-mirror.com", "HF_HUB_OFFLINE": "1"}
    assert (found(tmp_path, offline), download(tmp_path, offline)) == ([], "")
    [finding] = found(tmp_path, {**offline, "ALL_PROXY": f"socks://{SOCKS}"})
    assert "cached or not" in finding.consequence()
    assert "Unknown scheme" in download(tmp_path, {**offline, "ALL_PROXY": f"socks://{SOCKS}"})


@pytest.mark.parametrize(
    "healthy",
    [
        {},
        {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,[::1],fe80::/10"},
        {"HTTPS_PROXY": "127.0.0.1:9"},
        {"ALL_PROXY": f"socks://{SOCKS}", "NO_PROXY": "localhost,*"},
        {"ALL_PROXY": f"socks://{SOCKS}", "all_proxy": ""},
        {"SSL_CERT_DIR": "nowhere", "SSL_CERT_FILE": ""},
        {"REQUESTS_CA_BUNDLE": "/etc/ssl/certs/ca-certificates.crt"},
    ],
)
def test_what_the_client_takes_is_silent(healthy: dict[str, str], server: HubServer, tmp_path: Path) -> None:
    variables = {"HF_ENDPOINT": server.url, **healthy}
    assert found(tmp_path, variables) == []
    assert download(tmp_path, variables) == ""


def test_a_model_of_this_disk_asks_no_hub(tmp_path: Path) -> None:
    world = LiveWorld({"ALL_PROXY": f"socks://{SOCKS}"}, cwd=str(tmp_path), home=str(tmp_path))
    run = run_with(str(tmp_path))
    hub, client = probe_hub(world, run), probe_client(world, Environment("python", {"huggingface_hub": "2.4.0"}))
    assert isinstance(hub, Hub) and isinstance(client, HubClient)
    with pytest.raises(NotApplicable):
        list(reach.hub_client_cannot_start(run, hub, client))


def test_without_the_trainers_python_only_a_variable_leaves_it_unknown(tmp_path: Path) -> None:
    quiet = LiveWorld({}, cwd=str(tmp_path), home=str(tmp_path))
    assert probe_client(quiet, Unknown("not found")) == HubClient()
    loud = LiveWorld({"HTTPS_PROXY": "http://proxy"}, cwd=str(tmp_path), home=str(tmp_path))
    assert probe_client(loud, Unknown("not found")) == Unknown("not found")


# As huggingface_hub 0.36.0 and 1.23.0 did with a hub on loopback (docs/measurements.md).
OTHER_VERSIONS = [
    ("0.36.0", {"ALL_PROXY": f"socks5://{SOCKS}"}, ["pysocks"]),
    ("0.36.0", {"ALL_PROXY": f"socks5://{SOCKS}", "NO_PROXY": "huggingface.co"}, []),
    ("0.36.0", {"ALL_PROXY": f"socks5://{SOCKS}", "HF_HUB_OFFLINE": "1"}, []),
    ("0.36.0", {"HTTP_PROXY": f"socks5://{SOCKS}"}, []),
    ("0.36.0", {"HTTPS_PROXY": f"socks5h://{SOCKS}", "HF_ENDPOINT": "http://127.0.0.1"}, []),
    ("0.36.0", {"ALL_PROXY": f"socks5h://{SOCKS}", "HTTPS_PROXY": "http://127.0.0.1:9"}, []),
    ("1.23.0", {"ALL_PROXY": f"socks5h://{SOCKS}", "HTTPS_PROXY": "http://127.0.0.1:9"}, ["socksio"]),
    ("0.36.0", {"HF_ENDPOINT": "hf-mirror.com"}, ["https://hf-mirror.com"]),
    ("0.36.0", {"HF_HUB_ENABLE_HF_TRANSFER": "1"}, ["hf_transfer"]),
    ("0.36.0", {"SSL_CERT_FILE": "nowhere.pem"}, ["REQUESTS_CA_BUNDLE"]),
    ("0.36.0", {"REQUESTS_CA_BUNDLE": "nowhere.pem"}, [""]),
    ("0.36.0", {"NO_PROXY": "[::1]"}, []),
    ("1.23.0", {"NO_PROXY": "localhost,[::1]"}, ["localhost"]),
    ("1.23.0", {"NO_PROXY": "localhost,fe80::/10"}, ["localhost"]),
    ("1.23.0", {"NO_PROXY": "localhost:80,::1,10.0.0.0/8"}, []),
    ("1.23.0", {"ALL_PROXY": f"socks://{SOCKS}"}, [f"socks5://{SOCKS}"]),
    ("1.23.0", {"REQUESTS_CA_BUNDLE": "/etc/ssl/own.pem"}, ["SSL_CERT_FILE"]),
    ("1.23.0", {"REQUESTS_CA_BUNDLE": "own.pem", "SSL_CERT_FILE": __file__}, [""]),
    ("2.4.0", {"REQUESTS_CA_BUNDLE": "own.pem"}, ["SSL_CERT_FILE"]),
]


@pytest.mark.parametrize(("version", "variables", "named"), OTHER_VERSIONS)
def test_other_versions(version: str, variables: dict[str, str], named: list[str], tmp_path: Path) -> None:
    findings = found(tmp_path, variables, version)
    assert [
        str({"new": "", **f.args, **f.evidence}.get("package") or f.args.get("new", "")) for f in findings
    ] == named
    assert all(finding.text() and finding.consequence() for finding in findings)


def test_the_packages_that_are_there_are_not_asked_for(tmp_path: Path) -> None:
    with_socks = {"socksio": "1.0.0", "pysocks": "1.7.1", "hf_transfer": "0.1.9"}
    for version in ("0.36.0", "1.23.0"):
        assert found(tmp_path, {"ALL_PROXY": f"socks5://{SOCKS}"}, version, **with_socks) == []
    assert found(tmp_path, {"HF_HUB_ENABLE_HF_TRANSFER": "1"}, "0.36.0", **with_socks) == []
    [note] = found(tmp_path, {"HF_HUB_ENABLE_HF_TRANSFER": "true"}, **with_socks)
    assert note.severity == "note" and "no longer uses" in note.text()


def test_a_certificate_of_ones_own_counts_in_the_variable_that_is_read(tmp_path: Path) -> None:
    own = write_certificate(tmp_path)
    with HubServer({REPO: {"config.json": b"{}"}}, own) as hub:
        unread = {"HF_ENDPOINT": hub.url, "REQUESTS_CA_BUNDLE": own[0]}
        [finding] = found(tmp_path, unread)
        assert (finding.args["new"], finding.evidence["value"]) == ("SSL_CERT_FILE", own[0])
        assert "CERTIFICATE_VERIFY_FAILED" in download(tmp_path, unread, HEADERS)
        read = {"HF_ENDPOINT": hub.url, "SSL_CERT_FILE": own[0]}
        assert found(tmp_path, read) == []
        assert download(tmp_path, read) == ""


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("http://me:se/cr@et@proxy:80", "http://proxy:80"),
        ("me:secret@proxy:80", "proxy:80"),
        ("socks5://token@proxy:80", "socks5://proxy:80"),
    ],
)
def test_a_password_in_an_address_is_kept_nowhere(address: str, kept: str) -> None:
    system = LiveWorld({"HTTPS_PROXY": address, "HF_ENDPOINT": address, "HF_HOME": "/mnt//a@b"}).system
    assert system.environment["HTTPS_PROXY"] == kept
    assert system.environment["HF_ENDPOINT"] == kept and system.environment["HF_HOME"] == "/mnt//a@b"
