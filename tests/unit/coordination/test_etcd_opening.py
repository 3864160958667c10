"""Opening a session with etcd, with a member in this process."""

from collections.abc import AsyncIterator

import pytest
from regnum_coordination import open_store
from regnum_coordination.errors import ConnectionLoss
from regnum_coordination.port import SessionState
from regnum_testing.etcd_member import EtcdMember


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
