"""Two fields that etcd3's messages do not have."""

from regnum_coordination.drivers.etcd.fragments import in_fragments, is_fragment


def test_a_watch_asks_for_fragments_and_sees_them() -> None:
    from etcd3.etcdrpc import rpc_pb2  # noqa: PLC0415 - loadable once the driver is

    plain = rpc_pb2.WatchCreateRequest(key=b"/a", start_revision=7, progress_notify=True)
    asked = in_fragments(plain)
    assert asked.SerializeToString() == plain.SerializeToString() + bytes([8 << 3, 1])
    request = rpc_pb2.WatchRequest(create_request=asked)
    assert request.SerializeToString().endswith(bytes([8 << 3, 1]))
    answer = rpc_pb2.WatchResponse(watch_id=3).SerializeToString()
    assert not is_fragment(rpc_pb2.WatchResponse.FromString(answer))
    assert is_fragment(rpc_pb2.WatchResponse.FromString(answer + bytes([7 << 3, 1])))
    assert not is_fragment(rpc_pb2.WatchResponse.FromString(answer + bytes([7 << 3, 0])))
