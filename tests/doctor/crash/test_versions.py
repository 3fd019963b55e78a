"""Names that only some versions of a package have: the answer names these, and installed packages agree."""

from __future__ import annotations

import importlib
import importlib.metadata
from importlib.util import find_spec

import pytest

from zdoctor.doctor.crash import explain
from zdoctor.doctor.crash.versions import NAMES, _names, lived, release

from .shapes import script, traceback
from .test_cases import SIGNATURES

PACKAGES = sorted(file.stem for file in NAMES.glob("*.json"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("ImportError: cannot import name 'ZImagePipeline' from 'diffusers' (/v/x.py)", "diffusers 0.36.0 has"),
        ("ModuleNotFoundError: No module named 'diffusers.models.attention_dispatch'", "0.35.0 has"),
        ("ModuleNotFoundError: No module named 'transformers.models.qwen3_vl.modeling_qwen3_vl'", "4.56.0 not yet"),
        ("AttributeError: module 'diffusers' has no attribute 'AutoencoderKLWan'", "diffusers 0.33.0 has"),
        ("AttributeError: module diffusers has no attribute AutoencoderKLWan. Did you mean: 'x'?", "0.33.0 has"),
        ("ImportError: cannot import name 'HfFolder' from 'huggingface_hub' (/v/x.py)", "no more"),
        (
            "AttributeError: module 'torch.nn' has no attribute 'RMSNorm'",
            "torch 2.4.0 has torch.nn.RMSNorm, 2.3.0 not",
        ),
        ("TypeError: scaled_dot_product_attention() got an unexpected keyword argument 'enable_gqa'", "torch 2.5.0"),
        (
            "AttributeError: 'ImageDraw' object has no attribute 'textsize'",
            "pillow 10.0.0 has ImageDraw.textsize no more",
        ),
        (
            "AttributeError: 'Trainer' object has no attribute 'tokenizer'",
            "transformers 5.0.0 has Trainer.tokenizer no",
        ),
        (
            "ValueError: The checkpoint you are trying to load has model type `qwen3_vl` but Transformers does not "
            "recognize this architecture.",
            "transformers 4.57.0 has transformers.models.qwen3_vl",
        ),
        ("ImportError: cannot import name 'anima_utils' from 'library' (/x/y.py)", "sd-scripts 2026-02-16 has"),
    ],
)
def test_the_versions_are_named(error: str, said: str) -> None:
    for log in (script(error), f"Loading\n{error}\n"):
        told = explain(log, SIGNATURES)
        assert said in told.cause and "The one that is installed is" in told.cause, told.cause


def test_a_module_that_python_took_away_is_no_package_that_an_install_left_out() -> None:
    error = "ModuleNotFoundError: No module named 'audioop'"
    assert "python 3.13 has audioop no more" in explain(f"Loading\n{error}\n", SIGNATURES).cause
    told = explain(script(error), SIGNATURES)  # whose paths say Python 3.11
    assert "not installed in that environment" in told.cause


def test_a_version_in_the_log_decides() -> None:
    error = script("ImportError: cannot import name 'HybridCache' from 'transformers.cache_utils' (/v/x.py)")
    assert "By the log 5.1.0 is installed" in explain(f"transformers==5.1.0\n{error}", SIGNATURES).cause
    name = script("ImportError: cannot import name 'ZImagePipeline' from 'diffusers' (/v/x.py)")
    assert "By the log 0.34.0 is installed" in explain(f"diffusers 0.34.0\n{name}", SIGNATURES).cause
    assert "By the log" not in explain(f"diffusers 0.36.0\n{name}", SIGNATURES).cause


@pytest.mark.parametrize(
    "error",
    [
        "ImportError: cannot import name 'Zimagepipeline' from 'diffusers' (/v/x.py)",
        "ImportError: cannot import name 'ZImagePipeline' from 'mine' (/v/x.py)",
        "ImportError: cannot import name 'ZImagePipeline' from 'diffusers' (unknown location)",
        "ImportError: cannot import name 'x' from 'diffusers.models.attention_dispatch' (/v/x.py)",
        "ModuleNotFoundError: No module named 'diffusers'",
        "TypeError: mine() got an unexpected keyword argument 'txt_ids'",
    ],
)
def test_of_another_name_nothing_is_said(error: str) -> None:
    told = explain(script(error), SIGNATURES)
    assert " has diffusers." not in told.cause and " not yet" not in told.cause


def test_a_class_that_others_have_too_is_a_trainers_only_in_its_own_files() -> None:
    error = "AttributeError: 'ImageDataset' object has no attribute 'fp_latent_window_size'"
    asked = "TypeError: ImageDataset.prepare_for_training() got an unexpected keyword argument 'num_timestep_buckets'"
    for said in (asked, error):
        assert "musubi-tuner" not in explain(script(said), SIGNATURES).cause
    own = script(asked).replace('File "', 'File "/home/li/musubi-tuner/src')
    assert "musubi-tuner 2025-09-01 has" in explain(own, SIGNATURES).cause
    assert "git pull" in explain(own, SIGNATURES).do


def test_what_a_trainer_asks_of_itself_is_a_fault_of_its_own() -> None:
    error = "AttributeError: 'TrainOptimizerConfig' object has no attribute 'use_grams'"
    own = traceback(error, ("/home/li/OneTrainer/modules/util/create.py", "create", "c.use_grams"))
    told = explain(own, SIGNATURES)
    assert "Its own code asks for it" in told.cause and "is installed" not in told.cause and "git pull" in told.do


def test_where_pip_shows_another_version_is_told() -> None:
    error = script("ImportError: cannot import name 'ZImagePipeline' from 'diffusers' (/v/x.py)")
    known, named = (explain(log, SIGNATURES).known for log in (error, f"diffusers 0.34.0\n{error}"))
    assert known is not None and "another copy is found first" in known.also
    assert named is not None and not named.also  # the log itself names the version


def test_who_asks_for_what_is_gone_is_named() -> None:
    frame = 'Traceback (most recent call last):\n  File "/v/lib/python3.11/site-packages/oldlib/a.py", line 1, in f\n'
    error = "ImportError: cannot import name 'HfFolder' from 'huggingface_hub' (/v/x.py)\n"
    assert explain(f"{frame}    from huggingface_hub import HfFolder\n{error}", SIGNATURES).do.startswith(
        "Update oldlib;"
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_every_span_is_of_versions_that_were_mined(package: str) -> None:
    order, names = _names(package)
    assert order == sorted(order, key=release) and names
    for spans in names.values():
        for since, gone in spans.values():
            assert {since, gone} <= {*order, "-"} and (since, gone) != ("-", "-")


@pytest.mark.parametrize("package", ["diffusers", "transformers", "peft", "huggingface_hub"])
def test_the_installed_package_has_what_is_told_of_it(package: str) -> None:
    module = pytest.importorskip(package)
    here = release(importlib.metadata.version(package))
    order, names = _names(package)
    if here < release(order[-1]) or here[0] > release(order[-1])[0]:
        pytest.skip(f"{package} is of another time than what was mined")
    offered = {*dir(module), *getattr(module, "__all__", ())}
    handed = [name for name in names[package] if find_spec(f"{package}.{name}") is None]  # no modules
    told = {name: list(lived(package, name)) for name in handed[::7]}
    gone = {name for name, spans in told.items() for _, span in spans if span.gone is not None}
    assert not {name for name in told if (name in offered) == (name in gone)}
