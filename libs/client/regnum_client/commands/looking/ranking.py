"""`regnum topics list --sort`: sizes and lags of topics, asked of brokers and coordinators, the largest first."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from regnum_model.topic_filter import TopicFilter

from regnum_client.admin.admin import Admin
from regnum_client.admin.describing.topics import TopicSummary
from regnum_client.commands.groups.lags import lags_of_topics, read_lags
from regnum_client.records import TopicPartition

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {"size": ("size_bytes", "disk_bytes"), "lag": ("lag",)}
"""What is shown besides, by the order."""


async def figures_of(
    order: str, chosen: TopicFilter, bootstrap: str | None, *, timeout_s: float
) -> list[tuple[TopicSummary, dict[str, Any]]]:
    """Topics and their figures, the largest first.

    Args:
        order: ``size`` or ``lag``.
        chosen: which topics.
        bootstrap: brokers to begin with.
        timeout_s: how long the cluster is waited for.
    """
    async with Admin(bootstrap, timeout_s=timeout_s) as admin:
        topics = [one async for page in admin.summarize_topics(chosen=chosen) for one in page]
        figures = await (_sizes(admin, topics) if order == "size" else _lags(admin))
    nothing: dict[str, Any] = {"size_bytes": None, "disk_bytes": None} if order == "size" else {"lag": None}
    found = [(topic, figures.get(topic.name, nothing)) for topic in topics]
    key = COLUMNS[order][0]
    return sorted(found, key=lambda one: (one[1][key] is None, -(one[1][key] or 0), one[0].name))


async def _sizes(admin: Admin, topics: Sequence[TopicSummary]) -> dict[str, dict[str, Any]]:
    """Bytes of the leaders' logs, and of all replicas; None: not every broker says."""
    partitions = [TopicPartition(one.name, number) for one in topics for number in range(one.partitions)]
    sizes: dict[str, dict[str, Any]] = {one.name: {"size_bytes": 0, "disk_bytes": 0} for one in topics}
    for partition, replicas in (await admin.describe_replicas(partitions)).items():
        row = sizes[partition.topic]
        leading = [one.size_bytes for one in replicas if one.leading]
        row["size_bytes"] = _sum([row["size_bytes"], *(leading or [None])])
        row["disk_bytes"] = _sum([row["disk_bytes"], *(one.size_bytes for one in replicas)])
    return sizes


def _sum(values: Sequence[int | None]) -> int | None:
    known = [one for one in values if one is not None]
    return sum(known) if len(known) == len(values) else None


async def _lags(admin: Admin) -> dict[str, dict[str, Any]]:
    """Records that groups have before them in each topic, all groups added up."""
    committed, ends = await read_lags(admin, [one.group_id for one in await admin.list_groups()])
    return {topic: {"lag": lag} for topic, lag in lags_of_topics(committed, ends).items()}
