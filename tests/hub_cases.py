"""A tiny model in real hub caches, and every way such a cache is known to break."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from huggingface_hub import constants, snapshot_download
from safetensors import safe_open

from zdoctor.checks.hub import files as hub
from zdoctor.checks.hub import refs as hub_refs
from zdoctor.checks.hub import use as hub_use
from zdoctor.doctor.engine import examine
from zdoctor.doctor.model import Facts, Finding, Report, Run, Value, Where
from zdoctor.doctor.probe.hub import probe_hub
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.world import World
from zdoctor.doctor.rules import Repair, Rule
from zdoctor.fixes import hub as fixes
from zdoctor.tests.hub_server import Files, HubServer, etag, sha256

REPO = "acme/tiny-image"
SHARD = "transformer/diffusion_pytorch_model-00002-of-00002.safetensors"
BIG = "vae/diffusion_pytorch_model.safetensors"
VAE = "vae/config.json"


def weights(names: tuple[str, ...], numbers: int) -> bytes:
    """A safetensors file of float32 vectors."""
    header = {
        name: {"dtype": "F32", "shape": [numbers], "data_offsets": [4 * numbers * at, 4 * numbers * (at + 1)]}
        for at, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    data = b"".join(struct.pack("<f", len(names) + n % 97) for _ in names for n in range(numbers))
    return struct.pack("<Q", len(text)) + text + data


_SHARDS = [f"diffusion_pytorch_model-0000{n}-of-00002.safetensors" for n in (1, 2)]
MODEL: Files = {
    ".gitattributes": b"*.safetensors filter=lfs\n",
    "README.md": b"# A tiny image model\n",
    "assets/sample.png": b"\x89PNG not really\n",
    "model_index.json": b'{"_class_name": "TinyPipeline"}',
    "transformer/config.json": b'{"layers": 2}',
    "transformer/diffusion_pytorch_model.safetensors.index.json": json.dumps(
        {"metadata": {}, "weight_map": {"a": _SHARDS[0], "b": _SHARDS[1], "c": _SHARDS[1]}}
    ).encode(),
    f"transformer/{_SHARDS[0]}": weights(("a",), 2000),
    f"transformer/{_SHARDS[1]}": weights(("b", "c"), 3000),
    "text_encoder/config.json": b'{"hidden_size": 8}',
    "text_encoder/model.safetensors": weights(("embed",), 5000),
    "tokenizer/tokenizer.json": b'{"version": "1.0"}',
    "tokenizer/tokenizer_config.json": b'{"model_max_length": 512}',
    "vae/config.json": b'{"latent_channels": 16}',
    BIG: weights(("decoder",), 400_000),
    "scheduler/scheduler_config.json": b'{"shift": 3.0}',
}


@dataclass(frozen=True)
class Cache:
    """A hub cache folder that holds REPO at `commit`."""

    root: Path
    commit: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def repo(self) -> Path:
        return self.root / ("models--" + REPO.replace("/", "--"))

    @property
    def ref(self) -> Path:
        return self.repo / "refs" / "main"

    def file(self, name: str) -> Path:
        return self.repo / "snapshots" / self.commit / name

    def blob(self, name: str) -> Path:
        return self.repo / "blobs" / etag(name, MODEL[name])

    @property
    def manifest(self) -> Path:
        return self.repo / "trees" / f"{self.commit}.json"

    def copy(self, target: Path) -> Cache:
        shutil.copytree(self.root, target, symlinks=True)
        return Cache(target, self.commit, self.environment)

    def world(self, **environment: str) -> LiveWorld:
        variables = {"HF_HUB_CACHE": str(self.root), **self.environment, **environment}
        return LiveWorld(variables, cwd=str(self.root.parent), home=str(self.root.parent / "home"))


def download(server: HubServer, root: Path, layout: str) -> Cache:
    """A cache as the real client makes it, with links or (as on Windows without the right to make them) without.

    Or "shared": with the weights in the store that all repositories of a cache have in common.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", layout == "plain")
        snapshot_download(REPO, endpoint=server.url, cache_dir=root)
    cache = Cache(root, server.head(REPO))
    return share(cache) if layout == "shared" else cache


def share(cache: Cache) -> Cache:
    """Move the weights into the store that all repositories of a cache share, as the client does with hf_xet."""
    store = cache.root / "blobs"
    store.mkdir()
    (store / ".huggingface-shared-blobs").write_text("1\n")
    for name in MODEL:
        if name.endswith(".safetensors"):
            address = sha256(b"xet of " + name.encode())
            payload = store / address[:2] / address
            payload.parent.mkdir(exist_ok=True)
            blob = cache.blob(name)
            blob.rename(payload)
            payload.chmod(0o444)
            blob.symlink_to(os.path.relpath(payload, blob.parent))
    return cache


def load(cache: Cache) -> dict[str, bytes]:
    """What an offline run gets: the client finds the snapshot, the libraries read every file of it."""
    folder = Path(snapshot_download(REPO, cache_dir=cache.root, local_files_only=True))
    content = {}
    for name in MODEL:
        if name.endswith(".safetensors"):
            with safe_open(folder / name, "np") as file:
                for tensor in file.keys():  # noqa: SIM118 - the file is no mapping
                    file.get_tensor(tensor)
        if name.endswith(".json"):
            json.loads((folder / name).read_bytes())
        content[name] = (folder / name).read_bytes()
    return content


def run_with(model: str | None = REPO, extras: str | None = None, adapter: str | None = None) -> Run:
    """A run whose config names these, at line 7."""
    named = {"base_model": model, "extras_model": extras, "adapter": adapter}
    keys = {name: f"model/{name}" for name in named}
    settings = {
        keys[name]: Value(value, Where("job.yaml", 7, 3, f"/{keys[name]}"), 0, 1)
        for name, value in named.items()
        if value is not None
    }
    return Run(
        trainer="ai-toolkit",
        config="job.yaml",
        root="",
        index=0,
        kind="lora",
        process_type="sd_trainer",
        name="job",
        architecture="zimage",
        base_model=model,
        extras_model=extras,
        adapter=adapter,
        settings=settings,
        keys=keys,
    )


RULES: tuple[Rule, ...] = tuple(
    made
    for module in (hub, hub_refs, hub_use)
    for function in vars(module).values()
    for made in getattr(function, "zdoctor_rules", ())
)


def repairs() -> dict[str, tuple[Repair, ...]]:
    made: dict[str, tuple[Repair, ...]] = {}
    for function in vars(fixes).values():
        for repair in getattr(function, "zdoctor_repairs", ()):
            made[repair.id] = (*made.get(repair.id, ()), repair)
    return made


ADVICE = ("HUB005", "HUB006", "HUB007")  # about how the run uses a cache, not about the cache


def check(world: World, run: Run, *, deep: bool = False, ignore: tuple[str, ...] = ADVICE) -> Report:
    """The report of the hub rules alone, with their fixes."""
    facts = Facts(run=run, system=world.system, hub=probe_hub(world, run, deep=deep))
    return examine(
        facts, [r for r in RULES if r.id not in ignore], repairs(), config="job.yaml", trainer="ai-toolkit"
    )


def said(report: Report) -> list[tuple[str, str]]:
    """(rule, file or ref) of every finding."""
    return [(f.rule, _what(f)) for f in report.findings]


def _what(finding: Finding) -> str:
    return str(finding.args.get("file", ""))


LAYOUTS = ("linked", "plain", "shared")


@dataclass(frozen=True)
class Sickness:
    """One way to break a cache. `raises` is what an offline load then says, None when it says nothing.

    `deep` where only reading everything shows it; `download` where the cure is to fetch exactly `file`, of which
    it downloads `missing` bytes where that is not the whole.
    """

    name: str
    rule: str
    file: str
    spoil: Callable[[Cache], None]
    raises: str | None
    layouts: tuple[str, ...] = LAYOUTS
    deep: bool = False
    download: bool = False
    missing: int | None = None

    @property
    def bytes(self) -> int:
        """What the cure downloads."""
        return self.missing if self.missing is not None else self.download * len(MODEL.get(self.file, b""))


def _content(name: str, change: Callable[[bytes], bytes]) -> Callable[[Cache], None]:
    def spoil(cache: Cache) -> None:
        path = cache.file(name).resolve()
        path.write_bytes(change(path.read_bytes()))

    return spoil


def _flip(data: bytes) -> bytes:
    return data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]


def _remove(cache: Cache, *, link: bool, blob: bool) -> None:
    if blob:
        cache.file(SHARD).resolve().unlink(missing_ok=True)
    if link:
        cache.file(SHARD).unlink(missing_ok=True)


def _relink(cache: Cache) -> None:
    link = cache.file(SHARD)
    link.unlink()
    link.symlink_to(Path("../../../blobs") / cache.blob(BIG).name)


def _without_list(cache: Cache) -> None:
    _remove(cache, link=True, blob=True)
    cache.manifest.unlink()


def _left_over(change: Callable[[bytes], bytes], *, also: Callable[[Cache], None]) -> Callable[[Cache], None]:
    """As after a kill: what the client had downloaded of SHARD so far, under a name that it never looks for again."""

    def spoil(cache: Cache) -> None:
        also(cache)
        path = cache.repo / "blobs" / f"{cache.blob(SHARD).name}.0123abcd.incomplete"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(change(MODEL[SHARD]))
        os.utime(path, (1e9, 1e9))

    return spoil


def _gone(cache: Cache) -> None:
    _remove(cache, link=True, blob=True)


def _cut_and_unlisted(cache: Cache) -> None:
    _content(SHARD, lambda d: d[:-100])(cache)
    cache.manifest.unlink()


HTML = b"<!DOCTYPE html><html>rate limited</html>" * 9
CUT = "incomplete metadata"
GONE = "is incomplete"
NO_REF = "Cannot find an appropriate"
LINKED = ("linked", "shared")
SIZE = len(MODEL[SHARD])
SICK = (
    Sickness("truncated", "HUB001", SHARD, _content(SHARD, lambda d: d[:-100]), CUT, download=True, missing=100),
    Sickness(
        *("truncated-early", "HUB001", SHARD, _content(SHARD, lambda d: d[:5]), "header too small"),
        download=True,
        missing=SIZE - 5,
    ),
    Sickness(
        *("truncated-flipped", "HUB001", SHARD, _content(SHARD, lambda d: _flip(d)[:-50]), CUT),
        download=True,
        missing=50 + SIZE,
    ),
    Sickness(
        *("truncated-json", "HUB001", VAE, _content(VAE, lambda d: d[:-4]), "Expecting"), download=True, missing=4
    ),
    Sickness(*("truncated-unlisted", "HUB001", SHARD, _cut_and_unlisted, CUT, LINKED), download=True, missing=100),
    Sickness(
        *("left-over-longer", "HUB001", SHARD),
        _left_over(lambda d: d[:-7], also=_content(SHARD, lambda d: d[:-100])),
        CUT,
        download=True,
        missing=7,
    ),
    Sickness(
        *("left-over", "HUB002", SHARD, _left_over(lambda d: d[:9000], also=_gone), GONE),
        download=True,
        missing=SIZE - 9000,
    ),
    Sickness(
        *("left-over-whole", "HUB002", SHARD, _left_over(lambda d: d, also=_gone), GONE), download=True, missing=0
    ),
    Sickness(
        *("left-over-holes", "HUB002", SHARD, _left_over(lambda d: d[:500] + bytes(8500), also=_gone), GONE),
        download=True,
        missing=SIZE - 9000 + SIZE,
    ),
    Sickness("tail", "HUB001", SHARD, _content(SHARD, lambda d: d + b"\0" * 8), CUT, download=True),
    Sickness("flipped", "HUB001", SHARD, _content(SHARD, _flip), None, download=True),
    Sickness("flipped-big", "HUB001", BIG, _content(BIG, _flip), None, deep=True, download=True),
    Sickness("empty", "HUB001", SHARD, _content(SHARD, lambda d: b""), "header too small", download=True),
    Sickness("page", "HUB001", SHARD, _content(SHARD, lambda d: HTML), "header too large", download=True),
    Sickness("page-json", "HUB001", VAE, _content(VAE, lambda d: HTML), "Expecting value", download=True),
    Sickness("wrong-link", "HUB001", SHARD, _relink, None, LINKED),
    Sickness("dangling", "HUB002", SHARD, lambda c: _remove(c, link=False, blob=True), GONE, LINKED, download=True),
    Sickness("missing", "HUB002", SHARD, lambda c: _remove(c, link=True, blob=True), GONE, download=True),
    Sickness("unlinked", "HUB002", SHARD, lambda c: _remove(c, link=True, blob=False), GONE, LINKED),
    Sickness("missing-unlisted", "HUB002", SHARD, _without_list, "No such file", download=True),
    Sickness("dangling-ref", "HUB003", "", lambda c: _write(c.ref, "f" * 40), NO_REF),
    Sickness("newline-ref", "HUB003", "", lambda c: _write(c.ref, c.commit + "\n"), NO_REF),
    Sickness("empty-ref", "HUB003", "", lambda c: _write(c.ref, ""), "No such file"),
)


def _write(path: Path, text: str) -> None:
    path.write_text(text, newline="")


CASES = [(sickness, layout) for sickness in SICK for layout in sickness.layouts]
IDS = [f"{sickness.name}-{layout}" for sickness, layout in CASES]
