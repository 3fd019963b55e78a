"""What the trainer would open for each form of name_or_path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zdoctor.doctor.model import Hub, HubRepo, ModelFolder, Unknown, WeightFile
from zdoctor.doctor.probe.adapter import probe_adapter
from zdoctor.doctor.probe.live import LiveWorld
from zdoctor.doctor.probe.model import probe_model
from zdoctor.tests.changes import changed
from zdoctor.tests.models import INDEX, NO_HUB, copy_to, edit_json, healthy, probed, run_of

PARTS = ["transformer", "text_encoder", "tokenizer", "vae"]


def cached(repo: str, snapshot: Path | None) -> HubRepo:
    where = str(snapshot) if snapshot else None
    return HubRepo(repo, "/hub", "/hub/x", "ok", "", "", "0" * 40 if where else None, where, False, ())


def test_a_whole_folder() -> None:
    model = probed(run_of(healthy()))
    assert (model.layout, model.folder, model.repo) == ("diffusers", str(healthy()), None)
    assert list(model.components) == PARTS
    transformer = model.components["transformer"]
    assert transformer.class_name == "ZImageTransformer2DModel"
    assert transformer.index_file == INDEX and len(transformer.weights) > 1
    assert transformer.needed is not None
    assert {name: tensor.shape for name, tensor in transformer.tensors.items()} == transformer.needed
    for part in model.components.values():
        assert (part.problem, part.missing_files, part.repo) == (None, (), None)
        assert part.name == "tokenizer" or part.needed


def test_a_relative_path_is_of_the_working_directory() -> None:
    run = run_of(f"./{healthy().name}/../{healthy().name}")
    model = probe_model(LiveWorld(cwd=str(healthy().parent)), run, NO_HUB)
    assert isinstance(model, ModelFolder) and model.folder == str(healthy())
    absent = probe_model(LiveWorld(cwd="/"), run, NO_HUB)
    assert isinstance(absent, ModelFolder) and absent.layout == "absent"


@pytest.mark.parametrize("source", ["~/models/Z", "C:\\models\\Z", "/no/such/folder", "Z-Image", "a/b/c"])
def test_what_is_neither_here_nor_a_hub_id_is_absent(source: str) -> None:
    model = probed(run_of(source))
    assert (model.layout, model.folder, model.repo, dict(model.components)) == ("absent", None, None, {})


def test_a_hub_id() -> None:
    run = run_of("acme/Z-Tiny")
    assert probed(run).layout == "absent" and probed(run).repo == "acme/Z-Tiny"
    assert isinstance(probe_model(LiveWorld(), run, Unknown("no cache")), Unknown)
    model = probed(run, Hub((), (cached("acme/Z-Tiny", healthy()),)))
    assert (model.layout, model.folder, model.repo, model.commit) == (
        "diffusers",
        str(healthy()),
        "acme/Z-Tiny",
        "0" * 40,
    )
    assert {part.repo for part in model.components.values()} == {"acme/Z-Tiny"}
    assert probed(run, Hub((), (cached("acme/Z-Tiny", None),))).layout == "absent"


def test_other_parts_come_from_the_extras() -> None:
    run = run_of(healthy() / "transformer", extras_name_or_path="acme/Z-Tiny")
    model = probed(run)
    assert (model.layout, list(model.components)) == ("transformer-only", ["transformer"])
    model = probed(run, Hub((), (cached("acme/Z-Tiny", healthy()),)))
    assert list(model.components) == PARTS
    assert [part.repo for part in model.components.values()] == [None, "acme/Z-Tiny", "acme/Z-Tiny", "acme/Z-Tiny"]
    local = probed(run_of(healthy() / "transformer", extras_name_or_path=str(healthy())))
    assert local.components["vae"].folder == str(healthy() / "vae")


def test_a_single_file() -> None:
    shard = sorted((healthy() / "transformer").glob("*.safetensors"))[0]
    model = probed(run_of(shard))
    assert model.layout == "single-file"
    part = model.components["transformer"]
    assert part.class_name == "ZImageTransformer2DModel" and part.tensors
    # its config comes from the published repository, which holds the defaults of the class
    assert part.needed is not None and part.needed["layers.29.attention.to_q.weight"] == (3840, 3840)
    assert probed(run_of(shard, extras_name_or_path=str(shard))).components["transformer"].needed == part.needed
    part = probed(run_of(shard, extras_name_or_path=str(healthy()))).components["transformer"]
    assert part.needed is not None and part.needed["layers.1.attention.to_q.weight"] == (96, 96)
    part = probed(run_of(shard, extras_name_or_path="acme/nothing-cached")).components["transformer"]
    assert part.needed is None and part.needed_reason
    hub = Hub((), (cached("acme/Z-Tiny", healthy()),))
    hosted = probed(run_of(f"acme/Z-Tiny/transformer/{shard.name}"), hub)
    assert (hosted.layout, hosted.repo) == ("single-file", "acme/Z-Tiny")
    assert hosted.components["transformer"].weights[0].problem is None


def test_other_architectures_are_listed_as_they_lie(tmp_path: Path) -> None:
    folder = copy_to(tmp_path / "m")
    other = "AuraFlowTransformer2DModel"
    edit_json(folder / "transformer" / "config.json", lambda tree: tree.update(_class_name=other))
    model = probed(run_of(folder, "hidream_o1"))
    assert set(model.components) == set(PARTS)
    transformer = model.components["transformer"]
    assert transformer.needed is None and other in transformer.needed_reason
    assert model.components["vae"].needed
    # how this trainer loads other models is not known, so nothing but a shard of an index is called missing
    (folder / "vae" / "diffusion_pytorch_model.safetensors").rename(folder / "vae" / "x.fp16.safetensors")
    shard = sorted((folder / "transformer").glob("*.safetensors"))[0]
    shard.unlink()
    model = probed(run_of(folder, "hidream_o1"))
    assert model.components["vae"].weights == ()
    assert [w.name for w in model.components["transformer"].weights if w.problem] == [shard.name]


@pytest.mark.parametrize(
    "weight_map",
    [{"a": "../../secret.safetensors"}, {"a": "/etc/passwd"}, {"a": "C:\\x"}, {"a": 3}, [], None, {"a": ""}],
)
def test_an_index_cannot_lead_out_of_its_folder(weight_map: object, tmp_path: Path) -> None:
    folder = copy_to(tmp_path / "m")
    (folder / "transformer" / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    part = probed(run_of(folder)).components["transformer"]
    assert part.weights == () and part.problem


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, "\x00", '"x"', "nul"])
@pytest.mark.parametrize("file", ["transformer/config.json", "tokenizer/tokenizer_config.json"])
def test_texts_that_are_no_json_objects_are_a_problem(file: str, text: str, tmp_path: Path) -> None:
    folder = copy_to(tmp_path / "m")
    (folder / file).write_text(text)
    part = probed(run_of(folder)).components[file.partition("/")[0]]
    assert part.problem is not None and Path(file).name in part.problem


@pytest.mark.parametrize("written", [None, "", "bad\0path"])
def test_no_model_at_all(written: str | None) -> None:
    run = changed(run_of("m"), base_model=written, adapter=written)
    assert isinstance(probe_model(LiveWorld(), run, NO_HUB), Unknown)
    assert not isinstance(probe_adapter(LiveWorld(), run, NO_HUB), WeightFile)


def test_adapters_from_the_hub(tmp_path: Path) -> None:
    (tmp_path / "pytorch_lora_weights.safetensors").write_bytes(b"\x02" + b"\0" * 7 + b"{}")
    hub = Hub((), (cached("acme/adapter", tmp_path),))
    for written in ("acme/adapter", "acme/adapter/pytorch_lora_weights.safetensors"):
        seen = probe_adapter(LiveWorld(), changed(run_of("m"), adapter=written), hub)
        assert isinstance(seen, WeightFile) and seen.problem is None
    seen = probe_adapter(LiveWorld(), changed(run_of("m"), adapter="acme/adapter/x.safetensors"), hub)
    assert isinstance(seen, Unknown)
