"""A thread with an event loop and a port of its own for the lifelines (safety rule S9).

Other parts of the process talk to it through ``begin``, ``show`` and ``end``, which may be called from the main loop
at any time; it talks to the controller through events handed to the main loop.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Final

import grpc
from regnum.election.v1 import controller_pb2_grpc
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, ElectionId
from regnum_model.nodes import Address
from regnum_service.access.listener import OPEN, ListenerAccess
from regnum_service.cancellation import end_task, is_asked_to_end
from regnum_service.clock import Clock
from regnum_service.detection import Probe, connect
from regnum_service.errors import RegnumError, StartRefusedError
from regnum_service.loop_lag import LoopLag
from regnum_service.machine import MACHINE, Machine, OwnLoop
from regnum_service.poller import let_go, quiet_poller
from regnum_service.server import CONTROL_BYTES_MAX, GrpcServer, ServiceRegistration
from regnum_service.supervisor import Supervisor, unasked_end
from regnum_telemetry.metrics import Metrics

from regnum_election.brokers.lifeline import Lifelines
from regnum_election.decisions.cluster import Broker
from regnum_election.decisions.liveness import SILENCE_S, Listener
from regnum_election.lifelines.witnessed import signs_of_broker, signs_of_controller
from regnum_election.reign.events import CatchingUp, ClusterEvent, Hint
from regnum_election.reign.witnesses import Signs

SERVICE_NAME: Final = "regnum.election.v1.LifelineService"
START_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 5.0


class LifelineThread:
    """Owns the thread. One for each process, for all its reigns."""

    def __init__(
        self,
        address: Address,
        *,
        clock: Clock,
        supervisor: Supervisor,
        main_lag: LoopLag,
        session_connected: Callable[[], bool],
        session_timeout_s: float,
        report: Callable[[ControllerEpoch, ClusterEvent | Hint], None],
        fences: bool,
        probe: Probe = connect,
        served_as: Callable[[Lifelines], controller_pb2_grpc.LifelineServiceServicer] = lambda lifelines: lifelines,
        metrics: Metrics | None = None,
        access: ListenerAccess = OPEN,
        own: str = "",
        election_id: str = "",
        machine: Machine = MACHINE,
    ) -> None:
        """Only assigns.

        Args:
            address: where the lifeline listener binds.
            clock: source of time.
            supervisor: told of failures.
            main_lag: lag of the controller's loop.
            session_connected: whether the coordination session is CONNECTED; must be callable from any thread.
            session_timeout_s: store session time-out.
            report: takes an event and the reign it belongs to; called on the main loop.
            fences: False switches detection off.
            probe: one attempt to connect to a broker.
            served_as: what stands between gRPC and the lifelines.
            metrics: where the thread's loop lag is counted.
            access: what the listener asks of those who connect.
            own: how this process is addressed; see ``GrpcServer``.
            election_id: its election id, for traces.
            machine: where the thread and its server come from.
        """
        self._election_id: Final = election_id
        self._machine: Final = machine
        self._address = address
        self._clock = clock
        self._supervisor = supervisor
        self._main_lag = main_lag
        self._session_connected = session_connected
        self._session_timeout_s = session_timeout_s
        self._report = report
        self._fences = fences
        self._probe: Final = probe
        self._served_as: Final = served_as
        self._metrics = metrics
        self._access: Final = access
        self._own: Final = own
        self._loop: OwnLoop | None = None
        self._stop: asyncio.Event | None = None
        self._lifelines: Lifelines | None = None
        self._server: GrpcServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._vital: set[asyncio.Task[None]] = set()
        """Tasks that never end by themselves."""
        self._thread: asyncio.Future[None] | None = None
        self._epoch: ControllerEpoch | None = None
        self._shown: Mapping[BrokerId, Broker] = {}

    async def start(self) -> Address:
        """Start the thread and its server; returns where it listens. Raises PortTakenError."""
        started: Future[Address] = Future()
        main = asyncio.get_running_loop()
        self._loop = loop = self._machine.loop("lifeline", daemon=True)
        self._thread = loop.begin(self._serve(main, started))
        self._thread.add_done_callback(self._ended)
        async with asyncio.timeout(START_TIMEOUT_S):
            return await asyncio.wrap_future(started)

    def _ended(self, thread: "asyncio.Future[None]") -> None:
        if (error := thread.exception()) is not None:
            self._supervisor.fail("lifeline thread", error)

    async def stop(self) -> None:
        """End the thread."""
        loop, stop, thread = self._loop, self._stop, self._thread
        if loop is None or stop is None or thread is None:
            return
        loop.call(stop.set)
        await asyncio.wait([thread], timeout=STOP_TIMEOUT_S)

    def begin(self, epoch: ControllerEpoch, *, elected_at: BrokerEpoch) -> None:
        """A reign began, with a node of that creation id."""
        self._epoch = epoch
        self._tell(lambda lifelines: lifelines.begin(epoch, elected_at=elected_at))

    def show(self, epoch: ControllerEpoch, brokers: Mapping[BrokerId, Broker]) -> None:
        """The live brokers of the reign; the mapping must not change afterwards."""
        self._shown = brokers
        self._tell(lambda lifelines: lifelines.show(epoch, brokers))

    def tell(self, epoch: ControllerEpoch, said: CatchingUp) -> None:
        """Say to a broker that asked, in the reign of that epoch, how far it is from being in sync."""
        self._tell(lambda lifelines: lifelines.tell(epoch, said))

    def tell_misdirected(self, epoch: ControllerEpoch, brokers: frozenset[BrokerId]) -> None:
        """Say to these brokers, in the reign of that epoch, that their orders go astray, and to no others."""
        self._tell(lambda lifelines: lifelines.tell_misdirected(epoch, brokers))

    def end(self) -> None:
        """The reign is over."""
        self._epoch = None
        self._tell(lambda lifelines: lifelines.end())

    @property
    def silent_s(self) -> float:
        """Seconds since any registered broker was heard; 0 before the thread has started. Any thread."""
        lifelines = self._lifelines
        return 0.0 if lifelines is None else lifelines.silent_s

    def of_broker(self, broker: BrokerId, epoch: BrokerEpoch) -> Signs:
        """What was seen of one life of a broker; for traces. Any thread."""
        lifelines = self._lifelines
        streams = () if lifelines is None else lifelines.newest()
        return signs_of_broker(streams, self._shown, broker, epoch, self._election_id)

    def of_controller(self, id: ElectionId) -> Signs:
        """What brokers saw of the end of a controller; for traces. Any thread."""
        lifelines = self._lifelines
        return signs_of_controller(() if lifelines is None else lifelines.newest(), self._shown, id)

    async def set_serving(self, *, serving: bool) -> None:
        """What health says on the lifeline listener."""
        server, loop = self._server, self._loop
        if server is not None and loop is not None:
            await loop.do(server.set_serving(serving=serving))

    def _tell(self, order: Callable[[Lifelines], None]) -> None:
        loop, lifelines = self._loop, self._lifelines
        if loop is not None and lifelines is not None:
            loop.call(order, lifelines)

    async def _serve(self, main: asyncio.AbstractEventLoop, started: "Future[Address]") -> None:
        quiet_poller(asyncio.get_running_loop())
        self._stop = asyncio.Event()
        lag = LoopLag(self._clock, loop_name="lifeline", metrics=self._metrics)

        def hand_over(event: ClusterEvent | Hint) -> None:
            epoch = self._epoch
            if epoch is not None and not main.is_closed():
                main.call_soon_threadsafe(self._report, epoch, event)

        lifelines = Lifelines(
            clock=self._clock,
            probe=self._probe,
            report=hand_over,
            listening=lambda: self._listener(lag, lifelines),
            spawn=self._spawn,
            fences=self._fences,
            metrics=self._metrics,
        )
        registration = ServiceRegistration(
            name=SERVICE_NAME,
            servicer=self._served_as(lifelines),
            add_to_server=controller_pb2_grpc.add_LifelineServiceServicer_to_server,
        )
        server = GrpcServer(
            self._address,
            [registration],
            supervisor=self._supervisor,
            request_bytes_max=CONTROL_BYTES_MAX,
            listener="lifeline",
            metrics=self._metrics,
            access=self._access,
            own=self._own,
            spawn=self._spawn,
            machine=self._machine,
        )
        try:
            await server.start()
        except OSError as error:
            started.set_exception(error)
            return
        except StartRefusedError as error:
            started.set_exception(error)
            return
        self._server, self._lifelines = server, lifelines
        self._vital = {
            self._spawn("lifeline-watch", lifelines.watch()),
            self._spawn("lifeline-lag", lag.run()),
        }
        started.set_result(server.address)
        try:
            await self._stop.wait()
        finally:
            lifelines.end()
            await server.stop(grace_s=0.0)
            for task in tuple(self._tasks):
                end_task(task)
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await let_go()

    def _listener(self, lag: LoopLag, lifelines: Lifelines) -> Listener:
        return Listener(
            session_connected=self._session_connected(),
            loop_lag_s=max(lag.worst_s(SILENCE_S), self._main_lag.worst_s(SILENCE_S)),
            since_silence_fence_s=lifelines.since_silence_fence_s,
            session_timeout_s=self._session_timeout_s,
        )

    def _spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            # Readers end so with their calls; what is vital never does, and nothing else cancels any of them.
            if not is_asked_to_end(task) and (task.cancelling() or task in self._vital):
                self._supervisor.fail(task.get_name(), unasked_end())
            return
        error = task.exception()
        # A broker that is killed in the middle of a message breaks its reader; that is what lifelines are for.
        if error is not None and not isinstance(error, grpc.aio.BaseError | RegnumError):
            self._supervisor.fail(task.get_name(), error)
