"""Batches of small groups in few transactions (safety rule S4).

Goals: one outcome for each group; a conflict costs one more round for its transaction, not one for each conflict.

Constraints: a transaction happens as a whole or not at all and names its first failure only; a later transaction must
not overtake an earlier one that it relies on.

Algorithm: groups of the same wave (``requests.WavePlan``) are independent. They are packed into transactions, each with
the fence in front, several of which are under way at the same time; the next wave begins when all are settled. If one
fails, the group it names is refused, the nodes of the others are read again behind it on the same connection, so that
what it met or something later is seen, those that cannot happen are refused, and the rest is sent again together.
Every round settles a group at least.

Example: 1000 groups, conflicts at 17, 18 and 900: transaction, 1000 reads, transaction of 997 groups.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regnum_coordination.drivers.zookeeper.absences import AbsencesChecked
from regnum_coordination.drivers.zookeeper.answers import to_error
from regnum_coordination.drivers.zookeeper.bulk_writes import BulkWrite
from regnum_coordination.drivers.zookeeper.calls import ZooKeeperCalls, value
from regnum_coordination.drivers.zookeeper.names import ServerNames
from regnum_coordination.drivers.zookeeper.transactions import (
    Packer,
    Seen,
    check_size,
    checked_instead,
    first_failure,
    refusal,
    results,
    seen_of,
    sent,
    size,
    touched,
)
from regnum_coordination.errors import (
    ConnectionLoss,
    CoordinationError,
    InvalidRequest,
    NoAuth,
    SessionExpired,
    StoreFull,
)
from regnum_coordination.paths import parent
from regnum_coordination.port import (
    Absent,
    Check,
    Create,
    Expired,
    Fenced,
    Group,
    Operation,
    OperationResult,
    Outcome,
    Refused,
    Stat,
    Unknown,
    Written,
)
from regnum_coordination.requests import WavePlan, check_batch

PARALLEL_TRANSACTIONS: Final = 8
"""Transactions of a batch under way."""

_SLICE: Final = 500
"""Groups that are looked at before other tasks may run (safety rule S22)."""


@dataclass(frozen=True, slots=True)
class Done:
    """A transaction that happened."""

    stats: Sequence[Stat]
    """What its sets left, in order."""
    zxid: int
    """Its id."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A transaction that did not happen."""

    place: int
    """Index of the operation that failed first."""
    error: CoordinationError
    """What it met; NoAuth or StoreFull where a person can change that."""


class ZooKeeperBatches:
    """Multis and batches of one session."""

    def __init__(
        self,
        calls: ZooKeeperCalls,
        names: ServerNames,
        absences: AbsencesChecked,
        *,
        session_id: int,
        lose: Callable[[], None],
    ) -> None:
        self._calls = calls
        self._names = names
        self._absences = absences
        self._session_id = session_id
        self._lose = lose

    async def transact(self, operations: Sequence[Operation]) -> Done | Failed:
        """One transaction; raises ConnectionLoss, SessionExpired, InvalidRequest."""
        instead: dict[int, str] = {}
        while True:
            request = BulkWrite.of(operations, self._names, self._calls.access, instead)
            answer = await self._calls.ask(self._calls.transaction(request))
            if not answer.successful():
                raise self._told(to_error(answer.exception, operations[0].path))
            failure = first_failure(answer.value)
            if failure is None:
                self._note_absences(operations, instead, answer.zxid)
                return Done([told for told in answer.value if told is not None], answer.zxid)
            at, found = failure
            place = request.places[at]
            at_fault = operations[place]
            if not isinstance(at_fault, Absent):
                break
            other = checked_instead(at_fault, instead.get(place, at_fault.path), found)
            if other is None:
                break
            instead[place] = other
        version = None if isinstance(at_fault, Create | Absent) else at_fault.version
        error = to_error(found, at_fault.path, version)
        # The server looks at the session once for each operation, and says so in the same place.
        if isinstance(error, SessionExpired | ConnectionLoss) and not isinstance(error, NoAuth | StoreFull):
            raise self._told(error)
        return Failed(place, error)

    def _note_absences(self, operations: Sequence[Operation], instead: Mapping[int, str], zxid: int) -> None:
        for place, operation in enumerate(operations):
            if isinstance(operation, Absent):
                self._absences.note(parent(instead.get(place, operation.path)), zxid)

    def _told(self, error: CoordinationError) -> CoordinationError:
        """The error; the session's end is noted."""
        if isinstance(error, SessionExpired):
            self._lose()
        return error

    def results(self, groups: Iterable[Group], done: Done) -> Iterator[tuple[OperationResult, ...]]:
        """What the groups of a transaction left behind; all of its sets are in them."""
        stats = iter(done.stats)
        return (results(group, stats, done.zxid, self._session_id) for group in groups)

    async def seen(self, groups: Iterable[Group]) -> dict[str, Seen | None]:
        """The nodes that groups touch, read behind what this session has sent before."""
        paths = sorted({path for group in groups for path in touched(group)})
        answers = await self._calls.ask_all([self._calls.exists(self._names.path(path)) for path in paths])
        found = {path: value(answer, path) for path, answer in zip(paths, answers, strict=True)}
        return {path: None if stat is None else seen_of(stat) for path, stat in found.items()}

    async def write(self, groups: Sequence[Group], fence: Check | None) -> tuple[Outcome, ...]:
        """As the port's ``write_batch``."""
        sizes: list[int] = []
        for at in range(0, len(groups), _SLICE):
            some = groups[at : at + _SLICE]
            check_batch(some, fence)
            sizes += [check_size(group, self._names) for group in some]
            await asyncio.sleep(0)
        fence_size = 0 if fence is None else size([fence], self._names)
        batch = _Batch(self, groups, sizes, fence, Packer(fence_size=fence_size))
        await batch.run()
        return tuple(batch.outcomes)


class _Batch:
    """One batch under way."""

    def __init__(
        self,
        transactions: ZooKeeperBatches,
        groups: Sequence[Group],
        sizes: Sequence[int],
        fence: Check | None,
        packer: Packer,
    ) -> None:
        self._transactions = transactions
        self._groups = groups
        self._sizes = sizes
        self._fences = () if fence is None else (fence,)
        self._packer = packer
        self._gate = asyncio.Semaphore(PARALLEL_TRANSACTIONS)
        self.outcomes: list[Outcome] = [Expired()] * len(groups)
        """One for each group."""

    async def run(self) -> None:
        """Fill the outcomes."""
        order = WavePlan()
        later: dict[int, list[int]] = {}
        async with asyncio.TaskGroup() as sending:
            for index, group in enumerate(self._groups):
                if index % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)
                if wave := order.place(group):
                    later.setdefault(wave, []).append(index)
                elif pack := self._packer.add(index, sent(group), self._sizes[index]):
                    await self._send(pack, sending)
            await self._send(self._packer.rest(), sending)
        for wave in sorted(later):
            async with asyncio.TaskGroup() as sending:
                for index in later[wave]:
                    group = self._groups[index]
                    await self._send(self._packer.add(index, sent(group), self._sizes[index]), sending)
                await self._send(self._packer.rest(), sending)

    async def _send(self, pack: Sequence[int], sending: asyncio.TaskGroup) -> None:
        if pack:
            await self._gate.acquire()
            sending.create_task(self._settle(pack), name="zookeeper transaction of a batch")

    async def _settle(self, pack: Sequence[int]) -> None:
        """Give each group of a pack its outcome."""
        try:
            while pack:
                pack = await self._round(pack)
                if pack:
                    pack = await self._still_possible(pack)
        except ConnectionLoss as error:
            for index in pack:
                self.outcomes[index] = Unknown(error)
        except SessionExpired:
            for index in pack:
                self.outcomes[index] = Expired()
        except InvalidRequest as error:
            for index in pack:
                self.outcomes[index] = Refused(error)
        finally:
            self._gate.release()

    async def _round(self, pack: Sequence[int]) -> list[int]:
        """Try a pack; those of its groups that are not settled by that."""
        operations: list[Operation] = [*self._fences]
        starts: list[int] = []
        for index in pack:
            starts.append(len(operations))
            operations += self._groups[index]
        tried = await self._transactions.transact(operations)
        if isinstance(tried, Done):
            found = self._transactions.results([self._groups[index] for index in pack], tried)
            for index, left in zip(pack, found, strict=True):
                self.outcomes[index] = Written(left)
            return []
        if tried.place < len(self._fences):
            # A fence that may not be looked at has not failed.
            fenced = Unknown(tried.error) if isinstance(tried.error, ConnectionLoss) else Fenced()
            for index in pack:
                self.outcomes[index] = fenced
            return []
        named = bisect_right(starts, tried.place) - 1
        error = tried.error
        self.outcomes[pack[named]] = Unknown(error) if isinstance(error, ConnectionLoss) else Refused(error)
        return [index for index in pack if index != pack[named]]

    async def _still_possible(self, pack: Sequence[int]) -> list[int]:
        """Refuse what cannot happen as the nodes are now."""
        nodes = await self._transactions.seen(self._groups[index] for index in pack)
        possible: list[int] = []
        for index in pack:
            if (failure := refusal(self._groups[index], nodes)) is None:
                possible.append(index)
            else:
                self.outcomes[index] = Refused(failure)
        return possible
