"""Resolve trainers' real requirements as their READMEs say; tell what is said of such a set, whole and spoiled.

    git clone https://github.com/ostris/ai-toolkit            (and bghira/SimpleTuner, kohya-ss/sd-scripts,
    python benchmarks/pinned.py FOLDER [NAME …]                kohya-ss/musubi-tuner) into one FOLDER; uv on the PATH

uv resolves from the index's metadata alone and downloads no wheel. Each set is laid into its checkout as a virtual
environment of the metadata that uv read (METADATA, RECORD, INSTALLER), without the packages' files: this judges what
is said of versions, not whether anything imports. Then it is spoiled as users do it: one package is upgraded as pip
would, exchanged for another build, or taken out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tomlkit
from pip._vendor import msgpack

from zdoctor.doctor.commands.examined import ENVIRONMENT, examined
from zdoctor.doctor.model import Finding
from zdoctor.doctor.model.environment import plain

COMMIT = "c943837899b16cbae2f619b8dd4f7bb6f07dd81a"
DIRECT = '{{"url": "https://github.com/huggingface/diffusers.git", "vcs_info": {{"vcs": "git", "commit_id": "{}"}}}}'


@dataclass(frozen=True)
class Set:
    """What a README has one install: `own` is the checkout as a package, with its extras, `build` torch's label."""

    trainer: str
    python: str
    torch: Sequence[str]
    build: str
    file: str = ""
    own: str = ""

    @property
    def name(self) -> str:
        return f"{self.trainer} {self.own.partition('[')[2].rstrip(']') or self.build} {self.python}"


def sets() -> list[Set]:
    newest = ("torch==2.13.0", "torchvision==0.28.0", "torchaudio==2.11.0")
    both = ("torch==2.6.0", "torchvision==0.21.0")
    pythons = ("3.10", "3.11", "3.12")
    made = [Set("ai-toolkit", python, newest, "cu130", "requirements.txt") for python in pythons]
    made += [Set("ai-toolkit", "3.11", newest, "cu130 dgx", "dgx_requirements.txt")]
    made += [Set("sd-scripts", python, both, "cu124", "requirements.txt") for python in pythons]
    made += [Set("musubi-tuner", python, both, "cu124", own="musubi-tuner") for python in pythons]
    made += [
        Set("musubi-tuner", python, (), label, own=f"musubi-tuner[{label}]")
        for label in ("cu128", "cu130")
        for python in ("3.10", "3.12")
    ]
    for extra, label in (("cuda", "cu128"), ("cuda13", "cu130"), ("rocm", "rocm7.1"), ("cpu", "cpu")):
        made += [Set("SimpleTuner", python, (), label, own=f"simpletuner[{extra}]") for python in ("3.12", "3.13")]
    return made


SPOILED = (
    ("pip install -U transformers", "transformers", ""),
    ("pip install -U diffusers", "diffusers", ""),
    ("pip install -U huggingface_hub", "huggingface_hub", ""),
    ("pip install -U numpy", "numpy", ""),
    ("pip install -U peft", "peft", ""),
    ("pip install -U accelerate", "accelerate", ""),
    ("pip install -U torchvision", "torchvision", ""),
    ("pip install -U bitsandbytes", "bitsandbytes", ""),
    ("pip install numpy<2", "numpy", "<2"),
    ("pip install transformers==4.49", "transformers", "==4.49"),
    ("pip install huggingface_hub==0.25.2", "huggingface_hub", "==0.25.2"),
    ("pip install -U torch", "torch", ""),
    ("pip install xformers", "xformers", ""),
    ("pip install torch (CPU)", "+cpu", ""),
    ("pip uninstall accelerate", "-accelerate", ""),
    ("pip uninstall einops", "-einops", ""),
    ("pip uninstall transformers", "-transformers", ""),
    ("pip uninstall tokenizers", "-tokenizers", ""),
)


def resolved(lines: Sequence[str], python: str, before: Sequence[str] = (), upgraded: str = "") -> list[str]:
    """The exact versions that an installer takes. Raises CalledProcessError with its reason where it takes none."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder, "asked.in"), Path(folder, "answer.txt")
        asked.write_text("\n".join(lines) + "\n")
        answer.write_text("\n".join(before) + "\n")
        command = ["uv", "pip", "compile", "--quiet", "--no-sources", "--no-header", "--no-annotate"]
        command += ["--python-version", python, "--python-platform", "x86_64-unknown-linux-gnu"]
        command += [str(asked), "-o", str(answer)]
        command += ["--upgrade-package", upgraded] if upgraded else []
        subprocess.run(command, check=True, capture_output=True, text=True)
        return answer.read_text().splitlines()


def asked_by(case: Set, root: Path) -> list[str]:
    """The lines of a set's requirements; a package from a repository as its release."""
    lines = list(case.torch)
    waiting = [case.file] if case.file else []
    while waiting:
        for line in (root / waiting.pop()).read_text().splitlines():
            if named := re.match(r"-r\s+(\S+)", line):
                waiting.append(named[1])
            elif line.startswith("git+"):
                lines.append("diffusers==0.38.0")
            elif not line.startswith("-e"):
                lines.append(line)
    return [*lines, f"{case.own} @ {root.resolve().as_uri()}"] if case.own else lines


def metadata(cache: Path, name: str, version: str) -> tuple[str, list[str]]:
    """A package's version and Requires-Dist, as uv keeps them of its metadata."""
    own = list(cache.glob(f"wheels-v*/*/{name}/{version}-*.msgpack"))
    own += cache.glob(f"sdists-v*/*/{name}/{version}/**/*.msgpack")
    for file in own or cache.glob("sdists-v*/path/**/metadata.msgpack"):
        unpacker = msgpack.Unpacker(raw=True, strict_map_key=False)
        unpacker.feed(file.read_bytes())
        told = next(iter(unpacker))
        if told[0].decode().replace("_", "-") == name:
            return told[1].decode(), [line.decode() for line in told[2]]
    if version.startswith("file:"):  # uv keeps nothing of a pyproject.toml that says all by itself
        project = tomlkit.parse(Path(version.removeprefix("file://"), "pyproject.toml").read_text()).unwrap()[
            "project"
        ]
        return project["version"], project["dependencies"]
    for file in cache.glob(f"sdists-v*/*/{name}/{version}/**/PKG-INFO"):
        return version, re.findall(r"^Requires-Dist: (.+)$", file.read_text(), re.M)
    raise LookupError(f"uv keeps no metadata of {name} {version}")


def laid(site: Path, cache: Path, lines: Sequence[str], build: str, of_git: bool) -> None:
    """The metadata of all these packages as an installer lays it, and torch's packages with a build."""
    shutil.rmtree(site, ignore_errors=True)
    if "voluptuous" in " ".join(lines) and "musubi" not in " ".join(lines):  # `-e .` of sd-scripts
        (site / "library-0.0.0.dist-info").mkdir(parents=True)
        (site / "library-0.0.0.dist-info" / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: library\nVersion: 0.0.0\n\n"
        )
    for line in lines:
        name, version = re.split(r"==| @ ", line.partition(";")[0].strip())
        version, requires = metadata(cache, name, version)
        folder = site / f"{plain(name)}-{version}.dist-info"
        folder.mkdir(parents=True)
        head = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
        head += [f"Requires-Dist: {one}" for one in requires]
        texts = {"METADATA": "\n".join(head) + "\n\n", "INSTALLER": "pip\n"}
        texts["RECORD"] = "".join(f"{folder.name}/{file},,\n" for file in (*texts, "RECORD"))
        for file, text in texts.items():
            (folder / file).write_text(text)
        if of_git and (name, version) == ("diffusers", "0.38.0"):
            (folder / "direct_url.json").write_text(DIRECT.format(COMMIT))
        if name in ("torch", "torchvision"):
            (site / name).mkdir()
            label = build.partition(" ")[0]
            (site / name / "version.py").write_text(f"__version__ = '{version.partition('+')[0]}+{label}'\n")


def environment(root: Path, python: str) -> Path:
    """An empty virtual environment in a checkout; returns its folder of packages."""
    folder = root / "venv"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\nversion = {python}\n")
    (folder / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    return folder / "lib" / f"python{python}" / "site-packages"


def told(root: Path) -> list[Finding]:
    os.chdir(root)
    return [one for one in examined(ENVIRONMENT).report.findings if one.rule.startswith("PKG")]


def row(name: str, findings: Sequence[Finding], whole: Sequence[Finding] = ()) -> str:
    """One line of the table, and on stderr each finding that the whole set does not have."""
    known = {one.text() for one in whole}
    new = [one for one in findings if one.text() not in known]
    for one in new:
        print(f"    {one.severity} {one.rule} {one.text()}", file=sys.stderr)
    counts = {kind: sum(one.severity == kind for one in new) for kind in ("error", "warning", "note")}
    rules = " ".join(sorted({one.rule for one in new})) or "-"
    return f"| {name} | {counts['error']} | {counts['warning']} | {counts['note']} | {rules} |"


def spoil(case: Set, change: tuple[str, str, str], healthy: Sequence[str], root: Path, cache: Path) -> bool:
    """Do to a set what a user did; False where it changes nothing of this one."""
    _, package, versions = change
    site = environment(root, case.python)
    name = package.lstrip("-").replace("_", "-")
    there = {line.partition("==")[0] for line in healthy}
    lines, build = list(healthy), case.build
    if package == "+cpu":
        build = "cpu"
    elif package.startswith("-"):
        lines = [line for line in healthy if line.partition("==")[0] != name]
    elif name in there or name == "xformers":
        registry = [line for line in healthy if " @ " not in line]
        before = {line.partition("==")[0]: line for line in resolved([name + versions], case.python, registry, name)}
        merged = {line.partition("==")[0]: line for line in healthy}
        merged.update(before)
        lines = list(merged.values())
    if lines == list(healthy) and build == case.build:
        return False
    laid(site, cache, lines, build, case.trainer == "ai-toolkit")
    return True


def main(folder: str, names: Sequence[str]) -> None:
    cache = Path(subprocess.run(["uv", "cache", "dir"], check=True, capture_output=True, text=True).stdout.strip())
    os.environ.pop("VIRTUAL_ENV", None)
    top = Path(folder).resolve()
    print("| set | errors | warnings | notes | rules |\n|---|---|---|---|---|")
    for case in sets():
        if names and not any(name in case.name for name in names):
            continue
        root = top / case.trainer
        try:
            healthy = resolved(asked_by(case, root), case.python)
        except subprocess.CalledProcessError as error:
            print(f"| {case.name} | cannot be installed: {error.stderr.strip().splitlines()[0][:200]} |", flush=True)
            continue
        laid(environment(root, case.python), cache, healthy, case.build, case.trainer == "ai-toolkit")
        whole = told(root)
        print(row(f"**{case.name}**, {len(healthy)} packages", whole), flush=True)
        for change in SPOILED:
            if spoil(case, change, healthy, root, cache):
                print(row(f"{case.name}: {change[0]}", told(root), whole), flush=True)
        shutil.rmtree(root / "venv")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
