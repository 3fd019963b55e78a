"""Commands in scripts of three shells: the words as the shell makes them, each with its place."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zdoctor.doctor.configs.command import Command
from zdoctor.doctor.configs.command_line import commands, shell_of
from zdoctor.doctor.configs.node import Unreadable

WORDS = [
    ("plain", "a.sh", "python train_network.py --a 1\n", ["python", "train_network.py", "--a", "1"]),
    ("continued", "a.sh", "x \\\n  --a 1 \\\n  --b\n", ["x", "--a", "1", "--b"]),
    ("continued, crlf", "a.sh", "x \\\r\n  --a 1\r\n", ["x", "--a", "1"]),
    ("quotes", "a.sh", 'x \'/a b\' "c d" e\\ f --g="h i"', ["x", "/a b", "c d", "e f", "--g=h i"]),
    ("a comment behind", "a.sh", "x --a 1 # the rate", ["x", "--a", "1"]),
    ("an inner hash", "a.sh", "x a#b", ["x", "a#b"]),
    ("a log", "a.sh", "x --a 1 > log.txt 2>&1", ["x", "--a", "1"]),
    ("a pipe", "a.sh", "x --a 1 | tee log", ["x", "--a", "1"]),
    ("a variable of its own", "a.sh", "M=/m\nx $M/a ${M}/b", ["x", "/m/a", "/m/b"]),
    ("one exported", "a.sh", 'export M="/m n"\nx "$M/a"', ["x", "/m n/a"]),
    ("one of the environment", "a.sh", "x $HOME/a", ["x", "/home/me/a"]),
    ("home, unless it is quoted", "a.sh", "x ~/a '~/b' c=~/d", ["x", "/home/me/a", "~/b", "c=~/d"]),
    ("one that nobody sets", "a.sh", "x $NOWHERE/a", ["x", "$NOWHERE/a"]),
    ("a variable of several words", "a.sh", 'E="--a 1"\nx $E', ["x", "--a", "1"]),
    ("a list", "a.sh", 'L=(--a 1 # one\n  "b c")\nx "${L[@]}"', ["x", "--a", "1", "b c"]),
    ("single quotes keep it", "a.sh", "x '$HOME'", ["x", "$HOME"]),
    ("a windows path in bash", "a.txt", "x --a C:\\m\\f.safetensors", ["x", "--a", "C:\\m\\f.safetensors"]),
    ("cmd", "a.bat", "set M=C:\\m\r\nx ^\r\n --a=%M%\\f ^\r\n --b\r\n", ["x", "--a=C:\\m\\f", "--b"]),
    ("cmd remarks", "a.bat", "rem x --no\r\n:: x --no\r\nx --a\r\n", ["x", "--a"]),
    ("cmd's single quote is a letter", "a.bat", "x --a 'b", ["x", "--a", "'b"]),
    (
        "powershell",
        "a.ps1",
        "$m = \"D:\\m\"\nx `\n --a=\"$m\\f g\" `\n --b 'it''s'",
        ["x", "--a=D:\\m\\f g", "--b", "it's"],
    ),
    ("powershell without blanks", "a.ps1", '$p="bf16"\n[int]$n=5\nx --p=$p --n $n', ["x", "--p=bf16", "--n", "5"]),
    ("powershell, set twice", "a.ps1", '$p = "a"\n[string]$p = "b=c"\n[string]$p="d e"\nx "$p"', ["x", "d e"]),
    ("what powershell adds up", "a.ps1", '$p = $a + "b"\nx "$p"', ["x", "$p"]),
    ("what powershell computes", "a.ps1", '$p="a"\n$p = Join-Path $a -ChildPath "b"\nx "$p"', ["x", "$p"]),
    ("a bracket in powershell", "a.ps1", "$p = (Get-Date).Year\nx $p", ["x", "$p"]),
    ("powershell's list", "a.ps1", '$l = @("--a", "b")\n& x @l', ["x", "--a", "b"]),
    ("powershell's environment", "a.ps1", "x $env:HOME", ["x", "/home/me"]),
    ("a byte-order mark", "a.sh", "\ufeffx --a", ["x", "--a"]),
    ("a note without any continuation", "a.txt", "x --a 1\n  --b 2\n--c\n", ["x", "--a", "1", "--b", "2", "--c"]),
    ("nothing", "a.sh", "# only this\n", []),
    ("an escape at the end", "a.ps1", "x `", ["x", ""]),
]


def last(path: str, text: str) -> Command | None:
    found = commands(path, text, {"HOME": "/home/me"})
    return (
        found[-1] if path.endswith("ps1") or "M=" in text or "L=" in text or "E=" in text else next(iter(found), None)
    )


@pytest.mark.parametrize(("path", "text", "words"), [case[1:] for case in WORDS], ids=[case[0] for case in WORDS])
def test_words(path: str, text: str, words: list[str]) -> None:
    command = last(path, text)
    assert [word.text for word in command.words] == words if command is not None else not words


def test_a_word_knows_its_place_and_its_quote() -> None:
    text = 'x --a "b c" d"e"'
    (command,) = commands("a.sh", text, {})
    spans = [(text[word.start : word.end], word.style) for word in command.words]
    assert spans == [("x", ""), ("--a", ""), ('"b c"', '"'), ('d"e"', "")]


@pytest.mark.parametrize(
    ("path", "text", "lost"),
    [
        ("a.sh", "x --a 1 \\ \n --b 2\n", "--b"),
        ("a.sh", "x --a 1\n  --b 2 \\\n --c\n", "--b"),
        ("a.bat", "x --a 1 ^ \r\n --b 2\r\n", "--b"),
        ("a.ps1", "x --a 1 ` \n --b 2\n", "--b"),
        ("a.sh", "x --a 1 \\\n # why\n --b 2\n", "--b"),
    ],
    ids=["blank behind", "none", "cmd", "powershell", "comment between"],
)
def test_a_line_that_does_not_go_on(path: str, text: str, lost: str) -> None:
    (command,) = commands(path, text, {})
    assert command.broken is not None and lost in text[command.broken :]
    assert lost not in [word.text for word in command.words]


@pytest.mark.parametrize("text", ["x 'a\n--b", 'x "a\n'])
def test_a_quote_that_is_never_closed(text: str) -> None:
    with pytest.raises(Unreadable) as caught:
        commands("a.sh", text, {})
    assert caught.value.offset == 2


@pytest.mark.parametrize(
    ("path", "text", "shell"),
    [
        ("a.txt", "x `\n y", "powershell"),
        ("a.txt", "x ^\r\n y", "cmd"),
        ("a", "x", "bash"),
        ("a.sh", "x ^\n", "bash"),
    ],
)
def test_the_shell(path: str, text: str, shell: str) -> None:
    assert shell_of(path, text) == shell


@example("`", "ps1")
@given(
    st.text(alphabet=st.sampled_from("ab -=\"'\\`^$%{}()@[]#~|;&<>,\r\n\t1é"), max_size=60),
    st.sampled_from(["sh", "ps1", "bat"]),
)
def test_any_text_ends_and_keeps_its_places(text: str, ending: str) -> None:
    try:
        found = commands(f"a.{ending}", text, {"a": "b c"})
    except Unreadable as error:
        assert 0 <= error.offset < len(text)
        return
    for command in found:
        assert command.words
        for word in command.words:
            assert 0 <= word.start <= word.end <= len(text)
