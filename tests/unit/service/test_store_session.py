"""A store that a process cannot use as told is a refused start; one that does not answer is tried on."""

from collections.abc import Awaitable, Callable

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import ConnectionLoss, InvalidRequest, NoAuth
from regnum_coordination.port import Store
from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.settings import ServiceSettings
from regnum_service.store_session import ToldStore


def _told(coordination: str) -> ServiceSettings:
    return ServiceSettings(coordination=coordination)


def _failing(error: Exception) -> Callable[[ServiceSettings], Awaitable[Store]]:
    async def open_session(_told: ServiceSettings) -> Store:
        raise error

    return open_session


async def test_the_store_of_the_settings_is_opened() -> None:
    store = await ToldStore(_told("memory://told")).open()
    await store.create("/a", b"here")
    assert (await store.get("/a")).data == b"here"
    await store.close()


@pytest.mark.parametrize("url", ["nosuch://h", "etcd://h:x", "zookeeper://h:0", "etcd://h?user=anna"])
async def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(StartRefusedError, match=r"^--coordination: ") as caught:
        await ToldStore(_told(url)).open()
    assert caught.value.exit_status is ExitStatus.WRONG_USE


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidRequest("a path that no store has"), ExitStatus.WRONG_USE),
        (NoAuth("etcd does not take the user anna"), ExitStatus.WRONG_USE),
        (ModuleNotFoundError("run: pip install 'regnum[zookeeper]'"), ExitStatus.FAILED),
    ],
)
async def test_what_no_repetition_mends_is_refused(error: Exception, status: ExitStatus) -> None:
    with pytest.raises(StartRefusedError) as caught:
        await ToldStore(_told("etcd://h"), open_session=_failing(error)).open()
    assert str(caught.value) == f"--coordination: {error}"
    assert caught.value.exit_status is status


async def test_a_store_that_does_not_answer_is_no_refusal() -> None:
    with pytest.raises(ConnectionLoss):
        await ToldStore(_told("etcd://h"), open_session=_failing(ConnectionLoss("nobody"))).open()


@pytest.mark.parametrize("error", [NoAuth("etcd does not take the user anna"), ValueError("password_file is empty")])
async def test_a_process_that_was_taken_before_waits_until_it_is_taken_again(error: Exception) -> None:
    """Rights that were taken away while it ran come back while it runs."""
    refuses = [False, True, False]

    async def open_session(_told: ServiceSettings) -> Store:
        if refuses.pop(0):
            raise error
        return MemoryStore(MemoryServer())

    told = ToldStore(_told("etcd://h"), open_session=open_session)
    await told.open()
    with pytest.raises(NoAuth, match=str(error)):
        await told.open()
    assert (told.why_none, told.refusals.now) == (str(error), str(error))
    await told.open()
