"""Make doctor/crash/raised/PACKAGE.json.gz anew: what a package raises and asserts, and what holds where it does.

    python -m zdoctor.maintenance.mine_raised PACKAGE SOURCE ...

A SOURCE is one of mine_names. Of each text are written down a fingerprint, the exception, the function and the file,
what the test before it asks for, and, where only some versions have the text, the first that has it and the first
that has it no more. A text that several functions have stands once. Beside the texts stand the classes and functions
that a package makes, and whatever they have or take. No sentence and no code of a package is in the file.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from zdoctor.doctor.crash.fingerprints import fingerprint_of
from zdoctor.doctor.crash.sources import RAISED
from zdoctor.doctor.crash.versions import release

from .mine_names import TRAINERS, Sources, sources_by_version
from .raising import MOST_WORDS, Raised, told

# What no log of a training comes through.
_UNUSED = re.compile(
    r"(?:^|/)(?:tests?|test_utils|testing|benchmarks?|commands|cli|examples|scripts|onnx\w*|_export|_inductor|_dynamo"
    r"|_subclasses|fx|jit|onnx|ao|export|masked|sparse|ddp|rpc|elastic/agent|_functorch|package|monitor|_numpy|_refs"
    r"|_decomp|_prims\w*|experimental|prototype|_higher_order_ops|distributions|func|futures|testing_utils|utils/model_dump"
    r"|inference_server)(?:/|\.py|$)|convert_\w+\.py$|dummy_\w+\.py$|deprecated"
)
# Of transformers' models only what trainers of images load.
_MODELS = re.compile(
    r"^transformers/models/(?!(?:auto|clip|clipseg|t5|umt5|qwen2|qwen2_vl|qwen2_5_vl|qwen3|qwen3_vl|llama|mistral|mistral3"
    r"|gemma|gemma2|gemma3|siglip|siglip2|florence2|blip|blip_2|pixtral)/)"
)
# Of torch what stands behind no compiler.
_TORCH = re.compile(
    r"^torch/(?!(?:nn|optim|amp|cuda|autograd)/|utils/(?:data/|checkpoint\.py)|(?:serialization|_utils)\.py"
    r"|distributed/(?:fsdp|elastic/rendezvous|launcher)/|distributed/(?:distributed_c10d|run)\.py)"
)
_PEFT = re.compile(r"^peft/tuners/(?!lora|lokr|loha|oft|boft|adalora|tuners_utils|lycoris|_buffer)")
_LEFT_OUT = (_UNUSED, _MODELS, _TORCH, _PEFT)


def mined(package: str, versions: Mapping[str, Sources]) -> dict[str, object]:
    """The document of a package."""
    order = sorted(versions, key=release)
    had: dict[str, list[bool]] = defaultdict(lambda: [False] * len(order))
    last: dict[str, list[tuple[str, Raised]]] = {}
    made: set[str] = set()
    names: dict[str, list[bool]] = defaultdict(lambda: [False] * len(order))
    for at, version in enumerate(order):
        found: dict[str, list[tuple[str, Raised]]] = defaultdict(list)
        for path, text in versions[version]().items():
            if left_out(path):
                continue
            module = told(text, package in TRAINERS)
            made |= module.made
            for name in module.names:
                names[name][at] = len(name) > 2
            for one in module.raised:
                found[one.words].append((path, one))
        for words in found:
            had[words][at] = True
        last |= found
        print(f"{package} {version}: {len(found)} texts", file=sys.stderr)
    files: dict[str, list[list[str]]] = defaultdict(list)
    for words, places in sorted(last.items()):
        since, gone = span(had[words], order)
        path = _common(path for path, _ in places)
        same = [one for _, one in places]
        function = _common(one.function for one in same) or _common(one.function.split(".")[-1] for one in same)
        holds = next(iter({one.holds for one in same}), ()) if len({one.holds for one in same}) == 1 else ()
        argument = _common(one.argument for one in same)
        error = Counter(one.error for one in same).most_common(1)[0][0]
        row = [
            error,
            fingerprint_of(words, goes_on=len(words) >= MOST_WORDS),
            function,
            argument,
            since,
            gone,
            *holds,
        ]
        while not row[-1]:
            row.pop()
        files[path].append(row)
    return {
        "versions": order,
        "made": " ".join(sorted(made)),
        "names": by_span({name: span(had, order) for name, had in names.items() if any(had)}),
        "files": {path: files[path] for path in sorted(files)},
    }


def span(had: Sequence[bool], order: Sequence[str]) -> tuple[str, str]:
    """The first version that has it and the first that has it no more, "" where no mined one lacks it."""
    first, end = had.index(True), len(had) - 1 - had[::-1].index(True)
    return order[first] if first else "", order[end + 1] if end + 1 < len(order) else ""


def by_span(names: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Names by "since gone", which many share."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, span in names.items():
        found[" ".join(version or "-" for version in span)].append(name)
    return {span: " ".join(sorted(same)) for span, same in sorted(found.items())}


def left_out(path: str) -> bool:
    return any(pattern.search(path) for pattern in _LEFT_OUT)


def _common(values: Iterable[str]) -> str:
    """The one value that there is, "" where there are several."""
    several = set(values)
    return several.pop() if len(several) == 1 else ""


def written(document: Mapping[str, object]) -> bytes:
    """The same bytes for the same document."""
    return gzip.compress(json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(), mtime=0)


def main(package: str, *sources: str) -> None:
    versions = sources_by_version(package, sources)
    file = RAISED / f"{package}.json.gz"
    file.write_bytes(written(mined(package, versions)))
    print(f"{file.name}: {file.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
