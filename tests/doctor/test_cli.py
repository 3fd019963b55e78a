"""The command line as a user meets it: exit codes, one clear line for a mistake, never a traceback."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zdoctor import __version__
from zdoctor.doctor.cli import main
from zdoctor.doctor.commands import console
from zdoctor.tests.machines import load

ROOT = Path(__file__).parents[2]
KAGGLE = ["examples/kaggle_zimage.yaml", "--machine", "examples/kaggle_t4x2.json"]


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def run(*words: str) -> int:
    try:
        return main(words)
    except SystemExit as stop:
        return int(stop.code or 0)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["check", "examples/nothing.yaml"], 2, "there is no such file"),
        (["check", "examples/kaggle_zimge.yaml"], 2, "Did you mean examples/kaggle_zimage.yaml?"),
        (["check", "docs"], 2, "docs holds no config that zdoctor knows"),
        (["check", "exampels/*.yaml"], 2, "exampels/*.yaml fits no file"),
        (["fix", "examples"], 2, "is a folder"),
        (["check", "/dev/null"], 2, "not a regular file"),
        (["check", "--select", "PTH999", *KAGGLE], 2, "there is no rule 'PTH999'"),
        (["check", "--select", "read-only-pth", *KAGGLE], 2, "Did you mean read-only-path?"),
        (["check", "--machine", "README.md", "examples/kaggle_zimage.yaml"], 2, "is no machine file"),
        (["check", "--machine", "no.json", "examples/kaggle_zimage.yaml"], 2, "there is no such file"),
        (["check", "--machine", "py.typed", "examples/kaggle_zimage.yaml"], 2, "is no machine file: it is empty"),
        (["run", "examples/kaggle_zimage.yaml"], 2, "is a config, not a command"),
        (["schema", "musubi-tunr"], 2, "Did you mean musubi-tuner?"),
        (["check", "--formt", "json"], 2, "unrecognized arguments: --formt\n  Did you mean --format?"),
        (["train", "a.yaml", "--max-minuts=30"], 2, "Did you mean --max-minutes?"),
        (["check", "--nonsense"], 2, "zdoctor check --help shows every option."),
        (["check", "--format", "jso", *KAGGLE], 2, "Did you mean json?"),
        (["check", "--trainer", "aitoolkit", *KAGGLE], 2, "Did you mean ai-toolkit?"),
        (["chekc"], 2, "Did you mean check?"),
        (["xyz"], 2, "zdoctor --help shows every command."),
        (["examples/kaggle_zimage.yaml"], 2, "\n  zdoctor check examples/kaggle_zimage.yaml"),
        (["help", "chek"], 2, "Did you mean check?"),
        (["fix", "--apply", *KAGGLE], 2, "can be looked at, not repaired"),
        (["explain", "XYZ001"], 2, "there is no rule"),
        (["explain", "pth03"], 2, "Did you mean PTH003?"),
        (["explain", "examples/kaggle_zimage.yaml"], 2, "is a config, not a log.\n  zdoctor check examples/kagg"),
        (["explain", "training"], 2, "and no such file"),
        (["explain", "examples"], 2, "examples is a folder, not a log"),
        (["explain", "py.typed"], 2, "py.typed is empty"),
        (["schema", "ai-toolkit", "examples/nothing"], 2, "there is no such folder"),
        (["check", "--trainer-source", "examples/nothing", *KAGGLE], 2, "there is no such folder"),
        (["undo", "nothing"], 2, ""),
        (["check", "--", "make", "all"], 2, "neither what the command starts nor a config that it names"),
        (["check", "a.yaml", "--", "python", "run.py"], 2, "a.yaml and a command were named"),
    ],
)
def test_a_mistake_is_one_clear_line(
    words: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == code
    error = capsys.readouterr().err
    assert says in error and "Traceback" not in error
    assert error.startswith("zdoctor: ")


@pytest.mark.parametrize(
    "words, code, says",
    [
        ([], 2, "check, and train when everything is green"),
        (["help"], 0, "check, and train when everything is green"),
        (["help", "check"], 0, "--select IDS"),
        (["-V"], 0, f"zdoctor {__version__}\n"),
    ],
)
def test_who_asks_what_there_is_is_told(
    words: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == code
    said = capsys.readouterr()
    assert says in said.out and not said.err


def test_only_a_name_that_is_near_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("bin.yaml", "lora.yaml"):
        (tmp_path / name).touch()
    for typed, hint in (
        ("nofile.yaml", f"Looked in {tmp_path}."),
        ("loar.yml", f"Did you mean {tmp_path}/lora.yaml?"),
    ):
        assert run("check", str(tmp_path / typed)) == 2
        assert hint in capsys.readouterr().err


def test_check_says_the_same_in_both_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", *KAGGLE, "-v") == 1
    text = capsys.readouterr().out
    assert run("check", *KAGGLE, "--format", "json") == 1
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "zdoctor.report/1" and data["trainer"] == "ai-toolkit"
    for finding in data["findings"]:
        assert f"{finding['rule']} {finding['name']}" in text


def seed_config() -> str:
    """The config that users share, out of the document it circulates in; skips where the document is not at hand."""
    for document in sorted((ROOT.parent / "shared" / "seeds").glob("000*.txt")):
        return document.read_text(encoding="utf-8").split('config_yaml = r"""', 1)[1].split('"""', 1)[0]
    pytest.skip("the users' documents are not beside this checkout")


@pytest.mark.parametrize("source", ["the example", "the users' own"])
def test_what_the_kaggle_config_must_hear(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = KAGGLE[0]
    if source != "the example":
        config = str(tmp_path / "config.yaml")
        Path(config).write_text(seed_config(), encoding="utf-8")
    assert run("check", config, *KAGGLE[1:], "--format", "json") == 1
    data = json.loads(capsys.readouterr().out)
    said = [(f["rule"], f["severity"], f["message"]) for f in data["findings"]]

    def heard(severity: str, *words: str) -> bool:
        return any(s == severity and all(word in m for word in words) for _, s, m in said)

    assert heard("error", ".aitk_size.json", "_t_e_cache")
    assert heard("warning", "model_kwargs")
    assert heard("warning", "do_differential_guidance")
    assert heard("note", "low_vram", "meta")
    assert heard("note", "qfloat8", "float8")
    inert = ("device", "sqlite_db_path", "bypass_guidance_embedding", "switch_boundary_every", "lokr_factor", "conv")
    assert heard("note", *inert, "num_frames", "shrink_video")
    assert heard("note", "latent")
    assert heard("warning", "bf16")
    for part in ("transformer", "text_encoder", "vae"):
        assert heard("error", part)
    assert data["outputs"] == ["/kaggle/working/testarossa_lora/testarossa_zimage_lora"]
    read_only = next(f for f in data["findings"] if f["rule"] == "PTH001")
    assert [(fix["safety"], "mirror" in fix["title"]) for fix in read_only["fixes"]] == [("safe", True)]


def test_its_healthy_twin_hears_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same config where the model is whole and the images lie in a writable folder."""
    text = (ROOT / KAGGLE[0]).read_text(encoding="utf-8")
    text = text.replace("/kaggle/input/testarossa-dataset/testarossa-dataset", "/kaggle/working/testarossa-dataset")
    text = text.replace("/kaggle/working/Z-Image-Turbo-HF", "/kaggle/input/z-image-turbo/Z-Image-Turbo")
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "machine.json").write_text(json.dumps(load("kaggle_healthy")), encoding="utf-8")
    run("check", str(tmp_path / "config.yaml"), "--machine", str(tmp_path / "machine.json"), "--format", "json")
    data = json.loads(capsys.readouterr().out)
    assert [f["message"] for f in data["findings"] if f["severity"] == "error"] == []
    assert data["ok"]


def test_select_and_ignore(capsys: pytest.CaptureFixture[str]) -> None:
    run("check", *KAGGLE, "--format", "json", "--select", "PTH")
    rules = {f["rule"] for f in json.loads(capsys.readouterr().out)["findings"]}
    assert rules == {"PTH001"}
    assert run("check", *KAGGLE, "--select", "PTH", "--ignore", "read-only-path") == 0


def test_the_config_is_remembered_and_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run("check")
    assert "the environment alone" in capsys.readouterr().out
    shutil.copy(ROOT / KAGGLE[0], tmp_path / "a.yaml")
    machine = ["--machine", str(ROOT / KAGGLE[2])]
    assert run("check", *machine) == 1  # the only config here
    shutil.copy(ROOT / KAGGLE[0], tmp_path / "b.yaml")
    assert run("check", *machine) == 1  # the one it was last checked with
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.yaml", "b.yaml"]


def test_the_words_of_a_command_are_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `run -- COMMAND` reads them; the config that was last checked stays the one."""
    monkeypatch.chdir(tmp_path)
    start = ["accelerate", "launch", "flux_train_network.py", "--output_dir", "o", "--save_every_n_epochs"]
    assert run("check", "--select", "KOH015", "--", *start) == 1
    assert "save_every_n_epochs takes a value" in capsys.readouterr().out
    assert run("check", "--select", "KOH015", "--", *start, "2") == 0
    shutil.copy(ROOT / KAGGLE[0], tmp_path / "a.yaml")
    assert run("check", "--select", "CFG001", "--", "python", "run.py", "a.yaml") == 0
    assert "a.yaml, which the command names, is looked at" in capsys.readouterr().err
    assert run("check", "--select", "CFG001", "--", "a.yaml") == 0


def test_every_rule_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("rules") == 0
    ids = re.findall(r"^([A-Z]{3}\d{3}) ", capsys.readouterr().out, re.M)
    assert len(ids) > 15
    for id in ids:
        assert run("explain", id) == 0
        said = capsys.readouterr().out
        assert "\n\nWhat: " in said and all(len(line) <= 100 for line in said.splitlines() if "://" not in line)


def test_facts_are_a_machine_file_without_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "me.json"
    assert run("facts", KAGGLE[0], "-o", str(file)) == 0
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["schema"] == "zdoctor.machine/1"
    if str(Path.home()) != "/":
        assert f'"{Path.home()}' not in file.read_text(encoding="utf-8")
    run("check", KAGGLE[0], "--machine", str(file))
    assert "machine file" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["SimpleTuner", "simpletuner", "AI-Toolkit", "musubi", "musubi-tuner"])
def test_a_trainer_goes_by_the_same_names_everywhere(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "c.json"
    empty.write_text("{}", encoding="utf-8")
    assert run("check", str(empty), "--trainer", name) in (0, 1)
    assert run("schema", name) == 0
    assert capsys.readouterr().err == ""


def test_a_report_goes_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    assert run("check", *KAGGLE, "-o", str(file)) == 1
    assert "PTH001" in file.read_text(encoding="utf-8")
    assert run("check", *KAGGLE, "-o", str(tmp_path / "no" / "folder.txt")) == 2


@pytest.mark.parametrize("command", ["check", "facts"])
def test_a_report_never_replaces_the_config(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the one name on the command line was taken for that of the report."""
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "config.yaml"
    shutil.copy(ROOT / "tests/configs/server_healthy.yaml", config)
    before = config.read_bytes()
    run("check", "config.yaml")
    assert run(command, "-o", "./config.yaml", *(["config.yaml"] if command == "facts" else [])) == 2
    assert config.read_bytes() == before and "would replace it" in capsys.readouterr().err


def test_our_own_bug_ends_in_a_report_to_paste(
    monkeypatch: pytest.MonkeyPatch, own_state_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"in {Path.home()}/secret with hf_abcdefghijklmnop")

    monkeypatch.setattr("zdoctor.doctor.commands.check.examined", broken)
    assert run("check", *KAGGLE) == 4
    error = capsys.readouterr().err
    assert "our bug" in error and "Traceback" not in error
    text = (own_state_folder / "zdoctor-crash.md").read_text(encoding="utf-8")
    assert "RuntimeError" in text and "hf_abcdef" not in text + error
    assert len(str(Path.home())) < 2 or str(Path.home()) not in text


def test_checking_changes_nothing(tmp_path: Path) -> None:
    """`check` and `fix` without --apply leave the config's folder, the home folder and the cache as they were."""
    home = tmp_path / "home"
    (home / "hf" / "hub").mkdir(parents=True)
    shutil.copy(ROOT / "tests/configs/wsl_hub.yaml", home / "config.yaml")
    environment = {**os.environ, "HOME": str(home), "HF_HOME": str(home / "hf"), "ZDOCTOR_STATE": str(tmp_path / "s")}

    def state() -> dict[str, tuple[int, int, bytes | None]]:
        found = {}
        for path in [home, *sorted(home.rglob("*"))]:
            info = path.lstat()
            found[str(path)] = (info.st_mode, info.st_mtime_ns, path.read_bytes() if path.is_file() else None)
        return found

    before = state()
    for words in (["check", "config.yaml"], ["fix", "config.yaml"], ["check"], ["facts"], ["rules"]):
        done = subprocess.run(
            [sys.executable, "-m", "zdoctor", *words], cwd=home, env=environment, capture_output=True, text=True
        )
        assert done.returncode in (0, 1), done.stderr
    assert state() == before


def test_simpletuners_own_place_and_whose_config_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZDOCTOR_STATE", str(tmp_path / "state"))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.toml").write_text('model_family = "z-image"\n')
    assert run("check", "--select", "CFG") == 1
    assert "z_image" in capsys.readouterr().out
    (tmp_path / "bare.json").write_text('{"learning_rte": 1}')
    assert run("check", "bare.json", "--select", "CFG") == 3
    assert "CFG001" in capsys.readouterr().out
    assert run("check", "bare.json", "--select", "CFG", "--trainer", "SimpleTuner") == 1
    assert "Did you mean learning_rate?" in capsys.readouterr().out
    assert run("check", "bare.json", "--trainer", "nobody") == 2


def typed(text: str, start: str) -> list[str]:
    """The words of the first command in a report that begins so."""
    line = next(line for line in text.splitlines() if line.strip().startswith(start))
    return shlex.split(line.strip().removeprefix(start).split("   ")[0])


@pytest.mark.parametrize("name", ["with space.yaml", "$(touch x) 'quote'.yaml", "-dash.yaml"])
def test_what_to_type_next_can_be_typed(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command leads to the next, for any name of the file and with what was asked for the first time."""
    machine = str(ROOT / "examples/kaggle_t4x2.json")
    (tmp_path / name).write_bytes((ROOT / "examples/kaggle_zimage.yaml").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert run("check", "--machine", machine, "--trainer", "ai-toolkit", "--", name) == 1
    command = typed(capsys.readouterr().out, "next: zdoctor ")
    assert Path(command[1]) == Path(name) and command[2:] == ["--machine", machine, "--trainer", "ai-toolkit"]
    assert run(*command) == 1
    shown = capsys.readouterr().out
    assert shown.rstrip().endswith("--trainer ai-toolkit --apply   on that machine")
    decision = typed(shown, "$ zdoctor fix")
    assert decision[-6:] == ["--select", "TRN001", "--allow", "asked", "--allow", "result"]
    assert run("fix", *decision) == 0
    assert "cache_latents_to_disk: true" in capsys.readouterr().out


def test_training_is_offered_only_when_every_rule_was_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests/configs/server_healthy.yaml", "c.yaml")
    machine = tmp_path / "machine.json"
    machine.write_text(json.dumps(load("healthy")), encoding="utf-8")
    for words, offered in ([], True), (["--select", "CFG002"], False), (["--ignore", "PTH"], False):
        assert run("check", "c.yaml", "--machine", str(machine), *words) == 0
        assert ("next: zdoctor train" in capsys.readouterr().out) is offered


def test_a_narrow_terminal_gets_short_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a line of progress would break, and be written again below itself each time."""
    monkeypatch.setenv("COLUMNS", "40")
    assert console.width() == 40
    assert run("check", *KAGGLE, "--select", "PTH001") == 1
    said = capsys.readouterr().out.split("folder_path\n")[1].split("\n\n")[0]
    assert said and all(len(line) <= 44 or " " not in line.strip() for line in said.splitlines())


def test_a_decision_can_be_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What zdoctor leaves to its user comes with the command that takes the decision."""
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "my config.yaml"
    healthy = (ROOT / "tests/configs/server_healthy.yaml").read_text(encoding="utf-8")
    config.write_text(healthy.replace("      network:", "      netwrok:"), encoding="utf-8")
    words = ["--select", "CFG002"]
    assert run("check", config.name, *words) == 1
    assert run(*typed(capsys.readouterr().out, "next: zdoctor ")) == 1
    command = typed(capsys.readouterr().out, "$ zdoctor ")
    run(*command)
    capsys.readouterr()
    assert config.read_text(encoding="utf-8") == healthy
    assert run("check", config.name, *words) == 0


@pytest.mark.parametrize("words", [["check", *KAGGLE], ["history"], ["fix", *KAGGLE]])
def test_without_a_home_folder_nothing_is_guessed(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a container that runs under a number nobody gave a name."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert run(*words) == 2
    assert capsys.readouterr().err.startswith("zdoctor: HOME is not set")


def test_a_fix_says_where_the_errors_are_that_it_has_no_repair_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "c.yaml"
    text = Path(KAGGLE[0]).read_text(encoding="utf-8").replace("/kaggle", tmp_path.as_posix())
    config.write_text(text, encoding="utf-8")
    assert run("fix", str(config), "--select", "TRN001,PTH004") == 1
    said = capsys.readouterr().out
    assert "Left to you:" in said and f"next: zdoctor check {config}" in said
