"""What must hold of the store after each write: safety rules as invariants of one change of the tree. Pure.

Each rule is looked at where it can be broken, in the transaction itself, long before it costs a record:

    S1   an ISR write or a controller's that got no answer is settled by that write alone: the next one of the process
         to the node, on the same version, is the same
    S2   a registration that is deleted by another process takes its guard along
    S3   a controller's state is written in its own reign; a leader's ISR by the recorded leader, for its topic, with
         itself and each member that it adds as registered
    S6   no session writes that is over
    S9   of brokers that take connections, a controller sends to fence one in a session time-out
    S10  a leader is a member of ISR or ELR with the log that was recorded for it; a leader epoch has one leader, and
         another leader another epoch
    S14  no leader epoch begins again where a state is gone, or went back (T9)
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from regnum_coordination.port import Create, Delete, Group, Node, Set
from regnum_model import paths
from regnum_model.ids import NO_LEADER, BrokerId, LogId
from regnum_model.nodes import BrokerNode, LeaderAndIsr, Membership

STATE: Final = "/leaderAndISR"
REGISTRATIONS: Final = f"{paths.BROKER_IDS}/"
SENT_AFTER_S: Final = 0.1
"""At most so long after its verdict, which is what the rule counts from, a controller sends a fence."""

Read = Callable[[str], Node | None]
"""What a node holds, None if it is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreWrite:
    """One group that was carried out."""

    writer: str
    """Process: ``broker-1``."""
    session_alive: bool
    """Whether its session is."""
    at_s: float
    group: Group
    before: Mapping[str, Node | None]
    """What the nodes that it names were."""
    read: Read
    """The store as it is now."""
    is_reachable: Callable[[int], bool]
    """Whether the process that a session belongs to takes connections."""


@dataclass(slots=True, kw_only=True)
class Writes:
    """Judges the writes of a run, one after another."""

    session_timeout_s: float
    reigns: dict[str, bytes] = field(default_factory=dict)
    """By election process: what it wrote as its epoch when it won last."""
    fenced: dict[str, float] = field(default_factory=dict)
    """By election process: when it sent what last fenced a broker that takes connections."""
    fencing: dict[tuple[str, str], float] = field(default_factory=dict)
    """By process and node: when a fence without an answer was sent first."""
    registered: dict[str, float] = field(default_factory=dict)
    """By node: when the newest registration was made."""
    highest: dict[tuple[str, str], int] = field(default_factory=dict)
    """By node and topic id: the highest leader epoch that was ever there."""
    open: dict[tuple[str, str], tuple[int | None, bytes]] = field(default_factory=dict)
    """By process and node: version and content of a write without an answer."""

    def sent(self, writer: str, group: Group, at_s: float) -> list[str]:
        """A process sends a group; returns what is wrong with that."""
        found: list[str] = []
        for path in _deleted(group):
            self.fencing.setdefault((writer, path), at_s)
        for path, (version, data) in _states(group).items():
            unknown = self.open.get((writer, path))
            if unknown is not None and unknown[0] == version and unknown[1] != data:
                found.append(f"S1: {writer} writes {path} otherwise, though its write there has no answer yet")
        return found

    def answered(self, writer: str, group: Group, *, known: bool) -> None:
        """A group has an answer, or none."""
        for path in _deleted(group) if known else ():
            self.fencing.pop((writer, path), None)
        for path, what in _states(group).items():
            if known:
                self.open.pop((writer, path), None)
            else:
                self.open[writer, path] = what

    def ended(self, writer: str) -> None:
        """A process is gone, or begins anew: nothing waits for its writes any more."""
        for waiting in (self.open, self.fencing):
            for key in [key for key in waiting if key[0] == writer]:
                del waiting[key]

    def judged(self, write: StoreWrite) -> list[str]:
        """What is wrong with a group that was carried out, a sentence each."""
        found: list[str] = []
        if not write.session_alive:
            found.append(f"S6: {write.writer} writes {write.group[-1].path} in a session that is over")
        for operation in write.group:
            if operation.path == paths.CONTROLLER and isinstance(operation, Create):
                epoch = write.read(paths.CONTROLLER_EPOCH)
                self.reigns[write.writer] = b"" if epoch is None else epoch.data
                # What it sent in an earlier reign, or life, is refused from here on, whenever it arrives.
                self.ended(write.writer)
            elif operation.path.startswith(REGISTRATIONS) and isinstance(operation, Create):
                self.registered[operation.path] = write.at_s
                self.ended(write.writer)
            elif operation.path.startswith(REGISTRATIONS) and isinstance(operation, Delete):
                found += self._of_deleted(write, operation.path)
            elif operation.path.endswith(STATE) and isinstance(operation, Create | Set):
                before = write.before[operation.path]
                found += self._of_state(
                    write, operation.path, None if before is None else LeaderAndIsr.decode(before.data), operation.data
                )
        return found

    def _of_deleted(self, write: StoreWrite, path: str) -> list[str]:
        node = write.before[path]
        if write.writer == f"broker-{path.removeprefix(REGISTRATIONS)}" or node is None:
            return []
        found: list[str] = []
        guard = BrokerNode.decode(node.data).registration
        now = write.read(paths.BROKER_EPOCHS + path.removeprefix(paths.BROKER_IDS))
        if now is None or now.stat.version != guard + 1:
            found.append(f"S2: {write.writer} deletes {path} of registration {guard} without its guard")
        owner = node.stat.ephemeral_owner
        if owner is not None and write.is_reachable(owner):
            # How long a write is on its way is not the controller's to say, nor whether it is answered.
            sent_s = self.fencing.pop((write.writer, path), write.at_s)
            since_s = sent_s - self.fenced.get(write.writer, -math.inf)
            if since_s < self.session_timeout_s - SENT_AFTER_S:
                found.append(f"S9: {write.writer} fences two brokers within a session time-out that take connections")
            self.fenced[write.writer] = sent_s
        return found

    def _of_state(self, write: StoreWrite, path: str, before: LeaderAndIsr | None, data: bytes) -> list[str]:
        after = LeaderAndIsr.decode(data)
        highest = self.highest.get((path, after.topic_id), -1)
        self.highest[path, after.topic_id] = max(highest, after.leader_epoch)
        begins = after.leader != NO_LEADER and (before is None or before.leader_epoch < after.leader_epoch)
        if begins and after.leader_epoch <= highest:
            return [f"S14, T9: leader epoch {after.leader_epoch} begins again ({write.writer}, {path})"]
        by_leader = write.writer.startswith("broker")
        rules = tuple(_of_leader(write, before, after) if by_leader else self._of_controller(write))
        rules = (*rules, *_of_election(before, after), *self._of_elected(write, before, after))
        return [f"{rule} ({write.writer}, {path})" for rule in rules]

    def _of_elected(self, write: StoreWrite, before: LeaderAndIsr | None, after: LeaderAndIsr) -> list[str]:
        """The write does not check the registration: a controller may have decided before that was made."""
        path = paths.broker_id(after.leader)
        node = None if before is None or before.leader == after.leader else write.read(path)
        for_s = write.at_s - self.registered.get(path, write.at_s)
        if node is not None and for_s > self.session_timeout_s and not _names(node, after.members[after.leader].log_id):
            return [f"S10: leader {after.leader}, whose registration has named another log for {for_s:.0f} s"]
        return []

    def _of_controller(self, write: StoreWrite) -> list[str]:
        epoch = write.read(paths.CONTROLLER_EPOCH)
        if epoch is None or self.reigns.get(write.writer) != epoch.data:
            return ["S3: a state of a reign that is over"]
        return []


def _deleted(group: Group) -> list[str]:
    return [one.path for one in group if isinstance(one, Delete) and one.path.startswith(REGISTRATIONS)]


def _states(group: Group) -> dict[str, tuple[int | None, bytes]]:
    return {one.path: (one.version, one.data) for one in group if isinstance(one, Set) and one.path.endswith(STATE)}


def _of_election(before: LeaderAndIsr | None, after: LeaderAndIsr) -> list[str]:
    if before is None or before.removed or after.removed:
        return []
    if before.topic_id != after.topic_id:
        return ["S2: a state of another topic of that name"]
    if after.leader_epoch < before.leader_epoch:
        return [f"S10: leader epoch {after.leader_epoch} after {before.leader_epoch}"]
    if after.leader == before.leader:
        return []
    found: list[str] = []
    if after.leader_epoch == before.leader_epoch:
        found.append(f"S10: leader {after.leader} in the epoch of leader {before.leader}")
    if after.leader == NO_LEADER:
        return found
    if after.leader not in {*before.isr, *before.elr}:
        found.append(f"S10: leader {after.leader} is neither in ISR {before.isr} nor in ELR {before.elr}")
    elif after.members[after.leader].log_id != before.members[after.leader].log_id:
        found.append(f"S10: leader {after.leader} with another log than was recorded")
    return found


def _names(node: Node, log_id: LogId) -> bool:
    return log_id in BrokerNode.decode(node.data).directories.values()


def _of_leader(write: StoreWrite, before: LeaderAndIsr | None, after: LeaderAndIsr) -> list[str]:
    me = BrokerId(int(write.writer.partition("-")[2]))
    if before is None or (before.leader, before.leader_epoch) != (me, after.leader_epoch) or after.leader != me:
        return ["S3: an ISR of a broker that does not lead"]
    found: list[str] = []
    if write.read(paths.topic_id(after.topic_id)) is None:
        found.append("S3: an ISR of a topic that is gone")
    joined = [id for id in after.isr if id not in before.isr]
    found += [
        f"S3: member {id} is not registered as it is recorded"
        for id in (me, *joined)
        if not _is_registered(write.read(paths.broker_id(id)), after.members[id])
    ]
    return found


def _is_registered(node: Node | None, member: Membership) -> bool:
    return node is not None and node.stat.creation_id == member.broker_epoch and _names(node, member.log_id)
