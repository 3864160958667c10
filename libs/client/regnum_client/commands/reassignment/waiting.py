"""Waiting for partitions to arrive, with a progress bar for people."""

import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from regnum_client.admin.reassignment.wording import counted, named
from regnum_client.commands.invocation import CommandFailedError, Failure, note, visible

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.reassignment.progress import Progress
    from regnum_client.admin.reassignment.values import OngoingReassignment

INTERVAL_S: Final = 0.5
"""Pause between two looks."""

NEWS_S: Final = 10.0
"""How often somebody who has no terminal is told."""

CHECK_S: Final = 3.0
"""How often it is looked whether there is any sense in waiting."""

WaitSOption = Annotated[
    float | None,
    typer.Option(
        "--wait-s",
        metavar="SECONDS",
        min=0.1,
        help="Wait, for so long at most; then exit status 5, and what moves goes on. Default: as long as it takes.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How one command waits."""

    what: str
    """What is going on, for people."""
    quiet: bool
    """Nobody is told how far it is."""
    until_s: float | None
    """Time of the event loop at which it ends; None: it never does."""
    then: str
    """What to do when it ends."""

    @classmethod
    def of(cls, wait_s: float | None, *, what: str, quiet: bool, then: str) -> "Patience":
        """From now on, inside an event loop; ``wait_s`` None: for ever."""
        import asyncio  # noqa: PLC0415 - help is to be there at once

        until_s = None if wait_s is None else asyncio.get_running_loop().time() + wait_s
        return cls(what=what, quiet=quiet, until_s=until_s, then=then)


class OverruledError(Exception):
    """Somebody else wants other brokers for partitions that are waited for."""

    def __init__(self, places: Collection[tuple[str, int]]) -> None:
        super().__init__(f"{named(sorted(places))} cancelled or redirected by another caller")
        self.places = tuple(sorted(places))


class Teller:
    """A bar where there is a terminal, and a line now and then where there is none."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._told_s: float | None = None
        self._bar = None
        if not patience.quiet and sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415 - loaded when there is something to show
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn  # noqa: PLC0415
            from rich.progress import Progress as Bar  # noqa: PLC0415

            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(patience.what, total=100.0)

    def show(self, progress: "Progress", now_s: float) -> None:
        """How far it is, and what holds it up."""
        if self._patience.quiet:
            return
        text = f"{self._patience.what}: {_words_of(progress)}"
        if self._bar is not None:
            self._bar.update(self._task, completed=progress.percent, description=text)
        elif self._told_s is None or now_s - self._told_s >= NEWS_S:
            self._told_s = now_s
            note(f"{text} ({progress.percent:.0f} %)")
        for line in progress.news:
            self._line(f"waiting for {line}")

    def _line(self, text: str) -> None:
        if self._bar is None:
            note(text)
        else:
            self._bar.console.print(visible(text), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """It is over."""
        if self._bar is not None:
            self._bar.stop()


async def wait_arrived(
    admin: "Admin",
    places: Collection[tuple[str, int]],
    patience: Patience,
    *,
    overruled: "Callable[[OngoingReassignment], bool]",
    still: "Callable[[Sequence[OngoingReassignment]], Awaitable[bool]] | None" = None,
) -> None:
    """Return when none of these partitions is being reassigned any more, or when ``still`` says no.

    Args:
        admin: asks the controller.
        places: topics and partitions.
        patience: how to wait.
        overruled: whether an open reassignment of one of them is another one than is waited for.
        still: whether there is any sense in waiting for those that are left; asked now and then.

    Raises:
        OverruledError: somebody else has called some of them back, or sent them elsewhere.
        CommandFailedError: it took longer than ``patience`` allows.
    """
    import asyncio  # noqa: PLC0415 - help is to be there at once

    from regnum_client.admin.reassignment.progress import MovesWatched  # noqa: PLC0415 - gRPC is loaded by then

    loop, meant = asyncio.get_running_loop(), set(places)
    watched, teller = MovesWatched(meant), Teller(patience)
    topics = sorted({topic for topic, _ in meant})
    checked_s = loop.time()
    try:
        while meant:
            found = await admin.list_partition_reassignments(topics if len(topics) <= 1_000 else ())
            left = [one for one in found if (one.topic, one.partition) in meant]
            if not left:
                return
            if others := [(one.topic, one.partition) for one in left if overruled(one)]:
                raise OverruledError(others)
            progress = watched.look(left, loop.time())
            teller.show(progress, loop.time())
            if patience.until_s is not None and loop.time() >= patience.until_s:
                raise _too_long(patience, progress)
            if still is not None and loop.time() - checked_s >= CHECK_S:
                if not await still(left):
                    return
                checked_s = loop.time()
            await asyncio.sleep(INTERVAL_S)
    finally:
        teller.close()


def _words_of(progress: "Progress") -> str:
    from regnum_client.commands.status.figures import size, span  # noqa: PLC0415 - of no use to help

    rate = "" if progress.bytes_per_s is None else f", {size(progress.bytes_per_s)}/s"
    time = "" if progress.left_s is None else f", about {span(progress.left_s)} to go"
    return f"{counted(progress.left, 'partition')} left{rate}{time}"


def _too_long(patience: Patience, progress: "Progress") -> CommandFailedError:
    why = "".join(f"; {reason}" for reason in progress.reasons)
    message = f"{patience.what}: {counted(progress.left, 'partition')} left when the time was up{why}. {patience.then}"
    return CommandFailedError(Failure(code="NOT_ARRIVED", message=message, exit_status=5, metadata={}))
