"""Batches when the connection breaks between a refused transaction and what follows it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kazoo.exceptions import (
    BadVersionError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    QuotaExceededError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.protocol.states import ZnodeStat
from regnum_coordination.drivers.zookeeper.absences import AbsencesChecked
from regnum_coordination.drivers.zookeeper.batches import ZooKeeperBatches
from regnum_coordination.drivers.zookeeper.bulk_writes import BulkWrite
from regnum_coordination.drivers.zookeeper.calls import ZooKeeperCalls
from regnum_coordination.drivers.zookeeper.names import ServerNames
from regnum_coordination.errors import BadVersion, ConnectionLoss, NoAuth, NodeExists, NoNode, StoreFull
from regnum_coordination.port import (
    Check,
    Create,
    Fenced,
    Group,
    OperationResult,
    Refused,
    Set,
    Stat,
    Unknown,
    Written,
)


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

    def transaction(self, request: BulkWrite) -> Callable[[], None]:
        assert len(request.places) == len(self._first)
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
    batches = _batches(calls)
    one, taken, other = await batches.write([(Create(f"/{name}", b""),) for name in ("one", "taken", "other")], None)
    assert (one, other) == (Unknown(), Unknown())
    assert isinstance(taken, Refused)
    assert isinstance(taken.error, NodeExists)
    assert taken.error.path == "/taken"


class _Server:
    """Answers transactions in turn, and says of every node that it is there at version 0, but for some."""

    access: Sequence[Any] = ()

    def __init__(self, *answers: Sequence[object], gone: Sequence[str] = ()) -> None:
        self._answers = list(answers)
        self._gone = gone
        self.sent: list[int] = []

    def transaction(self, request: BulkWrite) -> int:
        return len(request.places)

    def exists(self, path: str) -> str:
        return path

    async def ask(self, call: int) -> _Answer:
        self.sent.append(call)
        return _Answer(value=self._answers.pop(0))

    async def ask_all(self, calls: Sequence[str]) -> list[_Answer]:
        stat = ZnodeStat(1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1)
        return [_Answer(value=None if path in self._gone else stat) for path in calls]


def _batches(server: "_Server | _Calls") -> ZooKeeperBatches:
    return ZooKeeperBatches(
        cast("ZooKeeperCalls", server), ServerNames(""), AbsencesChecked(), session_id=1, lose=lambda: None
    )


STAT = Stat(creation_id=1, modification_id=2, version=1, children_id=1, ephemeral_owner=None)
GROUPS: Sequence[Group] = [(Check("/guard"), Set(f"/{name}", b"", 0)) for name in "abc"]


async def test_each_group_gets_its_own_stat_although_a_shared_guard_was_sent_once() -> None:
    stats = [
        Stat(creation_id=1, modification_id=2, version=version, children_id=1, ephemeral_owner=None)
        for version in (1, 2, 3)
    ]
    server = _Server([None, None, *stats])
    outcomes = await _batches(server).write(GROUPS, Check("/fence", 7))
    assert server.sent == [5]
    assert outcomes == tuple(
        Written((OperationResult("/guard", None), OperationResult(f"/{name}", stat)))
        for name, stat in zip("abc", stats, strict=True)
    )


async def test_a_failure_behind_a_guard_that_was_sent_once_hits_the_group_it_belongs_to() -> None:
    failed = [RolledBackError(), RolledBackError(), RolledBackError(), BadVersionError(), RuntimeInconsistency()]
    server = _Server(failed, [None, None, STAT, STAT])
    a, b, c = await _batches(server).write(GROUPS, Check("/fence", 7))
    assert (type(a), type(c)) == (Written, Written)
    assert isinstance(b, Refused)
    assert isinstance(b.error, BadVersion)
    assert (b.error.path, b.error.expected) == ("/b", 0)
    assert server.sent == [5, 4]


async def test_a_shared_guard_that_is_gone_refuses_every_group_behind_it() -> None:
    failed = [RolledBackError(), NoNodeError(), *(RuntimeInconsistency() for _ in "abc")]
    server = _Server(failed, gone=["/guard"])
    outcomes = await _batches(server).write(GROUPS, Check("/fence", 7))
    for outcome in outcomes:
        assert isinstance(outcome, Refused)
        assert isinstance(outcome.error, NoNode)
        assert outcome.error.path == "/guard"
    assert server.sent == [5]


async def test_a_guard_that_is_the_fence_as_well_ends_the_reign() -> None:
    fence = Check("/fence", 7)
    server = _Server([BadVersionError(), RuntimeInconsistency()])
    (outcome,) = await _batches(server).write([(fence, Set("/a", b"", 0))], fence)
    assert outcome == Fenced()
    assert server.sent == [2]


async def test_the_writes_of_a_failover_are_one_request_for_250_of_them() -> None:
    """Three partitions of each topic move; kazoo is asked once, and each guard is looked at once."""
    groups: list[Group] = [(Check(f"/ids/{n // 3}"), Set(f"/topics/{n // 3}/{n % 3}", b"", 0)) for n in range(250)]
    server = _Server([None, *(told for n in range(250) for told in ([None, STAT] if n % 3 == 0 else [STAT]))])
    outcomes = await _batches(server).write(groups, Check("/fence", 7))
    assert all(isinstance(outcome, Written) for outcome in outcomes)
    assert server.sent == [1 + 84 + 250]


async def test_a_node_without_rights_holds_up_no_other_group() -> None:
    """Its write did nothing, and may be repeated; a fence that may not be looked at has not failed."""
    rolled, later = RolledBackError(), RuntimeInconsistency()
    server = _Server([rolled, rolled, NoAuthError(), later], [None, STAT, STAT])
    first, closed, last = await _batches(server).write(GROUPS, None)
    assert isinstance(closed, Unknown)
    assert isinstance(closed.because, NoAuth)
    assert "/b" in str(closed.because)
    assert isinstance(first, Written)
    assert isinstance(last, Written)
    fence = Check("/fence", 0)
    for one in await _batches(_Server([NoAuthError(), later, later, later, later])).write(GROUPS, fence):
        assert isinstance(one, Unknown)
        assert isinstance(one.because, NoAuth)


async def test_a_node_for_which_a_quota_leaves_no_room_holds_up_no_other_group_and_may_be_written_later() -> None:
    rolled, later = RolledBackError(), RuntimeInconsistency()
    server = _Server([rolled, rolled, QuotaExceededError(), later], [None, STAT, STAT])
    first, full, last = await _batches(server).write(GROUPS, None)
    assert isinstance(full, Unknown)
    assert isinstance(full.because, StoreFull)
    assert "at /b" in str(full.because)
    assert isinstance(first, Written)
    assert isinstance(last, Written)
