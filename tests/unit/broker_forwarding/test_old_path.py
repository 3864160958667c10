"""Below protocol 2 brokers write settings and quotas themselves, and nothing is lost or done twice on the way to it.

The version of a node counts its writes: each mutation with an id writes its node once, also one that changes nothing.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.configs.values import Stored, read_protocol
from regnum_broker.forwarding.old_path import OldPath
from regnum_coordination.drivers.memory import MemoryStore
from regnum_election.candidacy.role import ControllerRole
from regnum_election.controller import Controller
from regnum_election.servicers.admin import AdminServicer
from regnum_model.api_versions import ADMIN_SERVICE
from regnum_model.configs import CLUSTER, INTER_BROKER_PROTOCOL, RETENTION_MS, decode_config, topic_config
from regnum_model.quotas import RATE_KEY, QuotaEntity
from regnum_service.access.authorization import EVERYBODY
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call
from regnum_service.request_sizes import OBJECTS_MAX
from regnum_testing.reigning import FakeCluster
from regnum_testing.served import Caller
from regnum_testing.waiting import DEADLINE_S, until

NONE = errors_pb2.ERROR_CODE_NONE
ANN = QuotaEntity(user="ann")
TOPIC = "t"


def lasting(seconds: float = DEADLINE_S) -> Call:
    """A call that is waited for so long."""
    return Call(peer="ipv4:127.0.0.1:1", deadline_s=SystemClock().monotonic() + seconds)


CONTEXT: Any = Caller(DEADLINE_S)
"""What a servicer of gRPC gets."""


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    await cluster.outside.create(CLUSTER, b'{"version":1,"config":{"inter.broker.protocol.version":"1"}}')
    await cluster.reign()
    request = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=TOPIC, partitions=1, replication_factor=2)])
    answer = await servicer(cluster).CreateTopics(request, CONTEXT)
    assert [one.error_code for one in answer.results] == [NONE]
    yield cluster
    await cluster.close()


def controller_of(cluster: FakeCluster) -> Controller:
    assert cluster.controller is not None
    return cluster.controller


def servicer(cluster: FakeCluster) -> AdminServicer:
    role = ControllerRole()
    role.hold(controller_of(cluster))
    return AdminServicer(role)


class Silent(MemoryStore):
    """A store that answers no read."""

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> Any:
        await asyncio.Event().wait()


class Broker:
    """A broker that learns of the protocol when a test lets it."""

    def __init__(self, cluster: FakeCluster, store: type[MemoryStore] = MemoryStore) -> None:
        self.store = store(cluster.server)
        self.protocol = 1
        self.path = OldPath(
            protocol=lambda: self.protocol, store=lambda: self.store, clock=SystemClock(), authorizer=EVERYBODY
        )

    async def send(self, request: Any, call: Call | None = None) -> list[int]:
        name = type(request).__name__.removesuffix("Request")
        data = await self.path.carry_out(
            f"{ADMIN_SERVICE}{name}", request.SerializeToString(), call or lasting(), mutation_id="minted"
        )
        answer: Any = getattr(admin_pb2, f"{name}Response").FromString(data)
        return [one.error_code for one in answer.results]


def retention(value: int, id: str, *, topic: str = TOPIC) -> admin_pb2.IncrementalAlterConfigsRequest:
    return admin_pb2.IncrementalAlterConfigsRequest(
        alterations=[
            admin_pb2.ConfigAlteration(
                resource=admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name=topic),
                configs=[
                    admin_pb2.AlterableConfig(name=RETENTION_MS, op=admin_pb2.ALTER_CONFIG_OP_SET, value=str(value))
                ],
            )
        ],
        mutation_id=id,
    )


def rate(value: float, id: str) -> admin_pb2.AlterClientQuotasRequest:
    return admin_pb2.AlterClientQuotasRequest(
        alterations=[
            admin_pb2.QuotaAlteration(
                entity=admin_pb2.QuotaEntity(user=admin_pb2.QuotaSubject(name="ann")),
                operations=[admin_pb2.QuotaOperation(key=RATE_KEY, value=value)],
            )
        ],
        mutation_id=id,
    )


def protocol(value: str) -> admin_pb2.IncrementalAlterConfigsRequest:
    return admin_pb2.IncrementalAlterConfigsRequest(
        alterations=[
            admin_pb2.ConfigAlteration(
                resource=admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_BROKER),
                configs=[
                    admin_pb2.AlterableConfig(name=INTER_BROKER_PROTOCOL, op=admin_pb2.ALTER_CONFIG_OP_SET, value=value)
                ],
            )
        ],
        mutation_id=f"protocol {value}".replace(" ", "-"),
    )


async def test_what_a_broker_writes_the_controller_puts_in_force(cluster: FakeCluster) -> None:
    broker = Broker(cluster)
    assert await broker.send(retention(60_000, "a")) == [NONE]
    controller = controller_of(cluster)
    await until(lambda: controller.picture.settings.topics.get(TOPIC) == {RETENTION_MS: 60_000})
    assert await broker.send(rate(5.0, "b")) == [NONE]
    await until(lambda: ANN in controller.quotas.book.table.limits)
    # The controller answers the repeat of what the broker did, and the broker that of what the controller did.
    admin = servicer(cluster)
    for request in (retention(60_000, "a"), retention(70_000, "c")):
        answer = await admin.IncrementalAlterConfigs(request, CONTEXT)
        assert [one.error_code for one in answer.results] == [NONE]
    assert await broker.send(retention(70_000, "c")) == [NONE]
    assert await broker.send(retention(60_000, "a")) == [NONE]
    node = await cluster.outside.get(topic_config(TOPIC))
    assert decode_config(node.data, example="") == {RETENTION_MS: "70000"}
    assert node.stat.version == 1


async def test_a_rolling_change_of_the_protocol_under_mutations_loses_none_and_does_none_twice(
    cluster: FakeCluster,
) -> None:
    chance = random.Random(20_231_104)
    brokers = [Broker(cluster) for _ in range(3)]
    admin = servicer(cluster)
    sent = {"t": 0, "ann": 0}
    done: list[str] = []

    async def once(request: Any, broker: Broker) -> list[int]:
        if broker.path.takes(f"{ADMIN_SERVICE}{type(request).__name__.removesuffix('Request')}"):
            return await broker.send(request)
        answer = await getattr(admin, type(request).__name__.removesuffix("Request"))(request, CONTEXT)
        return [one.error_code for one in answer.results]

    async def client(name: int) -> None:
        for number in range(20):
            id = f"{name}-{number}"
            if chance.random() < 0.5:
                sent["t"] += 1
                request: Any = retention(1_000 + 100 * number + name, id)
            else:
                sent["ann"] += 1
                request = rate(float(1 + 100 * number + name), id)
            # An answer may be lost: the same is sent again, to whoever comes next.
            for broker in chance.choices(brokers, k=chance.choice((1, 1, 2, 3))):
                assert await once(request, broker) == [NONE]
            done.append(id)
            await asyncio.sleep(0)

    async def roll() -> None:
        await until(lambda: len(done) > 20)
        assert await once(protocol("2"), brokers[0]) == [NONE]
        for broker in brokers:
            before = len(done)
            await until(lambda: len(done) > min(before + 5, 79))  # noqa: B023
            broker.protocol = 2

    async with asyncio.TaskGroup() as group:
        for name in range(4):
            group.create_task(client(name))
        group.create_task(roll())
    assert sum(sent.values()) == 80
    topic, ann = [await cluster.outside.get(path) for path in (topic_config(TOPIC), ANN.path)]
    assert topic.stat.version + 1 == sent["t"]
    assert ann.stat.version + 1 == sent["ann"]
    assert not any(broker.path.takes(f"{ADMIN_SERVICE}AlterClientQuotas") for broker in brokers)
    controller = controller_of(cluster)
    last = {RETENTION_MS: int(decode_config(topic.data, example="")[RETENTION_MS])}
    await until(lambda: controller.picture.settings.topics.get(TOPIC) == last)
    await until(lambda: controller.picture.settings.inter_broker_protocol == 2)


async def test_a_broker_refuses_what_the_controller_would_refuse(cluster: FakeCluster) -> None:
    broker = Broker(cluster)
    unknown = await broker.send(retention(60_000, "a", topic="nowhere"))
    assert unknown == [errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION]
    assert await broker.send(retention(-7, "b")) == [errors_pb2.ERROR_CODE_INVALID_CONFIG]
    assert await broker.send(retention(60_000, "c")) == [NONE]
    assert await broker.send(retention(70_000, "c")) == [errors_pb2.ERROR_CODE_INVALID_REQUEST]
    assert await broker.send(rate(-1.0, "d")) == [errors_pb2.ERROR_CODE_INVALID_REQUEST]
    assert await broker.send(protocol("2")) == [NONE]
    broker.protocol = 2
    assert await broker.send(protocol("1")) == [errors_pb2.ERROR_CODE_INVALID_CONFIG]
    assert await cluster.outside.exists(ANN.path) is None
    assert await cluster.outside.exists(topic_config("nowhere")) is None


async def test_calls_that_come_all_at_a_time_are_all_carried_out(cluster: FakeCluster) -> None:
    """Each announces its change under the next number: of many at a time one would get through in each round."""
    broker, others = Broker(cluster), Broker(cluster)
    sent = [rate(float(number + 1), f"id-{number}") for number in range(250)]
    outcomes = await asyncio.gather(
        *(broker.send(request) for request in sent), *(others.send(request) for request in sent[:50])
    )
    assert all(outcome == [NONE] for outcome in outcomes)
    assert (await cluster.outside.get(ANN.path)).stat.version + 1 == len(sent)


async def test_who_has_waited_as_long_as_its_caller_does_is_told_so_and_the_next_one_is_not_held_up(
    cluster: FakeCluster,
) -> None:
    broker = Broker(cluster, Silent)
    for id in ("a", "b"):
        with pytest.raises(RegnumError, match="did not answer in time") as refused:
            await broker.send(rate(5.0, id), lasting(0.2))
        assert refused.value.code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT


async def test_a_request_of_millions_of_items_is_refused_before_it_becomes_that_many(cluster: FakeCluster) -> None:
    """Two bytes each: an empty entity."""
    field = admin_pb2.AlterClientQuotasRequest.DESCRIPTOR.fields_by_name["alterations"].number
    request = bytes((field << 3 | 2, 0)) * (OBJECTS_MAX + 1)
    with pytest.raises(RegnumError, match="elements") as refused:
        await Broker(cluster).path.carry_out(f"{ADMIN_SERVICE}AlterClientQuotas", request, lasting(), mutation_id="a")
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def test_topics_rules_and_tokens_always_go_to_the_controller(cluster: FakeCluster) -> None:
    broker = Broker(cluster)
    assert broker.path.takes(f"{ADMIN_SERVICE}AlterConfigs")
    for name in ("CreateTopics", "DeleteTopics", "CreatePartitions", "CreateAcls", "CreateDelegationToken"):
        assert not broker.path.takes(f"{ADMIN_SERVICE}{name}")


def test_the_protocol_is_the_newest_where_nobody_says_one_and_stays_where_nobody_can_read_it() -> None:
    assert read_protocol(None, 1) == 2
    assert read_protocol(b"junk", 1) == 1
    assert read_protocol(b'{"version":1,"config":{"inter.broker.protocol.version":"1"}}', 2) == 1
    assert Stored().protocol == 2
