"""What the environment tells the hub client: proxies, certificates, the address of the hub, the way of transfer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...doctor.model import Finding, Hub, HubClient, HubRepo, Run, System
from ...doctor.model.environment import release
from ...doctor.model.pattern import pattern
from ...doctor.model.trainer import EVERY
from ...doctor.rules import NotApplicable, prevents, rule
from .files import of_repo, used
from .use import is_complete

HTTPX = (1,)  # the first huggingface_hub that asks by httpx; those before it ask by requests
HTTPX_2 = (2,)
# What takes a proxy of which kinds, the package that it needs for SOCKS, and the variables that name certificates.
BY_REQUESTS = ("socks4", "socks4a", "socks5", "socks5h"), "pysocks", ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
BY_HTTPX = ("socks5", "socks5h"), "socksio", ("SSL_CERT_FILE", "SSL_CERT_DIR")
ADDRESS = pattern(r"(?i)https?://[^\s\"'/][^\s\"']*")
IPV6 = pattern(r"[^,]*:[^,]*/[^,]*|\[[^,]*")
IN_SYSTEM = ("/etc/", "/usr/")
ENDS = "The trainer ends when it first asks for {repo}: {error}."
ENDS_ANYWAY = "The trainer ends when it first asks for {repo}, cached or not, offline or not: {error}."


@rule("HUB010", "error", "hub-client-cannot-start", trainers=(EVERY,))
@prevents("ValueError", "Unknown scheme for proxy URL")
@prevents("ImportError", "Using SOCKS proxy, but the 'socksio' package is not installed")
@prevents("InvalidSchema", "Missing dependencies for SOCKS support")
@prevents("UnsupportedProtocol", "Request URL is missing an 'http://' or 'https://' protocol")
@prevents("MissingSchema", r"Invalid URL \S+: No scheme supplied")
@prevents("OSError", "Could not find a suitable TLS CA certificate bundle")
def hub_client_cannot_start(run: Run, hub: Hub, client: HubClient) -> Iterator[Finding]:
    """An environment variable makes the hub client end before it has asked anything.

    What: The proxies, the certificates and the endpoint that the environment names, as the installed huggingface_hub
    reads them: before 1.0 it asks by requests, since then by httpx. Nothing is asked of the network.
    Why: Since 1.0 every proxy and the file of certificates is opened when the client is made, also for a model that
    is cached, and with HF_HUB_OFFLINE. httpx knows no socks:// and no socks4://, and for socks5:// it needs the
    package socksio. A value that was set with quotes in cmd keeps them.
    Repair: None of ours: the variable belongs to your shell. The command to type is shown.
    Upstream: https://www.python-httpx.org/environment_variables/,
    https://github.com/huggingface/huggingface_hub/blob/main/docs/source/en/concepts/migration.md
    Signature: ValueError: Unknown scheme for proxy URL URL('socks://127.0.0.1:7890')
    """
    repo = next((one for one in used(hub) if one.ref_state != "pinned"), None)
    if repo is None or not client.version:
        raise NotApplicable
    faults = [*_bad_certificates(client, hub), *_bad_proxies(client, hub)]
    if not hub.offline:
        faults += _bad_endpoint(client.variables)
    for name, message, error, value in faults:
        yield of_repo(
            run,
            repo,
            message,
            ENDS if name == "HF_ENDPOINT" or not _by_httpx(client) else ENDS_ANYWAY,
            evidence={"variable": name, "value": client.variables[name], "version": client.version},
            error=error,
            python=client.python,
            new=value,
            package="" if value is not None else _library(client)[1],
        )


Fault = tuple[str, str, str, str | None]  # variable, message, the error to come, the value that works


def _bad_endpoint(variables: Mapping[str, str]) -> Iterator[Fault]:
    address = variables.get("HF_ENDPOINT")
    if address is None or ADDRESS.fullmatch(address):
        return
    message, bare = "HF_ENDPOINT is {value!r}, which is no address: it begins with https:// and has no quotes.", ""
    if address.strip(" \"'/"):
        bare = address.strip(" \"'")
        bare = bare if "://" in bare else f"https://{bare}"
    else:
        message = "HF_ENDPOINT is set and empty, which is not the same as not set."
    yield "HF_ENDPOINT", message, "Request URL is missing an 'http://' or 'https://' protocol", bare


def _bad_proxies(client: HubClient, hub: Hub) -> Iterator[Fault]:
    kinds, package, _ = _library(client)
    passed = [part.strip() for part in _proxy(client, "NO_PROXY")[1].split(",")]
    if "*" in passed:
        return
    wrong = next(filter(IPV6.fullmatch, passed), None)
    if wrong is not None and HTTPX <= release(client.version) < HTTPX_2:
        name, value = _proxy(client, "NO_PROXY")
        message = "{variable} is {value}, and huggingface_hub {version} cannot read the IPv6 address {wrong} in it."
        without = ",".join(part for part in passed if not IPV6.fullmatch(part))
        yield name, message.replace("{wrong}", wrong), "Invalid port", without
    if not _by_httpx(client) and (hub.offline or _passes_by(client, passed)):
        return
    named = [_proxy(client, proxy) for proxy in ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY")]
    if not _by_httpx(client):  # one that is for the scheme of the hub's address, else that for all
        other = named[2 if client.variables.get("HF_ENDPOINT", "").startswith("http:") else 1]
        named = [other if other[1] else named[0]]
    for name, value in named:
        kind, separator, rest = value.partition("://")
        if not separator or kind.lower() in ("http", "https"):
            continue
        if kind.lower() not in kinds:
            message = "{variable} is {value}, a kind of proxy that huggingface_hub {version} does not know."
            if kind.lower() == "socks":
                new = f"socks5://{rest}"
            else:
                new = value.strip(" \"'") if value != value.strip(" \"'") else f"http://{rest}"
            yield name, message, f"Unknown scheme for proxy URL {value}", new
        elif package in client.lacks:
            message = (
                "{variable} is {value}; for a SOCKS proxy huggingface_hub {version} needs the package {package}, "
                "which {python} does not have."
            )
            yield name, message, "SOCKS support is not installed", None


def _bad_certificates(client: HubClient, hub: Hub) -> Iterator[Fault]:
    for name, wrong in client.bundles.items():
        if name in _library(client)[2] and (_by_httpx(client) or not hub.offline):
            message = (
                "{variable} is {value}, which " + wrong + ": huggingface_hub {version} reads its certificates there."
            )
            yield name, message, "the certificates cannot be read", ""


def _proxy(client: HubClient, name: str) -> tuple[str, str]:
    """The spelling of a variable that counts, and its value; "" where neither is set."""
    return next(((one, client.variables[one]) for one in (name.lower(), name) if one in client.variables), (name, ""))


def _passes_by(client: HubClient, passed: list[str]) -> bool:
    """Whether requests asks the hub past the proxy."""
    host = client.variables.get("HF_ENDPOINT", "https://huggingface.co").partition("://")[2].partition("/")[0]
    return any(part and f".{host.partition(':')[0]}".endswith(f".{part.lstrip('.')}") for part in passed)


def _by_httpx(client: HubClient) -> bool:
    return release(client.version) >= HTTPX


def _library(client: HubClient) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    return BY_HTTPX if _by_httpx(client) else BY_REQUESTS


@rule("HUB011", "warning", "certificates-not-read", trainers=(EVERY,))
@prevents("ConnectError", "CERTIFICATE_VERIFY_FAILED")
@prevents("SSLError", "CERTIFICATE_VERIFY_FAILED|certificate verify failed")
def certificates_not_read(run: Run, hub: Hub, client: HubClient, system: System) -> Iterator[Finding]:
    """Certificates are named by a variable that the installed hub client does not read.

    What: REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE without SSL_CERT_FILE, and a huggingface_hub from 1.0 on; or the other
    way round with an older one. Only where the run has to download. From 2.0 on the client also reads the
    certificates of the system, so that a bundle of the system is none that is missed.
    Why: Before 1.0 the client asked by requests, which reads the first two; since then by httpx, which reads
    SSL_CERT_FILE and SSL_CERT_DIR. Behind a proxy that signs anew with a company's own certificate nothing can be
    downloaded without it.
    Repair: None of ours: the variable belongs to your shell. The command to type is shown.
    Upstream: https://www.python-httpx.org/environment_variables/
    Signature: ConnectError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate
    """
    repo = _to_download(run, hub)
    read = _library(client)[2]
    if repo is None or not client.version or any(name in client.variables for name in read):
        raise NotApplicable
    unread = [name for name in (*BY_HTTPX[2][:1], *BY_REQUESTS[2]) if name in client.variables and name not in read]
    value = client.variables[unread[0]] if unread else ""
    in_system = system.os != "linux" or value.startswith(IN_SYSTEM)
    if not unread or (release(client.version) >= HTTPX_2 and in_system):
        return
    yield of_repo(
        run,
        repo,
        "{variable} names certificates ({value}), and huggingface_hub {version} does not read it: it reads {new}.",
        "Where the network needs them (a company's proxy), {repo} cannot be downloaded: CERTIFICATE_VERIFY_FAILED.",
        evidence={"variable": unread[0], "value": value, "version": client.version},
        new=read[0],
    )


@rule("HUB012", "error", "hf-transfer-without-effect", trainers=(EVERY,))
@prevents("ValueError", "Fast download using 'hf_transfer' is enabled")
def hf_transfer_without_effect(run: Run, hub: Hub, client: HubClient) -> Iterator[Finding]:
    """HF_HUB_ENABLE_HF_TRANSFER is set, and its package is not installed, or no longer used.

    What: The variable against the installed huggingface_hub and hf_transfer, where the run has to download.
    Why: Before 1.0 the client refuses to download a file without the package that was asked for. Since 1.0 it warns,
    and takes no notice of it: downloads go through hf_xet. That is a note.
    Repair: Install hf_transfer, or unset the variable; the command is shown.
    Upstream: https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
    Signature: ValueError: Fast download using 'hf_transfer' is enabled but 'hf_transfer' package is not available
    """
    repo, name = _to_download(run, hub), "HF_HUB_ENABLE_HF_TRANSFER"
    if repo is None or not client.version or client.variables.get(name, "").upper() not in ("1", "ON", "YES", "TRUE"):
        raise NotApplicable
    old = not _by_httpx(client)
    if old and "hf_transfer" not in client.lacks:
        return
    yield of_repo(
        run,
        repo,
        "{variable} is set, and {python} does not have hf_transfer."
        if old
        else "{variable} is set, and huggingface_hub {version} no longer uses hf_transfer.",
        "The download of {repo} ends with a ValueError." if old else "Nothing comes of it but a warning.",
        severity=None if old else "note",
        evidence={"variable": name, "version": client.version, "package": "hf_transfer" if old else ""},
        python=client.python,
    )


def _to_download(run: Run, hub: Hub) -> HubRepo | None:
    if hub.offline:
        return None
    return next((one for one in used(hub) if one.ref_state != "pinned" and not is_complete(one, run)), None)
