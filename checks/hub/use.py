"""How the run uses the hub: what it has to download, asks for although it is here, or cannot find; left-overs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...doctor.families import loader_of
from ...doctor.families.gated import GATED
from ...doctor.model import Finding, Hub, HubAnswer, HubRepo, Run, System, found
from ...doctor.model.amounts import amount
from ...doctor.model.environment import release
from ...doctor.model.pattern import pattern
from ...doctor.model.record import replace
from ...doctor.model.trainer import EVERY
from ...doctor.rules import Unestablished, prevents, rule
from .files import folder_of, of_repo, used

# Since 1.1: github.com/huggingface/xet-core/issues/409 (2025-07), 800 (1.4.3, 2026-06), 869, 883, 896 (1.5.0, 1.5.1);
# until 1.5.2, of 2026-07-16, by its maker in 850. Later reports of it: none known in 2026-11.
HANGS_FROM, HANGS_UNTIL = (1, 1), (1, 5, 2)
SHARDED = pattern(r"(transformer\w*|unet|vae)/diffusion_pytorch_model\.safetensors\.index\.json")


@rule("HUB005", "warning", "hf-xet-missing", trainers=(EVERY,))
def hf_xet_missing(run: Run, hub: Hub, system: System) -> Iterator[Finding]:
    """hf_xet is absent, or in a version that hangs, and there is something to download.

    What: The installed version of hf_xet, looked at only when the run still has to download from the hub.
    Why: Without it the hub client falls back to one plain stream per file, and refuses files above 50 GB; versions
    1.1 to 1.5.1 can stall near the end of a download (last reviewed in 2026-11).
    Repair: pip install -U "hf-xet>=1.5.2".
    Upstream: https://github.com/huggingface/xet-core/pull/850
    Signature: Xet Storage is enabled for this repo, but the 'hf_xet' package is not installed
    """
    version = hub.xet_version
    disabled = system.environment.get("HF_HUB_DISABLE_XET", "").upper() in ("1", "ON", "YES", "TRUE")
    if hub.offline or disabled:
        return
    if version is not None and not HANGS_FROM <= release(version) < HANGS_UNTIL:
        return
    repo = next((one for one in used(hub) if one.ref_state != "pinned" and not is_complete(one, run)), None)
    if repo is not None:
        message, otherwise = "hf_xet is not installed.", "The download is slow: one plain stream per file."
        if version is not None:
            message = "hf_xet {hf_xet} is known to stall."
            otherwise = "The download can stop near its end without a message."
        message = "{repo} is still to be downloaded, and " + message
        yield of_repo(run, repo, message, otherwise, evidence={"hf_xet": version})


@rule("HUB006", "warning", "online-model-source", trainers=(EVERY,))
def online_model_source(run: Run, hub: Hub) -> Iterator[Finding]:
    """The run asks the hub for its model at every start, although a complete copy is on this machine.

    What: The base model is given as a hub id, HF_HUB_OFFLINE is not set, and every file the run loads is cached.
    Why: Each start asks the hub which commit is the newest. When the repository got a new one, even for its README,
    the run changes under you; on a cache without symbolic links (Windows) everything is downloaded again.
    Repair: Extract the snapshot into a plain folder and name that folder in the config.
    Upstream: https://github.com/ostris/ai-toolkit/issues/560, https://github.com/ostris/ai-toolkit/issues/750
    Signature: None; "Fetching … files" at a start that had nothing to fetch.
    """
    repo = hub.repo(run.recipe.base_model)
    if repo is None or hub.offline or repo.ref_state == "pinned" or not is_complete(repo, run):
        return
    yield found(
        run.where("base_model"),
        "The run asks the hub for {repo} at each start, although a complete copy is in the cache.",
        otherwise="A new commit there is downloaded unasked and changes what is trained; with the hub out of reach "
        "the run stops.",
        evidence={"snapshot": repo.snapshot, "commit": repo.commit},
        repo=repo.repo,
    )


@rule("HUB007", "error", "offline-sharded-model", trainers=("ai-toolkit",))
@prevents("OfflineModeIsEnabled", r"Cannot reach .*/api/models/")
def offline_sharded_model(run: Run, hub: Hub) -> Iterator[Finding]:
    """A model in several files cannot be loaded by its hub id offline, cached or not.

    What: HF_HUB_OFFLINE is set, the base model is a hub id, and its transformer comes in several weight files.
    Why: Before diffusers loads such a component by hub id, it asks the hub for the repository's list of files and
    does not fall back to the cache. A folder path is loaded without asking. Measured with diffusers 0.42.1.
    Repair: Extract the snapshot into a plain folder and name that folder in the config.
    Upstream: https://github.com/huggingface/diffusers/issues/11447,
    https://github.com/huggingface/diffusers/issues/11948
    Signature: OfflineModeIsEnabled: Cannot reach https://huggingface.co/api/models/…: offline mode is enabled
    """
    repo = hub.repo(run.recipe.base_model)
    if repo is None or not hub.offline or repo.ref_state == "pinned":
        return
    index = next((f for f in repo.files if f.needed and SHARDED.fullmatch(f.name)), None)
    if index is None:
        return
    yield found(
        run.where("base_model"),
        "HF_HUB_OFFLINE is set, and {folder}/ of {repo} is in several files: diffusers asks the hub about such a "
        "model although it is cached, and stops. The snapshot's path works.",
        otherwise="The run stops when it loads the model, with OfflineModeIsEnabled.",
        evidence={"index": index.path, "snapshot": repo.snapshot, "commit": repo.commit},
        repo=repo.repo,
        folder=folder_of(index),
    )


@rule("HUB008", "warning", "model-in-another-cache")
def model_in_another_cache(run: Run, hub: Hub, system: System) -> Iterator[Finding]:
    """The run would download a model that lies complete in another hub cache of this machine.

    What: Nothing of a repository is in the cache that the environment names (HF_HUB_CACHE, HF_HOME), while the
    default cache, the one below HF_HOME, or one in a well-known place on another local disk (hf/hub,
    huggingface/hub and the like) holds all the run loads from it. Network folders are not looked into.
    Why: The variables are read when Python starts. Set in one shell and not in the other, they make a second, empty
    cache, and everything is downloaded again.
    Repair: Name the snapshot that is there; or set the variable as it was.
    Signature: None; "Fetching … files" for a model that was downloaded before.
    """
    for repo in used(hub):
        if repo.snapshots or repo.ref_state == "pinned":
            continue
        elsewhere = (one for one in hub.repos if not one.used_by and one.repo == repo.repo)
        other = next((one for one in elsewhere if is_complete(replace(one, used_by=repo.used_by), run)), None)
        if other is None:
            continue
        key = repo.used_by[0]
        inside = getattr(run.recipe, key).removeprefix(repo.repo).strip("/")
        yield of_repo(
            run,
            repo,
            "{repo} is complete in {other}, but the run uses the cache {cache}, where nothing of it is.",
            "It is not found there, and zdoctor downloads nothing itself."
            if run.by_runner
            else "It is downloaded again: {size} (from the sizes of the cached files).",
            evidence={"snapshot": other.snapshot, "caches": list(hub.caches)},
            other=other.cache,
            size=amount(sum(f.size or f.actual_size or 0 for f in other.files if f.needed)),
            key=key,
            path=system.join(other.snapshot or "", *inside.split("/")) if inside else other.snapshot,
        )


@rule("HUB009", "error", "gated-model-without-token", trainers=(EVERY,))
@prevents("GatedRepoError", r"401 Client Error[\s\S]*Access to model \S+ is restricted")
@prevents("GatedRepoError", r"403 Client Error[\s\S]*not in the authorized list")
def gated_model_without_token(run: Run, hub: Hub, answers: Mapping[str, HubAnswer]) -> Iterator[Finding]:
    """The run would download a model that its owner gives only to who is logged in and has accepted its licence.

    What: The hub ids of the config against a list of gated repositories, where the cache lacks files that the run
    loads; and whether the hub client finds a token (HF_TOKEN, the file that `hf auth login` writes). Nothing is asked
    of the hub, and no token is read. Where there is a token, whether its account has accepted the licence is not
    known: that is a note; with `zdoctor check --online` the hub says it (HUB013).
    Why: The hub refuses the files with 401 without a token, and with 403 where the account has not accepted the
    licence or a fine-grained token lacks the right to read gated repositories.
    Repair: Open the model's page in a browser, accept the licence, and log in with hf auth login.
    Upstream: https://huggingface.co/docs/hub/models-gated
    Signature: GatedRepoError: 401 Client Error. Access to model black-forest-labs/FLUX.1-dev is restricted.
    """
    for repo in used(hub):
        seen = GATED.get(repo.repo)
        asked = answers.get(repo.repo)
        if seen is None or hub.offline or is_complete(repo, run) or (asked is not None and not asked.unasked):
            continue
        if hub.token is None:
            raise Unestablished(f"{repo.repo} is gated, and where the run takes its token from is not known")
        message = "{repo} is gated (last seen so: {seen}), and the run has to download it"
        message += ": the token in {token} must be of an account that has accepted its licence at {page}."
        if not hub.token:
            message = "{repo} is gated (last seen so: {seen}), the run has to download it, and the hub client finds "
            message += "no token. Accept its licence at {page}, then: hf auth login."
        yield of_repo(
            run,
            repo,
            message,
            "The hub refuses the files: "
            + ("403, not in the authorized list." if hub.token else "401, access to the model is restricted."),
            severity="note" if hub.token else None,
            evidence={"token": hub.token},
            seen=seen,
            page=f"https://huggingface.co/{repo.repo}",
        )


def is_complete(repo: HubRepo, run: Run) -> bool:
    """Whether the cache holds all the run loads from `repo`, as far as the cache itself can tell."""
    if not repo.usable or not any(f.needed for f in repo.files):
        return False
    folders = {folder_of(f) for f in repo.files if f.needed}
    if repo.has_manifest or not (
        "model_index.json" in {f.name for f in repo.files} or folders & {"transformer", "vae"}
    ):
        return True
    own = {"transformer"} if "base_model" in repo.used_by else set()
    loader = loader_of(run)
    shared = set(loader.others) if loader is not None else {"text_encoder", "tokenizer", "vae"}
    written_apart = run.recipe.extras_model not in (None, run.recipe.base_model)
    elsewhere = written_apart and "extras_model" not in repo.used_by and (loader is None or loader.extras)
    return (own if elsewhere else own | shared) <= folders


@rule("HUB003", "error", "dangling-ref")
@prevents("LocalEntryNotFoundError", "Cannot find an appropriate cached snapshot folder")
def dangling_ref(run: Run, hub: Hub) -> Iterator[Finding]:
    """A branch of the hub cache that names no usable snapshot.

    What: refs/main must hold exactly the 40 digits of a commit whose snapshot is there.
    Why: Asking the hub for a file that does not exist moves the ref to the newest commit without downloading
    anything; editors add a newline; a full disk leaves it empty. The model is then on the disk and cannot be found:
    it vanishes from `hf cache ls`, and offline loads fail. Online the ref heals at the next download.
    Repair: The ref is pointed at the snapshot that is complete, 0 bytes downloaded.
    Upstream: https://github.com/huggingface/huggingface_hub/issues/4487
    Signature: LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the specified revision
    """
    messages = {
        "dangling": "refs/main of {repo} names commit {content}, which has no snapshot here.",
        "malformed": "refs/main of {repo} does not hold a commit: it reads {content!r}.",
        "absent": "{repo} is in the cache, but refs/main is missing, so an offline load does not find it.",
    }
    for repo in used(hub):
        if run.by_runner and repo.snapshot is not None:  # the runner opens the snapshot by its path
            continue
        if repo.ref_state not in messages or not repo.snapshots or (repo.ref_state == "absent" and not hub.offline):
            continue
        yield of_repo(
            run,
            repo,
            messages[repo.ref_state],
            "The run stops when it loads the model, although its files are here."
            if hub.offline
            else "It goes well as long as the hub answers: the client then moves the ref and downloads what changed. "
            "Offline, the run stops although the files are here.",
            severity=None if hub.offline else "warning",
            evidence={"ref": repo.ref_path, "content": repo.ref_content, "snapshots": list(repo.snapshots)},
        )


@rule("HUB004", "warning", "partial-download")
def partial_download(run: Run, hub: Hub) -> Iterator[Finding]:
    """Left-overs of interrupted downloads.

    What: .incomplete files in the blobs folder that nothing wrote to for ten minutes and that no process has open.
    Why: Since 1.18 the hub client gives each download a new temporary name, so a left-over is never resumed: it only
    takes space. One that still grows belongs to a running download and is left alone. One that is the beginning of a
    file the run lacks is worth its bytes: the repair of HUB001 and HUB002 goes on from there.
    Repair: They are moved into quarantine.
    Upstream: https://github.com/huggingface/huggingface_hub/pull/4306
    """
    for repo in used(hub):
        useful = {file.prefix[0] for file in repo.files if file.prefix is not None}
        stale = [(path, size) for path, size, alive in repo.partials if not alive and path not in useful]
        if stale:
            yield of_repo(
                run,
                repo,
                "An interrupted download of {repo} takes {size}; the hub client never resumes it."
                if len(stale) == 1
                else "Interrupted downloads of {repo} take {size}: {count} files that the hub client never resumes.",
                "The space stays taken until somebody deletes what is left over.",
                evidence={"paths": [path for path, _ in stale], "bytes": sum(size for _, size in stale)},
                count=len(stale),
                size=amount(sum(size for _, size in stale)),
            )
