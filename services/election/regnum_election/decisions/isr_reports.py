"""What leaders report of ISRs that they wrote (safety rule S16): what of it is believed, what is read. Pure.

Goals: a broker that comes back, and joins thousands of ISRs, costs no read for each of them; a failure that is seen
meanwhile waits for one step.

Constraint: the picture is what decisions are made from, and every write names the version it was made from. A node
that is believed without a read must therefore be what the store holds at that version.

Algorithm: a report carries the node and its version. It is *known* if the picture has that version with that content.
It is *believed* if the version is higher and it comes from the leader that the picture records, in the leader epoch
and the reign that it records, over a lifeline that speaks for the leader's live registration, which the state records
too: nobody else's ISR write can have succeeded since (safety rule S3). Everything else is read, as of now: also a
version that went back, which means that a person made the node anew, and one that is far ahead.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, PartitionKey

from regnum_election.decisions.cluster import Cluster, HeldState, Partition
from regnum_election.decisions.topic_nodes import FoundNode, judge_state

VERSIONS_AHEAD_MAX: Final = 1_000
"""ISR writes of one leader between two of its reports; what claims more is not believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedNode:
    """A leaderAndISR node as a leader says that it wrote it."""

    broker: BrokerId
    """Who says so."""
    epoch: BrokerEpoch
    """Broker epoch that its lifeline speaks for."""
    version: int
    """Version of the node."""
    data: bytes
    """Content of the node."""


class Unbelieved(Enum):
    """Reports that change nothing by themselves."""

    KNOWN = "the picture has this very node"
    READ = "read what the node holds"


def judge_report(
    key: PartitionKey, partition: Partition, report: ReportedNode | None, picture: Cluster, reign: ControllerEpoch
) -> HeldState | Unbelieved:
    """What a report of a partition of the picture is worth; see the algorithm above.

    Args:
        key: the partition.
        partition: what the picture says of it.
        report: what its leader says; None: nothing but that there is something to read.
        picture: the live brokers.
        reign: controller epoch of the reader.
    """
    held = partition.held
    if report is None or held is None or partition.trouble is not None:
        return Unbelieved.READ
    found = FoundNode(data=report.data, version=report.version)
    said = judge_state(key.topic_id, found, creating=False, reign=reign)
    if not isinstance(said, HeldState):
        return Unbelieved.READ
    if said == held:
        return Unbelieved.KNOWN
    is_next = held.version < said.version <= held.version + VERSIONS_AHEAD_MAX
    return said if is_next and _is_the_leaders(held, said, report, picture) else Unbelieved.READ


def _is_the_leaders(held: HeldState, said: HeldState, report: ReportedNode, picture: Cluster) -> bool:
    """Whether the recorded leader, in its present life, says it, and it changes nothing but who is in sync."""
    known, broker = held.state, picture.brokers.get(report.broker)
    if broker is None or broker.epoch != report.epoch or report.broker != known.leader:
        return False
    leader = known.members[known.leader]
    if leader.broker_epoch != broker.epoch or leader.log_id not in broker.log_ids:
        return False
    written = replace(known, isr=said.state.isr, elr=said.state.elr, members=said.state.members)
    return said.state == written and said.state.members.get(known.leader) == leader


def newer(one: ReportedNode | None, other: ReportedNode | None) -> ReportedNode | None:
    """What two reports of a partition come to: the later version, and a read if either asks for it."""
    if one is None or other is None:
        return None
    return max(one, other, key=lambda report: report.version)
