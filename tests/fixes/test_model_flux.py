"""Flux from the hub cache: what counts as complete, and what a copy of it holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from zdoctor.checks.hub.use import is_complete, online_model_source
from zdoctor.doctor.model import ExtractFiles, Hub, SetValue
from zdoctor.fixes.model import extract_from_the_cache
from zdoctor.tests.checks.model.folders import findings
from zdoctor.tests.flux import healthy_flux, load_flux
from zdoctor.tests.models import probed, run_of

from .test_model import cached, storage


def test_a_cached_flux_needs_both_text_encoders_and_tokenizers() -> None:
    run = run_of("acme/Flux", "flux")
    repo = cached(healthy_flux(), "acme/Flux", used_by=("base_model",))
    assert is_complete(repo, run)
    for part in ("text_encoder_2", "tokenizer_2", "vae", "scheduler"):
        less = tuple(file for file in repo.files if not file.name.startswith(f"{part}/"))
        assert not is_complete(replace(repo, files=less), run)


def test_a_copy_for_flux_is_whole_whatever_the_extras_say(tmp_path: Path) -> None:
    """The key extras_name_or_path is not read for Flux, so the copy must hold every part itself."""
    repo = cached(healthy_flux(), "acme/Flux", used_by=("base_model",))
    hub = Hub((), (repo,))
    run = run_of("acme/Flux", "flux", extras_name_or_path="acme/Other")
    (finding,) = online_model_source(run, hub)
    finding = replace(finding, rule="HUB006")
    fix, _ = extract_from_the_cache(finding, run, probed(run, hub), hub, storage(tmp_path))
    copy, use = fix.steps
    assert isinstance(copy, ExtractFiles) and isinstance(use, SetValue)
    for item in copy.items:
        target = Path(copy.path) / item.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(Path(item.source).read_bytes())
    load_flux(Path(use.value))
    assert findings(use.value, "flux") == {}
