"""A controller that dies after it did what a broker passed on, and before it said so: done once, and answered.

The broker's forwarder, real listeners, and two reigns over one store. Between the two another client changes the same
thing where that is possible: a repeat that was carried out again would undo it.
"""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from regnum.admin.v1 import admin_pb2
from regnum.election.v1 import controller_pb2
from regnum_broker.cluster.controller import ControllerLocation
from regnum_broker.forwarding.forwarder import Forwarder, PassedOn
from regnum_broker.servicers.admin import AdminCall
from regnum_election.auditing.servicer import AuditedServicer
from regnum_election.candidacy.role import ControllerRole
from regnum_election.servicers.admin import AdminServicer
from regnum_model.configs import topic_config
from regnum_model.principals import Principal
from regnum_service.access.audit import Mutated
from regnum_service.access.identity import Caller as Who
from regnum_service.channel import Channels
from regnum_service.clock import SystemClock
from regnum_testing.fake_controller import FakeController
from regnum_testing.internal_calls import internal_servicer
from regnum_testing.old_calls import (
    DONE,
    METHODS,
    SAMPLES,
    newest_old,
    of_version,
    outcomes,
    path_of,
    prepared,
    set_to,
)
from regnum_testing.reigning import FakeCluster
from regnum_testing.served import Caller
from regnum_testing.waiting import eventually, within

ALICE = controller_pb2.OriginalCaller(principal_type="User", principal_name="alice", client_host="10.9.8.7")
OTHER = "123456"


class Lines:
    """The lines of an audit log."""

    def __init__(self) -> None:
        self.mutations: list[tuple[Who, str, Mutated]] = []

    def mutated(self, who: Who, call: str, items: tuple[Mutated, ...], *, client_id: str = "") -> None:
        self.mutations += [(who, call, item) for item in items]

    def denied(self, *_what: object, **_how: object) -> None:
        raise AssertionError("nobody is refused here")


class World:
    """Brokers that do what they are told, reigns one after another, and a broker that passes calls on."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.location: ControllerLocation | None = None
        self.audit = Lines()
        self.channels = Channels()
        self.forwarder = Forwarder(locate=lambda: self.location, channels=self.channels, clock=SystemClock())
        self.listeners: list[FakeController] = []

    async def reign(self, id: int) -> FakeController:
        """Somebody reigns, behind a listener of its own; brokers see where."""
        role = ControllerRole()
        role.hold(await self.cluster.reign(id, default_factor=1, min_insync=1))
        self.admin = AdminServicer(role)
        audited: AdminServicer = AuditedServicer(self.admin, self.audit)  # type: ignore[assignment]
        internal = internal_servicer(role, admin=audited)

        async def answer(envelope: controller_pb2.EnvelopeRequest) -> controller_pb2.EnvelopeResponse:
            return await internal.Envelope(envelope, Caller(20.0))  # type: ignore[arg-type]

        listener = FakeController(id, answer)
        self.listeners.append(listener)
        self.location = await listener.start()
        self.forwarder.moved()
        return listener

    async def close(self) -> None:
        await self.channels.close()
        for listener in self.listeners:
            await listener.stop()
        await self.cluster.close()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.cluster.begin(1, 2, 3)
    yield made
    await made.close()


REPEATED = sorted(name for name in SAMPLES if AdminCall.of(METHODS[name]).repeatable)
"""All of them."""


def test_every_change_may_be_repeated() -> None:
    assert set(REPEATED) == set(SAMPLES)


@pytest.mark.parametrize("name", REPEATED)
async def test_what_was_done_is_not_done_again_and_its_client_hears_of_it(world: World, name: str) -> None:
    first = await world.reign(1)
    await world.admin.CreateTopics(prepared("x"), Caller(20.0))  # type: ignore[arg-type]
    carry_out, done, never = first.answer, asyncio.Event(), asyncio.Event()

    async def do_it_and_say_nothing(envelope: controller_pb2.EnvelopeRequest) -> controller_pb2.EnvelopeResponse:
        answer = await carry_out(envelope)
        assert outcomes(name, answer.response) == DONE
        done.set()
        await never.wait()
        raise AssertionError("the process is gone")

    first.answer = do_it_and_say_nothing
    request = of_version(name, SAMPLES[name]("x"), newest_old(name)).SerializeToString()
    call = PassedOn(method=path_of(name), request=request, caller=ALICE, mutation_id="minted", repeatable=True)
    waiting = asyncio.create_task(world.forwarder.forward(call, connection="c", wait_s=30.0))
    await within(done.wait())
    await somebody_else_changes_the_same(world, name)
    before = await nodes_about(world, "x")
    await world.cluster.end_reign()
    await first.stop()
    second = await world.reign(2)
    answer = await within(waiting)
    assert outcomes(name, answer.response) == DONE
    assert [envelope.mutation_id for envelope in second.received][-1] == "minted"
    assert await nodes_about(world, "x") == before, "the repeat changed nothing"
    mine = [who for who, called, _ in world.audit.mutations if called == f"AdminService/{name}"]
    assert {who.principal for who in mine} == {Principal("alice")}
    assert {who.host for who in mine} == {"10.9.8.7"}


async def somebody_else_changes_the_same(world: World, name: str) -> None:
    topic = {"AlterConfigs": "replaced-x", "IncrementalAlterConfigs": "altered-x"}.get(name)
    if topic is not None:
        changed = await world.admin.IncrementalAlterConfigs(set_to(topic, OTHER), Caller(20.0))  # type: ignore[arg-type]
        assert changed.results[0].error_code == 0
        assert OTHER.encode() in (await world.cluster.outside.get(topic_config(topic))).data
    if name == "AlterClientQuotas":
        request = admin_pb2.AlterClientQuotasRequest()
        request.CopyFrom(SAMPLES[name]("x"))  # type: ignore[arg-type]
        request.alterations[0].operations[0].value = float(OTHER)
        answered = await world.admin.AlterClientQuotas(request, Caller(20.0))  # type: ignore[arg-type]
        assert answered.results[0].error_code == 0


async def nodes_about(world: World, tag: str) -> dict[str, tuple[bytes, int]]:
    """What the store holds of the samples' things, with versions; leaders aside, whom every reign may elect anew."""
    tree = world.cluster.server.reading(current=True)
    found: dict[str, tuple[bytes, int]] = {}
    folders = ["/brokers/topics", "/config", "/admin/delete_topics"]
    while folders:
        path = folders.pop()
        node, children = tree.get(path), tree.children(path)
        if node is not None and f"-{tag}" in path and not path.endswith("leaderAndISR"):
            found[path] = (node.data, node.stat.version)
        if children is not None:
            folders += [f"{path}/{child}" for child in children.names]
    return found


async def test_a_deletion_whose_answer_was_lost_is_answered_and_deletes_no_later_topic_of_the_name(
    world: World,
) -> None:
    first = await world.reign(1)
    await world.admin.CreateTopics(prepared("x"), Caller(20.0))  # type: ignore[arg-type]
    carry_out, done, never = first.answer, asyncio.Event(), asyncio.Event()

    async def do_it_and_say_nothing(envelope: controller_pb2.EnvelopeRequest) -> controller_pb2.EnvelopeResponse:
        await carry_out(envelope)
        done.set()
        await never.wait()
        raise AssertionError("the process is gone")

    first.answer = do_it_and_say_nothing
    request = of_version("DeleteTopics", SAMPLES["DeleteTopics"]("x"), 4).SerializeToString()
    deletes = AdminCall.of(METHODS["DeleteTopics"])
    call = PassedOn(method=deletes.path, request=request, caller=ALICE, mutation_id="m", repeatable=deletes.repeatable)
    waiting = asyncio.create_task(world.forwarder.forward(call, connection="c", wait_s=30.0))
    await within(done.wait())
    again = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name="doomed-x", partitions=1)])
    assert (await world.admin.CreateTopics(again, Caller(20.0))).results[0].error_code == 0  # type: ignore[arg-type]

    async def confirmed() -> bool:
        return not (await world.cluster.outside.children("/admin/delete_topics")).names

    await eventually(confirmed, what="the record went with the last replica")
    await world.cluster.end_reign()
    await first.stop()
    second = await world.reign(2)
    answer = await within(waiting)
    assert outcomes("DeleteTopics", answer.response) == DONE
    assert len(second.received) == 1
    assert world.cluster.controller is not None
    assert world.cluster.controller.picture.topic_named("doomed-x") is not None


async def test_a_controller_that_dies_before_it_did_anything_leaves_it_to_the_next(world: World) -> None:
    first = await world.reign(1)
    never = asyncio.Event()

    async def freeze(_: controller_pb2.EnvelopeRequest) -> controller_pb2.EnvelopeResponse:
        await never.wait()
        raise grpc.RpcError

    first.answer = freeze
    request = of_version("CreateTopics", SAMPLES["CreateTopics"]("y"), 5).SerializeToString()
    call = PassedOn(method=path_of("CreateTopics"), request=request, caller=ALICE, mutation_id="m", repeatable=True)
    waiting = asyncio.create_task(world.forwarder.forward(call, connection="c", wait_s=30.0))

    async def asked() -> bool:
        return bool(first.received)

    await eventually(asked, what="the first was asked")
    await world.cluster.end_reign()
    await first.stop()
    await world.reign(2)
    assert outcomes("CreateTopics", (await within(waiting)).response) == DONE
    assert world.cluster.controller is not None
    assert world.cluster.controller.picture.topic_named("made-y") is not None
