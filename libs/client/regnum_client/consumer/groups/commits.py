"""How far the group has come: committed, and asked for."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from regnum.broker.v1 import group_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.wire_times import unix_ms_of
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.admin.groups.views import CommittedOffset
from regnum_client.consumer.cursor import Cursor
from regnum_client.consumer.groups.coordinator import CoordinatorCalls
from regnum_client.consumer.groups.listener import OffsetAndMetadata
from regnum_client.consumer.groups.members.member import Member, Phase
from regnum_client.consumer.groups.members.member_events import Event, Refused
from regnum_client.errors import CommitFailedError
from regnum_client.records import TopicPartition

OFFSETS_MAX: Final = 10_000
"""Partitions of one call."""
AGAIN_S: Final = 0.05
"""Pause before a commit that met a rebalance looks whether that is over."""
_OVER: Final = frozenset(
    {
        errors_pb2.ERROR_CODE_ILLEGAL_GENERATION,
        errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID,
        errors_pb2.ERROR_CODE_FENCED_INSTANCE_ID,
    }
)
"""The coordinator does not take the member for one of that generation."""


class Commits:
    """Of one consumer. One commit is under way at a time, so that an older one never lands behind a newer one."""

    def __init__(
        self,
        calls: CoordinatorCalls,
        *,
        instance_id: str,
        clock: Clock,
        member: Callable[[], Member | None],
        cursor: Callable[[TopicPartition], Cursor | None],
        tell: Callable[[Event], None],
    ) -> None:
        """Only assigns.

        Args:
            calls: to the coordinator.
            instance_id: name of a static member; empty: a dynamic one.
            clock: source of time.
            member: the member for which it commits; None: a consumer that assigns partitions to itself.
            cursor: with which a partition is read; None: it is not read at present.
            tell: hears that the coordinator does not know the member.
        """
        self._calls: Final = calls
        self._instance_id: Final = instance_id
        self._clock: Final = clock
        self._member: Final = member
        self._cursor: Final = cursor
        self._tell: Final = tell
        self._turn: Final = asyncio.Lock()
        self._confirmed: dict[TopicPartition, int] = {}

    def is_news(self, partition: TopicPartition, offset: int) -> bool:
        """Whether it is not what was committed last."""
        return self._confirmed.get(partition) != offset

    def confirmed(self, partition: TopicPartition) -> int:
        """What is known to be committed; -1: nothing."""
        return self._confirmed.get(partition, -1)

    def found(self, partition: TopicPartition, offset: int) -> None:
        """A partition is read from what was committed."""
        self._confirmed[partition] = offset

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They are another member's."""
        for partition in partitions:
            self._confirmed.pop(partition, None)

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | Callable[[], Mapping[TopicPartition, OffsetAndMetadata]],
        *,
        timeout_s: float,
    ) -> None:
        """Commit offsets; when it returns, every in-sync replica of the coordinator has them.

        What is to be known only when it is this commit's turn is said by a function: what others commit meanwhile
        counts for it. Waits through a rebalance in which the partitions stay. Raises CommitFailedError, nothing was
        committed; or RegnumError: what no repeat can change, and REQUEST_TIMED_OUT or the like, and then it may have
        been.
        """
        deadline_s = self._clock.monotonic() + timeout_s
        items = [] if callable(offsets) else self._meant(offsets)
        async with self._turn:
            if callable(offsets):
                items = self._meant(offsets())
            for first in range(0, len(items), OFFSETS_MAX):
                await self._commit(items[first : first + OFFSETS_MAX], deadline_s)

    def _meant(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> "list[_Meant]":
        return [_Meant(partition, offset, self._cursor(partition)) for partition, offset in offsets.items()]

    async def _commit(self, items: "Sequence[_Meant]", deadline_s: float) -> None:
        while True:
            member = self._member()
            if member is not None:
                self._check(member, items)
            sent = group_pb2.OffsetCommitRequest(
                header=self._calls.header,
                group_id=self._calls.group_id,
                generation_id=-1 if member is None else member.generation,
                member_id="" if member is None else member.member_id,
                group_instance_id="" if member is None else self._instance_id,
                offsets=[_to_commit(one) for one in items],
            )
            left_s = max(0.001, deadline_s - self._clock.monotonic())
            try:
                answer = await self._calls.ask(lambda stub: stub.OffsetCommit, sent, timeout_s=left_s)
            except RegnumError as error:
                await self._refused(error, member, deadline_s)
                continue
            for one, result in zip(items, answer.results, strict=True):
                if result.error_code == errors_pb2.ERROR_CODE_NONE:
                    self._confirmed[one.partition] = one.offset.offset
            for result in answer.results:
                if result.error_code != errors_pb2.ERROR_CODE_NONE:
                    where = f"{result.topic}/{result.partition}"
                    raise RegnumError(result.error_code, f"{where} was not committed: {result.error_message}")
            return

    def _check(self, member: Member, items: "Sequence[_Meant]") -> None:
        """Raise CommitFailedError for partitions that are not the member's, or were not for a while."""
        mine = member.committable
        foreign = [
            one.partition for one in items if one.partition not in mine or self._cursor(one.partition) is not one.cursor
        ]
        if member.phase is Phase.ENDED or foreign:
            where = ", ".join(f"{topic}/{number}" for topic, number in foreign[:3])
            raise CommitFailedError(
                f"this member does not have {where} (any more)" if foreign else "it has left the group"
            )

    async def _refused(self, error: RegnumError, member: Member | None, deadline_s: float) -> None:
        """Return when it is to be sent again; raise when that is of no use."""
        if member is None or error.code not in {*_OVER, errors_pb2.ERROR_CODE_REBALANCE_IN_PROGRESS}:
            raise error
        now = self._member()
        unknown = (
            error.code == errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID
            and now is not None
            and now.member_id == member.member_id
        )
        moved_on = now is not None and (now.generation != member.generation or not now.beats)
        if error.code in _OVER and (unknown or not moved_on):
            self._tell(
                Refused(
                    code=error.code,
                    message=error.message,
                    generation=member.generation,
                    aside=True,
                    member_id=member.member_id,
                )
            )
            raise CommitFailedError(error.message) from error
        if now is not None and now.holds_up:
            raise CommitFailedError("the group waits for this member's assignment, and it leaves") from error
        if self._clock.monotonic() + AGAIN_S >= deadline_s:
            raise CommitFailedError("the group rebalances, and that lasts: commit again later") from error
        # It joins the next generation, or is in it by now; what it still has then, it may commit.
        await self._clock.sleep(AGAIN_S)

    async def committed(
        self, partitions: Sequence[TopicPartition], *, timeout_s: float | None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed; None: nothing, or it has expired."""
        found: dict[TopicPartition, CommittedOffset | None] = {}
        for first in range(0, len(partitions), OFFSETS_MAX):
            some = partitions[first : first + OFFSETS_MAX]
            request = group_pb2.OffsetFetchRequest(
                header=self._calls.header,
                group_id=self._calls.group_id,
                partitions=[group_pb2.OffsetToFetch(topic=topic, partition=number) for topic, number in some],
            )
            answer = await self._calls.ask(lambda stub: stub.OffsetFetch, request, timeout_s=timeout_s)
            for partition, one in zip(some, answer.offsets, strict=True):
                found[partition] = _committed(one) if one.HasField("offset") else None
        return found


class _Meant(NamedTuple):
    """What somebody wants to be committed."""

    partition: TopicPartition
    offset: OffsetAndMetadata
    cursor: Cursor | None
    """With which the partition was read at that moment: another one is another ownership, which goes on elsewhere."""


def _to_commit(one: _Meant) -> group_pb2.OffsetToCommit:
    return group_pb2.OffsetToCommit(
        topic=one.partition.topic,
        partition=one.partition.partition,
        offset=one.offset.offset,
        leader_epoch=one.offset.leader_epoch,
        metadata=one.offset.metadata,
        topic_id="" if one.cursor is None else one.cursor.topic_id,
    )


def _committed(one: group_pb2.FetchedOffset) -> CommittedOffset:
    return CommittedOffset(
        offset=one.offset,
        leader_epoch=one.leader_epoch if one.HasField("leader_epoch") else None,
        metadata=one.metadata,
        committed_ms=unix_ms_of(one.committed),
    )
