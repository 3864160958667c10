"""What a disk is asked for at present, so that one that answers no more is noticed."""

import itertools
import threading
from types import TracebackType


class Operations:
    """Operations under way, by thread. Entered and left by the thread of the operation; read by any."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._under_way: dict[int, int] = {}

    def __enter__(self) -> None:
        self._under_way[threading.get_ident()] = next(self._numbers)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._under_way.pop(threading.get_ident(), None)

    @property
    def under_way(self) -> dict[int, int]:
        """The number of the operation that each busy thread waits for; a later operation has a higher one."""
        return self._under_way.copy()
