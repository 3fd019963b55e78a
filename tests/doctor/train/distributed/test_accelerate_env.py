"""What accelerate launch asks for, by the variables that accelerate 1.15 sets (read off its own launches)."""

from __future__ import annotations

import pytest

from zdoctor.doctor.train.distributed.accelerate_env import notes, refusal, sharded

ALWAYS = {
    "ACCELERATE_MIXED_PRECISION": "no",
    "ACCELERATE_DYNAMO_BACKEND": "NO",
    "ACCELERATE_DYNAMO_MODE": "default",
    "ACCELERATE_DYNAMO_USE_FULLGRAPH": "False",
    "OMP_NUM_THREADS": "1",
}
FSDP = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_OFFLOAD_PARAMS": "false"}


@pytest.mark.parametrize(
    ("asked", "shared", "words"),
    [
        ({}, False, []),
        (FSDP, True, []),
        ({**FSDP, "FSDP_OFFLOAD_PARAMS": "true"}, True, ["keep weights in RAM"]),
        ({"ACCELERATE_MIXED_PRECISION": "fp16"}, False, ["mixed precision fp16; the dtype of the config"]),
        ({"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR"}, False, ["dynamo backend inductor"]),
        ({"ACCELERATE_USE_CPU": "True"}, False, ["the device of the config counts"]),
    ],
)
def test_what_has_an_effect_and_what_is_said(asked: dict[str, str], shared: bool, words: list[str]) -> None:
    environment = {**ALWAYS, **asked}
    assert refusal(environment) == "" and sharded(environment) is shared
    said = list(notes(environment))
    assert len(said) == len(words) and all(part in note for part, note in zip(words, said, strict=True))


@pytest.mark.parametrize(
    ("variable", "engine"),
    [
        ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed"),
        ("ACCELERATE_USE_MEGATRON_LM", "Megatron-LM"),
        ("ACCELERATE_USE_PARALLELISM_CONFIG", "a parallelism_config"),
    ],
)
def test_other_engines_are_refused_by_name(variable: str, engine: str) -> None:
    assert f"asks for {engine}," in refusal({**ALWAYS, variable: "true"})
    assert not refusal({**ALWAYS, variable: "false"})
