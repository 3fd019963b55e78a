"""Kept weights are those that would be made again, and only ever served for exactly the files they were made of."""

from __future__ import annotations

import copy
import errno
import json
import mmap
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from zdoctor.doctor.train.kernels.quantized_linear import Quantization, QuantizedLinear
from zdoctor.doctor.train.runtime.run_lock import try_lock
from zdoctor.doctor.train.transformer import load_transformer as load
from zdoctor.doctor.train.weights import materialize as install
from zdoctor.doctor.train.weights import weight_cache as weights
from zdoctor.doctor.train.weights.safetensors_files import (
    DTYPES,
    TensorEntry,
    read_header,
    stream_tensors,
    tensor_entries,
    weight_files,
)
from zdoctor.doctor.train.weights.training_adapter import read_training_adapter
from zdoctor.doctor.train.weights.weight_cache import WeightCache, cache_folder, map_tensors

from ..patient import Recorder, go, run_with

CPU = torch.device("cpu")
KINDS: tuple[Quantization, ...] = ("int8", "float8", "nf4")
Change = Callable[[Path], object]


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that a test has just written count as settled."""
    monkeypatch.setattr(weights, "SETTLED_NS", -(10**18))


@pytest.fixture
def transformer(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny / "transformer", tmp_path / "transformer"))


class Loaded(NamedTuple):
    model: nn.Module
    read: int
    notes: list[str]


def start(
    folder: Path,
    kept: Path,
    kind: Quantization = "int8",
    *,
    dtype: torch.dtype = torch.float32,
    adapter: Path | None = None,
    digest: str = "none",
) -> Loaded:
    """Load as a run does; `read` counts the tensors that were read from the base's files."""
    model = load.build_empty_transformer(folder)
    deltas = {} if adapter is None else read_training_adapter(adapter, install.linear_shapes(model))
    notes: list[str] = []
    read = 0

    def counted(entries: list[TensorEntry]) -> Iterator[tuple[TensorEntry, torch.Tensor]]:
        nonlocal read
        for each in stream_tensors(entries):
            read += 1
            yield each

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(install, "stream_tensors", counted)
        cache = WeightCache(kept, digest, notes.append)
        load.fill_transformer(model, folder, quantization=kind, adapter=deltas, dtype=dtype, device=CPU, cache=cache)
    return Loaded(model, read, notes)


def same(a: nn.Module, b: nn.Module) -> bool:
    one, other = a.state_dict(), b.state_dict()
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name].float(), other[name].float()) for name in one
    )


def files(kept: Path) -> list[Path]:
    return sorted(kept.glob("*.safetensors"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_second_start_maps_what_the_first_has_made(
    transformer: Path, tmp_path: Path, kind: Quantization, dtype: torch.dtype
) -> None:
    first = start(transformer, tmp_path / "kept", kind, dtype=dtype)
    second = start(transformer, tmp_path / "kept", kind, dtype=dtype)
    assert first.read and not second.read
    assert same(first.model, second.model)
    (file,) = files(tmp_path / "kept")
    assert len(first.notes) == 1 and str(tmp_path / "kept") in first.notes[0] and not second.notes
    content = load_file(str(file))  # plain safetensors, for any program
    assert content["layers.0.attention.to_q.scale"].shape[0] == 96
    module = second.model.get_submodule("layers.0.attention.to_q")
    assert isinstance(module, QuantizedLinear)
    with torch.no_grad():
        module.codes.fill_(0)  # a private map: nothing that a run does reaches the file
    assert same(first.model, start(transformer, tmp_path / "kept", kind, dtype=dtype).model)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_a_file_larger_than_the_memory_that_is_promised_is_mapped(tmp_path: Path) -> None:
    """A map that could be written to counts as memory of the process, here under its limit for data."""
    import resource

    size = 256 << 20
    file = tmp_path / "weights"
    with file.open("wb") as opened:
        opened.truncate(size)
    taken = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (1024 * int(taken.split()[1]) + size // 4, before[1]))
    try:
        with file.open("rb") as opened, warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(OSError, match="Cannot allocate memory"):
                mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
            (value,) = map_tensors(opened.fileno(), [TensorEntry("codes", file, "I8", (size,), 0, size)]).values()
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    assert value.shape == (size,) and not value[:: 1 << 20].any()


def test_tensors_lie_where_their_numbers_are_aligned(transformer: Path, tmp_path: Path) -> None:
    start(transformer, tmp_path / "kept", dtype=torch.bfloat16)
    (file,) = files(tmp_path / "kept")
    for entry in read_header(file):
        assert entry.start % DTYPES[entry.dtype].itemsize == 0, entry


def test_weights_that_are_not_quantized_are_not_kept(transformer: Path, tmp_path: Path) -> None:
    assert start(transformer, tmp_path / "kept", "none").read
    assert not (tmp_path / "kept").exists()


def change_one_number(folder: Path) -> None:
    """In place and with the file's old modification time, as a tool that hides its traces would."""
    shard = sorted(folder.glob("*.safetensors"))[0]
    entry = read_header(shard)[-1]
    times = shard.stat()
    with shard.open("r+b") as file:
        file.seek(entry.start + entry.size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 64]))
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))


def train_on(folder: Path) -> None:
    shard = sorted(folder.glob("*.safetensors"))[-1]
    tensors = load_file(str(shard))
    save_file({name: value * 1.001 for name, value in tensors.items()}, str(shard), metadata={"format": "pt"})


def touch(folder: Path) -> None:
    os.utime(sorted(folder.glob("*.safetensors"))[0])


@pytest.mark.parametrize("change", [change_one_number, train_on, touch])
def test_a_base_that_changed_is_read_again(transformer: Path, tmp_path: Path, change: Change) -> None:
    start(transformer, tmp_path / "kept")
    change(transformer)
    again = start(transformer, tmp_path / "kept")
    assert again.read
    assert same(again.model, start(transformer, tmp_path / "none yet").model)


def test_what_another_version_has_kept_is_made_anew(
    transformer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(weights, "VERSION", weights.VERSION - 1)
        start(transformer, tmp_path / "kept")
    assert start(transformer, tmp_path / "kept").read
    assert not start(transformer, tmp_path / "kept").read


def test_where_times_tell_nothing_the_samples_do(transformer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Times(NamedTuple):
        st_size: int
        st_mtime_ns: int = 0
        st_ctime_ns: int = 0

    stat = os.fstat
    monkeypatch.setattr(os, "fstat", lambda descriptor: Times(stat(descriptor).st_size))
    entries = list(tensor_entries(weight_files(transformer)).values())
    before = weights.weight_key(entries)
    touch(transformer)
    assert weights.weight_key(entries) == before
    change_one_number(transformer)
    assert weights.weight_key(entries) != before


def test_other_formats_types_and_adapters_have_weights_of_their_own(
    transformer: Path, adapter: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    plain = start(transformer, kept)
    merged = start(transformer, kept, adapter=adapter, digest="one")
    assert merged.read and not same(plain.model, merged.model)
    assert start(transformer, kept, adapter=adapter, digest="another").read
    assert start(transformer, kept, "float8").read
    assert start(transformer, kept, dtype=torch.bfloat16).read
    assert not start(transformer, kept).read
    assert same(merged.model, start(transformer, kept, adapter=adapter, digest="one").model)
    assert len(files(kept)) == 5


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def lengthen(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")


def damage_header(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content.replace(b"layers.1.", b"layers.7.", 1))


def replace_by_zeros(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


@pytest.mark.parametrize("damage", [cut, empty, lengthen, damage_header, replace_by_zeros])
def test_a_damaged_file_is_made_again(transformer: Path, tmp_path: Path, damage: Change) -> None:
    first = copy.deepcopy(start(transformer, tmp_path / "kept").model)  # not a map of what is damaged now
    damage(files(tmp_path / "kept")[0])
    again = start(transformer, tmp_path / "kept")
    assert again.read and same(first, again.model)
    assert not start(transformer, tmp_path / "kept").read


def test_a_folder_in_the_place_of_the_file_hinders_nothing(transformer: Path, tmp_path: Path) -> None:
    first = start(transformer, tmp_path / "kept")
    (file,) = files(tmp_path / "kept")
    file.unlink()
    file.mkdir()
    again = start(transformer, tmp_path / "kept")
    assert same(first.model, again.model) and "not kept" in again.notes[0]


def test_a_file_that_changed_a_moment_ago_is_not_taken_for_settled(
    transformer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "SETTLED_NS", 3600 * 10**9)
    assert start(transformer, tmp_path / "kept").read
    assert not (tmp_path / "kept").exists()


def test_a_base_that_changes_while_it_is_read_is_read_again_and_not_kept(transformer: Path, tmp_path: Path) -> None:
    read = install.read_tensors

    def read_and_change(*arguments: object) -> object:
        yield from read(*arguments)  # type: ignore[arg-type]
        train_on(transformer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load, "read_tensors", read_and_change)
        (note,) = start(transformer, tmp_path / "kept").notes
    assert "changed while they were read" in note
    assert [file.name for file in (tmp_path / "kept").iterdir()] == [".lock"]


def test_a_full_disk_keeps_nothing_and_stops_nothing(
    transformer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage(NamedTuple):
        total: int = 10**9
        used: int = 10**9 - 10**6
        free: int = 10**6

    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage())
    loaded = start(transformer, tmp_path / "kept")
    assert loaded.read and not files(tmp_path / "kept")
    assert "1.0 MB free" in loaded.notes[0] and "ZDOCTOR_CACHE" in loaded.notes[0]


def test_a_disk_that_fills_up_meanwhile_stops_nothing(transformer: Path, tmp_path: Path) -> None:
    parts = weights._parts

    def full(*arguments: object) -> object:
        for number, part in enumerate(parts(*arguments)):  # type: ignore[arg-type]
            if number == 20:
                raise OSError(errno.ENOSPC, "No space left on device")
            yield part

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "_parts", full)
        loaded = start(transformer, tmp_path / "kept")
    assert "No space left" in loaded.notes[0]
    assert [file.name for file in (tmp_path / "kept").iterdir()] == [".lock"]
    assert same(loaded.model, start(transformer, tmp_path / "kept").model)


def test_what_cannot_be_written_is_not_kept(transformer: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("a file in the place of the folder")
    loaded = start(transformer, tmp_path / "kept")
    assert loaded.read and "not kept" in loaded.notes[0]


def test_a_kill_while_writing_leaves_nothing_that_is_taken_for_whole(transformer: Path, tmp_path: Path) -> None:
    class Killed(BaseException): ...

    parts = weights._parts

    def half(*arguments: object) -> object:
        for number, part in enumerate(parts(*arguments)):  # type: ignore[arg-type]
            if number == 20:
                raise Killed
            yield part

    kept = tmp_path / "kept"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "_parts", half)
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # nobody tidies up after a kill
        with pytest.raises(Killed):
            start(transformer, kept)
    assert len(list(kept.glob(".*.part"))) == 1 and not files(kept)
    assert start(transformer, kept).read
    assert not list(kept.glob(".*.part")) and len(files(kept)) == 1


def test_only_one_process_writes(transformer: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    part = kept / ".being-written.part"
    part.touch()
    with (kept / ".lock").open("ab") as held:
        assert try_lock(held.fileno())
        assert start(transformer, kept).read
        assert part.exists() and not files(kept)
    start(transformer, kept)
    assert not part.exists() and len(files(kept)) == 1


def test_weights_that_nobody_used_for_a_month_make_room(transformer: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    start(transformer, kept)
    start(transformer, kept, "float8")
    for file in files(kept):
        os.utime(file, (0, 0))
    start(transformer, kept)  # used: its time is now
    start(transformer, kept, dtype=torch.bfloat16)
    assert len(files(kept)) == 2
    assert not start(transformer, kept).read
    assert start(transformer, kept, "float8").read


def test_the_folder_is_the_users_cache_or_the_one_that_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ZDOCTOR_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path / "weights"
    monkeypatch.delenv("ZDOCTOR_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    if os.name == "posix" and os.uname().sysname == "Linux":
        assert cache_folder() == tmp_path / "xdg" / "zdoctor" / "weights"


def test_a_run_on_kept_weights_is_the_same_run(tiny: Path, circles: Path, tmp_path: Path) -> None:
    first, second = Recorder(), Recorder()
    made = go(run_with(), tiny, circles, tmp_path / "a", progress=first)
    mapped = go(run_with(), tiny, circles, tmp_path / "b", progress=second)
    assert any("the next start maps them" in note for note in first.notes)
    assert not any("the next start maps them" in note for note in second.notes)
    assert made.losses == mapped.losses
    a, b = load_file(made.lora), load_file(mapped.lora)
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_the_header_says_what_the_weights_were_made_of(transformer: Path, tmp_path: Path) -> None:
    start(transformer, tmp_path / "kept")
    (file,) = files(tmp_path / "kept")
    content = file.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    words = json.loads(header["__metadata__"]["zdoctor"])
    assert words["quantization"] == "int8" and words["adapter"] == "none" and words["dtype"] == "float32"
