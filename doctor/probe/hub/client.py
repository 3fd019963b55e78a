"""What stands between a run and the hub: its client, the variables that this obeys, and what the hub answers.

Sources: huggingface_hub 0.36, 1.23 and 2.4, constants.py and utils/_http.py; httpx and httpx2,
get_environment_proxies and create_ssl_context; requests, Session.merge_environment_settings; urllib.request,
getproxies_environment. All three were run with each variable (docs/measurements.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...model import Hub, HubAnswer, HubClient, HubRepo, Unknown
from ...model.environment import Environment
from ..world import Stat, World

PROXIES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
BUNDLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_TRANSFER = "HF_HUB_ENABLE_HF_TRANSFER"
_HELPERS = ("socksio", "pysocks", "hf_transfer")
_CERTIFICATE = b"-----BEGIN "


def probe_client(world: World, environment: Environment | Unknown) -> HubClient | Unknown:
    """The hub client of the Python that will run the trainer; not looked at where no variable concerns it."""
    variables = _variables(world.system.environment)
    if not variables:
        return HubClient()
    if isinstance(environment, Unknown):
        return environment
    bundles = {name: wrong for name in BUNDLES if (wrong := _wrong(world, name, variables.get(name, "")))}
    lacks = tuple(name for name in _HELPERS if not environment.has(name))
    return HubClient(environment.versions.get("huggingface_hub", ""), environment.python, variables, bundles, lacks)


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Of a proxy the small spelling counts, also where it is empty, as in Python's own reading."""
    found = {name: environment[name] for name in (*BUNDLES, _TRANSFER) if environment.get(name)}
    if "HF_ENDPOINT" in environment:  # which counts where it is empty, too
        found["HF_ENDPOINT"] = environment["HF_ENDPOINT"]
    for name in PROXIES:
        written = name.lower() if name.lower() in environment else name
        if environment.get(written):
            found[written] = environment[written]
    return found


def _wrong(world: World, name: str, path: str) -> str:
    """What keeps a file of certificates from being read; "" where nothing does, or that is not known."""
    if not path or name == "SSL_CERT_DIR":
        return ""
    stat = world.resolve(world.absolute(path))[1]
    if stat is None:
        return "is not there"
    if not isinstance(stat, Stat) or (stat.kind == "folder" and name != "SSL_CERT_FILE"):
        return ""
    if stat.kind == "folder":
        return "is a folder"
    content = world.read(world.absolute(path))
    return "holds no certificate" if isinstance(content, bytes) and _CERTIFICATE not in content else ""


def probe_answers(world: World, hub: Hub, environment: Environment | Unknown) -> Mapping[str, HubAnswer]:
    """What the hub says of the repositories that the run would download from, by their names; {} where none is asked.

    It is asked by the client of the Python that will run the trainer, else by that of the one that looks.
    """
    wanted = {repo.repo: _wanted(repo) for repo in hub.repos if repo.used_by and repo.ref_state != "pinned"}
    wanted = {repo: file for repo, file in wanted.items() if file}
    own = isinstance(environment, Environment) and environment.has("huggingface_hub")
    python = environment.python if own and isinstance(environment, Environment) else world.system.interpreter
    return {} if hub.offline or not wanted else world.ask_hub(python, wanted)


def _wanted(repo: HubRepo) -> str:
    """A file that the run has to download, "" where the cache holds all that is known to be needed."""
    if repo.commit is None:
        return "model_index.json"
    return next((file.name for file in repo.files if file.needed and file.state != "ok" and not file.good_copy), "")
