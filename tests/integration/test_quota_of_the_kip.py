"""KIP-599's own example, and clients that ignore what they are told, through real processes."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import grpc
import pytest
import pytest_asyncio
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_client import CLUSTER_CONFIG, Admin, ConfigAlteration, QuotaEntity
from regnum_local.cluster import LocalCluster
from regnum_model.configs import QUOTA_WINDOW_NUM
from regnum_model.quotas import BURST_KEY, RATE_KEY
from regnum_service.channel import open_channel
from regnum_testing.waiting import DEADLINE_S, eventually, within

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

THROTTLED = errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster") / "data"
    async with LocalCluster(folder, brokers=1, elections=1, metadata=1, quotas=1) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def admin(cluster: LocalCluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.bootstrap, client_id="operator") as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def connection(admin: Admin) -> AsyncIterator[grpc.aio.Channel]:
    """A connection to the controller of its own."""
    view = await admin.describe_cluster()
    assert view.controller is not None
    channel = open_channel(view.controller.address)
    yield channel
    await channel.close()


def creation(names: Sequence[tuple[str, int]], *, client_id: str, version: int = 0) -> admin_pb2.CreateTopicsRequest:
    return admin_pb2.CreateTopicsRequest(
        header=RequestHeader(client_id=client_id, api_version=version),
        topics=[admin_pb2.NewTopic(name=name, partitions=count, replication_factor=1) for name, count in names],
    )


# Its arithmetic is held by the bucket's unit tests, too; here the seconds go by.
@pytest.mark.full
async def test_560_mutations_at_5_a_second_with_a_burst_of_500_make_wait_12_s(
    admin: Admin, connection: grpc.aio.Channel
) -> None:
    """100 windows of 1 s make the burst. The connection is held for that time, and then the next one is admitted."""
    await admin.alter_configs([ConfigAlteration(resource=CLUSTER_CONFIG, set={QUOTA_WINDOW_NUM: "100"})])
    await admin.alter_client_quota(QuotaEntity(client_id="kip"), set={RATE_KEY: 5.0})

    async def limited() -> bool:
        # An empty call draws on nothing; what it shows is the burst in force.
        await stub.CreateTopics(creation([("probe", 1)], client_id="kip"), timeout=DEADLINE_S)
        found = [one for one in (await admin.describe_quota_usage()).usages if one.client_id == "kip"]
        return bool(found) and found[0].limit_burst == 500.0

    stub = admin_pb2_grpc.AdminServiceStub(connection)
    await eventually(limited, what="the windows are in force")
    # The probe took one, and 5 a second flow in.
    await eventually(lambda: full(admin), what="the bucket is full")
    topics = [*((f"small-{number:02d}", 10) for number in range(49)), ("large", 70), ("refused", 1)]
    begun_s = time.monotonic()
    answer = await within(stub.CreateTopics(creation(topics, client_id="kip"), timeout=DEADLINE_S))
    answered_s = time.monotonic()
    assert [one.error_code for one in answer.results] == [0] * 50 + [THROTTLED]
    # Less what was waited for while they were created.
    assert 12_000 - (answered_s - begun_s) * 1000 - 10 <= answer.throttle_time_ms <= 12_000
    again = await within(stub.CreateTopics(creation([("refused", 1)], client_id="kip"), timeout=DEADLINE_S))
    assert time.monotonic() - begun_s >= 12.0 - 0.05
    assert [one.error_code for one in again.results] == [0]
    assert time.monotonic() - answered_s >= answer.throttle_time_ms / 1000 - 0.05


async def full(admin: Admin) -> bool:
    (one,) = [one for one in (await admin.describe_quota_usage()).usages if one.client_id == "kip"]
    return one.tokens == 500.0


@pytest.mark.parametrize(
    "version", [6, pytest.param(5, marks=pytest.mark.full)], ids=["may be refused", "knows no refusal"]
)
async def test_a_client_that_ignores_throttle_times_creates_no_more_than_the_quota_allows(
    admin: Admin, connection: grpc.aio.Channel, version: int
) -> None:
    rate, burst, seconds, client = 5.0, 10.0, 3.0, f"ignores-{version}"
    await admin.alter_client_quota(QuotaEntity(client_id=client), set={RATE_KEY: rate, BURST_KEY: burst})
    stub = admin_pb2_grpc.AdminServiceStub(connection)
    number = 0
    begun_s = time.monotonic()

    async def ignoring() -> None:
        nonlocal number
        while time.monotonic() < begun_s + seconds:
            number += 1
            await stub.CreateTopics(creation([(f"{client}-{number}", 1)], client_id=client, version=version))

    await within(asyncio.gather(*(ignoring() for _ in range(20))))
    taken_s = time.monotonic() - begun_s
    created = sum(topic.name.startswith(f"{client}-") for topic in await admin.list_topics())
    assert rate * seconds <= created <= rate * taken_s + burst + 1
