"""Crash logs as users paste them: the failure is found among the noise, and leads to its cause, or is not known."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.crash import clean, explain, failures
from zdoctor.doctor.crash.messages import CUT_OFF
from zdoctor.doctor.crash.table import known
from zdoctor.doctor.model.crashes import Explanation, Signature
from zdoctor.doctor.rules import all_rules
from zdoctor.tests.configs_on_disk import write_config

SIGNATURES = [Signature(rule.id, *pair, rule.trainers) for rule in all_rules() for pair in rule.prevents]
TORCH = "/usr/lib/python3/dist-packages/torch/nn/modules/module.py"


def traceback(error: str, *code: str, file: str = "/home/ana/ai-toolkit/toolkit/stable_diffusion_model.py") -> str:
    frames = "".join(f'  File "{file}", line {n + 10}, in step{n}\n    {line}\n' for n, line in enumerate(code))
    library = f'  File "{TORCH}", line 1340, in convert\n    return t.to(device)\n'
    return f"Traceback (most recent call last):\n{frames}{library}{error}\n"


def told(text: str) -> Explanation:
    return explain(text, SIGNATURES)


META = "NotImplementedError: Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead"
LOGS: dict[str, tuple[str, str]] = {
    "meta": (META, "MDL001"),
    "read-only": ("OSError: [Errno 30] Read-only file system: '/kaggle/input/x/.aitk_size.json'", "PTH001"),
    "permission": ("PermissionError: [Errno 13] Permission denied: '/data/.aitk_size.json'", "PTH001"),
    "escape": (
        'yaml.scanner.ScannerError: while scanning a double-quoted scalar\n  in "job.yaml", line 26, column 23\n'
        "found unknown escape character 'Z'",
        "PTH002",
    ),
    "escape in JSON": ("json.decoder.JSONDecodeError: Invalid \\escape: line 3 column 20 (char 40)", "PTH002"),
    "scanner": ("yaml.scanner.ScannerError: mapping values are not allowed here", "CFG001"),
    "adapter folder": ("OSError: No such device (os error 19)", "PTH003"),
    "missing": ("FileNotFoundError: [Errno 2] No such file or directory: '/data/cats'", "PTH004"),
    "repo id": (
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
        "'namespace/repo_name': 'C:\\models\\x'.",
        "PTH004",
    ),
    "cut shard": (
        "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully "
        "covered",
        "HUB001",
    ),
    "a page for a shard": ("safetensors_rust.SafetensorError: header too large", "HUB001"),
    "incomplete snapshot": (
        "huggingface_hub.errors.IncompleteSnapshotError: The cached snapshot for a/b is incomplete",
        "HUB002",
    ),
    "no ref": (
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the "
        "specified revision on the local disk",
        "HUB003",
    ),
    "offline": (
        "huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://huggingface.co/api/models/a/b: offline "
        "mode is enabled",
        "HUB007",
    ),
    "out of memory": ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.", "MEM001"),
    "older torch": ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "MEM001"),
    "cublas": ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "MEM001"),
    "adapter layout": ("KeyError: 'diffusion_model.layers.0.attention.to_k.lora_A.weight'", "MDL005"),
    "no images": ("AssertionError: no images found in /data/cats", "DAT001"),
    "cut image": ("OSError: image file is truncated (12 bytes not processed)", "DAT002"),
    "full disk": ("OSError: [Errno 28] No space left on device", "DSK002"),
    "deepspeed": (
        "RuntimeError: linalg.vector_norm: Expected a floating point or complex tensor as input. Got Long",
        "SRC015",
    ),
    "no gradient": ("RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn", ""),
    "no gradient, newer torch": (
        "NotImplementedError: element 0 of tensors does not require grad and does not have a grad_fn",
        "",
    ),
}


@pytest.mark.parametrize("name", LOGS)
def test_the_cause_is_named(name: str) -> None:
    error, rule = LOGS[name]
    seen = told("step 10\n" + traceback(error, "model.load()") + "\nwandb: run ended\n")
    assert seen.failure is not None and seen.failure.frames
    assert (rule in seen.rules[:2]) if rule else (seen.known is not None and not seen.rules)


@pytest.mark.parametrize(
    ("line", "name", "rule"),
    [
        ("Killed", "Killed", "MEM002"),
        ("run.sh: line 3:  4321 Killed                  python run.py", "Killed", "MEM002"),
        ("process exited with code 137", "Killed", "MEM002"),
        ("torch.distributed.elastic: failed (exitcode: -9) local_rank: 0", "Killed", "MEM002"),
        ("Bus error (core dumped)", "BusError", "HUB001"),
        ("Segmentation fault (core dumped)", "SegmentationFault", ""),
    ],
)
def test_ends_without_a_traceback(line: str, name: str, rule: str) -> None:
    seen = told(f"Loading checkpoint shards: 50%\n{line}\n")
    assert seen.failure is not None and (seen.failure.name, seen.rules) == (name, (rule,) if rule else ())


NOISE = (
    "",
    "step 100/3000 loss 0.231 lr 1e-4 2.1 it/s\nsaved\n",
    "UserWarning: None of the inputs have requires_grad=True. Gradients will be None\n",
    "Skipped 3 images that were killed by the filter\n",
    "The word Traceback (most recent call last): in a sentence\n",
    "huggingface/tokenizers: The current process just got forked. Disabling parallelism\n",
    "\x00\x01\x02 binary \xff\xfe rubbish",
    "Traceback (most recent call last):\n",
)


@pytest.mark.parametrize("text", NOISE)
def test_noise_stays_unexplained(text: str) -> None:
    seen = told(text)
    assert seen.failure is None and seen.known is None and not seen.rules


UNKNOWN = (
    "ValueError: the second value is odd",
    "KeyError: 'config'",
    "MyOwnError",
)


@pytest.mark.parametrize("error", UNKNOWN)
def test_what_is_not_known_is_said_with_the_frame_that_matters(error: str) -> None:
    seen = told(traceback(error, "first()", "my_own_line(x)"))
    assert seen.failure is not None and seen.known is None and not seen.rules
    assert seen.failure.frame is not None and seen.failure.frame.code == "my_own_line(x)"


@pytest.mark.parametrize(
    ("code", "site"),
    [
        ("transformer.to(self.device_torch)", "the transformer"),
        ("text_encoder.to(device)", "the text encoder"),
        ("vae.to(accelerator.device)", "the VAE"),
        ("unet.to('cpu')", "the transformer"),
        ("something.to(device)", ""),
    ],
)
def test_the_place_of_a_meta_error_names_the_component(code: str, site: str) -> None:
    assert told(traceback(META, "main()", code)).site == site


def test_escape_codes_bars_ranks_and_windows_line_ends() -> None:
    text = traceback(META, "transformer.to(device)").replace("\n", "\r\n")
    text = "".join(f"[rank0]: {line}\n" for line in text.split("\n")[:-1])
    bar = "".join(f"\r\x1b[32m{n}%\x1b[0m|####| {n}/100 [00:01<00:09, 9it/s]" for n in range(100))
    seen = told(f"\x1b]0;title\x07{bar}\n{text}{bar[-60:]}\n")
    assert seen.rules == ("MDL001",) and seen.site == "the transformer"
    assert clean(f"a\x1b[31mb{bar}") == [
        "ab",
        "0%|####| 0/100 [00:01<00:09, 9it/s]",
        "99%|####| 99/100 [00:01<00:09, 9it/s]",
    ]


@pytest.mark.parametrize(
    ("title", "head"),
    [
        ("MemoryError", "Traceback (most recent call last)"),
        (
            "TypeError: f() got an unexpected keyword argument 'dtype'",
            f"TypeError{' ' * 20}Traceback (most recent call last)",
        ),
    ],
)
def test_a_traceback_without_its_end_has_the_error_above_it(title: str, head: str) -> None:
    seen = told(
        f'{title}\n{head}:\n  File "a.py", line 3, in main\n    save(model)\n  File "b.py", line 9, in save\n'
    )
    assert seen.failure is not None
    assert f"{seen.failure.name}: {seen.failure.message}".removesuffix(": ") == title


def test_an_import_that_another_one_replaces_is_no_cause() -> None:
    first = traceback("ImportError: cannot import name 'FromOriginalVAEMixin' from 'diffusers.loaders'", "import a")
    text = f"{first}\nDuring handling of the above exception, another exception occurred:\n\n"
    text += 'Traceback (most recent call last):\n  File "/x/vae.py", line 32, in <module>\n'
    seen = told(f'{text}    from diffusers.loaders.single_file_model import A\n  File "/x/lib/site-pa')
    assert seen.failure is not None and seen.failure.name == CUT_OFF
    assert "0.28" not in seen.cause and "FromOriginalVAEMixin" not in seen.cause


def test_a_chain_is_one_failure_and_its_cause_counts() -> None:
    text = (
        traceback("OSError: [Errno 30] Read-only file system: '/data/x'", "write()")
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + traceback("RuntimeError: dataset failed", "load()")
    )
    seen = told(text)
    assert seen.rules == ("PTH001",) and seen.others == 0
    assert seen.failure is not None and [f.name for f in seen.failure.chain] == ["RuntimeError", "OSError"]


def test_the_launcher_s_words_about_a_dead_child_are_not_the_failure() -> None:
    launcher = traceback(
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: run.py FAILED", "launch()"
    )
    seen = told(traceback(META, "transformer.to(d)") + launcher + "exitcode: 1\n")
    assert seen.rules == ("MDL001",)


def test_a_failure_that_was_survived_is_counted() -> None:
    seen = told(traceback("ValueError: retry", "a()") + "goes on\n" * 50 + traceback(META, "transformer.to(d)"))
    assert (seen.rules, seen.others) == (("MDL001",), 1)


def test_a_real_traceback(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\ntransformer = torch.nn.Linear(2, 2, device='meta')\ntransformer.to('cpu')\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    seen = told(done.stdout + done.stderr)
    assert (seen.rules, seen.site) == (("MDL001",), "the transformer")
    assert seen.failure is not None and seen.failure.frame is not None
    assert (seen.failure.frame.file, seen.failure.frame.line) == (str(script), 3)


def test_any_text_is_borne() -> None:
    """Cut, shuffled and doubled logs: no error, and no more time than the text takes."""
    whole = "".join(traceback(error, "transformer.to(d)") for error, _ in LOGS.values())
    for seed in range(200):
        dice = random.Random(seed)
        start = dice.randrange(len(whole))
        lines = whole[start : start + dice.randrange(2000)].split("\n")
        dice.shuffle(lines)
        told("\n".join(lines))
    assert failures(clean("a" * 200_000 + "\n" + "File " * 50_000)) == ()


def test_every_signature_compiles_and_every_known_failure_names_real_rules() -> None:
    ids = {rule.id for rule in all_rules()}
    for signature in SIGNATURES:
        re.compile(signature.text)
    assert {one.rule for one in known()} - {""} <= ids


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text(traceback("AssertionError: no images found in data", "check()"), encoding="utf-16")
    (tmp_path / "data").mkdir()
    config = write_config(tmp_path)
    assert main(["explain", str(log)]) == 0
    out = capsys.readouterr().out
    assert "DAT001 no-images" in out and "next: zdoctor check CONFIG --select DAT001" in out
    assert main(["explain", str(log), str(config)]) == 0
    assert "confirmed here." in capsys.readouterr().out
    log.write_bytes(b"\xff\xfe\x00 rubbish" + b"x" * (20 << 20) + b"\n" + traceback("MyError: x", "mine()").encode())
    log.write_bytes(log.read_bytes()[2:])
    assert main(["explain", str(log)]) == 3
    assert "not known to zdoctor" in capsys.readouterr().out
    assert main(["explain", str(tmp_path / "none.log")]) == 2
    assert main(["explain", "DAT001"]) == 0
