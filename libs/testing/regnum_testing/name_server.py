"""A name server of one name, on loopback: what gRPC hears when a Pod is replaced.

A channel asks it with the target ``dns://127.0.0.1:PORT/NAME:PORT``.
"""

import asyncio
import ipaddress
import struct
from types import TracebackType
from typing import Final, Self

NAME: Final = "peer.regnum.test"
"""The name; all others are unknown."""
TTL_S: Final = 5
"""As long as the cluster's own name server lets others keep an address."""

_HEAD_BYTES: Final = 12
_ADDRESS: Final = 1
_UNKNOWN: Final = 3
_ANSWER: Final = 0x8180


class NameServer(asyncio.DatagramProtocol):
    """Answers with one address, or that the name is unknown. A context manager; belongs to one event loop."""

    def __init__(self, address: str | None) -> None:
        """Only assigns; ``address``: what the name stands for, None: nothing."""
        self.address = address
        """May be changed at any time."""
        self.silent = False
        """Whether nobody is answered; may be changed at any time."""
        self.questions: int = 0
        """Questions for an address so far."""
        self._transport: asyncio.DatagramTransport | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._transport is not None:
            self._transport.close()

    def target(self, port: int) -> str:
        """Target, for gRPC, of that port of the name."""
        if self._transport is None:
            raise RuntimeError("entered first")
        return f"dns://127.0.0.1:{self._transport.get_extra_info('sockname')[1]}/{NAME}:{port}"

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        """A question."""
        labels: list[str] = []
        at = _HEAD_BYTES
        while size := data[at]:
            labels.append(data[at + 1 : at + 1 + size].decode("ascii"))
            at += size + 1
        kind = struct.unpack_from(">H", data, at + 1)[0]
        question = data[_HEAD_BYTES : at + 5]
        if self.silent:
            self.questions += kind == _ADDRESS
            return
        known = self.address if ".".join(labels).lower() == NAME else None
        answer = b""
        if kind == _ADDRESS:
            self.questions += 1
            if known is not None:
                packed = ipaddress.IPv4Address(known).packed
                answer = b"\xc0\x0c" + struct.pack(">HHIH", _ADDRESS, 1, TTL_S, len(packed)) + packed
        flags = _ANSWER | (0 if known is not None else _UNKNOWN)
        head = data[:2] + struct.pack(">HHHHH", flags, 1, 1 if answer else 0, 0, 0)
        if self._transport is not None:
            self._transport.sendto(head + question + answer, address)
