"""Pings that etcd bears: it ends a connection that pings too often, or while it carries no call."""

import asyncio

import grpc
from regnum_coordination import open_store
from regnum_coordination.drivers.etcd.rpc import CHANNEL_OPTIONS, EtcdRpc
from regnum_service.channel import aio_channel
from regnum_testing.etcd_server import EtcdServer
from regnum_testing.waiting import within


async def _idle(server: EtcdServer, **options: int) -> grpc.aio.Channel:
    """A connected channel that pings as often as gRPC allows, and has no call."""
    from etcd3.etcdrpc import rpc_pb2  # noqa: PLC0415 - loadable once the driver is

    changed = {f"grpc.{name}": value for name, value in options.items()}
    often = {**dict(CHANNEL_OPTIONS), "grpc.keepalive_time_ms": 1_000, **changed}
    channel = aio_channel(f"127.0.0.1:{server.port}", options=list(often.items()))
    await EtcdRpc([channel], timeout_s=5.0).range(rpc_pb2.RangeRequest(key=b"/a"))
    assert channel.get_state() is grpc.ChannelConnectivity.READY
    return channel


async def test_an_idle_channel_keeps_its_connection(etcd_server: EtcdServer) -> None:
    """The one that etcd throws out shows that there was time for it."""
    await (await open_store(f"etcd://127.0.0.1:{etcd_server.port}")).close()  # now it has a leader
    ours = await _idle(etcd_server)
    leaving = asyncio.create_task(ours.wait_for_state_change(grpc.ChannelConnectivity.READY))
    loud = await _idle(etcd_server, keepalive_permit_without_calls=1)
    await within(loud.wait_for_state_change(grpc.ChannelConnectivity.READY), 20)
    assert not leaving.done()
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await ours.close()
    await loud.close()


def test_a_channel_with_a_call_pings_as_often_as_etcd_allows() -> None:
    """Not within 5 s of the last; and without an end, because a watch may be silent for long."""
    assert ("grpc.keepalive_time_ms", 6_000) in CHANNEL_OPTIONS
    assert ("grpc.http2.max_pings_without_data", 0) in CHANNEL_OPTIONS
