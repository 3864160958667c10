"""What became of topics, as clients read it."""

from google.rpc import error_details_pb2
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.decisions.rejection import Rejection
from regnum_election.servicers.topic_results import creation_results, deletion_results, partitions_results
from regnum_election.topics.charging import Answered
from regnum_service.slices import Turns

THROTTLED = Rejection(code=errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, message="the quota is used up")
EXISTS = Rejection(code=errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS, message="it exists")


async def test_a_refusal_by_a_quota_says_when_it_is_over_and_no_other_says_so() -> None:
    answered = Answered(outcomes=(THROTTLED, EXISTS), throttle_ms=1_500)
    created = await creation_results([admin_pb2.NewTopic(name=name) for name in "ab"], answered, Turns(1))
    deleted = await deletion_results([admin_pb2.DeletableTopic(name=name) for name in "ab"], answered, Turns(1))
    changed = await partitions_results([admin_pb2.NewPartitions(name=name) for name in "ab"], answered, Turns(1))
    for throttled, exists in (created, deleted, changed):
        assert throttled.error_code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
        retry = error_details_pb2.RetryInfo()
        assert throttled.status.details[1].Unpack(retry)
        assert retry.retry_delay.ToMilliseconds() == 1_500
        assert (exists.status.message, len(exists.status.details)) == ("it exists", 1)
