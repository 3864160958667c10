"""The groups of one partition of the internal topic, under one leadership of it.

Goals: what is answered is on record; committed offsets are shown as they are committed, in the order of the log, and
never go back; who is waited for is bounded by deadlines.

Algorithm: an event goes to the pure decisions (``decisions``) and gives the next group and effects. The group changes
at once; a record of it goes to the log, and answers go out behind it, when it is committed. Offsets change when their
records are committed. If the log is over (this broker was replaced as leader, or does not learn what became of an
append), the shard is: its groups may be ahead of the log. The coordinator then begins another one from the log.

Deadlines are kept in a heap of (moment, group), at most one entry that counts for each group; a group is looked at when
its entry is due, and not before. Heartbeats only put moments off, so they touch no heap.
"""

import asyncio
import heapq
from collections.abc import Callable, Sequence
from typing import Final

from regnum_records.record import NewRecord
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.slices import Turns

from regnum_broker.groups.decisions.membership import expire, give_up, heard, next_deadline_s
from regnum_broker.groups.decisions.offsets import CommittedOffset, Place, expired, may_commit, may_expire
from regnum_broker.groups.decisions.state import (
    Answer,
    Done,
    Effect,
    Group,
    Identity,
    Persist,
    Refusal,
    Reply,
    Step,
)
from regnum_broker.groups.group_log import GroupLog
from regnum_broker.groups.records import (
    Change,
    GroupChange,
    OffsetChange,
    forgotten_group,
    forgotten_offset,
    group_of,
    group_record,
)

SLICE: Final = 20
"""Groups looked at between two turns of the event loop (safety rule S22); one may have a thousand members."""

GROUP_BYTES: Final = 600
"""About what a group takes in memory besides what its members brought."""
MEMBER_BYTES: Final = 900
"""About what a member takes besides."""
OFFSET_BYTES: Final = 350
"""About what an offset takes besides its note."""


class Shard:
    """Belongs to the event loop."""

    def __init__(self, *, log: GroupLog, clock: Clock, retention_ms: int) -> None:
        """Only assigns.

        Args:
            log: where it writes.
            clock: source of time.
            retention_ms: how long offsets of a group without members are kept.
        """
        self.log: Final = log
        self._clock: Final = clock
        self._retention_ms: Final = retention_ms
        self.groups: Final[dict[str, Group]] = {}
        """By name; those without members and history are here only while they have offsets or commits."""
        self.offsets: Final[dict[str, dict[Place, CommittedOffset]]] = {}
        """Committed ones, by group."""
        self.loaded = False
        """Whether all that was on record when it began is here."""
        self._sizes: Final[dict[str, int]] = {}
        self._group_bytes = 0
        self._offset_bytes = 0
        self._committing: Final[dict[str, int]] = {}
        self._calls: Final[dict[int, asyncio.Future[Answer]]] = {}
        self._call_count = 0
        self._due: Final[list[tuple[float, str]]] = []
        self._wakes: Final[dict[str, float]] = {}

    # Beginning and end.

    async def load(self, changes: Sequence[Change]) -> None:
        """Take up what records say, in order."""
        turns = Turns(500)
        for change in changes:
            match change:
                case OffsetChange(offset=None):
                    self._forget_offset(change.group_id, change.place)
                case OffsetChange(offset=CommittedOffset() as offset):
                    self._set_offset(change.group_id, change.place, offset)
                case GroupChange(record=None):
                    self._drop(change.group_id)
                case GroupChange(record=record) if record is not None:
                    self._store(group_of(change.group_id, record, now_s=self._clock.monotonic()))
                    await turns.took(len(record.members))
            await turns.took()

    async def begin(self) -> None:
        """All that was on record is here: serve."""
        turns, now_s = Turns(500), self._clock.monotonic()
        for group_id in self.offsets:
            self.groups.setdefault(group_id, Group(group_id=group_id))
            await turns.took()
        for group_id in tuple(self.groups):
            self._schedule(self.groups[group_id], now_s)
            await turns.took(1 + len(self.groups[group_id].members))
        self.loaded = True

    def end(self, error: RegnumError) -> None:
        """Answer everybody who waits with that error; nothing is written any more."""
        self.log.end()
        calls = list(self._calls.values())
        self._calls.clear()
        for call in calls:
            if not call.done():
                call.set_exception(error)
                # Its caller may be gone.
                call.exception()

    @property
    def size_bytes(self) -> int:
        """About what its groups and offsets take in memory."""
        return self._group_bytes + self._offset_bytes

    # Calls.

    def call(self, group_id: str, decide: Callable[[Group, int], Step]) -> "tuple[int, asyncio.Future[Answer]]":
        """Hand a call to its group; its number, and its answer to come."""
        number, answer = self._new_call()
        self._take(decide(self._group(group_id), number))
        return number, answer

    def beat(self, group_id: str, decide: Callable[[Group, int], Step]) -> "asyncio.Future[Answer]":
        """The same for one that changes nothing but when its member was heard of last."""
        number, answer = self._new_call()
        step = decide(self._group(group_id), number)
        if group_id in self.groups:
            self.groups[group_id] = step.group
        self._do(step)
        return answer

    def give_up(self, group_id: str, member_id: str, call: int) -> None:
        """The caller of a held call has no more time, or is gone."""
        group = self.groups.get(group_id)
        if group is not None and call in self._calls:
            self._take(give_up(group, member_id, call, now_s=self._clock.monotonic()))

    def commit(
        self,
        group_id: str,
        identity: Identity,
        offsets: Sequence[tuple[Place, CommittedOffset]],
        records: Sequence[NewRecord],
    ) -> "asyncio.Future[Answer]":
        """Commit offsets, which ``records`` say; Done, or a Refusal."""
        number, answer = self._new_call()
        group = self._group(group_id)
        member = may_commit(group, identity)
        if isinstance(member, Refusal):
            self._do(Step(group, (Reply(number, member),)))
            return answer
        if member is not None:
            self.groups[group_id] = heard(group, member, now_s=self._clock.monotonic())
        elif group_id not in self.groups:
            self._store(group)
        self._committing[group_id] = self._committing.get(group_id, 0) + 1

        def committed() -> None:
            if group_id not in self.groups:
                self._store(Group(group_id=group_id))
            for place, offset in offsets:
                self._set_offset(group_id, place, offset)
            self._commit_ended(group_id)
            self._answer(number, Done())

        self.log.write(records, committed)
        return answer

    def is_committing(self, group_id: str) -> bool:
        """Whether commits of a group are under way."""
        return group_id in self._committing

    def delete(self, group_id: str) -> "asyncio.Future[Answer]":
        """Forget a group that has no members and no commits under way, with all its offsets."""
        number, answer = self._new_call()
        places = tuple(self.offsets.get(group_id, ()))
        records = [forgotten_offset(group_id, place) for place in places]
        self._committing[group_id] = self._committing.get(group_id, 0) + 1
        former = self.groups.get(group_id)

        def forgotten() -> None:
            for place in places:
                self._forget_offset(group_id, place)
            self._commit_ended(group_id)
            # Who came meanwhile is of a new group of that name, and what it wrote stands behind.
            if self.groups.get(group_id) is former and not self._is_used(group_id):
                self._drop(group_id)
            self._answer(number, Done())

        self.log.write([*records, forgotten_group(group_id)], forgotten)
        return answer

    # The clock.

    async def look(self) -> None:
        """Do what is due."""
        turns = Turns(SLICE)
        while self._due and self._due[0][0] <= self._clock.monotonic():
            moment_s, group_id = heapq.heappop(self._due)
            if self._wakes.get(group_id) != moment_s:
                continue
            del self._wakes[group_id]
            group = self.groups.get(group_id)
            if group is not None:
                now_s = self._clock.monotonic()
                self._take(expire(group, now_s=now_s, now_ms=self._clock.wall_ms()))
                await turns.took(1 + len(group.members) // 20)

    async def expire_offsets(self) -> None:
        """Forget offsets that are over, and groups of which nothing is left."""
        turns = Turns(SLICE)
        for group_id in tuple(self.groups):
            await turns.took(1 + len(self.offsets.get(group_id, ())))
            group, now_ms = self.groups.get(group_id), self._clock.wall_ms()
            if group is None or group.pending or self.is_committing(group_id) or self.log.is_full:
                continue
            if not may_expire(group, now_ms=now_ms, retention_ms=self._retention_ms):
                continue
            present = self.offsets.get(group_id, {})
            places = expired(group, present.items(), now_ms=now_ms, retention_ms=self._retention_ms)
            if len(places) == len(present):
                # Nobody waits for the answer; the deletion is as good as any.
                self.delete(group_id)
            elif places:
                self._forget(group_id, places)

    def _forget(self, group_id: str, places: Sequence[Place]) -> None:
        self._committing[group_id] = self._committing.get(group_id, 0) + 1

        def forgotten() -> None:
            for place in places:
                self._forget_offset(group_id, place)
            self._commit_ended(group_id)

        self.log.write([forgotten_offset(group_id, place) for place in places], forgotten)

    # What events do.

    def _group(self, group_id: str) -> Group:
        return self.groups.get(group_id) or Group(group_id=group_id)

    def _new_call(self) -> "tuple[int, asyncio.Future[Answer]]":
        self._call_count += 1
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._calls[self._call_count] = answer
        return self._call_count, answer

    def _take(self, step: Step) -> None:
        group = step.group
        if group.is_vacant and not self._is_used(group.group_id):
            self._drop(group.group_id)
        else:
            self._store(group)
            self._schedule(group, self._clock.monotonic())
        self._do(step)

    def _is_used(self, group_id: str) -> bool:
        return group_id in self.offsets or group_id in self._committing

    def _do(self, step: Step) -> None:
        for effect in step.effects:
            self._carry_out(step.group, effect)

    def _carry_out(self, group: Group, effect: Effect) -> None:
        match effect:
            case Persist():
                self.log.write([group_record(group)], _nothing)
            case Reply(call=call, answer=answer):
                self.log.after(lambda: self._answer(call, answer))

    def _answer(self, call: int, answer: Answer) -> None:
        waiting = self._calls.pop(call, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _schedule(self, group: Group, now_s: float) -> None:
        moment_s = next_deadline_s(group)
        if moment_s is None:
            return
        # A moment that is past is looked at by the next look, not again and again by this one.
        moment_s = max(moment_s, now_s)
        present_s = self._wakes.get(group.group_id)
        if present_s is None or moment_s < present_s:
            self._wakes[group.group_id] = moment_s
            heapq.heappush(self._due, (moment_s, group.group_id))

    def _store(self, group: Group) -> None:
        self.groups[group.group_id] = group
        size = GROUP_BYTES + sum(
            MEMBER_BYTES + member.metadata_bytes + len(member.assignment) for member in group.members.values()
        )
        self._group_bytes += size - self._sizes.get(group.group_id, 0)
        self._sizes[group.group_id] = size

    def _drop(self, group_id: str) -> None:
        self.groups.pop(group_id, None)
        self._wakes.pop(group_id, None)
        self._group_bytes -= self._sizes.pop(group_id, 0)

    def _set_offset(self, group_id: str, place: Place, offset: CommittedOffset) -> None:
        offsets = self.offsets.setdefault(group_id, {})
        former = offsets.get(place)
        self._offset_bytes += _weight(offset) - (0 if former is None else _weight(former))
        offsets[place] = offset

    def _forget_offset(self, group_id: str, place: Place) -> None:
        offsets = self.offsets.get(group_id, {})
        former = offsets.pop(place, None)
        if former is not None:
            self._offset_bytes -= _weight(former)
            if not offsets:
                del self.offsets[group_id]

    def _commit_ended(self, group_id: str) -> None:
        left = self._committing.pop(group_id) - 1
        if left:
            self._committing[group_id] = left


def _weight(offset: CommittedOffset) -> int:
    return OFFSET_BYTES + len(offset.metadata)


def _nothing() -> None:
    """What follows a record of a group: its answers wait behind it."""
