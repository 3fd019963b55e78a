"""Values of the config that are written anew. What then is another training is asked, or not taken unless allowed."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..doctor.model import Config, DatasetFolder, Finding, Fix, SetValue, WriteText
from ..doctor.rules import repair
from .edits import value_at


def _asked(finding: Finding, title: str, value: object) -> Fix:
    """A value that makes another training, so that it is for the user to say whether it was meant."""
    return Fix(title, (value_at(finding, value),), safety="ask", training_effect="changes-result")


@repair("CFG004", "KOH017", "SIM002", "SIM003", "SIM006", "SIM007", "SIM008")
def write_what_was_meant(finding: Finding) -> Iterator[Fix]:
    """The value that is certainly meant, where the trainer would refuse the present one; one that may be is asked."""
    seen = finding.evidence
    if "/TRAINER_EXTRA_ARGS/" in str(seen.get("pointer")):  # one word among others in a variable
        return
    if "new" in seen:
        yield Fix(f"set {seen['key']} to {seen['new']}", (value_at(finding, seen["new"]),))
    elif "likely" in seen:
        yield _asked(finding, f"set {seen['key']} to {seen['likely']}", seen["likely"])


@repair("SIM001")
def write_false_without_quotes(finding: Finding) -> Iterator[Fix]:
    """What was written is what is meant; the run then trains as it says."""
    seen = finding.evidence
    if "new" in seen:
        step = value_at(finding, seen["new"])
        yield Fix(f"write {seen['key']} without quotes", (step,), training_effect="changes-result")


@repair("KOH002", "KOH005", "KOH007", "KOH010", "KOH013")
def set_what_is_asked_for(finding: Finding) -> Iterator[Fix]:
    """The value that the trainer's documentation, or the dataset, asks for."""
    new = finding.evidence.get("new")
    if new is not None:
        step = value_at(finding, new)
        if step.path.lower().endswith((".toml", ".json")):  # a file with types, which the trainer does not convert
            step = value_at(finding, _number(str(new)))
        title = f"set {step.pointer.rpartition('/')[2]} to {new}"
        yield Fix(title, (step,), safety="ask", training_effect="changes-result")


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


@repair("KOH015")
def write_the_type(finding: Finding) -> Iterator[Fix]:
    """The same value in the type that the trainer asks for: it would have stopped, so no training changes."""
    new = finding.evidence.get("new")
    if new is not None:
        title = f"write {finding.args['name']} as {json.dumps(new, ensure_ascii=False)}"
        yield Fix(title, (value_at(finding, new),))


@repair("DAT003")
def save_as_utf8(finding: Finding, datasets: tuple[DatasetFolder, ...]) -> Iterator[Fix]:
    """The same words in UTF-8: at once where a byte-order mark proves the encoding, asked where it is a guess."""
    garbled = [one for folder in datasets if folder.path == finding.evidence["folder"] for one in folder.garbled]
    if any(not one.encoding for one in garbled):
        return
    steps = tuple(dict.fromkeys(WriteText(one.path, one.text) for one in garbled))
    what = "the caption" if len(steps) == 1 else f"{len(steps)} captions"
    if all(one.encoding == "utf-16" for one in garbled):
        yield Fix(f"save {what} as UTF-8", steps, order=1)
    else:
        yield Fix(f"save {what} as UTF-8, read as Windows-1252", steps, safety="ask", order=1)


@repair("DAT004", "DAT007")
def name_the_ending(finding: Finding, config: Config) -> Iterator[Fix]:
    """The ending that most of the captions have; with it, other words are trained."""
    new = finding.evidence["new"]
    if new is not None and config.trainer == "ai-toolkit":
        yield _asked(finding, f"look for captions that end in {new}", new)


@repair("TRN001")
def cache_the_latents(finding: Finding) -> Iterator[Fix]:
    """Encode every image once; asked, for the cache is written beside the images."""
    yield _asked(finding, "cache the latents on disk", True)


@repair("TRN003")
def compute_in_bf16(finding: Finding) -> Iterator[Fix]:
    """bf16 has the range of fp32."""
    yield Fix("train in bf16", (value_at(finding, "bf16"),), training_effect="changes-result")


@repair("TRN005")
def sample_as_turbo_does(finding: Finding) -> Iterator[Fix]:
    """Eight steps and no guidance, for the samples only."""
    step = value_at(finding, finding.evidence["new"])
    yield Fix(f"set {step.pointer.rpartition('/')[2]} to {step.value}", (step,), safety="ask")


@repair("TRN006")
def keep_the_captions(finding: Finding) -> Iterator[Fix]:
    """Cached embeddings free the same memory and keep the captions."""
    unload = value_at(finding, True)
    step = SetValue(unload.path, unload.pointer.replace("unload_text_encoder", "cache_text_embeddings"), True)
    yield Fix("cache the text embeddings instead", (step,), safety="ask", training_effect="changes-result")


@repair("TRN007", "MDL008")
def take_the_rank_of_the_save(finding: Finding) -> Iterator[Fix]:
    """With the rank of the save, or of the LoRA to start from, all of it is trained on."""
    rank = finding.evidence.get("rank")
    if rank is not None:
        yield _asked(finding, f"train rank {rank}, as the saved LoRA has it", rank)
