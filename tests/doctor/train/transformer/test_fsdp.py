"""The base shared out over two processes by FSDP2, over gloo on the CPU."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageChops
from torch import Tensor

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.model.run import Run
from zdoctor.doctor.train import Job, TrainError, TrainResult, train
from zdoctor.doctor.train.dataset.training_items import TrainingItem
from zdoctor.doctor.train.distributed.launcher import _end_stopped
from zdoctor.doctor.train.distributed.ranks import RankLost, Ranks
from zdoctor.doctor.train.kernels.quantized_linear import Quantization
from zdoctor.doctor.train.step.batch_loss import BatchLoss
from zdoctor.doctor.train.transformer.fsdp import ShardPlan, local_shard
from zdoctor.doctor.train.transformer.load_transformer import build_empty_transformer, fill_transformer
from zdoctor.doctor.train.transformer.transformer_blocks import block_names
from zdoctor.doctor.train.weights.materialize import linear_shapes
from zdoctor.doctor.train.weights.safetensors_files import TensorEntry
from zdoctor.doctor.train.weights.training_adapter import read_training_adapter
from zdoctor.doctor.train.weights.weight_cache import WeightCache
from zdoctor.tests.changes import changed
from zdoctor.tests.often import often

from ..launched import Together
from ..patient import Recorder, go, run_with

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no forkserver there")

KINDS: tuple[Quantization, ...] = ("int8", "float8", "nf4", "none")
CPU = torch.device("cpu")
ROUNDING = 1e-5
SAMPLE = SamplePrompt("a red circle", width=64, height=64, steps=2, guidance=2.0, seed=3)
# Three batches of one sample: in each of them one of two processes has none.
RUN = run_with(
    steps=3,
    batch_size=1,
    gradient_accumulation=3,
    disable_sampling=False,
    samples=(SAMPLE,),
    gradient_checkpointing=True,
)


def filled(
    kind: Quantization, model: Path, adapter: Path, cache: WeightCache | None, shares: ShardPlan | None
) -> Any:
    empty = build_empty_transformer(model / "transformer")
    deltas = read_training_adapter(adapter, linear_shapes(empty))
    fill_transformer(
        empty,
        model / "transformer",
        quantization=kind,
        adapter=deltas,
        dtype=torch.bfloat16,
        device=CPU,
        cache=cache,
        shares=shares,
    )
    return empty


def kept(ranks: Ranks, model: Path, adapter: Path, folder: Path) -> dict[str, dict[str, bytes]]:
    """The bytes that this process keeps of each parameter: read from the model's files, and from kept weights."""
    shares = ShardPlan(replace(ranks, sharded=True), block_names(build_empty_transformer(model / "transformer")))
    found = {}
    for kind in KINDS:
        for how, cache in {"": None, " kept": WeightCache(folder, "some", print)}.items():
            parameters = filled(kind, model, adapter, cache, shares).named_parameters()
            found[kind + how] = {
                n: local_shard(p).contiguous().view(torch.uint8).numpy().tobytes() for n, p in parameters
            }
    return found


def test_each_process_keeps_its_rows_and_no_more(tiny: Path, adapter: Path, tmp_path: Path) -> None:
    together = Together(2, kept, tiny, adapter, tmp_path / "weights")
    whole = {kind: filled(kind, tiny, adapter, None, None) for kind in KINDS}
    first, second = together.answers()
    assert len(list((tmp_path / "weights").glob("*.safetensors"))) == 3
    for kind, model in whole.items():
        for how in ("", " kept"):
            sizes = [0, 0]
            for name, parameter in model.named_parameters():
                data = parameter.contiguous().view(torch.uint8).numpy().tobytes()
                parts = first[kind + how][name], second[kind + how][name]
                if name.startswith(("noise_refiner.", "context_refiner.", "layers.")):
                    assert parts[0] + parts[1] == data, (kind, how, name)
                    sizes = [size + len(part) for size, part in zip(sizes, parts, strict=True)]
                else:
                    assert parts == (data, data)
            assert max(sizes) <= 0.51 * sum(sizes)


def test_rows_are_dealt_out_as_fsdp_does() -> None:
    """As torch.chunk: whole rows, the last ones may get fewer or none."""
    for count, size in ((7, 2), (8, 4), (5, 4), (2, 3)):
        chunks = [len(chunk) for chunk in torch.arange(count).chunk(size)]
        parts = [ShardPlan(Ranks(rank, size), ("layers",)).part(entry("layers.0.x", count)) for rank in range(size)]
        assert [p.shape[0] for p in parts] == chunks + [0] * (size - len(chunks))
        assert [p.size for p in parts] == [6 * p.shape[0] for p in parts]
        assert parts[0].start == 100 and parts[-1].start + parts[-1].size == 100 + 6 * count
    assert ShardPlan(Ranks(1, 2), ("layers",)).part(entry("x_embedder.weight", 7)) == entry("x_embedder.weight", 7)


def entry(name: str, count: int) -> TensorEntry:
    return TensorEntry(name, Path("x"), "BF16", (count, 3), 100, 6 * count)


def trained(
    ranks: Ranks, run: Run, stop_at: int, places: tuple[Path, Path, Path], adapter: Path | None
) -> tuple[TrainResult, list[str]]:
    """Ctrl-C in process 0 after the step `stop_at`."""

    def at(step: int) -> None:
        if step == stop_at:
            signal.raise_signal(signal.SIGINT)

    recorder = Recorder(at)
    return shared(ranks, run, places, recorder, adapter=adapter, held_out=1), recorder.notes


def shared(
    ranks: Ranks, run: Run, places: tuple[Path, Path, Path], progress: Recorder | None = None, **options: Any
) -> TrainResult:
    model, images, output = places
    folders = {dataset.key: str(images) for dataset in run.recipe.datasets}
    ranks, shown = replace(ranks, sharded=True), progress or Recorder()
    return train(Job(run, model, folders, output, device="cpu", ranks=ranks, progress=shown, **options))


def encoded(run: Run, model: Path, images: Path, output: Path) -> None:
    """What a run needs of pictures and prompts, made by an earlier one of this process."""
    folder = output.parent / "encoding"
    go(
        changed(run, steps=1, validation={"prompts": (replace(SAMPLE, steps=1),), "disabled": False}),
        model,
        images,
        folder,
    )
    shutil.copytree(folder / ".cache", output / ".cache")


@pytest.mark.parametrize(("name", "kind", "network"), often([("zimage", "int8", "lora"), ("flux", "none", "dora")]))
def test_a_run_is_the_same_with_a_shared_base(
    tiny: Path, flux: Path, circles: Path, tmp_path: Path, adapter: Path, name: str, kind: Quantization, network: str
) -> None:
    """Stopped by Ctrl-C in one of two processes after two steps, it goes on in a single one."""
    model, merged = (tiny, adapter) if name == "zimage" else (flux, None)
    run = changed(
        RUN,
        architecture=name,
        precision={"quantization": kind},
        network={"type": network},
        offload={"gradient_checkpointing": kind == "int8"},
        name=name,
    )
    encoded(run, model, circles, tmp_path / "two")
    together = Together(2, trained, run, 2, (model, circles, tmp_path / "two"), merged)
    one = go(run, model, circles, tmp_path / "one", adapter=merged, held_out=1)
    (first, notes), (second, _) = together.answers()
    assert (first.stopped, first.steps) == (second.stopped, second.steps) == ("interrupted", 2)
    assert any("each keeps" in note for note in notes)
    two = go(run, model, circles, tmp_path / "two", adapter=merged, held_out=1)
    assert two.losses == pytest.approx(one.losses, rel=ROUNDING)
    assert two.evaluations[-1] == pytest.approx(one.evaluations[-1], rel=ROUNDING)
    pictures = [Image.open(tmp_path / folder / "samples" / f"{name}_000000000_0.png") for folder in ("one", "two")]
    assert max(high for _, high in ImageChops.difference(*pictures).getextrema()) <= 1  # type: ignore[misc]


def hit(ranks: Ranks, run: Run, name: str, rank: int, places: tuple[Path, Path, Path]) -> str:
    """The signal `name` reaches process `rank` as the third step begins."""
    real = BatchLoss.batch_losses

    def parts(self: BatchLoss, index: int, items: Sequence[TrainingItem]) -> Iterator[Tensor]:
        if index == 2 * run.recipe.gradient_accumulation and ranks.rank == rank:
            os.kill(os.getpid(), signal.Signals[name])
        return real(self, index, items)

    BatchLoss.batch_losses = parts  # type: ignore[method-assign]
    try:
        shared(ranks, run, places, held_out=1)
    except RankLost as error:
        return f"lost {error}"
    except TrainError as error:
        return str(error)
    return "finished"


@pytest.mark.parametrize(
    ("name", "rank", "words", "every"),
    [
        ("SIGKILL", 1, "is gone", 2),
        ("SIGSTOP", 0, "does not answer", 100),
    ],
)
def test_a_process_that_goes_costs_one_step_at_most(
    tiny: Path, circles: Path, tmp_path: Path, name: str, rank: int, words: str, every: int
) -> None:
    """In the third step, or in the evaluation before it. One that stopped holds the lock of the run; the other one
    saves all the same.
    """
    run = run_with(steps=100, batch_size=2, save_every=every)
    encoded(run, tiny, circles, tmp_path / "out")
    together = Together(2, hit, run, name, rank, (tiny, circles, tmp_path / "out"), patience=5.0)
    said = together.answer(1 - rank)
    together.end()
    assert f"Another process of this run {words}" in said and "The run is saved at step 2" in said
    assert (tmp_path / "out" / "circles_000000002.safetensors").is_file()
    again = go(changed(run, steps=3), tiny, circles, tmp_path / "out")
    assert len(again.losses) == 3


def test_the_launcher_does_not_wait_for_what_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    stop = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    with subprocess.Popen([sys.executable, "-c", stop]) as process:
        os.waitpid(process.pid, os.WUNTRACED)
        _end_stopped([process])
        assert process.returncode == -signal.SIGKILL
    assert "process 0 of 1 is stopped, so it is ended" in capsys.readouterr().err
