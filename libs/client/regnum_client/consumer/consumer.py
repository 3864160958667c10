"""Reads records from partitions, in order, across changes of leader.

The ``fetcher`` brings batches, a ``cursor`` for each partition says where it stands, the ``reader`` decodes and hands
out. This module is the door.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Final

from regnum_service.channel import Channels
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.tls.files import TlsFiles

from regnum_client.admin.groups.views import CommittedOffset
from regnum_client.allowed import Between, checks_arguments
from regnum_client.consumer.batches import RecordBatch
from regnum_client.consumer.groups.gate import Gate
from regnum_client.consumer.groups.listener import RebalanceListener
from regnum_client.consumer.groups.session import GroupPlace, GroupSession, ToCommit, no_group
from regnum_client.consumer.settings import ConsumerSettings
from regnum_client.consumer.subscribing import SubscribingConsumer
from regnum_client.records import ConsumedRecord, TopicPartition, by_partition

RECORDS_PER_TURN: Final = 500
"""Records of an iteration after which the event loop gets a turn."""
BATCHES_PER_TURN: Final = 16
"""The same for an iteration of batches."""
RECORDS_PER_READ: Final = 5_000
"""Records that one read returns at most."""

Count = Annotated[int, Between(1)]
"""How many there may be."""


@checks_arguments()
class Consumer(SubscribingConsumer):
    """Reads partitions: those it is told, or its share of what a group reads. One event loop, one reader at a time.

    Each record of a partition comes once and in order, whatever happens to its leader, from the offset where reading
    began.

    >>> async def main() -> None:
    ...     async with Consumer(bootstrap) as consumer:
    ...         await consumer.assign("orders")
    ...         async for record in consumer:
    ...             print(record.offset, record.value)
    ...             break
    >>> asyncio.run(main())
    0 b'first'

    With a group, members share the partitions, and go on where the group has come to. A record is the caller's until
    it asks for the next one; what it has not come to an end with is read again, here or at another member.

    >>> async def main() -> None:
    ...     async with Consumer(bootstrap, topics=["orders"], group_id="billing") as consumer:
    ...         async for record in consumer:
    ...             print(record.offset, record.value)
    ...             await consumer.commit()
    ...             break
    >>> asyncio.run(main())
    0 b'first'
    >>> asyncio.run(main())
    1 b'second'
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        topics: Iterable[str] = (),
        group_id: str | None = None,
        group_instance_id: str | None = None,
        listener: RebalanceListener | None = None,
        settings: ConsumerSettings | None = None,
        client_id: str = "regnum-consumer",
        clock: Clock | None = None,
        chance: random.Random | None = None,
        channels: Channels | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        """Only assigns.

        Args:
            bootstrap: addresses of some brokers; by default what the environment says.
            topics: read from the start on, as by ``subscribe``.
            group_id: the group that this consumer is in, or whose offsets it commits.
            group_instance_id: name of a static member, which no other one has: it keeps its partitions through a
                restart that is shorter than ``session_timeout_s``, and does not leave when it is closed.
            listener: hears which partitions come and go.
            settings: how it behaves.
            client_id: what brokers call it in their logs.
            clock: source of time.
            chance: source of chance.
            channels: how connections are made.
            tls: what they are protected with; None: as the environment or the profile says.
        """
        group = None
        if group_id is not None:
            group = GroupPlace(group_id=group_id, instance_id=group_instance_id or "", listener=listener)
        super().__init__(
            bootstrap,
            settings=settings,
            client_id=client_id,
            clock=clock,
            chance=chance,
            channels=channels,
            tls=tls,
            group=group,
        )
        self._topics: Final = tuple(topics)
        self._handed_out = 0

    async def start(self) -> None:
        """Find the cluster. Raises RegnumError when no broker answers within ``topic_wait_s``, at least 2 s."""
        async with AsyncExitStack() as undo:
            await super().start()
            undo.push_async_callback(self.close)
            if self._topics:
                await self.subscribe(*self._topics)
            undo.pop_all()

    async def commit(self, offsets: ToCommit | None = None) -> None:
        """Record how far the group has come: in all partitions behind what was handed out, or where ``offsets`` say.

        An offset is that of the next record to be processed. Returns when every in-sync replica has it. Raises
        CommitFailedError when the partitions are not this member's any more: nothing was committed then, and reading
        may go on. Other errors, when the time is over, leave open whether it was.
        """
        await self._of_group().commit(offsets)

    async def committed(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, CommittedOffset | None]:
        """How far the group has come, as its coordinator has it; None: it has committed nothing there."""
        return await self._of_group().committed(partitions)

    def _of_group(self) -> GroupSession:
        self._open()
        if self._group is None:
            raise no_group()
        return self._group

    async def read(self, *, records_max: Count = 500, timeout_s: float = 1.0) -> list[ConsumedRecord]:
        """The next records, of any partition, in the order of each; empty when none came in the time.

        In a group, a rebalance that has begun to take or give partitions is waited for beyond the time, with what the
        listener does: it never runs beside what the caller does between two reads.
        """
        deadline_s = self._clock.monotonic() + timeout_s
        records: list[ConsumedRecord] = []
        gate = self._enter()
        try:
            while not records:
                # Nothing is waited for once there are records: whoever gives a read up loses none.
                left_s = deadline_s - self._clock.monotonic()
                if gate is not None and gate.wanted and not await gate.attend(max(0.0, left_s)):
                    break
                reader = self._reading()
                if reader.wants_thread:
                    await reader.decode()
                    if gate is not None and gate.wanted:
                        continue
                records = self._read_here(min(records_max, RECORDS_PER_READ))
                if records or reader.wants_thread:
                    continue
                if not await self._something_comes(gate, deadline_s - self._clock.monotonic()):
                    break
        finally:
            if gate is not None:
                gate.leave(records)
        return records

    async def getone(self) -> ConsumedRecord:
        """The next record, of any partition, as soon as there is one (aiokafka's name of ``anext``)."""
        return await anext(self)

    async def getmany(
        self, *, timeout_ms: Annotated[float, Between(0)] = 0, max_records: Count | None = None
    ) -> dict[TopicPartition, list[ConsumedRecord]]:
        """The next records by partition, in the order of each; empty when none came in the time (aiokafka's ``read``).

        ``max_records``: 500 by default.
        """
        return by_partition(await self.read(records_max=max_records or 500, timeout_s=timeout_ms / 1000))

    async def stop(self) -> None:
        """The same as ``close``, as aiokafka calls it."""
        await self.close()

    def _read_here(self, records_max: int) -> list[ConsumedRecord]:
        """Records that wait for nothing."""
        reader, records = self._reading(), list[ConsumedRecord]()
        while (room := records_max - len(records)) > 0:
            try:
                some = reader.next_records(room)
            except RegnumError:
                if records:
                    # What was read is handed out first; the next call meets the error again.
                    break
                raise
            if not some:
                break
            records += some
        return records

    async def read_batch(self, *, timeout_s: float = 1.0) -> RecordBatch | None:
        """The next batch, of any partition, not decoded; None when none came in the time."""
        deadline_s = self._clock.monotonic() + timeout_s
        return await self._next_batch(deadline_s)

    async def batches(self) -> AsyncIterator[RecordBatch]:
        """Batches without end, not decoded: for those who take records on in bulk, or look at few of them.

        They come as single records would, from the same positions; a position is behind a batch once it is handed
        out. One may change between batches and records at any time.
        """
        handed_out = 0
        while True:
            batch = await self._next_batch(None)
            if batch is not None:
                yield batch
                handed_out += 1
                if handed_out % BATCHES_PER_TURN == 0:
                    await asyncio.sleep(0)

    async def _next_batch(self, deadline_s: float | None) -> RecordBatch | None:
        batch: RecordBatch | None = None
        gate = self._enter()
        try:
            while batch is None:
                left_s = None if deadline_s is None else deadline_s - self._clock.monotonic()
                if gate is not None and gate.wanted and not await gate.attend(left_s and max(0.0, left_s)):
                    break
                batch = self._reading().next_batch()
                if batch is None and not await self._something_comes(gate, left_s):
                    break
        finally:
            if gate is not None:
                gate.leave(() if batch is None else (batch,))
        return batch

    def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Records without end."""
        return self

    async def __anext__(self) -> ConsumedRecord:
        self._handed_out += 1
        if self._handed_out % RECORDS_PER_TURN == 0:
            await asyncio.sleep(0)
        records: list[ConsumedRecord] = []
        gate = self._enter()
        try:
            while True:
                if gate is not None and gate.wanted:
                    await gate.attend(None)
                reader = self._reading()
                if records := reader.next_records(1):
                    return records[0]
                if reader.wants_thread:
                    await reader.decode()
                else:
                    await self._reading().something_arrives(None)
        finally:
            if gate is not None:
                gate.leave(records)

    async def _something_comes(self, gate: Gate | None, within_s: float | None) -> bool:
        """Wait for records, or for the group to act; False: the time is over."""
        if within_s is not None and within_s <= 0:
            return False
        arrives = self._reading().something_arrives(within_s)
        return await (arrives if gate is None else gate.unless_acting(arrives))

    def _enter(self) -> Gate | None:
        """The caller asks for records: it is done with those that it had, as its group hears."""
        self._open()
        if self._group is None:
            return None
        self._group.gate.enter()
        return self._group.gate
