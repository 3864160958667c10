"""AlterPartitionReassignments and ListPartitionReassignments of an election process as clients see them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2


@dataclass(slots=True)
class FakeReassignments:
    """Takes what is asked for, and shows what a test says."""

    asked: list[admin_pb2.AlterPartitionReassignmentsRequest] = field(default_factory=list)
    """Every call that changed something, or would have."""
    refused: dict[tuple[str, int], tuple[errors_pb2.ErrorCode.ValueType, str]] = field(default_factory=dict)
    """Partitions that are refused, with code and message."""
    open: list[admin_pb2.OngoingReassignment] = field(default_factory=list)
    """What is shown."""
    taken: Callable[[admin_pb2.AlterPartitionReassignmentsRequest], None] | None = None
    """Called with every call that changes something."""
    page: int = 1_000
    """Reassignments of one answer."""
    before_list: Callable[[int], None] | None = None
    """Called before every list, with how many there were before it."""
    lists: int = 0
    """Lists that were asked for."""
    looks_until_done: int | None = None
    """How many lists show anything; None: all."""

    def alter(
        self, request: admin_pb2.AlterPartitionReassignmentsRequest
    ) -> admin_pb2.AlterPartitionReassignmentsResponse:
        """Take it."""
        self.asked.append(request)
        if self.taken is not None and not request.validate_only:
            self.taken(request)
        answer = admin_pb2.AlterPartitionReassignmentsResponse()
        for item in request.partitions:
            code, message = self.refused.get((item.topic, item.partition), (errors_pb2.ERROR_CODE_NONE, ""))
            answer.results.add(topic=item.topic, partition=item.partition, error_code=code, error_message=message)
        return answer

    def list(
        self, request: admin_pb2.ListPartitionReassignmentsRequest
    ) -> admin_pb2.ListPartitionReassignmentsResponse:
        """One page."""
        if self.before_list is not None:
            self.before_list(self.lists)
        self.lists += 1
        if self.looks_until_done is not None:
            self.looks_until_done -= 1
            if self.looks_until_done < 0:
                self.open.clear()
        meant = [one for one in self.open if not request.topics or one.topic in request.topics]
        first = int(request.page_token or 0)
        page = meant[first : first + self.page]
        more = first + self.page < len(meant)
        return admin_pb2.ListPartitionReassignmentsResponse(
            reassignments=page, next_page_token=str(first + self.page) if more else "", total=len(meant)
        )
