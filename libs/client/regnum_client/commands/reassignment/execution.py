"""Carrying a plan out: shown or asked for, throttled, waited for, and what is said at the end."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from regnum_client.admin.reassignment.wording import counted, named
from regnum_client.commands.invocation import (
    TIMEOUT_S,
    CommandFailedError,
    Output,
    broken_off,
    conflict,
    note,
    run,
)
from regnum_client.commands.reassignment.rendering import emit_plan, raise_failures
from regnum_client.commands.reassignment.throttle import Throttled
from regnum_client.commands.reassignment.waiting import OverruledError, Patience, wait_arrived

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.reassignment.plan import PlannedMove

SEE: Final = "`regnum partitions reassignments` shows how far, `regnum partitions cancel` calls back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a plan is carried out."""

    execute: bool
    """Whether it is at all; otherwise it is shown."""
    wait: bool
    """Whether to wait until all have arrived."""
    wait_s: float | None
    """For how long at most; None: as long as it takes."""
    throttle: int | None
    """Bytes a second; None: as the cluster has it."""
    client_id: str
    """Name of the caller."""
    output: Output
    """Form of the plan on stdout."""
    bootstrap: str | None
    """Brokers to begin with."""
    timeout: float | None
    """Seconds for each call."""

    @property
    def waits(self) -> bool:
        """Whether it waits for anything."""
        return self.execute and (self.wait or self.wait_s is not None)


class Execution:
    """One plan, carried out by one command."""

    def __init__(self, manner: Manner) -> None:
        self._manner = manner
        self._quiet = manner.output is not Output.TABLE
        self._throttled = Throttled(manner.throttle if manner.execute else None, quiet=self._quiet)
        self._begun: tuple[PlannedMove, ...] = ()

    def run(self, plan: "Callable[[Admin], Awaitable[Sequence[PlannedMove]]]") -> None:
        """Make the plan and carry it out. Raises CommandFailedError."""
        try:
            run(self._work(plan))
        except KeyboardInterrupt:
            go_on = f"{_go_on(len(self._begun))}; {SEE}" if self._begun else ""
            said = [sentence for sentence in (go_on, self._throttled.how_back()) if sentence]
            if not said:
                raise
            raise broken_off(". ".join(said)) from None
        except CommandFailedError as error:
            raise self._throttled.with_how_back(error) from error

    async def _work(self, plan: "Callable[[Admin], Awaitable[Sequence[PlannedMove]]]") -> None:
        from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

        manner = self._manner
        async with Admin(manner.bootstrap, timeout_s=manner.timeout or TIMEOUT_S, client_id=manner.client_id) as admin:
            moves = tuple(await plan(admin))
            targets = {(move.topic, move.partition): move.after for move in moves}
            if self._throttled.wanted and moves:
                # What is refused altogether changes no setting either.
                raise_failures(await admin.alter_partition_reassignments(targets, validate_only=True), manner.output)
                await self._throttled.begin(admin)
            # A call that is broken off may have been carried out.
            self._begun = moves if manner.execute else ()
            outcomes = await admin.alter_partition_reassignments(targets, validate_only=not manner.execute)
            taken = tuple(move for move in moves if outcomes[move.topic, move.partition] is None)
            self._begun = taken if manner.execute else ()
            if self._begun or len(taken) == len(moves):
                emit_plan(taken, manner.output)
            if self._begun and manner.waits:
                await self._wait(admin)
                await self._throttled.end(admin)
            raise_failures(outcomes, manner.output)
        if not self._quiet and moves:
            self._conclude(moves)
        if manner.execute:
            self._throttled.say_how_back()

    async def _wait(self, admin: "Admin") -> None:
        wanted = {(move.topic, move.partition): move.after for move in self._begun}
        patience = Patience.of(
            self._manner.wait_s, what="reassigning", quiet=self._quiet, then=f"What moves goes on: {SEE}"
        )
        try:
            await wait_arrived(
                admin, wanted, patience, overruled=lambda one: one.target != wanted[one.topic, one.partition]
            )
            await _check_arrived(admin, wanted)
        except OverruledError as error:
            others = len(wanted) - len(error.places)
            message = (
                f"another caller has cancelled or redirected {named(error.places)}; see `regnum partitions "
                "reassignments`, and the caller in `regnum events`, and run it again if it is wanted still"
            )
            message += f". {counted(others, 'other partition')} may be under way" if others else ""
            raise conflict("CALLED_BACK", message) from None

    def _conclude(self, moves: "Sequence[PlannedMove]") -> None:
        if not self._manner.execute:
            waiting = "; there is nothing to wait for" if self._manner.wait or self._manner.wait_s else ""
            note(f"{_what_moves(moves, 'would ')}; nothing was changed{waiting}. Run it again with --execute to do it")
        elif self._manner.waits:
            note(f"{counted(len(moves), 'partition')} arrived")
        else:
            note(f"{_what_moves(moves, '')}; see regnum partitions reassignments")


def _go_on(count: int) -> str:
    return f"{counted(count, 'partition')} {'goes' if count == 1 else 'go'} on being reassigned"


def _what_moves(moves: "Sequence[PlannedMove]", would: str) -> str:
    """``3 replicas would move``, or what happens where nothing is copied; ``would`` is empty when it happens."""
    count = sum(len(move.added) for move in moves)
    if count:
        return f"{counted(count, 'replica')} {would}{'moves' if count == 1 and not would else 'move'}"
    one = len(moves) == 1
    keep = "keeps" if one and not would else "keep"
    return f"nothing {would}{'be' if would else 'is'} copied: {counted(len(moves), 'partition')} {would}{keep} " + (
        "replicas that it has" if one else "replicas that they have"
    )


async def _check_arrived(admin: "Admin", wanted: Mapping[tuple[str, int], Sequence[int]]) -> None:
    """Return once brokers know partitions where they were to go; those of topics that are gone do not count.

    Raises OverruledError: some are elsewhere. A call-back of what had not begun is done at once, and never seen open.
    """
    import asyncio  # noqa: PLC0415 - help is to be there at once

    from regnum_client.commands.reassignment.assignments import (  # noqa: PLC0415 - gRPC is loaded by then
        SETTLED_S,
        SETTLING_S,
        by_place,
    )

    loop = asyncio.get_running_loop()
    until_s = loop.time() + SETTLED_S
    while True:
        found = by_place(await admin.list_topics())
        elsewhere = [
            place for place, after in wanted.items() if place in found and set(found[place].replicas) != set(after)
        ]
        if not elsewhere:
            return
        if loop.time() >= until_s:
            raise OverruledError(elsewhere)
        await asyncio.sleep(SETTLING_S)
