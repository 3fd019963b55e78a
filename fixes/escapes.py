"""PTH002: a Windows path is quoted so that its backslashes survive."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..doctor.model import Config, Finding, Fix, ReplaceText, System
from ..doctor.rules import repair


@repair("PTH002")
def quote_the_path(finding: Finding, config: Config, system: System) -> Iterator[Fix]:
    """Single quotes keep every backslash; JSON doubles them; away from Windows a relative path gets slashes."""
    seen = finding.evidence
    path = str(seen["path"])
    relative = not seen["absolute"]
    if relative and system.os != "windows":
        path = path.replace("\\", "/")
    doubled = config.format == "json" or (config.format == "toml" and "'" in path)
    new = json.dumps(path, ensure_ascii=False) if doubled else "'" + path.replace("'", "''") + "'"
    step = ReplaceText(config.path, int(seen["start"]), int(seen["end"]), str(seen["old"]), new)
    yield Fix(f"write the path as {new}", (step,))
