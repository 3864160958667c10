"""What becomes of a backup's nodes: old records give nobody a leader, delete nothing, and hand no number out twice."""

from collections.abc import Mapping

import pytest
from regnum_model import paths
from regnum_model.backup.lines import Entry, Header
from regnum_model.backup.nodes import MARK, RestoredState, RestoreMark
from regnum_model.backup.plan import (
    CONTROLLER_EPOCHS_ON,
    KNOWN,
    LEADER_EPOCHS_ON,
    PRODUCER_IDS_ON,
    Choices,
    Report,
    RestorePlan,
)
from regnum_model.epochs import EPOCH_LEAP_MAX
from regnum_model.ids import (
    NO_LEADER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    LogId,
    Registration,
    TopicId,
)
from regnum_model.nodes import (
    Address,
    BrokerNode,
    DeletionNode,
    LeaderAndIsr,
    MalformedNodeError,
    Membership,
    PartitionDeletionNode,
    ProducerIdBlockNode,
    TopicIdNode,
    TopicNode,
)
from regnum_model.reassignment import Reassignment

HEADER = Header(cluster_id="c", store="etcd", taken_ms=7, one_moment=True, revision=1, regnum="0.1.0")
ID = TopicId("A" * 22)
TWO = (BrokerId(1), BrokerId(2))


def _state(leader_epoch: int = 4, *, removed: bool = False) -> LeaderAndIsr:
    members = {id: Membership(broker_epoch=BrokerEpoch(5), log_id=LogId(f"log {id}")) for id in TWO}
    return LeaderAndIsr(
        topic_id=ID,
        leader=NO_LEADER if removed else BrokerId(1),
        leader_epoch=LeaderEpoch(leader_epoch),
        isr=() if removed else TWO,
        elr=(),
        members={} if removed else members,
        controller_epoch=ControllerEpoch(3),
        removed=removed,
    )


def _topic(**changes: object) -> bytes:
    return TopicNode(**{"topic_id": ID, "partitions": {0: TWO}, **changes}).encode()  # type: ignore[arg-type]


def _restored(nodes: Mapping[str, bytes], choices: Choices | None = None) -> tuple[dict[str, bytes], RestorePlan]:
    plan = RestorePlan(HEADER, choices or Choices())
    entries = [Entry(path=path, data=data, version=0) for path, data in nodes.items()]
    for entry in entries:
        plan.prepare(entry)
    written = {plan.controller_epoch.path: plan.controller_epoch.data}
    for write in [write for entry in entries for write in plan.take(entry)] + list(plan.finish()):
        assert write.path not in written, "a node is written once"
        written[write.path] = write.data
    return written, plan


WHOLE = {
    "/brokers/topics/t": _topic(),
    "/brokers/topics/t/0": b"",
    "/brokers/topics/t/0/leaderAndISR": _state().encode(),
    f"/brokers/topic_ids/{ID}": TopicIdNode(topic="t").encode(),
}


def test_nobody_leads_and_nobody_is_in_sync_whatever_the_backup_says() -> None:
    written, plan = _restored({"/controller_epoch": b"41", **WHOLE})
    data = written["/brokers/topics/t/0/leaderAndISR"]
    with pytest.raises(MalformedNodeError, match="isr is empty"):
        LeaderAndIsr.decode(data)
    restored = RestoredState.decode(data)
    assert (restored.leader_epoch, restored.isr, restored.leader) == (4, TWO, 1)
    assert restored.controller_epoch == 41 + CONTROLLER_EPOCHS_ON
    assert written[f"/brokers/topic_ids/{ID}"] == WHOLE[f"/brokers/topic_ids/{ID}"]
    assert plan.brokers == {1, 2}
    assert (plan.report.topics, plan.report.partitions, plan.report.notices) == (1, 1, {})


def test_an_ordinary_state_is_never_taken_for_a_restored_one() -> None:
    for state in (_state(), _state(removed=True)):
        with pytest.raises(MalformedNodeError):
            RestoredState.decode(state.encode())


def test_a_partition_that_was_being_created_gets_no_first_leader() -> None:
    written, _ = _restored(
        {
            **WHOLE,
            "/brokers/topics/t": _topic(partitions={0: TWO, 1: TWO, 2: TWO}, creating={1, 2}),
            "/brokers/topics/t/2": b"",
        }
    )
    node = TopicNode.decode(written["/brokers/topics/t"])
    assert node.creating == frozenset()
    assert list(node.partitions) == [0, 1, 2]
    for number in (1, 2):
        assert RestoredState.decode(written[f"/brokers/topics/t/{number}/leaderAndISR"]).topic_id == ID
    assert written["/brokers/topics/t/1"] == b""


def test_a_state_that_was_missing_stays_missing() -> None:
    nodes = {path: data for path, data in WHOLE.items() if not path.endswith("leaderAndISR")}
    assert "/brokers/topics/t/0/leaderAndISR" not in _restored(nodes)[0]


def test_no_order_to_delete_a_replica_somewhere_is_given_again() -> None:
    """Since the backup the partition may have come back to broker 3, and 5 may have been added anew."""
    nodes = {
        **WHOLE,
        "/brokers/topics/t": _topic(left={0: (BrokerId(3),)}, removing={5: TWO}),
        "/brokers/topics/t/5/leaderAndISR": _state(7).encode(),
    }
    written, plan = _restored(nodes)
    node = TopicNode.decode(written["/brokers/topics/t"])
    assert (node.left, node.removing) == ({}, {})
    tombstone = LeaderAndIsr.decode(written["/brokers/topics/t/5/leaderAndISR"])
    assert tombstone.removed
    assert tombstone.leader_epoch == 7 + LEADER_EPOCHS_ON
    assert list(plan.report.counts.values()) == [1, 1]


def test_a_reassignment_goes_on_and_both_sides_are_waited_for() -> None:
    move = Reassignment(origin=TWO, target=(BrokerId(2), BrokerId(4)), since_ms=1)
    written, plan = _restored({**WHOLE, "/brokers/topics/t": _topic(reassigning={0: move})})
    assert TopicNode.decode(written["/brokers/topics/t"]).reassigning == {0: move}
    assert plan.brokers == {1, 2, 4}


def test_a_guard_without_its_topic_is_left_out() -> None:
    """Alone it would delete what brokers have of it: on ZooKeeper it may be newer than the topics that were read."""
    other = TopicId("B" * 22)
    for guard in (TopicIdNode(topic="u").encode(), TopicIdNode(topic="t").encode(), b"?"):
        written, plan = _restored({**WHOLE, f"/brokers/topic_ids/{other}": guard})
        assert f"/brokers/topic_ids/{other}" not in written
        assert sum(plan.report.counts.values()) == 1


def test_a_topic_without_its_guard_is_restored_and_told_of() -> None:
    nodes = {path: data for path, data in WHOLE.items() if "topic_ids" not in path}
    written, plan = _restored(nodes)
    assert "/brokers/topics/t" in written
    assert not any("topic_ids" in path for path in written)
    assert plan.report.notices == {
        "topic without its guard: stays Offline; see regnum partitions recover": ["/brokers/topics/t"]
    }


def test_a_topic_that_was_only_written_by_hand_is_left_out_with_what_is_below_it() -> None:
    written, plan = _restored({"/brokers/topics/t": b'{"0":[1,2]}', "/brokers/topics/t/0": b""})
    assert not any(path.startswith("/brokers/topics/t") for path in written)
    assert sum(plan.report.counts.values()) == 2


def test_what_nobody_could_read_is_restored_as_it_was() -> None:
    written, _ = _restored(
        {
            "/brokers/topics/t": b"?",
            "/brokers/topics/t/0": b"",
            "/brokers/topics/t/0/leaderAndISR": _state().encode(),
            f"/brokers/topic_ids/{ID}": TopicIdNode(topic="t").encode(),
        }
    )
    assert written["/brokers/topics/t"] == b"?"
    assert RestoredState.decode(written["/brokers/topics/t/0/leaderAndISR"]).leader_epoch == 4
    assert f"/brokers/topic_ids/{ID}" in written
    damaged, _ = _restored({**WHOLE, "/brokers/topics/t/0/leaderAndISR": b"?"})
    assert damaged["/brokers/topics/t/0/leaderAndISR"] == b"?"


def test_the_tombstone_of_a_removed_partition_goes_on_above_one_that_was_added_since() -> None:
    written, _ = _restored({**WHOLE, "/brokers/topics/t/9/leaderAndISR": _state(2, removed=True).encode()})
    tombstone = LeaderAndIsr.decode(written["/brokers/topics/t/9/leaderAndISR"])
    assert (tombstone.removed, tombstone.leader_epoch) == (True, 2 + LEADER_EPOCHS_ON)


def test_deletions_go_on_as_they_were_ordered() -> None:
    records = {
        f"/admin/delete_topics/{ID}": DeletionNode(topic="u", brokers=frozenset(TWO)).encode(),
        f"/admin/delete_partitions/{ID}/3": PartitionDeletionNode(
            topic="t", brokers=frozenset(TWO), leader_epoch=LeaderEpoch(6)
        ).encode(),
    }
    written, plan = _restored(records)
    assert {path: written[path] for path in records} == records
    assert plan.report.deletions == 1


def test_orders_by_hand_and_announcements_are_not_given_again() -> None:
    nodes = {
        "/admin/partitions_remove": b"",
        "/admin/partitions_remove/t": b"",
        "/admin/partitions_add/t/4": b"[1]",
        "/admin/partitions_reassigned/t": b"{}",
        "/config/changes": b"",
        "/config/changes/change_0000000001": b"{}",
    }
    written, plan = _restored(nodes)
    assert written.keys() & nodes.keys() == {"/admin/partitions_remove", "/config/changes"}
    assert list(plan.report.counts.values()) == [3]


def test_numbers_go_on_far_above_those_that_were_given_out_since() -> None:
    block = ProducerIdBlockNode(first=3_000, count=1_000)
    for nodes, first in (({"/latest_producer_id_block": block.encode()}, 4_000), ({}, 0)):
        written, _ = _restored(nodes)
        assert ProducerIdBlockNode.decode(written["/latest_producer_id_block"]).first == first + PRODUCER_IDS_ON
    assert _restored({"/controller_epoch": b"12"})[0]["/controller_epoch"] == str(12 + CONTROLLER_EPOCHS_ON).encode()
    assert _restored({"/controller_epoch": b"?"})[0]["/controller_epoch"] == str(CONTROLLER_EPOCHS_ON).encode()
    assert CONTROLLER_EPOCHS_ON <= EPOCH_LEAP_MAX, "who knows the former epoch believes the next one"


LIVE_BROKER = BrokerNode(
    incarnation="i",
    registration=Registration(1),
    rack=None,
    directories={"d": LogId("log 7")},  # type: ignore[dict-item]
    listeners={"client": Address.parse("h:1"), "internal": Address.parse("h:2")},
).encode()


def test_what_processes_registered_is_not_restored_and_tells_which_logs_there_were() -> None:
    plan = RestorePlan(HEADER, Choices())
    live = [
        Entry(path="/brokers/ids/7", data=LIVE_BROKER, version=0, live=True),
        Entry(path="/controller", data=b"{}", version=0, live=True),
        Entry(path="/controller", data=b"{}", version=0),
        Entry(path="/quota/active", data=b"{}", version=0),
        Entry(path="/election/ids/1", data=b"{}", version=0),
        Entry(path="/brokers/addresses/client@a:1", data=b"{}", version=0, live=True),
        Entry(path="/quota/addresses/internal@a:2", data=b"{}", version=0),
        Entry(path=MARK, data=b"{}", version=0),
        Entry(path="/cluster/id", data=b"c", version=0),
    ]
    assert [write for entry in live for write in plan.take(entry)] == []
    assert plan.logs == {7: {"log 7"}}
    assert plan.brokers == {7}


def test_a_broker_that_is_gone_for_good_is_not_waited_for_and_one_that_joined_since_is() -> None:
    written, plan = _restored(
        {"/brokers/epochs/3": b"", "/brokers/epochs/4": b"", "/brokers/lives/6": b"{}"},
        Choices(more_brokers=frozenset({BrokerId(4), BrokerId(5)})),
    )
    # (Who unregisters a broker ends its life; its guard stays.)
    assert plan.brokers == {4, 5, 6}
    assert [path for path in written if path.startswith("/brokers/epochs/")] == [
        "/brokers/epochs/3",
        "/brokers/epochs/4",
        "/brokers/epochs/5",
    ]


def test_an_id_that_no_broker_can_have_does_not_make_the_mark_unreadable() -> None:
    """A person can write any node; an unreadable mark would hold up every process of the restored cluster."""
    nodes = {
        "/brokers/ids/2147483648": LIVE_BROKER,
        "/brokers/epochs/9999999999": b"",
        "/brokers/lives/2147483648": b"",
    }
    written, plan = _restored(nodes)
    assert (plan.brokers, plan.logs) == (set(), {})
    assert written["/brokers/epochs/9999999999"] == b""
    mark = RestoreMark(whole=True, run="r", backup="b", taken_ms=1, since_ms=1, brokers=frozenset(plan.brokers))
    assert RestoreMark.decode(mark.encode()) == mark


def test_tokens_may_be_left_out() -> None:
    nodes = {"/delegation_tokens": b"", "/delegation_tokens/x": b"{}"}
    assert _restored(nodes)[1].report.tokens == 1
    written, plan = _restored(nodes, Choices(without_tokens=True))
    assert "/delegation_tokens/x" not in written
    assert (plan.report.tokens, sum(plan.report.counts.values())) == (0, 1)


def test_a_tree_that_was_restored_and_has_no_leaders_yet_can_be_restored_again() -> None:
    once, _ = _restored({"/controller_epoch": b"1", **WHOLE})
    twice, plan = _restored(once)
    path = "/brokers/topics/t/0/leaderAndISR"
    assert RestoredState.decode(twice[path]).leader_epoch == RestoredState.decode(once[path]).leader_epoch
    assert plan.report.controller_epoch == 1 + 2 * CONTROLLER_EPOCHS_ON


def test_other_programs_nodes_are_left_alone() -> None:
    written, plan = _restored({"/zookeeper": b"", "/zookeeper/quota": b""})
    assert not any("zookeeper" in path for path in written)
    assert sum(plan.report.counts.values()) == 2


def test_every_path_of_the_product_is_known() -> None:
    """A folder that is new in the product is in the next backup."""
    constants = [value for name, value in vars(paths).items() if name.isupper() and isinstance(value, str)]
    assert len(constants) > 15
    ephemeral = {paths.CONTROLLER}
    assert {path.split("/")[1] for path in constants if path not in ephemeral} <= KNOWN


def test_a_report_names_some_and_counts_all() -> None:
    report = Report()
    for number in range(30):
        report.notice("what", str(number))
    assert (report.counts, len(report.notices["what"])) == ({"what": 30}, 20)


def test_the_same_backup_restored_again_gives_no_producer_id_out_twice() -> None:
    block = {paths.PRODUCER_ID_BLOCK: ProducerIdBlockNode(first=1_000, count=1_000).encode()}
    hour_ms = 3_600_000
    firsts = []
    for age_ms in (hour_ms, 2 * hour_ms, 10**18):
        written, _ = _restored(block, Choices(age_ms=age_ms))
        firsts.append(ProducerIdBlockNode.decode(written[paths.PRODUCER_ID_BLOCK]).first)
    assert firsts[1] - firsts[0] >= 10_000_000 * 3_600
    assert firsts[1] < firsts[2] < 2**62


@pytest.mark.parametrize("number", ["9" * 5_000, "\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT ONE}", "-1", ""])
def test_a_name_that_is_no_number_is_left_out_and_said(number: str) -> None:
    path = f"{paths.topic('t')}/{number}/leaderAndISR"
    nodes = {paths.topic("t"): _topic(), f"{paths.BROKER_EPOCHS}/{number}": b"", path: _state().encode()}
    written, plan = _restored(nodes)
    assert LeaderAndIsr.decode(written[path]).removed
    assert [paths_ for what, paths_ in plan.report.notices.items() if "does not name" in what] == [[path]]


def test_who_had_everything_at_the_backup_is_known_after_a_second_restore_too() -> None:
    nodes = {paths.topic("t"): _topic(), paths.leader_and_isr("t", 0): _state().encode()}
    once, _ = _restored(nodes)
    twice, _ = _restored(once)
    for written in (once, twice):
        state = RestoredState.decode(written[paths.leader_and_isr("t", 0)])
        assert state.holders == {1: "log 1", 2: "log 2"}
