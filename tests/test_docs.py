"""The documents say what the program does: rules.md is made of the rules (--golden writes it), the README runs."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from zdoctor import __version__
from zdoctor.doctor.cli import parser
from zdoctor.doctor.families import classes, families, family_of
from zdoctor.doctor.families.record import Family
from zdoctor.doctor.families.record.mined import mined_classes
from zdoctor.doctor.families.record.steps import mined_tables
from zdoctor.doctor.rules import all_rules
from zdoctor.doctor.schema.tables import shipped
from zdoctor.doctor.trainers import names
from zdoctor.maintenance.site import explained
from zdoctor.tests.models import run_of
from zdoctor.tests.picture import picture, words_of

ROOT = Path(__file__).parent.parent
FAMILIES = """\
CFG is about keys and values of the config, DAT datasets, DSK disks, HST what the system beneath bounds, HUB the hub
cache, LOR finished LoRAs, MDL model files, MEM memory, PKG packages, PTH paths, TRN training sense and earlier runs,
SRC the trainer's source and your own script; KOH is for sd-scripts and musubi-tuner alone, SIM for SimpleTuner."""


def rules_page() -> str:
    lines = ["# Rules", "", "Made from the rules themselves; `zdoctor explain ID` prints the same.", "", FAMILIES, ""]
    for rule in all_rules():
        lines += [f"## {rule.id} {rule.name} ({rule.severity})", "", f"{rule.title}", "", explained(rule), ""]
    return "\n".join(lines)


def test_the_rules_page_is_up_to_date(request: pytest.FixtureRequest) -> None:
    file = ROOT / "docs" / "rules.md"
    if request.config.getoption("--golden"):
        file.write_text(rules_page(), encoding="utf-8")
    assert file.read_text(encoding="utf-8") == rules_page(), "python -m pytest tests/test_docs.py --golden"


def ui_jobs() -> list[str]:
    """What ai-toolkit's interface calls the architectures that one can choose."""
    lines = (ROOT / "benchmarks" / "corpus.tsv").read_text(encoding="utf-8").splitlines()
    return [block.removeprefix("job ") for line in lines if (block := line.split("\t")[-1]).startswith("job ")]


def architecture_of(job: str) -> str | None:
    return run_of("model", job).recipe.architecture


def listed(words: set[str]) -> str:
    return ", ".join(f"`{word}`" for word in sorted(words))


def memory_judged(family: Family) -> bool:
    return family.memory is not None and bool(mined_tables(family.class_name))


def of_kohya(family: Family, trainer: str) -> list[str]:
    """What is judged in a trainer that has a file for each component."""
    of = family.kohya.get(trainer)
    if of is None or family.transformer is None or not of.files:
        return []
    return ["files", "memory"] if of.memory and mined_tables(of.memory.steps) else ["files"]


def families_page() -> str:
    """docs/families.md: what is judged of each model family in each trainer, by its record."""
    lines = [
        "# Model families",
        "",
        "Made from the records in `doctor/families`. **files**: the model's files are compared with what the trainer",
        "builds, tensor by tensor; **memory**: its peak is predicted; **trains**: `zdoctor train` trains it. Of",
        "another family the config, the dataset, paths and the environment are judged, and of its folders the parts",
        "whose class is known; the rest is said to be not known.",
        "",
        "| family | ai-toolkit | SimpleTuner | sd-scripts | musubi-tuner | zdoctor's runner |",
        "|---|---|---|---|---|---|",
    ]
    others = {family.in_diffusers for family in families()}
    for family in families():
        if family.name in others:
            continue
        own = family_of(family.in_diffusers or family.name)
        by_folder = family.transformer is not None and family.loader is not None
        memory = ["memory"] if memory_judged(family) else []
        figures = own.memory
        of_class = bool(mined_tables(f"SimpleTuner/{own.class_name}"))
        alike = memory_judged(own) and figures and not (figures.lora or figures.whole)
        elsewhere = ["memory"] if of_class or alike else []
        cells = [
            ["files", *memory] if by_folder else [],
            ["files", *elsewhere] if own.loader_of("SimpleTuner") and own.transformer and own.simpletuner else [],
            *map(partial(of_kohya, family), ("sd-scripts", "musubi-tuner")),
            ["files", *(["memory"] if memory_judged(own) else []), "trains"] if own.own else [],
        ]
        row = (f"{family.title} (`{family.name}`)", *(", ".join(cell) or "–" for cell in cells))
        lines.append(f"| {' | '.join(row)} |")
    jobs = {name: family_of(architecture_of(name)) for name in ui_jobs()}
    read = [name for name, family in jobs.items() if family.loader is not None]
    weighed = [name for name in read if memory_judged(jobs[name])]
    unread, unweighed = (listed(set(every) - set(done)) for every, done in ((jobs, read), (read, weighed)))
    lines += [
        "",
        f"Of the {len(jobs)} jobs that ai-toolkit's own interface makes, {len(read)} have their model's files judged;"
        f" not {unread}. {len(weighed)} have their memory judged, too{unweighed and '; not '}{unweighed}.",
    ]
    names = sorted({*classes(), *mined_classes()})
    lines += ["", f"Classes whose tensors are known: {', '.join(f'`{name}`' for name in names)}.", ""]
    return "\n".join(lines)


def test_the_families_page_is_up_to_date(request: pytest.FixtureRequest) -> None:
    file = ROOT / "docs" / "families.md"
    if request.config.getoption("--golden"):
        file.write_text(families_page(), encoding="utf-8")
    assert file.read_text(encoding="utf-8") == families_page(), "python -m pytest tests/test_docs.py --golden"


def test_the_rules_page_names_every_family() -> None:
    assert {rule.id[:3] for rule in all_rules()} == set(re.findall(r"\b[A-Z]{3}\b", FAMILIES))


def test_the_changelog_knows_this_version() -> None:
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_commands_of_the_readme_exist() -> None:
    commands = next(a for a in parser()._actions if a.dest == "run" or (a.choices and "check" in a.choices)).choices
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/commands.md"))
    named = set(re.findall(r"zdoctor ([a-z]+)", text))
    assert commands is not None and named <= set(commands)


def test_links_of_the_documents_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_picture_of_a_terminal_is_up_to_date(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words are those that the program prints; how another version of rich draws them is not compared."""
    monkeypatch.chdir(ROOT)
    file, drawn = ROOT / "docs" / "terminal.svg", picture()
    if request.config.getoption("--golden"):
        file.write_text(drawn, encoding="utf-8")
    assert words_of(drawn) == words_of(file.read_text(encoding="utf-8")), (
        "python -m pytest tests/test_docs.py --golden"
    )
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", ""), "a picture that loads something"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert set(re.findall(r"^- \[[^]]+\]\(([\w-]+\.md)\): .", index, re.M)) == pages


def test_the_options_that_the_page_on_training_names_exist() -> None:
    """Each word with an underscore is a key or a word of a trainer, or known where settings are read."""
    known: set[str] = set()
    for trainer in names():
        schema = shipped(trainer)
        sections = schema.sections.values() if schema is not None else ()
        known |= {word for section in sections for name, key in section.items() for word in (name, *key.choices)}
        known |= set(schema.processes) if schema is not None else set()
    rooms = ("trainers", "train/settings", "train/network", "train/output", "train/distributed", "train/runtime")
    sources = [file for room in rooms for file in (ROOT / "doctor" / room).rglob("*.py")]
    known |= {word for file in sources for word in re.findall(r"\w+", file.read_text(encoding="utf-8"))}
    assert "text_encoder1" in known and "text_encoder_2" not in known
    text = re.sub(r"```.*?```", "", (ROOT / "docs" / "train.md").read_text(encoding="utf-8"), flags=re.S)
    spans = " ".join(re.findall(r"`([^`\n]+)`", text))
    named = re.findall(r"(?<![\w./-])-{0,2}([a-z][a-z0-9]*(?:_[a-z0-9]+)+)(?![\w(./])", spans)
    of_lycoris = {"decompose_both", "dora_wd", "exclude_name", "target_name", "train_norm", "use_scalar"}
    assert not sorted(set(named) - known - of_lycoris - {"guidance_embeds"})
