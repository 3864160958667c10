"""What a person writes with etcdctl or zkCli is input: it never stops the cluster, and means what the seeds say."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from regnum_client import Admin, Consumer, Producer, TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Role
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_testing.hands import Hand, ZooKeeperHand, hand_for
from regnum_testing.under_load import until

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.asyncio(loop_scope="module")]

CLOCK = SystemClock()
SESSION_S = 60.0
"""Of election processes: what is there in half of it did not wait for its end."""


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["etcd", "zookeeper"])
async def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LocalCluster]:
    """A cluster on each store."""
    folder = tmp_path_factory.mktemp("cluster") / "data"
    extra = {Role.ELECTION: ("--session-timeout-s", f"{SESSION_S:g}")}
    async with LocalCluster(folder, brokers=3, elections=3, coordination=request.param, extra=extra) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def hand(cluster: LocalCluster) -> AsyncIterator[Hand]:
    """A person with a tool of the store."""
    async with hand_for(cluster.coordination) as opened:
        yield opened


async def controller_epoch(admin: Admin) -> int:
    view = await admin.describe_cluster()
    return 0 if view.controller is None else view.controller.epoch


@pytest.mark.parametrize(
    "content",
    [
        "garbage",
        "",
        '{"version":1,"brokerid":-1,"timestamp":"0"}',
        '{"version":1,"brokerid":77,"timestamp":"0"}',
        "\x00\x01{[",
    ],
    ids=["garbage", "empty", "minus one", "another id", "binary"],
)
async def test_anything_written_into_controller_leads_to_a_new_controller(
    cluster: LocalCluster, hand: Hand, content: str
) -> None:
    """On etcd a put takes the lease away: the node would outlive everybody (safety rule S7).

    On ZooKeeper it stays the incumbent's, who must not take it for its own.
    """
    if "\x00" in content:
        content = content.replace("\x00", "\x02")  # an argument cannot carry NUL
    async with Admin(cluster.bootstrap) as admin:
        before = await controller_epoch(admin)
        await hand.put("/controller", content)

        async def succeeded() -> bool:
            return await controller_epoch(admin) > before

        await until(succeeded)
        node = json.loads(await hand.get("/controller"))
        assert node["brokerid"] in {1, 2, 3}
        name = f"after-{before}"
        await admin.create_topic(name, partitions=1, replication_factor=3)
        await admin.delete_topic(name)


async def test_what_is_written_into_controller_leads_to_a_new_one_before_any_session_ends(
    cluster: LocalCluster, hand: Hand
) -> None:
    async with Admin(cluster.bootstrap) as admin:
        before = await controller_epoch(admin)
        written_s = CLOCK.monotonic()
        await hand.put("/controller", "garbage")

        async def succeeded() -> bool:
            return await controller_epoch(admin) > before

        await until(succeeded)
        assert CLOCK.monotonic() - written_s < SESSION_S / 2


async def test_deleting_controller_triggers_an_election(cluster: LocalCluster, hand: Hand) -> None:
    async with Admin(cluster.bootstrap) as admin:
        before = await controller_epoch(admin)
        await hand.delete("/controller")

        async def succeeded() -> bool:
            return await controller_epoch(admin) > before

        await until(succeeded)
        assert await hand.get("/controller") is not None


async def test_a_topic_written_by_hand_is_taken_up(cluster: LocalCluster, hand: Hand) -> None:
    """Seed 001's bare form: the controller gives it an id and leaders (safety rule S14)."""
    await hand.put("/brokers/topics/by-hand", '{"0":[1,2,3],"1":[3,1]}')
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:

        async def has_leaders() -> bool:
            try:
                topic = await admin.describe_topic("by-hand")
            except RegnumError:
                return False
            return len(topic.partitions) == 2 and all(state.leader > 0 for state in topic.partitions.values())

        await until(has_leaders)
        delivery = await (await producer.send("by-hand", b"hello", partition=1))
        assert delivery.offset == 0
        written = json.loads(await hand.get("/brokers/topics/by-hand"))
        assert len(written["topic_id"]) == 22
        assert not written.get("creating")


@pytest.mark.parametrize("content", ["not json", '{"0":[]}', '{"0":[1,1]}', '{"x":[1]}', "[]"])
async def test_a_malformed_topic_node_is_left_alone_and_the_cluster_goes_on(
    cluster: LocalCluster, hand: Hand, content: str
) -> None:
    await hand.put("/brokers/topics/malformed", content)
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("beside-malformed", partitions=1, replication_factor=3)
        await admin.delete_topic("beside-malformed")
        assert "malformed" not in {topic.name for topic in await admin.list_topics()}
    assert await hand.get("/brokers/topics/malformed") == content
    await hand.delete("/brokers/topics/malformed")


async def test_a_topic_removed_by_hand_is_deleted(cluster: LocalCluster, hand: Hand) -> None:
    async with Admin(cluster.bootstrap) as admin:
        created = await admin.create_topic("removed-by-hand", partitions=2, replication_factor=3)
        await hand.delete_tree("/brokers/topics/removed-by-hand")

        async def gone() -> bool:
            names = {topic.name for topic in await admin.list_topics()}
            guard = await hand.get(f"/brokers/topic_ids/{created.topic_id}")
            record = await hand.get(f"/admin/delete_topics/{created.topic_id}")
            return "removed-by-hand" not in names and guard is None and record is None

        await until(gone)
        again = await admin.create_topic("removed-by-hand", partitions=1, replication_factor=3)
        assert again.topic_id != created.topic_id


# Looked for every few seconds, and so long by nature; unit tests have what is done with it.
async def test_a_reassignment_written_by_hand_is_followed_and_leaves_nothing(cluster: LocalCluster, hand: Hand) -> None:
    """`etcdctl put` makes no folder for it; ZooKeeper takes nothing without one."""
    folder = "/admin/partitions_reassigned/moved-by-hand"
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("moved-by-hand", partitions=0, assignment={0: (1, 2)})
        if isinstance(hand, ZooKeeperHand):
            await hand.put(folder, "")
        await hand.put(f"{folder}/0", "[2,3]")

        async def moved() -> bool:
            (described,) = [one async for one in admin.describe_topics(["moved-by-hand"])]
            left = [await hand.get(path) for path in (folder, f"{folder}/0")]
            return described.partitions[0].replicas == (2, 3) and left == [None, None]

        # It is looked for every 5 s, and an empty folder goes after 10 s.
        await until(moved)
        assert (await admin.describe_topic("moved-by-hand")).partitions[0].isr == (2, 3)


async def test_an_unreadable_state_takes_its_partition_offline_and_no_other(cluster: LocalCluster, hand: Hand) -> None:
    """Never a guess, never a new epoch 0 (safety rule S14)."""
    async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
        await admin.create_topic("scribbled", partitions=2, replication_factor=3)
        await (await producer.send("scribbled", b"kept", partition=0))
        await hand.put("/brokers/topics/scribbled/0/leaderAndISR", "scribble")
        await hand.delete("/controller")

        async def other_partition_works() -> bool:
            delivery = await (await producer.send("scribbled", b"works", partition=1))
            return delivery.offset >= 0

        await until(other_partition_works)
        node = await hand.get("/brokers/topics/scribbled/0/leaderAndISR")
        assert node == "scribble"
        async with Consumer(cluster.bootstrap) as consumer:
            ends = await consumer.end_offsets([TopicPartition("scribbled", 1)])
        assert ends[TopicPartition("scribbled", 1)] >= 1


async def test_the_registration_of_an_election_process_that_somebody_removes_is_made_again(hand: Hand) -> None:
    """Brokers and standbys find the process by it."""
    before = await hand.get("/election/ids/1")
    assert before
    await hand.delete("/election/ids/1")

    async def restored() -> bool:
        return await hand.get("/election/ids/1") == before

    await until(restored)
