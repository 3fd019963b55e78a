"""`zdoctor run`: the program's output is its own, its end is explained, and a repair is never made twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from PIL import Image

from zdoctor.doctor.commands.child_process import Ended, asked_to_stop
from zdoctor.doctor.commands.run import _explained
from zdoctor.doctor.commands.stream import _in_pipes, as_a_shell_finds, as_in_a_console
from zdoctor.doctor.commands.told import config_in
from zdoctor.tests.configs_on_disk import write_config

posix = pytest.mark.skipif(os.name != "posix", reason="terminals and signals as POSIX has them")
ZDOCTOR = [sys.executable, "-m", "zdoctor", "run"]
BAD = 'training_folder: "C:\\out\\new"'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    Image.new("RGB", (64, 64)).save(tmp_path / "data/one.png")
    return write_config(tmp_path)


def program(folder: Path, text: str) -> Path:
    file = folder / "trainer.py"
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    return file


def start(*words: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*ZDOCTOR, *map(str, words)], capture_output=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


def said(done: subprocess.CompletedProcess[bytes]) -> str:
    return done.stderr.decode()


def test_output_and_exit_code_are_the_programs_own(tmp_path: Path, own_state_folder: Path) -> None:
    file = program(
        tmp_path,
        r"""
        import sys
        sys.stdout.buffer.write(bytes(range(256)) * 3000)
        sys.stdout.flush()
        sys.stderr.write("only here\n")
        sys.exit(7)
        """,
    )
    done = start("--", sys.executable, file)
    assert done.returncode == 7
    assert done.stdout == bytes(range(256)) * 3000
    assert "only here\n" in said(done) and "ended with exit code 7" in said(done)
    (log,) = (own_state_folder / "logs").iterdir()
    assert log.read_bytes().replace(b"only here\n", b"") == bytes(range(256)) * 3000
    assert (log.parent.stat().st_mode | log.stat().st_mode) & 0o077 == 0 or os.name != "posix"


def test_a_token_that_is_printed_is_not_kept(tmp_path: Path, own_state_folder: Path) -> None:
    file = program(tmp_path, "print('token=hf_abcdefghijklmnop', 'wandb 0123456789abcdef')")
    done = start("--", sys.executable, file, env={**os.environ, "WANDB_API_KEY": "0123456789abcdef"})
    assert done.stdout == b"token=hf_abcdefghijklmnop wandb 0123456789abcdef\n"
    (log,) = (own_state_folder / "logs").iterdir()
    assert log.read_text() == "token=hf_*** wandb ***\n"


def test_standard_input_is_the_programs(tmp_path: Path) -> None:
    file = program(tmp_path, "print(input().upper())")
    assert start("--", sys.executable, file, input=b"yes\n").stdout == b"YES\n"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ([], 2, "no command was named"),
        (["--"], 2, "no command was named"),
        (["--", "no-such-program", "x"], 127, "no-such-program: there is no such program"),
        (["--", "/"], 126, "cannot be started"),
    ],
)
def test_commands_that_cannot_start(words: list[str], code: int, text: str) -> None:
    done = start(*words)
    assert done.returncode == code and text in said(done) and "Traceback" not in said(done)


def test_a_crash_is_explained(tmp_path: Path) -> None:
    file = program(tmp_path, "raise NotImplementedError('Cannot copy out of meta tensor; no data!')")
    done = start("--", sys.executable, file)
    assert done.returncode == 1
    assert "Tensors that the model needs are missing" in said(done) and "MDL001" in said(done)


@posix
def test_a_killed_program_is_explained(tmp_path: Path) -> None:
    file = program(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    done = start("--", sys.executable, file)
    assert done.returncode == 137
    assert "MEM002" in said(done) and "ran out of RAM" in " ".join(said(done).split())


@posix
def test_nothing_is_left_open() -> None:
    strict = [sys.executable, "-X", "dev", "-W", "error", "-m", "zdoctor", "run", "--", "true"]
    done = subprocess.run(strict, capture_output=True, check=True)
    assert b"Warning" not in done.stderr


def test_output_in_the_middle_of_a_traceback_hides_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Two pipes are read side by side: what was printed before may come between two lines of an error."""
    last = b"NotImplementedError: Cannot copy out of meta tensor; no data!\n"
    errors = b'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    load()\n' + last
    assert _explained(Ended(1, errors.replace(last, b"step 3 of 10\n" + last), False, errors), None)
    assert "MDL001" in capsys.readouterr().err


def test_a_run_that_ends_well_and_trained_nothing_is_told(tmp_path: Path) -> None:
    done = start("--", sys.executable, program(tmp_path, "print('No data found. Please verify arguments')"))
    assert done.returncode == 0
    assert "KOH004 no-training-pictures" in said(done)
    done = start("--", sys.executable, program(tmp_path, "print('Killed time. loss: 0.1')"))
    assert done.returncode == 0 and "something to look at" not in said(done)


def test_what_would_fail_is_not_started(config: Path) -> None:
    config.write_text(config.read_text().replace("training_folder: ", BAD + " # "), encoding="utf-8")
    file = program(config.parent, "print('started')")
    done = start("--", sys.executable, file, config)
    assert done.returncode == 1 and done.stdout == b""
    assert "PTH002" in said(done) and "not started" in said(done)


def test_with_heal_it_is_repaired_and_started(config: Path) -> None:
    config.write_text(config.read_text().replace("training_folder: ", BAD + " # "), encoding="utf-8")
    file = program(config.parent, "import sys, yaml; yaml.safe_load(open(sys.argv[1])); print('trained')")
    done = start("--heal", "--", sys.executable, file, config)
    assert done.returncode == 0 and done.stdout.split() == [b"trained"]
    assert "repaired: write the path as" in said(done) and "zdoctor undo" in said(done)


def test_a_crash_is_healed_and_the_command_started_again(config: Path) -> None:
    """The program breaks its config once; the rule that knows the crash repairs it."""
    file = program(
        config.parent,
        f"""
        import pathlib, sys, yaml
        config, mark = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[1] + ".mark")
        if not mark.exists():
            mark.touch()
            config.write_text(config.read_text().replace("training_folder: ", {BAD!r} + " # "))
        yaml.safe_load(config.read_text())
        print("trained")
        """,
    )
    done = start("--heal", "--", sys.executable, file, config)
    assert done.returncode == 0 and done.stdout.split() == [b"trained"], said(done)
    assert "starting again (1 of at most 3 times)" in said(done)


def test_the_same_repair_is_not_made_twice(config: Path) -> None:
    file = program(
        config.parent,
        f"""
        import pathlib, sys, yaml
        print("start")
        config = pathlib.Path(sys.argv[1])
        text = config.read_text()
        if {BAD!r} not in text:
            lines = [x if "training_folder" not in x else "      " + {BAD!r} for x in text.splitlines()]
            config.write_text("\\n".join(lines) + "\\n")
        yaml.safe_load(config.read_text())
        """,
    )
    done = start("--heal", "--", sys.executable, file, config)
    assert done.returncode == 1
    assert done.stdout.count(b"start") == 2
    assert "nothing more that is safe to repair" in said(done)


def test_without_heal_the_repair_is_offered(config: Path) -> None:
    file = program(
        config.parent,
        f"""
        import pathlib, sys, yaml
        config = pathlib.Path(sys.argv[1])
        config.write_text(config.read_text().replace("training_folder: ", {BAD!r} + " # "))
        yaml.safe_load(config.read_text())
        """,
    )
    done = start("--", sys.executable, file, config)
    assert done.returncode == 1 and f"zdoctor fix {config} shows the repair" in said(done)
    assert BAD in config.read_text()


def test_the_config_among_the_words(config: Path, tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text("num_processes: 2\n")
    other = str(tmp_path / "accelerate.yaml")
    assert config_in(["python", "run.py", other, str(config)]) == str(config)
    assert config_in(["accelerate", f"--config={config}"]) == str(config)
    assert config_in(["python", "run.py", other, str(tmp_path / "gone.yaml"), "\0.yaml"]) is None
    broken = tmp_path / "broken.yaml"
    broken.write_text("job: extension\nconfig:\n  name: [\n")
    assert config_in(["python", "run.py", str(broken)]) == str(broken)


@posix
def test_sigterm_reaches_the_program(tmp_path: Path) -> None:
    file = program(
        tmp_path,
        """
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        print("ready", flush=True)
        signal.sigwait({signal.SIGTERM})
        print("saved", flush=True)
        """,
    )
    child = subprocess.Popen(
        [*ZDOCTOR, "--", sys.executable, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGTERM)
    out, error = child.communicate(timeout=60)
    assert out == b"saved\n" and child.returncode == 130
    assert b"the command was stopped" in error


@posix
def test_in_a_terminal_the_program_has_one_too(tmp_path: Path) -> None:
    """Size, colours and questions are as they are without zdoctor; Ctrl-C is the program's."""
    import fcntl
    import pty
    import struct
    import termios

    file = program(
        tmp_path,
        """
        import os, signal, sys
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # it may come before it is waited for
        print(sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(), flush=True)
        print("said", input("what? "), flush=True)
        signal.sigwait({signal.SIGINT})
        print("saved", flush=True)
        sys.exit(130)
        """,
    )
    pid, screen = pty.fork()
    if pid == 0:
        os.execv(ZDOCTOR[0], [*ZDOCTOR, "--", sys.executable, str(file)])
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    seen = b""

    def until(words: bytes) -> None:
        nonlocal seen
        while words not in seen:
            try:
                seen += os.read(screen, 4096)
            except OSError:
                raise AssertionError(seen.decode()) from None

    until(b"what? ")
    assert b"True True True os.terminal_size(columns=77, lines=33)" in seen
    os.write(screen, b"nothing\r")
    until(b"said nothing")
    os.write(screen, b"\x03")
    until(b"saved")
    until(b"kept in")
    while True:
        try:
            if not os.read(screen, 4096):
                break
        except OSError:
            break
    status = os.waitpid(pid, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 130


def test_through_a_pipe_python_writes_what_a_console_of_windows_takes() -> None:
    """Without UTF-8 a snowman ends the trainer, which in the console itself would have shown it."""
    code_page = {**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    words = [sys.executable, "-c", "print(chr(0x2603))"]
    plain = {name: value for name, value in code_page.items() if name != "PYTHONIOENCODING"}
    assert b"UnicodeEncodeError" in _in_pipes(words, plain).errors
    assert _in_pipes(words, as_in_a_console(plain)).tail.strip() == "\u2603".encode()
    assert as_in_a_console({"PYTHONIOENCODING": "gbk"})["PYTHONIOENCODING"] == "gbk"


def test_programs_are_those_that_a_shell_would_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / Path(sys.executable).name
    shutil.copy(sys.executable, mine)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert as_a_shell_finds([mine.name, "run.py"]) == [str(mine), "run.py"]
    assert as_a_shell_finds(["no-such-program"]) == ["no-such-program"]


@posix
def test_under_nohup_a_closed_terminal_does_not_stop_the_program() -> None:
    for inherited, stops in ((signal.SIG_IGN, False), (signal.SIG_DFL, True)):
        before = signal.signal(signal.SIGHUP, inherited)
        try:
            with asked_to_stop() as asked:
                signal.raise_signal(signal.SIGHUP)
            assert (asked.number is not None) is stops
        finally:
            signal.signal(signal.SIGHUP, before)
