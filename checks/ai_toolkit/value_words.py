"""The part of CFG004 about ai-toolkit's own words: what it refuses late, or replaces without saying so."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...doctor.model import Finding, Run, Schema, Severity
from ...doctor.trainers import trainer_of
from ...doctor.trainers.ai_toolkit.model_keys import BY_ONE_LOADER, OF_THEIR_OWN
from ...doctor.trainers.ai_toolkit.network import NETWORK_TYPES
from ..keys.misspelled import likeness, meant, words
from ..keys.values import FIRST_SAVE, LOAD, OPTIMIZER, SAMPLE, START, STEP, bad
from .combinations import exclusive, missing
from .value_kinds import kinds

# What is known beside its Schema, which is mined from its source: read and tried at commit 27a03a91 (2026-08-21).
# chosen by the end of a name, so no comparison in the source names them
OPTIMIZERS = words("dadaptation dadaptationadam dadaptationlion prodigy prodigy8bit")
BROKEN_SCHEDULERS = words("piecewise_constant polynomial step")
# every other one is a LoRA, too, but these are asked for somewhere
# unknown to the trainer, which then takes Stable Diffusion 1: just what they say
PLAIN_ARCHITECTURES = words("sd sd15")
# models whose schedulers are looked up by name, and unknown names refused
LOOKING_UP = BY_ONE_LOADER - PLAIN_ARCHITECTURES
# models whose LoRA is saved in the PEFT layout, which has no alpha, and which train by flow matching
TRANSFORMERS = OF_THEIR_OWN | words("""
    ace_step_15 ace_step_15_xl anima boogu_image boogu_image_edit flux hidream_o1 ltx2 ltx2.3 ltx2.5 lumina2 mageflow
    mageflow_edit minimax_h3 minimax_h3_ref2va sd3
    """)
# what has a look of its own here
_LOOKED_AT = words("""
    train/dtype save/dtype save/save_format train/content_or_style train/timestep_type train/loss_type network/type
    train/optimizer train/lr_scheduler train/noise_scheduler sample/sampler model/qtype model/qtype_te model/arch
    model/dtype type
    """)
_TIMESTEPS = "train/timestep_type"
_UNKNOWN = "{key} is {value!r}, which the trainer does not know."


def invalid(run: Run, schema: Schema) -> Iterator[Finding]:
    """Values of an ai-toolkit config that the trainer refuses or replaces."""
    if f"{run.process_type}:" not in schema.sections:
        return  # it trains nothing, or what it reads is not known
    yield from _spellings(run, schema)
    yield from _slips(run, schema)
    yield from _schedules(run, schema)
    yield from _quantization(run, schema)
    yield from _architecture(run, schema)
    yield from kinds(run, schema)  # what trains a slider or an embedding computes with the same numbers
    if run.kind != "other":
        yield from missing(run)
        yield from exclusive(run)


def unread_by_runner(run: Run, schema: Schema) -> Iterator[Finding]:
    """What would read as a default for zdoctor's runner; what it does not know otherwise, it refuses by itself."""
    if not trainer_of(schema.trainer).has_processes:
        return
    yield from kinds(run, schema)
    yield from missing(run)
    for key in sorted(_LOOKED_AT - {"type", "train/noise_scheduler", "sample/sampler", "model/dtype"}):
        value = run.setting(key)
        if value is not None and not isinstance(value, str):
            yield bad(run, key, "{key} is {value!r}, where a word belongs.", LOAD)


def _spelling(
    run: Run, schema: Schema, key: str, known: frozenset[str], when: str, *, severity: Severity | None = None
) -> Iterator[Finding]:
    value = run.setting(key)
    if value is None or not known or (isinstance(value, str) and value in known):
        return
    certain, likely = meant(value, known)
    why = _UNKNOWN
    if severity is not None:  # it would be taken, in its way: to change it is another training
        certain, likely = None, certain or likely
    elif certain is None:
        why += " It knows {known}."
    yield bad(
        run,
        key,
        why,
        when,
        severity=severity,
        new=certain,
        likely=likely,
        unsure=not schema.source,
        known=_list(known),
    )


def _list(known: frozenset[str]) -> str:
    return ", ".join(sorted(known))


def _spellings(run: Run, schema: Schema) -> Iterator[Finding]:
    flow = run.recipe.timestep_sampling.noise_scheduler == "flowmatch"
    for key, when in (
        ("train/dtype", LOAD),
        ("save/dtype", FIRST_SAVE),
        ("save/save_format", START),
        ("train/content_or_style", STEP),
        *([(_TIMESTEPS, STEP)] if flow else []),
    ):
        yield from _spelling(run, schema, key, schema.choices(key), when)
    losses, networks = schema.choices("train/loss_type"), schema.choices("network/type") | NETWORK_TYPES
    yield from _spelling(run, schema, "train/loss_type", losses, "the loss is plain mse", severity="warning")
    if str(run.setting("network/type")).lower() not in networks:
        yield from _spelling(run, schema, "network/type", networks, "the network is a plain LoRA", severity="warning")
    name, listed = str(run.setting("train/optimizer")).lower(), schema.choices("train/optimizer")
    if not name.startswith(("prodigy", "dadaptation")) and name not in listed | OPTIMIZERS:
        yield from _spelling(run, schema, "train/optimizer", listed | OPTIMIZERS if listed else listed, OPTIMIZER)
    # the trainer's first models look up the noise scheduler and the sampler, newer ones have their own
    looks_up = run.recipe.architecture in LOOKING_UP
    for key, when in (("train/noise_scheduler", LOAD), ("sample/sampler", SAMPLE)) if looks_up else ():
        yield from _spelling(run, schema, key, schema.choices(key), when)
    if not looks_up:
        yield from _of_their_own(run, schema)


def _of_their_own(run: Run, schema: Schema) -> Iterator[Finding]:
    """The noise scheduler and the sampler of a model that looks up neither."""
    sampler, scheduler = run.setting("sample/sampler"), run.setting("train/noise_scheduler")
    known = schema.choices("sample/sampler")
    if isinstance(sampler, str) and sampler not in known:
        why = "{key} is {value!r}, which the trainer does not know; this model samples in its own way."
        when, likely = "the setting has no effect", meant(sampler, known)[1]
        yield bad(run, "sample/sampler", why, when, severity="note", likely=likely)
    if run.recipe.architecture not in TRANSFORMERS or not isinstance(scheduler, str):
        return
    if scheduler not in schema.choices("train/noise_scheduler") and likeness(scheduler, "flowmatch") > 0.8:
        why = "{key} is {value!r}, but the trainer compares it with 'flowmatch' letter by letter."
        when = "timestep_type is ignored and mostly high noise is trained"
        yield bad(run, "train/noise_scheduler", why, when, severity="warning", likely="flowmatch")
        beside = "with flowmatch the run stops " + STEP
        yield from _spelling(run, schema, _TIMESTEPS, schema.choices(_TIMESTEPS), beside, severity="warning")


def _slips(run: Run, schema: Schema) -> Iterator[Finding]:
    """Texts one slip away from a choice that the source names for a key, where nothing refuses the slip."""
    for key, written in run.settings.items():
        known = schema.key(re.sub(r"/\d+(?=/|$)", "/*", key), run.process_type)
        value = written.value
        if known is None or key in _LOOKED_AT or not isinstance(value, str) or value in known.choices:
            continue
        certain, _ = meant(value, (choice for choice in known.choices if len(choice) >= 5))
        if certain is not None:
            why = "{key} is {value!r}, which the trainer compares with {meant} and others, letter by letter."
            when = "the trainer goes on as if it were none of them"
            yield bad(run, key, why, when, severity="warning", likely=certain)


def _schedules(run: Run, schema: Schema) -> Iterator[Finding]:
    key = "train/lr_scheduler"
    name = run.setting(key)
    schedulers = schema.choices(key) - BROKEN_SCHEDULERS
    if isinstance(name, str) and name in BROKEN_SCHEDULERS:
        why = (
            "{key} is {value}, which cannot work in ai-toolkit: it hands total_iters to every scheduler, and this "
            "one does not take it. What works: {known}."
        )
        yield bad(run, key, why, OPTIMIZER, known=_list(schedulers))
    elif not isinstance(name, str) or name not in schedulers:
        yield from _spelling(run, schema, key, schedulers, OPTIMIZER)
    elif name == "linear":
        why = "{key} is linear, which is a warm-up here: the rate rises from a third of lr to lr and never falls. "
        why += "The one that decays is cosine."
        when = "the learning rate rises all through the training"
        yield bad(run, key, why, when, severity="warning")
    elif name == "constant_with_warmup" and "num_warmup_steps" not in run.recipe.lr_scheduler.settings:
        why = "{key} is {value} without lr_scheduler_params: {{num_warmup_steps: …}}, so the warm-up takes 1000 "
        why += "steps; the run has {steps}."
        when = "the full learning rate is reached at step 1000"
        yield bad(run, key, why, when, severity="warning", steps=run.recipe.steps)


def _quantization(run: Run, schema: Schema) -> Iterator[Finding]:
    known, precision = schema.choices("model/qtype"), run.recipe.precision
    for key, active in (
        ("model/qtype", precision.quantization),
        ("model/qtype_te", precision.text_encoder_quantization),
    ):
        value = run.setting(key)
        if active is None or value is None or not known:
            continue
        name, bar, adapter = value.partition("|") if isinstance(value, str) else (value, "", "")
        if not isinstance(name, str) or name not in known:
            certain, likely = meant(name, known)
            why = "{key} is {name!r}, which the trainer does not know. It knows {known}."
            new = None if certain is None else certain + bar + adapter
            yield bad(
                run, key, why, LOAD, new=new, likely=likely, unsure=not schema.source, name=name, known=_list(known)
            )
        if bar and "/" not in adapter and "\\" not in adapter:
            why = "The accuracy-recovery adapter {adapter} has no folder: the trainer finds it only as a file in the "
            why += "working directory, or as owner/repository/file on the hub."
            when = "where no such file lies, the trainer stops after the model files were read"
            yield bad(run, key, why, when, severity="warning", adapter=adapter)


def _architecture(run: Run, schema: Schema) -> Iterator[Finding]:
    written, known = run.setting("model/arch"), schema.choices("model/arch")
    if not isinstance(written, str) or not written or not known:
        return
    name, colon, tag = written.partition(":")
    if name in known or name in PLAIN_ARCHITECTURES:
        return
    certain, likely = meant(name, known)
    match = re.fullmatch(r"(.+?)[\s_.\-]?(turbo|deturbo|t2v)", name, re.I)
    if match and not colon and (base := meant(match.group(1), known)[0]):
        certain, colon, tag = base, ":", match.group(2).lower()
    yield bad(
        run,
        "model/arch",
        "{key} is {name!r}, which the trainer does not know; without a word it takes the files for Stable Diffusion "
        "1.",
        LOAD + ", with a message about something else",
        severity=None if certain is not None else "warning",
        new=None if certain is None else f"{certain}{colon}{tag}",
        likely=None if likely is None else f"{likely}{colon}{tag}",
        name=name,
    )
