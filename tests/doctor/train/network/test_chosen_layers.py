"""ignore_if_contains and only_if_contains choose the layers that ai-toolkit chooses, and never none of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from zdoctor.doctor.examine.translate import for_runner
from zdoctor.doctor.families.network import target_linears
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.train import TrainError
from zdoctor.doctor.train.network.full import FullLinear
from zdoctor.tests.doctor.trainers.test_every_key import AI_TOOLKIT, run_of

from ..patient import Recorder, go, run_with

WORDS: list[dict[str, Any]] = [
    {},
    {"ignore_if_contains": []},
    {"ignore_if_contains": [], "only_if_contains": None},
    {"ignore_if_contains": ["feed_forward", "layers.1."]},
    {"only_if_contains": ["attention.to_q", "layers.1."]},
    {"only_if_contains": ["transformer.layers.1.", "layers$$0$$"]},
    {"only_if_contains": ["layers.*"]},
    {"only_if_contains": ["er.layers.1"], "ignore_if_contains": ["adaLN"]},
    {"only_if_contains": ["former"], "ignore_if_contains": ["r.layers.1"]},
    {"only_if_contains": ["attention"], "ignore_if_contains": ["transformer."]},
    {"only_if_contains": []},
    {"only_if_contains": [""]},
]


def as_ai_toolkit(names: list[str], words: dict[str, Any]) -> list[str]:
    """Its create_modules of a transformer: each layer's name begins with transformer, dots are $$ in a second one."""
    without, only = words.get("ignore_if_contains") or [], words.get("only_if_contains")
    chosen = []
    for name in names:
        clean = f"transformer.{name}"
        both = clean, clean.replace(".", "$$")
        asked = only is None or any(word in one for word in only for one in both)
        if asked and not any(word in clean for word in without):
            chosen.append(name)
    return chosen


@pytest.mark.parametrize("words", WORDS, ids=str)
def test_words_choose_the_layers_that_ai_toolkit_chooses(words: dict[str, Any], tiny: Path) -> None:
    run = run_of("ai-toolkit", AI_TOOLKIT | {"network": {"type": "lora", "linear": 4, "network_kwargs": words}})
    assert run is not None
    config = json.loads((tiny / "transformer/config.json").read_bytes())
    every, chosen = (
        target_linears("ZImageTransformer2DModel", config, left_out) for left_out in ("", run.recipe.network.excluded)
    )
    assert every and chosen is not None
    assert list(chosen) == as_ai_toolkit(list(every), words)


def test_only_what_is_chosen_is_trained(tiny: Path, circles: Path, tmp_path: Path) -> None:
    progress = Recorder()
    run = run_with(steps=1, network={"excluded": "^(?!.*(?:attention))"})
    result = go(run, tiny, circles, tmp_path / "some", progress=progress)
    assert {key.split(".")[3] for key in load_file(result.lora)} == {"attention"}
    assert any("layers are trained" in note for note in progress.notes)
    with pytest.raises(TrainError, match=r"chooses no layer, .* There are layers\.0\."):
        go(run_with(network={"excluded": "^(?!.*(?:atention))"}), tiny, circles, tmp_path / "none")


@pytest.mark.parametrize(
    ("network", "ratio", "why"),
    [
        ({}, 1.0, ""),
        ({"loraplus_lr_ratio": 4, "only_if_contains": ["attention"]}, 4.0, ""),
        ({"loraplus_lr_ratio": -1}, -1.0, "The ratio of LoRA+ -1 is no number above 0"),
    ],
)
def test_b_learns_faster_where_the_config_says_so(network: dict[str, Any], ratio: float, why: str) -> None:
    run = run_of("ai-toolkit", AI_TOOLKIT | {"network": {"type": "lora", "linear": 4, "network_kwargs": network}})
    schema = shipped("ai-toolkit")
    assert run is not None and schema is not None
    assert run.recipe.network.lora_plus_ratio == ratio and not run.recipe.network.narrowed
    refused = [what for _, what in for_runner(run, schema).refused]
    assert refused == ([why] if why else [])


def test_layers_that_are_trained_as_a_whole(tiny: Path, circles: Path, tmp_path: Path) -> None:
    """ai-toolkit's FullModule: the change of weight and bias, from zero, named diff and diff_b in the file."""
    words = {"full_if_contains": "adaLN_modulation", "only_if_contains": ["layers.0."]}
    run = run_of("ai-toolkit", AI_TOOLKIT | {"network": {"type": "lora", "linear": 4, "network_kwargs": words}})
    assert run is not None and not run.recipe.network.narrowed
    chosen = {"excluded": run.recipe.network.excluded, "full": run.recipe.network.full}
    result = go(run_with(steps=2, network=chosen), tiny, circles, tmp_path / "some")
    tensors = load_file(result.lora)
    at = "diffusion_model.layers.0.adaLN_modulation.0"
    assert {key for key in tensors if key.startswith(at)} == {f"{at}.diff", f"{at}.diff_b"}
    assert all(value.abs().max() > 0 for key, value in tensors.items() if ".diff" in key)
    assert "diffusion_model.layers.0.attention.to_q.lora_A.weight" in tensors
    with pytest.raises(TrainError, match=r"trains layers\.0\..*norm.* as a whole, which is no Linear"):
        go(run_with(network={"full": "norm"}), tiny, circles, tmp_path / "none")


def test_a_whole_linear_is_one_with_another_weight() -> None:
    torch.manual_seed(0)
    base = nn.Linear(6, 4)
    whole, x = FullLinear(base, (4, 6)), torch.randn(2, 3, 6)
    assert torch.equal(whole(x), base(x)) and whole.diff_b is not None
    nn.init.normal_(whole.diff)
    nn.init.normal_(whole.diff_b)
    expected = nn.functional.linear(x, base.weight + whole.diff, base.bias + whole.diff_b)
    torch.testing.assert_close(whole(x), expected)
    assert FullLinear(nn.Linear(6, 4, bias=False), (4, 6)).diff_b is None
