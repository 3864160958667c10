"""``start``: a broker with many replicas starts, after a clean stop and after kill -9, until it leads all of them.

One broker leads every partition, so that nothing but its own start is waited for. The moment is when it answers where
each of its logs ends, which only a leader does. How long its log directory took is told apart: its listener opens after
that.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_local.plan import Role
from regnum_model.nodes import Address
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.channel import Channels

from regnum_bench.figures import Round, quantile
from regnum_bench.memory import Memory
from regnum_bench.shape import Shape, ShapeError
from regnum_bench.stand import Measured, Run, Stand, stand
from regnum_bench.waiting import Deadline, MeasureError

CALL_S: Final = 60.0
POLL_S: Final = 0.02
"""Between two looks at a broker that is not there yet."""
REQUEST_BYTES: Final = 2 * 1024 * 1024
"""Bytes of batches that one request writes."""
ASKED_AT_ONCE: Final = 1_000
"""Partitions that one question is about."""
PROMISED_REPLICAS: Final = 5_000
PROMISED_MB: Final = 2_000
"""What a broker may have for which something is promised; megabytes are 10**6 bytes."""
CLEAN_S_MAX: Final = 5.0
KILLED_S_MAX: Final = 15.0
"""Seconds that its start may take after a clean stop, and after a kill in the same boot."""
MB: Final = 1_000_000

Partition = tuple[str, int]


async def start(run: Run) -> Measured:
    """Figures of each repetition."""
    shape = run.shape
    if shape.brokers != 1 or shape.replication_factor != 1:
        raise ShapeError("start is about one broker and one replica: --brokers 1 --replication-factor 1")
    rounds: list[Round] = []
    async with stand(run) as cluster:
        await cluster.fill()
        member = cluster.cluster.plan.of(Role.BROKER)[0]
        starting = _Starting(run, cluster, member.name, member.address("client"))
        try:
            written_s = await starting.write()
            for number in range(shape.warm_up + shape.repetitions):
                await cluster.settle()
                figures = await starting.after_a_stop() | await starting.after_a_kill()
                if number >= shape.warm_up:
                    rounds.append(figures)
        finally:
            await starting.close()
    return Measured(
        rounds=tuple(rounds),
        complaints=judged(
            [one["clean_start_s"] for one in rounds],
            [one["killed_start_s"] for one in rounds],
            replicas=shape.partitions_total,
            mb=shape.size_mb,
        ),
        details={"replicas": shape.partitions_total, "written_s": round(written_s, 2)},
    )


def judged(clean_s: Sequence[float], killed_s: Sequence[float], *, replicas: int, mb: float) -> tuple[str, ...]:
    """What is wrong with starts with so many replicas and megabytes. Pure."""
    if replicas > PROMISED_REPLICAS or mb > PROMISED_MB:
        return ()
    said: list[str] = []
    for what, values, limit_s in (
        ("a clean stop", clean_s, CLEAN_S_MAX),
        ("kill -9", killed_s, KILLED_S_MAX),
    ):
        if (took_s := quantile(values, 0.5)) > limit_s:
            said.append(f"a start after {what} takes {took_s:.1f} s, and {limit_s:g} s are allowed")
    return tuple(said)


class _Starting:
    """One broker that is ended and started."""

    def __init__(self, run: Run, cluster: Stand, name: str, address: Address) -> None:
        self._run = run
        self._cluster = cluster
        self._name = name
        self._address = address
        self._channels = Channels()
        shape = run.shape
        self._partitions = [(name, number) for name in shape.names for number in range(shape.partitions)]

    async def close(self) -> None:
        """Hang up."""
        await self._channels.close()

    async def write(self) -> float:
        """Write what the shape says, evenly; the seconds it took."""
        shape, clock = self._run.shape, self._run.clock
        self._run.progress.step(f"writing {shape.size_mb:g} MB to {len(self._partitions):,} partitions")
        begun_s = clock.monotonic()
        batch = _batch(shape)
        each = int(shape.size_mb * MB / len(self._partitions) / len(batch))
        if each < 1:
            raise ShapeError(f"{shape.size_mb:g} MB are less than a batch of {len(batch)} bytes for each partition")
        # So many in a request that all of them are large, and no partition twice.
        at_once, done = max(1, min(len(self._partitions), REQUEST_BYTES // len(batch))), 0
        stub = log_pb2_grpc.LogServiceStub(self._channels.get(self._address))
        for _ in range(each):
            for start in range(0, len(self._partitions), at_once):
                await self._send(stub, self._partitions[start : start + at_once], batch)
                done += len(self._partitions[start : start + at_once])
                self._run.progress.count(done, each * len(self._partitions), "batches written")
        return clock.monotonic() - begun_s

    async def _send(self, stub: "log_pb2_grpc.LogServiceAsyncStub", parts: Sequence[Partition], batch: bytes) -> None:
        items = [
            log_pb2.ProducePartition(topic=topic, partition=partition, record_batch=batch) for topic, partition in parts
        ]
        request = log_pb2.ProduceRequest(acks=log_pb2.ACKS_ALL, partitions=items)
        for result in (await stub.Produce(request, timeout=CALL_S)).results:
            if result.error_code != errors_pb2.ERROR_CODE_NONE:
                raise MeasureError(f"{result.topic}-{result.partition} took no batch: {result.error_message}")

    async def after_a_stop(self) -> dict[str, float]:
        """Stop it in order and start it."""
        begun_s = self._run.clock.monotonic()
        await self._cluster.cluster.terminate(self._name)
        stopped_s = self._run.clock.monotonic() - begun_s
        if not _stopped_cleanly(self._run.directory):
            raise MeasureError(f"{self._name} was not stopped cleanly")
        return {**await self._start("clean"), "stop_s": stopped_s}

    async def after_a_kill(self) -> dict[str, float]:
        """Write a batch to each partition, so that no log is as it was; kill it, and start it."""
        stub = log_pb2_grpc.LogServiceStub(self._channels.get(self._address))
        batch = _batch(self._run.shape)
        for start in range(0, len(self._partitions), 100):
            await self._send(stub, self._partitions[start : start + 100], batch)
        await self._cluster.cluster.kill(self._name)
        if _stopped_cleanly(self._run.directory):
            raise MeasureError(f"{self._name} was killed, and says that it was stopped cleanly")
        return await self._start("killed")

    async def _start(self, how: str) -> dict[str, float]:
        await self._channels.drop(self._address)
        clock, deadline = self._run.clock, self._run.deadline(f"the start of {self._name}")
        begun_s = clock.monotonic()
        await self._cluster.cluster.restart(self._name)
        await self._listens(deadline)
        opened_s = clock.monotonic() - begun_s
        opened_cpu_s = self._spent_s()
        await self._leads(deadline)
        took_s = clock.monotonic() - begun_s
        self._run.progress.detail(f"{how}: {took_s:.2f} s, of which {opened_s:.2f} s until it listens")
        return {
            f"{how}_start_s": took_s,
            f"{how}_opened_s": opened_s,
            f"{how}_opened_cpu_s": opened_cpu_s,
            f"{how}_cpu_s": self._spent_s(),
            f"{how}_memory_bytes": float(Memory(self._pid()).resident_bytes()),
        }

    async def _listens(self, deadline: Deadline) -> None:
        while True:
            try:
                _, writer = await asyncio.open_connection(self._address.host, self._address.port)
            except OSError:
                deadline.check("its listener is closed")
                await self._run.clock.sleep(POLL_S)
                continue
            writer.close()
            return

    async def _leads(self, deadline: Deadline) -> None:
        """Wait until it says of every partition where its log begins."""
        stub = log_pb2_grpc.LogServiceStub(self._channels.get(self._address))
        left = self._partitions
        while left:
            asked, rest = left[:ASKED_AT_ONCE], left[ASKED_AT_ONCE:]
            queries = [
                log_pb2.OffsetQuery(topic=topic, partition=partition, earliest=log_pb2.EarliestOffset())
                for topic, partition in asked
            ]
            request = log_pb2.ListOffsetsRequest(queries=queries)
            answer = await stub.ListOffsets(request, timeout=CALL_S, wait_for_ready=True)
            refused = [
                (result.topic, result.partition)
                for result in answer.results
                if result.error_code != errors_pb2.ERROR_CODE_NONE
            ]
            left = [*refused, *rest]
            if refused:
                deadline.check(f"{len(self._partitions) - len(left):,} of {len(self._partitions):,} partitions led")
                await self._run.clock.sleep(POLL_S)

    def _pid(self) -> int:
        (pid,) = [row.pid for row in self._cluster.cluster.status() if row.name == self._name and row.pid is not None]
        return pid

    def _spent_s(self) -> float:
        return self._cluster.processor_time().spent_s[Role.BROKER.value, self._pid()]


def _batch(shape: Shape) -> bytes:
    records = [NewRecord(key=None, value=bytes(shape.size)) for _ in range(max(1, shape.batch_bytes // shape.size))]
    return build_batch(records, timestamp_ms=time.time_ns() // 1_000_000)


def _stopped_cleanly(folder: Path) -> bool:
    return any(folder.rglob("clean-stop"))
