"""How a partition gets to other brokers, whatever happens on the way (seed 001 F; safety rules S3, S10, S15).

The model: a leader that adds caught-up followers to the ISR and takes laggards out, brokers that die, lose their logs,
come back and bounce, a controller that settles and moves on, and callers who redirect and cancel. Records are
acknowledged when the ISR has them all; each log is a set of them.
"""

import random
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map
from regnum.types.v1 import errors_pb2
from regnum_election.decisions.cluster import Broker, HeldState, Partition
from regnum_election.decisions.leadership import Change, Surroundings, settle
from regnum_election.decisions.rejection import Rejection
from regnum_election.reassignment.decisions import (
    Assigned,
    Grow,
    Shrink,
    Wait,
    is_grown,
    next_step,
    requested,
)
from regnum_model.ids import (
    NO_LEADER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    LogId,
    Registration,
    TopicId,
)
from regnum_model.insync import effective_min_insync, may_commit, with_isr
from regnum_model.nodes import Address, LeaderAndIsr, Membership, TopicNode
from regnum_model.reassignment import Reassignment

TOPIC_ID = TopicId("T" * 22)
CONFIGURED = 2
HERE = Address(host="h", port=1)


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def broker(id: int, epoch: int = 10, log: str | None = None) -> Broker:
    return Broker(
        id=BrokerId(id),
        epoch=BrokerEpoch(epoch),
        registration=Registration(0),
        node_version=0,
        rack=None,
        log_ids=frozenset({LogId(log or f"log-{id}")}),
        client=HERE,
        internal=HERE,
    )


def held(leader: int, isr: tuple[BrokerId, ...], *, elr: tuple[BrokerId, ...] = ()) -> HeldState:
    members = {id: Membership(broker_epoch=BrokerEpoch(10), log_id=LogId(f"log-{id}")) for id in (*isr, *elr)}
    return HeldState(
        state=LeaderAndIsr(
            topic_id=TOPIC_ID,
            leader=BrokerId(leader),
            leader_epoch=LeaderEpoch(5),
            isr=isr,
            elr=elr,
            members=members,
            controller_epoch=ControllerEpoch(1),
        ),
        version=3,
    )


def live(*numbers: int) -> Surroundings:
    return Surroundings(brokers=Map({BrokerId(id): broker(id) for id in numbers}), controller_epoch=ControllerEpoch(1))


def moving(
    origin: tuple[BrokerId, ...], target: tuple[BrokerId, ...], isr: tuple[BrokerId, ...], leader: int
) -> Partition:
    move = Reassignment(origin=origin, target=target, since_ms=7)
    return Partition(replicas=move.kept, held=held(leader, isr), reassignment=move)


def test_it_grows_to_the_old_and_the_new_replicas_when_there_is_a_place() -> None:
    move = Reassignment(origin=ids(1, 2), target=ids(2, 3))
    partition = Partition(replicas=ids(1, 2), held=held(1, ids(1, 2)), reassignment=move)
    assert isinstance(next_step(partition, live(1, 2, 3), min_insync=2, may_grow=False), Wait)
    step = next_step(partition, live(1, 2, 3), min_insync=2, may_grow=True)
    assert step == Grow(assigned=Assigned(replicas=ids(1, 2, 3), reassignment=move))


def test_it_is_switched_when_every_target_replica_is_in_sync_and_not_before() -> None:
    """KAFKA-15665: two of three are not enough."""
    origin, target = ids(1, 2, 3), ids(4, 5, 6)
    early = next_step(moving(origin, target, ids(1, 2, 4, 5), 1), live(1, 2, 3, 4, 5, 6), min_insync=2, may_grow=True)
    assert early == Wait(reason="brokers [6] are not in sync yet")
    step = next_step(moving(origin, target, ids(1, 4, 5, 6), 1), live(1, 2, 3, 4, 5, 6), min_insync=2, may_grow=True)
    assert isinstance(step, Shrink)
    assert step.assigned == Assigned(replicas=target, reassignment=None)
    assert step.leaving == origin
    assert step.state is not None
    assert (step.state.leader, step.state.leader_epoch, step.state.isr) == (4, 6, target)
    assert set(step.state.members) == set(target)


def test_a_leader_that_stays_leads_on_in_a_new_epoch() -> None:
    """The leader of the epoch before may not know the assignment, and would let an old replica join again."""
    step = next_step(moving(ids(1, 2), ids(3, 2), ids(1, 2, 3), 2), live(1, 2, 3), min_insync=2, may_grow=True)
    assert isinstance(step, Shrink)
    assert step.state is not None
    assert (step.state.leader, step.state.leader_epoch) == (2, 6)


def test_more_replicas_than_before_change_the_assignment_alone() -> None:
    step = next_step(moving(ids(1), ids(1, 2, 3), ids(1, 2, 3), 1), live(1, 2, 3), min_insync=1, may_grow=True)
    assert step == Shrink(assigned=Assigned(replicas=ids(1, 2, 3), reassignment=None), state=None, leaving=())


def test_a_dead_target_is_waited_for_by_name() -> None:
    step = next_step(moving(ids(1, 2), ids(2, 3), ids(1, 2), 1), live(1, 2), min_insync=2, may_grow=True)
    assert step == Wait(reason="brokers [3] are not live; start them, or cancel it")


def test_cancelled_it_goes_back_without_the_new_replicas() -> None:
    partition = moving(ids(1, 2, 3), ids(3, 4), ids(1, 2, 3, 4), 4)
    asked = requested(partition, None, brokers=live(1, 2, 3, 4).brokers, now_ms=9)
    assert isinstance(asked, Assigned)
    back = replace(partition, replicas=asked.replicas, reassignment=asked.reassignment)
    step = next_step(back, live(1, 2, 3, 4), min_insync=2, may_grow=False)
    assert isinstance(step, Shrink)
    assert step.assigned == Assigned(replicas=ids(1, 2, 3), reassignment=None)
    assert step.leaving == ids(4)
    assert step.state is not None
    assert (step.state.leader, step.state.isr) == (1, ids(1, 2, 3))


def test_cancelled_it_keeps_a_new_replica_that_alone_has_a_second_copy() -> None:
    move = Reassignment(origin=ids(1, 2, 3), target=ids(1, 2, 3))
    partition = Partition(replicas=ids(1, 2, 3, 4), held=held(1, ids(1, 4)), reassignment=move)
    step = next_step(partition, live(1, 4), min_insync=2, may_grow=False)
    assert step == Wait(reason="1 of 2 needed replicas that stay are in sync; [2, 3] are not")


def test_it_waits_while_a_replica_that_would_go_may_have_what_the_isr_lacks() -> None:
    partition = moving(ids(1, 2), ids(3), ids(3), 3)
    partition = replace(partition, held=held(3, ids(3), elr=ids(1)))
    step = next_step(partition, live(1, 2, 3), min_insync=2, may_grow=False)
    assert isinstance(step, Wait)
    assert "may have records" in step.reason


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT),
        ((1, -2), errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT),
        (None, errors_pb2.ERROR_CODE_NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(target: tuple[int, ...] | None, code: int) -> None:
    partition = Partition(replicas=ids(1, 2), held=held(1, ids(1, 2)))
    wanted = None if target is None else ids(*target)
    refused = requested(partition, wanted, brokers=live(1, 2, 3).brokers, now_ms=1)
    assert isinstance(refused, Rejection)
    assert refused.code == code


def test_a_damaged_replica_does_not_come_back_before_it_is_deleted_while_somebody_leads() -> None:
    wish = partial(requested, target=ids(1, 2, 3), brokers=live(1, 2, 3).brokers, now_ms=1)
    led = Partition(replicas=ids(2, 3), held=held(2, ids(2, 3)))
    refused = wish(led, damaged=ids(1))
    assert isinstance(refused, Rejection)
    assert "brokers [1] have still to delete" in refused.message
    assert isinstance(wish(led), Assigned)
    leaderless = Partition(replicas=ids(2, 3), held=held(-1, ids(2, 3)))
    assert isinstance(wish(leaderless, damaged=ids(1)), Assigned), "it may be the last there is, and is not deleted"


def test_what_is_so_already_changes_nothing() -> None:
    partition = Partition(replicas=ids(1, 2), held=held(1, ids(1, 2)))
    assert requested(partition, ids(1, 2), brokers=live(1, 2).brokers, now_ms=1) is None
    going = moving(ids(1, 2), ids(3), ids(1, 2), 1)
    assert requested(going, ids(3), brokers=live(1, 2, 3).brokers, now_ms=1) is None


def test_another_target_replaces_the_open_one_and_the_origin_stays() -> None:
    asked = requested(
        moving(ids(1, 2), ids(3, 4), ids(1, 2, 3), 1), ids(5), brokers=live(1, 2, 3, 4, 5).brokers, now_ms=8
    )
    assert asked == Assigned(
        replicas=ids(1, 2, 3, 4), reassignment=Reassignment(origin=ids(1, 2), target=ids(5), since_ms=7)
    )


def test_one_that_waits_is_called_back_at_once() -> None:
    move = Reassignment(origin=ids(1, 2), target=ids(3))
    partition = Partition(replicas=ids(1, 2), held=held(1, ids(1, 2)), reassignment=move)
    assert requested(partition, None, brokers=live(1, 2).brokers, now_ms=1) == Assigned(
        replicas=ids(1, 2), reassignment=None
    )


BROKERS = (1, 2, 3, 4, 5)


@dataclass
class World:
    """One partition, its brokers, and everything that was ever acknowledged."""

    chance: random.Random
    partition: Partition
    brokers: dict[BrokerId, Broker]
    logs: dict[BrokerId, set[int]]
    acked: set[int] = field(default_factory=set)
    written: int = 0
    next_epoch: int = 100
    min_before: int = CONFIGURED

    @property
    def state(self) -> LeaderAndIsr:
        assert self.partition.held is not None
        return self.partition.held.state

    @property
    def min_insync(self) -> int:
        move = self.partition.reassignment
        return effective_min_insync(CONFIGURED, len(self.partition.replicas if move is None else move.origin))

    def surroundings(self) -> Surroundings:
        return Surroundings(brokers=Map(self.brokers), controller_epoch=ControllerEpoch(1))

    def put(self, state: LeaderAndIsr) -> None:
        assert self.partition.held is not None
        assert state.leader_epoch >= self.state.leader_epoch
        if state.leader_epoch > self.state.leader_epoch and state.leader != NO_LEADER:
            # Followers cut what the new leader does not have: nothing acknowledged may be among it.
            assert self.acked <= self.logs[state.leader], "an acknowledged record is lost"
        self.partition = replace(self.partition, held=HeldState(state=state, version=self.partition.held.version + 1))

    # What happens.

    def leader_works(self) -> None:
        """Append, replicate, let join, acknowledge."""
        leader = self.state.leader
        if leader not in self.brokers or not self.surroundings().is_intact(leader, self.state.members):
            return
        for id in self.partition.replicas:
            if id != leader and id in self.brokers and self.chance.random() < 0.7:
                self.logs[id] = set(self.logs[leader])
        if self.chance.random() < 0.6:
            self.written += 1
            self.logs[leader].add(self.written)
            for id in self.state.isr:
                if id in self.brokers and self.chance.random() < 0.8:
                    self.logs[id] = set(self.logs[leader])
        everybody = all(self.logs[id] >= self.logs[leader] for id in self.state.isr)
        if everybody and may_commit(self.state, min_insync=self.min_insync):
            self.acked |= self.logs[leader]
        joining = {
            id: Membership(broker_epoch=self.brokers[id].epoch, log_id=min(self.brokers[id].log_ids))
            for id in self.partition.replicas
            if id in self.brokers and id not in self.state.isr and self.logs[id] >= self.logs[leader]
        }
        if joining and self.chance.random() < 0.7:
            self.put(with_isr(self.state, (*self.state.isr, *joining), min_insync=self.min_insync, joining=joining))

    def leader_shrinks(self) -> None:
        leader = self.state.leader
        others = [id for id in self.state.isr if id != leader]
        if leader in self.brokers and others and self.surroundings().is_intact(leader, self.state.members):
            gone = self.chance.choice(others)
            rest = tuple(id for id in self.state.isr if id != gone)
            self.put(with_isr(self.state, rest, min_insync=self.min_insync))

    def dies(self) -> None:
        if self.brokers:
            del self.brokers[self.chance.choice(sorted(self.brokers))]

    def comes(self) -> None:
        away = [BrokerId(id) for id in BROKERS if BrokerId(id) not in self.brokers]
        if away:
            id = self.chance.choice(away)
            self.next_epoch += 1
            self.brokers[id] = broker(id, self.next_epoch)

    def settles(self) -> None:
        decided = settle(self.state, self.partition.replicas, self.surroundings(), min_insync=self.min_insync)
        if isinstance(decided, Change):
            self.put(decided.state)

    def moves_on(self) -> None:
        if self.partition.reassignment is None:
            return
        before, state, copies = self.partition, self.state, self.copies()
        step = next_step(before, self.surroundings(), min_insync=self.min_insync, may_grow=self.chance.random() < 0.8)
        match step:
            case Grow(assigned=assigned):
                assert set(assigned.replicas) >= set(before.replicas)
                self.assign(assigned)
            case Shrink(assigned=assigned, state=after, leaving=leaving):
                assert set(leaving) == set(before.replicas) - set(assigned.replicas)
                self.assign(assigned)
                if after is not None:
                    assert after.leader_epoch == state.leader_epoch + 1
                    self.put(after)
                else:
                    assert not leaving or state.leader == NO_LEADER
                for id in leaving:
                    # Deleted, whoever has what.
                    self.logs[id] = set()
                assert self.copies() >= min(copies, self.min_insync), "fewer copies than before, and than promised"
            case Wait():
                pass

    def copies(self) -> int:
        """Members that have everything that was acknowledged."""
        return sum(self.acked <= self.logs[id] for id in (*self.state.isr, *self.state.elr))

    def assign(self, assigned: Assigned) -> None:
        self.partition = replace(self.partition, replicas=assigned.replicas, reassignment=assigned.reassignment)

    def is_asked(self) -> None:
        target: tuple[BrokerId, ...] | None = None
        if self.chance.random() < 0.75:
            target = ids(*self.chance.sample(BROKERS, self.chance.randint(1, 3)))
        asked = requested(self.partition, target, brokers=self.brokers, now_ms=1)
        if isinstance(asked, Assigned):
            self.assign(asked)

    def check(self) -> None:
        state, replicas = self.state, self.partition.replicas
        assert state.isr, "an ISR is never empty"
        assert state.leader == NO_LEADER or state.leader in state.isr
        assert set(state.isr) | set(state.elr) <= set(replicas), "who is not assigned is not in sync"
        assert set(state.members) == set(state.isr) | set(state.elr)
        move = self.partition.reassignment
        if move is not None:
            assert set(move.origin) <= set(replicas), "the old replicas stay until the switch"
            node = TopicNode(topic_id=TOPIC_ID, partitions={0: replicas}, reassigning={0: move})
            assert TopicNode.decode(node.encode()) == node, "the store can say it"
        assert self.copies() >= 1
        if state.leader != NO_LEADER and may_commit(state, min_insync=self.min_insync):
            assert sum(self.acked <= self.logs[id] for id in state.isr) >= self.min_insync, "fewer copies than promised"


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(20, 150))
def test_whatever_happens_on_the_way_nothing_acknowledged_is_lost(seed: int, steps: int) -> None:
    """Kills keep the log (safety rule S10); a broker that comes back has what it had, and its leader's tail is cut."""
    chance = random.Random(seed)
    first = ids(1, 2, 3)
    world = World(
        chance=chance,
        partition=Partition(replicas=first, held=held(1, first)),
        brokers={BrokerId(id): broker(id) for id in BROKERS},
        logs={BrokerId(id): set() for id in BROKERS},
    )
    events = (
        (world.leader_works, 10),
        (world.leader_shrinks, 1),
        (world.dies, 1),
        (world.comes, 2),
        (world.settles, 4),
        (world.moves_on, 6),
        (world.is_asked, 2),
    )
    for _ in range(steps):
        (event,) = chance.choices([one for one, _ in events], [weight for _, weight in events])
        event()
        world.check()
    # Everybody comes back and nobody asks for anything more: it arrives.
    for id in BROKERS:
        if BrokerId(id) not in world.brokers:
            world.next_epoch += 1
            world.brokers[BrokerId(id)] = broker(id, world.next_epoch)
    for _ in range(400):
        world.settles()
        world.leader_works()
        world.moves_on()
        world.check()
        if world.partition.reassignment is None:
            break
    assert world.partition.reassignment is None, "it never arrives"
    assert not is_grown(world.partition)
