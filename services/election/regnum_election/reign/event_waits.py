"""How long events wait for the controller before it takes them, by what they are.

What waits in order is timed one by one. Reports merge while they wait: of those that are taken together, and of those
that the controller leaves for its next turn, the oldest counts, since for how long the others have waited is not kept.

A mutation has waited when its first step begins, as an event of Kafka's queue has when it is processed: its further
steps come soon, and counted as well their short waits would hide for how long whole mutations wait for one another.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

from regnum_service.clock import Clock, SystemClock
from regnum_telemetry.instruments import election as instruments
from regnum_telemetry.metrics import Histogram, Metrics

T = TypeVar("T")

CLUSTER: Final = "cluster"
"""What happens to the cluster."""

MUTATIONS: Final = "mutations"
"""Work for clients, until it begins."""

TOPICS: Final = "topics"
"""Names of topics that a watch showed."""

REPORTED_PARTITIONS: Final = "reported_partitions"
"""ISRs that leaders wrote."""

DELETION_ANSWERS: Final = "deletion_answers"
"""What brokers say of what they were told to delete."""


class EventWaits:
    """On the controller's loop."""

    def __init__(self, clock: Clock | None = None, metrics: Metrics | None = None) -> None:
        """Only assigns; without arguments it is nobody's."""
        counted = metrics or Metrics()
        self._clock: Final = clock or SystemClock()
        self._waits: Final = {
            kind: counted.histogram(instruments.EVENT_QUEUE_WAIT, kind)
            for kind in (CLUSTER, MUTATIONS, TOPICS, REPORTED_PARTITIONS, DELETION_ANSWERS)
        }
        self._since_s: Final[dict[str, float]] = {}

    @property
    def by_kind(self) -> Mapping[str, Histogram]:
        """How long what was taken had waited."""
        return self._waits

    def now_s(self) -> float:
        """When something begins to wait."""
        return self._clock.monotonic()

    def waited(self, kind: str, since_s: float) -> None:
        """One of a kind was taken."""
        self._waits[kind].record(self._clock.monotonic() - since_s)

    def began(self, kind: str) -> None:
        """A report came; others of its kind may wait already."""
        self._since_s.setdefault(kind, self._clock.monotonic())

    def took(self, kind: str, *, left: bool) -> None:
        """Reports of a kind were taken; ``left``: and some were not."""
        since_s = self._since_s.get(kind) if left else self._since_s.pop(kind, None)
        if since_s is not None:
            self.waited(kind, since_s)

    def clear(self) -> None:
        """Nothing waits any more."""
        self._since_s.clear()


class TimedQueue(Generic[T]):
    """A queue of one kind of events, each with the moment when it came."""

    def __init__(self, kind: str, waits: EventWaits) -> None:
        """Only assigns."""
        self._kind: Final = kind
        self._waits: Final = waits
        self._items: Final[deque[tuple[float, T]]] = deque()
        """Each since when."""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return (item for _, item in self._items)

    def append(self, item: T) -> None:
        """It waits behind all others."""
        self._items.append((self._waits.now_s(), item))

    def popleft(self) -> T:
        """Take the first. Raises IndexError when nothing waits."""
        since_s, item = self._items.popleft()
        self._waits.waited(self._kind, since_s)
        return item

    def clear(self) -> None:
        """Forget all; nobody took them."""
        self._items.clear()
