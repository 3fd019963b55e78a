"""A path in a command is typed as the shell will take it."""

from __future__ import annotations

import subprocess

import pytest

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
