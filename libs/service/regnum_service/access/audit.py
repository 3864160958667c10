"""What is written down of changes and of refusals, and by which callers: the port, and the answer where nothing is.

A line says what was done, never a secret. Nobody waits for it: a call that is audited takes as long as one that is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from regnum_model.access import Operation, ResourceType

from regnum_service.access.identity import Caller
from regnum_service.errors import RegnumError

DONE: Final = "NONE"
"""Result of a mutation that was carried out: Kafka's name of error 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutated:
    """What became of one thing that a call was to change."""

    resource: str
    """Kind and name: ``topic:orders``, ``broker:3``, ``user:alice,client-id:*``."""
    result: str = DONE
    """Reason of its error as ErrorInfo has it, ``NONE`` for none, ``CANCELLED`` of a call that its client gave up: that
    one may have been carried out."""
    detail: str = ""
    """What of it, where that is short: names of settings, numbers of partitions. Never a secret."""


class AuditLog(Protocol):
    """Takes down what happened. Returns at once and raises nothing, whatever the disk does. Any thread."""

    def denied(
        self,
        who: Caller,
        operation: Operation,
        type: ResourceType,
        name: str,
        *,
        rule: str,
        call: str,
        client_id: str = "",
    ) -> None:
        """Somebody was refused.

        Args:
            who: whose call it is, as ``identity.caller()`` says.
            operation: what they wanted to do.
            type: with which kind of thing.
            name: and which one; may be anything that a client can send.
            rule: what decided, for people: an ACL as ``regnum acls list`` shows it, or that there is none.
            call: the method, ``AdminService/CreateTopics``; empty: not known.
            client_id: as the request has it; may be anything.
        """

    def unauthenticated(self, who: Caller, error: RegnumError, *, call: str) -> None:
        """A call, or a stream, was refused because what it showed is not believed.

        Args:
            who: what is known of its caller: address, listener, and the certificate's name; NOBODY where nothing is.
            error: says why.
            call: the method, ``AdminService/CreateTopics``.
        """

    def mutated(self, who: Caller, call: str, items: Sequence[Mutated], *, client_id: str = "") -> None:
        """A call that changes things was answered.

        Args:
            who: whose call it is; of a forwarded one the original caller.
            call: the method, ``AdminService/CreateTopics``.
            items: one for each thing that it names.
            client_id: as the request has it; may be anything.
        """


class NoAudit:
    """Nothing is written down."""

    def denied(self, *_what: object, **_how: object) -> None:
        """Nothing."""

    def unauthenticated(self, *_what: object, **_how: object) -> None:
        """Nothing."""

    def mutated(self, *_what: object, **_how: object) -> None:
        """Nothing."""


class Audits:
    """Several audit logs: each takes down everything, and none waits for another."""

    def __init__(self, *logs: AuditLog) -> None:
        """Only assigns."""
        self._logs: Final = logs

    def denied(self, *what: Any, **how: Any) -> None:
        """See ``AuditLog``."""
        for log in self._logs:
            log.denied(*what, **how)

    def unauthenticated(self, *what: Any, **how: Any) -> None:
        """See ``AuditLog``."""
        for log in self._logs:
            log.unauthenticated(*what, **how)

    def mutated(self, *what: Any, **how: Any) -> None:
        """See ``AuditLog``."""
        for log in self._logs:
            log.mutated(*what, **how)
