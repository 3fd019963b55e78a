"""The hub probe on machines of either kind, and on caches that were made to mislead it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zdoctor.doctor.model import Hub, HubRepo, Unknown
from zdoctor.doctor.probe.hub import probe_hub
from zdoctor.doctor.probe.hub.caches import caches, is_repo_id
from zdoctor.doctor.probe.recorded import SCHEMA, RecordedWorld
from zdoctor.tests.hub_cases import run_with
from zdoctor.tests.hub_server import etag, git_sha1, sha256

COMMIT = "c" * 40
POSIX = "/home/u/.cache/huggingface/hub"
WINDOWS = r"C:\Users\u\.cache\huggingface\hub"


def machine(os: str, files: dict[str, Any], environment: dict[str, str] | None = None, **more: Any) -> RecordedWorld:
    windows = os == "windows"
    system = {
        "os": os,
        "release": "",
        "python": "3.11.7",
        "cwd": r"D:\srv" if windows else "/srv",
        "home": r"C:\Users\u" if windows else "/home/u",
        "cpus": 2,
        "memory_total": 1 << 34,
        "memory_available": 1 << 33,
        "environment": environment or {},
    }
    told = {"schema": SCHEMA, "system": system, "files": files, "now_ns": 10**18, "packages": {}}
    return RecordedWorld({**told, **more})


def cached(os: str, model: dict[str, str], *, links: bool = True, ref: str = COMMIT) -> dict[str, Any]:
    """The files of a cache of acme/tiny, as a machine file has them."""
    sep = "\\" if os == "windows" else "/"
    repo = (WINDOWS if os == "windows" else POSIX) + sep + "models--acme--tiny"
    entries: dict[str, Any] = {sep.join([repo, "refs", "main"]): {"text": ref}}
    listing: dict[str, Any] = {}
    for name, text in model.items():
        data = text.encode()
        listing[name] = {"size": len(data), "blob_id": git_sha1(data)}
        if name.endswith(".safetensors"):
            listing[name] |= {"lfs_sha256": sha256(data), "lfs_size": len(data)}
        place = sep.join([repo, "snapshots", COMMIT, *name.split("/")])
        if links:
            up = [".."] * (2 + name.count("/"))
            entries[place] = {"link": sep.join([*up, "blobs", etag(name, data)])}
            entries[sep.join([repo, "blobs", etag(name, data)])] = {"text": text}
        else:
            entries[place] = {"text": text}
    entries[sep.join([repo, "trees", f"{COMMIT}.json"])] = {"json": {"format_version": 1, "files": listing}}
    return entries


EMPTY_WEIGHTS = "\x02\0\0\0\0\0\0\0{}"
MODEL = {"vae/config.json": "{}", "vae/diffusion_pytorch_model.safetensors": EMPTY_WEIGHTS, "README.md": "hi"}


def only_repo(world: RecordedWorld, model: str = "acme/tiny", *, deep: bool = False) -> HubRepo:
    hub = probe_hub(world, run_with(model), deep=deep)
    assert isinstance(hub, Hub), hub
    (repo,) = hub.repos
    return repo


def states(repo: HubRepo) -> dict[str, str]:
    return {file.name: file.state for file in repo.files if file.needed}


@pytest.mark.parametrize("os", ["linux", "windows"])
@pytest.mark.parametrize("links", [True, False])
def test_healthy(os: str, links: bool) -> None:
    repo = only_repo(machine(os, cached(os, MODEL, links=links)), deep=True)
    assert (repo.ref_state, repo.commit, repo.has_manifest, repo.usable) == ("ok", COMMIT, True, True)
    assert states(repo) == {"vae/config.json": "ok", "vae/diffusion_pytorch_model.safetensors": "ok"}
    assert all((file.blob is not None) == links for file in repo.files)
    assert all(file.verified for file in repo.files if file.needed)
    assert repo.complete == (COMMIT,)


@pytest.mark.parametrize("os", ["linux", "windows"])
@pytest.mark.parametrize("links", [True, False])
def test_damaged(os: str, links: bool) -> None:
    files = cached(os, MODEL, links=links)
    for path, entry in files.items():
        if entry.get("text") == EMPTY_WEIGHTS:
            files[path] = {"text": EMPTY_WEIGHTS[:-1]}
    assert states(only_repo(machine(os, files)))["vae/diffusion_pytorch_model.safetensors"] == "wrong-size"


@pytest.mark.parametrize(
    ("os", "environment", "expected"),
    [
        ("linux", {}, POSIX),
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ("linux", {"HF_HOME": "~/hf"}, "/home/u/hf/hub"),
        ("linux", {"HF_HOME": "$XDG_CACHE_HOME/../hf", "XDG_CACHE_HOME": "/x/c"}, "/x/hf/hub"),
        ("linux", {"HF_HOME": "/a", "HUGGINGFACE_HUB_CACHE": "/b"}, "/b"),
        ("linux", {"HF_HOME": "/a", "HUGGINGFACE_HUB_CACHE": "/b", "HF_HUB_CACHE": "/c"}, "/c"),
        ("linux", {"HF_HUB_CACHE": "here"}, "/srv/here"),
        ("linux", {"HF_HUB_CACHE": "$NOT_SET/x"}, "/srv/$NOT_SET/x"),
        ("windows", {}, WINDOWS),
        ("windows", {"HF_HOME": r"D:\hf"}, r"D:\hf\hub"),
        ("windows", {"HF_HOME": r"~\hf"}, r"C:\Users\u\hf\hub"),
        ("windows", {"HF_HOME": r"%hf_home_root%\hf", "HF_HOME_ROOT": "E:"}, r"E:\hf\hub"),
        ("windows", {"HF_HOME": '"D:\\hf"'}, 'D:\\srv\\"D:\\hf"\\hub'),
    ],
)
def test_where_the_cache_lies(os: str, environment: dict[str, str], expected: str) -> None:
    assert caches(machine(os, {}, environment))[0] == expected


@pytest.mark.parametrize(
    ("text", "is_id"),
    [
        *((good, True) for good in ("Tongyi-MAI/Z-Image-Turbo", "a/b", "org/name.v1_2")),
        *(
            (bad, False)
            for bad in ("name", "a/b/c", "../x", "a/..", "/abs", "a/b--c", "-a/b", "a/b.", "C:/x", "a\\b", "")
        ),
    ],
)
def test_repo_id(text: str, is_id: bool) -> None:
    assert is_repo_id(text) == is_id


def test_local_folder_is_no_repo_id() -> None:
    world = machine("linux", {"/srv/models/z-image/model_index.json": {"text": "{}"}})
    hub = probe_hub(world, run_with("models/z-image"))
    assert isinstance(hub, Hub) and hub.repos == ()


def test_adapter_is_only_its_file() -> None:
    files = cached("linux", {"v1.safetensors": EMPTY_WEIGHTS, "v2.safetensors": EMPTY_WEIGHTS + " "})
    hub = probe_hub(machine("linux", files), run_with(None, adapter="acme/tiny/v1.safetensors"))
    assert isinstance(hub, Hub)
    assert states(hub.repos[0]) == {"v1.safetensors": "ok"}
    assert hub.repos[0].used_by == ("adapter",)


@pytest.mark.parametrize(
    ("content", "state", "serves"),
    [
        (COMMIT, "ok", True),
        (COMMIT + "\n", "malformed", True),
        ("", "malformed", True),
        ("f" * 40, "dangling", True),
        ("../../../etc", "malformed", True),
        (COMMIT.upper(), "malformed", True),
        ("\0" * 40, "malformed", True),
        ("c" * 1_000_000, "malformed", True),
    ],
)
def test_ref(content: str, state: str, serves: bool) -> None:
    repo = only_repo(machine("linux", cached("linux", MODEL, ref=content)))
    assert (repo.ref_state, repo.commit == COMMIT) == (state, serves)
    assert len(repo.ref_content) <= 80


def test_ref_that_is_a_folder_or_absent() -> None:
    files = cached("linux", MODEL)
    path = f"{POSIX}/models--acme--tiny/refs/main"
    files[path] = {"folder": True}
    assert only_repo(machine("linux", files)).ref_state == "malformed"
    del files[path]
    assert only_repo(machine("linux", files)).ref_state == "absent"


def test_nothing_cached() -> None:
    repo = only_repo(machine("linux", {}))
    assert (repo.commit, repo.snapshots, repo.files, repo.usable) == (None, (), (), False)


def test_loop_of_links_is_a_dangling_file() -> None:
    files = cached("linux", MODEL)
    folder = f"{POSIX}/models--acme--tiny/snapshots/{COMMIT}/vae"
    files[f"{folder}/config.json"] = {"link": "other.json"}
    files[f"{folder}/other.json"] = {"link": "config.json"}
    assert states(only_repo(machine("linux", files)))["vae/config.json"] == "dangling"


def test_unreadable_folder_is_unknown() -> None:
    files = cached("linux", MODEL)
    files[f"{POSIX}/models--acme--tiny/snapshots/{COMMIT}/vae/config.json"] = {"unknown": "permission denied"}
    assert probe_hub(machine("linux", files), run_with("acme/tiny")) == Unknown("permission denied")


HOSTILE = (
    *("../../../../etc/passwd", "/etc/passwd", "vae/../../x", "C:/x", "C:\\x", "..\\x", "a\0b", "", ".", "a//b"),
    *("vae/", "\\\\server\\share\\x", "a\nb", "x" * 5000),
)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_name_in_the_manifest_is_never_followed(name: str) -> None:
    files = cached("linux", MODEL)
    path = f"{POSIX}/models--acme--tiny/trees/{COMMIT}.json"
    listing = files[path]["json"]["files"]
    files[path] = {"json": {"format_version": 1, "files": {name: {"size": 1, "blob_id": "0" * 40}, **listing}}}
    repo = only_repo(machine("linux", files))
    assert not repo.has_manifest
    assert [f.state for f in repo.files if f.name.startswith("trees/")] == ["broken-structure"]
    assert all(f.path.startswith(POSIX) and ".." not in f.path for f in repo.files)


@pytest.mark.parametrize("shard", HOSTILE)
def test_hostile_name_in_an_index_is_never_followed(shard: str) -> None:
    name = "vae/diffusion_pytorch_model.safetensors.index.json"
    files = cached("linux", {**MODEL, name: json.dumps({"weight_map": {"t": shard}})})
    del files[f"{POSIX}/models--acme--tiny/trees/{COMMIT}.json"]
    repo = only_repo(machine("linux", files))
    assert set(states(repo).values()) == {"ok"}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_ENTRY = st.fixed_dictionaries({}, optional={"size": _JSON, "blob_id": _JSON, "lfs_sha256": _JSON})
_LISTING = st.fixed_dictionaries(
    {"format_version": st.just(1), "files": _JSON | st.dictionaries(st.text() | st.sampled_from(list(MODEL)), _ENTRY)}
)


@given(manifest=_LISTING | _JSON, index=_JSON | st.fixed_dictionaries({"weight_map": _JSON}), ref=st.text())
def test_no_content_makes_it_raise(manifest: object, index: object, ref: str) -> None:
    files = cached("linux", MODEL, ref="x")
    repo = f"{POSIX}/models--acme--tiny"
    files[f"{repo}/refs/main"] = {"text": ref.encode("utf-8", "replace").decode()}
    files[f"{repo}/trees/{COMMIT}.json"] = {"text": json.dumps(manifest)}
    files[f"{repo}/snapshots/{COMMIT}/vae/model.safetensors.index.json"] = {"text": json.dumps(index)}
    hub = probe_hub(machine("linux", files), run_with("acme/tiny"), deep=True)
    assert isinstance(hub, Hub)
    assert all(file.path.startswith(repo) for file in hub.repos[0].files)
