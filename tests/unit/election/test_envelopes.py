"""What brokers pass on to the controller: for whom it is done, and what is refused."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.message import Message
from regnum.admin.v1 import admin_pb2
from regnum.election.v1 import controller_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_election.candidacy.role import ControllerRole
from regnum_election.servicers.admin import AdminServicer
from regnum_election.servicers.controller import ControllerServicer
from regnum_model.access import CLUSTER_NAME, Operation, ResourceType
from regnum_model.api_versions import ADMIN_SERVICE
from regnum_model.ids import BrokerId
from regnum_model.principals import NOBODY, Principal
from regnum_model.quotas import QuotaEntity
from regnum_model.topics import TRANSACTIONS_TOPIC
from regnum_service.access.audit import Mutated, NoAudit
from regnum_service.access.guards.guard import Guard
from regnum_service.access.identity import INTERNAL, Caller, caller, calling
from regnum_service.errors import RegnumError, code_of
from regnum_service.muting import Muting
from regnum_service.request_sizes import OBJECTS_MAX
from regnum_service.status import from_status
from regnum_telemetry import tracing
from regnum_testing.internal_calls import internal_servicer
from regnum_testing.quota_world import QuotaWorld
from regnum_testing.served import Caller as Call
from regnum_testing.waiting import within


class Lines(NoAudit):
    """The lines of an audit log."""

    def __init__(self) -> None:
        self.mutations: list[tuple[Caller, str, Mutated]] = []

    def mutated(self, who: Caller, call: str, items: tuple[Mutated, ...], *, client_id: str = "") -> None:
        self.mutations += [(who, call, item) for item in items]


BROKER = Caller(principal=Principal("broker-1"), host="10.0.0.1", listener=INTERNAL, encrypted=True)
ALICE = controller_pb2.OriginalCaller(
    principal_type="User",
    principal_name="alice",
    token_authenticated=True,
    client_host="10.9.8.7",
    connection="ipv4:10.9.8.7:4711",
    encrypted=True,
)
OLD = types_pb2.RequestHeader(api_version=5, client_id="app")
CREATE = f"{ADMIN_SERVICE}CreateTopics"
OLD_HEADER = admin_pb2.CreateTopicsRequest(header=OLD).SerializeToString()


class Rights:
    """Says yes to those who are in it, and takes down what it was asked."""

    def __init__(self, *may: str) -> None:
        self.may = set(may)
        self.asked: list[tuple[Caller, Operation, ResourceType, str]] = []

    def allows(
        self, who: Caller, operation: Operation, type: ResourceType, name: str = CLUSTER_NAME, *, audit: bool = True
    ) -> bool:
        self.asked.append((who, operation, type, name))
        return who.principal.name in self.may

    generation = 0


class WatchedAdmin(AdminServicer):
    """The admin servicer of the process; notes for whom calls run."""

    def __init__(self, role: ControllerRole, muting: Muting) -> None:
        super().__init__(role, muting=muting)
        self.seen: list[tuple[Caller, str, object]] = []

    async def CreateTopics(self, request: admin_pb2.CreateTopicsRequest, context: Any) -> Any:  # noqa: N802
        self.seen.append((caller(), context.peer(), request))
        return await super().CreateTopics(request, context)


class World:
    """A controller with quotas, and its internal listener."""

    def __init__(self) -> None:
        self.world = QuotaWorld()
        self.role = ControllerRole()
        self.muting = Muting(self.world.clock)
        self.admin = WatchedAdmin(self.role, self.muting)
        self.rights = Rights("broker-1")
        self.servicer: ControllerServicer = internal_servicer(self.role, admin=self.admin, authorizer=self.rights)

    async def send(self, envelope: controller_pb2.EnvelopeRequest, *, sender: Caller = BROKER) -> Any:
        context: Any = Call(20.0)
        with calling(sender):
            return await within(self.servicer.Envelope(envelope, context))

    async def refused(self, envelope: controller_pb2.EnvelopeRequest, *, sender: Caller = BROKER) -> int:
        with pytest.raises(RegnumError) as refusal:
            await self.send(envelope, sender=sender)
        return refusal.value.code


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.world.begin()
    await made.world.start_process()
    made.role.hold(made.world.controller)
    yield made
    await made.world.close()


def new_topics(*names: str, header: types_pb2.RequestHeader = OLD, partitions: int = 1) -> Message:
    return admin_pb2.CreateTopicsRequest(
        header=header,
        topics=[admin_pb2.NewTopic(name=name, partitions=partitions, replication_factor=1) for name in names],
    )


def enveloped(request: Message, *, method: str = CREATE, **more: Any) -> controller_pb2.EnvelopeRequest:
    fields = {"caller": ALICE, "correlation_id": 7, "mutation_id": "m", **more}
    return controller_pb2.EnvelopeRequest(method=method, request=request.SerializeToString(), **fields)


async def test_the_call_runs_as_that_of_its_client_and_is_answered_as_a_direct_one(world: World) -> None:
    answer = await world.send(enveloped(new_topics("a", "b")))
    assert answer.correlation_id == 7
    assert not answer.HasField("status")
    created = admin_pb2.CreateTopicsResponse.FromString(answer.response)
    assert [(one.name, one.error_code) for one in created.results] == [("a", 0), ("b", 0)]
    ((who, connection, _),) = world.admin.seen
    assert who == Caller(
        principal=Principal("alice", token_authenticated=True),
        host="10.9.8.7",
        encrypted=True,
        forwarded=True,
        via="User:broker-1 at 10.0.0.1",
    )
    assert who.principal.token_authenticated, "else token rules are got around by way of any broker"
    assert "ipv4:10.9.8.7:4711" in connection
    assert "10.0.0.1" in connection
    assert caller().principal == NOBODY, "the name ends with the call"


async def test_a_client_counts_as_behind_tls_only_where_the_envelope_came_over_tls_too(world: World) -> None:
    plaintext = replace(BROKER, encrypted=False)
    assert not (await world.send(enveloped(new_topics("a")), sender=plaintext)).HasField("status")
    ((who, _, _),) = world.admin.seen
    assert not who.encrypted


async def test_a_repeat_of_an_envelope_is_answered_and_not_carried_out_again(world: World) -> None:
    first = await world.send(enveloped(new_topics("a", "b")))
    again = await world.send(enveloped(new_topics("a", "b")))
    assert again.response == first.response
    other = await world.send(enveloped(new_topics("a", "b"), mutation_id="n"))
    codes = [one.error_code for one in admin_pb2.CreateTopicsResponse.FromString(other.response).results]
    assert codes == 2 * [errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS]


async def test_it_is_the_rights_of_the_client_that_count_and_not_those_of_its_broker(world: World) -> None:
    """The guard before direct calls stands before these, too."""
    guarded: Any = Guard(world.rights).before("regnum.admin.v1.AdminService", world.admin)
    world.servicer = internal_servicer(world.role, admin=guarded, authorizer=world.rights)
    answer = await world.send(enveloped(new_topics("a", "b")))
    codes = [one.error_code for one in admin_pb2.CreateTopicsResponse.FromString(answer.response).results]
    assert codes == 2 * [errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED]
    assert world.admin.seen == []
    asked = {(who.principal.name, operation) for who, operation, _, _ in world.rights.asked}
    assert asked == {("broker-1", Operation.CLUSTER_ACTION), ("alice", Operation.CREATE)}
    assert {who.host for who, _, _, _ in world.rights.asked} == {"10.0.0.1", "10.9.8.7"}, "rules may name hosts"
    world.rights.may.add("alice")
    answer = await world.send(enveloped(new_topics("a", "b")))
    codes = [one.error_code for one in admin_pb2.CreateTopicsResponse.FromString(answer.response).results]
    assert codes == [0, 0]


async def test_mutation_ids_of_the_client_stay_as_they_are(world: World) -> None:
    request = admin_pb2.CreateTopicsRequest(
        header=OLD,
        topics=[
            admin_pb2.NewTopic(name="a", partitions=1, replication_factor=1, mutation_id="mine"),
            admin_pb2.NewTopic(name="b", partitions=1, replication_factor=1),
        ],
    )
    await world.send(enveloped(request))
    ((_, _, seen),) = world.admin.seen
    assert isinstance(seen, admin_pb2.CreateTopicsRequest)
    assert [topic.mutation_id for topic in seen.topics] == ["mine", "m-1"]


async def test_the_quota_of_the_client_is_charged_and_its_broker_is_not_held_up(world: World) -> None:
    await world.world.set_quota(1.0, 5.0, QuotaEntity(user="alice"))
    answer = await world.send(enveloped(new_topics("a", partitions=12)))
    created = admin_pb2.CreateTopicsResponse.FromString(answer.response)
    assert [one.error_code for one in created.results] == [0]
    assert answer.throttle_time_ms == created.throttle_time_ms == 7_000
    assert world.muting.left_s("ipv4:127.0.0.1:1") == 0.0, "the connection that the envelope came over is a broker's"


async def test_what_the_call_is_refused_with_comes_back_inside_the_answer(world: World) -> None:
    request = admin_pb2.CreateTopicsRequest(header=OLD, topics=[admin_pb2.NewTopic()], timeout_ms=-1)
    answer = await world.send(enveloped(request))
    error = from_status(answer.status)
    assert error is not None
    assert error.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert "timeout_ms" in error.message
    assert not answer.response
    assert not answer.refused, "nobody traces it"
    for sent, is_refused in ((request, True), (new_topics("a"), False)):
        with tracing.serving(tracing.ServedCall()):
            assert (await world.send(enveloped(sent))).refused is is_refused


async def test_who_may_not_act_for_the_cluster_sends_no_envelope_whoever_it_names(world: World) -> None:
    world.rights.may.add("alice")
    mallory = Caller(principal=Principal("mallory"), host="10.6.6.6", listener=INTERNAL)
    code = await world.refused(enveloped(new_topics("a")), sender=mallory)
    assert code == errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED
    assert world.rights.asked == [(mallory, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)]
    assert world.admin.seen == []


async def test_an_envelope_that_came_over_the_listener_of_clients_is_refused_whatever_its_sender_may(
    world: World,
) -> None:
    world.rights.may.add("root")
    root = Caller(principal=Principal("root"), host="10.0.0.9")
    code = await world.refused(enveloped(new_topics("a")), sender=root)
    assert code == errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED


async def test_a_process_that_does_not_reign_opens_none(world: World) -> None:
    world.role.leave()
    assert await world.refused(enveloped(new_topics("a"))) == errors_pb2.ERROR_CODE_NOT_CONTROLLER


@pytest.mark.parametrize(
    "method",
    [
        "/regnum.election.v1.ControllerService/Envelope",
        f"{ADMIN_SERVICE}Envelope",
        f"{ADMIN_SERVICE}ResignController",
        f"{ADMIN_SERVICE}_role",
        "CreateTopics",
        "",
    ],
)
async def test_nothing_but_a_call_that_is_passed_on_may_be_inside(world: World, method: str) -> None:
    inner = enveloped(new_topics("a"))
    assert await world.refused(enveloped(inner, method=method)) == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def test_an_envelope_in_place_of_a_request_does_nothing(world: World) -> None:
    """Two envelopes deep: the inner one is no request that anybody reads as one."""
    inner = enveloped(new_topics("a"))
    assert await world.refused(enveloped(inner)) == errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION
    assert world.admin.seen == []


@pytest.mark.parametrize(
    "request_bytes", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", new_topics("a").SerializeToString()[:-1]]
)
async def test_a_request_that_does_not_parse_is_of_no_version_that_is_known_here(
    world: World, request_bytes: bytes
) -> None:
    envelope = controller_pb2.EnvelopeRequest(method=CREATE, request=request_bytes, caller=ALICE)
    assert await world.refused(envelope) == errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION


async def test_a_request_of_millions_of_items_is_refused_before_it_becomes_that_many_and_its_client_hears_why(
    world: World,
) -> None:
    """Two bytes each: an empty topic."""
    request = OLD_HEADER + b"\x12\x00" * (OBJECTS_MAX + 1)
    answer = await world.send(controller_pb2.EnvelopeRequest(method=CREATE, request=request, caller=ALICE))
    error = from_status(answer.status)
    assert error is not None
    assert error.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert "more than 10000 elements" in error.message
    assert world.admin.seen == []


async def test_a_version_that_there_is_not_is_refused(world: World) -> None:
    request = new_topics("a", header=types_pb2.RequestHeader(api_version=-1))
    assert await world.refused(enveloped(request)) == errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION


def _nameless(one: controller_pb2.OriginalCaller) -> None:
    one.principal_name = ""


def _group(one: controller_pb2.OriginalCaller) -> None:
    one.principal_type = "Group"


def _endless(one: controller_pb2.OriginalCaller) -> None:
    one.principal_name = "x" * 1_025


@pytest.mark.parametrize("forge", [_nameless, _group, _endless, controller_pb2.OriginalCaller.Clear])
async def test_a_principal_that_is_none_is_refused(
    world: World, forge: Callable[[controller_pb2.OriginalCaller], None]
) -> None:
    forged = controller_pb2.OriginalCaller()
    forged.CopyFrom(ALICE)
    forge(forged)
    code = await world.refused(enveloped(new_topics("a"), caller=forged))
    assert code == errors_pb2.ERROR_CODE_PRINCIPAL_DESERIALIZATION_FAILURE
    assert world.admin.seen == []


async def test_who_the_request_says_its_caller_is_counts_for_nothing(world: World) -> None:
    """A client may write what it likes into fields that nobody knows, and an envelope's caller is the envelope's."""
    forged = new_topics("a").SerializeToString() + controller_pb2.EnvelopeRequest(caller=ALICE).SerializeToString()
    bob = controller_pb2.OriginalCaller(principal_type="User", principal_name="bob")
    envelope = controller_pb2.EnvelopeRequest(method=CREATE, request=forged, caller=bob)
    code = None
    try:
        await world.send(envelope)
    except RegnumError as error:
        code = error.code
    assert code in {None, errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION}
    assert [who.principal.name for who, _, _ in world.admin.seen] in ([], ["bob"])


async def test_the_checks_come_in_kafkas_order(world: World) -> None:
    """Whoever is wrong in everything hears of the first thing alone; put right, of the next."""
    bad = controller_pb2.EnvelopeRequest(method="nonsense", request=b"\xff")
    mallory = Caller(principal=Principal("mallory"), listener=INTERNAL)
    world.role.leave()
    codes = [await world.refused(bad, sender=mallory), await world.refused(bad)]
    world.role.hold(world.world.controller)
    codes.append(await world.refused(bad))
    bad.method = CREATE
    codes.append(await world.refused(bad))
    bad.request = new_topics("a").SerializeToString()
    codes.append(await world.refused(bad))
    assert codes == [
        code_of(reason)
        for reason in (
            "CLUSTER_AUTHORIZATION_FAILED",
            "NOT_CONTROLLER",
            "INVALID_REQUEST",
            "UNSUPPORTED_VERSION",
            "PRINCIPAL_DESERIALIZATION_FAILURE",
        )
    ]


async def test_an_internal_topic_is_made_for_who_may_look_for_its_coordinator_and_paid_for_by_the_cluster(
    world: World,
) -> None:
    await world.world.set_quota(1.0, 1.0, QuotaEntity(user="alice"))
    broker = world.world.cluster.brokers[BrokerId(1)]
    request = controller_pb2.CreateOffsetsTopicRequest(
        broker_id=1, broker_epoch=broker.epoch, partitions=3, caller=ALICE, topic=TRANSACTIONS_TOPIC, key="payments"
    )
    context: Any = Call(20.0)
    with calling(BROKER):
        refused = await within(world.servicer.CreateOffsetsTopic(request, context))
        assert refused.error_code == errors_pb2.ERROR_CODE_TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert world.world.controller.picture.topic_named(TRANSACTIONS_TOPIC) is None
        ((who, operation, type, name),) = world.rights.asked
        assert (who.principal.name, operation, type, name) == (
            "alice",
            Operation.DESCRIBE,
            ResourceType.TRANSACTIONAL_ID,
            "payments",
        )
        world.rights.may.add("alice")
        lines = Lines()
        world.servicer = internal_servicer(world.role, admin=world.admin, authorizer=world.rights, audit=lines)
        created = await within(world.servicer.CreateOffsetsTopic(request, context))
        assert [(who.principal.name, item.resource) for who, _, item in lines.mutations] == [
            ("alice", f"topic:{TRANSACTIONS_TOPIC}")
        ]
        again = await within(world.servicer.CreateOffsetsTopic(request, context))
        assert again.error_code == errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS
        assert len(lines.mutations) == 1, "who finds it there has changed nothing"
        assert created.error_code == errors_pb2.ERROR_CODE_NONE, "its three partitions are more than alice's quota"
        assert world.world.controller.picture.topic_named(TRANSACTIONS_TOPIC) is not None
        request.topic = "orders"
        with pytest.raises(RegnumError) as unknown:
            await within(world.servicer.CreateOffsetsTopic(request, context))
    assert unknown.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
