"""Partitions to other brokers, from the SDK."""

from collections.abc import Mapping, Sequence

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_service.errors import RegnumError

from regnum_client.admin.reassignment.values import (
    OngoingReassignment,
    Target,
    failure_of_result,
    ongoing_from_wire,
    requests_of,
)
from regnum_client.admin.session import AdminSession, call_s
from regnum_client.cluster.connections import call


class ReassignmentAdmin(AdminSession):
    """Moves partitions and says how far they are (KIP-455)."""

    async def alter_partition_reassignments(
        self, targets: Mapping[tuple[str, int], Target], *, validate_only: bool = False
    ) -> dict[tuple[str, int], RegnumError | None]:
        """Begin, redirect or call back reassignments; for each partition None, or why not.

        Returns when it stands in the store; the controller does the rest, whichever it is by then. What is wanted is
        absolute, so a call that got no answer is sent again. A call back whose answer was lost is done when the repeat
        finds nothing open any more (NO_REASSIGNMENT_IN_PROGRESS otherwise): called back, or it had arrived before.

        Args:
            targets: by topic and partition, the brokers that are to have it, the preferred leader first; None calls
                an open reassignment back.
            validate_only: check only.
        """
        outcomes: dict[tuple[str, int], RegnumError | None] = {}
        for items in requests_of(targets):
            search, perhaps_done = self._search(), False
            while True:
                address = await search.address()
                left_s = call_s(search)
                request = admin_pb2.AlterPartitionReassignmentsRequest(
                    header=RequestHeader(client_id=self._client_id),
                    partitions=items,
                    timeout_ms=max(1, int(left_s * 1000)),
                    validate_only=validate_only,
                )
                try:
                    answer = await call(
                        self._connections.admin(address).AlterPartitionReassignments, request, timeout_s=left_s + 1
                    )
                except RegnumError as error:
                    perhaps_done = perhaps_done or not error.traits.outcome_known
                    await search.failed(address, error)
                    continue
                break
            for one in answer.results:
                failure, key = failure_of_result(one), (one.topic, one.partition)
                ended = one.error_code == errors_pb2.ERROR_CODE_NO_REASSIGNMENT_IN_PROGRESS
                outcomes[key] = None if perhaps_done and ended and targets[key] is None else failure
        return outcomes

    async def list_partition_reassignments(self, topics: Sequence[str] = ()) -> tuple[OngoingReassignment, ...]:
        """Open reassignments, by topic and partition; of these topics, or of all."""
        found: list[OngoingReassignment] = []
        token = ""
        while True:
            search = self._search()
            while True:
                address = await search.address()
                request = admin_pb2.ListPartitionReassignmentsRequest(
                    header=RequestHeader(client_id=self._client_id), topics=topics, page_token=token
                )
                try:
                    answer = await call(
                        self._connections.admin(address).ListPartitionReassignments,
                        request,
                        timeout_s=call_s(search),
                    )
                except RegnumError as error:
                    await search.failed(address, error)
                    continue
                break
            found.extend(map(ongoing_from_wire, answer.reassignments))
            token = answer.next_page_token
            if not token:
                return tuple(found)
