"""`zdoctor train` as a user types it: exit codes, signals, and what the next start makes of it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from zdoctor.doctor.cli import main
from zdoctor.doctor.commands.check import check
from zdoctor.doctor.commands.train import train
from zdoctor.doctor.errors import UserError
from zdoctor.doctor.train.settings.names import CACHE

PROCESS = """\
    - type: diffusion_trainer
      training_folder: {output}
      device: cpu
      training_seed: 42
      network: {{type: lora, linear: 8, linear_alpha: 8}}
      save: {{dtype: bf16, save_every: 50}}
      datasets:
        - {{folder_path: {data}, caption_ext: txt, resolution: [64], cache_latents_to_disk: true}}
      train: {{batch_size: 2, steps: {steps}, lr: 0.001, optimizer: adamw, dtype: float32, noise_scheduler: flowmatch,
              cache_text_embeddings: true, gradient_checkpointing: true, disable_sampling: true}}
      model: {{name_or_path: {model}, arch: zimage, quantize: true, qtype: qfloat8{adapter}}}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(model: Path, data: Path, *, steps: int = 3, outputs: tuple[str, ...] = ("out",), adapter: str = "") -> str:
    written = f", assistant_lora_path: {adapter}" if adapter else ""
    processes = [PROCESS.format(model=model, data=data, steps=steps, output=o, adapter=written) for o in outputs]
    Path("config.yaml").write_text("job: extension\nconfig:\n  name: circles\n  process:\n" + "".join(processes))
    return "config.yaml"


def test_green_trains_and_a_second_time_says_it_is_finished(
    here: Path, tiny: Path, circles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", config(tiny, circles)]
    assert main(words) == 0
    said = capsys.readouterr().out
    folder = here / "out" / "circles"
    assert f"Finished: 3 steps.\nLoRA: {folder}/circles.safetensors\nPage: {folder}/report.html, " in said
    assert main(words) == 0
    assert "Nothing was trained" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "also", "words"),
    [
        ("network: {type: dora, linear: 4}", "", "The DoRA has diffusers' names"),
        (
            "network: {type: lora, linear: 4, network_kwargs: {full_if_contains: [adaLN], loraplus_lr_ratio: 4}}",
            "slider: {target_class: a circle, positive_prompt: red, negative_prompt: blue}",
            "Finished: 1 step.",
        ),
    ],
)
def test_a_config_with_levers_starts_from_the_command(
    here: Path, tiny: Path, circles: Path, capsys: pytest.CaptureFixture[str], written: str, also: str, words: str
) -> None:
    file = Path(config(tiny, circles, steps=1))
    text = re.sub(r"network: \{.*?\}", written + (f"\n      {also}" if also else ""), file.read_text())
    file.write_text(text.replace("diffusion_trainer", "concept_slider") if also else text)
    assert main(["train", str(file)]) == 0
    said = capsys.readouterr()
    assert words in said.out + said.err


def test_warnings_are_said_in_words(
    here: Path, tiny: Path, circles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(config(tiny, circles, steps=1))
    file.write_text(file.read_text().replace("quantize: true", "quantise: true, quantize: true"))
    assert main(["train", str(file)]) == 0
    said = capsys.readouterr().out
    assert "warning (CFG002, line " in said and "quantise" in said and "Finished: 1 step." in said


def test_not_green_says_why_and_does_not_train(
    here: Path, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", config(tiny, tmp_path / "nowhere")]) == 1
    captured = capsys.readouterr()
    assert "not training" in captured.err and "nowhere" in captured.out
    assert not (here / "out").exists()


def test_another_architecture_is_said_alone_and_another_setting_first(
    here: Path, tiny: Path, circles: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of another architecture the memory is not known, which by itself sounds as if that could be mended."""
    file = Path(config(tiny, tmp_path / "nowhere"))
    text = file.read_text()
    file.write_text(text.replace("arch: zimage", "arch: lumina2"))
    assert main(["train", str(file)]) == 2
    said = capsys.readouterr()
    assert "The architecture lumina2 is not supported" in said.err and "nowhere" not in said.out + said.err
    file.write_text(text.replace("optimizer: adamw", "optimizer: nobody"))
    assert text != file.read_text() and main(["train", str(file)]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("zdoctor: Not supported, whatever is repaired below: The optimizer nobody")
    assert "nowhere" in said.out


def test_the_command_that_a_check_offers_starts_also_beside_a_broken_picture(
    here: Path, tiny: Path, circles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(circles, here / "pictures")
    (here / "pictures" / "broken.png").touch()
    assert main(["check", config(tiny, here / "pictures", steps=1)]) == 0
    offered = capsys.readouterr().out.rpartition("next: zdoctor ")[2].partition("   ")[0].split()
    assert offered == ["train", "config.yaml", "--skip-unreadable"]
    assert main(offered) == 0


def test_several_processes_train_one_after_the_other_unless_they_share_their_files(
    here: Path, tiny: Path, circles: Path
) -> None:
    assert main(["train", config(tiny, circles, steps=1, outputs=("one", "two"))]) == 0
    assert (here / "one/circles/circles.safetensors").is_file()
    assert (here / "two/circles/circles.safetensors").is_file()
    assert not check(config(tiny, circles, outputs=("one", "one"))).trainable
    with pytest.raises(UserError, match="several processes"):
        train(config(tiny, circles, outputs=("one", "one")))


@pytest.mark.parametrize("variable", ["RANK", "LOCAL_RANK", "WORLD_SIZE"])
def test_what_torchrun_sets_is_a_number(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str
) -> None:
    monkeypatch.setenv(variable, "abc")
    assert main(["train", config(here, here)]) == 2
    assert f"the environment variable {variable} is 'abc'" in capsys.readouterr().err


def test_an_adapter_that_is_not_there_is_never_left_out(here: Path, tiny: Path, circles: Path) -> None:
    with pytest.raises(UserError):
        train(config(tiny, circles, adapter="somebody/adapter-nobody-has"))
    assert not (here / "out").exists()


def test_the_limit_of_minutes_ends_as_a_stop_does(
    here: Path, tiny: Path, circles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """This process is older than the limit."""
    words = ["train", config(tiny, circles)]
    assert main([*words, "--max-minutes", "0.0001", "--skip-unreadable"]) == 130
    again = "To begin again: zdoctor train config.yaml --max-minutes 0.0001 --skip-unreadable\n"
    said = capsys.readouterr().out
    assert said.endswith(
        f"\nStopped before the first step: nothing is trained yet, and no LoRA was written.\n{again}"
    )
    assert not list((here / "out/circles").glob("*.safetensors"))
    assert main(words) == 0
    for wrong in ("0", "-3", "nan", "soon"):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--max-minutes", wrong])
        assert ended.value.code == 2
        assert "is not a number of minutes above 0" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)])
def test_a_signal_saves_and_the_next_start_goes_on(
    here: Path, tiny: Path, circles: Path, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", config(tiny, circles, steps=1, outputs=("first",))]) == 0
    shutil.copytree(here / "first/circles" / CACHE, here / "out/circles" / CACHE)  # no text encoder to wait for
    capsys.readouterr()
    name = config(tiny, circles, steps=5000)
    command = [sys.executable, "-m", "zdoctor", "train", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("step 1/"):
                process.send_signal(number)
                break
        rest = process.stdout.read()
    assert process.returncode == 130, rest
    assert "Traceback" not in rest and "To go on from there: zdoctor train config.yaml" in rest
    saved = sorted((here / "out/circles").glob("circles_*.safetensors"))
    step = int(saved[-1].stem.rsplit("_", 1)[1])
    assert load_file(saved[-1])
    assert main(["train", config(tiny, circles, steps=step + 1)]) == 0
    assert f"goes on from step {step}" in capsys.readouterr().err
