"""Asking what is wrong: through the brokers, or at known election processes, whatever becomes of the brokers."""

from collections.abc import Iterable
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_service.errors import RegnumError

from regnum_client.admin.health.views import HealthView, health_view
from regnum_client.admin.session import AdminSession, call_s
from regnum_client.cluster.connections import Connections, call
from regnum_client.cluster.security.channels import channels_to
from regnum_client.tasks import first_of

PARTITIONS_NAMED: Final = 20
"""Unhealthy partitions that are named unless told otherwise."""


class HealthAdmin(AdminSession):
    """What is wrong with the cluster."""

    async def describe_health(self, *, partitions_max: int = PARTITIONS_NAMED) -> HealthView:
        """What the controller sees, naming that many unhealthy partitions, 1 to 1,000.

        Raises NOT_CONTROLLER when there is none, INVALID_REQUEST for another number.
        """
        search = self._search()
        request = _request(self._client_id, partitions_max)
        while True:
            address = await search.address()
            try:
                answer = await call(self._connections.admin(address).DescribeHealth, request, timeout_s=call_s(search))
            except RegnumError as error:
                await search.failed(address, error)
                continue
            return health_view(answer)


async def ask_elections(
    elections: Iterable[Address], *, timeout_s: float, client_id: str, partitions_max: int = PARTITIONS_NAMED
) -> HealthView:
    """The same from whichever of these election processes is the controller; all are asked at once.

    Raises RegnumError: what one of them answered; NOT_CONTROLLER when none is there.

    Args:
        elections: their client listeners.
        timeout_s: of each call.
        client_id: name of the caller.
        partitions_max: unhealthy partitions to name.
    """
    addresses = tuple(elections)
    if not addresses:
        raise RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "no election process runs here; start one")
    connections = Connections(channels_to([str(address) for address in addresses]))
    request = _request(client_id, partitions_max)

    async def ask(address: Address) -> HealthView:
        return health_view(await call(connections.admin(address).DescribeHealth, request, timeout_s=timeout_s))

    try:
        # Those that hang are not waited for once the controller has answered.
        return await first_of("describe-health", *map(ask, addresses))
    finally:
        await connections.close()


def _request(client_id: str, partitions_max: int) -> admin_pb2.DescribeHealthRequest:
    return admin_pb2.DescribeHealthRequest(header=RequestHeader(client_id=client_id), partitions_max=partitions_max)
