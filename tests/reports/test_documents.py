"""What every command prints as JSON, by the schema that is shipped. Regenerate that with `--golden`."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from zdoctor import __version__
from zdoctor.doctor.cli import main
from zdoctor.doctor.commands.schema import OUTPUT
from zdoctor.doctor.rules import all_rules
from zdoctor.reports import cache_json
from zdoctor.tests import machines
from zdoctor.tests.doctor.commands.test_memory_command import CONFIG as LARGE
from zdoctor.tests.reports.documents import DOCUMENTS, made, valid
from zdoctor.tests.reports.test_cache import seen as seen_caches

ROOT = Path(__file__).parents[2]
FREE = ("evidence", "versions", "items", "settings", "solved")  # their keys are what was found
LOG = """Traceback (most recent call last):
  File "/opt/run.py", line 3, in <module>
    main()
{}
"""
LOGS = {
    "unknown.log": LOG.format("OddError: what nobody knows"),
    "known.log": LOG.format("NotImplementedError: Cannot copy out of meta tensor; no data!"),
    "ended.log": LOG.format(
        "KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n"
    )
    + LOG.format("ValueError: b"),
    "well.log": "loading\nstep 1 loss: 0.5\nstep 2 loss: 0.4\n",
    "ill.log": "loading\nstep 1 loss: 0.5\nUserWarning: odd\nstep 2 loss: nan\n" + LOG.format("ValueError: x"),
}
COMMANDS = (
    ("check", "sick.yaml", "--machine", "kaggle.json"),
    ("check", "sick.yaml", "allowed.yaml", "--machine", "kaggle.json"),
    ("check", "none.yaml"),
    ("fix", "sick.yaml", "--machine", "kaggle.json"),
    ("history",),
    ("fix", "slip.yaml", "--select", "CFG002", "--allow", "asked", "--allow", "result", "--apply"),
    ("fix", "slip.yaml", "--select", "CFG002"),
    ("history",),
    ("rules",),
    ("explain", "PTH003"),
    *(("explain", name) for name in LOGS),
    ("explain", "known.log", "sick.yaml"),
    ("explain", "ill.log", "--diff", "well.log"),
    ("cache",),
    ("memory", "sick.yaml", "--machine", "kaggle.json"),
    ("memory", "large.yaml", "--machine", "a6000.json", "--no-rehearsal", "--solve", "rank"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    kaggle = (ROOT / "examples" / "kaggle_zimage.yaml").read_text(encoding="utf-8")
    Path("sick.yaml").write_text(kaggle, encoding="utf-8")
    Path("allowed.yaml").write_text(f"{kaggle}# zdoctor: allow MEM001\n", encoding="utf-8")
    Path("none.yaml").write_text('job: "x\nconfig: 1\n', encoding="utf-8")
    healthy = (ROOT / "tests" / "configs" / "server_healthy.yaml").read_text(encoding="utf-8")
    Path("slip.yaml").write_text(healthy.replace("      network:", "      netwrok:"), encoding="utf-8")
    Path("kaggle.json").write_bytes((ROOT / "examples" / "kaggle_t4x2.json").read_bytes())
    Path("large.yaml").write_text(LARGE, encoding="utf-8")
    Path("a6000.json").write_text(machines.text("a6000_shared"), encoding="utf-8")
    for name, text in LOGS.items():
        Path(name).write_text(text, encoding="utf-8")
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[tuple[str, ...], int, str]]:
    """Each command, its exit code and what it printed, one after the other in the same folder."""
    for words in COMMANDS:
        capsys.readouterr()
        code = main([*words, "--format", "json"])
        yield words, code, capsys.readouterr().out


def test_the_schema_is_made_of_the_types(request: pytest.FixtureRequest) -> None:
    text = json.dumps(made(), indent=1) + "\n"
    if request.config.getoption("--golden"):
        OUTPUT.write_text(text, encoding="utf-8")
    assert OUTPUT.read_text(encoding="utf-8") == text, "python -m pytest tests/reports --golden"
    jsonschema.Draft202012Validator.check_schema(json.loads(text))


def test_zdoctor_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "output"]) == 0
    assert capsys.readouterr().out == OUTPUT.read_text(encoding="utf-8")


def test_what_every_command_prints_fits_and_has_one_head(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: dict[str, list[Any]] = {}
    for words, code, text in printed(capsys):
        data = valid(text)
        assert (data["version"], data["exit_code"], data["ok"]) == (__version__, code, code == 0), words
        told.setdefault(data["schema"], []).append(data)
    known = {made()["$defs"][document.__name__]["properties"]["schema"]["const"] for document in DOCUMENTS}
    assert {*told} == known
    looked = (*told["zdoctor.report/1"], *told["zdoctor.plan/1"])
    assert all(one["judged"] or one["not_judged"] for one in looked)
    assert len(told["zdoctor.rules/1"][0]["rules"]) == len(all_rules())


def test_a_plan_and_what_was_done_of_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, done, after, *_ = (valid(text) for words, _, text in printed(capsys) if words[0] in ("fix", "history"))
    assert before["applied"] is None and before["next"][0]["command"].startswith("zdoctor fix sick.yaml ")
    assert "+" in before["diff"] and before["fixes"][0]["steps"][0]["kind"] == "mirror-folder"
    assert done["repairs"] == []
    assert after["applied"]["undo"] == f"zdoctor undo {after['applied']['id']}" and len(after["applied"]["what"]) == 1
    assert [finding["rule"] for finding in after["before"]["findings"]] == ["CFG002"]
    assert after["after"]["findings"] == [] and after["judged"] == after["after"]["judged"]
    assert main([*after["applied"]["undo"].split()[1:]]) == 0
    assert "netwrok" in Path("slip.yaml").read_text(encoding="utf-8")


def test_a_key_too_many_or_too_few_does_not_fit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So that this test, and whoever reads the documents by the schema, learns of every change."""
    names = {}
    for _, _, text in printed(capsys):
        data = valid(text)
        names[data["schema"]] = data
    names["zdoctor.cache/1"] = valid(cache_json.render(seen_caches(), __version__))
    for data in names.values():
        for path in list(objects(data)):
            for change in ("more", "less"):
                other = copy.deepcopy(data)
                at = other
                for step in path:
                    at = at[step]
                if change == "more":
                    at["odd"] = 1
                else:
                    del at[next(iter(at))]
                assert not fits(other), (data["schema"], path, change)


def objects(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of the objects whose keys are ours; of the items of a list those of the first."""
    if isinstance(data, dict):
        yield path
        for name, value in data.items():
            if name not in FREE:
                yield from objects(value, (*path, name))
    if isinstance(data, list) and data:
        yield from objects(data[0], (*path, 0))


def fits(data: Any) -> bool:
    try:
        valid(json.dumps(data))
    except jsonschema.ValidationError:
        return False
    return True


def test_the_examples_of_the_page_fit() -> None:
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```json\n(.*?)^```", page, re.M | re.S)
    assert len(examples) >= 6
    for example in examples:
        valid(example.replace('"(a report)"', examples[0]))
