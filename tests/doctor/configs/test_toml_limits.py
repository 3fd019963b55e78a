"""What the trainers' own reader, toml 0.10.2, takes of TOML; where that package is installed, it is asked."""

from __future__ import annotations

import importlib
import importlib.util

import pytest
import tomlkit

from zdoctor.doctor.configs.edit import apply_edits
from zdoctor.doctor.configs.node import Node
from zdoctor.doctor.configs.reading import text_of, tree_of
from zdoctor.doctor.model import Problem, SetValue

# None where both read the same
LIMITS: list[tuple[str, str | None]] = [
    ("betas = [0.9, 0.99]", None),
    ("betas = [0.9, 1]", "holds a number with a point and a whole number"),
    ("resolution = [512, 512]", None),
    ('args = ["a=1", 2]', "holds a text and a whole number"),
    ("flags = [true, 1]", "holds a switch and a whole number"),
    ('many = [["a"], [1]]', None),
    ('many = [["a", 1]]', "holds a text and a whole number"),
    ("many = [[1], 2]", "holds a list and a whole number"),
    ("sets = [{a = 1}, {a = 2}]", None),
    ("sets = [{a = 1}, 2]", "leaves a whole number out"),
    ("set = {a = 1, b = [1, 2,]}", None),
    ("set = {a = 1, b = [\n1,\n2\n]}", None),
    ("set = {a = 1,}", "comma before the }"),
    ("set = {a = 1, }", "comma before the }"),
    ("set = {\n a = 1\n}", "no line break"),
    ("set = {a = 1,\n b = 2}", "no line break"),
    ("set = {a = 1\n}", "no line break"),
    ("sets = [\n {a = 1},\n {a = 2}, # it's\n]", None),
    ("sets = [\n {a = 1,},\n]", "comma before the }"),
    ('set = {a = "x, y", b = "z,"}', None),
    ('set = {a = ", y", b = 1}', "begins with a comma"),
    ('set = {a = "it\'s"}', None),
    ('sets = [{a = "it\'s"}]', "odd number of quotes"),
    ("sets = [{a = 'say \"x'}]", "odd number of quotes"),
    ('sets = [{a = "it\'s", b = "it\'s"}]', None),
    ("sets = [{a = 'say \"x\"'}]", None),
    ('[[sets]]\na = "it\'s"', None),
    ('a = "C:\\\\x41"', None),
    ('a = "\\x41"', "knows no \\x"),
    ('a = "\\e"', "knows no \\e"),
    ('a = """\nit\'s "x"\n"""\nb = 1', None),
    ('a = [\n "x", # don\'t\n # "y",\n]', None),
    ("a = 'C:\\x'", None),
    ("\ufeffa = 1\nb = 2", "so a is lost"),
    ("\ufeffa.b = 1", "so a is lost"),
    ("\ufeff[a]\nb = 1", "which is no TOML"),
    ("\ufeff# a\nb = 1", "which is no TOML"),
    ("\ufeff\nb = 1", "which is no TOML"),
    ('\ufeff"a" = 1', "which is no TOML"),
    ("\ufeff a = 1", "which is no TOML"),
]


@pytest.mark.parametrize(("text", "refused"), LIMITS)
def test_what_the_trainers_reader_takes(text: str, refused: str | None) -> None:
    tree = tree_of(text_of("c.toml", text.encode()))
    if refused is None:
        assert isinstance(tree, Node) and tree.value == tomlkit.parse(text).unwrap()
    else:
        assert isinstance(tree, Problem) and refused in tree.message
        assert (tree.kind == "misread") == (any(word in refused for word in ("leaves", "quotes", "lost")))
    _as_the_package_says(text, tree)


def test_a_point_without_digits_behind_it() -> None:
    text = "learning_rate = 1.e-4 # of the LoRA\nlow = '1.e-4'\n"
    tree = tree_of(text_of("c.toml", text.encode()))
    assert isinstance(tree, Node) and tree.value == {"learning_rate": 1e-4, "low": "1.e-4"}
    done = apply_edits(text, [SetValue("c.toml", "/learning_rate", 5e-5)])
    assert done == text.replace("= 1.e-4", "= 5e-05")
    _as_the_package_says(text, tree)


def _as_the_package_says(text: str, tree: Node | Problem) -> None:
    if importlib.util.find_spec("toml") is None:
        return
    toml = importlib.import_module("toml")
    try:
        read = toml.loads(text)
    except (ValueError, IndexError):
        assert isinstance(tree, Problem) and tree.kind == "syntax"
        return
    if isinstance(tree, Problem):
        assert tree.kind == "misread" and read != tomlkit.parse(text.removeprefix("\ufeff")).unwrap()
    else:
        assert read == tree.value
