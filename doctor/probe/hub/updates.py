"""An update that was begun where links are not to be had: every file of the new commit is another file there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...model.record import replace
from ..world import Stat, World
from .caches import offline
from .content import SMALL, Expected, manifest
from .listings import Listing


def begun(
    world: World, folder: str, asked: str, own: Listing | None, complete: Sequence[Listing]
) -> tuple[Listing, Listing] | None:
    """The listing of the commit `asked`, which is not all there, and of the older snapshot that it is to replace.

    `own` is what lies of the new one, None where the client wrote down no more than its list of files; offline
    nobody waits for the rest of that. None where the file names are not known, and where there are links: a snapshot
    of links costs the client nothing.
    """
    older = next((listing for listing in complete if listing.commit != asked), None)
    if older is None or any(_is_link(world, x) for x in (older, own) if x is not None):
        return None
    if own is not None:
        new = own
    else:
        found = manifest(world, world.join(folder, "trees", f"{asked}.json"))
        if not isinstance(found, Mapping) or offline(world.system):
            return None
        place = world.join(folder, "snapshots", asked)
        new = replace(older, commit=asked, folder=place, expected=found, present=frozenset(), has_manifest=True)
    if not new.has_manifest:
        return None
    return replace(new, shards=new.shards | (older.shards & new.expected.keys())), older


def taken_over(new: Listing, older: Listing) -> frozenset[str]:
    """What the older snapshot has and the new one lacks. A large file that changed is left to those who load it."""

    def is_cheap(name: str) -> bool:
        wants, had = new.expected[name], older.expected.get(name)
        return wants is not None and (_same(wants, had) or (wants.size or 0) <= SMALL)

    return frozenset(n for n in new.expected if n in older.present and n not in new.present and is_cheap(n))


def _same(wants: Expected, had: Expected | None) -> bool:
    return had is not None and had.digest is not None and had.digest == wants.digest


def _is_link(world: World, listing: Listing) -> bool:
    stats = (world.stat(world.join(listing.folder, *name.split("/"))) for name in listing.present)
    return any(isinstance(stat, Stat) and stat.kind == "link" for stat in stats)
