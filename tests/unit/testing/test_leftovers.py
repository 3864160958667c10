"""The audit finds each thing that a change can leave behind, and nothing where all is well."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, LogId, TopicId
from regnum_model.nodes import DeletionNode, LeaderAndIsr, Membership, TopicIdNode, TopicNode
from regnum_model.reassignment import Reassignment
from regnum_testing.leftovers import left_behind, versions

ID = TopicId("AAAAAAAAAAAAAAAAAAAAAA")
OTHER = TopicId("BBBBBBBBBBBBBBBBBBBBBA")
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
MEMBER = Membership(broker_epoch=BrokerEpoch(1), log_id=LogId("log"))
STATE = LeaderAndIsr(
    topic_id=ID,
    leader=ONE,
    leader_epoch=LeaderEpoch(0),
    isr=(ONE, TWO),
    elr=(),
    members={ONE: MEMBER, TWO: MEMBER, THREE: MEMBER},
    controller_epoch=ControllerEpoch(1),
)
TOMBSTONE = replace(STATE, leader=BrokerId(-1), isr=(), removed=True)
TOPIC = TopicNode(topic_id=ID, partitions={0: (ONE, TWO)})
WELL: Mapping[str, bytes] = {
    "/brokers/ids/1": b"",
    "/brokers/ids/2": b"",
    "/brokers/topic_ids/" + ID: TopicIdNode(topic="t").encode(),
    "/brokers/topics/t": TOPIC.encode(),
    "/brokers/topics/t/0": b"",
    "/brokers/topics/t/0/leaderAndISR": STATE.encode(),
    "/brokers/topics/t/7": b"",
    "/brokers/topics/t/7/leaderAndISR": TOMBSTONE.encode(),
    "/admin/delete_topics": b"",
    "/config/topics/t": b"{}",
}
FOLDERS = (f"broker-1/replicas/{ID}-0", f"broker-2/replicas/{ID}-0")


async def found(tmp_path: Path, nodes: Mapping[str, bytes], folders: tuple[str, ...] = FOLDERS) -> list[str]:
    store = MemoryStore(MemoryServer())
    for path, data in nodes.items():
        await store.create(path, data, make_parents=True)
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    return await left_behind(store, tmp_path)


async def test_nothing_is_found_where_all_is_well(tmp_path: Path) -> None:
    assert await found(tmp_path, WELL) == []


MOVE = Reassignment(origin=(ONE,), target=(TWO,), since_ms=0)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ({f"/admin/delete_topics/{OTHER}": DeletionNode(topic="x", brokers=frozenset()).encode()}, "stands"),
        ({f"/admin/delete_partitions/{ID}": b""}, "stands"),
        ({"/admin/partitions_reassigned/t": b""}, "stands"),
        ({f"/brokers/topic_ids/{OTHER}": TopicIdNode(topic="gone").encode()}, "the guard of topic id"),
        ({"/brokers/topics/u": replace(TOPIC, topic_id=OTHER).encode()}, "topic u has no guard"),
        ({"/brokers/topics/t": replace(TOPIC, creating=frozenset({0})).encode()}, "is creating"),
        ({"/brokers/topics/t": replace(TOPIC, removing={1: (ONE,)}).encode()}, "is removing"),
        ({"/brokers/topics/t": replace(TOPIC, reassigning={0: MOVE}).encode()}, "is reassigning"),
        ({"/brokers/topics/t": replace(TOPIC, left={0: (THREE,)}).encode()}, "is left"),
        ({"/brokers/topics/t": replace(TOPIC, partitions={0: (ONE, TWO), 1: (ONE,)}).encode()}, "t-1 has no state"),
        ({"/brokers/topics/t/5": b"", "/brokers/topics/t/5/leaderAndISR": STATE.encode()}, "t-5 is no partition"),
        ({"/brokers/topics/t/5": b""}, "t-5 has no state"),
        ({"/brokers/topics/t/0/leaderAndISR": b"scribble"}, "cannot be read"),
        ({"/brokers/topics/t/0/leaderAndISR": replace(STATE, topic_id=OTHER).encode()}, "another topic"),
        ({"/brokers/topics/t/0/leaderAndISR": TOMBSTONE.encode()}, "or is one and has a tombstone"),
        ({"/brokers/topics/t/0/leaderAndISR": replace(STATE, leader=BrokerId(-1)).encode()}, "is led by -1"),
        ({"/brokers/topics/t/0/leaderAndISR": replace(STATE, leader=THREE, isr=(THREE,)).encode()}, "is led by 3"),
        ({"/brokers/topics/t/0/leaderAndISR": replace(STATE, isr=(ONE, THREE)).encode()}, "has ISR (1, 3)"),
        ({"/config/topics/gone": b"{}"}, "settings of a topic gone"),
    ],
)
async def test_each_thing_left_in_the_store_is_found(tmp_path: Path, nodes: Mapping[str, bytes], said: str) -> None:
    lines = await found(tmp_path, {**WELL, **nodes})
    assert any(said in line for line in lines), lines


@pytest.mark.parametrize(
    "folder", [f"broker-3/replicas/{ID}-0", f"broker-1/replicas/{OTHER}-0", f"broker-1/replicas/{ID}-0.deleted"]
)
async def test_each_folder_that_no_assignment_names_is_found(tmp_path: Path, folder: str) -> None:
    (line,) = await found(tmp_path, WELL, (*FOLDERS, folder))
    assert folder.rpartition("/")[2] in line


async def test_what_belongs_to_a_session_is_no_content(tmp_path: Path) -> None:
    store = MemoryStore(MemoryServer())
    await store.create("/a", b"1")
    await store.create("/b", b"", ephemeral=True)
    before = await versions(store)
    assert set(before) == {"/a"}
    await store.set("/a", b"1", version=0)
    assert await versions(store) != before, "a write that leaves the same content is one"
