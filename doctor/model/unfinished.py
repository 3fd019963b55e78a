"""What shows that a text is not what a trainer will be given: a template, a part, or the text for another trainer."""

from __future__ import annotations

import re

# Each ends what is said of an error that is none for every trainer that may get the text.
UNLESS_FILLED = "It does not where a program puts a value in its place before."
UNLESS_WHOLE = "It does not where the whole file holds what ... stands for."
UNLESS_YOURS = (
    "It may not where yours is a fork or another version, as another finding shows; --trainer-source FOLDER looks at "
    "yours."
)
# Words that zdoctor's list lacks, and the trainer that runs may know. Certain are a slip of a word that is known, and
# what the checkout at hand does not hold.
UNLESS_YOURS_KNOWS = (
    "The trainer stops {when}, unless yours is a fork or another version that knows it; --trainer-source FOLDER "
    "looks at yours."
)
UNLESS_YOURS_READS = (
    "The trainer stops at the start, before it loads anything (keys as read by {table}), unless yours is a fork or "
    "another version that knows it; --trainer-source FOLDER looks at yours."
)
# Why any setting may stand elsewhere.
ABRIDGED_COMMAND = "the command is abridged by ..."
ABRIDGED_FILE = "the file is abridged by ..."
PART = "it lacks two of what every training is told (model, dataset, output, network, length), as an excerpt does"
ABRIDGED_TEXTS = (ABRIDGED_COMMAND, ABRIDGED_FILE)

# What a program, or whoever copies it, puts values into before a trainer reads it: the marks of a template.
TEMPLATE = re.compile(
    r"\{\{.+?\}\}|\{%.+?%\}|<%.+?%>|[=:][ \t]*\{[A-Za-z][\w -]*\}"
    r"|[=:\[,][ \t]*[\"']?(?:\$[A-Z]\w*|\$\{|__[A-Za-z]\w*__|@\w+@|%[A-Za-z]\w*%|<[A-Za-z][^<>]*>)"
)
# A value that is such a mark or one for whoever reads it: <steps>, [RANK], LR, XX, your_model. No word of a config.
_TO_BE_FILLED = re.compile(
    rf"\s*(?:{TEMPLATE.pattern}|\$?\{{[^{{}}]*\}}|\$\w+|%\w+%|@?__\w+__@?|@\w+@|<[^<>]+>|\[[A-Za-z][^\[\]]*\]"
    r"|(?!(?:AUTO|FALSE|INF|NAN|NO|NONE|NULL|OFF|ON|TRUE|YES)\b)[A-Z][A-Z0-9_]*|[xX]{2,}|\?+|\.{3}|\u2026"
    r"|(?i:your[ _-].*|todo|change_?me))\s*"
)
# A value that only a program can put another in the place of: where one is, the text is a template.
_BY_PROGRAM = re.compile(
    r"\s*(?:\{\{.*\}\}|\{%.*%\}|<%.*%>|\$?\{[A-Za-z][\w -]*\}|%[A-Za-z]\w*%|@\w+@|__[A-Za-z]\w*__)\s*"
)
# A line that stands for others, or a value that does, as in documents; of YAML "..." alone is the end of a document.
ABRIDGED = re.compile(
    r"(?m)^[ \t]*(?:(?:#+|//)[ \t]*(?:\.{3}|\u2026)|(?:\.{3}|\u2026)[ \t]*\S"
    r"|[^#\r\n]*[=:][ \t]*(?:\.{3}|\u2026)[ \t]*,?[ \t]*$)"
)


def is_to_be_filled(value: object) -> bool:
    """Whether a value stands for one that is put in: `{{ steps }}`, `${STEPS}`, `__STEPS__`, `[RANK]`."""
    return isinstance(value, str) and _TO_BE_FILLED.fullmatch(value) is not None


def is_filled_by_program(value: object) -> bool:
    """Whether a value is one that no person writes into a config to be run: `{{ steps }}`, `{steps}`, `__STEPS__`."""
    return isinstance(value, str) and _BY_PROGRAM.fullmatch(value) is not None


def stops_unless(text: str) -> str:
    """What a line ends in that is a template's, or stands for others; "" of any other."""
    if TEMPLATE.search(text):
        return f"The trainer stops at once. {UNLESS_FILLED}"
    return f"The trainer stops at once. {UNLESS_WHOLE}" if ABRIDGED.search(text) else ""
