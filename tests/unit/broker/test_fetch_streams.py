"""What a follower asks when, on its stream to a leader that holds requests back until it has something to say."""

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from regnum.replication.v1 import replication_pb2, replication_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_broker.identity import Identity
from regnum_broker.replication.follower import MAX_WAIT_MS, LeaderStream
from regnum_broker.replication.partition import Following, Partition
from regnum_broker.replication.throttle import BURST_S, Meter
from regnum_model.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionKey, Registration, TopicId
from regnum_model.nodes import Address
from regnum_service.channel import ADDRESSEE, Channels
from regnum_service.clock import SystemClock
from regnum_service.listening import make_server
from regnum_testing.batches import assigned_batch
from regnum_testing.clock import settle
from regnum_testing.leading_replicas import LeadingReplicas
from regnum_testing.waiting import DEADLINE_S, eventually, within

FIRST, SECOND, THIRD = range(3)


class ScriptedLeader(replication_pb2_grpc.ReplicationServiceServicer):
    """Notes requests, and answers when the test says so: never by itself, as if its patience had no end."""

    def __init__(self) -> None:
        self.requests: list[replication_pb2.FetchReplicaRequest] = []
        self.answers: asyncio.Queue[replication_pb2.FetchReplicaResponse] = asyncio.Queue()
        self.meant: str | None = None
        """Who is meant, as the stream says."""

    async def FetchReplica(  # noqa: N802
        self, request_iterator: AsyncIterator[replication_pb2.FetchReplicaRequest], context: Any
    ) -> AsyncIterator[replication_pb2.FetchReplicaResponse]:
        """One stream."""
        self.meant = dict(context.invocation_metadata()).get(ADDRESSEE)

        async def note() -> None:
            async for request in request_iterator:
                self.requests.append(request)

        noting = asyncio.create_task(note())
        try:
            while True:
                yield await self.answers.get()
        finally:
            noting.cancel()

    async def has_been_asked(self, count: int) -> None:
        """Return when so many requests are here."""

        async def there() -> bool:
            return len(self.requests) >= count

        await eventually(there)

    def named(self, number: int) -> dict[int, int]:
        """Partitions that a request names, with the offsets; the first request is number 1."""
        return {position.partition: position.fetch_offset for position in self.requests[number - 1].positions}

    def answer(
        self, topic_id: TopicId | None = None, partition: int = 0, *, requests_taken: int = 0, **said: object
    ) -> None:
        """Answer; with a partition or without. ``requests_taken`` 0: as a leader that answers requests one by one."""
        answer = replication_pb2.FetchReplicaResponse(requests_taken=requests_taken)
        if topic_id is not None:
            answer.partitions.add(topic_id=topic_id, partition=partition, **said)  # type: ignore[arg-type]
        self.answers.put_nowait(answer)


class Follower:
    """A follower of three partitions, and the leader that it fetches them from."""

    def __init__(
        self, leader: ScriptedLeader, stream: LeaderStream, replicas: LeadingReplicas, throttle: Meter
    ) -> None:
        self.leader = leader
        self.throttle = throttle
        self.stream = stream
        self.replicas = replicas

    def add(self, number: int, *, filled: bool = False) -> PartitionKey:
        """Follow another partition; ``filled``: a reassignment brings it in."""
        partition: Partition = self.replicas.partition(number)
        following = Following(leader=BrokerId(1), leader_epoch=LeaderEpoch(0), filled=filled)
        self.replicas.replicas.give(partition, following)
        self.stream.add(partition, following)
        return partition.key


@pytest.fixture
async def follower(tmp_path: Path) -> AsyncIterator[Follower]:
    leader = ScriptedLeader()
    server = make_server()
    replication_pb2_grpc.add_ReplicationServiceServicer_to_server(leader, server)
    address = Address(host="127.0.0.1", port=server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    channels, throttle = Channels(), Meter(SystemClock())
    async with LeadingReplicas(tmp_path, partitions=3, readers=1) as replicas:
        stream = LeaderStream(
            BrokerId(1),
            broker=BrokerId(2),
            address=lambda: address,
            identity=lambda: Identity(broker_epoch=BrokerEpoch(5), registration=Registration(0)),
            channels=channels,
            move_start=lambda _key, _offset: None,
            storage=replicas.storage,
            clock=SystemClock(),
            throttle=throttle,
        )
        running = asyncio.create_task(stream.run())
        yield Follower(leader, stream, replicas, throttle)
        running.cancel()
        await within(asyncio.wait([running]))
    await channels.close()
    await server.stop(None)


async def test_what_was_stored_is_told_also_while_another_request_is_held_back(follower: Follower) -> None:
    """Partitions were added while records came: acknowledgements waited until the leader's patience was over."""
    leader = follower.leader
    first = follower.add(FIRST)
    await leader.has_been_asked(1)
    follower.add(SECOND)
    await leader.has_been_asked(2)
    leader.answer(first.topic_id, FIRST, records=assigned_batch(b"a", b"b", base_offset=0), log_end_offset=2)
    await leader.has_been_asked(3)
    assert leader.named(3) == {FIRST: 2}


async def test_an_answer_that_is_stored_while_a_request_is_put_together_is_acknowledged_with_the_next(
    follower: Follower,
) -> None:
    """A leader that may send a new replica no more until this one was taken waited for that without an end.

    Steps: a request that names two partitions looks for the last batch of the second, and the disk takes its time; an
    answer with records of the first comes and is stored. The request says where the first is now, and that nothing was
    taken; the next one says it with the answer.
    """
    leader, replicas = follower.leader, follower.replicas
    first = follower.add(FIRST)
    await leader.has_been_asked(1)
    log, of_second = replicas.partition(FIRST).log, replicas.partition(SECOND).log

    def cut() -> None:
        for base in (0, 1):
            of_second.append_replicated(assigned_batch(b"x", base_offset=base))
        of_second.truncate(1)

    await replicas.storage.write(cut)
    assert of_second.last_batch is None, "it is in the file only"
    over = threading.Event()
    reading = asyncio.ensure_future(replicas.storage.read_for_brokers(partial(over.wait, DEADLINE_S)))
    follower.stream.start_moved(first)
    follower.add(SECOND)
    await settle()
    leader.answer(
        first.topic_id,
        FIRST,
        records=assigned_batch(b"a", b"b", base_offset=0),
        log_end_offset=2,
        requests_taken=1,
    )

    async def stored() -> bool:
        return log.log_end_offset == 2 and follower.stream.answers == 1

    await eventually(stored)
    over.set()
    await leader.has_been_asked(3)
    assert await within(reading)
    assert [request.answers_taken for request in leader.requests] == [0, 0, 1]
    assert leader.named(2) == {FIRST: 2, SECOND: 1}
    assert leader.named(3)[FIRST] == 2


async def test_a_stream_says_which_leader_is_meant(follower: Follower) -> None:
    follower.add(FIRST)
    await follower.leader.has_been_asked(1)
    assert follower.leader.meant == "broker-1"


async def test_a_partition_added_while_two_requests_are_under_way_goes_with_the_next(follower: Follower) -> None:
    leader = follower.leader
    follower.add(FIRST)
    await leader.has_been_asked(1)
    follower.add(SECOND)
    await leader.has_been_asked(2)
    follower.add(THIRD)
    leader.answer()
    await leader.has_been_asked(3)
    assert [leader.named(number) for number in (1, 2, 3)] == [{FIRST: 0}, {SECOND: 0}, {THIRD: 0}]


async def test_a_leader_may_fill_new_replicas_only_once_it_has_answered(follower: Follower) -> None:
    """All leaders of a broker that had been cut off would send as much as may come in half a second, each of them."""
    leader, rate = follower.leader, 1_000_000_000
    follower.throttle.set_rate(rate)
    follower.add(FIRST, filled=True)
    await leader.has_been_asked(1)
    assert leader.requests[0].throttled_bytes_max == 0
    assert leader.requests[0].max_wait_ms == 0, "it is answered at once"
    leader.answer()
    await leader.has_been_asked(2)
    assert leader.requests[1].throttled_bytes_max == rate * BURST_S


async def test_a_leader_that_may_send_some_and_has_none_is_out_of_the_way(follower: Follower) -> None:
    leader, other = follower.leader, follower.throttle.share()
    follower.throttle.set_rate(1_000)
    follower.add(FIRST, filled=True)
    await leader.has_been_asked(1)
    leader.answer()
    await leader.has_been_asked(2)
    other.want()
    assert follower.throttle.waiting == 1
    leader.answer()
    await leader.has_been_asked(3)
    assert follower.throttle.waiting == 0
    assert other.allowance() == 1_000 * BURST_S


async def test_a_refused_partition_waits_out_its_pause_and_hurries_no_request(follower: Follower) -> None:
    """Each answer would bring a request, and each request an answer: as fast as both can."""
    leader = follower.leader
    first = follower.add(FIRST)
    await leader.has_been_asked(1)
    follower.add(SECOND)
    await leader.has_been_asked(2)
    leader.answer(first.topic_id, FIRST, error_code=errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER)
    leader.answer()
    await leader.has_been_asked(3)
    assert leader.named(3) == {}, "the one that came when nothing was under way any more"
    assert leader.requests[2].max_wait_ms < MAX_WAIT_MS
    leader.answer()
    await leader.has_been_asked(4)
    assert len(leader.requests) == 4
