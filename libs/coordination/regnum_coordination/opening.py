"""Choice of the driver by the scheme of a URL: the only place that knows the drivers."""

import asyncio
import importlib
from typing import Protocol, cast
from urllib.parse import urlsplit

from regnum_coordination.port import Store
from regnum_coordination.timing import OPERATION_TIMEOUT_S


class _Driver(Protocol):
    """What a driver package offers as ``open_url``."""

    async def __call__(self, url: str, *, session_timeout_s: float, operation_timeout_s: float) -> Store: ...


_DRIVERS = {
    "etcd": ("regnum_coordination.drivers.etcd", "etcd"),
    "memory": ("regnum_coordination.drivers.memory", None),
    "zookeeper": ("regnum_coordination.drivers.zookeeper", "zookeeper"),
}
"""Scheme: module, and the extra that installs what it imports."""

_FORMS = "etcd://host:port[,host:port...][/prefix], zookeeper://host:port[,host:port...][/chroot] or memory://name"


async def open_store(
    url: str, *, session_timeout_s: float = 6.0, operation_timeout_s: float = OPERATION_TIMEOUT_S
) -> Store:
    """Open a session with the store at ``url``.

    Args:
        url: ``etcd://host:port[,host:port...][/prefix]``, ``zookeeper://host:port[,host:port...][/chroot]`` or
            ``memory://name`` (one process; tests and simulation). Options for TLS and users: ``drivers.credentials``.
        session_timeout_s: seconds after which the store ends the session of a process that is gone.
        operation_timeout_s: seconds after which an operation without an answer is a ConnectionLoss.

    Raises:
        ValueError: no driver for the scheme, the URL is malformed (the message says which forms there are), or a file
            that it names cannot be read.
        NoAuth: the store does not take the user.
        ConnectionLoss: no store answers.
        ModuleNotFoundError: the driver's library is not installed; the message says how to install it.
    """
    scheme = urlsplit(url).scheme
    if scheme not in _DRIVERS:
        raise ValueError(f"no driver for the scheme {scheme!r}; use {_FORMS}")
    module, extra = _DRIVERS[scheme]
    try:
        # Beside the loop: a driver brings a large library (safety rule S22).
        driver = await asyncio.to_thread(importlib.import_module, module)
    except ModuleNotFoundError as error:
        if extra is None or error.name is None or error.name.startswith("regnum_"):
            raise
        raise ModuleNotFoundError(
            f"{scheme}:// needs a library that is not installed ({error.name}); run: pip install 'regnum[{extra}]'",
            name=error.name,
        ) from error
    open_url = cast("_Driver", driver.open_url)
    return await open_url(url, session_timeout_s=session_timeout_s, operation_timeout_s=operation_timeout_s)
