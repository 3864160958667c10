"""What a follower hears of at once, and what waits for the disk."""

import asyncio
from pathlib import Path

from regnum.replication.v1 import replication_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.replication.followed import Followed, Stored, waiting_apart
from regnum_broker.replication.partition import Following
from regnum_model.configs import ReplicaSettings
from regnum_model.ids import BrokerId, LeaderEpoch
from regnum_testing.leading_replicas import LeadingReplicas


async def parted(path: Path) -> tuple[list[int], list[int]]:
    """Numbers of answers by whether they wait; those from 3 on are of a log with flush.messages."""
    answers = [
        replication_pb2.FetchedPartition(records=b"records"),
        replication_pb2.FetchedPartition(diverging_epoch=replication_pb2.DivergingEpoch(epoch=1, end_offset=2)),
        replication_pb2.FetchedPartition(error_code=errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE),
    ]
    async with LeadingReplicas(path) as replicas:
        replicas.replicas.configure(replicas.partition(1), ReplicaSettings(flush_messages=1))
        following = Following(leader=BrokerId(2), leader_epoch=LeaderEpoch(0), cause="", filled=False)
        work = [
            Stored(Followed(replicas.partition(number), following), answer, answer.records)
            for number in (0, 1)
            for answer in answers
        ]
        at_once, waiting = waiting_apart(work)
    return [work.index(item) for item in at_once], [work.index(item) for item in waiting]


def test_only_appends_to_flushed_logs_wait_and_no_truncation_does(tmp_path: Path) -> None:
    assert asyncio.run(parted(tmp_path)) == ([0, 1, 2, 4, 5], [3])
