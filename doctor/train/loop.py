"""A run from the first look at its files to the saved LoRA."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from ..architectures.network import offloaded_share
from ..model.run import Run
from .adapter import read_adapter
from .blocks import cannot_compile, compile_blocks
from .data import Item, read_items, uncaptioned
from .encode import Cache, Latents, Sizes, component, vae_divisor
from .epochs import counted
from .errors import TrainError
from .evaluate import hold_out
from .explain import explain
from .failures import explained
from .families import family_of
from .half import use_half
from .journal import Journal
from .load import build_empty, check_no_meta, fill, keep_memory, linears, return_memory, sources, transformer_entries
from .lora import add_network, add_removal, described, left_out, targets
from .masks import Masks
from .names import CACHE, KINDS, wants_compile
from .numerics import numerics
from .offload import offload_share
from .part import check_parts
from .preview import Preview, previews, prompts, sample_controls
from .progress import Progress
from .quantize import Kind
from .ranks import Ranks
from .record import Folder, read_record, run_record
from .result import TrainResult
from .save import (
    State,
    check_owner,
    file_digest,
    final_file,
    read_state,
    state_file,
    sweep,
)
from .shard import Shares, told
from .start import begin, read_start
from .steps import Steps, follow, saved
from .stop import Stop
from .tensorfiles import check_complete, weight_files
from .text_process import TextProcess
from .texts import Texts
from .trackers import Trackers
from .trainer import Trainer
from .weights import WeightCache, cache_folder

# Matrices up to this many columns gain nothing from threads; on a busy machine they lose most of their time waiting.
SMALL = 512
# On the CPU the text encoder works beside the VAE and the loading where this many of it would fit in what is free.
BESIDE = 4


def run_training(
    run: Run,
    *,
    model_folder: str,
    extras_folder: str | None,
    part_places: Mapping[str, str],
    adapter_file: str | None,
    dataset_folders: Mapping[str, str],
    output_folder: str,
    device: str | None,
    held_out: int | None,
    skip_unreadable: bool,
    ranks: Ranks,
    text_process: TextProcess | None,
    progress: Progress,
    stop: Stop,
) -> TrainResult:
    """See `zdoctor.doctor.train.train`; the output folder exists and no other run writes to it."""
    began = time.monotonic()
    return_memory()
    place = _device(device, run, progress, ranks)
    arithmetic = numerics(run.dtype, place)
    dtype = arithmetic.dtype
    if arithmetic.note:
        progress.note(arithmetic.note)
    compiled = wants_compile(run)
    if compiled and (reason := cannot_compile(place)):
        raise TrainError(reason)
    if compiled and (arithmetic.half or ranks.sharded):
        progress.note("Blocks are not compiled: that goes neither with float16 nor with weights shared among GPUs.")
        compiled = False
    output = Path(output_folder)

    progress.phase("Checking the model files")
    base = Path(model_folder)
    extras = None if extras_folder is None else Path(extras_folder)
    folder, weights = sources(base, extras, alone=bool(part_places))
    model = build_empty(folder)
    family = family_of(model)
    if place.type == "cpu" and max(shape[1] for shape in targets(model).values()) <= SMALL:
        torch.set_num_threads(1)
    described_by = [] if folder.is_file() else [folder / "config.json"]
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    check_complete(transformer_entries(model, weights), expected, weights)
    share = offloaded_share(run)
    if share and place.type != "cuda":
        progress.note("layer_offloading has no effect: the weights are in the memory of this computer anyway.")
        share = 0.0
    if share and ranks.sharded:
        raise TrainError("layer_offloading does not go with weights shared among GPUs. Take one of the two out.")
    home = torch.device("cpu") if share else place
    adapter = {} if adapter_file is None else read_adapter(Path(adapter_file), linears(model), home)
    parts = {
        name: Path(part_places[name]) if name in part_places else component(name, base, extras)
        for name in ("vae", *family.TEXT_PARTS)
    }
    check_parts(parts, family.TEXT_PARTS)
    quantization: Any = KINDS[run.quantization]
    identity = {
        "rank": described(run),
        "base model": _digest([*described_by, *weight_files(weights)]),
        "adapter": "none" if adapter_file is None else file_digest(Path(adapter_file)),
        "quantization": quantization,
    }
    ranks.same(identity)
    final = final_file(output, run.name)
    state, there = None, False
    if ranks.first:
        check_owner(output, run.name)
        sweep(output, run.name)
        state, there = read_state(state_file(output, run.name), identity), final.is_file()
    state, there = ranks.share((state, there))
    if state and there and run.steps and (done := _finished(run, state, final, began, progress)):
        return done
    for note in explain(run):
        progress.note(note)
    start = {} if state else read_start(run, targets(model, left_out(run)), family.PREFIX)

    progress.phase("Reading the dataset")
    cache = Cache(output / CACHE)
    sizes = Sizes(cache.folder)
    before = sizes.read()
    known = dict(before)
    skip = progress.note if skip_unreadable else None
    items = read_items(run, dataset_folders, vae_divisor(parts["vae"]), known, skip)
    for note in uncaptioned(items):
        progress.note(note)
    if known != before:
        sizes.write(known)
    count = state.held_out if state else held_out or 0
    if held_out not in (None, count):
        progress.note(f"The run goes on with {count} held-out pictures; --eval {held_out} starts with a new run.")
    items, held = hold_out(items, count)
    run = counted(run, items)
    if state and there and (done := _finished(run, state, final, began, progress)):
        return done
    drawn = sample_controls(run, vae_divisor(parts["vae"]))
    latents = Latents(cache, parts["vae"], middle=bool(run.setting("train/latent_middle")))
    of_texts: Any = KINDS.get(run.text_encoder_quantization, "none")
    texts = Texts(cache, family, parts, arithmetic.texts, of_texts, text_process)
    beside = place.type == "cpu" and ranks.size == 1 and BESIDE * texts.size() < _free()
    masks = Masks(cache, vae_divisor(parts["vae"]) // 2)
    with explained():
        ranks.same({"dataset": _listing(items)})
        for turn in (True, False):  # what the first process of a machine has encoded the others find in the cache
            if (ranks.local == 0) == turn:
                masks.prepare([*items, *held], progress.note)
                texts.begin(prompts(run, [*items, *held]), place, progress.phase)
                if not beside:
                    texts.finish(progress.phase)
                pictures = [*items, *held, *(item for item in drawn if item is not None)]
                latents.prepare(pictures, place, progress.phase)
            ranks.exchange(None)

        progress.phase(f"Loading the transformer ({quantization}, {arithmetic.name})")
        kept = None if quantization == "none" else WeightCache(cache_folder(), identity["adapter"], progress.note)
        stored: Kind = "float16" if arithmetic.half and quantization == "none" else quantization
        shares = Shares(ranks, family.BLOCKS) if ranks.sharded else None
        fill(
            model,
            weights,
            quantization=stored,
            adapter=adapter,
            dtype=dtype,
            device=home,
            cache=kept,
            shares=shares,
        )
        texts.finish(progress.phase)
        if shares is not None:
            progress.note(told(model, ranks))
        seed = state.seed if state else run.seed if run.seed is not None else secrets.randbelow(1 << 31)
        seed = ranks.share(seed)
        if state and run.seed not in (None, seed):
            progress.note(
                f"The run goes on with its seed {seed}; the seed {run.seed} of the config starts with a new run."
            )
        shapes = targets(model, left_out(run))
        if arithmetic.half:
            use_half(model)
        removal = add_removal(model, adapter, dtype) if adapter and previews(run) else []
        network = add_network(model, shapes, run, seed)
        begin(network, start, family.PREFIX)
        check_no_meta(model)
        if share:
            away = offload_share(model, shapes, share, place)
            progress.note(f"{away / 1e9:.1f} GB of the weights stay in host memory (layer_offloading).")
        if compiled:
            progress.note("The first steps take minutes: each block is compiled, for each size of picture.")
            compile_blocks(model)
        trainer = Trainer(run, model, network, items, latents, texts, masks, seed, place, dtype, progress, ranks)
        whole = base if base.is_dir() else folder.parent
        preview = Preview(run, trainer, removal, drawn, parts["vae"], whole, output)
        adapter = {}
        keep_memory()
        if state:
            trainer.restore(state)
            progress.note(f"The run goes on from step {state.step}.")
        ranks.exchange(None)
        stop.gentle = True
        if not ranks.first:
            follow(trainer, preview, stop, output, identity, held)
            return cast(TrainResult, ranks.share(None))
        journal = Journal(output / "losses.jsonl", trainer.losses)
        record = run_record(
            run,
            device=str(place) if place.type != "cuda" else torch.cuda.get_device_name(place),
            dtype=arithmetic.name,
            seed=seed,
            step=trainer.step,
            before=read_record(output / "run.json") if state else {},
        )
        notes = Folder(output, run, record)
        trackers = Trackers(run, output, record, progress.note)
        steps = Steps(run, trainer, preview, output, identity, progress, stop, held, journal, notes, trackers)
        try:
            stopped = steps.go()
        finally:
            journal.close()
            trackers.close()
    progress.close()
    result = TrainResult(
        lora=str(saved(run, output, trainer.step)),
        steps=trainer.step,
        losses=tuple(trainer.losses),
        evaluations=tuple(journal.evaluations),
        samples=tuple(preview.files),
        seconds=time.monotonic() - began,
        stopped=stopped,
    )
    return ranks.share(result)


def _finished(run: Run, state: State, final: Path, began: float, progress: Progress) -> TrainResult | None:
    """The result of a run that has all its steps, None of any other."""
    if state.step < run.steps:
        return None
    progress.note(
        f"This run is finished: {state.step} steps of {run.steps} are done, and {final} is there. Nothing was "
        "trained. For more, raise steps; to start again, give the run another name."
    )
    return TrainResult(str(final), state.step, tuple(state.losses), (), time.monotonic() - began, "finished")


def _device(device: str | None, run: Run, progress: Progress, ranks: Ranks) -> torch.device:
    name = device or run.device
    if name == "cuda" and ranks.size > 1:
        name = f"cuda:{ranks.local}"
    try:
        place = torch.device(name)
    except RuntimeError:
        raise TrainError(f"{name!r} is not a device; write cuda, cuda:1, mps or cpu.") from None
    if place.type == "cuda" and not torch.cuda.is_available():
        if device is not None:
            raise TrainError(f"{device} was asked for, but PyTorch {torch.__version__} sees no CUDA device.")
        progress.note(f"PyTorch {torch.__version__} sees no CUDA device: the run trains on the CPU, which is slow.")
        return torch.device("cpu")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise TrainError(
            f"There is no {name}: the last device that PyTorch sees is cuda:{torch.cuda.device_count() - 1}."
        )
    if place.type == "cuda" and ranks.size > 1:
        torch.cuda.set_device(place)
    return place


def _free() -> int:
    """Bytes of memory that this machine has left."""
    import psutil

    return int(psutil.virtual_memory().available)


def _listing(items: Sequence[Item]) -> str:
    """Identifies what is trained on: pictures, captions, crops, and their order."""
    told = "\n".join(
        f"{item.picture.digest} {item.control and item.control.picture.digest} {item.crop} {item.caption}"
        for item in items
    )
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _digest(files: Sequence[Path]) -> str:
    """Identifies files by their sizes and the first and last 64 KiB of each."""
    digest = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        with file.open("rb") as stream:
            digest.update(f"{size} ".encode() + stream.read(1 << 16))
            if size > 1 << 16:
                stream.seek(-(1 << 16), os.SEEK_END)
                digest.update(stream.read())
    return digest.hexdigest()[:16]
