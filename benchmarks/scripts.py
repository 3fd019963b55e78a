"""What the rules about training scripts (SRC010 to SRC016) say of code that works: Python files below some folders.

    python benchmarks/scripts.py path/to/diffusers path/to/sd-scripts …

Counts files, lines and findings by rule and severity, and names what is more than a note. Nothing is run or imported.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

from zdoctor.doctor.configs.python_tree import Unparsable
from zdoctor.doctor.examine.engine import examine
from zdoctor.doctor.model import Facts
from zdoctor.doctor.model.script import SCRIPT
from zdoctor.doctor.probe.source.script import read_script
from zdoctor.doctor.rules import all_rules


def main(folders: list[str]) -> None:
    rules = [rule for rule in all_rules() if "script" in rule.needs]
    found: Counter[tuple[str, str]] = Counter()
    files = lines = unparsed = 0
    started = time.process_time()
    for file in sorted(path for folder in folders for path in Path(folder).rglob("*.py")):
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
        if "checkpoint" not in text and "requires_grad" not in text:
            continue
        files, lines = files + 1, lines + text.count("\n")
        try:
            facts = Facts(script=read_script(str(file), text), packages={})
        except Unparsable:
            unparsed += 1
            continue
        for finding in examine(facts, rules, config=str(file), trainer=SCRIPT).findings:
            found[finding.rule, str(finding.severity)] += 1
            if finding.severity != "note" and finding.where is not None:
                print(f"{finding.severity} {finding.rule} {file}:{finding.where.line}")
    seconds = time.process_time() - started
    print(f"{files} files that speak of checkpoints or gradients, {lines} lines, {unparsed} do not parse")
    print(f"{1000 * seconds / max(files, 1):.1f} ms of CPU for a file; findings: {dict(found) or 'none'}")


if __name__ == "__main__":
    main(sys.argv[1:])
