"""``write_batch`` on etcd: many groups, in as few transactions as the server allows.

Goals: each group its own outcome (safety rule S4), no loop held (S22), and little more time than the server needs.

Constraints: what may be refused as a whole is refused before anything is sent; groups that rely on an earlier group's
write come in a later transaction than it.

Algorithm: groups of the first wave are packed in order, and a full pack is sent while the next ones are translated,
with a limit on how many are under way. Later waves follow one after another. A pack is sent flat as long as no flat one
of this batch was refused; see ``transactions``.

Example: 10,000 sets, one of which meets another version, are 80 flat transactions; one is refused and sent nested.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from regnum_coordination.drivers.etcd.conditions import Condition, conditions
from regnum_coordination.drivers.etcd.keys import Keys
from regnum_coordination.drivers.etcd.rpc import EtcdRpc
from regnum_coordination.drivers.etcd.session import LeaseSession
from regnum_coordination.drivers.etcd.transactions import (
    Packer,
    Part,
    batch_outcomes,
    batch_request,
    check_size,
    flat_outcomes,
    flat_request,
    part,
)
from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import Absent, Check, Expired, Group, Operation, Outcome, SessionState, Unknown
from regnum_coordination.requests import WavePlan, check_batch

PARALLEL_TRANSACTIONS: Final = 32
"""Transactions of a batch under way."""

_SLICE: Final = 1000
"""Groups that are checked before other tasks may run."""

_STRIDE: Final = 100
"""Groups that are translated before other tasks may run (safety rule S22)."""

_ALWAYS_FIT: Final = 3
"""Operations of a group that fits into a transaction whatever they are."""
_ALWAYS_FIT_PATH: Final = 4_000
"""Longest path in such a group: each may stand in a request six times, in four bytes a character."""


def _fits(operation: Operation) -> bool:
    """Whether a few of its kind fit; a check of absence compares every folder above."""
    return len(operation.path) <= _ALWAYS_FIT_PATH and not isinstance(operation, Absent)


class EtcdBatch:
    """One batch, carried out once."""

    def __init__(
        self,
        rpc: EtcdRpc,
        keys: Keys,
        session: LeaseSession,
        groups: Sequence[Group],
        *,
        fence: Check | None,
        max_txn_ops: int,
    ) -> None:
        self._rpc = rpc
        self._keys = keys
        self._session = session
        self._groups = groups
        self._fence = fence
        self._max_txn_ops = max_txn_ops
        self._fences: Sequence[Condition] = ()
        self._outcomes: list[Outcome] = [Expired()] * len(groups)
        self._later: dict[int, list[int]] = {}
        self._gate = asyncio.Semaphore(PARALLEL_TRANSACTIONS)
        self._flat = True

    async def write(self) -> tuple[Outcome, ...]:
        """Carry it out; raises InvalidRequest, for what can be seen beforehand before anything is sent."""
        await self._check()
        await self._write_wave(self._first_wave())
        for wave in sorted(self._later):
            await self._write_wave(self._later[wave])
        return tuple(self._outcomes)

    async def _check(self) -> None:
        self._fences = () if self._fence is None else conditions([self._fence], self._keys)
        for at in range(0, len(self._groups), _SLICE):
            some = self._groups[at : at + _SLICE]
            check_batch(some, self._fence)
            for group in some:
                if len(group) > _ALWAYS_FIT or any(not _fits(operation) for operation in group):
                    check_size(part(group, self._keys, self._session.lease_id), self._max_txn_ops)
            await asyncio.sleep(0)

    def _first_wave(self) -> Iterator[int]:
        """Indexes of the groups that rely on no earlier one; the others are kept for later."""
        plan = WavePlan()
        for index, group in enumerate(self._groups):
            if wave := plan.place(group):
                self._later.setdefault(wave, []).append(index)
            else:
                yield index

    async def _write_wave(self, indexes: Iterable[int]) -> None:
        packer = Packer(self._max_txn_ops - 1)  # a flat transaction compares the fence beside the session's key
        sending: list[asyncio.Task[None]] = []
        try:
            for count, index in enumerate(indexes):
                item = part(self._groups[index], self._keys, self._session.lease_id, index=index)
                if full := packer.add(item):
                    await self._begin(full, sending)
                if count % _STRIDE == 0:
                    await asyncio.sleep(0)
            if rest := packer.rest():
                await self._begin(rest, sending)
            await asyncio.gather(*sending)
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    async def _begin(self, parts: Sequence[Part], sending: list[asyncio.Task[None]]) -> None:
        """Send a transaction when fewer than the limit are under way."""
        await self._gate.acquire()
        sending.append(asyncio.create_task(self._send(parts), name="etcd transaction of a batch"))
        await asyncio.sleep(0)

    async def _send(self, parts: Sequence[Part]) -> None:
        try:
            for item, outcome in zip(parts, await self._outcomes_of(parts), strict=True):
                self._outcomes[item.index] = outcome
        finally:
            self._gate.release()

    async def _outcomes_of(self, parts: Sequence[Part]) -> tuple[Outcome, ...]:
        if self._session.state is SessionState.LOST:
            return (Expired(),) * len(parts)
        try:
            outcomes = await self._try_flat(parts) or await self._nested(parts)
        except ConnectionLoss as error:
            return (Unknown(error),) * len(parts)
        except SessionExpired:
            outcomes = (Expired(),) * len(parts)
        if any(isinstance(outcome, Expired) for outcome in outcomes):
            self._session.feed.set(SessionState.LOST)
        return outcomes

    async def _try_flat(self, parts: Sequence[Part]) -> tuple[Outcome, ...]:
        """Outcomes of a flat transaction; empty where there is none, or it was refused and nothing happened."""
        if not self._flat:
            return ()
        request = flat_request(parts, self._session_key, self._fences, self._max_txn_ops)
        if request is None:
            return ()
        answer = await self._rpc.txn(request)
        if not answer.succeeded:
            self._flat = False
            return ()
        return flat_outcomes(parts, answer)

    async def _nested(self, parts: Sequence[Part]) -> tuple[Outcome, ...]:
        answer = await self._rpc.txn(batch_request(parts, self._session_key, self._fences, self._keys))
        return batch_outcomes(parts, answer, self._keys)

    @property
    def _session_key(self) -> bytes:
        return self._keys.session(self._session.lease_id)
