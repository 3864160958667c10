"""How long events wait for the controller."""

from collections.abc import AsyncGenerator

from regnum_election.reign.event_waits import EventWaits
from regnum_election.reign.events import (
    REPORTS_PER_EVENT,
    BrokersChanged,
    EventQueue,
    IsrsWritten,
    Mutation,
    TopicsChanged,
    nobody_waits,
)
from regnum_model.ids import PartitionKey, TopicId
from regnum_telemetry.instruments import election as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.clock import FakeClock

TOPIC = TopicId("t")


class Waiting:
    """A queue whose waits a test reads."""

    def __init__(self) -> None:
        self.clock, self.metrics = FakeClock(), Metrics()
        self.queue = EventQueue(EventWaits(self.clock, self.metrics))

    def waits(self) -> dict[str, tuple[int, float]]:
        """How many of each kind were taken, and for how long they had waited together; without kinds of which none."""
        (reading,) = [one for one in self.metrics.read() if one.instrument is instruments.EVENT_QUEUE_WAIT]
        found = {labels[0]: (sum(one.counts), one.total) for labels, one in reading.histograms}
        return {kind: seen for kind, seen in found.items() if seen[0]}


async def steps() -> AsyncGenerator[None, None]:
    yield


def mutation() -> Mutation:
    return Mutation(name="create", steps=steps(), abandon=nobody_waits)


async def test_an_event_has_waited_from_its_coming_until_it_is_taken_and_its_repeat_counts_once() -> None:
    waiting = Waiting()
    waiting.queue.put(BrokersChanged(frozenset({"1"})))
    waiting.clock.skip(0.25)
    waiting.queue.put(BrokersChanged(frozenset({"2"})))
    waiting.clock.skip(0.25)
    await waiting.queue.take()
    assert waiting.waits() == {"cluster": (1, 0.5)}
    assert waiting.queue.is_empty


async def test_reports_that_are_taken_together_have_waited_as_long_as_the_oldest() -> None:
    waiting = Waiting()
    waiting.queue.put(IsrsWritten.unseen([PartitionKey(TOPIC, 0)]))
    waiting.clock.skip(1.0)
    waiting.queue.put(IsrsWritten.unseen([PartitionKey(TOPIC, number) for number in range(REPORTS_PER_EVENT + 1)]))
    await waiting.queue.take()
    waiting.clock.skip(0.5)
    await waiting.queue.take()
    assert waiting.waits() == {"reported_partitions": (2, 2.5)}
    waiting.clock.skip(9.0)
    waiting.queue.put(IsrsWritten.unseen([PartitionKey(TOPIC, 0)]))
    await waiting.queue.take()
    assert waiting.waits() == {"reported_partitions": (3, 2.5)}, "what waited before has nothing to do with it"


async def test_a_mutation_has_waited_when_its_first_step_begins_and_urgent_work_waits_with_the_cluster() -> None:
    waiting = Waiting()
    waiting.queue.put_mutation(first := mutation())
    waiting.clock.skip(2.0)
    assert await waiting.queue.take() is first
    waiting.clock.skip(5.0)
    waiting.queue.put_back(first)
    waiting.clock.skip(0.5)
    assert await waiting.queue.take() is first
    assert waiting.waits() == {"mutations": (1, 2.0)}
    waiting.queue.put_urgent(mutation())
    waiting.queue.put(TopicsChanged(frozenset()))
    waiting.clock.skip(0.125)
    await waiting.queue.take()
    await waiting.queue.take()
    assert waiting.waits() == {"mutations": (1, 2.0), "cluster": (1, 0.125), "topics": (1, 0.125)}


async def test_what_the_end_of_a_reign_drops_has_not_been_taken() -> None:
    waiting = Waiting()
    waiting.queue.put(BrokersChanged())
    waiting.queue.put(IsrsWritten.unseen([PartitionKey(TOPIC, 0)]))
    waiting.queue.put_mutation(left := mutation())
    assert waiting.queue.drain() == (left,)
    assert waiting.waits() == {}
