"""RecoverPartitions of an election process as clients see it: pages that a test writes."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from regnum.admin.v1 import admin_pb2


@dataclass(slots=True)
class FakeRecoveries:
    """Answers from a list of partitions without a leader."""

    offline: Sequence[admin_pb2.PartitionRecovery] = ()
    """Partitions, ascending."""
    page: int = 1_000
    """Partitions of one answer."""
    requests: list[admin_pb2.RecoverPartitionsRequest] = field(default_factory=list)
    """What was asked."""

    def recover(self, request: admin_pb2.RecoverPartitionsRequest) -> admin_pb2.RecoverPartitionsResponse:
        """One page."""
        self.requests.append(request)
        wanted = [
            one
            for one in self.offline
            if one.partition >= request.first_partition
            and (not request.partitions or one.partition in request.partitions)
        ]
        page, rest = wanted[: self.page], wanted[self.page :]
        answer = admin_pb2.RecoverPartitionsResponse(next_partition=rest[0].partition if rest else 0)
        for one in page:
            result = answer.results.add()
            result.CopyFrom(one)
            if request.accept_loss and not one.error_code:
                result.recovered, result.leader_epoch = True, one.leader_epoch + 1
        return answer
