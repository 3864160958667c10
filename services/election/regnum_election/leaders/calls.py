"""What callers ask about leaders, of partitions and of the cluster; one for each reign."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId, ControllerEpoch
from regnum_service.errors import RegnumError

from regnum_election.brokers.description import DescribedBroker, describe_brokers
from regnum_election.leaders.elections import LeaderElections
from regnum_election.leaders.offline import OfflineList, list_offline
from regnum_election.leaders.unclean import UncleanElections
from regnum_election.recovery.calls import PartitionRecoveries
from regnum_election.reign.reign import ResignedError
from regnum_election.reign.request_queue import RequestQueue
from regnum_election.state.context import ControllerContext


class LeaderCalls:
    """ElectLeaders, ListOfflinePartitions, DescribeBrokers, ResignController."""

    def __init__(self, context: ControllerContext, recoveries: PartitionRecoveries, requests: RequestQueue) -> None:
        """Only assigns."""
        self._context: Final = context
        self._requests: Final = requests
        self.unclean: Final = UncleanElections(context, recoveries)
        """Unclean elections."""
        self.elections: Final = LeaderElections(context, requests, self.unclean)
        """Elections by request."""

    async def offline(self, topics: Sequence[str], *, token: str, size: int) -> OfflineList:
        """Partitions without a leader. Raises RegnumError: INVALID_REQUEST."""
        return await list_offline(self._context, topics, token=token, size=size)

    async def brokers(self, ids: Sequence[BrokerId]) -> tuple[DescribedBroker, ...]:
        """Brokers. Raises RegnumError: INVALID_REQUEST."""
        return await describe_brokers(self._context.picture, ids)

    async def resign(self, epoch: ControllerEpoch, *, who: str, wait_s: float) -> None:
        """End this reign between two steps of its work. Raises RegnumError: NOT_CONTROLLER for another epoch."""
        context = self._context
        if epoch != context.reign.epoch:
            raise RegnumError(
                errors_pb2.ERROR_CODE_NOT_CONTROLLER,
                f"the reign of controller epoch {epoch} is over or has not begun; the present one is "
                f"{context.reign.epoch}",
            )
        result: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def steps() -> AsyncGenerator[None, None]:
            if result.done():
                # Who asked does not wait any more, and may believe that nothing has come of it.
                return
            context.log.warning("resigning on request", who=who)
            result.set_result(None)
            raise ResignedError(f"asked to resign by {who}")
            yield

        self._requests.submit("resign", steps(), result, begun=lambda: False, urgent=True)
        await self._requests.answer(result, wait_s)
