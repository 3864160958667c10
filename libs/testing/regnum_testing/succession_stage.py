"""A cluster whose controllers succeed one another, with a standby that may be behind, for tests of successions."""

from collections.abc import Sequence

from regnum_election.controller import Controller
from regnum_election.decisions.cluster import Cluster
from regnum_election.decisions.isr_reports import ReportedNode
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.insync import with_isr
from regnum_model.nodes import LeaderAndIsr

from regnum_testing.reigning import ANYBODY, FakeBroker, FakeCluster
from regnum_testing.standing_by import FakeStandby, RecordingServer
from regnum_testing.waiting import DEADLINE_S, until


class Stage:
    """A cluster, a standby that may be held back, and a record of every state and every order."""

    def __init__(self) -> None:
        self.server = RecordingServer()
        self.cluster = FakeCluster(server=self.server)
        self.standby = FakeStandby(lambda: self.cluster.controller, self.cluster.clock)
        self.everyone: list[FakeBroker] = []
        self.reports: dict[PartitionKey, ReportedNode | None] = {}
        """What leaders report again to every controller."""

    async def begin(self, *ids: int) -> None:
        """Start, with these brokers."""
        await self.cluster.begin()
        for id in ids:
            await self.register(id)

    async def register(self, id: int, *, log_id: str | None = None) -> FakeBroker:
        """A broker registers, for the first time or again."""
        broker = await self.cluster.register(id, log_id=log_id)
        self.everyone.append(broker)
        return broker

    async def follow(self) -> None:
        """The standby follows, and has everything."""
        self.standby.start()
        await until(self.standby.has_all)

    async def succeed(self, id: int = 2, *, wait: bool = True) -> Controller:
        """The standby reigns with what it has."""
        followed = await self.standby.follower.take()
        assert followed is not None
        return await self.cluster.reign(id, followed=followed, wait=wait)

    async def leader_writes(self, topic: str, partition: int, isr: Sequence[int]) -> None:
        """A leader writes its ISR, as it may at any time."""
        path = paths.leader_and_isr(topic, partition)
        node = await self.cluster.outside.get(path)
        state = LeaderAndIsr.decode(node.data)
        changed = with_isr(state, tuple(BrokerId(id) for id in isr), min_insync=2)
        await self.cluster.outside.set(path, changed.encode(), version=node.stat.version)

    async def full_sets(self, epoch: int) -> None:
        """Wait until every live broker has taken all of its full set from that reign."""
        await until(lambda: all(took_full_set(broker, epoch) for broker in self.live()), what="full sets")

    def live(self) -> list[FakeBroker]:
        """Brokers that are not killed."""
        return [broker for broker in self.cluster.brokers.values() if not broker.down]

    def check_orders(self, epoch: int, at_win: dict[PartitionKey, int]) -> int:
        """Every order of a reign is about a state that stood in the store, at its win or later; returns how many."""
        orders = 0
        for broker in self.everyone:
            for request in broker.requests:
                if request.controller_epoch != epoch:
                    continue
                for item in request.partitions:
                    key = PartitionKey(TopicId(item.topic_id), item.state.partition)
                    held = self.server.states[key][item.state.version]
                    assert (item.state.leader, item.state.leader_epoch) == (held.leader, held.leader_epoch)
                    assert tuple(item.state.isr) == held.isr
                    assert item.state.version >= at_win.get(key, 0), f"{key}: an order from a picture that is stale"
                    orders += 1
        return orders

    async def close(self) -> None:
        """End everything; raise what failed."""
        await self.standby.close()
        await self.cluster.close()


def took_full_set(broker: FakeBroker, epoch: int) -> bool:
    """Whether a broker has had every part of a full set of that reign."""
    parts = {request.part for request in broker.requests if request.controller_epoch == epoch and request.init}
    return any(
        request.init and request.controller_epoch == epoch and parts == set(range(request.parts))
        for request in broker.requests
    )


def assigned(name: str, *replicas: Sequence[int]) -> TopicRequest:
    """A topic with these replicas of its partitions 0, 1, 2 ..."""
    assignment = tuple((i, tuple(BrokerId(id) for id in ids)) for i, ids in enumerate(replicas))
    return TopicRequest(name=name, partitions=0, replication_factor=None, assignment=assignment, mutation=None)


def deletion(name: str) -> DeletionRequest:
    """That topic, whichever has the name."""
    return DeletionRequest(name=name, topic_id="", mutation=None)


async def create(controller: Controller, *requests: TopicRequest) -> list[TopicId]:
    """Create topics; the ids of those that were."""
    answered = await controller.topics.create(requests, validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    return [outcome.topic_id for outcome in answered.outcomes if isinstance(outcome, Created)]


def essence(picture: Cluster) -> tuple[object, ...]:
    """What two controllers that read the same store agree on."""
    return (
        dict(picture.names),
        {id: (topic.version, topic.partitions, topic.creation_id) for id, topic in picture.topics.items()},
        dict(picture.partitions),
        {id: frozenset(keys) for id, keys in picture.assigned.items() if keys},
        dict(picture.brokers),
    )


async def remove_by_hand(stage: Stage, name: str) -> None:
    """As a person does it, in the store."""
    await stage.cluster.outside.delete_below(paths.topic(name))
    await stage.cluster.outside.delete(paths.topic(name), version=None)


def unverified(controller: Controller) -> list[PartitionKey]:
    """Partitions that a controller has from its predecessor alone."""
    unproved = controller._context.unverified  # noqa: SLF001 - nobody but tests asks
    return [key for key in controller.picture.partitions if key in unproved]


def leaders(picture: Cluster) -> dict[str, dict[int, int]]:
    """Topic -> partition -> leader; -1: nobody."""
    found: dict[str, dict[int, int]] = {}
    for key, partition in picture.partitions.items():
        held = partition.held if partition.trouble is None else None
        found.setdefault(picture.topics[key.topic_id].name, {})[key.partition] = (
            -1 if held is None else held.state.leader
        )
    return found


async def quiet(stage: Stage, controller: Controller) -> None:
    """Return when the controller has nothing more to do."""
    seen = [-1, 0]

    def still() -> bool:
        work = stage.server.transactions + sum(len(b.requests) + len(b.stops) for b in stage.everyone)
        work += stage.cluster.metadata.calls
        unfinished = controller._context.unfinished  # noqa: SLF001 - nobody but tests asks
        seen[1] = seen[1] + 1 if work == seen[0] and not unfinished else 0
        seen[0] = work
        return seen[1] > 30

    await until(still, what="quiet")
