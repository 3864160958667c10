"""Ends sessions of other processes in the store, as if their time-out had passed; the owner is not asked.

etcd revokes a lease for anybody who names it. ZooKeeper ends a session for whoever knows its password.
"""

import asyncio
import http.client
import json
from urllib.parse import urlsplit

from regnum_testing.waiting import DEADLINE_S
from regnum_testing.zookeeper_sessions import expire_session


async def end_session(url: str, session_id: int) -> None:
    """End a session now, with its ephemeral nodes; the store is one of one node. AssertionError if there is none."""
    parts = urlsplit(url)
    assert parts.port is not None, f"{url} names no port"
    if parts.scheme == "etcd":
        await asyncio.to_thread(_revoke, parts.port, session_id)
    else:
        ended = await expire_session(parts.port, session_id, timeout_s=DEADLINE_S)
        assert ended, f"session {session_id:x} is over already"


def _revoke(port: int, lease_id: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request("POST", "/v3/lease/revoke", json.dumps({"ID": str(lease_id)}))
        answer = connection.getresponse()
        said = answer.read()
    finally:
        connection.close()
    assert answer.status == http.HTTPStatus.OK, f"lease {lease_id:x} was not revoked: {said.decode()}"
