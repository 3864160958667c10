"""The largest input that each call to the controller may have holds its loop shortly (safety rule S22).

Calls go through the servicers, parsed and encoded as a server does it. What happens behind them at the size of clusters
is in ``test_controller_loop_is_free``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf.message import Message
from regnum.admin.v1 import admin_pb2
from regnum.election.v1 import controller_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.admission.quota_messages import ENTITIES_MAX
from regnum_election.configs.calls import PAGE_MAX as CONFIGS_MAX
from regnum_election.configs.calls import RESOURCES_MAX
from regnum_election.controller import Controller
from regnum_election.decisions.cluster import Cluster, Partition, Topic
from regnum_election.decisions.deletion import Deletion
from regnum_election.health.messages import PARTITIONS_NAMED_MAX
from regnum_election.health.watch import HealthWatch, Limits
from regnum_election.history.reign_events import ReignEvents, nowhere
from regnum_election.partitions.giving_up import PARTITIONS_MAX as GIVEN_UP_MAX
from regnum_election.recovery.calls import PARTITIONS_MAX as RECOVERED_MAX
from regnum_election.servicers.admin import TOPICS_MAX, AdminServicer
from regnum_election.servicers.envelope import MUTATION_ID_LENGTH_MAX
from regnum_election.topics.requests import PARTITIONS_MAX
from regnum_model import paths
from regnum_model.api_versions import ADMIN_SERVICE
from regnum_model.bucket import Bucket
from regnum_model.configs import MIN_INSYNC_REPLICAS
from regnum_model.ids import (
    BrokerId,
    PartitionKey,
    TopicId,
)
from regnum_model.nodes import DeletionNode
from regnum_model.principals import NOBODY
from regnum_model.quota_matching import BucketKey
from regnum_model.quotas import RATE_KEY
from regnum_model.topic_filter import Trouble
from regnum_service.access import identity as who
from regnum_service.access.identity import calling
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_testing.held_loop import HeldLoop, run_measured
from regnum_testing.internal_calls import internal_servicer
from regnum_testing.reigning import FakeCluster
from regnum_testing.served import Caller, served
from regnum_testing.waiting import until

pytestmark = pytest.mark.alone

NONE = errors_pb2.ERROR_CODE_NONE
FOLLOWED_PARTITIONS = 40_000
SICK_PARTITIONS = 40_000


class OneReign:
    """An office with a controller in it."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def controller(self) -> Controller:
        return self._controller


async def nobody_reached() -> BrokerId | None:
    return None


class Reign:
    """A controller, and its calls."""

    def __init__(self, cluster: FakeCluster, controller: Controller, held: HeldLoop) -> None:
        role: Any = OneReign(controller)
        self.cluster = cluster
        self.controller = controller
        self.admin = AdminServicer(role)
        self.internal = internal_servicer(role, reached_broker=nobody_reached)
        self._held = held

    async def call(
        self, what: str, handler: Callable[[Any, Any], Awaitable[Message | bytes]], request: Message, answer: type[Any]
    ) -> Any:
        """Measure a call; its answer, parsed afterwards."""
        data = request.SerializeToString()
        with self._held.measuring(what):
            encoded = await served(handler, type(request), data)
        return answer.FromString(encoded)

    def measuring(self, what: str) -> AbstractContextManager[None]:
        """Measure what happens meanwhile."""
        return self._held.measuring(what)


def in_a_reign(scenario: Callable[[Reign], Coroutine[Any, Any, None]]) -> None:
    async def whole(held: HeldLoop) -> None:
        cluster = FakeCluster()
        await cluster.begin(1, 2, 3)
        controller = await cluster.reign(balance_interval_s=3_600.0)
        await scenario(Reign(cluster, controller, held))
        await cluster.close()

    run_measured(whole).assert_free()


def test_topics_are_checked_and_deleted() -> None:
    async def scenario(reign: Reign) -> None:
        topics = [admin_pb2.NewTopic(name=f"topic-{number}", partitions=1) for number in range(TOPICS_MAX)]
        checked = await reign.call(
            "CreateTopics, validate only",
            reign.admin.CreateTopics,
            admin_pb2.CreateTopicsRequest(topics=topics, validate_only=True),
            admin_pb2.CreateTopicsResponse,
        )
        assert [result.error_code for result in checked.results] == [NONE] * TOPICS_MAX
        gone = await reign.call(
            "DeleteTopics",
            reign.admin.DeleteTopics,
            admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.DeletableTopic(name=topic.name) for topic in topics]),
            admin_pb2.DeleteTopicsResponse,
        )
        assert len(gone.results) == TOPICS_MAX
        assert {result.error_code for result in gone.results} == {errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION}

    in_a_reign(scenario)


def test_a_call_with_as_many_topics_as_one_may_have_is_passed_on() -> None:
    """Each of its topics gets a mutation id besides."""

    async def scenario(reign: Reign) -> None:
        topics = [admin_pb2.NewTopic(name=f"topic-{number}", partitions=1) for number in range(TOPICS_MAX)]
        passed_on = controller_pb2.EnvelopeRequest(
            method=f"{ADMIN_SERVICE}CreateTopics",
            request=admin_pb2.CreateTopicsRequest(topics=topics, validate_only=True).SerializeToString(),
            caller=controller_pb2.OriginalCaller(principal_type="User", principal_name="alice"),
            mutation_id="m" * MUTATION_ID_LENGTH_MAX,
        )
        with calling(who.Caller(principal=NOBODY, listener=who.INTERNAL)):
            answer = await reign.call("Envelope", reign.internal.Envelope, passed_on, controller_pb2.EnvelopeResponse)
        checked = admin_pb2.CreateTopicsResponse.FromString(answer.response)
        assert [result.error_code for result in checked.results] == [NONE] * TOPICS_MAX

    in_a_reign(scenario)


def test_replicas_of_the_largest_topics_are_chosen_by_hand() -> None:
    async def scenario(reign: Reign) -> None:
        assignment = [
            admin_pb2.ReplicaAssignment(partition=number, replicas=[1 + (number + step) % 3 for step in range(3)])
            for number in range(PARTITIONS_MAX)
        ]
        topics = [admin_pb2.NewTopic(name=f"topic-{number}", assignment=assignment) for number in range(20)]
        checked = await reign.call(
            "CreateTopics by hand",
            reign.admin.CreateTopics,
            admin_pb2.CreateTopicsRequest(topics=topics, validate_only=True),
            admin_pb2.CreateTopicsResponse,
        )
        assert [(result.error_code, result.partitions) for result in checked.results] == [(NONE, PARTITIONS_MAX)] * 20

    in_a_reign(scenario)


def test_partitions_of_the_largest_topic_are_added_and_removed() -> None:
    async def scenario(reign: Reign) -> None:
        await reign.admin.CreateTopics(
            admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="t", partitions=1, replication_factor=3)]),
            Caller(),
        )
        new = admin_pb2.NewPartitions(name="t", count=PARTITIONS_MAX)
        checked = await reign.call(
            "CreatePartitions of 10,000 topics, validate only",
            reign.admin.CreatePartitions,
            admin_pb2.CreatePartitionsRequest(
                topics=[new, *(admin_pb2.NewPartitions(name=f"u{i}", count=2) for i in range(TOPICS_MAX - 1))],
                validate_only=True,
            ),
            admin_pb2.CreatePartitionsResponse,
        )
        assert checked.results[0].partitions == PARTITIONS_MAX
        added = await reign.call(
            "CreatePartitions",
            reign.admin.CreatePartitions,
            admin_pb2.CreatePartitionsRequest(topics=[new], timeout_ms=100_000),
            admin_pb2.CreatePartitionsResponse,
        )
        assert [(result.error_code, result.partitions) for result in added.results] == [(NONE, PARTITIONS_MAX)]
        gone = admin_pb2.DeletablePartitions(name="t", partitions=range(1, PARTITIONS_MAX))
        removed = await reign.call(
            "DeletePartitions",
            reign.admin.DeletePartitions,
            admin_pb2.DeletePartitionsRequest(topics=[gone], timeout_ms=100_000),
            admin_pb2.DeletePartitionsResponse,
        )
        assert [(result.error_code, result.partitions) for result in removed.results] == [(NONE, 1)]
        removals = reign.controller._context.removals
        with reign.measuring("brokers confirm"):
            await until(lambda: not len(removals), what="every broker confirmed")

    in_a_reign(scenario)


def test_quotas_are_altered_and_described() -> None:
    def quotas(count: int, *, validate_only: bool) -> admin_pb2.AlterClientQuotasRequest:
        return admin_pb2.AlterClientQuotasRequest(
            validate_only=validate_only,
            alterations=[
                admin_pb2.QuotaAlteration(
                    entity=admin_pb2.QuotaEntity(user=admin_pb2.QuotaSubject(name=f"user-{number}")),
                    operations=[admin_pb2.QuotaOperation(key=RATE_KEY, value=5.0)],
                )
                for number in range(count)
            ],
        )

    async def scenario(reign: Reign) -> None:
        for count, validate_only in ((ENTITIES_MAX, True), (200, False)):
            altered = await reign.call(
                f"AlterClientQuotas of {count}",
                reign.admin.AlterClientQuotas,
                quotas(count, validate_only=validate_only),
                admin_pb2.AlterClientQuotasResponse,
            )
            assert [result.error_code for result in altered.results] == [NONE] * count
        described = await reign.call(
            "DescribeClientQuotas",
            reign.admin.DescribeClientQuotas,
            admin_pb2.DescribeClientQuotasRequest(),
            admin_pb2.DescribeClientQuotasResponse,
        )
        assert len(described.quotas) == 200
        kept = reign.controller.quotas.usages._kept
        everybody = admin_pb2.QuotaEntity(client_id=admin_pb2.QuotaSubject(default_for_all=True))
        rate = admin_pb2.QuotaOperation(key=RATE_KEY, value=5.0)
        await reign.call(
            "AlterClientQuotas of everybody",
            reign.admin.AlterClientQuotas,
            admin_pb2.AlterClientQuotasRequest(
                alterations=[admin_pb2.QuotaAlteration(entity=everybody, operations=[rate])]
            ),
            admin_pb2.AlterClientQuotasResponse,
        )
        for number in range(ENTITIES_MAX):
            kept.reported(BucketKey(None, f"client-{number}"), Bucket(1.0, 0.0))
        used = await reign.call(
            "DescribeQuotaUsage",
            reign.admin.DescribeQuotaUsage,
            admin_pb2.DescribeQuotaUsageRequest(limit=ENTITIES_MAX),
            admin_pb2.DescribeQuotaUsageResponse,
        )
        assert used.buckets == len(used.usages) == ENTITIES_MAX

    in_a_reign(scenario)


def test_the_worst_of_many_partitions_in_trouble_are_named() -> None:
    brokers = tuple(map(BrokerId, range(1, 1_001)))
    topics = [
        (
            Topic(name=f"sick-{number}", id=TopicId(f"{number:022d}"), version=0, partitions=tuple(range(1_000))),
            {
                partition: Partition(replicas=(brokers[partition], brokers[partition - 1], brokers[partition - 2]))
                for partition in range(1_000)
            },
        )
        for number in range(SICK_PARTITIONS // 1_000)
    ]

    async def scenario(reign: Reign) -> None:
        # A picture of its own: the store has nothing of it, and a controller would look into that.
        context: Any = SimpleNamespace(
            reign=reign.controller.reign,
            store=reign.controller._context.store,
            picture=Cluster().with_topics(topics),
            clock=SystemClock(),
            refused={f"refused-{number}": "a reason" for number in range(100_000)},
            incomplete={},
            edited={},
            spoiled={},
            removals=SimpleNamespace(damaged={}),
            sharing={},
            dispatch=SimpleNamespace(outstanding=list, misdirected=dict),
            metadata=SimpleNamespace(
                version=7, positions=[], failing=lambda _before_s: {}, tell_of_changes=lambda _watch: None
            ),
            events=ReignEvents(reign.controller.reign, nowhere, SystemClock()),
        )
        health = HealthWatch(context, Limits(trouble_s=0.0))
        office: Any = OneReign(cast("Controller", SimpleNamespace(health=health)))
        with reign._held.measuring("watching"):
            watching = asyncio.create_task(health.run())
            await until(lambda: health.looked_at_all)
        keys = tuple(context.picture.partitions)
        with reign._held.measuring("changed"):
            # As many as are told of in one go: the next turn looks at them, in steps.
            health.changed(keys, ())
            await health.turn()
        assert health.book.count(Trouble.OFFLINE) == SICK_PARTITIONS
        described = await reign.call(
            "DescribeHealth",
            AdminServicer(office).DescribeHealth,
            admin_pb2.DescribeHealthRequest(partitions_max=PARTITIONS_NAMED_MAX),
            admin_pb2.DescribeHealthResponse,
        )
        assert len(described.troubled_partitions) == PARTITIONS_NAMED_MAX
        assert len(described.brokers) == 1_000
        assert (len(described.damaged), described.damaged_count) == (PARTITIONS_NAMED_MAX, 100_000)
        watching.cancel()
        await asyncio.wait([watching])

    in_a_reign(scenario)


def test_settings_of_many_topics_are_altered_and_described() -> None:
    async def scenario(reign: Reign) -> None:
        topics = [admin_pb2.NewTopic(name=f"t{number}", partitions=1) for number in range(RESOURCES_MAX)]
        await reign.admin.CreateTopics(admin_pb2.CreateTopicsRequest(topics=topics), Caller())
        resources = [
            admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name=topic.name) for topic in topics
        ]
        own = admin_pb2.AlterableConfig(name=MIN_INSYNC_REPLICAS, op=admin_pb2.ALTER_CONFIG_OP_SET, value="1")
        altered = await reign.call(
            "IncrementalAlterConfigs",
            reign.admin.IncrementalAlterConfigs,
            admin_pb2.IncrementalAlterConfigsRequest(
                alterations=[admin_pb2.ConfigAlteration(resource=one, configs=[own]) for one in resources],
                mutation_id="m",
            ),
            admin_pb2.IncrementalAlterConfigsResponse,
        )
        assert [result.error_code for result in altered.results] == [NONE] * RESOURCES_MAX
        same = admin_pb2.ConfigValue(name=MIN_INSYNC_REPLICAS, value="1")
        replaced = await reign.call(
            "AlterConfigs",
            reign.admin.AlterConfigs,
            admin_pb2.AlterConfigsRequest(
                replacements=[admin_pb2.ConfigReplacement(resource=one, configs=[same]) for one in resources],
                mutation_id="n",
            ),
            admin_pb2.AlterConfigsResponse,
        )
        assert [result.error_code for result in replaced.results] == [NONE] * RESOURCES_MAX
        context = reign.controller._context
        before, context.picture = context.picture, with_settings(context.picture, 100_000)
        token = ""
        for what, named, count in (
            ("named", resources, RESOURCES_MAX),
            ("all", [], CONFIGS_MAX),
            ("all, a later page", [], CONFIGS_MAX),
        ):
            described = await reign.call(
                f"DescribeConfigs, {what}",
                reign.admin.DescribeConfigs,
                admin_pb2.DescribeConfigsRequest(resources=named, page_token=token),
                admin_pb2.DescribeConfigsResponse,
            )
            assert len(described.results) == count
            token = described.next_page_token
            assert bool(token) is not bool(named)
        context.picture = before

    in_a_reign(scenario)


def with_settings(picture: Cluster, count: int) -> Cluster:
    """More topics, each with a setting of its own."""
    member = {0: Partition(replicas=(BrokerId(1),), trouble="a picture for this test alone")}
    topics = [
        Topic(name=f"more{number}", id=TopicId(f"{number:022}"), version=0, partitions=(0,)) for number in range(count)
    ]
    picture = picture.with_topics((topic, member) for topic in topics)
    own = {topic.name: {MIN_INSYNC_REPLICAS: 1} for topic in topics}
    return replace(picture, settings=picture.settings.with_topics(own))


@pytest.mark.parametrize("count", [TOPICS_MAX + 1, 200_000])
def test_what_is_more_than_a_call_may_name_is_refused(count: int) -> None:
    async def scenario(reign: Reign) -> None:
        for handler, request in (
            (
                reign.admin.CreateTopics,
                admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="t", partitions=1)] * count),
            ),
            (
                reign.admin.DeleteTopics,
                admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.DeletableTopic(name="t")] * count),
            ),
            (
                reign.admin.AlterClientQuotas,
                admin_pb2.AlterClientQuotasRequest(alterations=[admin_pb2.QuotaAlteration()] * count),
            ),
            (
                reign.admin.DescribeConfigs,
                admin_pb2.DescribeConfigsRequest(resources=[admin_pb2.ConfigResource(name="t")] * count),
            ),
        ):
            with pytest.raises(RegnumError, match="split the request") as refused:
                await reign.call(f"{count} in a call", handler, request, type(request))
            assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST

    in_a_reign(scenario)


def test_a_broker_that_many_deletions_wait_for_is_forgotten() -> None:
    async def scenario(reign: Reign) -> None:
        deletions, count = reign.controller._context.deletions, 5_000
        for number in range(count):
            id = TopicId(f"{number:022}")
            record = DeletionNode(topic=f"t{number}", brokers=frozenset({BrokerId(9)}))
            await reign.cluster.outside.create(paths.deletion(id), record.encode())
            deletions.add(Deletion.recorded_as(id, record, version=0))
        forgotten = await reign.call(
            "ForgetBroker",
            reign.admin.ForgetBroker,
            admin_pb2.ForgetBrokerRequest(broker_id=9),
            admin_pb2.ForgetBrokerResponse,
        )
        assert (forgotten.deletions, forgotten.deletions_ended) == (count, count)

    in_a_reign(scenario)


def test_partitions_that_cannot_be_read_are_given_up() -> None:
    async def scenario(reign: Reign) -> None:
        await reign.call(
            "CreateTopics",
            reign.admin.CreateTopics,
            admin_pb2.CreateTopicsRequest(
                topics=[admin_pb2.NewTopic(name="t", partitions=GIVEN_UP_MAX + 1, replication_factor=1)]
            ),
            admin_pb2.CreateTopicsResponse,
        )
        context = reign.controller._context
        topic = context.picture.topic_named("t")
        assert topic is not None
        damaged = range(1, GIVEN_UP_MAX + 1)
        for number in damaged:
            reign.cluster.server.overwrite(paths.leader_and_isr("t", number), b"garbage")
        context.trouble({PartitionKey(topic.id, number): "unreadable" for number in damaged})
        for accept_loss in (False, True):
            answer = await reign.call(
                f"GiveUpPartitions, {accept_loss=}",
                reign.admin.GiveUpPartitions,
                admin_pb2.GiveUpPartitionsRequest(topic="t", accept_loss=accept_loss),
                admin_pb2.GiveUpPartitionsResponse,
            )
            assert [one.given_up for one in answer.results] == [accept_loss] * GIVEN_UP_MAX

    in_a_reign(scenario)


def test_partitions_of_a_page_are_looked_at() -> None:
    async def scenario(reign: Reign) -> None:
        created = await reign.call(
            "CreateTopics",
            reign.admin.CreateTopics,
            admin_pb2.CreateTopicsRequest(
                topics=[admin_pb2.NewTopic(name="t", partitions=PARTITIONS_MAX)], timeout_ms=60_000
            ),
            admin_pb2.CreateTopicsResponse,
        )
        assert created.results[0].error_code == NONE
        looked = await reign.call(
            "RecoverPartitions",
            reign.admin.RecoverPartitions,
            admin_pb2.RecoverPartitionsRequest(topic="t", partitions=range(RECOVERED_MAX)),
            admin_pb2.RecoverPartitionsResponse,
        )
        assert len(looked.results) == RECOVERED_MAX
        shut = await reign.call(
            "ControlledShutdown",
            reign.internal.ControlledShutdown,
            controller_pb2.ControlledShutdownRequest(
                broker_id=1, broker_epoch=reign.controller.picture.brokers[BrokerId(1)].epoch, can_wait=True
            ),
            controller_pb2.ControlledShutdownResponse,
        )
        assert (shut.error_code, shut.remaining_partitions, shut.below_min_isr) == (NONE, 0, 0)

    in_a_reign(scenario)
