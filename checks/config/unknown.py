"""CFG002: keys that the trainer does not read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...doctor.model import Config, Finding, Run, Schema, Severity, Value, found
from ...doctor.model.schema import Section
from ...doctor.rules import prevents, rule
from ...doctor.trainers import trainer_of
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
_SILENT = "The trainer starts without a word and uses its default"
_STOPS = "The trainer stops at the start, before it loads anything"


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
    SimpleTuner's options stop the trainer. SimpleTuner leaves out the text "false", an empty text and a mapping
    before it looks at the names.
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
    for key, value in run.settings.items():
        parent, _, name = key.rpartition("/")
        section = re.sub(r"/\d+(?=/|$)", "/*", parent)
        keys = None if _chosen_in_a_gui(config, run, value) else _keys(schema, run, section)
        if run.by_runner and key in trainer.runner_keys:
            continue
        if keys is None or name in keys or (section == "" and name in schema.renamed):
            continue
        looked_up += 1
        nearest, home = None, ""
        if looked_up <= MOST_NEAREST:  # a file with more is not misspelt, it is something else
            written = {k.rpartition("/")[2] for k in run.settings if k.rpartition("/")[0] == parent}
            nearest, home = _nearest(schema, run, name, section, written)
        shell = config.file(value.where.path).format == "shell"
        short_for = _abbreviated(shell, run, section, name, keys)
        if short_for is not None:
            yield _short(config, schema, value, name, section, short_for)
            continue
        absent = home == "" and nearest in _DECISIVE and nearest not in run.settings and trainer.has_processes
        decisive = _DECISIVE[nearest] if absent and nearest else ""
        severity, when = _weight(shell, run, section, _left_out(config, run, value))
        yield _finding(
            config, schema, value, name, section, nearest, home, decisive, "error" if decisive else severity, when
        )


def _chosen_in_a_gui(config: Config, run: Run, value: Value) -> bool:
    """Whether this is a setting of kohya's GUI, which keeps those of all models and hands on what one takes."""
    return trainer_of(run.trainer).has_gui and value.where.path == config.path and config.format == "json"


def _keys(schema: Schema, run: Run, section: str) -> Section | None:
    """What may stand in a section of this run, None where that is not known or anything may."""
    if trainer_of(schema.trainer).has_processes and f"{run.process_type}:" not in schema.sections:
        return None  # an extension that is not in this checkout, or one that trains nothing
    return schema.section(section, run.process_type)


def _weight(shell: bool, run: Run, section: str, left_out: bool) -> tuple[Severity, str]:
    """How much an unknown key weighs, and what the trainer does with it."""
    place = "section" if section else "shell" if shell else "top"
    refused = place in trainer_of(run.trainer).refuses_unknown and not left_out
    return ("error", _STOPS) if refused else ("warning", _SILENT)


def _left_out(config: Config, run: Run, value: Value) -> bool:
    """Whether this never becomes a word of the command line that SimpleTuner makes of its file."""
    if not trainer_of(run.trainer).becomes_command_line or config.file(value.where.path).format not in (
        "json",
        "toml",
    ):
        return False
    if isinstance(value.value, str):
        return value.value.strip().lower() in ("", "false")
    return isinstance(value.value, dict) or value.value == []


def _abbreviated(shell: bool, run: Run, section: str, name: str, keys: Section) -> str | None:
    """The one option that a name begins: argparse takes it for that."""
    if section or not (trainer_of(run.trainer).becomes_command_line or shell):
        return None
    begun = [key for key in keys if key.startswith(name)]
    return begun[0] if len(begun) == 1 else None


def _outer(config: Config, schema: Schema) -> Iterator[Finding]:
    """Keys outside the processes: only what looks like a slip, for any name may hold YAML anchors there."""
    for pointer, value in config.values.items():
        parent, _, name = pointer.rpartition("/")
        known = _TOP if parent == "" else _INNER if parent == "/config" else None
        if known is None or name in known:
            continue
        from difflib import get_close_matches

        slip = get_close_matches(name, sorted(known), 1, 0.7)
        at = parent.strip("/")
        if slip:
            yield _finding(config, schema, value, name, at, slip[0], at, "", "warning", _SILENT)
        elif parent == "/config" and name in (schema.section("") or ()):
            yield _finding(config, schema, value, name, "config", name, "", "", "warning", _SILENT)


def _nearest(schema: Schema, run: Run, name: str, section: str, written: set[str]) -> tuple[str | None, str]:
    """The key that was probably meant, and its section; (None, "") when none is near."""
    homes = [home for home in _homes(schema, section) if _keys(schema, run, home) is not None]
    for home in homes:
        if name in (_keys(schema, run, home) or ()):
            return name, home
    best: tuple[float, str, str] | None = None
    for home in dict.fromkeys(
        (section, *(() if section.count("*") and trainer_of(schema.trainer).has_processes else homes))
    ):
        for key in _keys(schema, run, home) or ():
            score = likeness(name, key) - (0.0 if home == section else 0.25) - (0.05 if key in written else 0.0)
            if score > 0.65 and (best is None or score > best[0]):
                best = (score, key, home)
    return (None, "") if best is None else (best[1], best[2])


def _homes(schema: Schema, section: str) -> tuple[str, ...]:
    """The sections that a key may have strayed from."""
    trainer = trainer_of(schema.trainer)
    return trainer.dataset_sections if section and trainer.dataset_sections else trainer.sections


def _finding(
    config: Config,
    schema: Schema,
    value: Value,
    name: str,
    section: str,
    nearest: str | None,
    home: str,
    decisive: str,
    severity: Severity,
    when: str,
) -> Finding:
    place = (
        "in {section}" if section else "directly in the process" if trainer_of(schema.trainer).has_processes else ""
    )
    message = "{trainer} reads no key {key}" + (f" {place}" if place else "")
    message += ", so it is silently ignored." if when == _SILENT else "."
    if nearest is not None and home == section:
        message += " Did you mean {nearest}?"
    elif nearest is not None:
        message += " The key {nearest} belongs " + ("in {home}." if home else "to the outermost keys.")
    return found(
        key_where(config, value),
        message + (" " + decisive if decisive else ""),
        otherwise=when + " (keys as read by {table}).",
        evidence=_evidence(config, schema, value, name, section, nearest if home == section else None, nearest),
        severity=severity,
        trainer=schema.trainer,
        key=name,
        section=section.replace("/*", "[]"),
        home=home.replace("/*", "[]"),
        nearest=nearest,
        table=schema.named,
    )


def _short(config: Config, schema: Schema, value: Value, name: str, section: str, whole: str) -> Finding:
    return found(
        key_where(config, value),
        "{trainer} takes {key} as short for {nearest}. Write the whole name: with another option that begins so, the "
        "short one stops the trainer.",
        otherwise="Nothing happens today (keys as read by {table}).",
        evidence=_evidence(config, schema, value, name, section, whole, whole),
        severity="note",
        trainer=schema.trainer,
        key=name,
        nearest=whole,
        table=schema.named,
    )


def _evidence(
    config: Config, schema: Schema, value: Value, name: str, section: str, new: str | None, nearest: str | None
) -> dict[str, object]:
    span = key_span(config, value)
    evidence: dict[str, object] = {"key": name, "section": section, "nearest": nearest, "table": schema.named}
    if span is not None and new is not None and new != name:
        evidence |= {"start": span[0], "end": span[1], "old": name, "new": new}
    return evidence
