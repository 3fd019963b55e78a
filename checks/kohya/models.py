"""What musubi-tuner's script of one model refuses, beside what all its scripts do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...doctor.model import Config, Finding, ModelFolder, Run
from ...doctor.model.record import dataclass
from ...doctor.rules import NotApplicable, prevents, rule
from ..keys.misspelled import meant, words
from ..keys.values import START, bad
from . import number, on

_QWEN_VERSIONS = words("original layered edit edit-2509 edit-2511")
_OF_2511 = "__index_timestep_zero__"  # ComfyUI's mark of Qwen-Image-Edit-2511
_WAN_DTYPE = re.compile(r"(model\.diffusion_model\.)?blocks\.0\.cross_attn\.k\.weight")
_PROMPTS = "when it encodes the sample prompts"


@dataclass(frozen=True)
class _Asked:
    """A run of one script, and the tensors of its transformer by their names, with their dtypes."""

    run: Run
    dtypes: dict[str, str]
    whole: bool  # no command line gives what is left out


@rule("KOH017", "error", "refused-by-the-model", trainers=("musubi-tuner",))
@prevents("AssertionError", r"DiT weights are in (fp16|bf16), mixed precision must be")
@prevents("AssertionError", r"Found __index_timestep_zero__ in state_dict")
@prevents("AttributeError", r"module 'torch' has no attribute 'float8e4m3fn'")
@prevents("ValueError", r"Invalid model_version")
@prevents("ValueError", r"DiT weights is already in fp8 format, cannot scale to fp8")
@prevents("ValueError", r"Krea 2 fp8 supports only scaled fp8")
@prevents("ValueError", r"Ideogram 4 currently supports --weighting_scheme none only")
def refused_by_the_model(config: Config, run: Run, model: ModelFolder) -> Iterator[Finding]:
    """A setting that the script of this model does not take.

    What: For Wan, a mixed_precision that is left out or another than that of the file, and fp8_scaled for a file in 8
    bits; for Qwen-Image, a model_version that does not exist or not edit-2511 for a file of Edit-2511; for Kontext,
    fp8_t5 beside sample_prompts; for Krea 2, fp8_base without fp8_scaled, and turbo_dit beside blocks_to_swap; for
    Ideogram 4, a weighting_scheme.
    Why: Wan's script compares the option itself with the dtype of the weights, before accelerate's setting is put in
    its place. Kontext's names a dtype that torch does not have. The mark in a file of Edit-2511 is looked at when it
    is loaded; a file without it is trained with the conditioning of another model.
    Repair: The value that is named.
    Upstream: musubi-tuner wan_train_network.py, qwen_image/qwen_image_utils.py, qwen_image/qwen_image_model.py,
    flux_kontext_train_network.py, krea2_train_network.py, ideogram4_train_network.py (30c658c4)
    Signature: AssertionError: DiT weights are in bf16, mixed precision must be bf16 or no
    """
    part = model.components.get("transformer")
    dtypes = {} if part is None else {name: tensor.dtype for name, tensor in part.tensors.items()}
    of_script = _SCRIPTS.get(re.sub(r"_train(_network)?$", "", run.process_type))
    if of_script is None:
        raise NotApplicable
    yield from of_script(_Asked(run, dtypes, config.format != "toml"))


def _wan(asked: _Asked) -> Iterator[Finding]:
    run = asked.run
    dtype = next((dtype for name, dtype in asked.dtypes.items() if _WAN_DTYPE.fullmatch(name)), "")
    wanted = {"F16": "fp16", "BF16": "bf16"}.get(dtype)
    written = run.setting("mixed_precision")
    if wanted and written not in (wanted, "no") and (written is not None or asked.whole):
        why = "The weights of {file} are {wanted}, so mixed_precision has to be {wanted} or no, "
        why += "and it is {value}." if written else "and it is left out; accelerate's own does not count here."
        new, likely = (wanted, None) if written else (None, wanted)
        yield bad(run, "mixed_precision", why, START, new=new, likely=likely, file=run.setting("dit"), wanted=wanted)
    if dtype.startswith("F8_") and on(run, "fp8_scaled"):
        yield bad(run, "fp8_scaled", "The weights of {file} are in 8 bits already.", START, file=run.setting("dit"))


def _qwen_image(asked: _Asked) -> Iterator[Finding]:
    run = asked.run
    version = run.setting("model_version")
    if isinstance(version, str) and version.lower() not in _QWEN_VERSIONS:
        certain, likely = meant(version, _QWEN_VERSIONS)
        why = "{key} is {value!r}; it knows {known}."
        known = ", ".join(sorted(_QWEN_VERSIONS))
        yield bad(run, "model_version", why, START, new=certain, likely=likely, unsure=True, known=known)
    elif str(version).lower() == "edit-2511":
        return
    elif _OF_2511 in asked.dtypes:
        why = "{file} is Qwen-Image-Edit-2511, which is trained with model_version edit-2511 only."
        when = "while the model is loaded"
        yield bad(run, "model_version", why, when, new="edit-2511", file=run.setting("dit"))
    elif "2511" in str(run.setting("dit")) and asked.whole:
        why = "{file} is Qwen-Image-Edit-2511 by its name, which is trained with model_version edit-2511."
        when = "it is trained with the conditioning of another model"
        yield bad(run, "model_version", why, when, severity="warning", likely="edit-2511", file=run.setting("dit"))


def _kontext(asked: _Asked) -> Iterator[Finding]:
    if on(asked.run, "fp8_t5") and asked.run.setting("sample_prompts"):
        why = "With {key} the script asks torch for the dtype float8e4m3fn, which does not exist (it is called "
        why += "float8_e4m3fn). Without {key} T5 is in bf16."
        yield bad(asked.run, "fp8_t5", why, _PROMPTS)


def _krea(asked: _Asked) -> Iterator[Finding]:
    run = asked.run
    if on(run, "fp8_base") and not on(run, "fp8_scaled") and asked.whole:
        yield bad(run, "fp8_base", "Krea 2 takes fp8_base only with fp8_scaled beside it.", START)
    if run.setting("turbo_dit") and number(run, "blocks_to_swap") > 0:
        yield bad(run, "turbo_dit", "turbo_dit and blocks_to_swap exclude each other.", START)


def _ideogram(asked: _Asked) -> Iterator[Finding]:
    if asked.run.setting("weighting_scheme") not in (None, "none"):
        yield bad(asked.run, "weighting_scheme", "{key} is {value}; Ideogram 4 takes none only.", START, new="none")


_SCRIPTS = {
    "flux_kontext": _kontext,
    "ideogram4": _ideogram,
    "krea2": _krea,
    "qwen_image": _qwen_image,
    "wan": _wan,
}
