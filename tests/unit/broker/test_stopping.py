"""A broker that stops asks first, serves on while it has to and may, and then goes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from regnum.election.v1 import controller_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.broker import LOG_SERVICE, serve_when
from regnum_broker.cluster.fence import Fence
from regnum_broker.cluster.readiness import CatchingUp, Readiness
from regnum_broker.cluster.shutdown import ASK_INTERVAL_S, DESERTED_S, KEPT_GRACE_S, ControlledShutdown
from regnum_broker.identity import Identity
from regnum_broker.replication.fetchers import Fetchers
from regnum_broker.replication.partition import Following
from regnum_model.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionKey, Registration, TopicId
from regnum_service.errors import RegnumError
from regnum_service.supervisor import Supervisor
from regnum_testing.clock import FakeClock, settle

GOES = controller_pb2.ControlledShutdownResponse()
STILL_LEADS = controller_pb2.ControlledShutdownResponse(remaining_partitions=2)
UNKNOWN = controller_pb2.ControlledShutdownResponse(error_code=errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE)


def held(count: int) -> controller_pb2.ControlledShutdownResponse:
    named = [controller_pb2.HeldPartition(topic="t", partition=number) for number in range(count)]
    return controller_pb2.ControlledShutdownResponse(below_min_isr=count, held=named)


class Controller:
    """Answers what a test says, and the last of it for ever."""

    def __init__(self, story: list[str], *answers: controller_pb2.ControlledShutdownResponse | RegnumError) -> None:
        self.answers = list(answers)
        self.silent = False
        """Whether it does not answer at all."""
        self._story = story

    async def call(self, what: Callable[[Any], Awaitable[Any]], *, timeout_s: float) -> Any:
        assert timeout_s > 0
        return await what(self)

    async def ControlledShutdown(  # noqa: N802 - gRPC's name
        self, request: controller_pb2.ControlledShutdownRequest, timeout: float
    ) -> controller_pb2.ControlledShutdownResponse:
        assert timeout > 0
        self._story.append(f"may I, {request.broker_epoch}?" if request.can_wait else f"I go, {request.broker_epoch}")
        if self.silent:
            await asyncio.Event().wait()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, RegnumError):
            raise answer
        return answer


class Followed:
    """What the broker follows."""

    def __init__(self, story: list[str]) -> None:
        self._story = story
        self._stopped = False

    def hold(self) -> None:
        """Nothing to see."""

    def release(self) -> None:
        """Nothing to see."""

    async def stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._story.append("follows no more")


class Stopping:
    def __init__(self, grace_s: float, *answers: controller_pb2.ControlledShutdownResponse | RegnumError) -> None:
        self.story: list[str] = []
        self.clock = FakeClock()
        self.hurried = asyncio.Event()
        self.controller = Controller(self.story, *answers)
        self.deserted = False
        """What the store says of election processes."""
        self.fence = Fence()
        self.register(7)
        self.shutdown = ControlledShutdown(
            broker=BrokerId(1),
            fence=self.fence,
            calls=self.controller,
            fetchers=Followed(self.story),
            clock=self.clock,
            grace_s=grace_s,
            hurried=self.hurried,
            is_deserted=self._look,
        )

    def register(self, epoch: int) -> None:
        self.fence.registered(Identity(broker_epoch=BrokerEpoch(epoch), registration=Registration(0)))

    async def _look(self) -> bool:
        return self.deserted

    async def begin(self) -> "asyncio.Task[None]":
        running = asyncio.ensure_future(self.shutdown.run())
        await settle()
        return running


async def advance(stopping: Stopping, seconds: float) -> None:
    """In steps, so that what waits for a moment begins its next wait at that moment."""
    for _ in range(round(seconds / 0.5)):
        await stopping.clock.advance(0.5)


async def test_it_follows_until_the_controller_has_let_it_go_and_then_makes_sure() -> None:
    stopping = Stopping(100.0, GOES)
    await (await stopping.begin())
    assert stopping.story == ["may I, 7?", "follows no more", "I go, 7"]


async def test_it_serves_on_and_asks_again_while_partitions_would_fall_below() -> None:
    stopping = Stopping(100.0, held(2), UNKNOWN, held(1), GOES)
    running = await stopping.begin()
    for asked in range(1, 4):
        assert stopping.story == ["may I, 7?"] * asked
        await stopping.clock.advance(ASK_INTERVAL_S)
    await running
    assert stopping.story == ["may I, 7?"] * 4 + ["follows no more", "I go, 7"]


async def test_it_goes_when_only_what_it_needs_is_left_of_its_time() -> None:
    stopping = Stopping(KEPT_GRACE_S + 5.0, held(1))
    running = await stopping.begin()
    await stopping.clock.advance(4.5)
    assert set(stopping.story) == {"may I, 7?"}
    await stopping.clock.advance(1.0)
    await running
    assert stopping.story[-3:] == ["I go, 7", "follows no more", "I go, 7"]


@pytest.mark.parametrize("grace_s", [0.0, KEPT_GRACE_S])
async def test_without_time_it_does_not_ask_whether_it_may(grace_s: float) -> None:
    stopping = Stopping(grace_s, held(1))
    await (await stopping.begin())
    assert stopping.story == ["I go, 7", "follows no more", "I go, 7"]
    assert stopping.clock.monotonic() == FakeClock().monotonic()


async def test_a_second_signal_ends_the_wait_also_for_a_controller_that_does_not_answer() -> None:
    stopping = Stopping(100.0, held(1))
    running = await stopping.begin()
    stopping.hurried.set()
    await running
    assert stopping.story == ["may I, 7?", "I go, 7", "follows no more", "I go, 7"]

    stopping = Stopping(100.0, GOES)
    stopping.controller.silent = True
    running = await stopping.begin()
    assert stopping.story == ["may I, 7?"]
    stopping.controller.silent = False
    stopping.hurried.set()
    await running
    assert stopping.story == ["may I, 7?", "I go, 7", "follows no more", "I go, 7"]


async def test_it_asks_with_the_registration_that_it_has_by_then() -> None:
    stopping = Stopping(100.0, held(1), GOES)
    running = await stopping.begin()
    stopping.register(9)
    await stopping.clock.advance(ASK_INTERVAL_S)
    await running
    assert stopping.story == ["may I, 7?", "may I, 9?", "follows no more", "I go, 9"]


async def test_a_broker_that_is_not_registered_waits_for_nobody() -> None:
    stopping = Stopping(100.0, held(1))
    stopping.fence.begin_registration()
    await (await stopping.begin())
    assert stopping.story == ["follows no more"]


NOBODY = RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "there is no controller at the moment; try again")


async def test_a_controller_that_is_not_found_does_not_keep_it_from_stopping() -> None:
    """It serves on for its time: an election process is registered, so there will be one."""
    stopping = Stopping(100.0, NOBODY)
    running = await stopping.begin()
    await advance(stopping, 100.0 - KEPT_GRACE_S - 1.0)
    assert set(stopping.story) == {"may I, 7?"}
    await advance(stopping, 2.0)
    await running
    assert stopping.story[-2:] == ["I go, 7", "follows no more"]


async def test_where_nobody_could_become_controller_it_waits_a_while_and_goes() -> None:
    """All is being stopped, election processes first. A single one that is restarted is back before that."""
    stopping = Stopping(100.0, held(1), NOBODY)
    running = await stopping.begin()
    await advance(stopping, 10.0)
    stopping.deserted = True
    await advance(stopping, DESERTED_S - 1.0)
    # One that is registered for a moment begins it anew.
    stopping.deserted = False
    await advance(stopping, ASK_INTERVAL_S)
    stopping.deserted = True
    await advance(stopping, DESERTED_S - 1.0)
    assert set(stopping.story) == {"may I, 7?"}
    await advance(stopping, 3.0)
    await running
    assert stopping.story[-2:] == ["I go, 7", "follows no more"]


async def test_a_controller_that_answers_has_the_word_whatever_is_registered() -> None:
    stopping = Stopping(100.0, *(NOBODY for _ in range(20)), held(1), NOBODY)
    stopping.deserted = True
    running = await stopping.begin()
    await advance(stopping, DESERTED_S + 15.0)
    assert set(stopping.story) == {"may I, 7?"}
    await advance(stopping, 10.0)
    await running
    assert stopping.story[-1] == "follows no more"


async def test_what_nobody_else_may_lead_is_waited_for_once_and_not_long() -> None:
    """A second, as before there was anything to wait for: with a replication factor of 1 nothing can be moved."""
    stopping = Stopping(0.0, STILL_LEADS)
    running = await stopping.begin()
    assert stopping.story == ["I go, 7"]
    for _ in range(6):
        await stopping.clock.advance(0.2)
    await running
    assert stopping.story[-3:] == ["I go, 7", "follows no more", "I go, 7"]
    assert stopping.clock.monotonic() - FakeClock().monotonic() <= 1.3


class Stream:
    """The way to one leader."""

    def __init__(self) -> None:
        self.followed: set[PartitionKey] = set()

    async def run(self) -> None:
        await asyncio.Event().wait()

    def add(self, partition: Any, _following: Following) -> None:
        self.followed.add(partition.key)

    def remove(self, key: PartitionKey) -> None:
        self.followed.discard(key)


class Health:
    """What a server says of itself and of the readiness probe's service."""

    def __init__(self) -> None:
        self.said: dict[str, bool] = {}

    async def set_serving(self, *, serving: bool, but: str | None = None) -> None:
        self.said |= {name: serving for name in ("", LOG_SERVICE) if name != but}

    def set_service(self, name: str, *, serving: bool) -> None:
        self.said[name] = serving


@pytest.mark.parametrize("is_registered", [True, False])
async def test_a_broker_that_comes_in_sync_while_it_stops_does_not_say_that_it_is_ready(is_registered: bool) -> None:
    """It follows and registers while it waits to be let go: nobody is to begin with it for that."""
    registered, readiness, internal, client = asyncio.Event(), Readiness(), Health(), Health()
    if is_registered:
        registered.set()
    serving = asyncio.ensure_future(serve_when(registered, readiness, internal, client))
    await settle()
    assert client.said == ({"": True} if is_registered else {})
    readiness.stop()
    for server in (internal, client):
        await server.set_serving(serving=False)
    registered.set()
    readiness.take(CatchingUp(replicas=1, awaited=0))
    await serving
    assert internal.said == client.said == {"": False, LOG_SERVICE: False}


class Replica:
    def __init__(self, number: int) -> None:
        self.key = PartitionKey(TopicId("T" * 22), number)


async def test_what_is_handed_over_is_not_followed_unless_the_broker_stays() -> None:
    """Else it would be back in the in-sync set of those who took it, when it goes (defect D11)."""
    streams: dict[BrokerId, Stream] = {}
    supervisor = Supervisor("test")
    fetchers = Fetchers(lambda leader: streams.setdefault(leader, Stream()), supervisor)
    followed, led, stopped = Replica(0), Replica(1), Replica(2)
    by_two = Following(leader=BrokerId(2), leader_epoch=LeaderEpoch(1))
    by_three = Following(leader=BrokerId(3), leader_epoch=LeaderEpoch(2))
    try:
        fetchers.follow(followed, by_two)
        fetchers.hold()
        # Another leader of what is followed anyway, whose order is forgotten before the next one is recorded; what was
        # led; and of that something that is to be stopped.
        fetchers.forget(followed.key)
        fetchers.follow(followed, by_three)
        fetchers.follow(led, by_three)
        fetchers.follow(stopped, by_three)
        fetchers.forget(stopped.key)
        assert [streams[BrokerId(id)].followed for id in (2, 3)] == [set(), {followed.key}]
        fetchers.release()
        assert streams[BrokerId(3)].followed == {followed.key, led.key}
        fetchers.hold()
        fetchers.follow(stopped, by_three)
        await fetchers.stop()
        fetchers.release()
        assert streams[BrokerId(3)].followed == {followed.key, led.key}
    finally:
        await supervisor.unwind()
