"""ProduceStream: what a call of Produce does, for request after request."""

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.replication.leader import Leadership
from regnum_broker.servicers.produce_stream import REQUESTS_MAX, TOGETHER_MAX, ProduceStream
from regnum_broker.serving.produce_appends import Admitted
from regnum_model.ids import BrokerId
from regnum_model.shares import Shares
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.gates import Messages, Sized
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import RETRY_MS, HeldBytes
from regnum_service.status import from_rpc_error, from_status
from regnum_testing.batches import batch_of, values_of
from regnum_testing.broker_world import BrokerWorld
from regnum_testing.clock import settle
from regnum_testing.fake_produce import OneByOne
from regnum_testing.waiting import eventually, until, within

Stream = Any
"""grpc.aio.StreamStreamCall."""


def message(number: int, *batches: bytes, acks: log_pb2.Acks.ValueType = log_pb2.ACKS_ALL) -> Any:
    """A request for a batch in each of the first partitions."""
    found = log_pb2.ProduceStreamRequest(correlation_id=number)
    found.request.acks = acks
    found.request.timeout_ms = 20_000
    for partition, batch in enumerate(batches):
        found.request.partitions.add(topic="t", partition=partition, record_batch=batch)
    return found


def numbered(sequence: int) -> bytes:
    """A batch of one record of an idempotent producer."""
    record = NewRecord(key=None, value=b"%d" % sequence)
    return build_batch([record], timestamp_ms=1, producer_id=7, producer_epoch=0, base_sequence=sequence)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    await made.start(1, 2)
    await made.elect(1, [1, 2], min_insync=2)
    yield made
    await made.close()


@pytest.fixture
async def stream(world: BrokerWorld) -> AsyncIterator[Stream]:
    started: Stream = world.log(1).ProduceStream()
    yield started
    started.cancel()


def stored(world: BrokerWorld, id: int = 1) -> list[bytes | None]:
    log = world.brokers[BrokerId(id)].partition().log
    return list(values_of(log.read(0, bytes_max=1 << 20)))


async def test_requests_of_a_stream_are_appended_in_their_order_and_each_is_answered_by_its_number(
    world: BrokerWorld, stream: Stream
) -> None:
    count = 3 * REQUESTS_MAX
    writing = asyncio.create_task(
        _write(stream, [message(1_000 + number, numbered(number)) for number in range(count)])
    )
    answers = [await within(stream.read()) for _ in range(count)]
    await writing
    offsets = {answer.correlation_id: answer.response.results[0].base_offset for answer in answers}
    assert [answer.response.results[0].error_code for answer in answers] == [0] * count
    assert offsets == {1_000 + number: number for number in range(count)}
    assert stored(world) == stored(world, 2) == [b"%d" % number for number in range(count)]


async def test_a_request_that_contradicts_itself_is_refused_and_the_next_one_is_not(
    world: BrokerWorld, stream: Stream
) -> None:
    wrong = message(1, batch_of(b"a"))
    wrong.request.timeout_ms = -1
    await _write(stream, [wrong, message(2, batch_of(b"b"))])
    answers = {answer.correlation_id: answer for answer in [await within(stream.read()) for _ in range(2)]}
    refused = from_status(answers[1].error)
    assert refused is not None
    assert refused.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert answers[2].response.results[0].base_offset == 0
    assert stored(world) == [b"b"]


async def test_a_leader_that_is_deposed_says_so_on_the_stream_which_goes_on(world: BrokerWorld, stream: Stream) -> None:
    await world.elect(2, [1, 2], epoch=1)
    await _write(stream, [message(1, batch_of(b"a"))])
    (result,) = (await within(stream.read())).response.results
    assert result.error_code == errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    await world.elect(1, [1, 2], epoch=2)
    await _write(stream, [message(2, batch_of(b"b"))])
    (result,) = (await within(stream.read())).response.results
    assert (result.error_code, result.base_offset) == (errors_pb2.ERROR_CODE_NONE, 0)


async def test_nothing_is_confirmed_that_a_member_of_the_isr_has_not_got(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    await world.begin()
    await world.start(1, 2)
    await world.elect(1, [1, 2], tell=[1])
    stream: Stream = world.log(1).ProduceStream()
    late = message(1, batch_of(b"a"))
    late.request.timeout_ms = 200
    await _write(stream, [late, message(2, batch_of(b"b"), acks=log_pb2.ACKS_LEADER)])
    codes = {}
    for _ in range(2):
        answer = await within(stream.read())
        codes[answer.correlation_id] = answer.response.results[0].error_code
    stream.cancel()
    await world.close()
    assert codes == {1: errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, 2: errors_pb2.ERROR_CODE_NONE}


async def test_a_stream_that_is_closed_is_ended_when_its_last_request_is_answered(
    world: BrokerWorld, stream: Stream
) -> None:
    await _write(stream, [message(number, batch_of(b"a")) for number in range(3)])
    await stream.done_writing()
    numbers = {(await within(stream.read())).correlation_id for _ in range(3)}
    assert numbers == {0, 1, 2}
    assert await within(stream.read()) is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK
    role = world.brokers[BrokerId(1)].partition().role
    assert isinstance(role, Leadership)


class Requests:
    """Requests without end, counted as they are read, and what carries each out when the test lets it."""

    def __init__(self) -> None:
        self.read = 0
        self.begun = 0
        self.given_up = 0
        self.gate = asyncio.Event()

    async def all(self) -> AsyncIterator[Any]:
        """All of them."""
        while True:
            self.read += 1
            yield message(self.read, b"")

    async def produce(self, _request: log_pb2.ProduceRequest) -> log_pb2.ProduceResponse:
        """One of them."""
        self.begun += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return log_pb2.ProduceResponse()


async def test_whoever_sends_more_than_is_carried_out_is_read_no_further() -> None:
    requests = Requests()
    answers = ProduceStream(OneByOne(requests.produce)).answers(requests.all())
    first = asyncio.create_task(anext(answers))

    async def full() -> bool:
        return requests.begun == REQUESTS_MAX

    await eventually(full)
    # Turns enough for a stream that would read on.
    for _ in range(50):
        await asyncio.sleep(0)
    assert requests.read == REQUESTS_MAX, "the next one stays with its sender"
    assert requests.begun == REQUESTS_MAX
    requests.gate.set()
    await within(first)
    assert (await within(anext(answers))).correlation_id <= REQUESTS_MAX
    await answers.aclose()


async def test_what_waits_is_given_up_with_the_stream() -> None:
    requests = Requests()
    answers = ProduceStream(OneByOne(requests.produce)).answers(requests.all())
    first = asyncio.create_task(anext(answers))

    async def full() -> bool:
        return requests.begun == REQUESTS_MAX

    await eventually(full)
    first.cancel()
    await asyncio.wait((first,))

    async def given_up() -> bool:
        return requests.given_up == REQUESTS_MAX

    await eventually(given_up)
    assert requests.begun == REQUESTS_MAX


async def _write(stream: Stream, messages: list[Any]) -> None:
    for one in messages:
        await stream.write(one)


class Handler:
    """Stands for what appends: a request is answered when the test says so."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.let_go = asyncio.Event()

    async def produce(self, request: log_pb2.ProduceRequest) -> log_pb2.ProduceResponse:
        self.begun.append(request.timeout_ms)
        await self.let_go.wait()
        return log_pb2.ProduceResponse()


def requests_of(*sizes: int) -> Messages:
    """Requests as gates hand them on, each with its size on the wire."""

    async def coming() -> AsyncIterator[Any]:
        for number, size in enumerate(sizes):
            one = log_pb2.ProduceStreamRequest(correlation_id=number)
            one.request.timeout_ms = number
            yield Sized(size, one)

    async def at_once() -> None:
        return

    return Messages(coming(), at_once)


async def test_what_there_is_no_memory_for_is_answered_so_at_once_and_not_kept() -> None:
    held, handler = HeldBytes(Shares(total_max=100, connection_max=100)), Handler()
    answers = ProduceStream(OneByOne(handler.produce), held=held, call=Call(peer="a")).answers(requests_of(40, 40, 10))
    first = await within(anext(answers))
    assert first.correlation_id == 1
    error = from_status(first.error)
    assert error is not None
    assert (error.code, error.retry_after_ms) == (errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, RETRY_MS)
    await settle()
    assert (handler.begun, held.of("a")) == ([0, 2], 50)
    handler.let_go.set()
    assert {(await within(anext(answers))).correlation_id for _ in range(2)} == {0, 2}
    assert held.total == 0
    await answers.aclose()


async def test_a_stream_that_ends_early_leaves_nothing_held() -> None:
    held, handler = HeldBytes(Shares(total_max=100, connection_max=100)), Handler()
    answers = ProduceStream(OneByOne(handler.produce), held=held, call=Call(peer="a")).answers(requests_of(40, 90))
    await within(anext(answers))
    assert held.of("a") == 40
    await answers.aclose()

    async def nothing_held() -> bool:
        return held.total == 0

    await eventually(nothing_held)


async def test_of_a_producer_that_never_reads_no_more_is_read() -> None:
    handler, seen = Handler(), 0

    async def endless() -> AsyncIterator[log_pb2.ProduceStreamRequest]:
        nonlocal seen
        while True:
            seen += 1
            yield log_pb2.ProduceStreamRequest(correlation_id=seen)

    handler.let_go.set()
    answers = ProduceStream(OneByOne(handler.produce)).answers(endless())
    await within(anext(answers))
    await settle(2_000)
    assert seen == REQUESTS_MAX
    await answers.aclose()


def together(*messages: Any) -> Any:
    """Requests in one message, whose sender takes several answers in one."""
    first = messages[0]
    first.more.extend(messages[1:])
    first.takes_more = True
    return first


async def _answers(stream: Stream, count: int) -> dict[int, Any]:
    """So many answers by number, however they are packed."""
    answers: dict[int, Any] = {}
    while len(answers) < count:
        one = await within(stream.read())
        assert one.takes_more
        for answer in (one, *one.more):
            assert not (answer.more and answer is not one)
            answers[answer.correlation_id] = answer
    return answers


async def test_requests_of_one_message_are_appended_in_their_order_and_each_has_its_own_answer(
    world: BrokerWorld, stream: Stream
) -> None:
    wrong = message(100, batch_of(b"never"))
    wrong.request.timeout_ms = -1
    count = 40
    sent = [message(number, numbered(number)) for number in range(count)]
    await _write(stream, [together(*sent[:20], wrong, *sent[20:])])
    answers = await _answers(stream, count + 1)
    assert {number: answers[number].response.results[0].base_offset for number in range(count)} == {
        number: number for number in range(count)
    }
    refused = from_status(answers[100].error)
    assert refused is not None
    assert refused.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert stored(world) == stored(world, 2) == [b"%d" % number for number in range(count)]


async def test_a_producer_of_before_gets_each_answer_in_a_message_of_its_own(
    world: BrokerWorld, stream: Stream
) -> None:
    await _write(stream, [message(number, numbered(number)) for number in range(20)])
    answers = [await within(stream.read()) for _ in range(20)]
    assert not any(answer.more for answer in answers)


async def test_requests_that_nobody_confirms_do_not_hold_up_those_that_came_in_the_same_message(
    tmp_path: Path,
) -> None:
    world = BrokerWorld(tmp_path)
    await world.begin()
    await world.start(1, 2)
    await world.elect(1, [1, 2], tell=[1])
    stream: Stream = world.log(1).ProduceStream()
    late = message(1, batch_of(b"a"))
    await _write(stream, [together(late, message(2, batch_of(b"b"), acks=log_pb2.ACKS_LEADER))])
    first = await _answers(stream, 1)
    stream.cancel()
    await world.close()
    assert list(first) == [2]


async def test_a_message_with_nested_requests_is_refused_and_appends_nothing(
    world: BrokerWorld, stream: Stream
) -> None:
    nested = together(message(1, batch_of(b"a")), together(message(2, batch_of(b"b")), message(3, batch_of(b"c"))))
    many = together(*(message(10 + number, batch_of(b"d")) for number in range(TOGETHER_MAX)))
    await _write(stream, [nested, many])
    answers = await _answers(stream, 2 + TOGETHER_MAX)
    for number in (1, 2):
        refused = from_status(answers.pop(number).error)
        assert refused is not None
        assert refused.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert {answer.response.results[0].error_code for answer in answers.values()} == {errors_pb2.ERROR_CODE_NONE}
    assert stored(world) == [b"d"] * TOGETHER_MAX


@pytest.mark.parametrize("count", [TOGETHER_MAX + 1, 100_000])
async def test_a_message_with_too_many_requests_ends_the_stream_and_appends_nothing(
    world: BrokerWorld, stream: Stream, count: int
) -> None:
    many = message(1, batch_of(b"a"))
    many.more.extend([log_pb2.ProduceStreamRequest()] * (count - 1))
    await _write(stream, [many])
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await within(stream.read())
    assert from_rpc_error(ended.value).code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert stored(world) == []


async def test_what_a_request_brought_is_not_kept_for_followers_that_come_after_it_was_answered(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    await world.begin()
    await world.start(1, 2)
    await world.elect(1, [1, 2], tell=[1])
    stream: Stream = world.log(1).ProduceStream()
    late = message(1, batch_of(bytes(100_000)))
    late.request.timeout_ms = 200
    await _write(stream, [late])
    (result,) = (await within(stream.read())).response.results
    assert result.error_code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    partition = world.brokers[BrokerId(1)].partition()
    await until(lambda: len(partition.acks) == 1, "it is appended")
    held = [one for one in gc.get_objects() if isinstance(one, Admitted) and one.leadership.partition is partition]
    assert len(held) == len(partition.acks) == 1
    assert held[0].message.size_bytes == 0
    stream.cancel()
    await world.close()


async def test_a_deposed_leader_says_of_each_request_that_its_outcome_is_unknown(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    await world.begin()
    await world.start(1, 2)
    await world.elect(1, [1, 2], tell=[1])
    stream: Stream = world.log(1).ProduceStream()
    await _write(stream, [together(*(message(number, batch_of(b"a")) for number in range(30)))])
    leader = world.brokers[BrokerId(1)].partition()

    async def waiting() -> bool:
        return len(leader.acks) == 30

    await eventually(waiting)
    await world.elect(2, [1, 2], epoch=1)
    answers = await _answers(stream, 30)
    stream.cancel()
    await world.close()
    assert {answer.response.results[0].error_code for answer in answers.values()} == {
        errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND
    }
