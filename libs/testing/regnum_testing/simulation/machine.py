"""What simulated processes run on: threads that are turns of the loop, gRPC over the simulated network, one chance."""

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Final, ParamSpec, TypeVar, cast

import grpc
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum_model.contact import Contact
from regnum_model.nodes import Address
from regnum_service.channel import ADDRESSEE, Open, addressed, target
from regnum_service.detection import CONNECT_TIMEOUT_S
from regnum_service.machine import Machine, OwnLoop
from regnum_service.tls.files import WatchedFiles

from regnum_testing.simulation.channels import SimulatedChannel
from regnum_testing.simulation.loop import PROCESS, Process, SimulatedLoop
from regnum_testing.simulation.network import Network
from regnum_testing.simulation.servers import SimulatedServer

P = ParamSpec("P")
T = TypeVar("T")

WALL_ZERO_MS: Final = 1_700_000_000_000
"""Wall time at the start, milliseconds since 1970."""


class SimulatedClock:
    """Virtual time as one process measures it, and a wall clock that may be wrong."""

    def __init__(self, loop: SimulatedLoop, *, ahead_ms: int = 0, rate: float = 1.0) -> None:
        """Only assigns; ``rate``: seconds that it counts in one, a quartz that drifts."""
        self._loop: Final = loop
        self._rate: Final = rate
        self.ahead_ms = ahead_ms
        """How far the wall clock is from the world's; may be changed at any time."""

    def monotonic(self) -> float:
        """Seconds."""
        return self._loop.time() * self._rate

    def wall_ms(self) -> int:
        """What the process believes."""
        return WALL_ZERO_MS + int(self._loop.time() * 1000) + self.ahead_ms

    async def sleep(self, seconds: float) -> None:
        """Return after that time."""
        await asyncio.sleep(seconds / self._rate)


class Turns(Executor):
    """Jobs run on the loop some time after they were handed in; with one thread, in the order they came."""

    def __init__(self, loop: SimulatedLoop, chance: random.Random, threads: int) -> None:
        """Only assigns."""
        self._loop: Final = loop
        self._chance: Final = chance
        self._threads: Final = threads
        self._free_s = 0.0
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a job, for the process that hands it in."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        done: Future[T] = Future()

        def run() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                value = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - as a pool's thread does
                done.set_exception(error)
            else:
                done.set_result(value)

        now_s = self._loop.time()
        at_s = now_s + self._chance.uniform(1e-5, 1e-3)
        if self._threads == 1:
            at_s = self._free_s = max(self._free_s + 1e-6, at_s)
        self._loop.call_at(at_s, run, context=contextvars.copy_context())
        return done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Take no further job."""
        self._closed = True


class AtOnce(Executor):
    """Jobs for which another job waits: they run where they are handed in."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a job."""
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - as a pool's thread does
            done.set_exception(error)
        return done


class SameLoop(OwnLoop):
    """An event loop on a thread of its own is a task here."""

    def __init__(self, loop: SimulatedLoop) -> None:
        """Only assigns."""
        self._simulated: Final = loop
        self._over = False

    def call(self, action: Callable[..., object], *args: object) -> None:
        """Run something soon."""
        if not self._over:
            self._simulated.call_soon(action, *args)

    async def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this."""
        await self._simulated.create_task(work)

    def begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Future[None]":
        """Do this, and be over."""
        task = self._simulated.create_task(work)
        task.add_done_callback(self._end)
        return task

    def _end(self, _: "asyncio.Future[None]") -> None:
        self._over = True


class SimulatedMachine(Machine):
    """Of one process."""

    def __init__(self, network: Network, clock: SimulatedClock, chance: random.Random, boot: str) -> None:
        """Only assigns."""
        self.network: Final = network
        self.clock = clock
        self.chance = chance
        self._boot: Final = boot

    def pool(self, name: str, threads: int) -> Executor:
        """Turns of the loop."""
        del name
        return Turns(self.network.loop, self.chance, threads)

    def daemon(self, name: str) -> Executor:
        """Turns of the loop."""
        del name
        return Turns(self.network.loop, self.chance, 1)

    def loop(self, name: str, *, daemon: bool = False) -> OwnLoop:
        """The same loop."""
        del name, daemon
        return SameLoop(self.network.loop)

    def server(self, *options: Any, interceptors: Sequence[Any] = ()) -> grpc.aio.Server:
        """A server on the simulated network."""
        del options
        return SimulatedServer(self.network, interceptors)

    def opener(self, files: WatchedFiles | None) -> Open:
        """Channels over the simulated network."""
        assert files is None, "simulated processes speak plaintext"

        def open_one(address: Address, addressee: str = "") -> grpc.aio.Channel:
            return addressed(SimulatedChannel(self.network, target(address)), address, addressee)

        return open_one

    async def connect(self, address: Address) -> Contact:
        """Try to connect."""
        network, me = self.network, PROCESS.get()
        assert me is not None, "processes connect"
        await asyncio.sleep(2 * network.delay_s())
        server = network.at(target(address))
        if server is None:
            return Contact.REFUSED
        if network.is_cut(me, server.process) or network.is_cut(server.process, me):
            await asyncio.sleep(CONNECT_TIMEOUT_S)
            return Contact.NO_ANSWER
        return Contact.ACCEPTED

    def boot_id(self) -> str:
        """Of the simulated machine."""
        return self._boot

    def open_lifeline(
        self, address: Address, tls: WatchedFiles | None = None, addressee: str = ""
    ) -> "SimulatedLifeline":
        """``OpenStream`` of the broker's lifeline."""
        del tls
        return SimulatedLifeline(SimulatedChannel(self.network, target(address)), addressee)


class SimulatedLifeline:
    """A broker's stream to a controller."""

    def __init__(self, channel: SimulatedChannel, addressee: str) -> None:
        """Begins it."""
        self._channel: Final = channel
        self._call: Final[Any] = controller_pb2_grpc.LifelineServiceStub(channel).BrokerLifeline(
            metadata=((ADDRESSEE, addressee),) if addressee else ()
        )

    def write(self, message: controller_pb2.BrokerLifelineRequest) -> None:
        """Send a message."""
        if not self._call.done():
            self._call.send(message)

    async def read(self) -> controller_pb2.BrokerLifelineResponse | None:
        """The next message."""
        message: Any = await self._call.read()
        return None if message is grpc.aio.EOF else cast("controller_pb2.BrokerLifelineResponse", message)

    def close(self) -> None:
        """Close."""
        self._call.cancel()


def jobs_of(loop: SimulatedLoop, chance: random.Random) -> Callable[[Callable[[], object]], Future[Any]]:
    """What runs the jobs of ``run_in_executor``."""
    threads = Turns(loop, chance, 4)
    return threads.submit


def process() -> Process:
    """The process that runs."""
    running = PROCESS.get()
    assert running is not None, "no process runs"
    return running
