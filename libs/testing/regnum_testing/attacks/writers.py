"""Attacks of a client that may write to one topic and read it: what it asks for is done, at its own expense."""

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from typing import Final

from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_client import Consumer
from regnum_records.build import build_batch
from regnum_records.record import NewRecord

from regnum_testing.attacks.attack import ATTACK_S, Attack
from regnum_testing.attacks.raw_calls import RawCall, send_many, send_paced
from regnum_testing.attacks.target import APP, MIB, SANDBOX, Target
from regnum_testing.batches import MALFORMED, TIMESTAMP_MS
from regnum_testing.waiting import within

PRODUCE: Final = "/regnum.broker.v1.LogService/Produce"
FETCH: Final = "/regnum.broker.v1.LogService/Fetch"
CONSUME: Final = "/regnum.broker.v1.LogService/Consume"
RECORDS: Final = log_pb2.RECORD_FORM_RECORDS

BOMB_PARTITION, ORDINARY_PARTITION, MALFORMED_PARTITION = 0, 1, 2
"""Of the sandbox; all led by LEADER."""
LEADER: Final = "broker-1"
BOMBS_MIB: Final = (60, 30, 7)
"""What a batch unpacks to; of these a broker stores the largest that it takes."""
BOMBS_PER_S: Final = 40.0
"""Of 2,013 bytes each, 80 KB/s."""
SMALL_RECORDS: Final = 500_000
"""In a batch of 0.7 MB that unpacks to 55 MB."""
ORDINARY_RECORDS: Final = 9_000
"""Of 90 bytes that do not pack, in one batch; the last one alone is asked for."""
REPEATS: Final = 10_000
UNREAD_CONNECTIONS, UNREAD_OF_EACH = 4, 10

Appended = tuple[errors_pb2.ErrorCode.ValueType, int]
"""Error code and base offset."""


def bomb(mib: int) -> bytes:
    """A batch of one record of zeros: 2,013 bytes for 60 MiB."""
    return build_batch([NewRecord(value=bytes(mib * MIB))], timestamp_ms=TIMESTAMP_MS, codec="zstd")


def _produce_request(partition: int, batch: bytes) -> log_pb2.ProduceRequest:
    request = log_pb2.ProduceRequest(acks=log_pb2.ACKS_LEADER, timeout_ms=30_000)
    request.partitions.add(topic=SANDBOX, partition=partition, record_batch=batch)
    return request


async def _append(target: Target, batches: Sequence[bytes], partition: int) -> list[Appended]:
    """How each went, one after another."""
    found: list[Appended] = []
    async with target.channel(APP, LEADER) as channel:
        stub = log_pb2_grpc.LogServiceStub(channel)
        for batch in batches:
            answer = await stub.Produce(_produce_request(partition, batch), timeout=60.0)
            found.append((answer.results[0].error_code, answer.results[0].base_offset))
    return found


async def _stored_bomb(target: Target) -> tuple[int, int]:
    """The largest that is taken: what it unpacks to in MiB, and its offset."""
    for mib in BOMBS_MIB:
        batch = await asyncio.to_thread(bomb, mib)
        ((code, offset),) = await _append(target, [batch], BOMB_PARTITION)
        if code == errors_pb2.ERROR_CODE_NONE:
            return mib, offset
    raise AssertionError(f"no batch that unpacks to {BOMBS_MIB[-1]} MiB is taken")


async def _ordinary_batch(target: Target) -> int:
    """Its offset."""
    records = [NewRecord(value=os.urandom(90)) for _ in range(ORDINARY_RECORDS)]
    batch = build_batch(records, timestamp_ms=TIMESTAMP_MS)
    ((code, offset),) = await _append(target, [batch], ORDINARY_PARTITION)
    assert code == errors_pb2.ERROR_CODE_NONE
    return offset


async def _bombs(target: Target) -> Counter[str]:
    batch = await asyncio.to_thread(bomb, BOMBS_MIB[0])
    call = RawCall(path=PRODUCE, message=_produce_request(BOMB_PARTITION, batch).SerializeToString())
    return await send_paced(
        target.address(LEADER), target.context(APP), [call], connections=4, per_s=BOMBS_PER_S, seconds=ATTACK_S
    )


async def _stored_bombs(target: Target) -> Counter[str]:
    """Of the size that is taken, so that all of the work is done."""
    mib, _ = await _stored_bomb(target)
    batch = await asyncio.to_thread(bomb, mib)
    call = RawCall(path=PRODUCE, message=_produce_request(BOMB_PARTITION, batch).SerializeToString())
    found = await send_paced(
        target.address(LEADER), target.context(APP), [call], connections=4, per_s=BOMBS_PER_S, seconds=ATTACK_S
    )
    found[f"MiB unpacked of each {mib}"] = 1
    return found


async def _bombs_of_small_records(target: Target) -> Counter[str]:
    def made() -> bytes:
        records = [NewRecord(value=bytes(100)) for _ in range(SMALL_RECORDS)]
        return build_batch(records, timestamp_ms=TIMESTAMP_MS, codec="zstd")

    message = _produce_request(BOMB_PARTITION, await asyncio.to_thread(made)).SerializeToString()
    return await send_paced(
        target.address(LEADER),
        target.context(APP),
        [RawCall(path=PRODUCE, message=message)],
        connections=2,
        per_s=1.0,
        seconds=ATTACK_S,
    )


async def _unread(target: Target, path: str, message: bytes, mib: int) -> Counter[str]:
    call = RawCall(path=path, message=message)
    found = await send_many(
        target.address(LEADER),
        target.context(APP),
        call,
        connections=UNREAD_CONNECTIONS,
        of_each=UNREAD_OF_EACH,
        seconds=ATTACK_S,
        reads=False,
    )
    found[f"MiB unpacked of each {mib}"] = 1
    return found


async def _unread_fetches(target: Target) -> Counter[str]:
    mib, offset = await _stored_bomb(target)
    request = log_pb2.FetchRequest(form=RECORDS, max_bytes=MIB)
    request.partitions.add(topic=SANDBOX, partition=BOMB_PARTITION, offset=offset)
    return await _unread(target, FETCH, request.SerializeToString(), mib)


async def _unread_streams(target: Target) -> Counter[str]:
    mib, offset = await _stored_bomb(target)
    request = log_pb2.ConsumeRequest(topic=SANDBOX, partition=BOMB_PARTITION, offset=offset, form=RECORDS)
    return await _unread(target, CONSUME, request.SerializeToString(), mib)


async def _repeats(target: Target) -> Counter[str]:
    """One partition many times in a request, given up after a second."""
    offset = await _ordinary_batch(target)
    request = log_pb2.FetchRequest(form=RECORDS, max_bytes=8 * MIB)
    for _ in range(REPEATS):
        request.partitions.add(
            topic=SANDBOX, partition=ORDINARY_PARTITION, offset=offset + ORDINARY_RECORDS - 1, max_bytes=1
        )
    return await send_many(
        target.address(LEADER),
        target.context(APP),
        RawCall(path=FETCH, message=request.SerializeToString()),
        connections=2,
        of_each=5,
        seconds=ATTACK_S,
        given_up_after_s=1.0,
        again=True,
    )


async def _abandoned_fetches(target: Target) -> Counter[str]:
    """Each partition once, the dearest records of each, given up before they can be there."""
    _, packed = await _stored_bomb(target)
    ordinary = await _ordinary_batch(target)
    request = log_pb2.FetchRequest(form=RECORDS, max_bytes=8 * MIB)
    request.partitions.add(topic=SANDBOX, partition=BOMB_PARTITION, offset=packed)
    request.partitions.add(
        topic=SANDBOX, partition=ORDINARY_PARTITION, offset=ordinary + ORDINARY_RECORDS - 1, max_bytes=1
    )
    return await send_many(
        target.address(LEADER),
        target.context(APP),
        RawCall(path=FETCH, message=request.SerializeToString()),
        connections=4,
        of_each=5,
        seconds=ATTACK_S,
        given_up_after_s=0.05,
        again=True,
    )


async def _malformed_batches(target: Target) -> Counter[str]:
    """Between two good ones; a consumer reads both, and nothing between them."""
    good = [build_batch([NewRecord(value=value)], timestamp_ms=TIMESTAMP_MS) for value in (b"first", b"second")]
    bad = [batch for batch, _ in MALFORMED.values()]
    answers = await _append(target, [good[0], *bad, good[1]], MALFORMED_PARTITION)
    codes = Counter(errors_pb2.ErrorCode.Name(code).removeprefix("ERROR_CODE_") for code, _ in answers)
    assert codes == {"NONE": 2, "INVALID_RECORD": len(bad)}
    assert answers[-1][1] == answers[0][1] + 1, "offsets of refused batches were used"
    async with Consumer(target.cluster.bootstrap, tls=target.files(APP)) as consumer:
        await consumer.assign(SANDBOX, partitions=[MALFORMED_PARTITION], start=answers[0][1])
        read = [(await within(anext(consumer))).value for _ in good]
    assert read == [b"first", b"second"]
    return codes


ATTACKS: Final = (
    Attack(name="Produce of 80 KB/s that unpack to 2.4 GB/s", client=APP, run=_bombs, is_charged=True),
    Attack(name="Produce of the largest batch that is stored", client=APP, run=_stored_bombs, is_charged=True),
    Attack(name="Produce of 500,000 records in 0.7 MB", client=APP, run=_bombs_of_small_records),
    Attack(name="40 Fetch that read no answer", client=APP, run=_unread_fetches),
    Attack(name="40 Consume that read no answer", client=APP, run=_unread_streams),
    Attack(name="Fetch of one partition 10,000 times, given up", client=APP, run=_repeats),
    Attack(name="Fetch given up after 50 ms, again and again", client=APP, run=_abandoned_fetches, is_charged=True),
    Attack(name="batches that no reader can decode", client=APP, run=_malformed_batches),
)
