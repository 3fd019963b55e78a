"""Where no entry knows a failure, its package's own source tells what holds there, or whose class it is about."""

from __future__ import annotations

import re
import traceback as tracebacks
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from zdoctor.doctor import languages
from zdoctor.doctor.crash import explain, raised, sources
from zdoctor.doctor.crash.fingerprints import fingerprint_of
from zdoctor.doctor.crash.owners import TRAINERS
from zdoctor.doctor.languages.translation import Translation
from zdoctor.doctor.model.crashes import Explanation
from zdoctor.maintenance import generic_words
from zdoctor.maintenance.mine_names import sources_by_version
from zdoctor.maintenance.mine_raised import left_out, mined
from zdoctor.maintenance.raising import MOST_WORDS, Raised, told

from .shapes import script
from .test_cases import SIGNATURES

_MU = "ValueError: `mu` must be passed when `use_dynamic_shifting` is set to be `True`"
_SCHEDULER = "/v/lib/python3.12/site-packages/{}/schedulers/x.py"


def seen(log: str) -> Explanation:
    return explain(log, SIGNATURES)


def _raised_in(file: str, error: str) -> Explanation:
    return seen(f'Traceback (most recent call last):\n  File "{file}", line 3, in f\n    x()\n{error}\n')


def _log_of(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception:  # whatever the library raises
        return "Loading\n" + tracebacks.format_exc()
    raise AssertionError("it did not fail")


def test_what_libraries_really_raise_is_told_with_its_condition() -> None:
    peft = pytest.importorskip("peft")
    accelerate = pytest.importorskip("accelerate")
    diffusers = pytest.importorskip("diffusers")
    shifting = diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
    calls: tuple[tuple[Callable[[], object], str], ...] = (
        (
            lambda: shifting.set_timesteps(3),
            "in set_timesteps. It looks at `config.use_dynamic_shifting, mu` there.",
        ),
        (
            lambda: peft.BOFTConfig(boft_block_size=0, boft_block_num=0),
            "It looks at `boft_block_size, boft_block_num` there.",
        ),
        (lambda: accelerate.Accelerator(log_with="x"), "filter_trackers"),
    )
    for call, said in calls:
        answer = seen(_log_of(call)).cause
        assert "itself stops there" in answer and said in answer, answer


def test_a_trainer_s_versions_are_days() -> None:
    spans = [span for trainer in TRAINERS & set(sources.mined()) for span in sources.names_of(trainer).values()]
    days = {day for span in spans for day in span if day}
    assert days and all(re.fullmatch(r"\d{4}-\d\d-\d\d", day) for day in days), sorted(days)[:3]


def test_a_text_alone_is_its_package_s_and_a_copy_of_it_is_not() -> None:
    assert "diffusers itself stops there" in seen(f"Loading\n{_MU}\n").cause
    assert "diffusers itself stops there" in _raised_in(_SCHEDULER.format("diffusers"), _MU).cause
    for place in (_SCHEDULER.format("nunchaku"), "/x/custom_nodes/y/scheduler.py"):
        assert "itself stops there" not in _raised_in(place, _MU).cause


def test_a_line_without_the_exception_s_name_is_known_where_nothing_went_on() -> None:
    words = _MU.partition(": ")[2]
    assert "diffusers itself stops there" in seen(f"Loading the pipeline\n{words}\n").cause
    bars = "".join(f"steps: {n}%|###   | {n}/100 [00:{n:02}<01:00, 1.2s/it, avr_loss=0.{n:03}]\n" for n in range(9))
    assert seen(f"Loading the pipeline\n{words}\n{bars}").failure is None
    assert seen(f"Loading the pipeline\nWARNING: {words}\n").failure is None


def test_a_text_that_two_libraries_have_is_neither_s() -> None:
    texts: dict[tuple[str, str], set[str]] = {}
    for one in raised.texts():
        if one.package not in TRAINERS:
            texts.setdefault((one.error, one.fingerprint), set()).add(one.package)
    said = {(one.error, _print(one)): one.words for one in generic_words.installed("accelerate")}
    shared = [(text[0], said[text]) for text, packages in texts.items() if len(packages) > 1 and text in said]
    assert shared
    for error, words in shared:
        assert "itself stops there" not in seen(f"{error}: {words.replace('{}', 'x')}\n").cause, words


@pytest.mark.parametrize("language", ["vi", "zh_CN", "zh_TW"])
def test_conditions_are_told_in_each_language(language: str) -> None:
    folder = Path(languages.__file__).parent / language
    translated = Translation(language, sorted(folder.glob("*.po")))
    libraries = ("accelerate", "huggingface_hub", "peft")
    said = {(library, _print(one)): one.words for library in libraries for one in generic_words.installed(library)}
    told_of: dict[str, str] = {}
    for one in raised.texts():
        if one.holds and one.holds[0] not in told_of and (one.package, one.fingerprint) in said:
            words = said[one.package, one.fingerprint].replace("{}", "x")
            answer = _raised_in(f"/v/lib/python3.12/site-packages/{one.package}/x.py", f"{one.error}: {words}").cause
            if "itself stops there" in answer:  # and no entry knows it
                told_of[one.holds[0]] = translated(answer)
    assert told_of.keys() >= {"none", "given", "empty", "outside", "kind", "differ", "asks"}
    assert not [text for text in told_of.values() if re.search(r"It (does so|looks at)", text)]


def test_an_attribute_or_argument_that_is_not_there_names_the_package() -> None:
    for error, said in (
        (
            "AttributeError: 'DataLoaderShard' object has no attribute 'odd_one'",
            "is of accelerate, and nothing in accelerate",
        ),
        (
            "TypeError: ProjectConfiguration.__init__() got an unexpected keyword argument 'odd_one'",
            "is of accelerate",
        ),
    ):
        assert said in seen(script(error)).cause, error
    error = "TypeError: get_peft_kwargs() missing 1 required positional argument: 'odd'"
    assert "is of diffusers, and wants odd" in _raised_in(_SCHEDULER.format("diffusers"), error).cause
    assert "is of diffusers" not in seen(script(error)).cause  # other programs have functions of that name
    odd = seen(script("AttributeError: 'OddThing' object has no attribute 'odd_one'"))
    assert "is of" not in odd.cause.partition(" than ")[0].partition(":")[0]


def test_one_that_asks_through_torch_is_the_program_and_no_common_name_is_a_library_s() -> None:
    error = "AttributeError: 'Qwen2_5_VLAttention' object has no attribute '_flash_attn_uses_top_left_mask'"
    answer = _raised_in("/v/lib/python3.12/site-packages/torch/nn/modules/module.py", error).cause
    assert "is of transformers" in answer and "what asks for it" in answer and "torch" not in answer
    assert "transformers 4.53.0 knows _flash_attn_uses_top_left_mask no more." in answer
    for made in ("'Attention' object has no attribute", "load_model() got an unexpected keyword argument"):
        assert "is of" not in seen(script(f"TypeError: {made} 'odd_one'")).cause.partition(":")[0]


def test_a_traceback_that_is_cut_off_leaves_the_words_above_it() -> None:
    words = "Cannot import /c/x module for custom nodes: cannot import name 'odd_one' from 'transformers' (/v/x.py)"
    log = f'Loading\n{words}\nTraceback (most recent call last):\n  File "/c/nodes.py", line 3, in load\n    run()\n'
    answer = seen(log)
    assert (
        answer.failure is not None and answer.failure.at == 2 and "transformers, as it is installed" in answer.cause
    )


def test_a_name_of_a_trainer_is_its_only_where_its_code_is_at_work() -> None:
    error = "AttributeError: 'LoRASpecialNetwork' object has no attribute 'odd_one'"
    assert "is of ai-toolkit" not in seen(script(error)).cause
    assert "is of ai-toolkit" in _raised_in("/x/ai-toolkit/toolkit/lora.py", error).cause


def _installed(library: str) -> Path:
    spec = find_spec(library)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{library} is not installed")
    return Path(spec.submodule_search_locations[0]).parent


def test_a_table_is_what_the_generator_makes_of_the_package() -> None:
    folder = str(_installed("safetensors"))
    assert mined("safetensors", sources_by_version("safetensors", [folder])) == sources.document("safetensors")


@pytest.mark.parametrize("library", ["peft", "accelerate"])
def test_a_table_holds_every_text_of_the_installed_package(library: str) -> None:
    folder = _installed(library)
    (sources,) = sources_by_version(library, [str(folder)]).values()
    said = {_print(one) for path, text in sources().items() if not left_out(path) for one in told(text).raised}
    assert said <= {one.fingerprint for one in raised.texts() if one.package == library}


def _print(one: Raised) -> str:
    return fingerprint_of(one.words, goes_on=len(one.words) >= MOST_WORDS)


def test_entries_answer_for_few_texts_of_other_packages() -> None:
    """`python -m zdoctor.maintenance.generic_words` names them; a new one is to be narrowed or to be true of all."""
    quick = ("accelerate", "huggingface_hub", "peft", "safetensors")
    wide = {known.cause: packages for known, packages in generic_words.generic(quick)}
    assert len(wide) <= 4, wide


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            "'OddImageTrainer' object has no attribute 'encode_oddly'",
            "OddImageTrainer is a class of the program itself",
        ),
        ("'OddImageTrainer' object has no attribute 'save_pretrained'", ""),
        ("'Trainer' object has no attribute 'encode_all_oddly'", ""),
        ("'OddFrame' object has no attribute 'encode_all_oddly'", ""),
        ("'NoneType' object has no attribute 'encode_all_oddly'", ""),
    ],
)
def test_a_class_and_a_name_that_no_package_has_are_the_program_s_own(error: str, words: str) -> None:
    cause = explain(f"AttributeError: {error}\n", SIGNATURES).cause
    assert words in cause and (words or "class of the program itself" not in cause)
