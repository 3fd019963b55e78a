"""MEM001, MEM002 and MEM003 on plain records; a sound setup beside every sick one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zdoctor.checks.memory import no_gpu_for_full_model, ram_over_budget, vram_over_budget
from zdoctor.doctor.apply import apply
from zdoctor.doctor.apply.steps import diff
from zdoctor.doctor.examine.examination import examine_config
from zdoctor.doctor.memory import GIB, predict
from zdoctor.doctor.model import (
    Component,
    Fix,
    Gpu,
    Host,
    Memory,
    ModelFolder,
    Plan,
    Run,
    SetValue,
    System,
    Tensor,
    Value,
    WeightFile,
    Where,
)
from zdoctor.doctor.model.cards import CHOSEN
from zdoctor.doctor.model.trainer import RUNNER
from zdoctor.doctor.probe.recorded import RecordedWorld
from zdoctor.doctor.rules import Unestablished
from zdoctor.fixes.memory import choose_another_card, give_the_wsl_more, lower_the_peak
from zdoctor.tests.changes import changed
from zdoctor.tests.machines import WSL, gpu, load
from zdoctor.tests.models import probed, run_of

SYSTEM = System("linux", "6", "3.11", "/c", "/h", 4, 30 * GIB, 28 * GIB)


def card(gib: float, capability: tuple[int, int] = (8, 6)) -> Gpu:
    return Gpu(0, "card", int(gib * GIB), int(gib * GIB), capability, "560", "recorded")


def zimage(**changes: Any) -> Run:
    run = run_of("Tongyi-MAI/Z-Image-Turbo")
    datasets = tuple(replace(d, resolutions=(1024,), cache_latents=True) for d in run.recipe.datasets)
    return changed(run, **{"rank": 16, "cache_text_embeddings": True, "datasets": datasets, **changes})


def memory(run: Run, gpu: Gpu, system: System = SYSTEM) -> Memory:
    seen = predict(run, probed(run), (), system, (gpu,))
    assert isinstance(seen, Memory)
    return seen


def written(fix: Fix, run: Run) -> dict[str, object]:
    return {s.pointer.removeprefix(run.root + "/"): s.value for s in fix.steps if isinstance(s, SetValue)}


QUANTIZED = {"quantization": "qfloat8", "text_encoder_quantization": "qfloat8"}


@pytest.mark.parametrize(
    ("run", "gpu", "severity"),
    [
        (zimage(), card(48), None),
        (zimage(), card(14.6, (7, 5)), "error"),
        (zimage(**QUANTIZED), card(14.6, (7, 5)), None),
        (zimage(**QUANTIZED), card(24), None),
        (zimage(**QUANTIZED), card(8), "error"),
        (zimage(**QUANTIZED), card(10.5), "warning"),
    ],
)
def test_vram(run: Run, gpu: Gpu, severity: str | None) -> None:
    seen = list(vram_over_budget(run, memory(run, gpu)))
    assert [finding.severity for finding in seen] == ([severity] if severity else [])
    for finding in seen:
        assert "computed" in finding.text() and "recorded" in finding.text()
        assert "assumes captions of up to 256 tokens" in finding.evidence["assumptions"]
        assert finding.consequence()


@pytest.mark.parametrize(
    ("quantization", "trainer", "gib", "severity"),
    [
        (None, RUNNER, 8, "error"),  # the weights alone are 11.5 GiB, whatever the processor computes in
        (None, RUNNER, 17, "warning"),  # a processor without bfloat16 takes twice as much
        (None, RUNNER, 48, None),
        ("qfloat8", RUNNER, 4, "error"),
        ("qfloat8", RUNNER, 32, None),
        ("qfloat8", "ai-toolkit", 8, "error"),
        ("qfloat8", "ai-toolkit", 32, None),
    ],
)
def test_the_memory_of_a_computer_without_a_gpu(
    quantization: str | None, trainer: str, gib: int, severity: str | None
) -> None:
    run = zimage(trainer=trainer, device="cpu", quantization=quantization, text_encoder_quantization=quantization)
    system = replace(SYSTEM, memory_total=gib * GIB, memory_available=int(0.9 * gib * GIB))
    for device, here in (("cpu", system), ("mps", replace(system, os="darwin"))):
        run = replace(run, device=device)
        seen = predict(run, probed(run), (), here, ())
        assert isinstance(seen, Memory)
        assert [f.severity for f in vram_over_budget(run, seen)] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("device", "gib", "severity", "words"),
    [
        ("cpu", 16, None, ""),
        ("cpu", 12, "warning", "1.2 GiB of them are read from it again"),
        ("cpu", 8, "warning", "4.8 GiB of them are read from it again"),
        ("cpu", 4, "warning", "it may not fit"),
        ("cpu", 2, "error", "1.8 GiB are free in this computer's memory (measured"),
        ("mps", 16, None, ""),
        ("mps", 8, "error", "7.2 GiB are free in this computer's memory, which its GPU shares (measured"),
    ],
)
def test_weights_that_are_mapped_from_a_file_need_not_fit(
    device: str, gib: int, severity: str | None, words: str
) -> None:
    """On a processor; MPS has no maps of files."""
    run = zimage(trainer=RUNNER, device=device, quantization="qfloat8")
    system = replace(SYSTEM, memory_total=gib * GIB, memory_available=int(0.9 * gib * GIB))
    seen = predict(run, probed(run), (), system, ())
    assert isinstance(seen, Memory)
    found = list(vram_over_budget(run, seen))
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    for finding in found:
        assert words in finding.text()
        assert ("take longer" in finding.consequence()) == ("read from it again" in words)
        assert all("close other programs" in fix.title for fix in lower_the_peak(finding, run, seen) if not fix.steps)


@pytest.mark.parametrize(
    ("run", "gib", "names", "shared"),
    [
        (zimage(gradient_accumulation=2), (16, 16), "same", True),
        (zimage(gradient_accumulation=2), (16, 12), "same", False),
        (zimage(gradient_accumulation=2), (16, 16), "different", False),
        (zimage(), (16, 16), "same", False),
        (zimage(gradient_accumulation=2, **QUANTIZED), (8, 8), "same", False),
    ],
)
def test_cards_of_a_kind_share_what_one_cannot_hold(
    run: Run, gib: tuple[float, ...], names: str, shared: bool
) -> None:
    """It stays an error, for other trainers; zdoctor train goes on where the finding says that it fits."""
    cards = [replace(card(g), index=i, name="card" if names == "same" else f"card {i}") for i, g in enumerate(gib)]
    seen = predict(run, probed(run), (), SYSTEM, tuple(cards))
    assert isinstance(seen, Memory) and seen.only_fits_sharded(2) <= (seen.sharded(2) < seen.peak.total)
    (finding,) = vram_over_budget(run, seen)
    assert finding.severity == "error"
    assert ("shares the base out over 2 of the cards" in finding.text()) is shared


FULL, FREE = (replace(card(48), memory_free=3 * GIB, name="A6000"), replace(card(48), index=1, name="A6000"))
SMALL = replace(card(2, (6, 1)), name="GT 1030")
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("gpus", "environment", "device", "variables"),
    [
        ((FULL, FREE), {}, "GPU 0, A6000", "CUDA_VISIBLE_DEVICES=1"),
        ((FULL, FREE), {"CUDA_VISIBLE_DEVICES": "0"}, "GPU 0, A6000", "CUDA_VISIBLE_DEVICES=1"),
        ((FULL, FREE), {"CUDA_VISIBLE_DEVICES": "1"}, None, ""),
        ((FULL, FREE), {"CUDA_VISIBLE_DEVICES": "1,0"}, None, ""),
        ((FREE, FULL), {}, None, ""),
        ((FREE, FULL), {"CUDA_VISIBLE_DEVICES": "1"}, "GPU 1, A6000", "CUDA_VISIBLE_DEVICES=0"),
        ((FULL, FULL), {}, "GPU 0, A6000", ""),
        ((SMALL, FREE), {}, None, ""),  # CUDA counts one of the two first, which need not be this one
        ((SMALL, FREE), BY_BUS, "GPU 0, GT 1030", "CUDA_VISIBLE_DEVICES=1"),
        ((SMALL, FREE), {**BY_BUS, "CUDA_VISIBLE_DEVICES": "1"}, None, ""),
        ((SMALL, FULL), {}, "GPU 1, A6000", ""),
        (
            (replace(SMALL, uuid="GPU-a"), replace(FREE, uuid="GPU-b")),
            {"CUDA_VISIBLE_DEVICES": "GPU-a"},
            "GPU 0, GT 1030",
            "CUDA_DEVICE_ORDER=PCI_BUS_ID and CUDA_VISIBLE_DEVICES=1",
        ),
    ],
)
def test_the_card_that_the_run_takes_is_counted_with(
    gpus: tuple[Gpu, ...], environment: dict[str, str], device: str | None, variables: str
) -> None:
    gpus = tuple(replace(gpu, index=index) for index, gpu in enumerate(gpus))
    run, system = zimage(), replace(SYSTEM, environment=environment)
    seen = predict(run, probed(run), (), system, gpus)
    assert isinstance(seen, Memory)
    found = list(vram_over_budget(run, seen))
    assert [finding.evidence["device"] for finding in found] == ([] if device is None else [device])
    for finding in found:
        assert finding.severity == "error" and f"are free on {device} (recorded)" in finding.text()
        fixes = list(choose_another_card(finding, seen, system))
        assert (", has room for it: 48.0 GiB are free there." in finding.text()) is bool(variables) is bool(fixes)
        for fix in fixes:
            assert f"set {variables} in the terminal" in fix.title and fix.safety == "show" and not fix.steps
            assert fix.command == f"export {variables.replace(' and', '')}"
            (on_windows,) = choose_another_card(finding, seen, replace(system, os="windows"))
            assert on_windows.command.endswith(f'$env:CUDA_VISIBLE_DEVICES = "{variables[-1]}"')


def chosen(cards: str) -> Run:
    """A run whose script sets CUDA_VISIBLE_DEVICES."""
    run = zimage()
    return changed(run, settings={**run.settings, CHOSEN: Value(cards, Where("c"), 0, 0)})


@pytest.mark.parametrize(
    ("run", "rank"),
    [
        (zimage(trainer=RUNNER, device="cuda:0"), None),
        (zimage(trainer=RUNNER), "0"),
        (chosen("0"), None),
    ],
)
def test_a_card_that_the_config_names_or_a_process_was_given_is_not_exchanged(run: Run, rank: str | None) -> None:
    system = SYSTEM if rank is None else replace(SYSTEM, environment={"LOCAL_RANK": rank})
    seen = predict(run, probed(run), (), system, (FULL, FREE))
    assert isinstance(seen, Memory) and seen.elsewhere is None
    (finding,) = vram_over_budget(run, seen)
    assert "GPU 0" in finding.text() and "has room" not in finding.text()


def test_what_a_script_chooses_outweighs_the_environment() -> None:
    run, system = chosen("1"), replace(SYSTEM, environment={"CUDA_VISIBLE_DEVICES": "0"})
    seen = predict(run, probed(run), (), system, (FULL, FREE))
    assert isinstance(seen, Memory) and seen.device == "GPU 1, A6000" and not list(vram_over_budget(run, seen))
    (finding,) = no_gpu_for_full_model(chosen("-1"), (FREE,), probed(run), SYSTEM)
    assert "CUDA_VISIBLE_DEVICES=-1 hides every GPU" in finding.text()


@pytest.mark.parametrize(
    ("free", "environment", "found"),
    [
        ((3.0, 47.0), {}, ["MEM001"]),
        ((3.0, 47.0), {"CUDA_VISIBLE_DEVICES": "1"}, []),
        ((47.0, 3.0), {}, []),
        ((47.0, 3.0), {"CUDA_VISIBLE_DEVICES": "1"}, ["MEM001"]),
        ((47.0, 47.0), {"CUDA_VISIBLE_DEVICES": ""}, ["MEM003"]),
        ((47.0, 47.0), {"CUDA_VISIBLE_DEVICES": "2"}, ["MEM003"]),
    ],
)
def test_a_recorded_server_with_two_cards(
    free: tuple[float, ...], environment: dict[str, str], found: list[str]
) -> None:
    record = load("healthy")
    record["gpus"] = [gpu("NVIDIA RTX A6000", 48.0, left, (8, 6)) for left in free]
    record["system"]["environment"] = environment
    text = (Path(__file__).parent.parent / "configs" / "server_healthy.yaml").read_bytes()
    seen = examine_config("config.yaml", RecordedWorld(record), text=text).report
    assert [finding.rule for finding in seen.errors] == found
    for finding in seen.errors:
        if finding.rule == "MEM003":
            assert f"CUDA_VISIBLE_DEVICES={environment['CUDA_VISIBLE_DEVICES']} hides every GPU" in finding.text()


@pytest.mark.parametrize(
    ("card", "ram", "severity"),
    [
        (replace(card(8), driver="560.81", driver_model="WDDM"), 64, "warning"),
        (replace(card(8), driver="560.81"), 64, "warning"),
        (replace(card(4), driver="560.81", driver_model="WDDM"), 8, "error"),  # 4 GiB more are too little
        (replace(card(8), driver="531.79", driver_model="WDDM"), 64, "error"),
        (replace(card(8), driver="560.81", driver_model="TCC"), 64, "error"),
        (replace(card(48), driver="560.81", driver_model="WDDM"), 64, None),
    ],
)
def test_windows_keeps_in_ram_what_a_card_does_not_hold(card: Gpu, ram: int, severity: str | None) -> None:
    windows = replace(SYSTEM, os="windows", memory_total=ram * GIB, memory_available=ram * GIB)
    run = zimage(**QUANTIZED)
    seen = list(vram_over_budget(run, memory(run, card, windows)))
    assert [finding.severity for finding in seen] == ([severity] if severity else [])
    assert all(("Windows keeps" in finding.consequence()) is (severity == "warning") for finding in seen)


def test_the_fix_is_the_shortest_ladder_that_fits() -> None:
    run = zimage(cache_text_embeddings=False)
    seen = memory(run, card(13))
    (finding,) = vram_over_budget(run, seen)
    (fix,) = lower_the_peak(finding, run, seen)
    assert {step.pointer.removeprefix(run.root + "/") for step in fix.steps if isinstance(step, SetValue)} >= {
        "model/quantize",
        "model/qtype",
    }
    assert (fix.safety, fix.training_effect) == ("safe", "changes-result")
    run = zimage(gradient_checkpointing=False)
    seen = memory(run, card(24))
    (finding,) = vram_over_budget(run, seen)
    (fix,) = lower_the_peak(finding, run, seen)
    assert [step.pointer.removeprefix(run.root + "/") for step in fix.steps if isinstance(step, SetValue)] == [
        "train/gradient_checkpointing"
    ]
    assert fix.training_effect == "equivalent"
    cured = changed(run, offload={"gradient_checkpointing": True})
    assert list(vram_over_budget(cured, memory(cured, card(24)))) == []


def test_a_smaller_batch_comes_with_its_accumulation() -> None:
    run = zimage(**QUANTIZED, batch_size=4)
    seen = memory(run, card(15))
    (finding,) = vram_over_budget(run, seen)
    (fix,) = lower_the_peak(finding, run, seen)
    steps = {
        step.pointer.removeprefix(run.root + "/"): step.value for step in fix.steps if isinstance(step, SetValue)
    }
    assert steps == {"train/batch_size": 1, "train/gradient_accumulation": 4}
    assert fix.training_effect == "equivalent"


def test_when_nothing_suffices_it_is_said() -> None:
    run = zimage()
    seen = memory(run, card(4))
    (finding,) = vram_over_budget(run, seen)
    (fix,) = lower_the_peak(finding, run, seen)
    assert fix.safety == "show" and not fix.steps
    assert "no setting brings the peak below" in fix.title


def test_where_only_the_margin_is_missed_that_is_said() -> None:
    run = zimage()
    (finding,) = vram_over_budget(run, memory(run, card(8)))
    (fix,) = lower_the_peak(finding, run, memory(run, card(8)))
    assert fix.safety == "show" and not fix.steps
    assert "with all settings the peak is 7.9 GiB, perhaps 8.4 GiB (computed), and 8.0 GiB are free" in fix.title


def test_ram() -> None:
    small = replace(SYSTEM, memory_total=12 * GIB, memory_available=10 * GIB)
    run = zimage(quantization="qfloat8", adapter="a.safetensors")
    (finding,) = ram_over_budget(run, memory(run, card(24), small), small)
    assert finding.severity == "error"
    assert list(ram_over_budget(run, memory(run, card(24)), SYSTEM)) == []
    busy = replace(SYSTEM, memory_available=8 * GIB)
    (finding,) = ram_over_budget(run, memory(run, card(24), busy), busy)
    assert finding.severity is None
    # without an adapter nothing but the quantized weights must be held: what lies on disk as it is used gives way
    bare = changed(run, adapter=None)
    assert list(ram_over_budget(bare, memory(bare, card(24), busy), busy)) == []


@pytest.mark.parametrize(
    ("changes", "phase"),
    [
        ({"adapter": "a/b"}, "loading the model"),
        ({"quantization": "qfloat8"}, "quantizing the model"),
        ({"offload.share": 1.0}, "training with offloaded blocks"),
        ({"offload.share": 1.0, "quantization": "qfloat8"}, "quantizing the model"),
        ({}, ""),
    ],
)
def test_ram_by_phase(changes: dict[str, Any], phase: str) -> None:
    small = replace(SYSTEM, memory_total=3 * GIB, memory_available=2 * GIB)
    run = zimage(**changes)
    seen = list(ram_over_budget(run, memory(run, card(24), small), small))
    assert len(seen) == bool(phase) and all(f"The phase '{phase}' holds" in finding.text() for finding in seen)


@pytest.mark.parametrize(
    ("system", "says", "ends"),
    [
        (replace(SYSTEM, contained=True, swap=0), "(measured: what this container is given)", "ends the run without"),
        (replace(SYSTEM, release=WSL), "(measured: what Windows gives the WSL)", "slows to a crawl"),
        (replace(SYSTEM, swap=64 * GIB), "(measured)", "slows to a crawl"),
    ],
)
def test_ram_and_where_it_comes_from(system: System, says: str, ends: str) -> None:
    small = replace(system, memory_total=8 * GIB, memory_available=6 * GIB)
    run = zimage(adapter="a/b")
    (finding,) = ram_over_budget(run, memory(run, card(24), small), small)
    assert says in finding.text() and ends in finding.consequence()
    assert (finding.severity == "error") is (not small.swap)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "[wsl2]\nmemory={}\n"),
        ("[experimental]\r\nsparseVhd=true", "[experimental]\r\nsparseVhd=true\r\n[wsl2]\r\nmemory={}\r\n"),
        ("\ufeff[wsl2]\nswap=0\n", "\ufeff[wsl2]\nmemory={}\nswap=0\n"),
        ("[wsl2]", "[wsl2]\nmemory={}\n"),
        ("# mine\n[WSL2]\nswap=0\n Memory = 8GB # all\n[x]\n", "# mine\n[WSL2]\nswap=0\nmemory={}# all\n[x]\n"),
        ("[wsl2]\nswap=0\n[x]\nmemory=1\n", "[wsl2]\nmemory={}\nswap=0\n[x]\nmemory=1\n"),
    ],
)
def test_the_memory_that_windows_gives_a_wsl(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / ".wslconfig"
    if before:
        file.write_bytes(before.encode())
    small = replace(SYSTEM, release=WSL, memory_total=8 * GIB, memory_available=6 * GIB)
    run = zimage(adapter="a/b")
    predicted = memory(run, card(24), small)
    (finding,) = ram_over_budget(run, predicted, small)
    (fix,) = give_the_wsl_more(finding, predicted, small, Host(wsl_config=str(file), wsl_text=before))
    size = f"{-(-(predicted.host_peak + 2 * GIB) // GIB) + 1}GB"
    assert fix.safety == "ask" and f"memory={size}" in fix.title
    plan = Plan(str(tmp_path / "c.yaml"), (fix,))
    assert f"\n+memory={size}" in diff(plan)
    apply(plan, state=tmp_path / "state")
    assert file.read_bytes().decode() == after.format(size)
    assert not list(give_the_wsl_more(finding, predicted, SYSTEM, Host()))


def test_no_gpu() -> None:
    part = Component("transformer", "/m", "X", {}, (), needed={"w": (40000, 40000)})
    model = ModelFolder("m", "diffusers", "/m", {"transformer": part})
    run = zimage()
    assert len(list(no_gpu_for_full_model(run, (), model, SYSTEM))) == 1
    assert list(no_gpu_for_full_model(run, (card(8),), model, SYSTEM)) == []
    assert list(no_gpu_for_full_model(replace(run, device="cpu"), (), model, SYSTEM)) == []
    assert list(no_gpu_for_full_model(run, (), model, replace(SYSTEM, os="darwin"))) == []
    assert len(list(no_gpu_for_full_model(run, (), probed(run), SYSTEM))) == 1
    with pytest.raises(Unestablished):
        list(no_gpu_for_full_model(run, (), probed(run_of("acme/Z-Tiny")), SYSTEM))
    tiny = replace(model, components={"transformer": replace(part, needed={"w": (40, 40)})})
    assert list(no_gpu_for_full_model(run, (), tiny, SYSTEM)) == []
    # a header may say more than its file of some hundred bytes holds: it is said, and not computed
    said = replace(part, needed=None, config=None, weights=(_said((80_000, 80_000)),))
    (finding,) = no_gpu_for_full_model(run, (), replace(model, components={"transformer": said}), SYSTEM)
    assert "6.4 billion parameters (by the headers of its files)" in finding.text()
    built = replace(part, needed={"w": (80_000, 80_000)}, config={"dim": 1}, weights=())
    (finding,) = no_gpu_for_full_model(run, (), replace(model, components={"transformer": built}), SYSTEM)
    assert "6.4 billion parameters (by its config.json)" in finding.text()


def _said(shape: tuple[int, ...]) -> WeightFile:
    return WeightFile("a.safetensors", "/a.safetensors", 300, {"w": Tensor("BF16", shape)})


@pytest.mark.parametrize(
    ("architecture", "model", "billions"),
    [("flux", "black-forest-labs/FLUX.1-dev", 11.9), ("flux_kontext", "black-forest-labs/FLUX.1-Kontext-dev", 11.9)],
)
def test_no_gpu_for_a_published_model_of_every_family(architecture: str, model: str, billions: float) -> None:
    """What a published model is made of is known before a file of it is here: of Flux as of Z-Image."""
    run = changed(zimage(), architecture=architecture, base_model=model)
    (finding,) = no_gpu_for_full_model(run, (), ModelFolder(model, "absent", None), SYSTEM)
    assert finding.args["billions"] == f"{billions}" and finding.args["source"] == "as published"
    with pytest.raises(Unestablished):
        list(no_gpu_for_full_model(run, (), ModelFolder("somebody/another", "absent", None), SYSTEM))
