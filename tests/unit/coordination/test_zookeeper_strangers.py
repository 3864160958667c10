"""ZooKeeper as a stranger finds it: what its answers mean, with a server that says what it is told to."""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from kazoo import exceptions
from regnum_coordination import opening
from regnum_coordination.admission import Admission, Examination

NO_AUTH = exceptions.NoAuthError.code
BAD_VERSION = exceptions.BadVersionError.code
NO_NODE = exceptions.NoNodeError.code
SASL = exceptions.SessionClosedRequireSaslError.code


@asynccontextmanager
async def server(
    answers: Mapping[tuple[str, int], int], *, otherwise: int = NO_AUTH, ends: bool = False, mute: bool = False
) -> AsyncIterator[int]:
    """Answers by path and type of the request (4: data, 5: write); ``ends``, ``mute``: takes no session."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first = True
            while True:
                (length,) = struct.unpack("!i", await reader.readexactly(4))
                frame = await reader.readexactly(length)
                if mute:
                    continue
                if ends:
                    break
                if first:
                    reply = struct.pack("!iiqi16sB", 0, 1_000, 7, 16, bytes(16), 0)
                else:
                    xid, kind = struct.unpack_from("!ii", frame)
                    if kind == -11:
                        break
                    (size,) = struct.unpack_from("!i", frame, 8)
                    path = frame[12 : 12 + size].decode()
                    reply = struct.pack("!iqi", xid, 1, answers.get((path, kind), otherwise))
                first = False
                writer.write(struct.pack("!i", len(reply)) + reply)
                await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


async def examined(port: int, query: str = "", *, timeout_s: float = 5.0) -> Examination:
    url = f"zookeeper://127.0.0.1:{port}/regnum{query}"
    return await opening.examine_store(url, nodes=("/brokers/ids", "/acl"), timeout_s=timeout_s)


async def test_who_may_read_or_write_the_root_of_ours_is_let_in() -> None:
    for answers in ({("/regnum", 4): 0}, {("/regnum", 5): BAD_VERSION}):
        async with server(answers) as port:
            found = await examined(port)
        assert (found.admission, found.loopback, found.weaknesses) == (Admission.ADMITTED, True, ())


async def test_who_may_nothing_is_not_and_nodes_from_before_there_was_a_user_are_named() -> None:
    async with server({}) as port:
        assert (await examined(port)).weaknesses == ()
        assert (await examined(port)).admission is Admission.REFUSED
    async with server({("/regnum/brokers/ids", 5): BAD_VERSION, ("/regnum/acl", 4): NO_NODE}) as port:
        found = await examined(port)
    assert found.admission is Admission.REFUSED
    (said,) = found.weaknesses
    assert "before it had a user: /brokers/ids; give" in said
    assert "setAcl -R /regnum auth::cdrwa" in said


async def test_a_server_that_wants_a_user_of_every_session_refuses() -> None:
    async with server({}, otherwise=SASL) as port:
        assert (await examined(port)).admission is Admission.REFUSED


async def test_an_ended_connection_is_a_refusal_only_of_who_has_no_certificate_and_silence_is_none() -> None:
    async with server({}, ends=True) as port:
        assert (await examined(port)).admission is Admission.UNANSWERED
    async with server({}, mute=True) as port:
        assert (await examined(port, timeout_s=0.05)).admission is Admission.UNANSWERED
