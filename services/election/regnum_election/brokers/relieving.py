"""Carries out ``relief``: takes leadership from a broker from which its followers cannot fetch."""

import asyncio
from collections.abc import Collection
from typing import Final

from regnum.types.v1 import events_pb2
from regnum_model.ids import BrokerId, PartitionKey
from regnum_telemetry import conventions, tracing

from regnum_election.decisions.cluster import Cluster, Partition
from regnum_election.decisions.leadership import Decision, Refusal
from regnum_election.decisions.relief import RELIEF_INTERVAL_S, relieve
from regnum_election.history.events import Reason
from regnum_election.reign.events import LeaderCutOff
from regnum_election.state.context import ControllerContext
from regnum_election.state.partition_writes import change
from regnum_election.state.telling import tell

PARTITIONS_PER_WRITE: Final = 500
"""Partitions that are written and told together."""

PARTITIONS_PER_TURN: Final = 2_000
"""Partitions looked at between two turns of the event loop (safety rule S22)."""


class Relieving:
    """Of one reign. Used by the controller's one task only."""

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._relieved_s: dict[PartitionKey, float] = {}
        """When a partition was last taken from a leader that lives; monotonic seconds."""

    async def take(self, event: LeaderCutOff) -> None:
        """Hand over what may be handed over from a leader that lives and is cut off from its followers."""
        context, leader = self._context, event.leader
        known = context.picture.brokers.get(leader)
        if known is None or known.epoch != event.epoch:
            return

        def decide(picture: Cluster, key: PartitionKey, partition: Partition) -> Decision:
            if partition.held is None:
                # One that conflicted is decided about again later: it may have been removed and added anew since.
                return Refusal.NOTHING_TO_CHANGE
            return relieve(
                partition.held.state,
                partition.replicas,
                context.surroundings_of(key),
                leader=leader,
                cut_off=event.cut_off,
                min_insync=picture.min_insync(key, partition),
            )

        silent = ", ".join(map(str, sorted(event.cut_off.followers | event.cut_off.isolated)))
        reason = Reason(
            events_pb2.EVENT_CAUSE_LEADER_CUT_OFF,
            f"no fetches between broker {leader} and {silent}, as both sides say",
        )
        trace = context.changes.plan(
            conventions.KIND_BROKER_FAILURE,
            asked_unix_nano=tracing.now_unix_nano(),
            cause=conventions.CAUSE_CUT_OFF,
            victim=leader,
        )
        keys = await self._due(leader)
        moved = shrunk = 0
        for start in range(0, len(keys), PARTITIONS_PER_WRITE):
            chunk = keys[start : start + PARTITIONS_PER_WRITE]
            with context.traced(trace):
                applied = await change(context, chunk, decide, reason)
                await tell(context, applied)
            moved += self._note([key for key in chunk if not self._leads(leader, key)])
            shrunk += len(applied.isr_changes)
        trace.seal()
        if moved:
            context.log.warning(
                "leadership taken from a broker that its followers cannot reach",
                broker=leader,
                followers=sorted(event.cut_off.followers),
                partitions=moved,
            )

        if shrunk:
            followers = sorted(event.cut_off.isolated)
            context.log.warning(
                "isolated followers leave the ISR", broker=leader, followers=followers, partitions=shrunk
            )

    async def _due(self, leader: BrokerId) -> list[PartitionKey]:
        now_s = self._context.clock.monotonic()
        self._relieved_s = {key: at_s for key, at_s in self._relieved_s.items() if now_s - at_s < RELIEF_INTERVAL_S}
        due: list[PartitionKey] = []
        for count, key in enumerate(self._context.picture.of_broker(leader), 1):
            if count % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            if key not in self._relieved_s and self._leads(leader, key):
                due.append(key)
        return due

    def _leads(self, leader: BrokerId, key: PartitionKey) -> bool:
        partition = self._context.picture.partitions.get(key)
        return partition is not None and partition.held is not None and partition.held.state.leader == leader

    def _note(self, keys: Collection[PartitionKey]) -> int:
        now_s = self._context.clock.monotonic()
        self._relieved_s.update(dict.fromkeys(keys, now_s))
        return len(keys)
