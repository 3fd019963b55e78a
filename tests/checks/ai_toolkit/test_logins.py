"""TRN011: tokens that are not there, by the trainer's own call to the hub client, and by where tokens may lie."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest

from zdoctor.checks.ai_toolkit.logins import login_asked_for
from zdoctor.doctor.model import Run, Schema, Unknown, Value, Where
from zdoctor.doctor.model.environment import Environment
from zdoctor.doctor.probe.environment import probe_logins
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.doctor.probe.recorder import Recorder
from zdoctor.tests.changes import changed
from zdoctor.tests.models import run_of

BOTH = ("save/push_to_hub", "logging/use_wandb")


def run(*keys: str) -> Run:
    base = run_of("m")
    return changed(base, settings={**base.settings, **{key: Value(True, Where("c"), 0, 0) for key in keys}})


def asked(
    root: Path, *keys: str, hub: str | None = None, source: bool = True, **variables: str
) -> tuple[str, ...] | Unknown:
    world = LiveWorld(environment=variables, cwd=str(root / "work"), home=str(root / "home"))
    schema = Schema("ai-toolkit", "r", "", {}, source=str(root / "aitk") if source else "")
    environment = Unknown("x") if hub is None else Environment("python", {"huggingface_hub": hub})
    return probe_logins(world, run(*keys), schema, environment)


def test_the_hub_client_refuses_the_trainers_call() -> None:
    """ai-toolkit's call, by keyword; the installed client is 1.0 or newer."""
    with pytest.raises(TypeError, match=r"interpreter_login\(\) got an unexpected keyword argument"):
        huggingface_hub.interpreter_login(new_session=False, write_permission=True)  # type: ignore[call-arg]


def test_what_is_asked_and_what_is_not(tmp_path: Path) -> None:
    assert asked(tmp_path) == ()
    assert asked(tmp_path, *BOTH) == BOTH
    assert asked(tmp_path, *BOTH, HF_TOKEN="x", WANDB_API_KEY="x") == ()
    assert asked(tmp_path, *BOTH, HF_TOKEN="x", WANDB_MODE="offline") == ()
    assert isinstance(asked(tmp_path, *BOTH, source=False), Unknown)
    assert asked(tmp_path, source=False) == ()


@pytest.mark.parametrize(
    ("file", "hub", "left"),
    [
        ("aitk/.env", "1.23.0", ()),
        (".env", "1.23.0", ()),
        ("work/.env", "1.23.0", BOTH),
        ("home/.netrc", "1.23.0", BOTH[:1]),
        ("home/.cache/huggingface/token", "0.36.0", BOTH[1:]),
        ("home/.cache/huggingface/token", None, BOTH[1:]),
        ("home/.cache/huggingface/token", "1.23.0", BOTH),
    ],
)
def test_where_tokens_lie(file: str, hub: str | None, left: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text("x")
    assert asked(tmp_path, *BOTH, hub=hub) == left


def test_a_machine_file_does_not_tell(tmp_path: Path) -> None:
    schema = Schema("ai-toolkit", "r", "", {}, source=str(tmp_path))
    record = Recorder(LiveWorld(environment={"HF_TOKEN": "hf_x"})).record("x")
    assert isinstance(probe_logins(RecordedWorld(record), run(*BOTH), schema, Unknown("x")), Unknown)
    assert "hf_x" not in repr(record)


def test_each_is_one_finding() -> None:
    push, wandb = login_asked_for(run(*BOTH), BOTH)
    assert "HF_TOKEN" in push.text() and "saved, not pushed" in push.consequence()
    assert "WANDB_API_KEY" in wandb.text() and "dataset encoded" in wandb.consequence()
    assert not list(login_asked_for(run(*BOTH), ()))
