"""The batches of one partition on their way to its leader: order, sequence numbers, repeats. Pure.

Goals: each record once and in order, whatever is lost between producer and leader; several batches under way at a time.

Constraints: a batch whose fate is unknown may be in the log, so it keeps its producer id and sequence numbers for
ever; a broker knows a producer by the last five batches it holds and, knowing nothing, takes any sequence number as
the first.

Algorithm: a batch gets its sequence numbers when it is first sent, and then stands in a line until it is acknowledged.

1. New batches are sent behind others only to a leader that has acknowledged one in this very term. To any other the
   first goes alone: a leader that knows nothing of this producer could take the second batch first.
2. A batch that has to be sent again goes only when it is first in line, and new ones wait for that. Behind a batch
   whose fate is unknown go no more than four, acknowledged or not: an older one a broker does not know again.
3. A batch that cannot be written leaves a hole in the numbers (so does one whose time is up). The sequence is
   *broken*: nothing new is sent until all calls under way have ended. Batches before the hole that may be in the log go
   on with their numbers until that is known, since nothing is missing in front of them. Then those behind it that may
   be in the log fail, and those that are certainly not get new numbers under a new identity. A batch that may be in the
   log is never numbered anew.
4. A batch that the leader finds too large goes as two halves in its place, with new numbers, unless an earlier try may
   have written it.
5. A batch that still takes records joins an empty lane, and a large one also where it goes at once (the shell asks
   ``empty`` and ``has_room``). Else it goes on filling: on a slow path, a few large batches instead of many small ones.

Example: 0, 1, 2 are under way when the leader dies; all three come back without an answer. The new leader gets 0
alone. It had copied 0 and answers the old offset; 1 goes next, alone too; then 2; then new ones, five at a time again.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from regnum_records.header import SEQUENCE_MAX

from regnum_client.cluster.view import LeaderTerm
from regnum_client.producer.batches.verdicts import Fate, Verdict

REMEMBERED: Final = 5
"""Batches of a producer that a broker knows again."""

R = TypeVar("R")
"""What the shell keeps for each record, to tell its sender of the outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a producer is to the brokers."""

    producer_id: int
    producer_epoch: int


class Content(Protocol):
    """The records of a batch."""

    @property
    def record_count(self) -> int:
        """Number of records."""

    def encoded(self, identity: Identity | None, base_sequence: int) -> bytes:
        """The batch as it travels."""

    def halves(self) -> "tuple[Content, Content] | None":
        """The same records as two batches; None: there is no way to part them."""

    @property
    def size_bytes(self) -> int:
        """About how large it is."""


class Batch(Generic[R]):
    """Records that travel together."""

    __slots__ = (
        "base_sequence",
        "content",
        "deadline_s",
        "identity",
        "in_flight",
        "maybe_written",
        "number",
        "opened_s",
        "places",
        "receipts",
        "sent_unix_nano",
        "size_bytes",
        "tries",
        "went_alone",
    )

    def __init__(self, content: Content, *, opened_s: float, deadline_s: float) -> None:
        self.content: Final = content
        self.receipts: list[R] = []
        """One for each record, in order."""
        self.size_bytes = 0
        """What it takes from the producer's buffer."""
        self.opened_s: Final = opened_s
        """Monotonic time of the first record."""
        self.deadline_s: Final = deadline_s
        """Monotonic time at which it fails."""
        self.identity: Identity | None = None
        self.base_sequence = -1
        self.number = 0
        """How many batches had sequence numbers of its identity before it."""
        self.tries = 0
        self.sent_unix_nano = 0
        """When it was last sent, wall time; 0 where nothing is traced."""
        self.places: tuple[str, ...] = ()
        """Places in traces that its records brought in their headers, as traceparents; where they are traced."""
        self.in_flight = False
        self.went_alone = False
        """Everything before it had been acknowledged when it was last sent."""
        self.maybe_written = False

    def encoded(self) -> bytes:
        """The batch as it travels, with its present numbers."""
        return self.content.encoded(self.identity, self.base_sequence)

    def halves(self) -> "tuple[Batch[R], ...]":
        """Two batches with its records, to be sent in its place; none if it may be in the log, or has one record."""
        contents = None if self.maybe_written else self.content.halves()
        if contents is None:
            return ()
        first, second = (Batch[R](content, opened_s=self.opened_s, deadline_s=self.deadline_s) for content in contents)
        middle = contents[0].record_count
        first.receipts, second.receipts = self.receipts[:middle], self.receipts[middle:]
        first.size_bytes = self.size_bytes // 2
        second.size_bytes = self.size_bytes - first.size_bytes
        first.places = second.places = self.places
        return first, second


class Lane(Generic[R]):
    """The batches of one partition. The shell asks ``next_batch``, sends it, and reports what came back."""

    def __init__(self, *, idempotent: bool) -> None:
        self._idempotent: Final = idempotent
        self._new: deque[Batch[R]] = deque()
        self._line: deque[Batch[R]] = deque()
        self._in_flight = 0
        self._identity: Identity | None = None
        self._next_sequence = 0
        self._numbered = 0
        """Batches with numbers of the present identity, those that have ended as well."""
        self._confirmed: LeaderTerm | None = None
        self._before_hole: int | None = None
        """How many of the line stand before the first hole in the numbers; None: the sequence is whole."""

    @property
    def _broken(self) -> bool:
        return self._before_hole is not None

    @property
    def lacks_identity(self) -> bool:
        """Nothing new can be sent before a producer id is there."""
        return self._idempotent and self._identity is None

    @property
    def identity(self) -> Identity | None:
        """The present identity."""
        return self._identity

    @property
    def next_sequence(self) -> int:
        """Sequence number of the next record under the present identity."""
        return self._next_sequence

    @property
    def empty(self) -> bool:
        """Nothing waits and nothing is under way."""
        return not self._new and not self._line

    @property
    def waiting(self) -> bool:
        """There are batches that are not under way."""
        return bool(self._new) or len(self._line) > self._in_flight

    def batches(self) -> Iterator[Batch[R]]:
        """All batches, first to last."""
        yield from self._line
        yield from self._new

    def take_identity(self, identity: Identity, *, next_sequence: int = 0) -> None:
        """Number what comes from now on under this identity, from that sequence number on."""
        self._identity = identity
        self._next_sequence, self._numbered = next_sequence, 0
        self._confirmed = None

    def add(self, batch: Batch[R]) -> None:
        """A closed batch joins at the end."""
        self._new.append(batch)

    def has_room(self, term: LeaderTerm, *, in_flight_max: int) -> bool:
        """Whether a batch that joined now would be the next one, and would go to the leader of ``term`` at once."""
        limit = in_flight_max if self._idempotent else 1
        return not (
            self.waiting or self._broken or self.lacks_identity or self._in_flight >= limit or self._must_wait(term)
        )

    def _must_wait(self, term: LeaderTerm) -> bool:
        """Nothing new may go to the leader of ``term`` behind what is under way."""
        if not self._line:
            return False
        return term != self._confirmed or self._numbered - self._line[0].number >= REMEMBERED

    def next_batch(self, term: LeaderTerm, *, in_flight_max: int) -> Batch[R] | None:
        """The batch to send to the leader of ``term`` now, marked as under way; None: nothing may be sent."""
        limit = in_flight_max if self._idempotent else 1
        if self._in_flight >= limit:
            return None
        if self._broken:
            return self._send(self._line[0]) if self._before_hole and not self._line[0].in_flight else None
        if len(self._line) > self._in_flight:
            first = self._line[0]
            return None if first.in_flight else self._send(first)
        if not self._new or (self._idempotent and self._identity is None):
            return None
        if self._must_wait(term):
            return None
        batch = self._new.popleft()
        if self._idempotent:
            batch.identity = self._identity
            batch.base_sequence = self._next_sequence
            batch.number = self._numbered
            self._numbered += 1
            self._next_sequence = (self._next_sequence + batch.content.record_count) & SEQUENCE_MAX
        self._line.append(batch)
        return self._send(batch)

    def settle(
        self, batch: Batch[R], verdict: Verdict, term: LeaderTerm, parts: Sequence[Batch[R]] = ()
    ) -> list[Batch[R]]:
        """Take up what became of a batch that was under way; where it is refused, ``parts`` take its place in the line.

        Returns the batches that fail with it, itself among them: with REFUSED and SEQUENCE_BROKEN, or because the
        calls that a broken sequence waited for have ended.
        """
        batch.in_flight = False
        self._in_flight -= 1
        failed: list[Batch[R]] = []
        match verdict.fate:
            case Fate.ACKNOWLEDGED:
                place = self._take_out(batch)
                if self._before_hole is not None and place < self._before_hole:
                    self._before_hole -= 1
                self._confirmed = term
            case Fate.RETRY:
                batch.maybe_written = batch.maybe_written or verdict.maybe_written
            case Fate.REFUSED | Fate.SEQUENCE_BROKEN:
                batch.maybe_written = batch.maybe_written or verdict.maybe_written
                place = self._take_out(batch)
                # An identity at its end is so for those before as well.
                self._hole_at(place if verdict.fate is Fate.REFUSED else 0)
                for part in reversed(parts):
                    self._line.insert(place, part)
                if not parts:
                    failed.append(batch)
        failed.extend(self._mend())
        return failed

    def expire(self, now_s: float) -> list[Batch[R]]:
        """Remove the batches whose time is up and that are not under way (those end by the deadline of their call).

        With them come those behind them that may be in the log, whose time need not be up.
        """
        expired: list[Batch[R]] = []
        while self._new and self._new[0].deadline_s <= now_s:
            expired.append(self._new.popleft())
        late = [batch for batch in self._line if not batch.in_flight and batch.deadline_s <= now_s]
        for batch in late:
            self._hole_at(self._take_out(batch))
        expired[:0] = late
        expired.extend(self._mend())
        return expired

    def drain(self) -> list[Batch[R]]:
        """Give up everything that is not under way."""
        given_up = [batch for batch in self.batches() if not batch.in_flight]
        for batch in given_up:
            if batch in self._line:
                self._hole_at(self._take_out(batch))
        self._new.clear()
        self._mend()
        return given_up

    def _send(self, batch: Batch[R]) -> Batch[R]:
        batch.in_flight = True
        batch.tries += 1
        batch.went_alone = batch is self._line[0]
        self._in_flight += 1
        return batch

    def _take_out(self, batch: Batch[R]) -> int:
        """Take it out of the line; returns where it stood."""
        place = self._line.index(batch)
        del self._line[place]
        return place

    def _hole_at(self, place: int) -> None:
        """A batch that stood there is not written; without numbers that is no matter."""
        if self._idempotent:
            self._before_hole = place if self._before_hole is None else min(place, self._before_hole)

    def _mend(self) -> list[Batch[R]]:
        if self._before_hole is None or self._in_flight:
            return []
        if any(batch.maybe_written for batch in islice(self._line, self._before_hole)):
            return []
        failed = [batch for batch in self._line if batch.maybe_written]
        again = [batch for batch in self._line if not batch.maybe_written]
        for batch in again:
            batch.identity = None
            batch.base_sequence = -1
        self._line.clear()
        self._new.extendleft(reversed(again))
        self._identity = None
        self._confirmed = None
        self._before_hole = None
        return failed
