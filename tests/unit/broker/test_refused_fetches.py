"""What a follower says of partitions that their leader refuses."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import structlog
from regnum.replication.v1 import replication_pb2, replication_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_broker.identity import Identity
from regnum_broker.replication.follower import LeaderStream
from regnum_broker.replication.partition import Following, Partition
from regnum_broker.storage import Storage
from regnum_model.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionKey, Registration
from regnum_model.nodes import Address
from regnum_service.channel import Channels
from regnum_service.clock import SystemClock
from regnum_testing.log_directories import KEY, ReopenedDirectory
from regnum_testing.waiting import eventually

COUNT = 50


class RefusingLeader(replication_pb2_grpc.ReplicationServiceServicer):
    """Leads nothing; counts the positions it was asked for."""

    def __init__(self) -> None:
        self.asked = 0

    async def FetchReplica(  # noqa: N802
        self, request_iterator: AsyncIterator[replication_pb2.FetchReplicaRequest], _context: object
    ) -> AsyncIterator[replication_pb2.FetchReplicaResponse]:
        """Refuse whatever is asked for."""
        async for request in request_iterator:
            self.asked += len(request.positions)
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
    server, servicer = grpc.aio.server(), RefusingLeader()
    replication_pb2_grpc.add_ReplicationServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield servicer, Address(host="127.0.0.1", port=port)
    await server.stop(None)


async def test_all_that_one_answer_refuses_is_one_line_and_is_not_said_again(
    tmp_path: Path, leader: tuple[RefusingLeader, Address]
) -> None:
    servicer, address = leader
    files = ReopenedDirectory(tmp_path)
    storage = Storage(files.open())
    storage.start()
    keys = [PartitionKey(KEY.topic_id, number) for number in range(COUNT)]
    storage.directory.create_replicas([(key, "t") for key in keys])
    channels = Channels()
    stream = LeaderStream(
        BrokerId(1),
        broker=BrokerId(2),
        address=lambda: address,
        identity=lambda: Identity(broker_epoch=BrokerEpoch(5), registration=Registration(0)),
        channels=channels,
        move_start=lambda _key, _offset: None,
        storage=storage,
        clock=SystemClock(),
    )
    for key in keys:
        partition = Partition(key, "t", storage.directory.replicas[key])
        following = Following(leader=BrokerId(1), leader_epoch=LeaderEpoch(1))
        partition.take_role(following)
        stream.add(partition, following)

    async def asked_three_times() -> bool:
        return servicer.asked >= 3 * COUNT

    with structlog.testing.capture_logs() as logs:
        running = asyncio.create_task(stream.run())
        await eventually(asked_three_times)
        running.cancel()
        await asyncio.wait([running])
    said = [line for line in logs if line["event"] == "fetch refused"]
    assert [line["partitions"] for line in said] == [COUNT]
    await channels.close()
    await storage.close(clean=False)
