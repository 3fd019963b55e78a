"""What to do where a program stops by itself and says why in its own words: by the shape of these words."""

from __future__ import annotations

import re

from ..model.crashes import Failure, Known

_SAID = 8  # characters that say something
_RAISED = re.compile(r"\braise [A-Z]\w*\(|\bassert\b")
# The first that fits.
_SHAPES = (
    (
        (r"\bmismatch", r"do(?:es)?(?: not|n't) match", r"\bdiffers? from"),
        "What is loaded or continued from (a checkpoint, a LoRA, a cache) and the settings differ in what those "
        "words name: set it as that was made with, or begin without that file.",
    ),
    (
        (
            r"\b(?:cached?|latents?|embeds?|embeddings?)\b.*\b(?:missing|not found|outdated|lacks?)",
            r"\bmissing\b.*\bcache",
        ),
        "Make the caches of the dataset anew, with the settings and the task of this run.",
    ),
    (
        (
            r"\bplease (?:load|call|run) .*\bfirst\b",
            r"\b(?:not|never) been \w+ed\b",
            r"\bno \w+ (?:is |was )?loaded\b",
        ),
        "A step that comes before was left out or did not work: look above for what was to be loaded.",
    ),
    (
        (r"\b(?:file|folder|directory|path|script|image)s?\b.*\b(?:not found|do(?:es)?(?: not|n't) exist)",),
        "Look whether what they name is there, under that very name and as the program sees it (containers and WSL "
        "have paths of their own).",
    ),
    (
        (r"\bno (?:images?|samples?|captions?|concepts?|prompts?)\b",),
        "Look at the dataset's folders and endings, and at what is switched on in the settings.",
    ),
    (
        (
            r"\bonly (?:be used|supports?|supported|works?|possible)\b",
            r"\bonly (?:for|with|when|if)\b",
            r"\brequires?\b",
            r"\b(?:cannot|can't) be (?:used|combined)",
            r"\b(?:incompatible|not compatible)\b",
            r"\bat the same time\b",
        ),
        "Two settings do not go together: change the one that those words name as they ask, or switch the other off.",
    ),
    (
        (
            r"\b(?:unknown|unsupported|not supported|unrecogni[sz]ed|not implemented|not (?:a )?valid|invalid)\b",
            r"\bone of\b",
        ),
        "Choose a value that the program's page names for it. Where this is one of them, this version is older: "
        "update the program.",
    ),
)
_COMPILED = tuple((re.compile("|".join(words), re.I), told) for words, told in _SHAPES)


def advice(said: str) -> str:
    """What to do about these words, "" where their shape does not tell."""
    return next((told for words, told in _COMPILED if words.search(" ".join(said.split()))), "")


def refused(failure: Failure) -> Known | None:
    """What is told of a failure that code of no library raises in words of its own."""
    own = (one for one in failure.frames if _RAISED.search(one.code) and not one.is_library)
    if len(failure.message.strip()) <= _SAID or next(own, None) is None:
        return None
    rest = (
        "Change the setting or the file that those words name; zdoctor check CONFIG looks at all of them ahead of a "
        "run. Where they name nothing of yours, the fault is the program's: look for them in its issues."
    )
    return Known(
        "The program looked at what it was given, and stopped by itself. It said: {said}.",
        " ".join(filter(None, (advice(failure.message), rest))),
        error=failure.name,
        text=r"^(?P<said>\S[\s\S]*)",
        source="https://docs.python.org/3/tutorial/errors.html#raising-exceptions",
    )
