"""Who sweeps up after a calibration does not stop while something may come, nor say so while something is left."""

from types import SimpleNamespace
from typing import Any

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client.commands.quotas.janitor import PREFIX, QUIET_S, TIMEOUT_S, sweep
from regnum_service.errors import RegnumError

NAME = f"{PREFIX}12345678-000001"


class Time:
    """Passes where somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Cluster:
    """One topic, which is there from a moment on, and is deleted where deletions are done."""

    def __init__(self, time: Time, *, comes_s: float = 0.0, deletes_from_s: float = 0.0) -> None:
        self.time = time
        self.comes_s = comes_s
        self.deletes_from_s = deletes_from_s
        self.gone = False

    async def list_topics(self) -> list[Any]:
        there = self.comes_s <= self.time.now_s and not self.gone
        return [SimpleNamespace(name="somebodys"), *([SimpleNamespace(name=NAME)] if there else [])]

    async def delete_topics(self, names: list[str], *, timeout_s: float) -> dict[str, object]:
        assert names == [NAME]
        assert timeout_s
        if self.time.now_s < self.deletes_from_s:
            return {NAME: RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "another one")}
        self.gone = True
        return {NAME: None}


async def swept(cluster: Any, time: Any, *, quiet_s: float) -> int:
    return await sweep(cluster, PREFIX, clock=time, quiet_s=quiet_s)


async def test_a_topic_whose_creation_was_under_way_is_deleted_too() -> None:
    time = Time()
    cluster = Cluster(time, comes_s=QUIET_S - 1.0)
    assert await swept(cluster, time, quiet_s=QUIET_S) == 1
    assert cluster.gone


async def test_what_cannot_be_deleted_yet_is_tried_again_until_it_can() -> None:
    time = Time()
    cluster = Cluster(time, deletes_from_s=20.0)
    assert await swept(cluster, time, quiet_s=0.0) == 1
    assert cluster.gone


async def test_what_cannot_be_deleted_is_no_success() -> None:
    time = Time()
    with pytest.raises(RegnumError, match="1 topics"):
        await swept(Cluster(time, deletes_from_s=10 * TIMEOUT_S), time, quiet_s=0.0)


async def test_where_nothing_is_nobody_waits() -> None:
    time = Time()
    assert await swept(Cluster(time, comes_s=1e9), time, quiet_s=0.0) == 0
    assert time.now_s == 0.0
