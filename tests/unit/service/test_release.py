"""A process that does not speak the protocol in force ends with words before it registers."""

from importlib.metadata import version

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_model.features import PATH, Features
from regnum_model.protocols import KNOWN, ProtocolRange, ReleaseInfo
from regnum_service.clock import SystemClock
from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.release import THIS, require_spoken

OLD = ReleaseInfo(release="0.0.9", protocols=ProtocolRange(low=1, high=1))

LATER = b'{"version":2,"features":{"inter.broker.protocol.version":9}}'


async def store_with(features: bytes | None) -> MemoryStore:
    store = MemoryStore(MemoryServer())
    if features is not None:
        await store.create(PATH, features)
    return store


def test_this_release_says_its_version_and_what_it_speaks() -> None:
    assert ReleaseInfo(release=version("regnum"), protocols=KNOWN) == THIS


async def lets_in(features: bytes | None, build: ReleaseInfo) -> bool:
    try:
        await require_spoken(await store_with(features), SystemClock(), build)
    except StartRefusedError:
        return False
    return True


@pytest.mark.parametrize("level", [KNOWN.low, KNOWN.high])
async def test_what_is_spoken_is_let_in(level: int) -> None:
    assert await lets_in(Features(inter_broker_protocol=level).encode(), THIS)


async def test_a_cluster_that_has_not_begun_lets_everybody_in() -> None:
    assert await lets_in(None, OLD)


async def test_a_node_that_nobody_can_read_is_left_to_the_controller() -> None:
    assert await lets_in(b"{", OLD)
    assert not await lets_in(Features(inter_broker_protocol=2).encode(), OLD)


async def test_an_old_process_is_refused_above_its_highest_protocol_and_told_what_to_start() -> None:
    store = await store_with(Features(inter_broker_protocol=2).encode())
    with pytest.raises(StartRefusedError, match="start a release that speaks 2") as refused:
        await require_spoken(store, SystemClock(), OLD)
    assert refused.value.exit_status is ExitStatus.CONFLICT


async def test_a_new_process_is_refused_below_its_lowest_protocol() -> None:
    later = ReleaseInfo(release="9.0", protocols=ProtocolRange(low=2, high=4))
    store = await store_with(Features(inter_broker_protocol=1).encode())
    with pytest.raises(StartRefusedError, match="start the release before it"):
        await require_spoken(store, SystemClock(), later)


async def test_what_a_later_release_wrote_in_a_form_of_its_own_is_left_alone_by_all_before_it() -> None:
    with pytest.raises(StartRefusedError, match="a later release wrote it"):
        await require_spoken(await store_with(LATER), SystemClock(), THIS)
