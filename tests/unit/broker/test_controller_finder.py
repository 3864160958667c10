"""Finding the controller, also through a store that does not answer for long."""

import asyncio

from regnum_broker.cluster.controller import ControllerFinder, ControllerLocation, nobody_elects
from regnum_broker.cluster.sessions import Sessions
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Node, Store
from regnum_coordination.recipes.folders import ensure_folders
from regnum_model import paths
from regnum_model.ids import ElectionId
from regnum_model.nodes import Address, ControllerNode, ElectionNode
from regnum_service.supervisor import Supervisor
from regnum_testing.clock import FakeClock


class SilentStore(MemoryStore):
    """A session that loses its connection with the first read of a node, and keeps it lost until told."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self._silenced = False

    async def get(self, path: str, *, current: bool = False) -> Node:
        if not self._silenced:
            self._silenced = True
            self._server.disconnect(self.session_id)
        return await super().get(path, current=current)


async def test_a_store_that_is_silent_for_long_hides_the_controller_only_meanwhile() -> None:
    clock, server = FakeClock(), MemoryServer()
    outside, own = MemoryStore(server), SilentStore(server)
    await ensure_folders(outside, paths.PERSISTENT_FOLDERS, clock)
    listeners = {name: Address(host="h", port=port) for port, name in enumerate(("client", "internal", "lifeline"), 1)}
    await outside.create(
        paths.election_id(ElectionId(2)), ElectionNode(incarnation="2", listeners=listeners).encode(), ephemeral=True
    )
    found: list[ControllerLocation | None] = []

    async def open_session() -> Store:
        return own

    sessions = Sessions(open_session, clock)
    supervisor = Supervisor("test")
    finder = ControllerFinder(sessions=sessions, clock=clock, moved=found.append, spawn=supervisor.start)
    tasks = [asyncio.create_task(sessions.run()), asyncio.create_task(finder.run())]
    try:
        await clock.advance(1.0)
        controller = ControllerNode(election_id=ElectionId(2), timestamp="0")
        await outside.create(paths.CONTROLLER, controller.encode(), ephemeral=True)
        # The watch tells; the addresses cannot be read any more.
        await clock.advance(60.0)
        assert not found
        server.reconnect(own.session_id)
        await clock.advance(10.0)
        assert finder.location is not None
        assert finder.location.election_id == 2
        assert found == [finder.location]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await supervisor.unwind()


async def test_only_a_store_that_answers_says_that_nobody_could_become_controller() -> None:
    clock, server = FakeClock(), MemoryServer()
    outside, own = MemoryStore(server), MemoryStore(server)

    async def open_session() -> Store:
        return own

    sessions = Sessions(open_session, clock)
    assert not await nobody_elects(sessions)
    running = asyncio.create_task(sessions.run())
    try:
        assert await sessions.wait_store() is own
        # Folders that nobody has made: no cluster has ever been here, or another one's root is looked at.
        assert not await nobody_elects(sessions)
        await ensure_folders(outside, paths.PERSISTENT_FOLDERS, clock)
        assert await nobody_elects(sessions)
        server.disconnect(own.session_id)
        assert not await nobody_elects(sessions)
        server.reconnect(own.session_id)
        await outside.create(paths.election_id(ElectionId(2)), b"not even readable", ephemeral=True)
        assert not await nobody_elects(sessions)
    finally:
        running.cancel()
        await asyncio.wait([running])
