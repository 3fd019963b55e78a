"""PTH002's repair, path by path; that it cures whole files is tested beside the rule."""

import pytest
import yaml

from zdoctor.doctor.model import Config, Finding, ReplaceText, System
from zdoctor.fixes.config import quote_the_path
from zdoctor.tests.checks.config_cases import LINUX, WINDOWS


@pytest.mark.parametrize(
    ("path", "absolute", "system", "format", "new"),
    [
        ("C:\\a\\b", True, WINDOWS, "yaml", "'C:\\a\\b'"),
        ("C:\\a\\b", True, LINUX, "yaml", "'C:\\a\\b'"),
        ("a\\b", False, LINUX, "yaml", "'a/b'"),
        ("a\\b", False, WINDOWS, "yaml", "'a\\b'"),
        ("C:\\it's", True, WINDOWS, "yaml", "'C:\\it''s'"),
        ("C:\\a", True, WINDOWS, "json", '"C:\\\\a"'),
    ],
)
def test_the_new_text(path: str, absolute: bool, system: System, format: str, new: str) -> None:
    finding = Finding("", evidence={"path": path, "absolute": absolute, "start": 3, "end": 9, "old": '"xxxx"'})
    config = Config("c", "", "ai-toolkit", format="json" if format == "json" else "yaml")
    (fix,) = quote_the_path(finding, config, system)
    assert fix.steps == (ReplaceText("c", 3, 9, '"xxxx"', new),)
    if absolute:
        assert yaml.safe_load(new) == path
