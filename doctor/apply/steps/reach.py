"""Whether the hub can be reached, found out at once: its client tries again for twenty seconds."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from ..actions.errors import ApplyError, reason

PATIENCE = 5.0  # seconds for a connection to be made
_PORTS = {"http": 80, "https": 443}


def require_hub(mirror: str | None) -> None:
    """Raises ApplyError where downloads are switched off, or the hub or the proxy to it is out of reach."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        hint = "Unset HF_HUB_OFFLINE, or carry the other repairs out with --select."
        raise ApplyError("The plan downloads a file, and HF_HUB_OFFLINE is set", hint)
    asked = urlsplit(mirror or constants.ENDPOINT)
    proxy = None if proxy_bypass(asked.hostname or "") else getproxies().get(asked.scheme)
    to = asked if not proxy else urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    host, port = to.hostname or "", to.port or _PORTS.get(to.scheme, 443)
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except OSError as error:
        hint = "Type the same again where the machine is online, or carry the other repairs out with --select."
        where = f"the proxy {host}" if proxy else host
        raise ApplyError(
            f"The plan downloads a file, and {where} cannot be reached: {reason(error)}", hint
        ) from error
