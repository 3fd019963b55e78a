"""An edit of a config is offered where its result parses, is cured, and has no new error; also of stacked faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import yaml

from zdoctor.doctor.examine.engine import prescribe
from zdoctor.doctor.examine.examination import Examination, examine_config
from zdoctor.doctor.examine.offers import Bench, proven
from zdoctor.doctor.model import Finding, Fix, Report, SetValue, Where
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.tests.machines import load
from zdoctor.tests.often import often
from zdoctor.tests.test_laws import CONFIGS, look
from zdoctor.tests.test_plan_laws import edited, edits_of, require_consistent, require_proven

HEALTHY = CONFIGS["kaggle_healthy.yaml"].read_text(encoding="utf-8")
MACHINE = load("kaggle_healthy")


def put(old: str, new: str) -> Callable[[str], str]:
    def fault(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return fault


FAULTS: dict[str, Callable[[str], str]] = {
    "a tab": put("      save:", "\tsave:"),
    "tabs": lambda text: text.replace("          - prompt", "\t\t  - prompt").replace("        samples", "\tsamples"),
    "an open quote": put("trigger_word: bob", 'trigger_word: "bob'),
    "a path with escapes": put("training_folder: /kaggle/working/output", 'training_folder: "D:\\new\\Users\\out"'),
    "a byte-order mark": lambda text: "\ufeff" + text,
    "a misspelt key": put("save_every:", "save_evry:"),
    "a misspelt section": put("      network:", "      netwrok:"),
    "a misspelt value": put("optimizer: adamw8bit", "optimizer: adamw8bti"),
    "a number in quotes": put("steps: 2000", 'steps: "2000"'),
    "a key twice": put("        lr: 1e-4", "        lr: 1e-4\n        lr: 1e-3"),
    "an anchor": lambda text: put("dtype: bf16\n        save", "dtype: &d bf16\n        save")(text).replace(
        "dtype: bf16\n      model", "dtype: *d\n      model"
    ),
    "a second document": lambda text: f"{text}---\na: 1\n",
    "braces": put("type: lora\n        linear: 16\n        linear_alpha: 16", "type: lora\n        <<: {linear: 16}"),
    "line ends of Windows": lambda text: text.replace("\n", "\r\n"),
}


def with_fixes(seen: Examination) -> list[tuple[Finding, Fix]]:
    return [(finding, fix) for finding in seen.report.findings for fix in finding.fixes if edits_of(fix)]


STACKED = [name for name in FAULTS if "tab" not in name]  # tabs have a test of their own


@pytest.mark.parametrize("one", often(STACKED))
def test_every_edit_of_two_stacked_faults_is_proven(one: str) -> None:
    for other in STACKED[STACKED.index(one) :]:
        text = FAULTS[one](HEALTHY)
        text = FAULTS[other](text) if other != one else text
        seen = look(MACHINE, text)
        require_consistent(seen, seen.report, prescribe(seen.report, allow="changes-result", asked=True))
        for finding, fix in with_fixes(seen):
            if finding.rule in ("CFG001", "PTH002"):  # another fault, with its own repair, may keep it from parsing
                require_mended(text, seen.report, fix)
            else:
                require_proven(MACHINE, text, seen.report, (finding,), (fix,))


def require_mended(text: str, report: Report, fix: Fix) -> None:
    text = edited(text, [*(step for one in prescribe(report).fixes for step in edits_of(one)), *edits_of(fix)])
    for _ in range(4):
        seen = look(MACHINE, text)
        wrong = [fix for finding, fix in with_fixes(seen) if finding.rule == "CFG001"]
        if not wrong:
            break
        text = edited(text, edits_of(wrong[0]))
    assert yaml.safe_load(text.removeprefix("\ufeff"))
    assert "CFG001" not in {finding.rule for finding in look(MACHINE, text).report.findings}


def test_spaces_for_tabs_are_offered_where_each_key_stays_in_its_section() -> None:
    text = HEALTHY.replace("        linear_alpha", "\tlinear_alpha")
    (fix,) = next(finding for finding in look(MACHINE, text).report.findings if finding.rule == "CFG001").fixes
    assert yaml.safe_load(edited(text, edits_of(fix))) == yaml.safe_load(HEALTHY)
    # the width of the line above would parse, and put `save` into the section above it
    (finding,) = (one for one in look(MACHINE, FAULTS["a tab"](HEALTHY)).report.findings if one.rule == "CFG001")
    assert finding.fixes == ()


def test_no_copy_of_a_broken_folder_is_shown() -> None:
    sound = load("windows_hdd")
    text = CONFIGS["windows_escapes.yaml"].read_text(encoding="utf-8")
    copies = [fix.command for fix in prescribe(look(sound, text).report).shown if "robocopy" in fix.command]
    assert len(copies) == 1
    torn = deepcopy(sound)
    del torn["files"]["D:\\ai-models\\Z-Image-Turbo\\transformer\\diffusion_pytorch_model.safetensors"]
    report = look(torn, text).report
    assert {"DSK001", "MDL003"} <= {finding.rule for finding in report.findings}
    plan = prescribe(report)
    assert [fix for fix in plan.fixes if fix.rule == "MDL003" and fix.title.startswith("copy")]
    told = [fix.command for finding in report.findings for fix in (*finding.fixes, *plan.shown)]
    assert not [command for command in told if "robocopy" in command]


KEY = Where("c.yaml", 1, 1, "/a")
COPY = Fix("copy it", (SetValue("c.yaml", "/a", "C:\\m"),))
SHOWN = Fix("copy it by hand", (), "show", command='robocopy "D:\\m" "C:\\m" /E', source="D:\\m", target="C:\\m")


@pytest.mark.parametrize(
    ("where", "shown"),
    [
        (KEY, SHOWN),
        (Where("c.yaml", 1, 1, "/a/b"), SHOWN),
        (None, Fix("set b", (SetValue("c.yaml", "/a", 2),), "ask")),
    ],
)
def test_what_a_plan_makes_moot_or_contradicts_is_not_shown(where: Where | None, shown: Fix) -> None:
    sick = Finding("m", KEY, rule="R1", severity="error", fixes=(COPY,))
    slow = Finding("n", where, rule="R2", severity="warning", fixes=(shown,))
    assert prescribe(Report("c.yaml", None, (sick, slow))).shown == ()
    assert prescribe(Report("c.yaml", None, (slow,))).shown == (shown,)
    elsewhere = Finding("o", Where("c.yaml", 2, 1, "/b"), rule="R3", fixes=(Fix("by hand", (), "show"),))
    assert len(prescribe(Report("c.yaml", None, (sick, elsewhere))).shown) == 1


def test_the_cost_of_many_repairs_is_bounded() -> None:
    """Hundreds of findings whose repairs are good take one look; whose repairs are bad, no more than a bound."""
    looks: list[Any] = []
    texts = {"c.json": json.dumps({str(n): n for n in range(300)})}
    findings = tuple(
        Finding("{n}", Where("c.json", 1, 1, f"/{n}"), args={"n": n}, rule="R", fixes=(Fix(str(n), (step,)),))
        for n in range(300)
        for step in [SetValue("c.json", f"/{n}", "new")]
    )
    before = Report("c.json", None, findings)

    def again(found: Report) -> Callable[[Any, bool], Report]:
        def look(texts: Any, whole: bool) -> Report:
            looks.append(texts)
            return found

        return look

    assert proven(Bench(before, texts, (), again(Report("c.json", None)))) == before
    assert len(looks) == 1
    assert not any(f.fixes for f in proven(Bench(before, texts, (), again(before))).findings)
    assert len(looks) < 60


def test_a_plan_of_edits_that_move_one_another_is_made_on_the_file_as_it_lies_on_disk() -> None:
    """A JSON path whose backslashes are doubled moves what follows it."""
    config = yaml.safe_load(FAULTS["a misspelt key"](HEALTHY))
    text = json.dumps(config, indent=1).replace("/kaggle/working/output", "D:\\new\\out\\x")
    seen = examine_config("config.json", RecordedWorld(MACHINE), text=text.encode())
    plan = prescribe(seen.report, allow="changes-result", asked=True)
    assert "PTH002" in {fix.rule for fix in plan.fixes}
    done = json.loads(edited(text, [step for step in plan.steps if step.path == "config.json"]))
    assert done["config"]["process"][0]["training_folder"] == "D:\\new\\out\\x"
