"""What a client makes of a cluster all of whose brokers are gone: an answer that says so is an answer."""

import asyncio
import random

import pytest
from regnum.metadata.v1.metadata_pb2 import GetMetadataResponse
from regnum.types.v1 import errors_pb2
from regnum_client import Admin
from regnum_client.cluster.connections import Connections
from regnum_client.cluster.enquiry import Enquiry
from regnum_client.cluster.view import ClusterView, merge
from regnum_client.tasks import Tasks
from regnum_model.nodes import Address
from regnum_service.channel import Channels
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import until, within


def enquiry_at(bootstrap: Address, connections: Connections) -> Enquiry:
    chance, tasks = random.Random(3), Tasks("test")
    return Enquiry([bootstrap], connections, clock=SystemClock(), chance=chance, client_id="test", tasks=tasks)


async def test_that_no_broker_lives_is_told_and_those_that_lived_last_are_asked_again() -> None:
    async with FakeCluster() as cluster:
        first, *others = cluster.brokers.values()
        connections = Connections(Channels())
        enquiry = enquiry_at(first.address, connections)
        view = merge(ClusterView(), await enquiry.ask([], ClusterView()), asked=(), as_of_s=1.0)
        assert len(view.brokers) == 3
        assert set(enquiry.candidates(view)) == {broker.address for broker in cluster.brokers.values()}
        for broker in cluster.brokers.values():
            broker.stale = GetMetadataResponse(cluster_id=view.cluster_id, version=view.version + 1)
        answer = await enquiry.ask([], view)
        assert answer.version == view.version + 1
        view = merge(view, answer, asked=(), as_of_s=2.0)
        assert not view.brokers
        # The bootstrap address alone may be that of a broker that never comes back.
        assert {other.address for other in others} < set(enquiry.candidates(view))
        await connections.close()


async def test_an_administrator_of_groups_waits_for_a_broker_and_says_so_when_none_comes() -> None:
    """It ended with an IndexError."""
    async with FakeCluster() as cluster:
        cluster.create("t")
        brokers = cluster.brokers.values()

        def none_lives() -> None:
            cluster.version += 1
            for broker in brokers:
                broker.stale = GetMetadataResponse(cluster_id=cluster.cluster_id, version=cluster.version)

        none_lives()
        async with Admin(cluster.bootstrap, timeout_s=0.5) as admin:
            with pytest.raises(RegnumError, match="no broker lives; see `regnum status`") as refused:
                await within(admin.list_group_offsets("g"))
            assert refused.value.code == errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE
        async with Admin(cluster.bootstrap) as admin:
            asked = cluster.calls["GetMetadata"]
            waiting = asyncio.create_task(admin.list_group_offsets("g"))
            await until(lambda: cluster.calls["GetMetadata"] > asked + 1, "it has looked, and looks again")
            cluster.version += 1
            for broker in brokers:
                broker.stale = None
            assert await within(waiting) == {}


async def test_a_process_that_has_not_heard_from_a_controller_has_no_answer() -> None:
    async with FakeCluster(brokers=1) as cluster:
        (broker,) = cluster.brokers.values()
        broker.stale = GetMetadataResponse()
        connections = Connections(Channels())
        with pytest.raises(RegnumError, match="has not heard from a controller yet") as refusal:
            await enquiry_at(broker.address, connections).ask([], ClusterView())
        assert refusal.value.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
        await connections.close()
