"""Fetches ahead for the partitions of a consumer.

Goals: the reader never waits for a broker that has records; a change of leader skips nothing and repeats nothing.

Algorithm: one task turns whenever something happened; for every leader it gathers the partitions that have room for
another chunk and are not being asked for, into one long poll; ``departures`` knows them. Several polls to one leader
may be under way, so that a partition that has just been read does not wait for a poll of idle ones. A position only
moves by what was read from answers of its own generation, so a change of leader is nothing but a pause. A leader that
was deposed without having heard of it answers every poll, with nothing: while nothing comes from a partition, other
brokers are asked who leads it, at intervals that grow with the silence (KIP-320 asks the leader itself, which is no
help here). A poll to a leader that is known to be replaced is abandoned as in ``sender``.
"""

import asyncio
import logging
import random
from collections import Counter
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.ids import BrokerId
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError, reason_of
from regnum_telemetry import tracing

from regnum_client.cluster.connections import Connections
from regnum_client.cluster.hints import hints_of
from regnum_client.cluster.leaderless import Leaderless
from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.offsets import OffsetLookup
from regnum_client.cluster.view import ClusterView, LeaderTerm
from regnum_client.consumer.arrivals import Arrivals
from regnum_client.consumer.cursor import Chunk, Cursor
from regnum_client.consumer.fetching.intake import Intake
from regnum_client.consumer.fetching.outages import ConsumerOutages
from regnum_client.consumer.fetching.polls import Asking, FetchCalls, Poll
from regnum_client.consumer.fetching.read_ahead import ReadAhead
from regnum_client.consumer.fetching.silence import QUIET_S, Comparisons, Silence
from regnum_client.consumer.positions import ResetPolicy
from regnum_client.producer.departures import Departures, Place
from regnum_client.records import TopicPartition
from regnum_client.tasks import AbandonedError, Tasks

_LOG: Final = logging.getLogger("regnum_client")

CHUNKS_MAX: Final = 2
"""Unread answers of one partition: one being read, one in reserve."""
POLLS_MAX: Final = 4
"""Polls under way to one leader."""
SLOW_S: Final = 0.5
"""A poll that is this late is looked at."""
GONE_S: Final = 5.0
"""A topic that no broker knows for so long is gone."""
LARGE_BYTES: Final = 64 * 1024
"""Batches of one partition that are worth a turn of the event loop."""
IDLE_S: Final = 60.0
"""The task turns at least so often."""


class Fetcher:
    """The task that fetches. The consumer reads from ``cursors``."""

    def __init__(
        self,
        connections: Connections,
        metadata: Metadata,
        lookup: OffsetLookup,
        *,
        clock: Clock,
        chance: random.Random,
        client_id: str,
        reset: ResetPolicy,
        wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        partition_max_bytes: int,
        buffer_bytes: int,
        request_timeout_s: float,
        tasks: Tasks,
        outages: ConsumerOutages,
        client_rack: str = "",
    ) -> None:
        self._outages: Final = outages
        self._tasks: Final = tasks
        self._metadata: Final = metadata
        self._clock: Final = clock
        self._chance: Final = chance
        self._intake: Final = Intake(
            metadata,
            lookup,
            arrived=self._arrived,
            reset=reset,
            request_timeout_s=request_timeout_s,
            clock=clock,
            chance=chance,
        )
        asking = Asking(RequestHeader(client_id=client_id), wait_ms, min_bytes, partition_max_bytes, client_rack)
        timeout_s = wait_ms / 1000 + request_timeout_s
        self._calls: Final = FetchCalls(connections, asking, timeout_s=timeout_s, clock=clock, chance=chance)
        self._throttles: Final = self._calls.throttles
        self._slow_s: Final = wait_ms / 1000 + SLOW_S
        self._read_ahead: Final = ReadAhead(buffer_bytes=buffer_bytes, poll_bytes_max=max_bytes, polls_max=POLLS_MAX)
        self.cursors: Final[dict[TopicPartition, Cursor]] = {}
        """Assigned partitions."""
        self.arrivals: Final = Arrivals()
        """Those with something to read."""
        self.arrived: Final = asyncio.Event()
        """Set when a chunk or an error came in."""
        self._event: Final = asyncio.Event()
        self._polls: dict[Poll, None] = {}
        self._polls_to: Counter[BrokerId] = Counter()
        self._comparisons: Final = Comparisons()
        self._looked_with = ClusterView()
        self._departures: Final = Departures[Cursor]()
        self._leaderless: Final = Leaderless()
        self._silence: Final = Silence(quiet_s=QUIET_S)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin fetching."""
        self._metadata.listen(self.wake)
        self._task = self._tasks.start("consumer-fetcher", self._run())

    async def close(self) -> None:
        """Stop fetching."""
        tasks = [poll.task for poll in self._polls if poll.task is not None]
        if self._task is not None:
            tasks.append(self._task)
            self._task = None
        await self._tasks.end(*tasks)

    def assign(self, cursor: Cursor) -> None:
        """Fetch for a partition."""
        self._metadata.keep(cursor.partition.topic)
        self.cursors[cursor.partition] = cursor
        self._silence.heard(cursor, self._clock.monotonic())
        self.go_on(cursor)

    def unassign(self, partition: TopicPartition) -> None:
        """Fetch for it no more; nothing happens when it is not assigned."""
        cursor = self.cursors.pop(partition, None)
        if cursor is None:
            return
        cursor.seek(cursor.position)
        self.arrivals.discard(cursor)
        self._silence.forget(cursor)
        self._outages.forget(partition)
        self._departures.leave(partition)

    def pause(self, cursor: Cursor) -> None:
        """Fetch for an assigned partition no more for a while; nothing happens when it is paused."""
        if cursor.paused:
            return
        cursor.paused = True
        # What is kept for nobody would take the room of those that are read.
        cursor.go_back(cursor.position)
        self.arrivals.discard(cursor)
        self._silence.forget(cursor)
        self._outages.forget(cursor.partition)
        # It may stand in line for a poll that has no room yet.
        self._departures.leave(cursor.partition)

    def resume(self, cursor: Cursor) -> None:
        """Fetch for it again; nothing happens when it is not paused."""
        if cursor.paused:
            cursor.paused = False
            self._silence.heard(cursor, self._clock.monotonic())
            self.go_on(cursor)

    def go_on(self, cursor: Cursor) -> None:
        """There may be room for what comes next from an assigned partition, or it is another offset."""
        if self.cursors.get(cursor.partition) is cursor:
            self._departures.enter(cursor.partition, cursor)
            self._event.set()

    def begin_chunk(self) -> tuple[Cursor, Chunk] | None:
        """The next chunk to read. Raises an error of a partition whose turn it is."""
        begun = self.arrivals.take()
        if begun is not None:
            self._silence.heard(begun[0], self._clock.monotonic())
            self.go_on(begun[0])
        return begun

    def wake(self) -> None:
        """Let the task turn."""
        self._event.set()

    async def _run(self) -> None:
        while True:
            pause_s = self._turn()
            try:
                async with asyncio.timeout(pause_s):
                    await self._event.wait()
            except TimeoutError:
                continue
            self._event.clear()

    def _turn(self) -> float:
        now_s = self._clock.monotonic()
        view = self._metadata.view
        self._look_at_slow_polls(now_s, view)
        again_s = min([now_s + IDLE_S, self._compare_quiet(now_s, view), *self._throttles.endings_s(now_s)])
        departures = self._departures
        for partition, cursor in departures.look_at(view, now_s, identity=False):
            term = self._term(cursor, view, now_s)
            if term is not None:
                departures.line_up(partition, cursor, cursor.place.broker(term, now_s))
        if departures.lack_picture:
            self._metadata.request()
        if now_s >= self._leaderless.next_s:
            self._metadata.ask_about(
                self._leaderless.take(now_s, still=departures.lacks_news, chance=self._chance.random())
            )
        lines = [
            (leader, line)
            for leader, line in departures.lines()
            if self._polls_to[leader] < POLLS_MAX and now_s >= self._throttles.until_s(leader)
        ]
        if lines:
            unread_bytes = self.arrivals.unread_bytes
            polled = {leader for leader, polls in self._polls_to.items() if polls}
            share_bytes = self._read_ahead.share_bytes(len(polled.union(leader for leader, _ in lines)))
            for leader, line in lines:
                # Without room, the next record that is read or the next poll that ends lets the task turn again.
                if self._read_ahead.reserve(share_bytes, unread_bytes=unread_bytes):
                    self._poll(leader, self._gathered(line, view), view, now_s, share_bytes)
        again_s = min(
            [again_s, departures.next_pause_s, self._leaderless.next_s, *(poll.look_s for poll in self._polls)]
        )
        return max(0.0, again_s - now_s)

    def _gathered(self, line: Place[Cursor], view: ClusterView) -> list[tuple[Cursor, int, LeaderTerm]]:
        """All partitions in line, with the leaderships to ask; from now on they wait for the answer."""
        asked: list[tuple[Cursor, int, LeaderTerm]] = []
        for partition, cursor in tuple(line.items()):
            term = view.leader_term(*partition)
            if term is None:
                self._departures.enter(partition, cursor, answered=True)
                continue
            self._departures.wait_for_answer(partition, cursor)
            asked.append((cursor, cursor.generation, term))
        return asked

    def _term(self, cursor: Cursor, view: ClusterView, now_s: float) -> LeaderTerm | None:
        """The leadership to ask; None: not now, and the partition waits for what it lacks."""
        partition = cursor.partition
        term = view.leader_term(*partition)
        known = view.topics.get(partition.topic)
        if not cursor.wants_more(CHUNKS_MAX):
            self._departures.wait_for_answer(partition, cursor)
        elif cursor.trouble.needs_metadata(view, term):
            self._departures.wait_for_picture(partition, cursor)
        elif known is not None and known.topic_id != cursor.topic_id:
            self._departures.wait_for_answer(partition, cursor)
            self._intake.give_up(
                cursor,
                errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID,
                f"topic {partition.topic!r} was deleted and created again, so positions in it mean nothing; "
                "assign it anew",
            )
        elif known is not None and view.lacks(partition):
            self._departures.wait_for_answer(partition, cursor)
            self._intake.give_up(
                cursor,
                errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {partition.topic!r} has no partition {partition.partition} any more, it was removed; "
                "unassign() it",
            )
        elif known is None and cursor.trouble.lasted_s(now_s) > GONE_S:
            self._departures.wait_for_answer(partition, cursor)
            self._intake.give_up(
                cursor,
                errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {partition.topic!r} does not exist any more; see `regnum topics list`, and `regnum status` "
                "for topics whose nodes in the store are damaged",
            )
        elif known is None:
            # Looked at with every picture: at some moment it has been gone for too long.
            self._departures.wait_for_picture(partition, cursor)
        elif term is None:
            self._departures.wait_for_news(partition, cursor)
            self._leaderless.lacks(partition.topic, now_s)
        elif now_s < (pause_until_s := cursor.trouble.pause_until_s(term)):
            self._departures.wait_for_pause(partition, cursor, pause_until_s)
        else:
            return term
        return None

    def _compare_quiet(self, now_s: float, view: ClusterView) -> float:
        """Ask other brokers about leaders from which nothing comes. Returns when to look again."""
        quiet = self._silence.last(now_s)
        again_s = self._silence.next_s
        if quiet is None:
            return again_s
        heard_s, cursor = quiet
        if now_s >= self._comparisons.due_s(heard_s, now_s):
            self._comparisons.done(now_s)
            term = view.leader_term(*cursor.partition)
            leader = None if term is None else view.address_of(term.leader)
            self._metadata.ask_about(self._silence.topics, doubted=leader)
        return min(again_s, self._comparisons.due_s(heard_s, now_s))

    def _arrived(self, cursor: Cursor) -> None:
        """There is something to read, if anybody still reads that partition."""
        if self.cursors.get(cursor.partition) is cursor:
            self.arrivals.add(cursor)
            self.arrived.set()

    def _poll(
        self,
        leader: BrokerId,
        asked: list[tuple[Cursor, int, LeaderTerm]],
        view: ClusterView,
        now_s: float,
        share_bytes: int,
    ) -> None:
        address = view.address_of(leader)
        if address is None:
            self._read_ahead.release(share_bytes)
            for cursor, generation, term in asked:
                if leader == term.leader:
                    self._intake.failed(
                        cursor, term, errors_pb2.ERROR_CODE_LEADER_NOT_AVAILABLE, f"leader {leader} is not live"
                    )
                else:
                    cursor.place.failed(now_s)
                self._answered(cursor, generation)
            return
        for cursor, _, _ in asked:
            cursor.in_flight = True
        poll = Poll(leader, address, asked, look_s=now_s + self._slow_s, share_bytes=share_bytes)
        self._polls[poll] = None
        self._polls_to[leader] += 1
        poll.task = self._tasks.start(f"fetch-{leader}", self._carry(poll))

    async def _carry(self, poll: Poll) -> None:
        try:
            try:
                causes = self._outages.enabled and self._outages.any_recovering(poll, tracing.now_unix_nano())
                answer = await poll.answer.answer(self._calls.ask(poll, causes=causes))
            except RegnumError as error:
                self._poll_failed(poll, error)
            except AbandonedError:
                pass
            else:
                answered = list(zip(poll.asked, answer.results, strict=True))
                self._metadata.take_leaders(
                    hints_of((cursor.partition, term, result) for (cursor, _, term), result in answered)
                )
                if self._outages.enabled:
                    self._outages.take(poll, answer, tracing.now_unix_nano())
                for (cursor, generation, term), result in answered:
                    if len(result.record_batches) > LARGE_BYTES:
                        # An answer may hold very many small batches (safety rule S22).
                        await asyncio.sleep(0)
                    if cursor.generation == generation and poll.place(cursor, term, result, self._clock.monotonic()):
                        await self._intake.take_in(cursor, term, result)
        finally:
            for cursor, generation, _ in poll.asked:
                self._answered(cursor, generation)
            self._read_ahead.release(poll.share_bytes)
            del self._polls[poll]
            self._polls_to[poll.leader] -= 1
            self.wake()

    def _answered(self, cursor: Cursor, generation: int) -> None:
        if cursor.generation == generation:
            cursor.in_flight = False
        if self.cursors.get(cursor.partition) is cursor:
            self._departures.enter(cursor.partition, cursor, answered=True)

    def _poll_failed(self, poll: Poll, error: RegnumError) -> None:
        if error.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE:
            self._metadata.suspect(poll.address)
        poll.leave_replica(self._clock.monotonic())
        for cursor, generation, term in poll.asked:
            if cursor.generation == generation and not poll.is_elsewhere(term):
                self._outages.failed(cursor.partition, reason_of(error.code))
                self._intake.failed(cursor, term, error.code, error.message, whole_call=True)

    def _look_at_slow_polls(self, now_s: float, view: ClusterView) -> None:
        before, self._looked_with = self._looked_with, view
        changed = [
            topic
            for topic in (self._departures.topics if view is not before else ())
            if view.topics.get(topic) is not before.topics.get(topic)
        ]
        for poll in self._polls:
            slow = now_s >= poll.look_s
            if slow:
                poll.look_s = now_s + SLOW_S
                self._metadata.request(doubted=poll.address)
                self._metadata.suspect(poll.address)
            left = slow and poll.leave_replica(now_s)
            if left or poll.has_moved(view, None if slow else changed):
                poll.answer.give_up()
