"""Records what clients of Kafka send.

python -m regnum_testing.kafka_fuzz.record --listen 127.0.0.1:19092 --broker 127.0.0.1:9192 --to FOLDER

It passes on what comes to a broker that was told to advertise it (``--kafka-advertised``), until it is interrupted, and
writes a file for each client id. Requests that are as long as records make them are left out, and what is like two
others.
"""

import argparse
import asyncio
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from regnum_model.nodes import Address

from regnum_testing.kafka_fuzz.sessions import SUFFIX, frames_of

FRAME_BYTES_MAX: Final = 2_048
LIKE_MAX: Final = 2
"""Requests of one call and version that are kept."""
_CHUNK: Final = 64 * 1024


class Recorder:
    """A proxy that remembers. Belongs to the event loop."""

    def __init__(self, broker: Address) -> None:
        """Only assigns."""
        self._broker: Final = broker
        self.sent: Final[list[bytearray]] = []
        """By connection, in their order."""

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client is there."""
        sent = bytearray()
        self.sent.append(sent)
        answers, requests = await asyncio.open_connection(self._broker.host, self._broker.port)

        async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter, kept: bytearray | None) -> None:
            with suppress(ConnectionError):
                while chunk := await source.read(_CHUNK):
                    if kept is not None:
                        kept += chunk
                    target.write(chunk)
                    await target.drain()
            target.close()

        await asyncio.gather(carry(reader, requests, sent), carry(answers, writer, None))

    def by_client(self) -> dict[str, list[bytes]]:
        """Frames worth keeping, by client id."""
        found: dict[str, list[bytes]] = {}
        alike: dict[tuple[str, bytes], set[bytes]] = {}
        for sent in self.sent:
            for frame in frames_of(bytes(sent)):
                (length,) = struct.unpack_from(">h", frame, 8)
                client = frame[10 : 10 + max(0, length)].decode()
                others = alike.setdefault((client, frame[:4]), set())
                told = frame[8:]
                if len(frame) <= FRAME_BYTES_MAX and len(others) < LIKE_MAX and told not in others:
                    others.add(told)
                    found.setdefault(client, []).append(frame)
        return found


async def record(listen: Address, broker: Address) -> dict[str, list[bytes]]:
    """Pass on until it is interrupted; frames by client id."""
    recorder, stopped = Recorder(broker), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = await asyncio.start_server(recorder.connected, listen.host, listen.port)
    await stopped.wait()
    server.close()
    return recorder.by_client()


def write(sessions: Mapping[str, Sequence[bytes]], folder: Path) -> None:
    """A file for each client."""
    folder.mkdir(parents=True, exist_ok=True)
    for client, frames in sessions.items():
        path = folder / f"{client or 'nameless'}{SUFFIX}"
        path.write_bytes(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        sys.stdout.write(f"{path}: {len(frames)} requests, {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, kind, told in (
        ("listen", Address.parse, "where clients come"),
        ("broker", Address.parse, "where the broker listens"),
        ("to", Path, "where files are written"),
    ):
        parser.add_argument(f"--{name}", type=kind, required=True, help=told)
    given = parser.parse_args()
    write(asyncio.run(record(given.listen, given.broker)), given.to)
