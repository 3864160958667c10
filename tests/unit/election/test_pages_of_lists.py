"""Long lists come in pages: every entry on one of them, and no more of them in one answer than was asked for."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.admission.quota_messages import page_of_quotas
from regnum_election.candidacy.role import ControllerRole
from regnum_election.servicers.admin import AdminServicer
from regnum_model.configs import MIN_INSYNC_REPLICAS
from regnum_model.ids import PartitionKey
from regnum_model.quotas import DEFAULT, QuotaEntity
from regnum_service.errors import RegnumError
from regnum_service.page_tokens import page_token
from regnum_testing.moving import ask, created
from regnum_testing.reigning import FakeCluster
from regnum_testing.served import Caller

CONTEXT: Any = Caller()
NAMES = ("a", "b", "c", "d", "e")
T = TypeVar("T")
Page = Callable[[str], Awaitable[tuple[list[T], str]]]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3, 4)
    await cluster.reign()
    yield cluster
    await cluster.close()


async def pages(ask_for: Page[T]) -> list[list[T]]:
    found, token = [], ""
    while True:
        page, token = await ask_for(token)
        found.append(page)
        if not token:
            return found


async def admin_of(cluster: FakeCluster) -> tuple[AdminServicer, dict[str, PartitionKey]]:
    assert cluster.controller is not None
    role = ControllerRole()
    role.hold(cluster.controller)
    keys = {name: PartitionKey(await created(cluster.controller, name, (1, 2, 3)), 0) for name in NAMES}
    return AdminServicer(role), keys


async def test_settings_of_the_cluster_and_of_all_topics(cluster: FakeCluster) -> None:
    admin, _ = await admin_of(cluster)
    await admin.IncrementalAlterConfigs(
        admin_pb2.IncrementalAlterConfigsRequest(
            alterations=[
                admin_pb2.ConfigAlteration(
                    resource=admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name=name),
                    configs=[
                        admin_pb2.AlterableConfig(name=MIN_INSYNC_REPLICAS, op=admin_pb2.ALTER_CONFIG_OP_SET, value="1")
                    ],
                )
                for name in reversed(NAMES)
            ]
        ),
        CONTEXT,
    )

    def of(size: int) -> Page[str]:
        async def ask_for(token: str) -> tuple[list[str], str]:
            request = admin_pb2.DescribeConfigsRequest(page_size=size, page_token=token)
            answer = admin_pb2.DescribeConfigsResponse.FromString(await admin.DescribeConfigs(request, CONTEXT))
            return [one.resource.name for one in answer.results], answer.next_page_token

        return ask_for

    assert await pages(of(0)) == [["", *NAMES]]
    assert await pages(of(4)) == [["", "a", "b", "c"], ["d", "e"]]
    assert await pages(of(1)) == [[""], *([name] for name in NAMES)]
    assert await pages(of(6)) == [["", *NAMES]]


async def test_partitions_without_a_leader(cluster: FakeCluster) -> None:
    admin, keys = await admin_of(cluster)
    assert cluster.controller is not None
    context = cluster.controller._context
    context.picture = context.picture.with_trouble(dict.fromkeys(keys.values(), "gone, for this test alone"))

    async def ask_for(token: str) -> tuple[list[str], str]:
        request = admin_pb2.ListOfflinePartitionsRequest(topics=("a", "c", "e"), page_size=2, page_token=token)
        answer = await admin.ListOfflinePartitions(request, CONTEXT)
        assert answer.total == 3
        return [one.topic for one in answer.partitions], answer.next_page_token

    assert await pages(ask_for) == [["a", "c"], ["e"]]


async def test_open_reassignments(cluster: FakeCluster) -> None:
    admin, _ = await admin_of(cluster)
    assert cluster.controller is not None
    for name in NAMES:
        assert await ask(cluster.controller, name, {0: (2, 3, 4)}) == [None]

    async def ask_for(token: str) -> tuple[list[str], str]:
        request = admin_pb2.ListPartitionReassignmentsRequest(page_size=2, page_token=token)
        answer = await admin.ListPartitionReassignments(request, CONTEXT)
        assert answer.total == len(NAMES)
        return [one.topic for one in answer.reassignments], answer.next_page_token

    assert await pages(ask_for) == [["a", "b"], ["c", "d"], ["e"]]


async def test_quotas() -> None:
    entities = [QuotaEntity(), *(QuotaEntity(user=name) for name in NAMES), QuotaEntity(user=DEFAULT, client_id="x")]
    quotas = [(entity, {"controller_mutation_rate": 1.0}) for entity in entities]

    async def ask_for(token: str) -> tuple[list[QuotaEntity], str]:
        page, following = await page_of_quotas(quotas, token=token, size=3)
        return [entity for entity, _ in page], following

    found = await pages(ask_for)
    assert [len(page) for page in found] == [3, 3, 1]
    assert sorted(map(str, (entity for page in found for entity in page))) == sorted(map(str, entities))


@pytest.mark.parametrize(("token", "size"), [("never given", 0), (page_token((1, 2, 3)), 0), ("", -1)])
async def test_a_page_that_nobody_named_is_refused(cluster: FakeCluster, token: str, size: int) -> None:
    admin, _ = await admin_of(cluster)
    for kind, call in (
        (admin_pb2.DescribeConfigsRequest, admin.DescribeConfigs),
        (admin_pb2.ListOfflinePartitionsRequest, admin.ListOfflinePartitions),
        (admin_pb2.ListPartitionReassignmentsRequest, admin.ListPartitionReassignments),
    ):
        with pytest.raises(RegnumError) as refused:
            await call(kind(page_token=token, page_size=size), CONTEXT)
        assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    with pytest.raises(RegnumError) as refused:
        await page_of_quotas([], token=token, size=size)
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
