"""What is heard of the cluster, taken into the picture: on a thread when there is much of it."""

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from regnum.metadata.v1.metadata_pb2 import GetMetadataResponse, WatchMetadataResponse

from regnum_client.cluster.view import ClusterView, merge
from regnum_client.cluster.watching.changes import weight_of, with_change

MERGED_ON_LOOP_MAX: Final = 1_000
"""Topics and partitions of an answer that is taken up without a thread."""


async def merged(
    known: ClusterView, answer: GetMetadataResponse, *, asked: Collection[str] | None, as_of_s: float, whole: bool
) -> ClusterView:
    """``merge``, which is done on a thread when there is much of it: loops of applications stay free."""
    work = partial(merge, known, answer, asked=asked, as_of_s=as_of_s, whole=whole)
    weight = len(answer.topics) + sum(len(item.topic.partitions) for item in answer.topics)
    return work() if weight < MERGED_ON_LOOP_MAX else await asyncio.to_thread(work)


async def changed(known: ClusterView, parts: Sequence[WatchMetadataResponse]) -> ClusterView | None:
    """``with_change``, on a thread when there is much of it."""
    if weight_of(parts) < MERGED_ON_LOOP_MAX:
        return with_change(known, parts)
    return await asyncio.to_thread(with_change, known, parts)
