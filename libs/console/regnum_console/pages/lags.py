"""How far groups are behind: of each group, and of the groups of each topic."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regnum_client.admin.describing.offset_admin import PartitionOffsets
from regnum_client.admin.groups.views import CommittedOffset
from regnum_client.commands.groups.lags import lags_of_topics
from regnum_client.records import TopicPartition
from regnum_service.errors import RegnumError

from regnum_console.context import Context, some_at_a_time, told
from regnum_console.keeping import TopicLags
from regnum_console.port import is_believed_no_more

MEASURED_MAX: Final = 500
"""Groups whose lag is asked for at a time."""
TOPICS_WAIT_S: Final = 3.0
"""So long a list of topics waits for what groups have committed: it is shown without lags then."""

Committed = Mapping[TopicPartition, CommittedOffset]
Ends = Mapping[TopicPartition, PartitionOffsets | RegnumError]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a group is behind."""

    records: int | None
    """In all its partitions whose ends are known; None: its coordinator does not say."""
    partitions: int
    """Partitions of which it has committed something."""
    unknown: int
    """Those of them whose ends are not known."""
    worst: TopicPartition | None
    """Where most of it is."""


def lag_of(committed: Committed | RegnumError, ends: Ends) -> Lag:
    """See Lag. Pure.

    A commit may be ahead of what a leader knows to be committed, or of a topic that was made anew: that is no lag.
    """
    if isinstance(committed, RegnumError):
        return Lag(records=None, partitions=0, unknown=0, worst=None)
    lags = {
        one: max(0, end.high_watermark - offset.offset)
        for one, offset in committed.items()
        if isinstance(end := ends.get(one), PartitionOffsets)
    }
    return Lag(
        records=sum(lags.values()),
        partitions=len(committed),
        unknown=len(committed) - len(lags),
        worst=max(lags, key=lambda one: lags[one], default=None),
    )


async def read_lags(context: Context, groups: Sequence[str]) -> tuple[dict[str, Committed | RegnumError], Ends]:
    """What groups have committed, and where those partitions end: a call for each group, and some for each leader."""
    cluster = context.ports.cluster
    committed = await some_at_a_time(cluster.list_group_offsets(one) for one in groups)
    wanted = {one for offsets in committed if not isinstance(offsets, RegnumError) for one in offsets}
    ends = await told(cluster.list_offsets(sorted(wanted)))
    return dict(zip(groups, committed, strict=True)), {} if isinstance(ends, RegnumError) else ends


async def topic_lags(context: Context) -> TopicLags:
    """How far the groups of each topic are behind in it; raises for a caller that is not believed."""
    return await context.topic_lags.get(lambda: _topic_lags(context), context.clock)


async def _topic_lags(context: Context) -> TopicLags:
    try:
        async with asyncio.timeout(TOPICS_WAIT_S), context.scans:
            groups = [one.group_id for one in await context.ports.cluster.list_groups()]
            committed, ends = await read_lags(context, groups[:MEASURED_MAX])
    except TimeoutError:
        return TopicLags({}, f"Lag is not known: groups did not answer within {TOPICS_WAIT_S:g} s.")
    except RegnumError as error:
        if is_believed_no_more(error):
            raise
        return TopicLags({}, f"Lag is not known: {error.message}")
    known = {name: offsets for name, offsets in committed.items() if not isinstance(offsets, RegnumError)}
    notes = []
    if len(groups) > MEASURED_MAX:
        notes.append(f"Lag is that of the first {MEASURED_MAX:,} of {len(groups):,} groups.")
    if len(known) < len(committed):
        notes.append(f"Lag is without that of {len(committed) - len(known):,} groups that do not say.")
    offsets = {name: {where: one.offset for where, one in of.items()} for name, of in known.items()}
    logs = {where: end.high_watermark for where, end in ends.items() if isinstance(end, PartitionOffsets)}
    return TopicLags(lags_of_topics(offsets, logs), " ".join(notes))
