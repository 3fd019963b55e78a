"""Failures as the real libraries write them: rich, argparse, faulthandler, PyYAML, chained exceptions."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.traceback import Traceback

from zdoctor.doctor.crash import explain

from .shapes import META
from .test_cases import SIGNATURES

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")


def script(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "train.py"
    file.write_text(text, encoding="utf-8")
    return file


def output(file: Path) -> str:
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


class _Part:
    def to(self, device: str) -> None:
        raise NotImplementedError(META.partition(": ")[2])


def _move(unet: _Part) -> None:
    unet.to("cpu")


@pytest.mark.parametrize("width", [48, 60, 80, 100, 160])
@pytest.mark.parametrize("locals_shown", [False, True])
@pytest.mark.parametrize("chained", [False, True])
def test_panels_of_rich(width: int, locals_shown: bool, chained: bool) -> None:
    with pytest.raises((NotImplementedError, RuntimeError)) as caught:
        try:
            _move(_Part())
        except NotImplementedError as error:
            if not chained:
                raise
            raise RuntimeError("loading failed") from error
    end = caught.value
    shown = Traceback.from_exception(type(end), end, end.__traceback__, show_locals=locals_shown, width=width)
    screen = Console(
        file=io.StringIO(), width=width, color_system="truecolor", force_terminal=True, legacy_windows=False
    )
    screen.print(shown)
    assert isinstance(screen.file, io.StringIO)
    seen = explain(screen.file.getvalue(), SIGNATURES)
    assert seen.failure is not None and [part.name for part in seen.failure.chain][-1] == "NotImplementedError"
    assert seen.rules == ("MDL001",)
    first = seen.failure.chain[-1]
    assert [frame.function for frame in first.frames][-2:] == ["_move", "to"]
    assert first.frames[-2].code.startswith('unet.to("cpu")') and first.frames[-2].file == __file__


def test_argparse(tmp_path: Path) -> None:
    file = script(
        tmp_path,
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--family', choices=['z_image'])\n"
        "p.parse_args(['--family', 'z-image'])\n",
    )
    assert explain(output(file), SIGNATURES).rules == ("CFG004",)


@posix
def test_faulthandler(tmp_path: Path) -> None:
    file = script(
        tmp_path,
        "import faulthandler, os, signal\nfaulthandler.enable()\n"
        "def load():\n    os.kill(os.getpid(), signal.SIGSEGV)\nload()\n",
    )
    seen = explain(output(file), SIGNATURES)
    assert seen.failure is not None and seen.failure.frame is not None and seen.known is not None
    assert (seen.failure.name, seen.failure.frame.function, seen.failure.frame.line) == (
        "SegmentationFault",
        "load",
        4,
    )


def test_yaml(tmp_path: Path) -> None:
    file = script(tmp_path / "ai-toolkit", "import yaml\nyaml.safe_load('a: \"C:\\\\models\\\\Z\"')\n")
    assert explain(output(file), SIGNATURES).rules == ("PTH002", "CFG001")


def test_a_module_that_does_not_parse(tmp_path: Path) -> None:
    """As it is after a patch was pasted with another indentation."""
    (tmp_path / "patched.py").write_text("def f():\n    if True:\n  return 1\n")
    seen = explain(output(script(tmp_path, "import patched\n")), SIGNATURES)
    assert seen.failure is not None and seen.failure.name == "IndentationError" and not seen.rules
    assert seen.failure.frame is not None and seen.failure.frame.file.endswith("patched.py")


def test_a_failure_while_another_is_handled(tmp_path: Path) -> None:
    file = script(
        tmp_path,
        "try:\n    open('/proc/none/such')\nexcept OSError:\n    {}['config']\n",
    )
    seen = explain(output(file), SIGNATURES)
    assert seen.failure is not None
    assert [part.name for part in seen.failure.chain] == ["KeyError", "FileNotFoundError"]
