"""CFG002: keys that the trainer does not read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from ...doctor.model import Config, Finding, Run, Value, found
from ...doctor.rules import rule
from .keys import COMMIT, SECTIONS
from .places import key_span, key_where

MOST_NEAREST = 50
_TRAINERS = ("sd_trainer", "diffusion_trainer", "ui_trainer")
_SLIDERS = (
    "concept_slider",
    "image_reference_slider_trainer",
    "ultimate_slider_trainer",
    "concept_replacer",
    "textual_inversion_trainer",
    "slider",
)
_TOP = frozenset(("job", "config", "meta"))
_INNER = frozenset(("name", "process", "device", "training_folder", "is_v2", "log_dir"))
# a run without these is another run: no network means a full fine-tune, no train section means fp32 and lr 1e-6
_DECISIVE = {
    "network": "Without a network section the trainer makes a full fine-tune of the whole model.",
    "train": "Without a train section every setting of the training is the trainer's default (fp32, lr 1e-6).",
    "model": "Without a model section there is no model to train: name_or_path must be specified.",
    "datasets": "Without datasets there is nothing to train on.",
}


@rule("CFG002", "warning", "unknown-key")
def unknown_key(config: Config, run: Run) -> Iterator[Finding]:
    """A key that the trainer never reads.

    What: A key that no part of ai-toolkit asks for at this place: misspelt, or in the wrong section.
    Why: The trainer takes what it knows from every section and drops the rest without a word, so the default is
    used instead. A misspelt network section turns a LoRA run into a full fine-tune; that is an error here.
    Repair: The nearest key that the trainer reads is offered as a rename; it is for you to say whether it was meant.
    Upstream: toolkit/config_modules.py takes every value with kwargs.get.
    Signature: None; the run starts and trains with other settings than the file says.
    """
    yield from _outer(config)
    if run.process_type not in (*_TRAINERS, *_SLIDERS):
        return
    looked_up = 0
    for key, value in run.settings.items():
        parent, _, name = key.rpartition("/")
        section = re.sub(r"/\d+(?=/|$)", "/*", parent)
        if section not in SECTIONS or name in SECTIONS[section]:
            continue
        if section == "" and run.process_type not in _TRAINERS:
            continue
        looked_up += 1
        nearest, home = None, ""
        if looked_up <= MOST_NEAREST:  # a file with more is not misspelt, it is something else
            written = {k.rpartition("/")[2] for k in run.settings if k.rpartition("/")[0] == parent}
            nearest, home = _nearest(name, section, written)
        absent = home == "" and nearest in _DECISIVE and nearest not in run.settings
        yield _finding(config, value, name, section, nearest, home, _DECISIVE[nearest] if absent and nearest else "")


def _outer(config: Config) -> Iterator[Finding]:
    """Keys outside the processes: only what looks like a slip, for any name may hold YAML anchors there."""
    for pointer, value in config.values.items():
        parent, _, name = pointer.rpartition("/")
        known = _TOP if parent == "" else _INNER if parent == "/config" else None
        if known is None or name in known:
            continue
        slip = difflib.get_close_matches(name, sorted(known), 1, 0.7)
        if slip:
            yield _finding(config, value, name, parent.strip("/"), slip[0], parent.strip("/"), "")
        elif parent == "/config" and name in SECTIONS[""]:
            yield _finding(config, value, name, "config", name, "", "")


def _nearest(name: str, section: str, written: set[str]) -> tuple[str | None, str]:
    """The key that was probably meant, and its section; (None, "") when none is near."""
    for home in ("", "train", "model", "network", "datasets/*", "sample", "save", "logging"):
        if name in SECTIONS[home]:
            return name, home
    best: tuple[float, str, str] | None = None
    for home, keys in SECTIONS.items():
        if home != section and (section.count("*") or home not in ("", "train", "model", "network", "datasets/*")):
            continue
        for key in keys:
            score = _likeness(name, key) - (0.0 if home == section else 0.25) - (0.1 if key in written else 0.0)
            if score > 0.6 and (best is None or score > best[0]):
                best = (score, key, home)
    return (None, "") if best is None else (best[1], best[2])


def _likeness(one: str, other: str) -> float:
    """0 to 1; a slip of one letter in a short name counts as near, too."""
    together = len(one) + len(other)
    most = 2 * min(len(one), len(other)) / together if together else 1.0
    # what cannot be near by its length is not compared
    ratio = difflib.SequenceMatcher(None, one.lower(), other.lower()).ratio() if most > 0.6 else 0.0
    if sorted(one) == sorted(other):
        return max(ratio, 0.95)
    if abs(len(one) - len(other)) <= 1 and len(other) <= 4 and (set(one) >= set(other) or set(other) >= set(one)):
        return max(ratio, 0.7)
    return ratio


def _finding(
    config: Config, value: Value, name: str, section: str, nearest: str | None, home: str, decisive: str
) -> Finding:
    message = "{trainer} reads no key {key} " + ("in {section}" if section else "directly in the process")
    message += ", so it is silently ignored."
    if nearest is not None and home == section:
        message += " Did you mean {nearest}?"
    elif nearest is not None:
        message += " The key {nearest} belongs " + ("in {home}." if home else "directly in the process.")
    span = key_span(config, value)
    evidence: dict[str, object] = {"key": name, "section": section, "nearest": nearest, "table": COMMIT}
    if span is not None and nearest is not None and home == section and nearest != name:
        evidence |= {"start": span[0], "end": span[1], "old": name, "new": nearest}
    return found(
        key_where(config, value),
        message + (" " + decisive if decisive else ""),
        otherwise="The trainer starts without a word and uses its default (keys as read by ai-toolkit {table}).",
        evidence=evidence,
        severity="error" if decisive else None,
        trainer="ai-toolkit",
        key=name,
        section=section.replace("/*", "[]"),
        home=home.replace("/*", "[]"),
        nearest=nearest,
        table=COMMIT,
    )
