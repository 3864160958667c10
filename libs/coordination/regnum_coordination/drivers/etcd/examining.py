"""etcd as a stranger finds it, and whether its release keeps users to what their roles allow."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final

import grpc
from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc
from regnum_model.nodes.processes import is_loopback

from regnum_coordination.admission import Examination, Knock, settle
from regnum_coordination.drivers.credentials import Credentials
from regnum_coordination.drivers.etcd.address import EtcdAddress
from regnum_coordination.drivers.etcd.opening import channel, resolved, tls_files
from regnum_coordination.drivers.etcd.roles import UNTOLD, roles_weakness
from regnum_coordination.drivers.etcd.tokens import TokenSource
from regnum_coordination.errors import CoordinationError

KNOCKS: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: Knock.REFUSED,
    grpc.StatusCode.PERMISSION_DENIED: Knock.REFUSED,
    grpc.StatusCode.UNAUTHENTICATED: Knock.REFUSED,
    grpc.StatusCode.UNAVAILABLE: Knock.ENDED,
}
"""What a status tells of a read without a token. etcd's own refusal of it is INVALID_ARGUMENT (user name is empty)."""


async def examine(url: str, *, nodes: Collection[str], timeout_s: float) -> Examination:
    """See ``regnum_coordination.examine_store``. etcd has rights by prefix: ``nodes`` need not be asked for."""
    del nodes
    named = EtcdAddress.parse(url)
    address = await resolved(named)
    own, stranger = address.credentials, Credentials(ca=address.credentials.ca)
    key = (address.prefix or "/").encode()
    shown = await asyncio.to_thread(tls_files, stranger)
    knocks = await asyncio.gather(
        *(_knock(channel(target, address, shown, follows_name=False), key, timeout_s) for target in address.targets)
    )
    versions: list[str] = []
    if own.user is not None:
        shown = await asyncio.to_thread(tls_files, own)
        for target in address.targets:
            opened = channel(target, address, shown, follows_name=False)
            try:
                # A member that is away, or says nothing of itself, is not judged.
                with suppress(grpc.aio.AioRpcError, CoordinationError):
                    versions.append(await _version(opened, own, timeout_s))
            finally:
                await opened.close()
    return Examination(
        admission=settle(knocks, shows_certificate=own.cert is not None),
        loopback=all(is_loopback(host) for host, _ in named.endpoints),
        weaknesses=roles_weakness(versions),
    )


async def _knock(opened: grpc.aio.Channel, key: bytes, timeout_s: float) -> Knock:
    request = rpc_pb2.RangeRequest(key=key, keys_only=True, serializable=True)
    try:
        await rpc_pb2_grpc.KVStub(opened).Range(request, timeout=timeout_s)
    except grpc.aio.AioRpcError as error:
        return KNOCKS.get(error.code(), Knock.SILENT)
    finally:
        await opened.close()
    return Knock.ADMITTED


async def _version(opened: grpc.aio.Channel, own: Credentials, timeout_s: float) -> str:
    """Release of a member. Raises AioRpcError, CoordinationError."""
    tokens = TokenSource([opened], own, timeout_s=timeout_s)
    await tokens.renew(())
    stub = rpc_pb2_grpc.MaintenanceStub(opened)
    try:
        answer: Any = await stub.Status(rpc_pb2.StatusRequest(), timeout=timeout_s, metadata=tokens.metadata)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.PERMISSION_DENIED:
            return UNTOLD
        raise
    return str(answer.version)
