"""What a benchmark says while it runs: on stderr, with the time since the start."""

from typing import Final

from regnum_local.demo.report import Narrator
from regnum_service.clock import Clock
from rich.console import Console

EVERY_S: Final = 2.0
"""Between two words on how far something is."""


class Progress(Narrator):
    """Says what happens."""

    def __init__(self, console: Console, clock: Clock) -> None:
        super().__init__(console)
        self._clock = clock
        self._began_s = clock.monotonic()
        self._counted_s = float("-inf")

    def step(self, text: str) -> None:
        """Something new."""
        self._say(f"[bold cyan]>[/] {text}")

    def detail(self, text: str) -> None:
        """Something within it."""
        self._say(f"  [dim]{text}[/]")

    def complaint(self, text: str) -> None:
        """Something that is wrong."""
        self._say(f"[bold red]![/] {text}")

    def count(self, done: int, total: int, what: str) -> None:
        """How far it is; said every other second, and at the end."""
        now_s = self._clock.monotonic()
        if done >= total or now_s - self._counted_s >= EVERY_S:
            self._counted_s = now_s
            self.detail(f"{done:,} of {total:,} {what}")

    def _say(self, text: str) -> None:
        seconds = self._clock.monotonic() - self._began_s
        self._console.print(f"[dim]{seconds:7.1f} s[/] {text}", highlight=False, soft_wrap=True)
