"""A log directory that somebody else holds: who it is, and for how long it is waited for."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest
from regnum_broker.composition.opening_logs import LOCK_INTERVAL_S, open_storage
from regnum_broker.log.disk.lock import LockHolder, acquire_lock, described
from regnum_broker.log.errors import DirectoryInUseError
from regnum_broker.settings import BrokerSettings
from regnum_service.errors import StartRefusedError
from regnum_telemetry.metrics import Metrics
from regnum_testing.clock import FakeClock
from regnum_testing.waiting import until

HERE = LockHolder(pid=17, host="regnum-broker-1", pid_namespace="pid:[4026531836]", since_ms=1_700_000_000_000)
SINCE = "2023-11-14T22:13:20+00:00"


@pytest.fixture
def held(tmp_path: Path):
    """The lock of a log directory, held by another one."""
    (tmp_path / "log").mkdir()
    descriptors = [acquire_lock(tmp_path / "log" / ".lock", replace(HERE, pid=7, pid_namespace="pid:[1]"))]

    def release() -> None:
        while descriptors:
            os.close(descriptors.pop())

    yield release
    release()


def told(path: Path, *, lock_wait_s: float) -> BrokerSettings:
    return BrokerSettings(
        coordination="etcd://127.0.0.1:1",
        broker_id=1,
        client_listen="127.0.0.1:9092",
        internal_listen="127.0.0.1:9093",
        data_dir=path / "log",
        reserve_bytes=0,
        lock_wait_s=lock_wait_s,
    )


def test_a_holder_on_this_host_is_named_by_its_process_id() -> None:
    words = described(replace(HERE, pid=18).encode(), HERE)
    assert words == f"the process with pid 18 on this host (regnum-broker-1), since {SINCE}"


@pytest.mark.parametrize(
    "other",
    [
        # The Pod before has the same name, and its process often the same id.
        replace(HERE, pid_namespace="pid:[4026532999]"),
        replace(HERE, host="another-machine"),
        replace(HERE, pid_namespace=""),
    ],
)
def test_a_holder_in_another_container_is_not_mistaken_for_a_process_of_this_one(other: LockHolder) -> None:
    words = described(other.encode(), HERE)
    assert words.startswith(f"a process of host {other.host}, since {SINCE} (pid 17 there, which means nothing here")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"4711\n", "the process with pid 4711"),
        (b"", "a process that has left no word of itself"),
        (b"\xff\x00 \n1 2 3 4", "the process with pid �\x00"),
        (b"1 2 3 4 5\n", "a process that has left no word of itself"),
    ],
)
def test_what_others_wrote_is_read_too(content: bytes, words: str) -> None:
    assert described(content, HERE) == words


def test_this_process_says_where_it_is(tmp_path: Path) -> None:
    here = LockHolder.here(1_700_000_000_000)
    assert here.pid == os.getpid()
    assert here.pid_namespace.startswith("pid:[")
    held = acquire_lock(tmp_path / ".lock", here)
    with pytest.raises(DirectoryInUseError, match=f"pid {here.pid} on this host .*since {SINCE[:10]}"):
        acquire_lock(tmp_path / ".lock", here)
    os.close(held)


async def test_a_directory_is_opened_as_soon_as_its_holder_is_gone(tmp_path: Path, held) -> None:
    clock = FakeClock(start_s=1_000.0)
    opening = asyncio.create_task(open_storage(told(tmp_path, lock_wait_s=30.0), clock=clock, metrics=Metrics()))
    for _ in range(3):
        await until(lambda: clock.sleepers)
        assert not opening.done()
        await clock.advance(LOCK_INTERVAL_S)
    await until(lambda: clock.sleepers)
    held()
    await clock.advance(LOCK_INTERVAL_S)
    storage = await opening
    try:
        with pytest.raises(DirectoryInUseError):
            acquire_lock(tmp_path / "log" / ".lock", HERE)
    finally:
        await storage.close(clean=True)


async def test_who_waited_in_vain_says_for_whom_and_what_to_look_for(tmp_path: Path, held) -> None:
    clock = FakeClock(start_s=1_000.0)
    opening = asyncio.create_task(open_storage(told(tmp_path, lock_wait_s=1.0), clock=clock, metrics=Metrics()))
    while not opening.done():
        await until(lambda: clock.sleepers or opening.done())
        if not opening.done():
            await clock.advance(LOCK_INTERVAL_S)
    with pytest.raises(
        StartRefusedError, match=r"host regnum-broker-1, since .*Waited for 1 s .*--lock-wait-s.*kubectl"
    ):
        await opening
    assert clock.monotonic() == pytest.approx(1_000.8)


async def test_who_is_told_not_to_wait_does_not(tmp_path: Path, held) -> None:
    with pytest.raises(StartRefusedError, match="Waited for 0 s"):
        await open_storage(told(tmp_path, lock_wait_s=0.0), clock=FakeClock(start_s=1_000.0), metrics=Metrics())
