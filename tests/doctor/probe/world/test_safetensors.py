"""The header reader agrees with the safetensors library on every file, sound or damaged."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from zdoctor.doctor.model import Tensor, WeightFile
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.world.safetensors import (
    BadFile,
    parse_metadata,
    parse_tensors,
    parse_tree,
    read_weight_file,
)


def read(path: Path) -> WeightFile:
    return read_weight_file(LiveWorld(), str(path), path.name)


def packed(header: object, data: int = 8, padding: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += padding
    return len(text).to_bytes(8, "little") + text + b"\0" * data


def entry(begin: int = 0, end: int = 8, dtype: str = "F32", shape: Any = (2,)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


SOUND = {
    "one": packed({"a": entry()}),
    "spaces after": packed({"a": entry()}, padding=b"   "),
    "spaces before": packed(b"  " + json.dumps({"a": entry()}).encode()),
    "metadata": packed({"__metadata__": {"format": "pt"}, "a": entry()}),
    "scalar and empty": packed(
        {"a": entry(0, 4, shape=[]), "b": entry(4, 4, shape=[0, 7]), "c": entry(4, 8, "I32", [1])}
    ),
    "no tensors": packed({}, 0),
    "any order": packed({"b": entry(8, 16), "a": entry()}, 16),
    "twice the same": packed(
        b'{"a":' + json.dumps(entry()).encode() + b',"a":' + json.dumps(entry()).encode() + b"}"
    ),
    "sub-byte": packed({"a": entry(0, 8, "F4", [16])}),
    "extra field": packed({"a": {**entry(), "note": 1}}),
}
DAMAGED = {
    "nothing": (b"", "empty"),
    "seven bytes": (b"1234567", "truncated"),
    "data cut": (packed({"a": entry()}, 7), "truncated"),
    "header cut": (packed({"a": entry()})[:30], "truncated"),
    "one byte more": (packed({"a": entry()}, 9), "bad-header"),
    "hole": (packed({"a": entry(), "b": entry(12, 20)}, 20), "bad-header"),
    "overlap": (packed({"a": entry(), "b": entry(4, 12)}, 12), "bad-header"),
    "wrong product": (packed({"a": entry(shape=[3])}), "bad-header"),
    "negative": (packed({"a": entry(shape=[-2])}), "bad-header"),
    "float": (packed({"a": entry(shape=[2.0])}), "bad-header"),
    "huge": (packed({"a": entry(shape=[1 << 63, 1 << 63, 0])}), "bad-header"),
    "long number": (packed(b'{"a":' + b"9" * 5000 + b"}"), "bad-header"),
    "dtype": (packed({"a": entry(dtype="X9")}), "bad-header"),
    "no shape": (packed({"a": {"dtype": "F32", "data_offsets": [0, 8]}}), "bad-header"),
    "three offsets": (packed({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4, 8]}}), "bad-header"),
    "list": (packed([1, 2]), "bad-header"),
    "not a number": (packed(b'{"a": NaN}'), "bad-header"),
    "zeros": (b"\x10" + b"\0" * 63, "bad-header"),
    "latin": (packed(b'{"\xff": 1}'), "bad-header"),
    "metadata number": (packed({"__metadata__": {"a": 1}}, 0), "bad-header"),
    "deep": (packed(b"[" * 100_000), "bad-header"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "not-safetensors"),
    "page": (b"<!DOCTYPE html><html><body>Please log in</body></html>", "not-safetensors"),
    "json error": (b'{"error":"Repository not found"}', "not-safetensors"),
    "zip": (b"PK\x03\x04" + b"\x08" * 60, "not-safetensors"),
    "noise": (bytes(range(200, 256)) * 4, "not-safetensors"),
}


@pytest.mark.parametrize("case", SOUND)
def test_what_the_library_opens_has_no_problem(case: str, tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    file.write_bytes(SOUND[case])
    with safe_open(file, "pt") as opened:
        names = set(opened.keys())
    seen = read(file)
    assert seen.problem is None, seen.detail
    assert set(seen.tensors) == names


@pytest.mark.parametrize("case", DAMAGED)
def test_what_the_library_refuses_has_its_problem_named(case: str, tmp_path: Path) -> None:
    content, problem = DAMAGED[case]
    file = tmp_path / "w.safetensors"
    file.write_bytes(content)
    with pytest.raises((SafetensorError, OSError, ValueError)), safe_open(file, "pt") as opened:
        opened.keys()
    seen = read(file)
    assert seen.problem == problem
    assert seen.detail


def test_a_header_whose_length_spells_a_brace_is_no_json_text(tmp_path: Path) -> None:
    text = json.dumps({"a": entry()}).encode()
    file = tmp_path / "w.safetensors"
    file.write_bytes(packed(text, padding=b" " * (int.from_bytes(b'{"', "little") - len(text))))
    assert file.read_bytes()[:2] == b'{"'
    assert read(file).problem is None


def test_pickles_are_named_and_not_opened(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "boom"),))

    for name in ("m.bin", "m.pt", "m.ckpt"):
        torch.save(Bomb(), tmp_path / name)
        assert read(tmp_path / name).problem == "pickle"
    assert not (tmp_path / "boom").exists()
    torch.save({"a": torch.zeros(2)}, tmp_path / "m.safetensors")
    assert read(tmp_path / "m.safetensors").problem == "not-safetensors"
    assert "pickle" in read(tmp_path / "m.safetensors").detail


def test_a_real_file_through_a_link_and_what_is_no_file(tmp_path: Path) -> None:
    real = tmp_path / "blob"
    save_file({"a": torch.zeros(2, 3, dtype=torch.bfloat16), "b": torch.zeros(0)}, real)
    link = tmp_path / "w.safetensors"
    link.symlink_to("blob")
    seen = read(link)
    assert seen.problem is None
    assert seen.tensors == {"a": Tensor("BF16", (2, 3)), "b": Tensor("F32", (0,))}
    assert seen.size == real.stat().st_size
    real.unlink()
    assert read(link).problem == "missing"
    assert read(tmp_path).problem == "unreadable"
    assert read(tmp_path / "absent").problem == "missing"


def test_headers_beyond_the_first_read(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    save_file({f"layers.{n}.attention.to_q.weight": torch.zeros(1) for n in range(4000)}, file)
    seen = read(file)
    assert seen.problem is None
    assert len(seen.tensors) == 4000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
entries = st.fixed_dictionaries({"dtype": json_values, "shape": json_values, "data_offsets": json_values})
headers = st.dictionaries(st.text(max_size=4), json_values | entries).map(lambda value: json.dumps(value).encode())


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60) | headers)
def test_any_header_is_read_or_refused(header: bytes) -> None:
    try:
        tree = parse_tree(header)
        metadata = parse_metadata(tree)
        tensors, end = parse_tensors(header, tree)
    except BadFile as error:
        assert 0 < len(str(error)) < 300
    else:
        assert end >= 0 and all(isinstance(tensor, Tensor) for tensor in tensors.values())
        assert all(isinstance(text, str) for text in metadata.values())


@pytest.mark.parametrize("side", ["true", "1.0", "1e0"])
def test_what_python_takes_for_a_one_is_none(side: str, tmp_path: Path) -> None:
    """Beside a tensor of the honest shape, which is examined once for all that have it."""
    honest = '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    text = f'{{{honest},"b":{{"dtype":"F32","shape":[{side}],"data_offsets":[4,8]}}}}'.encode()
    file = tmp_path / "x.safetensors"
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(SafetensorError):
        safe_open(file, "np")
    assert read_weight_file(LiveWorld(), str(file), "x").problem == "bad-header"
