"""Metadata processes come and go; brokers keep what the controller says, and producers notice nothing."""

import asyncio
from collections.abc import Mapping

import grpc
import pytest
from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.propagation.v1 import propagation_pb2, propagation_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_client import Admin
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Role
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.status import from_rpc_error
from regnum_testing.under_load import under_load, until

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


Picture = Mapping[str, Mapping[int, tuple[int, int]]]


async def metadata_of(address: Address) -> metadata_pb2.GetMetadataResponse:
    channel = open_channel(address)
    try:
        stub = metadata_pb2_grpc.MetadataServiceStub(channel)
        return await stub.GetMetadata(metadata_pb2.GetMetadataRequest(), timeout=5.0)
    finally:
        await channel.close()


def picture(answer: metadata_pb2.GetMetadataResponse) -> Picture:
    """Leader and leader epoch of every partition."""
    return {
        item.topic.name: {state.partition: (state.leader, state.leader_epoch) for state in item.topic.partitions}
        for item in answer.topics
    }


async def pictures(cluster: LocalCluster, *roles: Role) -> list[Picture]:
    running = [row for row in cluster.status() if row.role in roles and row.pid is not None]
    return [picture(await metadata_of(row.addresses["client"])) for row in running]


async def lag_of(cluster: LocalCluster, name: str) -> propagation_pb2.DescribeLagResponse:
    (address,) = [row.addresses["internal"] for row in cluster.status() if row.name == name]
    channel = open_channel(address)
    try:
        stub = propagation_pb2_grpc.PropagationServiceStub(channel)
        return await stub.DescribeLag(propagation_pb2.DescribeLagRequest(), timeout=5.0)
    finally:
        await channel.close()


async def served(cluster: LocalCluster) -> dict[str, set[int]]:
    """Brokers by the metadata process that serves them."""
    names = [row.name for row in cluster.status() if row.role is Role.METADATA and row.pid is not None]
    return {name: {lag.broker_id for lag in (await lag_of(cluster, name)).brokers} for name in names}


async def test_metadata_processes_share_the_brokers_and_answer_clients(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic("shared", partitions=3, replication_factor=3)

    async def shared() -> bool:
        by_process = await served(cluster)
        return sorted(id for ids in by_process.values() for id in ids) == [1, 2, 3]

    await until(shared)

    async def equal() -> bool:
        found = await pictures(cluster, Role.METADATA, Role.BROKER)
        return len(found) == 5 and all(one == found[0] and set(one.get("shared", ())) == {0, 1, 2} for one in found)

    await until(equal)
    one, *_ = await pictures(cluster, Role.METADATA)
    assert {leader for leader, _ in one["shared"].values()} <= {1, 2, 3}


async def test_a_topic_is_known_everywhere_when_it_is_created(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        for number in range(5):
            await admin.create_topic(f"known-{number}", partitions=2, replication_factor=3)
            for one in await pictures(cluster, Role.BROKER):
                assert {leader for leader, _ in one[f"known-{number}"].values()} <= {1, 2, 3}


async def test_a_change_is_serialised_once_in_each_process_for_all_its_brokers(cluster: LocalCluster) -> None:
    before = {name: await lag_of(cluster, name) for name in ("metadata-1", "metadata-2")}
    async with Admin(cluster.bootstrap) as admin:
        for number in range(10):
            await admin.create_topic(f"once-{number}", partitions=3, replication_factor=3)
    after = {name: await lag_of(cluster, name) for name in before}
    for name, lag in after.items():
        assert lag.controller_epoch == before[name].controller_epoch
        changes = lag.version - before[name].version
        assert 0 < lag.payload_serialisations - before[name].payload_serialisations <= changes


@pytest.mark.parametrize("name", ["metadata-1", pytest.param("metadata-2", marks=pytest.mark.full)])
async def test_a_killed_metadata_process_is_not_missed(cluster: LocalCluster, name: str) -> None:
    topic = f"under-{name}"
    async with under_load(cluster, topic) as running:
        await cluster.kill(name)
        # What changes now reaches all brokers by way of the other process.
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(f"after-{name}", partitions=3, replication_factor=3)

        async def known_everywhere() -> bool:
            found = await pictures(cluster, Role.BROKER)
            return all(one == found[0] and len(one.get(f"after-{name}", ())) == 3 for one in found)

        await until(known_everywhere)
        await cluster.restart(name)
        await cluster.wait_healthy(name)

        async def serves_again() -> bool:
            by_process = await served(cluster)
            return len(by_process) == 2 and sorted(id for ids in by_process.values() for id in ids) == [1, 2, 3]

        await until(serves_again)
        verdict = await running.judged()
    assert verdict.clean, verdict


# Each alone is killed in the quick tier, and both in any order in the unit tests of reigns.
@pytest.mark.full
async def test_metadata_process_and_leader_killed_together(cluster: LocalCluster) -> None:
    async with under_load(cluster, "both") as running:
        before = await running.stage.look()
        victim = before.leaders[next(iter(before.leaders))]
        await asyncio.gather(cluster.kill("metadata-2"), cluster.kill(f"broker-{victim}"))

        async def moved_everywhere() -> bool:
            found = await pictures(cluster, Role.BROKER)
            leaders = {leader for one in found for leader, _ in one["both"].values()}
            return all(one == found[0] for one in found) and not leaders & {victim, -1}

        await until(moved_everywhere)
        for name in ("metadata-2", f"broker-{victim}"):
            await cluster.restart(name)
            await cluster.wait_healthy(name)
        await running.stage.all_in_sync()
        verdict = await running.judged()
    assert verdict.clean, verdict


async def test_a_paused_metadata_process_is_replaced_and_does_no_harm_when_it_wakes(cluster: LocalCluster) -> None:
    """Frozen, it refuses nothing: the end of its session tells."""
    async with under_load(cluster, "paused") as running:
        cluster.pause("metadata-1")
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic("meanwhile", partitions=3, replication_factor=3)

        async def known_everywhere() -> bool:
            found = await pictures(cluster, Role.BROKER)
            return all(one == found[0] and len(one.get("meanwhile", ())) == 3 for one in found)

        await until(known_everywhere)
        cluster.resume("metadata-1")

        async def shared_again() -> bool:
            by_process = await served(cluster)
            everything = await pictures(cluster, Role.METADATA)
            ids = sorted(id for ids in by_process.values() for id in ids)
            return ids == [1, 2, 3] and all("meanwhile" in one for one in everything)

        await until(shared_again)
        verdict = await running.judged()
    assert verdict.clean, verdict


@pytest.mark.full
async def test_all_metadata_processes_killed_and_started_again(cluster: LocalCluster) -> None:
    async with under_load(cluster, "none-left") as running:
        for name in ("metadata-1", "metadata-2"):
            await cluster.kill(name)
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic("unheard-of", partitions=1, replication_factor=3)
        for name in ("metadata-1", "metadata-2"):
            await cluster.restart(name)
            await cluster.wait_healthy(name)

        async def known_everywhere() -> bool:
            found = await pictures(cluster, Role.BROKER, Role.METADATA)
            return len(found) == 5 and all(one == found[0] and "unheard-of" in one for one in found)

        await until(known_everywhere)
        verdict = await running.judged()
    assert verdict.clean, verdict


async def test_a_replaced_controller_is_refused(cluster: LocalCluster) -> None:
    (address,) = [row.addresses["internal"] for row in cluster.status() if row.name == "metadata-1"]
    channel = open_channel(address)
    stub = propagation_pb2_grpc.PropagationServiceStub(channel)
    change = propagation_pb2.PublishChangesRequest(controller_epoch=0, to_version=99, last=True)
    try:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.PublishChanges(iter([change]), timeout=5.0)
    finally:
        await channel.close()
    error = from_rpc_error(refused.value)
    assert error.code == errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH
    assert int(error.metadata["controller_epoch"]) >= 1
