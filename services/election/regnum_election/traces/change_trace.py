"""The trace of one change of leadership: its root span, its boundaries, and which brokers have still to acknowledge.

Goals: all of the change lies within its root, what came before the controller noticed it and what came after the last
order as well; a controller that dies leaves something; nothing waits for a trace.

Algorithm: the root's place is reserved at once, and what is written and told while the change is under way carries it.
When the change is noticed, or when the first leader of a planned one is decided, an opening record goes out. The orders
are over with the last acknowledgement of a new leader: so much is timed as the change. Some of the leaders said with it
that they report the first records that they acknowledge to producers; the root is written SETTLED_S after these reports
have come, or FIRST_ACKNOWLEDGEMENT_S later, with the beginning that is known by then (``beginning``), so that what
clients record lies within it.

A planned change that moves nothing leaves nothing. See ``regnum_telemetry.conventions`` for what the boundaries mean.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey
from regnum_telemetry import conventions, propagation, tracing
from regnum_telemetry.tracing import Value

from regnum_election.reign.witnesses import Sign, Signs
from regnum_election.traces.beginning import Notice, failed
from regnum_election.traces.measured import Measured, stages

PATIENCE_S: Final = 30.0
"""How long acknowledgements of orders are waited for."""

FIRST_ACKNOWLEDGEMENT_S: Final = 5.0
"""How long after them first acknowledgements to producers are waited for."""

SETTLED_S: Final = 0.2
"""So long after the last of these reports clients have what was acknowledged, and their spans end."""

DISPATCH_SPANS: Final[Mapping[str, str]] = {
    conventions.FAILOVER: conventions.DISPATCH,
    conventions.SUCCESSION: conventions.INIT_DISPATCH,
}
"""Spans from the last write to the last acknowledgement, by the legacy name of the root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What is known of a change when its trace begins."""

    kind: str
    """One of the ``conventions.KIND_`` values."""
    noticed: Sign
    """When the controller noticed it; of a planned one when its request came or its decision was made."""
    attributes: Mapping[str, Value]
    """Of the root."""
    legacy_name: str = ""
    """Name of such roots before 0.2; empty: there were none."""
    signs: Callable[[], Signs] | None = None
    """What others saw of what failed; asked more than once. None: nothing failed."""
    by: Notice = Notice.REGISTRATION
    """How it was noticed."""
    links: tuple[str, ...] = ()
    """Places of changes that belong to it."""
    lingers_s: float = 0.0
    """How long its root waits for what others say of its beginning."""


class ChangeTrace:
    """One root span. Belongs to the controller's loop."""

    def __init__(
        self,
        beginning: Beginning,
        *,
        opened: Callable[["ChangeTrace"], None] = lambda _trace: None,
        ended: Callable[[str, float], None] = lambda _name, _seconds: None,
        measured: Callable[[Measured], None] = lambda _measured: None,
    ) -> None:
        """Only assigns, and reserves the place.

        Args:
            beginning: what is known of it.
            opened: called once it is known to be a change; ``wait`` has to run from then on.
            ended: takes the legacy name and the seconds since it was noticed, once the orders are acknowledged.
            measured: takes what all of it took, when its root is written, or would be if anything were traced.
        """
        self._about: Final = beginning
        self._opened: Final = opened
        self._tell: Final = ended
        self._measured: Final = measured
        self.context: Final = tracing.tracer().reserve(conventions.LEADERSHIP_CHANGE)
        """Place of the root, as traceparent; empty when nothing is traced."""
        self._attributes: Final[dict[str, Value]] = {
            conventions.CHANGE_KIND: beginning.kind,
            **({conventions.LEGACY_NAME: beginning.legacy_name} if beginning.legacy_name else {}),
            **beginning.attributes,
        }
        self._links: Final = dict.fromkeys(link for link in beginning.links if link)
        self._failed: Sign | None = None
        self._boundaries: Final[dict[str, int]] = {}
        self._awaited: Final[set[Hashable]] = set()
        self._led: Final[dict[PartitionKey, LeaderEpoch]] = {}
        """Partitions that get leaders, with the epochs of these."""
        self._reporting: Final[set[PartitionKey]] = set()
        """Partitions whose leaders report their first acknowledgement, and have not yet."""
        self._reported: Final[dict[PartitionKey, int]] = {}
        """When they came of the others."""
        self._partitions = 0
        self._sealed = False
        self.is_open = False
        """Whether it is a change for certain."""
        self._over = self._written = False
        self._settled_unix_nano = 0
        self._ended: Final = asyncio.Event()
        self._heard: Final = asyncio.Event()

    @property
    def kind(self) -> str:
        """One of the ``conventions.KIND_`` values."""
        return self._about.kind

    @property
    def done(self) -> bool:
        """Whether its orders are acknowledged, or not waited for any more."""
        return self._over

    @property
    def written(self) -> bool:
        """Whether its root is written: it hears nothing more."""
        return self._written

    def open(self) -> None:
        """It is a change for certain: leave a record of that, whatever becomes of this process."""
        if self.is_open:
            return
        self.is_open = True
        self._see()
        tracing.between(
            conventions.CHANGE_OPENED,
            self._about.noticed.unix_nano,
            self._about.noticed.unix_nano,
            parent=self.context,
            attributes=self._known(),
            links=tuple(self._links),
        )
        self._opened(self)

    def link(self, context: str) -> None:
        """Another change that belongs to it."""
        if context:
            self._links[context] = None

    def decided(self, former: Iterable[BrokerId]) -> None:
        """First or further leaders are decided; ``former``: leaders of these partitions until now."""
        if not self.is_open:
            victims = set(former)
            if conventions.VICTIM not in self._attributes and len(victims) == 1:
                self._attributes.update({conventions.VICTIM_KIND: "broker", conventions.VICTIM: min(victims)})
            self.open()
        self.reached(conventions.DECIDED_UNIX_NANO, again=False)

    def reached(self, boundary: str, at_unix_nano: int | None = None, *, again: bool = True) -> None:
        """A boundary, now or then; with ``again`` a later one of the same name replaces it."""
        if again or boundary not in self._boundaries:
            self._boundaries[boundary] = tracing.now_unix_nano() if at_unix_nano is None else at_unix_nano

    def since(self, boundary: str, name: str, attributes: dict[str, Value] | None = None) -> None:
        """A child span from a boundary (or from its being noticed) until now."""
        begin = self._boundaries.get(boundary, self._about.noticed.unix_nano)
        tracing.between(name, begin, tracing.now_unix_nano(), parent=self.context, attributes=attributes)

    def expect(self, tokens: Iterable[Hashable], *, partitions: int = 0) -> None:
        """Wait for these acknowledgements."""
        self._awaited.update(tokens)
        self._partitions += partitions

    def expect_leaders(self, led: Mapping[PartitionKey, LeaderEpoch], *, partitions: int) -> None:
        """Wait for the leaders of these, in these epochs.

        ``partitions``: so many have another state; a succession counts all that it takes over.
        """
        self._led.update(led)
        self.expect(led, partitions=0 if self._about.kind == conventions.KIND_SUCCESSION else partitions)

    def acknowledged(self, token: Hashable, *, reports: bool = False) -> None:
        """An acknowledgement came; others than those that are expected are welcome too.

        ``reports``: the first acknowledgement to a producer follows.
        """
        if token not in self._awaited:
            return
        self._awaited.discard(token)
        # One for each leader that is moved: what is not the last of them does no more than this.
        self._boundaries[conventions.DISPATCHED_UNIX_NANO] = tracing.now_unix_nano()
        if reports and isinstance(token, PartitionKey) and token not in self._reported:
            self._reporting.add(token)
        if not self._awaited:
            self._end_if_over()

    def gone(self, token: Hashable) -> None:
        """No acknowledgement of it will come: its broker is not waited for."""
        self._awaited.discard(token)
        if not self._awaited:
            self._end_if_over()

    def first_acknowledged(self, key: PartitionKey, epoch: LeaderEpoch, unix_nano: int) -> None:
        """A new leader has acknowledged its first records to a producer."""
        led = self._led.get(key)
        if led is None or epoch < led or key in self._reported:
            return
        # A clock that is ahead does not make it longer than it is waited for.
        at = self._reported[key] = min(unix_nano, tracing.now_unix_nano())
        self._reporting.discard(key)
        self.reached(
            conventions.ACKNOWLEDGED_UNIX_NANO, max(at, self._boundaries.get(conventions.ACKNOWLEDGED_UNIX_NANO, 0))
        )
        self._hear_all()

    def seal(self) -> None:
        """Nothing further is expected."""
        self._sealed = True
        self._end_if_over()

    async def wait(self) -> None:
        """Return when its root is written, after a bounded time; whatever stops the waiting writes it too."""
        try:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._ended.wait()
            except TimeoutError:
                pass
            finally:
                self._end_orders(complete=False)
            if self._about.lingers_s:
                await asyncio.sleep(self._about.lingers_s)
            try:
                async with asyncio.timeout(FIRST_ACKNOWLEDGEMENT_S):
                    await self._heard.wait()
            except TimeoutError:
                pass
            if self._reported and self.context:
                await asyncio.sleep(SETTLED_S)
                self._settled_unix_nano = tracing.now_unix_nano()
        finally:
            self._write()

    def _known(self) -> dict[str, Value]:
        """What the opening record says: the root's attributes so far."""
        known: dict[str, Value] = {**self._attributes, conventions.NOTICED_UNIX_NANO: self._about.noticed.unix_nano}
        if self._failed is not None:
            known |= {
                conventions.FAILED_UNIX_NANO: self._failed.unix_nano,
                conventions.FAILED_SEEN_BY: self._failed.seen_by,
            }
        return known

    def _see(self) -> None:
        """Where it begins, by what is known now; never later than was known before."""
        about = self._about
        if about.signs is not None:
            seen = failed(about.signs(), noticed=about.noticed, by=about.by)
            self._failed = seen if self._failed is None else min(self._failed, seen)

    def _end_if_over(self) -> None:
        if self._sealed and not self._awaited:
            self._end_orders(complete=True)

    def _end_orders(self, *, complete: bool) -> None:
        if self._over:
            return
        self._over = True
        self._ended.set()
        if not self.is_open:
            return
        own = [at for boundary, at in self._boundaries.items() if boundary != conventions.ACKNOWLEDGED_UNIX_NANO]
        now = tracing.now_unix_nano()
        last = self._boundaries.setdefault(conventions.DISPATCHED_UNIX_NANO, max(own, default=now) if complete else now)
        begin = self._boundaries.get(
            conventions.VERIFIED_UNIX_NANO, self._boundaries.get(conventions.WRITTEN_UNIX_NANO, last)
        )
        name = DISPATCH_SPANS.get(self._about.legacy_name, conventions.DISPATCH)
        tracing.between(name, min(begin, last), last, parent=self.context)
        self._attributes.update({conventions.PARTITIONS: self._partitions, conventions.COMPLETE: complete})
        over = max((last, *own))
        self._tell(self._about.legacy_name, max(over - self._about.noticed.unix_nano, 0) / 1e9)
        self._see()
        self._hear_all()

    def _hear_all(self) -> None:
        if self._over and not self._reporting:
            self._heard.set()

    def _write(self) -> None:
        if self._written:
            return
        self._written = True
        if not self.is_open:
            return
        self._see()
        noticed = self._about.noticed.unix_nano
        begin = noticed if self._failed is None else self._failed.unix_nano
        if begin < noticed:
            tracing.between(conventions.UNDETECTED, begin, noticed, parent=self.context)
        self._measure(begin)
        over = max(self._boundaries.values())
        if self._reporting:
            # Some producer has not come back yet, or has gone.
            over = max(over, self._boundaries[conventions.DISPATCHED_UNIX_NANO] + round(FIRST_ACKNOWLEDGEMENT_S * 1e9))
        root = tracing.tracer().start(
            conventions.LEADERSHIP_CHANGE,
            place=self.context,
            attributes={**self._known(), **self._boundaries},
            links=tuple(self._links),
            at_unix_nano=begin,
        )
        root.end(max(over, noticed, self._settled_unix_nano))
        # It may be known for longer, as what others are linked with.
        self._led.clear()
        self._reported.clear()

    def _measure(self, begin_unix_nano: int) -> None:
        place = propagation.parse(self.context)
        # (A planned change is noticed when it begins.)
        noticed = {} if self._failed is None else {conventions.NOTICED_UNIX_NANO: self._about.noticed.unix_nano}
        self._measured(
            Measured(
                kind=self._about.kind,
                trace_id="" if place is None else place.trace_id,
                is_complete=bool(self._attributes.get(conventions.COMPLETE)),
                stages_s=stages(begin_unix_nano, {**self._boundaries, **noticed}),
                outages_s=[max(at - begin_unix_nano, 0) / 1e9 for at in self._reported.values()],
                unheard=len(self._reporting),
                unix_s=tracing.now_unix_nano() / 1e9,
            )
        )
