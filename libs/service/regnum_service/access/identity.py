"""Who makes a call: known to everything that runs for it, decided once, where the call comes in.

``caller()`` answers in a handler and in what it awaits or starts; outside of a call it is nobody. Whoever
authenticates calls (the server's interceptor), or answers one on somebody's behalf (a forwarded request), says it with
``calling``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from regnum_model.principals import NOBODY, Principal

CLIENT: Final = "client"
"""Name of the listener that anybody may connect to."""

INTERNAL: Final = "internal"
"""Name of the listener between the cluster's own processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody, at an address, on a listener."""

    principal: Principal
    """Who."""
    host: str = ""
    """IP address of the client, also of one whose call was forwarded; empty: not known."""
    listener: str = CLIENT
    """Name of the listener where the call came in."""
    encrypted: bool = False
    """Over TLS."""
    forwarded: bool = False
    """A broker passed it on: nobody passes it on again."""


UNKNOWN: Final = Caller(principal=NOBODY)
"""What is known outside of any call."""

_caller: Final[ContextVar[Caller]] = ContextVar("caller", default=UNKNOWN)


def caller() -> Caller:
    """Who makes the call that this runs for."""
    return _caller.get()


@contextmanager
def calling(who: Caller) -> Iterator[None]:
    """What runs inside runs for that caller."""
    token = _caller.set(who)
    try:
        yield
    finally:
        _caller.reset(token)
