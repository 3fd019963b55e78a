"""What was looked up and is not there, where a failure says only its name or number: by the line of code."""

from __future__ import annotations

import re

from ..model.crashes import Failure, Known
from .stages import place_of

_NAME = re.compile(r"^['\"](?P<name>[\w./ -]{1,80})['\"]$")
_SHORT = re.compile(r"(?:list|tuple|string|index) (?:index )?(?:\d+ )?(?:is )?out of (?:range|bounds)")
_EXPRESSION = r"(?<![\w.\])])(?P<what>[A-Za-z_]\w*(?:\.\w+|\[[^\[\]]*\]|\([^()]*\))*?)"
# What an expression holds, by the last word of its name: how it is called, and what becomes of it.
_KINDS = (
    (
        r"environ",
        "The environment variable {name} is not set, and the program asks for it at {place}.",
        "Set it in the shell or the page that starts the program, and start it anew.",
    ),
    (
        r"(?:config\w*|cfg|conf|args|kwargs|options|opts|settings|params|toml\w*|yaml\w*|json\w*)",
        "The settings have no {name}, and the program asks for it at {place} ({what}).",
        "Add that key, as the program's example of a config has it, in the section that is read there; where it "
        "is no key of yours, the config is of another version of the program.",
    ),
    (
        r"(?:batch\w*|samples?|items?|examples?|data|entry|row|inputs?)",
        "What comes from the dataset has no {name}, and the program asks for it at {place} ({what}): captions or "
        "caches were made with other settings, by another version, or not at all.",
        "Make the caches of the dataset anew with the settings of this run, and look whether each picture has "
        "what is asked for (a caption, a mask, a control picture).",
    ),
    (
        r"(?:\w*state_dict\w*|\w*sd\d?|\w*weights|checkpoint\w*|ckpt|tensors?|lora\w*)",
        "The file's weights have no {name}, and the program asks for it at {place} ({what}): it is of another "
        "model or layout, or newer than what reads it.",
        "Take the file that the settings are for; where it is that, update what reads it.",
    ),
)


def key(failure: Failure) -> tuple[str, str] | None:
    """The one thing of the line of code in which a name was looked up, "" where it does not tell, and that name."""
    asked = _NAME.match(failure.message.strip().partition("\n")[0]) if failure.name == "KeyError" else None
    if asked is None:
        return None
    name, code = asked["name"], failure.frames[-1].code if failure.frames else ""
    in_quotes = re.findall(rf"{_EXPRESSION}\[f?['\"]{re.escape(name)}['\"]\]", code)
    found = in_quotes or re.findall(rf"{_EXPRESSION}\[[A-Za-z_][\w.]*\]", code)
    return found[0] if len(set(found)) == 1 else "", name


def short(failure: Failure) -> str | None:
    """The one list of the line of code that can have been too short, "" where it does not tell."""
    if failure.name != "IndexError" or not _SHORT.search(failure.message):
        return None
    code = failure.frames[-1].code if failure.frames else ""
    found = re.findall(rf"{_EXPRESSION}\[(?:-?\d+|[A-Za-z_][\w.]*(?: [-+] \d+)?)\]", code)
    return found[0] if len(set(found)) == 1 else ""


def lookup(failure: Failure) -> Known | None:
    """What is told of it, where the line of code names but one thing in which it was looked for."""
    if (asked := key(failure)) is not None and asked[0]:
        what, name = asked
        place = place_of(failure.frames[-1])
        word = re.split(r"[.\[\](]", what.rstrip(")]"))[-1] or what
        kinds = ((cause, do) for kind, cause, do in _KINDS if re.fullmatch(kind, word, re.I))
        cause, do = next(
            kinds,
            (
                "{what} has no {name}, and the program asks for it at {place}: a setting or a file has another "
                "name or value than this version knows, or two parts of the program are of different versions.",
                "Compare {name} with what the program's page allows; update the program as a whole, or take its "
                "release before.",
            ),
        )
        cause, do = (_filled(text, name, what, place) for text in (cause, do))
        return Known(cause, do, error=failure.name, vague=True, source=SOURCE)
    return _too_short(failure, short(failure))


def _too_short(failure: Failure, what: str | None) -> Known | None:
    if not what:
        return None
    place = place_of(failure.frames[-1])
    return Known(
        f"{what} is empty or shorter than the program expects, at {place}: no file or fewer than needed were "
        "found, a setting has too few values, or a name has another form than is taken apart there.",
        f"Look what {what} is made of (a folder, a list in the settings, a name that is split) and complete it.",
        error=failure.name,
        vague=True,
        source=SOURCE,
    )


def _filled(text: str, name: str, what: str, place: str) -> str:
    return text.replace("{name}", name).replace("{what}", what).replace("{place}", place)


SOURCE = "https://docs.python.org/3/library/exceptions.html#LookupError"
