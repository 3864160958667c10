"""Calls about groups, from their arrival to their answer: which shard, how long to wait, what a lost caller means."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_records.record import NewRecord
from regnum_service.clock import Clock
from regnum_service.errors import Code, RegnumError
from regnum_service.slices import Turns
from regnum_telemetry.metrics import Metrics

from regnum_broker.groups.coordinator import GroupCoordinator
from regnum_broker.groups.counted import Counted
from regnum_broker.groups.decisions.joining import join, own_place
from regnum_broker.groups.decisions.membership import heartbeat, leave, sync
from regnum_broker.groups.decisions.offsets import (
    CommittedOffset,
    OffsetLimits,
    Place,
    of_another_topic,
    too_many_offsets,
    wrong_offset,
    wrong_offsets,
)
from regnum_broker.groups.decisions.state import (
    Again,
    Answer,
    Group,
    GroupError,
    GroupLimits,
    GroupState,
    Identity,
    Joined,
    JoinRequest,
    Left,
    Refusal,
    Step,
    Synced,
    SyncRequest,
)
from regnum_broker.groups.decisions.subscriptions import read_by
from regnum_broker.groups.recorded.records import offset_record
from regnum_broker.groups.shard import Shard

HELD_S_MAX: Final = 3_600.0
"""A call is held no longer, whatever its caller bears."""

WRITE_S_MAX: Final = 30.0
"""Nobody waits longer for a write."""

SLICE: Final = 200
"""Offsets looked at between two turns of the event loop (safety rule S22)."""

NOTE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of one commit: it is one entry of the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group as people are shown it."""

    group: Group
    """What it is; where there is none, one without anything."""
    exists: bool
    """Whether there is one."""


class GroupCalls:
    """Belongs to the event loop."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        *,
        clock: Clock,
        limits: GroupLimits,
        offset_limits: OffsetLimits,
        metrics: Metrics | None = None,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        """Only assigns; ``new_id`` makes the part of a member id that nobody else has."""
        self._commits: Final = Counted(metrics or Metrics()).commits
        self._coordinator: Final = coordinator
        self._clock: Final = clock
        self.limits = limits
        """Bounds of groups; may be replaced at any time."""
        self._offset_limits: Final = offset_limits
        self._new_id: Final = new_id

    def new_member_id(self, prefix: str) -> str:
        """An id for a new member; it begins with what the client calls itself, for people."""
        return f"{prefix[:100] or 'member'}-{self._new_id()}"

    async def join(self, group_id: str, request: JoinRequest, *, waitable_s: float) -> Joined | Again:
        """JoinGroup. Raises RegnumError."""
        shard = self._coordinator.shard_of(group_id, writes=True)
        known = shard.groups.get(group_id)
        own = None if known is None else own_place(known, request)
        # Who is in a group already may always come back to it, whatever others have taken meanwhile.
        grown = request.brought_bytes - (0 if own is None else own.brought_bytes)
        if own is None or grown > 0:
            self._coordinator.check_room(shard, group_id, grown, is_new=own is None)
        if known is not None and own is not None and not request.member_id and shard.puts_off(known):
            # A static member comes back by some hundred bytes, and the record of its group may have 12 MiB.
            raise RegnumError(
                errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
                "the group is large, and much waits to be written before it; nothing was done: try again",
            )

        def decide(group: Group, call: int) -> Step:
            return join(
                group,
                request,
                call=call,
                now_s=shard.time.now_s,
                now_ms=self._clock.wall_ms(),
                limits=self.limits,
            )

        member_id = request.member_id or request.new_member_id
        answer = await self._held(shard, group_id, member_id, decide, waitable_s=waitable_s)
        assert isinstance(answer, Joined | Again), f"a JoinGroup is not answered {answer}"  # noqa: S101
        if isinstance(answer, Again) and request.instance_id and not request.member_id:
            # The new id is on no record before the rebalance is done: at the next coordinator a static member with an
            # id that it does not know is fenced, which is final. By its name alone it takes its place again.
            return Again("")
        return answer

    async def sync(self, group_id: str, request: SyncRequest, *, waitable_s: float) -> Synced | Again:
        """SyncGroup. Raises RegnumError."""
        shard = self._coordinator.shard_of(group_id, writes=True)
        size = sum(len(assignment) for _, assignment in request.assignments)
        known = shard.groups.get(group_id)
        if known is None or size > known.brought_bytes:
            # Else a group that is here could not go on: what its members brought is counted, and this is no more.
            self._coordinator.check_room(shard, group_id, size, is_new=known is None)

        def decide(group: Group, call: int) -> Step:
            return sync(group, request, call=call, now_s=shard.time.now_s, limits=self.limits)

        member_id = request.identity.member_id
        answer = await self._held(shard, group_id, member_id, decide, waitable_s=waitable_s)
        assert isinstance(answer, Synced | Again), f"a SyncGroup is not answered {answer}"  # noqa: S101
        return answer

    def heartbeat(self, group_id: str, identity: Identity) -> None:
        """Heartbeat; waits for nothing. Raises RegnumError."""
        shard = self._coordinator.shard_of(group_id, writes=False)
        answer = shard.beat(group_id, lambda group, call: heartbeat(group, identity, call=call, now_s=shard.time.now_s))
        if isinstance(answer, Refusal):
            _raise(answer)

    async def leave(self, group_id: str, members: Sequence[Identity], *, waitable_s: float) -> Left:
        """LeaveGroup. Raises RegnumError."""
        if len(members) > self.limits.members_max:
            raise _invalid(f"more than {self.limits.members_max} members: split the request")
        shard = self._coordinator.shard_of(group_id, writes=True)
        _, answer = shard.call(
            group_id,
            lambda group, call: leave(group, members, call=call, now_s=shard.time.now_s, now_ms=self._clock.wall_ms()),
        )
        left = await _answered(answer, waitable_s)
        assert isinstance(left, Left), f"a LeaveGroup is not answered {left}"  # noqa: S101
        return left

    async def commit(
        self, group_id: str, identity: Identity, offsets: Sequence[tuple[Place, CommittedOffset]], *, waitable_s: float
    ) -> list[Refusal | None]:
        """OffsetCommit: None for each offset that is committed, or why it is not. Raises RegnumError."""
        began_s = self._clock.monotonic()
        try:
            return await self._commit(group_id, identity, offsets, waitable_s=waitable_s)
        finally:
            self._commits.record(self._clock.monotonic() - began_s)

    async def _commit(
        self, group_id: str, identity: Identity, offsets: Sequence[tuple[Place, CommittedOffset]], *, waitable_s: float
    ) -> list[Refusal | None]:
        shard = self._coordinator.shard_of(group_id, writes=True)
        limits = self._offset_limits
        if len(offsets) > limits.offsets_max:
            _raise(too_many_offsets(limits))
        outcomes: list[Refusal | None] = []
        taken: list[tuple[Place, CommittedOffset]] = []
        records: list[NewRecord] = []
        lives = self._coordinator.lives
        size, turns = 0, Turns(SLICE)
        for place, offset in offsets:
            wrong = wrong_offset(offset, limits=limits)
            stamp = lives.stamp(place.topic, offset.topic_id, shard.offsets.of(group_id).get(place))
            if wrong is None and stamp is None:
                wrong = of_another_topic(place)
            outcomes.append(wrong)
            if wrong is None and stamp is not None:
                stamped = replace(offset, topic_id=stamp[0], metadata_version=stamp[1])
                taken.append((place, stamped))
                records.append(offset_record(group_id, place, stamped))
                size += len(records[-1].key or b"") + len(records[-1].value or b"")
            await turns.took()
        if size > NOTE_BYTES_MAX:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_COMMIT_OFFSET_SIZE,
                f"the offsets have {size} bytes; a commit may have {NOTE_BYTES_MAX}: split it",
            )
        # The shard may have ended in the turns above.
        shard = self._coordinator.shard_of(group_id, writes=True)
        new, count = shard.offsets.count_with(group_id, {place for place, _ in taken})
        _raise(wrong_offsets(taken, new=new, count=count, limits=limits))
        grown = shard.offsets.growth(group_id, taken)
        if grown > 0:
            self._coordinator.check_room(shard, group_id, grown, is_new=group_id not in shard.groups)
        if taken:
            await _answered(shard.commit(group_id, identity, taken, records), waitable_s)
        return outcomes

    async def fetch(self, group_id: str, places: Sequence[Place] | None) -> list[tuple[Place, CommittedOffset | None]]:
        """OffsetFetch: of those places, or of all. Raises RegnumError."""
        shard = self._coordinator.shard_of(group_id, writes=False)
        if places is not None and len(places) > self._offset_limits.offsets_max:
            raise _invalid(f"more than {self._offset_limits.offsets_max} partitions: split the request")
        if places is not None and len(set(places)) < len(places):
            # A number is a few bytes, and its answer has the note of a commit.
            raise _invalid("a partition is named twice; ask for each once")
        found = shard.offsets.of(group_id)
        if places is None:
            return [(place, offset) for place, offset in sorted(found.items()) if self._shown(place, offset)]
        return [(place, self._shown(place, found.get(place))) for place in places]

    def _shown(self, place: Place, offset: CommittedOffset | None) -> CommittedOffset | None:
        """The offset, unless its topic was deleted and the name is another one's."""
        if offset is None:
            return None
        another = self._coordinator.lives.is_another(place.topic, offset)
        if another is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_COORDINATOR_LOAD_IN_PROGRESS,
                f"topic {place.topic} seems to have been created anew since its offset was committed: ask again in some"
                " seconds, when that is certain",
            )
        return None if another else offset

    def describe(self, group_id: str) -> GroupView:
        """DescribeGroups, of one. Raises RegnumError."""
        group = self._coordinator.shard_of(group_id, writes=False).groups.get(group_id)
        return GroupView(group=group or Group(group_id=group_id), exists=group is not None)

    async def groups(
        self,
        *,
        after: str,
        limit: int,
        states: frozenset[GroupState],
        shows: Callable[[str], bool] | None = None,
    ) -> tuple[list[Group], bool, bool]:
        """ListGroups: those behind a name, by name; whether there are more; whether some are not read yet.

        ``shows``: which the caller may be told of; None: all.
        """
        shards = list(self._coordinator.shards())
        chosen: list[Group] = []
        turns = Turns(2_000)
        for shard in shards:
            for group_id in tuple(shard.groups):
                await turns.took()
                group = shard.groups.get(group_id)
                if group is None or group_id <= after or (states and group.state not in states):
                    continue
                if shows is None or shows(group_id):
                    chosen.append(group)
        chosen.sort(key=lambda group: group.group_id)
        loading = not all(shard.loaded for shard in shards)
        return chosen[:limit], len(chosen) > limit, loading

    async def delete(self, group_id: str, *, waitable_s: float) -> None:
        """DeleteGroups, of one. Raises RegnumError."""
        shard = self._coordinator.shard_of(group_id, writes=True)
        group = shard.groups.get(group_id)
        if group is None:
            raise RegnumError(errors_pb2.ERROR_CODE_GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        if group.state is not GroupState.EMPTY or group.pending or shard.is_committing(group_id):
            raise RegnumError(
                errors_pb2.ERROR_CODE_NON_EMPTY_GROUP,
                f"group {group_id!r} has members, or somebody joins it or commits: stop them first",
            )
        await _answered(shard.delete(group_id), waitable_s)

    async def forget(self, group_id: str, places: Sequence[Place], *, waitable_s: float) -> list[Refusal | None]:
        """OffsetDelete: None for each place that has no offset any more, or why it keeps it. Raises RegnumError."""
        shard = self._coordinator.shard_of(group_id, writes=True)
        group = shard.groups.get(group_id)
        if group is None:
            raise RegnumError(errors_pb2.ERROR_CODE_GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        read = read_by(group)
        if isinstance(read, Refusal):
            raise RegnumError(code_of(read), read.message)
        present = shard.offsets.of(group_id)
        outcomes: list[Refusal | None] = []
        gone: dict[Place, None] = {}
        for place in places:
            kept = read is None or place.topic in read or shard.offsets.is_written(group_id, place)
            outcomes.append(_subscribed(place) if kept else None)
            if not kept and place in present:
                gone[place] = None
        if gone:
            await _answered(shard.forget(group_id, tuple(gone)), waitable_s)
        return outcomes

    async def _held(
        self, shard: Shard, group_id: str, member_id: str, decide: Callable[[Group, int], Step], *, waitable_s: float
    ) -> Answer:
        call, answer = shard.call(group_id, decide)
        try:
            done, _ = await asyncio.wait([answer], timeout=min(waitable_s, HELD_S_MAX))
        except asyncio.CancelledError:
            # The client is gone: its session begins to run.
            shard.give_up(group_id, member_id, call)
            raise
        if not done:
            shard.give_up(group_id, member_id, call)
        return _taken(answer)


async def _answered(answer: "asyncio.Future[Answer]", waitable_s: float) -> Answer:
    if not answer.done():
        await asyncio.wait([answer], timeout=min(waitable_s, WRITE_S_MAX))
    return _taken(answer)


def _taken(answer: "asyncio.Future[Answer]") -> Answer:
    if not answer.done():
        raise RegnumError(
            errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
            "the in-sync replicas did not confirm in time; what was asked may still be done: look, or repeat it",
        )
    result = answer.result()
    if isinstance(result, Refusal):
        raise RegnumError(code_of(result), result.message)
    return result


def code_of(refusal: Refusal) -> Code:
    """The wire's code of a refusal; the numbers are the same, Kafka's."""
    return errors_pb2.ErrorCode.Value(f"ERROR_CODE_{refusal.error.name}")


def _subscribed(place: Place) -> Refusal:
    return Refusal(
        error=GroupError.GROUP_SUBSCRIBED_TO_TOPIC,
        message=f"the group reads {place.topic}, or commits to it right now: stop its members first",
    )


def _raise(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise RegnumError(code_of(refusal), refusal.message)


def _invalid(message: str) -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, message)
