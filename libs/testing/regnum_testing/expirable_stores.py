"""Real stores whose sessions a test ends from outside, all of them alike: as if a time-out had passed.

etcd revokes a lease by its id. ZooKeeper ends a session only for a client that knows its password; the password
crosses the wire in clear, so a proxy in front of the server takes it down, and ends the session as its owner would.
"""

import asyncio
import http.client
import json
import struct
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Final

from regnum_testing.etcd_server import EtcdServer
from regnum_testing.ports import unused_port
from regnum_testing.zookeeper_server import ZooKeeperServer

_CHUNK: Final = 64 * 1024
_ANSWER_WITHIN_S: Final = 5.0
_PROTOCOL_VERSION: Final = 0
_CLOSE_SESSION: Final = -11
"""Type of the request that ends a session."""
_CONNECTED_HEAD: Final = struct.Struct(">iiqi")
"""Answer to a connection: protocol version, granted milliseconds, session id, length of the password that follows."""


class ExpirableStore(ABC):
    """A store server of one node in a process of the test, and the means to end sessions."""

    url: str
    """URL of the store for services."""

    @abstractmethod
    async def start(self) -> None:
        """Start the server; returns when it serves."""

    @abstractmethod
    async def stop(self) -> None:
        """End the server."""

    @abstractmethod
    async def end_session(self, session_id: int) -> None:
        """End a session now, with its ephemeral nodes; its owner is not asked. AssertionError if there is none."""


class ExpirableEtcd(ExpirableStore):
    """etcd: a session is a lease."""

    def __init__(self, directory: Path) -> None:
        self._server = EtcdServer(directory, max_txn_ops=2_000)
        self.url = f"etcd://127.0.0.1:{self._server.port}/cluster?max_txn_ops=2000"

    async def start(self) -> None:
        """Start it."""
        await asyncio.to_thread(self._server.start)

    async def stop(self) -> None:
        """Kill it."""
        await asyncio.to_thread(self._server.kill)

    async def end_session(self, session_id: int) -> None:
        """Revoke the lease."""
        await asyncio.to_thread(self._revoke, session_id)

    def _revoke(self, lease_id: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=_ANSWER_WITHIN_S)
        try:
            connection.request("POST", "/v3/lease/revoke", json.dumps({"ID": str(lease_id)}))
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        assert answer.status == http.HTTPStatus.OK, f"lease {lease_id:x} was not revoked: {said.decode()}"


class ExpirableZooKeeper(ExpirableStore):
    """ZooKeeper behind a proxy that knows the password of every session that was made through it."""

    def __init__(self, directory: Path) -> None:
        self._server = ZooKeeperServer(directory)
        self._port: Final = unused_port()
        self.url = f"zookeeper://127.0.0.1:{self._port}/cluster"
        self._proxy: asyncio.Server | None = None
        self._passwords: dict[int, bytes] = {}
        self._ending = asyncio.Lock()
        self._links: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start server and proxy."""
        await asyncio.to_thread(self._server.start)
        self._proxy = await asyncio.start_server(self._accept, "127.0.0.1", self._port)

    async def stop(self) -> None:
        """End both."""
        if self._proxy is not None:
            self._proxy.close()
        for link in tuple(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)
        await asyncio.to_thread(self._server.kill)

    async def end_session(self, session_id: int) -> None:
        """Connect as its owner and close it."""
        password = self._passwords.get(session_id)
        assert password is not None, f"session {session_id:x} was not made through this proxy"
        # A server hangs up on the older connection of a session. Its owner, who comes back at once, waits here, or it
        # would take the session over again.
        async with self._ending, asyncio.timeout(_ANSWER_WITHIN_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._server.port)
            try:
                writer.write(_frame(_connect_request(session_id, password)))
                writer.write(_frame(struct.pack(">ii", 1, _CLOSE_SESSION)))
                await writer.drain()
                granted, _ = _session(await _read_frame(reader))
                assert granted == session_id, f"session {session_id:x} is over already"
                # The answer to the close, or the end of the connection: the session is gone either way.
                with suppress(asyncio.IncompleteReadError, ConnectionError):
                    await _read_frame(reader)
            finally:
                writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._links.add(task)
            task.add_done_callback(self._links.discard)
        try:
            async with self._ending:
                up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._server.port)
        except OSError:
            writer.transport.abort()
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_carry(reader, up_writer), name="requests to ZooKeeper")
                group.create_task(self._answers(up_reader, writer), name="answers of ZooKeeper")
        finally:
            writer.transport.abort()
            up_writer.transport.abort()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = await _read_frame(reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.transport.abort()
            return
        session_id, password = _session(first)
        if session_id:
            self._passwords[session_id] = password
        writer.write(_frame(first))
        await _carry(reader, writer)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until one side is gone; the other learns of it."""
    with suppress(ConnectionError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.transport.abort()


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def _connect_request(session_id: int, password: bytes) -> bytes:
    last_zxid_seen, timeout_ms = 0, 5_000
    head = struct.pack(">iqiqi", _PROTOCOL_VERSION, last_zxid_seen, timeout_ms, session_id, len(password))
    return head + password + b"\0"  # not read-only


def _session(answer: bytes) -> tuple[int, bytes]:
    """Session id (0: there is none any more) and password of an answer to a connection."""
    _, _, session_id, size = _CONNECTED_HEAD.unpack_from(answer)
    return session_id, answer[_CONNECTED_HEAD.size : _CONNECTED_HEAD.size + size]
