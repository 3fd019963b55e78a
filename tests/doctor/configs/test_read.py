"""Reading configs: positions, substitution, defaults, and one clear problem for everything that is no config."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from zdoctor.doctor.configs.text import newline_of
from zdoctor.doctor.model import Run
from zdoctor.doctor.trainers.read import Reading, read_config
from zdoctor.tests.changes import value_of

ROOT = Path(__file__).resolve().parents[3]
SHARED = ROOT.parent / "shared"
CORPUS = SHARED / "corpus" / "ai-toolkit"
HEALTHY = """job: extension
config:
  name: lantern
  process:
    - type: sd_trainer
      training_folder: out
      network: {type: lora, linear: 16}
      datasets:
        - folder_path: "/data/[name]"
      model: {name_or_path: org/model, arch: flux}
      train: {lr: 1e-4, dtype: bf16}
"""


def read(text: str | bytes, path: str = "c.yaml", **environment: str) -> Reading:
    return read_config(path, text if isinstance(text, bytes) else text.encode(), environment)


def run_of(text: str, **environment: str) -> Run:
    reading = read(text, **environment)
    assert reading.config.problem is None, reading.config.problem
    return reading.runs[0]


def test_the_kaggle_config() -> None:
    path = ROOT / "tests" / "configs" / "kaggle_zimage.yaml"
    reading = read_config(str(path), path.read_bytes(), {})
    run = reading.runs[0]
    assert (run.kind, run.recipe.architecture, run.recipe.variant) == ("lora", "zimage", "turbo")
    assert (
        run.recipe.network.rank,
        run.recipe.precision.quantization,
        run.recipe.precision.text_encoder_quantization,
    ) == (32, "qfloat8", "qfloat8")
    assert run.output_folder == "/kaggle/working/lantern_lora/lantern_zimage_lora"
    assert run.recipe.datasets[0].resolutions == (768, 1024)
    assert run.recipe.datasets[0].caption_extension == ".txt"
    assert [s.seed for s in run.recipe.validation.prompts] == [42, 43]
    assert run.metadata["version"] == "1.0"
    lines = reading.config.text.splitlines()
    for field in run.keys:
        where = run.where(field)
        if where.line is None:
            assert run.written(field) is None
            continue
        written = run.written(field)
        if written is not None:
            assert where.column is not None
            assert lines[where.line - 1][where.column - 1 :].strip()
            assert where.pointer == run.pointer(field)


def test_every_position_reads_back() -> None:
    path = ROOT / "tests" / "configs" / "kaggle_zimage.yaml"
    config = read_config(str(path), path.read_bytes(), {}).config
    for value in config.values.values():
        if not isinstance(value.value, dict | list):
            assert yaml.safe_load(config.text[value.start : value.end]) == value.value


def test_defaults_are_the_trainers() -> None:
    run = run_of(
        "job: extension\nconfig:\n  name: n\n  process:\n  - type: sd_trainer\n    training_folder: o\n"
        "    network: {}\n    model: {name_or_path: x}\n    datasets: [{folder_path: d}]\n"
    )
    assert (
        run.recipe.architecture,
        run.recipe.precision.dtype,
        run.recipe.network.rank,
        run.recipe.network.alpha,
        run.recipe.optimizer.name,
    ) == ("sd1", "fp32", 4, 1.0, "adamw")
    assert (
        run.recipe.learning_rate,
        run.recipe.timestep_sampling.noise_scheduler,
        run.recipe.checkpoints.dtype,
        run.recipe.precision.quantization,
    ) == (
        1e-6,
        "ddpm",
        "float16",
        None,
    )
    assert run.recipe.datasets[0].resolutions == (512,)


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        ("network: {rank: 8, linear: 16}", "rank", 8),
        ("network: {alpha: 3}", "alpha", 3.0),
        ("network: {alpha: 3, linear_alpha: 5}", "alpha", 5.0),
        ("network: {linear: '16'}", "rank", 4),
        ("model: {quantize: true}", "quantization", "qfloat8"),
        ("model: {quantize: true}", "text_encoder_quantization", "qfloat8"),
        ("model: {quantize: true, quantize_te: false}", "text_encoder_quantization", None),
        ("model: {quantize: true, qtype: 'uint3|a/b/c.safetensors'}", "quantization", "uint3"),
        ("model: {qtype: int8}", "quantization", None),
        ("model: {arch: flex1}", "architecture", "flux"),
        ("model: {is_flux: true}", "architecture", "flux"),
        ("model: {arch: 'zimage:deturbo'}", "variant", "deturbo"),
        ("train: {gradient_accumulation_steps: 4}", "gradient_accumulation", 4),
        ("train: {lr: 1e-4}", "learning_rate", 1e-4),
        ("train: {lr: '1e-4'}", "learning_rate", 1e-6),
        ("train: {lr: null}", "learning_rate", 1e-6),
        ("train: {steps: []}", "steps", 1000),
        ("train: 5", "steps", 1000),
        ("datasets: {folder_path: x}", "datasets", ()),
        ("datasets: [5, null]", "kind", "finetune"),
        ("sample: {prompts: [a, b], seed: 7}", "samples", None),
        ("adapter: {train: true}", "kind", "other"),
        ("network: {type: lora}", "kind", "lora"),
        ("training_seed: 7", "seed", 7),
    ],
)
def test_aliases_and_wrong_types(settings: str, field: str, value: Any) -> None:
    run = run_of(
        "job: extension\nconfig:\n  name: n\n  process:\n  - type: sd_trainer\n    training_folder: o\n"
        f"    {settings}\n"
    )
    if field == "samples":
        assert [s.prompt for s in run.recipe.validation.prompts] == ["a", "b"]
        assert run.where("samples").line == 7
    else:
        assert value_of(run, field) == value


def test_what_a_prompt_says_of_itself() -> None:
    first, second = run_of(
        "job: extension\nconfig:\n  name: n\n  process:\n  - type: sd_trainer\n    training_folder: o\n"
        "    sample: {width: 512, samples: [{prompt: 'a hat --w 64 --ctrl_img /c/my hat.png --n no cat --x 1 --s x'},"
        " {prompt: b, ctrl_img: b.png}]}\n"
    ).recipe.validation.prompts
    assert (first.prompt, first.width, first.control) == ("a hat", 64, "/c/my hat.png")
    assert (first.negative, first.steps) == ("no cat", 20)
    assert (second.prompt, second.width, second.control) == ("b", 512, "b.png")


@pytest.mark.parametrize(
    ("written", "folders"),
    [
        ("control_path: /c", ("/c",)),
        ("control_path: [/c, /d]", ("/c", "/d")),
        ("control_path: ''", ()),
        ("control_path: /c, control_path_1: /a, control_path_3: /b", ("/a", "/b")),
    ],
)
def test_folders_of_control_images(written: str, folders: tuple[str, ...]) -> None:
    run = run_of(
        "job: extension\nconfig:\n  name: n\n  process:\n  - type: sd_trainer\n    training_folder: o\n"
        f"    datasets: [{{folder_path: x, {written}}}]\n"
    )
    assert run.recipe.datasets[0].control_folders == folders


def test_name_is_filled_in() -> None:
    run = run_of(HEALTHY)
    assert run.recipe.datasets[0].folder == "/data/lantern"
    assert run.recipe.learning_rate == pytest.approx(1e-4)


def test_a_filled_in_variable_points_at_its_source() -> None:
    text = HEALTHY.replace("out", "${OUT}/x  # ${OUT}").replace("org/model", '"${M}"')
    run = run_of(text, OUT="/a/very/long/folder", M="C:/m")
    written = run.written("output_folder")
    assert written is not None
    assert (written.value, text[written.start : written.end]) == ("/a/very/long/folder/x", "${OUT}/x")
    model = run.written("base_model")
    assert model is not None
    assert (model.value, text[model.start : model.end]) == ("C:/m", '"${M}"')
    assert run.where("learning_rate").line == 11


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends(newline: str) -> None:
    reading = read(HEALTHY.replace("\n", newline))
    assert newline_of(reading.config.text) == newline
    assert reading.runs[0].where("learning_rate").line == 11


def test_byte_order_mark_and_round_trip() -> None:
    wide = (HEALTHY.encode("utf-16"), HEALTHY.encode("utf-16-le"), HEALTHY.encode("utf-16-be"))
    for data in (b"\xef\xbb\xbf" + HEALTHY.encode(), *wide, HEALTHY.encode() + b"# \xe4\n"):
        config = read(data).config
        assert config.text.encode(config.encoding, "surrogateescape") == data
    config = read("\ufeff" + HEALTHY).config
    assert config.problem is None and config.byte_order_mark
    assert config.values["/job"].where.line == 1


@pytest.mark.parametrize("trainer", ["SimpleTuner", "sd-scripts", "musubi-tuner"])
def test_a_config_of_ai_toolkit_is_no_other_trainers_whatever_is_said(trainer: str) -> None:
    reading = read_config("c.yaml", HEALTHY.encode(), {}, trainer=trainer)
    assert reading.config.problem is not None and not reading.runs
    assert f"a config of ai-toolkit, and --trainer says {trainer}" in reading.config.problem.message
    assert read_config("c.yaml", HEALTHY.encode(), {}, trainer="ai-toolkit").runs


def test_anchors_aliases_and_merges() -> None:
    text = HEALTHY.replace("job: extension", "job: extension\nx: &net {type: lora, linear: 64}").replace(
        "{type: lora, linear: 16}", "{<<: *net, linear: 8}"
    )
    run = run_of(text)
    assert (run.recipe.network.rank, run.recipe.network.type) == (8, "lora")
    assert run.where("network_type").line == 2
    aliased = run_of(text.replace("{<<: *net, linear: 8}", "*net"))
    assert aliased.recipe.network.rank == 64
    network = aliased.written("network")
    assert network is not None


def test_json_positions() -> None:
    text = json.dumps(yaml.safe_load(HEALTHY), indent="\t")
    reading = read(text, "c.json")
    assert reading.config.problem is None
    for value in reading.config.values.values():
        if isinstance(value.value, str):
            assert json.loads(text[value.start : value.end]).replace("[name]", "lantern") == value.value
    assert reading.runs[0].where("rank").line == 1 + text[: text.index('"linear"')].count("\n")


def nested(opening: str, closing: str, depth: int) -> str:
    return "a: " + opening * depth + closing * depth


BAD = [
    ("", "c.yaml", "shape", "empty"),
    ("# only a comment\n", "c.yaml", "shape", "empty"),
    ("", "c.json", "syntax", "Expecting value"),
    (b"\x89PNG\r\n\x1a\n\0\0", "c.yaml", "encoding", "binary"),
    (b"x" * 50_000_000, "c.yaml", "size", "more than 2 MB"),
    ("- a\n- b\n", "c.yaml", "foreign", "a list"),
    ("just words\n", "c.yaml", "foreign", "one piece of text"),
    ("a: &x [*x]\n", "c.yaml", "syntax", "contains itself"),
    ("a: *x\n", "c.yaml", "syntax", "undefined alias"),
    (HEALTHY.encode("utf-16"), "c.yaml", "encoding", "UTF-16"),
    (HEALTHY.encode("utf-16-le"), "c.yaml", "encoding", "UTF-16 (without"),
    (HEALTHY.encode("utf-16-be"), "c.yaml", "encoding", "UTF-16 (without"),
    ((HEALTHY + "# ä").encode("utf-16-le"), "c.yaml", "encoding", "UTF-16 (without"),
    (b"\0" * 100, "c.yaml", "encoding", "binary"),
    (b"a\0\0\0" * 100, "c.yaml", "encoding", "binary"),
    (HEALTHY.encode().replace(b"out", b"\xfcber"), "c.yaml", "encoding", "0xfc"),
    ("a: !!python/object/apply:os.system [ls]\n", "c.yaml", "syntax", "constructor"),
    ("a: !thing 1\n", "c.yaml", "syntax", "constructor"),
    (nested("[", "]", 5000), "c.yaml", "syntax", "deeply"),
    (nested("{a: ", "}", 5000), "c.yaml", "syntax", "deeply"),
    ("[" * 100_000, "c.json", "syntax", "deeply"),
    ("[" * 90 + "]" * 90, "c.json", "syntax", "deeply"),
    ('a: "\\UFFFFFFFF"\n', "c.yaml", "syntax", "no character"),
    ('a: "\x01"\n', "c.yaml", "syntax", "not allowed"),
    ("a: 2024-01-01\n", "c.yaml", "syntax", "date"),
    ("a: 1\n---\nb: 2\n", "c.yaml", "syntax", "one document"),
    ("? {a: 1}\n: 2\n", "c.yaml", "syntax", "cannot be a key"),
    ("job: ${NOT_SET}/x\nconfig: {}\n", "c.yaml", "environment", "NOT_SET"),
    ("a: ${NOT_SET}/x\n", "c.yaml", "foreign", "it holds a. If it is one of"),
    ("a:\n\tb: 1\n", "c.yaml", "syntax", "cannot start any token"),
    ("a: 1\nconfig: {}\n", "c.yaml", "foreign", "it holds a, config"),
    ("job: backup\nconfig: {name: a}\n", "c.yaml", "foreign", "it holds job, config"),
    ("config: {name: n, process: [{type: x}]}\n", "c.yaml", "shape", "job"),
    ("job = 'extension'\n[config]\nprocess = []\n", "c.toml", "shape", "reads YAML and JSON"),
    ("job = 'sync'\n[config]\nname = 'a'\n", "c.toml", "foreign", "no training config"),
    # code, commands and prose in the place of a config
    ('import yaml\n\njob = "a"\nconfig = {"process": steps}\n', "c.toml", "foreign", "no training config"),
    ("cat > a.toml << EOF\nnetwork_module = 'a'\nEOF\n", "c.toml", "foreign", "no training config"),
    ("--network_module=networks.dylora --network_dim=16\n", "c.toml", "foreign", "no training config"),
    ('def config(steps):\n    return {"model_family": "flux"}\n', "c.json", "foreign", "no training config"),
    # with a slip in its first line it is one all the same
    ('# mine\nnetwork_module = networks.lora"\n', "c.toml", "syntax", ""),
    ('network_module: "networks.lora"\n', "c.toml", "syntax", ""),
    ('// mine\n{"model_family": "flux",}\n', "c.json", "syntax", ""),
    ("job: extension\nconfig: 5\n", "c.yaml", "shape", "section"),
    ("job: extension\nconfig: {}\n", "c.yaml", "shape", "config.name"),
    ("job: extension\nconfig: {name: 5, process: []}\n", "c.yaml", "shape", "must be text"),
    ("job: extension\nconfig: {name: n}\n", "c.yaml", "shape", "config.process"),
    ("job: extension\nconfig: {name: n, process: []}\n", "c.yaml", "shape", "list of processes"),
    ("job: extension\nconfig: {name: n, process: [{a: 1}]}\n", "c.yaml", "shape", "process[0].type"),
    ("job: extenson\nconfig: {name: n, process: [{type: x}]}\n", "c.yaml", "shape", "Unknown job type"),
    (HEALTHY.replace("sd_trainer", "sd_trianer"), "c.yaml", "shape", "Did you mean sd_trainer"),
    ('{"job": "extension",}', "c.json", "syntax", ""),
    ("\ufeff{}", "c.json", "syntax", "BOM"),
    ("<<: 5\n", "c.yaml", "syntax", "merging"),
    ("a: " + "9" * 5000 + "\n", "c.yaml", "syntax", "no int"),
]


@pytest.mark.parametrize(("data", "path", "kind", "words"), BAD, ids=range(len(BAD)))
def test_one_clear_problem(data: str | bytes, path: str, kind: str, words: str) -> None:
    reading = read(data, path)
    problem = reading.config.problem
    assert problem is not None
    assert problem.kind == kind
    assert words in problem.message
    assert not reading.runs
    assert reading.reason


def test_an_extension_of_ones_own_is_no_slip() -> None:
    reading = read(HEALTHY.replace("sd_trainer", "my_trainer"))
    assert reading.config.problem is None
    assert not reading.runs and "my_trainer" in reading.reason


def test_anchors_that_unfold_without_end() -> None:
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    problem = read(HEALTHY + "\n".join(lines) + "\n").config.problem
    assert problem is not None and problem.kind == "size"


def test_a_broken_file_keeps_its_trainer() -> None:
    config = read(HEALTHY.replace('"/data/[name]"', '"C:\\Zed"')).config
    assert config.trainer == "ai-toolkit"
    assert config.problem is not None
    assert config.problem.where.line == 9


def test_the_real_parsers_agree() -> None:
    """What PyYAML with the trainer's float resolver makes of scalars is what we make of them."""
    scalars = ["1e-4", "1.5", "1_000", "0777", "0x1F", "1:30", ".inf", "-.5", ".5e+3", "yes", "no", "~", "null", "on"]
    scalars += ["1.", "+1", "-0", "0b11", "1e5", "x", "'q'", '"d"', "0o17", "1e"]
    for scalar in scalars:
        ours = read(HEALTHY + f"meta: {{k: {scalar}}}\n").config.values["/meta/k"].value
        theirs = yaml.safe_load(f"k: {scalar}")["k"]
        if isinstance(theirs, str) and isinstance(ours, float):
            assert math.isclose(float(theirs), ours), scalar  # plain PyYAML reads 1e-4 as text, the trainer does not
        else:
            assert (type(ours), ours) == (type(theirs), theirs), scalar


@pytest.mark.parametrize("path", sorted(CORPUS.rglob("*.y*ml")) or [None], ids=lambda p: p.name if p else "absent")
def test_corpus(path: Path | None) -> None:
    if path is None:
        pytest.skip(f"the corpus is not at {CORPUS}")
    reading = read_config(path.name, path.read_bytes(), {})
    if "omnigen2" in path.name:
        assert reading.config.problem is not None
        assert reading.config.problem.where.line == 64
        return
    assert reading.config.problem is None
    expected = yaml.safe_load(path.read_text())
    process = expected["config"]["process"][0]["type"]
    kinds = {run.kind for run in reading.runs}
    if expected["job"] in ("extract", "generate", "mod") or "example_merge" in process:
        assert not reading.runs and reading.reason
    elif process in ("sd_trainer", "diffusion_trainer"):
        assert kinds <= {"lora", "finetune", "other"} and reading.runs
        if "lora" in path.name:
            assert kinds == {"lora"}
        if "full_fine_tune" in path.name:
            assert kinds == {"finetune"}
    for pointer, value in reading.config.values.items():
        if isinstance(value.value, str) and value.style is not None and "[name]" not in reading.config.text:
            assert (
                yaml.safe_load(reading.config.text[value.start : value.end]) == value.value or "\n" in value.value
            ), pointer
