"""What became of topics, in the words of the wire: one result for each topic of a request, in its order."""

from collections.abc import Iterable
from typing import assert_never

from google.rpc import status_pb2
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_service.item_errors import item_status
from regnum_service.slices import Turns

from regnum_election.decisions.rejection import Rejection
from regnum_election.partitions.addition import Added
from regnum_election.partitions.removal import Removed
from regnum_election.topics.charging import Answered
from regnum_election.topics.creation import Created
from regnum_election.topics.deletion import Deleted


async def creation_results(
    topics: Iterable[admin_pb2.NewTopic], answered: Answered[Created | Rejection], turns: Turns
) -> list[admin_pb2.CreateTopicResult]:
    """Of CreateTopics."""
    results: list[admin_pb2.CreateTopicResult] = []
    for topic, outcome in zip(topics, answered.outcomes, strict=True):
        await turns.took()
        match outcome:
            case Created():
                results.append(
                    admin_pb2.CreateTopicResult(
                        name=topic.name,
                        topic_id=outcome.topic_id,
                        partitions=outcome.partitions,
                        replication_factor=outcome.replication_factor,
                    )
                )
            case Rejection():
                results.append(
                    admin_pb2.CreateTopicResult(
                        name=topic.name,
                        error_code=outcome.code,
                        error_message=outcome.message,
                        status=_status(outcome, answered.throttle_ms),
                    )
                )
            case _:
                assert_never(outcome)
    return results


async def deletion_results(
    topics: Iterable[admin_pb2.DeletableTopic], answered: Answered[Deleted | Rejection], turns: Turns
) -> list[admin_pb2.DeleteTopicResult]:
    """Of DeleteTopics."""
    results: list[admin_pb2.DeleteTopicResult] = []
    for topic, outcome in zip(topics, answered.outcomes, strict=True):
        await turns.took()
        match outcome:
            case Deleted():
                results.append(admin_pb2.DeleteTopicResult(name=outcome.name, topic_id=outcome.topic_id))
            case Rejection():
                results.append(
                    admin_pb2.DeleteTopicResult(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        error_code=outcome.code,
                        error_message=outcome.message,
                        status=_status(outcome, answered.throttle_ms),
                    )
                )
            case _:
                assert_never(outcome)
    return results


async def partitions_results(
    topics: Iterable[admin_pb2.NewPartitions | admin_pb2.DeletablePartitions],
    answered: Answered[Added | Rejection] | Answered[Removed | Rejection],
    turns: Turns,
) -> list[admin_pb2.PartitionsResult]:
    """Of CreatePartitions and DeletePartitions."""
    results: list[admin_pb2.PartitionsResult] = []
    for topic, outcome in zip(topics, answered.outcomes, strict=True):
        await turns.took()
        match outcome:
            case Added(total=total) | Removed(total=total):
                results.append(admin_pb2.PartitionsResult(name=topic.name, partitions=total))
            case Rejection():
                results.append(
                    admin_pb2.PartitionsResult(
                        name=topic.name,
                        error_code=outcome.code,
                        error_message=outcome.message,
                        status=_status(outcome, answered.throttle_ms),
                    )
                )
            case _:
                assert_never(outcome)
    return results


def _status(refused: Rejection, throttle_ms: int) -> status_pb2.Status | None:
    """The status of a refusal; one by a quota says for how long it stands."""
    throttled = refused.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    return item_status(refused.code, refused.message, retry_after_ms=throttle_ms if throttled else None)
