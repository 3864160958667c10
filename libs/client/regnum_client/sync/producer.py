"""The producer for services without asyncio."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple

from regnum_service.channel import Channels
from regnum_service.errors import RegnumError
from regnum_service.tls.files import TlsFiles

from regnum_client.allowed import checks_arguments
from regnum_client.errors import BackgroundTaskError, ClientClosedError
from regnum_client.producer.producer import CLOSE_IN_FAILURE_S, ProducerSettings
from regnum_client.producer.producer import Producer as AsyncProducer
from regnum_client.records import RecordMetadata
from regnum_client.sync.bridge import Blocking, Bridge, Face
from regnum_client.tasks import Tasks

WAITING_MAX: Final = 500
"""Records on their way to the event loop; who brings more waits. They are taken in within one turn of it."""
WAITING_BYTES_MAX: Final = 4 * 1024 * 1024
"""And their bytes, but for the last one."""

_Send = Callable[[], Coroutine[Any, Any, asyncio.Future[RecordMetadata]]]


@checks_arguments(but=("send",))
class Producer(Face[AsyncProducer]):
    """Writes records to topics, from any thread.

    Records of one thread to one partition are written in the order of their ``send``, each once (with acks -1 and
    idempotent, the defaults).

    >>> from regnum_client.sync import Producer
    >>> with Producer(bootstrap) as producer:
    ...     delivery = producer.send("greetings", b"hello", key=b"world")
    ...     delivery.result(timeout=60).topic
    'greetings'
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] | None = None,
        *,
        settings: ProducerSettings | None = None,
        client_id: str = "regnum-producer",
        channels: Channels | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self._settings: Final = settings or ProducerSettings()
        # What is made of keys and values is made in the caller's thread.
        behind = replace(self._settings, key_serializer=None, value_serializer=None)
        super().__init__(
            Bridge(
                "producer",
                lambda: AsyncProducer(bootstrap, settings=behind, client_id=client_id, channels=channels, tls=tls),
            )
        )
        self._door: Final = _Door(self.bridge)

    check_topic = Blocking(AsyncProducer.check_topic)

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> Future[RecordMetadata]:
        """Hand one record over; the future ends when the brokers have it, or with the error that it met.

        Also what the async ``send`` raises ends the future, so look at it. Waits while the buffer is full. A record
        that was handed over cannot be cancelled. Callbacks of the future run on the background thread: they may send,
        and must wait for nothing. Raises ClientClosedError, and INVALID_REQUEST after a fork.
        """
        client = self.bridge.client
        key, value = self._settings.key_bytes(key), self._settings.value_bytes(value)
        return self._door.put(
            partial(
                client.send,
                topic,
                value,
                key=key,
                partition=partition,
                headers=headers,
                timestamp_ms=timestamp_ms,
            ),
            len(value or b"") + len(key or b""),
        )

    def send_and_wait(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> RecordMetadata:
        """Send one record, and wait until the brokers have it. Raises what it meets.

        Raises TimeoutError when that takes longer; the record stays on its way.
        """
        return self.send(topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms).result(
            timeout_s
        )

    def stop(self) -> None:
        """The same as ``close``, as other clients call it."""
        self.close()

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Send all that was handed over before and wait until every future of it has ended, well or badly.

        Raises TimeoutError when that takes longer; the records stay on their way.
        """
        self.bridge.wait(self._flush(timeout_s))

    async def _flush(self, timeout_s: float | None) -> None:
        async with asyncio.timeout(timeout_s):
            client = self.bridge.client
            await self._door.passed(client)
            await client.flush()

    @property
    def batches_split(self) -> int:
        """As ``batches_split`` of the async producer."""
        return self.bridge.client.batches_split

    @property
    def batches_throttled(self) -> int:
        """As ``batches_throttled`` of the async producer."""
        return self.bridge.client.batches_throttled

    @property
    def throttle_time_s(self) -> float:
        """As ``throttle_time_s`` of the async producer."""
        return self.bridge.client.throttle_time_s

    def close(self, *, wait_s: float | None = None) -> None:
        """Send what was handed over, wait for it (``wait_s`` at most), close the connections.

        What is not acknowledged by then fails with ClientClosedError. After a fork, nothing happens in the child.
        """
        self.bridge.close(lambda client: self._close(client, wait_s))

    async def _close(self, client: AsyncProducer, wait_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            await self._door.close(client, wait_s)
        finally:
            left_s = None if wait_s is None else max(0.0, wait_s - (loop.time() - began_s))
            await client.close(wait_s=left_s)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(wait_s=None if kind is None else CLOSE_IN_FAILURE_S)


class _Waiting(NamedTuple):
    """A record on its way."""

    send: _Send
    """Gives it to the async producer."""
    outcome: Future[RecordMetadata]
    """What its sender has."""
    size_bytes: int
    """About how large it is."""


class _Door:
    """Records on their way from threads to the event loop, in order; the loop is woken once for many of them."""

    def __init__(self, bridge: Bridge[AsyncProducer]) -> None:
        self._bridge: Final = bridge
        self._changed: Final = threading.Condition()
        """Guards what follows; notified when there is room."""
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._pumping = False
        """Somebody takes records in, or has been told to."""
        self._taken: deque[_Waiting] = deque()
        """Those that are taken in now. Of the loop, as all that follows."""
        self._pump: asyncio.Task[None] | None = None
        self._fed: AsyncProducer | None = None
        """The producer that they go to: another one after each opening."""
        self._tasks = Tasks("producer")

    def put(self, send: _Send, size_bytes: int) -> Future[RecordMetadata]:
        """A record joins at the end; waits while there are too many. Raises as ``Bridge.client``."""
        outcome: Future[RecordMetadata] = Future()
        # So that it cannot be cancelled: the record may be in the log already.
        outcome.set_running_or_notify_cancel()
        with self._changed:
            while self._is_full and not self._bridge.is_on_loop:
                self._changed.wait()
            # It may have been closed meanwhile. What joins here is before the mark that closing waits for.
            client = self._bridge.client
            self._waiting.append(_Waiting(send, outcome, size_bytes))
            self._waiting_bytes += size_bytes
            if self._pumping:
                return outcome
            self._pumping = True
        self._bridge.tell(partial(self._start, client))
        return outcome

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) >= WAITING_MAX or self._waiting_bytes >= WAITING_BYTES_MAX

    async def passed(self, client: AsyncProducer) -> None:
        """Wait until the producer has all that joined before. On the loop. Raises ClientClosedError."""
        mark: Future[RecordMetadata] = Future()
        with self._changed:
            self._waiting.append(_Waiting(_nothing, mark, 0))
            start = not self._pumping
            self._pumping = True
        if start:
            self._start(client)
        await asyncio.wrap_future(mark)

    async def close(self, client: AsyncProducer, wait_s: float | None) -> None:
        """Let in what has joined, within that time, and fail the rest. On the loop; nothing can join any more."""
        try:
            async with asyncio.timeout(wait_s):
                await self.passed(client)
        except (TimeoutError, BackgroundTaskError):
            # Each record has its own error.
            pass
        finally:
            if self._pump is not None:
                await self._tasks.end(self._pump)
            self._fail_all(self._bridge.closed_error())

    def _fail_all(self, error: RegnumError) -> None:
        with self._changed:
            left = [*self._taken, *self._waiting]
            self._taken.clear()
            self._waiting.clear()
            self._waiting_bytes = 0
            self._pumping = False
            self._changed.notify_all()
        for one in left:
            if not one.outcome.done():
                one.outcome.set_exception(error)

    def _start(self, client: AsyncProducer) -> None:
        if self._fed is not client:
            self._fed = client
            self._tasks = Tasks("producer")
            self._tasks.listen(self._fail_all)
        if self._tasks.failure is not None:
            self._fail_all(self._tasks.failure)
            return
        self._pump = self._tasks.start("sync-producer-door", self._take_in(self._tasks))

    async def _take_in(self, tasks: Tasks) -> None:
        taken = self._taken
        while True:
            with self._changed:
                if not self._waiting:
                    self._pumping = False
                    return
                taken.extend(self._waiting)
                self._waiting.clear()
                self._waiting_bytes = 0
                self._changed.notify_all()
            while taken:
                # A task, so that whatever a send raises is found in it and told to the sender of that record.
                carrying = tasks.start_question("sync-producer-carry", _carry(taken))
                try:
                    await asyncio.wait([carrying])
                finally:
                    await tasks.end(carrying)
                if carrying.cancelled():
                    # From outside: every record has its error by now.
                    return
                if (error := carrying.exception()) is not None:
                    taken.popleft().outcome.set_exception(error)
            await asyncio.sleep(0)


_NOWHERE: Final = RecordMetadata("", -1, -1, -1)


async def _nothing() -> asyncio.Future[RecordMetadata]:
    """In place of a record, for whoever waits until all before it are through."""
    passed: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
    passed.set_result(_NOWHERE)
    return passed


async def _carry(taken: deque[_Waiting]) -> None:
    """Give records to the producer, from the first on; the one whose send raises stays the first."""
    while taken:
        one = taken[0]
        delivery = await one.send()
        taken.popleft()
        delivery.add_done_callback(partial(_hand_over, one.outcome))


def _hand_over(outcome: Future[RecordMetadata], delivery: asyncio.Future[RecordMetadata]) -> None:
    error = ClientClosedError("producer") if delivery.cancelled() else delivery.exception()
    if outcome.done():
        # A mark that nobody waits for any more.
        return
    if error is None:
        outcome.set_result(delivery.result())
    else:
        outcome.set_exception(error)
