"""The file that lycoris_config names: what the trainer asks of it, and whether LyCORIS finds a module by it."""

from __future__ import annotations

from collections.abc import Iterator

from ...doctor.families import family_of
from ...doctor.model import Finding, Run
from ...doctor.trainers.simpletuner.options import options_of
from ..keys.values import START, bad

OF_TRAINER = "config/examples/"  # files that come with the trainer
_ASKED = ("algo", "multiplier", "linear_dim", "linear_alpha")
_NOTHING = "after the model was loaded and quantized, with ValueError: optimizer got an empty parameter list"


def of_lycoris(run: Run) -> Iterator[Finding]:
    """What is said of a run with lora_type: lycoris."""
    file = options_of(run).text("lycoris_config")
    if not file:
        why = "{key} is lycoris, but lycoris_config names no file with its settings."
        yield bad(run, "lora_type", why, START)
    elif "lycoris" not in run.homes and not file.startswith(OF_TRAINER):
        why = "{key} names {value}, which is neither here nor in a folder above the config."
        yield bad(run, "lycoris_config", why, "after the model was loaded", severity="warning")
    if "lycoris" not in run.homes:
        return
    for name in _ASKED:
        full = name == "linear_dim" and run.setting("lycoris/full_matrix") is True
        if run.setting(f"lycoris/{name}") is None and not full:
            why = "{name} is missing in the file that lycoris_config names."
            yield bad(run, f"lycoris/{name}", why, START, name=name)
    if not run.setting("init_lora"):  # else its weights say which modules
        yield from _covered(run)


def _covered(run: Run) -> Iterator[Finding]:
    """LyCORIS compares the names of the modules' classes letter by letter; without any it takes those of torch."""
    own = options_of(run).below("lycoris/apply_preset")
    if own.raw("target_name") or own.raw("name_algo_map"):
        return
    classes = (*map(str, own.entries("target_module")), *own.mapping("module_algo_map"))
    quantized = options_of(run).text("base_model_precision")
    known = getattr(family_of(run.recipe.architecture).simpletuner, "classes", ())
    if not classes and quantized.endswith("-quanto"):
        why = (
            "The file that lycoris_config names has no apply_preset with target_module. LyCORIS then takes Linears, "
        )
        why += "and those of a model in {quantized} are QLinears: nothing is trained."
        yield bad(run, "lycoris/apply_preset", why, _NOTHING, quantized=quantized)
    elif known and classes and not set(classes) & set(known):
        why = "No module of {family} is called {classes}, so that nothing is trained. It has {known}."
        args = {
            "family": run.setting("model_family"),
            "classes": ", ".join(dict.fromkeys(classes)),
            "known": ", ".join(known),
        }
        yield bad(run, "lycoris/apply_preset", why, _NOTHING, **args)
