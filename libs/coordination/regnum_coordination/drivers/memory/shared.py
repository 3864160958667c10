"""``memory://name``: servers shared by name within this process."""

from collections.abc import Collection
from urllib.parse import urlsplit

from regnum_coordination.admission import Admission, Examination
from regnum_coordination.drivers.memory.server import MemoryServer
from regnum_coordination.drivers.memory.store import MemoryStore
from regnum_coordination.port import Store

_SERVERS: dict[str, MemoryServer] = {}


def server_named(name: str) -> MemoryServer:
    """The server behind ``memory://name``; made at the first call."""
    return _SERVERS.setdefault(name, MemoryServer())


async def open_url(url: str, *, session_timeout_s: float, operation_timeout_s: float) -> Store:
    """Open a session. Both time-outs are checked and otherwise unused: there is no clock."""
    name = urlsplit(url).netloc
    if not name:
        raise ValueError(f"{url!r} names no server; use memory://name")
    if session_timeout_s <= 0 or operation_timeout_s <= 0:
        raise ValueError("time-outs must be above 0 s")
    return MemoryStore(server_named(name))


async def examine(url: str, *, nodes: Collection[str], timeout_s: float) -> Examination:
    """Strangers are in other processes, where the server is not."""
    del url, nodes, timeout_s
    return Examination(admission=Admission.REFUSED, loopback=True)
