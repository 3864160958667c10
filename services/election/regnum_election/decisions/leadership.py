"""Who leads a partition, and which replicas count as in sync: every decision the controller makes about leaderAndISR.

Goals
    An acknowledged record is never lost, whichever processes die and in whichever order the controller hears of it; a
    partition has a leader whenever some replica can safely be one.

Constraints (safety rules S9, S10, S11; traces T1 to T7)
    - A member of ISR or ELR is a *log*, not a broker: the node records (broker epoch, log id) for each. Only a broker
      whose live registration carries the recorded log id may be elected. Nothing is compared with an earlier
      registration, and nothing the controller remembers takes part.
    - A member whose live broker epoch differs from the recorded one has failed in between, however short it was. It
      leaves the ISR while any member stands that has not. Where it leads, the leader epoch grows, even if it is
      elected again: it may have lost its tail, and two leaders in one epoch would write different records at one
      offset.
    - A member whose broker cannot use its replica (it says so) counts as failed too, until the broker registers anew:
      else a leader that refuses to lead would be told so for ever while complete copies are live.
    - An ISR is never emptied. If nobody may be elected the leader is NO_LEADER and ISR and ELR stay, for the member
      that comes back.
    - An ELR is emptied only under a leader that is intact, with a sufficient ISR; by nothing that elects. Emptied
      while the ISR is wiped, it would be trace T7.

Algorithm (``settle``)
    Each ISR member is *intact* (live, recorded epoch, recorded log), *restorable* (live, recorded log, another epoch)
    or neither; a member whose replica is offline is neither.
    1. The leader is intact: it stays, and the ISR becomes its intact members. Same leader epoch. If those are enough,
       the ELR is emptied: min.insync.replicas was lowered, and the leader commits nothing until then.
    2. Otherwise the leader is, in assignment order: an intact member (the ISR becomes the intact members); else a
       restorable member of the ISR, else of the ELR (the ISR becomes that one alone). Leader epoch + 1, and the
       leader's record takes its live epoch.
    3. Nobody: NO_LEADER, leader epoch + 1 once.
    Brokers that are shutting down come last in each of these.

Example: assignment [1, 2, 3], ISR [1, 2, 3], leader 1. Broker 1 is killed: leader 2, ISR [2, 3], epoch + 1. Broker 3
restarts faster than its session: ISR [2], and with min.insync 2 the ELR is [1, 3]. Now 2 dies: 3 is live with the
recorded log and leads again.

The election order is Kafka's (``PartitionLeaderElectionAlgorithms``); logs and ELR are what its ZooKeeper mode
lacked.
"""

import enum
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from regnum_model.ids import NO_EPOCH, NO_LEADER, BrokerId, ControllerEpoch, LeaderEpoch, TopicId
from regnum_model.insync import may_let_go, with_isr
from regnum_model.nodes import LeaderAndIsr, Membership

from regnum_election.decisions.cluster import Broker


class ChangeKind(enum.Enum):
    """What a new state means to those who must hear of it."""

    ELECTED = "elected"
    """A leader epoch begins: every live replica is told."""
    OFFLINE = "offline"
    """The partition has no leader any more: every live replica is told."""
    ISR_ONLY = "isr only"
    """Same leader and leader epoch, another ISR: the leader alone is told."""


class Refusal(enum.Enum):
    """Why a partition keeps the state it has."""

    NOTHING_TO_CHANGE = "leader and ISR fit the live brokers"
    NO_ELIGIBLE_MEMBER = "no live broker holds a log that ISR or ELR record"
    NO_LIVE_REPLICA = "no assigned broker is live"
    NO_OTHER_MEMBER = "no other in-sync replica can take over"
    BELOW_MIN_INSYNC = "too few in-sync replicas would be left"
    FOLLOWERS_DISAGREE = "not all live members of the ISR, or too few, are cut off from the leader"
    PREFERRED_LEADS = "the preferred replica leads already"
    PREFERRED_NOT_IN_SYNC = "the preferred replica is not live and in sync"
    NEWER_REIGN = "a later controller wrote the state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A decision to write."""

    state: LeaderAndIsr
    """The state to write."""
    kind: ChangeKind
    """What it means."""


Decision = Change | Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a decision looks at besides the partition itself."""

    brokers: Mapping[BrokerId, Broker]
    """Live brokers."""
    leaving: AbstractSet[BrokerId] = frozenset()
    """Live brokers that are shutting down."""
    offline: AbstractSet[BrokerId] = frozenset()
    """Live brokers that cannot use their replica of this partition: damaged files, or a failed disk."""
    controller_epoch: ControllerEpoch
    """Reign of the deciding controller."""

    def is_intact(self, id: BrokerId, members: Mapping[BrokerId, Membership]) -> bool:
        """Whether a member has been up, with its log, ever since it was recorded."""
        broker, member = self._able(id), members[id]
        return broker is not None and broker.epoch == member.broker_epoch and member.log_id in broker.log_ids

    def is_restorable(self, id: BrokerId, members: Mapping[BrokerId, Membership]) -> bool:
        """Whether a member's recorded log is there, after whatever happened in between (safety rule S10)."""
        broker = self._able(id)
        return broker is not None and members[id].log_id in broker.log_ids

    def _able(self, id: BrokerId) -> Broker | None:
        return None if id in self.offline else self.brokers.get(id)

    def first(self, replicas: Sequence[BrokerId], among: Collection[BrokerId]) -> BrokerId | None:
        """First of ``among`` in assignment order; brokers that are shutting down come last."""
        candidates = [id for id in replicas if id in among]
        return next((id for id in candidates if id not in self.leaving), next(iter(candidates), None))


def settle(  # noqa: PLR0911 - each outcome has its own line
    state: LeaderAndIsr, replicas: Sequence[BrokerId], surroundings: Surroundings, *, min_insync: int
) -> Decision:
    """Bring a partition in line with the live registrations.

    For a broker that failed, re-registered (bounced), appeared, and for every partition at the start of a reign.

    Args:
        state: what the node holds.
        replicas: assignment.
        surroundings: live brokers and the reign.
        min_insync: effective min.insync.replicas.
    """
    if state.controller_epoch > surroundings.controller_epoch:
        return Refusal.NEWER_REIGN
    intact = tuple(id for id in state.isr if surroundings.is_intact(id, state.members))
    if state.leader in intact:
        if intact == state.isr and not may_let_go(state, min_insync=min_insync):
            return Refusal.NOTHING_TO_CHANGE
        shrunk = replace(with_isr(state, intact, min_insync=min_insync), controller_epoch=surroundings.controller_epoch)
        return Change(state=shrunk, kind=ChangeKind.ISR_ONLY)
    leader = surroundings.first(replicas, intact)
    if leader is not None:
        return _elected(state, leader, intact, surroundings, min_insync=min_insync)
    for group in (state.isr, state.elr):
        restorable = [id for id in group if surroundings.is_restorable(id, state.members)]
        leader = surroundings.first(replicas, restorable)
        if leader is not None:
            return _elected(state, leader, (leader,), surroundings, min_insync=min_insync)
    if state.leader == NO_LEADER:
        return Refusal.NO_ELIGIBLE_MEMBER
    offline = replace(
        state,
        leader=NO_LEADER,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        controller_epoch=surroundings.controller_epoch,
    )
    return Change(state=offline, kind=ChangeKind.OFFLINE)


def hand_over(
    state: LeaderAndIsr, replicas: Sequence[BrokerId], surroundings: Surroundings, *, min_insync: int
) -> Decision:
    """Take a partition away from brokers that are shutting down (controlled shutdown).

    A leader that leaves is succeeded by an in-sync replica that stays; a follower that leaves is taken out of the ISR.
    The last member is never taken out.
    """
    if state.controller_epoch > surroundings.controller_epoch:
        return Refusal.NEWER_REIGN
    if not surroundings.leaving & set(state.isr):
        return Refusal.NOTHING_TO_CHANGE
    staying = tuple(
        id for id in state.isr if id not in surroundings.leaving and surroundings.is_intact(id, state.members)
    )
    if state.leader in staying:
        shrunk = replace(
            with_isr(state, staying, min_insync=min_insync), controller_epoch=surroundings.controller_epoch
        )
        return Change(state=shrunk, kind=ChangeKind.ISR_ONLY)
    leader = surroundings.first(replicas, staying)
    if leader is None:
        return Refusal.NO_OTHER_MEMBER
    return _elected(state, leader, staying, surroundings, min_insync=min_insync)


def prefer(state: LeaderAndIsr, replicas: Sequence[BrokerId], surroundings: Surroundings) -> Decision:
    """Give leadership back to the preferred replica, if it is in sync."""
    if state.controller_epoch > surroundings.controller_epoch:
        return Refusal.NEWER_REIGN
    preferred = replicas[0]
    if state.leader == preferred:
        return Refusal.PREFERRED_LEADS
    ready = preferred in state.isr and surroundings.is_intact(preferred, state.members)
    if not ready or preferred in surroundings.leaving:
        return Refusal.PREFERRED_NOT_IN_SYNC
    moved = replace(
        state,
        leader=preferred,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        controller_epoch=surroundings.controller_epoch,
    )
    return Change(state=moved, kind=ChangeKind.ELECTED)


def reaffirm(state: LeaderAndIsr, surroundings: Surroundings, *, min_insync: int, known_epoch: LeaderEpoch) -> Decision:
    """Let the leader of a state that a person restored lead on, in an epoch that no broker has seen.

    Its brokers may know later epochs than what was restored, and would refuse that for ever.

    Args:
        state: what the node holds.
        surroundings: live brokers and the reign.
        min_insync: effective min.insync.replicas.
        known_epoch: the highest leader epoch that the controller knows of.
    """
    if state.controller_epoch > surroundings.controller_epoch:
        return Refusal.NEWER_REIGN
    if state.leader == NO_LEADER or not surroundings.is_intact(state.leader, state.members):
        return Refusal.NO_ELIGIBLE_MEMBER
    intact = tuple(id for id in state.isr if surroundings.is_intact(id, state.members))
    seen = replace(state, leader_epoch=max(state.leader_epoch, known_epoch))
    return _elected(seen, state.leader, intact, surroundings, min_insync=min_insync)


def first_state(
    topic_id: TopicId,
    replicas: Sequence[BrokerId],
    surroundings: Surroundings,
    *,
    after: LeaderEpoch = NO_EPOCH,
) -> Decision:
    """First leader of a partition that never had one: all live replicas are in sync, nothing was there to miss.

    Only for partitions marked ``creating`` (safety rule S14); the caller sees to that.

    Args:
        topic_id: its topic.
        replicas: assignment.
        surroundings: live brokers and the reign.
        after: last leader epoch of a removed partition of the same number; NO_EPOCH: there was none (safety rule S2).
    """
    live = [id for id in replicas if id in surroundings.brokers and id not in surroundings.offline]
    ready = [id for id in live if id not in surroundings.leaving] or live
    if not ready:
        return Refusal.NO_LIVE_REPLICA
    state = LeaderAndIsr(
        topic_id=topic_id,
        leader=ready[0],
        leader_epoch=LeaderEpoch(after + 1),
        isr=tuple(ready),
        elr=(),
        members={id: _live_membership(surroundings.brokers[id]) for id in ready},
        controller_epoch=surroundings.controller_epoch,
    )
    return Change(state=state, kind=ChangeKind.ELECTED)


def _live_membership(broker: Broker) -> Membership:
    # A broker with several directories would have to say where it places the replica; they have one each.
    return Membership(broker_epoch=broker.epoch, log_id=min(broker.log_ids))


def _elected(
    state: LeaderAndIsr,
    leader: BrokerId,
    isr: tuple[BrokerId, ...],
    surroundings: Surroundings,
    *,
    min_insync: int,
) -> Change:
    # The leader's record carries its live broker epoch: whoever compares later must not take it for bounced again.
    renewed = Membership(broker_epoch=surroundings.brokers[leader].epoch, log_id=state.members[leader].log_id)
    elected = replace(
        with_isr(state, isr, min_insync=min_insync, joining={leader: renewed}, keep_eligible=True),
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        controller_epoch=surroundings.controller_epoch,
    )
    return Change(state=elected, kind=ChangeKind.ELECTED)


def removed_state(
    topic_id: TopicId, known: LeaderAndIsr | None, epoch: ControllerEpoch, *, at_least: LeaderEpoch = NO_EPOCH
) -> LeaderAndIsr:
    """The tombstone of a removed partition: nobody leads it, and whatever its last leader still writes is refused.

    Args:
        topic_id: its topic.
        known: its last state; None: it had none.
        epoch: reign of the deciding controller.
        at_least: a leader epoch that brokers may know of it.
    """
    last = max(NO_EPOCH if known is None else known.leader_epoch, at_least)
    return LeaderAndIsr(
        topic_id=topic_id,
        leader=NO_LEADER,
        leader_epoch=LeaderEpoch(last + 1),
        isr=(),
        elr=(),
        members={},
        controller_epoch=epoch,
        removed=True,
    )
