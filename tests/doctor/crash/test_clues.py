"""What the same words mean where another line of the log tells it, and where none does."""

from __future__ import annotations

import pytest

from zdoctor.doctor.crash import explain
from zdoctor.doctor.model.crashes import Known

from .shapes import script
from .test_cases import SIGNATURES

NO_DRIVER = "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"
NO_SCALER = "AttributeError: 'NoneType' object has no attribute '_unscale_grads_'"
NO_CONFIG = "OSError: black-forest-labs/FLUX.1-dev does not appear to have a file named config.json."
SIZES = "RuntimeError: The size of tensor a (6) must match the size of tensor b (32) at non-singleton dimension 1"
STACK = "RuntimeError: stack expects each tensor to be equal size, but got [4, 120, 136] at entry 0 and [4, 136, 120]"
ORDINAL = "RuntimeError: CUDA error: invalid device ordinal"
LAUNCHER = "subprocess.CalledProcessError: Command '['python', 'train_lora.py']' returned non-zero exit status 1."
FROM = "diffusers.models.attention' (/v/site-packages/diffusers/models/attention.py)"
IMPORT = f"ImportError: cannot import name 'Ema' from '{FROM}"


def frame(file: str, code: str, error: str) -> str:
    return f'Traceback (most recent call last):\n  File "{file}", line 3, in __getitem__\n    {code}\n{error}\n'


# (the clue, what stands behind it, words of the answer with it; none of them are told without the clue)
CLUES = [
    ("Mounted at /content/drive\n", script(NO_DRIVER), "notebook"),
    ("cp: /kaggle/working/a.toml\n", script(NO_DRIVER), "notebook"),
    ("The installed version of bitsandbytes was compiled without GPU support.\n", script(NO_SCALER), "no card here"),
    ("403 Forbidden: Please enable access to public gated repositories in your\n", script(NO_CONFIG), "fine-grained"),
    ("Access to model black-forest-labs/FLUX.1-dev is restricted.\n", script(NO_CONFIG), "licence"),
    ("python train.py --train_batch_size=6\n", script(SIZES), "batch size"),
    ("accelerate launch --multi_gpu train.py\n", script(ORDINAL), "More processes"),
    ("No instance images found in the provided instance_data_dir.\n", script(LAUNCHER), "instance_data_dir"),
]


@pytest.mark.parametrize(("clue", "rest", "told"), CLUES)
def test_a_line_before_it_tells_what_the_words_mean(clue: str, rest: str, told: str) -> None:
    assert told in explain(clue + "step 1\n" * 20 + rest, SIGNATURES).cause
    assert told not in explain(rest, SIGNATURES).cause


CELL = "Traceback (most recent call last)\n{} in <cell line: 0>()\n----> 1 run_job(job)\n{}\nNameError: {}\n"
UNDEFINED = "name 'run_job' is not defined"
LIBRARY = "/usr/local/lib/python3.12/dist-packages/a.py in go(x)\n---> 12     run_job(x)\n"


@pytest.mark.parametrize("head", ["<ipython-input-7-0a1b2c3d>", "/tmp/ipython-input-1429.py", "Cell In[3], line 1"])
def test_a_name_that_a_cell_lacks_is_one_of_an_earlier_cell(head: str) -> None:
    assert "An earlier cell" in explain(CELL.format(head, "", UNDEFINED), SIGNATURES).cause
    assert "An earlier cell" not in explain(CELL.format(head, LIBRARY, UNDEFINED), SIGNATURES).cause
    assert (
        "An earlier cell" not in explain(CELL.format("train.py", "", UNDEFINED).replace("cell line", "go"), []).cause
    )


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ("Training interrupted by user\n", "says so itself"),
        ("fetch-pack: unexpected disconnect while reading sideband packet\n", "git was stopped"),
        ("Loading the model\n", "want of RAM"),
    ],
)
def test_who_stopped_a_run_is_said_right_before(before: str, told: str) -> None:
    assert told in explain(before + "^C\n", SIGNATURES).cause


@pytest.mark.parametrize("clue", ["see /mnt/content/drive\n", "uploads/kaggle/workingset\n"])
def test_a_path_that_only_looks_like_a_notebook_s_is_none(clue: str) -> None:
    assert "notebook" not in explain(clue + script(NO_DRIVER), SIGNATURES).cause


def test_what_stands_too_far_above_is_of_something_else() -> None:
    far = "Mounted at /content/drive\n" + "step\n" * 1200
    assert "notebook" not in explain(far + script(NO_DRIVER), SIGNATURES).cause


@pytest.mark.parametrize("size", ["1", "60", "5"])
def test_another_batch_size_is_no_clue(size: str) -> None:
    command = f"python train.py --train_batch_size={size}\n"
    assert "batch size of this run" not in explain(command + script(SIZES), SIGNATURES).cause


def test_the_command_may_stand_behind_the_failure() -> None:
    launched = script(LAUNCHER.replace("_lora.py", ".py', '--train_batch_size=6"))
    answer = explain(script(SIZES) + launched, SIGNATURES)
    assert "batch size of this run (6)" in answer.cause and not answer.certain


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ('example["latents"] = torch.stack(latents_list) if latents_list[0] is not None else None', "cached by an"),
        ("batch_tensor_data[key] = torch.stack(batch_tensor_data[key])", "cached by an"),
        ("images = torch.stack(images)", "buckets"),
        ("return torch.stack(batch, 0)", "different sizes"),
    ],
)
def test_what_is_stacked_tells_why_its_sizes_differ(code: str, told: str) -> None:
    assert told in explain(frame("/x/train_util.py", code, STACK), SIGNATURES).cause


@pytest.mark.parametrize(
    ("file", "mixed"),
    [
        ("/v/site-packages/diffusers/models/unet.py", True),
        (r"C:\v\Lib\site-packages\diffusers\models\unet.py", True),
        ("/v/site-packages/peft/tuners/lora.py", False),
        ("/x/diffusers/train.py", False),
    ],
)
def test_a_package_that_asks_itself_in_vain_is_of_two_versions(file: str, mixed: bool) -> None:
    log = frame(file, "from ..models.attention import Ema", IMPORT)
    assert ("mixture" in explain(log, SIGNATURES).cause) is mixed


def test_what_the_log_says_is_told_in_the_answer() -> None:
    entry = Known("It is {thing} of {place}.", "", text=r"no (?P<thing>\w+)", seen=r"in (?P<place>\w+), {thing}")
    failure = explain("in Paris, milk\n" + script("RuntimeError: no milk"), ()).failure
    assert failure is not None and entry.matches(failure)
    assert entry.filled(entry.cause, failure) == "It is milk of Paris."
    other = explain("in Paris, bread\n" + script("RuntimeError: no milk"), ()).failure
    assert other is not None and not entry.matches(other)
