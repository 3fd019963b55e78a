"""What the hub itself says of the repositories that a run would download, where it was asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...doctor.model import Finding, Hub, HubAnswer, HubRepo, Run, System
from ...doctor.model.trainer import EVERY
from ...doctor.rules import NotApplicable, Unestablished, prevents, rule
from .files import of_repo, used


@rule("HUB013", "error", "hub-refuses-download", trainers=(EVERY,))
@prevents("GatedRepoError", r"403 Client Error[\s\S]*awaiting a review")
@prevents("HfHubHTTPError", r"403 Forbidden: Please enable access to public gated repositories")
@prevents("RepositoryNotFoundError", r"40[14] Client Error[\s\S]*Repository Not Found")
@prevents("HfHubHTTPError", "429 Too Many Requests")
def hub_refuses_download(run: Run, hub: Hub, system: System, answers: Mapping[str, HubAnswer]) -> Iterator[Finding]:
    """The hub was asked (--online), and does not give the run what it has to download.

    What: With `zdoctor check --online` alone: for each repository that the run has to download from, the headers of
    one file are asked for by the huggingface_hub of the Python that will run the trainer, with its token, endpoint,
    proxies and certificates. No file is downloaded, no token printed.
    Why: The hub says 401 where no token, or a dead one, was sent; 403 where the account has not accepted the licence
    or a fine-grained token lacks the right to read gated repositories; 401 or 404 for a name that it does not show to
    this account; 429 after too many requests.
    Repair: None of ours: what to do stands in the message.
    Upstream: https://huggingface.co/docs/hub/models-gated, https://huggingface.co/docs/hub/rate-limits
    Signature: GatedRepoError: 403 Client Error. Access to model … is restricted and you are not in the authorized
    list
    """
    if not answers:
        raise NotApplicable
    lost = ""
    for repo in used(hub):
        answer = answers.get(repo.repo)
        if answer is None:
            continue
        if answer.unasked:
            lost = f"the hub could not be asked about {repo.repo}: {answer.unasked}"
            continue
        message = _refusal(answer, system)
        if message and answer.status == 401 and not answer.token and hub.token is None:
            lost = f"the hub refuses {repo.repo} without a token, and where the run takes its own from is not known"
        elif message:
            yield _refused(run, hub, repo, answer, message)
    if lost:
        raise Unestablished(lost)


def _refused(run: Run, hub: Hub, repo: HubRepo, answer: HubAnswer, message: str) -> Finding:
    passing = answer.status == 429 or answer.status >= 500
    evidence: dict[str, Any] = {"status": answer.status, "code": answer.code, "said": answer.message.rstrip(".")}
    return of_repo(
        run,
        repo,
        message + ". This is what the hub answers just now.",
        "Right now the download fails; later it may go well."
        if passing
        else "The run stops when it loads the model.",
        severity="warning" if passing else None,
        evidence={**evidence, "failed": answer.failed, "wait": answer.wait},
        page=f"https://huggingface.co/{repo.repo}",
        token=hub.token or "use",
    )


def _refusal(answer: HubAnswer, system: System) -> str:
    """What the hub's answer means; "" where it gives the file, or has the repository but no such file."""
    status, code, said = answer.status, answer.code, answer.message.lower()
    if status == 0:
        return _no_answer(answer, system)
    if status == 401 and answer.token and code != "RepoNotFound":
        return "The hub does not take the token in {token}: {said}"
    if code == "GatedRepo":
        if status == 401:
            return "{repo} is gated and no token was sent: accept its licence at {page}, then: hf auth login"
        if "awaiting" in said:
            return "{repo} is gated, and its owner has not yet answered the request of the account: {page}"
        if "rejected" in said:
            return "{repo} is gated, and its owner has rejected the request of the account: {page}"
        return "{repo} is gated, and the account of the token in {token} has not accepted its licence: {page}"
    if status == 403 and "gated" in said:
        return (
            "The token in {token} may not read gated repositories: allow it at https://huggingface.co/settings/tokens"
        )
    if code == "RepoNotFound" or status == 401:
        return "The hub has no {repo}" + (
            ": it is mistyped, renamed, gone, or private and not for the account of the token in {token}"
            if answer.token
            else " that it shows without a token: it is mistyped, renamed, gone, or private"
        )
    if code == "RevisionNotFound":
        return "{repo} has no revision main"
    if status == 429:
        return "The hub takes no more requests from here (429)" + (", but in {wait} s" if answer.wait else "")
    if status >= 500:
        return "The hub is out of order ({status})"
    return "The hub refuses {repo} ({status}): {said}" if status in (400, 403, 451) else ""


def _no_answer(answer: HubAnswer, system: System) -> str:
    if "certificate_verify_failed" in answer.failed.lower():
        return (
            "Nothing here vouches for the certificate that was shown for the hub: name that of your network in "
            "SSL_CERT_FILE (before huggingface_hub 1.0 in REQUESTS_CA_BUNDLE)"
        )
    ways = ("_PROXY", "ENDPOINT")
    named = [f"{name}={value}" for name, value in system.environment.items() if name.upper().endswith(ways)]
    by_way_of = f" ({', '.join(named)})".replace("{", "{{").replace("}", "}}") if named else ""
    return "The hub cannot be reached: {failed}" + by_way_of
