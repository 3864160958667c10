"""Who pays: for whom work is done, a value that says nothing of the protocol by which the call came.

A listener makes one as a call comes in, whatever it speaks, and everything that costs something is done for it. A
caller that has left pays for what was done for it all the same.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from regnum_model.principals import NOBODY, Principal

DEADLINE_NONE: Final = math.inf


def _for_free(_call: "Call", _seconds: float) -> None:
    """No quota counts it."""


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """One call. Belongs to the event loop; ``is_gone`` may be read by any thread."""

    peer: str
    """The connection by which it came."""
    principal: Principal = NOBODY
    """Who made it."""
    client_id: str = ""
    """What its client calls itself."""
    deadline_s: float = DEADLINE_NONE
    """Monotonic time until which its answer is waited for."""
    charge: Callable[["Call", float], None] = _for_free
    """Takes the seconds that a thread has worked for it."""
    is_gone: bool = field(default=False, init=False)
    """Whether its caller waits no more. Work for it ends where it looks next."""
    _at_end: list[Callable[[], None]] = field(default_factory=list, init=False, repr=False)

    @property
    def entity(self) -> str:
        """Who pays besides the connection: the principal. Empty where all callers are the same one."""
        return "" if self.principal.name == NOBODY.name else str(self.principal)

    @property
    def payer(self) -> str:
        """Whose turn its work takes: the principal's, or the connection's where all callers are the same one."""
        return self.entity or self.peer

    def named(self, client_id: str) -> "Call":
        """One of its requests, whose client calls itself that: each request of a stream may have another name."""
        return self if client_id == self.client_id else replace(self, client_id=client_id)

    def worked(self, seconds: float) -> None:
        """A thread has worked so long for it."""
        if seconds > 0.0:
            self.charge(self, seconds)

    def left_s(self, now_s: float) -> float:
        """Seconds until its caller gives up; negative: it has. Infinite without a deadline. ``now_s``: monotonic."""
        return self.deadline_s - now_s

    def at_end(self, callback: Callable[[], None]) -> None:
        """Have that done when it has ended, its answer sent or its caller gone; at once if it has."""
        if self.is_gone:
            callback()
        else:
            self._at_end.append(callback)

    def leave(self) -> None:
        """Its caller has hung up, or it has ended. May be said again."""
        self.is_gone = True
        callbacks, self._at_end = self._at_end, []
        for callback in callbacks:
            callback()


OWN: Final = Call(peer="")
"""What a process does for itself, where a call has to be named."""
