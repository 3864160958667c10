"""The budget of one process: all that clients may take of it, whatever protocol they speak.

| kind | reserved before | released after | counted for |
|---|---|---|---|
| bytes of requests (PRODUCE) | the message is kept | the call has ended | connection, principal |
| bytes of answers (FETCH, CONTROL) | records are read; another piece of an answer is made | it was sent | the same |
| bytes unpacked (for an answer: FETCH, else UNPACKED) | a batch is decompressed | the work has ended | the same |
| places on threads | the work begins, in turns of callers | the thread has ended | principal, or connection |
| time of threads | - (charged as it ends; who owes waits before the next) | - | principal, client id |

What is unpacked and goes into no answer has an account of its own, as large as the largest batch that any topic may
allow: requests that are held wait for that work, and could leave no room for it.

Algorithm: a listener makes a ``Call`` of what comes in, and hands it on; what works for it takes a ``Holding`` here,
and a turn of the threads that it needs. Nothing here knows gRPC.
"""

from collections.abc import Callable, Collection
from typing import Final

from regnum_model.configs import UNPACKED_BYTES_MAX
from regnum_model.principals import NOBODY, Principal
from regnum_model.shares import Shares

from regnum_service.clock import Clock
from regnum_service.connections import cut_off
from regnum_service.limits.call import DEADLINE_NONE, Call
from regnum_service.limits.held_bytes import HeldBytes, Holding, Purpose
from regnum_service.limits.unread_answers import SilentReaders, UnreadAnswers
from regnum_service.supervisor import Supervisor

OF_CONTROL: Final = Shares(total_max=128 * 1024 * 1024, connection_max=32 * 1024 * 1024)
"""What a process without records holds for its clients: half of it for answers, three quarters for large requests
(``PARTS``). In memory each takes about twice as much."""

OF_UNPACKED: Final = Shares(total_max=UNPACKED_BYTES_MAX, connection_max=UNPACKED_BYTES_MAX)
"""What a process unpacks to look at it. (A batch is in memory three times for a moment.)"""

Charge = Callable[[Call, float], None]
"""Takes the seconds that a thread has worked for a call, once it has ended."""


def _no_quota(_call: Call, _seconds: float) -> None:
    """Time of threads is nobody's."""


class Budget:
    """Of one process. Belongs to its event loop."""

    def __init__(self, held: HeldBytes, clock: Clock, *, charge: Charge = _no_quota) -> None:
        """Only assigns.

        Args:
            held: the account of requests and answers.
            clock: says when an answer should have been taken.
            charge: where the time of threads is counted.
        """
        self.held: Final = held
        self.unpacked: Final = HeldBytes(OF_UNPACKED)
        """What is unpacked and goes into no answer."""
        self.unread: Final = UnreadAnswers(clock)
        self.silent: Final = SilentReaders(self.unread, held, clock)
        self._charge: Final = charge
        self._ports: Final[set[int]] = set()

    def call(
        self,
        *,
        peer: str,
        principal: Principal = NOBODY,
        client_id: str = "",
        deadline_s: float = DEADLINE_NONE,
    ) -> Call:
        """One call, which pays here. Whoever makes it says ``leave`` when it has ended."""
        return Call(peer=peer, principal=principal, client_id=client_id, deadline_s=deadline_s, charge=self._charge)

    def start(self, supervisor: Supervisor, port: int) -> None:
        """Cut off connections at a port, as at others before, that take no answers while others lack memory."""
        if not self._ports:
            supervisor.start("silent readers", self.silent.run(self._cut_off))
        self._ports.add(port)

    def _cut_off(self, peers: Collection[str]) -> int:
        return sum(cut_off(port, peers) for port in tuple(self._ports))

    def holding(self, call: Call, purpose: Purpose) -> Holding:
        """What a call holds for a purpose; nothing yet."""
        return Holding.of(call, self.account_of(purpose), purpose)

    def account_of(self, purpose: Purpose) -> HeldBytes:
        """Where it is counted."""
        return self.unpacked if purpose is Purpose.UNPACKED else self.held
