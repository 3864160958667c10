"""A restored tree under a controller: every broker is heard, then the newest log leads; what is held up says why."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
from regnum.replication.v1 import control_pb2
from regnum_client.commands.backups.backup import back_up
from regnum_client.commands.backups.files import BackupFile
from regnum_client.commands.backups.restore import Wish, restore_from
from regnum_coordination.port import Store
from regnum_election.recovery.calls import RecoveryRequest
from regnum_model import paths
from regnum_model.backup.nodes import MARK, RestoreMark
from regnum_model.ids import BrokerId, LogId, PartitionKey, TopicId
from regnum_model.nodes import LeaderAndIsr, MalformedNodeError, Membership, TopicIdNode, TopicNode
from regnum_testing.moving import arrived, ask, catch_up
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import until

ID = TopicId("T" * 22)
KEY = PartitionKey(ID, 0)


async def _with_one_topic() -> FakeCluster:
    """A cluster whose controller has led its one partition."""
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    await cluster.outside.create(paths.CLUSTER_ID, b"cluster", make_parents=True)
    node = TopicNode(topic_id=ID, partitions={0: _ids(1, 2, 3)}, creating=frozenset({0}))
    await cluster.outside.create(paths.topic("t"), node.encode())
    await cluster.outside.create(paths.topic_id(ID), TopicIdNode(topic="t").encode())
    await cluster.reign()
    await until(lambda: KEY in cluster.brokers[_ids(1)[0]].states)
    return cluster


@pytest.fixture
async def restored(tmp_path: Path) -> AsyncGenerator[FakeCluster, None]:
    """A cluster with one topic was backed up and its store lost; the backup is in a new one. Nobody reigns yet."""
    before = await _with_one_topic()
    file = tmp_path / "backup"
    await back_up(before.outside, "memory://x", "backup", BackupFile(file), lambda _: None)
    await before.close()
    after = FakeCluster()
    wish = Wish(file=file, execute=True, replace=False, without_tokens=False, more_brokers=frozenset())
    await restore_from(after.outside, wish, lambda _: None)
    try:
        yield after
    finally:
        await after.close()


def _ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def _hold(cluster: FakeCluster, id: int, epoch: int, end: int) -> None:
    cluster.brokers[_ids(id)[0]].logs[KEY] = control_pb2.ReplicaLogInfo(
        last_written_leader_epoch=epoch, current_leader_epoch=epoch, log_end_offset=end
    )


async def _state(store: Store) -> LeaderAndIsr | None:
    try:
        return LeaderAndIsr.decode((await store.get(paths.leader_and_isr("t", 0))).data)
    except MalformedNodeError:
        return None


async def _led(cluster: FakeCluster) -> LeaderAndIsr:
    async def is_led() -> bool:
        return await _state(cluster.outside) is not None

    await until(is_led)
    state = await _state(cluster.outside)
    assert state is not None
    return state


def _trouble(cluster: FakeCluster) -> str:
    controller = cluster.controller
    partition = None if controller is None else controller.picture.partitions.get(KEY)
    return "" if partition is None else partition.trouble or ""


async def test_the_newest_log_leads_above_every_epoch_when_all_have_reported(restored: FakeCluster) -> None:
    await restored.begin(1, 2, 3)
    for id, epoch, end in ((1, 0, 90), (2, 7, 60), (3, 7, 70)):
        _hold(restored, id, epoch, end)
    await restored.reign()
    state = await _led(restored)
    assert (state.leader, state.isr, state.elr) == (3, (3,), ())
    assert state.leader_epoch > 7
    assert state.controller_epoch > 10_000


async def test_with_one_broker_away_nobody_leads_until_it_reports(restored: FakeCluster) -> None:
    await restored.begin(1, 2)
    _hold(restored, 1, 0, 90)
    _hold(restored, 2, 0, 90)
    await restored.reign()
    await until(lambda: "brokers [3] are not registered" in _trouble(restored))
    assert await _state(restored.outside) is None
    broker = await restored.register(3)
    broker.logs[KEY] = control_pb2.ReplicaLogInfo(
        last_written_leader_epoch=4, current_leader_epoch=4, log_end_offset=95
    )
    assert (await _led(restored)).leader == 3


async def test_a_forgotten_broker_is_waited_for_no_more_and_the_rest_is_for_a_person(restored: FakeCluster) -> None:
    await restored.begin(1, 2)
    _hold(restored, 1, 3, 90)
    _hold(restored, 2, 3, 95)
    controller = await restored.reign()
    await controller.forgetting.forget(_ids(3)[0], validate_only=False, who="test", wait_s=10)
    assert RestoreMark.decode((await restored.outside.get(MARK)).data).brokers == {1, 2}
    await until(lambda: "broker 3 has no log" in _trouble(restored))
    assert await _state(restored.outside) is None
    request = RecoveryRequest(topic="t", partitions=(), first_partition=0, accept_loss=True, who="test")
    answer = await controller.recoveries.recover(request, wait_s=10)
    assert [one.rejection for one in answer.recoveries] == [None]
    state = await _led(restored)
    assert (state.leader, state.leader_epoch > 1_000) == (2, True)


async def test_a_newer_log_at_a_broker_that_the_backup_does_not_assign_holds_it_up(restored: FakeCluster) -> None:
    """It was reassigned after the backup; by hand, where nothing is recorded, the new broker may be assigned."""
    await restored.begin(1, 2, 3, 4)
    for id, epoch, end in ((1, 0, 90), (2, 0, 90), (3, 0, 90), (4, 5, 120)):
        _hold(restored, id, epoch, end)
    await restored.reign(corrections_interval_s=0.2)
    await until(lambda: "broker 4, which is not assigned" in _trouble(restored))
    assert await _state(restored.outside) is None
    node = await restored.outside.get(paths.topic("t"))
    content = TopicNode.decode(node.data)
    wider = TopicNode(topic_id=content.topic_id, partitions={0: _ids(1, 2, 3, 4)})
    await restored.outside.set(paths.topic("t"), wider.encode(), version=node.stat.version)
    assert (await _led(restored)).leader == 4


async def test_a_partition_that_moved_after_the_backup_is_given_to_its_brokers_by_a_reassignment(
    restored: FakeCluster,
) -> None:
    """It is assigned to them at once; of all that are assigned the newest log leads, and the move goes on."""
    await restored.begin(1, 2, 3, 4)
    for id, epoch, end in ((1, 0, 90), (2, 0, 90), (3, 0, 90), (4, 5, 120)):
        _hold(restored, id, epoch, end)
    controller = await restored.reign(corrections_interval_s=0.02)
    await until(lambda: "broker 4, which is not assigned" in _trouble(restored))
    assert await ask(controller, "t", {0: (4, 2, 3)}) == [None]
    assert (await _led(restored)).leader == 4
    await catch_up(restored, "t", 0, 2, 3)
    await arrived(restored, "t", 0, 4, 2, 3)


async def test_a_single_replica_that_moved_after_the_backup_is_had_back_without_an_edit(
    restored: FakeCluster,
) -> None:
    """Its former broker has deleted it: a person accepts that nobody can prove that nothing else was there."""
    node = await restored.outside.get(paths.topic("t"))
    alone = replace(TopicNode.decode(node.data), partitions={0: _ids(1)})
    await restored.outside.set(paths.topic("t"), alone.encode(), version=node.stat.version)
    await restored.begin(1, 2, 3, 4)
    _hold(restored, 4, 5, 120)
    controller = await restored.reign(corrections_interval_s=0.02)
    await until(lambda: "broker 4, which is not assigned" in _trouble(restored))
    request = RecoveryRequest(topic="t", partitions=(), first_partition=0, accept_loss=True, who="test")
    assert await ask(controller, "t", {0: (4,)}) == [None]
    await until(lambda: "broker 1 has no log of it" in _trouble(restored))
    answer = await controller.recoveries.recover(request, wait_s=10)
    assert [one.rejection for one in answer.recoveries] == [None]
    assert (await _led(restored)).leader == 4
    await arrived(restored, "t", 0, 4)


async def test_a_broker_of_a_release_that_cannot_list_its_logs_holds_it_up(restored: FakeCluster) -> None:
    await restored.begin(1, 2, 3)
    for id in (1, 2, 3):
        _hold(restored, id, 0, 90)
    restored.brokers[_ids(2)[0]].lists_logs = False
    await restored.reign()
    await until(lambda: "earlier release" in _trouble(restored))
    assert await _state(restored.outside) is None


async def test_nobody_leads_by_the_mark_of_a_restore_that_has_not_ended(restored: FakeCluster) -> None:
    """It names nobody yet who has to be heard."""
    node = await restored.outside.get(MARK)
    writing = replace(RestoreMark.decode(node.data), whole=False, brokers=frozenset())
    await restored.outside.set(MARK, writing.encode(), version=node.stat.version)
    await restored.begin(1, 2, 3)
    for id in (1, 2, 3):
        _hold(restored, id, 0, 90)
    await restored.reign()
    await until(lambda: "has not ended" in _trouble(restored))
    assert await _state(restored.outside) is None


@pytest.mark.parametrize("pages", ["empty", "again"])
async def test_a_broker_whose_pages_do_not_go_on_holds_it_up_and_does_not_hold_the_controller(
    restored: FakeCluster, pages: str
) -> None:
    """A page that says that there is more, and is empty, is not the end: the newest log may be what it left out."""
    await restored.begin(1, 2, 3)
    for id in (1, 2, 3):
        _hold(restored, id, 0, 90)
    restored.brokers[_ids(3)[0]].pages = pages
    await restored.reign()
    await until(lambda: "its pages do not go on" in _trouble(restored))
    assert await _state(restored.outside) is None
    restored.brokers[_ids(3)[0]].pages = "whole"
    assert (await _led(restored)).leader in {1, 2, 3}


async def test_a_partition_whose_only_member_lost_its_log_after_the_backup_is_for_a_person(
    tmp_path: Path,
) -> None:
    """The others' logs are as they were, and they were not in sync."""
    before = await _with_one_topic()
    state = await before.outside.get(paths.leader_and_isr("t", 0))
    alone = LeaderAndIsr.decode(state.data)
    lost = Membership(broker_epoch=alone.members[_ids(1)[0]].broker_epoch, log_id=LogId("a log that 1 had"))
    narrow = replace(alone, leader=_ids(1)[0], isr=_ids(1), elr=(), members={_ids(1)[0]: lost})
    await before.outside.set(paths.leader_and_isr("t", 0), narrow.encode(), version=state.stat.version)
    file = tmp_path / "backup"
    await back_up(before.outside, "memory://x", "backup", BackupFile(file), lambda _: None)
    await before.close()
    after = FakeCluster()
    try:
        wish = Wish(file=file, execute=True, replace=False, without_tokens=False, more_brokers=frozenset())
        await restore_from(after.outside, wish, lambda _: None)
        await after.begin(1, 2, 3)
        for id in (1, 2, 3):
            _hold(after, id, 0, 90)
        await after.reign()
        await until(lambda: "only brokers [1] surely had" in _trouble(after))
        assert await _state(after.outside) is None
    finally:
        await after.close()


async def test_the_next_controller_goes_on_where_one_died(restored: FakeCluster) -> None:
    await restored.begin(1, 2)
    _hold(restored, 1, 0, 90)
    _hold(restored, 2, 0, 90)
    await restored.reign()
    await until(lambda: "not registered" in _trouble(restored))
    await restored.end_reign()
    await restored.register(3)
    _hold(restored, 3, 0, 90)
    await restored.reign(2)
    assert (await _led(restored)).leader == 1
