"""A stream to the controller's lifeline listener, for the lifeline's event loop (safety rule S9).

Goals: no call of the main loop wakes the lifeline's loop, and no beat wakes the main loop.

Constraints: grpc.aio has one poller for all loops of a process. Each event of any call wakes every one of them, all but
one find nothing, and half of the events are taken by a loop that can only pass them on (``regnum_service.poller``).
With the lifeline on grpc.aio, its loop took a tenth of what a broker took.

Algorithm: gRPC's blocking API, whose channels have a completion queue and a thread of their own. What is written goes
through a queue to the thread that sends it; another one reads, and hands what it read to the loop.
"""

import asyncio
import contextlib
import threading
from queue import SimpleQueue
from typing import Any, Final, Protocol

import grpc
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum_model.nodes import Address
from regnum_service.channel import ADDRESSEE, CHANNEL_OPTIONS, blocking_channel, target
from regnum_service.tls.files import WatchedFiles

Call = Any
"""A bidirectional call of gRPC's blocking API, whose stubs are generic and whose class is not public."""


class Stream(Protocol):
    """One stream to a controller. Belongs to the event loop that opened it."""

    def write(self, message: controller_pb2.BrokerLifelineRequest) -> None:
        """Send a message soon; nothing happens when the stream is over, which ``read`` says."""

    async def read(self) -> controller_pb2.BrokerLifelineResponse | None:
        """The next answer; None: the controller ended the stream. Raises grpc.RpcError when it broke."""

    def close(self) -> None:
        """End it, without a wait for the other end."""


class OpenStream(Protocol):
    """How a stream is begun; that the address cannot be reached is said by ``read``."""

    def __call__(self, address: Address, tls: WatchedFiles | None = None, addressee: str = "", /) -> Stream:
        """Arguments as of ``LifelineStream.open``."""


class LifelineStream:
    """One stream. Belongs to the event loop that opened it."""

    def __init__(self, call: Call, channel: grpc.Channel, outbox: "SimpleQueue[Any]") -> None:
        """Only assigns; ``open`` makes one."""
        self._call: Final = call
        self._channel: Final = channel
        self._outbox: Final = outbox
        self._loop: Final = asyncio.get_running_loop()
        self._answers: Final[asyncio.Queue[controller_pb2.BrokerLifelineResponse | grpc.RpcError | None]] = (
            asyncio.Queue()
        )

    @classmethod
    def open(cls, address: Address, tls: WatchedFiles | None = None, addressee: str = "") -> "LifelineStream":
        """Begin a stream; that the address cannot be reached is said by ``read``.

        Args:
            address: where the controller takes lifelines.
            tls: files for TLS; None: in plaintext.
            addressee: the process meant by the address; empty: any.
        """
        outbox: SimpleQueue[controller_pb2.BrokerLifelineRequest | None] = SimpleQueue()
        channel = _channel(address, tls)
        call = controller_pb2_grpc.LifelineServiceStub(channel).BrokerLifeline(
            iter(outbox.get, None), metadata=((ADDRESSEE, addressee),) if addressee else ()
        )
        stream = cls(call, channel, outbox)
        threading.Thread(target=stream._read_all, name="lifeline reader", daemon=True).start()
        return stream

    def write(self, message: controller_pb2.BrokerLifelineRequest) -> None:
        """Send a message soon; nothing happens when the stream is over, which ``read`` says."""
        self._outbox.put(message)

    async def read(self) -> controller_pb2.BrokerLifelineResponse | None:
        """The next answer; None: the controller ended the stream.

        Raises:
            grpc.RpcError: it broke.
        """
        answer = await self._answers.get()
        if isinstance(answer, grpc.RpcError):
            raise answer
        return answer

    def close(self) -> None:
        """End it. Returns when gRPC has cancelled it, which needs nobody at the other end."""
        self._call.cancel()
        self._outbox.put(None)
        self._channel.close()

    def _read_all(self) -> None:
        """On a thread of its own."""
        try:
            for answer in self._call:
                self._hand_over(answer)
        except grpc.RpcError as error:
            self._hand_over(error)
        else:
            self._hand_over(None)

    def _hand_over(self, answer: controller_pb2.BrokerLifelineResponse | grpc.RpcError | None) -> None:
        with contextlib.suppress(RuntimeError):
            # The loop is closed: the broker stops.
            self._loop.call_soon_threadsafe(self._answers.put_nowait, answer)


def _channel(address: Address, tls: WatchedFiles | None) -> grpc.Channel:
    if tls is None:
        return blocking_channel(target(address), options=CHANNEL_OPTIONS)
    # Each stream has a channel of its own, so that a new one shows what is in the files by then.
    if tls.is_due:
        asyncio.get_running_loop().run_in_executor(None, tls.check)
    return blocking_channel(target(address), credentials=tls.pem.channel_credentials(), options=CHANNEL_OPTIONS)
