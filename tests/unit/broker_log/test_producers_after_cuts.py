"""What is remembered of producers is what the log holds, whatever was appended, cut and started again."""

import random
from collections.abc import Iterator

import pytest
from regnum_broker.log.replica.producers.states import KeptBatch, ProducerStates
from regnum_records.header import BatchHeader, assign, read_header
from regnum_testing.batches import batch_of
from regnum_testing.log_directories import ReopenedDirectory

NO_PRODUCER = -1


class History:
    """A log, and the heads that it should hold."""

    def __init__(self, place: ReopenedDirectory, chance: random.Random) -> None:
        self.place = place
        self.chance = chance
        self.log = place.replica()
        self.held: list[BatchHeader] = []

    def append(self) -> None:
        """Batches of some producers, in one answer or in several."""
        batches = list(self._batches(self.chance.choice([1, 1, 2, 5, 40])))
        for whole in [b"".join(batches)] if self.chance.random() < 0.5 else batches:
            self.log.append_replicated(whole)

    def _batches(self, number: int) -> Iterator[bytes]:
        offset, newest = self.log.log_end_offset, self._newest()
        for _ in range(number):
            id, records = self.chance.choice([NO_PRODUCER, 5, 6, 7, 8]), [b"v"] * self.chance.choice([1, 1, 3])
            epoch, sequence = newest.get(id, (0, 0))
            if self.chance.random() < 0.05:
                epoch, sequence = epoch + 1, 0
            newest[id] = (epoch, sequence + len(records))
            batch = (
                batch_of(*records)
                if id == NO_PRODUCER
                else batch_of(*records, producer_id=id, producer_epoch=epoch, base_sequence=sequence)
            )
            whole = bytes(assign(batch, base_offset=offset, leader_epoch=0))
            self.held.append(read_header(whole))
            offset = self.held[-1].next_offset
            yield whole

    def _newest(self) -> dict[int, tuple[int, int]]:
        return {head.producer_id: (head.producer_epoch, head.last_sequence + 1) for head in self.held}

    def cut(self) -> None:
        """Back by some records."""
        back = self.chance.choice([1, 2, 3, 10, 60, 200])
        end = self.log.truncate(max(0, self.log.log_end_offset - back))
        self.held = [head for head in self.held if head.next_offset <= end]

    def start_again(self) -> None:
        """In one of the ways there are."""
        ways = [self.place.kill_and_open, self.place.stop_and_open, self.place.lose_power_and_open]
        self.log = self.chance.choice(ways)()


def remembered(states: ProducerStates) -> dict[int, tuple[int, tuple[KeptBatch, ...]]]:
    return {id: (entry.epoch, entry.batches) for id, entry in states.entries.items()}


@pytest.mark.parametrize("seed", range(24))
def test_what_is_remembered_is_what_the_log_holds(place: ReopenedDirectory, seed: int) -> None:
    chance = random.Random(seed)
    place.kill()
    place.segment_bytes = chance.choice([3_000, 20_000, 1 << 30])
    place.open()
    history = History(place, chance)
    steps = [history.append, history.cut, history.start_again]
    for _ in range(80):
        (step,) = chance.choices(steps, weights=[6, 3, 1])
        step()
        replayed = ProducerStates()
        for head in history.held:
            replayed.apply(head, seen_ms=0)
        assert remembered(history.log.producers) == remembered(replayed)
