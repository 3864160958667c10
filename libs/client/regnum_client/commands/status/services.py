"""What metadata processes do, and who decides on quotas, as rows: as the controller knows it, asked when status is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from regnum_client.commands.status.figures import size

if TYPE_CHECKING:
    from regnum.admin.v1.admin_pb2 import DescribePropagationResponse

    from regnum_client.admin.describing.quota_usage import QuotaUsages

METADATA_COLUMNS: Final = (
    *("metadata", "behind", "brokers", "brokers_behind", "payloads", "serialised", "sent", "stale_refusals"),
)
"""Columns for people; ``payloads`` to ``stale_refusals`` are since the process began."""
QUOTA_COLUMNS: Final = ("quota", "buckets", "admitted_s", "refused_s", "in_debt", "muted", "held", "queue_p99")
"""Columns for people; ``admitted_s`` and ``refused_s`` are partitions a second of the buckets used last."""
BUCKETS_ASKED: Final = 100
"""Buckets, those used last, whose rates are added up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the controller said of the others."""

    propagation: "DescribePropagationResponse | None" = None
    """None: it did not say."""
    quotas: "QuotaUsages | None" = None
    """None: it did not say."""
    unknown_because: str = ""
    """Why it said neither; empty: it said one, or who asks does not care."""


def metadata_rows(propagation: "DescribePropagationResponse | None") -> list[dict[str, Any]]:
    """Everything, for programs; of a process that did not answer only how far behind it is, null where not known."""
    if propagation is None:
        return []
    return [
        {
            "metadata": one.metadata_id,
            "answered": one.answered,
            "versions_behind": None if one.versions_behind < 0 else one.versions_behind,
            "brokers": len(one.brokers) if one.answered else None,
            "brokers_behind": sum(broker.versions_behind != 0 for broker in one.brokers) if one.answered else None,
            "payloads": one.payload_serialisations if one.answered else None,
            "serialised_bytes": one.bytes_serialised if one.answered else None,
            "sent_bytes": one.bytes_sent if one.answered else None,
            "stale_refusals": one.stale_refusals if one.answered else None,
        }
        for one in propagation.metadata_processes
    ]


def quota_row(quotas: "QuotaUsages | None") -> dict[str, Any] | None:
    """Everything, for programs."""
    if quotas is None:
        return None
    mutations = quotas.queue_waits.get("mutations")
    waited_s = None if mutations is None else mutations.quantile_s(0.99)
    return {
        "quota": quotas.quota_id,
        "buckets": quotas.buckets,
        "admitted_rate": round(sum(one.mutation_rate for one in quotas.usages), 3),
        "refused_rate": round(sum(one.refused_rate for one in quotas.usages), 3),
        "buckets_in_debt": sum(one.tokens < 0 for one in quotas.usages),
        "muted_connections": quotas.muted_connections,
        "held_calls": quotas.held_calls,
        # (Infinite above the last bound of the histogram, which JSON has no word for.)
        "queue_wait_p99_s": waited_s if waited_s is None or waited_s < float("inf") else None,
    }


def metadata_line(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row for people."""
    behind = "?" if row["versions_behind"] is None else row["versions_behind"]
    if not row["answered"]:
        return {**dict.fromkeys(METADATA_COLUMNS, ""), "metadata": row["metadata"], "behind": behind, "brokers": "(no)"}
    return {
        "metadata": row["metadata"],
        "behind": behind,
        "brokers": row["brokers"],
        "brokers_behind": row["brokers_behind"],
        "payloads": row["payloads"],
        "serialised": size(row["serialised_bytes"]),
        "sent": size(row["sent_bytes"]),
        "stale_refusals": row["stale_refusals"],
    }


def quota_line(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row for people."""
    waited_s = row["queue_wait_p99_s"]
    return {
        "quota": "the controller" if row["quota"] is None else row["quota"],
        "buckets": row["buckets"],
        "admitted_s": f"{row['admitted_rate']:g}",
        "refused_s": f"{row['refused_rate']:g}",
        "in_debt": row["buckets_in_debt"],
        "muted": row["muted_connections"],
        "held": row["held_calls"],
        "queue_p99": "" if waited_s is None else f"{1000 * waited_s:g} ms",
    }
