"""A topic that no broker knows: whether it is damaged, and what may have been meant."""

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from regnum.admin.v1 import admin_pb2
from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_model.spelling import nearest
from regnum_model.topics import INTERNAL_TOPICS
from regnum_service.errors import RegnumError

from regnum_client.cluster.connections import Connections, call
from regnum_client.cluster.view import ControllerView
from regnum_client.tasks import together

LOOKING_S: Final = 1.0
"""So long at most it is looked for what helps; the topic is not there either way."""

NAMES_MAX: Final = 2_000
"""Names that are compared: as many take some ten milliseconds."""


async def missing(
    name: str,
    *,
    controller: ControllerView | None,
    brokers: Sequence[Address],
    connections: Connections,
    client_id: str,
) -> RegnumError:
    """The error for a topic that no broker knows; what cannot be found out in time is left out.

    Args:
        name: of the topic.
        controller: says what is damaged; None: nobody is known who does.
        brokers: know the names that there are.
        connections: to all of them.
        client_id: name of the caller.
    """
    header = RequestHeader(client_id=client_id)
    damage, alike = await together(
        "missing-topic",
        _in_time(_damage(name, controller, connections, header)),
        _in_time(_alike(name, brokers, connections, header)),
    )
    return RegnumError(
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        damage or _not_there(name, alike),
        metadata={"topic": name},
    )


def forbidden(name: str) -> RegnumError:
    """The error for a topic that this client may not know of."""
    return RegnumError(
        errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED,
        f"topic {name!r} may not be used by this client, whether it is there or not; have the right"
        " granted: `regnum acls check` says which rule decides",
        metadata={"topic": name},
    )


def _not_there(name: str, alike: str) -> str:
    how = f"create it with `regnum topics create {name}`"
    if name in INTERNAL_TOPICS:
        how = "the cluster creates it with the first group"
    meant = f"; did you mean {alike!r}?" if alike else ";"
    return f"topic {name!r} does not exist{meant} `regnum topics list` shows those that do; if it is to, {how}"


async def _in_time(looking: Coroutine[Any, Any, str]) -> str:
    # It only helps: that it cannot be known is no news beside the topic that is not there.
    with contextlib.suppress(RegnumError, TimeoutError):
        async with asyncio.timeout(LOOKING_S):
            return await looking
    return ""


async def _damage(name: str, controller: ControllerView | None, connections: Connections, header: RequestHeader) -> str:
    if controller is None:
        return ""
    request = admin_pb2.DescribeHealthRequest(header=header, partitions_max=1_000)
    health = await call(connections.admin(controller.address).DescribeHealth, request, timeout_s=LOOKING_S)
    for one in health.damaged:
        if one.topic == name:
            return f"topic {name!r} is there, and no broker knows it, because it is damaged: {one.reason}; {one.advice}"
    return ""


async def _alike(name: str, brokers: Sequence[Address], connections: Connections, header: RequestHeader) -> str:
    request = metadata_pb2.DescribeTopicsRequest(header=header, summaries=True)
    names: list[str] = []
    for address in brokers[:1]:
        while len(names) < NAMES_MAX:
            page = await call(connections.metadata(address).DescribeTopics, request, timeout_s=LOOKING_S)
            names.extend(one.name for one in page.summaries)
            if not page.HasField("next_cursor"):
                break
            request.cursor.CopyFrom(page.next_cursor)
    return nearest(name, names[:NAMES_MAX])
