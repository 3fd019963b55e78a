"""Whoever reads the output may go away, and says so otherwise on each system."""

from __future__ import annotations

import errno
import io
import sys

import pytest

from zdoctor.doctor.commands import console
from zdoctor.doctor.commands.console import emit
from zdoctor.doctor.errors import UserError


class Pipe(io.TextIOWrapper):
    """A pipe whose reader went away, or a disk that is full."""

    def __init__(self, number: int) -> None:
        super().__init__(io.BytesIO(), encoding="cp1252")
        self.number = number

    def flush(self) -> None:
        raise OSError(self.number, errno.errorcode[self.number])


@pytest.mark.parametrize(
    ("system", "number", "said"),
    [
        ("linux", errno.EPIPE, ""),
        ("linux", errno.EINVAL, "cannot be written: EINVAL"),
        ("win32", errno.EINVAL, ""),  # `zdoctor check | more`, and then q
        ("win32", errno.ENOSPC, "cannot be written: ENOSPC"),
    ],
)
def test_a_reader_who_goes_away_is_no_failure(
    system: str, number: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(sys, "stdout", Pipe(number))
    if not said:
        return emit("x → 配置\n")
    with pytest.raises(UserError, match=said):
        emit("x → 配置\n")


@pytest.mark.parametrize(
    ("terminal", "takes", "shown"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_colours_are_for_terminals_that_take_them(
    terminal: bool, takes: bool, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older console of Windows, and a stream that is no terminal."""
    monkeypatch.setattr(console, "_takes_escapes", lambda stream: takes)
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    assert console.shows_color(stream) == shown and not console.shows_color(None)


@pytest.mark.parametrize(
    ("environ", "links"),
    [
        ({}, False),
        ({"TERM": "xterm-256color"}, False),
        ({"TERM_PROGRAM": "Apple_Terminal"}, False),
        ({"TERM_PROGRAM": "vscode", "VTE_VERSION": "7006"}, False),
        ({"TERM_PROGRAM": "iTerm.app", "TERM": "screen-256color"}, False),
        ({"WT_SESSION": "0-0"}, True),
        ({"KITTY_WINDOW_ID": "1", "TERM": "xterm-kitty"}, True),
        ({"VTE_VERSION": "7006"}, True),
        ({"VTE_VERSION": "4600"}, False),
        ({"VTE_VERSION": "7006", "TMUX": "/tmp/tmux"}, False),
        ({"VTE_VERSION": "odd"}, False),
    ],
)
def test_terminals_that_have_links(environ: dict[str, str], links: bool) -> None:
    assert console.has_links(environ) is links
