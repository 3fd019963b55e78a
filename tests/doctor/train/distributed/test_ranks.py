"""Several processes of one run: over gloo on the CPU, started by our launcher and by accelerate."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from torch.distributed import DistBackendError

from zdoctor.doctor.cli import main
from zdoctor.doctor.commands import handover
from zdoctor.doctor.commands.handover import too_large
from zdoctor.doctor.model import Gpu, Memory, Phase, Unknown
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.distributed.launcher import _free_port
from zdoctor.doctor.train.distributed.ranks import RankLost, RankReport, Ranks, gather_reports
from zdoctor.doctor.train.settings.names import CACHE

from ..patient import go, run_with, written
from ..test_command import PROCESS

ZDOCTOR = [sys.executable, "-m", "zdoctor", "train"]
ACCELERATE = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "2", "--main_process_port"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(model: Path, data: Path, output: str, *, steps: int = 3, batch: int = 2, accumulation: int = 1) -> str:
    text = PROCESS.format(model=model, data=data, steps=steps, output=output, adapter="")
    text = text.replace("batch_size: 2", f"batch_size: {batch}, gradient_accumulation: {accumulation}")
    name = f"{output}.yaml"
    Path(name).write_text("job: extension\nconfig:\n  name: circles\n  process:\n" + text)
    return name


@pytest.fixture
def encoded(here: Path, tiny: Path, circles: Path) -> None:
    """What a run named "out" needs of pictures and prompts, made by an earlier one of this process."""
    assert main(["train", config(tiny, circles, "first", steps=1)]) == 0
    shutil.copytree(here / "first/circles" / CACHE, here / "out/circles" / CACHE)


def losses(output: str) -> list[float]:
    lines = Path(output, "circles", "losses.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


@pytest.mark.parametrize(
    ("batch", "accumulation", "accelerated"),
    [(2, 1, True), pytest.param(3, 3, False, marks=pytest.mark.thorough)],
)
def test_two_processes_make_the_losses_of_one(
    here: Path,
    tiny: Path,
    circles: Path,
    monkeypatch: pytest.MonkeyPatch,
    batch: int,
    accumulation: int,
    accelerated: bool,
) -> None:
    """The rest of a rounding is larger where samples are added up in another order.

    accelerate hands over to torchrun; its FSDP is ours.
    """
    monkeypatch.setenv("HF_HOME", str(here))  # nobody's own accelerate config
    how = {"batch": batch, "accumulation": accumulation}
    assert main(["train", config(tiny, circles, "one", **how)]) == 0
    two = config(tiny, circles, "two", **how)
    command = [*ZDOCTOR, two, "--processes", "2"]
    if accelerated:
        command = [*ACCELERATE, str(_free_port()), "--use_fsdp", "--mixed_precision", "fp16", *ZDOCTOR[1:], two]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Finished: 3 steps.") == 1 and "green in 2 processes" in done.stdout
    assert done.stderr.count("mixed precision fp16; the dtype of the config counts") == accelerated
    assert done.stderr.count("The base is shared out over 2 processes") == accelerated
    assert losses("two") == pytest.approx(losses("one"), rel=1e-4)
    assert len(losses("two")) == 3


def test_one_process_has_nobody_to_share_with(
    here: Path, tiny: Path, circles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", config(tiny, circles, "out"), "--shard"]) == 2
    assert "zdoctor train out.yaml --processes 2 --shard" in capsys.readouterr().err


def started(name: str) -> tuple[subprocess.Popen[str], str]:
    """The launcher with two processes, after the first step, and what it printed until then."""
    process = subprocess.Popen(
        [*ZDOCTOR, name, "--processes", "2"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line.startswith("step 1/"):
            return process, text
    raise AssertionError(text)


@pytest.mark.usefixtures("encoded")
def test_a_killed_process_ends_the_run_with_a_checkpoint(here: Path, tiny: Path, circles: Path) -> None:
    """Also when it is the one that saves."""
    process, text = started(config(tiny, circles, "out", steps=100_000))
    with process:
        assert process.stdout is not None
        (one,) = (p for p in psutil.Process(process.pid).children() if p.environ().get("RANK") == "0")
        one.kill()
        text += process.stdout.read()
    assert process.returncode == 1, text
    assert "process 0 of 2 was ended by SIGKILL" in text and "Traceback" not in text
    assert "Another process of this run is gone" in text and "the same command goes on from there" in text
    (saved,) = Path("out/circles").glob("circles_*.safetensors")
    step = int(saved.stem.rsplit("_", 1)[1])
    assert f"saved at step {step}" in text
    assert main(["train", config(tiny, circles, "out", steps=step + 1)]) == 0
    assert len(losses("out")) == step + 1


@pytest.mark.thorough
@pytest.mark.usefixtures("encoded")
def test_a_stop_reaches_every_process(here: Path, tiny: Path, circles: Path) -> None:
    process, text = started(config(tiny, circles, "out", steps=100_000))
    with process:
        assert process.stdout is not None
        process.send_signal(signal.SIGTERM)
        text += process.stdout.read()
    assert process.returncode == 130, text
    assert text.count("To go on from there: zdoctor train out.yaml") == 1 and "Traceback" not in text


def test_no_process_trains_unless_all_are_green(here: Path, tiny: Path, circles: Path) -> None:
    names = [config(tiny, circles, "out"), config(tiny, here / "nowhere", "other")]
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [*ZDOCTOR, name],
            env={**shared, "RANK": str(rank), "LOCAL_RANK": "0", "GROUP_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, name in enumerate(names)
    ]
    texts = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [1, 1], texts
    assert "not every process is green" in texts[0] and "  node 1 (" in texts[0] and "nowhere" in texts[0]
    assert "  node 0" not in texts[0] and texts[1] == ""
    assert not Path("out").exists() and not Path("other").exists()


def test_a_step_that_is_too_small_is_not_shared(
    here: Path, tiny: Path, circles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", config(tiny, circles, "out"), "--processes", "3"]) == 2
    said = capsys.readouterr().err
    assert "is 2, which 3 processes cannot share" in said and "--processes 2" in said
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("gib", "count", "passed_over"),
    [
        ((16, 16), 2, {"MEM001"}),
        ((16, 16), 8, {"MEM001"}),
        ((16, 16), 1, set()),
        ((12, 12), 2, set()),
        ((48,), 2, set()),
    ],
)
def test_what_only_fits_shared_out_is_shared_out(gib: tuple[int, ...], count: int, passed_over: set[str]) -> None:
    """A peak of 20 GiB, 12 of them in 40 blocks."""
    memory = Memory(
        device="cuda:0",
        phases=(Phase("training step", {"transformer": 13 << 30, "activations": 7 << 30}),),
        total=gib[0] << 30,
        free=gib[0] << 30,
        budget_source="recorded",
        assumptions="",
        cards=len(gib),
        least_free=min(gib) << 30,
        blocks=12 << 30,
        block=(12 << 30) // 40,
    )
    seen: Any = SimpleNamespace(facts=[SimpleNamespace(memory=memory), SimpleNamespace(memory=Unknown("no model"))])
    assert too_large(seen, count) == passed_over


@pytest.mark.parametrize(("free", "count"), [((24, 24), 2), ((24, 3), 1)])
def test_a_card_that_somebody_else_fills_gets_no_process(
    free: tuple[int, int], count: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cards are made up: there is no way to have two here."""
    for name in ("CUDA_VISIBLE_DEVICES", "RANK"):
        monkeypatch.delenv(name, raising=False)
    gpus = [Gpu(i, "NVIDIA A10", 24 << 30, gib << 30, (8, 6), "570", "recorded") for i, gib in enumerate(free)]
    monkeypatch.setattr(handover, "LiveWorld", lambda: SimpleNamespace(gpus=lambda: tuple(gpus)))
    phase = Phase("training step", {"transformer": 12 << 30})
    memory = Memory("GPU 0, NVIDIA A10", (phase,), 24 << 30, 24 << 30, "", "", cards=2, least_free=min(free) << 30)
    runs = [run_with(device="cuda", gradient_accumulation=2)]
    seen: Any = SimpleNamespace(facts=[SimpleNamespace(memory=memory)], reading=SimpleNamespace(runs=runs))
    assert handover.process_count(seen) == count
    said = capsys.readouterr().err
    assert ("has only 3.2 GB free" in said and "on GPU 0, NVIDIA A10 alone" in said) is (count == 1)


def test_what_cannot_be_shared_is_refused_by_name(tiny: Path, circles: Path, tmp_path: Path) -> None:
    run = run_with(settings=written(train__max_loss=0.5), keys={})
    with pytest.raises(TrainError, match="max_loss caps the loss of a whole step"):
        go(run, tiny, circles, tmp_path / "out", ranks=Ranks(0, 2))


def test_every_sample_of_a_step_is_somebodys() -> None:
    for size in (1, 2, 3):
        for batch, accumulation in ((1, 4), (2, 1), (3, 3), (5, 2)):
            dealt = [
                Ranks(rank, size).own_samples(j * batch, batch) for j in range(accumulation) for rank in range(size)
            ]
            assert sum(map(len, dealt)) == batch * accumulation
            for j in range(accumulation):
                places = [place for part in dealt[j * size : (j + 1) * size] for place in part]
                assert sorted(places) == list(range(batch))


def test_what_several_processes_say_alike_is_said_once() -> None:
    def said(node: int, rank: int, *lines: str, torch: str = "2.13.0") -> RankReport:
        return RankReport(node, f"gpu-{node}", rank, lines, {"torch": torch})

    alone = [said(0, 0, "A."), said(0, 1, "A."), said(0, 2, "B.")]
    assert gather_reports(alone) == ["process 0, 1: A.", "process 2: B."]
    assert gather_reports([said(0, 0), said(3, 3, "Shard 2 is corrupt.")]) == ["node 3 (gpu-3): Shard 2 is corrupt."]
    assert gather_reports([said(0, 0), said(0, 1)]) == []
    older = "node 5 (gpu-5): torch is 2.12.1 here, and 2.13.0 in process 0; all need the same."
    assert gather_reports([said(0, 0), said(5, 1, torch="2.12.1"), said(5, 2, torch="2.12.1")]) == [older]


NCCL = "NCCL error in: NCCLUtils.cpp:94, {}, NCCL version 2.27.5\n{}\nLast error:\n{}"
RUNNER = (
    "unhandled cuda error",
    "ncclUnhandledCudaError: Call to CUDA function failed.",
    "Cuda failure 2 'out of memory'",
)
OTHER = ("remote process exited", "ncclRemoteError: A call failed possibly due to a network error.", "socket closed")


@pytest.mark.parametrize(
    ("said", "told"),
    [(RUNNER, r"NCCL fails in process 1 of 2 \(Cuda failure 2 'out of memory'\)\."), (OTHER, "is gone")],
)
def test_a_failure_of_this_process_is_not_called_a_lost_one(said: tuple[str, ...], told: str) -> None:
    with pytest.raises(RankLost, match=told), Ranks(1, 2).noticing_lost_ranks():
        raise DistBackendError(NCCL.format(*said))


@pytest.mark.parametrize(
    ("said", "silent"),
    [
        (
            "NCCL communicator was aborted on rank 1. Original reason for failure was: [Rank 1] Watchdog caught "
            "collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600060 "
            "milliseconds before timing out.",
            True,
        ),
        ("[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 600000ms for recv operation to complete", True),
        ("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:31420", False),
    ],
)
def test_a_process_that_does_not_answer_is_not_called_gone(said: str, silent: bool) -> None:
    with (
        pytest.raises(RankLost, match="does not answer" if silent else "is gone") as lost,
        Ranks(1, 2).noticing_lost_ranks(),
    ):
        raise DistBackendError(said)
    assert lost.value.silent == silent
