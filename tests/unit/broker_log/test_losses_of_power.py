"""What acks=all means when machines lose power: docs/reliability.md, line by line.

Three real log directories, on disks that forget what was not synced, and the controller's own decision over the log ids
that these directories register with afterwards.
"""

import json
from collections.abc import Iterable
from itertools import chain, combinations
from pathlib import Path

import pytest
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.decisions import truncation
from regnum_election.decisions.leadership import Change, settle
from regnum_model.configs import ReplicaSettings
from regnum_model.ids import NO_LEADER, BrokerId, LeaderEpoch, PartitionKey
from regnum_model.nodes import LeaderAndIsr
from regnum_testing.compaction import records_of
from regnum_testing.disk import ForgetfulDisk
from regnum_testing.election_values import broker, state, surroundings
from regnum_testing.log_directories import KEY, ReopenedDirectory, lead

IDS = (1, 2, 3)
ACKNOWLEDGED = 12
OTHER = PartitionKey(KEY.topic_id, 1)
SYNCED = 5
"""Records that the operating system had brought to the disks by itself."""


class Machine:
    """A broker's log directory on a disk that forgets."""

    def __init__(self, path: Path, id: int, *, flush_messages: int | None) -> None:
        self.id = id
        self.epoch = id
        self.disk = ForgetfulDisk()
        self.place = ReopenedDirectory(path / str(id), disk=self.disk)
        # Ids of different machines are different.
        self.place.mint_id = lambda mint=self.place.mint_id: f"{id}-{mint()}"  # type: ignore[method-assign,misc]
        self.place.open(broker_id=id)
        self.log = self.place.replica()
        self.log.configure(ReplicaSettings(flush_messages=flush_messages))

    def ends(self, *, without_power: bool) -> None:
        """Its process ends, with the machine's power or not, and starts again."""
        self.place.kill()
        if without_power:
            self.disk.lose_power(self.place.folder())
            self.place.boot_id += "+"
        self.epoch += 10
        self.log = self.place.open(broker_id=self.id).replicas[KEY]


class Partition:
    """A partition with three replicas in sync, all of whose records were acknowledged with acks=all."""

    def __init__(self, path: Path, *, flush_messages: int | None = None) -> None:
        self.machines = {id: Machine(path, id, flush_messages=flush_messages) for id in IDS}
        self.values = [b"%d" % number for number in range(ACKNOWLEDGED)]
        for number, value in enumerate(self.values):
            lead(self.machines[1].log, value)
            self.machines[1].place.flush()
            for id in IDS[1:]:
                self.copy(1, id)
            if number == SYNCED - 1:
                for machine in self.machines.values():
                    machine.log.flush()
        self.state = state(1, IDS, members={id: (id, str(one.place.log_id)) for id, one in self.machines.items()})

    def copy(self, leader: int, follower: int) -> None:
        """A follower fetches what it lacks, and goes back first where its log left the leader's."""
        source, target = self.machines[leader].log, self.machines[follower].log
        last = target.last_record_epoch
        of_leader = source.epochs.end_offset_for(last, log_end_offset=source.log_end_offset)
        if truncation.diverges(of_leader, last_fetched_epoch=last, fetch_offset=target.log_end_offset):
            target.truncate(min(of_leader.end_offset, target.log_end_offset))
        target.append_replicated(source.read(target.log_end_offset, bytes_max=1 << 20))
        self.machines[follower].place.flush()

    def elected(self, *, state: LeaderAndIsr | None = None, live: Iterable[int] = IDS) -> int:
        """Whom the controller lets lead, of brokers that are registered anew; NO_LEADER: nobody."""
        brokers = [broker(id, epoch=self.machines[id].epoch, log=str(self.machines[id].place.log_id)) for id in live]
        decision = settle(state or self.state, tuple(map(BrokerId, IDS)), surroundings(*brokers), min_insync=2)
        assert isinstance(decision, Change)
        return decision.state.leader

    def has(self, id: int) -> list[bytes]:
        """Values in a replica's log."""
        return values_in(self.machines[id].log)


def values_in(log: ReplicaLog) -> list[bytes]:
    return [record.value or b"" for record in records_of(log)]


SOME_WITHOUT_POWER = [
    frozenset(some) for some in chain.from_iterable(combinations(IDS, count) for count in range(len(IDS)))
]


@pytest.mark.parametrize(
    "without_power", SOME_WITHOUT_POWER, ids=lambda some: "+".join(map(str, sorted(some))) or "none"
)
def test_as_long_as_one_member_of_the_isr_keeps_power_nothing_acknowledged_is_lost(
    tmp_path: Path, without_power: frozenset[int]
) -> None:
    """All processes die at a time; the others were killed only, and the machine has what they wrote."""
    partition = Partition(tmp_path)
    for id, machine in partition.machines.items():
        machine.ends(without_power=id in without_power)
    for id in IDS:
        assert partition.has(id) == partition.values[: SYNCED if id in without_power else None], "what the disk has"
    leader = partition.elected()
    assert leader in set(IDS) - without_power
    assert partition.has(leader) == partition.values
    partition.machines[leader].log.leader_epochs.assign(LeaderEpoch(6), ACKNOWLEDGED)
    for id in set(IDS) - {leader}:
        partition.copy(leader, id)
        assert partition.has(id) == partition.values


def test_when_all_lose_power_nobody_leads_by_itself_and_what_the_disks_had_is_there(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    for machine in partition.machines.values():
        machine.ends(without_power=True)
    assert partition.elected() == NO_LEADER
    assert [partition.has(id) for id in IDS] == [partition.values[:SYNCED]] * 3


def test_when_all_lose_power_and_every_append_was_flushed_all_is_there(tmp_path: Path) -> None:
    """And nobody leads by itself all the same: a log that was not closed cannot prove that nothing is missing."""
    partition = Partition(tmp_path, flush_messages=1)
    for machine in partition.machines.values():
        machine.ends(without_power=True)
    assert [partition.has(id) for id in IDS] == [partition.values] * 3
    assert partition.elected() == NO_LEADER


def test_a_member_that_left_before_the_last_one_lost_power_leads_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    """The ISR fell below min.insync.replicas, so nothing was acknowledged since 2 left, and 2 is eligible (KIP-966)."""
    partition = Partition(tmp_path)
    machines = partition.machines
    members = {id: (id, str(one.place.log_id)) for id, one in machines.items()}
    shrunk = state(1, [1], elr=[2], members=members)
    lead(machines[1].log, b"never acknowledged")
    for id, machine in machines.items():
        machine.ends(without_power=id == 1)
    assert partition.elected(state=shrunk, live=[1]) == NO_LEADER
    leader = partition.elected(state=shrunk)
    assert (leader, partition.has(leader)) == (2, partition.values)


def test_a_clean_stop_brings_to_the_disk_what_a_killed_process_had_written(tmp_path: Path) -> None:
    """The marker that it leaves proves the log complete, and a loss of power may come right after it."""
    disk = ForgetfulDisk()
    place = ReopenedDirectory(tmp_path, disk=disk)
    place.open()
    log = place.replica()
    for number in range(ACKNOWLEDGED):
        lead(log, b"%d" % number)
    log_id = place.now.log_id
    log = place.kill_and_open()
    assert log.log_end_offset == ACKNOWLEDGED
    place.now.close()
    disk.lose_power(place.folder())
    place.boot_id += "+"
    directory = place.open()
    assert directory.replicas[KEY].log_end_offset == ACKNOWLEDGED
    assert directory.log_id == log_id
    place.kill()


def with_two(path: Path) -> tuple[ReopenedDirectory, ForgetfulDisk]:
    """A directory with two logs, nothing of which is on the disk."""
    disk = ForgetfulDisk()
    place = ReopenedDirectory(path, disk=disk)
    place.open()
    for key in (KEY, OTHER):
        for number in range(ACKNOWLEDGED):
            lead(place.replica(key), b"%d" % number)
    return place, disk


def lose_power(place: ReopenedDirectory, disk: ForgetfulDisk) -> None:
    for key in (KEY, OTHER):
        disk.lose_power(place.folder(key))
    place.boot_id += "+"


@pytest.mark.parametrize("told", [True, False])
def test_a_clean_stop_beside_a_replica_that_is_out_of_use_proves_the_log(tmp_path: Path, told: bool) -> None:
    """What is nowhere but in memory proves nothing, so the files of that one are brought to the disk as they are."""
    place, disk = with_two(tmp_path)
    log_id = place.log_id
    error = place.replica(OTHER).found_damaged("a bad sector")
    if told:
        place.now.take_offline(error)
    place.now.close()
    lose_power(place, disk)
    directory = place.open()
    for _ in range(2):
        assert directory.log_id == log_id
        assert [directory.replicas[key].log_end_offset for key in (KEY, OTHER)] == [ACKNOWLEDGED] * 2
        directory = place.kill_and_open_all()
    place.kill()


def test_a_replica_whose_files_are_damaged_stays_out_of_use_and_the_log_keeps_its_id(tmp_path: Path) -> None:
    place, disk = with_two(tmp_path)
    log_id = place.log_id
    place.kill()
    path = place.segments(OTHER)[0]
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for number in range(3):
        directory = place.open()
        assert list(directory.offline) == [OTHER], "also in another boot, in which a loss of power could explain it"
        assert directory.log_id == log_id
        assert directory.replicas[KEY].log_end_offset == ACKNOWLEDGED + number
        lead(directory.replicas[KEY], b"more")
        directory.close()
        lose_power(place, disk)


def test_a_clean_stop_proves_nothing_where_a_replica_out_of_use_cannot_be_brought_to_the_disk(tmp_path: Path) -> None:
    place, _ = with_two(tmp_path)
    log_id = place.log_id
    place.kill()
    (place.folder(OTHER) / "00000000000000000100.log").mkdir()
    place.open()
    assert list(place.now.offline) == [OTHER]
    place.now.close()
    place.boot_id += "+"
    place.open()
    assert place.log_id != log_id
    place.kill()


def test_a_marker_that_does_not_know_a_replica_proves_nothing(tmp_path: Path) -> None:
    """As release 0.1.0 reads one beside a replica that was out of use."""
    place, _ = with_two(tmp_path)
    log_id = place.log_id
    place.replica(OTHER).found_damaged("a bad sector")
    place.now.close()
    marker = place.path / "clean-stop"
    content = json.loads(marker.read_bytes())
    assert content.pop("out_of_use") == [[OTHER.topic_id, OTHER.partition]]
    marker.write_text(json.dumps(content))
    place.boot_id += "+"
    place.open()
    assert place.log_id != log_id
    place.kill()
