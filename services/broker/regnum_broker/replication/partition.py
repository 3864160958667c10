"""One replica of this broker: its log, its role, its high watermark.

Lives on the event loop; the writer of the log has a thread of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from regnum_model.configs import NO_SETTINGS, ReplicaSettings
from regnum_model.ids import NO_EPOCH, BrokerId, LeaderEpoch, PartitionKey
from regnum_model.nodes import LeaderAndIsr

from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.decisions.orders import Standing
from regnum_broker.replication.purgatory import AckQueue, Signal
from regnum_broker.replication.traces.new_leader import FreedRecords


class Role:
    """What a replica does at present: leading (``leader.Leadership``) or following."""

    __slots__ = ()

    @property
    def tenure(self) -> object | None:
        """Of a leadership, see ``Partition``; None: it is none."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Following(Role):
    """The role of a follower."""

    leader: BrokerId
    """Whom it follows; NO_LEADER while there is none."""
    leader_epoch: LeaderEpoch
    """Epoch of that leader."""
    cause: str = ""
    """Place in the trace of the failover that began it; empty: none."""
    filled: bool = False
    """Whether a reassignment brings the replica in, so that its records are throttled until it is in sync."""


class Promise:
    """An order makes a replica leader. It leads once that is recorded; until then its clients wait here."""

    __slots__ = ("_waiting", "tenure")

    def __init__(self, tenure: object) -> None:
        self.tenure: Final = tenure
        """Of the leadership that comes, see ``Partition``."""
        self._waiting: Final[list[Callable[[], None]]] = []

    def __len__(self) -> int:
        """How many are to be told."""
        return len(self._waiting)

    def tell(self, settled: Callable[[], None]) -> None:
        """Call ``settled`` once, when the replica leads, or will not; within the turn that settles it."""
        self._waiting.append(settled)

    def settle(self) -> None:
        """Tell those who wait."""
        for settled in self._waiting:
            settled()


class Partition:
    """One replica.

    Belongs to the event loop; ``role`` is also read by the writer thread, which refuses old appends by it.
    """

    __slots__ = (
        "_moved",
        "acks",
        "appended",
        "committed",
        "confirmed",
        "freed",
        "high_watermark",
        "key",
        "leader_epoch",
        "log",
        "ordered",
        "promised",
        "role",
        "settings",
        "topic",
        "version",
    )

    def __init__(
        self, key: PartitionKey, topic: str, log: ReplicaLog, moved: "dict[PartitionKey, Partition] | None" = None
    ) -> None:
        """Only assigns.

        Args:
            key: topic id and partition.
            topic: topic name.
            log: its log.
            moved: where it is put whenever its high watermark has moved; None: nowhere.
        """
        self.key: Final = key
        self.topic: Final = topic
        self.log: Final = log
        self.role: Role | None = None
        """None: the broker has not been told (S11), has given the role up, or was told to stop."""
        self.promised: Promise | None = None
        """The leadership that is being recorded; None: there is none."""
        self.confirmed: Role | None = None
        """The role under which its leader has found its log to be a beginning of its own; another: not in this one."""
        self.leader_epoch: LeaderEpoch = NO_EPOCH
        """Leader epoch of the newest order carried out in this run."""
        self.ordered: LeaderAndIsr | None = None
        """The node as the newest order carried out in this run had it."""
        self.settings: ReplicaSettings = NO_SETTINGS
        """What the controller said last of its topic's settings; also read by the writer thread."""
        self.version = -1
        """Version of the leaderAndISR node as far as this replica knows."""
        self.high_watermark = log.high_watermark
        """Everything below is committed. Goes back only with a truncation."""
        self.freed: FreedRecords | None = None
        """What a traced change of the ISR has committed last; None: none has."""
        self._moved: Final = moved
        self.acks: Final = AckQueue()
        """Produce requests that wait for the high watermark."""
        self.appended: Final = Signal()
        """Fires when the log of a leader grew or the role changed: for followers' fetches."""
        self.committed: Final = Signal()
        """Fires when the high watermark moved or the role changed: for consumers' fetches."""

    @property
    def tenure(self) -> object | None:
        """As long as it is the same this broker has led, in one epoch after another; None: it does not lead.

        Nobody else has touched the log in between, so what was appended in one epoch may be committed in a later one.
        """
        if self.role is not None:
            return self.role.tenure
        return None if self.promised is None else self.promised.tenure

    @property
    def standing(self) -> Standing:
        """Where the replica stands, for judging an order."""
        return Standing(
            leader_epoch=self.leader_epoch,
            version=self.version,
            recorded_epoch=self.log.highest_leader_epoch,
            active=self.role is not None,
        )

    def take_settings(self, settings: ReplicaSettings) -> bool:
        """Act by other settings of the topic from the next append on; returns whether they are others."""
        if settings == self.settings:
            return False
        self.settings = settings
        self.log.configure(settings)
        return True

    def commit(self, high_watermark: int) -> None:
        """Move the high watermark of a leader forward and complete what waited for it."""
        if high_watermark > self.high_watermark:
            self.take_high_watermark(high_watermark)
            self.acks.committed(high_watermark)
            self.committed.fire()

    def truncated(self, log_end: int) -> None:
        """Take up that the log was cut: nothing that is not there is committed, whatever the role is by now."""
        self.take_high_watermark(min(self.high_watermark, log_end))

    def take_high_watermark(self, high_watermark: int) -> None:
        """Take a high watermark up, forward or back."""
        if high_watermark != self.high_watermark:
            self.high_watermark = high_watermark
            if self._moved is not None:
                self._moved[self.key] = self

    def take_role(self, role: Role | None) -> None:
        """Change the role; whoever waits on the old one is woken."""
        promised, self.promised = self.promised, None
        self.role = role
        # Its offsets may be other records' under another role.
        self.freed = None
        if promised is None or role is None or role.tenure is not promised.tenure:
            self.acks.depose()
        self.committed.fire()
        self.appended.fire()
        if promised is not None:
            promised.settle()

    def promise(self) -> None:
        """Have no role until a leadership is recorded. Who leads already keeps its tenure, and what waits for acks."""
        tenure, self.role = self.tenure, None
        if self.promised is None:
            self.promised = Promise(object() if tenure is None else tenure)
        self.committed.fire()
        self.appended.fire()

    def send_away(self) -> None:
        """Wake the clients that wait here: they are not served any more."""
        self.acks.depose()
        self.committed.fire()
