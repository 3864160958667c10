"""The groups that this broker coordinates: those of every partition of the internal topic that it leads.

Goals: a group has one coordinator at a time, which knows all that was acknowledged; a broker that comes to lead a
partition reads it in the background and says so meanwhile; one that leads it no more says that at once.

Algorithm: a shard belongs to one leadership (this broker, this partition, this leader epoch). It begins when the
leadership is seen, by a call or by the next look, and ends with it: every write goes through the leader's append, which
refuses for any other leadership. Before a call is answered its partition is looked up anew. Whoever leads in the store
but not here any more gets nothing committed and so answers nothing.
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import structlog
from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Store
from regnum_model.topics import OFFSETS_TOPIC
from regnum_service.cancellation import end_task
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.supervisor import Spawn
from regnum_telemetry.instruments import groups as instruments
from regnum_telemetry.metrics import Metrics

from regnum_broker.cluster.topic_guards import gone_for_good
from regnum_broker.groups.counted import Counted
from regnum_broker.groups.forgetting import expire_offsets, forget_topic, lives_in
from regnum_broker.groups.offset_book import OffsetBook
from regnum_broker.groups.offsets_topic import OffsetsTopic, partition_of
from regnum_broker.groups.places import CoordinatorPlaces
from regnum_broker.groups.recorded.group_log import GroupLog
from regnum_broker.groups.recorded.loading import NotLoadedError, load
from regnum_broker.groups.seats import CoordinatorLimits, CoordinatorPlace, Seat
from regnum_broker.groups.shard import Shard
from regnum_broker.groups.topic_lives import TopicLives
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Partition
from regnum_broker.replication.replicas import Replicas
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.produce import OwnAppend
from regnum_broker.storage import Storage

LOOK_S: Final = 0.25
"""Pause between two looks at deadlines and leaderships."""

OFFSETS_LOOK_S: Final = 600.0
"""Pause between two looks for offsets that are over."""

TOPICS_LOOK_S: Final = 5.0
"""Pause between two looks for topics that are gone; costs the number of topics that there are offsets of."""

TOPICS_ASKED: Final = 50
"""Topics that the store is asked about in one look."""

AGAIN_S: Final = 1.0
"""Pause before a partition whose shard failed is read again."""

MEMBERS_DIVISOR: Final = 4
"""What part of a broker's limit is kept besides, for groups that are there already."""

GROUP_LENGTH_MAX: Final = 255
"""Characters of a group's name."""


class GroupCoordinator:
    """Belongs to the event loop."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        leaders: CurrentLeaders,
        topic: OffsetsTopic,
        transactions: CoordinatorPlaces,
        lives: TopicLives,
        store: Callable[[], Store | None],
        storage: Storage,
        append: Callable[[Leadership, bytes], Awaitable[OwnAppend]],
        clock: Clock,
        expiry_now_ms: Callable[[], int | None],
        spawn: Spawn,
        retention_ms: int,
        session_s_min: float,
        limits: CoordinatorLimits,
        metrics: Metrics | None = None,
        may_forget: Callable[[], bool] = lambda: True,
    ) -> None:
        """Only assigns, and lets the metrics read it.

        Args:
            replicas: what this broker leads.
            leaders: who leads what it does not.
            topic: the internal topic.
            transactions: says which brokers would coordinate transactions.
            lives: which topics there are.
            store: asked before offsets of a topic are forgotten; gives None while there is no session.
            storage: reads it.
            append: appends to it under a leadership, and returns when that is committed or will not be.
            clock: source of time.
            expiry_now_ms: milliseconds since 1970, as far as offsets may be forgotten by that; None: they may not.
            spawn: starts supervised tasks.
            retention_ms: how long offsets of groups without members are kept.
            session_s_min: shortest session time-out of members.
            limits: what it takes on.
            metrics: where its groups are counted; None: nobody asks.
            may_forget: whether ``retention_ms`` is what was set, as far as anything was.
        """
        metrics = metrics or Metrics()
        self._counted: Final = Counted(metrics)
        metrics.observe(instruments.GROUPS, lambda: sum(len(seat.shard.groups) for seat in tuple(self._seats.values())))
        metrics.observe(instruments.GROUP_MEMBERS, lambda: sum(s.shard.members for s in tuple(self._seats.values())))
        self._replicas: Final = replicas
        self._leaders: Final = leaders
        self._topic: Final = topic
        self._places: Final = CoordinatorPlaces(topic, leaders=leaders, replicas=replicas)
        self._transactions: Final = transactions
        self.lives: Final = lives
        """Which topics there are."""
        self._store: Final = store
        self._storage: Final = storage
        self._append: Final = append
        self._clock: Final = clock
        self._expiry_now_ms: Final = expiry_now_ms
        self._spawn: Final = spawn
        self.retention_ms = retention_ms
        """How long offsets of groups without members are kept; may be replaced at any time."""
        self._may_forget: Final = may_forget
        self._session_s_min: Final = session_s_min
        self._limits: Final = limits
        self._seats: Final[dict[int, Seat]] = {}
        self._not_before_s: Final[dict[int, float]] = {}
        self._log: Final = structlog.get_logger("groups")

    async def run(self) -> None:
        """Look for ever; a task of the supervisor."""
        next_s = self._clock.monotonic() + OFFSETS_LOOK_S
        topics_s = self._clock.monotonic() + TOPICS_LOOK_S
        while True:
            await self._clock.sleep(LOOK_S)
            self._take_seats()
            for seat in tuple(self._seats.values()):
                if self._may_write(seat):
                    seat.shard.time.go_on()
                    await seat.shard.look()
                else:
                    seat.shard.time.stand_still()
            if self._clock.monotonic() >= topics_s:
                topics_s = self._clock.monotonic() + TOPICS_LOOK_S
                await self.forget_topics()
            if self._clock.monotonic() >= next_s:
                next_s = self._clock.monotonic() + OFFSETS_LOOK_S
                await self.expire_offsets()

    def offset_books(self) -> Iterator[OffsetBook]:
        """Committed offsets of all groups that are coordinated here and have been read; any thread."""
        return (seat.shard.offsets for seat in tuple(self._seats.values()) if seat.holds and seat.shard.loaded)

    async def expire_offsets(self) -> None:
        """Forget offsets that are over."""
        now_ms = self._expiry_now_ms()
        if now_ms is None or not self._may_forget():
            return
        for seat in tuple(self._seats.values()):
            if self._may_write(seat):
                await expire_offsets(seat.shard, now_ms=now_ms, retention_ms=self.retention_ms)

    async def forget_topics(self) -> None:
        """Forget offsets of topics that are gone."""
        shards = [seat.shard for seat in self._seats.values() if seat.shard.loaded]
        over = await self.lives.look(await lives_in(shards), most=TOPICS_ASKED)
        certain = await gone_for_good(self._store(), over)
        for life in (life for life, is_gone in zip(over, certain, strict=True) if is_gone):
            for seat in tuple(self._seats.values()):
                if self._may_write(seat):
                    await forget_topic(seat.shard, life)

    def _may_write(self, seat: Seat) -> bool:
        # What could not be written is not decided by the clock: time stands still for the groups.
        shard = seat.shard
        return (
            seat.holds
            and shard.loaded
            and seat.leadership.isr_sufficient
            and not shard.log.is_stalled
            and not shard.log.is_full
        )

    async def coordinators(self, group_ids: Sequence[str], *, wait_s: float) -> list[CoordinatorPlace]:
        """Who coordinates each of the groups; the topic is created if need be.

        Raises:
            RegnumError: COORDINATOR_NOT_AVAILABLE: there is no topic yet.
        """
        return await self._places.of(group_ids, wait_s=wait_s)

    async def transaction_coordinators(self, ids: Sequence[str], *, wait_s: float) -> list[CoordinatorPlace]:
        """The same of transactional ids. Nobody serves any other call about them."""
        return await self._transactions.of(ids, wait_s=wait_s)

    def shard_of(self, group_id: str, *, writes: bool) -> Shard:
        """The shard of a group, ready to serve.

        Args:
            group_id: the group.
            writes: whether the call may change it.

        Raises:
            RegnumError: INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        if not 0 < len(group_id) <= GROUP_LENGTH_MAX:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_GROUP_ID, f"a group's name has 1 to {GROUP_LENGTH_MAX} characters"
            )
        if self._topic.view is None:
            raise self._topic.refusal()
        number = partition_of(group_id, self._topic.partitions)
        seat = self._seat(number)
        if seat is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_NOT_COORDINATOR,
                f"broker {self._replicas.broker} does not coordinate {group_id!r}: find its coordinator and ask there",
            )
        if not seat.shard.loaded:
            raise RegnumError(
                errors_pb2.ERROR_CODE_COORDINATOR_LOAD_IN_PROGRESS,
                f"broker {self._replicas.broker} still reads what is known of {group_id!r}: try again",
            )
        if writes and not seat.leadership.isr_sufficient:
            seat.shard.time.stand_still()
            raise _unavailable(f"{seat.leadership.insufficiency}; nothing was done: try again")
        if writes and seat.shard.log.is_stalled and seat.shard.log.obstacle:
            raise _unavailable(f"{seat.shard.log.obstacle}; nothing was done: try again")
        if writes and seat.shard.log.is_full:
            raise _unavailable("more waits to be written than this coordinator takes; nothing was done: try again")
        return seat.shard

    def check_room(self, shard: Shard, group_id: str, size_bytes: int, *, is_new: bool = True) -> None:
        """Raise RegnumError unless this broker takes on so many more bytes of a group.

        A part is kept for members that are there (not ``is_new``): they come back with more than they joined with.
        """
        shards = [seat.shard for seat in self._seats.values()]
        if group_id not in shard.groups and sum(len(one.groups) for one in shards) >= self._limits.groups_max:
            raise RegnumError(
                errors_pb2.ERROR_CODE_GROUP_MAX_SIZE_REACHED,
                f"this broker coordinates {self._limits.groups_max} groups, as many as one may; delete some",
            )
        most = self._limits.bytes_max if is_new else self._limits.bytes_max + self._limits.bytes_max // MEMBERS_DIVISOR
        if sum(one.size_bytes for one in shards) + size_bytes > most:
            raise RegnumError(
                errors_pb2.ERROR_CODE_GROUP_MAX_SIZE_REACHED,
                f"this broker holds {most} bytes of groups and offsets, as many as one may; delete groups that nobody"
                " needs",
            )

    def shards(self) -> Iterator[Shard]:
        """Those that this broker has now, loaded or not."""
        for seat in tuple(self._seats.values()):
            if seat.holds:
                yield seat.shard

    def end(self) -> None:
        """Send everybody away who waits: the broker stops."""
        for seat in tuple(self._seats.values()):
            self._vacate(seat)

    # Seats.

    def _take_seats(self) -> None:
        if self._topic.view is None:
            for seat in tuple(self._seats.values()):
                seat.set()
            return
        for number in range(self._topic.partitions):
            self._seat(number)

    def _seat(self, number: int) -> Seat | None:
        """The seat of a partition that this broker leads; a new one is taken."""
        found = self._replicas.find_leader(OFFSETS_TOPIC, "", number, known=True)
        seat = self._seats.get(number)
        if seat is not None:
            if seat.leadership is found:
                return seat
            self._vacate(seat)
        if not isinstance(found, Leadership):
            return None
        return self._take_seat(number, found)

    def _take_seat(self, number: int, leadership: Leadership) -> Seat:
        def failed(outcome: OwnAppend) -> None:
            self._failed(number, seat, outcome.message)

        log = GroupLog(
            append=lambda batch: self._append(leadership, batch), spawn=self._spawn, failed=failed, clock=self._clock
        )
        shard = Shard(log=log, clock=self._clock, session_s_min=self._session_s_min, counted=self._counted)
        seat = Seat(leadership, shard, self._vacate)
        self._seats[number] = seat
        leadership.partition.committed.attach(seat)
        seat.loading = self._spawn("load groups", self._load(number, seat))
        return seat

    async def _load(self, number: int, seat: Seat) -> None:
        pause_s = self._not_before_s.get(number, -math.inf) - self._clock.monotonic()
        if pause_s > 0:
            await self._clock.sleep(pause_s)
        began_s = self._clock.monotonic()
        try:
            loaded = await load(seat.shard, seat.leadership, self._storage)
        except NotLoadedError as error:
            self._failed(number, seat, str(error))
            return
        if loaded:
            self._counted.loads.record(self._clock.monotonic() - began_s)
            self._log.info(
                "groups read",
                partition=number,
                groups=len(seat.shard.groups),
                duration_s=round(self._clock.monotonic() - began_s, 3),
            )

    def _failed(self, number: int, seat: Seat, reason: str) -> None:
        """The shard may be ahead of its log, or could not be read: the next one begins from the log, a little later."""
        self._log.error("groups are read anew", partition=number, reason=reason)
        self._not_before_s[number] = self._clock.monotonic() + AGAIN_S
        self._vacate(seat, _unavailable(f"what was asked may not be on record: {reason}; look and try again"))

    def _vacate(self, seat: Seat, error: RegnumError | None = None) -> None:
        number = seat.leadership.partition.key.partition
        if self._seats.get(number) is not seat:
            return
        del self._seats[number]
        partition: Partition = seat.leadership.partition
        partition.committed.detach(seat)
        if seat.loading is not None:
            end_task(seat.loading)
        seat.shard.end(
            error
            or RegnumError(
                errors_pb2.ERROR_CODE_NOT_COORDINATOR,
                "this broker does not coordinate the group any more: find its coordinator and ask there",
            )
        )


def _unavailable(message: str) -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE, message)
