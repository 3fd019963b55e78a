"""What was looked up and is not there, a None beside an operator, and a file of the program's own: by the code."""

from __future__ import annotations

import pytest

from zdoctor.doctor.crash import explain

from .test_cases import SIGNATURES

HEAD = "Traceback (most recent call last):\n"


def cause(code: str, error: str, file: str = "/home/a/trainer/train.py") -> str:
    return explain(f'{HEAD}  File "{file}", line 3, in step\n    {code}\n{error}\n', SIGNATURES).cause


def lookup(container: object, code: str) -> str:
    """The failure as Python itself raises it."""
    with pytest.raises(LookupError) as raised:
        eval(code, {"it": container})
    return f"{raised.type.__name__}: {raised.value}"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("dim = config['network_dim']", "The settings have no network_dim"),
        ("x = sample['odd_one']", "What comes from the dataset has no odd_one"),
        ("w = state_dict['net.0']", "The file's weights have no net.0"),
        ("t = os.environ['HUB_TOKEN']", "The environment variable HUB_TOKEN is not set"),
        ("f = self.samplers[name]", "self.samplers has no euler_x"),
    ],
)
def test_where_a_name_was_looked_up(code: str, words: str) -> None:
    name = code.partition("'")[2].partition("'")[0] or "euler_x"
    assert words in cause(code, lookup({}, f"it['{name}']"))


def test_which_list_is_short() -> None:
    assert "odd_values is empty or shorter" in cause("first = odd_values[0]", lookup([], "it[0]"))


def test_what_two_things_may_be_is_not_guessed() -> None:
    assert cause("x = a['k'] + b['k']", "KeyError: 'k'") == ""
    told = cause("x = a[0] + b[1]", "IndexError: list index out of range")
    assert told.startswith("A list is shorter than the program expects") and " is empty or shorter" not in told


@pytest.mark.parametrize(
    ("code", "names", "words"),
    [
        ("t = t * (high - low) + low", {"t": None, "high": 1.0, "low": 0.0}, "t is nothing (None) at train.py:3"),
        ("y = scale + shift", {"scale": 1.0, "shift": None}, "shift is nothing (None)"),
        ("if steps > limit: pass", {"steps": 1, "limit": None}, "limit is nothing (None)"),
    ],
)
def test_which_side_of_an_operator_is_none(code: str, names: dict[str, object], words: str) -> None:
    with pytest.raises(TypeError) as raised:
        exec(code, dict(names))
    assert words in cause(code, f"TypeError: {raised.value}")


def test_what_a_program_lacks_of_its_own_is_no_package() -> None:
    error = "ImportError: cannot import name 'sd9_utils' from 'library' (/home/a/trainer/library/__init__.py)"
    assert "is a folder of the program itself" in cause("from library import sd9_utils", error)
    other = "ImportError: cannot import name 'odd' from 'lib' (/venv/lib/python3.12/site-packages/lib/__init__.py)"
    assert "is a folder of the program itself" not in cause("from lib import odd", other)


def test_a_script_beside_the_program_s_code_is_its_own_and_a_dataset_is_not() -> None:
    assert "submodules" in cause(
        "raise E(path)", "FileNotFoundError: Script not found at /home/a/trainer/musubi-tuner"
    )
    assert "submodules" not in cause(
        "raise E(path)", "FileNotFoundError: Images not found at /home/a/trainer/pictures"
    )
