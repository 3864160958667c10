"""One partition of groups over a log that a test answers for."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from immutables import Map
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_broker.groups.counted import Counted
from regnum_broker.groups.decisions.joining import join
from regnum_broker.groups.decisions.offsets import CommittedOffset, Place
from regnum_broker.groups.decisions.state import Answer, GroupLimits, Identity, JoinRequest
from regnum_broker.groups.forgetting import expire_offsets
from regnum_broker.groups.recorded.group_log import GroupLog
from regnum_broker.groups.recorded.records import change_of, offset_record
from regnum_broker.groups.seats import CoordinatorPlace
from regnum_broker.groups.shard import Shard
from regnum_broker.groups.topic_lives import TopicLives
from regnum_broker.serving.metadata_cache import TopicView
from regnum_broker.serving.produce import OwnAppend
from regnum_model.ids import BrokerId
from regnum_records.read import read_records
from regnum_records.record import Record
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_telemetry.metrics import Metrics

from regnum_testing.clock import FakeClock

COMMITTED: Final = OwnAppend(code=errors_pb2.ERROR_CODE_NONE, message="")
"""Every in-sync replica has it."""
NOBODY: Final = Identity(member_id="")
"""Who is no member."""
LIMITS: Final = GroupLimits(initial_rebalance_delay_s=0.0)
"""Nobody waits for more members."""
DAY_MS: Final = 86_400_000


class GroupPartition:
    """The log below a shard: keeps what was appended, and lets a test say when it is committed."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.batches: list[bytes] = []
        """What was committed."""
        self.failures: list[OwnAppend] = []
        """What ended a shard."""
        self.outcomes: asyncio.Queue[OwnAppend] | None = None
        """What appends come to, one after another; None: all are committed at once."""
        self.shard = self.made()
        """The present one."""

    def made(self) -> Shard:
        """An empty one."""
        log = GroupLog(
            append=self._append,
            spawn=lambda _, coroutine: asyncio.ensure_future(coroutine),
            failed=self._failed,
            clock=self.clock,
        )
        return Shard(
            log=log, clock=self.clock, session_s_min=LIMITS.session_timeout_s_min, counted=Counted(self.metrics)
        )

    async def expire_offsets(self) -> None:
        """Forget what is over after a week."""
        await expire_offsets(self.shard, now_ms=self.clock.wall_ms(), retention_ms=7 * DAY_MS)

    def _failed(self, outcome: OwnAppend) -> None:
        self.failures.append(outcome)
        self.shard.end(RegnumError(errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE, outcome.message))

    async def _append(self, batch: bytes) -> OwnAppend:
        outcome = COMMITTED if self.outcomes is None else await self.outcomes.get()
        if outcome is COMMITTED:
            self.batches.append(batch)
        return outcome

    async def following(self) -> Shard:
        """What the next coordinator makes of the log."""
        return await self.loaded([record for batch in self.batches for record in read_records(batch)])

    async def loaded(self, records: Sequence[Record]) -> Shard:
        """A shard that has read those."""
        shard = self.made()
        await shard.load([change_of(record) for record in records])
        await shard.begin()
        return shard

    def join(self, member_id: str, group_id: str = "g", **more: Any) -> "asyncio.Future[Answer]":
        """JoinGroup; ``new``: the id that is given, other fields of the request as they are."""
        request = JoinRequest(
            member_id=member_id,
            session_timeout_s=10.0,
            rebalance_timeout_s=20.0,
            protocol_type="consumer",
            protocols=(("range", member_id.encode() * 20),),
            new_member_id=more.pop("new", "new"),
            **more,
        )
        now_s, now_ms = self.shard.time.now_s, self.clock.wall_ms()
        _, answer = self.shard.call(
            group_id, lambda group, call: join(group, request, call=call, now_s=now_s, now_ms=now_ms, limits=LIMITS)
        )
        return answer

    def commit(self, offset: int, group_id: str = "g", who: Identity = NOBODY) -> "asyncio.Future[Answer]":
        """OffsetCommit of one partition."""
        place = Place("t", 0)
        entry = CommittedOffset(offset=offset, committed_ms=self.clock.wall_ms())
        return self.shard.commit(group_id, who, [(place, entry)], [offset_record(group_id, place, entry)])

    def offset(self, group_id: str = "g") -> int | None:
        """The offset that is shown."""
        found = self.shard.offsets.of(group_id).get(Place("t", 0))
        return None if found is None else found.offset


@dataclass
class TopicsShown:
    """What a broker knows of topics, as a test says."""

    topics: Mapping[str, TopicView] = field(default_factory=dict)
    """By name."""
    version: int = 0
    """Version of that."""

    def show(self, version: int, **ids: str) -> None:
        """Know topics by their names and ids, and no others."""
        self.topics = {name: TopicView(name=name, topic_id=id, partitions=Map()) for name, id in ids.items()}
        self.version = version


class OneShard:
    """A coordinator that has this one shard, for all groups."""

    def __init__(self, shard: Shard, known: TopicsShown | None = None, clock: Clock | None = None) -> None:
        self._shard: Final = shard
        self.lives: Final = TopicLives(known or TopicsShown(), clock or FakeClock())

    def shard_of(self, group_id: str, *, writes: bool) -> Shard:  # noqa: ARG002 - the signature of a coordinator
        """The shard."""
        return self._shard

    def shards(self) -> Iterator[Shard]:
        """The shard."""
        yield self._shard

    def check_room(self, shard: Shard, group_id: str, size_bytes: int, *, is_new: bool = True) -> None:
        """There is room."""

    async def coordinators(self, group_ids: Sequence[str], *, wait_s: float) -> list[CoordinatorPlace]:  # noqa: ARG002
        """This broker coordinates all."""
        here = types_pb2.Endpoint(host="127.0.0.1", port=1)
        return [CoordinatorPlace(broker=BrokerId(1), client=here) for _ in group_ids]
