"""Settings in the store: seeded, changed by callers and by hand, gone with their topic."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Node
from regnum_coordination.requests import MAX_BYTES
from regnum_election.candidacy.role import ControllerRole
from regnum_election.configs.calls import RESOURCES_PER_STEP
from regnum_election.controller import Controller
from regnum_election.decisions.rejection import Rejection
from regnum_election.reign.events import Mutation, nobody_waits
from regnum_election.servicers.admin import AdminServicer
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model.configs import (
    CLUSTER,
    DEFAULT_REPLICATION_FACTOR,
    DEFINITIONS,
    MAX_COMPACTION_LAG_MS,
    MAX_MESSAGE_BYTES,
    MIN_COMPACTION_LAG_MS,
    MIN_INSYNC_REPLICAS,
    TOPIC_KEYS,
    decode_config,
    encode_config,
    topic_config,
)
from regnum_model.ids import BrokerId, PartitionKey
from regnum_service.errors import RegnumError
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

NONE = errors_pb2.ERROR_CODE_NONE
LOOK_S = 0.02
"""Pause between two looks at what people wrote."""


class Call:
    """What a servicer asks of its context."""

    def time_remaining(self) -> float | None:
        return 20.0


CONTEXT: Any = Call()


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    yield cluster
    await cluster.close()


def servicer(controller: Controller) -> AdminServicer:
    role = ControllerRole()
    role.hold(controller)
    return AdminServicer(role)


def resource(topic: str = "") -> admin_pb2.ConfigResource:
    kind = admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC if topic else admin_pb2.CONFIG_RESOURCE_TYPE_BROKER
    return admin_pb2.ConfigResource(type=kind, name=topic)


def alteration(topic: str = "", **values: str | None) -> admin_pb2.ConfigAlteration:
    keys = {"min": MIN_INSYNC_REPLICAS, "factor": DEFAULT_REPLICATION_FACTOR}
    return admin_pb2.ConfigAlteration(
        resource=resource(topic),
        configs=[
            admin_pb2.AlterableConfig(
                name=keys.get(name, name),
                op=admin_pb2.ALTER_CONFIG_OP_DELETE if value is None else admin_pb2.ALTER_CONFIG_OP_SET,
                value=value or "",
            )
            for name, value in values.items()
        ],
    )


async def alter(
    controller: Controller, *alterations: admin_pb2.ConfigAlteration, validate_only: bool = False
) -> list[int]:
    request = admin_pb2.IncrementalAlterConfigsRequest(alterations=alterations, validate_only=validate_only)
    answer = await servicer(controller).IncrementalAlterConfigs(request, CONTEXT)
    assert all(bool(result.error_message) == (result.error_code != NONE) for result in answer.results)
    return [result.error_code for result in answer.results]


async def described(controller: Controller, *topics: str) -> dict[str, dict[str, tuple[str, int]]]:
    request = admin_pb2.DescribeConfigsRequest(resources=[resource(topic) for topic in topics])
    answer = admin_pb2.DescribeConfigsResponse.FromString(await servicer(controller).DescribeConfigs(request, CONTEXT))
    return {
        result.resource.name: {one.name: (one.value, one.source) for one in result.configs} for result in answer.results
    }


async def create(controller: Controller, name: str = "t") -> PartitionKey:
    assignment = ((0, (BrokerId(1), BrokerId(2), BrokerId(3))),)
    request = TopicRequest(name=name, partitions=0, replication_factor=None, assignment=assignment, mutation=None)
    answered = await controller.topics.create((request,), validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created)
    return PartitionKey(outcome.topic_id, 0)


async def stored(cluster: FakeCluster, path: str = CLUSTER) -> dict[str, str] | None:
    (node,) = await cluster.outside.get_many([path])
    return None if node is None else decode_config(node.data, example="")


async def by_hand(cluster: FakeCluster, data: bytes, path: str = CLUSTER) -> None:
    if await cluster.outside.exists(path) is None:
        await cluster.outside.create(path, data)
    else:
        await cluster.outside.set(path, data, version=None)


async def test_the_first_controller_seeds_and_the_next_one_reads(cluster: FakeCluster) -> None:
    await by_hand(cluster, encode_config({"controller_mutation_rate": "5"}))
    await cluster.reign(min_insync=3, default_factor=2)
    seeded = {MIN_INSYNC_REPLICAS: "3", DEFAULT_REPLICATION_FACTOR: "2"}
    assert await stored(cluster) == {"controller_mutation_rate": "5", **seeded}
    await cluster.end_reign()
    controller = await cluster.reign(2, min_insync=1, default_factor=1)
    shown = (await described(controller))[""]
    assert {name: entry for name, entry in shown.items() if entry[1] != admin_pb2.CONFIG_SOURCE_DEFAULT} == {
        MIN_INSYNC_REPLICAS: ("3", admin_pb2.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER),
        DEFAULT_REPLICATION_FACTOR: ("2", admin_pb2.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER),
    }
    assert shown.keys() == DEFINITIONS.keys()


async def test_live_leaders_hear_of_another_value_of_the_cluster_before_the_answer_is_used(
    cluster: FakeCluster,
) -> None:
    controller = await cluster.reign()
    key = await create(controller)
    version = cluster.told(1)[key].state.version
    others = len(cluster.brokers[BrokerId(2)].requests)
    assert await alter(controller, alteration(min="3")) == [NONE]
    await until(lambda: cluster.told(1)[key].min_insync_replicas == 3)
    assert cluster.told(1)[key].state.version == version
    assert len(cluster.brokers[BrokerId(2)].requests) == others
    assert (await stored(cluster) or {})[MIN_INSYNC_REPLICAS] == "3"


async def test_a_lower_value_lets_eligible_replicas_go_in_the_message_that_tells_it(cluster: FakeCluster) -> None:
    controller = await cluster.reign(min_insync=3)
    key = await create(controller)
    cluster.kill(3)
    await until(lambda: list(cluster.told(1)[key].state.elr) == [3])
    assert await alter(controller, alteration(min="2")) == [NONE]
    await until(lambda: cluster.told(1)[key].min_insync_replicas == 2)
    assert list(cluster.told(1)[key].state.elr) == []
    state = await cluster.state("t", 0)
    assert (state.leader, state.leader_epoch, state.isr, state.elr) == (1, 0, (1, 2), ())


async def test_eligible_replicas_stay_while_a_member_of_the_isr_came_anew(cluster: FakeCluster) -> None:
    """The write names the registrations of all that remain; the bounce is settled as one, and not forgotten."""
    controller = await cluster.reign(min_insync=3)
    key = await create(controller)
    cluster.kill(3)
    await until(lambda: list(cluster.told(1)[key].state.elr) == [3])
    await cluster.register(2, log_id="wiped")
    await alter(controller, alteration(min="2"))

    async def settled() -> bool:
        return (await cluster.state("t", 0)).isr == (1,)

    await until(settled)
    assert set((await cluster.state("t", 0)).elr) == {2, 3}


async def test_a_topics_own_value_goes_before_the_clusters_until_it_is_taken_back(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    own, other = await create(controller, "own"), await create(controller, "other")
    assert await alter(controller, alteration("own", min="1")) == [NONE]
    await until(lambda: cluster.told(1)[own].min_insync_replicas == 1)
    assert await alter(controller, alteration(min="3")) == [NONE]
    await until(lambda: cluster.told(1)[other].min_insync_replicas == 3)
    assert cluster.told(1)[own].min_insync_replicas == 1
    assert (await described(controller))["own"] == {MIN_INSYNC_REPLICAS: ("1", admin_pb2.CONFIG_SOURCE_TOPIC)}
    assert await alter(controller, alteration("own", min=None)) == [NONE]
    await until(lambda: cluster.told(1)[own].min_insync_replicas == 3)
    assert await stored(cluster, topic_config("own")) is None
    shown = (await described(controller, "own"))["own"]
    assert shown[MIN_INSYNC_REPLICAS] == ("3", admin_pb2.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER)
    assert shown[MAX_MESSAGE_BYTES] == ("1048588", admin_pb2.CONFIG_SOURCE_DEFAULT)
    assert shown.keys() == TOPIC_KEYS


async def test_settings_of_topics_are_read_before_the_next_controller_decides(cluster: FakeCluster) -> None:
    controller = await cluster.reign(min_insync=1)
    key = await create(controller)
    await alter(controller, alteration("t", min="3"))
    await cluster.end_reign()
    cluster.kill(3)
    await cluster.reign(2)
    await until(lambda: list(cluster.told(1)[key].state.isr) == [1, 2])
    assert (await cluster.state("t", 0)).elr == (3,)
    assert cluster.told(1)[key].min_insync_replicas == 3


async def test_a_topics_lags_have_to_fit_those_of_the_cluster(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await create(controller)
    assert await alter(controller, alteration(**{MAX_COMPACTION_LAG_MS: "1000"})) == [NONE]
    above = alteration("t", **{MIN_COMPACTION_LAG_MS: "2000"})
    assert await alter(controller, above) == [errors_pb2.ERROR_CODE_INVALID_CONFIG]
    assert await alter(controller, above, validate_only=True) == [errors_pb2.ERROR_CODE_INVALID_CONFIG]
    both = alteration("t", **{MIN_COMPACTION_LAG_MS: "2000", MAX_COMPACTION_LAG_MS: "3000"})
    assert await alter(controller, both) == [NONE]
    back = alteration("t", **{MAX_COMPACTION_LAG_MS: None})
    assert await alter(controller, back) == [errors_pb2.ERROR_CODE_INVALID_CONFIG]
    own = (("min.compaction.lag.ms", "2000"),)
    request = TopicRequest(name="u", partitions=1, replication_factor=1, assignment=(), mutation=None, configs=own)
    answered = await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (refused,) = answered.outcomes
    assert isinstance(refused, Rejection)
    assert refused.code == errors_pb2.ERROR_CODE_INVALID_CONFIG


async def test_settings_go_with_their_topic(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await create(controller)
    await alter(controller, alteration("t", min="3"))
    request = DeletionRequest(name="t", topic_id="", mutation=None)
    await controller.topics.delete((request,), wait_s=DEADLINE_S, account=ANYBODY)
    assert await stored(cluster, topic_config("t")) is None
    key = await create(controller)
    assert cluster.told(1)[key].min_insync_replicas == 2


async def test_settings_of_a_topic_removed_by_hand_go_with_it(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await create(controller)
    await alter(controller, alteration("t", min="3"))
    await cluster.outside.delete_below("/brokers/topics/t")
    await cluster.outside.delete("/brokers/topics/t", version=None)

    async def gone() -> bool:
        return await stored(cluster, topic_config("t")) is None

    await until(gone)
    assert not controller.picture.topics


async def test_each_resource_is_answered_on_its_own_and_a_check_changes_nothing(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await create(controller)
    before = await stored(cluster)
    wrong = (
        alteration(other="1"),
        alteration("t", min="0"),
        alteration("nowhere", min="1"),
        alteration("t", factor="1"),
        admin_pb2.ConfigAlteration(),
        admin_pb2.ConfigAlteration(resource=admin_pb2.ConfigResource(type=4, name="1")),
    )
    assert await alter(controller, *wrong[:1], *wrong[2:]) == [
        errors_pb2.ERROR_CODE_INVALID_CONFIG,
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        errors_pb2.ERROR_CODE_INVALID_CONFIG,
        errors_pb2.ERROR_CODE_INVALID_REQUEST,
        errors_pb2.ERROR_CODE_INVALID_REQUEST,
    ]
    assert await alter(controller, wrong[1], alteration(min="3"), validate_only=True) == [
        errors_pb2.ERROR_CODE_INVALID_CONFIG,
        NONE,
    ]
    assert await stored(cluster) == before
    assert await alter(controller, wrong[1], alteration(min="3")) == [errors_pb2.ERROR_CODE_INVALID_CONFIG, NONE]
    assert controller.picture.settings.min_insync("t") == 3


async def test_who_is_not_the_controller_says_so(cluster: FakeCluster) -> None:
    await cluster.reign()
    nobody = AdminServicer(ControllerRole())
    for call in (
        nobody.IncrementalAlterConfigs(admin_pb2.IncrementalAlterConfigsRequest(), CONTEXT),
        nobody.DescribeConfigs(admin_pb2.DescribeConfigsRequest(), CONTEXT),
    ):
        with pytest.raises(RegnumError) as refused:
            await call
        assert refused.value.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER


async def test_what_a_person_writes_is_taken_up_and_what_nobody_can_read_changes_nothing(cluster: FakeCluster) -> None:
    """Safety rule S14: an event and the value as it was, never a crash."""
    controller = await cluster.reign(corrections_interval_s=LOOK_S)
    key = await create(controller)
    await by_hand(cluster, encode_config({MIN_INSYNC_REPLICAS: "3", DEFAULT_REPLICATION_FACTOR: "2"}))
    await until(lambda: cluster.told(1)[key].min_insync_replicas == 3)
    await by_hand(cluster, encode_config({MIN_INSYNC_REPLICAS: "1"}), topic_config("t"))
    await until(lambda: cluster.told(1)[key].min_insync_replicas == 1)
    for garbage in (b"\xff", b"[]", encode_config({MIN_INSYNC_REPLICAS: "none"})):
        await by_hand(cluster, garbage, topic_config("t"))
        await by_hand(cluster, garbage if garbage == b"\xff" else encode_config({MIN_INSYNC_REPLICAS: "-3"}))
        looks = controller.upkeep.looks_for_settings
        await until(lambda looks=looks: controller.upkeep.looks_for_settings > looks + 1)
        assert controller.picture.settings.default_replication_factor == 2
        assert cluster.told(1)[key].min_insync_replicas == 1
    assert await alter(controller, alteration("t", min="2")) == [NONE]
    await until(lambda: cluster.told(1)[key].min_insync_replicas == 2)
    await cluster.outside.delete(topic_config("t"), version=None)
    await until(lambda: cluster.told(1)[key].min_insync_replicas == 3)


async def test_a_node_that_is_removed_by_hand_is_written_again_as_it_was(cluster: FakeCluster) -> None:
    await cluster.reign(min_insync=3, corrections_interval_s=LOOK_S)
    before = await stored(cluster)
    await cluster.outside.delete(CLUSTER, version=None)

    async def is_back() -> bool:
        return await stored(cluster) == before

    await until(is_back)
    assert (await cluster.outside.get(CLUSTER)).stat.version == 0, "made anew, not written over"


async def test_a_reign_begins_over_nodes_that_nobody_can_read(cluster: FakeCluster) -> None:
    await by_hand(cluster, b"{")
    await by_hand(cluster, b"[1]", topic_config("t"))
    controller = await cluster.reign(min_insync=3)
    key = await create(controller)
    assert cluster.told(1)[key].min_insync_replicas == 3
    assert (await cluster.outside.get(CLUSTER)).data == b"{"
    assert await alter(controller, alteration(min="1")) == [errors_pb2.ERROR_CODE_INVALID_CONFIG]


async def test_a_node_that_has_no_room_for_what_is_missing_ends_no_controller(cluster: FakeCluster) -> None:
    await by_hand(cluster, encode_config({"note": "x" * (MAX_BYTES - 60)}))
    controller = await cluster.reign(min_insync=3)
    assert controller.picture.settings.min_insync("t") == 3
    assert await alter(controller, alteration(min="1")) == [errors_pb2.ERROR_CODE_INVALID_REQUEST]
    key = await create(controller)
    assert cluster.told(1)[key].min_insync_replicas == 3


async def test_a_change_whose_answer_was_lost_is_made_once(cluster: FakeCluster) -> None:
    """Safety rules S1 and S20: every write names the version that was read."""
    controller = await cluster.reign()
    cluster.server.lose_reply(touching=CLUSTER)
    assert await alter(controller, alteration(factor="1")) == [NONE]
    assert await stored(cluster) == {MIN_INSYNC_REPLICAS: "2", DEFAULT_REPLICATION_FACTOR: "1"}
    assert (await cluster.outside.get(CLUSTER)).stat.version == 1


class Meeting(MemoryStore):
    """Something happens while the first of many nodes is looked at."""

    happens: Callable[[], None] | None = None

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        if self.happens is not None and topic_config("t0") in paths:
            happens, self.happens = self.happens, None
            happens()
        return await super().get_many(paths, current=current)


async def test_a_failure_waits_for_some_of_the_resources_of_a_call_and_not_for_all(cluster: FakeCluster) -> None:
    stores: list[Meeting] = []

    def open_store(server: MemoryServer) -> MemoryStore:
        stores.append(Meeting(server))
        return stores[-1]

    cluster.open_store = open_store
    controller = await cluster.reign()
    topics = [f"t{number}" for number in range(3 * RESOURCES_PER_STEP + 1)]
    for name in topics:
        await create(controller, name)
    in_force: list[int] = []

    async def fails() -> AsyncGenerator[None, None]:
        in_force.append(len(controller.picture.settings.topics))
        # Between two steps others change settings as well.
        await by_hand(cluster, encode_config({MIN_INSYNC_REPLICAS: "1"}), topic_config("t0"))
        async for _ in controller._config_book.take_announced(frozenset({topic_config("t0")})):
            yield

    def happens() -> None:
        controller.queue.put_urgent(Mutation(name="failure", steps=fails(), abandon=nobody_waits))

    stores[0].happens = happens
    assert await alter(controller, *(alteration(name, min="3") for name in topics)) == [NONE] * len(topics)
    assert in_force == [RESOURCES_PER_STEP]
    shown = controller.picture.settings
    assert [shown.min_insync(name) for name in topics] == [1, *[3] * (len(topics) - 1)]
    assert [await stored(cluster, topic_config(name)) for name in topics[1:]] == [{MIN_INSYNC_REPLICAS: "3"}] * (
        len(topics) - 1
    )
