"""SRC010 to SRC016 (SRC013 too): what torch really does with each script; what a check says without running it."""

from __future__ import annotations

import json
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from zdoctor.checks.script import deepspeed_hides_overflow, peft_without_input_gradients
from zdoctor.doctor.cli import main
from zdoctor.doctor.examine.engine import prescribe
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.model import Report
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.source.script import read_script
from zdoctor.tests.scripts import CASES, HEAD, Case, built


def check(text: str, folder: Path, name: str = "train.py") -> Report:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return examine_config(str(file), LiveWorld({}, str(folder), str(folder))).report


def told(report: Report) -> dict[str, str]:
    return {finding.rule: str(finding.severity) for finding in report.findings}


def outcome(text: str) -> str | tuple[int, int]:
    """What one backward pass really does."""
    model, batch = built(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = model(batch)
        try:
            out.float().pow(2).mean().backward()
        except (RuntimeError, NotImplementedError) as error:
            assert "element 0 of tensors does not require grad" in str(error)
            return "error"
    trained = [p for p in model.parameters() if p.requires_grad]
    return sum(p.grad is None for p in trained), len(trained)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_torch_does_what_the_check_says(case: Case, tmp_path: Path) -> None:
    report = check(case.text, tmp_path)
    assert not report.crashed and not report.unknown
    assert told(report) == case.rules
    assert outcome(case.text) == case.outcome


@pytest.mark.parametrize("case", [c for c in CASES if c.rules], ids=lambda case: case.name)
def test_the_offered_word_cures(case: Case, tmp_path: Path) -> None:
    """Applied, the script trains every tensor; what cannot be repaired by a word offers nothing."""
    from zdoctor.doctor.configs.edit import apply_edits

    report = check(case.text, tmp_path)
    assert not prescribe(report).fixes  # a user's own source is never edited unasked
    steps = [step for finding in report.findings for fix in finding.fixes for step in fix.steps]
    assert bool(steps) == (set(case.rules) != {"SRC011"}) and all(
        fix.safety == "ask" for finding in report.findings for fix in finding.fixes
    )
    if steps:
        cured = apply_edits(case.text, steps)  # type: ignore[arg-type]
        assert outcome(cured) == (0, 8)
        assert "SRC010" not in told(check(cured, tmp_path)) and "SRC012" not in told(check(cured, tmp_path))


SMALL = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "image_size": 8, "patch_size": 4}
PEFT = """
from peft import LoraConfig, get_peft_model
from transformers import ViTConfig, ViTModel

model = ViTModel(ViTConfig(num_attention_heads=2, **SMALL))
lora = LoraConfig(r=2, target_modules=["query", "q_proj"])
"""
KWARGS = 'gradient_checkpointing_kwargs={"use_reentrant": %s}'
ENABLE = f"model.gradient_checkpointing_enable({KWARGS})\n"
PEFT_CASES = {
    "after": ("model = get_peft_model(model, lora)\n" + ENABLE % "True", True),
    "after, under a name": (
        "options = dict(use_reentrant=True)\nmodel = get_peft_model(model, lora)\n"
        "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)\n",
        True,
    ),
    "before": (ENABLE % "True" + "model = get_peft_model(model, lora)\n", False),
    "not re-entrant": ("model = get_peft_model(model, lora)\n" + ENABLE % "False", False),
    "inputs": (
        "model = get_peft_model(model, lora)\nmodel.enable_input_require_grads()\n" + ENABLE % "True",
        False,
    ),
}


@pytest.mark.parametrize("name", PEFT_CASES)
def test_peft_as_it_really_is(name: str, tmp_path: Path) -> None:
    """SRC014."""
    pytest.importorskip("peft")
    body, sick = PEFT_CASES[name]
    report = check(PEFT + body, tmp_path)
    assert told(report) == ({"SRC014": "error"} if sick else {})
    space: dict[str, Any] = {"SMALL": SMALL}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(PEFT + body, space)
        model: Any = space["model"]
        model.train()
        loss = model(pixel_values=torch.randn(1, 3, 8, 8)).last_hidden_state.pow(2).mean()
        if sick:
            with pytest.raises(
                (RuntimeError, NotImplementedError), match="element 0 of tensors does not require grad"
            ):
                loss.backward()
        else:
            loss.backward()
            assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


DEEPSPEED = (
    HEAD
    + """
import deepspeed


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(LoraBlock() for _ in range(4))

    def _forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, hidden_states):
        hidden_states = deepspeed.checkpointing.checkpoint(self._forward, hidden_states)
        return hidden_states.requires_grad_(True)
"""
)


def test_deepspeed_checkpoint_of_a_whole_model(tmp_path: Path) -> None:
    report = check(DEEPSPEED, tmp_path)
    assert told(report) == {"SRC010": "error", "SRC011": "error"}
    fix = next(fix for finding in report.findings for fix in finding.fixes)
    assert [getattr(step, "new", "") for step in fix.steps] == ["deepspeed.checkpointing.non_reentrant_checkpoint"]
    cured = DEEPSPEED.replace("checkpointing.checkpoint(", "checkpointing.non_reentrant_checkpoint(")
    assert told(check(cured, tmp_path)) == {}


@pytest.mark.parametrize(
    ("version", "stage", "device", "found"),
    [
        ("0.15.1", 2, "cpu", True),
        ("0.17.0", 1, "cpu", True),
        ("0.17.1", 2, "cpu", False),
        ("0.13.1", 2, "cpu", False),
        ("0.15.1", 3, "cpu", False),
        ("0.15.1", 2, "none", False),
        (None, 2, "cpu", False),
    ],
)
def test_a_deepspeed_that_hides_overflows(version: str | None, stage: int, device: str, found: bool) -> None:
    """SRC015. The config may be a JSON file beside the script, or a dictionary in it."""
    settings = {"zero_optimization": {"stage": stage, "offload_optimizer": {"device": device}}}
    packages = {} if version is None else {"deepspeed": version}
    inside = read_script("train.py", f"import deepspeed\nds_config = {settings!r}\n")
    assert bool(list(deepspeed_hides_overflow(inside, packages))) is found


def test_the_config_beside_the_script(tmp_path: Path) -> None:
    """SRC016, from the JSON file; a JSON file of another kind is passed over."""
    half = {"fp16": {"enabled": True}, "train_batch_size": 1}
    (tmp_path / "ds.json").write_text(json.dumps(half), encoding="utf-8")
    (tmp_path / "other.json").write_text('{"fp16": {"enabled": true}}', encoding="utf-8")
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    script = "import deepspeed\nfrom diffusers import {model}\n"
    report = check(script.format(model="FluxTransformer2DModel"), tmp_path)
    assert told(report) == {"SRC016": "warning"}
    assert str(getattr(report.findings[0].where, "path", "")).endswith("ds.json")
    assert told(check(script.format(model="UNet2DConditionModel"), tmp_path)) == {}
    (tmp_path / "ds.json").write_text(json.dumps({**half, "fp16": {"enabled": "auto"}}), encoding="utf-8")
    assert told(check(script.format(model="FluxTransformer2DModel"), tmp_path)) == {}


@pytest.mark.parametrize(("precision", "found"), [("fp16", True), ("bf16", False)])
def test_half_precision_of_accelerate(precision: str, found: bool, tmp_path: Path) -> None:
    text = f"""
from accelerate import Accelerator
from diffusers import FlowMatchEulerDiscreteScheduler
accelerator = Accelerator(mixed_precision="{precision}")
"""
    assert (told(check(text, tmp_path)) == {"SRC016": "warning"}) is found


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"def f(:\n    pass\n", 1),
        (b"x = 1\nprint 'python 2'\n", 2),
        (b"x = (\n", 1),
        (b"\0\0", 1),
        (b"x = '\xff\xfe'\n", 1),
        (b"(" * 3000, None),
    ],
)
def test_a_script_that_does_not_parse_is_an_error_in_words(data: bytes, line: int | None, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(data)
    report = examine_config(str(file), LiveWorld({}, str(tmp_path), str(tmp_path))).report
    assert told(report) == {"CFG001": "error"} and not report.crashed
    where = report.findings[0].where
    assert where is not None and (line is None or where.line == line)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_edits_hit_the_place_in_any_file(newline: str, mark: str, tmp_path: Path) -> None:
    text = (
        mark
        + newline.join(
            [
                "from torch.utils.checkpoint import checkpoint",
                "class Net:",
                "    def forward(self, x):",
                "        größe = 'ä€'; return checkpoint(self.transformer, x)",
            ]
        )
        + newline
    )
    file = tmp_path / "train.py"
    file.write_bytes(text.encode())
    report = examine_config(str(file), LiveWorld({}, str(tmp_path), str(tmp_path))).report
    from zdoctor.doctor.configs.edit import apply_edits

    steps: Any = [step for finding in report.findings for fix in finding.fixes for step in fix.steps]
    assert "checkpoint(self.transformer, x, use_reentrant=False)" in apply_edits(text, steps)
    where = report.findings[0].where
    assert where is not None and (where.line, where.column) == (4, 30)


def test_a_check_of_a_script_neither_runs_it_nor_needs_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "open('was-run', 'w')\nimport package_that_is_nowhere\n"
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["check", "train.py"]) == 0
    assert not (tmp_path / "was-run").exists()
    assert "zdoctor train" not in capsys.readouterr().out
    assert main(["train", "train.py"]) == 3


def test_the_runner_of_this_project_is_silent(tmp_path: Path) -> None:
    """Real code of some size: nothing to find in it."""
    for name in ("step.trainer", "training_loop", "training_run"):
        module = import_module(f"zdoctor.doctor.train.{name}")
        report = check(Path(str(module.__file__)).read_text(encoding="utf-8"), tmp_path)
        assert told(report) == {}


@pytest.mark.parametrize(
    ("model", "version", "found"),
    [("LlamaForCausalLM", "4.57.3", True), ("LlamaForCausalLM", "5.0.0", False), ("ViTModel", "5.0.0", True)],
)
def test_peft_by_what_transformers_does_itself(model: str, version: str, found: bool) -> None:
    body = PEFT_CASES["after"][0]
    script = read_script("train.py", PEFT.replace("ViTModel", model).replace("ViTConfig", "Config") + body)
    assert bool(list(peft_without_input_gradients(script, {"transformers": version}))) is found


GOT_LONG = """Traceback (most recent call last):
  File "/app/train.py", line 88, in <module>
    engine.step()
  File "/opt/lib/python3.10/dist-packages/deepspeed/runtime/zero/stage_1_and_2.py", line 1750, in norm
    return torch.norm(torch.stack(norm_groups), p=norm_type)
  File "/usr/local/lib/python3.10/dist-packages/torch/functional.py", line 1626, in norm
    return torch.linalg.vector_norm(input, _p, _dim, keepdim, dtype=dtype)
RuntimeError: linalg.vector_norm: Expected a floating point or complex tensor as input. Got Long
"""


def test_the_logs_of_these_failures_lead_back_to_the_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DeepSpeed's by its recorded words, torch's by what it says here and now."""
    script, log = tmp_path / "train.py", tmp_path / "train.log"
    script.write_text(CASES[0].text, encoding="utf-8")
    log.write_text(GOT_LONG, encoding="utf-8")
    assert main(["explain", str(log)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "SRC015" in said and "not finite" in said

    model, batch = built(CASES[0].text)
    with pytest.raises((RuntimeError, NotImplementedError)) as raised, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(batch).sum().backward()
    trace = f'Traceback (most recent call last):\n  File "{script}", line 9, in step\n    loss.backward()\n'
    log.write_text(f"{trace}{raised.type.__name__}: {raised.value}\n", encoding="utf-8")
    assert main(["explain", str(log), str(script)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "SRC010" in said and "confirmed" in said
