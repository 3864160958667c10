"""Definite answers for writes whose outcome was unknown (safety rule S1).

Goals: a caller sees Unknown only when its own deadline has passed; it never takes "not seen yet" for "did not happen".

Constraints: an attempt without an answer may commit at any later moment, also after a read that did not show it. Only
a definite answer to the *same* conditional write ends that: if it was refused because of a version, the earlier
attempt can never happen any more, or has happened already.

Algorithm: repeat what is unknown, unchanged, with a growing pause, until the store answers. A repeat that is refused
may have been refused by the success of its own earlier attempt: then read, now that no attempt is open, and call the
group written if every node it writes looks exactly as it leaves it. If another writer has been there since, it stays
a refusal, and the caller decides again from what it reads; a fence that fails, or a session that ends, leaves no more
to know.

A group that can never succeed (too large, a path that no store has) is refused alone: a batch with such a group is sent
again in halves, until the group stands by itself. What has happened of the batch before is found as above.

Rights that are missing come back when a person gives them, so a refusal for want of them is repeated too. Where the
store takes other writes meanwhile, only nodes of that group are closed: it is refused, and its neighbours go on.

Example: set /x at version 3, no answer; repeated: BadVersion, found 4; /x holds our bytes at version 4: Written.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import assert_never

from regnum_coordination.errors import ConnectionLoss, InvalidRequest, NoAuth, SessionExpired
from regnum_coordination.port import (
    Absent,
    Check,
    Create,
    Delete,
    Expired,
    Fenced,
    Group,
    Node,
    Operation,
    OperationResult,
    Outcome,
    Refused,
    Set,
    Store,
    Unknown,
    Written,
)
from regnum_coordination.timing import Backoff, Clock


class Resolver:
    """Conditional writes with definite answers; one for each store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        backoff: Backoff | None = None,
        takes_writes: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """Only assigns.

        Args:
            store: an open session.
            clock: source of time.
            backoff: pauses between attempts.
            takes_writes: whether the store takes any write of this process now. Given: a group that the store refuses
                for want of rights while it takes others is Refused with NoAuth; None: it is waited for.
        """
        self._takes_writes = takes_writes
        self._store = store
        self._clock = clock
        self._backoff = Backoff() if backoff is None else backoff

    async def multi(
        self, operations: Sequence[Operation], *, deadline_s: float | None = None
    ) -> tuple[OperationResult, ...]:
        """As ``Store.multi``; raises ConnectionLoss only after ``deadline_s`` seconds, never if that is None."""
        (outcome,) = await self.write_batch([tuple(operations)], deadline_s=deadline_s)
        match outcome:
            case Written(results=results):
                return results
            case Refused(error=error):
                raise error
            case Expired():
                raise SessionExpired("the session is over; open a new store")
            case Unknown(because=NoAuth() as refusal):
                raise refusal
            case Unknown():
                raise ConnectionLoss(f"no definite answer within {deadline_s} s; keep both outcomes in mind and repeat")
            case Fenced():
                raise AssertionError("no fence was given")
            case _:
                assert_never(outcome)

    async def write_batch(
        self, groups: Sequence[Group], *, fence: Check | None = None, deadline_s: float | None = None
    ) -> tuple[Outcome, ...]:
        """As ``Store.write_batch``; Unknown only after ``deadline_s`` seconds, never if that is None.

        A group that can never succeed is Refused with InvalidRequest and fails none of its neighbours; for NoAuth see
        ``takes_writes``.

        Raises InvalidRequest for a set or delete without a version: such a write cannot be repeated safely.
        """
        for group in groups:
            _check_repeatable(group)
        until_s = None if deadline_s is None else self._clock.monotonic() + deadline_s
        outcomes, halved = await self._attempt(groups, fence)
        unknown = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, Unknown)]
        repeated = list(range(len(groups))) if halved else list(unknown)
        attempts = 1
        closed = [index for index in unknown if _no_rights(outcomes[index]) is not None]
        while unknown:
            closed = await self._try_alone(groups, fence, outcomes, closed)
            unknown = [index for index in unknown if isinstance(outcomes[index], Unknown)]
            if not unknown or not await self._pause(attempts, until_s):
                break
            answers, _ = await self._attempt([groups[index] for index in unknown], fence)
            for index, answer in zip(unknown, answers, strict=True):
                outcomes[index] = answer
            unknown = [index for index in unknown if isinstance(outcomes[index], Unknown)]
            closed = [index for index in closed if _no_rights(outcomes[index]) is not None]
            attempts += 1
        suspects = [index for index in repeated if _may_have_happened(outcomes[index])]
        for index, settled in zip(suspects, await self._settle([groups[i] for i in suspects], until_s), strict=True):
            outcomes[index] = outcomes[index] if settled is None else settled
        return tuple(outcomes)

    async def _attempt(self, groups: Sequence[Group], fence: Check | None) -> tuple[list[Outcome], bool]:
        """One attempt, and whether some of it was sent more than once for the sake of a group that cannot succeed."""
        try:
            return list(await self._store.write_batch(groups, fence=fence)), False
        except InvalidRequest as error:
            if len(groups) == 1:
                return [Refused(error)], False
        middle = len(groups) // 2
        first, _ = await self._attempt(groups[:middle], fence)
        second, _ = await self._attempt(groups[middle:], fence)
        return [*first, *second], True

    async def _try_alone(
        self, groups: Sequence[Group], fence: Check | None, outcomes: list[Outcome], closed: Sequence[int]
    ) -> list[int]:
        """Refuse what is closed to this process while other writes are taken; the rest of what was refused so far.

        ``closed``: groups of which every attempt was refused, so that none can land later. A store may have refused
        one for the sake of another in the same transaction.
        """
        if not closed or self._takes_writes is None or not await self._takes_writes():
            return list(closed)
        for index in closed:
            ((outcome,), _) = await self._attempt([groups[index]], fence)
            error = _no_rights(outcome)
            outcomes[index] = outcome if error is None else Refused(error)
        return []

    async def _pause(self, attempts: int, until_s: float | None) -> bool:
        """Wait before the next attempt; False when the deadline comes first."""
        pause_s = self._backoff.pause_s(attempts)
        if until_s is not None and self._clock.monotonic() + pause_s > until_s:
            return False
        await self._clock.sleep(pause_s)
        return True

    async def _settle(self, groups: Sequence[Group], until_s: float | None) -> list[Written | Expired | Unknown | None]:
        """For refused repeats: Written where the nodes look as the group leaves them, None where the refusal stands."""
        if not groups:
            return []
        paths = [operation.path for group in groups for operation in group]
        attempts = 1
        while True:
            try:
                nodes = dict(zip(paths, await self._store.get_many(paths, current=True), strict=True))
            except ConnectionLoss:
                if not await self._pause(attempts, until_s):
                    return [Unknown()] * len(groups)
                attempts += 1
            except SessionExpired:
                return [Expired()] * len(groups)
            else:
                return [_as_written(group, nodes, self._store.session_id) for group in groups]


def _may_have_happened(outcome: Outcome) -> bool:
    return isinstance(outcome, Refused) and not isinstance(outcome.error, InvalidRequest | NoAuth)


def _no_rights(outcome: Outcome) -> NoAuth | None:
    """Why an attempt did nothing; None: it may have done something, or there is an answer."""
    return outcome.because if isinstance(outcome, Unknown) and isinstance(outcome.because, NoAuth) else None


def _check_repeatable(group: Group) -> None:
    for operation in group:
        if isinstance(operation, Set | Delete) and operation.version is None:
            raise InvalidRequest(f"{operation.path} is written without a version; a repeat could undo others' work")


def _as_written(group: Group, nodes: dict[str, Node | None], session_id: int) -> Written | None:
    """The group's results if every node it writes looks exactly as it leaves it."""
    if all(isinstance(operation, Check | Absent) for operation in group):
        return None
    results: list[OperationResult] = []
    for operation in group:
        node = nodes[operation.path]
        match operation:
            case Check() | Absent():
                results.append(OperationResult(operation.path, None))
            case Create(data=data, ephemeral=ephemeral):
                owner = session_id if ephemeral else None
                if node is None or node.data != data or node.stat.version != 0 or node.stat.ephemeral_owner != owner:
                    return None
                results.append(OperationResult(operation.path, node.stat))
            case Set(data=data, version=version):
                if node is None or version is None or node.stat.version != version + 1 or node.data != data:
                    return None
                results.append(OperationResult(operation.path, node.stat))
            case Delete():
                if node is not None:
                    return None
                results.append(OperationResult(operation.path, None))
            case _:
                assert_never(operation)
    return Written(tuple(results))
