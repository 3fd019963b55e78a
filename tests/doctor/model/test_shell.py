"""A path in a command is typed as the shell will take it."""

from __future__ import annotations

import random
import subprocess

import pytest

from zdoctor.doctor.model import Report
from zdoctor.doctor.model.shell import quoted, setting, shell_among, unsetting

PATHS = {
    "/a/b-c_1.x": "/a/b-c_1.x",
    "/a b/c": '"/a b/c"',
    "/a'b": '"/a\'b"',
    "/a;rm -rf ~": '"/a;rm -rf ~"',
    "a$(touch x)`b`!'": "'a$(touch x)`b`!'\\'''",
    'a"b': "'a\"b'",
    "-x.yaml": "./-x.yaml",
    "": '""',
    "a,b.yaml": '"a,b.yaml"',
    "配置.yaml": "配置.yaml",
}


@pytest.mark.parametrize("path", PATHS)
def test_paths_as_a_shell_takes_them(path: str) -> None:
    assert quoted(path) == PATHS[path]
    printed = subprocess.run(["sh", "-c", f"printf %s {quoted(path)}"], capture_output=True, check=True).stdout
    assert printed.decode() in (path, f"./{path}")


VARIABLES = {"a": "1", "ab": "2", "PATH": "C:\\x", "a b": "3", '"a"': "4"}
ODD = "ab &%^!()'$`;,=@~[]{}+\\/.-#"


def in_cmd(line: str) -> str:
    """What cmd makes of a line at its prompt: percent signs first, then carets and quotes."""
    at, expanded = 0, ""
    while at < len(line):
        stop = line.find("%", at + 1) if line[at] == "%" else -1
        name = line[at + 1 : stop].partition(":")[0] if stop > 0 else ""
        if name in VARIABLES:
            expanded, at = expanded + VARIABLES[name], stop + 1
        else:  # at the prompt the name of no variable stays as it is
            expanded, at = expanded + line[at], at + 1
    made, quoting, escaped = "", False, False
    for c in expanded:
        if c == "^" and not quoting and not escaped:
            escaped = True
            continue
        assert escaped or quoting or c not in "&|<>()", f"cmd obeys {c} in {line}"
        quoting ^= c == '"' and not escaped
        made, escaped = made + c, False
    return made


def arguments(line: str) -> list[str]:
    """The words of a command line as a Windows program gets them (CommandLineToArgvW)."""
    words, quoting, at = [""], False, 0
    while at < len(line):
        end = at
        while end < len(line) and line[end] == "\\":
            end += 1
        slashes = end - at
        if end < len(line) and line[end] == '"':
            words[-1] += "\\" * (slashes // 2)
            if slashes % 2:
                words[-1] += '"'
            else:
                quoting = not quoting
            at = end + 1
        elif slashes:
            words[-1], at = words[-1] + "\\" * slashes, end
        elif line[at] == " " and not quoting:
            words, at = [*words, ""], at + 1
        else:
            words[-1], at = words[-1] + line[at], at + 1
    return words


def odd_words(count: int) -> list[str]:
    chance = random.Random(7)
    made = ["".join(chance.choice(ODD) for _ in range(chance.randint(1, 12))) for _ in range(count)]
    return [*made, "C:\\a b\\", "C:\\100%\\%PATH%\\x", "%a%", "%a b%", "50%&x", "a!b^c"]


def test_any_path_arrives_from_cmds_prompt() -> None:
    for word in odd_words(4000):
        wanted = f"./{word}" if word.startswith("-") else word
        assert arguments(in_cmd(f"zdoctor {quoted(word, 'cmd')} --x")) == ["zdoctor", wanted, "--x"], word
    with pytest.raises(AssertionError, match="cmd obeys &"):
        in_cmd("zdoctor a&b")
    assert in_cmd("%PATH%") == "C:\\x" and in_cmd('"%a%"') == '"1"'  # which the words above are kept from


def test_a_report_shows_commands_for_its_shell() -> None:
    report = Report("C:\\a b\\%PATH%.yaml", None, shell="cmd")
    assert arguments(in_cmd(report.typed("fix"))) == ["zdoctor", "fix", report.config]
    words = ("accelerate", "launch", "train_network.py", "--network_weights", "C:\\a b\\%PATH%.safetensors")
    of_words = Report("made.sh", "sd-scripts", shell="cmd", words=words, options=(("machine", "me.json"),))
    typed = ["zdoctor", "check", "--machine", "me.json", "-v", "--", *words]
    assert arguments(in_cmd(of_words.typed("check", "-v"))) == typed
    assert of_words.typed("fix").startswith("zdoctor fix made.sh")


def test_any_value_is_set_at_cmds_prompt() -> None:
    for value in odd_words(4000):
        line = setting([("X", value)], "cmd")
        if line.startswith("("):
            line = line.removeprefix("(").removesuffix(")")
            assert in_cmd(line) == f"set X={value}"
        else:
            assert in_cmd(line) == f'set "X={value}"'


def test_any_path_arrives_from_sh() -> None:
    for word in odd_words(60):
        printed = subprocess.run(
            ["sh", "-c", f"printf %s {quoted(word, 'sh')}"], capture_output=True, check=True
        ).stdout
        assert printed.decode() == (f"./{word}" if word.startswith("-") else word)


@pytest.mark.parametrize(
    ("word", "typed"),
    [
        ("C:\\a b", '"C:\\a b"'),
        ("C:\\$x", "'C:\\$x'"),
        ("it's $5", "'it''s $5'"),
        ("a\u201db", "'a\u201db'"),
        ("100%", "100%"),
    ],
)
def test_paths_as_powershell_takes_them(word: str, typed: str) -> None:
    assert quoted(word, "powershell") == typed


def test_a_windows_path_is_quoted_as_cmd_and_powershell_take_it() -> None:
    assert quoted("C:\\a b") == '"C:\\a b"'


def test_variables_as_a_shell_takes_them() -> None:
    variables = [("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), ("CUDA_VISIBLE_DEVICES", "1,0")]
    script = f'{setting(variables, "sh")}; printf "%s %s" "$CUDA_DEVICE_ORDER" "$CUDA_VISIBLE_DEVICES"'
    assert subprocess.run(["sh", "-c", script], capture_output=True, check=True).stdout == b"PCI_BUS_ID 1,0"
    expected = '$env:CUDA_DEVICE_ORDER = "PCI_BUS_ID"; $env:CUDA_VISIBLE_DEVICES = "1,0"'
    assert setting(variables, "powershell") == expected
    in_cmd = 'set "CUDA_DEVICE_ORDER=PCI_BUS_ID" & set "CUDA_VISIBLE_DEVICES=1,0"'
    assert setting(variables, "cmd") == in_cmd
    words = ["unset RANK", "Remove-Item Env:RANK", "set RANK="]
    assert [unsetting("RANK", shell) for shell in ("sh", "powershell", "cmd")] == words


@pytest.mark.parametrize(
    ("programs", "shell"),
    [
        (["zdoctor.exe", "cmd.exe", "explorer.exe"], "cmd"),
        (["pwsh.exe", "WindowsTerminal.exe"], "powershell"),
        (["python.exe", "POWERSHELL.EXE", "cmd.exe"], "powershell"),
        (["bash.exe", "cmd.exe"], "sh"),
        (["Code.exe", "explorer.exe"], None),
    ],
)
def test_the_shell_is_the_nearest_that_started_us(programs: list[str], shell: str | None) -> None:
    assert shell_among(programs) == shell
