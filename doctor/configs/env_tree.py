"""A file of shell variables as a tree of one level, read line by line as SimpleTuner does: nothing is executed.

`export` may stand in front, quotes around the value; `+=` adds to the value above; lines that are neither are passed
over, as the trainer does with a warning. Runs of blanks inside a value count as one.
"""

from __future__ import annotations

import re

from .node import Node
from .text import Expanded

_LINE = re.compile(
    r"^\ufeff?[ \t]*(?:export )?[ \t]*(?P<key>[^\s=#+][^=\r\n]*?)[ \t]*(?P<sign>\+?=)(?P<value>[^\r\n]*)", re.M
)


def parse_env(source: Expanded) -> Node:
    """The variables as text; the place of one that is written several times is its last."""
    made: dict[str, Node] = {}
    for line in _LINE.finditer(source.text):
        written = line["value"].strip()
        start = line.start("value") + len(line["value"]) - len(line["value"].lstrip())
        quote = written[:1] if len(written) > 1 and written[0] in "\"'" and written[-1] == written[0] else ""
        words = (written[1:-1] if quote else written).split()
        if line["sign"] == "+=" and line["key"] in made:
            words = [str(made[line["key"]].value), *words]
        node = Node(" ".join(words), start, start + len(written), quote, key=line.span("key"))
        made[line["key"]] = node
    end = max((node.end for node in made.values()), default=0)
    value = {name: node.value for name, node in made.items()}
    return Node(value, 0, end, None, children=made, block=True)
