from __future__ import annotations

import signal
from pathlib import Path

import pytest

# A shell that starts the tests in the background lets them ignore Ctrl-C, and so would what they start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="write the golden outputs instead of comparing them")


@pytest.fixture(autouse=True)
def own_state_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the state folder or the kept weights of whoever runs it."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("ZDOCTOR_STATE", str(folder))
    monkeypatch.setenv("ZDOCTOR_CACHE", str(folder / "cache"))
    return folder
