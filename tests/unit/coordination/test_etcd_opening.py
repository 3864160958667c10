"""Opening a session with etcd, with a member in this process."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from regnum_coordination import open_store
from regnum_coordination.errors import ConnectionLoss
from regnum_coordination.port import SessionState
from regnum_testing.etcd_member import EtcdMember
from regnum_testing.ports import unused_port
from regnum_testing.tls_cases import Certificates, Leaf
from regnum_testing.waiting import DEADLINE_S, until, within


@pytest.fixture
async def member() -> AsyncIterator[EtcdMember]:
    async with EtcdMember() as member:
        yield member


async def test_a_lease_that_ends_before_it_is_used_is_a_session_that_did_not_come_about(member: EtcdMember) -> None:
    """Who opens a session tries again after a ConnectionLoss; the end of a session is for who had one."""
    url = f"etcd://{member.target}/regnum"
    member.ends_leases = True
    with pytest.raises(ConnectionLoss, match="open another"):
        await open_store(url)
    member.ends_leases = False
    store = await open_store(url)
    assert store.session_state is SessionState.CONNECTED
    await store.close()


def tasks_of_sessions() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("etcd ")]


async def test_a_session_is_kept_alive_while_its_key_is_put(member: EtcdMember) -> None:
    """Where grant and put took 0.8 of the session's time, each was over before its first use, the next one likewise."""
    member.hang()
    opening = asyncio.ensure_future(open_store(f"etcd://{member.target}/regnum"))
    await until(lambda: member.keep_alives > 0 or opening.done())
    assert member.keep_alives > 0
    member.go_on()
    store = await opening
    assert store.session_state is SessionState.CONNECTED
    await store.close()


async def test_a_session_that_did_not_come_about_is_kept_alive_no_more(member: EtcdMember) -> None:
    member.hang()
    opening = asyncio.ensure_future(open_store(f"etcd://{member.target}/regnum"))
    await until(lambda: member.keep_alives > 0 or opening.done())
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert tasks_of_sessions() == []


async def test_a_session_that_ends_while_its_key_is_put_is_not_waited_for(member: EtcdMember) -> None:
    member.hang()
    member.ends_leases = True
    with pytest.raises(ConnectionLoss, match="open another"):
        await within(open_store(f"etcd://{member.target}/regnum", operation_timeout_s=DEADLINE_S * 2))
    assert tasks_of_sessions() == []


def shown(leaf: Leaf) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials([(leaf.key.read_bytes(), leaf.certificate.read_bytes())])


async def test_another_authority_of_the_members_is_taken_up_within_the_session(tmp_path: Path) -> None:
    certificates, port, ca = Certificates(tmp_path), unused_port(), tmp_path / "believed.pem"
    ca.write_bytes(certificates.ca.read_bytes())
    async with EtcdMember(port=port, tls=shown(certificates.right())) as before:
        store = await open_store(f"etcd://{before.target}/regnum?ca={ca}")
        await store.get("/x")
    async with EtcdMember(port=port, tls=shown(certificates.of_another_authority())) as after:
        ca.write_bytes(certificates.other_ca.read_bytes())

        async def answered() -> bool:
            try:
                await store.get("/x")
            except ConnectionLoss:
                return False
            return True

        await until(answered)
        await until(lambda: after.keep_alives > 0)
        assert store.session_state is not SessionState.LOST
        await store.close()
