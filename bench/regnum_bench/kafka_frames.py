"""The least of a client of Kafka's protocol: batches that are built once, and what was fetched as bytes.

It is what remains of librdkafka when its own work is left out: requests of one partition each, several of them on their
way on one connection. A broker that is measured with it is measured with nothing else.
"""

import asyncio
import struct
from collections import deque
from typing import Final, Self

from regnum_model.nodes import Address

from regnum_bench.waiting import MeasureError

PRODUCE, PRODUCE_VERSION = 0, 7
FETCH, FETCH_VERSION = 1, 11
CLIENT: Final = "regnum-bench"
_ACKS_ALL: Final = -1
_HEAD: Final = struct.Struct(">hhih")
_SIZE: Final = struct.Struct(">i")


class KafkaConnection:
    """One connection to a broker; answers come in the order of the requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader: Final = reader
        self._writer: Final = writer
        self._waiting: Final[deque[asyncio.Future[bytes]]] = deque()
        self._reading: Final = asyncio.create_task(self._read(), name="kafka connection")

    @classmethod
    async def open(cls, address: Address) -> Self:
        """Connect. Raises OSError."""
        return cls(*await asyncio.open_connection(address.host, address.port, limit=16 * 1024 * 1024))

    async def close(self) -> None:
        """End it."""
        self._reading.cancel()
        self._writer.close()
        await self._writer.wait_closed()

    async def produce(self, topic: str, partition: int, batch: bytes) -> None:
        """Append with acks all. Raises MeasureError where the broker did not."""
        body = struct.pack(">hhi", -1, _ACKS_ALL, 60_000) + _one(topic) + struct.pack(">ii", partition, len(batch))
        answer = await self._call(PRODUCE, PRODUCE_VERSION, body, batch)
        (error,) = struct.unpack_from(">h", answer, 4 + len(_one(topic)) + 4)
        if error:
            raise MeasureError(f"{topic}-{partition} took no batch: error {error}")

    async def fetch(self, topic: str, partition: int, offset: int, bytes_max: int) -> tuple[memoryview, int]:
        """Batches from an offset on, and the high watermark. Raises MeasureError where there are none to be had."""
        body = (
            struct.pack(">iiiibii", -1, 500, 1, bytes_max, 0, 0, -1)
            + _one(topic)
            + struct.pack(">iiqqi", partition, -1, offset, -1, bytes_max)
            + struct.pack(">ih", 0, 0)
        )
        answer = await self._call(FETCH, FETCH_VERSION, body)
        at = 4 + 4 + 2 + 4 + len(_one(topic))
        _, error, high_watermark, _, _, aborted = struct.unpack_from(">ihqqqi", answer, at)
        if error or aborted > 0:
            raise MeasureError(f"{topic}-{partition} cannot be read: error {error}")
        return memoryview(answer)[at + 34 + 4 + 4 :], high_watermark

    async def _call(self, key: int, version: int, *body: bytes) -> bytes:
        head = _HEAD.pack(key, version, 0, len(CLIENT)) + CLIENT.encode()
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._writer.writelines((_SIZE.pack(len(head) + sum(map(len, body))), head, *body))
        return await answer

    async def _read(self) -> None:
        try:
            while True:
                (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
                answer = await self._reader.readexactly(size)
                self._waiting.popleft().set_result(answer)
        except (OSError, asyncio.IncompleteReadError) as error:
            for waiting in self._waiting:
                waiting.set_exception(MeasureError(f"the connection ended: {error}"))


def _one(topic: str) -> bytes:
    """An array of one topic with an array of one partition, as requests and answers have it."""
    return struct.pack(">ih", 1, len(topic)) + topic.encode() + struct.pack(">i", 1)
