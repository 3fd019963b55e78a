"""An environment held against requirements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..model.environment import Environment, Metadata, Requirement, Unmet, plain
from .versions import holds, meets


def unmet(
    asked: Iterable[Requirement],
    environment: Environment,
    metadata: Mapping[str, Metadata],
    variables: Mapping[str, str],
) -> Iterator[Unmet | Requirement]:
    """What of it the environment does not meet; a requirement itself where nobody can tell."""
    for one in asked:
        applies = holds(one.marker, variables)
        if applies is None:
            yield one
        elif applies:
            answer = _one(one, environment, metadata.get(one.name))
            if answer is not None:
                yield answer


def _one(one: Requirement, environment: Environment, known: Metadata | None) -> Unmet | Requirement | None:
    installed = environment.release if one.name == "python" else environment.versions.get(one.name, "")
    if not installed:
        return one if one.name == "python" else Unmet(one, "", "missing")
    if one.commit:
        return (
            None if known is None or known.commit == one.commit else Unmet(one, _source(installed, known), "source")
        )
    met = meets(installed, one.versions)
    return one if met is None else None if met else Unmet(one, installed, "version")


def _source(version: str, known: Metadata) -> str:
    return f"{version} at commit {known.commit[:10]}" if known.commit else version


def between(metadata: Mapping[str, Metadata], names: Iterable[str]) -> Iterator[Requirement]:
    """What these packages and all that they lead to ask of others, as far as it is installed."""
    from .requirements import requirement

    waiting, seen = [plain(name) for name in names], set[str]()
    while waiting:
        name = waiting.pop()
        known = metadata.get(name)
        if known is None or name in seen:
            continue
        seen.add(name)
        for line in known.requires:
            one = requirement(line)
            if one is not None:
                yield Requirement(one.name, one.versions, one.marker, one.url, one.commit, known.name)
                waiting.append(one.name)
