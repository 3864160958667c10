"""Unclean elections: a leader from outside ISR and ELR, where nobody else may lead (safety rules S10 and S14).

Goals
    A topic that would rather lose records than wait gets a leader without a person; a person gets one for any topic.
    What was given up is counted, and stands in the log with the reason.

Constraints
    The order of safety rule S10 stays: a member of the ISR, then of the ELR, and only then anybody else. Nothing here
    decides otherwise: every election is a recovery (``recovery.calls``), which asks the ordinary decision first, with
    the nodes as they are read in its turn. Only partitions whose state is whole: what is unreadable or gone is for a
    person to give up.

Algorithm
    By itself only for topics with ``unclean.leader.election.enable``, and only after PATIENCE_S without a leader in
    this reign: members of ISR and ELR that start more slowly than others come first. Of the replicas that answer, the
    one with the latest leader epoch in its last record leads, then the longest log, as KIP-966's unclean recovery
    has it (Kafka's ZooKeeper mode takes the first live one). Where none answers, it is asked again after RETRY_S; so
    it is where the best is one that a reassignment was filling, and an older replica that is live did not answer.
    Who has waited longest is asked first, and what a round had no time for waits on as it did: topics whose replicas
    do not answer take the time of a round, and not that of the others in every round.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from regnum_model.ids import NO_EPOCH, NO_LEADER, BrokerId, LeaderEpoch, PartitionKey
from regnum_service.errors import RegnumError
from regnum_service.slices import slices
from regnum_telemetry import conventions

from regnum_election.recovery.calls import PARTITIONS_MAX, PartitionRecoveries, Recovery, RecoveryRequest
from regnum_election.state.context import ControllerContext

INTERVAL_S: Final = 1.0
"""Pause between two looks at partitions without a leader."""

PATIENCE_S: Final = 5.0
"""How long a partition has been without a leader, as this reign knows it, before one is elected uncleanly by itself."""

RETRY_S: Final = 5.0
"""Pause before a partition is tried again of which no replica answered."""

WAIT_S: Final = 15.0
"""How long one round may take for each topic."""

TOPICS_AT_ONCE: Final = 8
"""Topics whose replicas are asked at the same time."""

PARTITIONS_PER_TURN: Final = 2_000
"""Partitions looked at between two turns of the event loop (safety rule S22)."""

BY_SETTING: Final = "unclean.leader.election.enable"
"""Who asked, when nobody did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What an unclean election chose, and what that costs."""

    chosen: BrokerId
    """Replica that was, or would be, elected."""
    leader_epoch: LeaderEpoch
    """Its leader epoch; NO_EPOCH: it was not elected."""
    may_be_lost: str
    """What may be lost, in a sentence."""
    unknown: tuple[BrokerId, ...]
    """Brokers whose records, as they are recorded, nobody knows."""


class UncleanElections:
    """Unclean elections of one reign."""

    def __init__(self, context: ControllerContext, recoveries: PartitionRecoveries) -> None:
        """Only assigns."""
        self._context: Final = context
        self._recoveries: Final = recoveries
        self._since_s: dict[PartitionKey, float] = {}
        """When partitions were first seen without a leader, or were tried last; monotonic seconds, oldest first."""
        self.elections = 0
        """Unclean elections of this reign."""
        self.looks = 0
        """How often it was looked for partitions of topics that allow it."""

    async def run(self, ready: Callable[[], Awaitable[None]]) -> None:
        """Elect by itself where topics allow it, once the reign has begun; a task that never ends."""
        await ready()
        while True:
            await self._context.clock.sleep(INTERVAL_S)
            if self._may_be_needed():
                await self._look()
            else:
                self._since_s.clear()
            self.looks += 1

    def _may_be_needed(self) -> bool:
        # Apart: whoever sleeps must not hold on to a picture of the past.
        picture = self._context.picture
        return bool(picture.unled) and picture.settings.unclean_anywhere

    async def elect(
        self, topics: Mapping[str, Sequence[int]], *, validate_only: bool, who: str, wait_s: float
    ) -> dict[tuple[str, int], Loss | RegnumError]:
        """Elect the best replicas of partitions that nobody may lead, or say which they are, by topic and number.

        Args:
            topics: partition numbers by topic name.
            validate_only: look only.
            who: who asks, for the log.
            wait_s: how long it may take.
        """
        found: dict[tuple[str, int], Loss | RegnumError] = {}
        room = asyncio.Semaphore(TOPICS_AT_ONCE)
        deadline_s = self._context.clock.monotonic() + wait_s

        async def one(topic: str, numbers: Sequence[int]) -> None:
            async with room:
                left_s = deadline_s - self._context.clock.monotonic()
                if left_s <= 0:
                    return
                request = RecoveryRequest(
                    topic=topic,
                    partitions=numbers,
                    first_partition=0,
                    accept_loss=not validate_only,
                    who=who,
                    cause=conventions.CAUSE_DECISION if who == BY_SETTING else conventions.CAUSE_REQUEST,
                    recorded_only=True,
                )
                try:
                    recovered = await self._recoveries.recover(request, wait_s=left_s)
                except RegnumError as error:
                    found.update(dict.fromkeys(((topic, number) for number in numbers), error))
                    return
                found.update({(topic, each.partition): _outcome(each) for each in recovered.recoveries})

        async with asyncio.TaskGroup() as group:
            for topic, numbers in topics.items():
                for start in range(0, len(numbers), PARTITIONS_MAX):
                    group.create_task(one(topic, numbers[start : start + PARTITIONS_MAX]), name=f"elect in {topic}")
        self.elections += sum(isinstance(each, Loss) and each.leader_epoch != NO_EPOCH for each in found.values())
        return found

    async def _look(self) -> None:
        """Elect where it is time to."""
        context, picture = self._context, self._context.picture
        now_s = context.clock.monotonic()
        since_s: dict[PartitionKey, float] = {}
        due: dict[str, list[int]] = {}
        async for some in slices(chain(self._since_s, picture.unled), PARTITIONS_PER_TURN):
            for key in some:
                if key in since_s or key not in picture.unled:
                    continue
                partition, topic = picture.partitions[key], picture.topics[key.topic_id]
                if partition.trouble is not None or partition.held is None:
                    continue
                if not picture.settings.unclean_allowed(topic.name):
                    continue
                since_s[key] = self._since_s.get(key, now_s)
                if now_s - since_s[key] >= PATIENCE_S:
                    due.setdefault(topic.name, []).append(key.partition)
        self._since_s = since_s
        if not due:
            return
        found = await self.elect(due, validate_only=False, who=BY_SETTING, wait_s=WAIT_S)
        again_s = context.clock.monotonic() + RETRY_S - PATIENCE_S
        for (name, number), outcome in found.items():
            key = PartitionKey(picture.names[name], number)
            self._since_s.pop(key, None)
            self._since_s[key] = again_s
            if isinstance(outcome, RegnumError):
                context.log.warning(
                    "unclean election did not happen", topic=name, partition=number, reason=outcome.message
                )


def _outcome(recovery: Recovery) -> Loss | RegnumError:
    assessment = recovery.assessment
    if recovery.rejection is not None:
        return RegnumError(recovery.rejection.code, recovery.rejection.message)
    return Loss(
        chosen=NO_LEADER if assessment is None or assessment.chosen is None else assessment.chosen,
        leader_epoch=recovery.leader_epoch,
        may_be_lost="" if assessment is None else assessment.may_be_lost,
        unknown=() if assessment is None else assessment.unknown,
    )
