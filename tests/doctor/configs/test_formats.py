"""TOML and files of shell variables: what they hold, where it stands, and edits that move nothing else."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import tomlkit
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from zdoctor.doctor.configs.edit import EditError, apply_edits
from zdoctor.doctor.configs.node import Node
from zdoctor.doctor.configs.reading import text_of, tree_of, values_of
from zdoctor.doctor.model import Problem, SetValue, Value

TOML = '''\
# a run
model_family = "flux"   # which
rate = 1e-4
"odd key" = 'C:\\data\\x'
many = [1, 2,
  3, # three
]
inline = { a = 1, "b.c" = "x" }
dotted.one = true
dotted.two = """
two "quoted" words\\"""""

[general]
size = 0x1F

  [[datasets]]
  batch = 2
  [[datasets.subsets]]
  dir = "a"  # "not [this]"
  [[datasets.subsets]]
  dir = 'b'
  [datasets.last]
  when = 2024-01-01
'''
ENV = """\
# comment
export MODEL_FAMILY='flux'
MODEL_TYPE=lora

export TRAINER_EXTRA_ARGS="--a=1  --b"
export TRAINER_EXTRA_ARGS+=" --c 2"
not a line
export EMPTY=
"""


def values(text: str, path: str) -> dict[str, Value]:
    config = text_of(path, text.encode())
    root = tree_of(config)
    assert isinstance(root, Node), root
    return values_of(root, config)


def test_toml_is_what_its_parser_reads_with_places() -> None:
    made = values(TOML, "c.toml")
    whole = tomlkit.parse(TOML).unwrap()
    for pointer, value in made.items():
        at: Any = whole
        for part in pointer.split("/")[1:]:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if value.style is not None:
            assert value.value == at or str(at) == value.value, pointer
            written = tomlkit.parse(f"k = {TOML[value.start : value.end]}").unwrap()["k"]
            assert written == at, pointer
    places = {p: (v.where.line, v.where.column) for p, v in made.items()}
    assert places["/model_family"] == (2, 16)
    assert places["/many/2"] == (6, 3)
    assert places["/datasets/0/subsets/1/dir"] == (21, 9)
    assert made["/dotted/two"].value == 'two "quoted" words""'


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a = 1\nb = \n", 2, "Unexpected character"),
        ("a = 1\nb = 2\na = 2\nc = 3\n", 3, "already exists"),
        ('a = "x\n', 1, ""),
        ("\ufeffa = 1\n", 1, "BOM"),
        ("a = [1,,2]\n", 1, "Unexpected character"),
        ("[a\nb = 1\n", 1, "Unexpected character"),
        ("word\n", 1, ""),
    ],
)
def test_what_is_no_toml(text: str, line: int, said: str) -> None:
    problem = tree_of(text_of("c.toml", text.encode()))
    assert isinstance(problem, Problem)
    assert problem.where.line == line
    assert said in problem.message


def test_shell_variables() -> None:
    made = values(ENV, "config.env")
    assert {p: v.value for p, v in made.items()} == {
        "/MODEL_FAMILY": "flux",
        "/MODEL_TYPE": "lora",
        "/TRAINER_EXTRA_ARGS": "--a=1 --b --c 2",
        "/EMPTY": "",
    }
    assert made["/MODEL_FAMILY"].where.line == 2
    assert ENV[made["/MODEL_TYPE"].start : made["/MODEL_TYPE"].end] == "lora"


@pytest.mark.parametrize(
    ("pointer", "value", "line"),
    [
        ("/model_family", "z_image", 'model_family = "z_image"   # which'),
        ("/rate", 0.5, "rate = 0.5"),
        ("/many/2", 4, "  4, # three"),
        ("/inline/new", True, 'inline = { a = 1, "b.c" = "x", new = true }'),
        ("/general/new key", ["1", "a"], '"new key" = ["1", "a"]'),
        ("/datasets/0/subsets/0/repeats", 3, "repeats = 3"),
        ("/fresh", "\\", 'fresh = "\\\\"'),
        ("/section/deep", 1, "section.deep = 1"),
    ],
)
def test_toml_is_edited_in_place(pointer: str, value: object, line: str) -> None:
    done = apply_edits(TOML, [SetValue("c.toml", pointer, value)])
    assert line in done.splitlines()
    changed = [new for new in done.splitlines() if new not in TOML.splitlines()]
    assert changed == [line]
    assert apply_edits(done, [SetValue("c.toml", pointer, value)]) == done


def test_edits_that_toml_has_no_place_for() -> None:
    for pointer, value in (("/datasets/5/x", 1), ("/general", 1), ("/rate", None), ("/rate/x", 1)):
        with pytest.raises(EditError):
            apply_edits(TOML, [SetValue("c.toml", pointer, value)])


def test_shell_variables_are_edited_in_place() -> None:
    done = apply_edits(ENV, [SetValue("x/config.env", "/MODEL_TYPE", "full"), SetValue("x/config.env", "/NUM", 0)])
    assert done == ENV.replace("MODEL_TYPE=lora", "MODEL_TYPE='full'") + "export NUM='0'\n"
    with pytest.raises(EditError):  # it is put together from two lines
        apply_edits(ENV, [SetValue("config.env", "/TRAINER_EXTRA_ARGS", "x")])


_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
_leaves = (
    st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
)
_trees = st.recursive(
    _leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3), max_leaves=8
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(_names, _trees, min_size=1, max_size=5), _names, _leaves)
def test_any_toml_keeps_all_but_the_edit(tree: dict[str, object], name: str, value: object) -> None:
    text = tomlkit.dumps(tree)
    root = tree_of(text_of("c.toml", text.encode()))
    assume(not isinstance(root, Problem) or "toml 0.10.2" not in root.message)
    assert isinstance(root, Node)
    assert root.value == tomlkit.parse(text).unwrap()
    pointer = "/" + name.replace("~", "~0").replace("/", "~1")
    try:
        done = apply_edits(text, [SetValue("c.toml", pointer, value)])
    except EditError:
        assert isinstance(tree.get(name), dict | list)
        return
    assert tomlkit.parse(done).unwrap() == {**tree, name: value}


def test_only_what_a_config_needs_is_imported() -> None:
    code = """
import sys
from zdoctor.doctor.trainers.read import read_config
read_config("c.yaml", b"job: extension\\nconfig: {name: x, process: [{type: sd_trainer}]}", {})
heavy = [name for name in sys.modules if name.startswith(("tomlkit", "zdoctor.doctor.trainers.simpletuner.read"))]
sys.exit(len(heavy))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
