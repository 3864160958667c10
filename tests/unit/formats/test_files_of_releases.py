"""Files as 0.1.0 left them are read; a log directory of a later format is refused with words and left as it is."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from regnum_broker.groups.recorded.records import OffsetChange, change_of
from regnum_broker.log.errors import DirectoryUnusableError
from regnum_broker.log.opening import open_directory
from regnum_broker.log.replica.index import decode_index
from regnum_broker.log.replica.producers.snapshots import decode_snapshot
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_election.history.encoding import decode
from regnum_election.history.events import BEGINNING
from regnum_election.history.segments import Limits, Segments
from regnum_local.plan import Plan, Role
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_records.read import Record, read_records
from regnum_service.incarnation import Incarnations

ORDERS = TopicId("tAmBeB4MZcycemthukoFbQ")
OFFSETS = TopicId("CtpxKgSEATQ9ZCMsED1kQA")
LOG_ID = "_xqXZ2wwSouHxc7c8poMnw"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """The folder of a cluster of 0.1.0: 400 records in segments of a second, a group that has read all of them."""
    with tarfile.open(Path(__file__).parent / "v0.1.0" / "cluster.tar.gz") as files:
        files.extractall(tmp_path, filter="data")
    return tmp_path / "cluster"


def everything(replica: ReplicaLog) -> list[Record]:
    """All records, segment by segment."""
    found: list[Record] = []
    while (offset := found[-1].offset + 1 if found else 0) < replica.log_end_offset:
        found += read_records(replica.read(offset, bytes_max=1 << 20), from_offset=offset)
    return found


def minted() -> str:
    raise AssertionError("a log that was stopped cleanly keeps its id")


def test_a_log_directory_is_opened_as_it_was_left(cluster: Path) -> None:
    directory = open_directory(
        cluster / "broker-1",
        broker_id=BrokerId(1),
        mint_id=minted,
        boot_id="another-boot",
        wall_ms=lambda: 1_795_434_200_000,
        reserve_bytes=0,
    )
    try:
        assert directory.log_id == LOG_ID
        for number in (0, 1):
            replica = directory.replicas[PartitionKey(ORDERS, number)]
            assert (replica.log_end_offset, replica.high_watermark) == (200, 200)
            values = [(record.value or b"").rstrip(b".") for record in everything(replica)]
            assert values == [b"record %d " % n for n in range(number, 400, 2)]
        offsets = directory.replicas[PartitionKey(OFFSETS, 0)]
        changes = [change_of(record) for record in everything(offsets)]
        committed = {
            one.place.partition: one.offset.offset
            for one in changes
            if isinstance(one, OffsetChange) and one.offset is not None
        }
        assert committed == {0: 200, 1: 200}
        assert {change.group_id for change in changes} == {"readers"}
        assert all(key.topic_id in {ORDERS, OFFSETS} for key in directory.replicas), "the deleted topic stays deleted"
    finally:
        directory.close()


@pytest.mark.parametrize(
    "kept", sorted(Path(__file__).parent.glob("v*/cluster.tar.gz")), ids=lambda path: path.parent.name
)
def test_records_and_offsets_of_each_release_are_read(kept: Path, tmp_path: Path) -> None:
    """400 records in two partitions, and a group that has read them all."""
    with tarfile.open(kept) as files:
        files.extractall(tmp_path, filter="data")
    directory = open_directory(
        tmp_path / "cluster" / "broker-1",
        broker_id=BrokerId(1),
        mint_id=minted,
        boot_id="another-boot",
        wall_ms=lambda: 1_795_434_200_000,
        reserve_bytes=0,
    )
    try:
        found = [everything(replica) for replica in directory.replicas.values()]
        assert sum(len(records) for records in found) >= 400
        values = [(record.value or b"").rstrip(b". ") for records in found for record in records]
        assert sum(value.startswith(b"record ") for value in values) == 400
    finally:
        directory.close()


def test_indexes_and_snapshots_of_producers_are_taken_as_they_are(cluster: Path) -> None:
    replicas = cluster / "broker-1" / "replicas"
    indexes = sorted(replicas.glob(f"{ORDERS}-0/*.index"))
    snapshots = sorted(replicas.glob(f"{ORDERS}-0/*.producers"))
    assert len(indexes) > 1
    assert len(snapshots) > 1
    assert all(decode_index(path.read_bytes()) is not None for path in indexes)
    assert all(decode_snapshot(path.read_bytes()) for path in snapshots)


def test_a_directory_of_a_later_format_is_refused_with_words_and_left_as_it_is(cluster: Path) -> None:
    path = cluster / "broker-1" / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "version": 2}), encoding="utf-8")
    before = {one: one.read_bytes() for one in (cluster / "broker-1").rglob("*") if one.is_file()}
    with pytest.raises(DirectoryUnusableError, match=r"format 2, and this release reads 1: a later release wrote it"):
        open_directory(
            cluster / "broker-1",
            broker_id=BrokerId(1),
            mint_id=minted,
            boot_id="another-boot",
            wall_ms=lambda: 0,
            reserve_bytes=0,
        )
    assert {one: one.read_bytes() for one in before} == before


def test_what_a_later_release_adds_to_the_format_file_stays(cluster: Path) -> None:
    path = cluster / "broker-1" / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "added": [1]}), encoding="utf-8")
    directory = open_directory(
        cluster / "broker-1",
        broker_id=BrokerId(1),
        mint_id=minted,
        boot_id="another-boot",
        wall_ms=lambda: 1_795_434_200_000,
        reserve_bytes=0,
    )
    directory.close()
    written = json.loads(path.read_text(encoding="utf-8"))
    assert (written["added"], written["boot_id"]) == ([1], "another-boot")


def test_the_event_log_is_read(cluster: Path) -> None:
    (folder,) = (cluster / "election-1" / "election-1-events").iterdir()
    segments = Segments(folder, Limits())
    segments.open()
    assert segments.last.number > 10
    entries = [decode(record.payload) for record in segments.forwards(BEGINNING)]
    assert sum(record.events for record in segments.forwards(BEGINNING)) == segments.last.number
    assert entries[0].controller_epoch == 1


def test_processes_know_their_predecessors_and_the_launcher_its_plan(cluster: Path) -> None:
    for name in ("election-1", "metadata-1", "quota-1"):
        assert Incarnations(cluster / name, name).previous()
    plan = Plan.from_json(json.loads((cluster / "cluster.json").read_text(encoding="utf-8")))
    assert [member.name for member in plan.of(Role.BROKER)] == ["broker-1"]
