"""Opening a session with etcd: names resolved, files read, a lease granted, the session's key put (safety rule S6)."""

import asyncio
import logging
import math
import socket
from dataclasses import replace
from typing import Any, Final

import etcd3
import grpc
from etcd3.etcdrpc import rpc_pb2
from etcd3.exceptions import Etcd3Exception
from regnum_service.channel import aio_channel
from regnum_service.renewed_channel import RenewedChannel, is_name
from regnum_service.tls.channels import looking_at
from regnum_service.tls.files import TlsFiles, TlsFilesError, WatchedFiles
from regnum_telemetry.rpc_client import DIRECT

from regnum_coordination.drivers.credentials import Credentials
from regnum_coordination.drivers.etcd.address import EtcdAddress, one_family
from regnum_coordination.drivers.etcd.keys import Keys
from regnum_coordination.drivers.etcd.rpc import CHANNEL_OPTIONS, EtcdRpc, to_error
from regnum_coordination.drivers.etcd.session import LeaseSession
from regnum_coordination.drivers.etcd.store import EtcdStore
from regnum_coordination.drivers.etcd.tokens import TokenSource
from regnum_coordination.errors import ConnectionLoss, CoordinationError, NoAuth, SessionExpired
from regnum_coordination.port import Store

_LOG = logging.getLogger(__name__)

MIN_SESSION_TIMEOUT_S: Final = 5.0
"""A change of etcd's leader stops writes for about 3 s (safety rule S8)."""


async def open_url(url: str, *, session_timeout_s: float, operation_timeout_s: float) -> Store:
    """Open a session; see ``regnum_coordination.open_store``."""
    address = EtcdAddress.parse(url)
    if session_timeout_s < MIN_SESSION_TIMEOUT_S:
        raise ValueError(f"a session time-out on etcd is at least {MIN_SESSION_TIMEOUT_S:g} s, not {session_timeout_s}")
    if operation_timeout_s <= 0:
        raise ValueError(f"an operation time-out is above 0 s, not {operation_timeout_s}")
    files = await asyncio.to_thread(tls_files, address.credentials)
    client = await asyncio.to_thread(_client, await resolved(address), operation_timeout_s)
    channels = [
        channel(target, address, files, follows_name=is_name(host))
        for (host, _), target in zip(address.endpoints, address.targets, strict=True)
    ]
    tokens = TokenSource(channels, address.credentials, timeout_s=operation_timeout_s)
    rpc = EtcdRpc(channels, timeout_s=operation_timeout_s, tokens=tokens)
    keys = Keys(address.prefix)
    session: LeaseSession | None = None
    try:
        patience_s = operation_timeout_s * len(channels)
        granted_at_s, lease = await _grant(client, tokens, math.ceil(session_timeout_s), patience_s, address)
        key = keys.session(lease.id)
        session = LeaseSession(rpc, key=key, lease_id=lease.id, ttl_s=lease.ttl, granted_at_s=granted_at_s)
        # Its time runs since the grant: where calls take long it would be over before the key is there, every time.
        session.start()
        await _put(rpc, session, rpc_pb2.PutRequest(key=key, lease=lease.id), patience_s)
    except (CoordinationError, asyncio.CancelledError):
        if session is not None:
            await session.stop()
        await rpc.close()
        client.close()
        raise
    return EtcdStore(client, rpc, keys, session, max_txn_ops=address.max_txn_ops)


def channel(target: str, address: EtcdAddress, files: WatchedFiles | None, *, follows_name: bool) -> grpc.aio.Channel:
    """A channel to one member, which finds it again when its name comes to stand for another address.

    Over TLS calls take up certificates and authorities that were renewed; streams stay where they began.
    """
    options = _channel_options(address)

    def make() -> grpc.aio.Channel:
        credentials = None if files is None else files.pem.channel_credentials()
        return aio_channel(target, credentials=credentials, options=options)

    if files is not None:
        return RenewedChannel(make, follows_name=follows_name, version=looking_at(files))
    return RenewedChannel(make, follows_name=True) if follows_name else make()


def _channel_options(address: EtcdAddress) -> tuple[tuple[str, str | int], ...]:
    if address.credentials.ca is None:
        return CHANNEL_OPTIONS
    return (*CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", address.server_name))


def tls_files(credentials: Credentials) -> WatchedFiles | None:
    """What channels on the loop need for TLS; None without it. Raises ValueError for a file that is not right."""
    credentials.check_files()
    if credentials.ca is None:
        return None
    files = TlsFiles(ca=credentials.ca, certificate=credentials.cert, key=credentials.key)
    try:
        return WatchedFiles(files, complain=lambda why: _LOG.warning("etcd: %s", why))
    except TlsFilesError as error:
        raise ValueError(str(error)) from None


def _client(address: EtcdAddress, timeout_s: float) -> Any:
    """etcd3's client, which reads the same files; the user's token goes into its calls as metadata."""
    host, _, port = address.target.rpartition(":")
    files = {
        name: None if file is None else str(file)
        for name, file in (
            ("ca_cert", address.credentials.ca),
            ("cert_cert", address.credentials.cert),
            ("cert_key", address.credentials.key),
        )
    }
    return etcd3.client(
        host=host, port=port, timeout=timeout_s, grpc_options=(*DIRECT, *_channel_options(address)), **files
    )


async def resolved(address: EtcdAddress) -> EtcdAddress:
    """The address with names replaced where gRPC's list of addresses needs it, without names that nobody knows now.

    Where names are made with what they stand for, a member that is away has none; the others are enough.
    """
    loop = asyncio.get_running_loop()
    found: dict[str, list[str]] = {}
    unknown: dict[str, str] = {}
    for host in address.unresolved:
        try:
            answers = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            unknown[host] = str(error)
        else:
            found[host] = [str(answer[4][0]) for answer in answers]
    known = one_family([(found.get(host, [host]), port) for host, port in address.endpoints if host not in unknown])
    if not known:
        reasons = "; ".join(f"{host}: {reason}" for host, reason in unknown.items())
        raise ConnectionLoss(f"no name of an etcd member can be resolved ({reasons}); are the names in the URL right?")
    return replace(address, endpoints=known)


async def _grant(
    client: Any, tokens: TokenSource, ttl_s: int, patience_s: float, address: EtcdAddress
) -> tuple[float, Any]:
    """A new lease, and when it was asked for."""
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + patience_s
    while True:
        sent_at_s = loop.time()
        try:
            await tokens.renew(())
            client.metadata = tokens.metadata
            sent_at_s = loop.time()
            return sent_at_s, await asyncio.to_thread(client.lease, ttl_s)
        except Etcd3Exception as error:
            reason = type(error).__name__
        except grpc.RpcError as error:
            meaning = to_error(error.code(), error.details())
            if isinstance(meaning, NoAuth):
                raise meaning from None
            reason = str(meaning)
        except NoAuth:
            raise
        except ConnectionLoss as error:
            reason = str(error)
        if loop.time() >= give_up_s:
            raise ConnectionLoss(f"no etcd answers at {','.join(address.targets)} ({reason}); is it running?")
        await asyncio.sleep(0.1)


async def _put(rpc: EtcdRpc, session: LeaseSession, request: Any, patience_s: float) -> None:
    """Put the session's key, which nobody else writes, so that it may be put again; some members may be away.

    A session that is over by then is a session that did not come about: ConnectionLoss, as any other reason for that.
    """
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + patience_s
    while True:
        try:
            await session.feed.unless_lost(rpc.put(request))
        except NoAuth:
            raise
        except SessionExpired:
            raise ConnectionLoss("the new session was over before it was used; open another") from None
        except ConnectionLoss:
            if loop.time() >= give_up_s:
                raise
            await asyncio.sleep(0.1)
        else:
            return
