"""Where our gRPC servers are made: the one place that says what every listener takes and refuses.

Messages are not compressed. gRPC unpacks what comes as far as the listener's largest message before any code of ours
runs, so a caller without rights would decide what its kilobytes become: 2.4 MB to ``Health/Check`` became 6 GB. Record
batches carry their own compression, which is unpacked where it is accounted for. A call whose client compresses is
answered UNIMPLEMENTED ("Compression algorithm 'gzip' is disabled."), as gRPC's specification of compression says.
"""

from collections.abc import Sequence
from typing import Any, Final

import grpc

Option = tuple[str, int]
"""An argument of a gRPC server, as C knows it."""

SERVER_OPTIONS: Final[tuple[Option, ...]] = (
    # A message that says that it is compressed is not unpacked, whatever its call says;
    ("grpc.per_message_decompression", 0),
    # and the call is refused with the reason: bit 0 is identity, and no other algorithm is taken or offered.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # Two processes must not share a port unnoticed.
    ("grpc.so_reuseport", 0),
    # Clients ping every 1 to 2 s; a server with default options answers with "Too many pings" and hangs up.
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # Without it a frozen client goes unnoticed for a minute, whatever the keep-alive says.
    ("grpc.http2.ping_timeout_ms", 5_000),
)
"""Of every server."""


def make_server(*options: Option, interceptors: Sequence[Any] = (), calls_max: int | None = None) -> grpc.aio.Server:
    """A server that does not listen yet, on the running event loop. Servers of ours are made nowhere else.

    Args:
        options: of this server, besides those of every one, which it cannot change.
        interceptors: the first is the outermost.
        calls_max: calls at a time; others are refused with RESOURCE_EXHAUSTED.
    """
    fixed = {name for name, _ in SERVER_OPTIONS}
    if changed := fixed.intersection(name for name, _ in options):
        raise ValueError(f"every server has the same {', '.join(sorted(changed))}")
    return grpc.aio.server(
        interceptors=interceptors, options=(*SERVER_OPTIONS, *options), maximum_concurrent_rpcs=calls_max
    )
