"""The comment by which a user allows a finding: `# zdoctor: allow PTH001 — reason`, behind a key or above it."""

from __future__ import annotations

from collections.abc import Iterator

from .pattern import pattern
from .record import dataclass
from .run import Config, Where

_COMMENT = pattern(
    r"(?:#|//|::|\brem\b)[ \t]*zdoctor:[ \t]*allow[ \t]+(?P<rules>[A-Z]{3}\d{3}(?:[ \t,]+[A-Z]{3}\d{3})*)"
    r"[ \t]*(?:[—–:-]+[ \t]*)?(?P<reason>[^\r\n]*)"
)


@dataclass(frozen=True)
class AllowComment:
    """`rules` may find what they find in line `about` of the file, for the user's `reason`, "" without one."""

    rules: tuple[str, ...]
    reason: str
    where: Where
    about: int


def allow_comments(config: Config) -> Iterator[AllowComment]:
    """Those of the config and of the files beside it. A comment in a line of its own is about the next line that is
    neither empty nor such a comment."""
    for file in (config, *config.beside):
        if "zdoctor:" not in file.text:
            continue
        lines = file.text.removeprefix("\ufeff").splitlines()
        for number, line in enumerate(lines, 1):
            found = _COMMENT.search(line)
            if found is None:
                continue
            about = number
            if not line[: found.start()].strip():
                after = (at for at, text in enumerate(lines[number:], number + 1) if text.strip())
                about = next((at for at in after if not _COMMENT.match(lines[at - 1].strip())), number)
            rules = tuple(found["rules"].replace(",", " ").split())
            yield AllowComment(rules, found["reason"].strip(), Where(file.path, number, found.start() + 1), about)
