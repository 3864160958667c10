"""The replicas as files: what lies on disk, byte by byte, whatever the brokers say."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from regnum_client import Admin

_SEGMENT: Final = re.compile(r"\d{20}\.log")


async def folders(admin: Admin, topics: Iterable[str]) -> list[str]:
    """Names of the folders that brokers have for the partitions of topics."""
    views = [await admin.describe_topic(name) for name in topics]
    return [f"{view.topic_id}-{number}" for view in views for number in view.partitions]


def replica_logs(data_dir: Path) -> Mapping[str, Mapping[str, bytes]]:
    """Partition folder -> broker folder -> the whole log, segments joined in order. The brokers must be stopped."""
    logs: dict[str, dict[str, bytes]] = {}
    for broker in sorted(data_dir.glob("broker-*")):
        segments = sorted(path for path in broker.rglob("*.log") if _SEGMENT.fullmatch(path.name))
        for segment in segments:
            replica = logs.setdefault(segment.parent.name, {})
            replica[broker.name] = replica.get(broker.name, b"") + segment.read_bytes()
    return logs
