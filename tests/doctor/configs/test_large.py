"""Large configs are read, and edited in as many places as there are at the cost of one; what explodes is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from zdoctor.doctor.configs import edit
from zdoctor.doctor.configs.edit import apply_edits
from zdoctor.doctor.configs.parse import parse
from zdoctor.doctor.model import SetValue
from zdoctor.doctor.trainers.read import read_config
from zdoctor.tests.checks.config_cases import KAGGLE

KEYS = 5000
DATASETS = "".join(f"        - {{folder_path: /d{n}, caption_ext: txt}}\n" for n in range(KEYS // 2))
LARGE = {
    "keys": (KAGGLE + "meta:\n" + "".join(f"  k{n}: {n}\n" for n in range(KEYS)), 1),
    "datasets": (KAGGLE.replace("      datasets:\n", f"      datasets:\n{DATASETS}"), KEYS // 2),
}


@pytest.mark.parametrize(("text", "more"), LARGE.values(), ids=LARGE)
def test_a_large_config_is_read(text: str, more: int) -> None:
    reading = read_config("c.yaml", text.encode(), {})
    assert reading.config.problem is None and len(reading.runs) == 1
    assert len(reading.runs[0].recipe.datasets) in (more, more + 1)


@pytest.mark.parametrize("anchors", [3, 5, 12])
def test_what_anchors_unfold_to_is_bounded_by_the_length_of_the_text(anchors: int) -> None:
    laughs = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10) if n else 1}]\n" for n in range(anchors))
    problem = read_config("c.yaml", (laughs + KAGGLE).encode(), {}).config.problem
    assert (problem is not None and "far more values" in problem.message) == (anchors > 4)


@pytest.mark.parametrize("missing", [False, True])
def test_many_values_are_set_at_the_cost_of_one(missing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "datasets:\n" + "".join(f"  - {{a: {n}}} # {n}\n  - b: {n}\n    a: 1\n" for n in range(100))
    name = "new" if missing else "a"
    edits = [SetValue("c.yaml", f"/datasets/{n}/{name}", f"x{n}") for n in range(200)]
    parsed: list[Any] = []

    def counted(*words: Any) -> Any:
        parsed.append(words)
        return parse(*words)

    monkeypatch.setattr(edit, "parse", counted)
    done = yaml.safe_load(apply_edits(text, edits))
    assert [entry[name] for entry in done["datasets"]] == [f"x{n}" for n in range(200)]
    assert len(parsed) <= 2


def test_values_of_one_section_that_is_not_there_are_set_one_after_the_other() -> None:
    edits = [SetValue("c.yaml", f"/a/new/{name}", name) for name in "xyz"]
    assert yaml.safe_load(apply_edits("a:\n  b: 1\n", edits)) == {"a": {"b": 1, "new": {n: n for n in "xyz"}}}
