"""Changes of topics against a quota, on a real cluster with two quota processes: what is admitted, what is nowhere."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc
from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.quota.v1 import quota_pb2, quota_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_client import Admin, CreatedTopic, NewTopic, QuotaEntity, ThrottlingQuotaExceededError
from regnum_coordination.errors import NoNode
from regnum_coordination.opening import open_store
from regnum_coordination.port import Store
from regnum_local.cluster import LocalCluster
from regnum_local.demo.burst import CLIENT_ID, Burst, BurstPlan
from regnum_local.demo.report import Narrator
from regnum_local.plan import Role
from regnum_model.nodes import Address
from regnum_model.quotas import BURST_KEY, QUOTA_ACTIVE, RATE_KEY, QuotaProcessNode
from regnum_service.channel import open_channel
from regnum_service.clock import SystemClock
from regnum_testing.under_load import under_load, until
from regnum_testing.waiting import eventually
from rich.console import Console

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

CLOCK = SystemClock()
QUOTAS = ("quota-1", "quota-2")
THROTTLED = errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """A cluster with two quota processes."""
    folder = tmp_path_factory.mktemp("cluster") / "data"
    async with LocalCluster(folder, brokers=3, elections=3, metadata=2, quotas=2) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def store(cluster: LocalCluster) -> AsyncIterator[Store]:
    """A session of the tests' own."""
    opened = await open_store(cluster.coordination, session_timeout_s=60.0)
    yield opened
    await opened.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def admin(cluster: LocalCluster) -> AsyncIterator[Admin]:
    """A client whose id has no quota."""
    async with Admin(cluster.bootstrap, client_id="unlimited") as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def controller(admin: Admin) -> "AsyncIterator[admin_pb2_grpc.AdminServiceAsyncStub]":
    """Stub of whoever is the controller now."""
    view = await admin.describe_cluster()
    assert view.controller is not None
    channel = open_channel(view.controller.address)
    yield admin_pb2_grpc.AdminServiceStub(channel)
    await channel.close()


async def set_quota(admin: Admin, client_id: str, *, rate: float, burst: float) -> QuotaEntity:
    entity = QuotaEntity(client_id=client_id)
    await admin.alter_client_quota(entity, set={RATE_KEY: rate, BURST_KEY: burst})
    return entity


async def delete_all(admin: Admin, names: Iterable[str]) -> None:
    answers = await admin.delete_topics(list(names))
    assert not [answer for answer in answers.values() if isinstance(answer, Exception)]


async def topics_known_to(address: Address) -> dict[str, dict[int, tuple[int, int]]]:
    """Leader and leader epoch of every partition of every topic, as that process says."""
    channel = open_channel(address)
    try:
        stub = metadata_pb2_grpc.MetadataServiceStub(channel)
        answer = await stub.GetMetadata(metadata_pb2.GetMetadataRequest(), timeout=5.0)
    finally:
        await channel.close()
    return {
        item.topic.name: {state.partition: (state.leader, state.leader_epoch) for state in item.topic.partitions}
        for item in answer.topics
    }


async def pictures(cluster: LocalCluster) -> list[dict[str, dict[int, tuple[int, int]]]]:
    """What every broker and every metadata process says."""
    rows = [row for row in cluster.status() if row.role in {Role.BROKER, Role.METADATA} and row.pid is not None]
    return list(await asyncio.gather(*(topics_known_to(row.addresses["client"]) for row in rows)))


def named_on_disk(folder: Path, names: Sequence[str]) -> set[str]:
    """Which of the names appear anywhere in a broker's files: journal, folders, logs.

    Without the reserve, which is 16 MiB of nothing: looking through it 450 times took 25 s of processor time, more than
    any session of this process outlives.
    """
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "reserve"]
    content = b"".join(path.read_bytes() for path in files)
    content += "\n".join(str(path) for path in folder.rglob("*")).encode()
    return {name for name in names if name.encode() in content}


@pytest.mark.full
async def test_a_burst_is_admitted_as_far_as_the_quota_goes_and_nothing_else_of_it_is_anywhere(
    cluster: LocalCluster, store: Store, admin: Admin
) -> None:
    """500 topics in one call at 5 a second, burst 50; then the quota is raised and the SDK finishes by waiting."""
    entity = await set_quota(admin, "exact", rate=5.0, burst=50.0)
    names = [f"exact-{number:03d}-" for number in range(500)]
    ids_before = set((await store.children("/brokers/topic_ids", current=True)).names)
    async with Admin(cluster.bootstrap, client_id="exact", timeout_s=60.0) as limited:
        began_s = CLOCK.monotonic()
        answers = await limited.create_topics([NewTopic(name=name) for name in names], retry_on_quota_violation=False)
        took_s = CLOCK.monotonic() - began_s
        created = {name: answer for name, answer in answers.items() if isinstance(answer, CreatedTopic)}
        refused = [answer for answer in answers.values() if isinstance(answer, ThrottlingQuotaExceededError)]
        assert len(created) + len(refused) == 500
        assert 51 <= len(created) <= 5.0 * took_s + 50 + 1
        # 200 ms at the verdict, less the time until the topics that were admitted are led.
        assert all(0 <= answer.throttle_time_ms <= 200 for answer in refused)

        assert set((await store.children("/brokers/topics", current=True)).names) & set(names) == set(created)
        ids = set((await store.children("/brokers/topic_ids", current=True)).names) - ids_before
        assert ids == {topic.topic_id for topic in created.values()}
        for picture in await pictures(cluster):
            assert set(picture) & set(names) == set(created)
        for broker in (1, 2, 3):
            folder = cluster.data_dir / f"broker-{broker}"
            assert await asyncio.to_thread(named_on_disk, folder, names) == set(created)

        raised_s = CLOCK.monotonic()
        tokens_max = min(50.0, 5.0 * (raised_s - began_s))
        await set_quota(admin, "exact", rate=100.0, burst=1_000.0)
        rest = await limited.create_topics([NewTopic(name=name) for name in names if name not in created])
        assert all(isinstance(answer, CreatedTopic) for answer in rest.values())
        # The tokens were kept: the larger burst is filled, not given.
        assert len(rest) <= 100.0 * (CLOCK.monotonic() - raised_s) + tokens_max + 1
    for picture in await pictures(cluster):
        assert set(picture) & set(names) == set(names)
    await admin.alter_client_quota(entity, remove=[RATE_KEY, BURST_KEY])
    assert await admin.describe_client_quotas(entity) == ()
    await delete_all(admin, names)


async def create(
    stub: "admin_pb2_grpc.AdminServiceAsyncStub", client_id: str, names: Sequence[str], *, api_version: int
) -> admin_pb2.CreateTopicsResponse:
    request = admin_pb2.CreateTopicsRequest(
        header=RequestHeader(api_version=api_version, client_id=client_id),
        topics=[admin_pb2.NewTopic(name=name, partitions=30, replication_factor=1) for name in names],
    )
    return await stub.CreateTopics(request, timeout=30)


async def delete(
    stub: "admin_pb2_grpc.AdminServiceAsyncStub", client_id: str, names: Sequence[str], *, api_version: int
) -> admin_pb2.DeleteTopicsResponse:
    request = admin_pb2.DeleteTopicsRequest(
        header=RequestHeader(api_version=api_version, client_id=client_id),
        topics=[admin_pb2.DeletableTopic(name=name) for name in names],
    )
    return await stub.DeleteTopics(request, timeout=30)


async def _listed(admin: Admin, names: list[str], *, there: bool) -> bool:
    """Whether all of them are on the list, or (``there`` false) none."""
    listed = {topic.name for topic in await admin.list_topics()}
    return all((name in listed) == there for name in names)


# Who is refused and who is told is decided in test_topic_admission, too; here time passes.
@pytest.mark.full
async def test_who_knows_the_refusal_is_refused_and_who_does_not_is_told_to_wait(
    controller: "admin_pb2_grpc.AdminServiceAsyncStub", admin: Admin
) -> None:
    """Two topics of 30 partitions at 2 a second, burst 20: the first leaves a debt of 10, both one of 40."""
    versions = {"unset": (0, 0), "strict": (6, 5), "permissive": (5, 4)}
    for kind, (creating, deleting) in versions.items():
        client_id = f"version-{kind}"
        entity = await set_quota(admin, client_id, rate=2.0, burst=20.0)
        names = [f"{kind}-a", f"{kind}-b"]
        created = await create(controller, client_id, names, api_version=creating)
        codes = [result.error_code for result in created.results]
        if kind == "permissive":
            assert codes == [0, 0]
            assert 10_000 < created.throttle_time_ms <= 20_000
        else:
            assert codes == [0, THROTTLED]
            assert 0 <= created.throttle_time_ms <= 5_000
            assert created.results[1].error_message
            assert (await create(controller, "unlimited", names[1:], api_version=0)).throttle_time_ms == 0
        await admin.alter_client_quota(entity, remove=[RATE_KEY, BURST_KEY])
        deleter = f"deleter-{kind}"
        await set_quota(admin, deleter, rate=2.0, burst=20.0)
        deleted = await delete(controller, deleter, names, api_version=deleting)
        codes = [result.error_code for result in deleted.results]
        if kind == "permissive":
            assert codes == [0, 0]
            assert 10_000 < deleted.throttle_time_ms <= 20_000
        else:
            assert codes == [0, THROTTLED]
            assert 0 <= deleted.throttle_time_ms <= 5_000
            # Brokers answer what they have heard of, which may be a moment later.
            await eventually(partial(_listed, admin, names[:1], there=False), what="the deletion of the first")
            assert await _listed(admin, names[1:], there=True)
            assert (await delete(controller, "unlimited", names[1:], api_version=0)).results[0].error_code == 0
        await admin.alter_client_quota(QuotaEntity(client_id=deleter), remove=[RATE_KEY, BURST_KEY])


async def test_what_is_only_checked_or_fails_is_not_charged(
    controller: "admin_pb2_grpc.AdminServiceAsyncStub", cluster: LocalCluster, admin: Admin
) -> None:
    entity = await set_quota(admin, "checking", rate=0.01, burst=1.0)
    await admin.create_topic("there-already")
    async with Admin(cluster.bootstrap, client_id="checking") as limited:
        for _ in range(5):
            await limited.create_topic("checked", partitions=100, validate_only=True)
            answers = await limited.create_topics([NewTopic(name="there-already", partitions=100)])
            assert isinstance(answers["there-already"], Exception)
        first = await limited.create_topics(
            [NewTopic(name=f"checking-{n}") for n in range(3)], retry_on_quota_violation=False
        )
        assert [isinstance(answer, CreatedTopic) for answer in first.values()] == [True, True, False]
    await admin.alter_client_quota(entity, remove=[RATE_KEY, BURST_KEY])
    await delete_all(admin, ["there-already", "checking-0", "checking-1"])


async def test_without_any_quota_process_admission_goes_on_at_the_same_rate_and_producers_notice_nothing(
    cluster: LocalCluster, admin: Admin
) -> None:
    """Both are killed in the middle of a burst and started again: no free burst, neither without them nor after."""
    narrator = Narrator(Console(stderr=True, quiet=True))
    async with under_load(cluster, "quota-killed") as running:
        async with Admin(cluster.bootstrap, client_id=CLIENT_ID) as limited:
            burst = Burst(limited, BurstPlan(topics=60, rate=5.0, burst=20.0), clock=CLOCK, narrator=narrator)
            await burst.set_quota()
            creating = asyncio.create_task(burst.create())

            async def refused() -> bool:
                return burst.refusals > 0

            await until(refused)
            for name in QUOTAS:
                await cluster.kill(name)
            at_the_kill = burst.done

            async def goes_on() -> bool:
                return burst.done >= at_the_kill + 10

            await until(goes_on)
            for name in QUOTAS:
                await cluster.restart(name)
            for name in QUOTAS:
                await cluster.wait_healthy(name)
            outcome = await creating
            assert outcome.complaints == (), "not one more than the quota allows by then"
            assert outcome.at_once >= 21, "the burst, and one that goes into debt"
            assert outcome.created == 60

            async def equal() -> bool:
                found = await pictures(cluster)
                return len(found) == 5 and all(one == found[0] and "burst-0059" in one for one in found)

            await until(equal)
            await burst.remove_quota()
            await burst.delete()
        verdict = await running.judged()
    assert verdict.clean, verdict


async def active(store: Store) -> QuotaProcessNode:
    return QuotaProcessNode.decode((await store.get(QUOTA_ACTIVE, current=True)).data)


async def tokens_at(node: QuotaProcessNode, client_id: str) -> list[float]:
    """Tokens of a client id's bucket, as a quota process says itself."""
    channel = open_channel(node.internal)
    try:
        stub = quota_pb2_grpc.QuotaServiceStub(channel)
        answer = await stub.DescribeBuckets(quota_pb2.DescribeBucketsRequest(), timeout=5.0)
    finally:
        await channel.close()
    return [one.state.tokens for one in answer.buckets if one.state.key.client_id == client_id]


async def test_a_killed_quota_process_is_succeeded_by_the_other_which_knows_the_tokens(
    cluster: LocalCluster, store: Store, admin: Admin
) -> None:
    entity = await set_quota(admin, "succession", rate=0.5, burst=10.0)
    before = await active(store)
    names = [f"succession-{number:02d}" for number in range(60)]
    async with Admin(cluster.bootstrap, client_id="succession") as limited:
        began_s = CLOCK.monotonic()
        first = await limited.create_topics([NewTopic(name=name) for name in names], retry_on_quota_violation=False)
        done = sum(isinstance(answer, CreatedTopic) for answer in first.values())
        assert done >= 11
        await cluster.kill(f"quota-{before.id}")

        async def succeeded() -> bool:
            try:
                return (await active(store)).id != before.id
            except NoNode:
                return False

        await until(succeeded)
        successor = await active(store)

        async def judged_by_the_successor() -> bool:
            nonlocal done
            answers = await limited.create_topics(
                [NewTopic(name=name) for name in names[done:]], retry_on_quota_violation=False
            )
            done += sum(isinstance(answer, CreatedTopic) for answer in answers.values())
            return bool(await tokens_at(successor, "succession"))

        await until(judged_by_the_successor)
        assert done <= 0.5 * (CLOCK.monotonic() - began_s) + 10 + 1
        (tokens,) = await tokens_at(successor, "succession")
        assert tokens < 5.0, "no free burst"
    await cluster.restart(f"quota-{before.id}")
    await cluster.wait_healthy(f"quota-{before.id}")
    assert (await active(store)).id == successor.id, "whoever returns stands by"
    await admin.alter_client_quota(entity, remove=[RATE_KEY, BURST_KEY])
    await delete_all(admin, names[:done])


@pytest.mark.full
async def test_a_burst_goes_on_under_the_next_controller(cluster: LocalCluster) -> None:
    """The quota process keeps the buckets: a change of controller is no free burst, and no topic is made twice."""
    narrator = Narrator(Console(stderr=True, quiet=True))
    async with Admin(cluster.bootstrap, client_id=CLIENT_ID, timeout_s=60.0) as limited:
        view = await limited.describe_cluster()
        assert view.controller is not None
        burst = Burst(limited, BurstPlan(topics=40, rate=5.0, burst=10.0), clock=CLOCK, narrator=narrator)
        await burst.set_quota()
        creating = asyncio.create_task(burst.create())

        async def under_way() -> bool:
            return burst.done >= 15

        await until(under_way)
        await cluster.kill(f"election-{view.controller.id}")
        outcome = await creating
        assert outcome.complaints == ()
        assert outcome.created == 40
        after = await limited.describe_cluster()
        assert after.controller is not None
        assert after.controller.epoch > view.controller.epoch
        await burst.remove_quota()
        await burst.delete()
    await cluster.restart(f"election-{view.controller.id}")
    await cluster.wait_healthy(f"election-{view.controller.id}")
