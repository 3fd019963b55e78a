"""Logs as no program should write them: large, binary, cut off, in UTF-16, in one line."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from zdoctor.doctor.cli import main
from zdoctor.doctor.crash import explain, reading

from .cases import CASES
from .shapes import META, ai_toolkit, sd_scripts, traceback
from .test_cases import SIGNATURES

LOG = ai_toolkit(META, "transformer.to(self.device_torch)")
NAMES = sorted(CASES)


def explained(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["explain", str(path)]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "text",
    [
        LOG.encode(),
        LOG.rstrip("\n").encode(),
        LOG.replace("\n", "\r\n").encode(),
        LOG.replace("\n", "\r\r\n").encode(),
        LOG.encode("utf-16"),
        b"\xef\xbb\xbf" + LOG.encode(),
        bytes(range(256)) * 40 + b"\n" + LOG.encode(),
        b"\0" * 5000 + b"\n" + LOG.encode(),
        b"x" * 3_000_000 + b"\n" + LOG.encode(),
        LOG.encode() + bytes(range(14, 256)) * 40,
        LOG.replace("transformer.to", "\x1b[1;31mtransformer\x1b[0m.to").encode(),
        "進捗 ".encode("shift-jis") + b"\n" + LOG.encode(),
    ],
)
def test_whatever_surrounds_it_the_failure_is_found(
    text: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(text)
    out = explained(log, capsys)
    assert "MDL001 missing-checkpoint-tensors" in out and "while the transformer was loaded" in out


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_of_a_large_log_the_end_is_read(
    encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("HEAD", 1 << 10), ("TAIL", 1 << 14)):
        monkeypatch.setattr(reading, name, size)
    log = tmp_path / "train.log"
    log.write_text("".join(f"step {n} loss 0.{n}\n" for n in range(20_000)) + LOG, encoding=encoding, newline="")
    out = explained(log, capsys)
    assert "MDL001" in out and f"line {20_000 + LOG.count(chr(10))} of the log" in out
    given = type("Given", (), {"buffer": io.BytesIO(log.read_bytes())})()
    monkeypatch.setattr(sys, "stdin", given)
    assert main(["explain", "-"]) == 0
    assert " ".join(capsys.readouterr().out.split()) == out


@pytest.mark.parametrize("name", NAMES[::7])
def test_a_log_that_is_cut_off_anywhere_is_borne(name: str) -> None:
    log = CASES[name][0]
    for end in range(0, len(log), 37):
        seen = explain(log[:end], SIGNATURES)
        assert seen.failure is None or 0 < seen.failure.at <= log.count("\n") + 1


def test_a_traceback_without_its_end_shows_where_it_was() -> None:
    seen = explain(traceback(META, ("/home/li/train.py", "main", "model.to(d)")).rpartition("Not")[0], SIGNATURES)
    assert seen.failure is not None and seen.failure.frame is not None and seen.known is not None and not seen.rules
    assert seen.failure.frame.code == "model.to(d)" and "amid a traceback" in seen.known.cause


def test_what_sd_scripts_said_of_missing_keys_names_the_part() -> None:
    said = (
        "                    INFO     Loaded AE:                          flux_utils.py:187\n"
        "                             _IncompatibleKeys(missing_keys=['encoder.conv_in.wei\n"
        "                             ght'], unexpected_keys=[])\n"
    )
    whole = "INFO     Loaded Flux: <All keys matched successfully>\n"
    assert explain(whole + said + sd_scripts(META, "part.to(device)"), SIGNATURES).site == "the VAE"
    assert explain(whole + sd_scripts(META, "part.to(device)"), SIGNATURES).site == ""


def test_faulthandler_tells_the_line() -> None:
    seen = explain(CASES["the line of a segmentation fault"][0], SIGNATURES)
    assert seen.failure is not None and seen.failure.frame is not None
    assert (seen.failure.frame.file, seen.failure.frame.function) == ("/home/li/mine.py", "main")


def test_a_survived_traceback_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    bars = "".join(f"{n}/100 [00:01<00:09]\n" for n in range(9))
    log.write_text(traceback("ValueError: odd", ("/t/a.py", "f", "g()")) + bars)
    assert "One traceback stands in it, and the run went on." in explained(log, capsys)


@pytest.mark.parametrize(
    ("code", "site"),
    [
        ("vae.to(accelerator.device, dtype=vae_dtype)", "the VAE"),
        ('unet.to("cpu")', "the transformer"),
        ("unet.to(accelerator.device, dtype=unet_weight_dtype)", "the transformer"),
        ("flux.to(device)", "the transformer"),
        ("ae.to(device)", "the VAE"),
        ("t5xxl.to(device)", "T5"),
        ("clip_l.to(device)", "CLIP"),
        ("text_encoders[0].to(device)", "the text encoder"),
        ("block.to(device)", ""),
    ],
)
def test_the_line_that_moves_a_part_names_it(code: str, site: str) -> None:
    assert explain(ai_toolkit(META, code), SIGNATURES).site == site


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_of_a_long_log_each_traceback_is_kept_whole(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("HEAD", 1 << 12), ("TAIL", 1 << 14), ("AROUND", 1 << 12), ("BEFORE", 1 << 8)):
        monkeypatch.setattr(reading, name, size)
    for before in range(0, 4000, 97):
        log = "waiting\n" * before + LOG + "\n" + "waiting\n" * (6000 - before)
        mark = b"\xff\xfe" if encoding != "utf-8" else b""
        data = mark + log.encode(encoding)
        pieces = reading.excerpt(data[at : at + 4096] for at in range(0, len(data), 4096))
        assert len(pieces) > 1 and sum(len(piece.data) for piece in pieces) < len(data) * 3 / 4
        seen = explain(reading.decode(pieces), SIGNATURES)
        assert seen.rules == ("MDL001",) and seen.failure is not None
        assert (seen.failure.at, seen.others) == (before + LOG.rstrip("\n").count("\n") + 1, 0)


def test_a_log_that_grows_is_read_as_far_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    log.write_text(LOG)
    with log.open("a") as writer:
        writer.write("step 1\n" * 1000)
        assert "MDL001" in explained(log, capsys)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes that have a path")
def test_a_pipe_is_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ends = os.pipe()
    with os.fdopen(ends[1], "w") as writer:
        writer.write(LOG)
    assert "MDL001" in explained(Path(f"/dev/fd/{ends[0]}"), capsys)
    os.close(ends[0])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b" \r\n\n", "is empty"),
        (bytes(range(256)) * 40, "holds no text"),
        (b"\0" * 5000, "holds no text"),
    ],
)
def test_what_is_no_log_is_said_so(
    data: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(data)
    assert main(["explain", str(log)]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert main(["explain", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err
