"""The protocol between processes is raised over nobody, and who does not speak it takes no part."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Store
from regnum_election.candidacy.role import ControllerRole
from regnum_election.controller import Controller
from regnum_election.servicers.admin import AdminServicer
from regnum_model import paths
from regnum_model.configs import CLUSTER, INTER_BROKER_PROTOCOL, decode_config, encode_config
from regnum_model.features import PATH, Features
from regnum_model.ids import BrokerId, ElectionId, PartitionKey
from regnum_model.nodes import Address, ElectionNode
from regnum_model.protocols import KNOWN, ProtocolRange, ReleaseInfo
from regnum_model.quotas import QuotaProcessNode, quota_id_path
from regnum_testing.reigning import FakeCluster
from regnum_testing.succession_stage import Stage, assigned, create
from regnum_testing.waiting import until

OLD = ReleaseInfo(release="0.0.9", protocols=ProtocolRange(low=1, high=1))
NEW = ReleaseInfo(release="0.2.0", protocols=ProtocolRange(low=1, high=2))


class Call:
    """What a servicer asks of its context."""

    def time_remaining(self) -> float | None:
        return 20.0


CONTEXT: Any = Call()


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin()
    yield cluster
    await cluster.close()


def servicer(controller: Controller) -> AdminServicer:
    role = ControllerRole()
    role.hold(controller)
    return AdminServicer(role)


async def raise_protocol(controller: Controller, *, value: str | None = "2", validate_only: bool = False) -> Any:
    request = admin_pb2.IncrementalAlterConfigsRequest(
        alterations=[
            admin_pb2.ConfigAlteration(
                resource=admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_BROKER),
                configs=[
                    admin_pb2.AlterableConfig(
                        name=INTER_BROKER_PROTOCOL,
                        op=admin_pb2.ALTER_CONFIG_OP_SET if value else admin_pb2.ALTER_CONFIG_OP_DELETE,
                        value=value or "",
                    )
                ],
            )
        ],
        validate_only=validate_only,
    )
    (result,) = (await servicer(controller).IncrementalAlterConfigs(request, CONTEXT)).results
    return result


async def said(store: Store) -> tuple[str | None, int]:
    """What the settings say, and what is final."""
    config = decode_config((await store.get(CLUSTER)).data, example="")
    return config.get(INTER_BROKER_PROTOCOL), Features.decode((await store.get(PATH)).data).inter_broker_protocol


@pytest.mark.parametrize("value", ["2", None])
@pytest.mark.parametrize("validate_only", [True, False])
async def test_raising_is_refused_and_changes_nothing_while_a_broker_does_not_speak_it(
    cluster: FakeCluster, value: str | None, validate_only: bool
) -> None:
    await cluster.register(1, build=OLD)
    await cluster.register(2, build=NEW)
    controller = await cluster.reign(protocol=1)
    result = await raise_protocol(controller, value=value, validate_only=validate_only)
    assert result.error_code == errors_pb2.ERROR_CODE_INVALID_CONFIG
    assert "broker 1 (0.0.9, speaks 1)" in result.error_message
    assert "broker 2" not in result.error_message
    assert await said(cluster.outside) == ("1", 1)
    assert controller.picture.settings.inter_broker_protocol == 1


async def test_it_is_raised_once_the_last_old_process_is_gone(cluster: FakeCluster) -> None:
    await cluster.register(1, build=OLD)
    controller = await cluster.reign(protocol=1)
    assert (await raise_protocol(controller)).error_code == errors_pb2.ERROR_CODE_INVALID_CONFIG
    await cluster.register(1, build=NEW)
    assert (await raise_protocol(controller)).error_code == errors_pb2.ERROR_CODE_NONE
    assert await said(cluster.outside) == ("2", 2)


async def test_a_broker_that_registers_while_the_protocol_is_raised_is_left_out_at_once(cluster: FakeCluster) -> None:
    """It looked at what is in force before that, and came after everybody had been looked at."""
    for id in (2, 3):
        await cluster.register(id, build=NEW)
    controller = await cluster.reign(protocol=1)
    late = await cluster.register(1, build=OLD)
    await until(lambda: BrokerId(1) in controller.picture.brokers)
    (a,) = await create(controller, assigned("a", (1, 2, 3)))
    known = controller.picture.settings
    raised = replace(known, cluster={**known.cluster, INTER_BROKER_PROTOCOL: 2})
    async for _ in controller._config_book.apply(raised):
        pass
    await until(lambda: BrokerId(1) not in controller.picture.brokers)
    await until(lambda: cluster.all_told((2, 3), PartitionKey(a, 0), leader=2))
    state = await cluster.state("a", 0)
    assert (state.leader, state.isr) == (2, (2, 3))
    # It is not fenced: it would only register again.
    assert (await cluster.outside.get(paths.broker_id(BrokerId(1)))).stat.creation_id == late.epoch


async def test_what_a_later_release_made_final_in_a_form_of_its_own_is_not_written_over() -> None:
    """The node says itself that nobody may: a protocol that was raised would be lowered by that."""
    later = b'{"version":2,"features":{"inter.broker.protocol.version":9}}'
    cluster = FakeCluster()
    await cluster.begin(1)
    await cluster.outside.create(PATH, later)
    controller = await cluster.reign()
    assert controller.picture.settings.inter_broker_protocol == KNOWN.high
    assert (await cluster.outside.get(PATH)).data == later
    await cluster.close()


async def test_other_roles_stand_in_the_way_too_and_so_does_what_cannot_be_read(cluster: FakeCluster) -> None:
    here = Address(host="127.0.0.1", port=9)
    election = ElectionNode(incarnation="x", listeners={"client": here, "internal": here, "lifeline": here}, build=OLD)
    await cluster.outside.create(paths.election_id(ElectionId(7)), election.encode(), make_parents=True)
    quota = QuotaProcessNode(id=4, incarnation="x", internal=here, build=OLD)
    await cluster.outside.create(quota_id_path(4), quota.encode(), make_parents=True)
    await cluster.outside.create(f"{paths.METADATA_IDS}/9", b'{"version":2}')
    await cluster.outside.create(f"{paths.METADATA_IDS}/99999999999", b"no id")
    await cluster.outside.create(f"{paths.METADATA_IDS}/007", b"no id")
    controller = await cluster.reign(protocol=1)
    message = (await raise_protocol(controller)).error_message
    assert "election 7 (0.0.9, speaks 1)" in message
    assert "quota 4 (0.0.9, speaks 1)" in message
    assert "metadata 9 (its registration cannot be read" in message
    assert "9999" not in message
    assert "metadata 7" not in message
    assert await said(cluster.outside) == ("1", 1)


async def test_what_a_hand_raised_over_an_old_broker_is_taken_back_with_an_event(cluster: FakeCluster) -> None:
    await cluster.register(1, build=OLD)
    await cluster.reign(protocol=1)
    await cluster.end_reign()
    node = await cluster.outside.get(CLUSTER)
    config = {**decode_config(node.data, example=""), INTER_BROKER_PROTOCOL: "2"}
    await cluster.outside.set(CLUSTER, encode_config(config), version=node.stat.version)
    controller = await cluster.reign(2, protocol=1)
    assert await said(cluster.outside) == ("1", 1)
    assert controller.picture.settings.inter_broker_protocol == 1
    assert any("taken back" in str(entry) and "0.0.9" in str(entry) for entry in cluster.recorded)


async def test_a_broker_that_does_not_speak_what_is_in_force_takes_no_part_and_status_says_why(
    cluster: FakeCluster,
) -> None:
    await cluster.register(1, build=OLD)
    await cluster.register(2, build=NEW)
    await cluster.register(3)
    controller = await cluster.reign(protocol=2)
    assert sorted(controller.picture.brokers) == [2, 3]
    await cluster.register(4, build=OLD)
    await cluster.register(5, build=NEW)
    await until(lambda: BrokerId(5) in controller.picture.brokers)
    assert sorted(controller.picture.brokers) == [2, 3, 5]
    health = await servicer(controller).DescribeHealth(admin_pb2.DescribeHealthRequest(), CONTEXT)
    shown = {(one.role, one.id): one for one in health.releases}
    assert "start a release that speaks 2" in shown["broker", 1].refused
    assert "start a release that speaks 2" in shown["broker", 4].refused
    assert not shown["broker", 2].refused
    assert (shown["broker", 3].release, shown["broker", 3].protocol_max) == ("", 2)
    assert (health.inter_broker_protocol, health.inter_broker_protocol_max) == (2, 1)
    assert controller.health.refused == 2
    for id in (1, 4):
        cluster.kill(id)
    await until(lambda: controller.health.refused == 0)


async def test_a_refused_broker_comes_back_as_soon_as_it_is_of_another_release(cluster: FakeCluster) -> None:
    await cluster.register(1, build=OLD)
    controller = await cluster.reign(protocol=2)
    assert not controller.picture.brokers
    await cluster.register(1, build=NEW)
    await until(lambda: BrokerId(1) in controller.picture.brokers)
    health = await servicer(controller).DescribeHealth(admin_pb2.DescribeHealthRequest(), CONTEXT)
    assert [one.refused for one in health.releases if one.role == "broker"] == [""]


async def test_a_standby_that_takes_over_judges_brokers_by_what_is_in_force_and_by_no_default() -> None:
    stage = Stage()
    try:
        await stage.begin(2, 3)
        await stage.cluster.register(1, build=OLD)
        controller = await stage.cluster.reign(protocol=1)
        assert sorted(controller.picture.brokers) == [1, 2, 3]
        await create(controller, assigned("t", (1, 2, 3)))
        await stage.follow()
        await stage.cluster.end_reign()
        successor = await stage.succeed()
        assert sorted(successor.picture.brokers) == [1, 2, 3], "below 2 it speaks what the others do"
        await stage.cluster.end_reign()
    finally:
        await stage.close()


async def test_a_standby_that_takes_over_leaves_out_who_does_not_speak_what_is_in_force() -> None:
    stage = Stage()
    try:
        await stage.begin(1, 2, 3)
        controller = await stage.cluster.reign(protocol=2)
        await create(controller, assigned("t", (1, 2, 3)))
        await stage.follow()
        await stage.cluster.end_reign()
        await stage.cluster.register(1, build=OLD)
        successor = await stage.succeed()
        assert sorted(successor.picture.brokers) == [2, 3]
        await until(lambda: stage.cluster.all_told((2, 3), PartitionKey(successor.picture.names["t"], 0), 2))
        await stage.cluster.end_reign()
    finally:
        await stage.close()


async def test_status_says_that_the_protocol_may_be_raised(cluster: FakeCluster) -> None:
    await cluster.register(1, build=NEW)
    controller = await cluster.reign(protocol=1)
    health = await servicer(controller).DescribeHealth(admin_pb2.DescribeHealthRequest(), CONTEXT)
    assert (health.inter_broker_protocol, health.inter_broker_protocol_max) == (1, 2)


async def test_health_is_told_without_the_store_and_without_releases(cluster: FakeCluster) -> None:
    await cluster.register(1, build=NEW)
    controller = await cluster.reign()
    assert cluster.controller_store is not None
    cluster.server.expire(cluster.controller_store.session_id)
    health = await servicer(controller).DescribeHealth(admin_pb2.DescribeHealthRequest(), CONTEXT)
    assert len(health.brokers) == 1
    assert not health.releases
    assert health.inter_broker_protocol_max == 0
