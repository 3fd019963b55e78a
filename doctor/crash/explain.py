"""From a failure to its cause: the rules' own signatures first, then what is known beyond them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..model.crashes import Explanation, Failure, Signature
from .failure import failures
from .known import KNOWN
from .lines import clean

# The part of the model whose move to the device failed says which files are the bad ones.
_SITES = (
    ("the text encoder", re.compile(r"text_encoder|t5xxl|clip_l|qwen", re.I)),
    ("the VAE", re.compile(r"\bvae\b|\bae\.to\b|autoencoder", re.I)),
    ("the transformer", re.compile(r"transformer|unet|\bdit\b|flux\.to|model\.to", re.I)),
)


def explain(text: str, signatures: Iterable[Signature]) -> Explanation:
    """The last failure of the log that ended the run, explained. Pure: nothing is read but `text`."""
    found = failures(clean(text))
    if not found:
        return Explanation(None)
    failure = _decisive(found)
    told = ((known, part) for part in failure.chain for known in KNOWN)
    known = next((known for known, part in told if known.matches(part)), None)
    rules = _rules(failure, tuple(signatures))
    if known is not None and known.rule:
        rules = tuple(dict.fromkeys((known.rule, *rules)))
    return Explanation(failure, known, rules, _site(failure) if "MDL001" in rules else "", len(found) - 1)


def _decisive(found: Sequence[Failure]) -> Failure:
    """The last failure with a traceback: what follows it are the launcher's words about a process that ended.

    A launcher's own traceback only says that a child failed.
    """
    told = [f for f in found if f.frames and f.name not in ("ChildFailedError", "CalledProcessError", "SystemExit")]
    return (told or list(found))[-1]


def _rules(failure: Failure, signatures: Sequence[Signature]) -> tuple[str, ...]:
    """The rules that know this failure, the one with the longest word for it first."""
    hits = [
        (len(signature.text), signature.rule)
        for part in failure.chain
        for signature in signatures
        if signature.error.rpartition(".")[2] == part.name and re.search(signature.text, part.message)
    ]
    return tuple(dict.fromkeys(rule for _, rule in sorted(hits, key=lambda hit: -hit[0])))


def _site(failure: Failure) -> str:
    """The component, by the innermost line of code outside of the libraries that names one."""
    for frame in reversed([frame for frame in failure.frames if not frame.is_library]):
        for name, pattern in _SITES:
            if pattern.search(frame.code):
                return name
    return ""
