"""Receivers of UpdateMetadata for ``propagate``: as many brokers as are wanted behind one port, in one process.

``python -m regnum_bench.receivers APPLYING [HOSTS]`` prints its port and serves until it is ended, at so many loopback
addresses besides 127.0.0.1. A stream is a broker. Of each change only the first message is read, and of that not the
topics; the first APPLYING streams read and keep all of it, as a broker does; with -1 none ever reads. Every receiver
answers as a broker does (refusing what does not join on), and notes when it had which version, on the monotonic clock
that all processes of a machine share. Orders of a controller (LeaderAndIsr, StopReplica) are acknowledged and counted,
and nothing else is done about them.

Receivers that are to be connected and sent nothing claim, when they are asked, to have what there is; later they forget
it, all at once, and the next change finds out that they need everything.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_service.channel import MESSAGE_BYTES_MAX
from regnum_service.listening import make_server

from regnum_bench.children import own_host, serve_as_child

SEEN: Final = "/regnum.bench.Receivers/Seen"
"""Answers, as JSON, what every receiver noted since the last such call."""
ORDERED: Final = "/regnum.bench.Receivers/Ordered"
"""Answers, as JSON, of how many replicas orders of a controller were acknowledged in all."""
CLAIM: Final = "/regnum.bench.Receivers/Claim"
"""From now on who is asked for its version says that it has the present one."""
FORGET: Final = "/regnum.bench.Receivers/Forget"
"""All have nothing, and nobody claims anything any more."""
TOPICS_FIELD: Final = control_pb2.UpdateMetadataRequest.TOPICS_FIELD_NUMBER
OPTIONS: Final = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
)


@dataclass(slots=True, eq=False)
class Receiver:
    """A broker's side of one stream."""

    applies: bool
    """Whether it reads all."""
    epoch: int = 0
    """Highest controller epoch."""
    version: int = 0
    """Version of what it knows."""
    version_epoch: int = 0
    """Controller epoch that the version belongs to."""
    topics: dict[str, dict[int, Any]] = field(default_factory=dict)
    """What it keeps, when it applies."""
    seen: list[tuple[int, float, int]] = field(default_factory=list)
    """Version, moment, bytes of the change."""

    def forget(self) -> None:
        """It has nothing, as a broker that has just started."""
        self.version = self.version_epoch = 0

    def take(self, parts: list[bytes], *, claims: bool = False) -> control_pb2.UpdateMetadataResponse:
        """A whole change. ``claims``: asked for its version, it says that it has the present one."""
        head = head_of(parts[0])
        if claims and head.from_version == head.to_version:
            self.version, self.version_epoch = head.to_version, head.controller_epoch
        code = errors_pb2.ERROR_CODE_NONE
        if head.controller_epoch < self.epoch:
            code = errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH
        else:
            self.epoch = head.controller_epoch
            if (self.version_epoch, self.version) < (head.controller_epoch, head.to_version):
                if self._joins_on(head):
                    self._take(head, parts)
                else:
                    code = errors_pb2.ERROR_CODE_INVALID_REQUEST
        return control_pb2.UpdateMetadataResponse(
            controller_epoch=self.epoch, version=self.version, version_epoch=self.version_epoch, error_code=code
        )

    def _take(self, head: control_pb2.UpdateMetadataRequest, parts: list[bytes]) -> None:
        if self.applies:
            self._apply(full=not head.from_version, parts=parts)
        self.version, self.version_epoch = head.to_version, head.controller_epoch
        self.seen.append((self.version, time.monotonic(), sum(map(len, parts))))

    def _joins_on(self, head: control_pb2.UpdateMetadataRequest) -> bool:
        """Whether it takes a receiver of this version further (see the message)."""
        if not head.from_version:
            return True
        if head.base_epoch:
            return head.base_epoch == self.version_epoch and head.from_version <= self.version <= head.base_version
        return head.controller_epoch == self.version_epoch and head.from_version <= self.version

    def _apply(self, *, full: bool, parts: list[bytes]) -> None:
        if full:
            self.topics = {}
        for part in parts:
            for topic in control_pb2.UpdateMetadataRequest.FromString(part).topics:
                known = self.topics.setdefault(topic.name, {})
                known.update((state.partition, state) for state in topic.partitions)


def head_of(message: bytes) -> control_pb2.UpdateMetadataRequest:
    """A message without its topics: their bytes are passed over, since they may be many."""
    at = 0
    kept: list[bytes] = []
    while at < len(message):
        begin = at
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                _, at = _varint(message, at)
            case 2:
                size, at = _varint(message, at)
                at += size
            case kind:
                raise ValueError(f"field {tag >> 3} has wire type {kind}, which no field of the message has")
        if tag >> 3 != TOPICS_FIELD:
            kept.append(message[begin:at])
    return control_pb2.UpdateMetadataRequest.FromString(b"".join(kept))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


Orders = control_pb2.LeaderAndIsrRequest | control_pb2.StopReplicaRequest
"""What a controller orders."""


def carried_out(request: Orders) -> control_pb2.LeaderAndIsrResponse | control_pb2.StopReplicaResponse:
    """Everything acknowledged: what an order is about is not there."""
    if isinstance(request, control_pb2.LeaderAndIsrRequest):
        places = [(one.topic_id, one.state.partition) for one in request.partitions]
        return control_pb2.LeaderAndIsrResponse(results=_acknowledged(places))
    return control_pb2.StopReplicaResponse(
        results=_acknowledged([(one.topic_id, one.partition) for one in request.partitions])
    )


def _acknowledged(places: list[tuple[str, int]]) -> list[control_pb2.ReplicaResult]:
    return [control_pb2.ReplicaResult(topic_id=id, partition=number) for id, number in places]


class Played:
    """All receivers of one process. Belongs to the event loop."""

    def __init__(self, applying: int) -> None:
        """``applying``: how many read everything; -1: nobody reads anything."""
        self._applying: Final = applying
        self._receivers: list[Receiver] = []
        self._claiming = False
        self._ordered = 0

    async def update(
        self, stream: AsyncIterator[bytes], _context: Any
    ) -> AsyncIterator[control_pb2.UpdateMetadataResponse]:
        """The stream of one receiver."""
        if self._applying < 0:
            # It takes the connection and never reads.
            await asyncio.Event().wait()
        receiver = Receiver(applies=len(self._receivers) < self._applying)
        self._receivers.append(receiver)
        parts: list[bytes] = []
        wanted = 0
        try:
            async for part in stream:
                if not parts:
                    wanted = head_of(part).parts
                parts.append(part)
                if len(parts) >= wanted:
                    yield receiver.take(parts, claims=self._claiming)
                    parts = []
        finally:
            self._receivers.remove(receiver)

    async def seen(self, _request: bytes, _context: Any) -> bytes:
        """See ``SEEN``."""
        noted = [receiver.seen for receiver in self._receivers]
        for receiver in self._receivers:
            receiver.seen = []
        return json.dumps(noted).encode()

    async def claim(self, _request: bytes, _context: Any) -> bytes:
        """See ``CLAIM``."""
        self._claiming = True
        return b""

    async def forget(self, _request: bytes, _context: Any) -> bytes:
        """See ``FORGET``."""
        self._claiming = False
        for receiver in self._receivers:
            receiver.forget()
        return b""

    async def orders(
        self, request: Orders, _context: Any
    ) -> control_pb2.LeaderAndIsrResponse | control_pb2.StopReplicaResponse:
        """An order of a controller."""
        self._ordered += len(request.partitions)
        return carried_out(request)

    async def ordered(self, _request: bytes, _context: Any) -> bytes:
        """See ``ORDERED``."""
        return json.dumps(self._ordered).encode()


async def _serve(applying: int, hosts: int = 0) -> None:
    played = Played(applying)
    server = make_server(*OPTIONS)
    updates = grpc.stream_stream_rpc_method_handler(
        played.update,
        request_deserializer=bytes,
        response_serializer=control_pb2.UpdateMetadataResponse.SerializeToString,
    )
    states = grpc.unary_unary_rpc_method_handler(
        played.orders,
        request_deserializer=control_pb2.LeaderAndIsrRequest.FromString,
        response_serializer=control_pb2.LeaderAndIsrResponse.SerializeToString,
    )
    stops = grpc.unary_unary_rpc_method_handler(
        played.orders,
        request_deserializer=control_pb2.StopReplicaRequest.FromString,
        response_serializer=control_pb2.StopReplicaResponse.SerializeToString,
    )
    answers = {"Seen": played.seen, "Ordered": played.ordered, "Claim": played.claim, "Forget": played.forget}
    asked = {
        name: grpc.unary_unary_rpc_method_handler(answer, request_deserializer=bytes, response_serializer=bytes)
        for name, answer in answers.items()
    }
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "regnum.replication.v1.ReplicaControlService",
                {"UpdateMetadata": updates, "LeaderAndIsr": states, "StopReplica": stops},
            ),
            grpc.method_handlers_generic_handler("regnum.bench.Receivers", asked),
        )
    )
    await serve_as_child(server, hosts=map(own_host, range(hosts)))


if __name__ == "__main__":
    asyncio.run(_serve(*map(int, sys.argv[1:])))
