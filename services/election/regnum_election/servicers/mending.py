"""AdminService, the part about what is damaged and nobody can mend."""

from regnum.admin.v1 import admin_pb2

from regnum_election.partitions.damage_messages import give_up_response
from regnum_election.servicers.callers import wait_s, who_asks
from regnum_election.servicers.leaders import Context
from regnum_election.servicers.tokens import TokenServicer


class MendingServicer(TokenServicer):
    """Partitions that are given up."""

    async def GiveUpPartitions(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.GiveUpPartitionsRequest, context: Context
    ) -> admin_pb2.GiveUpPartitionsResponse:
        """Look at what is damaged of a topic, and give it up."""
        controller = await self._role.controller()
        found = await controller.partitions.giving_up.give_up(
            request.topic,
            tuple(dict.fromkeys(request.partitions)),
            accept_loss=request.accept_loss,
            who=who_asks(request.header, context),
            wait_s=wait_s(request.timeout_ms, context),
        )
        return await give_up_response(found)
