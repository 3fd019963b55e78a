"""zdoctor probe: one real step of a user's model, and what is said of it. SRC020 to SRC024."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zdoctor.checks.microstep import micro_step_failed
from zdoctor.doctor.cli import main
from zdoctor.doctor.commands.probe import _explained
from zdoctor.doctor.errors import INTERRUPTED
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.model import MicroStep, Report
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.microstep import Tried, try_step
from zdoctor.doctor.train.probe_scripts.micro_step import Misbuilt, step
from zdoctor.tests.reports.documents import valid
from zdoctor.tests.scripts import BY_NAME, CASES, Case

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Linear(4, 4)
        self.spare = nn.Linear(4, 4)

    def forward(self, x):
        return self.used(x)
"""


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    yield
    sys.modules.pop("train", None)


def stepped(text: str, folder: Path, batch: int | None = None) -> dict[str, Any]:
    """What a step of the script's build_model notes, made in this process."""
    file = folder / "train.py"
    file.write_text(text, encoding="utf-8")
    made: dict[str, Any] = {}
    step({"script": str(file), "function": "build_model", "batch": batch}, made, lambda stage: None)
    return made


def report_of(made: dict[str, Any], folder: Path) -> Report:
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in made.items()
    }
    world = LiveWorld({}, str(folder), str(folder))
    return examine_config(
        str(folder / "train.py"), world, microstep=MicroStep("train.py:build_model", "done", **fields)
    ).report


def told(made: dict[str, Any], folder: Path) -> dict[str, str]:
    findings = report_of(made, folder).findings
    return {f.rule: str(f.severity) for f in findings if f.rule >= "SRC020"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_step_sees_what_torch_does(case: Case, tmp_path: Path) -> None:
    made = stepped(case.text, tmp_path)
    if case.outcome == "error":
        assert made["detached"] and told(made, tmp_path) == {"SRC021": "error"}
    elif case.outcome[0] == 0:
        assert not made["missing"] and not made["zero"] and not made["unmoved"]
        assert told(made, tmp_path) == {}
    elif "loss" in case.name:
        assert made["forced"] and told(made, tmp_path) == {"SRC021": "error"}
    else:
        assert len(made["missing"]) == case.outcome[0] and len(made["trainable"]) == case.outcome[1]
        assert told(made, tmp_path) == {"SRC022": "error"} and made["no_input_grads"]


ENDS = {
    "a healthy model": ("return Net().used, torch.ones(2, 4)", {}),
    "a part that is not used": ("return Net(), torch.ones(2, 4)", {"SRC022": "warning"}),
    "nothing is trained": ("return Net().requires_grad_(False), torch.ones(2, 4)", {"SRC022": "error"}),
    "the optimizer holds other parameters": (
        "net = Net().used; return net, torch.ones(2, 4), torch.optim.SGD([net.bias], lr=1.0)",
        {"SRC024": "warning"},
    ),
    "the optimizer holds none of them": (
        "net = Net().used; return net, torch.ones(2, 4), torch.optim.SGD(Net().parameters(), lr=1.0)",
        {"SRC024": "error"},
    ),
    "bf16 rounds the steps away": (
        "net = Net().used.bfloat16(); b = torch.ones(2, 4, dtype=torch.bfloat16); "
        "return net, b, torch.optim.SGD(net.parameters(), lr=1e-9)",
        {"SRC024": "error"},
    ),
    "an output that does not depend on the model": (
        "net = Net().used; return net, lambda: (net(torch.ones(2, 4)) * 0).sum()",
        {"SRC024": "error"},
    ),
    "a loss that is not finite": (
        "net = Net().used; return net, lambda model: model(torch.ones(2, 4)).sum() / 0.0",
        {"SRC023": "error"},
    ),
    "fp16 overflows": (
        "net = Net().used; return net, lambda m: (m(torch.full((2, 4), 6e4)).half() * 9).float().mean()",
        {"SRC023": "error"},
    ),
    "what is trained is fp16": (
        "net = Net().used; nn.init.zeros_(net.weight); net.half(); "
        "return net, lambda m: (m(torch.ones(2, 4, dtype=torch.float16)) * torch.tensor([0.0, 1, 1, 1])).sum()",
        {"SRC023": "error"},
    ),
    "the same in fp32": (
        "net = Net().used; return net, lambda m: (m(torch.ones(2, 4)) * torch.tensor([0.0, 1, 1, 1])).sum()",
        {},
    ),
    "a model that gives its loss in a dictionary, for a batch by names": (
        "class Own(nn.Linear):\n        def forward(self, input): return {'loss': super().forward(input).sum()}\n"
        "    return Own(4, 4), {'input': torch.ones(2, 4)}",
        {},
    ),
    "a batch of two": ("return nn.Bilinear(4, 4, 4), (torch.ones(2, 4), torch.ones(2, 4))", {}),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_a_step_shows(name: str, tmp_path: Path) -> None:
    body, expected = ENDS[name]
    made = stepped(f"{MODEL}\ndef build_model():\n    torch.manual_seed(0)\n    {body}\n", tmp_path)
    assert told(made, tmp_path) == expected


def test_no_gradient_is_not_a_gradient_of_zero(tmp_path: Path) -> None:
    """The first step of a LoRA has zeros in one factor of each pair: that is how it begins, and no finding."""
    zeros = "net = Net()\n    [nn.init.zeros_(block.lora_up.weight) for block in net.blocks]\n    return net, torch"
    text = BY_NAME["whole model, not re-entrant"].text.replace("return Net(), torch", zeros)
    made = stepped(text, tmp_path)
    assert told(made, tmp_path) == {} and not made["zero"] and not made["missing"]


def test_the_batch_is_handed_on(tmp_path: Path) -> None:
    body = "return Net().used, lambda m: m(torch.ones(batch, 4)).sum() * 0 + batch"
    text = f"{MODEL}\ndef build_model(batch):\n    {body}\n"
    assert stepped(text, tmp_path, 7)["loss"] == 7.0


@pytest.mark.parametrize("returned", ["None", "Net()", "(Net(), 1, 2, 3)", "(1, 2)"])
def test_what_cannot_be_stepped_is_said(returned: str, tmp_path: Path) -> None:
    with pytest.raises(Misbuilt, match=r"must return \(module, batch\)"):
        stepped(f"{MODEL}\ndef build_model():\n    return {returned}\n", tmp_path)


def test_a_known_failure_is_explained_with_its_line(tmp_path: Path) -> None:
    trace = (
        "Traceback (most recent call last):\n"
        f'  File "{tmp_path}/train.py", line 12, in build_model\n    net.to("cuda")\n'
        "NotImplementedError: Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty()\n"
    )
    seen = _explained(
        Tried(MicroStep("t", "building the model", failed="NotImplementedError: …"), trace), Path("train.py")
    )
    assert isinstance(seen, MicroStep) and seen.line == 12
    (tmp_path / "train.py").write_text("x = 1\n", encoding="utf-8")
    report = examine_config(
        str(tmp_path / "train.py"), LiveWorld({}, str(tmp_path), str(tmp_path)), microstep=seen
    ).report
    said = report.findings[0].consequence()
    assert "missing from its files" in said and "random weights" in said
    assert micro_step_failed.__doc__


# --- the child process


def test_the_whole_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A healthy-looking script that trains nothing, found by what it says and by what it does."""
    file = tmp_path / "train.py"
    file.write_text("print('noise')\n" + BY_NAME["gradient forced on the output"].text, encoding="utf-8")
    assert main(["probe", f"{file}:build_model", "--batch", "3", "--format", "json"]) == 1
    made = valid(capsys.readouterr().out)
    assert {finding["rule"] for finding in made["findings"]} == {"SRC010", "SRC011", "SRC022"}
    assert made["ok"] is False and len(made["microstep"]["missing"]) == 8
    assert made["microstep"]["no_input_grads"] and made["microstep"]["peak_bytes"] > 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_process_that_dies_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.py"
    file.write_text("import os\nos.kill(os.getpid(), 9)\ndef build_model(): ...\n", encoding="utf-8")
    assert main(["probe", f"{file}:build_model"]) == 1
    assert "SIGKILL" in " ".join(capsys.readouterr().out.split())


def test_a_script_that_exits_is_a_finding(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("raise SystemExit('usage: train.py DATA')\n", encoding="utf-8")
    seen = try_step(str(file), "build_model", deadline=60).step
    assert isinstance(seen, MicroStep) and "usage: train.py DATA" in seen.failed
    assert seen.stage == "importing the script"


HANGS = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\ndef build_model(): ...\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_script_that_hangs_is_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(HANGS, encoding="utf-8")
    assert main(["probe", "train.py:build_model", "--timeout", "1.5"]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "did not end within 1.5 s" in said and "not known" in said


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_ends_the_child_too(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ready")
    text = "import os, time\nopen('ready', 'w').write(str(os.getpid()))\ntime.sleep(600)\ndef build_model(): ...\n"
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "zdoctor", "probe", "train.py:build_model"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as parent:
        child = int((tmp_path / "ready").read_text())
        parent.send_signal(signal.SIGINT)
        _, said = parent.communicate(timeout=60)
    assert parent.returncode == INTERRUPTED and b"stopped" in said and b"Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("train.py", "names no function"),
        ("train.py:", "names no function"),
        ("train.txt:build", "names no function"),
        ("missing.py:build", "no such file"),
        ("train.py:biuld_model", "has no function biuld_model"),
        ("broken.py:build_model", "cannot parse it"),
    ],
)
def test_a_target_that_is_none(
    target: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("def build_model(): ...\n", encoding="utf-8")
    Path("broken.py").write_text("def build_model(:\n", encoding="utf-8")
    assert main(["probe", target]) == 2
    assert message in capsys.readouterr().err


def test_a_batch_that_the_function_does_not_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.py"
    file.write_text("def build_model(): ...\n", encoding="utf-8")
    assert main(["probe", f"{file}:build_model", "--batch", "2"]) == 2
    assert "takes no batch" in capsys.readouterr().err
