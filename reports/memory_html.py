"""The memory of a run as a page of its own: stacked bars by phase against the card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from ..doctor.model import Memory, Unknown
from .memory import EFFECTS, FITS, GIB, NOTHING_FITS, Told, how_known

# Of the palette of Okabe and Ito, which colour-blind people tell apart; those of a second round are striped.
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")
_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}
.bar{display:flex;height:1.6em;position:relative;background:#eee}.bar i{display:block;height:100%}
.bar b{position:absolute;top:-.3em;bottom:-.3em;border-left:2px solid #c00}
.striped{background-image:repeating-linear-gradient(45deg,#fff9 0 4px,transparent 4px 8px)}
td,th{padding:.15em .8em .15em 0;text-align:left}
.key{display:inline-block;width:.8em;height:.8em;margin-right:.4em}"""


def page(told: Sequence[Told], config: str, version: str) -> str:
    """A whole page, which loads nothing."""
    body = "".join(part for one in told for part in _of(one))
    title = f"zdoctor memory {escape(config)}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<h1>{title}</h1>{body}<p>zdoctor {escape(version)}</p></html>\n"
    )


def _of(one: Told) -> Iterator[str]:
    memory = one.memory
    if isinstance(memory, Unknown):
        yield f"<p>not known: {escape(memory.reason)}</p>"
        return
    names = list(dict.fromkeys(name for phase in memory.phases for name in phase.items))
    drawn = {name: _drawn(index) for index, name in enumerate(names)}
    yield f"<p>{escape(memory.device)}: {memory.free / GIB:.2f} GiB free ({escape(memory.budget_source)})</p>"
    most = max(memory.free, memory.peak.total)
    for phase in memory.phases:
        parts = "".join(
            f'<i class="{drawn[name][0]}" style="width:{100 * size / most:.2f}%;background-color:{drawn[name][1]}" '
            f'title="{escape(name)}: {size / GIB:.2f} GiB"></i>'
            for name, size in phase.items.items()
        )
        edge = f'<b style="left:{100 * memory.free / most:.2f}%"></b>'
        yield f'<p>{escape(phase.name)}: {phase.total / GIB:.2f} GiB</p><div class="bar">{parts}{edge}</div>'
    yield "<p>"
    for name, (kind, color) in drawn.items():
        yield f'<span class="key {kind}" style="background-color:{color}"></span>{escape(name)} &nbsp; '
    yield f"</p><p>{escape(how_known(one, memory))}</p>"
    yield from _fitting(one, memory)


def _drawn(index: int) -> tuple[str, str]:
    """The class and the color of an item."""
    return "striped" if index // len(COLORS) % 2 else "plain", COLORS[index % len(COLORS)]


def _fitting(one: Told, memory: Memory) -> Iterator[str]:
    if one.solved is not None:
        key, value = one.solved
        found = f"the largest that fits is {value}" if value else "no value fits"
        yield f"<p>{escape(key)}: {found} (computed)</p>"
    if one.fitting:
        yield "<table><tr><th>what makes it fit</th><th>peak</th><th></th></tr>"
        for way in one.fitting:
            settings = ", ".join(f"{key}: {value}" for key, value in way.settings)
            yield (
                f"<tr><td>{escape(settings)}</td><td>{way.peak / GIB:.2f} GiB</td><td>{EFFECTS[way.effect]}</td></tr>"
            )
        yield "</table>"
    else:
        yield f"<p>{FITS if memory.peak.total + memory.margin <= memory.free else NOTHING_FITS}</p>"
