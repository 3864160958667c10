"""Choice of the driver by the scheme of a URL: the only place that knows the drivers."""

import asyncio
import importlib
from collections.abc import Collection
from typing import Protocol, cast
from urllib.parse import urlsplit

from regnum_coordination.admission import Examination
from regnum_coordination.port import Store
from regnum_coordination.timing import OPERATION_TIMEOUT_S


class _Driver(Protocol):
    """What a driver package offers."""

    async def open_url(self, url: str, *, session_timeout_s: float, operation_timeout_s: float) -> Store: ...

    async def examine(self, url: str, *, nodes: Collection[str], timeout_s: float) -> Examination: ...


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
    driver = await _driver(url)
    return await driver.open_url(url, session_timeout_s=session_timeout_s, operation_timeout_s=operation_timeout_s)


async def examine_store(
    url: str, *, nodes: Collection[str] = (), timeout_s: float = OPERATION_TIMEOUT_S
) -> Examination:
    """Find out whom the store at ``url`` lets in; see ``admission``. A session must be up, or silence is all there is.

    Args:
        url: as for ``open_store``.
        nodes: nodes that nobody else may read or write; asked for where a store has rights node by node.
        timeout_s: seconds after which a server without an answer is silent.

    Raises as ``open_store``, but for ConnectionLoss: then no name in the URL can be resolved.
    """
    return await (await _driver(url)).examine(url, nodes=nodes, timeout_s=timeout_s)


async def _driver(url: str) -> _Driver:
    scheme = urlsplit(url).scheme
    if scheme not in _DRIVERS:
        raise ValueError(f"no driver for the scheme {scheme!r}; use {_FORMS}")
    module, extra = _DRIVERS[scheme]
    try:
        # Beside the loop: a driver brings a large library (safety rule S22).
        return cast("_Driver", await asyncio.to_thread(importlib.import_module, module))
    except ModuleNotFoundError as error:
        if extra is None or error.name is None or error.name.startswith("regnum_"):
            raise
        raise ModuleNotFoundError(
            f"{scheme}:// needs a library that is not installed ({error.name}); run: pip install 'regnum[{extra}]'",
            name=error.name,
        ) from error
