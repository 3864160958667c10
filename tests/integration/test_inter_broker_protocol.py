"""The protocol is raised in two passes (seed 003): first every process understands both, then the cluster says which.

And in both a broker that was bounced refuses what was made for its earlier life: messages 1 to 5 of the seed's figure.
"""

from collections.abc import AsyncIterator, Mapping

import grpc
import pytest
import pytest_asyncio
from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.replication.v1 import control_pb2, control_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_client import CLUSTER_CONFIG, Admin, ConfigAlteration
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Role
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.errors import RegnumError
from regnum_testing.under_load import under_load, until
from regnum_testing.waiting import DEADLINE_S

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.asyncio(loop_scope="module")]

PROTOCOL = "inter.broker.protocol.version"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """A cluster that begins below protocol 2."""
    flags: Mapping[Role, tuple[str, ...]] = {Role.ELECTION: ("--inter-broker-protocol-version", "1")}
    data_dir = tmp_path_factory.mktemp("cluster") / "data"
    started = LocalCluster(data_dir, brokers=3, elections=1, report=lambda _text: None, extra=flags)
    await started.start()
    try:
        yield started
    finally:
        await started.stop()


async def protocol_in_force(admin: Admin) -> int:
    return (await admin.describe_propagation()).inter_broker_protocol


def addresses(cluster: LocalCluster, name: str) -> Mapping[str, Address]:
    (row,) = [row for row in cluster.status() if row.name == name]
    return row.addresses


async def known_of(address: Address) -> metadata_pb2.GetMetadataResponse:
    async with open_channel(address) as channel:
        stub = metadata_pb2_grpc.MetadataServiceStub(channel)
        return await stub.GetMetadata(metadata_pb2.GetMetadataRequest(brokers_only=True), timeout=DEADLINE_S)


async def epoch_of(cluster: LocalCluster, broker: int) -> int:
    """Broker epoch as another broker knows it."""
    other = next(number for number in (1, 2, 3) if number != broker)
    answer = await known_of(addresses(cluster, f"broker-{other}")["client"])
    return next((one.epoch for one in answer.brokers if one.id == broker), 0)


async def obsolete_update(
    address: Address, request: control_pb2.UpdateMetadataRequest
) -> control_pb2.UpdateMetadataResponse:
    async with open_channel(address) as channel:
        stub = control_pb2_grpc.ReplicaControlServiceStub(channel)
        stream = stub.UpdateMetadata()
        await stream.write(request)
        answer = await stream.read()
        assert isinstance(answer, control_pb2.UpdateMetadataResponse)
        return answer


async def bounced_broker_refuses(cluster: LocalCluster, broker: int) -> None:
    """Message 1 and 2: it registered, and the controller read its epoch. 3 and 4: it registers anew. 5 comes late."""
    name = f"broker-{broker}"
    before = await epoch_of(cluster, broker)
    assert before > 0
    await cluster.kill(name)
    await cluster.restart(name)

    async def registered_anew() -> bool:
        return await epoch_of(cluster, broker) > before

    async def told_again() -> bool:
        return len((await known_of(addresses(cluster, name)["client"])).brokers) == 3

    await until(registered_anew)
    await until(told_again)
    own = await known_of(addresses(cluster, name)["client"])
    epoch, version = own.version >> 32, own.version & 0xFFFFFFFF
    internal = addresses(cluster, name)["internal"]
    # An empty picture of a later version: whoever takes it has lost every topic and broker.
    obsolete = control_pb2.UpdateMetadataRequest(
        controller_id=1, controller_epoch=epoch, to_version=version + 1_000, parts=1, all_brokers=True, cluster_id="x"
    )
    for words in ({"max_broker_epoch": before}, {"max_broker_epoch": -1, "broker_epoch": before}):
        request = control_pb2.UpdateMetadataRequest(**words)
        request.MergeFrom(obsolete)
        answer = await obsolete_update(internal, request)
        assert answer.error_code == errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH
    async with open_channel(internal) as channel:
        stub = control_pb2_grpc.ReplicaControlServiceStub(channel)
        for order in (
            stub.LeaderAndIsr(
                control_pb2.LeaderAndIsrRequest(controller_epoch=epoch, broker_epoch=before), timeout=DEADLINE_S
            ),
            stub.StopReplica(
                control_pb2.StopReplicaRequest(controller_epoch=epoch, broker_epoch=before), timeout=DEADLINE_S
            ),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await order
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    after = await known_of(addresses(cluster, name)["client"])
    assert after.cluster_id == own.cluster_id
    assert {one.id for one in after.brokers} == {1, 2, 3}, "nothing of it was taken"


async def test_below_2_the_bounced_broker_refuses_what_was_meant_for_its_earlier_life(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        assert await protocol_in_force(admin) == 1
    await bounced_broker_refuses(cluster, 2)


async def test_the_protocol_is_raised_under_load_and_nothing_is_refused(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin, under_load(cluster, "raised") as loaded:
        before = await stale_refusals(admin)
        await admin.create_topic("before", partitions=3, replication_factor=3)
        assert (await admin.compare_metadata()).equal
        await admin.alter_config(ConfigAlteration(resource=CLUSTER_CONFIG, set={PROTOCOL: "2"}))
        assert await protocol_in_force(admin) == 2
        await admin.create_topic("after", partitions=3, replication_factor=3)
        found = await admin.compare_metadata()
        assert found.equal, found.differences
        assert await stale_refusals(admin) == before
        assert (await loaded.judged()).clean


async def stale_refusals(admin: Admin) -> Mapping[int, int]:
    """By metadata process, when all have answered: who did not says nothing of them."""
    found: dict[int, int] = {}

    async def all_answered() -> bool:
        processes = (await admin.describe_propagation()).metadata_processes
        found.update({one.metadata_id: one.stale_refusals for one in processes})
        return len(processes) == 2 and all(one.answered for one in processes)

    await until(all_answered)
    return found


async def test_it_is_never_lowered_and_the_reason_is_said(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap) as admin:
        with pytest.raises(RegnumError, match="cannot be lowered to 1"):
            await admin.alter_config(ConfigAlteration(resource=CLUSTER_CONFIG, set={PROTOCOL: "1"}))
        assert await protocol_in_force(admin) == 2


async def test_from_2_on_the_bounced_broker_refuses_it_too(cluster: LocalCluster) -> None:
    await bounced_broker_refuses(cluster, 3)
    async with Admin(cluster.bootstrap) as admin:
        assert (await admin.compare_metadata()).equal
