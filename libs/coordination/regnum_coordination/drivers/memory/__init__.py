"""The port in memory: deterministic, without a clock, with faults on demand. For tests and simulation.

    server = MemoryServer()
    store = MemoryStore(server)          # a session; several may share the server
    server.expire(store.session_id)      # faults are methods of the server

Nothing expires by itself: there is no clock. Every operation lets other tasks run once before and once after it takes
effect.
"""

from regnum_coordination.drivers.memory.server import HeldWrite, MemoryServer
from regnum_coordination.drivers.memory.shared import examine, open_url, server_named
from regnum_coordination.drivers.memory.store import MemoryStore

__all__ = ["HeldWrite", "MemoryServer", "MemoryStore", "examine", "open_url", "server_named"]
