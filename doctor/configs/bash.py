"""The commands of a bash script, with the variables that it certainly sets filled in. Nothing is run.

A variable that is set in one branch, loop or function is known inside of it, and unknown behind it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..model.cards import ALL, VISIBLE
from . import bash_spans as spans
from .bash_words import Words
from .command import Word
from .script_reader import TO_BE_FILLED
from .script_variables import MOVED, Held, Variables, joined
from .words import words

_BLANK = re.compile(r"[ \t]|\\(?:\r\n|\r|\n)|#[^\r\n]*")
_STOP = re.compile(r"\r\n|[\r\n]|;;&|;;|;&|&&|\|\||\|&|[;|]|&(?!>)")
_COPIED = re.compile(r"\d*[<>]&(?:\d+|-)")
_REDIRECTED = re.compile(r"(?:\d+(?=[<>])|\{\w+\}(?=[<>]))?(?:<<<|<>|>>|>\||>&|<&|>|<)|&>>?")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\[[^\]\r\n]*\])?(\+?)=")
_KEYWORD = re.compile(
    r"(if|then|else|elif|fi|for|select|while|until|do|done|case|esac|function|time|[!{}])(?=[\s;&|()<>]|$)"
)
_FUNCTION = re.compile(r"[ \t]*\([ \t]*\)")
_NAME = re.compile(r"[ \t]*([\w:.-]+)")
_IN = re.compile(r"[ \t\r\n]*in(?=\s)")
_SET = re.compile(r"(?<![\w$.-])([A-Za-z_]\w*)(?:\[[^\]\r\n]*\])?\+?=")
_TARGET = re.compile(r"([A-Za-z_]\w*)\W?(?:=|$|\W)")  # of read A, of let A+=1
_HARMLESS = re.compile(r"activate$|conda|profile|bashrc|\.cargo")
_DECLARES = words("export declare local readonly typeset")
_READS = words("read mapfile readarray getopts let printf")
_SOURCES = words("source . eval")
_OPENS = {"if": "fi", "while": "done", "until": "done", "for": "done", "select": "done", "{": "}"}
_CLOSES = frozenset(("fi", "done", "esac", "}"))


class BashReader(Words):
    """One pass over a text."""

    shell = "bash"
    between = re.compile(r"(?:[ \t\r\n]|\\(?:\r\n|\r|\n)|(?<=\s)#[^\r\n]*)+")
    moves = words("cd pushd popd")

    def __init__(self, text: str, environment: Mapping[str, str]) -> None:
        super().__init__(text, Variables(_SET.findall(text), environment))
        self.documents: list[spans.Document] = []
        self.is_function = False

    def changed_by(self, found: list[Word]) -> None:
        variables, name, rest = self.variables, found[0].text, found[1:]
        if name in self.moves:
            to = next((word for word in rest if not word.text.startswith("-")), None)
            variables.set(MOVED, to.text if to is not None and to.known and to.text.startswith("/") else None)
        elif name == "unset":
            for word in rest:
                variables.set(word.text, ALL if word.text == VISIBLE else "")
        elif name in _READS:
            variables.forget(made[1] for word in rest if (made := _TARGET.match(word.text)))
        elif (name in _SOURCES and not any(_HARMLESS.search(word.text) for word in rest)) or (
            name in _DECLARES and any(word.many for word in rest)
        ):
            variables.forget(name for name in variables.held if name != MOVED)
            variables.all_known = False

    def command(self) -> tuple[list[Word], str]:
        found: list[Word] = []
        while self.index < len(self.text):
            if self.take(_BLANK):
                continue
            if stop := self.take(_STOP):
                return found, stop[0]
            sign = self.text[self.index]
            if sign == ")" and (found or self.own):
                return found, ";"
            if sign == ")":
                self.index += 1
                self.variables.close(")", own=True)
            elif sign == "(" and len(found) == 1 and self.take(_FUNCTION):
                self.is_function = True
                return [], "\n"
            elif sign == "(":
                found += self.bracket(first=not found)
            elif sign in "<>&{0123456789" and self.redirected():
                continue
            elif not found and not self.own and (keyword := self.take(_KEYWORD)):
                self.keyword(keyword[1])
            elif not found and self.starts("[["):
                found.append(self.test())
            elif (not found or found[0].text in _DECLARES) and (assigned := self.take(_ASSIGNED)):
                self.assigned(assigned, declared=bool(found))
            else:
                found += self.word()
        return found, ""

    def ended(self, stop: str, *, certain: bool) -> None:
        variables = self.variables
        for name, value in self.own.items() if certain else ():
            variables.set(name, value)
        self.own, self.files = {}, []
        if stop in ("&&", "||"):
            if not certain and not variables.inside("&&"):
                variables.open("&&")
        elif stop not in ("|", "|&") and variables.inside("&&"):
            variables.close("&&")
        if stop in ("&&", "||", "|", "|&"):
            self.take(self.between)
        elif stop in ("\n", "\r\n", "\r"):
            self.index = spans.documents_end(self.text, self.index, self.documents)
            self.documents = []
        elif stop in (";;", ";;&", ";&") and variables.inside("esac"):
            variables.branch()
            self.pattern()

    def redirected(self) -> bool:
        """Whether a redirection, which is passed over, stood here."""
        if here := spans.here_document(self.text, self.index):
            self.index = here[0]
            self.documents.append(here[1])
        elif self.starts(("<(", ">(")) or TO_BE_FILLED.match(self.text, self.index):
            return False
        elif not self.take(_COPIED):
            if not self.take(_REDIRECTED):
                return False
            while self.take(_BLANK):
                pass
            self.files += [word.text for word in self.word()]
        return True

    def bracket(self, *, first: bool) -> list[Word]:
        """A computation, which is passed over, or the beginning of a shell of its own."""
        start = self.index
        end = spans.arithmetic_end(self.text, start)
        self.index = end or start + 1
        if end is not None:
            self.computed(start, end)
            return [Word(self.text[start:end], start, end, known=False)]
        if first:
            self.variables.open(")", again=self.is_function)
            self.is_function = False
        return []

    def keyword(self, name: str) -> None:
        if name in _CLOSES:
            self.variables.close(name)
        elif name in ("else", "elif") and self.variables.inside("fi"):
            self.variables.branch()
        elif name == "function":
            self.take(_NAME)
            self.take(_FUNCTION)
            self.is_function = True
        elif name == "case":
            self.take(self.between)
            self.word()
            self.take(_IN)
            self.variables.open("esac")
            self.pattern()
        elif name in _OPENS:
            self.variables.open(_OPENS[name], again=_OPENS[name] == "done" or (name == "{" and self.is_function))
            self.is_function = False
            if name in ("for", "select"):
                self.loop()

    def loop(self) -> None:
        """What stands between `for` and the end of its list."""
        self.take(self.between)
        end = spans.arithmetic_end(self.text, self.index)
        if end is not None:
            self.computed(self.index, end)
            self.index = end
        elif name := self.take(_NAME):
            self.variables.set(name[1], None)
        while self.index < len(self.text) and not self.take(_STOP):
            if not self.take(_BLANK) and not self.word():
                self.index += self.text[self.index] in "()<>"

    def pattern(self) -> None:
        """The patterns of a case, up to their bracket."""
        self.take(self.between)
        if self.starts("esac"):
            return
        self.index += self.starts("(")
        while self.index < len(self.text):
            if self.text[self.index] == ")":
                self.index += 1
                return
            self.index = spans.part_end(self.text, self.index)

    def test(self) -> Word:
        """A condition between [[ and ]]."""
        start = self.index
        self.index += 2
        while self.index < len(self.text):
            if self.starts("]]") and self.text[self.index - 1].isspace():
                self.index += 2
                break
            self.index = spans.part_end(self.text, self.index)
        return Word(self.text[start : self.index], start, self.index, known=False)

    def assigned(self, found: re.Match[str], *, declared: bool) -> None:
        """A variable or a list that is set, or added to."""
        name, place, adds = found.groups()
        new: Held
        if self.starts("("):
            self.index += 1
            new = self.members()
        else:
            new = joined(self.word(value=True), name) if not place else None
        if adds:
            new = self.variables.add(name, new)
        if declared:
            self.variables.set(name, new)
        else:
            self.own[name] = new
