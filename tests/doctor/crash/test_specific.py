"""Of the entries that fit a message the one that knows more of it answers, wherever they stand in the tables."""

from __future__ import annotations

import itertools

import pytest

from zdoctor.doctor.crash import table
from zdoctor.doctor.crash.specific import by_closeness
from zdoctor.doctor.model.crashes import Known


def entry(
    cause: str, *words: str, text: str = "", where: str = "", sample: str = "", messenger: bool = False
) -> Known:
    return Known(cause, "", words=words, text=text, where=where, sample=sample, messenger=messenger)


BROAD = entry("broad", text=r"name '\w+' is not defined", sample="NameError: name 'x' is not defined")
WORDS = entry("words", "name 'str2optimizer8bit_blockwise' is not defined")
PLACED = entry("placed", text=r"name '\w+' is not defined", where="loss", sample="NameError: name 'y' is not defined")
LAUNCHER = entry("launcher", "returned non-zero exit", messenger=True)
BUILD = entry("build", "['ninja', '-v']")


@pytest.mark.parametrize(
    "first_to_last",
    [
        (WORDS, BROAD),  # its words are among those that the broad one takes in
        (PLACED, BROAD),  # it says where
        (WORDS, PLACED, BROAD),
        (BUILD, LAUNCHER),  # a launcher's word that something failed says least
        (BROAD, table.general()[1]),
    ],
)
def test_the_order_of_the_table_tells_nothing_where_one_knows_more(first_to_last: tuple[Known, ...]) -> None:
    for shuffled in itertools.permutations(first_to_last):
        assert tuple(by_closeness(shuffled)) == first_to_last


def test_of_equals_the_first_comes_first() -> None:
    one, other = entry("one", "it is odd"), entry("other", "odd it is")
    assert by_closeness([one, other]) == [one, other] and by_closeness([other, one]) == [other, one]
