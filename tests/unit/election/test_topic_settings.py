"""Settings of topics: given at creation, told to who acts by them, gone with their topic."""

from collections.abc import AsyncIterator

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.candidacy.role import ControllerRole
from regnum_election.controller import Controller
from regnum_election.servicers.admin import AdminServicer
from regnum_election.topics.creation import Created, CreationOutcome
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.config_changes import Alteration, Operation, Resource, ResourceType
from regnum_model.configs import (
    CLUSTER,
    INDEX_INTERVAL_BYTES,
    MAX_MESSAGE_BYTES,
    MIN_INSYNC_REPLICAS,
    RETENTION_MS,
    SEGMENT_BYTES,
    SEGMENT_MS,
    decode_config,
    encode_config,
    topic_config,
)
from regnum_model.ids import BrokerId, PartitionKey
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

NONE = errors_pb2.ERROR_CODE_NONE
THREE = ((0, (BrokerId(1), BrokerId(2), BrokerId(3))),)
LOOK_S = 0.02


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    yield cluster
    await cluster.close()


async def create(controller: Controller, name: str = "t", **configs: str) -> CreationOutcome:
    keys = {"min": MIN_INSYNC_REPLICAS, "size": MAX_MESSAGE_BYTES, "segment": SEGMENT_BYTES}
    request = TopicRequest(
        name=name,
        partitions=0,
        replication_factor=None,
        assignment=THREE,
        mutation=None,
        configs=tuple((keys.get(key, key), value) for key, value in configs.items()),
    )
    answered = await controller.topics.create((request,), validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    return outcome


def key_of(outcome: CreationOutcome) -> PartitionKey:
    assert isinstance(outcome, Created), outcome
    return PartitionKey(outcome.topic_id, 0)


async def alter(controller: Controller, topic: str, **values: str | None) -> None:
    keys = {
        "min": MIN_INSYNC_REPLICAS,
        "size": MAX_MESSAGE_BYTES,
        "segment": SEGMENT_BYTES,
        "age": SEGMENT_MS,
        "interval": INDEX_INTERVAL_BYTES,
        "kept": RETENTION_MS,
    }
    resource = Resource(type=ResourceType.TOPIC, name=topic) if topic else Resource(type=ResourceType.CLUSTER)
    operations = tuple(Operation(key=keys.get(key, key), value=value) for key, value in values.items())
    alteration = Alteration(resource=resource, operations=operations)
    (refused,) = await controller.configs.alter([alteration], validate_only=False, wait_s=DEADLINE_S)
    assert refused is None, refused


def settings(cluster: FakeCluster, id: int, key: PartitionKey) -> control_pb2.ReplicaSettings:
    return cluster.told(id)[key].settings


async def test_a_topic_begins_with_its_settings_and_every_replica_is_told(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    key = key_of(await create(controller, min="3", size="5000", segment="2097152"))
    await until(lambda: all(key in cluster.told(id) for id in (1, 2, 3)))
    for id in (1, 2, 3):
        assert cluster.told(id)[key].min_insync_replicas == 3
        assert settings(cluster, id, key) == control_pb2.ReplicaSettings(
            max_message_bytes=5_000, segment_bytes=2_097_152
        )
    (node,) = await cluster.outside.get_many([topic_config("t")])
    assert node is not None
    assert decode_config(node.data, example="") == {
        MAX_MESSAGE_BYTES: "5000",
        MIN_INSYNC_REPLICAS: "3",
        SEGMENT_BYTES: "2097152",
    }
    await cluster.end_reign()
    told = len(cluster.brokers[BrokerId(2)].requests)
    await cluster.reign(2)
    await until(lambda: len(cluster.brokers[BrokerId(2)].requests) > told)
    assert settings(cluster, 2, key).max_message_bytes == 5_000, "the next controller says the same"


@pytest.mark.parametrize(
    ("configs", "code", "advice"),
    [
        ({"default.replication.factor": "2"}, errors_pb2.ERROR_CODE_INVALID_CONFIG, "choose from"),
        ({"no.such.setting": "2"}, errors_pb2.ERROR_CODE_INVALID_CONFIG, "choose from"),
        ({"size": "12"}, errors_pb2.ERROR_CODE_INVALID_CONFIG, "1024 to 33554432"),
        ({"unclean.leader.election.enable": "maybe"}, errors_pb2.ERROR_CODE_INVALID_CONFIG, "true or false"),
    ],
)
async def test_a_topic_with_a_bad_setting_is_refused_before_anything_is_written(
    cluster: FakeCluster, configs: dict[str, str], code: int, advice: str
) -> None:
    controller = await cluster.reign()
    refused = await create(controller, **configs)
    assert not isinstance(refused, Created)
    assert refused.code == code
    assert advice in refused.message
    assert [*await cluster.outside.get_many([paths.topic("t"), topic_config("t")])] == [None, None]


async def test_a_setting_that_stands_twice_is_refused(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    role = ControllerRole()
    role.hold(controller)
    topic = admin_pb2.NewTopic(name="t", partitions=1)
    topic.configs.add(name=MIN_INSYNC_REPLICAS, value="1")
    topic.configs.add(name=MIN_INSYNC_REPLICAS, value="2")

    class Call:
        def time_remaining(self) -> float | None:
            return 20.0

    answer = await AdminServicer(role).CreateTopics(
        admin_pb2.CreateTopicsRequest(topics=[topic], validate_only=True),
        Call(),  # type: ignore[arg-type]
    )
    assert answer.results[0].error_code == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def test_settings_left_in_the_store_are_not_written_over(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await cluster.outside.create(topic_config("t"), encode_config({MIN_INSYNC_REPLICAS: "1"}))
    refused = await create(controller, min="3")
    assert not isinstance(refused, Created)
    assert "without a topic" in refused.message
    assert await cluster.outside.exists(paths.topic("t")) is None
    assert "t" not in controller.picture.settings.topics


async def test_every_replica_hears_of_how_its_log_is_kept_and_leaders_alone_of_the_rest(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    key = key_of(await create(controller))
    await until(lambda: all(key in cluster.told(id) for id in (1, 2, 3)))
    followers = len(cluster.brokers[BrokerId(2)].requests)
    published = controller.published_version
    await alter(controller, "t", size="5000")
    await until(lambda: settings(cluster, 1, key).max_message_bytes == 5_000)
    assert len(cluster.brokers[BrokerId(2)].requests) == followers
    version = cluster.told(1)[key].state.version
    published = controller.published_version
    await alter(controller, "t", segment="2097152", age="60000", interval="8192")
    await until(lambda: all(settings(cluster, id, key).segment_bytes == 2_097_152 for id in (1, 2, 3)))
    assert settings(cluster, 3, key).segment_ms == 60_000
    assert settings(cluster, 3, key).index_interval_bytes == 8_192
    await alter(controller, "t", kept="-1")
    await until(lambda: all(settings(cluster, id, key).retention_ms == -1 for id in (1, 2, 3)))
    assert cluster.told(1)[key].state.version == version, "the state is the same"
    assert controller.published_version == published, "and clients have nothing to hear"


async def test_settings_of_the_cluster_reach_topics_without_their_own(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    own, other = key_of(await create(controller, "own", segment="2097152")), key_of(await create(controller, "other"))
    await alter(controller, "", segment="4194304")
    await until(lambda: settings(cluster, 3, other).segment_bytes == 4_194_304)
    assert settings(cluster, 3, own).segment_bytes == 2_097_152
    await alter(controller, "own", segment=None)
    await until(lambda: settings(cluster, 3, own).segment_bytes == 4_194_304)
    await alter(controller, "", segment=None)
    await until(lambda: not cluster.told(3)[other].HasField("settings"))
    assert not cluster.told(3)[own].HasField("settings")
    (node,) = await cluster.outside.get_many([CLUSTER])
    assert node is not None
    assert SEGMENT_BYTES not in decode_config(node.data, example="")


async def test_a_change_of_one_topic_concerns_no_other(cluster: FakeCluster) -> None:
    """It costs what it changes: no partition of another topic is written or told."""
    controller = await cluster.reign()
    key_of(await create(controller, "t"))
    others = [key_of(await create(controller, f"o{number}")) for number in range(5)]
    await until(lambda: all(key in cluster.told(2) for key in others))
    before = len(cluster.brokers[BrokerId(2)].requests)
    await alter(controller, "t", segment="2097152")
    await until(lambda: len(cluster.brokers[BrokerId(2)].requests) > before)
    (request,) = cluster.brokers[BrokerId(2)].requests[before:]
    assert [partition.topic for partition in request.partitions] == ["t"]


async def test_what_a_person_writes_badly_is_the_clusters_or_what_it_was(cluster: FakeCluster) -> None:
    """Safety rule S14: one bad key is an event, and the good ones count."""
    controller = await cluster.reign(corrections_interval_s=LOOK_S)
    key = key_of(await create(controller))
    bad = encode_config({MAX_MESSAGE_BYTES: "lots", SEGMENT_BYTES: "2097152"})
    await cluster.outside.create(topic_config("t"), bad)
    await until(lambda: settings(cluster, 1, key).segment_bytes == 2_097_152)
    assert not settings(cluster, 1, key).HasField("max_message_bytes")
    await cluster.outside.set(topic_config("t"), encode_config({MAX_MESSAGE_BYTES: "5000"}), version=None)
    await until(lambda: settings(cluster, 1, key).max_message_bytes == 5_000)
    await cluster.outside.set(topic_config("t"), bad, version=None)
    await until(lambda: settings(cluster, 1, key).segment_bytes == 2_097_152)
    assert settings(cluster, 1, key).max_message_bytes == 5_000, "as it was"


async def test_settings_go_with_their_topic(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    key_of(await create(controller, size="5000"))
    request = DeletionRequest(name="t", topic_id="", mutation=None)
    await controller.topics.delete((request,), wait_s=DEADLINE_S, account=ANYBODY)
    key = key_of(await create(controller))
    assert not cluster.told(1)[key].HasField("settings")
    assert await cluster.outside.exists(topic_config("t")) is None
