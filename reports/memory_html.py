"""The memory of a run as a page of its own: stacked bars by phase against the card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from ..doctor.model import Memory, Phase, Unknown
from ..doctor.model.said import language, said
from . import words
from .html import PAGE, STYLE
from .memory import EFFECTS, FITS, FREE, GIB, HIGH_END, NOTHING_FITS, Told, budget, how_known, largest, settings_of

# Of the palette of Okabe and Ito, which colour-blind people tell apart; those of a second round are striped.
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
_STYLE = """.zdoctor.zdoctor {
  .bar { display: flex; height: 1.6em; position: relative; background: var(--code); }
  .bar i { display: block; height: 100%; }
  .bar b { position: absolute; top: -.3em; bottom: -.3em; border-left: 2px solid var(--error); }
  .striped { background-image: repeating-linear-gradient(45deg, #fff9 0 4px, transparent 4px 8px); }
  .key { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
  .keys { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: 0 1.2em; }
  td, th { padding: .15em .8em .15em 0; text-align: left; vertical-align: baseline; }
  td:nth-child(2) { white-space: nowrap; }
  i, .key { print-color-adjust: exact; }
}"""


def render(told: Sequence[Told], config: str, version: str) -> str:
    """A whole page, which loads nothing."""
    return words.clean("\n".join(_page(told, config, version)) + "\n")


def _page(told: Sequence[Told], config: str, version: str) -> Iterator[str]:
    title = escape(f"zdoctor memory {config}")
    yield "<!DOCTYPE html>"
    yield f'<html lang="{language()}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    yield "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    yield f"<title>{title}</title><style>{STYLE}{PAGE}{_STYLE}</style></head>"
    yield f'<body class="zdoctor"><main><h1 dir="auto">{title}</h1><p class="soft">zdoctor {escape(version)}</p>'
    for one in told:
        yield from _of(one)
    yield "</main></body></html>"


def _of(one: Told) -> Iterator[str]:
    memory = one.memory
    if isinstance(memory, Unknown):
        yield f'<p class="verdict unknown">{_said(f"not known: {memory.reason}")}</p>'
        return
    names = list(dict.fromkeys(name for phase in memory.phases for name in phase.items))
    drawn = {name: _drawn(index) for index, name in enumerate(names)}
    yield f"<p>{_said(budget(memory))}</p>"
    for phase in memory.phases:
        yield f"<p>{_said(phase.name)}: {_gib(phase.total)}</p>"
        yield _bar(phase, memory, drawn)
    yield '<ul class="keys">'
    for name, (kind, color) in drawn.items():
        yield f'<li><span class="key {kind}" style="background-color:{color}"></span>{_said(name)}</li>'
    yield f'<li><span class="key" style="background-color:var(--error);width:2px"></span>{_said(FREE)}</li>'
    yield f"</ul><p>{_said(how_known(one, memory))}</p>"
    yield from _fitting(one, memory)


def _bar(phase: Phase, memory: Memory, drawn: dict[str, tuple[str, str]]) -> str:
    most = max(memory.free, memory.peak.total)
    parts = "".join(
        f'<i class="{drawn[name][0]}" style="width:{100 * size / most:.2f}%;background-color:{drawn[name][1]}"></i>'
        for name, size in phase.items.items()
    )
    label = "; ".join(f"{_said(name)} {_gib(size)}" for name, size in phase.items.items())
    edge = f'<b style="left:{100 * memory.free / most:.2f}%"></b>'
    return f'<div class="bar" role="img" aria-label="{label}" title="{label}">{parts}{edge}</div>'


def _drawn(index: int) -> tuple[str, str]:
    """The class and the color of an item."""
    return "striped" if index // len(COLORS) % 2 else "plain", COLORS[index % len(COLORS)]


def _fitting(one: Told, memory: Memory) -> Iterator[str]:
    if one.solved is not None:
        key, value = one.solved
        yield f"<p>{escape(key)}: {_said(largest(value))} {_said(HIGH_END)}</p>"
    if not one.fitting:
        yield f"<p>{_said(FITS if memory.peak.total + memory.margin <= memory.free else NOTHING_FITS)}</p>"
        return
    yield f"<h2>{_said('What makes it fit')}</h2>"
    heads = "".join(f"<th>{_said(head)}</th>" for head in ("settings", "the peak", "what it does"))
    yield f"<table><thead><tr>{heads}</tr></thead><tbody>"
    for way in one.fitting:
        cells = (escape(settings_of(way)), _gib(way.peak), _said(EFFECTS[way.effect]))
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    yield "</tbody></table>"


def _said(text: str) -> str:
    return escape(said(text))


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
