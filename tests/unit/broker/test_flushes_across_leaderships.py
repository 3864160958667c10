"""Records that are on their way to the disk (flush.messages) while their replica is told to lead anew."""

import asyncio

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.produce_requests import ProducePartition, ProduceRequest
from regnum_model.configs import ReplicaSettings
from regnum_service.supervisor import Supervisor
from regnum_testing.batches import batch_of
from regnum_testing.disk import HangingDisk
from regnum_testing.leading_replicas import FOLLOWER, LEADER, LeadingReplicas
from regnum_testing.waiting import DEADLINE_S, until


def handler(leading: LeadingReplicas) -> ProduceHandler:
    return ProduceHandler(
        replicas=leading.replicas,
        leaders=CurrentLeaders(leading.replicas, MetadataCache(Fence(), leading.replicas.learn_listeners)),
        storage=leading.storage,
        clock=leading.clock,
        batch_bytes_max=1 << 20,
        supervisor=Supervisor("test"),
    )


def request(leading: LeadingReplicas, sequence: int) -> ProduceRequest:
    batch = batch_of(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
    topic_id = leading.partition().key.topic_id
    message = ProducePartition(topic="t", topic_id=topic_id, partition=0, record_batch=batch)
    return ProduceRequest(partitions=[message], timeout_ms=20_000)


@pytest.mark.parametrize("isr", [(LEADER,), (LEADER, FOLLOWER)])
async def test_the_next_leadership_hears_that_they_are_there_and_a_repeat_is_acknowledged(tmp_path, isr):
    disk = HangingDisk()
    async with LeadingReplicas(tmp_path, disk=disk) as leading:
        leading.replicas.configure(leading.partition(), ReplicaSettings(flush_messages=1))
        leading.lead(epoch=1, isr=(LEADER,))
        producing = handler(leading)
        assert (await producing.produce(request(leading, 0))).results[0].error_code == errors_pb2.ERROR_CODE_NONE
        disk.syncs.clear()
        first = asyncio.ensure_future(producing.produce(request(leading, 1)))
        await until(disk.syncing.is_set)
        partition = leading.partition()
        leading.lead(epoch=2, isr=isr)
        woken = asyncio.Event()
        partition.appended.attach(woken)
        assert partition.log.log_end_offset == 1
        disk.syncs.set()
        code = (await first).results[0].error_code
        assert code == errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert woken.is_set(), "followers that wait for more"
        if isr == (LEADER,):
            assert partition.high_watermark == 2
            again = (await asyncio.wait_for(producing.produce(request(leading, 1)), DEADLINE_S)).results[0]
            assert (again.error_code, again.base_offset) == (errors_pb2.ERROR_CODE_NONE, 1)
        else:
            assert partition.high_watermark == 1, "nobody but the leader has it"
