"""What a start waits for, told now and then: a process that is slow is waited for as long as it lives."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from regnum_service.clock import Clock

NEWS_S: Final = 10.0
"""Between two lines about what is waited for."""


class Awaited:
    """Of one cluster. Used from its event loop."""

    def __init__(self, report: Callable[[str], None], clock: Clock, logs: Path) -> None:
        """Only assigns; ``logs``: folder of the processes' logs."""
        self._report: Final = report
        self._clock: Final = clock
        self._logs: Final = logs
        self._waiting: Final[dict[str, tuple[Callable[[], str], float]]] = {}

    @contextlib.contextmanager
    def waiting(self, name: str, what: Callable[[], str]) -> Iterator[None]:
        """Meanwhile the process of that name is waited for; ``what`` says how it is, such as ``does not serve yet``."""
        self._waiting[name] = what, self._clock.monotonic()
        try:
            yield
        finally:
            self._waiting.pop(name, None)

    async def tell(self) -> None:
        """Say what is waited for, without end."""
        while True:
            await self._clock.sleep(NEWS_S)
            now_s = self._clock.monotonic()
            for name, (what, since_s) in self._waiting.items():
                if now_s - since_s >= NEWS_S / 2:
                    self._report(
                        f"waiting for {name}: it {what()}, {now_s - since_s:.0f} s after its start; what it does is "
                        f"in {self._logs / f'{name}.log'}, and Ctrl-C ends the cluster"
                    )
