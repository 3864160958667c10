"""HTTP to processes of this machine, past whatever web proxy the environment names."""

import urllib.request
from typing import Any


def opened_directly(url: str | urllib.request.Request, *, timeout: float) -> Any:
    """As ``urllib.request.urlopen``, without a proxy."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=timeout)
