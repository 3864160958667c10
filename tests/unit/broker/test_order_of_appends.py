"""What came first is appended first, whatever has to be done with it on the way; and nobody waits for another's."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.produce_answers import SLICE
from regnum_broker.serving.produce_requests import ProducePartition, ProduceRequest, ProduceResponse
from regnum_broker.storage import CHECKERS, Storage
from regnum_model.config_definition import CLEANUP_COMPACT
from regnum_model.configs import ReplicaSettings
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_service.supervisor import Supervisor
from regnum_testing.leading_replicas import LEADER, LeadingReplicas
from regnum_testing.waiting import eventually, within

NONE = errors_pb2.ERROR_CODE_NONE
COMPACTED, PLAIN = 0, 1


@pytest.fixture
async def leading(tmp_path: Path) -> AsyncIterator[LeadingReplicas]:
    async with LeadingReplicas(tmp_path) as made:
        for number in (COMPACTED, PLAIN):
            made.lead(number, epoch=1, isr=(LEADER,))
        made.replicas.configure(made.partition(COMPACTED), ReplicaSettings(cleanup_policy=CLEANUP_COMPACT))
        yield made


class TellingStorage:
    """A storage that tells when somebody is about to hand something in."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.asked = asyncio.Event()

    def takes(self, size_bytes: int, *, beside_bytes: int = 0) -> bool:
        """As the storage."""
        self.asked.set()
        return self._storage.takes(size_bytes, beside_bytes=beside_bytes)

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)


def handler(leading: LeadingReplicas, storage: object = None) -> ProduceHandler:
    return ProduceHandler(
        replicas=leading.replicas,
        leaders=CurrentLeaders(leading.replicas, MetadataCache(Fence(), leading.replicas.learn_listeners)),
        storage=leading.storage if storage is None else storage,  # type: ignore[arg-type]
        clock=SystemClock(),
        batch_bytes_max=1 << 20,
        supervisor=Supervisor("test"),
    )


def request(
    leading: LeadingReplicas, number: int, *, sequence: int = 0, key: bytes | None = b"k", producer: bool = True
) -> ProduceRequest:
    identity = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if producer else {}
    batch = build_batch([NewRecord(key=key, value=b"v")], timestamp_ms=1, **identity)
    topic_id = leading.partition().key.topic_id
    message = ProducePartition(topic="t", topic_id=topic_id, partition=number, record_batch=batch)
    return ProduceRequest(partitions=[message], timeout_ms=20_000)


class Held:
    """Threads that are at a job until they are let go."""

    def __init__(self, count: int = 1) -> None:
        self.begun, self.over = threading.Event(), threading.Event()
        self._all_begun = threading.Barrier(count, action=self.begun.set)

    def job(self) -> None:
        self._all_begun.wait(60)
        self.over.wait(60)


def produced(handler: ProduceHandler, request: ProduceRequest) -> "asyncio.Task[ProduceResponse]":
    return asyncio.create_task(handler.produce(request))


async def code_of(producing: "asyncio.Task[ProduceResponse]") -> int:
    return (await within(producing)).results[0].error_code


async def test_records_without_keys_are_refused_while_the_writer_is_at_something_else(leading: LeadingReplicas) -> None:
    held = Held()
    writing = asyncio.create_task(leading.storage.write(held.job))
    try:
        await within(asyncio.to_thread(held.begun.wait))
        refused = produced(handler(leading), request(leading, COMPACTED, key=None, producer=False))
        assert await code_of(refused) == errors_pb2.ERROR_CODE_INVALID_RECORD
        assert not writing.done()
    finally:
        held.over.set()
        await writing


async def test_those_that_their_producer_may_be_repeating_are_answered_in_their_turn(leading: LeadingReplicas) -> None:
    held, producing = Held(), handler(leading)
    assert await code_of(produced(producing, request(leading, PLAIN, key=None))) == NONE
    leading.replicas.configure(leading.partition(PLAIN), ReplicaSettings(cleanup_policy=CLEANUP_COMPACT))
    writing = asyncio.create_task(leading.storage.write(held.job))
    try:
        await within(asyncio.to_thread(held.begun.wait))
        repeated = produced(producing, request(leading, PLAIN, key=None))
        following = produced(producing, request(leading, PLAIN, sequence=1, key=None))
        assert await code_of(produced(producing, request(leading, PLAIN, key=None, producer=False))) != NONE
        assert not repeated.done()
        assert not following.done()
    finally:
        held.over.set()
        await writing
    assert await code_of(repeated) == NONE
    assert await code_of(following) == errors_pb2.ERROR_CODE_INVALID_RECORD


async def test_while_keys_are_looked_for_others_append_and_what_waits_for_it_keeps_its_order(
    leading: LeadingReplicas,
) -> None:
    held, producing = Held(CHECKERS), handler(leading)
    checking = [asyncio.create_task(leading.storage.check(held.job)) for _ in range(CHECKERS)]
    try:
        await within(asyncio.to_thread(held.begun.wait))
        keyed = [produced(producing, request(leading, COMPACTED, sequence=number)) for number in range(5)]
        assert await code_of(produced(producing, request(leading, PLAIN))) == NONE
        assert not any(task.done() for task in keyed)
    finally:
        held.over.set()
        await asyncio.gather(*checking)
    answers = [await within(task) for task in keyed]
    assert [(answer.results[0].error_code, answer.results[0].base_offset) for answer in answers] == [
        (NONE, number) for number in range(5)
    ]


async def test_of_a_request_for_both_the_other_partition_is_appended_before_keys_were_looked_for(
    leading: LeadingReplicas,
) -> None:
    held, both = Held(CHECKERS), request(leading, COMPACTED)
    both.partitions.extend(request(leading, PLAIN).partitions)
    checking = [asyncio.create_task(leading.storage.check(held.job)) for _ in range(CHECKERS)]
    appended = asyncio.Event()
    leading.partition(PLAIN).appended.attach(appended)
    try:
        await within(asyncio.to_thread(held.begun.wait))
        producing = produced(handler(leading), both)
        await within(appended.wait())
        assert leading.partition(PLAIN).log.log_end_offset == 1
        assert leading.partition(COMPACTED).log.log_end_offset == 0
    finally:
        held.over.set()
        await asyncio.gather(*checking)
    assert [result.error_code for result in (await within(producing)).results] == [NONE, NONE]


async def test_a_topic_that_is_compacted_from_now_on_takes_no_record_without_a_key_that_is_under_way(
    leading: LeadingReplicas,
) -> None:
    held = Held()
    writing = asyncio.create_task(leading.storage.write(held.job))
    try:
        await within(asyncio.to_thread(held.begun.wait))
        storage = TellingStorage(leading.storage)
        under_way = produced(handler(leading, storage), request(leading, PLAIN, key=None))
        await within(storage.asked.wait())
        leading.replicas.configure(leading.partition(PLAIN), ReplicaSettings(cleanup_policy=CLEANUP_COMPACT))
    finally:
        held.over.set()
        await writing
    assert await code_of(under_way) == errors_pb2.ERROR_CODE_INVALID_RECORD


async def test_what_is_flushed_from_now_on_goes_behind_what_came_before_the_setting(leading: LeadingReplicas) -> None:
    """Both come together; the setting comes in the turn that the loop has between two of them."""
    count = SLICE + 20
    storage = TellingStorage(leading.storage)
    codes: dict[int, int] = {}

    def told(place: int, answer: ProduceResponse | RegnumError) -> None:
        codes[place] = answer.code if isinstance(answer, RegnumError) else answer.results[0].error_code

    async def set_when_begun() -> None:
        await storage.asked.wait()
        leading.replicas.configure(leading.partition(PLAIN), ReplicaSettings(flush_messages=1))

    setting = asyncio.create_task(set_when_begun())
    requests = [request(leading, PLAIN, sequence=number) for number in range(count)]
    await handler(leading, storage).take(requests, told)
    assert setting.done()

    async def all_told() -> bool:
        return len(codes) == count

    await eventually(all_told)
    assert set(codes.values()) == {NONE}
    assert leading.partition(PLAIN).log.log_end_offset == count
