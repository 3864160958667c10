"""Producer ids out of the controller's blocks, and what a broker says that gets none."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from regnum.election.v1 import controller_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.identity import Identity
from regnum_broker.serving.producer_ids import ProducerIds
from regnum_model.ids import BrokerEpoch, BrokerId, Registration
from regnum_service.errors import RegnumError


class Controller:
    """Answers calls for blocks."""

    def __init__(self, *answers: controller_pb2.AllocateProducerIdsResponse) -> None:
        self.answers = list(answers)

    async def call(self, _ask: Callable[[Any], Awaitable[Any]], *, timeout_s: float) -> Any:
        return self.answers.pop(0)


def ids(controller: Controller, *, registered: bool = True) -> ProducerIds:
    fence = Fence()
    if registered:
        fence.registered(Identity(broker_epoch=BrokerEpoch(7), registration=Registration(0)))
    return ProducerIds(broker=BrokerId(1), fence=fence, calls=controller)  # type: ignore[arg-type]


async def test_a_block_is_used_up_before_another_one_is_asked_for() -> None:
    made = ids(
        Controller(
            controller_pb2.AllocateProducerIdsResponse(first_producer_id=100, count=2),
            controller_pb2.AllocateProducerIdsResponse(first_producer_id=700, count=2),
        )
    )
    assert [await made.next_id() for _ in range(3)] == [100, 101, 700]


@pytest.mark.parametrize("registered", [False, True])
async def test_a_broker_whose_registration_is_over_sends_producers_to_another_one(registered: bool) -> None:
    """Also one that does not know it yet: its broker epoch is no fault of who asked."""
    stale = controller_pb2.AllocateProducerIdsResponse(error_code=errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH)
    with pytest.raises(RegnumError, match="ask another one") as refused:
        await ids(Controller(stale), registered=registered).next_id()
    assert refused.value.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
    assert refused.value.traits.retriable
