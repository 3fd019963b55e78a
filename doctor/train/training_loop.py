"""The training loop makes step after step, and saves, validates and paints samples between them."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from ..model.recipe import Recipe
from .dataset.training_items import TrainingItem
from .distributed.ranks import RankLost
from .job import Job
from .output.checkpoint_files import (
    lora_metadata,
    prune_checkpoints,
    write_lora,
    write_state,
)
from .output.loss_log import LossLog
from .output.run_record import RunFolder
from .output.trackers import Trackers
from .runtime.allocator import empty_device_cache, peak_memory, reset_peak_memory
from .runtime.gpu_failures import LESS, gpu_failure_message, is_gpu_lost, memory_savings, release_frames
from .runtime.run_lock import lock_run
from .runtime.train_error import TrainError
from .sampling.preview_samples import PreviewSamples
from .settings.names import DTYPES
from .step.pace import PaceWatch
from .step.trainer import Trainer

# How often another process looks whether the lock of the first is free, which a killed one leaves at once.
LOOKS, LOOK_SECONDS = 10, 0.1
UNTRUSTED = "What the card holds cannot be trusted, so it is not saved."


def due(recipe: Recipe, step: int) -> tuple[bool, bool, bool]:
    """Tells whether a checkpoint, samples, and a validation come after `step` and before the next one."""
    last = step == recipe.steps
    saves, also, samples = (
        every > 0 and step % every == 0 and not last
        for every in (recipe.checkpoints.every, recipe.checkpoints.also_every, recipe.validation.every)
    )
    saves = saves or also
    return saves, samples, saves or samples or last


@dataclass
class RankLoop:
    """Everything that each rank of a loaded run needs to go to its end.

    `identity` names the state, `held` is validated.
    """

    job: Job
    trainer: Trainer
    preview: PreviewSamples
    identity: dict[str, str]
    held: list[TrainingItem]

    def follow(self) -> None:
        """Makes another rank's share of every step, until the last or until one is stopped.

        Where the base is shared out it also takes part in what the first evaluates and paints. What is trained is the
        same in all processes: when the first is gone, as its lock shows, another one saves in its place.
        """
        recipe, trainer, sharded = self.job.recipe, self.trainer, self.trainer.ranks.sharded
        try:
            if sharded and trainer.step == 0:
                self.validated()
                if not recipe.validation.skip_first:
                    self.paint()
            while trainer.step < recipe.steps and not trainer.ranks.any_rank(self.job.stop.is_set()):
                trainer.advance()
                _, samples, evaluates = due(recipe, trainer.step)
                if sharded and evaluates:
                    self.validated()
                if sharded and samples:
                    self.paint()
            if sharded and trainer.step >= recipe.steps:
                self.paint()
        except RankLost as error:
            for _ in range(LOOKS):
                time.sleep(LOOK_SECONDS)
                with suppress(TrainError), lock_run(self.job.output, self.job.run.name):
                    self.checkpoint(self.job.lora_file(trainer.step))
                    break
            else:
                if not error.silent or trainer.ranks.rank != 1:
                    raise  # the first is there, and saves
                # It holds the lock and does nothing. Should it wake up, it writes the same, each file whole.
                self.checkpoint(self.job.lora_file(trainer.step))
            raise TrainError(f"{error} {self.saved_words(trainer.step)}") from error

    def validated(self) -> float | None:
        """Returns the validation loss; None where nothing is held out, or when it was stopped. Raises RankLost."""
        ranks = self.trainer.ranks
        with ranks.noticing_lost_ranks():
            stop = ranks.agreed(self.job.stop.is_set)
            return self.trainer.validation_loss(self.held, stop) if self.held else None

    def paint(self) -> None:
        """Paints the preview samples. Raises RankLost."""
        with self.trainer.ranks.noticing_lost_ranks():
            self.preview.paint(self.job.stop)

    def checkpoint(self, file: Path) -> None:
        if self.trainer.step == 0:  # a LoRA of zeros, or of the numbers that it was to begin with
            return
        dtype = getattr(torch, DTYPES[self.job.recipe.checkpoints.dtype])
        metadata = lora_metadata(self.job.run, self.trainer.step, self.trainer.epoch)
        write_lora(file, self.trainer.weights(), dtype, metadata)
        self.write_state()

    def write_state(self) -> None:
        write_state(self.job.state_file, self.trainer.state(self.identity, self.held))

    def saved_words(self, kept: int) -> str:
        """Returns what is there of a run that has ended, of which `kept` steps are saved."""
        step = self.trainer.step
        if kept == 0 and (lora := self.job.lora_file(step)).is_file():
            return f"Step {step} is saved as LoRA alone ({lora}); a run cannot go on from it."
        if kept == 0:
            return "No step was done, so nothing is saved." if step == 0 else "No earlier step is saved."
        lora = self.job.lora_file(kept)
        if kept >= self.job.recipe.steps:
            return f"All {self.job.recipe.steps} steps are done and saved in {lora}."
        if kept == step:
            return f"The run is saved at step {step}; the same command goes on from there."
        file = lora if lora.is_file() else self.job.state_file
        return f"The last good save is of step {kept} ({file}); the same command goes on from there."


@dataclass
class TrainingLoop(RankLoop):
    """The loop of the first rank, which also saves, validates, paints and speaks."""

    journal: LossLog
    folder: RunFolder
    trackers: Trackers
    pace: PaceWatch
    halted: bool = False
    kept: int = 0  # the step of the last state that was written

    def train(self) -> Literal["finished", "interrupted"]:
        """Trains until the last step or until asked to stop; saves the LoRA and the state in either case.

        Before the first step is done there is nothing to save, nor to go on from. When something fails, the two are
        saved, too, if they can be. Raises TrainError, or what is none of the user's business.
        """
        self.kept = self.trainer.step
        try:
            return self._train_and_save()
        except KeyboardInterrupt as error:  # of one who did not wait for the step to end
            error.args = (self.saved_words(self.kept),)
            raise
        except Exception as error:
            failed = error
        # not in the handler: while that runs, the error keeps every tensor of the step that failed
        release_frames(failed)
        words = gpu_failure_message(failed, memory_savings(self.job.run, failed) if self.trainer.step else LESS)
        told = str(failed) if isinstance(failed, TrainError) else words
        after = self._rescued(failed)
        with suppress(Exception):  # where nothing can be written any more
            self._tell("Another process ended; saved" if isinstance(failed, RankLost) else "Ended by an error")
        if told is None:
            if after:
                self.job.progress.note(after)
            raise failed
        raise TrainError(f"{told} {after}".rstrip()) from failed

    def _train_and_save(self) -> Literal["finished", "interrupted"]:
        recipe, trainer, stop = self.job.recipe, self.trainer, self.job.stop
        self.folder.keep_peak("loading", peak_memory(trainer.device))
        reset_peak_memory(trainer.device)
        self.job.progress.phase(f"Training {recipe.steps} steps")
        if trainer.step == 0:
            self._evaluate()
            if not recipe.validation.skip_first:
                self.paint()
        elif due(recipe, trainer.step)[1] and not trainer.ranks.sharded and self.preview.lacks():
            self.paint()  # the run was stopped before that
        self._train_steps()
        if self.halted and stop.is_late() and not stop.asked:
            self.job.progress.note(
                f"The limit of --max-minutes is near (measured: {stop.step:.1f} s the slowest step, "
                f"{stop.save:.1f} s the slowest save; twice that is kept free). The run is saved now."
                if stop.step
                else "The limit of --max-minutes was over before a step of this start began; give it more minutes."
            )
        self._save(self.job.lora_file(trainer.step))
        if trainer.step >= recipe.steps:
            self._tell("Finished")  # the next start trains nothing, and would not write it
            self.paint()
        self._tell("Finished" if trainer.step >= recipe.steps else "Stopped")
        return "interrupted" if self.halted or stop.is_set() else "finished"

    def _train_steps(self) -> None:
        recipe, trainer, stop = self.job.recipe, self.trainer, self.job.stop
        rate = 0.0
        while trainer.step < recipe.steps:
            self.halted = trainer.ranks.any_rank(stop.is_set())
            if self.halted:
                return
            begin = time.monotonic()
            with self.pace.step():
                loss = trainer.advance()
            took = time.monotonic() - begin
            stop.step = max(stop.step, took)
            if stop.until is not None and stop.save == 0.0 and trainer.step < recipe.steps:
                self._time_a_save()
            rate = 1.0 / took if rate == 0.0 else 1.0 / (0.8 / rate + 0.2 * took)
            self.job.progress.step(trainer.step, recipe.steps, loss, rate)
            self.journal.step(trainer.step, loss, trainer.rate, took)
            self.trackers.log(trainer.step, {"loss": loss, "lr": trainer.rate})
            saves, samples, evaluates = due(recipe, trainer.step)
            if evaluates:
                self._evaluate()
            if saves:
                self._save(self.job.lora_file(trainer.step, at_end=False))
                prune_checkpoints(self.job.output, self.job.run.name, recipe.checkpoints.keep)
                self._tell("Saved")
            if samples:
                self.paint()

    def _time_a_save(self) -> None:
        """After the first step of a run with a limit: how long the checkpoint at its end will take."""
        begin = time.monotonic()
        self.write_state()
        self.job.stop.save = time.monotonic() - begin
        self.kept = self.trainer.step

    def _rescued(self, failed: Exception) -> str:
        """Save the steps that are done, if they are not saved and can be; says which are, and what to type."""
        trainer = self.trainer
        if trainer.ranks.size > 1 and not isinstance(failed, RankLost):
            return ""  # another process notices that this one is gone, saves, and says so
        newer = self.kept < trainer.step
        why = UNTRUSTED if newer and is_gpu_lost(failed) else trainer.unfit
        if newer and not why:
            try:
                trainer.optimizer.zero_grad(set_to_none=True)
                empty_device_cache()
                self._save(self.job.lora_file(trainer.step))
            except Exception as error:
                same = isinstance(failed, TrainError) and str(error) == str(failed)
                why = f"Step {trainer.step} could not be saved{'.' if same else f': {error}'}"
        return f"{why} {self.saved_words(self.kept)}".lstrip()

    def _tell(self, status: str) -> None:
        trainer = self.trainer
        status = f"{status} at step {trainer.step} of {self.job.recipe.steps}"
        self.folder.keep_peak("training", peak_memory(trainer.device))
        self.folder.write(status, trainer.losses, self.journal.evaluations)

    def _evaluate(self) -> None:
        if self.held:
            self.job.progress.doing("measuring the evaluation loss")
        loss = self.validated()
        if loss is not None:
            step = self.trainer.step
            self.journal.evaluation(step, loss)
            self.trackers.log(step, {"eval_loss": loss}, always=True)
            self.job.progress.phase(
                f"Evaluation loss {loss:.4f} at step {step} (held-out pictures: {len(self.held)})"
            )

    def _save(self, file: Path) -> None:
        begin = time.monotonic()
        self.job.progress.doing(f"saving step {self.trainer.step}")
        self.journal.sync()
        self.checkpoint(file)
        self.job.stop.save = max(self.job.stop.save, time.monotonic() - begin)
        self.kept = self.trainer.step
