"""The write that can never happen says what the writes of a reign would meet with."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from regnum_coordination.drivers.etcd.batches import EtcdBatch
from regnum_coordination.drivers.etcd.keys import Keys
from regnum_coordination.drivers.etcd.rpc import EtcdRpc
from regnum_coordination.drivers.etcd.session import LeaseSession
from regnum_coordination.drivers.etcd.store import EtcdStore
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import ConnectionLoss, InvalidRequest, NoAuth, SessionExpired, StoreFull
from regnum_coordination.port import Check, Expired, Group, Outcome, Refused, Set, Unknown
from regnum_election.reign.probe_write import probe_write
from regnum_model import paths
from regnum_service.channel import aio_channel
from regnum_testing.etcd_member import EtcdMember
from regnum_testing.waiting import DEADLINE_S


class AnsweringStore(MemoryStore):
    """Answers every batch as it was told."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(MemoryServer())
        self._outcome = outcome

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """See Store."""
        return (self._outcome,) * len(groups)


@pytest.fixture
async def member() -> AsyncIterator[EtcdMember]:
    async with EtcdMember() as member:
        yield member


@pytest.fixture
async def rpc(member: EtcdMember) -> AsyncIterator[EtcdRpc]:
    rpc = EtcdRpc([aio_channel(member.target)], timeout_s=DEADLINE_S)
    yield rpc
    await rpc.close()


async def test_an_etcd_without_space_refuses_it_as_it_refuses_what_a_reign_writes(
    member: EtcdMember, rpc: EtcdRpc
) -> None:
    keys = Keys("/regnum")
    now_s = asyncio.get_running_loop().time()
    session = LeaseSession(rpc, key=keys.session(7), lease_id=7, ttl_s=1_000, granted_at_s=now_s)
    store = EtcdStore(None, rpc, keys, session, max_txn_ops=128)
    await probe_write(store)
    member.no_space = True
    write: Group = (Set(paths.CONTROLLER_EPOCH, b"1", 0),)
    (real,) = await EtcdBatch(rpc, keys, session, [write], fence=None, max_txn_ops=128).write()
    assert isinstance(real, Unknown)
    assert isinstance(real.because, StoreFull)
    with pytest.raises(StoreFull, match="alarm NOSPACE"):
        await probe_write(store)
    member.no_space = False
    await probe_write(store)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Unknown(), ConnectionLoss),
        (Unknown(NoAuth("permission denied")), NoAuth),
        (Refused(InvalidRequest("never")), InvalidRequest),
        (Expired(), SessionExpired),
    ],
)
async def test_what_a_store_says_instead_is_raised(outcome: Outcome, error: type[Exception]) -> None:
    store = AnsweringStore(outcome)
    with pytest.raises(error) as raised:
        await probe_write(store)
    assert type(raised.value) is error


async def test_a_store_in_which_the_node_is_not_there_yet_takes_writes() -> None:
    server = MemoryServer()
    await probe_write(MemoryStore(server))
    assert await MemoryStore(server).exists(paths.CONTROLLER_EPOCH) is None
