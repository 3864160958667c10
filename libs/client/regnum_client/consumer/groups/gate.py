"""Where the application and the member of a group meet: when it asks for records, it is done with those it had.

Goals: what the application has in hand is never given to another member, and never counts as processed; it is told of
its partitions while it asks for records, and at no other moment; one that asks for none is noticed.

Algorithm: reading goes through here, in and out. The member waits until the application is inside, or has nothing in
hand; while the member acts (``acting``) nothing is handed out. Whoever comes meanwhile waits.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.consumer.batches import RecordBatch
from regnum_client.records import ConsumedRecord, TopicPartition

InHand = Sequence[ConsumedRecord] | Sequence[RecordBatch]
"""What was handed out by the last call."""


class Gate:
    """Of one consumer. Belongs to its event loop."""

    def __init__(self, *, clock: Clock, wake: Callable[[], None]) -> None:
        """Only assigns; ``wake`` lets a reader that waits for records look here."""
        self._clock: Final = clock
        self._wake: Final = wake
        self._inside = False
        self._out: InHand = ()
        self._left_s = clock.monotonic()
        self._moved: Final = asyncio.Event()
        self._waiting = 0
        self._acting = False
        self._acting_since_s = 0.0
        self._held = False
        self._ended = False
        self._tellers: Final[set[asyncio.Task[None]]] = set()
        self._failure: RegnumError | None = None
        self._news: list[BaseException] = []
        self.kept_back: Callable[[], Mapping[TopicPartition, int]] | None = None
        """Somebody in front of the application reads ahead (the synchronous consumer) and says here which records it,
        or the application, has not done with: the first of each partition. It gives them back when it is ``wanted``."""
        self.wanted = False
        """The application has something to hear before it gets more."""

    # The application's side.

    def enter(self) -> None:
        """The application asks for records: it is done with those that it had."""
        self._inside = True
        self._out = ()
        if self.wanted:
            self._moved.set()

    def leave(self, out: InHand) -> None:
        """It gets these."""
        self._inside = False
        self._out = () if self.kept_back is not None else out
        self.touch()

    def touch(self) -> None:
        """It is there. May be called from any thread."""
        self._left_s = self._clock.monotonic()

    async def attend(self, within_s: float | None) -> bool:
        """Let the member do what it waits for. False: the time was over first. Raises what there is to hear.

        What has begun is waited for beyond that, as Kafka's poll does: a listener runs within a call, never beside what
        the application does between two.
        """
        if self._acting and asyncio.current_task() in self._tellers:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST,
                "a rebalance listener must not read records: nothing is handed out before it has returned",
            )
        try:
            async with asyncio.timeout(within_s):
                while self._failure is None and (self._acting or self._waiting or self._held):
                    self._moved.set()
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            while self._acting and self._failure is None:
                self._moved.clear()
                await self._moved.wait()
            return False
        self._look()
        if self._news:
            error = self._news.pop(0)
            self._look()
            raise error
        if self._failure is not None:
            raise self._failure
        return True

    async def unless_acting(self, arrives: Awaitable[bool]) -> bool:
        """What the wait for records says; True too when the member began to act in the turn in which its time was over.

        A timer that has fired wakes the reader a turn later, and until then it is inside: the member may begin.
        """
        return await arrives or self._acting

    # The member's side.

    @property
    def away_s(self) -> float:
        """For how long the application has not asked for records, or a listener has not returned; 0 while it asks."""
        if self._acting:
            return self._clock.monotonic() - self._acting_since_s
        return 0.0 if self._inside else self._clock.monotonic() - self._left_s

    @property
    def ended(self) -> bool:
        """Nobody asks for records any more."""
        return self._ended

    @property
    def acting(self) -> bool:
        """Partitions are being given or taken: that is not interrupted."""
        return self._acting

    def in_hand(self) -> dict[TopicPartition, int]:
        """For partitions of which the application has records in hand: the first of them."""
        first = {} if self.kept_back is None else dict(self.kept_back())
        for one in self._out:
            offset = one.first_offset if isinstance(one, RecordBatch) else one.offset
            first.setdefault(TopicPartition(one.topic, one.partition), offset)
        return first

    @asynccontextmanager
    async def meeting(self, *, needed: bool) -> AsyncIterator[None]:
        """Between the application's calls, or inside one; ``needed``: inside one, even if it has nothing in hand."""
        self._waiting += 1
        self._tell()
        try:
            while not (self._inside or self._ended) and (needed or self.in_hand()):
                self._moved.clear()
                await self._moved.wait()
            self._acting, self._acting_since_s = True, self._clock.monotonic()
        finally:
            self._waiting -= 1
            self._look()
            self._moved.set()
        try:
            yield
        finally:
            self._acting = False
            self._look()
            self._moved.set()

    def acts(self, task: "asyncio.Task[None]") -> None:
        """A listener runs in that task."""
        self._tellers.add(task)
        task.add_done_callback(self._tellers.discard)

    def hold(self) -> None:
        """Nothing is handed out until ``settle``: the member may have lost what it reads."""
        self._held = True
        self._look()

    def settle(self) -> None:
        """What is handed out now is the member's."""
        if self._held:
            self._held = False
            self._look()
            self._moved.set()

    def end(self) -> None:
        """The application asks for no more records: nobody waits for it."""
        self._ended = True
        self._moved.set()

    def report(self, error: BaseException) -> None:
        """The next call raises this, once."""
        self._news.append(error)
        self._tell()

    def fail(self, error: RegnumError) -> None:
        """Every call raises this from now on."""
        self._failure = error
        self._tell()

    def _tell(self) -> None:
        self._look()
        self._moved.set()
        self._wake()

    def _look(self) -> None:
        self.wanted = bool(self._acting or self._waiting or self._held or self._news or self._failure is not None)
