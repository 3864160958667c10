"""The scenes of the demo: waiting for conditions, killing processes, measuring what it cost."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from regnum_client import Admin, TopicPartition
from regnum_client.admin.leaders.elections import ElectionType
from regnum_service.clock import Clock
from regnum_telemetry import conventions

from regnum_local.cluster import LocalCluster
from regnum_local.demo.report import Narrator
from regnum_local.demo.timeline import Outage
from regnum_local.demo.verdict import longest_gap_s
from regnum_local.demo.workload import Load

POLL_S = 0.02
"""How often a condition is looked at; small beside what is measured."""


class SceneError(Exception):
    """Something did not come about in its time; the message says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """Who leads what, as a broker's metadata says."""

    controller: int
    """Election id of the controller; -1 for none."""
    controller_epoch: int
    """Its epoch."""
    leaders: Mapping[TopicPartition, int]
    """Leader of each partition; -1 for none."""
    epochs: Mapping[TopicPartition, int]
    """Leader epoch of each partition."""
    in_sync: bool
    """Whether every partition has all its replicas in sync."""

    def led_by(self, broker: int) -> tuple[TopicPartition, ...]:
        """Partitions that a broker leads."""
        return tuple(partition for partition, leader in self.leaders.items() if leader == broker)


class Stage:
    """The cluster under load, and the means to hurt it."""

    def __init__(
        self,
        *,
        cluster: LocalCluster,
        admin: Admin,
        load: Load,
        topics: Sequence[str],
        clock: Clock,
        narrator: Narrator,
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._load = load
        self._topics = tuple(topics)
        self._clock = clock
        self._narrator = narrator
        self.killed: list[str] = []
        """Processes that were killed and not restarted."""

    async def look(self) -> Leadership:
        """Who leads what now."""
        view = await self._admin.describe_cluster()
        leaders: dict[TopicPartition, int] = {}
        epochs: dict[TopicPartition, int] = {}
        in_sync = True
        for topic in await self._admin.list_topics():
            if topic.name not in self._topics:
                continue
            for number, state in topic.partitions.items():
                leaders[TopicPartition(topic.name, number)] = state.leader
                epochs[TopicPartition(topic.name, number)] = state.leader_epoch
                in_sync = in_sync and set(state.isr) == set(state.replicas)
        controller = view.controller
        return Leadership(
            controller=-1 if controller is None else controller.id,
            controller_epoch=0 if controller is None else controller.epoch,
            leaders=leaders,
            epochs=epochs,
            in_sync=in_sync,
        )

    async def until(self, what: str, holds: Callable[[], Awaitable[bool]], *, within_s: float) -> float:
        """Wait for a condition; returns the seconds it took, raises SceneError when it does not come about."""
        begin = self._clock.monotonic()
        while not await holds():
            if self._clock.monotonic() - begin > within_s:
                raise SceneError(f"{what}: not within {within_s:.0f} s")
            await self._clock.sleep(POLL_S)
        return self._clock.monotonic() - begin

    async def run_for(self, seconds: float) -> None:
        """Let the load run."""
        await self._clock.sleep(seconds)

    async def all_in_sync(self, *, within_s: float = 30.0) -> None:
        """Wait until every replica of every partition is in sync."""

        async def holds() -> bool:
            return (await self.look()).in_sync

        took = await self.until("every replica in sync again", holds, within_s=within_s)
        self._narrator.detail(f"every replica in sync again after {took:.1f} s")

    async def kill_leader(self, busy: TopicPartition, *, restart_at_once: bool = False) -> Outage:
        """Kill -9 the broker that leads a busy partition; returns what it cost on everything it led.

        ``restart_at_once`` starts it again before anybody can have noticed, and long before its session expires.
        """
        before = await self.look()
        broker = before.leaders[busy]
        led = before.led_by(broker)
        if not led:
            raise SceneError(f"broker {broker} leads nothing: killing it would prove nothing")
        self._narrator.step(f"kill -9 broker {broker}, leader of {busy.topic}-{busy.partition} and {len(led) - 1} more")
        killed = self._clock.monotonic()
        await self._kill(f"broker-{broker}")
        if restart_at_once:
            await self.restart(f"broker-{broker}", wait=False)

        async def led_by_others() -> bool:
            now = await self.look()
            return all(now.leaders.get(partition, -1) not in {-1, broker} for partition in led)

        async def led_anew() -> bool:
            now = await self.look()
            return all(now.epochs.get(partition, -1) > before.epochs[partition] for partition in led)

        succeeded = led_anew if restart_at_once else led_by_others
        successor_s = await self.until("new leaders for all it led", succeeded, within_s=30.0)
        client_s = await self._outage(killed, led)
        self._narrator.detail(f"longest wait for an acknowledgement on what it led: {client_s * 1000:.0f} ms")
        return Outage(
            victim=f"broker {broker}, a leader",
            process=f"broker {broker}",
            of_leaders=True,
            partitions=len(led),
            client_s=client_s,
            successor_s=successor_s,
        )

    async def kill_controller(self) -> Outage:
        """Kill -9 the controller; returns what it cost on all partitions."""
        before = await self.look()
        self._narrator.step(f"kill -9 election process {before.controller}, the controller")
        killed = self._clock.monotonic()
        await self._kill(f"election-{before.controller}")

        async def succeeded() -> bool:
            now = await self.look()
            return now.controller_epoch > before.controller_epoch and now.controller >= 0

        successor_s = await self.until("a new controller", succeeded, within_s=30.0)
        now = await self.look()
        self._narrator.detail(f"election process {now.controller} is the controller, epoch {now.controller_epoch}")
        client_s = await self._outage(killed, tuple(before.leaders))
        self._narrator.detail(f"longest wait for an acknowledgement on any partition: {client_s * 1000:.0f} ms")
        return Outage(
            victim=f"election {before.controller}, the controller",
            process=f"controller {before.controller}",
            of_leaders=False,
            partitions=len(before.leaders),
            client_s=client_s,
            successor_s=successor_s,
        )

    async def elect_preferred(self) -> Outage:
        """Give leaderships back to the preferred replicas, as planned; returns what it cost."""
        self._narrator.step("electing the preferred leaders again")
        begun = self._clock.monotonic()
        moved: dict[TopicPartition, int] = {}

        async def ready() -> bool:
            # A broker that has just come back may be elected once the controller knows that it is in sync.
            for result in await self._admin.elect_leaders(ElectionType.PREFERRED):
                if result.failure is None and result.leader is not None:
                    moved[TopicPartition(result.topic, result.partition)] = result.leader
            return bool(moved)

        await self.until("a preferred leader elected", ready, within_s=30.0)

        async def led() -> bool:
            now = await self.look()
            return all(now.leaders.get(partition) == leader for partition, leader in moved.items())

        successor_s = await self.until("preferred leaders", led, within_s=30.0)
        client_s = await self._outage(begun, tuple(moved))
        self._narrator.detail(f"longest wait for an acknowledgement on what moved: {client_s * 1000:.0f} ms")
        return Outage(
            victim="preferred leaders, a planned move",
            process="",
            of_leaders=True,
            partitions=len(moved),
            client_s=client_s,
            successor_s=successor_s,
            planned=conventions.KIND_ELECTION,
        )

    async def kill_helper(self, name: str) -> None:
        """Kill -9 a process that no record passes through."""
        self._narrator.step(f"kill -9 {name}; the load goes on")
        await self._kill(name)

    async def restart(self, name: str, *, wait: bool = True) -> None:
        """Start a killed process again and wait until it is healthy."""
        self._narrator.step(f"restart {name}")
        await self._cluster.restart(name)
        self.killed.remove(name)
        if wait:
            await self._cluster.wait_healthy(name)

    def usual_gap_s(self, since: float) -> float:
        """Longest time between two acknowledgements of a partition since a moment, without any fault."""
        now = self._clock.monotonic()
        histories = self._load.histories.values()
        return max(longest_gap_s(history.moments, begin=since, end=now) for history in histories)

    async def _kill(self, name: str) -> None:
        self.killed.append(name)
        await self._cluster.kill(name)

    async def _outage(self, killed: float, partitions: Sequence[TopicPartition]) -> float:
        settled_s = 1.0  # acknowledgements must have flowed again for that long, or the gap may still be growing

        async def flowing() -> bool:
            moments = [self._load.histories[partition].moments for partition in partitions]
            return all(times and times[-1] > killed + settled_s for times in moments)

        await self.until("acknowledgements on everything it led", flowing, within_s=60.0)
        end = killed + settled_s
        return max(
            longest_gap_s(self._load.histories[partition].moments, begin=killed, end=end) for partition in partitions
        )
