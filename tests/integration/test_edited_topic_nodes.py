"""Replica lists of topics edited with etcdctl or zkCli: refused, also by the next controller (safety rule S14)."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from regnum_client import Admin, Consumer, Producer, TopicPartition
from regnum_client.admin.describing.events import EventKind
from regnum_local.cluster import LocalCluster
from regnum_service.errors import RegnumError
from regnum_testing.hands import Hand, hand_for
from regnum_testing.under_load import until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

WIDE, SINGLE, BROKEN = "wide", "single", "broken"
ACCEPTED = {WIDE: (1, 2, 3), SINGLE: (1,), BROKEN: (2, 3, 1)}
EDITED = {WIDE: [1, 2], SINGLE: [2, 3]}


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["etcd", "zookeeper"])
async def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LocalCluster]:
    """A cluster on each store, with few processes."""
    folder = tmp_path_factory.mktemp("cluster") / "data"
    async with LocalCluster(folder, brokers=3, elections=1, coordination=request.param) as started:
        yield started


async def edit(hand: Hand, topic: str, replicas: list[int]) -> None:
    path = f"/brokers/topics/{topic}"
    content = json.loads(await hand.get(path) or "")
    content["partitions"]["0"] = replicas
    await hand.put(path, json.dumps(content))


async def replicas_of(admin: Admin) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    async for topic in admin.describe_topics(list(ACCEPTED)):
        found[topic.name] = tuple(topic.partitions[0].replicas)
    return found


async def damaged(admin: Admin) -> dict[str, str]:
    return {one.topic: one.reason for one in (await admin.describe_health()).damaged}


async def is_told_of(admin: Admin) -> None:
    async def told() -> bool:
        try:
            return set(await damaged(admin)) == set(ACCEPTED)
        except RegnumError:
            return False

    await until(told)
    reasons = await damaged(admin)
    assert "partition 0: [1, 2] in the node, accepted are [1, 2, 3]" in reasons[WIDE]
    assert "partition 0: [2, 3] in the node, accepted are [1]" in reasons[SINGLE]
    assert "not JSON" in reasons[BROKEN]


async def test_edited_lists_are_refused_by_two_controllers_and_a_request_makes_peace(cluster: LocalCluster) -> None:
    async with (
        hand_for(cluster.coordination) as hand,
        Admin(cluster.bootstrap) as admin,
        Producer(cluster.bootstrap) as producer,
    ):
        for topic, replicas in ACCEPTED.items():
            await admin.create_topic(topic, partitions=0, assignment={0: replicas})
            await (await producer.send(topic, b"before", partition=0))
        whole = {topic: json.loads(await hand.get(f"/brokers/topics/{topic}") or "") for topic in ACCEPTED}
        for topic, replicas_edited in EDITED.items():
            await edit(hand, topic, replicas_edited)
        await hand.put(f"/brokers/topics/{BROKEN}", "{broken")
        await is_told_of(admin)
        assert await replicas_of(admin) == ACCEPTED
        # Another controller, which knows nothing but the store.
        epoch = (await admin.describe_cluster()).controller
        assert epoch is not None
        await cluster.kill("election-1")
        await cluster.restart("election-1")

        async def succeeded() -> bool:
            now = (await admin.describe_cluster()).controller
            return now is not None and now.epoch > epoch.epoch

        await until(succeeded)
        await is_told_of(admin)
        assert await replicas_of(admin) == ACCEPTED
        # The broker that an edit left out is a member as any other: it dies, is left out, and is back.
        await cluster.kill("broker-3")
        for topic in ACCEPTED:
            await (await producer.send(topic, b"without it", partition=0))
        await cluster.restart("broker-3")

        async def in_sync_again() -> bool:
            return len((await admin.describe_topic(WIDE)).partitions[0].isr) == 3

        await until(in_sync_again)
        wanted = {(topic, 0): replicas for topic, replicas in ACCEPTED.items() if topic != BROKEN}
        assert set((await admin.alter_partition_reassignments(wanted)).values()) == {None}
        # What the record lets go on, and only a person can have damaged, is mended by either way.
        await hand.put(f"/brokers/topics/{BROKEN}", json.dumps(whole[BROKEN]))

        async def at_peace() -> bool:
            return not await damaged(admin)

        await until(at_peace)
        for topic, before in whole.items():
            assert json.loads(await hand.get(f"/brokers/topics/{topic}") or "")["partitions"] == before["partitions"]
        events = [one for one in await admin.last_events(limit=1_000) if one.kind is EventKind.TOPIC_NODE_EDITED]
        told = [(one.position.epoch, one.topic) for one in events]
        assert len(set(told)) == len(told), "once in each reign"
        assert {name for _, name in told} == set(ACCEPTED)
        assert len({reign for reign, _ in told}) >= 2
        assert await replicas_of(admin) == ACCEPTED
        async with Consumer(cluster.bootstrap) as consumer:
            ends = await consumer.end_offsets([TopicPartition(topic, 0) for topic in ACCEPTED])
        assert set(ends.values()) == {2}
