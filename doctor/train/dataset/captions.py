"""Captions with their trigger words, and those that are drawn anew each time they are used."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from ...model.datasets import CaptionDraw

TRIGGER_PLACES = ("[trigger]", "[name]")


def with_trigger(caption: str, trigger: str | None, add: bool = True) -> str:
    """Puts the trigger word where [trigger] stands; if `add`, in front of a caption without it. Blanks stay."""
    word = trigger or ""
    for place in TRIGGER_PLACES:
        caption = caption.replace(place, word)
    return f"{word} {caption}" if word.strip() and add and word not in caption else caption


@dataclass(frozen=True)
class DrawnCaption:
    """A caption that is made anew each time: of what was `written`, as `how` says, with the trigger words of its
    dataset and its run, put in front of those without them if `leading`.
    """

    written: str
    how: CaptionDraw
    triggers: tuple[str | None, ...] = ()
    leading: bool = True


def drawn_caption(caption: DrawnCaption, draw: random.Random) -> str:
    """Returns a caption that is made anew, by the same draws in the same order as the trainer's."""
    how, text = caption.how, caption.written
    text = f"{how.before} {text}" if how.before else text
    text = f"{text} {how.after}" if how.after else text
    if how.lines and (how.wildcards is False or "\n" in text):
        text = draw.choice([line for part in text.split("\n") if (line := part.strip())] or [""])
    if how.wildcards:
        text = _without_wildcards(text, draw)
    if how.whole:
        tags = text.replace(", ", ",").split(",")  # as they were before they were read
        if how.dropout:
            rest = [tag for tag in tags[how.keep :] if how.dropout < 1 and draw.random() > how.dropout]
            tags = [*tags[: how.keep], *rest]
        text = ", ".join(_shuffled(tags, draw) if how.shuffle else tags)
    elif how.shuffle or how.dropout:
        first, rest, last = _kept_apart(text, how)
        rest = _shuffled(rest, draw) if how.shuffle else rest
        rest = [tag for tag in rest if not how.dropout or draw.random() >= how.dropout]
        text = ", ".join([*first, *rest, *last])
    if how.secondary:
        text = text.replace(how.secondary, how.separator)
    for number, word in enumerate(caption.triggers):
        text = with_trigger(text, word, add=caption.leading)
        if how.whole and how.shuffle and number == 0:
            text = ", ".join(_shuffled(text.split(","), draw))
    return text


def _without_wildcards(text: str, draw: random.Random) -> str:
    """The text with one word of each {…|…}; {{ and }} stand for braces."""
    opened, closed = "\ue000", "\ue001"  # characters for private use
    text = text.replace("{{", opened).replace("}}", closed)
    text = re.sub(r"\{([^}]+)\}", lambda found: draw.choice(found[1].split("|")), text)
    return text.replace(opened, "{").replace(closed, "}")


def _kept_apart(text: str, how: CaptionDraw) -> tuple[list[str], list[str], list[str]]:
    """The tags that stay at the beginning, those that are drawn, and those that stay at the end."""
    if how.keep_separator and how.keep_separator in text:
        first, rest, *last = text.split(how.keep_separator, 2)
        parts = (first, rest, "".join(last))
        first_tags, others, last_tags = ([t for tag in p.split(how.separator) if (t := tag.strip())] for p in parts)
        return first_tags, others, last_tags
    tags = [tag.strip() for tag in text.strip().split(how.separator)]
    return tags[: how.keep], tags[how.keep :], []


def _shuffled(tags: list[str], draw: random.Random) -> list[str]:
    draw.shuffle(tags)
    return tags
