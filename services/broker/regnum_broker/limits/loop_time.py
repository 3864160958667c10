"""How much of the event loop's time a call takes, for the quota request_percentage (KIP-124).

Kafka counts the time of its network and request handler threads. Here calls share one loop: what counts of it are the
turns that a call's own task takes, not what it waits for. What threads do for a call is charged beside it
(``Call.worked``); of a stream that is all, for its turns on the loop are not measured.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, TypeVar

T = TypeVar("T")


class Timed(Awaitable[T]):
    """Awaits another one, and adds up how long its turns take."""

    def __init__(self, call: Awaitable[T], now_s: Callable[[], float]) -> None:
        """Only assigns; ``now_s`` is monotonic time."""
        self._call: Final = call
        self._now_s: Final = now_s
        self.spent_s = 0.0
        """Seconds of its turns so far."""

    def __await__(self) -> Generator[Any, Any, T]:
        """What the other one returns or raises."""
        return _Turns(self._call.__await__(), self)

    def turn(self, step: Callable[[], T]) -> T:
        """One turn, or its end."""
        began_s = self._now_s()
        try:
            return step()
        finally:
            self.spent_s += self._now_s() - began_s


class _Turns(Generator[Any, Any, T]):
    """Hands each turn on."""

    def __init__(self, turns: Generator[Any, Any, T], timed: Timed[T]) -> None:
        self._turns: Final = turns
        self._timed: Final = timed

    def send(self, value: Any) -> Any:
        return self._timed.turn(lambda: self._turns.send(value))

    def throw(self, *error: Any) -> Any:
        return self._timed.turn(lambda: self._turns.throw(*error))
