"""The languages of reports, help and messages: which one is meant, and its catalogues (`LANGUAGE/DOMAIN.po`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from ..errors import UserError
from ..model import said as texts

ENGLISH = "en"
LANGUAGES = {ENGLISH: "English", "zh_CN": "简体中文", "zh_TW": "繁體中文", "vi": "Tiếng Việt"}
DOMAINS = ("screen", "rules", "commands", "help", "train", "crash", "explain")
"""What the catalogues are about. A command reads the first four, and of the others what `OF_COMMANDS` says."""
OF_COMMANDS = {
    "explain": ("crash", "explain"),
    "rules": ("explain",),
    "run": ("crash", "explain"),
    "train": ("train", "crash"),
    "demo": ("train",),
}
WITH_RULES = ("html",)  # formats that tell what a rule is about
OPTION = "--lang"
FOLDER = Path(__file__).parent
_TRADITIONAL = ("tw", "hk", "mo", "hant")


def asked(typed: Sequence[str], environ: Mapping[str, str], stream: TextIO | None = None) -> tuple[str, list[str]]:
    """The language that the words of a command or the environment ask for, and the words without their --lang.

    One that the environment asks for and `stream` cannot show is English.
    """
    end = typed.index("--") if "--" in typed else len(typed)
    for at, word in enumerate(typed[:end]):
        option, equals, value = word.partition("=")
        if option == OPTION and (equals or at + 1 < end):
            rest = [*typed[:at], *typed[at + (1 if equals else 2) :]]
            return named(value if equals else typed[at + 1]), rest
    language = chosen(environ)
    try:
        LANGUAGES[language].encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeError, LookupError):
        language = ENGLISH
    return language, list(typed)


def chosen(environ: Mapping[str, str]) -> str:
    """The language that the environment asks for, as gettext reads it; English where it is none of ours."""
    asked = environ.get("ZDOCTOR_LANG")
    if not asked:
        locale = next(filter(None, map(environ.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "") or _of_windows()
        if locale.partition(".")[0] in ("", "C", "POSIX"):
            return ENGLISH
        asked = environ.get("LANGUAGE") or locale
    return next((language for one in asked.split(":") if (language := _known(one))), ENGLISH)


def named(word: str) -> str:
    """The language that a word of the command line names (zh_CN, zh-Hans). Raises UserError for none of ours."""
    language = _known(word)
    if not language:
        ours = ", ".join(f"{tag} ({name})" for tag, name in LANGUAGES.items())
        raise UserError(f"{word} is no language that zdoctor speaks.", f"It speaks {ours}.")
    return language


def speak(language: str, command: str = "") -> None:
    """From now on this process speaks the language, whose catalogues it reads as far as the command needs them."""
    if language == ENGLISH:
        texts.speak(None)
        return
    from .translation import Translation

    domains = ("screen", "rules", "commands", "help", *OF_COMMANDS.get(command, ()))
    files = [FOLDER / language / f"{domain}.po" for domain in domains]
    texts.speak(Translation(language, files), language.replace("_", "-"))


def _known(tag: str) -> str:
    language, *rest = tag.partition(".")[0].partition("@")[0].replace("-", "_").lower().split("_")
    if language == "zh":
        return "zh_TW" if any(one in _TRADITIONAL for one in rest) else "zh_CN"
    return language if language in LANGUAGES else ""


def _of_windows() -> str:
    """The language of Windows' own interface, which sets no variable; "" elsewhere."""
    import sys

    if sys.platform != "win32":
        return ""
    import ctypes
    import locale

    return locale.windows_locale.get(ctypes.windll.kernel32.GetUserDefaultUILanguage(), "")
