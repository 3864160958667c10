"""Eligible replicas while min.insync.replicas changes under them (safety rule S10).

Controllers with different values, leaders that were told another one, kills, wiped logs and stale pictures, in any
order: whoever may be elected holds everything that was acknowledged, and no complete copy is forgotten while the
leader is gone (trace T7).
"""

import random
from dataclasses import dataclass, field, replace

import pytest
from regnum_broker.replication.decisions.isr import FollowerProgress, may_join
from regnum_broker.replication.decisions.watermark import advanced
from regnum_election.decisions.cluster import Broker
from regnum_election.decisions.leadership import Change, Decision, Surroundings, hand_over, prefer, reaffirm, settle
from regnum_model.ids import NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, LogId
from regnum_model.insync import may_let_go, with_isr
from regnum_model.nodes import LeaderAndIsr, Membership
from regnum_testing.election_values import broker, replicas, state

IDS = replicas(1, 2, 3, 4)
STEPS = 120


@dataclass
class Replica:
    """One broker, as it really is."""

    id: BrokerId
    epoch: int
    log_id: LogId
    live: bool = True
    log: list[int] = field(default_factory=list)
    known_epoch: int = -1

    @property
    def membership(self) -> Membership:
        return Membership(broker_epoch=BrokerEpoch(self.epoch), log_id=self.log_id)


@dataclass
class Leading:
    """A leadership as the leader sees it."""

    replica: Replica
    epoch_of_broker: int
    state: LeaderAndIsr
    version: int
    min_insync: int
    high_watermark: int
    followers: dict[BrokerId, FollowerProgress]
    fetched_at: dict[BrokerId, int]
    epoch_start: int


class History:
    """One partition, its brokers, controllers and leaders, step by step."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.replicas = {id: Replica(id=id, epoch=id, log_id=LogId(f"log-{id}")) for id in IDS}
        self.state = state(1, IDS, epoch=0)
        self.version = 0
        self.epochs = 10
        self.records = 0
        self.min_insync = 2
        self.picture: dict[BrokerId, Broker] = {}
        self.leading: Leading | None = None
        self.acknowledged: list[int] = []
        self.story: list[str] = []
        self.look()
        self.tell()

    def tell_story(self, what: str) -> None:
        self.story.append(f"{what}; leader {self.state.leader} isr {self.state.isr} elr {self.state.elr}")

    # Brokers.

    def kill(self) -> None:
        replica = self.chance.choice(list(self.replicas.values()))
        if replica.live:
            replica.live = False
            if self.chance.random() < 0.3:
                replica.log, replica.log_id = [], LogId(f"log-{replica.id}-{self.epochs}")

    def start(self) -> None:
        replica = self.chance.choice(list(self.replicas.values()))
        if not replica.live:
            self.epochs += 1
            replica.live, replica.epoch = True, self.epochs

    # The controller.

    def look(self) -> None:
        self.picture = {
            id: broker(id, epoch=replica.epoch, log=replica.log_id)
            for id, replica in self.replicas.items()
            if replica.live
        }

    def other_value(self) -> None:
        self.min_insync = self.chance.choice((1, 2, 3, 4))

    def around(self, *, leaving: frozenset[BrokerId] = frozenset()) -> Surroundings:
        return Surroundings(
            brokers=self.picture, leaving=leaving & self.picture.keys(), controller_epoch=ControllerEpoch(1)
        )

    def decide(self) -> Decision:
        match self.chance.choice(("settle", "settle", "settle", "prefer", "hand over", "reaffirm")):
            case "prefer":
                return prefer(self.state, IDS, self.around())
            case "hand over":
                around = self.around(leaving=frozenset({self.chance.choice(IDS)}))
                return hand_over(self.state, IDS, around, min_insync=self.min_insync)
            case "reaffirm":
                known = LeaderEpoch(self.state.leader_epoch)
                return reaffirm(self.state, self.around(), min_insync=self.min_insync, known_epoch=known)
            case _:
                return settle(self.state, IDS, self.around(), min_insync=self.min_insync)

    def control(self) -> None:
        decision = self.decide()
        if isinstance(decision, Change):
            lets_go = self.state.elr and not decision.state.elr
            if lets_go and not all(self.is_as_recorded(id, decision.state) for id in decision.state.isr):
                return  # the write names their registrations
            self.write(decision.state)
            if self.chance.random() < 0.7:
                self.tell()

    def tell(self) -> None:
        replica = self.replicas.get(self.state.leader)
        leading = self.leading
        if replica is None or not replica.live:
            return
        if leading is not None and leading.replica is replica and leading.epoch_of_broker == replica.epoch:
            leading.min_insync = self.min_insync
            if leading.state.leader_epoch == self.state.leader_epoch:
                if self.version > leading.version:
                    leading.state, leading.version = self.state, self.version
                self.advance()
                return
        if self.state.leader_epoch <= replica.known_epoch:
            return
        if self.state.members[replica.id].log_id != replica.log_id:
            return
        replica.known_epoch = self.state.leader_epoch
        held = min(len(self.acknowledged), len(replica.log))
        self.leading = Leading(
            replica=replica,
            epoch_of_broker=replica.epoch,
            state=self.state,
            version=self.version,
            min_insync=self.min_insync,
            high_watermark=self.chance.randint(0, held),
            followers={},
            fetched_at={},
            epoch_start=len(replica.log),
        )
        self.advance()

    # The leader.

    def leader(self) -> Leading | None:
        leading = self.leading
        if leading is None or not leading.replica.live or leading.replica.epoch != leading.epoch_of_broker:
            return None
        return leading

    def produce(self) -> None:
        leading = self.leader()
        if leading is not None:
            self.records += 1
            leading.replica.log.append(self.records)
            self.advance()

    def fetch(self) -> None:
        leading, follower = self.leader(), self.replicas[self.chance.choice(IDS)]
        if leading is None or not follower.live or follower is leading.replica:
            return
        if follower.known_epoch > leading.state.leader_epoch:
            return
        follower.known_epoch = leading.state.leader_epoch
        follower.log = list(leading.replica.log)
        leading.fetched_at[follower.id] = follower.epoch
        leading.followers[follower.id] = FollowerProgress(log_end_offset=len(follower.log))
        self.advance()

    def advance(self) -> None:
        leading = self.leader()
        if leading is None:
            return
        before = leading.high_watermark
        leading.high_watermark = advanced(
            before,
            leader=leading.replica.id,
            leader_end=len(leading.replica.log),
            counted=leading.state.isr,
            followers=leading.followers,
            state=leading.state,
            min_insync=leading.min_insync,
        )
        if leading.high_watermark > before:
            committed = leading.replica.log[: leading.high_watermark]
            known = self.acknowledged
            assert committed[: len(known)] == known[: len(committed)], self.story
            self.acknowledged = max(known, committed, key=len)

    def write_isr(self) -> None:
        """Shrinks, joins, lets go: under the leader's own min.insync.replicas."""
        leading = self.leader()
        if leading is None:
            return
        known, own = leading.state, leading.replica
        joining: dict[BrokerId, Membership] = {}
        isr = list(known.isr)
        other = self.chance.choice(IDS)
        if other in isr and other != own.id and self.chance.random() < 0.5:
            isr.remove(other)
        elif other not in isr:
            follower, progress = self.replicas[other], leading.followers.get(other)
            if progress is None or not follower.live or leading.fetched_at[other] != follower.epoch:
                return  # the write names the registration of its fetches
            end = len(leading.replica.log)
            if not may_join(progress, end, high_watermark=leading.high_watermark, epoch_start=leading.epoch_start):
                return
            isr.append(other)
            joining[other] = follower.membership
        changed = with_isr(known, isr, min_insync=leading.min_insync, joining=joining)
        if changed == known or leading.version != self.version:
            if leading.version != self.version and self.state.leader_epoch == known.leader_epoch:
                leading.state, leading.version = self.state, self.version
                self.advance()
            return
        self.write(changed)
        leading.state, leading.version = self.state, self.version
        self.advance()

    # What must hold.

    def is_as_recorded(self, id: BrokerId, state: LeaderAndIsr) -> bool:
        replica = self.replicas[id]
        return replica.live and replica.membership == state.members[id]

    def write(self, after: LeaderAndIsr) -> None:
        before = self.state
        forgotten = set(before.elr) - {*after.isr, *after.elr}
        if forgotten:
            assert after.leader != NO_LEADER, self.story
            leader = self.replicas[after.leader]
            assert leader.live, (forgotten, self.story)
            assert leader.log_id == after.members[leader.id].log_id, (forgotten, self.story)
            assert after.leader_epoch == before.leader_epoch, self.story
        self.state, self.version = after, self.version + 1

    def check(self) -> None:
        for id in (*self.state.isr, *self.state.elr):
            replica = self.replicas[id]
            if replica.log_id == self.state.members[id].log_id:
                held = replica.log[: len(self.acknowledged)]
                assert held == self.acknowledged, f"{id} may be elected without all records: {self.story}"


@pytest.mark.parametrize("block", range(8))
def test_whoever_may_be_elected_holds_what_was_acknowledged(block: int) -> None:
    acknowledged = let_go = 0
    for seed in range(block * 60, block * 60 + 60):
        history = History(seed)
        steps = (
            history.kill,
            history.start,
            history.start,
            history.look,
            history.look,
            history.other_value,
            history.control,
            history.control,
            history.control,
            history.tell,
            history.tell,
            history.produce,
            history.fetch,
            history.fetch,
            history.fetch,
            history.write_isr,
            history.write_isr,
        )
        for _ in range(STEPS):
            step = history.chance.choice(steps)
            had_eligible = bool(history.state.elr)
            step()
            let_go += had_eligible and not history.state.elr
            history.tell_story(step.__name__)
            history.check()
        acknowledged += len(history.acknowledged)
    assert acknowledged > 60, "the histories acknowledge something"
    assert let_go > 20, "the histories empty lists of eligible replicas"


def test_min_insync_lowered_by_the_next_controller_forgets_no_record() -> None:
    """3 dies under min 3; the next controllers say 2, and 1 goes on leading; 1 and 2 die and lose their logs."""
    under_three = settle(state(1, [1, 2, 3]), IDS[:3], around(1, 2), min_insync=3)
    assert isinstance(under_three, Change)
    assert (under_three.state.isr, under_three.state.elr) == ((1, 2), (3,))
    lowered = settle(under_three.state, IDS[:3], around(1, 2), min_insync=2)
    assert isinstance(lowered, Change)
    assert (lowered.state.isr, lowered.state.elr, lowered.state.leader_epoch) == ((1, 2), (), 5)
    only_three = settle(lowered.state, IDS[:3], around(3), min_insync=2)
    assert isinstance(only_three, Change)
    assert only_three.state.leader == NO_LEADER


def test_nothing_that_elects_empties_the_list() -> None:
    """Who is elected has not said yet that it leads, and may be gone already."""
    before = state(1, [1, 2], elr=[3])
    for decision in (
        settle(before, IDS[:3], Surroundings(brokers=live(2), controller_epoch=ControllerEpoch(1)), min_insync=1),
        prefer(replace(before, leader=BrokerId(2)), IDS[:3], around(1, 2)),
        hand_over(before, IDS[:3], replace(around(1, 2), leaving=frozenset({BrokerId(1)})), min_insync=1),
        reaffirm(before, around(1, 2), min_insync=2, known_epoch=LeaderEpoch(9)),
    ):
        assert isinstance(decision, Change)
        assert 3 in decision.state.elr
        assert decision.state.leader_epoch > before.leader_epoch


def test_the_list_is_not_emptied_while_the_isr_is_wiped() -> None:
    """Trace T7 with a lowered value: 1 leads alone under min 1, is wiped, and 2 and 3 hold everything."""
    wiped = {BrokerId(1): broker(1, epoch=20, log="wiped"), **live(2, 3)}
    before = state(1, [1], elr=[2, 3])
    decision = settle(before, IDS[:3], Surroundings(brokers=wiped, controller_epoch=ControllerEpoch(1)), min_insync=1)
    assert isinstance(decision, Change)
    assert (decision.state.leader, decision.state.isr, decision.state.elr) == (2, (2,), (1, 3))


def test_an_insufficient_isr_keeps_its_list() -> None:
    decision = settle(state(1, [1], elr=[2]), IDS[:2], around(1), min_insync=2)
    assert not isinstance(decision, Change)
    assert not may_let_go(state(1, [1], elr=[2]), min_insync=2)


def live(*ids: int) -> dict[BrokerId, Broker]:
    return {BrokerId(id): broker(id) for id in ids}


def around(*ids: int) -> Surroundings:
    return Surroundings(brokers=live(*ids), controller_epoch=ControllerEpoch(1))
