"""Topics with their figures, sorted and chosen by them: sizes and records, by what leaders say, and lag."""

import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from regnum_client.admin.describing.replica_admin import ReplicaSize
from regnum_client.admin.describing.topics import TopicSummary
from regnum_client.records import TopicPartition
from regnum_model.topic_filter import TopicFilter

from regnum_console.context import Context, wrong
from regnum_console.keeping import TopicLags

SIZED_MAX: Final = 50_000
"""Partitions whose sizes are asked for."""
NAME, SIZE, RECORDS, LAG = "name", "size", "records", "lag"
ORDERS: Final = (NAME, SIZE, RECORDS, LAG)
"""What topics are sorted by: names, or the largest figure first."""
_SIZE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgtp]?)b?", re.IGNORECASE | re.ASCII)
_UNITS: Final = ("", "k", "m", "g", "t", "p")


class Figures(NamedTuple):
    """A topic's figures, by the logs of its leaders; one copy counts."""

    size_bytes: int = 0
    """Of its segments."""
    records: int = 0
    """Offsets that are there: of a compacted topic there are fewer records."""
    silent: int = 0
    """Partitions that are in neither: their leaders do not say."""


class Choice(NamedTuple):
    """How topics are chosen and sorted by figures."""

    order: str
    """What they are sorted by, out of ORDERS."""
    size_bytes_min: int = 0
    """Smaller ones are left out."""
    records_min: int = 0
    """Those that have fewer are left out."""


class Ranked(NamedTuple):
    """Topics in their order."""

    topics: list[tuple[TopicSummary, Figures]]
    """All that were chosen."""
    of: int
    """Topics whose figures were asked for."""
    cut: bool
    """Whether there are more, which were not: they have too many partitions."""


async def ranked(context: Context, chosen: TopicFilter, choice: Choice, lags: TopicLags) -> Ranked:
    """Ask all partitions, on a connection of its own, and sort. By lag: topics of which something is committed."""
    if choice.order == LAG and not lags.of:
        return Ranked([], 0, cut=False)
    names = sorted(lags.of) if choice.order == LAG else []
    found: list[TopicSummary] = []
    partitions = 0
    async with context.scans, context.ports.connect() as cluster:
        async with contextlib.aclosing(cluster.summarize_topics(names, chosen=chosen)) as pages:
            async for some in pages:
                found += some
                partitions += sum(one.partitions for one in some)
                if partitions >= SIZED_MAX:
                    break
        wanted = (TopicPartition(one.name, number) for one in found for number in range(one.partitions))
        figures = figures_of(await cluster.describe_replicas(wanted))
    topics = [(one, figures.get(one.name, Figures())) for one in found]
    return Ranked(sorted_by(choice, topics, lags), len(topics), cut=partitions >= SIZED_MAX)


def figures_of(replicas: Mapping[TopicPartition, Iterable[ReplicaSize]]) -> dict[str, Figures]:
    """Figures by topic. Pure."""
    found: dict[str, Figures] = {}
    for (name, _), of in replicas.items():
        size_bytes, records, silent = found.get(name, Figures())
        leader = next((one for one in of if one.leading and one.size_bytes is not None), None)
        if leader is None:
            found[name] = Figures(size_bytes, records, silent + 1)
        else:
            many = (leader.log_end or 0) - (leader.log_start or 0)
            found[name] = Figures(size_bytes + (leader.size_bytes or 0), records + many, silent)
    return found


def sorted_by(
    choice: Choice, topics: Iterable[tuple[TopicSummary, Figures]], lags: TopicLags
) -> list[tuple[TopicSummary, Figures]]:
    """Those that are large enough, in their order. Pure."""

    def figure(one: tuple[TopicSummary, Figures]) -> int:
        of = {SIZE: one[1].size_bytes, RECORDS: one[1].records, LAG: lags.of.get(one[0].name, 0), NAME: 0}
        return of[choice.order]

    large = (
        one for one in topics if one[1].size_bytes >= choice.size_bytes_min and one[1].records >= choice.records_min
    )
    return sorted(large, key=lambda one: (-figure(one), one[0].name))


def bytes_in(name: str, text: str) -> int:
    """A size as people write it: ``10 MB``, ``1.5g``, ``4096``; 0 for nothing. Raises HTTPException 400."""
    if not text:
        return 0
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise wrong(f"{name} is a size such as 4096, 10 MB or 1.5 GB, and not {text[:40]!r}")
    return int(float(found[1]) * 1_000 ** _UNITS.index(found[2].lower()))
