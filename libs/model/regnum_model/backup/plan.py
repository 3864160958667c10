"""What becomes of each node of a backup when it is restored. Pure.

Goals
    Nothing that was acknowledged after the backup is lost because an old record of it counts again, nothing is deleted
    that an old order names, and no number is given out twice.

Constraints
    - A backup may be hours old: members of an ISR may have lost what was acknowledged since, a partition that was being
      created may have records, one that was to be deleted somewhere may have come back there.
    - On ZooKeeper it is not one moment: a topic's node, guard and states may be of different times.
    - What a process registers is never restored, and a new store counts its revisions from the first.

Rules (safety rules S2, S7, S10, S13, S14)
    - leaderAndISR: nobody leads and nobody is in sync. What the backup said stands for people to read, until all
      brokers have reported (``RestoredState``).
    - ``creating`` in a topic: taken out, and such a partition is restored like the others. Never a new epoch 0.
    - ``removing`` in a topic: taken out; the partition leaves a tombstone, its files stay on the disks.
    - ``left`` in a topic: taken out; a replica that came back there since would be deleted.
    - A topic without an id: left out. It was written by hand and not taken up.
    - A guard: only with the node of its topic. Alone it is an order to delete the topic.
    - Tombstones: 1,000 leader epochs on, above those of a partition that was added anew since.
    - Deletion records: as they are. A topic id never comes again, and the record of a removed partition deletes no
      replica of a later leader epoch.
    - Orders by hand, below ``/admin/partitions_*``: left out. They were given hours ago and perhaps carried out.
    - ``/controller_epoch``: 10,000 on, above every one that a broker has seen since.
    - Neither that nor producer ids ever go back where the tree still stands whose place the backup takes.
    - Producer ids: 2^40 on, also where none had been given out, and further the older the backup is: one that is
      restored a second time goes on above what was given out since the first.
    - Lives of brokers, the tree's id, and that the store went back: left out. They are of the former tree, and by the
      new id each broker knows that its log goes on (``regnum_broker.log.life``). Whoever had a life is waited for: it
      was registered once, and nobody has said that it never comes back.
    - ``/config/changes``: the folder alone. A change is announced to those who follow, and nobody does.
    - Settings, quotas, access rules, tokens, draining, ``/feature``: as they are; tokens may be left out.
    - ``/cluster/id``: last of all. Brokers wait for it.

Example: ``{"topic_id":"T","partitions":{"0":[1,2]},"creating":[0],"left":{"0":[3]}}`` becomes
``{"topic_id":"T","partitions":{"0":[1,2]}}``, and partition 0 a restored state, though the backup has none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from regnum_model import paths
from regnum_model.backup.lines import Entry, Header
from regnum_model.backup.nodes import MARK, Numbers, RestoredState
from regnum_model.delegation_tokens import FOLDER as TOKENS
from regnum_model.features import PATH as FEATURE
from regnum_model.ids import NO_EPOCH, NO_LEADER, BrokerId, ControllerEpoch, LeaderEpoch, LogId, TopicId
from regnum_model.nodes import (
    MAX_BROKER_ID,
    MAX_EPOCH,
    BrokerNode,
    LeaderAndIsr,
    MalformedNodeError,
    ProducerIdBlockNode,
    TopicIdNode,
    TopicNode,
    decode_controller_epoch,
    encode_controller_epoch,
)
from regnum_model.quotas import CHANGES, QUOTA_ACTIVE, QUOTA_IDS

KNOWN: Final = frozenset(
    path.split("/")[1]
    for path in (*paths.PERSISTENT_FOLDERS, paths.CONTROLLER_EPOCH, paths.CLUSTER_ID, paths.PRODUCER_ID_BLOCK, FEATURE)
) | {"quota", "acl"}
"""First parts of the paths of a tree. What else lies in the store is another program's."""

PROCESSES: Final = (paths.ELECTION_IDS, paths.METADATA_IDS, paths.BROKER_IDS, QUOTA_IDS)
"""Folders of registrations."""

ADDRESSES: Final = (
    paths.ELECTION_ADDRESSES,
    paths.METADATA_ADDRESSES,
    paths.BROKER_ADDRESSES,
    paths.QUOTA_ADDRESSES,
)
"""Folders of what registered processes advertise."""

SEATS: Final = (paths.CONTROLLER, QUOTA_ACTIVE)
"""Nodes of processes that act."""

BY_HAND: Final = (paths.PARTITIONS_ADD, paths.PARTITIONS_REMOVE, paths.PARTITIONS_REASSIGNED)
"""Folders of orders by hand."""

CONTROLLER_EPOCHS_ON: Final = 10_000
"""How far the controller epoch goes on: more reigns than there can have been since the backup, and few enough that
whoever knows the former one believes it (``epochs.EPOCH_LEAP_MAX``)."""

LEADER_EPOCHS_ON: Final = 1_000
"""How far the leader epoch of a removed partition goes on, as that of a partition that a person recovers does."""

PRODUCER_IDS_ON: Final = 2**40
"""How far producer ids go on: ten million in a second for thirty hours; there are eight million times as many."""

PRODUCER_IDS_PER_MS: Final = 10_000
"""How far they go on besides for each ms since the backup; the same ten million in a second."""

PRODUCER_IDS_FURTHER_MAX: Final = 2**54
"""The most of that: fifty years, or a clock that is wrong."""

DIGITS_MAX: Final = 10
"""Digits of the longest broker id or partition number."""

NOTICES_MAX: Final = 20
"""Paths that a report names of each kind of notice; of the others the number."""


@dataclass(frozen=True, slots=True)
class Write:
    """A node to create."""

    path: str
    data: bytes
    """Content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the person who restores chose."""

    without_tokens: bool = False
    """Whether delegation tokens are left out: tokens that were revoked since the backup would be valid again."""
    more_brokers: frozenset[BrokerId] = frozenset()
    """Brokers to wait for besides those that the backup knows: those that joined after it."""
    age_ms: int = 0
    """Time since the backup was taken, in ms."""
    former: Numbers = field(default_factory=Numbers)
    """How far the tree has come whose place the backup takes: it may have been restored before, and lived on."""


@dataclass(slots=True)
class Report:
    """What a restore writes, and what a person should know of it."""

    nodes: int = 0
    """Nodes that are written."""
    topics: int = 0
    partitions: int = 0
    """Partitions that get no leader until all brokers have reported."""
    tokens: int = 0
    """Delegation tokens that are valid again."""
    acls: int = 0
    """Nodes of access rules."""
    quotas: int = 0
    """Nodes of quotas."""
    settings: int = 0
    """Nodes of settings."""
    deletions: int = 0
    """Deletions of topics that go on."""
    controller_epoch: int = 0
    """Epoch after which the next controller counts on."""
    notices: dict[str, list[str]] = field(default_factory=dict)
    """Paths by what is remarkable of them: ``NOTICES_MAX`` of each at most."""
    counts: dict[str, int] = field(default_factory=dict)
    """How many of each there are."""

    def notice(self, what: str, path: str) -> None:
        """One more."""
        self.counts[what] = self.counts.get(what, 0) + 1
        named = self.notices.setdefault(what, [])
        if len(named) < NOTICES_MAX:
            named.append(path)


@dataclass(frozen=True, slots=True)
class _Topic:
    id: TopicId
    partitions: frozenset[int]
    creating: frozenset[int]


class RestorePlan:
    """Takes the nodes of a backup in their order, parents first, and ``finish`` after the last.

    What it keeps is a few words for each topic, and for each partition that was being created.
    """

    def __init__(self, header: Header, choices: Choices) -> None:
        self._header: Final = header
        self._choices: Final = choices
        self.report: Final = Report()
        """What it comes to; complete after ``finish``."""
        self.brokers: Final[set[BrokerId]] = set(choices.more_brokers)
        """Brokers that are waited for."""
        self.logs: Final[dict[BrokerId, set[LogId]]] = {}
        """Logs of brokers as the backup knows them."""
        self.cluster_id: Final = header.cluster_id
        """Written last of all."""
        self._topics: Final[dict[str, _Topic | None]] = {}
        self._guards: Final[dict[str, bytes]] = {}
        self._unborn: Final[dict[tuple[str, int], bool]] = {}
        self._producer_ids: ProducerIdBlockNode | None = None
        self._epoch = self._reign_after(0)
        self._guarded: Final[set[BrokerId]] = set()

    @property
    def controller_epoch(self) -> Write:
        """The first node to write: whoever reigns already has written one."""
        return Write(paths.CONTROLLER_EPOCH, encode_controller_epoch(self._epoch))

    def prepare(self, entry: Entry) -> None:
        """Look at a node before the first one is written: the reign has to be known for all states."""
        if entry.path == paths.CONTROLLER_EPOCH:
            try:
                self._epoch = self._reign_after(decode_controller_epoch(entry.data))
            except MalformedNodeError:
                self.report.notice("unreadable, and counted on from zero", entry.path)
        self.report.controller_epoch = self._epoch

    def take(self, entry: Entry) -> Iterator[Write]:
        """What a node becomes."""
        for write in self._writes(entry):
            self.report.nodes += 1
            yield write

    def finish(self) -> Iterator[Write]:
        """What is written after all nodes were taken."""
        for write in self._last():
            self.report.nodes += 1
            yield write

    def _reign_after(self, epoch: int) -> ControllerEpoch:
        # Who runs through two restores, as clients may, is never told of a reign that it knows as another one.
        further = max(epoch + CONTROLLER_EPOCHS_ON, self._choices.former.controller_epoch)
        return ControllerEpoch(min(further, MAX_EPOCH - 1))

    def _writes(self, entry: Entry) -> Iterator[Write]:
        path = entry.path
        folder, _, name = path.rpartition("/")
        if entry.live or path in SEATS or folder in PROCESSES or folder in ADDRESSES:
            self._note_live(entry)
        elif self._is_left_out(path) or self._is_kept(entry, folder, name):
            return
        elif path.startswith(f"{paths.TOPICS}/"):
            yield from self._topic_write(entry, path[len(paths.TOPICS) + 1 :].split("/"))
        else:
            self._count(entry, folder)
            yield Write(path, entry.data)

    def _is_left_out(self, path: str) -> bool:
        """Whether a node is not restored, whatever it says."""
        first, report = path[1:].partition("/")[0], self.report
        if first not in KNOWN or not path.startswith("/"):
            if path != MARK:
                report.notice("of another program, left out", path)
            return True
        if path.startswith(tuple(f"{one}/" for one in BY_HAND)):
            report.notice("order by hand, left out: give it again if it is still meant", path)
            return True
        if path.startswith(f"{paths.BROKER_LIVES}/"):
            if (broker := _broker_of(path.rpartition("/")[2])) is not None:
                self.brokers.add(broker)
            return True
        if path in {paths.TREE_ID, paths.WENT_BACK}:
            return True
        if self._choices.without_tokens and path.startswith(f"{TOKENS}/"):
            report.notice("delegation token, left out", path)
            return True
        return path.rpartition("/")[0] == CHANGES

    def _is_kept(self, entry: Entry, folder: str, name: str) -> bool:
        """Whether a node is one that is written later, or in another form."""
        if entry.path == paths.PRODUCER_ID_BLOCK:
            try:
                self._producer_ids = ProducerIdBlockNode.decode(entry.data)
            except MalformedNodeError:
                self.report.notice("unreadable, left out: ids go on far above all that there can be", entry.path)
            return True
        if folder == paths.TOPIC_IDS:
            self._guards[name] = entry.data
            return True
        return entry.path in {paths.CONTROLLER_EPOCH, paths.CLUSTER_ID}

    def _count(self, entry: Entry, folder: str) -> None:
        path, report = entry.path, self.report
        name = path.rpartition("/")[2]
        if folder == paths.BROKER_EPOCHS and (broker := _broker_of(name)) is not None:
            # Stands for good, also of a broker that is gone for good: no reason to wait for it.
            self._guarded.add(broker)
        report.tokens += path.startswith(f"{TOKENS}/")
        report.deletions += folder == paths.DELETE_TOPICS
        if not entry.data:
            return
        quota = path.startswith(("/config/users/", "/config/clients/"))
        report.acls += path.startswith("/acl/")
        report.quotas += quota
        report.settings += path.startswith("/config/") and not quota

    def _note_live(self, entry: Entry) -> None:
        folder, _, name = entry.path.rpartition("/")
        broker = _broker_of(name)
        if folder != paths.BROKER_IDS or broker is None:
            return
        try:
            logs = BrokerNode.decode(entry.data).directories.values()
        except MalformedNodeError:
            return
        self.brokers.add(broker)
        self.logs.setdefault(broker, set()).update(logs)

    def _topic_write(self, entry: Entry, parts: list[str]) -> Iterator[Write]:
        name = parts[0]
        if len(parts) == 1:
            yield from self._topic_node(entry, name)
            return
        if name not in self._topics:
            self.report.notice("below a topic that is not restored, left out", entry.path)
            return
        if len(parts) == 3 and parts[2] == "leaderAndISR":
            yield from self._state(entry, self._topics[name], name, parts[1])
            return
        self._unborn.update(dict.fromkeys(self._folder_of(name, parts), True))
        yield Write(entry.path, entry.data)

    def _folder_of(self, name: str, parts: list[str]) -> Iterator[tuple[str, int]]:
        """The partition that is being created, if this is its folder."""
        if len(parts) == 2 and _is_number(parts[1]) and (name, int(parts[1])) in self._unborn:
            yield name, int(parts[1])

    def _topic_node(self, entry: Entry, name: str) -> Iterator[Write]:
        try:
            node = TopicNode.decode(entry.data)
        except MalformedNodeError:
            # As it was: the controller leaves it alone, and says so.
            self._topics[name] = None
            self.report.notice("unreadable in the backup already, restored as it was", entry.path)
            yield Write(entry.path, entry.data)
            return
        if node.topic_id is None:
            self.report.notice("topic written by hand and not taken up, left out: write it again", entry.path)
            return
        if node.removing:
            self.report.notice("partitions that were being removed: their files stay on the disks", entry.path)
        self._topics[name] = _Topic(node.topic_id, frozenset(node.partitions), node.creating)
        self._unborn.update({(name, number): False for number in node.creating if number in node.partitions})
        for replicas in node.partitions.values():
            self.brokers.update(replicas)
        for move in node.reassigning.values():
            self.brokers.update(move.origin, move.target)
        self.report.topics += 1
        self.report.partitions += len(node.partitions)
        yield Write(entry.path, replace(node, creating=frozenset(), removing={}, left={}).encode())

    def _state(self, entry: Entry, topic: _Topic | None, name: str, number: str) -> Iterator[Write]:
        state = _read_state(entry.data)
        if state is None:
            self.report.notice("unreadable in the backup already, restored as it was", entry.path)
            self._forget_unborn(name, number)
            yield Write(entry.path, entry.data)
            return
        self.brokers.update(state.isr, state.elr)
        for id, log in _holders(state).items():
            # Also of brokers that were not registered when the backup was taken.
            self.logs.setdefault(id, set()).add(log)
        stands = topic is None or (_is_number(number) and int(number) in topic.partitions)
        removed = isinstance(state, LeaderAndIsr) and state.removed
        if removed and not (topic is not None and _is_number(number) and int(number) in topic.creating):
            yield Write(entry.path, self._tombstone(state.topic_id, state.leader_epoch))
            return
        if not stands:
            if not removed:
                self.report.notice("partition that its topic does not name, left out: its files stay", entry.path)
            yield Write(entry.path, self._tombstone(state.topic_id, state.leader_epoch))
            return
        self._forget_unborn(name, number)
        epoch = LeaderEpoch(min(state.leader_epoch, MAX_EPOCH))
        restored = RestoredState(
            topic_id=state.topic_id,
            leader_epoch=epoch,
            controller_epoch=self._epoch,
            leader=state.leader,
            isr=state.isr,
            elr=state.elr,
            holders=_holders(state),
        )
        yield Write(entry.path, restored.encode())

    def _forget_unborn(self, name: str, number: str) -> None:
        if _is_number(number):
            self._unborn.pop((name, int(number)), None)

    def _tombstone(self, id: TopicId, epoch: LeaderEpoch) -> bytes:
        return LeaderAndIsr(
            topic_id=id,
            leader=NO_LEADER,
            leader_epoch=LeaderEpoch(min(max(epoch, NO_EPOCH) + LEADER_EPOCHS_ON, MAX_EPOCH - 1)),
            isr=(),
            elr=(),
            members={},
            controller_epoch=self._epoch,
            removed=True,
        ).encode()

    def _last(self) -> Iterator[Write]:
        for (name, number), has_folder in self._unborn.items():
            topic = self._topics[name]
            if topic is None:
                continue
            if not has_folder:
                yield Write(paths.partition(name, number), b"")
            state = RestoredState(topic_id=topic.id, leader_epoch=LeaderEpoch(0), controller_epoch=self._epoch)
            yield Write(paths.leader_and_isr(name, number), state.encode())
        for id, data in self._guards.items():
            path = f"{paths.TOPIC_IDS}/{id}"
            if self._stands(id, data):
                yield Write(path, data)
            else:
                self.report.notice("guard without its topic, left out: it would delete what brokers have of it", path)
        guarded = self._guards.keys()
        for name, topic in self._topics.items():
            if topic is not None and topic.id not in guarded:
                self.report.notice(
                    "topic without its guard: stays Offline; see regnum partitions recover", paths.topic(name)
                )
        for broker in sorted(self._choices.more_brokers - self._guarded):
            yield Write(paths.broker_epoch(broker), b"")
        before = self._producer_ids
        further = min(PRODUCER_IDS_PER_MS * max(self._choices.age_ms, 0), PRODUCER_IDS_FURTHER_MAX)
        first = (0 if before is None else before.first + before.count) + PRODUCER_IDS_ON + further
        first = max(first, self._choices.former.producer_id)
        yield Write(paths.PRODUCER_ID_BLOCK, ProducerIdBlockNode(first=first, count=1).encode())

    def _stands(self, id: str, data: bytes) -> bool:
        """Whether the topic of a guard is restored: under its id, or with a node that nobody can read."""
        try:
            name = TopicIdNode.decode(data).topic
        except MalformedNodeError:
            return any(topic is not None and topic.id == id for topic in self._topics.values())
        topic = self._topics.get(name)
        return name in self._topics and (topic is None or topic.id == id)


def _is_number(name: str) -> bool:
    """Whether a node's name may be a number; a person can write any name, and ``int`` does not take every digit."""
    return name.isascii() and name.isdigit() and len(name) <= DIGITS_MAX


def _broker_of(name: str) -> BrokerId | None:
    """The broker that a node's name means; none where no broker can have that id, and nobody could read the mark."""
    return BrokerId(int(name)) if _is_number(name) and int(name) <= MAX_BROKER_ID else None


def _read_state(data: bytes) -> LeaderAndIsr | RestoredState | None:
    """A state, or one of a tree that was restored before and has no leader yet."""
    try:
        return LeaderAndIsr.decode(data)
    except MalformedNodeError:
        pass
    try:
        return RestoredState.decode(data)
    except MalformedNodeError:
        return None


def _holders(state: LeaderAndIsr | RestoredState) -> Mapping[BrokerId, LogId]:
    """Logs that had all that was acknowledged, as the state records them."""
    if isinstance(state, RestoredState):
        return state.holders
    return {id: state.members[id].log_id for id in (*state.isr, *state.elr) if id in state.members}


def logs_of(logs: Mapping[BrokerId, set[LogId]]) -> dict[BrokerId, frozenset[LogId]]:
    """As the mark of a restore has them."""
    return {id: frozenset(names) for id, names in logs.items()}
