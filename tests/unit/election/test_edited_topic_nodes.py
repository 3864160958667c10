"""A topic node that names other replicas than a controller accepted: refused, by this controller and by the next one.

Each edit is tried under a running controller, and while none runs; the next controller starts from the store alone.
"""

import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from regnum.types.v1 import events_pb2 as words
from regnum_election.controller import Controller
from regnum_election.health.messages import describe_health
from regnum_election.history.events import OtherEntry
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.nodes import AcceptedAssignment, TopicIdNode, TopicNode
from regnum_testing.moving import arrived, ask, catch_up, created, grown, ids
from regnum_testing.reigning import FakeCluster
from regnum_testing.standing_by import FakeStandby
from regnum_testing.waiting import until

SOON_S = 0.02

Edit = Callable[[dict[str, Any]], None]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3, 4)
    yield cluster
    await cluster.close()


def replicas(number: int, *brokers: int) -> Edit:
    def edit(content: dict[str, Any]) -> None:
        content["partitions"][str(number)] = list(brokers)

    return edit


def gone(content: dict[str, Any]) -> None:
    del content["partitions"]["1"]


def removing(content: dict[str, Any]) -> None:
    content["removing"] = {"1": content["partitions"].pop("1")}


def added(content: dict[str, Any]) -> None:
    content["partitions"]["7"] = [1, 2]


def moving(content: dict[str, Any]) -> None:
    content["partitions"]["0"] = [1, 2, 3, 4]
    content["reassigning"] = {"0": {"from": [1, 2, 3], "to": [2, 3, 4], "since": 1}}


def bare(content: dict[str, Any]) -> None:
    partitions = content["partitions"]
    content.clear()
    content.update({**partitions, "0": [2, 3]})


def unknown_fields(content: dict[str, Any]) -> None:
    content["partitions"]["0"] = [2, 3]
    content["adding_replicas"] = {}


EDITS: dict[str, tuple[Edit, str]] = {
    "one fewer": (replicas(0, 1, 2), "[1, 2] in the node, accepted are [1, 2, 3]"),
    "one more": (replicas(0, 1, 2, 3, 4), "[1, 2, 3, 4] in the node, accepted are [1, 2, 3]"),
    "another order": (replicas(0, 3, 2, 1), "[3, 2, 1] in the node, accepted are [1, 2, 3]"),
    "entirely others": (replicas(1, 4), "partition 1: [4] in the node, accepted are [2, 3, 1]"),
    "a partition is gone": (gone, "partition 1: not in the node, accepted are [2, 3, 1]"),
    "a partition is on its way out": (removing, "partition 1: not in the node, accepted are [2, 3, 1]"),
    "a partition more": (added, "partition 7: [1, 2] in the node, and no controller added it"),
    "a reassignment": (moving, "[1, 2, 3, 4] on the way from [1, 2, 3] to [2, 3, 4] in the node"),
    "the bare form": (bare, "[2, 3] in the node, accepted are [1, 2, 3]"),
    "with unknown fields": (unknown_fields, "[2, 3] in the node, accepted are [1, 2, 3]"),
}


async def overwrite(cluster: FakeCluster, edit: Edit) -> bytes:
    """Edit the node of topic t; what stood there."""
    before = (await cluster.outside.get(paths.topic("t"))).data
    content = json.loads(before)
    edit(content)
    cluster.server.overwrite(paths.topic("t"), json.dumps(content).encode())
    return before


async def damage(controller: Controller) -> list[tuple[str, str, str]]:
    found = (await describe_health(controller.health, most=10)).damaged
    return [(one.topic, one.reason, one.advice) for one in found]


async def is_refused(controller: Controller, said: str) -> None:
    await until(lambda: bool(controller._context.edited), what="the edit is noticed")
    ((topic, reason, advice),) = await damage(controller)
    assert topic == "t"
    assert said in reason
    assert "regnum partitions reassign --to t/0=1,2,3 --execute" in advice


def told(cluster: FakeCluster) -> list[str]:
    kind = words.EVENT_KIND_TOPIC_NODE_EDITED
    return [one.detail for one in cluster.recorded if isinstance(one, OtherEntry) and one.kind == kind]


def assigned(controller: Controller, id: TopicId) -> dict[int, tuple[int, ...]]:
    picture = controller.picture
    return {key.partition: picture.partitions[key].replicas for key in picture.of_topic(id)}


ACCEPTED = {0: (1, 2, 3), 1: (2, 3, 1)}


@pytest.mark.parametrize("name", EDITS)
async def test_an_edit_is_refused_in_this_reign_and_the_next_and_goes_when_it_is_taken_back(
    cluster: FakeCluster, name: str
) -> None:
    edit, said = EDITS[name]
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    id = await created(controller, "t", (1, 2, 3), (2, 3, 1))
    states = [await cluster.state("t", number) for number in (0, 1)]
    before = await overwrite(cluster, edit)
    await is_refused(controller, said)
    (first,) = told(cluster)
    assert said in first
    assert assigned(controller, id) == ACCEPTED
    await cluster.end_reign()
    controller = await cluster.reign(2, corrections_interval_s=SOON_S)
    await is_refused(controller, said)
    assert told(cluster) == [first, first], "once in each reign"
    assert assigned(controller, id) == ACCEPTED
    assert [await cluster.state("t", number) for number in (0, 1)] == states
    assert all(controller.picture.partitions[key].is_led for key in controller.picture.of_topic(id))
    cluster.server.overwrite(paths.topic("t"), before)
    await until(lambda: not controller._context.edited, what="the issue goes")
    assert await damage(controller) == []
    assert assigned(controller, id) == ACCEPTED


@pytest.mark.parametrize("successor", ["from nothing", "from a standby"])
async def test_an_edit_while_no_controller_runs_is_refused_and_a_request_makes_peace(
    cluster: FakeCluster, successor: str
) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    id = await created(controller, "t", (1, 2, 3), (2, 3, 1))
    followed = None
    if successor == "from a standby":
        standby = FakeStandby(lambda: cluster.controller, cluster.clock)
        standby.start()
        await until(standby.has_all)
        followed = await standby.follower.take()
        await standby.close()
    await cluster.end_reign()
    await overwrite(cluster, replicas(1, 4))
    await overwrite(cluster, added)
    controller = await cluster.reign(2, corrections_interval_s=SOON_S, followed=followed)
    await is_refused(controller, "partition 1: [4] in the node, accepted are [2, 3, 1]")
    assert assigned(controller, id) == ACCEPTED
    # What it has is asked for: the accepted assignment of all partitions is written back.
    assert await ask(controller, "t", {0: (1, 2, 3)}) == [None]
    node = await cluster.topic("t")
    assert node.partitions == ACCEPTED
    assert node.left == {}
    assert await damage(controller) == []
    await until(lambda: not controller._context.edited)


async def test_a_member_of_the_isr_outside_the_edited_list_stays_and_its_death_is_followed(
    cluster: FakeCluster,
) -> None:
    controller = await cluster.reign()
    id = await created(controller, "t", (1, 2, 3))
    await cluster.end_reign()
    await overwrite(cluster, replicas(0, 1, 2))
    controller = await cluster.reign(2)
    cluster.kill(3)

    async def has_left() -> bool:
        return (await cluster.state("t", 0)).isr == (1, 2)

    await until(has_left)
    assert assigned(controller, id) == {0: (1, 2, 3)}


UNREADABLE: dict[str, Callable[[bytes], bytes]] = {
    "broken JSON": lambda data: data[:-3],
    "a broker twice": lambda data: data.replace(b"[1,2,3]", b"[1,1]"),
    "no broker": lambda data: data.replace(b"[1,2,3]", b"[]"),
    "another id": lambda data: re.sub(rb'"topic_id":"[^"]+"', b'"topic_id":"AAAAAAAAAAAAAAAAAAAAAA"', data),
    "half of a reassignment": lambda data: data[:-1] + b',"reassigning":{"0":{"from":[4],"to":[1]}}}',
}


@pytest.mark.parametrize("successor", ["from nothing", "from a standby"])
@pytest.mark.parametrize("name", UNREADABLE)
async def test_a_node_that_cannot_be_read_is_refused_and_the_topic_goes_on_as_recorded(
    cluster: FakeCluster, name: str, successor: str
) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    id = await created(controller, "t", (1, 2, 3), (2, 3, 1))
    states = [await cluster.state("t", number) for number in (0, 1)]
    whole = (await cluster.outside.get(paths.topic("t"))).data
    followed = None
    if successor == "from a standby":
        standby = FakeStandby(lambda: cluster.controller, cluster.clock)
        standby.start()
        await until(standby.has_all)
        followed = await standby.follower.take()
        await standby.close()
    cluster.server.overwrite(paths.topic("t"), UNREADABLE[name](whole))
    await until(lambda: "t" in controller._context.refused)
    (first,) = told(cluster)
    # A successor may find it as it looks through all nodes, before it takes the topic up.
    assert await controller._adopter.take_up(["t"]) == [id]
    assert "t" in controller._context.incomplete
    assert told(cluster) == [first]
    await cluster.end_reign()
    controller = await cluster.reign(2, corrections_interval_s=SOON_S, followed=followed)
    await until(lambda: "t" in controller._context.incomplete)
    ((topic, reason, _),) = await damage(controller)
    assert topic == "t"
    assert "runs on with the partitions and replicas that were accepted" in reason
    assert len(told(cluster)) == 2, first
    assert assigned(controller, id) == ACCEPTED
    assert [await cluster.state("t", number) for number in (0, 1)] == states
    assert set(cluster.metadata.topics["t"]) == {0, 1}
    cluster.server.overwrite(paths.topic("t"), whole)
    await until(lambda: not controller._context.incomplete, what="the issue goes")
    assert await damage(controller) == []
    assert assigned(controller, id) == ACCEPTED


@pytest.mark.parametrize("content", [b"{broken", b'{"0":[2,3]}', b"[]"])
async def test_a_node_that_says_nothing_of_the_topic_is_written_anew_on_request(
    cluster: FakeCluster, content: bytes
) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    id = await created(controller, "t", (1, 2, 3), (2, 3, 1))
    before = await cluster.topic("t")
    cluster.server.overwrite(paths.topic("t"), content)
    await until(lambda: bool(controller._context.edited or controller._context.refused))
    assert await ask(controller, "t", {1: (2, 3, 1)}) == [None]
    assert await cluster.topic("t") == before
    await until(lambda: not controller._context.edited and not controller._context.refused)
    assert assigned(controller, id) == ACCEPTED


async def test_a_node_of_a_later_release_is_not_written_over(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await created(controller, "t", (1, 2, 3))
    later = b'{"version":3,"partitions":{"0":[1,2,3]}}'
    cluster.server.overwrite(paths.topic("t"), later)
    await until(lambda: bool(controller._context.refused))
    (refused,) = await ask(controller, "t", {0: (1, 2, 3)})
    assert refused is not None
    assert "a later release wrote it" in refused.message
    assert (await cluster.outside.get(paths.topic("t"))).data == later


async def test_a_partition_whose_node_was_edited_can_be_moved(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    id = await created(controller, "t", (1,))
    await overwrite(cluster, replicas(0, 2, 3))
    await is_refused_on(controller, "accepted are [1]")
    assert await ask(controller, "t", {0: (4,)}) == [None]
    await grown(cluster, "t", 0, 1, 4)
    await catch_up(cluster, "t", 0, 4)
    await arrived(cluster, "t", 0, 4)
    # The picture follows the store.
    await until(lambda: assigned(controller, id) == {0: (4,)}, what="the controller knows")
    assert (await record(cluster, id)).partitions == {0: ids(4)}


async def is_refused_on(controller: Controller, said: str) -> None:
    await until(lambda: said in "".join(controller._context.edited.values()), what="the edit is noticed")


async def record(cluster: FakeCluster, id: TopicId) -> AcceptedAssignment:
    accepted = TopicIdNode.decode((await cluster.outside.get(paths.topic_id(id))).data).accepted
    assert accepted is not None
    return accepted


async def test_what_the_guard_records_goes_with_every_change(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    id = await created(controller, "t", (1, 2, 3))
    assert await record(cluster, id) == AcceptedAssignment.of(await cluster.topic("t"))
    assert await ask(controller, "t", {0: (2, 3, 4)}) == [None]
    await grown(cluster, "t", 0, 1, 2, 3, 4)
    assert await record(cluster, id) == AcceptedAssignment.of(await cluster.topic("t"))
    assert (await record(cluster, id)).reassigning[0].target == (2, 3, 4)
    # The agent leaves an edited partition alone; the next reign goes on with the reassignment.
    await overwrite(cluster, replicas(0, 4, 3, 2, 1))
    await cluster.end_reign()
    controller = await cluster.reign(2, corrections_interval_s=SOON_S)
    await is_refused_on(controller, "accepted are [1, 2, 3, 4] on the way from [1, 2, 3] to [2, 3, 4]")
    await catch_up(cluster, "t", 0, 4)
    assert await ask(controller, "t", {0: (2, 3, 4)}) == [None]
    await arrived(cluster, "t", 0, 2, 3, 4)
    assert await record(cluster, id) == AcceptedAssignment.of(await cluster.topic("t"))


def as_of_the_first_release(cluster: FakeCluster, id: TopicId) -> None:
    cluster.server.overwrite(paths.topic_id(id), TopicIdNode(topic="t").encode())


async def test_a_topic_of_the_first_release_is_believed_and_then_recorded(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    id = await created(controller, "t", (1, 2, 3), (2, 3, 1))
    await cluster.end_reign()
    as_of_the_first_release(cluster, id)
    controller = await cluster.reign(2, corrections_interval_s=SOON_S)

    async def is_recorded() -> bool:
        return TopicIdNode.decode((await cluster.outside.get(paths.topic_id(id))).data).accepted is not None

    await until(is_recorded)
    assert await record(cluster, id) == AcceptedAssignment.of(await cluster.topic("t"))
    assert await damage(controller) == []


async def test_without_a_record_the_members_of_the_isr_are_replicas_whatever_the_node_says(
    cluster: FakeCluster,
) -> None:
    controller = await cluster.reign()
    id = await created(controller, "t", (1, 2, 3), (2, 3, 1))
    await cluster.end_reign()
    as_of_the_first_release(cluster, id)
    await overwrite(cluster, replicas(0, 4, 1, 2))
    await overwrite(cluster, replicas(1, 4))
    controller = await cluster.reign(2, corrections_interval_s=SOON_S)
    await is_refused(controller, "[4, 1, 2] in the node, accepted are [1, 2, 3]")
    assert assigned(controller, id) == ACCEPTED
    assert await ask(controller, "t", {0: (1, 2, 3)}) == [None]
    assert (await cluster.topic("t")).partitions == ACCEPTED
    assert (await record(cluster, id)).partitions == ACCEPTED


async def test_what_a_controller_of_the_first_release_moved_is_believed_against_the_record(
    cluster: FakeCluster,
) -> None:
    """It writes topic nodes and states, and no record."""
    controller = await cluster.reign()
    id = await created(controller, "t", (1, 2, 3))
    await cluster.end_reign()
    node, state = await cluster.topic("t"), await cluster.state("t", 0)
    members = {**state.members, BrokerId(4): state.members[BrokerId(3)]}
    moved = replace(state, isr=ids(2, 4), leader=BrokerId(2), members=members)
    cluster.server.overwrite(paths.topic("t"), replace(node, partitions={0: ids(2, 4)}).encode())
    cluster.server.overwrite(paths.leader_and_isr("t", 0), moved.encode())
    controller = await cluster.reign(2, corrections_interval_s=SOON_S)
    assert assigned(controller, id) == {0: (2, 4)}
    assert await damage(controller) == []

    async def is_recorded() -> bool:
        return (await record(cluster, id)).partitions == {0: ids(2, 4)}

    await until(is_recorded)


@pytest.mark.parametrize("ended", [(1, 2, 3), (3, 4, 1)], ids=["called back", "completed"])
async def test_a_move_that_a_controller_of_the_first_release_ended_is_over(
    cluster: FakeCluster, ended: tuple[int, ...]
) -> None:
    """The record lists both ends of the move: each way to end it fits that, and the node as well."""
    controller = await cluster.reign()
    id = await created(controller, "t", (1, 2, 3))
    assert await ask(controller, "t", {0: (3, 4, 1)}) == [None]
    await until(lambda: assigned(controller, id) == {0: (1, 2, 3, 4)}, what="the new replica is added")
    await cluster.end_reign()
    assert (await record(cluster, id)).reassigning[0].target == (3, 4, 1)
    node, state = await cluster.topic("t"), await cluster.state("t", 0)
    members = {BrokerId(number): state.members[BrokerId(1)] for number in ended}
    over = replace(state, isr=ids(*ended), leader=BrokerId(3), members=members)
    cluster.server.overwrite(paths.topic("t"), replace(node, partitions={0: ids(*ended)}, reassigning={}).encode())
    cluster.server.overwrite(paths.leader_and_isr("t", 0), over.encode())
    controller = await cluster.reign(2, corrections_interval_s=SOON_S)
    assert assigned(controller, id) == {0: ended}
    assert await damage(controller) == []

    async def is_recorded() -> bool:
        found = await record(cluster, id)
        return found.partitions == {0: ids(*ended)} and not found.reassigning

    await until(is_recorded)


async def test_a_reassignment_that_is_written_while_nodes_are_looked_at_is_no_edit(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=0.001)
    await created(controller, "t", (1, 2, 3))
    for target in ((3, 2, 1), (2, 1, 3), (1, 3, 2)) * 3:
        assert await ask(controller, "t", {0: target}) == [None]
        await arrived(cluster, "t", 0, *target)
    assert told(cluster) == []


async def test_a_topic_node_that_a_person_writes_for_a_new_topic_is_recorded(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await cluster.outside.create(paths.topic("t"), b'{"0":[1,2]}')
    await until(lambda: "t" in controller.picture.names)
    id = controller.picture.names["t"]
    await until(lambda: controller.picture.partitions[PartitionKey(id, 0)].is_led)
    assert (await record(cluster, id)).partitions == {0: ids(1, 2)}
    assert TopicNode.decode((await cluster.outside.get(paths.topic("t"))).data).topic_id == id
