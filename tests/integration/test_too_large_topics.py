"""One CreateTopics whose topic fits into no node of the store is refused, and the controller lives."""

import socket
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import Admin
from regnum_coordination.opening import open_store
from regnum_coordination.recipes.membership import Membership
from regnum_local.cluster import LocalCluster
from regnum_model import paths
from regnum_model.ids import BrokerId, DirectoryId, LogId, Registration
from regnum_model.nodes import Address, BrokerNode
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_testing.ports import unused_port
from regnum_testing.under_load import until

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(240)]

FIRST = 2_000_000_000
"""Broker ids of ten digits make nodes large."""


async def test_a_topic_above_a_megabyte_refuses_its_client_and_no_controller_ends(tmp_path: Path) -> None:
    async with (
        LocalCluster(tmp_path, brokers=1, elections=2, report=lambda _text: None) as cluster,
        Admin(cluster.bootstrap) as admin,
        AsyncExitStack() as others,
    ):
        # Brokers that take connections, so that they count as live, and say nothing.
        port = unused_port()
        store = await open_store(cluster.coordination)
        others.push_async_callback(store.close)
        for id in range(FIRST, FIRST + 18):
            # Each at an address of its own.
            address = Address(host=f"127.2.0.{id - FIRST + 1}", port=port)
            others.enter_context(socket.create_server((address.host, port), backlog=100))

            def encode(registration: int, id: int = id, address: Address = address) -> bytes:
                return BrokerNode(
                    incarnation=str(id),
                    registration=Registration(registration),
                    rack=None,
                    directories={DirectoryId(f"dir-{id}"): LogId(f"log-{id}")},
                    listeners={"client": address, "internal": address},
                ).encode()

            membership = Membership(
                store,
                SystemClock(),
                path=paths.broker_id(BrokerId(id)),
                guard=paths.broker_epoch(BrokerId(id)),
                encode=encode,
                is_predecessor=lambda _: True,
                patience_s=0.0,
            )
            await membership.join()

        async def all_known() -> bool:
            return len((await admin.describe_cluster()).brokers) == 19

        await until(all_known)
        before = (await admin.describe_cluster()).controller
        with pytest.raises(RegnumError) as refused:
            await admin.create_topic("large", partitions=10_000, replication_factor=18)
        assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_PARTITIONS
        assert "fewer partitions or fewer replicas" in refused.value.message
        # The same controller goes on with what others ask for.
        await admin.create_topic("small", partitions=0, assignment={0: [1]})
        assert (await admin.describe_cluster()).controller == before
        assert [row.state.value for row in cluster.status()] == ["running"] * len(cluster.status())
        await until(lambda: _is_led(admin))


async def _is_led(admin: Admin) -> bool:
    return (await admin.describe_topic("small")).partitions[0].leader == 1
