"""The admin client finds the controller, repeats safely, and tells the truth about each topic."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from regnum.metadata.v1.metadata_pb2 import GetMetadataRequest
from regnum.types.v1 import errors_pb2
from regnum_client import (
    DEFAULT,
    Admin,
    CreatedTopic,
    DeletedTopic,
    NewPartitions,
    NewTopic,
    QuotaAlteration,
    QuotaEntity,
    ThrottlingQuotaExceededError,
    TopicPartitions,
    Waiting,
)
from regnum_service.errors import RegnumError
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        yield running


def admin_of(cluster: FakeCluster, *, timeout_s: float = 10.0) -> Admin:
    return Admin(cluster.bootstrap, timeout_s=timeout_s, chance=random.Random(3))


async def test_create_describe_list_delete(cluster: FakeCluster) -> None:
    async with admin_of(cluster) as admin:
        created = await admin.create_topic("orders", partitions=4)
        assert (created.partitions, created.topic_id) == (4, cluster.topic_ids["orders"])
        view = await admin.describe_topic("orders")
        assert [one.leader for one in view.partitions.values()] == [1, 2, 3, 1]
        assert [topic.name for topic in await admin.list_topics()] == ["orders"]
        assert (await admin.delete_topic("orders")).topic_id == created.topic_id
        assert await admin.list_topics() == ()
        with pytest.raises(RegnumError, match="regnum topics create orders"):
            await admin.describe_topic("orders")


async def test_each_topic_has_its_own_answer(cluster: FakeCluster) -> None:
    cluster.create("old")
    async with admin_of(cluster) as admin:
        answers = await admin.create_topics([NewTopic(name="old"), NewTopic(name="new")])
        assert isinstance(answers["new"], CreatedTopic)
        refused = answers["old"]
        assert isinstance(refused, RegnumError)
        assert refused.code == errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS
        with pytest.raises(RegnumError, match="exists"):
            await admin.create_topic("old")
        with pytest.raises(RegnumError, match="does not exist"):
            await admin.delete_topic("nowhere")
    assert cluster.calls["DeleteTopics"] == 1, "what the controller does not know does not exist: no repeat"


async def test_not_controller_leads_to_the_controller(cluster: FakeCluster) -> None:
    """The brokers still name the old controller; its refusal names the new one."""
    async with admin_of(cluster) as admin:
        answer = await cluster.brokers[1].GetMetadata(GetMetadataRequest(), None)
        for broker in cluster.brokers.values():
            broker.stale = answer
        cluster.controller, cluster.controller_epoch = 2, 2
        await admin.create_topic("orders")
    assert "orders" in cluster.topic_ids
    assert cluster.calls["CreateTopics"] == 2


async def test_a_lost_answer_is_asked_again_and_the_topic_created_once(cluster: FakeCluster) -> None:
    cluster.elections[1].silent_answers = 2
    async with admin_of(cluster) as admin:
        created = await admin.create_topic("orders")
        assert created.topic_id == cluster.topic_ids["orders"]
        cluster.elections[1].silent_answers = 2
        await admin.delete_topic("orders")
    assert (cluster.calls["CreateTopics"], cluster.calls["DeleteTopics"]) == (3, 3)
    assert cluster.topic_ids == {}


async def test_a_repeated_delete_does_not_hit_the_next_topic_of_that_name(cluster: FakeCluster) -> None:
    """By topic id: between the first delete and its repeat somebody creates the topic anew."""
    cluster.create("orders")
    election = cluster.elections[1]
    async with admin_of(cluster) as admin:
        election.silent_answers = 1
        deleting = asyncio.create_task(admin.delete_topic("orders"))
        await until(lambda: "orders" not in cluster.topic_ids, "it was deleted, and nobody heard of it")
        election.mutations.clear()
        cluster.create("orders")
        with pytest.raises(RegnumError, match="another topic"):
            await deleting
    assert "orders" in cluster.topic_ids


async def test_a_dead_controller_is_waited_for(cluster: FakeCluster) -> None:
    async with admin_of(cluster) as admin:
        await cluster.elections[1].stop()
        creating = asyncio.create_task(admin.create_topic("orders"))
        calls = cluster.calls["GetMetadata"]
        await until(lambda: cluster.calls["GetMetadata"] >= calls + 3, "brokers were asked who reigns")
        cluster.controller, cluster.controller_epoch = 2, 2
        assert (await creating).name == "orders"


async def test_nobody_answers_in_time(cluster: FakeCluster) -> None:
    async with admin_of(cluster, timeout_s=0.5) as admin:
        await cluster.elections[1].stop()
        with pytest.raises(RegnumError) as caught:
            await admin.create_topic("orders")
        # The second where the machine was too busy for even one attempt to be refused in that time.
        assert caught.value.code in {
            errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
            errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
        }


async def test_validate_only_creates_nothing(cluster: FakeCluster) -> None:
    async with admin_of(cluster) as admin:
        assert (await admin.create_topic("orders", partitions=2, validate_only=True)).topic_id == ""
    assert cluster.topic_ids == {}


async def test_describe_cluster(cluster: FakeCluster) -> None:
    async with admin_of(cluster) as admin:
        view = await admin.describe_cluster()
        assert sorted(view.brokers) == [1, 2, 3]
        assert view.controller is not None
        assert view.controller.address == cluster.elections[1].address
        await cluster.brokers[2].stop()
        assert sorted((await admin.describe_cluster()).brokers) == [1, 3]


RATE, BURST = "controller_mutation_rate", "controller_mutation_burst"


async def test_quotas_are_set_described_and_removed(cluster: FakeCluster) -> None:
    loader = QuotaEntity(client_id="loader")
    anybody = QuotaEntity(user=DEFAULT)
    async with admin_of(cluster) as admin:
        done = await admin.alter_client_quotas(
            [
                QuotaAlteration(entity=loader, set={RATE: 5.0, BURST: 50.0}),
                QuotaAlteration(entity=anybody, set={"a_key_that_is_none": 1.0}),
            ]
        )
        assert done[loader] is None
        refused = done[anybody]
        assert refused is not None
        assert refused.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
        await admin.alter_client_quota(anybody, set={RATE: 1.0})
        assert [(one.entity, dict(one.values)) for one in await admin.describe_client_quotas()] == [
            (loader, {RATE: 5.0, BURST: 50.0}),
            (anybody, {RATE: 1.0}),
        ]
        await admin.alter_client_quota(loader, remove=[BURST])
        assert [dict(one.values) for one in await admin.describe_client_quotas(loader)] == [{RATE: 5.0}]
        with pytest.raises(RegnumError, match="there is no limit"):
            await admin.alter_client_quota(loader, set={"a_key_that_is_none": 1.0})
        assert (await admin.alter_client_quotas([QuotaAlteration(entity=loader, set={RATE: 9.0})], validate_only=True))[
            loader
        ] is None
    assert cluster.quotas.values == {loader: {RATE: 5.0}, anybody: {RATE: 1.0}}


async def test_an_alteration_with_an_unknown_outcome_is_repeated_and_happens_once(cluster: FakeCluster) -> None:
    """Its mutation id is the same in every repeat (safety rule S20)."""
    cluster.elections[1].silent_answers = 2
    async with admin_of(cluster) as admin:
        await admin.alter_client_quota(QuotaEntity(), set={RATE: 5.0})
        await admin.alter_client_quota(QuotaEntity(), set={RATE: 6.0})
    assert cluster.calls["AlterClientQuotas"] == 4
    assert len(cluster.quotas.mutations) == 2
    assert cluster.quotas.values == {QuotaEntity(): {RATE: 6.0}}


async def test_quotas_are_found_at_the_controller(cluster: FakeCluster) -> None:
    async with admin_of(cluster) as admin:
        answer = await cluster.brokers[1].GetMetadata(GetMetadataRequest(), None)
        for broker in cluster.brokers.values():
            broker.stale = answer
        cluster.controller, cluster.controller_epoch = 2, 2
        await admin.alter_client_quota(QuotaEntity(), set={RATE: 5.0})
        assert len(await admin.describe_client_quotas()) == 1


async def test_throttled_topics_are_created_and_deleted_by_waiting(cluster: FakeCluster) -> None:
    names = [f"t{number}" for number in range(12)]
    waits: list[Waiting] = []
    async with admin_of(cluster) as admin:
        await admin.alter_client_quota(QuotaEntity(client_id="regnum-admin"), set={RATE: 40.0, BURST: 4.0})
        created = await admin.create_topics([NewTopic(name=name) for name in names], on_wait=waits.append)
        assert all(isinstance(answer, CreatedTopic) for answer in created.values())
        assert waits[0].done == 5
        assert waits[0].waiting == 7
        deleted = await admin.delete_topics(names)
        assert all(isinstance(answer, DeletedTopic) for answer in deleted.values())
    assert cluster.topic_ids == {}


async def test_without_retries_the_refusal_names_the_wait(cluster: FakeCluster) -> None:
    async with admin_of(cluster) as admin:
        await admin.alter_client_quota(QuotaEntity(client_id="regnum-admin"), set={RATE: 0.1, BURST: 1.0})
        await admin.create_topic("paid", partitions=2)
        with pytest.raises(ThrottlingQuotaExceededError) as refused:
            await admin.create_topic("refused", retry_on_quota_violation=False)
        assert 5_000 < refused.value.throttle_time_ms <= 10_000
        answers = await admin.delete_topics(["paid"], timeout_s=1.0)
        assert isinstance(answers["paid"], ThrottlingQuotaExceededError)
    async with Admin(cluster.bootstrap, client_id="another") as admin:
        await admin.create_topic("refused")
    assert sorted(cluster.topic_ids) == ["paid", "refused"]


async def test_partitions_are_added_and_removed(cluster: FakeCluster) -> None:
    cluster.create("t", partitions=2)
    async with admin_of(cluster) as admin:
        assert (await admin.create_partitions("t", 4, validate_only=True)).partitions == 4
        assert cluster.count("t") == 2
        assert (await admin.create_partitions("t", 4)).partitions == 4
        assert (await admin.create_partitions("t", assignment={4: [1], 5: [2]})).partitions == 6
        assert (await admin.delete_partitions("t", [4, 5])).partitions == 4
        with pytest.raises(RegnumError, match="highest"):
            await admin.delete_partitions("t", [0])
        with pytest.raises(RegnumError, match="already"):
            await admin.create_partitions("t", 3)
        answers = await admin.create_partitions_of_topics(
            [NewPartitions(topic="t", total=5), NewPartitions(topic="nowhere", total=5)]
        )
        assert answers["t"] == TopicPartitions(name="t", partitions=5)
        assert isinstance(answers["nowhere"], RegnumError)


async def test_partitions_are_changed_once_though_the_answer_is_lost(cluster: FakeCluster) -> None:
    cluster.create("t", partitions=2)
    async with admin_of(cluster) as admin:
        cluster.elections[cluster.controller].silent_answers = 1
        assert (await admin.create_partitions("t", 4)).partitions == 4
        cluster.elections[cluster.controller].silent_answers = 1
        assert (await admin.delete_partitions("t", [3])).partitions == 3
    assert (cluster.calls["CreatePartitions"], cluster.calls["DeletePartitions"]) == (2, 2)


async def test_partitions_that_a_quota_refuses_are_sent_again_unless_the_caller_wants_to_know(
    cluster: FakeCluster,
) -> None:
    cluster.create("t")
    cluster.create("u")
    async with admin_of(cluster) as admin:
        await admin.alter_client_quota(QuotaEntity(client_id="regnum-admin"), set={RATE: 40.0, BURST: 4.0})
        answers = await admin.create_partitions_of_topics(
            [NewPartitions(topic="t", total=11), NewPartitions(topic="u", total=11)]
        )
        assert {one.partitions for one in answers.values() if isinstance(one, TopicPartitions)} == {11}
        assert cluster.calls["CreatePartitions"] >= 2
        await admin.alter_client_quota(QuotaEntity(client_id="regnum-admin"), set={RATE: 0.1, BURST: 1.0})
        calls = cluster.calls["CreatePartitions"]
        with pytest.raises(ThrottlingQuotaExceededError):
            await admin.create_partitions("u", 15, retry_on_quota_violation=False)
        assert cluster.calls["CreatePartitions"] == calls + 1
