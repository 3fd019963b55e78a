"""CFG005: keys that are written twice."""

from __future__ import annotations

from collections.abc import Iterator

from ...doctor.model import Config, Finding, Value, found
from ...doctor.rules import rule
from ..keys.places import key_where


@rule("CFG005", "warning", "repeated-key")
def repeated_key(config: Config) -> Iterator[Finding]:
    """A key that is written twice in the same mapping.

    What: The same key stands twice in one section of a YAML or JSON file. The last one counts. Keys that come through
    a merge (<<) and are written again are no repetition: that is what a merge is for.
    Why: The parsers of Python keep the last value without a word, and of a section that is written twice the whole
    first half is lost with all its settings: the two are not joined.
    Upstream: PyYAML and json.loads, as ai-toolkit and SimpleTuner use them
    Signature: None; the run trains with the later value.
    """
    seen: set[tuple[str, int | None, int | None]] = set()
    for config_file in (config, *config.beside):
        for value in config_file.values.values():
            for first in value.earlier:
                where = key_where(config, first)
                if (where.path, where.line, where.column) not in seen:  # an alias shows the same place again
                    seen.add((where.path, where.line, where.column))
                    yield _finding(config, first, value)


def _finding(config: Config, first: Value, last: Value) -> Finding:
    name = (last.where.pointer or "").rpartition("/")[2].replace("~1", "/").replace("~0", "~")
    line = key_where(config, last).line
    whole = isinstance(first.value, dict) and isinstance(last.value, dict)
    lost = [str(key) for key in first.value if key not in last.value] if whole else []
    message = "{key} is written again in line {line}, and only that one counts"
    message += ": what stands here is dropped, with {lost}." if lost else "; the one here is dropped."
    if whole and lost:
        message += " The two sections are not joined."
    return found(
        key_where(config, first),
        message,
        otherwise="The trainer starts without a word and uses the later value.",
        evidence={"key": name, "line": line, "lost": lost, "same": first.value == last.value},
        severity="note" if first.value == last.value else None,
        lost=", ".join(lost[:8]) + (" and more" if len(lost) > 8 else ""),
    )
