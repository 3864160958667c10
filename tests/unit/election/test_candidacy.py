"""Candidates over a memory store: winning, standing by, fencing the dead, and what people write into /controller."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import ConnectionLoss, NoNode, SessionExpired
from regnum_coordination.port import Node
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.leadership import Leadership
from regnum_election.candidacy.candidacy import Candidacy, KnownController
from regnum_election.reign.reign import DeposedError, Reign, ResignedError
from regnum_model import paths
from regnum_model.ids import ControllerEpoch, ElectionId
from regnum_model.nodes import Address, ElectionNode
from regnum_service.clock import SystemClock
from regnum_service.supervisor import Supervisor
from regnum_testing.waiting import until


class FakeDetector:
    """Says that a process is dead when the test says so."""

    def __init__(self) -> None:
        self.dead: dict[int, asyncio.Event] = {}
        self.stray_cancellations = 0
        """Calls that come to be cancelled although nobody cancels the task that waits for them."""

    async def wait_dead(self, lifeline: Address) -> int:
        if self.stray_cancellations:
            self.stray_cancellations -= 1
            raise asyncio.CancelledError
        await self.dead.setdefault(lifeline.port, asyncio.Event()).wait()
        return 0


class MissingStore(MemoryStore):
    """Misses its first reads of registrations."""

    def __init__(self, server: MemoryServer, missing: list[Exception]) -> None:
        super().__init__(server)
        self.missing = missing

    async def get(self, path: str, *, current: bool = False) -> Node:
        """See Store."""
        if self.missing and path.startswith(f"{paths.ELECTION_IDS}/"):
            raise self.missing.pop(0)
        return await super().get(path, current=current)


class Candidate:
    """One election process without a controller behind it."""

    def __init__(
        self,
        server: MemoryServer,
        id: int,
        detector: FakeDetector,
        supervisor: Supervisor,
        missing: Sequence[Exception] = (),
    ) -> None:
        self.id = id
        self.server = server
        self.store = MissingStore(server, list(missing))
        self.clock = SystemClock()
        self.reigns: list[Reign] = []
        self.reigning = False
        self.prepared: list[bool] = []
        """For each look for brokers before a fence: whether the controller's node was still there."""
        self.known: KnownController | None = None
        self.depose: asyncio.Future[DeposedError] | None = None
        self.leadership = Leadership(self.store, self.clock, id=ElectionId(id))
        self.candidacy = Candidacy(
            id=ElectionId(id),
            store=self.store,
            leadership=self.leadership,
            detector=detector,
            run_reign=self.run_reign,
            known=self.hear,
            spawn=supervisor.start,
            detects=True,
            prepare=self.prepare,
        )
        self.task: asyncio.Task[None] | None = None

    def hear(self, known: KnownController | None) -> None:
        self.known = known

    async def prepare(self) -> None:
        (before,) = await self.store.get_many(["/controller"])
        self.prepared.append(before is not None)

    async def run_reign(self, reign: Reign) -> DeposedError:
        self.reigns.append(reign)
        self.reigning = True
        self.depose = asyncio.get_running_loop().create_future()
        try:
            return await self.depose
        finally:
            self.reigning = False

    async def start(self) -> None:
        node = ElectionNode(
            incarnation=str(self.id),
            listeners={
                "client": Address(host="h", port=1_000 + self.id),
                "internal": Address(host="h", port=2_000 + self.id),
                "lifeline": Address(host="h", port=3_000 + self.id),
            },
        )
        await self.store.create(paths.election_id(ElectionId(self.id)), node.encode(), ephemeral=True)
        self.task = asyncio.create_task(self.candidacy.run())


class Candidates:
    """Several of them."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.detector = FakeDetector()
        self.outside = MemoryStore(self.server)
        self.supervisor = Supervisor("test")
        self.all: list[Candidate] = []

    async def start(self, id: int, *, missing: Sequence[Exception] = ()) -> Candidate:
        await ensure_folders(self.outside, paths.PERSISTENT_FOLDERS, SystemClock())
        candidate = Candidate(self.server, id, self.detector, self.supervisor, missing)
        self.all.append(candidate)
        await candidate.start()
        return candidate

    async def close(self) -> None:
        for candidate in self.all:
            if candidate.task is not None:
                candidate.task.cancel()
                await asyncio.wait([candidate.task])
        await self.supervisor.unwind()
        assert self.supervisor.failure is None


@pytest.fixture
async def candidates() -> AsyncIterator[Candidates]:
    candidates = Candidates()
    yield candidates
    await candidates.close()
    assert candidates.server.watches_open() == 0


async def test_one_wins_and_the_other_knows_it(candidates: Candidates) -> None:
    one = await candidates.start(1)
    await until(lambda: one.reigning)
    two = await candidates.start(2)
    await until(lambda: two.known is not None)
    assert two.known == KnownController(
        id=ElectionId(1),
        epoch=ControllerEpoch(1),
        client=Address(host="h", port=1_001),
        internal=Address(host="h", port=2_001),
    )
    assert not two.reigns


async def test_a_dead_controller_is_fenced_before_its_session_ends(candidates: Candidates) -> None:
    one = await candidates.start(1)
    await until(lambda: one.reigning)
    two = await candidates.start(2)
    await until(lambda: 3_001 in candidates.detector.dead)
    candidates.detector.dead[3_001].set()
    await until(lambda: two.reigning)
    assert two.reigns[0].epoch == 2
    assert two.prepared == [True], "looked for brokers once, while the office was not free"


async def test_a_standby_that_misses_reads_watches_the_controller_as_soon_as_one_is_answered(
    candidates: Candidates,
) -> None:
    one = await candidates.start(1)
    await until(lambda: one.reigning)
    missed = [ConnectionLoss("no answer"), NoNode(paths.election_id(ElectionId(1))), ConnectionLoss("no answer")]
    two = await candidates.start(2, missing=missed)
    await until(lambda: two.known is not None)
    assert two.known == KnownController(id=ElectionId(1), epoch=ControllerEpoch(1), client=None), "who, not yet where"
    await until(lambda: 3_001 in candidates.detector.dead)
    assert two.known is not None
    assert two.known.internal == Address(host="h", port=2_001)
    candidates.detector.dead[3_001].set()
    await until(lambda: two.reigning)
    assert two.reigns[0].epoch == 2


async def test_a_standby_that_misses_every_read_is_elected_when_the_office_is_free(candidates: Candidates) -> None:
    one = await candidates.start(1)
    await until(lambda: one.reigning)
    two = await candidates.start(2, missing=[ConnectionLoss("no answer")] * 1_000)
    await until(lambda: two.known is not None)
    candidates.server.expire(one.store.session_id)
    await until(lambda: two.reigning)
    assert two.reigns[0].epoch == 2


async def test_a_standby_watches_on_when_a_call_is_cancelled_that_nobody_cancelled(candidates: Candidates) -> None:
    one = await candidates.start(1)
    await until(lambda: one.reigning)
    candidates.detector.stray_cancellations = 3
    two = await candidates.start(2)
    await until(lambda: 3_001 in candidates.detector.dead)
    candidates.detector.dead[3_001].set()
    await until(lambda: two.reigning)
    assert two.reigns[0].epoch > one.reigns[0].epoch


async def test_who_was_the_controller_in_a_session_given_up_need_not_wait_for_its_end(candidates: Candidates) -> None:
    """The store was away: it grants the old session its whole time-out anew, and nobody leads anything meanwhile."""
    former = await candidates.start(1)
    await until(lambda: former.reigning)
    assert former.task is not None
    former.task.cancel()
    await asyncio.wait([former.task])
    await candidates.outside.delete(paths.election_id(ElectionId(1)), version=None)
    now = await candidates.start(1)
    await until(lambda: now.reigning)
    assert now.reigns[0].epoch == 2


async def test_the_end_of_the_session_frees_the_office(candidates: Candidates) -> None:
    one = await candidates.start(1)
    await until(lambda: one.reigning)
    two = await candidates.start(2)
    candidates.server.expire(one.store.session_id)
    await until(lambda: two.reigning)
    assert one.task is not None
    with pytest.raises(SessionExpired):
        await one.task


async def test_a_standby_outlives_its_session(candidates: Candidates) -> None:
    one = await candidates.start(1)
    await until(lambda: one.reigning)
    two = await candidates.start(2)
    await until(lambda: two.known is not None)
    candidates.server.expire(two.store.session_id)
    assert two.task is not None
    with pytest.raises(SessionExpired):
        await two.task
    assert one.reigning


@pytest.mark.parametrize(
    "content", [b"", b"garbage{", b'{"brokerid":-1}', b'{"version":1,"brokerid":9,"timestamp":"0"}']
)
async def test_what_people_write_into_the_node_leads_to_a_new_election(candidates: Candidates, content: bytes) -> None:
    one = await candidates.start(1)
    await until(lambda: one.reigning)
    await candidates.start(2)
    candidates.server.overwrite(paths.CONTROLLER, content)
    await until(lambda: sum(len(c.reigns) for c in candidates.all) == 2 and any(c.reigning for c in candidates.all))
    latest = max((reign for c in candidates.all for reign in c.reigns), key=lambda reign: reign.epoch)
    assert latest.epoch == 2


async def test_content_without_an_owner_does_not_outlive_its_author(candidates: Candidates) -> None:
    """Nobody reigns, and a node that belongs to no session stands in the way."""
    candidates.server.overwrite(paths.CONTROLLER, b'{"version":1,"brokerid":7,"timestamp":"0"}')
    one = await candidates.start(1)
    await until(lambda: one.reigning)
    assert await candidates.outside.exists(paths.CONTROLLER) is not None
    assert len(one.reigns) == 1


async def test_the_next_reign_is_above_every_epoch_seen(candidates: Candidates) -> None:
    one = await candidates.start(1)
    await until(lambda: one.reigning)
    assert one.depose is not None
    one.depose.set_result(DeposedError("a broker has seen 41", seen=ControllerEpoch(41)))
    await until(lambda: len(one.reigns) == 2)
    assert one.reigns[1].epoch == 42


async def test_who_was_asked_to_resign_lets_another_go_first(candidates: Candidates) -> None:
    one = await candidates.start(1)
    await until(lambda: one.reigning)
    two = await candidates.start(2)
    await until(lambda: two.known is not None)
    for _ in range(3):
        first, second = (one, two) if one.reigning else (two, one)
        before = len(first.reigns)
        assert first.depose is not None
        first.depose.set_result(ResignedError("asked to resign"))
        await until(lambda second=second: second.reigning)
        assert len(first.reigns) == before
        await until(lambda first=first, second=second: first.known is not None and first.known.id == second.id)


async def test_who_resigns_and_is_alone_reigns_again(candidates: Candidates) -> None:
    one = await candidates.start(1)
    await until(lambda: one.reigning)
    assert one.depose is not None
    one.depose.set_result(ResignedError("asked to resign"))
    await until(lambda: len(one.reigns) == 2)
    assert one.reigns[1].epoch == 2
