"""What a replica takes of a broker's memory, led or followed, most of them without a record."""

import asyncio
import gc
import itertools
import tracemalloc
from pathlib import Path

import pytest
from regnum.replication.v1 import control_pb2, replication_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.cluster.orders.orders import Orders
from regnum_broker.log.opening import open_directory
from regnum_broker.replication.fetchers import Fetchers
from regnum_broker.replication.follower import LeaderStream
from regnum_broker.replication.replicas import Replicas
from regnum_broker.replication.sessions.fetch_session import FetchSession
from regnum_broker.replication.sessions.follower_streams import FollowerStreams
from regnum_broker.storage import Storage
from regnum_model.ids import BrokerEpoch, BrokerId, LeaderEpoch
from regnum_service.channel import Channels
from regnum_service.clock import SystemClock
from regnum_service.supervisor import Supervisor
from regnum_testing.batches import batch_of

PARTITIONS = 3_000
OF_A_TOPIC = 4
WRITTEN = 30


def orders_of(leader: int, log_id: str) -> list[bytes]:
    """LeaderAndIsr for all partitions, as it comes over the wire."""
    items = [
        control_pb2.LeaderAndIsrPartition(
            topic=f"topic-{number // OF_A_TOPIC}",
            topic_id=f"T{number // OF_A_TOPIC:021d}",
            state=types_pb2.PartitionState(
                partition=number % OF_A_TOPIC, leader=leader, leader_epoch=0, isr=[1, 2, 3], replicas=[1, 2, 3]
            ),
            members=[control_pb2.Member(broker_id=id, broker_epoch=10 * id, log_id=log_id) for id in (1, 2, 3)],
            min_insync_replicas=2,
        )
        for number in range(PARTITIONS)
    ]
    return [
        control_pb2.LeaderAndIsrRequest(partitions=items[start : start + 500]).SerializeToString()
        for start in range(0, PARTITIONS, 500)
    ]


async def fetch_everything(session: FetchSession, replicas: Replicas, follower: int) -> None:
    session.push(
        replication_pb2.FetchReplicaRequest(
            replica_id=follower,
            broker_epoch=10 * follower,
            max_bytes=1,
            positions=[
                replication_pb2.FetchPosition(
                    topic_id=partition.key.topic_id,
                    partition=partition.key.partition,
                    current_leader_epoch=0,
                    fetch_offset=0,
                    last_fetched_epoch=-1,
                )
                for partition in replicas
            ],
        )
    )
    await session.next_answer()


async def bytes_a_replica(path: Path, leader: int) -> float:
    ids = (f"id-{number}" for number in itertools.count(1))
    directory = open_directory(
        path, broker_id=BrokerId(1), mint_id=lambda: next(ids), boot_id="boot", wall_ms=lambda: 0, reserve_bytes=0
    )
    storage, replicas, clock = Storage(directory), Replicas(BrokerId(1)), SystemClock()
    storage.start()
    supervisor = Supervisor("test")

    def stream_to(other: BrokerId) -> LeaderStream:
        return LeaderStream(
            other,
            broker=BrokerId(1),
            address=lambda: None,
            identity=lambda: None,
            channels=Channels(),
            move_start=lambda _key, _offset: None,
            storage=storage,
            clock=clock,
        )

    fetchers = Fetchers(stream_to, supervisor)
    orders = Orders(replicas=replicas, fetchers=fetchers, storage=storage, store=lambda: None, lag_s=10.0, clock=clock)
    running = asyncio.create_task(orders.run())
    messages = orders_of(leader, directory.log_id)
    streams = FollowerStreams()
    sessions = [
        FetchSession(
            find=replicas.get,
            arrivals=replicas.arrivals,
            streams=streams,
            caught_up=lambda _: None,
            storage=storage,
            clock=clock,
        )
        for _ in (2, 3)
    ]
    gc.collect()
    tracemalloc.start()
    try:
        for message in messages:
            partitions = control_pb2.LeaderAndIsrRequest.FromString(message).partitions
            results = await orders.lead_and_follow(partitions, broker_epoch=BrokerEpoch(10))
            assert set(results) == {errors_pb2.ERROR_CODE_NONE}
        if leader == 1:
            for session, follower in zip(sessions, (2, 3), strict=True):
                await fetch_everything(session, replicas, follower)
            logs = [partition.log for partition in replicas][:WRITTEN]
            for log in logs:
                log.append_as_leader([batch_of(b"v")], leader_epoch=LeaderEpoch(0))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    running.cancel()
    for session in sessions:
        session.close()
    await storage.close(clean=False)
    await supervisor.unwind()
    return taken / PARTITIONS


@pytest.mark.parametrize(
    ("role", "leader", "bytes_max"), [("led, with two followers", 1, 4_096), ("followed", 2, 2_048)]
)
def test_a_replica_takes_little_memory(tmp_path: Path, role: str, leader: int, bytes_max: int) -> None:
    taken = asyncio.run(bytes_a_replica(tmp_path, leader))
    assert taken <= bytes_max, f"a replica that is {role} takes {taken:.0f} bytes"
