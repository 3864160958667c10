"""How often the bytes of a batch are taken out of their message, which copies them: counted, not timed."""

import gc
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from regnum.broker.v1 import log_pb2
from regnum.replication.v1 import replication_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.identity import Identity
from regnum_broker.replication.follower import LeaderStream
from regnum_broker.replication.partition import Following
from regnum_broker.servicers.log_messages import produce_request
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler
from regnum_model.ids import BrokerEpoch, BrokerId, LeaderEpoch, Registration
from regnum_service.channel import Channels
from regnum_service.clock import SystemClock
from regnum_service.supervisor import Supervisor
from regnum_testing.batches import assigned_batch, batch_of
from regnum_testing.broker_world import BrokerWorld
from regnum_testing.leading_replicas import LEADER, TOPIC_ID, LeadingReplicas
from regnum_testing.waiting import until, within

LARGE = 100_000
"""Bytes of a record whose batch is checked beside the writer."""
UNLIKE_OTHERS_MS = 61_234
"""Time-out by which a request is known again."""


class Counted:
    """A message, and how often each of its fields and methods was asked for."""

    def __init__(self, message: Any) -> None:
        self.message = message
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return getattr(self.message, name)


@pytest.mark.parametrize("size", [10, LARGE])
async def test_a_batch_is_taken_out_once_and_its_message_never_encoded_for_its_size(tmp_path: Path, size: int) -> None:
    async with LeadingReplicas(tmp_path) as leading:
        leading.lead(isr=(LEADER,))
        supervisor = Supervisor("test")
        handler = ProduceHandler(
            replicas=leading.replicas,
            leaders=CurrentLeaders(leading.replicas, MetadataCache(Fence(), leading.replicas.learn_listeners)),
            storage=leading.storage,
            clock=leading.clock,
            batch_bytes_max=1 << 20,
            supervisor=supervisor,
        )
        counted = Counted(log_pb2.ProducePartition(topic="t", record_batch=batch_of(bytes(size))))
        message: Any = SimpleNamespace(
            acks=log_pb2.ACKS_ALL, timeout_ms=0, partitions=[counted], header=SimpleNamespace(client_id="")
        )
        answer = await within(handler.produce(await produce_request(message)))
        assert (answer.results[0].error_code, answer.results[0].base_offset) == (0, 0)
        assert (counted.asked["record_batch"], counted.asked["ByteSize"]) == (1, 0), counted.asked
        await supervisor.unwind()


async def test_a_follower_takes_records_out_of_an_answer_once(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path) as replicas:
        stream = LeaderStream(
            BrokerId(1),
            broker=BrokerId(2),
            address=lambda: None,
            identity=lambda: Identity(broker_epoch=BrokerEpoch(5), registration=Registration(0)),
            channels=Channels(),
            move_start=lambda _key, _offset: None,
            storage=replicas.storage,
            clock=SystemClock(),
        )
        partition = replicas.partition(0)
        following = Following(leader=BrokerId(1), leader_epoch=LeaderEpoch(0), filled=False)
        replicas.replicas.give(partition, following)
        stream.add(partition, following)
        stream._followed[partition.key].taken_from = 1
        records = b"".join(assigned_batch(b"r", base_offset=offset) for offset in range(3))
        answer: Any = Counted(replication_pb2.FetchedPartition(topic_id=TOPIC_ID, partition=0, records=records))
        await within(stream._take([answer], 1))
        assert partition.log.log_end_offset == 3
        assert answer.asked["records"] == 1


async def test_a_request_is_not_held_beside_the_batch_that_was_taken_out_of_it(tmp_path: Path) -> None:
    """While its answer is waited for, which may be long: what a caller holds is counted once."""
    world = BrokerWorld(tmp_path)
    await world.begin()
    await world.start(1, 2)
    await world.elect(1, [1, 2], tell=[1])
    item = log_pb2.ProducePartition(topic="t", partition=0, record_batch=batch_of(bytes(LARGE)))
    sent = log_pb2.ProduceRequest(timeout_ms=UNLIKE_OTHERS_MS, partitions=[item]).SerializeToString()
    channel = world.channel(world.brokers[BrokerId(1)].settings.client_listen)
    produce = channel.unary_unary("/regnum.broker.v1.LogService/Produce", request_serializer=bytes)
    call = produce(sent)
    acks = world.brokers[BrokerId(1)].partition().acks
    await until(lambda: len(acks) == 1, "it is appended")
    held = [one for one in gc.get_objects() if isinstance(one, log_pb2.ProduceRequest)]
    assert [one for one in held if one.timeout_ms == UNLIKE_OTHERS_MS] == []
    call.cancel()
    await world.close()
