"""Short ways to write brokers, states and surroundings in tests of the election service."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from regnum_election.decisions.cluster import Broker, Cluster, HeldState, Partition, Topic
from regnum_election.decisions.leadership import Surroundings
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, LogId, Registration, TopicId
from regnum_model.nodes import Address, LeaderAndIsr, Membership

TOPIC_ID = TopicId("AAAAAAAAAAAAAAAAAAAAAA")


def broker(id: int, *, epoch: int | None = None, log: str | None = None, rack: str | None = None) -> Broker:
    """A live broker; epoch ``id`` and log ``log-<id>`` unless said otherwise."""
    return Broker(
        id=BrokerId(id),
        epoch=BrokerEpoch(id if epoch is None else epoch),
        registration=Registration(0),
        node_version=0,
        rack=rack,
        log_ids=frozenset({LogId(log or f"log-{id}")}),
        client=Address(host="127.0.0.1", port=10_000 + id),
        internal=Address(host="127.0.0.1", port=20_000 + id),
    )


def state(
    leader: int,
    isr: Iterable[int],
    *,
    elr: Iterable[int] = (),
    epoch: int = 5,
    members: Mapping[int, tuple[int, str]] | None = None,
    controller_epoch: int = 1,
) -> LeaderAndIsr:
    """A state whose members are recorded as ``broker`` makes brokers, unless said otherwise."""
    isr, elr, given = tuple(isr), tuple(elr), members or {}
    recorded = {id: given.get(id, (id, f"log-{id}")) for id in (*isr, *elr)}
    return LeaderAndIsr(
        topic_id=TOPIC_ID,
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        isr=tuple(BrokerId(id) for id in isr),
        elr=tuple(BrokerId(id) for id in elr),
        members={
            BrokerId(id): Membership(broker_epoch=BrokerEpoch(broker_epoch), log_id=LogId(log))
            for id, (broker_epoch, log) in recorded.items()
        },
        controller_epoch=ControllerEpoch(controller_epoch),
    )


def surroundings(
    *live: Broker | int, leaving: Iterable[int] = (), offline: Iterable[int] = (), controller_epoch: int = 1
) -> Surroundings:
    """Live brokers, given as such or by id."""
    brokers = [item if isinstance(item, Broker) else broker(item) for item in live]
    return Surroundings(
        brokers={item.id: item for item in brokers},
        leaving=frozenset(BrokerId(id) for id in leaving),
        offline=frozenset(BrokerId(id) for id in offline),
        controller_epoch=ControllerEpoch(controller_epoch),
    )


def replicas(*ids: int) -> tuple[BrokerId, ...]:
    """An assignment."""
    return tuple(BrokerId(id) for id in ids)


def topic(name: str, *assignments: tuple[int, ...], id: str | None = None) -> tuple[Topic, dict[int, Partition]]:
    """A topic with one partition for each assignment, all led by their first replica."""
    topic_id = TopicId(id or name.ljust(22, "_"))
    partitions = {
        number: Partition(
            replicas=replicas(*ids),
            held=HeldState(state=replace(state(ids[0], ids, epoch=0), topic_id=topic_id), version=0),
        )
        for number, ids in enumerate(assignments)
    }
    return Topic(name=name, id=topic_id, version=0, partitions=tuple(partitions)), partitions


def cluster(*live: Broker | int, topics: Iterable[tuple[Topic, dict[int, Partition]]] = ()) -> Cluster:
    """A picture."""
    picture = Cluster()
    for item in live:
        picture = picture.with_broker(item if isinstance(item, Broker) else broker(item))
    return picture.with_topics(topics)
