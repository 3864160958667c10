"""AdminService and quotas: request versions, throttle times and the answers of those who are not the controller."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_client.admin.quotas import QuotaAlteration, alteration_to_wire
from regnum_election.candidacy.role import ControllerRole
from regnum_election.servicers.admin import AdminServicer
from regnum_election.servicers.callers import CLIENT_ID_LENGTH_MAX
from regnum_election.settings import ElectionSettings
from regnum_model.bucket import Limit
from regnum_model.quota_matching import CLUSTER_KEY
from regnum_model.quotas import BURST_KEY, RATE_KEY, QuotaEntity
from regnum_service.errors import RegnumError
from regnum_testing.fake_quota_process import FakeQuotaProcess
from regnum_testing.quota_world import QuotaWorld

THROTTLED = errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED


class Call:
    """What a servicer asks of its context."""

    def time_remaining(self) -> float | None:
        return 20.0


CONTEXT: Any = Call()


@pytest.fixture
async def world() -> AsyncIterator[QuotaWorld]:
    world = QuotaWorld()
    await world.begin()
    yield world
    await world.close()


def servicer(world: QuotaWorld) -> AdminServicer:
    role = ControllerRole()
    role.hold(world.controller)
    return AdminServicer(role)


def header(version: int, client_id: str = "app") -> types_pb2.RequestHeader:
    return types_pb2.RequestHeader(api_version=version, client_id=client_id)


def topics(*names: str) -> list[admin_pb2.NewTopic]:
    return [admin_pb2.NewTopic(name=name, partitions=30, replication_factor=1) for name in names]


async def begun(world: QuotaWorld) -> FakeQuotaProcess:
    process = await world.start_process()
    await world.set_quota(2.0, 20.0)
    return process


@pytest.mark.parametrize(
    ("version", "codes", "throttle_ms"), [(0, [0, THROTTLED], 5_000), (6, [0, THROTTLED], 5_000), (5, [0, 0], 20_000)]
)
async def test_creations_are_refused_from_version_6_on(
    world: QuotaWorld, version: int, codes: list[int], throttle_ms: int
) -> None:
    """Two topics of 30 partitions at 2/s with a burst of 20."""
    process = await begun(world)
    answer = await servicer(world).CreateTopics(
        admin_pb2.CreateTopicsRequest(header=header(version), topics=topics("a", "b")), CONTEXT
    )
    assert [result.error_code for result in answer.results] == codes
    assert answer.throttle_time_ms == throttle_ms
    entity = process.requests[0].admissions[0].entity
    assert (entity.user, entity.client_id) == ("ANONYMOUS", "app")


@pytest.mark.parametrize(
    ("version", "codes", "throttle_ms"), [(0, [0, THROTTLED], 5_000), (5, [0, THROTTLED], 5_000), (4, [0, 0], 20_000)]
)
async def test_deletions_are_refused_from_version_5_on(
    world: QuotaWorld, version: int, codes: list[int], throttle_ms: int
) -> None:
    admin = servicer(world)
    await admin.CreateTopics(admin_pb2.CreateTopicsRequest(topics=topics("a", "b")), CONTEXT)
    await begun(world)
    answer = await admin.DeleteTopics(
        admin_pb2.DeleteTopicsRequest(
            header=header(version),
            topics=[admin_pb2.DeletableTopic(name="a"), admin_pb2.DeletableTopic(name="b")],
        ),
        CONTEXT,
    )
    assert [result.error_code for result in answer.results] == codes
    assert answer.throttle_time_ms == throttle_ms


async def test_a_long_client_id_is_no_reason_to_stop_the_quota_process(world: QuotaWorld) -> None:
    process = await begun(world)
    await servicer(world).CreateTopics(
        admin_pb2.CreateTopicsRequest(header=header(0, "x" * 100_000), topics=topics("a")), CONTEXT
    )
    assert process.requests[0].admissions[0].entity.client_id == "x" * CLIENT_ID_LENGTH_MAX
    assert process.tokens(CLUSTER_KEY) == -10


async def test_only_an_entity_that_is_given_and_empty_is_the_whole_cluster(world: QuotaWorld) -> None:
    admin = servicer(world)
    rate = admin_pb2.QuotaOperation(key=RATE_KEY, value=5.0)
    answer = await admin.AlterClientQuotas(
        admin_pb2.AlterClientQuotasRequest(alterations=[admin_pb2.QuotaAlteration(operations=[rate])]), CONTEXT
    )
    assert answer.results[0].error_code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert "no entity is given" in answer.results[0].error_message
    whole = admin_pb2.QuotaAlteration(entity=admin_pb2.QuotaEntity(), operations=[rate])
    answer = await admin.AlterClientQuotas(admin_pb2.AlterClientQuotasRequest(alterations=[whole]), CONTEXT)
    assert answer.results[0].error_code == errors_pb2.ERROR_CODE_NONE
    sent = alteration_to_wire(QuotaAlteration(entity=QuotaEntity(), set={RATE_KEY: 5.0}))
    assert sent.HasField("entity"), "as the SDK says it"


async def test_quotas_are_set_and_shown(world: QuotaWorld) -> None:
    admin = servicer(world)
    user = admin_pb2.QuotaEntity(user=admin_pb2.QuotaSubject(name="ann"))
    everyone = admin_pb2.QuotaEntity(user=admin_pb2.QuotaSubject(default_for_all=True))
    rate = admin_pb2.QuotaOperation(key=RATE_KEY, value=5.0)
    answer = await admin.AlterClientQuotas(
        admin_pb2.AlterClientQuotasRequest(
            alterations=[
                admin_pb2.QuotaAlteration(entity=user, operations=[rate]),
                admin_pb2.QuotaAlteration(
                    entity=everyone, operations=[rate, admin_pb2.QuotaOperation(key=BURST_KEY, value=9.5)]
                ),
                admin_pb2.QuotaAlteration(entity=user),
            ]
        ),
        CONTEXT,
    )
    # An entity that stands twice is changed by neither.
    invalid = errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert [result.error_code for result in answer.results] == [invalid, 0, invalid]
    assert [result.entity for result in answer.results] == [user, everyone, user]
    assert "twice" in answer.results[0].error_message
    await admin.AlterClientQuotas(
        admin_pb2.AlterClientQuotasRequest(alterations=[admin_pb2.QuotaAlteration(entity=user, operations=[rate])]),
        CONTEXT,
    )
    shown = await admin.DescribeClientQuotas(admin_pb2.DescribeClientQuotasRequest(), CONTEXT)
    assert [(quota.entity, dict(quota.values)) for quota in shown.quotas] == [
        (everyone, {RATE_KEY: 5.0, BURST_KEY: 9.5}),
        (user, {RATE_KEY: 5.0}),
    ]
    one = await admin.DescribeClientQuotas(admin_pb2.DescribeClientQuotasRequest(entity=user), CONTEXT)
    assert [quota.entity for quota in one.quotas] == [user]
    # Present and empty: the cluster.
    none = await admin.DescribeClientQuotas(
        admin_pb2.DescribeClientQuotasRequest(entity=admin_pb2.QuotaEntity()), CONTEXT
    )
    assert len(none.quotas) == 0


async def test_a_question_about_nobody_is_refused(world: QuotaWorld) -> None:
    nobody = admin_pb2.QuotaEntity(user=admin_pb2.QuotaSubject())
    with pytest.raises(RegnumError) as raised:
        await servicer(world).DescribeClientQuotas(admin_pb2.DescribeClientQuotasRequest(entity=nobody), CONTEXT)
    assert raised.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def test_only_the_controller_answers() -> None:
    admin = AdminServicer(ControllerRole())
    for call in (
        admin.AlterClientQuotas(admin_pb2.AlterClientQuotasRequest(), CONTEXT),
        admin.DescribeClientQuotas(admin_pb2.DescribeClientQuotasRequest(), CONTEXT),
    ):
        with pytest.raises(RegnumError) as raised:
            await call
        assert raised.value.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, None),
        ({"quota_stand_in_rate": 2.0}, Limit(rate=2.0, burst=22.0)),
        ({"quota_stand_in_rate": 2.0, "quota_stand_in_burst": 5.0}, Limit(rate=2.0, burst=5.0)),
    ],
)
def test_the_stand_in_has_settings(given: dict[str, Any], limit: Limit | None) -> None:
    assert ElectionSettings.model_construct(**given).quota_stand_in == limit
