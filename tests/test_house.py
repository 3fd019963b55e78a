"""The house keeps its shape: who may import whom, what is packaged, how rules are documented."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import tomlkit

from zdoctor.doctor.cli import COMMANDS
from zdoctor.doctor.rules import all_repairs, all_rules

ROOT = Path(__file__).parent.parent
PURE = ("checks", "fixes", "reports")
FORBIDDEN = {"os", "subprocess", "socket", "time", "random", "torch", "pynvml", "psutil", "huggingface_hub", "numpy"}
HEAVY = {"torch", "diffusers", "transformers", "peft", "accelerate", "numpy"}
MAY_BE_HEAVY = ("doctor/train/", "doctor/demo/")


def modules(*folders: str) -> list[Path]:
    return [p for folder in folders for p in sorted((ROOT / folder).rglob("*.py"))]


@cache
def nodes(file: Path) -> Sequence[ast.AST]:
    """The syntax tree of a module, flat."""
    return list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))


@cache
def imports(file: Path) -> set[str]:
    """Dotted names that a module imports, down to what it takes from them; relative ones begin with `zdoctor`."""
    package = ["zdoctor", *file.relative_to(ROOT).parts[:-1]]
    found: set[str] = set()
    for node in nodes(file):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            found |= {".".join([*base, *([node.module] if node.module else []), alias.name]) for alias in node.names}
    return found


def test_pure_folders_touch_nothing() -> None:
    known = ("model", "families", "packages", "trainers", "rules")
    for file in modules(*PURE):
        allowed = (*(f"zdoctor.doctor.{name}" for name in known), f"zdoctor.{file.relative_to(ROOT).parts[0]}")
        names = imports(file)
        assert not {name for name in names if name.startswith("zdoctor") and not name.startswith(allowed)}, file
        roots = {name.split(".")[0] for name in names}
        assert not roots & FORBIDDEN, file
        assert "rich" not in roots or file.name == "painting.py"
        calls = (node.func for node in nodes(file) if isinstance(node, ast.Call))
        assert not any(isinstance(called, ast.Name) and called.id == "open" for called in calls), file


PURE_ROOMS = [ROOT / "doctor" / "examine" / name for name in ("engine.py", "translate.py")] + modules(
    "doctor/model", "doctor/families", "doctor/trainers", "doctor/memory", "doctor/crash"
)


def test_rooms_that_call_themselves_pure_touch_nothing() -> None:
    for file in PURE_ROOMS:
        assert not {name.split(".")[0] for name in imports(file)} & FORBIDDEN, file
        assert not re.search(r"(?<![.\w])open\(", file.read_text(encoding="utf-8")), file


def test_only_the_runner_is_heavy() -> None:
    allowed = ("commands/demo", "commands/handover", "commands/train", "examine/translate")
    for file in modules("doctor"):
        place, names = file.relative_to(ROOT).as_posix(), imports(file)
        if place.startswith(MAY_BE_HEAVY):
            continue
        assert not {name.split(".")[0] for name in names} & HEAVY, place
        if any(f"{name}.".startswith("zdoctor.doctor.train.") for name in names):
            assert place in {f"doctor/{name}.py" for name in allowed}


def test_a_check_loads_nothing_that_is_slow_to_load() -> None:
    """Neither the libraries of a training nor those of a network, an editor or an agent, in whatever language."""
    slow = {*HEAVY, "ssl", "http", "socket", "email", "rich", "pygls", "mcp", "babel", "pydantic"}
    check = ["--lang", "vi", "check", "examples/kaggle_zimage.yaml", "--machine", "examples/kaggle_t4x2.json"]
    program = f"import sys; from zdoctor.doctor.cli import main; main({check}); print({slow} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1:] == ["set()"], done.stderr


# The folders of doctor/train from the bottom up; its own modules, which are a run from start to end, stand above all.
TRAIN_LAYERS = (
    *("probe_scripts", "settings", "runtime", "distributed", "kernels", "weights", "components", "families"),
    *("transformer", "network", "rehearsal", "dataset", "encode", "step", "sampling", "output", ""),
)


def train_imports() -> dict[str, set[str]]:
    """Each module of doctor/train by its path below that folder -> the modules there that it imports."""
    train = ROOT / "doctor" / "train"
    files = {".".join(p.relative_to(train).with_suffix("").parts): p for p in modules("doctor/train")}
    found: dict[str, set[str]] = {}
    for name, file in files.items():
        inside = {i.removeprefix("zdoctor.doctor.train").strip(".") for i in imports(file) if ".doctor.train" in i}
        targets = {t for i in inside for t in (i, i.rpartition(".")[0]) if t in files}
        targets |= {f"{i.rpartition('.')[0]}.__init__" for i in inside if not {i, i.rpartition(".")[0]} & set(files)}
        found[name] = {target.removeprefix(".") for target in targets} - {name}
    return found


def test_the_runner_imports_downwards_only() -> None:
    """Every import of doctor/train goes to a lower layer or within the folder, and no two modules need each other."""
    graph = train_imports()
    assert sum(map(len, graph.values())) > 100
    level = {name: TRAIN_LAYERS.index(name.rpartition(".")[0]) for name in graph}
    assert not [f"{name} -> {to}" for name in graph for to in graph[name] if level[to] > level[name]]
    TopologicalSorter(graph).prepare()  # raises CycleError


def folder_of(name: str) -> str | None:
    """The folder that a dotted name of ours is in, "" for the root; None for names of other packages."""
    parts = name.split(".")
    if parts[0] != "zdoctor":
        return None
    place = ROOT
    for part in parts[1:]:
        if not (place / part).is_dir():
            break
        place /= part
    return place.relative_to(ROOT).as_posix().removeprefix(".")


def test_no_two_folders_import_each_other() -> None:
    """But the root, which knows the version and hands out what `import zdoctor` shows."""
    graph: dict[str, set[str]] = {}
    for file in modules("doctor", *PURE):
        folder = file.parent.relative_to(ROOT).as_posix()
        graph.setdefault(folder, set()).update({at for name in imports(file) if (at := folder_of(name))} - {folder})
    assert len(graph) > 40
    both = {(one, other) for one in graph for other in graph[one] if one < other and one in graph.get(other, ())}
    assert not both


OWN_ROOMS = (
    *("doctor/families/", "doctor/trainers/", "doctor/schema/"),
    *("checks/ai_toolkit/", "checks/simpletuner/", "checks/kohya/"),
)


def comparisons(file: Path, names: set[str]) -> Iterator[str]:
    """The places where an attribute or variable of one of these names is compared with something."""
    for node in nodes(file):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
            sides = [node.left, *node.comparators]
            if {getattr(side, "attr", None) or getattr(side, "id", None) for side in sides} & names:
                yield f"{file.relative_to(ROOT)}:{node.lineno}"


def test_a_family_is_a_record_and_no_if() -> None:
    """Outside the rooms of families and trainers hardly anything asks for an architecture by name."""
    files = [f for f in modules("doctor", *PURE) if not f.relative_to(ROOT).as_posix().startswith(OWN_ROOMS)]
    asked = [place for file in files for place in comparisons(file, {"architecture", "arch"})]
    assert len(asked) <= 5, asked
    named = re.compile(r'"(flux|flux_kontext|z_image)"')
    assert not [file for file in files if named.search(file.read_text(encoding="utf-8"))]


KEY_PATH = re.compile(r"(?:train|network|model|save|sample|datasets|logging)/[\w*/]+")
# A family's record says which settings its loader in ai-toolkit looks at.
OF_A_TRAINER = ("doctor/trainers/", "doctor/families/", "checks/ai_toolkit/", "checks/simpletuner/", "checks/kohya/")


def of_no_trainer() -> list[Path]:
    """The modules outside the rooms of trainers and families."""
    files = modules("doctor", *PURE)
    return [file for file in files if not file.relative_to(ROOT).as_posix().startswith(OF_A_TRAINER)]


def test_no_key_path_of_a_trainer_leaves_its_room() -> None:
    """What a config says is read into the Recipe; below that nobody knows how a trainer spells it."""
    for file in of_no_trainer():
        constants = (node.value for node in nodes(file) if isinstance(node, ast.Constant))
        assert not [one for one in constants if isinstance(one, str) and KEY_PATH.fullmatch(one)], file


def test_a_trainer_is_a_record_and_no_if() -> None:
    """What a trainer does otherwise is an attribute of its record; at most 15 places compare its name."""
    asked = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in of_no_trainer()
        for node in nodes(file)
        if isinstance(node, ast.Compare)
        and any(isinstance(side, ast.Attribute) and side.attr == "trainer" for side in (node.left, *node.comparators))
    ]
    assert len(asked) <= 15, asked


def test_few_functions_are_longer_than_a_screen() -> None:
    long = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}"
        for file in modules("doctor", *PURE)
        for node in nodes(file)
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or node.lineno) - node.lineno >= 60
    ]
    assert len(long) <= 8, long


def test_tests_are_imported_as_part_of_the_package() -> None:
    """Under two names a module would be two: its caches made twice, its classes not equal."""
    assert not {
        str(file.relative_to(ROOT)) for file in modules("tests") if any(n.startswith("tests.") for n in imports(file))
    }


def test_every_folder_is_packaged() -> None:
    project = tomlkit.parse((ROOT / "pyproject.toml").read_text()).unwrap()
    listed = set(project["tool"]["setuptools"]["packages"])
    folders = {p.parent.relative_to(ROOT) for top in ("doctor", *PURE) for p in (ROOT / top).rglob("*.py")}
    assert listed == {"zdoctor", *(".".join(["zdoctor", *folder.parts]) for folder in folders)}


def test_the_page_about_the_house_names_every_room() -> None:
    page = (ROOT / "docs" / "house.md").read_text(encoding="utf-8")
    folders = [p.parent.relative_to(ROOT / "doctor") for p in (ROOT / "doctor").rglob("__init__.py")]
    rooms = {p.as_posix() for p in folders if len(p.parts) == 1 or p.parts[:1] == ("train",)}
    rooms |= {p.name for p in (ROOT / "doctor").glob("*.py") if p.name != "__init__.py"}
    assert not {room for room in rooms if f"`{room}" not in page and f"`doctor/{room}" not in page}
    shown = re.findall(r"^\| (`doctor/.*?) \|", page, re.M)
    named = {name.removeprefix("doctor/").strip("/") for row in shown for name in re.findall(r"`([\w./]+)`", row)}
    assert named <= rooms
    (listed,) = re.findall(r"`doctor/commands/` \|.* a command \(([a-z, ]+)\)", page)
    assert listed.split(", ") == list(COMMANDS)


def test_every_rule_is_documented_and_tested() -> None:
    tests = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    for rule in all_rules():
        assert rule.title, rule.id
        for heading in ("What:", "Why:"):
            assert re.search(rf"^{heading}", rule.doc, re.M), f"{rule.id}: no {heading}"
        assert rule.id not in all_repairs() or re.search(r"^Repair:", rule.doc, re.M), f"{rule.id}: no Repair:"
        assert rule.id in tests, f"{rule.id} has no test"


def test_every_repair_belongs_to_a_rule() -> None:
    assert set(all_repairs()) <= {rule.id for rule in all_rules()}


def test_check_imports_nothing_heavy() -> None:
    """In a process of its own: a JSON check of the example imports no torch, numpy or rich, no other format, no
    other command, and of the standard library not what takes long to import."""
    script = textwrap.dedent(
        """
        import sys
        from zdoctor.doctor.cli import COMMANDS, main
        main(["check", "examples/kaggle_zimage.yaml", "--format", "json", "-o", sys.argv[1]])
        slow = {"inspect", "ast", "dataclasses", "platformdirs", "concurrent.futures"} & set(sys.modules)
        assert not slow, slow
        code = main(["check", "examples/kaggle_zimage.yaml", "--machine", "examples/kaggle_t4x2.json",
                     "--format", "json", "-o", sys.argv[1]])
        heavy = {"torch", "numpy", "diffusers", "transformers", "rich", "huggingface_hub"} & set(sys.modules)
        others = ("markdown", "html", "sarif", "junit", "github", "terminal")
        heavy |= {f"zdoctor.reports.{other}" for other in others} & set(sys.modules)
        heavy |= {f"zdoctor.doctor.commands.{other}" for other in COMMANDS if other != "check"} & set(sys.modules)
        assert code == 1 and not heavy, (code, heavy)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "/dev/null" if sys.platform != "win32" else "NUL"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_nothing_names_the_machine_it_was_built_on() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    here = re.compile(rf"(?<![\w.-]){re.escape(str(ROOT.parent))}/")
    for name in tracked.stdout.split():
        if name.endswith((".py", ".md", ".toml", ".txt", ".yaml", ".json")):
            text = (ROOT / name).read_text(encoding="utf-8")
            assert not here.search(text) or len(ROOT.parts) < 3, name
