"""Everything off a broker: asked for, waited for, and looked at again until it has nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from regnum_client.admin.reassignment.wording import counted, named
from regnum_client.commands.invocation import CommandFailedError, Failure, Output, conflict
from regnum_client.commands.reassignment.rendering import emit_plan, raise_failures
from regnum_client.commands.reassignment.throttle import Throttled
from regnum_client.commands.reassignment.waiting import OverruledError, Patience, wait_arrived

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.reassignment.draining import Seen
    from regnum_client.admin.reassignment.plan import PlannedMove
    from regnum_client.admin.reassignment.values import OngoingReassignment

ROUNDS_MAX: Final = 5
"""How often it is looked again whether the broker got something meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """What is asked for."""

    broker: int
    """Id of the broker."""
    dry_run: bool
    """Whether nothing is changed."""
    fewer_racks: bool
    """Whether partitions may stand on fewer racks."""
    wait: bool
    """Whether to return when the broker has nothing."""
    wait_s: float | None
    """For how long at most; None: as long as it takes."""
    output: Output
    """Form of the plan on stdout."""

    @property
    def how_to_go_on(self) -> str:
        """What to do with a broker that is marked and has something still."""
        return (
            "`regnum partitions reassignments` shows what is under way; run it again to wait, "
            f"`regnum brokers drain {self.broker} --undo` and `regnum partitions cancel` to stop"
        )


class Emptying:
    """One command that drains a broker."""

    def __init__(self, drain: Drain, throttled: Throttled) -> None:
        self._drain = drain
        self._throttled = throttled
        self._followed: set[tuple[str, int]] = set()
        self._had: frozenset[tuple[str, int]] = frozenset()
        self.marked = False
        """Whether the broker has the mark, or may have it."""
        self.moves: list[PlannedMove] = []
        """All that was asked for."""

    async def run(self, admin: "Admin") -> None:
        """Do it. Raises CommandFailedError and RegnumError."""
        from regnum_client.commands.reassignment.planning import check_drain, load_of  # noqa: PLC0415 - as above

        drain = self._drain
        # First: where its replicas cannot go anywhere it is refused before it is marked.
        await check_drain(admin, drain.broker, fewer_racks=drain.fewer_racks)
        self.marked = not drain.dry_run
        await admin.drain_broker(drain.broker, validate_only=drain.dry_run)
        if drain.dry_run:
            await self._ask(admin, (await load_of(admin, drain.broker)).moves)
            return
        patience = Patience.of(
            drain.wait_s,
            what=f"draining broker {drain.broker}",
            quiet=drain.output is not Output.TABLE,
            then=f"{drain.how_to_go_on[0].upper()}{drain.how_to_go_on[1:]}",
        )
        for number in range(ROUNDS_MAX):
            if await self._round(admin, patience, first=number == 0):
                return
        raise self._never_empty()

    async def _round(self, admin: "Admin", patience: Patience, *, first: bool) -> bool:
        """Ask for what is due, and wait for it; whether that was all."""
        from regnum_client.admin.reassignment.draining import Ask, CalledBack, Empty, Undone, due  # noqa: PLC0415

        seen = await self._look(admin)
        match due(seen, self._followed):
            case Undone():
                raise await self._undone(admin)
            case CalledBack(places):
                raise self._called_back(places)
            case Empty():
                if first:
                    self._tell(())
                await self._throttled.end(admin)
                return True
            case Ask(moves):
                if first or moves:
                    self._tell(moves, on_their_way=len(seen.leaving))
                await self._throttled.begin(admin)
                self._followed |= {(move.topic, move.partition) for move in moves} | set(seen.leaving)
                await self._ask(admin, moves)
                if self._drain.wait:
                    await self._wait(admin, patience)
                return not self._drain.wait
            case _ as never:
                assert_never(never)

    async def _ask(self, admin: "Admin", moves: "tuple[PlannedMove, ...]") -> None:
        targets = {(move.topic, move.partition): move.after for move in moves}
        outcomes = await admin.alter_partition_reassignments(targets, validate_only=self._drain.dry_run)
        self.moves += [move for move in moves if outcomes[move.topic, move.partition] is None]
        if self._drain.dry_run and not any(outcomes.values()):
            self._tell(moves)
        raise_failures(outcomes, self._drain.output)

    async def _wait(self, admin: "Admin", patience: Patience) -> None:
        """Until nothing is under way, or somebody else wants something else: the next look tells what it is."""
        broker, had = self._drain.broker, self._had

        async def still(left: "Sequence[OngoingReassignment]") -> bool:
            """Whether the broker is still marked, and has one less for each that is not under way any more."""
            if not await self._is_marked(admin):
                return False
            gone = (self._followed & had) - {(one.topic, one.partition) for one in left}
            # Asked after the others: in between it can only have got less.
            (known,) = await admin.describe_brokers([broker])
            return known.replicas <= len(had) - len(gone)

        try:
            await wait_arrived(admin, self._followed, patience, overruled=lambda one: broker in one.target, still=still)
        except OverruledError as error:
            # Who takes the mark back calls moves back next: the mark tells more.
            if not await self._is_marked(admin):
                raise await self._undone(admin) from None
            raise self._called_back(error.places) from None

    async def _is_marked(self, admin: "Admin") -> bool:
        # Asks for nothing: it says whether marking would change anything, without a look at every partition.
        return not await admin.drain_broker(self._drain.broker, validate_only=True)

    async def _look(self, admin: "Admin") -> "Seen":
        """How it is, of one moment (see ``assignments``)."""
        from regnum_service.errors import RegnumError  # noqa: PLC0415 - gRPC is loaded by then

        from regnum_client.admin.reassignment.draining import Seen  # noqa: PLC0415
        from regnum_client.commands.reassignment.planning import load_of  # noqa: PLC0415

        try:
            load = await load_of(admin, self._drain.broker)
        except RegnumError:
            # A broker that is not drained any more need not have anywhere to go.
            if await self._is_marked(admin):
                raise
            return Seen(draining=False, moves=(), leaving=())
        self._had = load.places
        return Seen(draining=load.draining, moves=load.moves, leaving=load.leaving)

    def _tell(self, moves: "tuple[PlannedMove, ...]", *, on_their_way: int = 0) -> None:
        """The plan, for people: before it is waited for. Programs get one document, at the end."""
        if self._drain.output is not Output.TABLE:
            return
        empty = "nothing has to move"
        if on_their_way:
            are = "is" if on_their_way == 1 else "are"
            empty = f"{counted(on_their_way, 'partition')} {are} on the way off it already; nothing else has to move"
        emit_plan(moves, self._drain.output, empty=empty)

    async def _undone(self, admin: "Admin") -> CommandFailedError:
        from regnum_client.commands.reassignment.planning import leaving_of  # noqa: PLC0415 - gRPC is loaded by then

        broker = self._drain.broker
        message = (
            f"broker {broker} is not being drained any more: another caller has ended it (`regnum events --broker "
            f"{broker}` names it). Nothing more is asked for, and it is not to be stopped for good"
        )
        if under_way := len(await leaving_of(admin, broker)):
            message += f"; {under_way_words(under_way)}"
        return conflict("DRAIN_UNDONE", message)

    def _called_back(self, places: "tuple[tuple[str, int], ...]") -> CommandFailedError:
        return conflict(
            "CALLED_BACK",
            f"another caller has cancelled or undone the moves of {named(places)} off broker {self._drain.broker}, "
            "which is marked as being drained still; nothing is asked for again. See its name (`regnum events`), and "
            f"run it again if they are to leave, or `regnum brokers drain {self._drain.broker} --undo`",
        )

    def _never_empty(self) -> CommandFailedError:
        broker = self._drain.broker
        message = (
            f"something had come to broker {broker} each of the {ROUNDS_MAX} times that it was looked at; run it "
            "again, and see which caller asks for that (`regnum events --broker`)"
        )
        return CommandFailedError(Failure(code="NOT_EMPTY", message=message, exit_status=5, metadata={}))


def under_way_words(count: int) -> str:
    """Moves off a broker that is not being drained any more."""
    go, them = ("goes", "it") if count == 1 else ("go", "them")
    return (
        f"{counted(count, 'partition')} {go} on leaving it: see `regnum partitions reassignments`; "
        f"`regnum partitions cancel` calls {them} back"
    )
