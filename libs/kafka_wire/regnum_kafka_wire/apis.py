"""Which calls are offered, in which versions, and what reads and writes them.

The oldest versions are those of KIP-896, but for what is said to be there for clients that ask before they know
(ApiVersions from 0, Produce from 0 in the list and nowhere else: KAFKA-18659).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from regnum_kafka_wire.primitives import Room

API_VERSIONS: Final = 18
PRODUCE: Final = 0

Buffers = list[bytes | bytearray | memoryview]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One call."""

    key: int
    """Kafka's number."""
    name: str
    """Kafka's name."""
    readers: Mapping[int, Callable[[memoryview, int, Room], tuple[Any, int]]]
    """What reads a request, by version: (request, where it ends)."""
    writers: Mapping[int, Callable[[Any, Buffers, bytearray], None]]
    """What adds a response to buffers, behind what the last argument has already, by version."""
    flexible_from: int
    """The first version whose headers have tagged fields."""

    @property
    def oldest(self) -> int:
        """Version."""
        return min(self.readers)

    @property
    def newest(self) -> int:
        """Version."""
        return max(self.readers)


def _api(key: int, name: str, module: str) -> Api:
    request = import_module(f"regnum_kafka_wire.gen.{module}_request")
    response = import_module(f"regnum_kafka_wire.gen.{module}_response")
    return Api(
        key=key,
        name=name,
        readers=MappingProxyType(request.VERSIONS),
        writers=MappingProxyType(response.VERSIONS),
        flexible_from=request.FLEXIBLE_FROM,
    )


APIS: Final[Mapping[int, Api]] = MappingProxyType(
    {
        key: _api(key, name, module)
        for key, name, module in (
            (0, "Produce", "produce"),
            (1, "Fetch", "fetch"),
            (2, "ListOffsets", "list_offsets"),
            (3, "Metadata", "metadata"),
            (8, "OffsetCommit", "offset_commit"),
            (9, "OffsetFetch", "offset_fetch"),
            (10, "FindCoordinator", "find_coordinator"),
            (11, "JoinGroup", "join_group"),
            (12, "Heartbeat", "heartbeat"),
            (13, "LeaveGroup", "leave_group"),
            (14, "SyncGroup", "sync_group"),
            (18, "ApiVersions", "api_versions"),
            (19, "CreateTopics", "create_topics"),
            (20, "DeleteTopics", "delete_topics"),
            (22, "InitProducerId", "init_producer_id"),
            (23, "OffsetForLeaderEpoch", "offset_for_leader_epoch"),
            (60, "DescribeCluster", "describe_cluster"),
        )
    }
)
"""By key."""
