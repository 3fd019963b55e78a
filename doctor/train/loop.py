"""A run from the first look at its files to the saved LoRA."""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..model.run import Run
from .adapter import read_adapter
from .data import Item, batches, read_items, with_trigger
from .encode import Cache, Latents, Sizes, Texts, component, load_vae, vae_divisor
from .errors import TrainError
from .load import build_empty, check_no_meta, fill, keep_memory, linears, return_memory, transformer_folder
from .lora import LoraLinear, WithoutAdapter, add_lora, add_removal, targets, trainable
from .names import DTYPES, KINDS, SAVE_DTYPES
from .optimize import make_optimizer, rate_factor
from .progress import Progress
from .refuse import refuse
from .result import TrainResult
from .sample import decode, denoise, make_scheduler
from .save import (
    State,
    file_digest,
    final_file,
    metadata,
    prune,
    read_state,
    state_file,
    step_file,
    write_lora,
    write_state,
)
from .tensorfiles import check_complete, collect, weight_files
from .timesteps import draw

MOST_BAD_STEPS = 3


def run_training(
    run: Run,
    *,
    model_folder: str,
    extras_folder: str | None,
    adapter_file: str | None,
    dataset_folders: Mapping[str, str],
    output_folder: str,
    device: str | None,
    progress: Progress,
) -> TrainResult:
    """See `zdoctor.doctor.train.train`."""
    began = time.monotonic()
    reasons = refuse(run)
    if reasons:
        raise TrainError("This runner cannot train the config: " + "; ".join(reasons) + ".")
    return_memory()
    place = _device(device, run, progress)
    dtype = _dtype(run, place, progress)
    output = Path(output_folder)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainError(f"The output folder {output} cannot be made: {error.strerror or error}.") from error

    progress.phase("Checking the model files")
    base = Path(model_folder)
    folder = transformer_folder(base)
    extras = None if extras_folder is None else Path(extras_folder)
    model = build_empty(folder)
    files = weight_files(folder)
    check_complete(collect(files), {n: tuple(t.shape) for n, t in model.state_dict().items()}, folder)
    adapter = {} if adapter_file is None else read_adapter(Path(adapter_file), linears(model), place)
    parts = {name: component(name, base, extras) for name in ("vae", "text_encoder", "tokenizer")}
    quantization: Any = KINDS[run.quantization]
    identity = {
        "rank": str(run.rank),
        "base model": _digest([folder / "config.json", *files]),
        "adapter": "none" if adapter_file is None else file_digest(Path(adapter_file)),
        "quantization": quantization,
    }
    state = read_state(state_file(output, run.name), identity)
    _explain(run, progress)

    progress.phase("Reading the dataset")
    cache = Cache(output / ".cache")
    sizes = Sizes(cache.folder)
    before = sizes.read()
    known = dict(before)
    items = read_items(run, dataset_folders, vae_divisor(parts["vae"]), known)
    if known != before:
        sizes.write(known)
    latents = Latents(cache, parts["vae"])
    texts = Texts(cache, parts["text_encoder"], parts["tokenizer"], dtype)
    with _memory_errors():
        latents.prepare(items, place, progress.phase)
        texts.prepare(_prompts(run, items), place, progress.phase)

        progress.phase(f"Loading the transformer ({quantization}, {str(dtype).removeprefix('torch.')})")
        fill(model, folder, quantization=quantization, adapter=adapter, dtype=dtype, device=place)
        seed = state.seed if state else run.seed if run.seed is not None else secrets.randbelow(1 << 31)
        if state and run.seed not in (None, seed):
            progress.note(
                f"The run goes on with its seed {seed}; the seed {run.seed} of the config starts with a new run."
            )
        shapes = targets(model)
        removal = add_removal(model, adapter, dtype) if adapter and _previews(run) else []
        loras = add_lora(model, shapes, run.rank, seed)
        check_no_meta(model)
        trainer = Trainer(run, model, loras, items, latents, texts, seed, place, dtype, progress)
        preview = Preview(run, trainer, removal, parts["vae"], base, output)
        adapter = {}
        keep_memory()
        if state:
            trainer.restore(state)
            progress.note(f"Going on from step {state.step}.")
        with _interruptible() as stop:
            stopped = _steps(run, trainer, preview, output, identity, progress, stop)
    progress.close()
    final = final_file(output, run.name)
    return TrainResult(
        lora=str(final if stopped == "finished" else step_file(output, run.name, trainer.step)),
        steps=trainer.step,
        losses=tuple(trainer.losses),
        samples=tuple(preview.files),
        seconds=time.monotonic() - began,
        stopped=stopped,
    )


def _steps(
    run: Run,
    trainer: Trainer,
    preview: Preview,
    output: Path,
    identity: dict[str, str],
    progress: Progress,
    stop: threading.Event,
) -> Any:
    progress.phase(f"Training {run.steps} steps")
    if trainer.step == 0 and not run.skip_first_sample:
        preview.paint(stop)
    rate = 0.0
    while trainer.step < run.steps and not stop.is_set():
        begin = time.monotonic()
        loss = trainer.advance()
        took = time.monotonic() - begin
        rate = 1.0 / took if rate == 0.0 else 1.0 / (0.8 / rate + 0.2 * took)
        progress.step(trainer.step, run.steps, loss, rate)
        last = trainer.step == run.steps
        if run.save_every > 0 and trainer.step % run.save_every == 0 and not last:
            _save(run, trainer, output, identity, step_file(output, run.name, trainer.step))
            prune(output, run.name, run.keep_saves)
        if not last and run.sample_every > 0 and trainer.step % run.sample_every == 0:
            preview.paint(stop)
    finished = trainer.step >= run.steps
    file = final_file(output, run.name) if finished else step_file(output, run.name, trainer.step)
    _save(run, trainer, output, identity, file)
    if finished:
        preview.paint(stop)
    return "finished" if finished else "interrupted"


def _save(run: Run, trainer: Trainer, output: Path, identity: dict[str, str], file: Path) -> None:
    dtype = getattr(torch, SAVE_DTYPES[run.save_dtype])
    write_lora(file, trainer.weights(), dtype, metadata(run, trainer.step, trainer.epoch))
    write_state(state_file(output, run.name), trainer.state(identity))


class Trainer:
    """The trained weights and what moves them. What step n does follows from the seed and n alone."""

    def __init__(
        self,
        run: Run,
        model: nn.Module,
        loras: dict[str, LoraLinear],
        items: Sequence[Item],
        latents: Latents,
        texts: Texts,
        seed: int,
        device: torch.device,
        dtype: torch.dtype,
        progress: Progress,
    ) -> None:
        self.run = run
        self.model = model
        self.items = items
        self.latents = latents
        self.texts = texts
        self.seed = seed
        self.device = device
        self.dtype = dtype
        self.step = 0
        self.losses: list[float] = []
        self.bad = 0
        self.parameters = trainable(loras)
        self.optimizer = make_optimizer(
            run.optimizer,
            run.optimizer_settings,
            run.learning_rate,
            self.parameters.values(),
            device,
            progress.note,
        )
        self.ema = {key: value.detach().clone() for key, value in self.parameters.items()} if run.use_ema else None
        self.order = batches(items, run.batch_size, seed, 0)
        self.order_epoch = 0
        if run.gradient_checkpointing:
            make: Any = model
            make.enable_gradient_checkpointing(gradient_checkpointing_func=_checkpoint(model, loras))

    @property
    def epoch(self) -> int:
        return self.step * self.run.gradient_accumulation // len(self.order)

    def advance(self) -> float:
        """One optimizer step; returns its mean loss. Raises TrainError after three losses in a row are not finite."""
        rate = self.run.learning_rate
        factor = rate_factor(self.run.scheduler, self.run.scheduler_settings, rate, self.step, self.run.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * factor
        total = 0.0
        count = self.run.gradient_accumulation
        for index in range(self.step * count, (self.step + 1) * count):
            loss = self.loss(index) / count
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        limit = self.run.max_grad_norm if self.run.max_grad_norm > 0 else math.inf
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), limit)
        if math.isfinite(total) and math.isfinite(norm.item()):
            self.bad = 0
            self.optimizer.step()
            self._follow()
        else:
            self.bad += 1
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(total)
        self.step += 1
        if self.bad >= MOST_BAD_STEPS:
            raise TrainError(self._diagnosis())
        return total

    def loss(self, index: int) -> Tensor:
        """The loss of one batch. Everything random in it is drawn from the seed and `index`."""
        run = self.run
        generator = torch.Generator().manual_seed(_mix(self.seed, index))
        items = [self.items[i] for i in self._batch(index)]
        clean = torch.stack([self.latents.get(item) for item in items])
        noise = torch.randn(clean.shape, generator=generator)
        t, weight = draw(run.timestep_type, run.content_or_style, len(items), generator)
        drops = torch.rand(len(items), generator=generator).tolist()
        captions = [
            self.texts.get(item.dropped if drop < item.dropout else item.caption).to(self.device, self.dtype)
            for item, drop in zip(items, drops, strict=True)
        ]
        share = t.view(-1, 1, 1, 1)
        noisy = ((1.0 - share) * clean + share * noise).to(self.device, self.dtype).unsqueeze(2)
        output = self.model(list(noisy.unbind(0)), (1.0 - t).to(self.device), captions, return_dict=False)[0]
        guess = -torch.stack([value.float() for value in output]).squeeze(2)
        miss = guess - (noise - clean).to(self.device)
        each = (miss.abs() if run.loss_type == "mae" else miss.square()).mean(dim=(1, 2, 3))
        return (each * weight.to(self.device)).mean()

    def weights(self) -> dict[str, Tensor]:
        """What is saved: the running average where one is kept, else the trained weights."""
        return dict(self.ema) if self.ema is not None else {k: v.detach() for k, v in self.parameters.items()}

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """With the saved weights in the model."""
        if self.ema is None:
            yield
            return
        kept = {key: value.detach().clone() for key, value in self.parameters.items()}
        self._set(self.ema)
        try:
            yield
        finally:
            self._set(kept)

    def state(self, identity: dict[str, str]) -> State:
        return State(
            identity=identity,
            seed=self.seed,
            step=self.step,
            losses=list(self.losses),
            lora={key: value.detach().cpu() for key, value in self.parameters.items()},
            optimizer=self.optimizer.state_dict(),
            ema=None if self.ema is None else {key: value.cpu() for key, value in self.ema.items()},
        )

    def restore(self, state: State) -> None:
        self._set(state.lora)
        self.optimizer.load_state_dict(state.optimizer)
        if self.ema is not None:
            start = state.ema if state.ema is not None else state.lora
            self.ema = {key: value.to(self.device) for key, value in start.items()}
        self.step = state.step
        self.losses = list(state.losses)

    def _set(self, values: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for key, parameter in self.parameters.items():
                parameter.copy_(values[key])

    def _follow(self) -> None:
        if self.ema is None:
            return
        decay = min(self.run.ema_decay, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for key, value in self.ema.items():
                value.lerp_(self.parameters[key], 1.0 - decay)

    def _batch(self, index: int) -> list[int]:
        epoch, place = divmod(index, len(self.order))
        if epoch != self.order_epoch:
            self.order = batches(self.items, self.run.batch_size, self.seed, epoch)
            self.order_epoch = epoch
        return self.order[place]

    def _diagnosis(self) -> str:
        lead = f"The loss was not a finite number {MOST_BAD_STEPS} steps in a row (up to step {self.step})."
        broken = [key for key, value in self.parameters.items() if not torch.isfinite(value).all()]
        if broken:
            return f"{lead} The LoRA has diverged ({broken[0]}): lower the learning rate {self.run.learning_rate}."
        tensors = [*self.model.named_parameters(), *self.model.named_buffers()]
        floats = [(name, value) for name, value in tensors if value.is_floating_point()]
        bad = [name for name, value in floats if not torch.isfinite(value.float()).all()]
        if bad:
            return f"{lead} The base model holds non-finite weights ({bad[0]}): fetch its files again."
        return (
            f"{lead} Weights, latents and captions are finite, so the model overflows in {self.run.dtype} on them: "
            f"lower the learning rate {self.run.learning_rate}, or set dtype to fp32 to find out."
        )


class Preview:
    """Paints the sample prompts into <output>/samples. The VAE is loaded at the first picture and kept."""

    def __init__(
        self, run: Run, trainer: Trainer, removal: list[WithoutAdapter], vae: Path, model: Path, output: Path
    ) -> None:
        self.run = run
        self.trainer = trainer
        self.removal = removal
        self.vae_folder = vae
        self.model_folder = model
        self.folder = output / "samples"
        self.vae: Any = None
        self.files: list[str] = []

    def paint(self, stop: threading.Event) -> None:
        if not _previews(self.run):
            return
        trainer = self.trainer
        if self.vae is None:
            self.vae = load_vae(self.vae_folder, trainer.device)
        scheduler = make_scheduler(self.model_folder)
        model: Any = trainer.model
        for part in self.removal:
            part.active = True
        try:
            with trainer.averaged():
                for number, prompt in enumerate(self.run.samples):
                    latent = denoise(
                        model,
                        scheduler,
                        prompt,
                        trainer.texts.get(_sample_text(self.run, prompt.prompt)),
                        trainer.texts.get(prompt.negative),
                        shrink=vae_divisor(self.vae_folder) // 2,
                        channels=model.config.in_channels,
                        dtype=trainer.dtype,
                        device=trainer.device,
                        stop=stop.is_set,
                    )
                    if latent is None:
                        return
                    file = self.folder / f"{self.run.name}_{trainer.step:09d}_{number}.png"
                    decode(self.vae, latent, file)
                    self.files.append(str(file))
        finally:
            for part in self.removal:
                part.active = False


def _checkpoint(model: nn.Module, loras: Mapping[str, LoraLinear]) -> Any:
    """Recompute a block in backward instead of keeping its activations.

    Blocks without LoRA need no backward, and the last block's would be recomputed at once: both run as they are.
    """
    layers = model.get_submodule("layers")
    last = layers.get_submodule(str(len(list(layers.children())) - 1))
    trained = {id(model.get_submodule(".".join(name.split(".")[:2]))) for name in loras}

    def call(block: nn.Module, *inputs: Any) -> Any:
        if block is last or id(block) not in trained:
            return block(*inputs)
        return checkpoint(block, *inputs, use_reentrant=False, preserve_rng_state=False)

    return call


def _prompts(run: Run, items: Sequence[Item]) -> list[str]:
    texts = [item.caption for item in items]
    texts += [item.dropped for item in items if item.dropout > 0]
    if _previews(run):
        texts += [_sample_text(run, prompt.prompt) for prompt in run.samples]
        texts += [prompt.negative for prompt in run.samples]
    return texts


def _sample_text(run: Run, text: str) -> str:
    """A sample prompt: the trigger word only where the prompt asks for it."""
    return with_trigger(text, run.trigger_word) if "[trigger]" in text or "[name]" in text else text


def _previews(run: Run) -> bool:
    return not run.disable_sampling and bool(run.samples)


def _device(device: str | None, run: Run, progress: Progress) -> torch.device:
    name = device or run.device
    try:
        place = torch.device(name)
    except RuntimeError:
        raise TrainError(f"{name!r} is not a device; write cuda, cuda:1, mps or cpu.") from None
    if place.type == "cuda" and not torch.cuda.is_available():
        if device is not None:
            raise TrainError(f"{device} was asked for, but torch {torch.__version__} sees no CUDA device.")
        progress.note(f"torch {torch.__version__} sees no CUDA device: training on the CPU, which is slow.")
        return torch.device("cpu")
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise TrainError(f"There is no {name}: torch sees {torch.cuda.device_count()} CUDA device(s).")
    return place


def _dtype(run: Run, place: torch.device, progress: Progress) -> torch.dtype:
    """The type to compute in: the config's, but float32 on a CPU that has no bfloat16 arithmetic."""
    dtype: torch.dtype = getattr(torch, DTYPES[run.dtype])
    if place.type == "cpu" and dtype == torch.bfloat16 and not has_bfloat16():
        progress.note(
            "This CPU has no bfloat16 arithmetic (torch emulates it, about 50 times slower): float32 is used, which "
            "is also more exact. Quantized weights stay quantized."
        )
        return torch.float32
    return dtype


def has_bfloat16() -> bool:
    """Whether torch's CPU kernels multiply bfloat16 in hardware here; True where torch cannot tell."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return True


def _explain(run: Run, progress: Progress) -> None:
    """Say where the run differs from what the config's words may suggest."""
    if run.alpha != run.rank:
        progress.note(
            f"alpha {run.alpha:g} is ignored: a Z-Image LoRA is trained and saved with alpha = rank = {run.rank}."
        )
    if run.scheduler == "linear":
        progress.note(
            "lr schedule linear falls from the learning rate to zero here (ai-toolkit's rises from a third)."
        )
    if run.timestep_type == "weighted":
        progress.note("timestep_type weighted uses a fitted curve of ai-toolkit's weights (within 4 %, mean 0.5 %).")
    if run.noise_scheduler != "flowmatch" and run.written("noise_scheduler") is not None:
        progress.note(f"noise_scheduler {run.noise_scheduler} has no meaning for Z-Image; flow matching is used.")
    if run.text_encoder_quantization is not None:
        progress.note("The text encoder runs once, unquantized, and is dropped before training.")


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C or SIGTERM sets; the second Ctrl-C interrupts at once. Main thread only."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def ask(number: int, frame: Any) -> None:
        if event.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        event.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _memory_errors() -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        first = str(error).splitlines()[0]
        raise TrainError(
            f"The GPU ran out of memory ({first}). Lower the resolution or the batch size, keep "
            "gradient_checkpointing on, or quantize the model (qtype: int8)."
        ) from error


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


def _mix(seed: int, index: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {index}".encode()).digest()[:8], "little") >> 1
