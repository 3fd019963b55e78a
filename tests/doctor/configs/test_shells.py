"""What a script's words are certain of, and what only its shell can tell. Bash itself is asked."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zdoctor.doctor.configs.command import Command
from zdoctor.doctor.configs.command_line import commands
from zdoctor.doctor.configs.node import MOST_VALUES, Unreadable

BASH = shutil.which("bash")
# each with the words of the command x; one that is not known ends in "?", one that may be several in "?*"
WORDS = [
    ("a variable that nobody sets", "a.sh", "x $A", ["$A?*"]),
    ("one in quotes", "a.sh", 'x "$A/b"', ["$A/b?"]),
    ("a list that nobody sets", "a.sh", 'x "${L[@]}"', ["${L[@]}?*"]),
    ("the words of whoever starts it", "a.sh", 'x "$@" $1 ${2:-b}', ["$@?*", "$1?*", "${2:-b}?*"]),
    ("what a command prints", "a.sh", "x $(date) `id` \"$(ls 'a b')\"", ["$(date)?*", "`id`?*", "$(ls 'a b')?"]),
    ("a computation", "a.sh", "N=1\nx $((N * 2))", ["$((N * 2))?*"]),
    ("counted", "a.sh", "A=1\nB=1\nC=1\n((A++))\n((B += 2))\ny $((C = 3))\nx $A $B $C", ["$A?*", "$B?*", "$C?*"]),
    ("compared", "a.sh", "A=1\nif ((A == 1)); then x $A; fi", ["1"]),
    ("a default", "a.sh", "x ${A:-/m} ${B:-}", ["/m"]),
    ("a default of a variable that is set", "a.sh", "A=/n\nx ${A:-/m}", ["/n"]),
    ("a default behind a file that may set it", "a.sh", "source ./env.sh\nx ${A:-/m}", ["${A:-/m}?*"]),
    ("a default behind an environment", "a.sh", "source venv/bin/activate\nx ${A:-/m}", ["/m"]),
    ("a part of a variable", "a.sh", "A=/m/f.st\nx ${A##*/}", ["${A##*/}?*"]),
    ("set in one branch", "a.sh", "A=1\nif true; then A=2; fi\nx $A", ["$A?*"]),
    ("set in the branch itself", "a.sh", "if true; then A=2; x $A; fi", ["2"]),
    ("set in the other branch", "a.sh", "A=1\nif true; then A=2; else x $A; fi", ["1"]),
    ("set on a condition", "a.sh", '[[ -n "$B" ]] && A=2\nx $A', ["$A?*"]),
    ("set in a chain", "a.sh", "cd /w && A=2 && x $A", ["2"]),
    ("set in a case", "a.sh", "case $1 in\n  a) A=1;;\n  *) A=2 ;;\nesac\nx $A", ["$A?*"]),
    ("set in a loop", "a.sh", "for i in 1 2; do A=$i; done\nx $A $i", ["$A?*", "$i?*"]),
    ("set in a function", "a.sh", "A=1\nf() { A=2; }\nf\nx $A", ["$A?*"]),
    ("set anew before the function is called", "a.sh", "A=1\nf() { x $A; }\nA=2\nf", ["$A?*"]),
    ("set in a shell of its own", "a.sh", "A=1\n(A=2)\nx $A", ["1"]),
    ("read", "a.sh", "A=1\nread -r A\nx $A", ["$A?*"]),
    (
        "a list with more on a condition",
        "a.sh",
        'L=(--a 1)\n[[ -n $B ]] && L+=(--b)\nx "${L[@]}"',
        ["--a", "1", "?*"],
    ),
    ("a list that grows in a loop", "a.sh", 'L=(a)\nfor i in 1; do L+=($i); done\nx "${L[@]}"', ["a", "?*"]),
    ("a list that is added to", "a.sh", 'L=(a)\nL+=(b)\nx "${L[@]}"', ["a", "b"]),
    ("nothing", "a.sh", 'E=""\nx a $E', ["a"]),
    ("a pattern", "a.sh", "x /d/*.png 'a*'", ["/d/*.png?*", "a*"]),
    ("a quote inside a command in quotes", "a.sh", 'if python3 -c "print(\'it\')"; then x "a\'b"; fi', ["a'b"]),
    ("a document", "a.sh", "cat > d.toml <<EOF\nit's = \"\nEOF\nx a", ["a"]),
    ("a document in a command", "a.sh", "A=$(cat <<'E'\n) it's\nE\n)\nx a", ["a"]),
    ("a case in a command", "a.sh", "A=$(case $B in a) echo 1;; esac)\nx a", ["a"]),
    ("a hash in a variable", "a.sh", 'if [ $# -lt 1 ] || [ "${#L[@]}" -eq 0 ]; then exit 1; fi\nx a', ["a"]),
    ("an expression with brackets", "a.sh", "[[ $A =~ ^(a|b)$ ]] || exit 1\nx a", ["a"]),
    ("in the background", "a.sh", "nohup x a > log 2>&1 &", ["a"]),
    ("powershell: set by nobody", "a.ps1", 'x $a "$a/b" --c=$a', ["$a?*", "$a/b?", "--c=$a?*"]),
    ("powershell: set on a condition", "a.ps1", "$a = 1\nif ($b) {\n  $a = 2\n}\nx $a", ["$a?*"]),
    ("powershell: set in the block", "a.ps1", "if ($b) { $a = 2; x $a }", ["2"]),
    ("powershell: a property", "a.ps1", '$a = "m"\nx $a.Length "$a.st"', ["$a.Length?*", "m.st"]),
    ("powershell: an expression", "a.ps1", 'x "$(Get-Date) b" (Get-Item a)', ["$(Get-Date) b?", "(Get-Item a)?*"]),
    (
        "powershell: a list with more on a condition",
        "a.ps1",
        '$l = @("--a")\nif ($b -ne 0) { $l += "--b=$b" }\nx @l',
        ["--a", "?*"],
    ),
    (
        "powershell: a list by Add",
        "a.ps1",
        '$l = [System.Collections.ArrayList]::new()\nif ($b) { [void]$l.Add("--b") }\nx $l',
        ["?*"],
    ),
    ("powershell: a comment over lines", "a.ps1", "<# it's\n x no #>\nx a # it's", ["a"]),
    ("cmd: set by nobody", "a.bat", 'x %A% "%A%\\b" %1 %~dp0m %*', ["%A%?*", "%A%\\b?", "%1?*", "%~dp0m?*", "%*?*"]),
    ("cmd: blanks in a value", "a.bat", 'set A=b c\r\nset "D=e f"\r\nx "%A%" "%d%"', ["b c", "e f"]),
    ("cmd: set on a condition", "a.bat", "set A=1\r\nif exist b set A=2\r\nx %A%", ["%A%?*"]),
    ("cmd: set in a block", "a.bat", "set A=1\r\nif exist b (\r\n set A=2\r\n)\r\nx %A%", ["%A%?*"]),
    ("cmd: typed in", "a.bat", "set /p A=which?\r\nx %A%", ["%A%?*"]),
    ("cmd: expanded late", "a.bat", "set A=1\r\nx !A!", ["!A!?*"]),
    ("cmd: behind a label", "a.bat", "set A=1\r\n:again\r\nx %A%\r\nset A=2\r\ngoto again\r\n", ["%A%?*"]),
]


def of_x(found: tuple[Command, ...]) -> list[str]:
    (words,) = [c.words[at + 1 :] for c in found for at, w in enumerate(c.words) if w.text == "x" and at in (0, 1)]
    return [word.text + ("" if word.known else "?*" if word.many else "?") for word in words]


@pytest.mark.parametrize(("path", "text", "words"), [case[1:] for case in WORDS], ids=[case[0] for case in WORDS])
def test_what_is_known(path: str, text: str, words: list[str]) -> None:
    assert of_x(commands(path, text, {})) == words


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.ps1", '$l = @("--a")\nx b\n$l | ForEach-Object { Write-Output $_ }\n'),
        ("a.sh", 'L=(--a)\nx b\n"${L[@]}"\n'),
        ("a.ps1", "x b\n. ./env.ps1\n.\\venv\\activate\n"),
        ("a.bat", 'if /i "%~0 " equ "%cmdcmdline:"=%" (\r\n  x b\r\n)\r\n'),
    ],
)
def test_what_stands_below_a_command_is_none_of_its_words(path: str, text: str) -> None:
    (command,) = [command for command in commands(path, text, {}) if command.words[0].text == "x"]
    assert [word.text for word in command.words] == ["x", "b"] and command.broken is None


def test_a_script_that_leaves_its_folder() -> None:
    first, _, second, third = commands("a.sh", "x\ncd /w\nx\n(cd b; true) || true\nx\n", {})[:4]
    assert [first.moved, second.moved, third.moved] == [False, True, True]
    assert not commands("a.sh", "(cd b && y)\nx\n", {})[-1].moved


def test_what_a_text_that_doubles_itself_costs() -> None:
    text = "A=aa\nL=(a)\n" + 'A=$A$A\nL=("${L[@]}" "${L[@]}")\n' * 200 + 'x $A "${L[@]}"'
    assert len(of_x(commands("a.sh", text, {}))) <= MOST_VALUES + 1


PIECES = [
    *("x ", "\nx ", " ", '"', "'", "$A", "${A}", '"$A"', "$(echo b)", "$(", ")", "(", "\n", ";", "&&", "||", "`"),
    *("if true; then ", "else ", "fi", "A=1", 'A="b c"', "B=$A", "#", "\\", "{ ", "; }", "<<E\n", "E\n", "[[ a ]]"),
    *("case a in a) ", ";; esac", "for i in 1 2; do ", "done", 'L=(a "b c")', "L+=(d)", '"${L[@]}"', "${A:-d}"),
    *("$((1+2))", "$'q'", "-", "=", "--a", "f() { ", "~", ">o", "2>&1", "|", "&", "export A=z", "unset A", "$"),
]
# what x is told, without a program or a file of this machine
TOLD = """\
x() { printf X; local a; for a; do printf '\\001%s' "$a"; done; printf '\\002'; }
set -f; unset A B; HOME=/h
"""


@pytest.mark.skipif(BASH is None, reason="no bash is here to be asked")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_what_bash_accepts_is_read_and_what_is_known_is_what_bash_makes_of_it(text: str) -> None:
    assert BASH is not None
    asked = subprocess.run([BASH, "-n"], input=text.encode(), capture_output=True)
    if asked.returncode or asked.stderr:
        return
    try:
        found = commands("a.sh", text, {"HOME": "/h"})
    except Unreadable as error:
        raise AssertionError(f"bash accepts it: {error}") from None
    ours = [command for command in found if command.words[0].text == "x" and not command.broken]
    if len(ours) != 1 or not all(word.known for word in ours[0].words):
        return
    environment = {"HOME": "/h", "PATH": "/nonexistent"}
    ran = subprocess.run(
        [BASH, "-c", TOLD + text.replace(">o", ">/dev/null")],
        capture_output=True,
        env=environment,
        stdin=subprocess.DEVNULL,
    )
    told = [part.partition("\2")[0].split("\1")[1:] for part in ran.stdout.decode(errors="replace").split("X")[1:]]
    assert told in ([], [[word.text for word in ours[0].words[1:]]]) or len(told) != 1
