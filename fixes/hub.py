"""Repairs of the hub cache: content from elsewhere on this machine first, the network only for what is broken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..doctor.model import (
    FetchFile,
    Finding,
    Fix,
    Hub,
    HubFile,
    HubRepo,
    MakeLink,
    PlaceCopy,
    Quarantine,
    Run,
    Step,
    System,
    WriteText,
)
from ..doctor.model.amounts import amount
from ..doctor.model.record import replace
from ..doctor.model.shell import quoted, setting, unsetting
from ..doctor.rules import repair
from .edits import value_of


@repair("HUB001", "HUB002")
def restore_file(finding: Finding, hub: Hub) -> Iterator[Fix]:
    """Bring back what a snapshot should hold: a link, a verified copy, or a download of exactly what is missing."""
    if "update_of" in finding.evidence:
        return
    wanted = {finding.evidence.get("path"), *finding.evidence.get("paths", ())}
    files = [(r, file) for r in hub.repos for file in r.files if file.path in wanted and not file.changed]
    for repo, file in files:
        if _is_away(file) and repo.hub_id is None:
            yield _by_hand(repo, file)
            return
    away = [(repo, file) for repo, file in files if _is_away(file)]
    here = [pair for pair in files if pair not in away]
    busy = any(alive for repo, _ in away for _, _, alive in repo.partials)
    wait = "once HF_HUB_OFFLINE is unset" if hub.offline else "once the download that is running has ended"
    if here and (hub.offline or busy or not away):
        yield _one_fix("restore {what} from this machine, 0 bytes downloaded", here)
    if not away:
        return
    title = _download_title([file for _, file in away])
    if hub.offline or busy:
        yield replace(_one_fix(f"{title}, {wait}", away), steps=(), safety="show", command="zdoctor fix --apply")
    else:
        yield _one_fix(title, files)


def _by_hand(repo: HubRepo, file: HubFile) -> Fix:
    """Nothing on this machine says which repository a downloaded folder is of; its user knows."""
    command = f'hf download OWNER/MODEL "{file.name}" --revision {repo.commit} --local-dir "{repo.folder}"'
    title = f"download {file.name} again, and only that, from the repository that the folder is of"
    return Fix(title, (), safety="show", command=f"{command} --force-download", order=0, target=file.path)


def _download_title(files: Sequence[HubFile]) -> str:
    once = {file.blob or file.path: file for file in files}.values()
    sizes = [file.size - (file.prefix[1] if file.prefix else 0) for file in once if file.size is not None]
    known = len(sizes) == len(once)
    size = amount(sum(sizes)) if known else "of a size that the cache does not tell"
    if not any(file.prefix for file in files):
        return "download {what} again, and only that (" + size + ")"
    if len(files) > 1:
        return "download what {what} lack, and only that (" + size + ")"
    if known and not sum(sizes):
        return "complete {what} from the left-over download, 0 bytes downloaded if its content is right"
    return "download the missing " + (size if known else "rest") + " of {what}, and only that"


def _is_away(file: HubFile) -> bool:
    """Whether only the network has what the file should hold."""
    return _belongs(file) and file.state != "ok" and file.good_copy is None


def _belongs(file: HubFile) -> bool:
    """Whether the snapshot should hold it; what it should not hold is put aside."""
    return file.needed or file.state == "missing"


def _one_fix(title: str, files: Sequence[tuple[HubRepo, HubFile]]) -> Fix:
    repo, first = files[0]
    what = f"{first.name} of {repo.repo}" if len(files) == 1 else f"{len(files)} files of {repo.repo}"
    steps: dict[str, Step] = {}  # two names of a snapshot may lead to one blob, which is made once
    for step in (step for repo, file in files for step in _steps(repo, file)):
        steps.setdefault(step.path, step)
    # what is put aside may be the beginning of what is made before
    in_order = sorted(steps.values(), key=lambda step: isinstance(step, Quarantine))
    return Fix(title.format(what=what), tuple(in_order), order=0)


def _steps(repo: HubRepo, file: HubFile) -> Iterator[FetchFile | PlaceCopy | MakeLink | Quarantine]:
    if not _belongs(file):
        yield Quarantine(file.path)
        return
    place = file.blob or file.path
    if _is_away(file):
        prefix, have = file.prefix or (None, 0)
        source = repo.hub_id or repo.repo, repo.commit or "main", file.name
        yield FetchFile(*source, place, file.size, file.digest, prefix, have)
        if prefix is not None and any(prefix == path for path, _, _ in repo.partials):
            yield Quarantine(prefix)
    elif file.good_copy is not None and file.good_copy != place:
        yield PlaceCopy(place, file.good_copy, file.size or 0, file.digest, link=_shares_snapshots(repo, file))
    if file.blob is not None and file.state in ("missing", "wrong-link"):
        yield MakeLink(file.path, _target(repo, file))
    if file.hidden:
        separator = "\\" if "\\" in repo.folder else "/"
        yield Quarantine(separator.join([repo.folder, ".no_exist", repo.commit or "", *file.name.split("/")]))


def _shares_snapshots(repo: HubRepo, file: HubFile) -> bool:
    """Whether a file and its good copy are plain files of snapshots of one repository: one will do for both."""
    copy = (file.good_copy or "").replace("\\", "/")
    return file.blob is None and copy.startswith(repo.folder.replace("\\", "/") + "/snapshots/")


def _target(repo: HubRepo, file: HubFile) -> str:
    """The text of the link from a snapshot to the blob `file.digest` names, as the hub client writes it."""
    up = [".."] * (file.name.count("/") + 2)
    address = (file.digest or "").partition(":")[2]
    return ("\\" if "\\" in repo.folder else "/").join([*up, "blobs", address])


@repair("HUB002")
def complete_update(finding: Finding, hub: Hub) -> Iterator[Fix]:
    """What is unchanged since the older snapshot gets a second name in the new one; what changed is downloaded."""
    wanted = set(finding.evidence.get("paths", ())) if "update_of" in finding.evidence else set()
    for repo in hub.repos:
        files = [(repo, file) for file in repo.files if file.path in wanted]
        if not files:
            continue
        away = [(repo, file) for _, file in files if _is_away(file)]
        here = [pair for pair in files if pair not in away]
        if not away or not hub.offline:
            yield _one_fix(_update_title(repo, here, away), files)
        elif here and not any(file.needed for _, file in away):
            yield _one_fix(_update_title(repo, here, []), here)
        else:
            older = repo.update_of or ""
            title = f"point refs/main of {repo.repo} back at {older[:8]}, which is complete, 0 bytes downloaded"
            yield _ref(title, repo, older, sure=False)


def _update_title(repo: HubRepo, here: Sequence[object], away: Sequence[tuple[HubRepo, HubFile]]) -> str:
    sizes = [(file.size or 0) - (file.prefix[1] if file.prefix else 0) for _, file in away]
    of = f"{len(here)} of {len(here) + len(away)} files"
    unchanged = f"complete the update of {repo.repo}: hard links for what is unchanged ({of})"
    return f"{unchanged}, {amount(sum(sizes))} downloaded"


@repair("HUB003")
def point_ref(finding: Finding, hub: Hub) -> Iterator[Fix]:
    """Write the ref anew: the commit it means, else the only complete (or only) snapshot; several are offered."""
    for repo in hub.repos:
        if repo.ref_path != finding.evidence.get("ref"):
            continue
        meant = repo.ref_content.strip()
        candidates = [meant] if meant in repo.snapshots else repo.complete or repo.snapshots
        for commit in candidates:
            title = f"point refs/main of {repo.repo} at {commit[:8]}, 0 bytes downloaded"
            yield _ref(title, repo, commit, sure=len(candidates) == 1)


def _ref(title: str, repo: HubRepo, commit: str, *, sure: bool) -> Fix:
    """The ref of a repository written anew; where it is to be asked, with what to type for it."""
    path, steps = repo.ref_path, (WriteText(repo.ref_path, commit),)
    if sure:
        return Fix(title, steps, order=0)
    command = f"printf %s {commit} > '{path}'"
    if "\\" in path:
        command = f"powershell -Command \"Set-Content -NoNewline -Path '{path}' -Value {commit}\""
    return Fix(title, steps, safety="ask", order=0, command=command)


@repair("HUB004")
def quarantine_partials(finding: Finding) -> Iterator[Fix]:
    """Move left-over downloads aside."""
    paths = finding.evidence["paths"]
    what = "the left-over download" if len(paths) == 1 else f"{len(paths)} left-over downloads"
    yield Fix(f"move {what} into quarantine", tuple(Quarantine(path) for path in paths), order=0)


@repair("HUB005")
def install_hf_xet(finding: Finding) -> Iterator[Fix]:
    """hf_xet is installed by the user: we do not change their environment."""
    yield Fix("install a current hf_xet", (), "show", command='python -m pip install -U "hf-xet>=1.5.2"')


@repair("HUB010", "HUB011", "HUB012")
def set_variable(finding: Finding, system: System) -> Iterator[Fix]:
    """The variable belongs to the user's shell: the command to type is shown, or the package to install."""
    told = {"new": "", **finding.evidence, **finding.args}
    name, new, package = told["variable"], told["new"], told.get("package")
    if package:
        yield Fix(
            f"install {package}",
            (),
            "show",
            command=f"{quoted(told['python'], system.typed_in)} -m pip install {package}",
        )
    elif finding.rule == "HUB011":
        yield Fix(f"set {new}", (), "show", command=setting([(new, told["value"])], system.shell))
    elif new:
        yield Fix(f"set {name} to {new}", (), "show", command=setting([(name, new)], system.shell))
    else:
        yield Fix(f"unset {name}", (), "show", command=unsetting(name, system.shell))


@repair("HUB008")
def name_the_other_cache(finding: Finding, run: Run) -> Iterator[Fix]:
    """The path of what is there already."""
    key, path = finding.args["key"], finding.args["path"]
    yield Fix(f"set {run.keys.get(key, key)} to {path}", (value_of(run, key, path),))
