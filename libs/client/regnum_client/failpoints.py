"""Where the failpoints of a client are: at its channels, and where a producer sends (``regnum_service.failpoints``).

For tests of traces: a known delay in one step of a change of leadership is seen in that step. Loaded by a client that
is given failpoints, and by no other.
"""

from typing import Any, Final, cast

import grpc
from regnum_model.nodes import Address
from regnum_service.channel import Channels

from regnum_client.producer.calls import Failpoints

QUESTION: Final = "/regnum.metadata.v1.MetadataService/GetMetadata"
NEWS: Final = "/regnum.metadata.v1.MetadataService/WatchMetadata"
STREAM: Final = "/regnum.broker.v1.LogService/ProduceStream"

Call = Any
"""One of grpc.aio's calls."""
Multicallable = Any
"""One of grpc.aio's multicallables, whose stubs are generic and whose classes are not."""


class FailpointChannels(Channels):
    """Channels like those they are made of."""

    def __init__(self, channels: Channels, trigger: Failpoints) -> None:
        """Only assigns."""
        super().__init__()
        self._below: Final = channels
        self._trigger: Final = trigger

    def get(self, address: Address, addressee: str = "") -> grpc.aio.Channel:
        """See Channels."""
        channel = _FailpointChannel(self._below.get(address, addressee), self._trigger)
        # A stub asks for no more than it has.
        return cast("grpc.aio.Channel", channel)

    async def drop(self, address: Address, addressee: str = "") -> None:
        """See Channels."""
        await self._below.drop(address, addressee)

    async def close(self) -> None:
        """See Channels."""
        await self._below.close()


class _FailpointChannel:
    """A channel whose questions for metadata, news of it and produce streams wait."""

    def __init__(self, channel: grpc.aio.Channel, trigger: Failpoints) -> None:
        self._channel: Final = channel
        self._trigger: Final = trigger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def unary_unary(self, method: str, *arguments: Any, **named: Any) -> Multicallable:
        """A call with one request and one answer."""
        ask = self._channel.unary_unary(method, *arguments, **named)
        if method != QUESTION:
            return ask
        return lambda *told, **more: self._trigger.around_point("learn", (), lambda: ask(*told, **more))

    def stream_stream(self, method: str, *arguments: Any, **named: Any) -> Multicallable:
        """A call with a stream each way."""
        begin = self._channel.stream_stream(method, *arguments, **named)
        if method not in {NEWS, STREAM}:
            return begin
        stream = _News if method == NEWS else _ProduceStream
        return lambda *told, **more: stream(begin(*told, **more), self._trigger)


class _News:
    """A stream on which a broker tells of changes."""

    def __init__(self, call: Call, trigger: Failpoints) -> None:
        self._call: Final = call
        self._trigger: Final = trigger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    async def read(self) -> Any:
        """The next message."""
        message = await self._call.read()
        await self._trigger.reach("learn")
        return message


class _ProduceStream:
    """A stream to a leader."""

    def __init__(self, call: Call, trigger: Failpoints) -> None:
        self._call: Final = call
        self._trigger: Final = trigger
        self._begun = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    async def write(self, message: Any) -> None:
        """Send a message."""
        if not self._begun:
            self._begun = True
            await self._trigger.reach("connect")
        await self._call.write(message)
