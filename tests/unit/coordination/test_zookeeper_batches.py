"""Batches when the connection breaks between a refused transaction and what follows it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kazoo.exceptions import NodeExistsError, RolledBackError, RuntimeInconsistency
from regnum_coordination.drivers.zookeeper.batches import ZooKeeperBatches
from regnum_coordination.drivers.zookeeper.calls import ZooKeeperCalls
from regnum_coordination.drivers.zookeeper.names import ServerNames
from regnum_coordination.errors import ConnectionLoss, NodeExists
from regnum_coordination.port import Create, Refused, Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    value: object
    exception: Exception | None = None
    zxid: int = 1

    def successful(self) -> bool:
        return self.exception is None


class _Calls:
    """Answers the first transaction, and nothing after it."""

    access: Sequence[Any] = ()

    def __init__(self, first: Sequence[Exception]) -> None:
        self._first = first

    def transaction(self, requests: Sequence[Any]) -> Callable[[], None]:
        assert len(requests) == len(self._first)
        return lambda: None

    def exists(self, path: str) -> Callable[[], None]:
        del path
        return lambda: None

    async def ask(self, call: Callable[[], None]) -> _Answer:
        del call
        return _Answer(value=self._first)

    async def ask_all(self, calls: Sequence[Callable[[], None]]) -> list[_Answer]:
        raise ConnectionLoss(f"{len(calls)} reads without an answer")


async def test_a_refusal_stands_although_nothing_is_heard_of_the_other_groups() -> None:
    calls = _Calls([RolledBackError(), NodeExistsError(), RuntimeInconsistency()])
    batches = ZooKeeperBatches(cast("ZooKeeperCalls", calls), ServerNames(""), session_id=1, lose=lambda: None)
    one, taken, other = await batches.write([(Create(f"/{name}", b""),) for name in ("one", "taken", "other")], None)
    assert (one, other) == (Unknown(), Unknown())
    assert isinstance(taken, Refused)
    assert isinstance(taken.error, NodeExists)
    assert taken.error.path == "/taken"
