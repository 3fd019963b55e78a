"""Edits by source span: the declared value changes, and nothing else does."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zdoctor.doctor.configs.edit import EditError, apply_edits
from zdoctor.doctor.model import ReplaceText, SetValue
from zdoctor.doctor.trainers.read import read_config

CORPUS = Path(__file__).resolve().parents[3].parent / "shared" / "corpus" / "ai-toolkit"


def put(text: str, pointer: str, value: Any, path: str = "c.yaml") -> str:
    return apply_edits(text, [SetValue(path, pointer, value)])


@pytest.mark.parametrize(
    ("text", "pointer", "value", "expected"),
    [
        ("a: 1  # note\nb: 2\n", "/a", 3, "a: 3  # note\nb: 2\n"),
        ('a: "x"\n', "/a", "C:\\new\\x", "a: 'C:\\new\\x'\n"),
        ("a: x\n", "/a", "it's", 'a: "it\'s"\n'),
        ("a: x\n", "/a", "y", "a: y\n"),
        ("a: x\n", "/a", "no", 'a: "no"\n'),
        ("a: x\n", "/a", 1e-05, "a: 1.0e-05\n"),
        ("a:   # note\nb: 1\n", "/a", "v", 'a: "v"   # note\nb: 1\n'),
        ("a: |\n  one\n  two\nb: 1\n", "/a", "v", 'a: "v"\nb: 1\n'),
        ("a:\n- 1\n- 2\nb: 1\n", "/a", [3], "a:\n  [3]\nb: 1\n"),
        ("a: [768, 1024]\r\nb: 1\r\n", "/a/1", 512, "a: [768, 512]\r\nb: 1\r\n"),
        ("s:\n  a: 1 # x\n\n# next\nt: 2\n", "/s/b", True, "s:\n  a: 1 # x\n  b: true\n\n# next\nt: 2\n"),
        ("s:\n  a: 1\n", "/s/n/b", None, "s:\n  a: 1\n  n:\n    b: null\n"),
        ("s:\r\n  a: 1\r\nt: 2\r\n", "/s/b", 1, "s:\r\n  a: 1\r\n  b: 1\r\nt: 2\r\n"),
        ("l:\n  - p: x\n    q: y\n  - p: z\n", "/l/0/r", 1, "l:\n  - p: x\n    q: y\n    r: 1\n  - p: z\n"),
        ("s: {}\n", "/s/a", "x", 's: {a: "x"}\n'),
        ("s: {a: 1}\n", "/s/b", 2, "s: {a: 1, b: 2}\n"),
        ("s:\nt: 1\n", "/s/a", 2, "s: {a: 2}\nt: 1\n"),
        ("s:\n  t: |\n    text\nu: 1\n", "/s/v", 2, "s:\n  t: |\n    text\n  v: 2\nu: 1\n"),
        ("a: &x 1\nb: *x\n", "/b", 2, "a: &x 1\nb: 2\n"),
        ("a: &x {p: 1}\nb: {<<: *x}\n", "/b/p", 2, "a: &x {p: 1}\nb: {p: 2, <<: *x}\n"),
        ("a: 1\na: 2\n", "/a", 3, "a: 1\na: 3\n"),
        ("a: ${HOME}/x # c\nb: 1\n", "/a", "/y", "a: /y # c\nb: 1\n"),
        ("a: 1", "/b", 2, "a: 1\nb: 2"),
        ("\ufeffa: 1\n", "/b", 2, "\ufeffa: 1\nb: 2\n"),
    ],
)
def test_yaml(text: str, pointer: str, value: Any, expected: str) -> None:
    assert put(text, pointer, value) == expected


@pytest.mark.parametrize(
    ("text", "pointer", "value", "expected"),
    [
        ('{"a": 1}', "/a", "C:\\x", '{"a": "C:\\\\x"}'),
        ('{\n\t"a": 1\n}\n', "/b/c", True, '{\n\t"a": 1,\n\t"b": {"c": true}\n}\n'),
        ('{"a": {}}', "/a/b", None, '{"a": {"b": null}}'),
        ('{"a": [1, 2]}', "/a/0", 9, '{"a": [9, 2]}'),
    ],
)
def test_json(text: str, pointer: str, value: Any, expected: str) -> None:
    done = put(text, pointer, value, "c.json")
    assert done == expected
    json.loads(done)


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        ("a: &x 1\nb: *x\n", SetValue("c.yaml", "/a", 2)),
        ("a: 1\n", SetValue("c.yaml", "/a/b", 2)),
        ("a: [1]\n", SetValue("c.yaml", "/a/1", 2)),
        ("a: 'x\n", SetValue("c.yaml", "/a", 2)),
        ("a: 1\n", ReplaceText("c.yaml", 3, 4, "2", "5")),
        ("a: 1\nb: 2\n", ReplaceText("c.yaml", 3, 5, "1\n", "1 ")),
        ("a: 1\nb: 2\n", ReplaceText("c.yaml", 0, 1, "a", "b")),
        ('a: "C:\\Z"\n', ReplaceText("c.yaml", 0, 1, "a", "b")),
    ],
)
def test_refused(text: str, edit: SetValue | ReplaceText) -> None:
    with pytest.raises(EditError):
        apply_edits(text, [edit])


def test_replacement_cures_a_file_that_does_not_parse() -> None:
    text = 'a: "C:\\Zed"  # c\nb: 1\n'
    done = apply_edits(text, [ReplaceText("c.yaml", 3, 11, '"C:\\Zed"', "'C:\\Zed'"), SetValue("c.yaml", "/b", 2)])
    assert done == "a: 'C:\\Zed'  # c\nb: 2\n"


def test_a_key_is_renamed() -> None:
    text = "s:\n  netwrok: 1\n  b: 2\n"
    assert apply_edits(text, [ReplaceText("c.yaml", 5, 12, "netwrok", "network")]) == text.replace(
        "netwrok", "network"
    )


def leaves(value: Any, pointer: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        return [leaf for key, entry in value.items() for leaf in leaves(entry, f"{pointer}/{key}")]
    if isinstance(value, list) and value:
        return [leaf for index, entry in enumerate(value) for leaf in leaves(entry, f"{pointer}/{index}")]
    return [(pointer, value)] if pointer else []


names = st.text("abcdefgh_", min_size=1, max_size=6)
scalars = st.one_of(
    st.integers(-9999, 9999), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
trees = st.dictionaries(
    names,
    st.recursive(
        scalars, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3))
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tree=trees, new=scalars, flow=st.sampled_from([None, False, True]), data=st.data())
def test_only_the_declared_value_changes(
    tree: dict[str, Any], new: Any, flow: bool | None, data: st.DataObject
) -> None:
    text = yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=True, sort_keys=False)
    pointer, _ = data.draw(st.sampled_from(leaves(tree)))
    try:
        done = put(text, pointer, new)
    except EditError:
        # YAML 1.1 reads some of the dumper's own floats and texts ("${x}") differently from what was asked
        assert isinstance(new, str | float) or "${" in text
        return
    before, after = dict(leaves(yaml.safe_load(text))), dict(leaves(yaml.safe_load(done)))
    changed = {key for key in before.keys() | after.keys() if repr(before.get(key)) != repr(after.get(key))}
    assert changed <= {pointer}
    if not isinstance(new, float):
        assert after[pointer] == new


@pytest.mark.parametrize("path", sorted(CORPUS.rglob("*.y*ml")) or [None], ids=lambda p: p.name if p else "absent")
def test_corpus_values_one_by_one(path: Path | None) -> None:
    if path is None:
        pytest.skip(f"the corpus is not at {CORPUS}")
    data = path.read_bytes()
    config = read_config(path.name, data, {}).config
    if config.problem is not None:
        pytest.skip("this one does not parse")
    pointers = [p for p, v in config.values.items() if not isinstance(v.value, dict | list)]
    for pointer in pointers[:: max(1, len(pointers) // 6)]:
        done = put(config.text, pointer, "D:\\a b\\c")
        old, new = config.text.splitlines(), done.splitlines()
        again = read_config(path.name, done.encode(), {})
        assert sum(a != b for a, b in zip(old, new, strict=True)) == 1
        if again.config.problem is None:
            assert again.config.values[pointer].value == "D:\\a b\\c"
