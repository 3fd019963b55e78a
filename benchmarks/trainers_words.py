"""What `zdoctor explain` says of all that a trainer's own source raises, asserts and logs as an error.

python benchmarks/trainers_words.py REPOSITORY [FOLDER…]  counts; REPOSITORY is a git directory, of whose last commit
                                                          the modules below the folders are read
python benchmarks/trainers_words.py --list REPOSITORY …   each text that has no answer of its own, too

Modules that Python does not take are passed over. Each text is put into a log with its traceback (a logged one
alone), its values filled in with x1. "own" has an answer of its own or a rule, "said" is only told to be what the
program said as it stopped, "none" is not known.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from zdoctor.doctor.crash import explain
from zdoctor.doctor.crash.table import general
from zdoctor.doctor.model.crashes import Signature
from zdoctor.doctor.rules import all_rules

SIGNATURES = [Signature(rule.id, *pair, rule.trainers) for rule in all_rules() for pair in rule.prevents]
LOGS = ("error", "critical", "exception")


def git(repository: str, *words: str) -> str:
    done = subprocess.run(["git", "--git-dir", repository, *words], capture_output=True, check=True)
    return done.stdout.decode(errors="replace")


def text(node: ast.expr | None) -> str:
    """A text with x1 in place of its values; "" where none is written."""
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(text(value) or "x1" for value in values)
        case ast.BinOp(left=left, op=ast.Mod()):
            return re.sub(r"%[sdrif]", "x1", text(left))
        case ast.BinOp(left=left, right=right) if text(left) or text(right):
            return (text(left) or "x1") + (text(right) or "x1")
        case ast.Call(func=ast.Attribute(value=value, attr="format")):
            return re.sub(r"\{[^}]*\}", "x1", text(value))
    return ""


def words(tree: ast.Module) -> Iterator[tuple[int, str, str, str]]:
    """Line, kind, exception and text of each."""
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[first, *_])):
                yield node.lineno, "raise", name, text(first)
            case ast.Assert(msg=message):
                yield node.lineno, "assert", "AssertionError", text(message)
            case ast.Call(func=ast.Attribute(value=owner, attr=name), args=[first, *_]):
                if name in LOGS and "log" in ast.dump(owner).lower():
                    yield node.lineno, "log", "", text(first)
                elif name == "exit" and isinstance(owner, ast.Name) and owner.id == "sys":
                    yield node.lineno, "exit", "", text(first)


def answer(log: str) -> str:
    told = explain(log, SIGNATURES)
    if told.known in general():
        return "said"
    return "own" if told.known is not None or told.rules else "none"


def modules(repository: str, folders: list[str]) -> Iterator[tuple[str, str, ast.Module]]:
    for name in git(repository, "ls-tree", "-r", "--name-only", "HEAD").splitlines():
        if name.endswith(".py") and name.startswith(tuple(folders) or "") and "test" not in name:
            source = git(repository, "show", f"HEAD:{name}")
            with suppress(SyntaxError):
                yield name, source, ast.parse(source)


def main(repository: str, folders: list[str], *, listed: bool) -> None:
    counted: Counter[tuple[str, str]] = Counter()
    for name, source, tree in modules(repository, folders):
        lines, seen = source.split("\n"), set()
        for number, kind, error, said in words(tree):
            if not said.strip() or (kind, error, said) in seen:
                continue
            seen.add((kind, error, said))
            frame = f'  File "/x/trainer/{name}", line {number}, in run\n    {lines[number - 1].strip()}\n'
            trace = f"Traceback (most recent call last):\n{frame}{error}: {said}\n"
            told = answer(trace if error else f"2026-01-01 10:00:00 ERROR {said}\n")
            counted[kind, told] += 1
            if listed and told != "own":
                print(f"{name}:{number} {told} {error or kind}: {' '.join(said.split())[:160]}")
    print(git(repository, "log", "-1", "--format=%h %cs").strip())
    for kind in sorted({kind for kind, _ in counted}):
        print(f"{kind:<7}", *(f"{told} {counted[kind, told]:>5}" for told in ("own", "said", "none")), sep="  ")


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != "--list"]
    main(given[0], given[1:], listed="--list" in sys.argv)
