"""Whatever anybody sends to any listener of a real cluster: every process lives, and the cluster does its work."""

import asyncio

import pytest
from regnum_client import Admin, Producer
from regnum_local.cluster import LocalCluster
from regnum_local.plan import NOT_GRPC
from regnum_model.nodes import Address
from regnum_testing.every_call import calls_of, extremes, opened, send_all

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

TIMEOUT_S = 0.5
"""A call that waits for something is cut off."""


async def write_to_a_new_topic(cluster: LocalCluster, topic: str) -> None:
    async with asyncio.timeout(60), Admin(cluster.bootstrap) as admin:
        await admin.create_topic(topic, partitions=2, replication_factor=3)
        async with Producer(cluster.bootstrap) as producer:
            await (await producer.send(topic, b"still here"))


async def ask_everything(address: Address) -> set[str]:
    """Every call of a listener, with nothing in it and with as much as it can hold; the names of the calls."""
    async with opened(address) as channel:
        calls = await calls_of(channel)
        for call in calls:
            requests = [call.empty(), *extremes(call.method.input_type)]
            for half_close in (True, False):
                answers = await send_all(channel, call, requests, half_close=half_close, timeout_s=TIMEOUT_S)
                assert not [answer for answer in answers if answer.unexpected], call.path
    return {call.path for call in calls}


@pytest.mark.timeout(240)
async def test_no_message_to_any_listener_ends_a_process_or_stops_the_cluster(cluster: LocalCluster) -> None:
    await write_to_a_new_topic(cluster, "before")
    processes = {row.name: row.pid for row in cluster.status()}
    services = [row for row in cluster.status() if row.role.value != "etcd"]
    listeners = [address for row in services for name, address in row.addresses.items() if name not in NOT_GRPC]
    asked = await asyncio.gather(*(ask_everything(address) for address in listeners))
    assert len(set().union(*asked)) > 20
    await write_to_a_new_topic(cluster, "after")
    assert {row.name: row.pid for row in cluster.status()} == processes
