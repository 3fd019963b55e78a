"""CFG002: keys that the trainer does not read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...doctor.model import Config, Finding, Run, Schema, Value, found
from ...doctor.model.record import dataclass
from ...doctor.model.schema import Section
from ...doctor.model.unfinished import UNLESS_YOURS_READS
from ...doctor.rules import prevents, rule
from ...doctor.trainers import loaded, trainer_of
from ...doctor.trainers.alike import alike
from ..keys.misspelled import likeness
from ..keys.places import key_span, key_where

MOST_NEAREST = 50
_TOP = frozenset(("job", "config", "meta"))
_INNER = frozenset(("name", "process", "device", "training_folder", "is_v2", "log_dir"))
# a run without these is another run: no network means a full fine-tune, no train section means fp32 and lr 1e-6
_DECISIVE = {
    "network": "Without a network section the trainer makes a full fine-tune of the whole model.",
    "train": "Without a train section every setting of the training is the trainer's default (fp32, lr 1e-6).",
    "model": "Without a model section there is no model to train: name_or_path must be specified.",
    "datasets": "Without datasets there is nothing to train on.",
}
_SILENT = "The trainer starts without a word and uses its default (keys as read by {table})."
_STOPS = "The trainer stops at the start, before it loads anything (keys as read by {table})."
_UNLESS_ELSEWHERE = (
    "The trainer stops at the start, before it loads anything (keys as read by {table}), unless another part of it "
    "does: the word stands in its source."
)


@dataclass(frozen=True)
class Stray:
    """A key that is not read where it stands. In `section`, "*" is any number."""

    value: Value
    name: str
    section: str


@rule("CFG002", "warning", "unknown-key")
@prevents("ArgumentError", r"unrecognized arguments: ")
@prevents("voluptuous.error.MultipleInvalid", r"extra keys not allowed")
def unknown_key(config: Config, run: Run, schema: Schema) -> Iterator[Finding]:
    """A key that the trainer never reads.

    What: A key that the trainer does not ask for at this place: misspelt, or in the wrong section. What it asks for
    is mined from its own source: that of the checkout which the config lies in, which lies beside it or which
    --trainer-source names, else that of the commit which the finding names. Mappings that a trainer hands on as they
    are (network_kwargs, optimizer_params) may hold anything.
    Why: ai-toolkit takes what it knows from every section and drops the rest without a word, so the default is
    used instead; a misspelt network section turns a LoRA run into a full fine-tune, which is an error here. The TOML
    config file of sd-scripts and musubi-tuner drops unknown keys, too; their dataset files, their command line and
    SimpleTuner's options stop the trainer. That is an error where the checkout at hand lacks the key, or where it is
    one slip away from one that is known; a fork or another version may know any other. SimpleTuner leaves out the
    text "false", an empty text and a mapping before it looks at the names.
    Repair: The nearest key that the trainer reads is offered as a rename; it is for you to say whether it was meant.
    Upstream: ai-toolkit toolkit/config_modules.py; sd-scripts library/train_util.py read_config_from_file;
    SimpleTuner simpletuner/helpers/configuration/cmd_args.py, cli_utils.py mapping_to_cli_args
    Signature: None where it is dropped; "unrecognized arguments", "extra keys not allowed" where the trainer stops.
    """
    trainer = trainer_of(schema.trainer)
    if run.by_runner and not trainer.has_processes:
        return  # zdoctor's runner refuses by name whatever it does not obey
    if trainer.has_processes:
        yield from _outer(config, schema)
    looked_up = 0
    siblings: dict[str, set[str]] = {}
    for key in run.settings:
        parent, _, name = key.rpartition("/")
        siblings.setdefault(parent, set()).add(name)
    of_gui = trainer.of_gui if run.settings.keys() >= set(trainer.of_gui[:1]) else ()
    for key, value in run.settings.items():
        parent, _, name = key.rpartition("/")
        one = Stray(value, name, re.sub(r"/\d+(?=/|$)", "/*", parent))
        file = config.file(value.where.path)
        # kohya's GUI keeps the settings of all models and hands on what one takes
        in_a_gui = trainer.has_gui and file is config and config.format == "json"
        keys = None if in_a_gui else _keys(schema, run, one.section)
        if keys is None or name in keys or (run.by_runner and key in trainer.runner_keys):
            continue
        if (value.where.pointer or "").rpartition("/")[2] in keys:
            continue  # an old name, read as the new one, of a checkout that knows the old one
        if one.section == "" and (name in schema.renamed or (name in of_gui and file.format == "toml")):
            continue
        looked_up += 1
        options = one.section == "" and (trainer.becomes_command_line or file.format == "shell")
        begun = [whole for whole in keys if whole.startswith(name)] if options else []
        if len(begun) == 1:
            yield _short(config, schema, one, begun[0])  # argparse takes it for that option
            continue
        nearest, home = None, ""
        if looked_up <= MOST_NEAREST:  # a file with more is not misspelt, it is something else
            nearest, home = _nearest(schema, run, one, siblings[parent])
        place = "section" if one.section else "shell" if file.format == "shell" else "top"
        refused = place in trainer.refuses_unknown and not (trainer.becomes_command_line and _left_out(file, value))
        absent = home == "" and nearest is not None and nearest not in run.settings and trainer.has_processes
        decisive = _DECISIVE.get(nearest or "", "") if absent else ""
        yield _finding(config, schema, one, nearest, home, refused=refused, decisive=decisive)


def _keys(schema: Schema, run: Run, section: str) -> Section | None:
    """What may stand in a section of this run, None where that is not known or anything may."""
    if trainer_of(schema.trainer).has_processes and f"{run.process_type}:" not in schema.sections:
        return None  # an extension that is not in this checkout, or one that trains nothing
    return schema.section(section, run.process_type)


def _left_out(file: Config, value: Value) -> bool:
    """Whether this never becomes a word of the command line that SimpleTuner makes of its file."""
    if file.format not in ("json", "toml"):
        return False
    if isinstance(value.value, str):
        return value.value.strip().lower() in ("", "false")
    return isinstance(value.value, dict) or value.value == []


def _outer(config: Config, schema: Schema) -> Iterator[Finding]:
    """Keys outside the processes: only what looks like a slip, for any name may hold YAML anchors there."""
    for pointer, value in config.values.items():
        parent, _, name = pointer.rpartition("/")
        known = _TOP if parent == "" else _INNER if parent == "/config" else None
        if known is None or name in known:
            continue
        from difflib import get_close_matches

        slip = get_close_matches(name, sorted(known), 1, 0.7)
        one = Stray(value, name, parent.strip("/"))
        if slip:
            yield _finding(config, schema, one, slip[0], one.section)
        elif parent == "/config" and name in (schema.section("") or ()):
            yield _finding(config, schema, one, name, "")


def _nearest(schema: Schema, run: Run, one: Stray, written: set[str]) -> tuple[str | None, str]:
    """The key that was probably meant, and its section; (None, "") when none is near."""
    trainer = trainer_of(schema.trainer)
    strayed = trainer.dataset_sections if one.section and trainer.dataset_sections else trainer.sections
    homes = {home: keys for home in strayed if (keys := _keys(schema, run, home)) is not None}
    for home, keys in homes.items():
        if one.name in keys:
            return one.name, home
    everywhere = dict.fromkeys((one.section, *trainer.sections, *trainer.dataset_sections))
    for home in everywhere:
        named = (name for name in alike(one.name) if name in (_keys(schema, run, home) or ()))
        if (name := next(named, None)) is not None:
            return (None, "") if name in written and home == one.section else (name, home)
    own = {one.section: _keys(schema, run, one.section) or {}}
    near = own if "*" in one.section and trainer.has_processes else own | homes
    scored = [
        (likeness(one.name, key) - 0.25 * (home != one.section) - 0.05 * (key in written), key, home)
        for home, keys in near.items()
        for key in keys
    ]
    score, nearest, home = max(scored, key=lambda found: found[0], default=(0.0, "", ""))
    return (nearest, home) if score > 0.65 else (None, "")


def _otherwise(refused: bool, elsewhere: bool, doubtful: bool) -> str:
    if not refused:
        return _SILENT
    return _UNLESS_ELSEWHERE if elsewhere else UNLESS_YOURS_READS if doubtful else _STOPS


def _finding(
    config: Config,
    schema: Schema,
    one: Stray,
    nearest: str | None,
    home: str,
    *,
    refused: bool = False,
    decisive: str = "",
) -> Finding:
    trainer = trainer_of(schema.trainer)
    processes = trainer.has_processes
    entry = loaded(trainer.list_of)(one.name) if trainer.list_of and not one.section else ""
    message = (
        "{trainer} reads no key {key}"
        + (" in {place}" if one.section else " directly in the process" if processes else "")
        + ("." if refused else ", so it is silently ignored.")
    )
    if nearest is not None and home == one.section:
        message += " Did you mean {nearest}?"
    elif nearest is not None:
        message += " The key {nearest} belongs " + ("in {home}." if home else "to the outermost keys.")
    elif entry:
        message += " It is an argument that stands in {entry}, as {key}=VALUE."
    slip = nearest is not None and (likeness(one.name, nearest) > 1 or one.name == nearest)
    elsewhere = one.name in schema.words
    doubtful = refused and (elsewhere or not (slip or schema.source))
    return found(
        key_where(config, one.value),
        message + (" " + decisive if decisive else ""),
        otherwise=_otherwise(refused, elsewhere, doubtful),
        evidence=_evidence(config, schema, one, nearest if home == one.section else None, nearest),
        severity="error" if decisive or (refused and not doubtful) else "warning",
        trainer=schema.trainer,
        place=one.section.replace("/*", "[]"),
        home=home.replace("/*", "[]"),
        entry=entry,
    )


def _short(config: Config, schema: Schema, one: Stray, whole: str) -> Finding:
    return found(
        key_where(config, one.value),
        "{trainer} takes {key} as short for {nearest}. Write the whole name: with another option that begins so, the "
        "short one stops the trainer.",
        otherwise="Nothing happens today (keys as read by {table}).",
        evidence=_evidence(config, schema, one, whole, whole),
        severity="note",
        trainer=schema.trainer,
    )


def _evidence(config: Config, schema: Schema, one: Stray, new: str | None, nearest: str | None) -> dict[str, object]:
    span = key_span(config, one.value)
    evidence: dict[str, object] = {"key": one.name, "section": one.section, "nearest": nearest, "table": schema.named}
    if span is not None and new is not None and new != one.name:
        evidence |= {"start": span[0], "end": span[1], "old": one.name, "new": new}
    return evidence
