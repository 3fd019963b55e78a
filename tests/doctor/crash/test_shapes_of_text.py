"""What the real interpreter prints, in shapes of its own or through what trainers put in its way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from zdoctor.doctor.crash import clean, explain, failures
from zdoctor.doctor.model.crashes import Failure

from .disguises import doubled
from .shapes import META, OOM, traceback
from .test_cases import SIGNATURES

# As ai-toolkit did in autumn 2025: what stands for stderr writes to the terminal, which is the log, and to the log.
TWICE = """
import sys
class Logger:
    def __init__(self, terminal, log):
        self.terminal, self.log = terminal, log
    def write(self, message):
        self.terminal.write(message)
        self.log.write(message)
        self.log.flush()
    def flush(self):
        self.terminal.flush()
sys.stderr = Logger(sys.stderr, open(sys.argv[1], "a"))
"""


def output(folder: Path, text: str, *options: str) -> str:
    """What a script prints, both streams in one file."""
    script, log = folder / "train.py", folder / "train.log"
    script.write_text(text, encoding="utf-8")
    with log.open("a") as file:
        subprocess.run([sys.executable, *options, str(script), str(log)], stdout=file, stderr=file, check=False)
    return log.read_text(encoding="utf-8")


def the_failure(text: str) -> Failure:
    seen = explain(text, SIGNATURES)
    assert seen.failure is not None
    return seen.failure


@pytest.mark.parametrize("options", [(), ("-u",)], ids=["line by line", "piece by piece"])
@pytest.mark.parametrize("message", ["one line", "two\\nlines", ""])
@pytest.mark.parametrize("error", ["ValueError", "json.JSONDecodeError", "subprocess.SubprocessError"])
def test_two_writers_of_one_log(tmp_path: Path, options: tuple[str, ...], message: str, error: str) -> None:
    name = error.rpartition(".")[2]
    arguments = f'"{message}", "", 0' if "JSON" in error else f'"{message}"' if message else ""
    text = f"{TWICE}import json, subprocess\ndef load():\n    raise {error}({arguments})\nload()\n"
    failure = the_failure(output(tmp_path, text, *options))
    assert failure.name == name and failure.frame is not None
    assert (failure.frame.function, failure.frame.code) == ("load", f"raise {error}({arguments})")
    first = message.partition("\\n")[0]
    assert failure.message.startswith(first) and failure.message.count(first or "?") <= 1


@pytest.mark.parametrize("options", [(), ("-u",)], ids=["line by line", "piece by piece"])
def test_a_chain_of_two_writers(tmp_path: Path, options: tuple[str, ...]) -> None:
    text = f"{TWICE}try:\n    {{}}['a']\nexcept KeyError as error:\n    raise OSError('no') from error\n"
    failure = the_failure(output(tmp_path, text, *options))
    assert [part.name for part in failure.chain] == ["OSError", "KeyError"]


def test_a_group_of_exceptions_is_told_by_one_of_them(tmp_path: Path) -> None:
    text = (
        "def load():\n    raise FileNotFoundError(2, 'No such file or directory', '/none')\n"
        "caught = []\nfor one in range(2):\n    try:\n        load()\n    except OSError as error:\n"
        "        caught.append(error)\nraise ExceptionGroup('loading', caught)\n"
    )
    if sys.version_info < (3, 11):
        text = "import exceptiongroup\nfrom exceptiongroup import ExceptionGroup\n" + text
    failure = the_failure(output(tmp_path, text))
    assert (failure.name, [frame.function for frame in failure.frames][-1]) == ("FileNotFoundError", "load")


def test_notes_belong_to_the_message(tmp_path: Path) -> None:
    text = "error = ValueError('no')\nerror.__notes__ = ['while cat.png was read', 'in batch 3']\nraise error\n"
    assert the_failure(output(tmp_path, text)).message in ("no\nwhile cat.png was read\nin batch 3", "no")


def test_a_script_that_does_not_parse(tmp_path: Path) -> None:
    failure = the_failure(output(tmp_path, "def main(:\n    pass\n"))
    assert failure.name == "SyntaxError" and failure.frame is not None
    assert (failure.frame.line, failure.frame.code) == (1, "def main(:")


def test_what_logging_shows_of_itself_ended_nothing(tmp_path: Path) -> None:
    text = (
        "import logging, sys\nlogging.basicConfig(stream=sys.stdout)\n"
        "logging.getLogger().error('%d', 'x')\nlogging.getLogger().error('odd', stack_info=True)\n"
        "class Odd:\n    def __del__(self):\n        raise ValueError('late')\nodd = Odd()\n"
    )
    seen = explain(output(tmp_path, text, "-u"), SIGNATURES)
    assert seen.failure is None and seen.others == 2


HUB = (
    "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-2;3)\n\n"
    "Cannot access gated repo for url https://huggingface.co/a/b/resolve/main/x.safetensors.\n"
    "Access to model a/b is restricted. You must have access to it and be authenticated to access it. "
    "Please log in.\n"
)


@pytest.mark.parametrize("after", ["", "\nThe above exception was the direct cause of the following exception:\n\n"])
def test_a_message_goes_on_after_an_empty_line(after: str) -> None:
    text = traceback(HUB.rstrip("\n"), ("/x/run.py", "main", "load()")) + after
    text += traceback("OSError: no access", ("/x/run.py", "main", "load()")) if after else ""
    first = the_failure(text).chain[-1]
    assert first.message.endswith("Please log in.") and "Cannot access gated repo" in first.message


def test_what_a_log_says_later_is_not_the_message() -> None:
    text = traceback("ValueError: no", ("/x/run.py", "main", "load()")) + "\n2026-11-21 10:00:00 INFO killed\n"
    assert the_failure(text).message == "no"
    text = traceback("ValueError: no", ("/x/run.py", "main", "load()")) + "\nsaved\n\n[INFO] ended\n"
    assert the_failure(text).message == "no"


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("RuntimeError: CUDA error: out of memory", "RuntimeError", "CUDA error: out of memory"),
        ("it says: RuntimeError: odd", "RuntimeError", "odd"),
        ("2026-11-21 10:00:00,123 - ERROR - training failed: ValueError: odd", "ValueError", "odd"),
        ("[2026-11-21 10:00:00] [INFO] OSError: odd", "OSError", "odd"),
        ("huggingface_hub.errors.LocalEntryNotFoundError: odd", "LocalEntryNotFoundError", "odd"),
        ("Exception: odd", "Exception", "odd"),
        ("KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("    raise ValueError(odd)", "ValueError", ""),
        (
            "ERROR: No matching distribution found for torch==9",
            "Reported",
            "No matching distribution found for torch==9",
        ),
        ("npm error code EODD\nnpm error could not resolve", "Reported", "code EODD\ncould not resolve"),
        ("fatal: the remote end hung up", "Reported", "the remote end hung up"),
    ],
)
def test_a_line_alone_names_its_failure(text: str, name: str, message: str) -> None:
    failure = the_failure(f"starting\n{text}\n")
    assert (failure.name, failure.message) == (name, message)


def test_in_the_box_of_pip() -> None:
    inner = traceback("ModuleNotFoundError: No module named 'torch'", ("<string>", "<module>", "import torch"))
    box = "".join(f"      {line}\n" for line in inner.splitlines())
    text = (
        "  error: subprocess-exited-with-error\n  \n"
        "  × Getting requirements to build wheel did not run successfully.\n"
        f"  │ exit code: 1\n  ╰─> [20 lines of output]\n{box}      [end of output]\n  \n"
        "  note: This error originates from a subprocess, and is likely not a problem with pip.\n"
    )
    failure = the_failure(text)
    assert (failure.name, len(failure.frames)) == ("ModuleNotFoundError", 2)
    assert failure.message.startswith("No module named 'torch'")


def test_what_c_plus_plus_throws() -> None:
    text = (
        "terminate called after throwing an instance of 'c10::Error'\n"
        "  what():  CUDA error: an illegal memory access was encountered\n"
        "CUDA kernel errors might be asynchronously reported at some other API call\n"
        "Exception raised from c10_cuda_check_implementation at ../c10/cuda/CUDAException.cpp:43:\n"
        "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f00 in /usr/lib/libc10.so)\n"
        "frame #1: c10::cuda::c10_cuda_check_implementation(int) + 0x3ec (0x7f01 in /x/libc10_cuda.so)\n\n"
        "Aborted (core dumped)\n"
    )
    seen = explain(text, SIGNATURES)
    assert seen.failure is not None and seen.known is not None and "overclocked" in seen.known.cause
    assert [frame.file for frame in seen.failure.frames] == ["/x/libc10_cuda.so", "/usr/lib/libc10.so"]


def test_what_node_throws() -> None:
    text = (
        "> ai-toolkit-ui@0.1.0 start\n\nnode:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\n"
        "Error: Cannot find module '/app/ui/dist/cron/worker.js'\n"
        "    at Module._resolveFilename (node:internal/modules/cjs/loader:1225:15)\n"
        "    at Module._load (node:internal/modules/cjs/loader:1051:27)\n"
        "    at node:internal/main/run_main_module:28:49 {\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}\n"
    )
    failure = the_failure(text)
    assert (failure.type, failure.message) == ("Error", "Cannot find module '/app/ui/dist/cron/worker.js'")
    assert failure.frame is not None and failure.frame.function == "Module._resolveFilename"


def test_a_panel_whose_file_is_not_there() -> None:
    text = (
        "╭─────────────── Traceback (most recent call last) ────────────────╮\n"
        "│ in main:236                                                      │\n"
        "│                                                                  │\n"
        "│ ❱ 236 │   load()                                                 │\n"
        "╰──────────────────────────────────────────────────────────────────╯\nValueError: odd\n"
    )
    failure = the_failure(text)
    assert [(frame.function, frame.line, frame.code) for frame in failure.frames] == [("main", 236, "load()")]
    assert (
        the_failure(text.partition("\n")[2]) == failure or the_failure(text.partition("\n")[2]).name == "ValueError"
    )


def test_numbers_are_those_of_the_file() -> None:
    bars = "\r".join(f"{n}%|#| {n}/9 [00:01<00:02, 1it/s]" for n in range(9))
    text = f"one\r\n{bars}\n" + traceback(META, ("/x/run.py", "main", "model.to(d)")).replace("\n", "\r\n")
    found = failures(clean(text))[0]
    assert (found.begin, found.at) == (3, 9)


def test_a_traceback_behind_a_bar_and_before_one() -> None:
    bar = "steps:   0%|          | 0/1600 [00:00<?, ?it/s]"
    text = bar + traceback(OOM, ("/x/run.py", "main", "loss.backward()")).rstrip("\n") + f"\r{bar}\n"
    assert explain(text, SIGNATURES).rules == ("MEM001",)


def test_comfyuis_report_names_the_exception_above_its_traceback() -> None:
    report = (
        "# ComfyUI Error Report\n## Error Details\n- **Node ID:** 3\n- **Exception Type:** ValueError\n"
        "- **Exception Message:** odd\nand more\n\n## Stack Trace\n```\n"
        '  File "/x/ComfyUI/execution.py", line 496, in execute\n    run(x)\n\n'
        '  File "/x/ComfyUI/nodes.py", line 20, in sample\n    return mine(x)\n\n```\n'
        "## System Information\n- **ComfyUI Version:** 0.3.40\n"
    )
    failure = the_failure(report)
    assert (failure.name, failure.message, len(failure.frames), failure.at) == ("ValueError", "odd and more", 2, 16)
    cut = report.partition("  File")[0]
    assert the_failure(cut).name == "ValueError"
    amid = report.partition("    return mine")[0]
    for copied in (amid, amid.replace("```\n", ""), amid.rstrip("\n")):
        failure = the_failure(copied)
        assert (failure.name, len(failure.frames)) == ("ValueError", 2)


def test_a_message_with_empty_lines_that_two_writers_wrote() -> None:
    error = (
        "huggingface_hub.errors.GatedRepoError: 401 Client Error.\n\nCannot access gated repo for url https://x.\n"
    )
    text = doubled(traceback(error.partition("\n")[0], ("/x/run.py", "main", "load()")) + error.partition("\n")[2])
    assert "Cannot access gated repo" in the_failure(text).message


def test_a_frame_that_is_by_chance_as_wide_as_a_window_ends_there() -> None:
    line = '  File "/v/lib/{}.py", line 3, in f'
    line = line.format("x" * (82 - len(line)))
    assert len(line) == 80
    found = explain(f"Traceback (most recent call last):\n{line}\n    x()\nValueError: odd\n", SIGNATURES).failure
    assert found is not None and [frame.function for frame in found.frames] == ["f"]
