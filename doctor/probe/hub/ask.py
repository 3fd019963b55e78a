"""Asks the hub for the headers of files, with the huggingface_hub of whatever Python runs this (3.8 or newer).

Run by its text (`python -c`), so that nothing of zdoctor need be installed there. Takes {repository: file} as JSON,
prints a line of JSON for each repository. Neither a token nor an address is printed.
"""

import json
import re
import sys


def answer(repo: str, file: str) -> dict:  # type: ignore[type-arg]
    """The status and the hub's own words, or why there is no answer."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    told = {"token": "authorization" in build_hf_headers()}
    try:
        get_hf_file_metadata(hf_hub_url(repo, file))
        return {**told, "status": 200}
    except Exception as error:
        response = getattr(error, "response", None)
        if response is None:
            first: BaseException = error
            while (before := first.__cause__ or first.__context__) is not None:
                first = before
            return {**told, "failed": type(first).__name__ + ": " + str(first)[:200]}
    headers = response.headers
    limit = re.search(r"t\s*=\s*(\d+)", headers.get("RateLimit") or "") if response.status_code == 429 else None
    wait = limit.group(1) if limit else headers.get("Retry-After") or ""
    return {
        **told,
        "status": response.status_code,
        "code": headers.get("X-Error-Code") or "",
        "message": headers.get("X-Error-Message") or "",
        "wait": int(wait) if wait.isdigit() else None,
    }


if __name__ == "__main__":
    for repo, file in json.loads(sys.stdin.read()).items():
        print(json.dumps({"repo": repo, **answer(repo, file)}), flush=True)
