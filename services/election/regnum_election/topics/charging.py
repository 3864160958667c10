"""What mutations of topics cost their callers, and what is paid for already.

A mutation is charged before it is queued, in the caller's own coroutine (``admissions``). While it is on its way a
repeat of the same call is not charged again (safety rule S20); once it is carried out, a repeat is answered from the
picture before it is charged. What was charged and never queued, because its caller went away or the queue was full, is
remembered as left: the first repeat takes it up.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, Generic, TypeVar

from regnum.types.v1 import errors_pb2

from regnum_election.admission.admissions import MUTATIONS_PER_CALL, Admissions, Cost
from regnum_election.admission.stand_in import Account, Verdict
from regnum_election.decisions.rejection import Rejection
from regnum_election.state.context import ControllerContext

T = TypeVar("T")

LEFT_MAX: Final = 10_000
"""Mutations that were charged and never queued, and are remembered; the oldest are forgotten."""

THROTTLE_MS_MAX: Final = 2**31 - 1
"""Longest throttle time that an answer can carry: 24 days."""

ROUNDING_MS: Final = 1e-3
"""What seconds and back make of whole milliseconds at most."""


class Kind(Enum):
    """What a mutation does."""

    CREATION = "creation"
    """Makes a topic."""
    DELETION = "deletion"
    """Removes one."""
    ADDITION = "addition"
    """Adds partitions to a topic."""
    REMOVAL = "removal"
    """Removes partitions of a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A mutation on its way. What differs in anything is another mutation, and is charged."""

    kind: Kind
    """What it does."""
    user: str
    """Who pays."""
    mutation: str
    """Mutation id."""
    cost: Cost
    """Topic and partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Generic[T]):
    """What a call comes to."""

    outcomes: tuple[T, ...]
    """In the order of the requests."""
    throttle_ms: int
    """How long the caller should wait before its next mutation; 0 means not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Charged:
    """A mutation that is to be admitted."""

    index: int
    """Place of its request."""
    cost: Cost
    """What it costs."""
    mark: Mark | None
    """What a repeat of it is known by."""


class Charging:
    """Of one kind of calls in one reign."""

    def __init__(self, context: ControllerContext, admissions: Admissions) -> None:
        """Only assigns."""
        self._context: Final = context
        self._admissions: Final = admissions
        self._on_their_way: Counter[Mark] = Counter()
        """Paid for, and not carried out yet."""
        self._left: Final[dict[Mark, None]] = {}
        """Paid for, and not queued; the oldest first."""
        self._judged: Final[dict[Mark | None, asyncio.Future[Verdict]]] = {}
        """Not decided yet."""

    async def applies_to(self, account: Account) -> bool:
        """Whether any quota limits this caller."""
        return await self._admissions.applies_to(account)

    def left_ms(self, wait_until_s: float) -> int:
        """What is left of a throttle time when the answer goes out: the caller has waited for it meanwhile."""
        left_s = wait_until_s - self._context.clock.monotonic()
        return min(max(0, math.ceil(left_s * 1000 - ROUNDING_MS)), THROTTLE_MS_MAX)

    def is_paid(self, mark: Mark | None, marks: list[Mark]) -> bool:
        """Whether the same mutation was charged and is still on its way, or was left: then it is the caller's own.

        ``marks``: those of the caller, to be left or released.
        """
        if mark is None:
            return False
        if mark in self._left:
            del self._left[mark]
            self._on_their_way[mark] += 1
            marks.append(mark)
        return self._on_their_way[mark] > 0

    async def judge(
        self, charged: Sequence[Charged], account: Account, marks: list[Mark]
    ) -> tuple[list[Charged], Verdict]:
        """Have mutations judged; those that are refused. What is admitted is marked as paid, and in ``marks``.

        The caller's connection is held up from here on and not from its answer: who hangs up before that has had his
        mutation all the same, and would have the next one for nothing.
        """
        # A repeat waits for what is decided about the first, whose caller may be gone.
        while first := {self._judged[one.mark] for one in charged if one.mark in self._judged}:
            await asyncio.wait(first)
        charged = [one for one in charged if not self.is_paid(one.mark, marks)]
        waits = True

        def told(part: Sequence[Charged], decided: "asyncio.Future[Verdict]") -> None:
            self._forget(part, decided)
            # Where nobody waits any more, nobody else retrieves what went wrong.
            if decided.cancelled() or decided.exception() is not None:
                return
            verdict = decided.result()
            if verdict.throttle_ms > 0:
                account.hold_up(verdict.throttle_ms / 1000)
            for one, admitted in zip(part, verdict.admitted, strict=True):
                if admitted and one.mark is not None:
                    self._on_their_way[one.mark] += 1
                    marks.append(one.mark)
                    if not waits:
                        self.leave([one.mark])

        def asked(start: int, verdict: "asyncio.Future[Verdict]") -> None:
            part = charged[start : start + MUTATIONS_PER_CALL]
            self._judged.update((one.mark, verdict) for one in part if one.mark is not None)
            verdict.add_done_callback(partial(told, part))

        try:
            verdict = await self._admissions.judge(account, [one.cost for one in charged], asked)
        finally:
            waits = False
        return [one for one, admitted in zip(charged, verdict.admitted, strict=True) if not admitted], verdict

    def _forget(self, part: Sequence[Charged], decided: "asyncio.Future[Verdict]") -> None:
        for one in part:
            if one.mark is not None and self._judged.get(one.mark) is decided:
                del self._judged[one.mark]

    def leave(self, marks: Collection[Mark]) -> None:
        """Mutations that were paid for and are not queued: whoever repeats one of them does not pay again."""
        self.release(marks)
        self._left.update(dict.fromkeys(marks))
        while len(self._left) > LEFT_MAX:
            del self._left[next(iter(self._left))]

    def release(self, marks: Collection[Mark]) -> None:
        """Mutations that are carried out, or will be left."""
        for mark in marks:
            self._on_their_way[mark] -= 1
            if self._on_their_way[mark] <= 0:
                del self._on_their_way[mark]

    async def releasing(self, steps: AsyncGenerator[None, None], marks: Collection[Mark]) -> AsyncGenerator[None, None]:
        """The steps; once they are done, a repeat is answered from the picture, or charged."""
        async with aclosing(steps):
            try:
                async for _ in steps:
                    yield
            finally:
                self.release(marks)


def mark_of(kind: Kind, cost: Cost, mutation: str | None, account: Account) -> Mark | None:
    """What a mutation is known by while it is on its way, or left; None: it has no id."""
    return None if mutation is None else Mark(kind=kind, user=account.user, mutation=mutation, cost=cost)


def throttled(what: str, account: Account, verdict: Verdict) -> Rejection:
    """The refusal of a mutation that the quota does not admit."""
    who = f"client id {account.client_id!r}" if account.client_id else "unnamed clients"
    return Rejection(
        code=errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
        message=f"{what}: the quota of {account.user}, {who}, is used up; try again in {verdict.throttle_ms} ms",
    )
