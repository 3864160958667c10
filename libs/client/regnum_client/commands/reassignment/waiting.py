"""Waiting for partitions to arrive, with a progress bar for people."""

import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from regnum_client.commands.invocation import note

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.reassignment.values import OngoingReassignment

INTERVAL_S: Final = 0.5
"""Pause between two looks."""

NEWS_S: Final = 10.0
"""How often somebody who has no terminal is told."""


class Progress:
    """A bar where there is a terminal, and a line now and then where there is none."""

    def __init__(self, what: str, *, quiet: bool) -> None:
        self._what = what
        self._quiet = quiet
        self._told_s: float | None = None
        self._bar = None
        if not quiet and sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415 - loaded when there is something to show
            from rich.progress import Progress as Bar  # noqa: PLC0415

            self._bar = Bar(console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(what, total=100.0)

    def show(self, *, percent: float, left: int, now_s: float, waits_for: str) -> None:
        """How far it is."""
        text = f"{self._what}: {left} partitions left" + (f"; {waits_for}" if waits_for else "")
        if self._bar is not None:
            self._bar.update(self._task, completed=percent, description=text)
        elif not self._quiet and (self._told_s is None or now_s - self._told_s >= NEWS_S):
            self._told_s = now_s
            note(f"{text} ({percent:.0f} %)")

    def close(self) -> None:
        """It is over."""
        if self._bar is not None:
            self._bar.stop()


async def wait_arrived(admin: "Admin", places: Collection[tuple[str, int]], *, what: str, quiet: bool) -> None:
    """Return when none of these partitions is being reassigned any more."""
    import asyncio  # noqa: PLC0415 - help is to be there at once

    loop, meant = asyncio.get_running_loop(), set(places)
    progress = Progress(what, quiet=quiet)
    try:
        while meant:
            topics = sorted({topic for topic, _ in meant})
            found = await admin.list_partition_reassignments(topics if len(topics) <= 1_000 else ())
            left = [one for one in found if (one.topic, one.partition) in meant]
            if not left:
                return
            waits_for = next((one.waits_for for one in left if "not live" in one.waits_for), "")
            progress.show(percent=_percent(left, len(meant)), left=len(left), now_s=loop.time(), waits_for=waits_for)
            await asyncio.sleep(INTERVAL_S)
    finally:
        progress.close()


def _percent(left: "list[OngoingReassignment]", count: int) -> float:
    """Of all of them; one that has arrived counts whole."""
    return (100.0 * (count - len(left)) + sum(one.percent or 0.0 for one in left)) / count
