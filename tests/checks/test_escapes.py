"""PTH002: Windows paths in double quotes, loud and silent, in YAML and JSON."""

import json

import pytest
import tomlkit
import yaml
from tomlkit.exceptions import ParseError

from zdoctor.checks.config.escapes import windows_path_escape
from zdoctor.doctor.configs.edit import apply_edits
from zdoctor.doctor.model import ReplaceText, SetValue, System
from zdoctor.doctor.trainers.read import read_config
from zdoctor.fixes.config import quote_the_path
from zdoctor.tests.checks.config_cases import KAGGLE, LINUX, WINDOWS, examined, parses

LINUX_SYSTEM = System("linux", "6", "3.12", "/c", "/home/me", 4, 1 << 34, 1 << 33)
OLD = '"/kaggle/working/Z-Image-Turbo-HF"'
SICK = [
    ('"C:\\ai-models\\Z-Image"', "C:\\ai-models\\Z-Image", True),
    ('"C:\\Users\\me\\model"', "C:\\Users\\me\\model", True),
    ('"D:\\data"', "D:\\data", True),
    ('"C:\\temp\\bob"', "C:\\temp\\bob", False),
    ('"D:\\new\\train"  # note', "D:\\new\\train", False),
    ('"C:\\table\\backup\\0"', "C:\\table\\backup\\0", False),
    ('"C:\\out\\"', "C:\\out\\", True),
    ('"\\\\nas\\train"', "\\\\nas\\train", False),
    ('"C:\\x41\\b"', "C:\\x41\\b", False),
    ('"C:\\UFFFFFFFF"', "C:\\UFFFFFFFF", True),
    ('".\\masks\\new"', ".\\masks\\new", True),
    ('"models\\new"', "models\\new", False),
    ('"%USERPROFILE%\\models"', "%USERPROFILE%\\models", True),
    ('"C:\\\\ai\\new"', "C:\\ai\\new", False),
    ('"C:\\it\'s\\new"', "C:\\it's\\new", True),
]


@pytest.mark.parametrize(("value", "path", "loud"), SICK)
def test_sick_paths_are_found_and_cured(value: str, path: str, loud: bool) -> None:
    text = KAGGLE.replace(OLD, value)
    assert parses(text) is not loud
    if not loud:
        assert yaml.safe_load(text)["config"]["process"][0]["model"]["name_or_path"] != path
    findings = examined(text, "PTH002", system=WINDOWS)
    assert len(findings) == 1
    where = findings[0].where
    assert where is not None and where.line is not None and where.column is not None
    assert text.splitlines()[where.line - 1][where.column - 1] == "\\"
    (fix,) = findings[0].fixes
    assert (fix.safety, fix.training_effect) == ("safe", "none")
    steps = [step for step in fix.steps if isinstance(step, ReplaceText | SetValue)]
    done = apply_edits(text, steps)
    assert yaml.safe_load(done)["config"]["process"][0]["model"]["name_or_path"] == path
    assert sum(a != b for a, b in zip(text.splitlines(), done.splitlines(), strict=True)) == 1
    assert not examined(done, "PTH002", "CFG001")


def test_several_in_one_file_are_cured_together() -> None:
    text = KAGGLE.replace(OLD, '"C:\\Zed"').replace('"/kaggle/working/lantern_lora"', '"D:\\out\\new"')
    findings = examined(text, "PTH002")
    assert len(findings) == 2
    done = apply_edits(text, [s for f in findings for s in f.fixes[0].steps if isinstance(s, ReplaceText)])
    assert read_config("c.yaml", done.encode(), {}).config.problem is None


def test_a_relative_path_gets_slashes_away_from_windows() -> None:
    for system, expected in ((WINDOWS, "'.\\masks\\new'"), (LINUX, "'./masks/new'")):
        (finding,) = examined(KAGGLE.replace(OLD, '".\\masks\\new"'), "PTH002", system=system)
        step = finding.fixes[0].steps[0]
        assert isinstance(step, ReplaceText) and step.new == expected


@pytest.mark.parametrize(
    "healthy",
    [
        '"C:\\\\ai\\\\x"',
        "'C:\\new\\x'",
        "C:\\new\\x",
        '"C:/new/x"',
        '"\\\\\\\\nas\\\\train"',
        '"plain"',
    ],
)
def test_healthy_paths(healthy: str) -> None:
    assert parses(KAGGLE.replace(OLD, healthy))
    assert not examined(KAGGLE.replace(OLD, healthy), "PTH002")


@pytest.mark.parametrize(
    "line",
    [
        'neg: "line1\\nline2"',
        'neg: "a tab\\tand \\"quotes\\""',
        'neg: "C:\\new is where it lives"',
        '# neg: "C:\\new"',
        'neg: |\n          folder_path: "C:\\new\\x"',
        'neg: "caf\\u00e9 \\U0001F600"',
    ],
)
def test_other_text_stays_silent(line: str) -> None:
    text = KAGGLE.replace('neg: ""', line)
    assert text != KAGGLE and parses(text)
    assert not examined(text, "PTH002")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_line_ends_and_lists(newline: str) -> None:
    text = KAGGLE.replace("controls: []", 'control_path:\n            - "C:\\new"\n            - "E:\\LoRA"')
    text = text.replace("\n", newline)
    findings = examined(text, "PTH002")
    assert [f.evidence["path"] for f in findings] == ["C:\\new", "E:\\LoRA"]
    done = apply_edits(text, [s for f in findings for s in f.fixes[0].steps if isinstance(s, ReplaceText)])
    assert done.count("\r") == text.count("\r")
    assert yaml.safe_load(done)["config"]["process"][0]["datasets"][0]["control_path"] == ["C:\\new", "E:\\LoRA"]


@pytest.mark.parametrize(
    ("value", "path", "loud"), [('"C:\\new\\x"', "C:\\new\\x", True), ('"C:\\new\\tab"', "C:\\new\\tab", False)]
)
def test_json(value: str, path: str, loud: bool) -> None:
    text = json.dumps(yaml.safe_load(KAGGLE), indent=2).replace(OLD, value)
    if loud:
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)
    (finding,) = examined(text, "PTH002", path="c.json")
    step = finding.fixes[0].steps[0]
    assert isinstance(step, ReplaceText)
    done = apply_edits(text, [step])
    assert json.loads(done)["config"]["process"][0]["model"]["name_or_path"] == path
    assert not examined(done, "PTH002", path="c.json")


@pytest.mark.parametrize(
    ("line", "path", "loud"),
    [
        ('ae = "C:\\models\\ae.safetensors"', "C:\\models\\ae.safetensors", True),
        ('ae="D:\\new\\train"', "D:\\new\\train", False),
        ('image_dir = ".\\images\\cat" # here', ".\\images\\cat", True),
        ('paths = ["C:\\bob", "x"]', "C:\\bob", False),
        ('ae = "C:\\it\'s\\new"', "C:\\it's\\new", True),
        ('ae = "C:\\\\fine"', None, False),
        ("ae = 'C:\\models'", None, False),
        ('title = "one\\ttwo"', None, False),
    ],
)
def test_toml(line: str, path: str | None, loud: bool) -> None:
    text = f'network_module = "networks.lora_flux"\npretrained_model_name_or_path = "x"\n{line}\n'
    if loud:
        with pytest.raises(ParseError):
            tomlkit.parse(text)
    config = read_config("/c/c.toml", text.encode(), {}).config
    found = list(windows_path_escape(config))
    assert [finding.evidence["path"] for finding in found] == ([path] if path else [])
    for finding in found:
        (fix,) = quote_the_path(finding, config, LINUX_SYSTEM)
        cured = apply_edits(text, [step for step in fix.steps if isinstance(step, ReplaceText)])
        key = line.partition("=")[0].strip()
        value = tomlkit.parse(cured).unwrap()[key]
        meant = str(path) if finding.evidence["absolute"] else str(path).replace("\\", "/")
        assert value == meant or value[0] == meant
