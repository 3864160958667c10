"""The controller's end of the lifelines (safety rule S9): streams, beats, probes, and what follows when one breaks.

All of it runs on one event loop, which is not the controller's (see ``lifeline_thread``), so that a long decision
never looks like a dead broker. It decides nothing about the cluster: it reports, and the controller fences.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final

import structlog
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.contact import KNOCKS_AFTER_BREAK, Contact
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, PartitionKey, TopicId
from regnum_model.nodes import Address
from regnum_service.cancellation import end_task
from regnum_service.clock import Clock
from regnum_service.detection import Probe, is_dead
from regnum_service.errors import RegnumError
from regnum_telemetry import conventions, tracing
from regnum_telemetry.instruments import election as instruments
from regnum_telemetry.metrics import Labels, Metrics

from regnum_election.decisions.cluster import Broker
from regnum_election.decisions.isr_reports import ReportedNode
from regnum_election.decisions.liveness import (
    BEAT_INTERVAL_S,
    SILENCE_S,
    Listener,
    Verdict,
    beat_interval_s,
    judge_silences,
)
from regnum_election.decisions.registrations import ended_epochs, is_over
from regnum_election.decisions.relief import FetchContacts, cut_leaders
from regnum_election.lifelines.stream import UNREGISTERED, Stream, stream_of
from regnum_election.reign.events import (
    AwaitsInSync,
    BrokerDead,
    CatchingUp,
    ClusterEvent,
    Hint,
    IsrsWritten,
    LeaderCutOff,
    LogSize,
    ReplicasMoving,
    ReplicasOffline,
)

ATTEMPTS_WITHOUT_STREAM: Final = 2
"""Attempts to connect to a live broker that has no stream."""

CUT_OFF_AGAIN_S: Final = 1.0
"""Time after which a leader that is still cut off from the same followers is reported again."""

PEERS_MAX: Final = 10_000
"""Brokers that are taken from one list of fetch contacts; more there are not."""

BUSY_MAX: Final = 1_000
"""Busy partitions that are taken from one broker."""

MOVING_MAX: Final = 1_000
"""Moving replicas that are taken from one message."""

WITHOUT_STREAM_S: Final = 0.3
"""Time between two looks at a live broker that has no stream."""


class Lifelines(controller_pb2_grpc.LifelineServiceServicer):
    """All lifelines. Belongs to one event loop; ``begin``, ``show`` and ``end`` are called on it."""

    def __init__(
        self,
        *,
        clock: Clock,
        probe: Probe,
        report: Callable[[ClusterEvent | Hint], None],
        listening: Callable[[], Listener],
        spawn: Callable[[str, Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        fences: bool,
        metrics: Metrics | None = None,
    ) -> None:
        """Only assigns, and lets the metrics read it.

        Args:
            clock: source of time.
            probe: one attempt to connect.
            report: takes events for the controller; called on this loop, any number of times.
            listening: the controller's own ability to hear.
            spawn: starts a task that ends with this loop.
            fences: False switches detection off; beats and ISR reports go on.
            metrics: where answers are timed; None: nobody asks.
        """
        counted = metrics or Metrics()
        self._answers = counted.histogram(instruments.LIFELINE_ANSWER)
        counted.observe(instruments.LIFELINES, lambda: len(self._streams))
        counted.observe_all(instruments.LIFELINE_LAG, self._lags)
        self._clock = clock
        self._probe = probe
        self._report = report
        self._listening = listening
        self._spawn = spawn
        self._fences = fences
        self._epoch: ControllerEpoch | None = None
        self._elected_at = BrokerEpoch(0)
        self._brokers: Mapping[BrokerId, Broker] = {}
        self._shown = False
        self._ended_epochs: dict[BrokerId, BrokerEpoch] = {}
        self._misdirected: frozenset[BrokerId] = frozenset()
        self._streams: dict[BrokerId, Stream] = {}
        self._left: dict[BrokerId, Stream] = {}
        """The last stream of each broker that has none: what it said while it lived."""
        self._looked_s: dict[BrokerId, float] = {}
        self._looking: dict[BrokerId, asyncio.Task[None]] = {}
        self._suspects: frozenset[BrokerId] = frozenset()
        """Brokers that were silent at the last look."""
        self._silence_fence_s: float | None = None
        self._cut_off: dict[BrokerId, tuple[LeaderCutOff, float]] = {}
        self._heard_s = clock.monotonic()
        self._log = structlog.get_logger("lifeline")

    def begin(self, epoch: ControllerEpoch, *, elected_at: BrokerEpoch) -> None:
        """A reign began: lifelines are taken.

        Args:
            epoch: the reign.
            elected_at: creation id of its node (see ``registrations.is_over``).
        """
        self._epoch, self._elected_at, self._shown = epoch, elected_at, False
        self._heard_s = self._clock.monotonic()
        self._looked_s.clear()
        self._left.clear()

    def show(self, epoch: ControllerEpoch, brokers: Mapping[BrokerId, Broker]) -> None:
        """The live brokers of the reign."""
        if epoch == self._epoch:
            if not self._brokers:
                self._heard_s = self._clock.monotonic()
            self._ended_epochs.update(ended_epochs(self._brokers, brokers))
            self._brokers, self._shown = brokers, True
            for stream in self._streams.values():
                if self._is_over(stream):
                    stream.due.set()

    def tell(self, epoch: ControllerEpoch, said: CatchingUp) -> None:
        """Say to a broker how far it is from being in sync."""
        stream = self._streams.get(said.broker)
        if epoch == self._epoch and stream is not None and stream.awaits_in_sync and stream.epoch == said.epoch:
            stream.catching_up = controller_pb2.CatchingUp(counted=True, replicas=said.replicas, awaited=said.awaited)
            stream.due.set()

    def tell_misdirected(self, epoch: ControllerEpoch, brokers: frozenset[BrokerId]) -> None:
        """Say to these brokers that their orders go astray, and to those that were named before that they do not."""
        if epoch == self._epoch:
            changed, self._misdirected = self._misdirected ^ brokers, brokers
            for id in changed & self._streams.keys():
                self._streams[id].due.set()

    def end(self) -> None:
        """The reign is over: brokers find the next controller."""
        self._epoch = None
        self._brokers, self._misdirected = {}, frozenset()
        for stream in self._streams.values():
            stream.end()
        for task in self._looking.values():
            end_task(task)

    @property
    def since_silence_fence_s(self) -> float | None:
        """Seconds since a broker was last reported for silence."""
        return None if self._silence_fence_s is None else self._clock.monotonic() - self._silence_fence_s

    @property
    def silent_s(self) -> float:
        """Seconds since any registered broker said something, or answered an attempt to connect."""
        return self._clock.monotonic() - self._heard_s

    def newest(self) -> list[Stream]:
        """The newest stream of each broker, open or not. Any thread; one copy: the loop's thread changes them."""
        return [*tuple(self._streams.values()), *tuple(self._left.values())]

    def _lags(self) -> list[tuple[Labels, float]]:
        """For how long each broker owes an answer, the longest first. Any thread."""
        now_s = self._clock.monotonic()
        # One copy: the loop's thread changes it.
        since_s = [(id, stream.oldest_unanswered_s) for id, stream in tuple(self._streams.items())]
        lags = [((str(id),), max(now_s - sent_s, 0.0)) for id, sent_s in since_s if sent_s is not None]
        return sorted(lags, key=lambda lag: -lag[1])

    async def BrokerLifeline(  # noqa: N802 - the name in the proto
        self,
        request_iterator: AsyncIterator[controller_pb2.BrokerLifelineRequest],
        context: object,  # noqa: ARG002
    ) -> AsyncGenerator[controller_pb2.BrokerLifelineResponse, None]:
        """One broker's lifeline."""
        epoch = self._epoch
        if epoch is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_NOT_CONTROLLER, "this process is not the controller; look at /controller"
            )
        first = await anext(request_iterator, None)
        if first is None:
            return
        if not first.HasField("hello"):
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "the first message of a lifeline carries hello")
        if min(first.hello.broker_id, first.hello.broker_epoch) < 0:
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "broker id and broker epoch are not negative")
        stream = stream_of(first.hello)
        replaced = self._streams.get(stream.broker)
        if replaced is not None:
            replaced.end()
        self._streams[stream.broker] = stream
        self._left.pop(stream.broker, None)
        self._hear(stream, first)
        if stream.awaits_in_sync:
            self._report(AwaitsInSync(broker=stream.broker, epoch=stream.epoch, open=True))
        reader = self._spawn(f"lifeline-{stream.broker}-reader", self._read(stream, request_iterator))
        beat = 0
        try:
            while not stream.ended.is_set() and self._epoch == epoch:
                beat += 1
                stream.probe += 1
                stream.due.clear()
                interval_s = beat_interval_s(len(self._brokers))
                if stream.oldest_unanswered_s is None:
                    stream.oldest_unanswered_s = self._clock.monotonic()
                    stream.oldest_unanswered_unix_nano = tracing.now_unix_nano()
                yield controller_pb2.BrokerLifelineResponse(
                    controller_epoch=epoch,
                    beat=beat,
                    probe=stream.probe,
                    report_acknowledged=stream.report,
                    fenced=self._is_over(stream),
                    beat_interval_ms=round(interval_s * 1000),
                    catching_up=stream.take_catching_up(),
                    wall_clock_ms=self._clock.wall_ms(),
                    orders_astray=stream.broker in self._misdirected,
                )
                await self._until_next_beat(stream, interval_s)
        finally:
            end_task(reader)
            self._ended(stream, epoch)

    def _is_over(self, stream: Stream) -> bool:
        """Whether the registration that a stream speaks for is gone; not before the registrations have been read."""
        return self._shown and is_over(
            stream.epoch,
            registered=self._brokers.get(stream.broker),
            ended=self._ended_epochs.get(stream.broker),
            elected_at=self._elected_at,
        )

    async def _until_next_beat(self, stream: Stream, interval_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(BEAT_INTERVAL_S):
                await stream.ended.wait()
        if interval_s > BEAT_INTERVAL_S:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_s - BEAT_INTERVAL_S):
                    await stream.due.wait()

    async def _read(self, stream: Stream, requests: AsyncIterator[controller_pb2.BrokerLifelineRequest]) -> None:
        try:
            async for request in requests:
                self._hear(stream, request)
        finally:
            stream.end()

    def _hear(self, stream: Stream, request: controller_pb2.BrokerLifelineRequest) -> None:
        stream.heard_unix_nano = tracing.now_unix_nano()
        if stream.broker in self._brokers:
            self._heard_s = self._clock.monotonic()
        if request.probe_answered > stream.answered:
            stream.answered = min(request.probe_answered, stream.probe)
            if stream.oldest_unanswered_s is not None:
                self._answers.record(self._clock.monotonic() - stream.oldest_unanswered_s)
            # Probes go out at intervals, so the first unanswered one is younger than this moment.
            stream.oldest_unanswered_s = None if stream.answered == stream.probe else self._clock.monotonic()
            stream.oldest_unanswered_unix_nano = stream.heard_unix_nano
        if request.HasField("fetch_contacts"):
            stream.contacts = FetchContacts(
                unreachable_leaders=_brokers(request.fetch_contacts.unreachable_leaders),
                silent_followers=_brokers(request.fetch_contacts.silent_followers),
            )
        if request.HasField("busy"):
            stream.busy = request.busy
        for news in stream.news.take(request):
            self._report(news)
        if (acknowledged := stream.said.take(request, self._clock.monotonic())) is not None:
            self._report(acknowledged)
        if request.moving_replicas:
            self._report(_moving(stream.broker, request))
        if request.report_number > stream.report:
            self._take_up(stream, request)
            stream.report = request.report_number
            stream.due.set()

    def _take_up(self, stream: Stream, request: controller_pb2.BrokerLifelineRequest) -> None:
        for reported in _reported(stream, request):
            self._report(reported)

    def _ended(self, stream: Stream, epoch: ControllerEpoch) -> None:
        if self._streams.get(stream.broker) is not stream:
            return
        del self._streams[stream.broker]
        stream.ended_unix_nano = tracing.now_unix_nano()
        if self._epoch == epoch:
            if stream.awaits_in_sync:
                self._report(AwaitsInSync(broker=stream.broker, epoch=stream.epoch, open=False))
            self._left[stream.broker] = stream
            self._log.info("lifeline ended", broker=stream.broker)
            evidence = "lifeline ended, port refused twice"
            self._look(stream.broker, KNOCKS_AFTER_BREAK, evidence, stream)

    def _look(self, id: BrokerId, attempts: int, evidence: str, stream: Stream | None = None) -> None:
        broker = self._brokers.get(id)
        if broker is None or not self._fences:
            return
        if stream is not None and stream.epoch != broker.epoch:
            # What an earlier life of it said.
            stream = None
        running = self._looking.get(id)
        if running is not None:
            end_task(running)
        self._looked_s[id] = self._clock.monotonic()
        suspicion = BrokerDead(
            broker=broker.id,
            epoch=broker.epoch,
            registration=broker.registration,
            evidence=evidence,
            cause=conventions.CAUSE_LIFELINE,
            noticed_unix_nano=tracing.now_unix_nano(),
            heard_unix_nano=0 if stream is None else stream.heard_unix_nano,
            busy=() if stream is None else _busy(stream.busy),
        )
        self._looking[id] = self._spawn(f"lifeline-{id}-probes", self._probe_port(broker, attempts, suspicion))

    def _is_looked_at(self, id: BrokerId) -> bool:
        looking = self._looking.get(id)
        return looking is not None and not looking.done()

    async def _probe_port(self, broker: Broker, attempts: int, suspicion: BrokerDead) -> None:
        dead = await is_dead(broker.internal, self._contact, self._clock, attempts=attempts)
        if not dead or self._brokers.get(broker.id) is not broker or not self._listening().session_connected:
            return
        self._report(suspicion)

    async def _contact(self, address: Address) -> Contact:
        contact = await self._probe(address)
        if contact is not Contact.NO_ANSWER:
            self._heard_s = self._clock.monotonic()
        return contact

    async def watch(self) -> None:
        """Look for silent brokers, and for live ones without a lifeline; a task that never ends."""
        while True:
            await self._clock.sleep(BEAT_INTERVAL_S)
            if self._epoch is None or not self._fences:
                continue
            self._tick(self._clock.monotonic())

    def _tick(self, now_s: float) -> None:
        """One look at all brokers: what it costs grows with their number and not with its square."""
        unanswered: dict[BrokerId, float | None] = {}
        for id in self._brokers:
            stream = self._streams.get(id)
            if stream is not None:
                sent_s = stream.oldest_unanswered_s
                unanswered[id] = None if sent_s is None else now_s - sent_s
            elif now_s - self._looked_s.setdefault(id, now_s) >= WITHOUT_STREAM_S and not self._is_looked_at(id):
                # It died before its lifeline reached this controller, or seemed to listen a moment longer.
                self._look(id, ATTEMPTS_WITHOUT_STREAM, "no lifeline, port refused twice", self._left.get(id))
        verdicts = judge_silences(unanswered, self._brokers, self._listening)
        for id in self._suspects - verdicts.keys():
            if (stream := self._streams.get(id)) is not None:
                stream.verdict = Verdict.NOT_SILENT
        self._suspects = frozenset(verdicts)
        for id, verdict in verdicts.items():
            self._act_on(verdict, self._streams[id], self._brokers[id], now_s)
        self._look_for_cuts(now_s)

    def _look_for_cuts(self, now_s: float) -> None:
        """Report leaders from which their followers cannot fetch, at once and again while it lasts."""
        said = {
            id: stream.contacts
            for id, stream in self._streams.items()
            if id in self._brokers and self._brokers[id].epoch == stream.epoch
        }
        cut = cut_leaders(said)
        self._cut_off = {id: reported for id, reported in self._cut_off.items() if id in cut}
        for leader, cut_off in cut.items():
            event = LeaderCutOff(leader=leader, epoch=self._brokers[leader].epoch, cut_off=cut_off)
            last, reported_s = self._cut_off.get(leader, (None, now_s))
            if last != event or now_s - reported_s >= CUT_OFF_AGAIN_S:
                self._cut_off[leader] = (event, now_s)
                self._report(event)

    def _act_on(self, verdict: Verdict, stream: Stream, broker: Broker, now_s: float) -> None:
        before, stream.verdict = stream.verdict, verdict
        if verdict is Verdict.FENCE:
            self._silence_fence_s = now_s
            self._report(
                BrokerDead(
                    broker=broker.id,
                    epoch=broker.epoch,
                    registration=broker.registration,
                    evidence="probes unanswered",
                    cause=conventions.CAUSE_SILENCE,
                    noticed_unix_nano=tracing.now_unix_nano() - round(SILENCE_S * 1e9),
                    heard_unix_nano=stream.heard_unix_nano,
                    probe_sent_unix_nano=stream.oldest_unanswered_unix_nano,
                    busy=_busy(stream.busy),
                )
            )
        elif verdict is not before:
            # Once for each reason: it is looked at ten times a second.
            self._log.warning("silent broker not fenced", broker=broker.id, why=verdict.value)


def _reported(stream: Stream, request: controller_pb2.BrokerLifelineRequest) -> Iterator[IsrsWritten | ReplicasOffline]:
    written: dict[PartitionKey, ReportedNode | None] = {}
    for report in request.isr_reports:
        node = ReportedNode(broker=stream.broker, epoch=stream.epoch, version=report.version, data=report.node)
        key = PartitionKey(TopicId(report.topic_id), report.partition)
        written[key] = node if report.node and stream.epoch != UNREGISTERED else None
    if written:
        yield IsrsWritten(reports=written)
    offline = frozenset(PartitionKey(TopicId(item.topic_id), item.partition) for item in request.offline_replicas)
    # A broker that is not registered is nobody's replica; it says it again when it is.
    if offline and stream.epoch != UNREGISTERED:
        yield ReplicasOffline(broker=stream.broker, epoch=stream.epoch, keys=offline)


def _moving(broker: BrokerId, request: controller_pb2.BrokerLifelineRequest) -> ReplicasMoving:
    return ReplicasMoving(
        broker=broker,
        sizes=tuple(
            (
                PartitionKey(TopicId(item.topic_id), item.partition),
                LogSize(log_end_offset=max(item.log_end_offset, 0), size_bytes=max(item.size_bytes, 0)),
            )
            for item in islice(request.moving_replicas, MOVING_MAX)
        ),
    )


def _brokers(ids: Iterable[int]) -> frozenset[BrokerId]:
    return frozenset(BrokerId(id) for id in islice(ids, PEERS_MAX))


def _busy(said: controller_pb2.BusyPartitions) -> tuple[PartitionKey, ...]:
    keys = (PartitionKey(TopicId(topic.topic_id), number) for topic in said.topics for number in topic.partitions)
    return tuple(islice(keys, BUSY_MAX))
