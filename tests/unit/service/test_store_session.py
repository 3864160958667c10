"""A store that a process cannot use as told is a refused start; one that does not answer is tried on."""

from collections.abc import Awaitable, Callable

import pytest
from regnum_coordination.errors import ConnectionLoss, InvalidRequest
from regnum_coordination.port import Store
from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.settings import ServiceSettings
from regnum_service.store_session import open_told_store


def _told(coordination: str) -> ServiceSettings:
    return ServiceSettings(coordination=coordination)


def _failing(error: Exception) -> Callable[[ServiceSettings], Awaitable[Store]]:
    async def open_session(_told: ServiceSettings) -> Store:
        raise error

    return open_session


async def test_the_store_of_the_settings_is_opened() -> None:
    store = await open_told_store(_told("memory://told"))
    await store.create("/a", b"here")
    assert (await store.get("/a")).data == b"here"
    await store.close()


@pytest.mark.parametrize("url", ["nosuch://h", "etcd://h:x", "zookeeper://h:0", "etcd://h?user=anna"])
async def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(StartRefusedError, match=r"^--coordination: ") as caught:
        await open_told_store(_told(url))
    assert caught.value.exit_status is ExitStatus.WRONG_USE


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidRequest("etcd does not take the user anna"), ExitStatus.WRONG_USE),
        (ModuleNotFoundError("run: pip install 'regnum[zookeeper]'"), ExitStatus.FAILED),
    ],
)
async def test_what_no_repetition_mends_is_refused(error: Exception, status: ExitStatus) -> None:
    with pytest.raises(StartRefusedError) as caught:
        await open_told_store(_told("etcd://h"), open_session=_failing(error))
    assert str(caught.value) == f"--coordination: {error}"
    assert caught.value.exit_status is status


async def test_a_store_that_does_not_answer_is_no_refusal() -> None:
    with pytest.raises(ConnectionLoss):
        await open_told_store(_told("etcd://h"), open_session=_failing(ConnectionLoss("nobody")))
