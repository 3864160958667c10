"""Sizes and lags of a topic's replicas, for `regnum topics describe --sizes`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.describing.replica_admin import ReplicaSize
    from regnum_client.cluster.view import TopicView


async def replica_sizes(
    admin: "Admin", view: "TopicView", *, rows: bool
) -> tuple[dict[int, dict[str, Any]], list[str]]:
    """What to show of each partition, by number, as a row of a table or as a document; and why some say nothing."""
    from regnum_client.records import TopicPartition  # noqa: PLC0415

    found = await admin.describe_replicas([TopicPartition(view.name, number) for number in view.partitions])
    silent = sorted({one.error for replicas in found.values() for one in replicas if one.error})
    show = _row if rows else _document
    return {partition.partition: show(replicas) for partition, replicas in found.items()}, silent


def _row(replicas: "tuple[ReplicaSize, ...]") -> dict[str, Any]:
    leader = next((one for one in replicas if one.leading), None)
    return {
        "size_bytes": None if leader is None else leader.size_bytes,
        "log_end": None if leader is None else leader.log_end,
        "replica_sizes": _each([one.size_bytes for one in replicas]),
        "lags": _each([one.lag for one in replicas]),
    }


def _each(values: list[int | None]) -> str:
    """In the order of the column of replicas."""
    return ",".join("-" if value is None else str(value) for value in values) or "-"


def _document(replicas: "tuple[ReplicaSize, ...]") -> dict[str, Any]:
    return {"replica_logs": [one._asdict() for one in replicas]}
