"""What an order of the controller means for a replica here. Pure.

Goals: orders may come late, twice and in any sequence, from a controller that has been replaced or that has seen only
a part; whatever comes, two brokers never lead one partition in the same leader epoch, and no broker leads with a log
that lost records.

Algorithm, after controller epoch and broker epoch have been checked for the whole message: a lower leader epoch is
old and ignored. The same leader epoch with a higher version of the node changes the ISR and nothing else; with the
same or a lower version the state is known already, and only settings can be new: min.insync.replicas is no part of
the node. A higher leader epoch is a new role. A broker leads only in an epoch
above every epoch that its log has recorded (safety rule S11: it never takes up an old one), and only with the very
log that the node records for it (S10).

Example: a broker was killed as leader in epoch 7 and has come back. INIT names it leader in epoch 7: refused, its
journal has 7 already. The controller elects it again: epoch 8, taken.
"""

import enum
from dataclasses import dataclass

from regnum_model.ids import BrokerId, LeaderEpoch, LogId
from regnum_model.nodes import LeaderAndIsr


class Verdict(enum.Enum):
    """What to do with an order."""

    NEW_ROLE = "new role"
    """Take the role of the order."""
    ISR_ONLY = "isr only"
    """Keep the role; take ISR, members and version."""
    SETTINGS_ONLY = "settings only"
    """Keep role and state; take min.insync.replicas; answer NONE."""
    KNOWN = "known"
    """Nothing to do; answer NONE."""
    FENCED = "fenced"
    """Named leader in an epoch that this log already knows: refuse."""
    OTHER_LOG = "other log"
    """Named leader by a record that means another log than the one here: refuse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a replica stands before an order."""

    leader_epoch: LeaderEpoch
    """Leader epoch of the newest order that was carried out in this run of the broker; NO_EPOCH before the first."""
    version: int
    """Version of the leaderAndISR node it carried."""
    recorded_epoch: LeaderEpoch
    """Highest leader epoch in the replica's log and journal; NO_EPOCH for an empty one."""
    active: bool
    """Whether it has a role. It has none before the first order, after StopReplica, and when the broker gave its
    leadership up because it registered anew (safety rule S11) or was deposed."""


def judge(standing: Standing, state: LeaderAndIsr, *, version: int, broker: BrokerId, log_id: LogId) -> Verdict:
    """What an order means.

    Args:
        standing: where the replica stands.
        state: the state that the order carries.
        version: version of the node that holds it.
        broker: own id.
        log_id: log id of the directory the replica is or will be in.
    """
    if state.leader_epoch == standing.leader_epoch and standing.active:
        return Verdict.ISR_ONLY if version > standing.version else Verdict.SETTINGS_ONLY
    if (state.leader_epoch, version) < (standing.leader_epoch, standing.version):
        return Verdict.KNOWN
    if state.leader != broker:
        return Verdict.NEW_ROLE
    if state.leader_epoch <= max(standing.recorded_epoch, standing.leader_epoch):
        return Verdict.FENCED
    member = state.members.get(broker)
    if member is None or member.log_id != log_id:
        return Verdict.OTHER_LOG
    return Verdict.NEW_ROLE
