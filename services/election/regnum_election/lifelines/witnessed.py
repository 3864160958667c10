"""What brokers say over their lifelines of others: where traces of failures begin, where those of changes end. Pure.

Nothing is decided by any of it. What one broker says is bounded in size, and what it says too often costs nothing: it
replaces what it said before, or is left out.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, NamedTuple, Protocol

from regnum.election.v1 import controller_pb2
from regnum_model.ids import BrokerEpoch, BrokerId, ElectionId, LeaderEpoch, PartitionKey, TopicId

from regnum_election.decisions.cluster import Broker
from regnum_election.reign.events import FirstAcknowledgements
from regnum_election.reign.witnesses import Sign, Signs

BROKEN_MAX: Final = 100
"""Broken connections that are taken from one broker."""

ACKNOWLEDGEMENTS_MAX: Final = 1_000
"""First acknowledgements that are taken from one broker in ACKNOWLEDGEMENTS_S; others are left out."""

ACKNOWLEDGEMENTS_S: Final = 1.0
"""Such a time. A change of leadership waits for a hundred of each broker at most."""


class Break(NamedTuple):
    """A connection that broke."""

    epoch: BrokerEpoch
    """Broker epoch at its other end."""
    unix_nano: int
    """When, by the clock of the broker that lost it."""


class Said:
    """What one broker said on one stream. Belongs to the lifelines' loop; what it holds is replaced, never changed."""

    def __init__(self, hello: controller_pb2.LifelineHello) -> None:
        """Only assigns."""
        self.broken: Mapping[BrokerId, Break] = {}
        """Its broken connections to brokers."""
        self.former: Final = hello.former if hello.HasField("former") else None
        """How its lifeline before ended."""
        self._since_s = 0.0
        self._taken = 0

    def take(self, request: controller_pb2.BrokerLifelineRequest, now_s: float) -> FirstAcknowledgements | None:
        """Take up what a message says; returns what is to be handed on."""
        if request.HasField("broken_connections"):
            self.broken = {
                BrokerId(one.broker_id): Break(BrokerEpoch(one.broker_epoch), one.unix_nano)
                for one in islice(request.broken_connections.connections, BROKEN_MAX)
            }
        if not request.first_acknowledgements:
            return None
        if now_s - self._since_s >= ACKNOWLEDGEMENTS_S:
            self._since_s, self._taken = now_s, 0
        some = tuple(islice(request.first_acknowledgements, ACKNOWLEDGEMENTS_MAX - self._taken))
        self._taken += len(some)
        if not some:
            return None
        return FirstAcknowledgements(
            acknowledged=tuple(
                (PartitionKey(TopicId(one.topic_id), one.partition), LeaderEpoch(one.leader_epoch), one.unix_nano)
                for one in some
            )
        )


class Lifeline(Protocol):
    """One stream, as far as it is a witness."""

    broker: BrokerId
    """The broker that holds it."""
    epoch: BrokerEpoch
    """Its broker epoch."""
    said: Said
    """What it said."""
    heard_unix_nano: int
    """When it last said anything, by this process's clock."""
    ended_unix_nano: int
    """When it ended, likewise; 0: it has not."""


def signs_of_broker(
    lifelines: Iterable[Lifeline], registered: Mapping[BrokerId, Broker], broker: BrokerId, epoch: BrokerEpoch, own: str
) -> Signs:
    """What was seen of one life of a broker.

    Args:
        lifelines: the newest of each broker.
        registered: live brokers; only these are believed.
        broker: the one.
        epoch: its broker epoch.
        own: election id of this process.
    """
    broken: list[Sign] = []
    heard: list[Sign] = []
    for lifeline in lifelines:
        if lifeline.broker == broker:
            if lifeline.epoch == epoch:
                heard.append(Sign(lifeline.heard_unix_nano, f"last sign of life {own}"))
                if lifeline.ended_unix_nano:
                    broken.append(Sign(lifeline.ended_unix_nano, f"lifeline {own}"))
        elif _is_live(lifeline, registered):
            lost = lifeline.said.broken.get(broker)
            if lost is not None and lost.epoch == epoch:
                broken.append(Sign(lost.unix_nano, f"follower fetch {lifeline.broker}"))
    return Signs(broken=tuple(broken), heard=tuple(heard))


def signs_of_controller(lifelines: Iterable[Lifeline], registered: Mapping[BrokerId, Broker], id: ElectionId) -> Signs:
    """What brokers saw of the end of a controller that reigned before."""
    told = [(lifeline.broker, lifeline.said.former) for lifeline in lifelines if _is_live(lifeline, registered)]
    ends = [(by, end) for by, end in told if end is not None and end.election_id == id]
    return Signs(
        broken=tuple(Sign(end.broken_unix_nano, f"lifeline {by}") for by, end in ends if end.broken_unix_nano),
        heard=tuple(Sign(end.heard_unix_nano, f"last sign of life {by}") for by, end in ends),
    )


def _is_live(lifeline: Lifeline, registered: Mapping[BrokerId, Broker]) -> bool:
    known = registered.get(lifeline.broker)
    return known is not None and known.epoch == lifeline.epoch
