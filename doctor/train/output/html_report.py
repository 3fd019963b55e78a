"""The report is one self-contained HTML page: loss curves, samples by step, what was trained.

Pure: values in, text out.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote

from ...model.said import language, said

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 860, 300, 56, 28, 12, 12
MOST_POINTS = 400
# Where the settings were found, and how: not what was trained.
READING = frozenset(
    (
        *("config", "root", "index", "kind", "process_type", "name", "key"),
        *("suffixes", "captions", "recursive", "first_line", "captionless"),
    )
)

STYLE = """
:root { color-scheme: light dark; --ground: #fbfbfa; --text: #1d1d1b; --soft: #6b6a66; --line: #dddbd5;
  --raw: #b9c9dc; --loss: #2a6fb0; --eval: #b8540f; }
@media screen and (prefers-color-scheme: dark) { :root { --ground: #191918; --text: #ecebe7; --soft: #a09e98;
  --line: #3a3936; --raw: #3d5063; --loss: #6fb1ec; --eval: #f0a05a; } }
body { background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 900px; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0; } h2, summary { font-size: 1.05rem; margin: 2.2rem 0 .6rem; }
p { margin: .3rem 0; } .soft, th, figcaption { color: var(--soft); font-weight: normal; }
summary { cursor: pointer; font-weight: bold; } summary:hover { text-decoration: underline; }
svg { width: 100%; min-width: 700px; height: auto; } svg text { fill: var(--soft); font-size: 12px; }
.grid { stroke: var(--line); } .raw { stroke: var(--raw); } .loss { stroke: var(--loss); stroke-width: 2; }
.eval { stroke: var(--eval); stroke-width: 2; } polyline { fill: none; } circle { fill: var(--eval); }
.key::before { content: ""; display: inline-block; width: 1.4em; border-top: 3px solid var(--raw); margin-right: .4em;
  vertical-align: middle; } .key { display: inline-block; margin-right: 1.4em; }
.key.smooth::before { border-color: var(--loss); } .key.held::before { border-color: var(--eval); }
.row { display: flex; gap: 10px; overflow-x: auto; padding-bottom: 6px; } figure { margin: 0; flex: none; }
figure img { height: 160px; display: block; border-radius: 3px; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; width: 15em; vertical-align: top; }
td, th { border-top: 1px solid var(--line); padding: .25rem .5rem .25rem 0; }
@media (max-width: 600px) { td, th { display: block; width: auto; } td { border: 0; padding-top: 0; } }
@media print { body { margin: 0; max-width: none; } .row { flex-wrap: wrap; overflow: visible; }
  svg { min-width: 0; } h2, summary { break-after: avoid; } figure, tr { break-inside: avoid; }
  ::details-content { content-visibility: visible; block-size: auto; } }
"""


@dataclass(frozen=True)
class ReportSample:
    """One preview sample: `link` is relative to the page, `jpeg` a small copy to show (empty: only the link)."""

    step: int
    number: int
    prompt: str
    link: str
    jpeg: bytes


def html_report(
    record: Mapping[str, Any],
    status: str,
    losses: Sequence[float],
    evaluations: Sequence[tuple[int, float]],
    samples: Sequence[ReportSample],
) -> str:
    """Returns the page. `losses` has one a step from step 1 on, `evaluations` are (step, loss)."""
    name = escape(str(record["name"]))
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="{language()}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">",
        f"<title>{name}</title><style>{STYLE}</style></head><body><main>",
        f'<h1>{name}</h1><p class="soft">{_said(status)}</p>',
        *_curves(losses, evaluations),
        *_samples(samples),
        *_tables(record),
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


def _curves(losses: Sequence[float], evaluations: Sequence[tuple[int, float]]) -> Iterator[str]:
    raw = [(step, loss) for step, loss in enumerate(losses, 1) if math.isfinite(loss)]
    yield f"<h2>{said('Loss')}</h2>"
    if not raw and not evaluations:
        yield f'<p class="soft">{_said("No step has been trained yet.")}</p>'
        return
    keys = [("", "each step"), (" smooth", "smoothed")] if raw else []
    if evaluations:
        keys.append((" held", f"on held-out pictures, last {evaluations[-1][1]:.4f}"))
    spans = (f'<span class="key{kind}">{_said(text)}</span>' for kind, text in keys)
    yield f"<p>{''.join(spans)}</p>"
    points, smooth = _binned(raw), _binned(_smoothed(raw))
    yield _svg(points, smooth, evaluations, max(len(losses), *(step for step, _ in evaluations), 1))


def _svg(
    points: Sequence[tuple[float, float]],
    smooth: Sequence[tuple[float, float]],
    evaluations: Sequence[tuple[int, float]],
    last: int,
) -> str:
    values = sorted(loss for _, loss in points)
    kept = values[: max(1, round(0.99 * len(values)))]  # one wild step must not press the rest flat
    shown = [*kept, *(loss for _, loss in smooth), *(loss for _, loss in evaluations)]
    low, high = min(shown), max(shown)
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = low - margin, high + margin

    def place(step: float, loss: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * step / last
        y = TOP + (HEIGHT - TOP - BOTTOM) * (high - min(max(loss, low), high)) / (high - low)
        return f"{x:.1f},{y:.1f}"

    marks = []
    for loss in _ticks(low, high):
        y = place(0, loss).split(",")[1]
        marks.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        marks.append(f'<text x="{LEFT - 6}" y="{y}" dy="4" text-anchor="end">{loss:.4g}</text>')
    for step in _ticks(0, last):
        x = place(step, low).split(",")[0]
        marks.append(f'<text x="{x}" y="{HEIGHT - 8}" text-anchor="middle">{step:g}</text>')
    for kind, line in (("raw", points), ("loss", smooth), ("eval", evaluations)):
        if line:
            marks.append(f'<polyline class="{kind}" points="{" ".join(place(*point) for point in line)}"/>')
    for step, loss in evaluations:
        x, y = place(step, loss).split(",")
        marks.append(f'<circle cx="{x}" cy="{y}" r="3.5"><title>step {step}: {loss:.4f}</title></circle>')
    marks.append(f'<text x="{LEFT - 14}" y="{HEIGHT - 8}" text-anchor="end">step</text>')
    drawing = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Loss by step">{"".join(marks)}</svg>'
    return f'<div class="row" tabindex="0">{drawing}</div>'


def _samples(samples: Sequence[ReportSample]) -> Iterator[str]:
    if not samples:
        return
    yield f"<h2>{said('Samples')}</h2>"
    for number in sorted({sample.number for sample in samples}):
        row = [sample for sample in samples if sample.number == number]
        yield f'<p>{escape(row[0].prompt)}</p><div class="row" tabindex="0">'
        for sample in row:
            data = base64.b64encode(sample.jpeg).decode()
            text = escape(f"{sample.prompt}, step {sample.step}")
            inner = f'<img alt="{text}" src="data:image/jpeg;base64,{data}">' if data else escape(sample.link)
            link = f'<a href="{escape(quote(sample.link))}">{inner}</a>'
            yield f"<figure>{link}<figcaption>{_said(f'step {sample.step}')}</figcaption></figure>"
        yield "</div>"


def _tables(record: Mapping[str, Any]) -> Iterator[str]:
    git = record.get("git")
    told: dict[str, Any] = {
        "config": record.get("config"),
        "git commit of its folder": git and git["commit"] + (", the config differs" if git["config_differs"] else ""),
        "seed": record.get("seed"),
        "computed in": record.get("computed_in"),
        **record.get("machine", {}),
        **record.get("packages", {}),
    }
    for start in record.get("starts", []):
        changes = (f"; {key} changed from {old} to {new}" for key, (old, new) in start.get("changed", {}).items())
        told[f"started {start['at']}"] = f"at step {start['step']}: {start['command']}{''.join(changes)}"
        for part, peak in start.get("peak_memory", {}).items():
            sizes = ", ".join(f"{size / 2**30:.2f} GiB {of}" for of, size in peak.items())
            told[f"most GPU memory while {part}, {start['at']}"] = sizes
    asked = record.get("asked", {})  # what is otherwise here
    settings = {
        key.replace("_", " "): f"{_words(value)} (the config: {_words(asked[key])})" if key in asked else value
        for key, value in record.get("settings", {}).items()
        if key not in READING
    }
    yield from _table(f"<h2>{_said('What was trained')}</h2>", "", settings)
    yield from _table(f"<h2>{_said('With what')}</h2>", "", told)
    summary = f"<details><summary>{_said('As the config says it')}</summary>"
    yield from _table(summary, "</details>", record.get("written", {}))


def _table(before: str, after: str, rows: Mapping[str, Any]) -> Iterator[str]:
    if not rows:
        return
    yield f"{before}<table><tbody>"
    for key, value in rows.items():
        if value not in (None, "", [], {}):
            yield f"<tr><th>{escape(str(key))}</th><td>{escape(_words(value))}</td></tr>"
    yield f"</tbody></table>{after}"


def _said(text: str) -> str:
    return escape(said(text))


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        told = ((key, part) for key, part in value.items() if key not in READING and part not in (None, "", [], {}))
        return ", ".join(f"{key.replace('_', ' ')}: {_words(part)}" for key, part in told)
    if isinstance(value, list):
        return "; ".join(_words(part) for part in value)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _binned(points: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
    """At most MOST_POINTS points, each the mean of a stretch of steps."""
    size = max(1, math.ceil(len(points) / MOST_POINTS))
    bins = [points[start : start + size] for start in range(0, len(points), size)]
    return [(sum(step for step, _ in part) / len(part), sum(loss for _, loss in part) / len(part)) for part in bins]


def _smoothed(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """An exponential average over about a fiftieth of the steps, at least ten."""
    share = 1.0 / max(10.0, len(points) / 50)
    line: list[tuple[int, float]] = []
    total = weight = 0.0
    for step, loss in points:
        total = (1.0 - share) * total + share * loss
        weight = (1.0 - share) * weight + share
        line.append((step, total / weight))
    return line


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers between the ends."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * size for size in (1, 2, 5, 10) if power * size >= rough)
    return [index * step for index in range(math.ceil(low / step), math.floor(high / step) + 1)]
