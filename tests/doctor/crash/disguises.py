"""The same log as it reaches us: through terminals, web pages, containers and loggers, cut and doubled."""

from __future__ import annotations

import html
import json
import random
import re
from collections.abc import Callable

from zdoctor.doctor.crash import decode

_FRAME = re.compile(r'  File "([^"]+)", line (\d+), in (\S+)\n    (.*)\n(?:    [\^~ ]+\n)?')
_ONE = r'  File "[^"]+", line \d+, in \S+\n    .*\n(?:    [\^~ ]+\n)?'
_TRACE = re.compile(rf"Traceback \(most recent call last\):\n(?P<frames>(?:{_ONE})+)(?P<error>.*\n)")


def _each(log: str, made: Callable[[int, str], str]) -> str:
    return "".join(made(at, line) + "\n" for at, line in enumerate(log.rstrip("\n").split("\n")))


def prefixed(log: str) -> str:
    """As a container's log with the times of another program before each line."""
    return _each(log, lambda at, line: f"[2026-11-21 10:{at // 60 % 60:02}:{at % 60:02}] [INFO] {line}")


def contained(log: str) -> str:
    return _each(log, lambda at, line: f"trainer-1  | {line}")


def relayed(log: str) -> str:
    return _each(log, lambda at, line: f"Training STDERR: {line}")


def stripped(log: str) -> str:
    """As fluxgym writes it."""
    return _each(log, lambda at, line: f"[2026-11-21 10:00:{at % 60:02}] [INFO] {line.strip()}")


def flush_left(log: str) -> str:
    return _each(log, lambda at, line: line.strip())


def headless(log: str) -> str:
    """Copied from below the first line of a traceback."""
    return _TRACE.sub(lambda trace: trace["frames"] + trace["error"], log)


def doubled(log: str) -> str:
    """As two writers without a buffer leave it, piece by piece."""

    def trace(found: re.Match[str]) -> str:
        head = "Traceback (most recent call last):\n"
        frames = _FRAME.sub(
            lambda f: f'  File "{f[1]}", line {f[2]}, in {f[3]}\n' * 2 + f"        {f[4]}{f[4]}\n\n", found["frames"]
        )
        return head * 2 + frames + found["error"]

    text = _TRACE.sub(trace, log)
    return re.sub(
        r"(?m)(?<=^\n)((?:[a-z_]\w*\.)*)([A-Z]\w*)(?:: (.*(?:\n[^\n=#].*)*)|)$",
        lambda e: _written_twice(e[1].rstrip("."), e[2], e[3]),
        text,
    )


def _written_twice(module: str, name: str, message: str | None) -> str:
    pieces = [*([module, "."] if module else []), name, *([": ", message] if message is not None else []), "\n"]
    return "".join(piece * 2 for piece in pieces)


def wrapped(log: str) -> str:
    """Copied from a window of 80 columns; panels are drawn as wide as the window."""
    if "╭" in log:
        return log
    return _each(log, lambda at, line: "\n".join(line[start : start + 80] for start in range(0, len(line) or 1, 80)))


def woven(log: str) -> str:
    """With a bar between any two lines."""
    return _each(log, lambda at, line: f"{line}\nLoading:   3%|#         | 3/100 [00:01<00:09,  1.10s/it]")


def redrawn(log: str) -> str:
    """Each line behind the states of a bar."""
    bar = "\rCaching:  10%|#         | 1/10 [00:01<00:09,  1.10s/it]"
    return _each(log, lambda at, line: f"{bar}\r{line}")


def web_page(log: str) -> str:
    return "<pre><code>" + _each(log, lambda at, line: html.escape(line)) + "</code></pre>\n"


def quoted(log: str) -> str:
    """In a mail or an issue, and fenced."""
    return _each(f"```\n{log}```\n", lambda at, line: f"> {line}".rstrip())


def typographic(log: str) -> str:
    """As a blog's editor sets it."""
    return re.sub(r'"([^"\n]*)"', "“\\1”", log)


def cut_at_the_end(log: str) -> str:
    """Copied up to the line that names the exception, and no further."""
    first = _TRACE.search(log)
    if first is None or log.count("Traceback (most") > 1:
        return log
    return (log[: first.end()] + log[first.end() :].partition("\n\n")[0]).rstrip("\n")


def boxed(log: str) -> str:
    """As rich draws it, in a window of 120 columns."""

    def panel(trace: re.Match[str]) -> str:
        rows: list[str] = []
        for file, line, where, code in _FRAME.findall(trace["frames"]):
            path = f"{file}:{line} in {where}"
            rows += [path[at : at + 116] for at in range(0, len(path), 116)]
            rows += ["", f"❱ {line} │   {code}"[:116], ""]
        head = "╭" + " Traceback (most recent call last) ".center(118, "─") + "╮\n"
        return head + "".join(f"│ {row:<116} │\n" for row in rows) + "╰" + "─" * 118 + "╯\n" + trace["error"]

    return _TRACE.sub(panel, log)


def run_on(log: str) -> str:
    """Where a page has made one line of them."""
    return _TRACE.sub(lambda trace: re.sub(r"\s+", " ", re.sub(r"\n +[\^~]+", "", trace[0])) + "\n", log)


def written_out(log: str) -> str:
    """As a string of JSON."""
    return f'{{"level": "error", "text": {json.dumps(log)}}}\n' if "Traceback (most" in log else log


def tagged(log: str) -> str:
    """By a program that puts one letter before each line."""
    return _each(f"Loading the config\nCuda is there\nModel on {{}}\nGo\n{log}", lambda at, line: f"O {line}")


def journal(log: str) -> str:
    return _each(log, lambda at, line: f"Nov 21 10:00:{at % 60:02} gpu1 python[4242]: {line}")


def windows(log: str) -> str:
    return log.replace("\n", "\r\n")


def utf_16(log: str) -> str:
    return decode(log.encode("utf-16"))


def chinese(log: str) -> str:
    """Beside lines of a program that writes in the machine's code page."""
    before, after = ("正在检查更新，请稍候\n", "请按任意键继续. . .\n")
    return decode(before.encode("gb18030") + log.encode() + after.encode("gb18030"))


def coloured(log: str) -> str:
    return _each(log, lambda at, line: f"\x1b[1;31m{line}\x1b[0m")


def colours_left(log: str) -> str:
    """Copied from where the escape signs are not shown."""
    return _each(log, lambda at, line: f"[31m{line}[0m")


def json_lines(log: str) -> str:
    return _each(
        log,
        lambda at, line: json.dumps(
            {"log": f"{line}\n", "stream": "stderr", "time": f"2026-11-{at}"}, separators=(",", ":")
        ),
    )


def followed(log: str) -> str:
    """With what a shell and a person add."""
    return f"(venv) C:\\ai>python run.py\n{log}\n(venv) C:\\ai>pause\nPress any key to continue . . . \n"


def mixed(log: str) -> str:
    """Between the lines of another process."""
    dice = random.Random(0)
    return _each(log, lambda at, line: f"[rank0]: {line}" + f"\n[rank1]: step {at}" * dice.randrange(2))


DISGUISES = (
    prefixed,
    contained,
    relayed,
    stripped,
    flush_left,
    headless,
    doubled,
    wrapped,
    woven,
    redrawn,
    web_page,
    quoted,
    typographic,
    cut_at_the_end,
    boxed,
    run_on,
    written_out,
    tagged,
    journal,
    windows,
    utf_16,
    chinese,
    coloured,
    colours_left,
    json_lines,
    followed,
    mixed,
)
