"""What `zdoctor explain` says of the failures in crashes.txt, and what it costs on logs of 100 MB.

python benchmarks/explain.py [work|held] [unknown]    each text of that half (or of both): its truth, and the answer
python benchmarks/explain.py fresh [unknown]          the same of the texts in crashes_fresh.txt
python benchmarks/explain.py blocks [unknown]         the same of the texts in crashes_blocks.txt
python benchmarks/explain.py later [work|held]        the same of the texts in crashes_later.txt
python benchmarks/explain.py trainers [work|held]     the same of the texts in crashes_trainers.txt
python benchmarks/explain.py disguised                each text that has an answer in every disguise of the tests
python benchmarks/explain.py known                    a log of each known failure in every one of these disguises
python benchmarks/explain.py FOLDER                   CPU seconds and peak memory of the command, the least of four
                                                      runs; FOLDER gets logs of 100 MB, which are removed again

crashes.txt holds addresses of public threads, what the cause was by what is said there (##), and the libraries' own
words of each failure. Its halves are told apart by the first byte of the address' SHA-256: even is the half to work
with, odd the one that was looked at once, at the end. crash_verdicts.tsv has how each answer of that half was judged.
crashes_fresh.txt holds others, answered once before anything was mended by them; in front of each truth stands how
that first answer was judged; crashes_blocks.txt holds blocks of image trainers' logs, drawn and judged likewise;
crashes_later.txt was drawn for the weak spots of these, and told into halves as crashes.txt is; the first answers of
its held half stand judged likewise, as do those of crashes_trainers.txt. Of crashes_2026.tsv,
crashes_general.tsv, crashes_working.tsv, crashes_held.tsv (two judges), crashes_second.tsv, crashes_third.tsv,
crashes_fourth.tsv, crashes_fifth.tsv, crashes_sixth.tsv, crashes_seventh.tsv and crashes_eighth.tsv (two judges each,
of the last three also for the state before) only addresses, verdicts and truths are kept, no text.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from zdoctor.doctor.crash import explain
from zdoctor.doctor.crash.table import known
from zdoctor.doctor.model.crashes import Signature
from zdoctor.doctor.rules import all_rules
from zdoctor.tests.doctor.crash.disguises import DISGUISES
from zdoctor.tests.doctor.crash.samples import log_of

TEXTS = Path(__file__).with_name("crashes.txt")
DRAWN = {name: TEXTS.with_name(f"crashes_{name}.txt") for name in ("fresh", "blocks", "later", "trainers")}
SIGNATURES = [Signature(rule.id, *pair, rule.trainers) for rule in all_rules() for pair in rule.prevents]
SIZE = 100 << 20
END = b"""
Traceback (most recent call last):
  File "/x/ai-toolkit/run.py", line 3, in main
    transformer.to(device)
NotImplementedError: Cannot copy out of meta tensor; no data!
"""


def texts(file: Path = TEXTS) -> Iterator[tuple[str, str, str]]:
    """Address, truth and text of each failure."""
    for block in file.read_text(encoding="utf-8").split("@@ ")[1:]:
        address, truth, text = block.rstrip("\n").split("\n", 2)
        yield address, truth.removeprefix("## "), text


def half(address: str) -> str:
    return "held" if hashlib.sha256(address.encode()).digest()[0] % 2 else "work"


def answers(asked: Iterable[tuple[str, str, str]], *, unknown_only: bool) -> None:
    """Print what is said of each text."""
    count = unknown = 0
    for address, truth, text in asked:
        told = explain(text, SIGNATURES)
        count += 1
        open = told.known is None and not told.rules
        unknown += open
        if open or not unknown_only:
            failure = f"{told.failure.type}: {told.failure.message[:80]!r}" if told.failure else "no failure"
            answer = told.cause if told.known else ", ".join(told.rules) or "not known"
            print(f"{address}\n  truth:  {truth}\n  found:  {failure}\n  answer: {answer}")
    print(f"{count} texts, {unknown} not known")


def disguised(logs: Iterable[tuple[str, str]]) -> None:
    """Print what is told otherwise of a text in disguise."""
    tried: Counter[str] = Counter()
    other: Counter[str] = Counter()
    for name, text in logs:
        plain = explain(text, SIGNATURES)
        for disguise in DISGUISES if plain.known is not None or plain.rules else ():
            told = explain(disguise(text), SIGNATURES)
            tried[disguise.__name__] += 1
            if (told.known, told.rules) != (plain.known, plain.rules):
                other[disguise.__name__] += 1
                print(f"{disguise.__name__:<12} {name}")
    print(f"{tried.total()} tried, {other.total()} told otherwise: {dict(other.most_common())}")


def lines() -> Iterator[bytes]:
    """Bars, coloured lines, ranks and numbers that are exit codes elsewhere."""
    dice = random.Random(0)
    while True:
        n = dice.randrange(10**6)
        yield (
            f"steps:  {n % 100}%|#####     | {n}/1000000 [1:02:03<4:05:06,  1.21it/s, avr_loss=0.{n}]\r"
            f"\x1b[32m2026-11-21 10:00:00\x1b[0m INFO     epoch {n} step {n} loss: 0.{n} gpu 137 -9 exit\n"
            f"[rank{n % 4}]: step {n} grad_norm 0.{n} Traceback none\nWARNING: odd error: {n}\n"
        ).encode()


def training() -> Iterator[bytes]:
    size = 0
    for line in lines():
        yield line
        size += len(line)
        if size > SIZE:
            break
    yield END


WAITING = b"2026-11-21 10:00:00 INFO waiting for a job\n" * 1000


def in_the_middle() -> Iterator[bytes]:
    """A traceback after which the log goes on without a step."""
    half = SIZE // 2 // len(WAITING)
    yield from itertools.chain(itertools.repeat(WAITING, half), (END,), itertools.repeat(WAITING, half))


def utf_16() -> Iterator[bytes]:
    yield b"\xff\xfe"
    for block in in_the_middle():
        yield block.decode().encode("utf-16-le")


LOGS = {
    "a training's output": training,
    "one line of bars": lambda: (next(iter(lines())).split(b"\r")[0] + b"\r" for _ in range(SIZE // 90)),
    "a traceback in the middle": in_the_middle,
    "the same in UTF-16": utf_16,
    "lines of Chinese in GB18030": lambda: ("步骤 1 损失 0.1\n".encode("gb18030") * 50_000 for _ in range(125)),
    "random bytes": lambda: (os.urandom(1 << 20) for _ in range(SIZE >> 20)),
    "zeros": lambda: (b"\0" * (1 << 20) for _ in range(SIZE >> 20)),
    "one line": lambda: (b"a" * (1 << 20) for _ in range(SIZE >> 20)),
}


def cost(log: Path) -> tuple[float, float]:
    """CPU seconds, and MiB; modules are compiled once, as where zdoctor is installed."""
    command = [sys.executable, "-m", "zdoctor", "explain", str(log)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(log.parent / "compiled")
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    used = os.wait4(child.pid, 0)[2]
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def costs(folder: Path) -> None:
    for name, made in LOGS.items():
        log = folder / "zdoctor-benchmark.log"
        with log.open("wb") as file:
            file.writelines(made())
        size = log.stat().st_size
        seconds, memory = map(min, zip(*(cost(log) for _ in range(4)), strict=True))
        print(f"{name:<28} {size / 2**20:6.0f} MiB  {seconds:5.2f} CPU-s  {memory:4.0f} MiB at its peak", flush=True)
        log.unlink()


if __name__ == "__main__":
    words = sys.argv[1:]
    chosen = tuple(word for word in words if word in ("work", "held"))
    if words == ["disguised"]:
        disguised((address, text) for address, _, text in texts())
    elif words == ["known"]:
        disguised((one.cause, log_of(one)) for one in known())
    elif words and not chosen and words[0] not in (*DRAWN, "unknown"):
        costs(Path(words[0]))
    else:
        halves = chosen or ("work", "held")
        drawn = texts(DRAWN.get(words[0], TEXTS)) if words else texts()
        answers((one for one in drawn if half(one[0]) in halves), unknown_only="unknown" in words)
