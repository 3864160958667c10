"""Batches that take long to be checked cost the writer nothing, and the other callers one piece of it."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.replication.partition import Partition
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.produce_answers import PendingAnswer, PendingAnswers
from regnum_broker.serving.produce_appends import Admitted, Checked, Waiting
from regnum_broker.serving.produce_checks import EXPECTED_BYTES_MIN, SMALL_BYTES
from regnum_broker.serving.produce_requests import (
    Acks,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
)
from regnum_broker.serving.promised_leaders import PromisedLeaders
from regnum_broker.storage import CHECKERS
from regnum_model.config_definition import CLEANUP_COMPACT, CREATE_TIME, LOG_APPEND_TIME
from regnum_model.configs import DEFINITIONS, MAX_MESSAGE_UNPACKED_BYTES, UNPACKED_BYTES_MAX, ReplicaSettings
from regnum_model.principals import Principal
from regnum_model.shares import Shares
from regnum_records.build import CodecName
from regnum_records.decompress import DECOMPRESSED_BYTES_MAX
from regnum_records.read import read_records
from regnum_service.clock import Clock, SystemClock
from regnum_service.errors import RegnumError
from regnum_service.limits.budget import OF_UNPACKED
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import HeldBytes, Purpose
from regnum_service.supervisor import Supervisor
from regnum_testing.batches import TIMESTAMP_MS, batch_of
from regnum_testing.leading_replicas import FOLLOWER, LEADER, LeadingReplicas
from regnum_testing.waiting import eventually, within

NONE = errors_pb2.ERROR_CODE_NONE
Producing = asyncio.Task[ProduceResponse]
UNPACKED_MAX = 64 * 1024
GZIP: Final[CodecName] = "gzip"
SMALL: Final[CodecName] = "none"
Job = Callable[[], None]


class Slow(SystemClock):
    """By which each batch takes ten milliseconds, so that a caller has a thread for one at a time."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        """Later than before."""
        self._now_s += 0.01
        return self._now_s


@dataclass
class Charged:
    """A quota of time."""

    seconds: dict[tuple[str, str], float] = field(default_factory=dict)

    def charge(self, call: Call, spent_s: float) -> None:
        """Add it up."""
        key = call.principal.name, call.client_id
        self.seconds[key] = self.seconds.get(key, 0.0) + spent_s


class World:
    """Partitions that are led here, and callers that produce to them."""

    def __init__(self, leading: LeadingReplicas, clock: Clock) -> None:
        self.leading = leading
        self.unpacked = HeldBytes(OF_UNPACKED)
        self.charged = Charged()
        self.supervisor = Supervisor("test")
        self._clock = clock
        self.handler = self.handler_with(self.unpacked)

    def handler_with(self, unpacked: HeldBytes) -> ProduceHandler:
        """One that has so much room for what it unpacks."""
        replicas = self.leading.replicas
        return ProduceHandler(
            replicas=replicas,
            leaders=CurrentLeaders(replicas, MetadataCache(Fence(), replicas.learn_listeners)),
            storage=self.leading.storage,
            clock=self._clock,
            batch_bytes_max=1 << 20,
            supervisor=self.supervisor,
            unpacked=unpacked,
        )

    @property
    def partition(self) -> Partition:
        return self.leading.partition(0)

    def set(self, settings: ReplicaSettings) -> None:
        self.leading.replicas.configure(self.partition, settings)

    def request(self, batch: bytes, *, number: int = 0, **values: int) -> ProduceRequest:
        topic_id = self.partition.key.topic_id
        message = ProducePartition(topic="t", topic_id=topic_id, partition=number, record_batch=batch)
        request = ProduceRequest(partitions=[message], timeout_ms=20_000)
        for name, value in values.items():
            setattr(request, name, value)
        return request

    def produce(self, request: ProduceRequest, by: str = "a", handler: ProduceHandler | None = None) -> Producing:
        async def call() -> ProduceResponse:
            call = Call(peer=by, principal=Principal(by), charge=self.charged.charge)
            return await (handler or self.handler).produce(request, call=call)

        return asyncio.create_task(call())

    def send(self, *values: bytes, by: str = "a", codec: CodecName = GZIP, sequence: int = -1) -> Producing:
        """A batch of values; with a sequence, of an idempotent producer that begins at 0."""
        id, epoch = (-1, -1) if sequence < 0 else (7, 0)
        batch = batch_of(*values, codec=codec, producer_id=id, producer_epoch=epoch, base_sequence=sequence)
        return self.produce(self.request(batch), by)

    @contextmanager
    def _busy(self, run: Callable[[Job], Awaitable[None]], count: int) -> Iterator[None]:
        begun, over = threading.Barrier(count + 1), threading.Event()

        def job() -> None:
            begun.wait(60)
            over.wait(60)

        tasks = [asyncio.ensure_future(run(job)) for _ in range(count)]
        self._tasks = tasks
        self._begun = begun
        try:
            yield
        finally:
            over.set()

    @contextmanager
    def writer_is_busy(self) -> Iterator[None]:
        """Until the end of the context the writer takes no job."""
        with self._busy(self.leading.storage.write, 1):
            yield

    @contextmanager
    def checkers_are_busy(self) -> Iterator[None]:
        """Until the end of the context nothing is checked beside the writer."""
        with self._busy(self.leading.storage.check, CHECKERS):
            yield

    async def begun(self) -> None:
        """They have begun to be busy."""
        await within(asyncio.to_thread(self._begun.wait))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with LeadingReplicas(tmp_path) as leading:
        for number in (0, 1):
            leading.lead(number, epoch=1, isr=(LEADER,))
        yield World(leading, Slow())


async def result_of(producing: Producing) -> ProduceResult:
    return (await within(producing)).results[0]


async def code_of(producing: Producing) -> int:
    return (await result_of(producing)).error_code


async def checked(world: World, jobs: int) -> None:
    """The writer has so many jobs: what is behind the line was checked."""

    async def handed_in() -> bool:
        return world.leading.storage.jobs_pending == jobs

    await eventually(handed_in)


def test_what_may_be_set_is_what_readers_take() -> None:
    assert UNPACKED_BYTES_MAX == DECOMPRESSED_BYTES_MAX
    assert DEFINITIONS[MAX_MESSAGE_UNPACKED_BYTES].default == 8 * 1024 * 1024


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_what_unpacks_to_more_than_its_topic_takes_is_refused_while_the_writer_is_busy(
    world: World, codec: CodecName
) -> None:
    world.set(ReplicaSettings(max_message_unpacked_bytes=UNPACKED_MAX))
    with world.writer_is_busy():
        await world.begun()
        result = await result_of(world.send(bytes(UNPACKED_MAX + 1), codec=codec))
        assert result.error_code == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE
        assert MAX_MESSAGE_UNPACKED_BYTES in result.error_message
    assert await code_of(world.send(bytes(UNPACKED_MAX - 100), codec=codec)) == NONE


async def test_without_a_setting_it_is_eight_mebibytes(world: World) -> None:
    most = DEFINITIONS[MAX_MESSAGE_UNPACKED_BYTES].default
    batch = batch_of(bytes(most), codec="zstd")
    assert await code_of(world.produce(world.request(batch))) == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE
    world.set(ReplicaSettings(max_message_unpacked_bytes=UNPACKED_BYTES_MAX))
    assert await code_of(world.produce(world.request(batch))) == NONE


async def test_what_is_not_compressed_has_the_other_limit_alone(world: World) -> None:
    world.set(ReplicaSettings(max_message_unpacked_bytes=1_024))
    assert await code_of(world.send(bytes(SMALL_BYTES), codec=SMALL)) == NONE


async def test_a_repeat_is_known_again_though_it_unpacks_to_more_than_the_topic_takes_now(world: World) -> None:
    assert await code_of(world.send(bytes(2_000), sequence=0)) == NONE
    world.set(ReplicaSettings(max_message_unpacked_bytes=1_024))
    assert (await result_of(world.send(bytes(2_000), sequence=0))).base_offset == 0
    assert await code_of(world.send(bytes(2_000), sequence=1)) == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE


async def test_what_one_caller_sends_to_a_partition_keeps_its_order_and_others_go_on(world: World) -> None:
    with world.checkers_are_busy():
        await world.begun()
        codecs: tuple[CodecName, ...] = (GZIP, SMALL, GZIP, SMALL, "zstd")
        mine = [world.send(b"v", codec=codec, sequence=at) for at, codec in enumerate(codecs)]
        assert (await result_of(world.send(b"w", by="b", codec=SMALL))).base_offset == 0
        elsewhere = world.request(batch_of(b"w"), number=1)
        assert await code_of(world.produce(elsewhere)) == NONE
        assert not any(task.done() for task in mine)
    results = [await result_of(task) for task in mine]
    assert [(one.error_code, one.base_offset) for one in results] == [(NONE, at) for at in range(1, 6)]


async def test_one_producer_under_two_principals_is_one_producer_to_the_writer(world: World) -> None:
    with world.checkers_are_busy():
        await world.begun()
        first = world.send(b"v", sequence=0)
        ahead = world.send(b"v", by="b", codec=SMALL, sequence=1)
        assert await code_of(ahead) == NONE, "the first that is heard of it"
    assert await code_of(first) == errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER
    assert world.partition.log.log_end_offset == 1


async def test_callers_take_turns(world: World) -> None:
    """Two bring twenty each that take a thread's time each, and have both threads; the third brings one."""
    with world.checkers_are_busy():
        await world.begun()
        many = [world.send(b"v", by=by) for _ in range(20) for by in ("a", "b")]
        await asyncio.sleep(0)
        one = world.send(b"w", by="c")
        await asyncio.sleep(0)
    assert (await result_of(one)).base_offset < 8
    assert {await code_of(task) for task in many} == {NONE}


async def test_what_a_topic_takes_when_it_is_appended_counts(world: World) -> None:
    """Both were checked when the topic still took them."""
    with world.writer_is_busy():
        await world.begun()
        first = world.send(bytes(2_000))
        await checked(world, 2)
        second = world.send(b"v")
        await checked(world, 3)
        world.set(ReplicaSettings(max_message_unpacked_bytes=1_024, cleanup_policy=CLEANUP_COMPACT))
    assert await code_of(first) == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE
    assert await code_of(second) == errors_pb2.ERROR_CODE_INVALID_RECORD
    assert world.partition.log.log_end_offset == 0


async def test_a_leader_that_is_replaced_while_it_checks_appends_nothing(world: World) -> None:
    with world.checkers_are_busy():
        await world.begun()
        sent = world.send(b"v")
        await asyncio.sleep(0)
        world.partition.take_role(None)
    assert await code_of(sent) == errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    assert world.partition.log.log_end_offset == 0


async def test_what_was_checked_goes_behind_what_waits_for_the_next_epoch_and_came_before(world: World) -> None:
    """The writer refused the first when the epoch was over; to hand the second in now would be to overtake it."""
    appended: list[bytes] = []

    async def append(items: Sequence[Admitted]) -> None:
        appended.extend(item.message.record_batch for item in items)

    supervisor = Supervisor("test")
    book = PendingAnswers(complete=lambda _: None, took=lambda _: None, supervisor=supervisor)
    leadership = world.leading.leadership(0)
    promised = PromisedLeaders(
        admit=lambda *_, **__: leadership, append=append, refuse=lambda *_: None, supervisor=supervisor
    )
    items = [
        Admitted(
            pending=PendingAnswer(book, lambda _: None, acks=Acks.ALL, began_s=at),
            index=0,
            leadership=leadership,
            message=ProducePartition(topic="t", partition=0, record_batch=bytes([int(at)])),
        )
        for at in (1.0, 2.0)
    ]
    assert not promised.takes_back(items[1]), "nobody waits"
    world.partition.promise()
    first = items[0]
    assert first.pending is not None
    promised.wait(world.partition, Waiting(pending=first.pending, index=0, message=first.message))
    assert promised.takes_back(items[1])
    world.partition.take_role(leadership)

    async def all_appended() -> bool:
        return appended == [b"\x01", b"\x02"]

    await eventually(all_appended)


async def test_what_waits_for_replicas_keeps_no_batch(world: World) -> None:
    """Its request may be answered long before they have it, and what it brought is counted only until then."""
    partition = world.partition
    world.leading.lead(0, epoch=2, isr=(LEADER, FOLLOWER))
    waiting = world.send(bytes(2_000))

    async def appended() -> bool:
        return len(partition.acks) == 1

    await eventually(appended)
    assert not [kept for kept in gc.get_objects() if isinstance(kept, Checked)]
    partition.acks.committed(partition.log.log_end_offset)
    assert await code_of(waiting) == NONE


async def test_a_call_that_is_given_up_before_it_was_checked_leaves_nothing(world: World) -> None:
    with world.checkers_are_busy():
        await world.begun()
        given_up, kept = world.send(b"v"), world.send(b"w")
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait([given_up])
    assert (await result_of(kept)).base_offset == 0
    assert world.partition.log.log_end_offset == 1


async def test_a_call_may_be_given_up_in_the_turn_in_which_it_is_answered(world: World) -> None:
    world.leading.lead(0, epoch=2, isr=(LEADER, FOLLOWER))
    sent = world.send(b"v", codec=SMALL)

    async def appended() -> bool:
        return len(world.partition.acks) == 1

    await eventually(appended)
    world.partition.take_role(None)
    sent.cancel()
    await asyncio.wait([sent])
    assert sent.cancelled()
    assert not world.supervisor.stopping


async def test_the_same_on_a_stream_whose_call_has_ended(world: World) -> None:
    with world.checkers_are_busy():
        await world.begun()
        told: list[object] = []
        requests = [world.request(batch_of(b"v", codec=GZIP)) for _ in range(3)]

        def tell(_: int, answer: ProduceResponse | RegnumError) -> None:
            told.append(answer)

        under_way = await within(world.handler.take(requests, tell))
        for pending in under_way.values():
            pending.give_up()
    assert await code_of(world.send(b"w")) == NONE
    assert world.partition.log.log_end_offset == 1
    assert not told


async def test_what_was_not_checked_in_time_is_said_not_to_have_been_appended_and_is_not(world: World) -> None:
    with world.checkers_are_busy():
        await world.begun()
        request = world.request(batch_of(b"v", codec=GZIP), timeout_ms=1)
        result = await result_of(world.produce(request))
        assert result.error_code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
        assert "nothing was appended" in result.error_message
    assert (await result_of(world.send(b"w"))).base_offset == 0


async def test_a_producer_that_waits_for_no_answer_is_under_way_until_it_was_checked(world: World) -> None:
    with world.checkers_are_busy():
        await world.begun()
        sent = world.produce(world.request(batch_of(b"v", codec=GZIP), acks=Acks.NONE))
        behind = world.send(b"w")
        assert (await result_of(world.send(b"x", by="b", codec=SMALL))).base_offset == 0
        assert not sent.done()
    assert await code_of(sent) == NONE
    assert (await result_of(behind)).base_offset == 2


async def test_room_is_reserved_before_anything_is_unpacked_and_then_left(world: World) -> None:
    world.set(ReplicaSettings(max_message_unpacked_bytes=UNPACKED_MAX))
    with world.checkers_are_busy():
        await world.begun()
        sent = [world.send(b"v", by="a"), world.send(bytes(UNPACKED_MAX), by="b"), world.send(b"v", by="c")]

        async def reserved() -> bool:
            # By as many as there are threads; the third waits for its turn, and has nothing.
            return world.unpacked.held_for(Purpose.UNPACKED) == CHECKERS * UNPACKED_MAX

        await eventually(reserved)
        assert len(sent) > CHECKERS
    codes = [await code_of(task) for task in sent]
    assert codes == [NONE, errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, NONE]
    assert world.unpacked.total == 0


async def test_what_unpacks_to_more_than_was_expected_gets_more_room_and_not_more_than_there_is(world: World) -> None:
    """Each of two needs more than there is: one after the other has all of it."""
    world.set(ReplicaSettings(max_message_unpacked_bytes=UNPACKED_BYTES_MAX))
    large = batch_of(bytes(EXPECTED_BYTES_MIN), codec="zstd")
    most = 2 * EXPECTED_BYTES_MIN
    unpacked = HeldBytes(Shares(total_max=most, connection_max=most))
    handler = world.handler_with(unpacked)
    calls = [world.produce(world.request(large), by=by, handler=handler) for by in ("a", "b")]
    assert {await code_of(call) for call in calls} == {NONE}
    assert unpacked.total_peak == 8 * EXPECTED_BYTES_MIN, "it has all the room alone"


async def test_the_time_of_threads_is_its_callers(world: World) -> None:
    small = world.request(batch_of(b"v"))
    small.client_id = "small"
    packed = world.request(batch_of(b"v", codec=GZIP))
    bad = world.request(batch_of(b"v", codec=GZIP)[:-3])
    bad.client_id = "bad"
    assert [await code_of(world.produce(one)) for one in (small, packed, bad)][:2] == [NONE, NONE]
    assert world.charged.seconds == pytest.approx({("a", "small"): 0.01, ("a", ""): 0.02, ("a", "bad"): 0.01})


async def test_who_hangs_up_pays_for_what_was_begun(world: World) -> None:
    with world.writer_is_busy():
        await world.begun()
        sent = world.send(b"v", by="z")
        await checked(world, 2)
        sent.cancel()
        await asyncio.wait([sent])
    assert await code_of(world.send(b"w", codec=SMALL)) == NONE
    assert world.charged.seconds[("z", "")] == pytest.approx(0.02)


async def test_the_broker_has_its_own_batches_checked_beside_the_writer_too(world: World) -> None:
    leadership = world.leading.leadership(0)
    with world.writer_is_busy():
        await world.begun()
        bad = batch_of(bytes(SMALL_BYTES), codec=SMALL)[:-1]
        refused = await within(world.handler.append(leadership, bad))
        assert refused.code == errors_pb2.ERROR_CODE_CORRUPT_MESSAGE
    good = await within(world.handler.append(leadership, batch_of(bytes(SMALL_BYTES), codec=SMALL)))
    assert good.code == NONE


@pytest.mark.parametrize("codec", [SMALL, GZIP])
async def test_records_get_the_time_of_their_append_where_their_topic_wants_it(world: World, codec: CodecName) -> None:
    world.set(ReplicaSettings(message_timestamp_type=CREATE_TIME))
    result = await result_of(world.send(b"own", codec=codec))
    assert result.log_append_time_ms is None
    world.set(ReplicaSettings(message_timestamp_type=LOG_APPEND_TIME))
    before_ms = SystemClock().wall_ms()
    batch = batch_of(b"stamped", codec=codec, producer_id=7, producer_epoch=0, base_sequence=0)
    result = await result_of(world.produce(world.request(batch)))
    assert result.log_append_time_ms is not None
    assert before_ms <= result.log_append_time_ms <= SystemClock().wall_ms()
    again = await result_of(world.produce(world.request(batch)))
    assert (again.base_offset, again.log_append_time_ms) == (result.base_offset, None), "when is not kept"
    log = world.leading.partition().log
    own, stamped = read_records(log.read(0, bytes_max=1 << 20))
    assert (own.value, own.timestamp_ms) == (b"own", TIMESTAMP_MS)
    assert (stamped.value, stamped.timestamp_ms) == (b"stamped", result.log_append_time_ms)
