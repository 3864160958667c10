"""Partitions that come and go: what is committed first, what the application is told, from where it reads on."""

import asyncio
import logging
import random
from collections.abc import Coroutine, Iterable
from typing import Any, Final, assert_never

from regnum.types.v1 import errors_pb2
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.admin.groups.views import CommittedOffset
from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.offsets import FIRST, HIGH_WATERMARK, OffsetLookup
from regnum_client.cluster.pace import retry_delay_ms
from regnum_client.consumer.cursor import Cursor
from regnum_client.consumer.fetching.fetcher import Fetcher
from regnum_client.consumer.groups.commits import Commits
from regnum_client.consumer.groups.gate import Gate
from regnum_client.consumer.groups.listener import OffsetAndMetadata, RebalanceListener
from regnum_client.consumer.groups.members.member_events import GivenUp, GiveUp, Partitions, TakenUp, TakeUp
from regnum_client.consumer.positions import ResetPolicy
from regnum_client.consumer.settings import ConsumerSettings
from regnum_client.errors import NoOffsetForPartitionError
from regnum_client.records import TopicPartition
from regnum_client.tasks import Tasks

_LOG: Final = logging.getLogger("regnum_client")


class Handover:
    """Of one member."""

    def __init__(
        self,
        group_id: str,
        *,
        gate: Gate,
        commits: Commits,
        fetcher: Fetcher,
        metadata: Metadata,
        lookup: OffsetLookup,
        listener: RebalanceListener | None,
        settings: ConsumerSettings,
        clock: Clock,
        chance: random.Random,
        tasks: Tasks,
    ) -> None:
        """Only assigns."""
        self._tasks: Final = tasks
        self._group_id: Final = group_id
        self._gate: Final = gate
        self._commits: Final = commits
        self._fetcher: Final = fetcher
        self._metadata: Final = metadata
        self._lookup: Final = lookup
        self._listener: Final = listener
        self._settings: Final = settings
        self._clock: Final = clock
        self._chance: Final = chance

    def keep(self, partitions: Partitions) -> None:
        """Nothing is read any more but these, from this moment on."""
        for partition in self._fetcher.cursors.keys() - partitions:
            self._fetcher.unassign(partition)

    def finished(self) -> dict[TopicPartition, int]:
        """For each partition that is read, the first offset that the application is not done with.

        What it has in hand it has not done with, unless it has committed it.
        """
        finished = {one: cursor.position for one, cursor in self._fetcher.cursors.items() if cursor.has_place}
        for partition, first in self._gate.in_hand().items():
            position = finished.get(partition)
            if position is not None and first < position:
                committed = self._commits.confirmed(partition)
                finished[partition] = committed if first < committed <= position else first
        return finished

    async def commit_finished(self, among: Partitions) -> None:
        """Commit what is finished and was not committed. What goes wrong is logged, and left to the next time."""

        def news() -> dict[TopicPartition, OffsetAndMetadata]:
            cursors = self._fetcher.cursors
            return {
                one: OffsetAndMetadata(at, cursors[one].read_epochs.before(at))
                for one, at in self.finished().items()
                if one in among and self._commits.is_news(one, at)
            }

        try:
            await self._commits.commit(news, timeout_s=self._settings.commit_timeout_s)
        except RegnumError as error:
            _LOG.warning("group %s: %s", self._group_id, error.message)

    async def give_up(self, action: GiveUp) -> GivenUp:
        """As soon as the application is done with what it has of them."""
        listener = self._listener
        # Who has lost partitions is not a member again before the application knows.
        needed = action.lost or (listener is not None and bool(action.partitions))
        async with self._gate.meeting(needed=needed):
            if self._settings.enable_auto_commit and not action.lost:
                await self.commit_finished(action.partitions)
            if listener is not None and action.partitions:
                told = listener.on_partitions_lost if action.lost else listener.on_partitions_revoked
                await self._tell(told(sorted(action.partitions)))
            for partition in action.partitions:
                self._fetcher.unassign(partition)
            self._commits.forget(action.partitions)
        return GivenUp()

    async def take_up(self, action: TakeUp) -> TakenUp:
        """From where the group has come to.

        What nobody here knows, or has no leader, is missing and keeps the rest not waiting. It is asked for again,
        ``late``: until some of it can be read.
        """
        listener = self._listener
        if not action.partitions:
            return TakenUp()
        began_s = self._clock.monotonic()
        committed: dict[TopicPartition, CommittedOffset | None] = {}
        told = not action.late
        while not (cursors := await self._cursors(action.partitions, committed)) and action.late:
            lasted_s = self._clock.monotonic() - began_s
            if lasted_s > self._settings.topic_wait_s and not told:
                told = True
                for one in sorted(action.partitions):
                    _LOG.warning("group %s: %s/%d was assigned and cannot be read yet", self._group_id, *one)
            self._metadata.request()
            await self._pause(lasted_s)
        if listener is None:
            self._install(cursors)
        elif cursors:
            async with self._gate.meeting(needed=True):
                self._install(cursors)
                await self._tell(listener.on_partitions_assigned([cursor.partition for cursor in cursors]))
        return TakenUp(action.partitions - {cursor.partition for cursor in cursors})

    def _install(self, cursors: Iterable[Cursor]) -> None:
        for cursor in cursors:
            self._fetcher.assign(cursor)
            if cursor.error is not None:
                self._fetcher.arrivals.add(cursor)
                self._fetcher.arrived.set()

    async def _tell(self, telling: Coroutine[Any, Any, None]) -> None:
        """Let a listener know; what it raises is the reader's."""
        task = self._tasks.start_question("rebalance-listener", telling)
        self._gate.acts(task)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            # What it does at its end runs beside nothing either: the gate stays shut until then.
            await self._tasks.end(task)
            raise
        finally:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                if self._gate.ended:
                    _LOG.error("group %s: the rebalance listener failed", self._group_id, exc_info=error)
                self._gate.report(error)

    async def _known(self, partitions: Partitions) -> list[TopicPartition]:
        """Those that brokers know, by now and still."""
        try:
            await self._metadata.use({one.topic for one in partitions}, timeout_s=self._settings.topic_wait_s)
        except RegnumError as error:
            _LOG.warning("group %s: %s", self._group_id, error.message)
        topics = self._metadata.view.topics
        return sorted(
            one
            for one in partitions
            if (known := topics.get(one.topic)) is not None and one.partition in known.partitions
        )

    async def _cursors(
        self, partitions: Partitions, committed: dict[TopicPartition, CommittedOffset | None]
    ) -> list[Cursor]:
        """Where each begins, as far as that can be said now: at what is committed, else as the settings say.

        ``committed`` keeps what the coordinator said: while the partitions are this member's, nobody else commits.
        """
        known = await self._known(partitions)
        unasked = [one for one in known if one not in committed]
        committed |= await self._commits.committed(unasked, timeout_s=None)
        starts = {one: found.offset for one in known if (found := committed[one]) is not None}
        fresh = [one for one in known if one not in starts]
        policy = ResetPolicy.of(self._settings.auto_offset_reset)
        match policy:
            case ResetPolicy.EARLIEST:
                starts |= await self._looked_up(fresh, FIRST)
            case ResetPolicy.LATEST:
                starts |= await self._looked_up(fresh, HIGH_WATERMARK)
            case ResetPolicy.FAIL:
                pass
            case _:
                assert_never(policy)
        fails = policy is ResetPolicy.FAIL
        cursors: list[Cursor] = []
        for partition in known:
            view = self._metadata.view.topics.get(partition.topic)
            if view is None or not (partition in starts or fails):
                # Gone since it was looked for, or without a leader.
                continue
            found = committed[partition]
            # With the epoch it is noticed when the last record that the group processed was lost since (KIP-320).
            epoch = None if found is None else found.leader_epoch
            cursor = Cursor(partition, view.topic_id, starts.get(partition, 0), leader_epoch=epoch)
            if partition not in starts:
                cursor.error = NoOffsetForPartitionError(partition, group_id=self._group_id)
            if found is not None:
                self._commits.found(partition, found.offset)
            cursors.append(cursor)
        return cursors

    async def _looked_up(self, partitions: list[TopicPartition], query: int) -> dict[TopicPartition, int]:
        """Ends of logs, as far as leaders say."""
        found: dict[TopicPartition, int] = {}
        if not partitions:
            return found
        for partition, said in (await self._lookup.look_up_now(partitions, query)).items():
            if not isinstance(said, RegnumError):
                found[partition] = said
            elif said.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION:
                self._metadata.ask_about([partition.topic])
        return found

    async def _pause(self, lasted_s: float) -> None:
        await self._clock.sleep(retry_delay_ms(lasted_s * 1000, self._chance.random()) / 1000)
