"""What a run's folder tells of the run: a record for programs and one page that needs nothing else."""

from __future__ import annotations

import json
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

from zdoctor.doctor.model.recipe import SamplePrompt
from zdoctor.doctor.model.record import replace
from zdoctor.doctor.train.output.html_report import ReportSample, html_report
from zdoctor.doctor.train.output.run_record import RunFolder, git_state, read_record, run_record
from zdoctor.doctor.train.runtime import allocator

from ..patient import go, run_with, written

VOID = {"meta", "img", "br", "line"}
PROMPT = SamplePrompt("a <red> circle & more", 64, 64, 3, 2, 1.0)
RECORD: dict[str, Any] = {"name": "circles", "settings": {"rank": 8, "use_ema": False}, "starts": []}


class Reader(HTMLParser):
    """Every tag with its attributes; fails on tags that do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_a_run_leaves_a_record_and_a_page(tiny: Path, circles: Path, tmp_path: Path) -> None:
    run = run_with(steps=2, disable_sampling=False, samples=(PROMPT,), sample_every=1, save_every=1)
    result = go(run, tiny, circles, tmp_path, held_out=1)
    record = json.loads((tmp_path / "run.json").read_text())
    assert (record["name"], record["seed"], record["settings"]["rank"]) == ("circles", 7, 8)
    assert record["settings"]["datasets"][0]["folder"] == "circles"
    assert "peak_memory" not in record["starts"][0]  # a CPU has no such count
    assert record["kernels"]["products"] == "float32 of int8 codes, scaled behind the product"
    assert record["packages"]["torch"] and [start["step"] for start in record["starts"]] == [0]
    text = (tmp_path / "report.html").read_text()
    read = Reader(text)
    assert "Finished at step 2 of 2" in read.text and PROMPT.prompt in read.text
    assert [link["href"] for link in read.all("a")] == [f"samples/{Path(file).name}" for file in result.samples]
    assert len(read.all("img")) == 3 and len(read.all("circle")) == 3
    go(run_with(steps=3), tiny, circles, tmp_path)
    again = json.loads((tmp_path / "run.json").read_text())
    assert [start["step"] for start in again["starts"]] == [0, 2] and "changed" not in again["starts"][1]
    assert "Finished at step 3 of 3" in (tmp_path / "report.html").read_text()


def test_the_page_says_what_was_trained_and_not_where_that_was_found() -> None:
    settings = {"root": "/config", "datasets": [{"key": "datasets/0", "folder": "cats", "repeats": 1}], "rank": 8}
    settings |= {"optimizer_settings": {"relative_step": False, "weight_decay": 0.0}}
    told = Reader(html_report({**RECORD, "settings": settings}, "s", [1.0], [], [])).text
    assert "folder: cats, repeats: 1" in told and "relative step: no, weight decay: 0.0" in told
    assert "datasets/0" not in told and "/config" not in told


def test_what_this_machine_has_not_is_not_recorded_as_used(tiny: Path, circles: Path, tmp_path: Path) -> None:
    """Eight-bit AdamW and `device: cuda` need a card: the record and the page name what ran in their place."""
    run = run_with(steps=1, optimizer="adamw8bit", device="cuda")
    go(run, tiny, circles, tmp_path)
    record = json.loads((tmp_path / "run.json").read_text())
    used, asked = record["settings"], record["asked"]
    assert (used["optimizer"], used["device"]) == ("adamw", "cpu")
    assert (asked["optimizer"], asked["device"]) == ("adamw8bit", "cuda")
    assert "rank" not in asked and record["machine"]["device"] == "cpu"
    told = Reader((tmp_path / "report.html").read_text()).text
    assert "adamw (the config: adamw8bit)" in told and "cpu (the config: cuda)" in told
    again = go(run_with(steps=1, optimizer="adamw"), tiny, circles, tmp_path / "other")
    assert again.steps == 1 and json.loads((tmp_path / "other" / "run.json").read_text())["asked"] == {}


def test_what_the_config_said_at_each_start_is_kept() -> None:
    """Also what no field of a Run holds; words for a login are not."""
    settings = written(train={}, train__lr=0.1, train__do_differential_guidance=True, logging__api_key="k3y")
    here: dict[str, Any] = {"device": "cpu", "dtype": "float32", "other": {}, "seed": 1}
    first = run_record(run_with(settings=settings), **here, step=0, before={})
    assert first["written"] == {"train/lr": 0.1, "train/do_differential_guidance": True, "logging/api_key": "***"}
    assert Path(first["config"]).is_absolute()
    how: dict[str, Any] = {
        "read": frozenset({"train/lr"}),
        "homes": {"datasets": ("d.json", "")},
        "unread": "a shell",
    }
    assert (
        run_record(replace(run_with(settings=settings), **how), **here, step=0, before={})["settings"]
        == first["settings"]
    )
    later = run_with(settings={**settings, **written(train__lr=0.2)})
    again = run_record(later, **here, step=9, before=first)
    assert again["starts"][1]["changed"] == {"train/lr": [0.1, 0.2]} and "changed" not in again["starts"][0]
    text = Reader(html_report(again, "", [], [], [])).text
    assert "train/do_differential_guidance" in text and "train/lr changed from 0.1 to 0.2" in text


def test_the_most_memory_on_the_card_is_kept_for_each_start(tmp_path: Path) -> None:
    starts: list[dict[str, Any]] = [
        {"at": "10:00", "step": 0, "command": "a"},
        {"at": "11:00", "step": 2, "command": "a"},
    ]
    folder = RunFolder(tmp_path, run_with(), {**RECORD, "starts": starts})
    for part, peak in (("loading", 5), ("training", 7), ("training", 8)):
        folder.keep_peak(part, {"allocated": peak << 30, "reserved": 9 << 30})
    folder.write("Finished", [], [])
    kept = [start.get("peak_memory") for start in json.loads((tmp_path / "run.json").read_text())["starts"]]
    sizes = {"allocated": 8 << 30, "reserved": 9 << 30}
    assert kept == [None, {"loading": {**sizes, "allocated": 5 << 30}, "training": sizes}]
    assert "8.00 GiB allocated, 9.00 GiB reserved" in (tmp_path / "report.html").read_text()


def test_a_card_s_count_is_of_one_part_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Allocator:  # torch's own answers only where there is a card
        most = 3

        def max_memory_allocated(self, device: torch.device) -> int:
            return self.most

        def max_memory_reserved(self, device: torch.device) -> int:
            return self.most + 1

        def reset_peak_memory_stats(self, device: torch.device) -> None:
            self.most = 0

    monkeypatch.setattr(allocator, "CUDA", Allocator())
    for kind, before, after in (
        ("cuda:1", {"allocated": 3, "reserved": 4}, {"allocated": 0, "reserved": 1}),
        ("cpu", {}, {}),
    ):
        device = torch.device(kind)
        assert allocator.peak_memory(device) == before
        allocator.reset_peak_memory(device)
        assert allocator.peak_memory(device) == after


def test_the_page_needs_nothing_from_anywhere() -> None:
    hostile = {**RECORD, "name": "<script>x</script>", "config": "a&b.yaml"}
    samples = [
        ReportSample(5, 0, '"><img src=http://x>', "samples/a #1.png", b"\xff\xd8"),
        ReportSample(9, 0, "", "b.png", b""),
    ]
    text = html_report(hostile, "Saved", [1.0, float("nan"), 0.5], [(0, 1.1), (3, 0.7)], samples)
    read = Reader(text)
    assert not read.all("script") and not read.all("link")
    assert all(str(image["src"]).startswith("data:image/jpeg;base64,") for image in read.all("img"))
    assert read.all("a")[0]["href"] == "samples/a%20%231.png"
    assert "http" not in text.replace("http-equiv", "").replace(samples[0].prompt, "").replace("http://x", "")
    assert "nan" not in text.split("<svg")[1].split("</svg>")[0]
    assert "prefers-color-scheme: dark" in text


@pytest.mark.parametrize(
    ("losses", "evaluations"),
    [
        ([], []),
        ([0.5], []),
        ([float("nan")], []),
        ([0.5, 0.5], [(0, 0.5)]),
        ([], [(0, 0.0)]),
        ([1.0 / (step + 1) for step in range(12_000)], [(step, 0.5) for step in range(0, 12_000, 250)]),
    ],
)
def test_every_curve_is_inside_its_frame(losses: list[float], evaluations: list[tuple[int, float]]) -> None:
    read = Reader(html_report(RECORD, "Saved", losses, evaluations, []))
    for line in read.all("polyline"):
        points = [tuple(map(float, point.split(","))) for point in str(line["points"]).split()]
        assert len(points) <= 400 and all(0 <= x <= 860 and 0 <= y <= 300 for x, y in points)


def test_the_commit_of_the_config(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("a: 1\n")
    assert git_state(tmp_path / "nowhere" / "config.yaml") is None
    words = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        assert git_state(config) is None  # there is no commit yet
        subprocess.run([*words, *command], check=True)
    state = git_state(config)
    assert state is not None and len(state["commit"]) == 40 and not state["config_differs"]
    config.write_text("a: 2\n")
    assert (git_state(config) or {})["config_differs"]


def test_a_damaged_record_is_none(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    assert read_record(file) == {}
    for text in ("{", "[1]", '{"starts": 3}'):
        file.write_text(text)
        assert read_record(file) == {}


def test_a_name_that_is_no_text_is_recorded_all_the_same(tmp_path: Path) -> None:
    """A folder named in Latin-1 on Linux; half a surrogate pair on Windows."""
    config = "/data/caf\udce9/config.yaml"
    RunFolder(tmp_path, run_with(), {**RECORD, "config": config})
    assert read_record(tmp_path / "run.json")["config"] == config
