"""Repairs for training sense. All of them change the result or are a matter of taste, so none is taken unasked."""

from __future__ import annotations

from collections.abc import Iterator

from ..doctor.model import Config, Finding, Fix, SetValue
from ..doctor.rules import repair
from .config import file_of


@repair("TRN001")
def cache_the_latents(finding: Finding, config: Config) -> Iterator[Fix]:
    """Encode every image once; asked, for the cache is written beside the images."""
    step = SetValue(file_of(finding, config), str(finding.evidence["pointer"]), True)
    yield Fix("cache the latents on disk", (step,), safety="ask", training_effect="changes-result")


@repair("TRN003")
def compute_in_bf16(finding: Finding, config: Config) -> Iterator[Fix]:
    """bf16 has the range of fp32."""
    step = SetValue(file_of(finding, config), str(finding.evidence["pointer"]), "bf16")
    yield Fix("train in bf16", (step,), training_effect="changes-result")


@repair("TRN005")
def sample_as_turbo_does(finding: Finding, config: Config) -> Iterator[Fix]:
    """Eight steps and no guidance, for the samples only."""
    new = finding.evidence["new"]
    pointer = str(finding.evidence["pointer"])
    yield Fix(
        f"set {pointer.rpartition('/')[2]} to {new}",
        (SetValue(file_of(finding, config), pointer, new),),
        safety="ask",
    )


@repair("TRN006")
def keep_the_captions(finding: Finding, config: Config) -> Iterator[Fix]:
    """Cached embeddings free the same memory and keep the captions."""
    pointer = str(finding.evidence["pointer"]).replace("unload_text_encoder", "cache_text_embeddings")
    step = SetValue(file_of(finding, config), pointer, True)
    yield Fix("cache the text embeddings instead", (step,), safety="ask", training_effect="changes-result")
