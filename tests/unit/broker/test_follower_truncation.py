"""A follower that goes back, whatever happens to its role meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from regnum.replication.v1 import replication_pb2, replication_pb2_grpc
from regnum_broker.identity import Identity
from regnum_broker.log.directory import LogDirectory
from regnum_broker.replication.follower import LeaderStream
from regnum_broker.replication.partition import Following, Partition
from regnum_broker.storage import Storage
from regnum_model.ids import BrokerEpoch, BrokerId, LeaderEpoch, Registration
from regnum_model.nodes import Address
from regnum_service.channel import Channels
from regnum_service.clock import SystemClock
from regnum_service.listening import make_server
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead
from regnum_testing.waiting import eventually, within

T = TypeVar("T")


class HeldStorage(Storage):
    """A storage whose writer is done before the event loop hears of it: when the test says so."""

    def __init__(self, directory: LogDirectory) -> None:
        super().__init__(directory)
        self.done: list[Callable[[], None]] = []

    async def write_later(
        self, job: Callable[[], T], *, size_bytes: int = 0, replicated: bool = False
    ) -> "asyncio.Future[T]":
        """Run the job now; its outcome comes later."""
        outcome = job()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.done.append(lambda: future.set_result(outcome))
        return future


class DivergingLeader(replication_pb2_grpc.ReplicationServiceServicer):
    """A leader whose log ends at 4 where the follower's has more."""

    async def FetchReplica(  # noqa: N802
        self, request_iterator: AsyncIterator[replication_pb2.FetchReplicaRequest], _context: object
    ) -> AsyncIterator[replication_pb2.FetchReplicaResponse]:
        """Send the follower back, once."""
        async for request in request_iterator:
            for position in request.positions:
                if position.fetch_offset > 4:
                    diverging = replication_pb2.DivergingEpoch(epoch=0, end_offset=4)
                    yield replication_pb2.FetchReplicaResponse(
                        partitions=[
                            replication_pb2.FetchedPartition(
                                topic_id=position.topic_id, partition=position.partition, diverging_epoch=diverging
                            )
                        ]
                    )


@pytest.fixture
async def leader() -> AsyncIterator[Address]:
    server = make_server()
    replication_pb2_grpc.add_ReplicationServiceServicer_to_server(DivergingLeader(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield Address(host="127.0.0.1", port=port)
    await server.stop(None)


async def test_a_truncation_takes_the_high_watermark_along_also_when_the_role_changes_before_it_is_heard_of(
    tmp_path: Path, leader: Address
) -> None:
    """Steps: the writer cuts 10 to 4; an order ends the role; the loop hears of the cut; the broker is killed."""
    files = ReopenedDirectory(tmp_path)
    storage = HeldStorage(files.open())
    log = files.replica()
    for _ in range(5):
        lead(log, b"a", b"b")
    storage.directory.checkpoint_high_watermarks({KEY: 10})
    partition = Partition(KEY, "t", log)
    partition.high_watermark = 10
    following = Following(leader=BrokerId(1), leader_epoch=LeaderEpoch(1))
    partition.take_role(following)
    channels = Channels()
    stream = LeaderStream(
        BrokerId(1),
        broker=BrokerId(2),
        address=lambda: leader,
        identity=lambda: Identity(broker_epoch=BrokerEpoch(5), registration=Registration(0)),
        channels=channels,
        move_start=lambda _key, _offset: None,
        storage=storage,
        clock=SystemClock(),
    )
    stream.add(partition, following)
    running = asyncio.create_task(stream.run())

    async def cut() -> bool:
        return log.log_end_offset == 4

    await eventually(cut)
    partition.take_role(None)
    for deliver in storage.done:
        deliver()

    async def clamped() -> bool:
        return partition.high_watermark == 4

    await eventually(clamped)
    running.cancel()
    await within(asyncio.wait([running]))
    await channels.close()
    lead(log, b"of another leader", b"not committed", epoch=2)
    assert files.kill_and_open().high_watermark == 4
