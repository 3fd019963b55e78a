"""Which models a file is of whose tensors have other sizes than the model that was built for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from ..families import classes, families
from ..families.record import ModelClass
from ..families.record.shapes import BadConfig, Shapes

_LOADED = re.compile(
    r"size mismatch for (?P<name>[\w.]+): copying a param with shape (?:torch\.Size\()?\[(?P<file>[\d, ]+)\]\)? "
    r"from checkpoint, "
    r"the shape in current model is (?:torch\.Size\()?\[(?P<model>[\d, ]+)\]"
    r"|because (?P<key>[\w.]+) expected shape (?:torch\.Size\()?\[(?P<built>[\d, ]+)\]\)?, but got (?:torch\.Size\()?"
    r"\[(?P<held>[\d, ]+)\]"
)
MOST_TITLES = 5
_LORA = re.compile(r"lora|\.(?:hada|lokr)_", re.I)
_DOWN = re.compile(r"lora_(?:down|A)\b")


def by_file(message: str) -> tuple[str, str] | None:
    """A file whose tensors are of other sizes than the model that was built for it."""
    pairs = [
        (one["name"] or one["key"], sizes(one["file"] or one["held"]), sizes(one["model"] or one["built"]))
        for one in _LOADED.finditer(message)
    ]
    if not pairs:
        return None
    if all(_LORA.search(name) for name, _, _ in pairs):
        return _of_lora(pairs)
    held, built = (_whose(tuple((name, shapes[at]) for name, *shapes in pairs)) for at in (0, 1))
    if not held and not built:
        return None
    if held and built and not {*held}.isdisjoint(built):
        return None
    name, file, model = pairs[0]
    return (
        f"The file's tensors have the sizes of another model than the one that was built: {_listed(held) or '?'} "
        f"in the file, {_listed(built) or '?'} as built ({name}: {_written(file)} and {_written(model)}).",
        "Choose the model, version or task in the settings that the file is of, or take the file of the one that "
        "is set; a model that came after this version of the program takes a newer program.",
    )


def _of_lora(pairs: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]]) -> tuple[str, str] | None:
    name, file, model = pairs[0]
    if len(file) < 2 or len(file) != len(model):
        return None
    rank, inner = (0, 1) if _DOWN.search(name) else (1, 0)
    if file[rank] != model[rank] and file[inner] == model[inner]:
        return (
            f"The LoRA's file has rank {file[rank]}, and the settings say {model[rank]}.",
            f"Set the rank (network_dim, linear, lora_rank) to {file[rank]}, or start without that file.",
        )
    if file[inner] != model[inner]:
        return (
            f"The LoRA is of a model whose layer is {file[inner]} wide, and here that layer is {model[inner]} "
            f"wide ({name}): it was made for another model, or for another size of this one.",
            "Take a LoRA that was trained on this model; zdoctor check LORA --base MODEL says which model one is of.",
        )
    return None


def sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(",") if size.strip())


def _written(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))


def _listed(titles: Sequence[str]) -> str:
    return " / ".join(titles)


@lru_cache(maxsize=32)
def _whose(tensors: tuple[tuple[str, tuple[int, ...]], ...]) -> tuple[str, ...]:
    """The models that have tensors of all these names and shapes."""
    shapes = dict(tensors)
    fitting = (title for title, own in _variants(shapes) if all(own.get(n) == s for n, s in shapes.items()))
    return tuple(dict.fromkeys(fitting))[:MOST_TITLES]


def _variants(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, Shapes]]:
    """The published models of the classes that have such names, with their tensors."""
    for family in families():
        if family.transformer is not None:
            named = {repo.rpartition("/")[2]: repo for repo in family.repos.values()} or {family.title: ""}
            for title, repo in named.items():
                found = family.memory.config(repo) if family.memory is not None else {}
                yield from ((title, own) for own in _built(family.transformer, [found], [*shapes]))
        for kind, config in family.published.values():
            if kind in classes():
                yield from ((f"{kind} ({family.title})", own) for own in _built(classes()[kind], [config], [*shapes]))


def _built(kind: ModelClass, configs: Sequence[Mapping[str, object]], names: Sequence[str]) -> Iterator[Shapes]:
    for config in configs:
        try:
            own = kind.tensors(config)
            if names[0] not in own:
                own = kind.in_file(own, names)
        except (BadConfig, KeyError):
            continue
        if names[0] not in own:
            return
        yield own
