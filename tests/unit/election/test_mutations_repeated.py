"""A controller dies at each write of a mutation: whoever repeats it, it happens once (safety rule S20).

1. A asks for a change, with a mutation id. At its n-th write the controller dies: before the write, or after it and
   before it answers.
2. The next one reigns. B asks for another change of the same thing.
3. A asks again, with the same id. Had its change been made, B's stands; had it not been made, A's comes after B's.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Check, Group, Outcome
from regnum_election.candidacy.role import ControllerRole
from regnum_election.controller import Controller
from regnum_election.servicers.admin import AdminServicer
from regnum_model.config_changes import Resource, ResourceType
from regnum_model.configs import RETENTION_MS, SEGMENT_MS, decode_config
from regnum_model.mutations import KEPT, log_of
from regnum_model.quotas import RATE_KEY, QuotaEntity, QuotaNode
from regnum_testing.reigning import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

NONE = errors_pb2.ERROR_CODE_NONE
TOPIC = Resource(type=ResourceType.TOPIC, name="t")
ANN = QuotaEntity(user="ann")
WRITES_MAX = 6


class Call:
    """What a servicer asks of its context."""

    def time_remaining(self) -> float | None:
        return DEADLINE_S

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


CONTEXT: Any = Call()


class MortalStore(MemoryStore):
    """Comes to an end at one write, before it or after it, and answers no more."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.writes_left: int | None = None
        self.written = False
        self.ended = asyncio.Event()

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        if self.writes_left is not None:
            if self.writes_left == 0:
                if self.written:
                    await super().write_batch(groups, fence=fence)
                self.ended.set()
                await asyncio.Event().wait()
            self.writes_left -= 1
        return await super().write_batch(groups, fence=fence)


def servicer(controller: Controller) -> AdminServicer:
    role = ControllerRole()
    role.hold(controller)
    return AdminServicer(role)


def codes(answer: Any) -> list[int]:
    return [result.error_code for result in answer.results]


def topic_resource() -> admin_pb2.ConfigResource:
    return admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name="t")


async def set_retention(admin: AdminServicer, value: str, id: str) -> list[int]:
    request = admin_pb2.IncrementalAlterConfigsRequest(
        alterations=[
            admin_pb2.ConfigAlteration(
                resource=topic_resource(),
                configs=[admin_pb2.AlterableConfig(name=RETENTION_MS, op=admin_pb2.ALTER_CONFIG_OP_SET, value=value)],
            )
        ],
        mutation_id=id,
    )
    return codes(await admin.IncrementalAlterConfigs(request, CONTEXT))


async def replace_retention(admin: AdminServicer, value: str, id: str) -> list[int]:
    configs = [admin_pb2.ConfigValue(name=RETENTION_MS, value=value)]
    request = admin_pb2.AlterConfigsRequest(
        replacements=[admin_pb2.ConfigReplacement(resource=topic_resource(), configs=configs)], mutation_id=id
    )
    return codes(await admin.AlterConfigs(request, CONTEXT))


async def set_rate(admin: AdminServicer, value: str, id: str) -> list[int]:
    entity = admin_pb2.QuotaEntity(user=admin_pb2.QuotaSubject(name="ann"))
    operations = [admin_pb2.QuotaOperation(key=RATE_KEY, value=float(value))]
    request = admin_pb2.AlterClientQuotasRequest(
        alterations=[admin_pb2.QuotaAlteration(entity=entity, operations=operations)], mutation_id=id
    )
    return codes(await admin.AlterClientQuotas(request, CONTEXT))


async def retention(cluster: FakeCluster) -> str:
    (node,) = await cluster.outside.get_many([TOPIC.path])
    return "" if node is None else decode_config(node.data, example="").get(RETENTION_MS, "")


async def rate(cluster: FakeCluster) -> str:
    (node,) = await cluster.outside.get_many([ANN.path])
    return "" if node is None else QuotaNode.decode(node.data).config.get(RATE_KEY, "")


@dataclass(frozen=True)
class Kind:
    """A mutating call that sets one value."""

    ask: Callable[[AdminServicer, str, str], Awaitable[list[int]]]
    value: Callable[[FakeCluster], Awaitable[str]]
    path: str


KINDS = {
    "IncrementalAlterConfigs": Kind(set_retention, retention, TOPIC.path),
    "AlterConfigs": Kind(replace_retention, retention, TOPIC.path),
    "AlterClientQuotas": Kind(set_rate, rate, ANN.path),
}


@pytest.fixture
async def clusters() -> AsyncIterator[list[FakeCluster]]:
    clusters: list[FakeCluster] = []
    yield clusters
    for cluster in clusters:
        await cluster.close()


async def begin(clusters: list[FakeCluster]) -> tuple[FakeCluster, Controller]:
    cluster = FakeCluster()
    clusters.append(cluster)
    cluster.open_store = MortalStore
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    request = admin_pb2.CreateTopicsRequest(
        topics=[admin_pb2.NewTopic(name="t", partitions=2, replication_factor=2, mutation_id="made")]
    )
    assert codes(await servicer(controller).CreateTopics(request, CONTEXT)) == [NONE]
    await until(lambda: controller.queue.is_empty and controller._in_hand is None)
    return cluster, controller


@pytest.mark.parametrize("written", [False, True], ids=["before the write", "before the answer"])
@pytest.mark.parametrize("name", KINDS)
async def test_a_mutation_whose_controller_dies_happens_once_however_often_it_is_repeated(
    clusters: list[FakeCluster], name: str, written: bool
) -> None:
    kind = KINDS[name]
    made: list[bool] = []
    for writes in range(WRITES_MAX):
        cluster, controller = await begin(clusters)
        store = cluster.controller_store
        assert isinstance(store, MortalStore)
        store.writes_left, store.written = writes, written
        calling = asyncio.ensure_future(kind.ask(servicer(controller), "1000", "a"))
        dying = asyncio.ensure_future(store.ended.wait())
        await asyncio.wait({calling, dying}, return_when=asyncio.FIRST_COMPLETED)
        survived = not dying.done()
        if survived:
            assert calling.result() == [NONE]
        await cluster.end_reign()
        calling.cancel()
        dying.cancel()
        await asyncio.gather(calling, dying, return_exceptions=True)

        was_made = await kind.value(cluster) == "1000"
        made.append(was_made)
        controller = await cluster.reign(2)
        admin = servicer(controller)
        assert await kind.ask(admin, "2000", "b") == [NONE]
        assert await kind.ask(admin, "1000", "a") == [NONE]
        assert await kind.value(cluster) == ("2000" if was_made else "1000")
        assert await kind.ask(admin, "1000", "a") == [NONE]
        assert await kind.ask(admin, "2000", "b") == [NONE]
        assert await kind.value(cluster) == ("2000" if was_made else "1000")
        if survived:
            break
    assert survived, "no write was met at which it could die"
    assert made[0] is written
    assert made[-1]


@pytest.mark.parametrize("name", KINDS)
async def test_a_repeat_is_known_through_the_last_mutations_that_are_kept(
    clusters: list[FakeCluster], name: str
) -> None:
    kind = KINDS[name]
    cluster, controller = await begin(clusters)
    admin = servicer(controller)
    assert await kind.ask(admin, "1000", "a") == [NONE]
    for number in range(KEPT - 1):
        assert await kind.ask(admin, str(2000 + number), f"b{number}") == [NONE]
    last = str(2000 + KEPT - 2)
    assert await kind.ask(admin, "1000", "a") == [NONE]
    assert await kind.value(cluster) == last
    assert len(log_of((await cluster.outside.get(kind.path)).data).records) == KEPT


@pytest.mark.parametrize("name", KINDS)
async def test_the_same_id_with_another_content_is_refused_and_changes_nothing(
    clusters: list[FakeCluster], name: str
) -> None:
    kind = KINDS[name]
    cluster, controller = await begin(clusters)
    admin = servicer(controller)
    assert await kind.ask(admin, "1000", "a") == [NONE]
    assert await kind.ask(admin, "2000", "a") == [errors_pb2.ERROR_CODE_INVALID_REQUEST]
    assert await kind.ask(admin, "2000", "no id") == [errors_pb2.ERROR_CODE_INVALID_REQUEST]
    assert await kind.value(cluster) == "1000"


async def test_what_is_answered_from_the_log_is_in_force_as_it_is_now_and_not_as_it_was(
    clusters: list[FakeCluster],
) -> None:
    _, controller = await begin(clusters)
    admin = servicer(controller)
    assert await set_retention(admin, "1000", "a") == [NONE]
    assert await set_retention(admin, "2000", "b") == [NONE]
    assert await set_retention(admin, "1000", "a") == [NONE]
    assert controller.picture.settings.topics["t"] == {RETENTION_MS: 2000}


async def test_settings_that_are_replaced_keep_what_is_no_setting_and_the_protocol(
    clusters: list[FakeCluster],
) -> None:
    cluster, controller = await begin(clusters)
    admin = servicer(controller)
    await set_retention(admin, "1000", "a")
    configs = [admin_pb2.ConfigValue(name=SEGMENT_MS, value="5000")]
    whole = admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_BROKER)
    replacements = [
        admin_pb2.ConfigReplacement(resource=topic_resource(), configs=configs),
        admin_pb2.ConfigReplacement(resource=whole, configs=configs),
    ]
    (before,) = await cluster.outside.get_many(["/config/cluster"])
    assert before is not None
    config = {**decode_config(before.data, example=""), "inter.broker.protocol.version": "1", "a.key.of.others": "x"}
    config["controller_mutation_rate"] = "7"
    await cluster.outside.set("/config/cluster", QuotaNode(config=config).encode(), version=None)
    request = admin_pb2.AlterConfigsRequest(replacements=replacements, mutation_id="c")
    assert codes(await admin.AlterConfigs(request, CONTEXT)) == [NONE, NONE]
    (topic,) = await cluster.outside.get_many([TOPIC.path])
    assert topic is not None
    assert decode_config(topic.data, example="") == {SEGMENT_MS: "5000"}
    (after,) = await cluster.outside.get_many(["/config/cluster"])
    assert after is not None
    assert decode_config(after.data, example="") == {**config, SEGMENT_MS: "5000"}


async def test_a_topic_that_goes_back_to_its_defaults_still_knows_who_made_it_so(clusters: list[FakeCluster]) -> None:
    cluster, controller = await begin(clusters)
    admin = servicer(controller)
    assert await set_retention(admin, "1000", "a") == [NONE]
    empty = admin_pb2.AlterConfigsRequest(
        replacements=[admin_pb2.ConfigReplacement(resource=topic_resource())], mutation_id="b"
    )
    assert codes(await admin.AlterConfigs(empty, CONTEXT)) == [NONE]
    assert await set_retention(admin, "1000", "a") == [NONE]
    assert await retention(cluster) == ""
    assert "t" not in controller.picture.settings.topics
    delete = admin_pb2.DeleteTopicsRequest(topics=[admin_pb2.DeletableTopic(name="t", mutation_id="d")])
    assert codes(await admin.DeleteTopics(delete, CONTEXT)) == [NONE]
    assert await cluster.outside.exists(TOPIC.path) is None
