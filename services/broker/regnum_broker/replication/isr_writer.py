"""Writes the ISR changes that leaderships want, in batches of small conditional groups (safety rules S1, S3, S4).

Goals: a change stands in the store only if everything it relies on still held at that moment; the high watermark
never counts less than what the store may hold; thousands of partitions whose follower came back cost few
transactions.

Algorithm: for each leadership with a change, one group: the topic's guard exists, this broker's registration is the
one it believes in, each joining follower's registration is live and the very one its fetches carry, and the node is
at the version the leader knows. From before the write until a definite answer, the leadership counts the union of
both ISRs.

    written     the new ISR stands; it is reported to the controller (S16)
    refused     read the node again: same leader epoch and still ours: adopt it; otherwise step down and wait for
                LeaderAndIsr
    unknown     keep the union and repeat the same group (S1)
    expired     keep the union; the broker registers anew and leads nothing until then (S11)

A read after a refusal is sound: every guard that refused stays refused for this group (versions only grow), so no
earlier attempt can land later.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import structlog
from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import (
    Check,
    Expired,
    Fenced,
    Group,
    Node,
    Refused,
    Set,
    Store,
    Unknown,
    Written,
)
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey
from regnum_model.insync import with_isr
from regnum_model.nodes import BrokerNode, LeaderAndIsr, MalformedNodeError, Membership
from regnum_service.clock import Clock
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics

from regnum_broker.identity import Identity
from regnum_broker.replication.leader import IsrChange, Joining, Leadership

GROUPS_MAX: Final = 100
"""ISR changes in one batch."""

RETRY_S: Final = 0.25
"""Pause before a refused change is tried again, and before an unknown outcome is resolved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenIsr:
    """An ISR that stands in the store because this broker wrote it."""

    key: PartitionKey
    version: int
    """Version of its node after the write."""
    isr: tuple[BrokerId, ...]
    node: bytes = b""
    """Content of its node at that version; empty: the controller has to look for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One group on its way."""

    leadership: Leadership
    state: LeaderAndIsr
    """What the group writes."""
    group: Group


class IsrWriter:
    """The one task that changes ISRs. Belongs to the event loop of the store."""

    def __init__(
        self,
        *,
        broker: BrokerId,
        identity: Callable[[], Identity | None],
        store: Callable[[], Store | None],
        report: Callable[[WrittenIsr], None],
        step_down: Callable[[Leadership, str], None],
        clock: Clock,
        metrics: Metrics | None = None,
    ) -> None:
        counted = metrics or Metrics()
        self._shrinks: Final = counted.counter(instruments.ISR_SHRINKS)
        self._expands: Final = counted.counter(instruments.ISR_EXPANDS)
        self._broker: Final = broker
        self._identity: Final = identity
        self._store: Final = store
        self._report: Final = report
        self._step_down: Final = step_down
        self._clock: Final = clock
        self._log: Final = structlog.get_logger("isr")
        self._wanting: Final[dict[PartitionKey, Leadership]] = {}
        self._unresolved: Final[dict[PartitionKey, _Attempt]] = {}
        self._due: Final = asyncio.Event()

    def wake(self, leadership: Leadership) -> None:
        """Look at a leadership's ISR soon."""
        self._wanting[leadership.partition.key] = leadership
        self._due.set()

    async def run(self) -> None:
        """Write for ever; a task of the supervisor."""
        while True:
            await self._due.wait()
            self._due.clear()
            while self._wanting or self._unresolved:
                await self._round()
                if self._unresolved:
                    await self._clock.sleep(RETRY_S)

    async def _round(self) -> None:
        self._drop_resolved()
        wanting = [self._wanting.pop(key) for key in tuple(self._wanting)[: GROUPS_MAX - len(self._unresolved)]]
        store, identity = self._store(), self._identity()
        if store is None or identity is None:
            # Not registered: nothing may be written. Leaderships end with the next registration; until then, wait.
            if self._unresolved:
                await self._clock.sleep(RETRY_S)
            return
        attempts = await self._prepare(store, identity, wanting)
        attempts += self._unresolved.values()
        self._unresolved.clear()
        if not attempts:
            return
        outcomes = await store.write_batch([attempt.group for attempt in attempts])
        refused: list[_Attempt] = []
        now_s = self._clock.monotonic()
        for attempt, outcome in zip(attempts, outcomes, strict=True):
            if not self._is_current(attempt):
                continue
            match outcome:
                case Written(results=results):
                    stat = results[-1].stat
                    assert stat is not None, "a Set answers with its stat"  # noqa: S101
                    self._take_written(attempt, stat.version, now_s)
                case Refused(error=error):
                    self._log.info("isr write refused", partition=_name(attempt), reason=str(error))
                    refused.append(attempt)
                case Unknown():
                    self._unresolved[attempt.leadership.partition.key] = attempt
                case Expired() | Fenced():
                    self._log.info("isr write without session", partition=_name(attempt))
                case _:
                    assert_never(outcome)
        await self._reread(store, refused)

    def _drop_resolved(self) -> None:
        for key, attempt in tuple(self._unresolved.items()):
            if not self._is_current(attempt):
                del self._unresolved[key]

    def _is_current(self, attempt: _Attempt) -> bool:
        """Whether the leadership still stands and has heard nothing newer that settles the attempt."""
        leadership = attempt.leadership
        return leadership.partition.role is leadership and leadership.proposed_isr == attempt.state.isr

    async def _prepare(self, store: Store, identity: Identity, wanting: Sequence[Leadership]) -> list[_Attempt]:
        now_s = self._clock.monotonic()
        changes = [leadership.wanted_change(now_s) for leadership in wanting]
        joining = sorted({joiner.broker for change in changes if change for joiner in change.joining})
        try:
            nodes = await store.get_many([paths.broker_id(id) for id in joining], current=True) if joining else ()
        except (ConnectionLoss, SessionExpired) as error:
            self._log.info("isr change waits for the store", reason=str(error))
            return []
        registrations = dict(zip(joining, nodes, strict=True))
        attempts = []
        now_s = self._clock.monotonic()
        for leadership in wanting:
            # While the store answered, an order may have changed the role or the state, and the high watermark may have
            # left a follower behind: decided again here, where nothing can move before the proposed ISR counts.
            change = leadership.wanted_change(now_s)
            if change is None or leadership.partition.role is not leadership:
                continue
            attempt = self._attempt(leadership, change, registrations, identity)
            if attempt is None:
                leadership.retry_isr_s = now_s + RETRY_S
                continue
            leadership.proposed_isr = attempt.state.isr
            if change.joining:
                # Acknowledgements wait for them from here on: what a throttle has held back of them is to go.
                leadership.partition.appended.fire()
            attempts.append(attempt)
        return attempts

    def _attempt(
        self,
        leadership: Leadership,
        change: IsrChange,
        registrations: Mapping[BrokerId, Node | None],
        identity: Identity,
    ) -> _Attempt | None:
        state = leadership.state
        memberships: dict[BrokerId, Membership] = {}
        checks: list[Check] = []
        for joiner in change.joining:
            membership = _membership(joiner, registrations.get(joiner.broker))
            if membership is not None and joiner.broker not in state.isr:
                memberships[joiner.broker] = membership
                checks.append(Check(paths.broker_epoch(joiner.broker), joiner.registration))
                checks.append(Check(paths.broker_id(joiner.broker)))
        isr = (*(id for id in state.isr if id not in change.leaving), *memberships)
        if self._broker not in isr:
            return None
        key, topic = leadership.partition.key, leadership.partition.topic
        changed = with_isr(state, isr, min_insync=leadership.min_insync, joining=memberships)
        if changed == state:
            return None
        group: Group = (
            Check(paths.topic_id(key.topic_id)),
            Check(paths.broker_epoch(self._broker), identity.registration),
            Check(paths.broker_id(self._broker)),
            *checks,
            Set(paths.leader_and_isr(topic, key.partition), changed.encode(), leadership.version),
        )
        return _Attempt(leadership=leadership, state=changed, group=group)

    def _take_written(self, attempt: _Attempt, version: int, now_s: float) -> None:
        leadership = attempt.leadership
        before = leadership.state.isr
        self._shrinks.add(not set(before) <= set(attempt.state.isr))
        self._expands.add(not set(before) >= set(attempt.state.isr))
        leadership.written(attempt.state, version=version, now_s=now_s)
        self._log.info("isr changed", partition=_name(attempt), before=before, after=attempt.state.isr, version=version)
        self._report_state(attempt, version)
        self.wake(leadership)

    async def _reread(self, store: Store, refused: Sequence[_Attempt]) -> None:
        if not refused:
            return
        wanted = [
            paths.leader_and_isr(attempt.leadership.partition.topic, attempt.leadership.partition.key.partition)
            for attempt in refused
        ]
        try:
            nodes = await store.get_many(wanted, current=True)
        except (ConnectionLoss, SessionExpired):
            # The same groups again: they are refused again, or they were written; either way they are read then.
            self._unresolved.update((attempt.leadership.partition.key, attempt) for attempt in refused)
            return
        for attempt, node in zip(refused, nodes, strict=True):
            if self._is_current(attempt):
                self._adopt(attempt, node)

    def _adopt(self, attempt: _Attempt, node: Node | None) -> None:
        leadership, now_s = attempt.leadership, self._clock.monotonic()
        if node is None:
            self._step_down(leadership, "its leaderAndISR node is gone")
            return
        try:
            found = LeaderAndIsr.decode(node.data)
        except MalformedNodeError as error:
            # A leader that stepped down could not take the same epoch again when the node is restored (trace T4). What
            # was refused stays refused: the node is there, so its version has grown.
            self._log.error("leaderAndISR node cannot be read", partition=_name(attempt), reason=str(error))
            leadership.refused(now_s=now_s, retry_s=RETRY_S)
            return
        ours = leadership.state
        if found.topic_id == ours.topic_id and found.leader_epoch < ours.leader_epoch:
            # A state from before this leadership: the store went back, and its word deposes nobody (trace T9).
            self._log.error("leaderAndISR went back", partition=_name(attempt), leader_epoch=found.leader_epoch)
            leadership.refused(now_s=now_s, retry_s=RETRY_S)
            return
        if (found.topic_id, found.leader, found.leader_epoch) != (ours.topic_id, self._broker, ours.leader_epoch):
            self._step_down(leadership, f"leader {found.leader} was elected in epoch {found.leader_epoch}")
            return
        version = node.stat.version
        if version <= leadership.version:
            leadership.refused(now_s=now_s, retry_s=RETRY_S)
            if version < leadership.version:
                # Made anew by hand: the controller gives it an epoch that can be told from ours (safety rule S14).
                self._report(WrittenIsr(key=leadership.partition.key, version=version, isr=found.isr))
            return
        leadership.take(
            found, version=version, now_s=now_s, replicas=leadership.replicas, min_insync=leadership.min_insync
        )
        if found == attempt.state:
            self._report_state(attempt, version)

    def _report_state(self, attempt: _Attempt, version: int) -> None:
        """Tell the controller what an attempt wrote, as that version of the node."""
        self._report(
            WrittenIsr(
                key=attempt.leadership.partition.key,
                version=version,
                isr=attempt.state.isr,
                node=attempt.state.encode(),
            )
        )


def _membership(joiner: Joining, node: Node | None) -> Membership | None:
    """The log that a joining follower's live registration names; None when that registration is not its fetches'."""
    if node is None or node.stat.creation_id != joiner.broker_epoch:
        return None
    try:
        registration = BrokerNode.decode(node.data)
    except MalformedNodeError:
        return None
    if registration.registration != joiner.registration or len(registration.directories) != 1:
        return None
    (log_id,) = registration.directories.values()
    return Membership(broker_epoch=joiner.broker_epoch, log_id=log_id)


def _name(attempt: _Attempt) -> str:
    partition = attempt.leadership.partition
    return f"{partition.topic}-{partition.key.partition}"
