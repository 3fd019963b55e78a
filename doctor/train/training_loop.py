"""The steps of a run, one after the other, and what is saved and painted between them."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from ..families import family_of as record_of
from ..model.run import Run
from .dataset.training_items import Item
from .distributed.ranks import Lost
from .output.checkpoint_files import final_file, metadata, prune, state_file, step_file, write_lora, write_state
from .output.loss_log import Journal
from .output.run_record import Folder
from .output.trackers import Trackers
from .runtime.allocator import count_anew, free_memory, peak_memory
from .runtime.gpu_failures import LESS, in_words, is_card_lost, less_of, let_go
from .runtime.progress import Progress
from .runtime.run_lock import alone
from .runtime.stop_signals import Stop
from .runtime.train_error import TrainError
from .sampling.preview_samples import Preview
from .settings.names import DTYPES
from .step.trainer import Trainer
from .step.validation import evaluate

# How often another process looks whether the lock of the first is free, which a killed one leaves at once.
LOOKS, LOOK_SECONDS = 10, 0.1
UNTRUSTED = "What the card holds cannot be trusted, so it is not saved."


@dataclass
class Steps:
    """What a loaded run needs to go to its end. The state is known by `identity`; `held` is what is evaluated."""

    run: Run
    trainer: Trainer
    preview: Preview
    output: Path
    identity: dict[str, str]
    progress: Progress
    stop: Stop
    held: list[Item]
    journal: Journal
    folder: Folder
    trackers: Trackers
    halted: bool = False
    kept: int = 0  # the step of the last state that was written

    def go(self) -> Literal["finished", "interrupted"]:
        """Train until the last step or until asked to stop; the LoRA and the state are saved in either case.

        Before the first step is done there is nothing to save, nor to go on from. When something fails, the two are
        saved, too, if they can be. Raises TrainError, or what is none of the user's business.
        """
        self.kept = self.trainer.step
        try:
            return self._go()
        except KeyboardInterrupt as error:  # of one who did not wait for the step to end
            error.args = (_saved_words(self.run, self.output, self.kept, self.trainer.step),)
            raise
        except Exception as error:
            failed = error
        # not in the handler: while that runs, the error keeps every tensor of the step that failed
        let_go(failed)
        words = in_words(failed, less_of(self.run, failed) if self.trainer.step else LESS)
        told = str(failed) if isinstance(failed, TrainError) else words
        after = self._rescued(failed)
        with suppress(Exception):  # where nothing can be written any more
            self._tell("Another process ended; saved" if isinstance(failed, Lost) else "Ended by an error")
        if told is None:
            if after:
                self.progress.note(after)
            raise failed
        raise TrainError(f"{told} {after}".rstrip()) from failed

    def _go(self) -> Literal["finished", "interrupted"]:
        run, trainer, stop = self.run, self.trainer, self.stop
        self.folder.keep_peak("loading", peak_memory(trainer.device))
        count_anew(trainer.device)
        self.progress.phase(f"Training {run.recipe.steps} steps")
        if trainer.step == 0:
            self._evaluate()
            if not run.recipe.validation.skip_first:
                painted(trainer, self.preview, stop)
        elif due(run, trainer.step)[1] and not trainer.ranks.sharded and self.preview.lacks():
            painted(trainer, self.preview, stop)  # the run was stopped before that
        self._train()
        if self.halted and stop.is_late() and not stop.asked:
            self.progress.note(
                f"The limit of --max-minutes is near (measured: {stop.step:.1f} s the slowest step, "
                f"{stop.save:.1f} s the slowest save; twice that is kept free). The run is saved now."
                if stop.step
                else "The limit of --max-minutes was over before a step of this start began; give it more minutes."
            )
        self._save(saved(run, self.output, trainer.step))
        if trainer.step >= run.recipe.steps:
            self._tell("Finished")  # the next start trains nothing, and would not write it
            painted(trainer, self.preview, stop)
        self._tell("Finished" if trainer.step >= run.recipe.steps else "Stopped")
        return "interrupted" if self.halted or stop.is_set() else "finished"

    def _train(self) -> None:
        run, trainer, stop = self.run, self.trainer, self.stop
        rate = 0.0
        while trainer.step < run.recipe.steps:
            self.halted = trainer.ranks.any(stop.is_set())
            if self.halted:
                return
            begin = time.monotonic()
            loss = trainer.advance()
            took = time.monotonic() - begin
            stop.step = max(stop.step, took)
            if stop.until is not None and stop.save == 0.0 and trainer.step < run.recipe.steps:
                self._time_a_save()
            rate = 1.0 / took if rate == 0.0 else 1.0 / (0.8 / rate + 0.2 * took)
            self.progress.step(trainer.step, run.recipe.steps, loss, rate)
            self.journal.step(trainer.step, loss, trainer.rate, took)
            self.trackers.log(trainer.step, {"loss": loss, "lr": trainer.rate})
            saves, samples, evaluates = due(run, trainer.step)
            if evaluates:
                self._evaluate()
            if saves:
                self._save(step_file(self.output, run.name, trainer.step))
                prune(self.output, run.name, run.recipe.checkpoints.keep)
                self._tell("Saved")
            if samples:
                painted(trainer, self.preview, stop)

    def _time_a_save(self) -> None:
        """After the first step of a run with a limit: how long the checkpoint at its end will take."""
        begin = time.monotonic()
        write_state(state_file(self.output, self.run.name), self.trainer.state(self.identity, self.held))
        self.stop.save = time.monotonic() - begin
        self.kept = self.trainer.step

    def _rescued(self, failed: Exception) -> str:
        """Save the steps that are done, if they are not saved and can be; says which are, and what to type."""
        trainer = self.trainer
        if trainer.ranks.size > 1 and not isinstance(failed, Lost):
            return ""  # another process notices that this one is gone, saves, and says so
        newer = self.kept < trainer.step
        why = UNTRUSTED if newer and is_card_lost(failed) else trainer.unfit
        if newer and not why:
            try:
                trainer.optimizer.zero_grad(set_to_none=True)
                free_memory()
                self._save(saved(self.run, self.output, trainer.step))
            except Exception as error:
                same = isinstance(failed, TrainError) and str(error) == str(failed)
                why = f"Step {trainer.step} could not be saved{'.' if same else f': {error}'}"
        return f"{why} {_saved_words(self.run, self.output, self.kept, trainer.step)}".lstrip()

    def _tell(self, status: str) -> None:
        trainer = self.trainer
        status = f"{status} at step {trainer.step} of {self.run.recipe.steps}"
        self.folder.keep_peak("training", peak_memory(trainer.device))
        self.folder.write(status, trainer.losses, self.journal.evaluations)

    def _evaluate(self) -> None:
        loss = measured(self.trainer, self.held, self.stop)
        if loss is not None:
            step = self.trainer.step
            self.journal.evaluation(step, loss)
            self.trackers.log(step, {"eval_loss": loss}, always=True)
            self.progress.phase(f"Evaluation loss {loss:.4f} at step {step} (held-out pictures: {len(self.held)})")

    def _save(self, file: Path) -> None:
        begin = time.monotonic()
        self.journal.sync()
        _checkpoint(self.trainer, file, self.output, self.identity, self.held)
        self.stop.save = max(self.stop.save, time.monotonic() - begin)
        self.kept = self.trainer.step


def due(run: Run, step: int) -> tuple[bool, bool, bool]:
    """Whether a checkpoint, samples, and an evaluation come after `step` and before the next one."""
    recipe = run.recipe
    last = step == recipe.steps
    saves, also, samples = (
        every > 0 and step % every == 0 and not last
        for every in (recipe.checkpoints.every, recipe.checkpoints.also_every, recipe.validation.every)
    )
    saves = saves or also
    return saves, samples, saves or samples or last


def measured(trainer: Trainer, held: list[Item], stop: Stop) -> float | None:
    """The evaluation loss; None where nothing is held out, or when it was stopped. Raises Lost."""
    with trainer.ranks.noticing():
        return evaluate(trainer, held, trainer.ranks.agreed(stop.is_set)) if held else None


def painted(trainer: Trainer, preview: Preview, stop: Stop) -> None:
    """Paint the samples. Raises Lost."""
    with trainer.ranks.noticing():
        preview.paint(stop)


def follow(
    trainer: Trainer, preview: Preview, stop: Stop, output: Path, identity: dict[str, str], held: list[Item]
) -> None:
    """What a process other than the first does: its share of every step, until the last or until one is stopped.

    Where the base is shared out it also takes part in what the first evaluates and paints. What is trained is the
    same in all processes: when the first is gone, as its lock shows, another one saves in its place.
    """
    run, sharded = trainer.run, trainer.ranks.sharded
    try:
        if sharded and trainer.step == 0:
            measured(trainer, held, stop)
            if not run.recipe.validation.skip_first:
                painted(trainer, preview, stop)
        while trainer.step < run.recipe.steps and not trainer.ranks.any(stop.is_set()):
            trainer.advance()
            _, samples, evaluates = due(run, trainer.step)
            if sharded and evaluates:
                measured(trainer, held, stop)
            if sharded and samples:
                painted(trainer, preview, stop)
        if sharded and trainer.step >= run.recipe.steps:
            painted(trainer, preview, stop)
    except Lost as error:
        for _ in range(LOOKS):
            time.sleep(LOOK_SECONDS)
            with suppress(TrainError), alone(output, run.name):
                _checkpoint(trainer, saved(run, output, trainer.step), output, identity, held)
                break
        else:
            if not error.silent or trainer.ranks.rank != 1:
                raise  # the first is there, and saves
            # It holds the lock and does nothing. Should it wake up, it writes the same, each file whole.
            _checkpoint(trainer, saved(run, output, trainer.step), output, identity, held)
        raise TrainError(f"{error} {_saved_words(run, output, trainer.step, trainer.step)}") from error


def _saved_words(run: Run, output: Path, kept: int, step: int) -> str:
    """What is there of a run that has ended after `step` steps, of which `kept` are saved."""
    if kept == 0:
        return "No step was done, so nothing is saved." if step == 0 else "No earlier step is saved."
    if kept >= run.recipe.steps:
        return f"All {run.recipe.steps} steps are done and saved in {saved(run, output, kept)}."
    if kept == step:
        return f"The run is saved at step {step}; the same command goes on from there."
    lora = saved(run, output, kept)
    file = lora if lora.is_file() else state_file(output, run.name)
    return f"The last good save is of step {kept} ({file}); the same command goes on from there."


def _checkpoint(trainer: Trainer, file: Path, output: Path, identity: dict[str, str], held: list[Item]) -> None:
    if trainer.step == 0:  # a LoRA of zeros, or of the numbers that it was to begin with
        return
    run = trainer.run
    dtype = getattr(torch, DTYPES[run.recipe.checkpoints.dtype])
    base = record_of(run.recipe.architecture).base_version
    write_lora(file, trainer.weights(), dtype, metadata(run, trainer.step, trainer.epoch, base))
    write_state(state_file(output, run.name), trainer.state(identity, held))


def saved(run: Run, output: Path, step: int) -> Path:
    """The LoRA that is written when a run ends after `step` steps."""
    return final_file(output, run.name) if step >= run.recipe.steps else step_file(output, run.name, step)
