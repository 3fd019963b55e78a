"""The settings of a project: found from the config upwards, obeyed by every command, below the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import zdoctor
from zdoctor.doctor.cli import main
from zdoctor.reports import FORMATS

ROOT = Path(__file__).parents[3]
MACHINE = str(ROOT / "examples" / "kaggle_t4x2.json")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose config is sick; PTH001 and MDL003 are errors of it, DSK002 and others warn."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / "configs").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    shutil.copy(ROOT / "examples" / "kaggle_zimage.yaml", "configs/sick.yaml")
    return tmp_path / "project"


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    main(["check", "configs/sick.yaml", "--format", "json", *words])
    told: dict[str, object] = json.loads(capsys.readouterr().out)
    return told


def severities(told: dict[str, object]) -> dict[str, str]:
    found = told["findings"]
    assert isinstance(found, list)
    return {finding["rule"]: finding["severity"] for finding in found}


def test_without_a_file_nothing_is_obeyed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = report(capsys, "--machine", MACHINE)
    assert told["settings"] is None
    assert severities(told)["PTH001"] == "error"


@pytest.mark.parametrize(
    ("words", "given", "expected", "absent"),
    [
        ('ignore = ["PTH", "missing-path"]', [], {"MDL003": "error"}, {"PTH001", "PTH004"}),
        ('select = ["PTH"]', [], {"PTH001": "error"}, {"MDL003"}),
        ('severity = {PTH001 = "note"}', [], {"PTH001": "note", "MDL003": "error"}, set()),
        ('severity = {PTH001 = "error", PTH = "off"}', [], {"PTH001": "error", "MDL003": "error"}, set()),
        ('severity.read-only-path = "off"', [], {"MDL003": "error"}, {"PTH001"}),
        ('ignore = ["MDL"]', ["--ignore", "PTH001"], {}, {"PTH001", "MDL003"}),
        ('select = ["PTH"]', ["--select", "MDL"], {"MDL003": "error"}, {"PTH001"}),
        ('ignore = ["PTH"]', ["--select", "PTH001"], {"PTH001": "error"}, {"MDL003"}),
        ('severity.PTH001 = "off"', ["--select", "PTH001"], {"PTH001": "error"}, {"MDL003"}),
    ],
)
def test_what_it_says_counts_below_the_command_line(
    project: Path,
    capsys: pytest.CaptureFixture[str],
    words: str,
    given: list[str],
    expected: dict[str, str],
    absent: set[str],
) -> None:
    Path("zdoctor.toml").write_text(words)
    found = severities(report(capsys, "--machine", MACHINE, *given))
    assert expected.items() <= found.items()
    assert not absent & found.keys()


def test_a_severity_moves_the_exit_code(project: Path) -> None:
    Path("zdoctor.toml").write_text('severity = {PTH = "warning", MDL = "warning"}')
    assert main(["check", "configs/sick.yaml", "--machine", MACHINE]) == 0
    Path("zdoctor.toml").write_text('select = ["TRN"]\nseverity = {TRN = "error"}')
    assert main(["check", "configs/sick.yaml", "--machine", MACHINE]) == 1


def test_what_the_file_leaves_out_is_not_judged(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("zdoctor.toml").write_text('select = ["TRN"]')
    main(["check", "configs/sick.yaml", "--machine", MACHINE])
    assert "not judged: all else" in capsys.readouterr().out


@pytest.mark.parametrize("format", FORMATS)
def test_the_report_names_the_file(project: Path, capsys: pytest.CaptureFixture[str], format: str) -> None:
    Path("pyproject.toml").write_text('[project]\nname = "x"\n\n[tool.zdoctor]\nignore = ["PTH"]\n')
    main(["check", "configs/sick.yaml", "--machine", MACHINE, "--format", format])
    assert "pyproject.toml" in capsys.readouterr().out


def test_of_two_files_one_wins_and_that_is_said(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").write_text('[tool.zdoctor]\nselect = ["TRN"]\n')
    Path("zdoctor.toml").write_text('select = ["PTH"]\n')
    told = report(capsys, "--machine", MACHINE)
    assert told["settings"] == "zdoctor.toml (not pyproject.toml beside it)"
    assert "PTH001" in severities(told)


def test_the_nearest_counts_and_none_above_the_repository(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("../zdoctor.toml").write_text('ignore = ["PTH"]')
    assert report(capsys, "--machine", MACHINE)["settings"] is None
    Path("zdoctor.toml").write_text('ignore = ["PTH"]')
    Path("configs/zdoctor.toml").write_text("")
    told = report(capsys, "--machine", MACHINE)
    assert Path(str(told["settings"])) == Path("configs/zdoctor.toml")
    assert "PTH001" in severities(told)


def test_the_search_ends_at_home(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".git").rmdir()
    Path("../zdoctor.toml").write_text('ignore = ["PTH"]')
    monkeypatch.setenv("HOME", str(project))
    monkeypatch.setenv("USERPROFILE", str(project))
    assert report(capsys, "--machine", MACHINE)["settings"] is None


def test_a_machine_file_counts_from_its_folder(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(MACHINE, "trainer.json")
    Path("zdoctor.toml").write_text('machine = "trainer.json"')
    recorded = report(capsys)
    assert recorded["machine"] is not None
    assert report(capsys, "--machine", "here")["machine"] is None
    assert main(["fix", "configs/sick.yaml", "--apply"]) == 2
    assert "--machine here" in capsys.readouterr().err
    main(["fix", "configs/sick.yaml"])
    assert "--apply --machine here" in capsys.readouterr().out.replace(
        "--machine here --apply", "--apply --machine here"
    )


def test_a_trainer_counts_where_the_keys_do_not_say(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("zdoctor.toml").write_text('trainer = "sd-scripts"')
    assert report(capsys, "--machine", MACHINE)["trainer"] == "ai-toolkit"
    Path("configs/sick.yaml").write_text("resolution = 512\n")
    Path("configs/sick.yaml").rename("configs/bare.toml")
    main(["check", "configs/bare.toml", "--format", "json"])
    assert json.loads(capsys.readouterr().out)["trainer"] == "sd-scripts"


def test_python_obeys_it_too(project: Path) -> None:
    Path("zdoctor.toml").write_text('ignore = ["PTH"]')
    made = zdoctor.check("configs/sick.yaml", machine=MACHINE)
    assert made.settings == "zdoctor.toml" and not any(f.rule.startswith("PTH") for f in made.findings)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('\nselct = ["PTH"]', "zdoctor.toml, line 2: there is no setting 'selct'.\n  Did you mean select?"),
        ("colour = 1", "They are select, ignore, severity, machine, trainer."),
        ('ignore = [\n  "PTH",\n  "PTH999"]', "zdoctor.toml, line 3: there is no rule 'PTH999'."),
        ('# PTH999 is none\n[severity]\nPTH999 = "off"', "line 3: there is no rule 'PTH999'."),
        ('ignore = [""]', "there is no rule ''."),
        ("ignore = [1]", "line 1: 1 is no rule."),
        ('ignore = "PTH"', "line 1: ignore is a list of rules, as in"),
        ('severity = "error"', "severity is a table, as in"),
        ('severity.PTH001 = "warn"', "line 1: 'warn' is no severity.\n  Did you mean warning?"),
        ("severity.PTH001 = 3", "It is one of error, warning, note, off."),
        ("machine = 3", "machine is a machine file, as in"),
        ('trainer = "ai-tolkit"', "line 1: there is no trainer 'ai-tolkit'.\n  Did you mean ai-toolkit?"),
        ('machine = "no.json"', "no.json: there is no such file."),
        ('ignore = ["PTH"', "zdoctor.toml is no TOML: "),
        ("ignore = [[[" * 2000, "zdoctor.toml is no TOML: "),
    ],
)
def test_what_it_cannot_mean_is_one_clear_mistake(
    project: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    Path("zdoctor.toml").write_text(text)
    assert main(["check", "configs/sick.yaml"]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '[project]\nselct = 1\n[tool.zdoctor]\nselct = ["PTH"]',
            "pyproject.toml, line 4: there is no setting 'selct'.",
        ),
        ("[tool]\nzdoctor = 3\n# tool.zdoctor", "tool.zdoctor is no table"),
        ("[tool.zdoctor]\nselect = [", "pyproject.toml is no TOML"),
    ],
)
def test_the_same_of_a_table_in_pyproject(
    project: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    Path("pyproject.toml").write_text(text)
    assert main(["check", "configs/sick.yaml"]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[project]\nname = ", "# [tool.zdoctor] is told of elsewhere\n[tool.x]\ny = 1\n"])
def test_a_pyproject_that_says_nothing_of_zdoctor_is_left_alone(
    project: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    Path("pyproject.toml").write_text(text)
    assert report(capsys, "--machine", MACHINE)["settings"] is None


def test_train_obeys_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("zdoctor.toml").write_text('ignor = ["PTH"]')
    assert main(["train", "configs/sick.yaml"]) == 2
    assert "there is no setting 'ignor'" in capsys.readouterr().err
