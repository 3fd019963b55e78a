"""A training command in a shell script or a text file: its words with their places. Nothing is run.

Bash, PowerShell and cmd are told apart by the file's name, else by the character that continues a line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

from ..model.cards import ALL, VISIBLE
from ..model.record import dataclass, replace
from .node import Unreadable

Shell = Literal["bash", "powershell", "cmd"]
_CONTINUES: Mapping[str, Shell] = {"\\": "bash", "`": "powershell", "^": "cmd"}
_BY_NAME: Mapping[str, Shell] = {
    ".sh": "bash",
    ".bash": "bash",
    ".command": "bash",
    ".ps1": "powershell",
    ".bat": "cmd",
    ".cmd": "cmd",
}
_LAST = re.compile(r"(\S)[ \t]*(?=\r|\n|$)")
_VARIABLE = {
    "bash": re.compile(r"\$(?:\{(\w+)\}|(\w+))"),
    "powershell": re.compile(r"\$(?:\{(?:env:)?(\w+)\}|(?:env:)?(\w+))", re.I),
    "cmd": re.compile(r"%(\w+)%"),
}
_STOP = {
    "bash": re.compile(r"[\r\n]|&&|\|\||[|;&]"),
    "powershell": re.compile(r"[\r\n]|&&|\|\||[|;&]"),
    "cmd": re.compile(r"[\r\n]|&&|\|\||[|&]"),
}
_QUOTED = {
    "bash": {"'": re.compile(r"'([^']*)'"), '"': re.compile(r'"((?:\\[\s\S]|[^"\\])*)"')},
    "powershell": {"'": re.compile(r"'((?:''|[^'])*)'(?!')"), '"': re.compile(r'"((?:`[\s\S]|""|[^"`])*)"(?!")')},
    "cmd": {'"': re.compile(r'"([^"\r\n]*)(?:"|(?=[\r\n]))')},  # a quote ends with its line
}
_ESCAPED = {"bash": r'\\(["\\$`\r\n])', "powershell": r'(?:`|"(?="))([\s\S])', "cmd": r"(?!)()"}  # in double quotes
_SOFT = {shell: re.compile(f"{_ESCAPED[shell]}|{name.pattern}", name.flags) for shell, name in _VARIABLE.items()}
_BLANK = {shell: re.compile(rf"[ \t]|{re.escape(sign)}(?:\r\n|\r|\n)") for sign, shell in _CONTINUES.items()}
_HASH = re.compile(r"#[^\r\n]*")
_COMMENT = {"bash": _HASH, "powershell": _HASH, "cmd": re.compile(r"(?:::|@?rem\b)[^\r\n]*", re.I)}
_BETWEEN = {  # the words of a list
    "bash": re.compile(r"[ \t\r\n]|\\[\r\n]|#[^\r\n]*"),
    "powershell": re.compile(r"[ \t\r\n,]|`[\r\n]|#[^\r\n]*"),
}
_REDIRECT = re.compile(r"(?:\d|&)?(?:>>?|<)(?:(&\d)|[ \t]*)")
_BASH_LIST = re.compile(r"(\w+)\+?=\(")
_POWERSHELL_LIST = re.compile(r"@\(")
_ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}|@(\w+)")
_OPTION = re.compile(r"--[A-Za-z]")
_ASSIGNED = re.compile(r"(?:\[[\w.\[\]]+\][ \t]*)?\$(?:env:)?(\w+)[ \t]*=(?!=)[ \t]*", re.I)
_COMPUTED = re.compile(r"\(|[A-Za-z]+-[A-Za-z]+\b")  # what only PowerShell itself can tell: Join-Path a b, (Get-Date)
_OPERATORS = frozenset(("+", "-f", "-join", "-replace"))


@dataclass(frozen=True)
class Word:
    """One word as the program gets it, and the characters `start:end` of the file that it was written as.

    `style` is the quote that it is in as a whole, "" for none; `plain` is false where variables are in it. One that
    nobody sets stays as it is written.
    """

    text: str
    start: int
    end: int
    style: str = ""
    plain: bool = True


@dataclass(frozen=True)
class Command:
    """One command. `broken` is where its line was meant to go on and does not.

    `visible` is the CUDA_VISIBLE_DEVICES that the text sets for it, ALL where it takes the variable away.
    """

    words: tuple[Word, ...]
    shell: Shell
    broken: int | None = None
    visible: str | None = None

    @property
    def start(self) -> int:
        return self.words[0].start


def shell_of(path: str, text: str) -> Shell:
    """Which shell a file is written for."""
    ends = _ends(text)
    return _named(path) or (_CONTINUES[ends.most_common(1)[0][0]] if ends else "bash")


def _named(path: str) -> Shell | None:
    ending = re.search(r"\.\w+$", path.lower())
    return _BY_NAME.get(ending.group()) if ending else None


def _ends(text: str) -> Counter[str]:
    """The characters that continue lines, and how often."""
    return Counter(m.group(1) for m in _LAST.finditer(text) if m.group(1) in _CONTINUES)


def commands(path: str, text: str, environment: Mapping[str, str]) -> tuple[Command, ...]:
    """Every command of a text, with the variables filled in that the text itself or `environment` sets.

    Raises Unreadable for a quote that is never closed.
    """
    # a note of a command that was never in a script: options on lines of their own belong to it
    is_note = _named(path) is None and not _ends(text)
    return tuple(_Reader(text, shell_of(path, text), environment, is_note).commands())


class _Reader:
    """One pass over a text."""

    def __init__(self, text: str, shell: Shell, environment: Mapping[str, str], is_note: bool) -> None:
        self.text = text
        self.is_note = is_note
        self.shell: Shell = shell
        self.escape = next(sign for sign, of in _CONTINUES.items() if of == shell)
        self.index = 1 if text.startswith("\ufeff") else 0
        self.known = dict(environment)
        self.lists: dict[str, tuple[Word, ...]] = {}
        self.visible: str | None = None

    def commands(self) -> Iterator[Command]:
        before: Command | None = None
        ended = ""
        while self.index < len(self.text):
            words, stop = self.command()
            if not words:
                ended = stop if stop.strip() else ended
                continue
            if before is not None and _OPTION.match(words[0].text) and not ended.strip():
                # a lone option is no program: the line above was meant to go on
                if self.is_note:
                    before = replace(before, words=(*before.words, *words))
                else:
                    before = replace(before, broken=before.broken or words[0].start)
                ended = stop
                continue
            if before is not None:
                yield before
            before = self.made(words)
            ended = stop
        if before is not None:
            yield before

    def made(self, words: list[Word]) -> Command | None:
        own = next((w.text.partition("=")[2] for w in words if w.text.startswith(f"{VISIBLE}=")), None)
        words = self.assigned(words)
        if not words:
            # cmd takes a variable away that is set to nothing
            self.visible = self.visible if own is None else own or (ALL if self.shell == "cmd" else own)
            return None
        if words[0].text == "unset" and any(word.text == VISIBLE for word in words):
            self.visible = ALL
        # an escaped blank at the end of a line is a word of its own, and ends the command
        cut = next((word for word in words if word.text in (" ", "\t") and not word.style), None)
        kept = tuple(word for word in words if word is not cut)
        if not kept:
            return None
        return Command(kept, self.shell, cut.start if cut else None, self.visible if own is None else own)

    def assigned(self, words: list[Word]) -> list[Word]:
        """The words without assignments in front, which are remembered."""
        first = words[0].text
        if self.shell == "powershell":
            found = _ASSIGNED.match(self.text, words[0].start)
            if found is None:
                return words
            self.set(found.group(1), found.end())
            return []
        if first.lower() in ("set", "export", "declare", "local"):
            words = words[1:]
            if not any("=" in word.text for word in words):
                return []
        while words and (match := re.match(r"(\w+)\+?=(.*)", words[0].text, re.S)):
            self.known[match.group(1)] = match.group(2)
            words = words[1:]
        return words if first.lower() not in ("set", "export", "declare", "local") else []

    def set(self, name: str, start: int) -> None:
        """Remember what PowerShell's `$name = …` sets, from `start` on, where that is a text or a list."""
        end, self.index = self.index, start
        values, _ = self.command()
        self.index = end
        computed = _COMPUTED.match(self.text, start) or any(
            word.text in _OPERATORS and not word.style for word in values
        )
        self.known.pop(name, None)
        self.lists.pop(name, None)
        if not computed:
            self.lists[name] = tuple(word for word in values if word.text not in (")", ","))
            self.known[name] = " ".join(word.text for word in self.lists[name])
        if name.upper() == VISIBLE:
            self.visible = self.known.get(name)
            self.visible = ALL if self.visible == "" else self.visible  # PowerShell takes it away then

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What matches here, which is passed over."""
        found = pattern.match(self.text, self.index)
        self.index = found.end() if found is not None else self.index
        return found

    def command(self) -> tuple[list[Word], str]:
        """The words up to the end of a command, and what ended it."""
        words: list[Word] = []
        comment = _COMMENT[self.shell]
        while self.index < len(self.text):
            if found := self.take(_STOP[self.shell]):
                stop = "\n" if found[0] == "\r" else found[0]
                if stop != "&" or self.shell != "powershell" or words:  # there it starts what is named behind it
                    return words, stop
            elif self.take(_BLANK[self.shell]) or (not (self.shell == "cmd" and words) and self.take(comment)):
                continue
            elif found := self.take(_REDIRECT):
                if not found[1] and self.text[self.index : self.index + 1] not in ("", "\r", "\n"):
                    self.word()
            elif self.shell == "bash" and not words and (found := self.take(_BASH_LIST)):
                self.lists[found[1]] = (*self.lists.get(found[1], ()), *self.members())
            elif self.shell == "powershell" and self.take(_POWERSHELL_LIST):
                words += self.members()
            else:
                words += self.word()
        return words, ""

    def members(self) -> list[Word]:
        """The words up to a closing bracket, over several lines."""
        words: list[Word] = []
        while self.index < len(self.text) and self.text[self.index] != ")":
            if not self.take(_BETWEEN[self.shell]):
                at = self.index
                words += self.word(inside=True)
                self.index = max(self.index, at + 1)
        self.index += 1
        return words

    def word(self, inside: bool = False) -> list[Word]:
        """The word that begins here; several, or none, where a variable stands for them."""
        text, start = self.text, self.index
        ends = " \t\r\n;|&" if self.shell != "cmd" else " \t\r\n|&"
        ends += "),"[: 2 if self.shell == "powershell" else 1] if inside else ""
        pieces: list[str] = []
        quotes = 0
        while self.index < len(text) and text[self.index] not in ends:
            if text[self.index] in _QUOTED[self.shell]:
                quotes += 1
                pieces.append(self.quoted(text[self.index]))
                continue
            piece = self.piece(start)
            if piece is None:
                break
            pieces.append(piece)
        return self.words("".join(pieces), start, quotes)

    def piece(self, start: int) -> str | None:
        """What the characters here stand for outside of quotes; None where an escaped line end ends the word."""
        at, following = self.index, self.text[self.index + 1 : self.index + 2]
        if self.text[at] == self.escape and (following or self.shell == "powershell"):
            if following in ("\r", "\n"):
                return None
            # bash eats the backslash of a drive's path; what was meant is said in another place
            drive = self.shell == "bash" and re.match(r"[A-Za-z]:\\", self.text[start : start + 3])
            self.index += 1 if drive else 1 + len(following)
            return self.escape if drive else following
        if found := self.take(_VARIABLE[self.shell]):
            return self.value(found)
        self.index += 1
        return self.text[at]

    def words(self, made_of: str, start: int, quotes: int) -> list[Word]:
        """The words that what is written from `start` on stands for; `made_of` has its variables filled in."""
        written = self.text[start : self.index]
        spread = _ARRAY.fullmatch(written.strip('"')) if self.shell != "cmd" else None
        name = (spread.group(1) or spread.group(2)) if spread is not None else ""
        if name in self.lists:
            return [replace(word, start=start, end=self.index, plain=False) for word in self.lists[name]]
        if self.shell == "bash" and re.match(r"~(/|$)", written) and "HOME" in self.known:
            made_of = self.known["HOME"] + made_of[1:]
        variable = _VARIABLE[self.shell]
        if variable.fullmatch(written) and " " in made_of and self.shell != "powershell":
            return [Word(part, start, self.index, plain=False) for part in made_of.split()]
        whole = quotes == 1 and written[0] in "\"'" and written[-1] == written[0]
        plain = variable.search(written) is None and (quotes == 0 or whole or "=" in written)
        return [Word(made_of, start, self.index, written[0] if whole else "", plain)]

    def quoted(self, quote: str) -> str:
        """The text inside quotes."""
        found = self.take(_QUOTED[self.shell][quote])
        if found is None:
            raise Unreadable(f"the quote {quote} opened here is not closed", self.index)
        if quote == "'":
            return found[1].replace("''", "'") if self.shell == "powershell" else found[1]
        return _SOFT[self.shell].sub(self.filled, found[1])

    def filled(self, found: re.Match[str]) -> str:
        """What an escaped character or a variable inside quotes stands for."""
        if escaped := found[1]:
            return "" if self.shell == "bash" and escaped in "\r\n" else escaped
        return self.value(found)

    def value(self, found: re.Match[str]) -> str:
        """The value of a variable: as it is written when nobody sets it."""
        return self.known.get(next(filter(None, found.groups())), found[0])
