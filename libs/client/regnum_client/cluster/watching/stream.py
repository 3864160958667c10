"""Keeps one broker telling this client of changes.

Goals: a client that lost its leader hears of the next one as soon as any broker has heard of it, without a question; a
cluster whose brokers die is not run down by those that come back.

Constraints: the broker may die, freeze, be cut off, be too old to know the call, or have too many watchers. Nothing
here is relied on: whoever sees a failure asks as before (``metadata``), and what is heard twice changes nothing.

Algorithm: a stream to one broker, the next candidate whenever it ends, from the version up to which everything was
told. After an end the next try comes by chance within a tenth of a second, and ever later while none holds. A broker
that does not know the call is not asked for it again for minutes. One that says nothing for half a minute, not even its
version, is left for another.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

import grpc
from regnum.metadata.v1.metadata_pb2 import WatchMetadataRequest, WatchMetadataResponse
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_service.cancellation import end_task, heeding
from regnum_service.clock import Clock

from regnum_client.cluster.connections import Connections
from regnum_client.tasks import Tasks

WatchCall = Any
"""grpc.aio.StreamStreamCall, whose stubs are generic and whose class is not."""

STAYS_S: Final = 1.0
"""A client that uses no topic watches after so long: most that describe something are gone by then."""
SPREAD_S: Final = 0.1
"""Within so long after a stream has ended the next one is opened."""
SPREAD_S_MAX: Final = 10.0
"""The same while none holds; it doubles with each that does not."""
SILENCE_S: Final = 30.0
"""A broker that says nothing for so long is left; it says its version every 10 s."""
REFUSALS_S: Final = MappingProxyType({grpc.StatusCode.UNIMPLEMENTED: 300.0, grpc.StatusCode.RESOURCE_EXHAUSTED: 10.0})
"""For so long a broker is not asked again that does not know the call, or has too many watchers."""
NAMES_MAX: Final = 10_000
"""Topics in one message."""
TOPICS_MAX: Final = 50_000
"""Topics that a broker lets one client watch; who uses more asks."""


class MetadataWatch:
    """Of one client; ``run`` is its one task."""

    def __init__(
        self,
        connections: Connections,
        *,
        clock: Clock,
        chance: random.Random,
        client_id: str,
        candidates: Callable[[], Sequence[Address]],
        suspect: Callable[[Address], None],
        topics: Callable[[], Collection[str]],
        take: Callable[[Sequence[WatchMetadataResponse]], Awaitable[bool]],
        tasks: Tasks,
    ) -> None:
        """Only assigns.

        Args:
            connections: how brokers are reached.
            clock: source of time.
            chance: spreads what many clients do at the same moment.
            client_id: name of the client.
            candidates: brokers, the most promising first.
            suspect: hears of brokers that cannot be reached, which are no candidates to begin with for a while.
            topics: those in use.
            take: takes up the messages of one change; false: it tells of another cluster.
            tasks: those of the client.
        """
        self._tasks: Final = tasks
        self._connections: Final = connections
        self._clock: Final = clock
        self._chance: Final = chance
        self._header: Final = RequestHeader(client_id=client_id)
        self._candidates: Final = candidates
        self._suspect: Final = suspect
        self._topics: Final = topics
        self._take: Final = take
        self._version = 0
        self._known: dict[str, None] = {}
        """Topics that were told up to that version."""
        self._named: deque[Sequence[str]] = deque()
        """Topics that the messages of this stream named, one entry each, as long as they are not taken into account."""
        self._added: dict[str, None] | None = None
        """Topics that came into use since this stream named any; None: there is no stream."""
        self._taken = 0
        self._wanted: Final = asyncio.Event()
        self._call: WatchCall | None = None
        """The stream that goes on; None: there is none, or it named what is forgotten since."""
        self._unable_until_s: dict[Address, float] = {}
        self.changes = 0
        """Changes heard of."""

    def topic_added(self, name: str) -> None:
        """There is one more topic in use."""
        if self._added is not None:
            self._added[name] = None
        self._wanted.set()

    def topics_forgotten(self) -> None:
        """Some topics are in use no more: the stream, from which no name can be taken, gives way to another."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    async def run(self) -> None:
        """Watch until cancelled; at once where topics are in use, else only for a client that stays."""
        if not self._topics():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STAYS_S):
                    await self._wanted.wait()
        failures = 0
        while True:
            address = self._next()
            before = self.changes
            if address is not None and not await self._watch(address):
                # Nothing failed, so nobody else comes at the same moment; and news would wait.
                continue
            failures = 0 if self.changes > before else failures + 1
            spread_s = min(SPREAD_S * 2 ** min(failures, 10), SPREAD_S_MAX)
            await self._clock.sleep(spread_s * self._chance.random())

    def _next(self) -> Address | None:
        now_s = self._clock.monotonic()
        self._unable_until_s = {one: until_s for one, until_s in self._unable_until_s.items() if until_s > now_s}
        if len(self._topics()) > TOPICS_MAX:
            return None
        return next((one for one in self._candidates() if one not in self._unable_until_s), None)

    async def _watch(self, address: Address) -> bool:
        """Until the stream ends. False: this client ended it, for another one without what it forgot."""
        self._named, self._taken = deque(), 0
        added = self._added = {}
        call = self._call = self._connections.metadata(address).WatchMetadata()
        # Not a generator handed to gRPC: its task does not end when a call breaks, and would name topics for this one.
        naming = self._tasks.start(f"watched topics, to {address}", self._write(call, added))
        try:
            await self._listen(call)
        except TimeoutError:
            pass
        except grpc.aio.AioRpcError as error:
            pause_s = REFUSALS_S.get(error.code())
            if pause_s is not None:
                self._unable_until_s[address] = self._clock.monotonic() + pause_s
            elif self._call is call:
                self._suspect(address)
        except asyncio.CancelledError:
            # A call also ends so when its channel is closed under it; then nobody asked *this task* to end.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        finally:
            goes_on, self._call = self._call is call, None
            self._added = None
            end_task(naming)
            call.cancel()
        return goes_on

    async def _listen(self, call: WatchCall) -> None:
        """Take up what is told, until the stream ends or is not the one that goes on."""
        parts: list[WatchMetadataResponse] = []
        while True:
            async with asyncio.timeout(SILENCE_S):
                part = await heeding(call.read())
            if self._call is not call or not isinstance(part, WatchMetadataResponse):
                return
            parts.append(part)
            if part.more:
                continue
            if not await self._take(parts):
                self._version = 0
                self._known.clear()
                return
            self._heard(part)
            parts = []

    def _heard(self, part: WatchMetadataResponse) -> None:
        self.changes += 1
        self._version = part.version
        while self._taken < part.requests_taken and self._named:
            self._known.update(dict.fromkeys(self._named.popleft()))
            self._taken += 1

    async def _write(self, call: WatchCall, added: dict[str, None]) -> None:
        """Name topics, as long as the stream lasts. The reader hears why it ended."""
        try:
            async for request in self._requests(added):
                await call.write(request)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return
        except asyncio.CancelledError:
            # So does a call whose channel is closed end a write; then nothing asked *this task* to end.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise

    async def _requests(self, added: dict[str, None]) -> AsyncIterator[WatchMetadataRequest]:
        using = self._topics()
        known = [name for name in islice(self._known, NAMES_MAX) if name in using]
        self._known = dict.fromkeys(known)
        first = WatchMetadataRequest(header=self._header, version=self._version if known else 0, known_topics=known)
        added.clear()
        for request in self._naming([name for name in using if name not in self._known], first):
            yield request
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            new = list(added)
            added.clear()
            for request in self._naming(new, None):
                yield request

    def _naming(self, new: Iterable[str], first: WatchMetadataRequest | None) -> Iterator[WatchMetadataRequest]:
        """Messages that name topics of which this stream has heard nothing; one at least, if there is a first."""
        left = iter(new)
        while True:
            names = list(islice(left, NAMES_MAX))
            if not names and first is None:
                return
            request, first = first or WatchMetadataRequest(), None
            request.topics.extend(names)
            self._named.append(names)
            yield request
