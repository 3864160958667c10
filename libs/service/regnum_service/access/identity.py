"""Who makes a call: known to everything that runs for it, decided once, where the call comes in.

``caller()`` answers in a handler and in what it awaits or starts; outside of a call it is nobody. Whoever
authenticates calls (the server's interceptor), or answers one on somebody's behalf (a forwarded request), says it with
``calling``.
"""

import enum
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


class ProcessRole(enum.Enum):
    """Which process of the cluster a certificate stands for, as the rules of a process say."""

    UNMAPPED = "unmapped"
    """There are no such rules, or it came in at the listener for clients: nothing is said."""
    NONE = "no process"
    """There are rules, and none is for this certificate."""
    BROKER = "broker"
    ELECTION = "election"
    METADATA = "metadata"
    QUOTA = "quota"


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
    role: ProcessRole = ProcessRole.UNMAPPED
    """Which process calls, where certificates say so."""
    subject: str = ""
    """Distinguished name of the certificate of the connection; empty: none was shown, or a token went before it."""
    via: str = ""
    """Who passed the call on, for the audit log: name of the certificate, and address. Empty: it came by itself."""

    @property
    def name_and_place(self) -> str:
        """Who that is, for people: the certificate's name where there is one, and the address."""
        return f"{self.subject or self.principal} at {self.host or 'an unknown address'}"


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
