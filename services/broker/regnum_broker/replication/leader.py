"""A partition as its leader sees it: followers' progress, ISR, high watermark.

Belongs to the event loop and does no I/O. Decisions are in ``replication``; ISR changes are written by ``isr_writer``.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final

from regnum_model.ids import BrokerEpoch, BrokerId, Registration
from regnum_model.insync import may_commit, may_let_go
from regnum_model.nodes import LeaderAndIsr

from regnum_broker.replication.decisions import isr, watermark
from regnum_broker.replication.decisions.isr import NEVER_S, FollowerProgress
from regnum_broker.replication.partition import Partition, Role
from regnum_broker.replication.traces.new_leader import NewLeader


@dataclass(slots=True, kw_only=True, eq=False)
class FollowerStream:
    """A follower's fetch stream as far as leaderships care; kept by the fetch session."""

    broker: BrokerId
    """The follower."""
    broker_epoch: BrokerEpoch
    """Broker epoch that its newest request carried."""
    registration: Registration
    """Registration that its newest request carried (safety rule S3)."""
    polled_s: float
    """Moment of its newest request, monotonic seconds. A request renews every position of the session."""
    stores_nothing: str = ""
    """Why its newest request said that it stores nothing, in words; empty: it stores."""
    open: bool = True
    """False once the stream has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """A follower that may enter the ISR as far as its log goes."""

    broker: BrokerId
    """The follower."""
    broker_epoch: BrokerEpoch
    """Broker epoch that its fetches carry."""
    registration: Registration
    """Registration that its fetches carry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """A change of the ISR that the leader wants. Without members: only the eligible replicas are to be let go."""

    leaving: tuple[BrokerId, ...]
    """Members that lag."""
    joining: tuple[Joining, ...]
    """Followers that caught up."""


NO_LOG_STARTS: Final[Mapping[BrokerId, int]] = {}
"""Of followers whose logs begin at 0, as most do."""


class Leadership(Role):
    """This broker's leadership of one partition in one leader epoch."""

    __slots__ = (
        "_end",
        "_incomplete",
        "_log_starts",
        "_progress",
        "_removed_s",
        "_streams",
        "adding",
        "began_s",
        "broker",
        "cause",
        "cut_off",
        "epoch_start",
        "lag_s",
        "min_insync",
        "new",
        "partition",
        "proposed_isr",
        "replicas",
        "retry_isr_s",
        "state",
        "tenure",
        "version",
    )

    def __init__(
        self,
        partition: Partition,
        state: LeaderAndIsr,
        *,
        version: int,
        replicas: Sequence[BrokerId],
        min_insync: int,
        epoch_start: int,
        broker: BrokerId,
        lag_s: float,
        now_s: float,
        cause: str = "",
        began_unix_nano: int = 0,
        adding: Sequence[BrokerId] = (),
    ) -> None:
        self.partition: Final = partition
        self.tenure: Final[object] = object() if partition.promised is None else partition.promised.tenure
        self.state = state
        """The node as it is known to stand in the store."""
        self.version = version
        """Version of that node."""
        self.replicas = tuple(replicas)
        """Assigned replicas."""
        self.min_insync = min_insync
        """Effective min.insync.replicas."""
        self.adding = tuple(adding)
        """Replicas that a reassignment brings in."""
        self.cause: Final = cause
        """Place in the trace of the failover that made this leadership; empty: none."""
        self.new = NewLeader(began_unix_nano) if cause else None
        """What its first append is still to be recorded with; None: nothing is, or it is."""
        self.began_s: Final = now_s
        """When it began, monotonic seconds."""
        self.cut_off = False
        """Whether it may be over without this broker having heard of it; clients are sent away (safety rule S8)."""
        self.epoch_start: Final = epoch_start
        """Log end when this epoch began."""
        self.broker: Final = broker
        self.lag_s: Final = lag_s
        self.proposed_isr: tuple[BrokerId, ...] | None = None
        """ISR of a write whose outcome is not known; counts beside the present one (safety rule S1)."""
        self.retry_isr_s = NEVER_S
        """Not before this moment is another ISR write tried, after one was refused."""
        self._end = epoch_start
        """Log end as far as this loop has heard: records that the writer has added since are not yet looked at."""
        in_sync = isr.at_new_epoch(in_sync=True, now_s=now_s)
        self._progress: Final[dict[BrokerId, FollowerProgress]] = {
            id: in_sync if id in state.isr else isr.UNSEEN for id in replicas if id != broker
        }
        self._streams: Final[dict[BrokerId, FollowerStream]] = {}
        self._removed_s: Final[dict[BrokerId, float]] = {}
        self._incomplete: dict[Leadership, None] | None = None
        self._log_starts: Mapping[BrokerId, int] = NO_LOG_STARTS

    def keep_in(self, incomplete: "dict[Leadership, None] | None") -> None:
        """Be in there from now on whenever the ISR is not ``complete``; None: nowhere any more."""
        if self._incomplete is not None:
            self._incomplete.pop(self, None)
        self._incomplete = incomplete
        self._show()

    def _show(self) -> None:
        if self._incomplete is None:
            return
        if self.complete:
            self._incomplete.pop(self, None)
        else:
            self._incomplete[self] = None

    @property
    def isr_sufficient(self) -> bool:
        """Whether the state that the store holds lets records be committed (safety rule S10)."""
        return may_commit(self.state, min_insync=self.min_insync)

    @property
    def insufficiency(self) -> str:
        """Why it does not, for people."""
        return _insufficiency(self.state, self.min_insync, self.storing_nothing)

    @property
    def storing_nothing(self) -> dict[BrokerId, str]:
        """Followers that say that they store nothing, with why."""
        return {id: stream.stores_nothing for id, stream in self._streams.items() if stream.stores_nothing}

    @property
    def knows_committed(self) -> bool:
        """Whether the high watermark is past every record of earlier leaders: before, it may be behind theirs."""
        return self.partition.high_watermark >= self.epoch_start

    @property
    def heard_s(self) -> float:
        """Moment of the newest fetch request of another member of the ISR; before the first, of the beginning."""
        polled_s = (stream.polled_s for id, stream in self._streams.items() if id in self.state.isr)
        return max(self.began_s, max(polled_s, default=NEVER_S))

    @property
    def complete(self) -> bool:
        """Whether every assigned replica is in the ISR, and nothing is left to be written."""
        return len(self.state.isr) == len(self.replicas) and not self.state.elr

    @property
    def at_rest(self) -> bool:
        """Whether nobody can lag, join or be waited for, until something happens that the loop hears of.

        All of the log is committed, every assigned replica is in the ISR, and stands at the end of the log.
        """
        end = self._end
        if (
            self.partition.high_watermark != end
            or self.proposed_isr is not None
            or self.partition.log.log_end_offset != end
            or not self.complete
        ):
            return False
        isr = self.state.isr
        for id, progress in self._progress.items():  # noqa: SIM110 - thousands are asked, one after another
            if progress.log_end_offset != end or id not in isr:
                return False
        return True

    @property
    def has_followers(self) -> bool:
        """Whether there are other assigned replicas."""
        return bool(self._progress)

    def progress_of(self, broker: BrokerId) -> FollowerProgress | None:
        """What is known of a follower; None: not an assigned replica."""
        return self._progress.get(broker)

    def record_fetch(self, stream: FollowerStream, *, offset: int, now_s: float) -> bool:
        """Take up that a follower's log ends at ``offset``.

        False: it is not an assigned replica, or speaks for an earlier life than the one that the store has as a member.
        """
        progress, member = self._progress.get(stream.broker), self.state.members.get(stream.broker)
        if progress is None or (member is not None and stream.broker_epoch < member.broker_epoch):
            return False
        self._streams[stream.broker] = stream
        self._progress[stream.broker] = isr.after_fetch(
            progress, offset=offset, leader_end=self.partition.log.log_end_offset, now_s=now_s
        )
        self.advance(now_s)
        return True

    def record_log_start(self, broker: BrokerId, offset: int) -> None:
        """Take up where a follower's log begins; wakes who waits for that."""
        if offset != self._log_starts.get(broker, 0):
            self._log_starts = {**self._log_starts, broker: offset}
            self.partition.committed.fire()

    @property
    def low_watermark(self) -> int:
        """Smallest start of the log here and of replicas that may lead next or fetch. Of one unheard of it is 0."""
        counted = {id for id, stream in self._streams.items() if stream.open}
        counted = counted.union(self.state.isr, self.state.elr, self.proposed_isr or ()) - {self.broker}
        starts = (self._log_starts.get(id, 0) for id in counted)
        return min(self.partition.log.log_start_offset, min(starts, default=self.partition.log.log_start_offset))

    def appended(self, base_offset: int, *, now_s: float) -> None:
        """Take up that records from ``base_offset`` on were appended; wakes followers, moves the high watermark."""
        self._end = self.partition.log.log_end_offset
        for id, stream in self._streams.items():
            progress = self._progress[id]
            if stream.open and progress.log_end_offset == base_offset:
                # It stood at the log end and asked for more: its newest request was a fetch at the log end.
                self._progress[id] = isr.after_fetch(
                    progress, offset=base_offset, leader_end=base_offset, now_s=max(stream.polled_s, progress.fetched_s)
                )
        self.partition.appended.fire()
        self.advance(now_s)

    def advance(self, now_s: float) -> None:
        """Move the high watermark if it may move."""
        present = self.partition.high_watermark
        self.partition.commit(
            watermark.advanced(
                present,
                leader=self.broker,
                leader_end=self.partition.log.log_end_offset,
                counted=self._counted(now_s),
                followers=self._progress,
                state=self.state,
                min_insync=self.min_insync,
            )
        )

    def wanted_change(self, now_s: float) -> IsrChange | None:
        """How the ISR should change now; None: not at all, or a write is on its way already."""
        if self.proposed_isr is not None or now_s < self.retry_isr_s:
            return None
        leaving = isr.lagging(
            self.state.isr,
            self._progress,
            leader=self.broker,
            # Not what the writer has added meanwhile: a follower that stood at the end of a partition that was idle for
            # longer than the lag limit is known to have been there until just now only once ``appended`` has said so.
            leader_end=self._end,
            now_s=now_s,
            lag_s=self.lag_s,
            storing_nothing=self.storing_nothing,
        )
        joining = tuple(
            [
                Joining(broker=id, broker_epoch=stream.broker_epoch, registration=stream.registration)
                for id, stream in self._streams.items()
                if id not in self.state.isr and self._may_join(id, stream)
            ]
        )
        if not leaving and not joining and not may_let_go(self.state, min_insync=self.min_insync):
            return None
        return IsrChange(leaving=leaving, joining=joining)

    def fetching_members(self) -> list[tuple[BrokerId, int, int]]:
        """Members of the ISR that fetch here, with the starts and ends of their logs as heard last."""
        members = [id for id, stream in self._streams.items() if stream.open and id in self.state.isr]
        return [(id, self._log_starts.get(id, 0), self._progress[id].log_end_offset) for id in members]

    def is_throttled(self, broker: BrokerId, now_s: float) -> bool:
        """Whether what a follower fetches counts as a reassignment's; never where acknowledgements wait for it."""
        return broker in self.adding and broker not in self._counted(now_s)

    def take(
        self,
        state: LeaderAndIsr,
        *,
        version: int,
        now_s: float,
        replicas: Sequence[BrokerId],
        min_insync: int,
        adding: Sequence[BrokerId] | None = None,
    ) -> None:
        """Take a newer state of the same leader epoch, from the controller or read in the store.

        A write on its way can no longer happen: its version is past.
        """
        for id in self.state.isr:
            if id not in state.isr:
                # Whoever was taken out must ask again before it may hold the high watermark up or join.
                self._removed_s[id] = now_s
        for id in replicas:
            if id != self.broker and id not in self._progress:
                self._progress[id] = isr.at_new_epoch(in_sync=id in state.isr, now_s=now_s)
        _keep_only({*replicas, *state.isr}, self._progress, self._streams)
        self.replicas = tuple(replicas)
        self.min_insync = min_insync
        if adding is not None:
            self.adding = tuple(adding)
        self._settle(state, version, now_s)

    def take_settings(
        self, *, min_insync: int, replicas: Sequence[BrokerId], now_s: float, adding: Sequence[BrokerId] = ()
    ) -> None:
        """Take up another min.insync.replicas, or another assignment, under a state that stays.

        A write on its way may still happen, so whoever it adds stays for the time being, as every member of the ISR
        does. Members go with a new leader epoch only.
        """
        self.adding = tuple(adding)
        if tuple(replicas) != self.replicas:
            self._take_replicas(replicas, now_s)
        if min_insync != self.min_insync:
            self.min_insync = min_insync
            if self.new is not None:
                self.new.look(self)
            self.advance(now_s)

    def _take_replicas(self, replicas: Sequence[BrokerId], now_s: float) -> None:
        self.replicas = tuple(replicas)
        for id in replicas:
            if id != self.broker:
                self._progress.setdefault(id, isr.at_new_epoch(in_sync=id in self.state.isr, now_s=now_s))
        _keep_only({*replicas, *self.state.isr, *(self.proposed_isr or ())}, self._progress, self._streams)
        self._show()
        # Those that were added may have asked before this broker knew them.
        self.partition.appended.fire()

    def written(self, state: LeaderAndIsr, *, version: int, now_s: float) -> None:
        """Take up that the proposed ISR stands in the store."""
        self._settle(state, version, now_s)

    def refused(self, *, now_s: float, retry_s: float) -> None:
        """Take up that the proposed ISR was not written and never will be."""
        self.retry_isr_s = now_s + retry_s
        self._settle(self.state, self.version, now_s)

    def _settle(self, state: LeaderAndIsr, version: int, now_s: float) -> None:
        for id in self.state.isr:
            if id not in state.isr and id in self._progress:
                self._progress[id] = replace(self._progress[id], left_at=self._progress[id].log_end_offset)
        for id in state.isr:
            if id not in self.state.isr and id in self._progress:
                progress = self._progress[id]
                self._progress[id] = replace(progress, caught_up_s=max(progress.caught_up_s, now_s))
        self.state = state
        self.version = self.partition.version = version
        self.proposed_isr = None
        self._show()
        if self.new is not None:
            self.new.look(self)
        self.advance(now_s)

    def _counted(self, now_s: float) -> set[BrokerId]:
        counted = {*self.state.isr, *(self.proposed_isr or ())}
        leader_end = self.partition.log.log_end_offset
        for id, stream in self._streams.items():
            if (
                id not in counted
                and self._polls(id, stream)
                and isr.is_caught_up(self._progress[id], leader_end=leader_end, now_s=now_s, lag_s=self.lag_s)
            ):
                counted.add(id)
        return counted

    def _polls(self, id: BrokerId, stream: FollowerStream) -> bool:
        return stream.open and stream.polled_s > self._removed_s.get(id, NEVER_S)

    def _may_join(self, id: BrokerId, stream: FollowerStream) -> bool:
        return (not stream.stores_nothing and self._polls(id, stream)) and isr.may_join(
            self._progress[id], self._end, high_watermark=self.partition.high_watermark, epoch_start=self.epoch_start
        )


def _insufficiency(state: LeaderAndIsr, min_insync: int, storing_nothing: Mapping[BrokerId, str]) -> str:
    if len(state.isr) < min_insync:
        full = (f"; broker {id} stores nothing: {why}" for id, why in storing_nothing.items())
        return f"{len(state.isr)} of {min_insync} needed replicas are in sync{''.join(full)}"
    return f"replicas {list(state.elr)} are still eligible from before min.insync.replicas changed"


def _keep_only(staying: AbstractSet[BrokerId], *known: dict[BrokerId, Any]) -> None:
    """Forget all brokers but those."""
    for of_brokers in known:
        for id in of_brokers.keys() - staying:
            del of_brokers[id]
