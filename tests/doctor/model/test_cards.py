"""Which card a run takes: what CUDA shows of a machine, and what the run asks for of that."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch.cuda

from zdoctor.doctor.model import Gpu, Run, Unknown
from zdoctor.doctor.model.cards import sharing, taken, visible
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.tests.models import run_of


def card(index: int, name: str = "RTX A6000", capability: tuple[int, int] = (8, 6), uuid: str = "") -> Gpu:
    return Gpu(index, name, 48 << 30, 47 << 30, capability, "580", "recorded", uuid)


UUIDS = ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-89aa0001-0000-0000-0000-000000000001", "GPU-f1")
ALIKE = tuple(card(index, uuid=uuid) for index, uuid in enumerate(UUIDS))
UNLIKE = (card(0, "GT 1030", (6, 1)), card(1, "RTX 4090", (8, 9)))
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

# CUDA_VISIBLE_DEVICES on three cards that are alike: what NVML calls those that are left.
LISTS = [
    ("0", [0]),
    ("1", [1]),
    ("2,1", [2, 1]),
    (" 1 , 2", [1, 2]),
    ("+1", [1]),
    ("1a,2x", [1, 2]),
    ("0,2,-1,1", [0, 2]),
    ("0,7,1", [0]),
    ("0,,1", [0]),
    ("1,GPU-f1", [1]),
    ("7", []),
    ("9" * 4000, []),
    ("-1", []),
    ("", []),
    (" ", []),
    ("none", []),
    ("all", []),
    ("0,1,0", []),
    (UUIDS[1], [1]),
    ("GPU-8932f937", [0]),
    ("GPU-f1,GPU-893", [2, 0]),
    ("GPU-89", []),
    ("GPU-f1,GPU-89,GPU-893", [2]),
    ("GPU-f1,0", [2]),
    ("GPU-77", []),
    ("GPU-f1,GPU-f1", []),
    ("GPU-f1,GPU-f", []),
]


@pytest.mark.parametrize(("written", "numbers"), LISTS)
def test_what_is_left_visible(written: str, numbers: list[int]) -> None:
    seen = visible(ALIKE, {"CUDA_VISIBLE_DEVICES": written})
    assert seen == tuple((ALIKE[number],) for number in numbers)


@pytest.mark.parametrize(("written", "numbers"), LISTS)
def test_torch_reads_the_list_alike(written: str, numbers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform == "win32" and not written:
        pytest.skip("an empty variable is none there")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", written)
    read = torch.cuda._parse_visible_devices()
    names = [word for word in read if isinstance(word, str)]
    found = [number for number in read if isinstance(number, int)]
    found = found[: next((place for place, number in enumerate(found) if number >= len(UUIDS)), len(found))]
    if names:
        found = torch.cuda._transform_uuid_to_ordinals(names, list(UUIDS))
    assert found == numbers


def test_without_the_variable_all_are_visible() -> None:
    assert visible(ALIKE, {}) == tuple((gpu,) for gpu in ALIKE)
    assert visible((), {}) == visible((), {"CUDA_VISIBLE_DEVICES": "0"}) == ()


def test_a_slice_of_a_card_is_not_known() -> None:
    for written in ("MIG-GPU-8932f937/1/0", "MIG-1b9e"):
        assert isinstance(visible(ALIKE, {"CUDA_VISIBLE_DEVICES": written}), Unknown)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, [(0, 1), (0, 1)]),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, [(0, 1), (0, 1)]),
        ({"CUDA_VISIBLE_DEVICES": "0"}, [(0, 1)]),
        ({"CUDA_VISIBLE_DEVICES": "1,1"}, []),
        (BY_BUS, [(0,), (1,)]),
        ({**BY_BUS, "CUDA_VISIBLE_DEVICES": "1"}, [(1,)]),
        ({**BY_BUS, "CUDA_VISIBLE_DEVICES": "1,0"}, [(1,), (0,)]),
    ],
)
def test_of_unlike_cards_the_order_is_known_by_bus_alone(
    environment: dict[str, str], expected: list[tuple[int, ...]]
) -> None:
    seen = visible(UNLIKE, environment)
    assert not isinstance(seen, Unknown)
    assert [tuple(gpu.index for gpu in candidates) for candidates in seen] == expected


def test_a_name_by_uuid_needs_no_order() -> None:
    named = tuple(replace(gpu, uuid=uuid) for gpu, uuid in zip(UNLIKE, UUIDS, strict=False))
    assert visible(named, {"CUDA_VISIBLE_DEVICES": "GPU-89aa"}) == ((named[1],),)


def test_cards_whose_uuid_was_not_recorded_may_all_be_meant() -> None:
    old = (card(0), card(1))
    assert visible(old, {"CUDA_VISIBLE_DEVICES": "GPU-89aa"}) == (old,)
    assert visible(old[:1], {"CUDA_VISIBLE_DEVICES": "GPU-89aa"}) == (old[:1],)


OURS, THEIRS = replace(run_of("m"), trainer=RUNNER), run_of("m")


@pytest.mark.parametrize(
    ("run", "device", "environment", "number"),
    [
        (OURS, "cuda", {}, 0),
        (OURS, "cuda:2", {}, 2),
        (OURS, "cuda:1", {"CUDA_VISIBLE_DEVICES": "2,0"}, 0),
        (OURS, "cuda", {"LOCAL_RANK": "1"}, 1),
        (OURS, "cuda", {"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "1,2"}, 2),
        (OURS, "cuda:0", {"LOCAL_RANK": "1"}, 0),
        (OURS, "cuda", {"LOCAL_RANK": "abc"}, "LOCAL_RANK is abc"),
        (OURS, "cuda", {"CUDA_VISIBLE_DEVICES": "1"}, 1),
        (OURS, "cuda", {"CUDA_VISIBLE_DEVICES": ""}, None),
        (OURS, "cuda:1", {"CUDA_VISIBLE_DEVICES": ""}, None),
        (OURS, "cpu", {}, None),
        (OURS, "mps", {}, None),
        (OURS, "cuda:3", {}, "the last card that CUDA shows is cuda:2"),
        (OURS, "cuda:1", {"CUDA_VISIBLE_DEVICES": "2"}, "the last card that CUDA shows is cuda:0"),
        (OURS, "gpu", {}, "there is no device gpu"),
        (OURS, "cuda:" + "9" * 5000, {}, "there is no device cuda:99"),
        (OURS, "cuda", {"CUDA_VISIBLE_DEVICES": "MIG-1"}, "MIG"),
        (THEIRS, "cuda", {}, 0),
        (THEIRS, "cuda:1", {}, 0),  # the trainer never looks at it
        (THEIRS, "cpu", {}, 0),
        (THEIRS, "cuda:1", {"CUDA_VISIBLE_DEVICES": "2"}, 2),
        (THEIRS, "cuda", {"CUDA_VISIBLE_DEVICES": "-1"}, None),
    ],
)
def test_the_card_that_a_run_takes(
    run: Run, device: str, environment: dict[str, str], number: int | str | None
) -> None:
    found = taken(replace(run, device=device), ALIKE, environment)
    if isinstance(number, str):
        assert isinstance(found, Unknown) and number in found.reason
    else:
        assert found == (() if number is None else (ALIKE[number],))


@pytest.mark.parametrize(
    ("gpus", "environment", "count"),
    [
        (ALIKE, {}, 3),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "1,2"}, 2),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "1,-1,2"}, 1),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "GPU-f1,GPU-893"}, 2),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": ""}, 1),
        (UNLIKE, {}, 1),
        (UNLIKE, BY_BUS, 1),
        ((), {}, 1),
    ],
)
def test_cards_that_are_alike_share_a_run(gpus: tuple[Gpu, ...], environment: dict[str, str], count: int) -> None:
    seen = visible(gpus, environment)
    assert not isinstance(seen, Unknown) and sharing(seen) == count
