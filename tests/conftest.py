from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from zdoctor.tests.disk import unforced

if TYPE_CHECKING:
    from zdoctor.tests.browser import Show
    from zdoctor.tests.hub_cache import Cache
    from zdoctor.tests.hub_server import HubServer

# A shell that starts the tests in the background lets them ignore Ctrl-C, and so would what they start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["ZDOCTOR_LANG"] = "en"  # whatever whoever runs them speaks
# The workers share the processors, and what they start does; models so small gain nothing by threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No test cuts the power: what it writes need not reach the disk, for which thousands of files would wait in line.
os.fsync = unforced  # type: ignore[assignment]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="write the golden outputs instead of comparing them")


def pytest_collection() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """What all imports made stays: looking through it for garbage again and again was half of a tiny training run."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def state_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders of one folder: pytest looks through all that lies beside a temporary folder before it makes another."""
    above = tmp_path_factory.mktemp("state")
    return (above / str(number) for number in count())


@pytest.fixture(autouse=True)
def own_state_folder(state_folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the state folder or the kept weights of whoever runs it."""
    folder = next(state_folders)
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("ZDOCTOR_STATE", str(folder))
    monkeypatch.setenv("ZDOCTOR_CACHE", str(folder / "cache"))
    return folder


@pytest.fixture(scope="module")
def server() -> Iterator[HubServer]:
    """A hub that has the tiny model."""
    from zdoctor.tests.hub_cache import MODEL, REPO
    from zdoctor.tests.hub_server import HubServer

    with HubServer({REPO: MODEL}) as hub:
        yield hub


@pytest.fixture(scope="module")
def caches(server: HubServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Cache]:
    """The tiny model in a cache of each layout. Read only: copy what a test changes."""
    from zdoctor.tests.hub_cache import LAYOUTS, download

    root = tmp_path_factory.mktemp("hub")
    return {layout: download(server, root / layout, layout) for layout in LAYOUTS}


@pytest.fixture(scope="module")
def show() -> Iterator[Show]:
    """What a real browser makes of a page."""
    from zdoctor.tests.browser import browser

    with browser() as shown:
        yield shown
