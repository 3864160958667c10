"""AdminService, the part about leaders: of partitions, and of the cluster."""

from typing import Any, Final

import grpc
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc
from regnum_model.ids import BrokerId, ControllerEpoch

from regnum_election.candidacy.role import ControllerRole
from regnum_election.leaders.messages import brokers_response, election_request, election_response, offline_response
from regnum_election.servicers.callers import wait_s, who_asks

Context = grpc.aio.ServicerContext[Any, Any]


class LeaderServicer(admin_pb2_grpc.AdminServiceServicer):
    """Elections, partitions without a leader, brokers, resignation."""

    def __init__(self, role: ControllerRole) -> None:
        """Only assigns."""
        self._role: Final = role

    async def ElectLeaders(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.ElectLeadersRequest, context: Context
    ) -> admin_pb2.ElectLeadersResponse:
        """Elect leaders, each partition on its own."""
        controller = await self._role.controller()
        wanted = election_request(request, who=who_asks(request.header, context))
        elected = await controller.leaders.elections.elect(wanted, wait_s=wait_s(request.timeout_ms, context))
        return await election_response(elected)

    async def ListOfflinePartitions(  # noqa: N802 - the name in the proto
        self,
        request: admin_pb2.ListOfflinePartitionsRequest,
        context: Context,  # noqa: ARG002
    ) -> admin_pb2.ListOfflinePartitionsResponse:
        """Partitions without a leader, and why."""
        controller = await self._role.controller()
        found = await controller.leaders.offline(request.topics, token=request.page_token, size=request.page_size)
        return await offline_response(found)

    async def DescribeBrokers(  # noqa: N802 - the name in the proto
        self,
        request: admin_pb2.DescribeBrokersRequest,
        context: Context,  # noqa: ARG002
    ) -> admin_pb2.DescribeBrokersResponse:
        """Brokers, live or named by an assignment."""
        controller = await self._role.controller()
        found = await controller.leaders.brokers(tuple(map(BrokerId, request.broker_ids)))
        return await brokers_response(found, controller.health.writability.disk_of)

    async def DrainBroker(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.DrainBrokerRequest, context: Context
    ) -> admin_pb2.DrainBrokerResponse:
        """Place nothing new on a broker, or do so again."""
        controller = await self._role.controller()
        changed = await controller.brokers.draining.drain(
            BrokerId(request.broker_id),
            undo=request.undo,
            validate_only=request.validate_only,
            who=who_asks(request.header, context),
            wait_s=wait_s(request.timeout_ms, context),
        )
        return admin_pb2.DrainBrokerResponse(changed=changed)

    async def ResignController(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.ResignControllerRequest, context: Context
    ) -> admin_pb2.ResignControllerResponse:
        """End this process's reign."""
        controller = await self._role.controller()
        await controller.leaders.resign(
            ControllerEpoch(request.controller_epoch),
            who=who_asks(request.header, context),
            wait_s=wait_s(0, context),
        )
        reign = controller.reign
        return admin_pb2.ResignControllerResponse(controller_id=reign.controller_id, controller_epoch=reign.epoch)
