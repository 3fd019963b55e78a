"""Every defect of a hub cache is named by its rule and file; suspicious but healthy caches stay silent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from zdoctor.tests.hub_cases import CASES, IDS, MODEL, REPO, Cache, Sickness, check, download, load, run_with, said
from zdoctor.tests.hub_server import HubServer


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Cache]]:
    root = tmp_path_factory.mktemp("hub")
    with HubServer({REPO: MODEL}) as server:
        yield {layout: download(server, root / layout, layout) for layout in ("linked", "plain")}


@pytest.mark.parametrize(("sickness", "layout"), CASES, ids=IDS)
def test_defect_is_named(caches: dict[str, Cache], tmp_path: Path, sickness: Sickness, layout: str) -> None:
    cache = caches[layout].copy(tmp_path / "hub")
    sickness.spoil(cache)
    if sickness.raises is None:
        assert load(cache) != MODEL  # nothing complains, and the weights are others
    else:
        with pytest.raises(Exception, match=sickness.raises):
            load(cache)

    for environment in ({}, {"HF_HUB_OFFLINE": "1"}):
        report = check(cache.world(**environment), run_with(), deep=sickness.deep)
        assert (said(report), report.crashed, report.unknown) == ([(sickness.rule, sickness.file)], (), ())
        finding = report.findings[0]
        assert finding.severity == "error"
        assert finding.where is not None and finding.where.line == 7
        assert "{" not in finding.text() + finding.consequence()


@pytest.mark.parametrize("layout", ["linked", "plain"])
def test_healthy_cache_is_silent(caches: dict[str, Cache], tmp_path: Path, layout: str) -> None:
    cache = caches[layout].copy(tmp_path / "hub")
    for environment in ({}, {"HF_HUB_OFFLINE": "1"}):
        assert said(check(cache.world(**environment), run_with(), deep=True)) == []
    assert load(cache) == MODEL
