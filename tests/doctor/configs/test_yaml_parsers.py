"""libyaml and PyYAML's own parser give the same trees, or a text is left to PyYAML's own, as in the trainers."""

import random
from pathlib import Path

import pytest
import yaml

from zdoctor.doctor.configs import yaml_tree
from zdoctor.doctor.configs.node import Node, Unreadable
from zdoctor.doctor.configs.text import Expanded

CONFIGS = sorted((Path(__file__).resolve().parents[2] / "configs").glob("*.yaml"))
PIECES = [
    ": ", "- ", "\n  ", "# c\n", "&a ", "*a", "<<: ", "|\n", ">-\n", '"C:\\data"', "'it''s'", "---\n", "...\n", "? ",
    "null", "{a: b}", "[1, 2]", "{k: }", "1e-4", "\n\n", "  - x\n", "\r\n", "\t", "\ufeff", "\x85", "é", "😀", "!",
    "%", "@", "`", "|#", "[a, ? b]", ",", "}", "]", "'", '"', "~",
]  # fmt: skip


def tree(text: str, loader: type[yaml.SafeLoader]) -> Node | None:
    try:
        return yaml_tree._Tree(Expanded(text), loader).parse()
    except (Unreadable, yaml.YAMLError, ValueError, IndexError, OverflowError):
        return None


@pytest.mark.parametrize("seed", range(4))
def test_both_parsers_agree_on_what_libyaml_is_given(seed: int) -> None:
    chance = random.Random(seed)
    compared = 0
    for _ in range(400):
        lines = chance.choice(CONFIGS).read_text("utf-8").split("\n")
        first = chance.randrange(len(lines))
        text = "\n".join(lines[first : first + chance.randrange(1, 12)])
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice(PIECES) + text[at + chance.randrange(3) :]
        fast = None if yaml_tree._TAKEN_OTHERWISE.search(text) else tree(text, yaml_tree._FastLoader)
        if fast is not None:
            compared += 1
            assert repr(fast) == repr(tree(text, yaml_tree._Loader)), text
    assert compared > 60


@pytest.mark.parametrize("text", ["a:\t1\n", "a: [/? c]\n", "a: |#\n  b\n", "{a: 1? }\n"])
def test_what_only_libyaml_takes_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        yaml_tree.parse_yaml(Expanded(text))


def test_places_are_those_of_pyyaml_where_libyaml_has_others() -> None:
    for text in ("\ufeffa: 1\n", "{a: }\n", "{k: # c\n}\n", "a: !\n"):
        assert repr(yaml_tree.parse_yaml(Expanded(text))) == repr(tree(text, yaml_tree._Loader))
