"""What the site has beside the files in docs/: its start page, from the README, a page for each rule, and languages.

mkdocs.yml names this module as its hook, so these are made whenever the site is built, and committed nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from zdoctor.doctor.languages import ENGLISH, LANGUAGES
from zdoctor.doctor.rules import Rule, all_rules, cures_of

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ORGANS = {
    "CFG": "keys and values of the config",
    "DAT": "datasets",
    "DSK": "disks",
    "HST": "what the system beneath bounds",
    "HUB": "the hub cache",
    "KOH": "sd-scripts and musubi-tuner alone",
    "LOR": "finished LoRAs",
    "MDL": "model files",
    "MEM": "memory",
    "PKG": "packages",
    "PTH": "paths",
    "SIM": "SimpleTuner alone",
    "SRC": "the trainer's source and your own script",
    "TRN": "training sense and earlier runs",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The hook of mkdocs: adds the pages that are made, and puts an index in the place of docs/rules.md."""
    from mkdocs.structure.files import File

    made = {"start.md": start_page(), "rules.md": rules_index(all_rules())}
    made |= {f"rules/{rule.id}.md": rule_page(rule) for rule in all_rules()}
    for name, text in made.items():
        if (written := files.get_file_from_path(name)) is not None:
            files.remove(written)
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """The hook of mkdocs: `[PTH001](rules.md)` leads to the rule's own page."""
    return re.sub(r"\[([A-Z]{3}\d{3})\]\(((?:\.\./)*)rules\.md\)", r"[\1](\2rules/\1.md)", markdown)


def on_post_page(output: str, page: Page, **_: object) -> str:
    """The hook of mkdocs: a page in a folder of a language says so, for screen readers, fonts and search engines."""
    language = language_of(Path(page.file.src_uri))
    return output.replace('<html lang="en"', f'<html lang="{language.replace("_", "-")}"', 1)


def language_of(page: Path) -> str:
    """The language that a page of docs/ is written in, as its folder is named."""
    return page.parent.name if page.parent.name in LANGUAGES else ENGLISH


def start_page() -> str:
    """The README as a page of docs/. What lies elsewhere in the checkout is no page, so its name alone is told."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\[([^]]+)\]\((examples/[^)]+)\)", r"\1 (`\2`)", re.sub(r"\]\(docs/", "](", text))


def rules_index(rules: Sequence[Rule]) -> str:
    lines = ["# Every rule", "", "`zdoctor explain PTH001` prints in a terminal what the page of a rule says.", ""]
    for organ, members in groupby(rules, key=lambda rule: rule.id[:3]):
        lines += [f"## {organ}: {ORGANS[organ]}", "", "| rule | name | what it finds |", "|---|---|---|"]
        lines += [f"| [{one.id}](rules/{one.id}.md) | {one.name} | {_safe(one.title)} |" for one in members]
        lines.append("")
    return "\n".join(lines)


def rule_page(rule: Rule) -> str:
    lines = [
        f"# {rule.id} {rule.name}",
        "",
        f"**{rule.severity}:** {_safe(rule.title)}",
        "",
        _safe(explained(rule)),
        "",
    ]
    lines += ["", "## In a terminal", "", "```sh", f"zdoctor explain {rule.id}", "```", ""]
    return "\n".join(lines)


def explained(rule: Rule) -> str:
    """The docstring of a rule below its title as Markdown, and its repairs."""
    body = rule.doc.partition("\n")[2].strip()
    body = re.sub(r"^(What|Why|Repair|Upstream|Signature):", r"\n**\1.**", body, flags=re.M).strip()
    body = re.sub(r"\n{3,}", "\n\n", body)
    return f"{body}\n\n*Repairs: {', '.join(cures_of(rule.id)) or 'none'}.*"


def _safe(text: str) -> str:
    """Text that a page shows as it is: outside of code, `<` begins no tag."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)
