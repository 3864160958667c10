"""What a follower says of partitions that their leader refuses."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path

import pytest
import structlog
from regnum.replication.v1 import replication_pb2, replication_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_broker.identity import Identity
from regnum_broker.replication.follower import PAUSES_S, LeaderStream
from regnum_broker.replication.partition import Following, Partition
from regnum_broker.storage import Storage
from regnum_model.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionKey, Registration
from regnum_model.nodes import Address
from regnum_service.channel import Channels
from regnum_service.clock import SystemClock
from regnum_service.listening import make_server
from regnum_testing.log_directories import KEY, ReopenedDirectory
from regnum_testing.waiting import eventually

COUNT = 50
Stream = Callable[[int], None]
"""Has the follower fetch one more partition, by number."""


class RefusingLeader(replication_pb2_grpc.ReplicationServiceServicer):
    """Leads nothing; counts the positions it was asked for."""

    def __init__(self) -> None:
        self.asked = 0
        self.when_s: dict[int, list[float]] = {}
        """When each partition was asked for."""

    async def FetchReplica(  # noqa: N802
        self, request_iterator: AsyncIterator[replication_pb2.FetchReplicaRequest], _context: object
    ) -> AsyncIterator[replication_pb2.FetchReplicaResponse]:
        """Refuse whatever is asked for."""
        async for request in request_iterator:
            self.asked += len(request.positions)
            for position in request.positions:
                self.when_s.setdefault(position.partition, []).append(time.monotonic())
            yield replication_pb2.FetchReplicaResponse(
                partitions=[
                    replication_pb2.FetchedPartition(
                        topic_id=position.topic_id,
                        partition=position.partition,
                        error_code=errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER,
                    )
                    for position in request.positions
                ]
            )


@pytest.fixture
async def leader() -> AsyncIterator[tuple[RefusingLeader, Address]]:
    server, servicer = make_server(), RefusingLeader()
    replication_pb2_grpc.add_ReplicationServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield servicer, Address(host="127.0.0.1", port=port)
    await server.stop(None)


@pytest.fixture
async def stream(tmp_path: Path, leader: tuple[RefusingLeader, Address]) -> AsyncIterator[Stream]:
    _, address = leader
    storage = Storage(ReopenedDirectory(tmp_path).open())
    storage.start()
    keys = [PartitionKey(KEY.topic_id, number) for number in range(COUNT)]
    storage.directory.create_replicas([(key, "t") for key in keys])
    channels = Channels()
    fetching = LeaderStream(
        BrokerId(1),
        broker=BrokerId(2),
        address=lambda: address,
        identity=lambda: Identity(broker_epoch=BrokerEpoch(5), registration=Registration(0)),
        channels=channels,
        move_start=lambda _key, _offset: None,
        storage=storage,
        clock=SystemClock(),
    )

    def add(number: int) -> None:
        partition = Partition(keys[number], "t", storage.directory.replicas[keys[number]])
        following = Following(leader=BrokerId(1), leader_epoch=LeaderEpoch(1))
        partition.take_role(following)
        fetching.add(partition, following)

    running = asyncio.create_task(fetching.run())
    yield add
    running.cancel()
    await asyncio.wait([running])
    await channels.close()
    await storage.close(clean=False)


async def test_all_that_one_answer_refuses_is_one_line_and_is_not_said_again(
    leader: tuple[RefusingLeader, Address], stream: Stream
) -> None:
    servicer, _ = leader
    with structlog.testing.capture_logs() as logs:
        for number in range(COUNT):
            stream(number)

        async def asked_three_times() -> bool:
            return servicer.asked >= 3 * COUNT

        await eventually(asked_three_times)
    said = [line for line in logs if line["event"] == "fetch refused"]
    assert [line["partitions"] for line in said] == [COUNT]


async def test_what_is_refused_is_asked_for_when_its_pause_is_over_whatever_is_asked_for_meanwhile(
    leader: tuple[RefusingLeader, Address], stream: Stream
) -> None:
    servicer, _ = leader
    for number in range(COUNT):
        stream(number)

        async def asked(number: int = number) -> bool:
            return number in servicer.when_s

        await eventually(asked)

    async def each_again() -> bool:
        return all(len(when_s) >= 3 for when_s in servicer.when_s.values())

    await eventually(each_again)
    pause_s = PAUSES_S[errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER]
    gaps_s = [later - earlier for when_s in servicer.when_s.values() for earlier, later in pairwise(when_s)]
    assert min(gaps_s) >= pause_s
