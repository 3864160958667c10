"""One connection of a client that speaks Kafka's protocol: one request at a time, as in Kafka, or some of Produce.

Goals: nothing is parsed, or kept, before its size is admitted; answers go out in the order of the requests; a client
that says nothing, or reads nothing, takes no memory from others for long.

Algorithm: what comes is put where it belongs by the transport itself. Small requests come into a buffer that all
connections of the listener share, for it is used only between two calls of the loop; a large one comes straight into
its own, which is made once the budget has room for it. While a request is being answered the client may send
``AHEAD_BYTES`` of the next ones; then it is not read. What of Produce has come by then is taken together
(``produce_together``). An answer is sent in pieces, each when the kernel has taken the
one before, so that what waits for a slow reader is the answer itself and no copy of it.

What a client asked for before it hung up is carried out, as in Kafka: a consumer that is interrupted sends that it
leaves its group behind a request that waits, and closes. Only what is of no use to others ends with its client (a fetch
that waits, a member that joins). The connections that work without a client are bounded in number and in time.
"""

import asyncio
import contextlib
import enum
import itertools
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from regnum_kafka_wire.apis import Buffers
from regnum_kafka_wire.frames import SIZE_BYTES, Head, size_of
from regnum_kafka_wire.primitives import MalformedError, TooManyItemsError
from regnum_service.access.identity import calling
from regnum_service.connections import peer_name, plain_address
from regnum_service.errors import Code, RegnumError
from regnum_service.limits.held_bytes import Holding, Purpose

from regnum_broker.kafka.connections import SMALL_BYTES, Host, Shared
from regnum_broker.kafka.context import Context
from regnum_broker.kafka.fetch_sessions import ConnectionSession
from regnum_broker.kafka.produce_together import TOGETHER_MAX
from regnum_broker.kafka.refusals import unheard

AHEAD_BYTES: Final = 64 * 1024
"""As much of further requests is taken in while one is answered."""
PIECE_BYTES: Final = 256 * 1024
"""An answer goes to the transport in pieces of that size."""
READ_S_MAX: Final = 30.0
"""Within so long the rest of a request comes."""


def pieces(buffers: Buffers) -> Iterator[bytes | memoryview]:
    """An answer in parts of PIECE_BYTES at most: what is small is put together, what is large is not copied."""
    small: list[bytes | bytearray | memoryview] = []
    size = 0
    for buffer in buffers:
        if size + len(buffer) > PIECE_BYTES:
            yield b"".join(small)
            small, size = [], 0
        if len(buffer) > PIECE_BYTES:
            view = memoryview(buffer)
            for at in range(0, len(view), PIECE_BYTES):
                yield view[at : at + PIECE_BYTES]
        else:
            small.append(buffer)
            size += len(buffer)
    if small:
        yield b"".join(small)


IN_A_TURN: Final = 8
"""Requests of a connection that are answered before others have a turn, two milliseconds each at most."""


class _HungUpError(Exception):
    """The client has closed the connection, and no further request has come whole."""


class AtLoss(enum.Enum):
    """What becomes of what a connection is at when its client hangs up."""

    GO_ON = enum.auto()
    """It is carried out, and so is what has come whole behind it."""
    PASS_OVER = enum.auto()
    """It ends, and what has come behind it is carried out."""
    END = enum.auto()
    """It is a request that has not come whole, and never will."""


class Connection(asyncio.BufferedProtocol):
    """Belongs to the event loop."""

    def __init__(self, shared: Shared) -> None:
        """Only assigns."""
        self._shared: Final = shared
        self._ahead = bytearray()
        """What has come and belongs to no request yet that is being read."""
        self._large: memoryview | None = None
        """Where a large request comes to."""
        self._filled = 0
        self._came = asyncio.Event()
        self._writable = asyncio.Event()
        self._paused = False
        self._silence_s = min(shared.first_s, shared.idle_s)
        """For so long it may say nothing now."""
        self._transport: asyncio.Transport | None = None
        self._serving: asyncio.Task[None] | None = None
        self._is_gone = False
        """The client has hung up."""
        self._at_loss = AtLoss.GO_ON
        self.session: Final = ConnectionSession(shared.sessions, shared.chance)
        self._ends_s: Final = shared.clock.monotonic() + shared.age_s
        self.host: Host | None = None
        self.name = ""
        """How gRPC would name the other end."""

    # -- what the transport calls --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what asyncio gives for a stream socket
        self._transport = transport
        end = transport.get_extra_info("socket")
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # What is written waits for the kernel, and not in here. (Not 0: to asyncio's TLS an empty buffer is then as
        # much as may wait and as little, so that writing pauses and resumes by turns, at each call.)
        transport.set_write_buffer_limits(high=1)
        if hasattr(transport, "set_read_buffer_limits"):
            # Of TLS: what has come encrypted and is not read is held there (256 KiB unless it is told).
            transport.set_read_buffer_limits(high=AHEAD_BYTES)
        host, port = transport.get_extra_info("peername")[:2]
        self.host = plain_address(host)
        self.name = peer_name(self.host, port)
        self._writable.set()
        self._shared.crowd.opened(self)
        self._serving = asyncio.get_running_loop().create_task(self._serve(), name=f"kafka {self.name}")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        del sizehint
        return self._shared.scratch if self._large is None else self._large[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """They are there."""
        if self._large is not None:
            self._filled += nbytes
            if self._filled < len(self._large):
                return
            self._large = None
        else:
            self._ahead += self._shared.scratch[:nbytes]
            if len(self._ahead) >= AHEAD_BYTES:
                self._pause()
        self._came.set()

    def eof_received(self) -> bool:
        """The other end says nothing more: nobody waits for answers either."""
        return False

    def pause_writing(self) -> None:
        """The kernel takes no more."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It does again."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed: what is under way for it alone ends, what has come whole is done."""
        del exc
        self._shared.crowd.closed(self)
        self.session.close()
        self._is_gone = True
        self._came.set()
        self._writable.set()
        # (What ends in a cycle may stay for ever in a large process: it was alive at a full collection, ``collector``.)
        serving, self._serving = self._serving, None
        if serving is not None and not serving.done():
            if self._at_loss is not AtLoss.GO_ON:
                serving.cancel()
            self._shared.left(serving)

    def get_extra_info(self, name: str) -> Any:
        """Of the transport."""
        return None if self._transport is None else self._transport.get_extra_info(name)

    def close(self) -> None:
        """End it. It counts no more from now on: of many that come in one turn of the loop, each closes another one."""
        self._shared.crowd.closed(self)
        if self._transport is not None:
            self._transport.abort()

    # -- requests, one after another -----------------------------------------------------------------------------

    async def _serve(self) -> None:
        try:
            for number in itertools.count(1):
                await self._serve_one()
                if self._ahead and not number % IN_A_TURN:
                    # (The next one is here: thousands that are answered without a wait would be one turn.)
                    await asyncio.sleep(0)
        except (MalformedError, TooManyItemsError, RegnumError, TimeoutError) as error:
            self._shared.log.info("connection closed", connection=self.name, reason=str(error) or "it said nothing")
        except _HungUpError:
            pass
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the task is not awaited; the supervisor stops the process
            self._shared.defect(error)
        finally:
            self.close()

    async def _serve_one(self) -> None:
        shared = self._shared
        left_s = self._ends_s - shared.clock.monotonic()
        if left_s <= 0.0:
            raise TimeoutError("it is as old as it may be")
        async with asyncio.timeout(min(self._silence_s, left_s)):
            await self._until(SIZE_BYTES)
        self._silence_s = shared.idle_s
        size = size_of(self._ahead)
        if size > shared.request_bytes_max:
            raise MalformedError(f"a request of {size} bytes is larger than {shared.request_bytes_max}")
        shared.crowd.used(self)
        who = shared.caller_of(self)
        with calling(who):
            call = shared.budget.call(peer=self.name, principal=who.principal)
            try:
                with contextlib.closing(shared.budget.holding(call, Purpose.PRODUCE)) as holding:
                    frame = await self._frame(size, holding)
                    head = Head.read(frame)
                    for_client = shared.door.ends_with_its_client(head)
                    if for_client and self._is_gone:
                        return
                    call.client_id = head.client_id
                    context = Context(call, head, self.session, shared.clock, size_bytes=size)
                    more = await self._more_together(context, holding)
                    if more:
                        await self._answer_together([(frame, context), *more])
                        return
                    buffers = await (self._answer_or_pass_over if for_client else shared.door.answer)(frame, context)
                    del frame
                if buffers is not None:
                    await self._send(buffers)
            finally:
                call.leave()

    async def _frame(self, size: int, holding: Holding) -> memoryview:
        """The request behind its size; memory for a large one is waited for."""
        if size > SMALL_BYTES:
            self._pause()
            self._at_loss = AtLoss.END
            await holding.wait_for(size)
            self._at_loss = AtLoss.GO_ON
        if SIZE_BYTES + size <= AHEAD_BYTES:
            async with asyncio.timeout(READ_S_MAX):
                await self._until(SIZE_BYTES + size)
            frame = memoryview(bytes(self._ahead[SIZE_BYTES : SIZE_BYTES + size]))
            del self._ahead[: SIZE_BYTES + size]
            return frame
        whole = memoryview(bytearray(size))
        here = min(size, len(self._ahead) - SIZE_BYTES)
        whole[:here] = self._ahead[SIZE_BYTES : SIZE_BYTES + here]
        del self._ahead[: SIZE_BYTES + here]
        if here < size:
            self._large, self._filled = whole, here
            async with asyncio.timeout(READ_S_MAX):
                while self._large is not None:
                    await self._more()
        return whole

    async def _more_together(self, first: Context, holding: Holding) -> list[tuple[memoryview, Context]]:
        """The whole requests that have come behind one and may be answered together with it; memory is waited for."""
        shared, heads, sizes = self._shared, list[Head](), list[int]()
        if not self._ahead or not shared.door.takes_together(first.head):
            return []
        ahead, at = memoryview(self._ahead), 0
        # (What cannot be read is looked at when it is its turn.)
        with ahead, contextlib.suppress(MalformedError):
            while len(heads) < TOGETHER_MAX - 1 and len(ahead) - at >= SIZE_BYTES:
                size = size_of(ahead, at)
                if len(ahead) - at < SIZE_BYTES + size:
                    break
                with ahead[at + SIZE_BYTES : at + SIZE_BYTES + size] as frame:
                    head = Head.read(frame)
                # (One client, one call: what its answers hold is let go of when the call ends.)
                if not shared.door.takes_together(head) or head.client_id != first.head.client_id:
                    break
                heads.append(head)
                sizes.append(size)
                at += SIZE_BYTES + size
        if at > SMALL_BYTES:
            await holding.wait_for(at)
        found, at = [], 0
        for head, size in zip(heads, sizes, strict=True):
            frame = memoryview(bytes(self._ahead[at + SIZE_BYTES : at + SIZE_BYTES + size]))
            context = Context(first.call, head, self.session, shared.clock, size_bytes=size)
            found.append((frame, context))
            at += SIZE_BYTES + size
        del self._ahead[:at]
        return found

    async def _answer_or_pass_over(self, frame: memoryview, context: Context) -> Buffers | None:
        """The answer, as long as there is somebody to hear it: what came behind the request is looked at then."""
        self._at_loss = AtLoss.PASS_OVER
        try:
            return await self._shared.door.answer(frame, context)
        except asyncio.CancelledError:
            if not self._is_gone or _still_cancelled():
                raise
            return None
        finally:
            self._at_loss = AtLoss.GO_ON

    async def _answer_together(self, asked: list[tuple[memoryview, Context]]) -> None:
        """Answer some requests, one after another; those whose answers are there by then in one write."""
        # What comes meanwhile is taken next time, as many of them as there are then.
        if len(self._ahead) < AHEAD_BYTES:
            self._resume()
        door = self._shared.door
        while asked:
            together = await door.together(asked)
            with contextlib.closing(together):
                answers = deque(together.answers)
                while answers:
                    await asyncio.wait((answers[0],))
                    ready: Buffers = []
                    refused: Code | None = None
                    while answers and answers[0].done() and refused is None:
                        answer = answers.popleft().result()
                        if isinstance(answer, int):
                            refused = answer
                        else:
                            ready += answer or ()
                    if ready:
                        await self._send(ready)
                    if refused is not None:
                        raise unheard(refused)
            del asked[: len(together.answers)]
            if not together.answers and (buffers := await door.answer(*asked.pop(0))) is not None:
                await self._send(buffers)

    async def _until(self, size: int) -> None:
        """Return when so much has come."""
        while len(self._ahead) < size:
            await self._more()

    async def _more(self) -> None:
        if self._is_gone:
            raise _HungUpError
        self._came.clear()
        self._resume()
        await self._came.wait()

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    async def _send(self, buffers: Buffers) -> None:
        transport = self._transport
        assert transport is not None  # noqa: S101 - it was when the request came
        if self._is_gone:
            return
        if sum(map(len, buffers)) <= PIECE_BYTES:
            transport.write(b"".join(buffers))
            await self._writable.wait()
            return
        for piece in pieces(buffers):
            transport.write(piece)
            await self._writable.wait()
            if self._is_gone:
                return


def _still_cancelled() -> bool:
    """Take one cancellation of the current task back; whether there was another."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - called from one
    return task.uncancel() > 0
