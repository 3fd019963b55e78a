"""What a run will surely write: lower bounds of what the real libraries put on the disk, where that is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from zdoctor.doctor.families.network import lokr_shapes
from zdoctor.doctor.families.tensors import block_linears
from zdoctor.doctor.memory.disk_space import Need, needs, saves
from zdoctor.doctor.model import DatasetFolder, Hub, HubFile, HubRepo, Image, Room, Run, Unknown, Value, Where
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.probe.files import LITTLE, probe_room
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.world import Mount
from zdoctor.doctor.train.output.checkpoint_files import write_state
from zdoctor.doctor.train.step.trainer import TrainingState
from zdoctor.tests.changes import changed
from zdoctor.tests.models import healthy, probed, run_of

NOTHING = Unknown("not looked at")
PICTURES = tuple(Image(f"/d/{n}.png", 1024, 512, True) for n in range(3))
DATA = DatasetFolder("datasets/0", "/d", PICTURES)


def run(**changes: Any) -> Run:
    return changed(run_of(healthy()), **changes)


def wanted(asked: Run, **seen: Any) -> dict[str, int]:
    facts = {"model": probed(asked), "datasets": NOTHING, "hub": NOTHING, "output": "/out", **seen}
    goes_on, output = facts.pop("goes_on", False), facts["output"]
    found: list[Need] = list(needs(asked, **facts))
    found += [] if output is None else saves(asked, facts["model"], output, goes_on=goes_on)
    return {need.what: need.size for need in found}


@pytest.mark.parametrize("dtype", ["float16", "fp32", "bf16"])
def test_a_lora_is_at_least_as_large_as_computed(dtype: str, tmp_path: Path) -> None:
    asked = run(rank=8, save_dtype=dtype, steps=10, optimizer="sgd")
    model = probed(asked)
    kind = {"float16": torch.float16, "fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    tensors = {}
    for name, (outputs, inputs) in block_linears(model.components["transformer"].needed or {}, ("layers",)).items():
        tensors[f"diffusion_model.{name}.lora_A.weight"] = torch.zeros(8, inputs, dtype=kind)
        tensors[f"diffusion_model.{name}.lora_B.weight"] = torch.zeros(outputs, 8, dtype=kind)
    save_file(tensors, tmp_path / "a.safetensors")
    real = (tmp_path / "a.safetensors").stat().st_size
    computed = wanted(asked)["the LoRA of rank 8"]
    assert 0.8 * real < computed < real


@pytest.mark.parametrize("optimizer", ["adamw", "adam"])
def test_the_state_of_the_optimizer_is_at_least_as_large(optimizer: str, tmp_path: Path) -> None:
    asked = run(rank=64, optimizer=optimizer)
    sizes = probed(asked).components["transformer"].needed or {}
    shapes = [side for sides in block_linears(sizes, ("layers",)).values() for side in sides]
    parameters = [torch.nn.Parameter(torch.zeros(64, side)) for side in shapes]
    stepped = torch.optim.AdamW(parameters)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    stepped.step()
    torch.save(stepped.state_dict(), tmp_path / "optimizer.pt")
    assert wanted(asked)["the state of the optimizer"] <= (tmp_path / "optimizer.pt").stat().st_size


@pytest.mark.parametrize("ema", [False, True])
def test_the_runners_state_holds_the_weights_too_and_a_new_one_is_written_beside_the_old(
    ema: bool, tmp_path: Path
) -> None:
    asked = run(trainer=RUNNER, rank=64, optimizer="adamw", use_ema=ema, steps=10, save_every=0)
    sizes = probed(asked).components["transformer"].needed or {}
    shapes = [side for sides in block_linears(sizes, ("layers",)).values() for side in sides]
    lora = {str(n): torch.nn.Parameter(torch.zeros(64, side)) for n, side in enumerate(shapes)}
    stepped = torch.optim.AdamW(lora.values())
    for parameter in lora.values():
        parameter.grad = torch.zeros_like(parameter)
    stepped.step()
    weights = {name: parameter.detach().clone() for name, parameter in lora.items()}
    average = {name: weight + 1 for name, weight in weights.items()} if ema else None
    write_state(tmp_path / "state.pt", TrainingState({}, 0, 1, [], weights, stepped.state_dict(), average))
    real = (tmp_path / "state.pt").stat().st_size
    one = wanted(asked)["the state of the run"]
    assert 0.8 * real < one < real
    assert wanted(changed(asked, checkpoints={"every": 5}))["the old and the new state of the run"] == 2 * one


def test_a_lokr_of_the_runner() -> None:
    asked = run(trainer=RUNNER, rank=4, network_type="lokr", save_dtype="fp32", steps=10, save_every=0)
    linears = block_linears(probed(asked).components["transformer"].needed or {}, ("layers",))
    numbers = sum(a * b for out, inputs in linears.values() for a, b in lokr_shapes(out, inputs, -1, None).values())
    assert wanted(asked)["the LoKr"] == 4 * numbers
    split = changed(asked, settings={**asked.settings, "network/lokr_full_rank": Value(False, Where("c"), 0, 0)})
    assert wanted(changed(split, checkpoints={"every": 5}))["2 LoKr files of rank 4"] > 0


@pytest.mark.parametrize(
    ("steps", "every", "keep", "files"),
    [(1000, 250, 5, 4), (3000, 250, 4, 5), (1000, 5000, 5, 1), (3000, 250, 0, 12), (10, 0, 5, 1), (1001, 250, 9, 5)],
)
def test_saves_that_are_kept_and_the_last_one(steps: int, every: int, keep: int, files: int) -> None:
    """A save at every multiple of save_every before the last step; 0 saves to keep removes none."""
    asked = run(steps=steps, save_every=every, keep_saves=keep)
    one = wanted(run(steps=1))["the LoRA of rank 4"]
    assert wanted(asked)[f"{files} LoRA files of rank 4" if files > 1 else "the LoRA of rank 4"] == files * one


def with_cache(**changes: Any) -> Run:
    asked = run(steps=1)
    return changed(asked, datasets=(replace(asked.recipe.datasets[0], cache_latents_to_disk=True, **changes),))


def test_latents_and_text_embeddings_at_their_least() -> None:
    asked = changed(with_cache(resolutions=(512, 768, 2048, 4096)), cache_text_embeddings=True)
    computed = wanted(asked, datasets=(DATA,))
    # 1024x512 has fewer pixels than 768x768: cached at the area of 512 and, once, as it is, in 16 channels of 2 bytes
    assert computed["the latents of the pictures"] == 3 * 2 * 16 * (736 * 352 + 1024 * 512) // 64
    assert computed["the text embeddings of the captions"] == 3 * 8 * 2 * 32
    flipped = wanted(with_cache(flip_x=True, flip_y=True), datasets=(DATA,))["the latents of the pictures"]
    assert flipped == 4 * wanted(with_cache(), datasets=(DATA,))["the latents of the pictures"]


def repo(*files: HubFile, used_by: tuple[str, ...] = ("base_model",)) -> HubRepo:
    return HubRepo("org/m", "/hub", "/hub/models--org--m", "ok", "", "", "c", "/s", True, files, used_by=used_by)


MISSING = HubFile("a.safetensors", "/s/a", None, "missing", 5_000, None)


@pytest.mark.parametrize(
    ("file", "size"),
    [
        (MISSING, 5_000),
        (replace(MISSING, prefix=("/hub/a.incomplete", 2_000)), 3_000),
        (replace(MISSING, good_copy="/b"), 0),
        (replace(MISSING, needed=False), 0),
        (replace(MISSING, size=None), 0),
        (replace(MISSING, state="ok"), 0),
    ],
)
def test_only_bytes_that_have_to_be_downloaded(file: HubFile, size: int) -> None:
    asked = run(rank=0)
    assert sum(wanted(asked, hub=Hub(("/hub",), (repo(file),))).values()) == size
    assert not sum(wanted(asked, hub=Hub(("/hub",), (repo(file),), offline=True)).values())
    assert not sum(wanted(asked, hub=Hub(("/hub",), (repo(file, used_by=()),))).values())


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "finetune"},
        {"network_type": "lokr"},
        {"architecture": "zimage_l2p"},
        {"settings": {"network/network_kwargs": Value({"conv_lora_dim": 4}, Where("c"), 0, 0)}},
        {"save_dtype": "odd", "optimizer": "sgd"},
    ],
)
def test_what_cannot_be_computed_counts_as_nothing(changes: dict[str, Any]) -> None:
    assert not sum(wanted(run(**changes)).values())
    cached = replace(DATA, others={".safetensors": 3})
    assert not sum(wanted(with_cache(), datasets=(cached,), output=None).values())
    assert not sum(wanted(run(), model=NOTHING, datasets=(DATA,)).values())


class OfFree(LiveWorld):
    """This machine, whose disks have so many bytes free."""

    def __init__(self, free: int) -> None:
        super().__init__()
        self.free = free

    def mount(self, path: str) -> Mount:
        return Mount("/disk", "ext4", False, self.free)


@pytest.mark.parametrize(("free", "known"), [(5 << 30, False), (LITTLE, True), (0, False)])
def test_saves_of_an_unknown_size_on_a_small_disk_are_not_known_to_fit(free: int, known: bool) -> None:
    asked = replace(with_cache(), output_folder="/disk/out", name="t")
    seen = probe_room(OfFree(free), asked, NOTHING, NOTHING, NOTHING)
    assert isinstance(seen, Unknown) is not known
    assert known or "how large the saves will be is not known, and /disk has" in seen.reason  # type: ignore[union-attr]
    whole = probe_room(OfFree(free), asked, probed(asked), NOTHING, NOTHING)
    assert not isinstance(whole, Unknown), "where their size is known the rule judges"


def test_needs_of_one_disk_are_added_up(tmp_path: Path) -> None:
    asked = with_cache()
    asked = replace(asked, output_folder=str(tmp_path / "out" / "t"), name="t")

    def rooms(datasets: tuple[DatasetFolder, ...]) -> tuple[Room, ...]:
        known = probe_room(LiveWorld(), asked, probed(asked), datasets, NOTHING)
        assert not isinstance(known, Unknown)
        return known

    (tmp_path / "data").mkdir()
    data = replace(DATA, path=str(tmp_path / "data"))
    (room,) = rooms((data, data))
    assert isinstance(room, Room) and room.free and room.key == "output_folder"
    of_one = wanted(with_cache(), datasets=(DATA,))["the latents of the pictures"]
    assert room.items["the latents of the pictures"] == 2 * of_one
    assert len(room.folders) == 2
    (tmp_path / "out" / "t").mkdir(parents=True)
    (tmp_path / "out" / "t" / "t_000000250.safetensors").write_bytes(b"")
    (again,) = rooms((data,))
    last = {"the latents of the pictures", "the LoRA of rank 4"}
    assert set(again.items) == last, "a run that goes on takes the place of its old saves"
    (tmp_path / "out" / "t" / "t.safetensors").write_bytes(b"")
    (done,) = rooms((data,))
    assert set(done.items) == {"the latents of the pictures"}
