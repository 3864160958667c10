"""What a reign is told of failures and of the changes of leadership before it, for traces. Pure."""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from regnum_model.ids import BrokerEpoch, BrokerId, ElectionId


class Sign(NamedTuple):
    """Something that a process saw of another one."""

    unix_nano: int
    """When: wall clock of the process that saw it, in nanoseconds."""
    seen_by: str
    """As ``conventions.FAILED_SEEN_BY`` says it."""


class Signs(NamedTuple):
    """What processes saw of one that failed."""

    broken: tuple[Sign, ...] = ()
    """Connections to it that broke."""
    heard: tuple[Sign, ...] = ()
    """When it was last heard, by each that listened."""


class Witnesses(Protocol):
    """What processes of the cluster saw of others, as far as the controller has been told by now."""

    def of_broker(self, broker: BrokerId, epoch: BrokerEpoch) -> Signs:
        """Of one life of a broker."""

    def of_controller(self, id: ElectionId) -> Signs:
        """Of a controller that reigned before."""


class NoWitnesses:
    """Nothing was seen."""

    def of_broker(self, broker: BrokerId, epoch: BrokerEpoch) -> Signs:  # noqa: ARG002
        """Nothing."""
        return Signs()

    def of_controller(self, id: ElectionId) -> Signs:  # noqa: ARG002
        """Nothing."""
        return Signs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A change of leadership of an earlier reign that may not have ended with it."""

    broker: BrokerId | None
    """Whose failure it was; None: no broker's, or it is not known."""
    context: str
    """Its place, as traceparent."""


NO_WITNESSES: Final = NoWitnesses()
"""The only one that is needed."""
