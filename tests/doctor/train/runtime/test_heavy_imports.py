"""What happens when the packages of the runner cannot be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TRAIN = """
from zdoctor.doctor.train import TrainError, _loop
try:
    _loop(lean={lean})
except TrainError as error:
    print(error)
"""


def test_a_torchvision_for_another_pytorch_is_named(tmp_path: Path) -> None:
    """The real diffusers and transformers import it wherever it is installed, and fail far from it."""
    package, metadata = tmp_path / "torchvision", tmp_path / "torchvision-0.28.0.dist-info"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0\n")
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
