"""ZooKeeper as a stranger finds it: a connection without certificate and user, and what may be done on it.

Goals: known whether strangers get at our nodes, at the root of them and at those below, which may be from before there
was a user; nothing is changed by asking.

Constraints: kazoo's client tries on for as long as it lives; here one refusal is the answer. Only a write proves that a
node may be written: its list of rights is shown to whom it lets read.

Algorithm: one connection to each server, on which a session is asked for and, behind it, of each node its data, and a
write at a version that it never has. A server looks for rights before it looks at the version, so that BadVersion means
that the write was allowed. Exchanged with kazoo's own messages, on streams of the loop.
"""

import asyncio
import ssl
import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kazoo import exceptions
from kazoo.protocol.serialization import Close, Connect, GetData, SetData
from regnum_model.nodes.processes import is_loopback

from regnum_coordination.admission import Admission, Examination, Knock, settle
from regnum_coordination.drivers.zookeeper.address import ZooKeeperAddress
from regnum_coordination.drivers.zookeeper.names import ServerNames
from regnum_coordination.paths import ROOT

SESSION_MS: Final = 1_000
"""Session time-out that is asked for; the server may grant more."""

FRAME_BYTES_MAX: Final = 2 * 2**20
"""A frame that is longer is none of ZooKeeper's."""

NEVER: Final = 2**31 - 2
"""A version that no node gets to."""

NAMED: Final = 3
"""Nodes that are named where more are open."""

_INT: Final = struct.Struct("!i")
_REQUEST: Final = struct.Struct("!ii")
_REPLY: Final = struct.Struct("!iqi")

_REFUSALS: Final = frozenset(
    error.code
    for error in (
        exceptions.NoAuthError,
        exceptions.AuthFailedError,
        # Of servers that want a user of every session (``enforce.auth.enabled``, SASL).
        exceptions.SessionClosedRequireSaslError,
    )
)
"""Answers to a session that has no right to a node, or to anything."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What one server did."""

    knock: Knock
    """About the root of ours."""
    open: frozenset[str] = frozenset()
    """Nodes that a stranger may read or write."""


async def examine(url: str, *, nodes: Collection[str], timeout_s: float) -> Examination:
    """See ``regnum_coordination.examine_store``."""
    address = ZooKeeperAddress.parse(url)
    own = address.credentials
    await asyncio.to_thread(own.check_files)
    tls = None if own.ca is None else await asyncio.to_thread(ssl.create_default_context, cafile=own.ca)
    paths = [ROOT, *nodes]
    names = ServerNames(address.chroot)
    found = await asyncio.gather(*(_ask(host, port, tls, names, paths, timeout_s) for host, port in address.endpoints))
    admission = settle([one.knock for one in found], shows_certificate=own.cert is not None)
    left_open = sorted(frozenset().union(*(one.open for one in found)))
    return Examination(
        admission=admission,
        loopback=all(is_loopback(host) for host, _ in address.endpoints),
        weaknesses=() if admission is Admission.ADMITTED or not left_open else (_weakness(left_open, names),),
    )


def _weakness(left_open: Sequence[str], names: ServerNames) -> str:
    listed = ", ".join(left_open[:NAMED])
    more = len(left_open) - NAMED
    return (
        f"lets anybody read or write nodes of ours that are from before it had a user: {listed}"
        f"{f' and {more} more' if more > 0 else ''}; give them to the user of the URL: "
        f"setAcl -R {names.root} auth::cdrwa in zkCli, after addauth digest NAME:PASSWORD"
    )


async def _ask(
    host: str, port: int, tls: ssl.SSLContext | None, names: ServerNames, paths: Sequence[str], timeout_s: float
) -> _Found:
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=tls, server_hostname=None if tls is None else host
            )
            try:
                return await _exchange(reader, writer, names, paths)
            finally:
                writer.close()
    except TimeoutError:
        return _Found(Knock.SILENT)
    except (OSError, asyncio.IncompleteReadError, struct.error):
        # TLS that is refused is an OSError, too.
        return _Found(Knock.ENDED)


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, names: ServerNames, paths: Sequence[str]
) -> _Found:
    """Ask for a session and for all nodes, one behind the other; raises OSError, IncompleteReadError, struct.error."""
    writer.write(_frame(Connect(0, 0, SESSION_MS, 0, bytes(16), False).serialize()))  # noqa: FBT003 - kazoo's
    await _read(reader)
    asked: list[tuple[str, type[exceptions.ZookeeperError] | None]] = []
    for path in paths:
        for request, allowed in (
            (GetData(names.path(path), None), None),
            (SetData(names.path(path), b"", NEVER), exceptions.BadVersionError),
        ):
            asked.append((path, allowed))
            writer.write(_frame(_REQUEST.pack(len(asked), request.type) + request.serialize()))
    left_open: set[str] = set()
    refused = False
    for path, allowed in asked:
        code = _REPLY.unpack_from(await _read(reader))[2]
        if code == (0 if allowed is None else allowed.code):
            left_open.add(path)
        elif path == ROOT and code in _REFUSALS:
            refused = True
    writer.write(_frame(_REQUEST.pack(len(asked) + 1, Close.type) + Close().serialize()))
    await writer.drain()
    if ROOT in left_open:
        return _Found(Knock.ADMITTED, frozenset(left_open))
    return _Found(Knock.REFUSED if refused else Knock.SILENT, frozenset(left_open))


def _frame(content: Any) -> bytes:
    return _INT.pack(len(content)) + bytes(content)


async def _read(reader: asyncio.StreamReader) -> bytes:
    (length,) = _INT.unpack(await reader.readexactly(_INT.size))
    if not 0 <= length <= FRAME_BYTES_MAX:
        raise ConnectionError("the server does not speak ZooKeeper's protocol")
    return await reader.readexactly(length)
