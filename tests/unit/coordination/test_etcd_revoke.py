"""A session that is closed ends at once, wherever its members are by now."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import grpc
import pytest
from regnum_coordination.drivers.etcd.address import EtcdAddress
from regnum_coordination.drivers.etcd.opening import channel
from regnum_coordination.drivers.etcd.rpc import CHANNEL_OPTIONS, EtcdRpc, to_error
from regnum_coordination.errors import ConnectionLoss, SessionExpired, StoreFull
from regnum_service.renewed_channel import NAME_OPTIONS, RenewedChannel, is_name

REVOKE = "/etcdserverpb.Lease/LeaseRevoke"


class Member:
    """Answers, or fails with a status; notes which leases it was to end."""

    def __init__(self, status: grpc.StatusCode | None = None) -> None:
        self.status = status
        self.revoked: list[int] = []

    def unary_unary(self, path: str, **coding: object) -> Callable[..., Awaitable[object]]:
        async def call(request: Any, **options: object) -> object:
            assert path == REVOKE
            self.revoked.append(request.ID)
            if self.status is not None:
                raise grpc.aio.AioRpcError(self.status, grpc.aio.Metadata(), grpc.aio.Metadata(), "as told")
            return path

        return call

    def stream_stream(self, path: str, **coding: object) -> object:
        return path, coding


def rpc_over(*members: Member) -> EtcdRpc:
    return EtcdRpc([cast("grpc.aio.Channel", member) for member in members], timeout_s=5.0)


async def test_a_lease_is_ended_at_the_member_that_calls_go_to() -> None:
    first, second = Member(grpc.StatusCode.UNAVAILABLE), Member()
    rpc = rpc_over(first, second)
    with pytest.raises(ConnectionLoss):
        await rpc.revoke(7)
    await rpc.revoke(7)
    assert (first.revoked, second.revoked) == ([7], [7])


async def test_a_lease_that_is_gone_is_said_to_be() -> None:
    with pytest.raises(SessionExpired):
        await rpc_over(Member(grpc.StatusCode.NOT_FOUND)).revoke(7)


def test_a_store_without_space_says_what_to_do_and_leaves_open_whether_an_earlier_attempt_happened() -> None:
    error = to_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")
    assert isinstance(error, StoreFull)
    assert isinstance(error, ConnectionLoss), "the same write is repeated, never given up (safety rule S1)"
    assert "alarm NOSPACE" in str(error)
    assert not isinstance(to_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests"), StoreFull)


async def test_a_member_with_a_name_is_found_again_at_another_address() -> None:
    assert set(NAME_OPTIONS) <= set(CHANNEL_OPTIONS)
    address = EtcdAddress.parse("etcd://regnum-etcd-0.regnum-etcd:2379,127.0.0.1:2379")
    named, plain = (
        channel(target, address, None, follows_name=is_name(host))
        for (host, _), target in zip(address.endpoints, address.targets, strict=True)
    )
    try:
        assert isinstance(named, RenewedChannel)
        assert not isinstance(plain, RenewedChannel)
    finally:
        await named.close()
        await plain.close()
