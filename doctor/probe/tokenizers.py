"""The tokenizers of a model in part files: in the hub caches, or where sd-scripts was told to keep them."""

from __future__ import annotations

from collections.abc import Iterator

from ..families.part_files import tokenizers
from ..families.record import Tokenizer
from ..model import Component, Run
from .components import listed, read_component
from .hub.caches import caches, repo_folder, snapshot_inside
from .world import World


def probe_tokenizers(world: World, run: Run) -> dict[str, Component]:
    """Each tokenizer that the run needs, from the first place that holds it whole; else its problem is "missing"."""
    return {tokenizer.name: _found(world, run, tokenizer) for tokenizer in tokenizers(run)}


def _found(world: World, run: Run, tokenizer: Tokenizer) -> Component:
    """A tokenizer.json is read as it is, a spiece.model only with other packages: that one is taken last."""
    whole: list[Component] = []
    for folder, repo in _places(world, run, tokenizer):
        names = listed(world, folder)
        if not isinstance(names, tuple):
            continue
        expected = None if tokenizer.chats else tokenizer.name
        part = read_component(world, tokenizer.name, folder, repo=repo, expected=expected)
        if not part.missing_files and not part.problem:
            whole.append(part)
            if "tokenizer.json" in names:
                return part
    absent = Component(tokenizer.name, "", None, None, (), problem="missing", repo=tokenizer.repos[0][0])
    return whole[0] if whole else absent


def _places(world: World, run: Run, tokenizer: Tokenizer) -> Iterator[tuple[str, str]]:
    kept = run.setting("tokenizer_cache_dir")
    if isinstance(kept, str) and "\0" not in kept:
        repo = tokenizer.repos[0][0]
        yield world.absolute(world.join(kept, repo.replace("/", "_"))), repo
    for repo, inside in tokenizer.repos:
        for cache in caches(world):
            root = repo_folder(world, cache, repo)
            snapshot = snapshot_inside(world, root)
            if snapshot != root:
                yield (world.join(snapshot, inside) if inside else snapshot), repo
