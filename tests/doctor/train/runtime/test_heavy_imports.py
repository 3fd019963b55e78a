"""What happens when the packages of the runner cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zdoctor.tests.often import often

TRAIN = """
from zdoctor.doctor.train import TrainError, _loop
try:
    _loop(lean={lean})
except TrainError as error:
    print(error)
"""


def installed(folder: Path, name: str, version: str, text: str) -> None:
    """A package of one file, with what pip writes beside it."""
    package, metadata = folder / name, folder / f"{name}-{version}.dist-info"
    package.mkdir()
    (package / "__init__.py").write_text(text)
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


ENCODE = """
from zdoctor.doctor.train.runtime.heavy_imports import QUANTIZERS, without
with without(QUANTIZERS):
    import transformers.modeling_utils
from transformers import AutoTokenizer, Qwen3Config, Qwen3Model
sizes = dict(num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, head_dim=8)
print(Qwen3Model(Qwen3Config(vocab_size=8, hidden_size=8, intermediate_size=8, **sizes)).num_parameters() > 0)
"""


@pytest.mark.parametrize("script", often([TRAIN.format(lean=True), ENCODE]), ids=["train", "encode"])
def test_quantizers_for_another_pytorch_end_no_run(script: str, tmp_path: Path) -> None:
    """The runner uses none of them; ai-toolkit's environment has all."""
    for name, version in (("torchao", "0.18.0"), ("bitsandbytes", "0.50.2")):
        installed(tmp_path, name, version, "raise RuntimeError('made for another PyTorch')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("", "True") and "another PyTorch" not in done.stderr


def test_a_torchvision_for_another_pytorch_is_named(tmp_path: Path) -> None:
    """The real diffusers and transformers import it wherever it is installed, and fail far from it."""
    installed(tmp_path, "torchvision", "0.28.0", "raise RuntimeError('operator torchvision::nms does not exist')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-c", TRAIN.format(lean=False)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("The import of diffusers fails: operator torchvision::nms does not exist. ")
    assert "torchvision, xformers or torchao" in done.stdout


def test_an_attention_that_diffusers_does_not_know_is_named() -> None:
    environment = {**os.environ, "DIFFUSERS_ATTN_BACKEND": "fastest"}
    words = [sys.executable, "-c", TRAIN.format(lean=True)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert "DIFFUSERS_ATTN_BACKEND names no attention of this diffusers ('fastest' is not" in done.stdout


LEAN = """
import sys
from zdoctor.doctor.train.runtime.heavy_imports import import_lean
import_lean("stubborn", "inner")
print(*[name for name in ("stubborn", "stubborn.inner", "torch._dynamo") if name in sys.modules])
import stubborn.inner
print(stubborn.inner.found)
"""


@pytest.mark.thorough
def test_a_package_that_needs_what_is_hidden_is_imported_as_ever(tmp_path: Path) -> None:
    (tmp_path / "stubborn").mkdir()
    (tmp_path / "stubborn" / "__init__.py").touch()
    (tmp_path / "stubborn" / "inner.py").write_text("import torch._dynamo\nfound = torch._dynamo.__file__\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", LEAN], env=environment, capture_output=True, text=True, check=True)
    left, found = done.stdout.splitlines()
    assert left == "" and found.endswith("__init__.py")


RUNNER = """
from zdoctor.doctor.train.runtime.heavy_imports import explained_imports
with explained_imports():
    from zdoctor.doctor.train.runtime.train_error import NoSuchName
"""


def test_a_mistake_of_its_own_is_no_missing_package() -> None:
    done = subprocess.run([sys.executable, "-c", RUNNER], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("ImportError: cannot import name 'NoSuchName'")
