"""A run writes LoRA files, and the state from which it goes on exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .... import __version__
from ...families import family_of
from ...families.network import lokr_rank
from ...model.remains import Save, author_of, is_own_save, of_another_run, own_identity, taken
from ...model.run import Run
from ..runtime.atomic_files import atomic_file, write_atomic
from ..runtime.train_error import TrainError
from ..settings.names import CACHE
from ..step.trainer import TrainingState

STATE_VERSION = 1


def write_lora(file: Path, tensors: Mapping[str, Tensor], dtype: torch.dtype, metadata: Mapping[str, str]) -> None:
    """Writes a LoRA atomically, then opens it again and compares. Raises TrainError when it would not be usable."""
    from safetensors import safe_open
    from safetensors.torch import save

    cast = {key: value.detach().to("cpu", dtype).contiguous() for key, value in tensors.items()}
    for key, value in cast.items():
        if not torch.isfinite(value).all():
            raise TrainError(
                f"{key} is not finite as {str(dtype).removeprefix('torch.')}, so {file} was not written. Training "
                "has diverged, or the save dtype is too narrow; lower the learning rate or save as bf16."
            )
    write_atomic(file, _in_order(save(cast, metadata={**metadata, "format": "pt"})))
    with safe_open(str(file), framework="pt") as opened:
        written = {key: tuple(opened.get_slice(key).get_shape()) for key in opened.keys()}  # noqa: SIM118
    if written != {key: tuple(value.shape) for key, value in cast.items()}:
        raise TrainError(f"{file} does not hold what was written to it. Check the disk.")


def _in_order(content: bytes) -> bytes:
    """The same file with its metadata by name; the library's order is another each time."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((len(text).to_bytes(8, "little"), text, memoryview(content)[8 + size :]))


def lora_metadata(run: Run, step: int, epoch: int) -> dict[str, str]:
    """Returns the header metadata of a LoRA as other programs read it."""
    recipe = run.recipe
    fields: dict[str, Any] = {
        **{str(key): value for key, value in run.metadata.items()},
        "name": run.name,
        "training_info": {"step": step, "epoch": epoch},
        "software": {"name": "zdoctor", "version": __version__},
        "ss_base_model_version": family_of(recipe.architecture).base_version,
        "ss_output_name": run.name,
    }
    rank = lokr_rank(recipe.network) if recipe.network.type == "lokr" else recipe.network.rank
    if rank is not None:
        fields.update(ss_network_dim=rank)
        fields.update({} if recipe.network.type == "oft" else {"ss_network_alpha": rank})
    if recipe.trigger_word:
        fields["ss_tag_frequency"] = {f"1_{recipe.trigger_word}": {recipe.trigger_word: 1}}
    return {key: value if isinstance(value, str) else json.dumps(value, default=str) for key, value in fields.items()}


def check_owner(folder: Path, run: Run) -> None:
    """Raises TrainError when a LoRA of this name is not zdoctor's, since the run would overwrite or prune it."""
    saves = (_save(file) for file in sorted(folder.iterdir()) if is_own_save(file.name, run.name))
    if reason := taken(run, tuple(saves)):
        template, values = reason
        raise TrainError(template.format(**values))


def _save(file: Path) -> Save:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), framework="pt") as opened:
            told = opened.metadata() or {}
        software = json.loads(told.get("software", "{}"))
    except (SafetensorError, OSError) as error:
        return Save(str(file), problem=str(error))
    except ValueError:
        software = {}
    return Save(str(file), author_of({"software": software}), modified_ns=file.stat().st_mtime_ns)


def remove_leftovers(folder: Path, name: str) -> None:
    """Removes what a killed run had begun to write. Call it while nobody else writes there."""
    own = (f".{escape(name)}*.part", ".run.json.*.part", ".report.html.*.part", f"samples/.{escape(name)}_*.part")
    begun = [part for pattern in own for part in folder.glob(pattern)]
    for part in (*begun, *(folder / CACHE).glob(".*.part")):
        with suppress(OSError):
            part.unlink()


def prune_checkpoints(folder: Path, name: str, keep: int) -> None:
    """Removes all but the `keep` newest step files of this run (0 or less keeps all)."""
    final = folder / f"{name}.safetensors"
    saves = sorted(path for path in folder.iterdir() if is_own_save(path.name, name) and path != final)
    if keep > 0:
        for path in saves[:-keep]:
            with suppress(OSError):  # Windows keeps what a program has open; it goes with the next save
                path.unlink()


def write_state(file: Path, state: TrainingState) -> None:
    """Writes the training state, and beside it what it belongs to."""
    name = file.name.removeprefix(".").removesuffix(".state.pt")
    write_atomic(file.with_name(own_identity(name)), json.dumps(state.identity).encode(), durable=False)
    with atomic_file(file) as stream:  # never as a whole in memory
        try:
            torch.save({"version": STATE_VERSION, **vars(state)}, stream)
        except RuntimeError as error:  # what torch makes of a full disk
            raise (error.__context__ if isinstance(error.__context__, OSError) else error) from None


def read_state(file: Path, identity: Mapping[str, str]) -> TrainingState | None:
    """Returns the state of an earlier start, or None.

    Raises TrainError when it belongs to another model, rank or adapter.
    """
    if not file.exists():
        return None
    try:
        content = torch.load(str(file), map_location="cpu", weights_only=True)
        if content.pop("version") != STATE_VERSION:
            raise ValueError("written by another version")
        state = TrainingState(**content)
    except Exception as error:  # a damaged file fails in many ways
        raise TrainError(
            f"The training state {file} cannot be read: it is cut off, damaged or of another version of zdoctor "
            f"({type(error).__name__}). Move it away to start from step 0.{_newest(file)}"
        ) from error
    if reason := of_another_run(str(file), state.identity, identity):
        template, values = reason
        raise TrainError(template.format(**values))
    return state


def _newest(state: Path) -> str:
    """How to keep what was learnt when the state is lost; "" when there is no LoRA of the run."""
    name = state.name.removeprefix(".").removesuffix(".state.pt")
    saves = [path for path in state.parent.iterdir() if is_own_save(path.name, name)]
    if not saves:
        return ""
    newest = max(saves, key=lambda path: path.stat().st_mtime_ns)
    return f" The new run begins with what was learnt if the config says network: {{pretrained_lora_path: {newest}}}."
