"""A producer's stream to each leader: one for all its requests, where brokers have it, and calls where they do not."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_client import Producer, ProducerSettings
from regnum_client.cluster.connections import Connections
from regnum_client.producer.streams import CALLED_FOR_S, REFUSED_FOR_S, ProduceStreams
from regnum_client.tasks import Tasks
from regnum_model.nodes import Address
from regnum_service.channel import Channels
from regnum_service.errors import RegnumError
from regnum_service.status import to_status
from regnum_testing.clock import FakeClock
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import eventually, within

ADDRESS = Address(host="here", port=1)


async def produce_ten(cluster: FakeCluster) -> None:
    """Ten records, one after another."""
    async with Producer(cluster.bootstrap, settings=ProducerSettings(linger_ms=0)) as producer:
        for number in range(10):
            await within(await producer.send("orders", b"%d" % number, partition=0))


async def test_all_requests_for_a_leader_go_over_one_stream() -> None:
    async with FakeCluster() as cluster:
        cluster.create("orders", partitions=1)
        await produce_ten(cluster)
        assert cluster.values("orders", 0) == [b"%d" % number for number in range(10)]
        assert (cluster.calls["ProduceStream"], cluster.calls["Produce"]) == (1, 10)


async def test_brokers_of_before_get_calls_and_are_asked_for_a_stream_once() -> None:
    async with FakeCluster() as cluster:
        cluster.has_produce_streams = False
        cluster.create("orders", partitions=1)
        await produce_ten(cluster)
        assert cluster.values("orders", 0) == [b"%d" % number for number in range(10)]
        assert (cluster.calls["ProduceStream"], cluster.calls["Produce"]) == (1, 10)


async def test_records_go_while_the_answer_to_those_before_them_takes_long() -> None:
    async with FakeCluster() as cluster:
        cluster.create("orders", partitions=1)
        async with Producer(cluster.bootstrap, settings=ProducerSettings(linger_ms=0)) as producer:
            await within(await producer.send("orders", b"known", partition=0))
            gate = asyncio.Event()

            async def held(_broker: object, _request: object) -> None:
                await gate.wait()

            cluster.before_produce = held
            sent = []
            for number in range(1, 4):
                sent.append(await producer.send("orders", b"%d" % number, partition=0))

                async def under_way(count: int = 1 + number) -> bool:
                    return cluster.calls["Produce"] == count

                await eventually(under_way)
            gate.set()
            for record in sent:
                await within(record)
        assert cluster.values("orders", 0) == [b"known", b"1", b"2", b"3"]


async def test_calls_that_wait_for_far_replicas_do_not_hold_up_other_partitions_of_their_leader() -> None:
    """Five calls to a leader at once, of which each takes as long as the way to a follower: others waited for one."""
    partitions = 12
    async with FakeCluster() as cluster:
        cluster.create("orders", partitions=partitions)
        for partition in range(partitions):
            cluster.partitions["orders", partition].leader = 1
        async with Producer(cluster.bootstrap, settings=ProducerSettings(linger_ms=0)) as producer:
            await within(await producer.send("orders", b"known", partition=0))
            gate = asyncio.Event()

            async def held(_broker: object, _request: object) -> None:
                await gate.wait()

            cluster.before_produce = held
            sent = []
            for partition in range(partitions):
                sent.append(await producer.send("orders", b"far", partition=partition))

                async def under_way(count: int = 2 + partition) -> bool:
                    return cluster.calls["Produce"] == count

                await eventually(under_way)
            gate.set()
            for record in sent:
                await within(record)
        assert [cluster.values("orders", partition)[-1] for partition in range(partitions)] == [b"far"] * partitions


class Broken(grpc.aio.AioRpcError):
    """How a stream ends that does not end well."""

    def __init__(self, status: grpc.StatusCode) -> None:
        super().__init__(status, grpc.aio.Metadata(), grpc.aio.Metadata(), details="said the test")


class ScriptedStream:
    """A broker's end of a stream: takes requests while it is open for them, answers when the test says so."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.answers: asyncio.Queue[Any] = asyncio.Queue()
        self.cancelled = False

    async def write(self, message: Any) -> None:
        """As gRPC's: waits for flow control."""
        await self.takes.wait()
        self.written.append(message)

    async def read(self) -> Any:
        """As gRPC's: raises what the call ended with."""
        answer = await self.answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def cancel(self) -> None:
        """As gRPC's."""
        self.cancelled = True

    async def has(self, count: int) -> None:
        """Return when so many requests are here."""

        async def there() -> bool:
            return len(self.written) >= count

        await eventually(there)


class Broker:
    """A broker, as connections have its stub; the stub itself."""

    def __init__(self) -> None:
        self.streams: list[ScriptedStream] = []
        self.calls = 0

    def log(self, _address: Address) -> "Broker":
        """The stub."""
        return self

    def ProduceStream(self) -> ScriptedStream:  # noqa: N802
        """A new stream."""
        self.streams.append(ScriptedStream())
        return self.streams[-1]

    async def Produce(self, _request: Any, *, timeout: float) -> log_pb2.ProduceResponse:  # noqa: N802
        """A call."""
        assert timeout > 0
        self.calls += 1
        return log_pb2.ProduceResponse(throttle_time_ms=self.calls)


class Sending:
    """Streams to that broker."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.clock = FakeClock()
        self.streams = ProduceStreams(self.broker, clock=self.clock, tasks=Tasks("test"))  # type: ignore[arg-type]

    def send(self, *, timeout_s: float = 30.0) -> "asyncio.Task[log_pb2.ProduceResponse]":
        """Send a request."""
        message = log_pb2.ProduceStreamRequest()
        return asyncio.create_task(self.streams.produce(ADDRESS, message, timeout_s=timeout_s))

    async def sent(self, count: int, *, on: int = 1) -> ScriptedStream:
        """The first, second ... stream, once so many requests are there."""

        async def there() -> bool:
            return len(self.broker.streams) >= on and len(self.broker.streams[on - 1].written) >= count

        await eventually(there)
        return self.broker.streams[on - 1]


@pytest.fixture
async def sending() -> AsyncIterator[Sending]:
    made = Sending()
    yield made
    await made.streams.close()


async def test_answers_find_their_requests_in_any_order(sending: Sending) -> None:
    first, second = sending.send(), sending.send()
    stream = await sending.sent(2)
    numbers = [message.correlation_id for message in stream.written]
    for number, said in ((numbers[1], 2), (numbers[0], 1)):
        response = log_pb2.ProduceResponse(throttle_time_ms=said)
        stream.answers.put_nowait(log_pb2.ProduceStreamResponse(correlation_id=number, response=response))
    assert [(await within(task)).throttle_time_ms for task in (first, second)] == [1, 2]


async def test_a_refused_request_fails_with_what_the_broker_says_and_no_other_does(sending: Sending) -> None:
    first, second = sending.send(), sending.send()
    stream = await sending.sent(2)
    error = RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "said the test")
    stream.answers.put_nowait(log_pb2.ProduceStreamResponse(correlation_id=1, error=to_status(error)))
    stream.answers.put_nowait(log_pb2.ProduceStreamResponse(correlation_id=2, response=log_pb2.ProduceResponse()))
    with pytest.raises(RegnumError, match="said the test"):
        await within(first)
    await within(second)


async def test_a_stream_that_breaks_leaves_every_outcome_unknown_and_the_next_request_gets_a_new_one(
    sending: Sending,
) -> None:
    tasks = [sending.send(), sending.send()]
    stream = await sending.sent(2)
    stream.answers.put_nowait(Broken(grpc.StatusCode.UNAVAILABLE))
    for task in tasks:
        with pytest.raises(RegnumError) as failed:
            await within(task)
        assert failed.value.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
    again = sending.send()
    await sending.sent(1, on=2)
    assert stream.cancelled
    again.cancel()


async def test_a_request_whose_time_is_up_before_it_was_sent_is_never_sent(sending: Sending) -> None:
    """A frozen broker takes nothing: once it wakes up, it must not append what its producer has given up."""
    before = sending.send()
    stream = await sending.sent(1)
    stream.takes.clear()
    held = sending.send()
    late = sending.send(timeout_s=0.01)
    with pytest.raises(RegnumError) as failed:
        await within(late)
    assert failed.value.code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    last = sending.send()
    # One turn: the last is behind the one that is held.
    await asyncio.sleep(0)
    stream.takes.set()
    await stream.has(3)
    assert [message.correlation_id for message in stream.written] == [1, 2, 4]
    for task in (before, held, last):
        task.cancel()


async def test_requests_under_way_to_a_broker_without_streams_become_calls_and_it_is_asked_again_later(
    sending: Sending,
) -> None:
    tasks = [sending.send(), sending.send()]
    stream = await sending.sent(2)
    stream.answers.put_nowait(Broken(grpc.StatusCode.UNIMPLEMENTED))
    assert {(await within(task)).throttle_time_ms for task in tasks} == {1, 2}
    await within(sending.send())
    assert (sending.broker.calls, len(sending.broker.streams)) == (3, 1)
    sending.clock.skip(CALLED_FOR_S)
    last = sending.send()
    await sending.sent(1, on=2)
    last.cancel()


async def test_a_broker_that_has_no_room_for_another_stream_gets_calls_for_a_while(sending: Sending) -> None:
    refused = sending.send()
    stream = await sending.sent(1)
    stream.answers.put_nowait(Broken(grpc.StatusCode.RESOURCE_EXHAUSTED))
    with pytest.raises(RegnumError):
        await within(refused)
    await within(sending.send())
    assert (sending.broker.calls, len(sending.broker.streams)) == (1, 1)
    sending.clock.skip(REFUSED_FOR_S)
    last = sending.send()
    await sending.sent(1, on=2)
    last.cancel()


async def test_a_stream_that_was_answered_and_ends_for_want_of_room_is_opened_again(sending: Sending) -> None:
    first = sending.send()
    stream = await sending.sent(1)
    stream.answers.put_nowait(log_pb2.ProduceStreamResponse(correlation_id=1, response=log_pb2.ProduceResponse()))
    await within(first)
    second = sending.send()
    await stream.has(2)
    stream.answers.put_nowait(Broken(grpc.StatusCode.RESOURCE_EXHAUSTED))
    with pytest.raises(RegnumError):
        await within(second)
    third = sending.send()
    await sending.sent(1, on=2)
    assert sending.broker.calls == 0
    third.cancel()


async def test_closing_ends_what_waits_with_an_unknown_outcome(sending: Sending) -> None:
    task = sending.send()
    stream = await sending.sent(1)
    await sending.streams.close()
    with pytest.raises(RegnumError) as failed:
        await within(task)
    assert failed.value.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
    assert stream.cancelled


async def test_a_connection_that_is_closed_as_a_stream_begins_fails_its_request_and_not_the_producer() -> None:
    """A broker's new registration closes old connections; as a stream began, that ended the producer."""
    async with FakeCluster(brokers=1) as cluster:
        address, connections, tasks = cluster.brokers[1].address, Connections(Channels()), Tasks("test")
        streams = ProduceStreams(connections, clock=FakeClock(), tasks=tasks)
        request = log_pb2.ProduceStreamRequest()
        first = asyncio.create_task(streams.produce(address, request, timeout_s=30.0))
        closing = asyncio.create_task(connections.drop(address))
        with pytest.raises(RegnumError) as failed:
            await within(first)
        await within(closing)
        assert failed.value.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
        assert tasks.failure is None
        await within(streams.produce(address, log_pb2.ProduceStreamRequest(), timeout_s=30.0))
        await streams.close()
        await connections.close()


async def test_what_stands_in_line_goes_in_one_message_once_the_broker_said_that_it_takes_that(
    sending: Sending,
) -> None:
    first = sending.send()
    stream = await sending.sent(1)
    before = [sending.send(), sending.send()]
    await stream.has(3)
    assert all(message.takes_more and not message.more for message in stream.written), "nobody knows yet"
    answered = log_pb2.ProduceStreamResponse(correlation_id=1, response=log_pb2.ProduceResponse(), takes_more=True)
    stream.answers.put_nowait(answered)
    await within(first)
    stream.takes.clear()
    held = [sending.send() for _ in range(5)]
    # One turn: all stand behind the one that is held.
    await asyncio.sleep(0)
    stream.takes.set()
    await stream.has(4)
    packed = [[message.correlation_id, *(more.correlation_id for more in message.more)] for message in stream.written]
    assert packed == [[1], [2], [3], [4, 5, 6, 7, 8]]
    together = log_pb2.ProduceStreamResponse(correlation_id=8, response=log_pb2.ProduceResponse(), takes_more=True)
    for number in (7, 6, 5, 4, 3, 2):
        together.more.add(correlation_id=number, response=log_pb2.ProduceResponse(throttle_time_ms=number))
    stream.answers.put_nowait(together)
    assert [(await within(task)).throttle_time_ms for task in (*before, *held)] == [2, 3, 4, 5, 6, 7, 0]
