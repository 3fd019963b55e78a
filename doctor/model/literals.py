"""What stands word for word in all that a pattern finds: looked for first, it spares compiling most patterns."""

from __future__ import annotations

import re
from functools import cache

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\\\]])*\]|\{\d*,?\d*\}|.", re.DOTALL)
_LEAST = 3  # shorter ones are in most texts


@cache
def literals(pattern: str) -> tuple[str, ...]:
    """Texts of which whatever the pattern finds has one; none where that cannot be told without much ado.

    What stands in groups is passed over, whether it must be there or not.
    """
    if pattern.startswith("(?") and pattern[2:3] not in ":=!<P":
        return ()  # flags, as for capitals
    longest, run, depth = [""], "", 0
    for token in _TOKEN.findall(pattern):
        plain = ""
        if depth or token in "()":
            depth += (token == "(") - (token == ")")
        elif token in "?*" or (token[0] == "{" and len(token) > 1):  # what stands before it need not be there
            run = run[:-1]
        elif len(token) == 1:
            plain = token if token not in ".^$+|" else ""
        elif token[0] == "\\" and not token[1].isalnum():
            plain = token[1]
        if plain:
            run += plain
            continue
        longest[-1], run = max(longest[-1], run, key=len), ""
        if token == "|" and not depth:
            longest.append("")
    longest[-1] = max(longest[-1], run, key=len)
    return tuple(longest) if min(map(len, longest)) >= _LEAST else ()
