"""The groups of one partition of the internal topic, under one leadership of it.

Goals: what is answered is on record; committed offsets are shown as they are committed, in the order of the log, and
never go back; who is waited for is bounded by deadlines.

Algorithm: an event goes to the pure decisions (``decisions``) and gives the next group and effects. The group changes
at once; a record of it goes to the log, and answers go out behind it, when it is committed. Offsets change when their
records are committed. If the log is over (this broker was replaced as leader, or does not learn what became of an
append), the shard is: its groups may be ahead of the log. The coordinator then begins another one from the log.

Deadlines (``Deadlines``) are of groups: a group is looked at when its moment is due, and then all its members are. When
something may be due after a call is not computed from all members: no earlier than after the shortest session, or at
one of the group's own two moments. Heartbeats only put moments off; they are answered from the groups as they are,
whatever the log does.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from regnum_records.record import NewRecord
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.slices import Turns
from regnum_telemetry.metrics import Metrics

from regnum_broker.groups.counted import Counted
from regnum_broker.groups.deadlines import Deadlines
from regnum_broker.groups.decisions.membership import expire, give_up, heard, next_deadline_s, resumed, soonest_s
from regnum_broker.groups.decisions.offsets import CommittedOffset, Place, may_commit
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
from regnum_broker.groups.group_time import GroupTime
from regnum_broker.groups.offset_book import OffsetBook
from regnum_broker.groups.recorded.group_log import GroupLog
from regnum_broker.groups.recorded.records import (
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

LARGE_BYTES: Final = 1024 * 1024
"""A group that is larger is not written for a small call, nor for a deadline, while much waits to be written."""

GROUP_BYTES: Final = 600
"""About what a group takes in memory besides what its members brought."""
MEMBER_BYTES: Final = 900
"""About what a member takes besides."""
PENDING_BYTES: Final = 700
"""About what an id takes that was given and not used yet."""

NO_CALL: Final = 0
"""Number of a call that is answered at once."""

TOMBSTONES: Final = 400
"""Offsets that are forgotten in one entry of the log: with the longest names these are not quite a MiB."""


class Shard:
    """Belongs to the event loop."""

    def __init__(self, *, log: GroupLog, clock: Clock, session_s_min: float, counted: Counted | None = None) -> None:
        """Only assigns.

        Args:
            log: where it writes.
            clock: source of time.
            session_s_min: shortest session time-out of members.
            counted: where it counts; None: nobody asks.
        """
        self._counted: Final = counted or Counted(Metrics())
        self.log: Final = log
        self.time: Final = GroupTime(clock)
        """What deadlines of its groups are counted in."""
        self._clock: Final = clock
        self._session_s_min: Final = session_s_min
        self.groups: Final[dict[str, Group]] = {}
        """By name; those without members and history are here only while they have offsets or commits."""
        self.offsets: Final = OffsetBook()
        """What was committed."""
        self.loaded = False
        """Whether all that was on record when it began is here."""
        self._sizes: Final[dict[str, tuple[int, int]]] = {}
        """Of each group: bytes, and members."""
        self._group_bytes = 0
        self.members = 0
        """Members of all groups."""
        self._committing: Final[dict[str, int]] = {}
        self._calls: Final[dict[int, asyncio.Future[Answer]]] = {}
        self._call_count = 0
        self._due: Final = Deadlines()

    # Beginning and end.

    async def load(self, changes: Sequence[Change]) -> None:
        """Take up what records say, in order."""
        turns = Turns(500)
        for change in changes:
            match change:
                case OffsetChange(offset=None):
                    self.offsets.forget(change.group_id, change.place)
                case OffsetChange(offset=CommittedOffset() as offset):
                    self.offsets.put(change.group_id, change.place, offset)
                case GroupChange(record=None):
                    self._drop(change.group_id)
                case GroupChange(record=record) if record is not None:
                    self._store(group_of(change.group_id, record))
                    await turns.took(len(record.members))
            await turns.took()

    async def begin(self) -> None:
        """All that was on record is here: serve. Members' sessions begin now, however long the reading took."""
        turns = Turns(500)
        for group_id in self.offsets.by_group:
            if group_id not in self.groups:
                self._store(Group(group_id=group_id))
            await turns.took()
        for group_id in tuple(self.groups):
            group = resumed(self.groups[group_id], now_s=self.time.now_s)
            self._store(group)
            self._look_at(group, next_deadline_s(group))
            await turns.took(1 + len(group.members))
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
        return self._group_bytes + self.offsets.size_bytes

    # Calls.

    def call(self, group_id: str, decide: Callable[[Group, int], Step]) -> "tuple[int, asyncio.Future[Answer]]":
        """Hand a call to its group; its number, and its answer to come."""
        number, answer = self._new_call()
        self._took_call(decide(self._group(group_id), number))
        return number, answer

    def beat(self, group_id: str, decide: Callable[[Group, int], Step]) -> Answer:
        """The same for a call that changes nothing but when its member was heard of last: it waits for nothing."""
        step = decide(self._group(group_id), NO_CALL)
        if group_id in self.groups:
            self.groups[group_id] = step.group
        (answer,) = (effect.answer for effect in step.effects if isinstance(effect, Reply))
        return answer

    def give_up(self, group_id: str, member_id: str, call: int) -> None:
        """The caller of a held call has no more time, or is gone."""
        group = self.groups.get(group_id)
        if group is not None and call in self._calls:
            self._took_call(give_up(group, member_id, call, now_s=self.time.now_s))

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
            self.groups[group_id] = heard(group, member, now_s=self.time.now_s)
        elif group_id not in self.groups:
            self._store(group)
        self._committing[group_id] = self._committing.get(group_id, 0) + 1
        self.offsets.begin(group_id, (place for place, _ in offsets))

        def committed() -> None:
            if group_id not in self.groups:
                self._store(Group(group_id=group_id))
            for place, offset in offsets:
                self.offsets.put(group_id, place, offset)
            self.offsets.done(group_id, (place for place, _ in offsets))
            self._counted.offsets.add(len(offsets))
            self._commit_ended(group_id)
            self._answer(number, Done())

        self.log.write(records, committed)
        return answer

    def puts_off(self, group: Group) -> bool:
        """Whether what would write all of a group has to wait: other groups need what is left of the log's room."""
        return self.log.is_crowded and group.brought_bytes + group.assigned_bytes > LARGE_BYTES

    def is_committing(self, group_id: str) -> bool:
        """Whether commits of a group are under way."""
        return group_id in self._committing

    def delete(self, group_id: str) -> "asyncio.Future[Answer]":
        """Forget a group that has no members and no commits under way, with all its offsets.

        The group goes last: where it was not done to the end, the rest is a group that can be deleted.
        """
        number, answer = self._new_call()
        former = self.groups.get(group_id)
        self.forget_offsets(group_id, tuple(self.offsets.of(group_id)))
        self._committing[group_id] = self._committing.get(group_id, 0) + 1

        def forgotten() -> None:
            self._commit_ended(group_id)
            # Who came meanwhile is of a new group of that name, and what it wrote stands behind.
            if self.groups.get(group_id) is former and not self._is_used(group_id):
                self._drop(group_id)
            self._answer(number, Done())

        self.log.write([forgotten_group(group_id)], forgotten)
        return answer

    def forget(self, group_id: str, places: Sequence[Place]) -> "asyncio.Future[Answer]":
        """The same as ``forget_offsets``; Done when it is written."""
        number, answer = self._new_call()
        self.forget_offsets(group_id, places)
        self.log.after(lambda: self._answer(number, Done()))
        return answer

    def forget_offsets(self, group_id: str, places: Sequence[Place]) -> None:
        """Forget offsets, in portions, each for itself; none of these places may be on its way to the log."""
        for start in range(0, len(places), TOMBSTONES):
            self._forget_portion(group_id, places[start : start + TOMBSTONES])

    def _forget_portion(self, group_id: str, places: Sequence[Place]) -> None:
        self._committing[group_id] = self._committing.get(group_id, 0) + 1
        self.offsets.begin(group_id, places)

        def forgotten() -> None:
            for place in places:
                self.offsets.forget(group_id, place)
            self.offsets.done(group_id, places)
            self._commit_ended(group_id)

        self.log.write_made(
            len(places),
            lambda: (forgotten_offset(group_id, place) for place in places),
            size_bytes=sum(len(group_id.encode()) + len(place.topic.encode()) for place in places),
            then=forgotten,
        )

    # The clock.

    async def look(self) -> None:
        """Do what is due."""
        turns = Turns(SLICE)
        for group_id in self._due.take_due(self.time.now_s):
            group = self.groups.get(group_id)
            if group is not None and self.puts_off(group):
                self._due.bring_forward(group_id, self.time.now_s)
            elif group is not None:
                step = expire(group, now_s=self.time.now_s, now_ms=self._clock.wall_ms())
                self._take(step, moment_s=next_deadline_s(step.group))
                await turns.took(1 + len(group.members) // 20)

    # What events do.

    def _took_call(self, step: Step) -> None:
        self._take(step, moment_s=soonest_s(step.group, now_s=self.time.now_s, session_s_min=self._session_s_min))

    def _group(self, group_id: str) -> Group:
        return self.groups.get(group_id) or Group(group_id=group_id)

    def _new_call(self) -> "tuple[int, asyncio.Future[Answer]]":
        self._call_count += 1
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._calls[self._call_count] = answer
        return self._call_count, answer

    def _take(self, step: Step, *, moment_s: float | None) -> None:
        group = step.group
        if group.members and group.generation > self._group(group.group_id).generation:
            self._counted.rebalances.add()
        if group.is_vacant and not self._is_used(group.group_id):
            self._drop(group.group_id)
        else:
            self._store(group)
            self._look_at(group, moment_s)
        self._do(step)

    def _is_used(self, group_id: str) -> bool:
        return group_id in self.offsets.by_group or group_id in self._committing

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

    def _look_at(self, group: Group, moment_s: float | None) -> None:
        if moment_s is not None:
            self._due.bring_forward(group.group_id, moment_s)

    def _store(self, group: Group) -> None:
        self.groups[group.group_id] = group
        size = GROUP_BYTES + MEMBER_BYTES * len(group.members) + PENDING_BYTES * len(group.pending)
        size += group.brought_bytes + group.assigned_bytes
        self._weigh(group.group_id, size, len(group.members))

    def _drop(self, group_id: str) -> None:
        self.groups.pop(group_id, None)
        self._due.forget(group_id)
        self._weigh(group_id, 0, 0)
        del self._sizes[group_id]

    def _weigh(self, group_id: str, size: int, members: int) -> None:
        former_size, former_members = self._sizes.get(group_id, (0, 0))
        self._group_bytes += size - former_size
        self.members += members - former_members
        self._sizes[group_id] = (size, members)

    def _commit_ended(self, group_id: str) -> None:
        left = self._committing.pop(group_id) - 1
        if left:
            self._committing[group_id] = left


def _nothing() -> None:
    """What follows a record of a group: its answers wait behind it."""
