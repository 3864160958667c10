"""Random histories of one replica against a model: appends, flushes, cuts, deletions, compactions, kills, lost power.

The model is a list of batches and an epoch cache; after every step the replica must be the same, record by record. What
a compaction takes out, also one that is killed in the middle, is checked against the records by key; then its batches
are the model's.
"""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from regnum_broker.log.epochs import EpochCache
from regnum_broker.log.replica.cleaned import cleaned_until
from regnum_broker.log.replica.parts import Appended
from regnum_broker.log.replica.producers.states import Duplicate
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.retention import expiry
from regnum_model.config_definition import CLEANUP_COMPACT
from regnum_model.configs import ReplicaSettings
from regnum_model.ids import LeaderEpoch
from regnum_records.compacted import is_filler
from regnum_records.header import assign, iterate
from regnum_records.read import read_records
from regnum_testing.batches import assigned_batch, values_of
from regnum_testing.compaction import compact, keyed_batch, records_of
from regnum_testing.disk import KilledError, RememberingDisk
from regnum_testing.log_directories import KEY, ReopenedDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A batch that the model holds."""

    base_offset: int
    count: int
    records: tuple[tuple[int, bytes, bytes | None], ...]
    """Offset, key and value of those that are left."""
    epoch: int
    sequence: int
    """Base sequence of producer 5; -1: without producer."""
    produced: bytes
    """As its producer made it; empty: it stands for batches that are gone."""

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.count

    @property
    def values(self) -> tuple[bytes | None, ...]:
        return tuple(value for _, _, value in self.records)


SIZES = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 90), st.booleans()), min_size=1, max_size=4)


class History(RuleBasedStateMachine):
    """One replica and its model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="regnum-history-"))
        self.start = 0
        self.batches: list[Stored] = []
        self.epochs = EpochCache()
        self.begun: set[tuple[int, int]] = set()
        """Epochs of this log and where they began, also those that ended before its start."""
        self.highest = -1
        self.written = 0
        self.heard: list[tuple[int, int]] = []
        """Where each batch of producer 5 ended, and the sequence after it, as far as nothing below was cut since."""
        self.log_id = ""
        self.keys = 5
        self.marks: list[tuple[int, int]] = []
        """Up to where it was compacted, and when, as far as nothing below was cut since."""

        self.may_hide = False
        """Whether there may be records that are shown once they are flushed."""
        self.safe = 0
        """Up to there records were flushed: whatever happens to the power, they are there."""

    @initialize(segment_bytes=st.sampled_from([200, 500, 2000, 1 << 20]), keys=st.sampled_from([5, 50]))
    def begin(self, segment_bytes: int, keys: int) -> None:
        self.keys = keys
        self.disk = RememberingDisk()
        self.place = ReopenedDirectory(self.folder / "logs", segment_bytes=segment_bytes, disk=self.disk)
        self.place.open()
        self.place.now.create_replicas([(KEY, "topic")])
        self.log_id = self.place.log_id

    @property
    def replica(self) -> ReplicaLog:
        return self.place.now.replicas[KEY]

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.start

    @property
    def sequence(self) -> int:
        return self.heard[-1][1] if self.heard else 0

    @property
    def proved(self) -> bool:
        """Whether nothing was changed since a clean stop, so that nothing can be torn or lost."""
        return (self.place.path / "clean-stop").exists()

    def new_batches(self, sizes: list[tuple[int, int, bool]], epoch: int) -> list[Stored]:
        new: list[Stored] = []
        base, sequence = self.end, self.sequence
        for count, size, known in sizes:
            self.written += 1
            pairs = [
                (
                    b"%d" % ((self.written * 7 + number) % self.keys),
                    None if size % 9 == 8 else b"%d:%d:" % (self.written, number) + b"x" * size,
                )
                for number in range(count)
            ]
            produced = keyed_batch(*pairs, producer_id=5 if known else -1, base_sequence=sequence if known else -1)
            new.append(
                Stored(
                    base_offset=base,
                    count=count,
                    records=tuple((base + number, *pair) for number, pair in enumerate(pairs)),
                    epoch=epoch,
                    sequence=sequence if known else -1,
                    produced=produced,
                )
            )
            base, sequence = base + count, sequence + count if known else sequence
        return new

    def add(self, new: list[Stored]) -> None:
        for batch in new:
            self.batches.append(batch)
            if batch.sequence >= 0:
                self.heard.append((batch.next_offset, batch.sequence + batch.count))
            self.epochs = self.epochs.assign(LeaderEpoch(batch.epoch), batch.base_offset)
            self.begun.update(self.epochs.entries)
            self.highest = max(self.highest, batch.epoch)

    def cut(self, offset: int) -> None:
        """What reaches over ``offset`` is gone, and what is known of its producer."""
        self.batches = [batch for batch in self.batches if batch.next_offset <= offset]
        self.heard = [(end, sequence) for end, sequence in self.heard if end <= offset]
        self.begun = {(epoch, start) for epoch, start in self.begun if start < offset}

    @rule(sizes=SIZES, step=st.integers(0, 2))
    def append_as_leader(self, sizes: list[tuple[int, int, bool]], step: int) -> None:
        self.lead(sizes, step)

    def lead(self, sizes: list[tuple[int, int, bool]], step: int) -> None:
        epoch = max(self.epochs.latest, 0) + step
        new = self.new_batches(sizes, epoch)
        outcomes = self.replica.append_as_leader([b.produced for b in new], leader_epoch=LeaderEpoch(epoch))
        assert outcomes == [Appended(base_offset=b.base_offset, last_offset=b.next_offset - 1) for b in new]
        self.add(new)

    @rule(sizes=SIZES)
    def append_as_follower(self, sizes: list[tuple[int, int, bool]]) -> None:
        epoch = max(self.epochs.latest, 0)
        new = self.new_batches([(count, size, False) for count, size, _ in sizes], epoch)
        self.replica.append_replicated(
            b"".join(bytes(assign(b.produced, base_offset=b.base_offset, leader_epoch=epoch)) for b in new)
        )
        self.add(new)

    @rule(step=st.integers(1, 3))
    def record_epoch(self, step: int) -> None:
        epoch = LeaderEpoch(max(self.epochs.latest, 0) + step)
        self.place.now.record_leader_epochs([(KEY, epoch, self.end)])
        self.epochs = self.epochs.assign(epoch, self.end)
        self.begun.update(self.epochs.entries)
        self.highest = max(self.highest, epoch)

    @rule(back=st.integers(0, 40))
    def truncate(self, back: int) -> None:
        offset = max(self.end - back, self.start)
        found = self.replica.truncate(offset)
        self.marks = [mark for mark in self.marks if mark[0] <= found]
        self.cut(offset)
        assert found == self.end
        self.epochs = self.epochs.truncate_from_end(self.end)
        self.safe = min(self.safe, self.end)

    @rule(messages=st.none() | st.integers(1, 6))
    def flush_by_settings(self, messages: int | None) -> None:
        self.replica.configure(ReplicaSettings(flush_messages=messages))
        self.may_hide = self.may_hide or messages is not None

    @rule()
    def flush(self) -> None:
        """What other threads do between two jobs of the writer."""
        hidden = self.replica.log_end_offset < self.end
        flushed = self.place.flush()
        assert flushed or not hidden, "who is not shown is waited for by somebody"
        assert self.replica.log_end_offset == self.end
        if flushed:
            self.safe = self.end
        self.may_hide = self.replica.settings.flush_messages is not None

    @rule(back=st.integers(0, 12), sizes=SIZES, more=SIZES, cut=st.booleans(), without_power=st.booleans())
    def append_and_cut_amid_a_flush(
        self,
        back: int,
        sizes: list[tuple[int, int, bool]],
        more: list[tuple[int, int, bool]],
        cut: bool,
        without_power: bool,
    ) -> None:
        self.flush_by_settings(1)
        self.lead(sizes, 0)

        def amid() -> None:
            nonlocal is_cut
            self.disk.amid_sync = None
            if cut:
                self.truncate(back)
            is_cut = self.end < flushed
            self.lead(more, 0)

        self.disk.amid_sync = amid
        flushed, is_cut = self.end, False
        self.place.flush()
        assert self.disk.amid_sync is None, "it was synced"
        assert self.replica.log_end_offset == (self.end if is_cut else flushed), "what was cut is flushed again"
        self.safe = self.replica.log_end_offset
        if without_power:
            self.lose_power(0.0, b"")
        else:
            self.flush()

    def begin_at(self, offset: int) -> None:
        """The model's log begins there."""
        if offset > self.start:
            self.batches = [batch for batch in self.batches if batch.next_offset > offset]
            self.start = offset
            self.epochs = self.epochs.truncate_from_start(offset)

    @rule(ahead=st.integers(0, 40))
    def delete_records(self, ahead: int) -> None:
        self.flush()
        offset = min(self.start + ahead, self.end)
        starts = self.place.now.starts
        recorded = starts.record({KEY: offset})
        assert recorded == ({KEY: offset} if offset > self.start else {})
        starts.sync()
        assert starts.apply(recorded) == recorded
        self.begin_at(offset)

    @rule(ahead=st.integers(0, 40))
    def die_before_a_recorded_start_is_applied(self, ahead: int) -> None:
        self.flush()
        offset = min(self.start + ahead, self.end)
        self.place.now.starts.record({KEY: offset})
        self.place.kill()
        self.place.open()
        self.may_hide = False
        self.begin_at(offset)

    @rule(size_bytes=st.none() | st.integers(0, 3_000), committed=st.integers(0, 60), late=st.booleans())
    def expire(self, size_bytes: int | None, committed: int, late: bool) -> None:
        self.flush()
        log, high_watermark = self.replica, min(self.start + committed, self.end)
        segments = [
            expiry.SegmentFacts(
                next_offset=segment.next_offset,
                size_bytes=segment.size_bytes,
                timestamp_ms_max=segment.timestamp_ms_max,
                written_ms=segment.written_ms,
            )
            for segment in log.segments
        ]
        start = expiry.log_start(
            segments,
            present=log.log_start_offset,
            high_watermark=high_watermark,
            now_ms=self.place.wall_ms,
            limits=expiry.Limits(size_bytes=size_bytes, age_ms=0 if late else None),
        )
        assert self.start <= start <= max(high_watermark, self.start)
        assert start == self.start or start in {segment.next_offset for segment in log.segments}
        starts = self.place.now.starts
        starts.apply(starts.record({KEY: start}))
        self.begin_at(start)

    def compacted(self, before: list[Stored], *, until: int, done: int, whole: bool) -> None:
        """Check what a compaction up to ``until`` took out, and take its batches up; not all of it unless ``whole``."""
        records = [record for batch in before for record in batch.records]
        newest = {key: offset for offset, key, _ in records if offset < until}
        found = records_of(self.replica)
        present = {record.offset: (record.offset, record.key, record.value) for record in found}
        for record in records:
            offset, key, value = record
            if offset < self.start:
                continue
            if offset >= until or (newest[key] == offset and (value is not None or offset >= done)):
                assert present[offset] == record
            elif whole:
                assert offset not in present
            else:
                assert present.get(offset, record) == record
        assert set(present) <= {offset for offset, _, _ in records}
        produced = {batch.base_offset: batch.produced for batch in before if batch.produced}
        self.batches, offset = [], self.start
        while data := self.replica.read(offset, bytes_max=1):
            header = next(header for _, header in iterate(data))
            self.batches.append(
                Stored(
                    base_offset=header.base_offset,
                    count=header.next_offset - header.base_offset,
                    records=tuple((record.offset, record.key or b"", record.value) for record in read_records(data)),
                    epoch=header.leader_epoch,
                    sequence=header.base_sequence,
                    produced=b"" if is_filler(header) else produced[header.base_offset],
                )
            )
            offset = header.next_offset

    @rule(
        sizes=SIZES,
        rounds=st.integers(0, 5),
        committed=st.integers(0, 80),
        retention_ms=st.sampled_from([0, 5_000, 1 << 50]),
        keys_max=st.sampled_from([4, 10, 1_000]),
        kill_at=st.none() | st.integers(0, 40),
    )
    def compact(
        self,
        sizes: list[tuple[int, int, bool]],
        rounds: int,
        committed: int,
        retention_ms: int,
        keys_max: int,
        kill_at: int | None,
    ) -> None:
        for number in range(rounds):
            # So that there is something to compact in most of those histories that do.
            self.lead(sizes, number % 2)
        self.compact_now(committed, retention_ms=retention_ms, keys_max=keys_max, kill_at=kill_at)

    @rule(wait_ms=st.integers(0, 8_000))
    def wait(self, wait_ms: int) -> None:
        self.place.wall_ms += wait_ms

    @rule()
    def delete_every_key(self) -> None:
        """And the deletions go, too: of all that was there, fillers are left, and what a producer is known by."""
        base, epoch = self.end, max(self.epochs.latest, 0)
        pairs = [(b"%d" % key, None) for key in range(self.keys)]
        produced = keyed_batch(*pairs)
        self.replica.append_as_leader([produced], leader_epoch=LeaderEpoch(epoch))
        records = tuple((base + number, *pair) for number, pair in enumerate(pairs))
        stored = Stored(base_offset=base, count=self.keys, records=records, epoch=epoch, sequence=-1, produced=produced)
        self.add([stored])
        until = self.end
        for _ in range(2):
            for _ in range(2):
                self.let_time_close_the_segment()
                self.lead([(1, 1, False)], 0)
            self.compact_now(1 << 30, retention_ms=0, keys_max=1_000, kill_at=None)
        assert not [batch for batch in self.batches if batch.next_offset <= until and batch.records]

    def compact_now(self, committed: int, *, retention_ms: int, keys_max: int, kill_at: int | None) -> None:
        self.flush()
        log, before, high_watermark = self.replica, list(self.batches), min(self.start + committed, self.end)
        log.configure(
            ReplicaSettings(
                cleanup_policy=CLEANUP_COMPACT, min_cleanable_dirty_ratio=0, delete_retention_ms=retention_ms
            )
        )
        now_ms = self.place.wall_ms
        for mark in log.cleaned:
            assert any(offset >= mark.offset and at_ms <= mark.at_ms for offset, at_ms in self.marks), mark
        done = max((mark.offset for mark in log.cleaned if mark.at_ms + retention_ms <= now_ms), default=0)
        closed = [segment.next_offset for segment in log.segments[:-1] if segment.next_offset <= high_watermark]
        self.disk.kill_at = None if kill_at is None else self.disk.done + kill_at
        try:
            compacts = compact(log, now_ms=now_ms, high_watermark=high_watermark, keys_max=keys_max)
        except KilledError:
            self.disk.kill_at = None
            self.place.kill()
            self.place.open()
            self.may_hide = False
            assert self.place.log_id == self.log_id
            self.compacted(before, until=closed[-1], done=done, whole=False)
            return
        self.disk.kill_at = None
        if compacts:
            until = cleaned_until(log.cleaned)
            assert until == closed[-1] if keys_max == 1_000 else 0 < until <= closed[-1]
            self.marks.append((until, now_ms))
            self.compacted(before, until=until, done=done, whole=True)

    @rule()
    def let_time_close_the_segment(self) -> None:
        self.replica.configure(ReplicaSettings(segment_ms=1_000))
        self.place.wall_ms += 2_000

    @rule()
    def remove_what_was_set_aside(self) -> None:
        self.place.now.remove_files()
        assert not list(self.place.folder().glob("*.deleted"))

    @rule(ahead=st.integers(0, 50))
    def start_anew(self, ahead: int) -> None:
        self.start = self.end + ahead
        self.batches, self.epochs, self.begun, self.safe = [], EpochCache(), set(), 0
        self.replica.truncate_fully_and_start_at(self.start)

    @rule(torn=st.binary(max_size=60))
    def kill(self, torn: bytes) -> None:
        self.place.kill()
        files = self.place.segments()
        if files and not self.proved:
            whole = assigned_batch(b"y" * 20, base_offset=self.end, leader_epoch=self.highest + 1)
            with files[-1].open("ab") as file:
                file.write(whole[: len(torn)])
        self.place.open()
        self.may_hide = False
        assert self.place.log_id == self.log_id

    @rule()
    def stop_cleanly(self) -> None:
        self.place.now.close()
        self.place.boot_id += "+"
        self.place.open()
        self.may_hide = False
        assert self.place.log_id == self.log_id

    @rule(kept=st.floats(0, 1), garbage=st.binary(max_size=80))
    def lose_power(self, kept: float, garbage: bytes) -> None:
        self.place.kill()
        files, proved = self.place.segments(), self.proved
        if files and not proved:
            data = files[-1].read_bytes()
            synced = self.disk.sizes.get(str(files[-1]), 0)
            files[-1].write_bytes(data[: max(int(len(data) * kept), synced)] + garbage)
        self.place.boot_id += "+"
        self.place.open()
        self.may_hide = False
        assert (self.place.log_id == self.log_id) == proved
        self.log_id = self.place.log_id
        end = self.replica.log_end_offset
        assert self.safe <= end <= self.end
        if files:
            assert end >= int(files[-1].stem)
        # Of what was before the start, the end of it may be lost as well: then the log begins anew there.
        lost = end < self.end or not set(self.place.segments()) <= set(files)
        self.cut(end)
        assert end == self.end
        if lost and end == self.start:
            # Epochs that the journal had not heard of went with the batches; one that began where the lost one did may
            # be back, for the journal has it, and one that ended before the start if it is the newest that it has.
            assert {entry for entry in self.replica.epochs.entries if entry[1] < end} <= self.begun
            self.epochs = self.replica.epochs
        elif lost:
            self.epochs = EpochCache(tuple(entry for entry in self.epochs.entries if entry[1] < end))
            newest = self.replica.epochs.entries[-1:]
            if newest and newest[0][1] == end:
                self.epochs = self.epochs.assign(*newest[0])
        self.begun.update(self.epochs.entries)

    @rule()
    def repeat_the_last_batch(self) -> None:
        last = next((batch for batch in reversed(self.batches) if batch.sequence >= 0), None)
        if last is not None:
            outcome = self.replica.append_as_leader(
                [last.produced], leader_epoch=LeaderEpoch(max(self.epochs.latest, 0))
            )
            assert outcome == [Duplicate(base_offset=last.base_offset, last_offset=last.next_offset - 1)]

    @invariant()
    def replica_is_the_model(self) -> None:
        if self.log_id == "":
            return
        replica = self.replica
        shown = replica.log_end_offset
        assert (replica.log_start_offset, replica.written_end_offset) == (self.start, self.end)
        assert shown == self.end or (self.may_hide and shown < self.end)
        visible = [batch for batch in self.batches if batch.next_offset <= shown]
        assert replica.epochs == self.epochs
        assert replica.highest_leader_epoch >= replica.epochs.latest
        newest = visible[-1].epoch if visible else self.epochs.epoch_at(shown - 1)
        assert replica.last_record_epoch == newest
        offset, stored = self.start, []
        while data := replica.read(offset, bytes_max=300):
            heads = [header for _, header in iterate(data)]
            stored += [(header.base_offset, header.leader_epoch) for header in heads]
            assert values_of(data) == [
                value
                for batch in visible
                if offset < batch.next_offset and batch.base_offset < heads[-1].next_offset
                for value in batch.values
            ]
            offset = heads[-1].next_offset
        assert stored == [(batch.base_offset, batch.epoch) for batch in visible]
        bases = [int(file.stem) for file in self.place.segments()]
        assert not bases or bases[0] <= self.start, "the log begins in its first segment"
        assert len(bases) < 2 or bases[1] > self.start, "segments before it have no name any more"

    def teardown(self) -> None:
        if self.log_id:
            self.place.kill()
        shutil.rmtree(self.folder)


History.TestCase.settings = settings(
    max_examples=25,
    phases=[__import__("hypothesis").Phase.generate],
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestHistories = History.TestCase
