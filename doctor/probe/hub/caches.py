"""Where hub caches lie and which repositories of them a run uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from ...families import loader_of
from ...model import Run, System
from ...model.pattern import pattern
from ...model.record import dataclass, replace
from ..world import Stat, World

COMMIT = pattern(r"[0-9a-f]{40}")
_NAME = pattern(r"(?![-.])[A-Za-z0-9._-]{1,96}(?<![-.])")
_VARIABLE = pattern(r"\$(\w+|\{[^}]*\})")
_PERCENT = pattern(r"%([^%]+)%")
_HF = (".huggingface", "HF_HOME", "hf", "hf-cache", "hf_cache", "hf_home", "huggingface", "huggingface_cache")
_HABITUAL = (  # below a disk, where people point HF_HOME or HF_HUB_CACHE to
    *(f"{name}/hub" for name in _HF),
    *_HF,
    *(f"{name}/huggingface/hub" for name in (".cache", "cache", "models", "ai", "AI")),
    "models/hub",
    "hub",
)
Identity = tuple[int, int] | str
_WEIGHTS = (".safetensors", ".ckpt", ".pt", ".bin")


@dataclass(frozen=True)
class Use:
    """A repository that the run names: by id (`commit` None) or by a path into a snapshot of some cache.

    `key` is the field of Run that names it; `inside` the file or folder within the repository, "" for all of it.
    """

    repo: str
    cache: str
    commit: str | None
    key: str
    inside: str


def caches(world: World) -> tuple[str, ...]:
    """The hub caches of this machine; the first is the one the trainer will use, the others exist as well."""
    return tuple(origins(world))


def origins(world: World) -> dict[str, str]:
    """The hub caches, the active one first, each with what makes it one: a variable, "default", or "found".

    Those on other disks are looked for in well-known places, by a few stats and no walk.
    """
    system = world.system
    environment = system.environment
    default_home = world.join(environment.get("XDG_CACHE_HOME", world.join(system.home, ".cache")), "huggingface")
    home = environment.get("HF_HOME", default_home)
    in_home = world.join(expand(world, home), "hub")
    default = "XDG_CACHE_HOME" if "XDG_CACHE_HOME" in environment else "default"
    named = [(environment[name], name) for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE") if name in environment]
    named = [
        *named[:1],  # the second is not read where the first is set
        (in_home, "HF_HOME" if "HF_HOME" in environment else default),
        (world.join(expand(world, default_home), "hub"), default),
    ]
    found: dict[str, str] = {}
    for path, why in named:
        cache = world.absolute(expand(world, path))
        if not found or world.stat(cache) is not None:
            found.setdefault(cache, why)
    known = {identity(world, cache) for cache in found}
    for cache in _on_other_disks(world):
        folder = identity(world, cache)  # a bind mount shows one folder in two places
        if folder not in known:
            found[cache] = "found"
            known.add(folder)
    return found


def identity(world: World, path: str, seen: Mapping[str, Stat] = MappingProxyType({})) -> Identity:
    """What two names of one file have in common; `seen` are files that were looked at already."""
    stat = seen[path] if path in seen else world.stat(path)
    return (stat.identity if isinstance(stat, Stat) else None) or path


def _on_other_disks(world: World) -> Iterator[str]:
    home = world.system.base(world.system.home)
    inside = ".cache/huggingface/hub"
    for path in world.elsewhere((*_HABITUAL, f"{home}/{inside}", f"Users/{home}/{inside}")):
        if any(model_folders(world, path)):
            yield path


def expand(world: World, path: str) -> str:
    """`path` with a leading ~ and variables expanded, as the hub client does when it is imported."""
    system = world.system
    if path == "~" or path[:2] in ("~/", "~\\" if system.os == "windows" else "~/"):
        path = system.home + path[1:]
    variables: Mapping[str, str] = world.variables
    if system.os == "windows":
        variables = {name.upper(): value for name, value in variables.items()}
        path = _PERCENT.sub(lambda found: variables.get(found[1].upper(), found[0]), path)
        return _VARIABLE.sub(lambda found: variables.get(found[1].strip("{}").upper(), found[0]), path)
    return _VARIABLE.sub(lambda found: variables.get(found[1].strip("{}"), found[0]), path)


def offline(system: System) -> bool:
    """Whether the hub client was told to stay off the network."""
    environment = system.environment
    value = environment.get("HF_HUB_OFFLINE") or environment.get("TRANSFORMERS_OFFLINE") or ""
    return value.upper() in ("1", "ON", "YES", "TRUE")


def is_repo_id(text: str) -> bool:
    """Whether `text` has the two-part form `org/name` that the hub accepts."""
    parts = text.split("/")
    return len(parts) == 2 and all(_NAME.fullmatch(part) and "--" not in part and ".." not in part for part in parts)


def uses(world: World, run: Run, cache: str) -> Iterator[Use]:
    """The repositories the run names; ids are looked for in `cache`."""
    seen: set[tuple[str, str, str | None, str]] = set()
    for key, value in named_models(run):
        use = _into_cache(world, key, value)
        if use is None and world.stat(world.absolute(value)) is None:
            use = _by_id(key, value, cache)
            if use is not None and key == "base_model" and not use.inside:
                use = replace(use, inside=_one_file(run, use.repo))
        if use is not None and (use.repo, use.cache, use.commit, use.inside) not in seen:
            seen.add((use.repo, use.cache, use.commit, use.inside))
            yield use


def _one_file(run: Run, repo: str) -> str:
    """The file of a model's repository that is opened alone; "" where the repository is."""
    loader = loader_of(run)
    file = None if loader is None else loader.origin(loader.main).file
    return "" if file is None else run.recipe.sources.get("transformer") or file(repo)


def apart(run: Run) -> Mapping[str, str]:
    """Of the components that come from a repository of their own, which."""
    loader = loader_of(run)
    origins = {} if loader is None else loader.origins
    sources = {name: run.recipe.sources.get(name, origin.repo) for name, origin in origins.items()}
    return {name: source for name, source in sources.items() if is_repo_id(source)}


def named_models(run: Run) -> Iterator[tuple[str, str]]:
    """The fields of a run's recipe that name a model, with what they say."""
    for key in ("base_model", "extras_model", "adapter"):
        value = getattr(run.recipe, key)
        if value and "\0" not in value:
            yield key, value


def repo_folder(world: World, cache: str, repo: str) -> str:
    return world.join(cache, "models--" + repo.replace("/", "--"))


def repo_of(folder: str) -> str:
    """The repository of a folder "models--org--name"."""
    return folder.removeprefix("models--").replace("--", "/")


def model_folders(world: World, cache: str) -> Iterator[str]:
    return (name for name in world.names_in(cache) if name.startswith("models--"))


def snapshot_inside(world: World, root: str) -> str:
    """The snapshot that refs/main names, else the only one; the root itself when that does not settle it."""
    snapshots = world.names_in(world.join(root, "snapshots"))
    ref = world.join(root, "refs", "main")
    content = world.read(ref, 0, 100) if isinstance(world.stat(ref), Stat) else b""
    commit = content.decode("ascii", "replace").strip() if isinstance(content, bytes) else ""
    if commit not in snapshots:
        commit = snapshots[0] if len(snapshots) == 1 else ""
    return world.join(root, "snapshots", commit) if commit else root


def _by_id(key: str, value: str, cache: str) -> Use | None:
    if is_repo_id(value):
        return Use(value, cache, None, key, "")
    org, _, rest = value.partition("/")
    name, _, inside = rest.partition("/")
    if inside.endswith(_WEIGHTS) and is_repo_id(f"{org}/{name}") and is_safe(inside):
        return Use(f"{org}/{name}", cache, None, key, inside)
    return None


def _into_cache(world: World, key: str, value: str) -> Use | None:
    parts = re.split(r"[\\/]" if world.flavour.sep == "\\" else "/", world.absolute(value))
    for at, part in enumerate(parts[:-2]):
        if part.startswith("models--") and parts[at + 1] == "snapshots" and COMMIT.fullmatch(parts[at + 2]):
            cache = world.flavour.sep.join(parts[:at])
            return Use(repo_of(part), cache, parts[at + 2], key, "/".join(parts[at + 3 :]))
    return None


def is_safe(name: str) -> bool:
    """Whether a file name of a repository stays inside the snapshot on every system."""
    return (
        0 < len(name) < 1024
        and not re.search(r"[\x00-\x1f\\:]", name)
        and all(part not in ("", ".", "..") for part in name.split("/"))
    )
