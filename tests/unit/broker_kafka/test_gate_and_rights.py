"""Which calls only the gate passes on, in whose name calls are passed on, and rights that rooms ask for."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf import message_factory
from immutables import Map
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.kafka.addresses import Addresses
from regnum_broker.kafka.admin import Admin
from regnum_broker.kafka.administration.acls import AclAdministration
from regnum_broker.kafka.administration.configs import ConfigAdministration
from regnum_broker.kafka.administration.logs import LogAdministration
from regnum_broker.kafka.administration.operations import authorized
from regnum_broker.kafka.administration.partitions import PartitionAdministration
from regnum_broker.kafka.administration.passing_on import PassingOn
from regnum_broker.kafka.administration.rooms import Room
from regnum_broker.kafka.administration.users import UserAdministration
from regnum_broker.kafka.context import Context
from regnum_broker.servicers.admin import AdminCall, UnreadRequest
from regnum_broker.serving.metadata_cache import TopicView
from regnum_kafka_wire.apis import APIS
from regnum_kafka_wire.gen import alter_client_quotas_request
from regnum_kafka_wire.gen.alter_client_quotas_request import AlterClientQuotasRequest
from regnum_kafka_wire.gen.alter_configs_request import AlterConfigsRequest
from regnum_kafka_wire.gen.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from regnum_kafka_wire.gen.create_acls_request import CreateAclsRequest
from regnum_kafka_wire.gen.create_partitions_request import CreatePartitionsRequest
from regnum_kafka_wire.gen.delete_acls_request import DeleteAclsRequest
from regnum_kafka_wire.gen.describe_acls_request import DescribeAclsRequest
from regnum_kafka_wire.gen.describe_client_quotas_request import DescribeClientQuotasRequest
from regnum_kafka_wire.gen.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from regnum_kafka_wire.gen.describe_log_dirs_request import DescribeLogDirsRequest
from regnum_kafka_wire.gen.describe_producers_request import DescribeProducersRequest, TopicRequest
from regnum_kafka_wire.gen.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from regnum_kafka_wire.gen.elect_leaders_request import ElectLeadersRequest
from regnum_kafka_wire.gen.incremental_alter_configs_request import IncrementalAlterConfigsRequest
from regnum_kafka_wire.gen.list_config_resources_request import ListConfigResourcesRequest
from regnum_kafka_wire.gen.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from regnum_kafka_wire.gen.metadata_request import MetadataRequest
from regnum_model.access import Operation, ResourceType
from regnum_model.ids import id_of_bytes
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call
from regnum_service.name_order import NameOrder
from regnum_testing.recorded_rights import RecordedRights

METHODS = admin_pb2.DESCRIPTOR.services_by_name["AdminService"].methods_by_name
GATED = {37: 3, 43: 2, 45: 1, 46: 0}
"""Calls that Kafka's clients send to the controller, and a version of each."""
FORWARDED = {29: 3, 30: 3, 31: 3, 32: 4, 33: 2, 44: 1, 48: 1, 49: 1}
"""Calls that they send to any broker."""


class World:
    """One broker and the controller, which answers that nothing was asked for."""

    def __init__(self, gate: int, rights: RecordedRights | None = None) -> None:
        self.passed: list[tuple[str, Any, Call]] = []
        authorizer: Any = rights or RecordedRights(lambda *_: True)
        self.knows: set[tuple[str, int]] = set()
        self.here: dict[tuple[str, int], Any] = {}
        self.written = 0
        nothing: Any = SimpleNamespace(
            topics={},
            gate=gate,
            brokers={1: None},
            until=self._until,
            named=lambda *place: self.here.get(place),
            write=self._write,
            knows=lambda *place: place in self.knows,
        )
        controller = PassingOn(
            broker=1, addresses=nothing, forwarding=cast("Any", SimpleNamespace(pass_on=self._pass_on))
        )
        self.rooms: dict[int, Room] = {
            **PartitionAdministration(controller=controller, cache=nothing, authorizer=authorizer).rooms,
            **ConfigAdministration(
                controller=controller, cache=nothing, addresses=nothing, authorizer=authorizer
            ).rooms,
            **AclAdministration(controller=controller).rooms,
            **UserAdministration(controller=controller, authorizer=authorizer).rooms,
            **LogAdministration(
                log=None, replicas=nothing, leaders=nothing, storage=nothing, disk=nothing, authorizer=authorizer
            ).rooms,
        }

    async def _write(self, job: Any) -> Any:
        self.written += 1
        return job()

    async def _until(self, condition: Any, within_s: float) -> bool:
        del within_s
        return bool(condition())

    async def _pass_on(self, asked: AdminCall, request: UnreadRequest, call: Call) -> bytes:
        method = METHODS[asked.path.rpartition("/")[2]]
        read = message_factory.GetMessageClass(method.input_type).FromString(request.data)
        self.passed.append((method.name, read, call))
        answer: Any = message_factory.GetMessageClass(method.output_type)()
        if method.name in {"DescribeConfigs", "AlterClientQuotas"}:
            answer.results.add()
        return answer.SerializeToString()

    async def ask(self, key: int, version: int, request: Any) -> Any:
        call = Call(peer="ipv4:10.0.0.1:1", client_id="tool")
        head: Any = SimpleNamespace(version=version)
        return await self.rooms[key][0](request, Context(call, head, cast("Any", None), cast("Any", None)))


def requests() -> dict[int, Any]:
    """One of each call, that asks for as little as gets to the controller."""
    anything = {"resource_type_filter": 1, "operation": 1, "permission_type": 1}
    user = alter_client_quotas_request.EntityData("user", "u")
    return {
        29: DescribeAclsRequest(**anything),
        30: CreateAclsRequest(),
        31: DeleteAclsRequest(),
        32: DescribeConfigsRequest(resources=[DescribeConfigsResource(4, "1")]),
        33: AlterConfigsRequest(),
        35: DescribeLogDirsRequest(),
        37: CreatePartitionsRequest(),
        43: ElectLeadersRequest(topic_partitions=None),
        44: IncrementalAlterConfigsRequest(),
        45: AlterPartitionReassignmentsRequest(allow_replication_factor_change=False),
        46: ListPartitionReassignmentsRequest(topics=None),
        48: DescribeClientQuotasRequest(),
        49: AlterClientQuotasRequest(entries=[alter_client_quotas_request.EntryData([user])]),
        50: DescribeUserScramCredentialsRequest(),
        74: ListConfigResourcesRequest(),
    }


@pytest.mark.parametrize(("key", "version"), GATED.items())
async def test_only_the_gate_passes_on_what_is_the_controllers(key: int, version: int) -> None:
    world = World(gate=2)
    with pytest.raises(RegnumError) as refused:
        await world.ask(key, version, requests()[key])
    assert refused.value.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER
    assert world.passed == []
    at_the_gate = World(gate=1)
    await at_the_gate.ask(key, version, requests()[key])
    assert [name for name, _, _ in at_the_gate.passed] == [APIS[key].name]


@pytest.mark.parametrize(("key", "version"), (GATED | FORWARDED).items())
async def test_calls_are_passed_on_in_the_name_of_their_client_with_the_version_that_it_speaks(
    key: int, version: int
) -> None:
    for asked in {APIS[key].oldest, version}:
        world = World(gate=1)
        await world.ask(key, asked, requests()[key])
        ((name, request, call),) = world.passed
        assert (name, call.client_id, call.peer) == (APIS[key].name, "tool", "ipv4:10.0.0.1:1")
        assert request.header.client_id == "tool"
        assert (request.header.api_version, request.header.version_zero) == (asked, asked == 0)


@pytest.mark.parametrize(
    ("key", "version", "right"),
    [
        (35, 4, "DESCRIBE CLUSTER"),
        (45, 1, "ALTER CLUSTER"),
        (50, 0, "DESCRIBE CLUSTER"),
        (74, 1, "DESCRIBE_CONFIGS CLUSTER"),
    ],
)
async def test_what_this_broker_tells_itself_needs_kafkas_right(key: int, version: int, right: str) -> None:
    rights = RecordedRights(lambda *_: False)
    with pytest.raises(RegnumError) as refused:
        await World(gate=1, rights=rights).ask(key, version, requests()[key])
    assert refused.value.code == errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED
    assert [str(asked) for asked in rights.asked] == [f"{right} kafka-cluster"]


async def test_producers_are_told_topic_by_topic() -> None:
    request = DescribeProducersRequest(topics=[TopicRequest("orders", [0, 1])])
    answer = await World(gate=1, rights=RecordedRights(lambda *_: False)).ask(61, 0, request)
    (topic,) = answer.topics
    denied = errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [(0, denied), (1, denied)]


def test_what_a_caller_may_do_is_a_bit_for_each_operation() -> None:
    assert Operation.DESCRIBE.value == 8
    nothing: Any = RecordedRights(lambda *_: False)
    assert authorized(nothing, ResourceType.TOPIC, "t") == 0
    everything: Any = RecordedRights(lambda *_: True)
    assert authorized(everything, ResourceType.GROUP, "g") == 1 << 3 | 1 << 6 | 1 << 8


async def test_producers_of_a_replica_that_is_not_here_are_told_elsewhere() -> None:
    world = World(gate=1)
    world.knows = {("orders", 0)}
    request = DescribeProducersRequest(topics=[TopicRequest("orders", [0, 1])])
    (topic,) = (await world.ask(61, 0, request)).topics
    elsewhere, unknown = errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER, errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [(0, elsewhere), (1, unknown)]


async def test_the_thread_that_appends_is_asked_once_for_the_producers_of_many_partitions() -> None:
    world = World(gate=1)
    entry = SimpleNamespace(epoch=0, batches=[SimpleNamespace(last_sequence=3)], seen_ms=4)
    for number in (0, 2):
        entries = {number: entry} if number else {}
        world.here["orders", number] = SimpleNamespace(log=SimpleNamespace(producers=SimpleNamespace(entries=entries)))
    topics = [TopicRequest("orders", [2, 1, 0]), TopicRequest("payments", [0])]
    answer = await world.ask(61, 0, DescribeProducersRequest(topics=topics))
    told = [
        [(one.partition_index, len(one.active_producers or ())) for one in topic.partitions] for topic in answer.topics
    ]
    assert told == [[(2, 1), (1, 0), (0, 0)], [(0, 0)]]
    assert world.written == 1


class Brokers:
    """Of a picture; counts how often they are looked through."""

    def __init__(self, topics: int) -> None:
        self.topics = {
            f"t{number}": TopicView(name=f"t{number}", topic_id="", partitions=Map()) for number in range(topics)
        }
        self.names = NameOrder()
        self.cluster_id, self.controller, self.looked = "c", SimpleNamespace(id=-1, epoch=0), 0

    @property
    def brokers(self) -> list[Any]:
        self.looked += 1
        return []


async def test_brokers_are_looked_through_as_often_for_one_topic_as_for_many() -> None:
    looked = []
    for count in (1, 20):
        cache, nothing = Brokers(count), cast("Any", None)
        rights: Any = RecordedRights(lambda *_: True)
        admin = Admin(
            cache=cast("Any", cache),
            leaders=nothing,
            addresses=Addresses(cast("Any", cache)),
            authorizer=rights,
            controller=nothing,
            creation=nothing,
        )
        head: Any = SimpleNamespace(version=9)
        context = Context(Call(peer="ipv4:10.0.0.1:1"), head, nothing, nothing)
        answer = await admin.metadata(MetadataRequest(topics=None), context)
        assert len(answer.topics) == count
        looked.append(cache.looked)
    assert looked[0] == looked[1]


def test_a_topic_is_found_by_its_id_without_a_look_at_the_others() -> None:
    """Else each change of the metadata costs one, on the event loop: 45 ms with 100,000 topics (safety rule S22)."""
    id, other = bytes(range(16)), bytes(16)
    cache = SimpleNamespace(topics=None, names_by_id={id_of_bytes(id): "orders"})
    addresses = Addresses(cast("Any", cache))
    assert (addresses.name_of(id), addresses.name_of(other)) == ("orders", None)
    assert (addresses.knows_any([id_of_bytes(id)]), addresses.knows_any([id_of_bytes(other)])) == (True, False)
