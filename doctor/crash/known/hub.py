"""Hugging Face's hub and its client: what is refused, not found, or not reached. Read in huggingface_hub 2.4.0."""

from __future__ import annotations

from ...model.crashes import Known

_HUB = "https://github.com/huggingface/huggingface_hub/blob/v2.4.0/src/huggingface_hub/"
_SECOND_HAND = "Another copy of the model by somebody else need not be the same model."
_GATED = r"(?:[Cc]annot access gated repo|GatedRepo|Access to model \S+ is restricted).*"

KNOWN = (
    Known(
        "The token may not read gated repositories: it is a fine-grained one without that permission.",
        "On https://huggingface.co/settings/tokens allow it 'read access to contents of all public gated repos you "
        "can access', or make a token of type Read.",
        words=("access to public gated repositories",),
        alone=True,
        source="https://huggingface.co/docs/hub/security-tokens",
    ),
    Known(
        "The request for access to this model was sent and is not granted yet.",
        "Wait until its page on the hub says that access was granted; then start again.",
        words=("is awaiting a review from the repo authors", "is not in the authorized list yet"),
        alone=True,
        source="https://github.com/huggingface/huggingface_hub/issues/2196",
    ),
    Known(
        "The hub knows who asks, and this account has not accepted the model's licence (403).",
        "Open the model's page with the account of the token, accept the licence, then start again.",
        avoid=_SECOND_HAND,
        words=("403 Client Error", "403 Forbidden", "you are not in the authorized list"),
        text=rf"403 (?:Client Error|Forbidden).*{_GATED}|not in the authorized list",
        alone=True,
        source="https://github.com/Nerogar/OneTrainer/issues/891",
    ),
    Known(
        "The token that was sent is not valid: it was revoked, has expired, or was copied only in part.",
        "Make a new token on https://huggingface.co/settings/tokens, then type: hf auth login",
        avoid="A token in HF_TOKEN counts before the one of hf auth login; mend or remove it there.",
        words=("Invalid credentials in Authorization header", "Invalid user token", "Invalid username or password"),
        alone=True,
        source=_HUB + "hf_api.py",
    ),
    Known(
        "The model is given out only to those who accepted its licence, and the hub does not know who asks: no token "
        "was sent (401).",
        "Accept the licence on the model's page, then type: hf auth login. A trainer in a container or a web UI "
        "needs "
        "it in its own environment or settings (HF_TOKEN).",
        avoid=_SECOND_HAND,
        words=("401 Client Error", "Cannot access gated repo", "You are trying to access a gated repo"),
        text=rf"401 Client Error.*{_GATED}|[Cc]annot access gated repo|GatedRepo|Access to model \S+ is restricted"
        r"|You are trying to access a gated repo",
        alone=True,
        source="https://github.com/ostris/ai-toolkit/pull/745",
    ),
    Known(
        "The hub has the repository, but no file of that name in it.",
        "Compare the name with the list of files on the model's page; the address is in the message.",
        words=("Entry Not Found for url", "Entry not found"),
        text=r"Entry [Nn]ot [Ff]ound",
        alone=True,
        source=_HUB + "utils/_http.py",
    ),
    Known(
        "The hub has the repository, but no such branch, tag or commit of it.",
        "Correct or remove the revision in the config; the address is in the message.",
        words=("Revision Not Found for url", "is not a valid git identifier"),
        alone=True,
        source=_HUB + "utils/_http.py",
    ),
    Known(
        "The hub has closed this repository.",
        "Its page on the hub says why; take the model from its author's other places.",
        words=("Access to this resource is disabled", "Cannot access repository"),
        alone=True,
        source=_HUB + "utils/_http.py",
    ),
    Known(
        "The hub has no model of that name, or it is private and the hub does not know who asks.",
        "Compare the name with the model's page, capitals included; for a private one type: hf auth login",
        words=("Repository Not Found for url", "401 Client Error: Unauthorized for url"),
        alone=True,
        source=_HUB + "utils/_http.py",
    ),
    Known(
        "The hub answers no more for a while: too many requests came from this address or account (429).",
        "Wait some minutes, then start again; hf auth login raises the limit. With many small files use fewer "
        "workers, and with a complete copy set HF_HUB_OFFLINE=1.",
        avoid="Starting again at once makes it last longer.",
        words=("429 Client Error", "429 Too Many Requests", "status code 429"),
        alone=True,
        source="https://github.com/huggingface/datasets/issues/7871",
    ),
    Known(
        "A file that the xet protocol loads broke off: the hub's storage service, the line to it, or a proxy "
        "between.",
        "Start again. When it happens again, update hf_xet (pip install -U hf_xet); as long as that does not help, "
        "set HF_HUB_DISABLE_XET=1 before the start, which downloads over plain HTTP.",
        words=("CAS service error", "Data processing error", "Real call failed: CasObjectError"),
        alone=True,
        source="https://github.com/huggingface/xet-core/issues/394",
    ),
    Known(
        "The hub's server had an error of its own.",
        "Start again later; https://status.huggingface.co shows how it is.",
        text=r"\b50[0234] Server Error|Server error '50[0234]",
        words=("500 Server Error", "502 Server Error", "503 Server Error", "504 Server Error", "Server error '50"),
        alone=True,
        source=_HUB + "utils/_http.py",
    ),
    Known(
        "The certificate that came is not the hub's: a company's proxy or a virus scanner puts its own between, "
        "which "
        "this Python does not trust.",
        "Set REQUESTS_CA_BUNDLE and SSL_CERT_FILE to the file of the proxy's certificate. huggingface_hub 2 asks the "
        "operating system for its certificates instead.",
        avoid="Switching verification off lets anybody put other files in the place of the model's.",
        words=("CERTIFICATE_VERIFY_FAILED", "certificate verify failed"),
        alone=True,
        source="https://github.com/docling-project/docling/issues/1432",
    ),
    Known(
        "The client may not go to the network (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE), and what it needs is not in "
        "the cache.",
        "Start once with HF_HUB_OFFLINE=0, or name the folder of a complete copy in the config.",
        words=("offline mode is enabled", "outgoing traffic has been disabled", "HF_HUB_OFFLINE=1"),
        text=r"offline mode is enabled|outgoing traffic has been disabled",
        source=_HUB + "errors.py",
    ),
    Known(
        "The hub refused the request (401): a token was asked for, and the one that was sent, if any, does not do.",
        "Type hf auth login with a token of type Read; one in HF_TOKEN counts before it.",
        words=("Client error '401 Unauthorized'",),
        alone=True,
        source=_HUB + "utils/_http.py",
    ),
    Known(
        "The hub, or something between such as a proxy, refused the request (403).",
        "Open the address of the message in a browser on this machine, which shows who refuses and why; a "
        "fine-grained "
        "token needs the right to read this repository.",
        words=(
            "Client error '403 Forbidden'",
            "403 Client Error: Forbidden",
            "403 Forbidden: ",
            "Make sure your token has the correct permissions",
        ),
        alone=True,
        source=_HUB + "utils/_http.py",
    ),
    Known(
        "The hub could not be reached, and the model is not all in the cache.",
        "With a complete copy on this machine, name its folder in the config, or set HF_HUB_OFFLINE=1 before the "
        "start.",
        text=r"Max retries exceeded with url|Temporary failure in name resolution|Name or service not known"
        r"|getaddrinfo failed|couldn't connect to 'https://huggingface\.co'(?!.*looks like (?:/|[A-Za-z]:|\.|~))"
        r"|trying to locate the file on the Hub and we cannot find the requested files",
        words=(
            "An error happened while trying to locate the file on the Hub",
            "we cannot find the requested files in the local cache",
            "Max retries exceeded with url",
            "couldn't connect to 'https://huggingface.co'",
        ),
        vague=True,
        rule="HUB006",
        source="https://github.com/Comfy-Org/ComfyUI/issues/3840",
    ),
    Known(
        "The path of a model is not there on this machine, or the file that is asked for is not in it, so that it "
        "was "
        "taken for a name on the hub, which it cannot be.",
        "Correct the path; ~ and variables are not read everywhere, so write it out. Then compare the folder with "
        "the "
        "model's page.",
        words=("Repo id must", "Cannot have -- or .. in repo_id"),
        rule="PTH004",
        source="https://github.com/PRIME-RL/TTRL/issues/25",
    ),
    Known(
        "A download ended before the file was whole; the hub client keeps nothing of it.",
        "Start again. If it happens at every start, HF_HUB_DOWNLOAD_TIMEOUT=60 gives a slow line more time.",
        words=("Consistency check failed: file should be of size",),
        source=_HUB + "file_download.py",
    ),
    Known(
        "Files above 50 GB are downloaded with hf_xet only, which is missing here.",
        "pip install hf_xet",
        words=("The file is too large to be downloaded using the regular download method",),
        rule="HUB005",
        source=_HUB + "file_download.py",
    ),
    Known(
        "Windows did not allow a link to be made in the hub cache: that takes the developer mode or administrator's "
        "rights.",
        "Upgrade huggingface_hub to 2 or newer, which does without; or switch on the developer mode.",
        error="OSError",
        text=r"WinError 1314",
        alone=True,
        source=_HUB + "file_download.py",
    ),
)
