"""The broker's lifeline to the controller (safety rules S9 and S16).

Goals: a broker whose main loop is busy is not taken for dead; the controller learns of every ISR this broker writes,
and of every replica here that cannot be used.

Algorithm: a thread with an event loop of its own holds one stream to the controller's lifeline listener. It sends a
beat every 100 ms (as seldom as the controller says where there are many brokers), and at once when a probe comes.
Reports travel in numbered batches (see ``reports``). A stream says in its first message which registration it speaks
for; when that changes, a new stream is opened. The controller may answer that this registration is over. Until the
broker has been in sync once, each stream asks how far it is from that. Each message of the controller says what its
wall clock is, and each beat how far the broker's is from that (``retention.clocks``); and whether the controller's
orders go astray: another process answers at the address that the broker advertises.
"""

import asyncio
import contextlib
import enum
from collections.abc import Callable, Collection, Sequence
from typing import Final, assert_never

import grpc
import structlog
from regnum.election.v1 import controller_pb2
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey
from regnum_model.nodes import Address
from regnum_service import addressee
from regnum_service.machine import MACHINE, Machine, OwnLoop
from regnum_service.status import from_rpc_error
from regnum_service.tls.files import WatchedFiles
from regnum_telemetry import tracing

from regnum_broker.cluster.contacts import FetchContacts
from regnum_broker.cluster.controller import ControllerLocation
from regnum_broker.cluster.lifeline_stream import LifelineStream, OpenStream, Stream
from regnum_broker.cluster.readiness import CatchingUp, Readiness
from regnum_broker.cluster.reports import FirstAcknowledgement, Reports
from regnum_broker.disk_room import DiskRoom
from regnum_broker.identity import Identity
from regnum_broker.replication.isr_writer import WrittenIsr
from regnum_broker.replication.moving import MovingReplica
from regnum_broker.replication.sessions.breaks import Break
from regnum_broker.retention.expiry_clock import ExpiryClock

BEAT_INTERVAL_S: Final = 0.1
"""Time between two beats, unless the controller names a longer one."""

BEAT_INTERVAL_S_MAX: Final = 10.0
"""The longest that is believed."""

SILENCE_S: Final = 2.0
"""A controller that is silent for so long is looked for anew; for two of its beats, if that is longer."""

RECONNECT_S: Final = 0.1
"""Pause before another stream is tried."""

UNREGISTERED: Final = 0
"""Broker epoch in the hello of a broker without registration."""


class Lifeline:
    """Main loop's side: may be called from the main event loop only."""

    def __init__(
        self,
        broker: BrokerId,
        *,
        offline: Callable[[], Collection[PartitionKey]],
        tls: WatchedFiles | None = None,
        readiness: Readiness | None = None,
        expiry: ExpiryClock | None = None,
        machine: Machine = MACHINE,
        open_stream: OpenStream = LifelineStream.open,
    ) -> None:
        """Only assigns.

        Args:
            broker: who speaks.
            offline: the replicas that cannot be used now; called on the lifeline's thread.
            tls: what the controller is shown; None: plaintext.
            readiness: told how far the broker is from being in sync; None: nobody wants to know.
            expiry: told the controller's wall clock, on the lifeline's thread; None: nobody wants to know.
            machine: where the thread comes from.
            open_stream: opens a stream to a controller.
        """
        self._readiness: Final = readiness or Readiness()
        self._loop: Final = machine.loop("lifeline")
        self._speaker: Final = _Speaker(broker, self._tell_main, Reports(offline), tls, expiry, self._loop, open_stream)
        self._speaker.awaits_in_sync = readiness is not None
        self._open: Final = asyncio.Event()
        self._fenced: Final = asyncio.Event()
        self._epoch = UNREGISTERED
        self._busy: frozenset[PartitionKey] = frozenset()
        self._main: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        """Hold the lifeline for ever; a task of the supervisor."""
        self._main = asyncio.get_running_loop()
        try:
            await self._loop.run(self._speaker.speak())
        finally:
            self._speaker.stop()

    def move(self, location: ControllerLocation | None) -> None:
        """The controller is somewhere else."""
        self._speaker.call(lambda: self._speaker.set_target(location))

    def identify(self, identity: Identity | None) -> None:
        """Speak for another registration; None: for none."""
        self._epoch = epoch = UNREGISTERED if identity is None else identity.broker_epoch
        self._open.clear()
        self._fenced.clear()
        self._speaker.call(lambda: self._speaker.set_epoch(epoch))

    def report(self, written: WrittenIsr) -> None:
        """Tell the controller of an ISR that stands in the store."""
        self._speaker.call(lambda: self._speaker.add_isr(written))

    def report_offline(self, keys: Collection[PartitionKey]) -> None:
        """Tell the controller at once of replicas that cannot be used any more; ``offline`` must name them by now."""
        self._speaker.call(lambda: self._speaker.add_offline(keys))

    def report_contacts(self, contacts: FetchContacts) -> None:
        """Tell the controller who cannot be fetched from, and who does not fetch, from now on."""
        self._speaker.call(lambda: self._speaker.set_contacts(contacts))

    def report_busy(self, keys: frozenset[PartitionKey]) -> None:
        """Tell the controller, with the next beat, which partitions are busy from now on."""
        self._busy = keys
        self._speaker.call(lambda: self._speaker.set_busy(keys))

    def is_busy(self, key: PartitionKey) -> bool:
        """Whether a partition is busy, as the controller was told last."""
        return key in self._busy

    def report_moving(self, replicas: Sequence[MovingReplica]) -> None:
        """Tell the controller, with the next beat, how far replicas of partitions are that move."""
        self._speaker.call(lambda: self._speaker.set_moving(replicas))

    def report_disk(self, room: DiskRoom) -> None:
        """Tell the controller, with the next beat, how the disk of the log directory is."""
        self._speaker.call(lambda: self._speaker.reports.set_disk(room))

    def report_turning_away(self, because: str) -> None:
        """Tell the controller, with the next beat, why connections are turned away; empty: they are not."""
        self._speaker.call(lambda: self._speaker.reports.set_turns_away(because))

    def report_uncommitted(self, keys: frozenset[PartitionKey]) -> None:
        """Tell the controller, with the next beat, in which partitions records wait and nothing is committed."""
        self._speaker.call(lambda: self._speaker.reports.set_uncommitted(keys))

    def report_broken(self, broker: BrokerId, broken: Break | None) -> None:
        """Tell the controller at once that the connection to another broker broke; None: that it is made again."""
        self._speaker.call(lambda: self._speaker.set_broken(broker, broken))

    def report_acknowledged(self, key: PartitionKey, epoch: LeaderEpoch) -> None:
        """Tell the controller, with the next beat, that a new leadership has acknowledged its first records now."""
        first = FirstAcknowledgement(key, epoch, tracing.now_unix_nano())
        self._speaker.call(lambda: self._speaker.reports.add_acknowledgement(first))

    @property
    def is_open(self) -> bool:
        """Whether a stream for the present registration is open."""
        return self._open.is_set()

    @property
    def orders_astray(self) -> bool:
        """Whether a stream is open and its controller says that orders for this broker do not arrive. Any thread."""
        return self.is_open and self._speaker.orders_astray

    async def wait_open(self) -> None:
        """Return when a stream for the present registration is open."""
        await self._open.wait()

    async def wait_fenced(self) -> None:
        """Return when the controller says that the registration this broker speaks for is over."""
        await self._fenced.wait()

    def _tell_main(self, news: "_Told", epoch: int) -> None:
        main = self._main
        if main is not None and not main.is_closed():
            main.call_soon_threadsafe(self._take_news, news, epoch)

    def _take_news(self, news: "_Told", epoch: int) -> None:
        if epoch != self._epoch:
            # From a stream that spoke for another registration.
            return
        match news:
            case CatchingUp():
                self._take_catching_up(news)
            case _News.NOT_COUNTED:
                self._take_catching_up(None)
            case _News.OPEN:
                self._open.set()
            case _News.ENDED:
                self._open.clear()
            case _News.FENCED:
                self._fenced.set()
            case _:
                assert_never(news)

    def _take_catching_up(self, said: CatchingUp | None) -> None:
        self._readiness.take(said)
        if self._readiness.is_ready:
            self._speaker.call(self._speaker.in_sync)


class _News(enum.Enum):
    """What the thread tells the main loop of a stream."""

    OPEN = "open"
    ENDED = "ended"
    FENCED = "fenced"
    NOT_COUNTED = "not counted"
    """The controller is of a release that does not say how far brokers are from being in sync."""


_Told = _News | CatchingUp


class _Speaker:
    """The thread's side."""

    def __init__(
        self,
        broker: BrokerId,
        tell_main: Callable[[_Told, int], None],
        reports: Reports,
        tls: WatchedFiles | None,
        expiry: ExpiryClock | None,
        loop: OwnLoop,
        open_stream: OpenStream,
    ) -> None:
        self._broker: Final = broker
        self._expiry: Final = expiry
        self._tls: Final = tls
        self.reports: Final = reports
        """What the controller is told; on this loop only."""
        self._tell_main: Final = tell_main
        self._log: Final = structlog.get_logger("lifeline")
        self.call: Final = loop.call
        """Runs something on the thread's loop; nothing once the broker stops."""
        self._open_stream: Final = open_stream
        self._changed: Final = asyncio.Event()
        self._due: Final = asyncio.Event()
        self._stopped = False
        self._target: ControllerLocation | None = None
        self._epoch = UNREGISTERED
        self._named = False
        self._beat = 0
        self._probe = 0
        self._interval_s = BEAT_INTERVAL_S
        self._ended = ""
        self._heard: controller_pb2.LifelineEnd | None = None
        """What was heard on the present stream; None: nothing."""
        self._former: controller_pb2.LifelineEnd | None = None
        """The last stream on which something was heard, and how it ended; for traces."""
        self.awaits_in_sync = False
        """Whether streams ask how far the broker is from being in sync."""
        self.orders_astray = False
        """What the controller said of that last; of no meaning while no stream is open. Any thread."""

    def stop(self) -> None:
        """End the thread soon."""
        self.call(self._stop)

    def _stop(self) -> None:
        self._stopped = True
        self._changed.set()

    def set_target(self, target: ControllerLocation | None) -> None:
        """Another controller."""
        if target != self._target:
            self._target = target
            self._changed.set()

    def set_epoch(self, epoch: int) -> None:
        """Another registration."""
        self._epoch, self._named = epoch, True
        self._changed.set()

    def add_isr(self, written: WrittenIsr) -> None:
        """Another ISR."""
        self.reports.add_isr(written)
        self._due.set()

    def add_offline(self, keys: Collection[PartitionKey]) -> None:
        """More replicas that cannot be used."""
        self.reports.add_offline(keys)
        self._due.set()

    def set_contacts(self, contacts: FetchContacts) -> None:
        """Another state of fetches."""
        self.reports.set_contacts(contacts)
        self._due.set()

    def set_busy(self, keys: frozenset[PartitionKey]) -> None:
        """Other busy partitions: a hint, which can wait for the next beat."""
        self.reports.set_busy(keys)

    def set_moving(self, replicas: Sequence[MovingReplica]) -> None:
        """How far moving partitions are: a hint, which can wait for the next beat."""
        self.reports.set_moving(replicas)

    def set_broken(self, broker: BrokerId, broken: Break | None) -> None:
        """A connection broke, or is made again."""
        self.reports.set_broken(broker, broken)
        if broken is not None:
            self._due.set()

    def in_sync(self) -> None:
        """The broker has been in sync: it does not ask again."""
        self.awaits_in_sync = False

    async def speak(self) -> None:
        """Hold one stream after another, on the thread's loop."""
        while not self._stopped:
            self._changed.clear()
            target = self._target
            if target is None or not self._named:
                await self._changed.wait()
                continue
            epoch = self._epoch
            self._heard, broken_unix_nano = None, 0
            try:
                reason = await self._stream(target, epoch)
            except grpc.RpcError as error:
                broken_unix_nano = tracing.now_unix_nano()
                reason = str(from_rpc_error(error))
            except TimeoutError:
                reason = "the controller is silent"
            if self._heard is not None:
                self._former = self._heard
                self._former.broken_unix_nano = broken_unix_nano
            self._tell_main(_News.ENDED, epoch)
            self._note_end(target.lifeline, reason)
            if not self._changed.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RECONNECT_S):
                        await self._changed.wait()

    def _note_end(self, target: Address, reason: str) -> None:
        """Log it, once for the same reason: without a controller there are ten attempts a second."""
        ended = f"{target} {reason}"
        if ended != self._ended:
            self._ended = ended
            self._log.info("lifeline ended", at=str(target), reason=reason)

    async def _stream(self, target: ControllerLocation, epoch: int) -> str:
        """Hold one stream until something about it changes; returns why it ended."""
        stream = self._open_stream(target.lifeline, self._tls, addressee.election(target.election_id))
        self.reports.begin_stream()
        if self._expiry is not None:
            self._expiry.begin_stream()
        self._probe = 0
        self._interval_s = BEAT_INTERVAL_S
        hello = controller_pb2.LifelineHello(
            broker_id=self._broker, broker_epoch=epoch, awaits_in_sync=self.awaits_in_sync, former=self._former
        )
        beats = asyncio.create_task(self._send_beats(stream, hello), name="lifeline: beats")
        changed = asyncio.create_task(self._changed.wait(), name="lifeline: change")
        answers = asyncio.create_task(self._read(stream, target, epoch), name="lifeline: answers")
        try:
            await asyncio.wait([beats, changed, answers], return_when=asyncio.FIRST_COMPLETED)
            if answers.done():
                answers.result()
                return "the controller ended the stream"
            if beats.done():
                beats.result()
            return "another controller or another registration"
        finally:
            for task in (beats, changed, answers):
                task.cancel()
            await asyncio.gather(beats, changed, answers, return_exceptions=True)
            stream.close()

    async def _send_beats(self, stream: Stream, hello: controller_pb2.LifelineHello) -> None:
        first: controller_pb2.LifelineHello | None = hello
        while True:
            self._due.clear()
            self._beat += 1
            message = controller_pb2.BrokerLifelineRequest(hello=first, beat=self._beat, probe_answered=self._probe)
            self.reports.put_into(message)
            if self._expiry is not None and (difference := self._expiry.difference) is not None:
                message.clock_difference.ahead_ms = difference.ahead_ms
                message.clock_difference.expiry_held_back = difference.held_back
            stream.write(message)
            first = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._due.wait()

    async def _read(self, stream: Stream, target: ControllerLocation, epoch: int) -> None:
        opened = fenced = False
        while True:
            async with asyncio.timeout(max(SILENCE_S, 2 * self._interval_s)):
                answer = await stream.read()
            if answer is None:
                return
            self._heard = controller_pb2.LifelineEnd(
                election_id=target.election_id,
                controller_epoch=answer.controller_epoch,
                heard_unix_nano=tracing.now_unix_nano(),
            )
            if self._expiry is not None:
                self._expiry.hear(answer.wall_clock_ms if answer.HasField("wall_clock_ms") else None)
            self.orders_astray = answer.orders_astray
            if not opened:
                opened = True
                self._ended = ""
                self._tell_main(_News.OPEN, epoch)
                if epoch != UNREGISTERED and not answer.HasField("catching_up"):
                    self._tell_main(_News.NOT_COUNTED, epoch)
            if answer.catching_up.counted:
                said = answer.catching_up
                self._tell_main(CatchingUp(replicas=said.replicas, awaited=said.awaited), epoch)
            if answer.fenced and not fenced:
                fenced = True
                self._tell_main(_News.FENCED, epoch)
            self._interval_s = min(max(answer.beat_interval_ms / 1000, BEAT_INTERVAL_S), BEAT_INTERVAL_S_MAX)
            if answer.probe > self._probe:
                self._probe = answer.probe
                self._due.set()
            self.reports.acknowledge(answer.report_acknowledged)
            if self.reports.has_due:
                self._due.set()
