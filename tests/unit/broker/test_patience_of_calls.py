"""A caller with a deadline is told that nothing came; it does not have to find out by giving up."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.limits.client_quotas import ClientQuotas
from regnum_broker.limits.throttling import Throttling
from regnum_broker.retention.mover import StartMover
from regnum_broker.servicers.log import LogServicer
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.delete_records import DeleteRecordsHandler
from regnum_broker.serving.fetching.handler import WAIT_S_MAX, FetchHandler
from regnum_broker.serving.fetching.offsets import OffsetsHandler
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.replica_descriptions import ReplicaDescriber
from regnum_model.shares import Shares
from regnum_service.errors import RegnumError
from regnum_service.limits.budget import Budget
from regnum_service.limits.held_bytes import HeldBytes
from regnum_service.supervisor import Supervisor
from regnum_testing.batches import batch_of, values_of
from regnum_testing.clock import FakeClock
from regnum_testing.leading_replicas import LEADER, LeadingReplicas
from regnum_testing.served import Caller
from regnum_testing.waiting import eventually, within

SHORT = Caller(remaining_s=1.5)
"""Somebody in a hurry; whatever waits for longer than that waits for ever, as far as these tests are concerned."""
FOR_EVER_MS = 300_000


class Served:
    """LogService over two partitions that this broker leads, the first alone and the second with a silent follower."""

    def __init__(self, leading: LeadingReplicas) -> None:
        leaders = CurrentLeaders(leading.replicas, MetadataCache(Fence(), leading.replicas.learn_listeners))
        self.leading = leading
        self.log = LogServicer(
            producing=ProduceHandler(
                replicas=leading.replicas,
                leaders=leaders,
                storage=leading.storage,
                clock=FakeClock(),
                batch_bytes_max=1 << 20,
                supervisor=Supervisor("broker"),
            ),
            fetching=FetchHandler(replicas=leading.replicas, leaders=leaders, storage=leading.storage),
            offsets=OffsetsHandler(replicas=leading.replicas, leaders=leaders, storage=leading.storage),
            describing=ReplicaDescriber(replicas=leading.replicas, storage=leading.storage),
            throttling=Throttling(ClientQuotas(), clock=FakeClock()),
            budget=Budget(HeldBytes(Shares(total_max=1 << 40, connection_max=1 << 40)), FakeClock()),
            deleting=DeleteRecordsHandler(
                replicas=leading.replicas,
                leaders=leaders,
                mover=StartMover(storage=leading.storage, moved=lambda _: None, clock=FakeClock()),
            ),
        )

    def consume(
        self, caller: Caller, *, offset: int = 0, form: log_pb2.RecordForm.ValueType = log_pb2.RECORD_FORM_BATCHES
    ) -> AsyncIterator[log_pb2.ConsumeResponse]:
        return self.log.Consume(log_pb2.ConsumeRequest(topic="t", partition=0, offset=offset, form=form), caller)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with LeadingReplicas(tmp_path) as leading:
        leading.lead(0, isr=(LEADER,))
        yield Served(leading)


async def test_a_fetch_that_finds_nothing_is_answered_empty_within_its_callers_time(served: Served) -> None:
    item = log_pb2.FetchPartition(topic="t", partition=0)
    request = log_pb2.FetchRequest(max_wait_ms=FOR_EVER_MS, min_bytes=1, partitions=[item])
    (result,) = (await within(served.log.Fetch(request, SHORT), WAIT_S_MAX / 2)).results
    assert (result.error_code, result.record_batches, result.high_watermark) == (0, b"", 0)


async def test_a_stream_in_which_nothing_comes_says_so_once_and_ends(served: Served) -> None:
    answers = await within(_all(served.consume(SHORT)))
    assert [(one.result.error_code, one.result.record_batches) for one in answers] == [(0, b"")]


async def test_a_stream_that_has_answered_ends_without_another_answer(served: Served) -> None:
    await served.leading.append(0, b"a")
    answers = await within(_all(served.consume(SHORT)))
    assert [values_of(one.result.record_batches) for one in answers] == [[b"a"]]


async def test_a_stream_without_a_deadline_goes_on(served: Served) -> None:
    stream = served.consume(Caller())
    coming = asyncio.ensure_future(anext(stream))

    async def waiting() -> bool:
        return len(served.leading.partition(0).committed) == 1

    await eventually(waiting)
    await served.leading.append(0, b"a")
    assert values_of((await within(coming)).result.record_batches) == [b"a"]


async def test_a_produce_call_tells_of_each_partition_before_its_caller_gives_up(served: Served) -> None:
    items = [log_pb2.ProducePartition(topic="t", partition=n, record_batch=batch_of(b"a")) for n in (0, 1)]
    request = log_pb2.ProduceRequest(timeout_ms=FOR_EVER_MS, partitions=items)
    results = (await within(served.log.Produce(request, SHORT))).results
    assert [(one.error_code, one.base_offset) for one in results] == [
        (errors_pb2.ERROR_CODE_NONE, 0),
        (errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, -1),
    ]


async def test_a_form_of_a_later_release_is_refused(served: Served) -> None:
    form = log_pb2.RecordForm.ValueType(9)
    with pytest.raises(RegnumError) as refused:
        await served.log.Fetch(log_pb2.FetchRequest(form=form), SHORT)
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    with pytest.raises(RegnumError) as refused:
        await _all(served.consume(SHORT, form=form))
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def _all(stream: AsyncIterator[log_pb2.ConsumeResponse]) -> list[log_pb2.ConsumeResponse]:
    return [answer async for answer in stream]
