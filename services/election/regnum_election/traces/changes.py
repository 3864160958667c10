"""Traces of the changes of leadership of one reign: how each kind begins, and which belong together."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from regnum_model.ids import BrokerEpoch, BrokerId, ElectionId
from regnum_telemetry import conventions, tracing
from regnum_telemetry.tracing import Value

from regnum_election.reign.reign import Reign
from regnum_election.reign.witnesses import Sign, Signs
from regnum_election.traces.beginning import Notice
from regnum_election.traces.change_trace import Beginning, ChangeTrace
from regnum_election.traces.measured import Measured

SUCCESSION_LINGERS_S: Final = 1.0
"""How long the root of a succession waits for lifelines of brokers; nothing waits for the root."""


NOTICES: Final[Mapping[str, Notice]] = {
    conventions.CAUSE_LIFELINE: Notice.BROKEN,
    conventions.CAUSE_SILENCE: Notice.SILENCE,
    conventions.CAUSE_NODE: Notice.REGISTRATION,
}
"""How failures are noticed, by their causes."""


class Changes:
    """Begins them. On the controller's loop."""

    def __init__(
        self,
        reign: Reign,
        *,
        opened: Callable[[ChangeTrace], None],
        ended: Callable[[str, float], None],
        measured: Callable[[Measured], None],
    ) -> None:
        """Only assigns.

        Args:
            reign: whose changes.
            opened: takes each that is one.
            ended: see ``ChangeTrace``.
            measured: see ``ChangeTrace``.
        """
        self._reign: Final = reign
        self._opened: Final = opened
        self._ended: Final = ended
        self._measured: Final = measured
        self.under_way: ChangeTrace | None = None
        """The change whose new leaders are being decided, written and told."""
        self._failures: Final[dict[BrokerId, ChangeTrace]] = {}
        """The last of each broker: one that went by itself while it was being fenced has two."""
        self._succession: ChangeTrace | None = None
        """How this reign began; None: it is the first, or its predecessor was not known."""

    def failure(
        self,
        victim: BrokerId,
        epoch: BrokerEpoch,
        *,
        cause: str,
        evidence: str,
        noticed: Sign | None = None,
        heard_unix_nano: int = 0,
    ) -> ChangeTrace:
        """Begin the trace of a broker's failure.

        Args:
            victim: the broker.
            epoch: broker epoch of the life that ended.
            cause: one of the ``conventions.CAUSE_`` values.
            evidence: what proved it.
            noticed: the first sign of it that the controller had; None: now, by its registration.
            heard_unix_nano: when it last said anything; 0: that is not known.
        """
        seen = noticed or Sign(tracing.now_unix_nano(), f"registration {self._reign.controller_id}")
        attributes: dict[str, Value] = {
            conventions.CAUSE: cause,
            conventions.EVIDENCE: evidence,
            conventions.VICTIM_KIND: "broker",
            conventions.VICTIM: victim,
        }
        if heard_unix_nano:
            attributes[conventions.LAST_HEARD_UNIX_NANO] = heard_unix_nano
        related = [one.context for one in self._reign.earlier if one.broker == victim]
        under_way = [
            one for one in (self._succession, self._failures.get(victim)) if one is not None and not one.written
        ]
        related += [one.context for one in under_way]
        trace = self._failures[victim] = self._begin(
            Beginning(
                kind=conventions.KIND_BROKER_FAILURE,
                noticed=seen,
                attributes=attributes,
                legacy_name=conventions.FAILOVER,
                signs=partial(self._of_broker, victim, epoch, heard_unix_nano),
                by=NOTICES.get(cause, Notice.REGISTRATION),
                links=tuple(related),
            )
        )
        for one in under_way:
            one.link(trace.context)
        trace.open()
        return trace

    def succession_of(self, victim: ElectionId, *, cause: str, noticed_unix_nano: int) -> ChangeTrace:
        """Begin the trace of this reign's beginning."""
        attributes: dict[str, Value] = {
            conventions.CAUSE: cause,
            conventions.VICTIM_KIND: "controller",
            conventions.VICTIM: victim,
        }
        trace = self._succession = self._begin(
            Beginning(
                kind=conventions.KIND_SUCCESSION,
                noticed=Sign(noticed_unix_nano, f"standby {self._reign.controller_id}"),
                attributes=attributes,
                legacy_name=conventions.SUCCESSION,
                signs=partial(self._reign.witnesses.of_controller, victim),
                by=NOTICES.get(cause, Notice.REGISTRATION),
                links=tuple(one.context for one in self._reign.earlier),
                # Brokers say over their new lifelines what they saw of it.
                lingers_s=SUCCESSION_LINGERS_S,
            )
        )
        trace.open()
        return trace

    def plan(
        self,
        kind: str,
        *,
        asked_unix_nano: int,
        cause: str = conventions.CAUSE_REQUEST,
        attributes: Mapping[str, Value] | None = None,
        victim: BrokerId | None = None,
        legacy_name: str = "",
        link: str = "",
    ) -> ChangeTrace:
        """The trace of a change that nothing failed for; it leaves nothing unless a leader is decided. ``seal`` it.

        Args:
            kind: one of the ``conventions.KIND_`` values.
            asked_unix_nano: when its request arrived, or it was decided.
            cause: one of the ``conventions.CAUSE_`` values.
            attributes: of the root besides.
            victim: the broker that loses its leaderships; None: the former leader of all that moves, if it is one.
            legacy_name: of such roots before 0.2.
            link: place of the call that asked for it.
        """
        named: dict[str, Value] = {conventions.CAUSE: cause}
        if victim is not None:
            named |= {conventions.VICTIM_KIND: "broker", conventions.VICTIM: victim}
        return self._begin(
            Beginning(
                kind=kind,
                noticed=Sign(asked_unix_nano, ""),
                attributes={**named, **(attributes or {})},
                legacy_name=legacy_name,
                links=(link,),
            )
        )

    def _of_broker(self, victim: BrokerId, epoch: BrokerEpoch, heard_unix_nano: int) -> Signs:
        signs = self._reign.witnesses.of_broker(victim, epoch)
        if not heard_unix_nano:
            return signs
        own = Sign(heard_unix_nano, f"last sign of life {self._reign.controller_id}")
        return Signs(broken=signs.broken, heard=(*signs.heard, own))

    def _begin(self, beginning: Beginning) -> ChangeTrace:
        """The trace of a change; it is timed whether or not spans go anywhere."""
        own: dict[str, Value] = {
            conventions.CONTROLLER_ID: self._reign.controller_id,
            conventions.CONTROLLER_EPOCH: self._reign.epoch,
        }
        return ChangeTrace(
            replace(beginning, attributes={**own, **beginning.attributes}),
            opened=self._opened,
            ended=self._ended,
            measured=self._measured,
        )
