"""What is wrong with the hub caches of hub_tools.py, in a few words each: the defects of the tests, and some more."""

from __future__ import annotations

import os
import shutil

from zdoctor.tests.hub_cache import SHARD, Cache
from zdoctor.tests.hub_cases import LINKED, SICK, Sickness


def _no_exist(cache: Cache) -> None:
    """A 404 that was noted for a file that exists: the link is gone, the note says it never was."""
    cache.file(SHARD).unlink()
    mark = cache.repo / ".no_exist" / cache.commit / SHARD
    mark.parent.mkdir(parents=True)
    mark.touch()


def _orphan(cache: Cache) -> None:
    blob = cache.repo / "blobs" / ("c" * 64)
    blob.parent.mkdir(exist_ok=True)
    blob.write_bytes(b"x" * 1000)
    os.utime(blob, (1e9, 1e9))


def _partial(cache: Cache) -> None:
    _orphan(cache)
    blob = cache.repo / "blobs" / ("c" * 64)
    blob.rename(blob.with_name(f"{blob.name}.0123abcd.incomplete"))


MORE = (
    Sickness("healthy", "", "", lambda cache: None, None),
    *SICK,
    Sickness("noted-as-absent", "HUB002", SHARD, _no_exist, None),
    Sickness("no-snapshots", "HUB002", "", lambda c: shutil.rmtree(c.repo / "snapshots"), None, LINKED),
    Sickness("left-over-alone", "HUB004", "", _partial, None),
    Sickness("orphan-blob", "", "", _orphan, None),
    Sickness("stray-file", "", "", lambda c: (c.file("notes.txt").write_text("mine"), None)[1], None),
)


WORDS = {
    "truncated": "a shard cut off at its end",
    "truncated-early": "a shard of 5 bytes",
    "truncated-flipped": "a shard cut off, and a bit of it flipped",
    "truncated-json": "a config cut off",
    "truncated-unlisted": "a shard cut off, no list of files",
    "left-over-longer": "a shard cut off, a longer left-over beside it",
    "left-over": "no shard, a left-over of its download",
    "left-over-whole": "no shard, a left-over of all its bytes",
    "left-over-holes": "no shard, a left-over with holes",
    "tail": "8 bytes too many",
    "flipped": "a bit flipped in a small shard",
    "flipped-big": "a bit flipped in a large file",
    "empty": "a shard of 0 bytes",
    "page": "a web page for a shard",
    "page-json": "a web page for a config",
    "wrong-link": "a link to another file's content",
    "dangling": "a link to nothing",
    "missing": "a shard gone, link and content",
    "unlinked": "a link gone, its content there",
    "missing-unlisted": "a shard gone, and the list of files",
    "dangling-ref": "a branch that names an absent commit",
    "newline-ref": "a branch with a newline",
    "empty-ref": "a branch file of 0 bytes",
    "noted-as-absent": "a link gone, noted as non-existent",
    "no-snapshots": "snapshots/ gone",
    "left-over-alone": "a left-over of a download",
    "orphan-blob": "a blob that nothing uses",
    "stray-file": "a file of one's own",
}
