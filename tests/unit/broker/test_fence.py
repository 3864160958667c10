"""Orders that come while a broker registers: they wait for the registration, and are judged by it."""

import asyncio

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.fence import REGISTRATION_PATIENCE_S, Fence
from regnum_broker.identity import Identity
from regnum_model.ids import BrokerEpoch, Registration
from regnum_service.errors import RegnumError
from regnum_testing.simulation.loop import SimulatedLoop

OWN = Identity(broker_epoch=BrokerEpoch(7), registration=Registration(0))


async def _check(epoch: int, registers_after_s: float) -> None:
    fence = Fence()
    asyncio.get_running_loop().call_later(registers_after_s, fence.registered, OWN)
    await fence.check_broker(BrokerEpoch(epoch))


@pytest.mark.parametrize("after_s", [0.5, REGISTRATION_PATIENCE_S])
def test_a_registration_counts_that_stands_when_the_wait_for_it_ends(after_s: float) -> None:
    """Also one of the very turn of the loop in which the time is over."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(_check(7, after_s))
        with pytest.raises(RegnumError, match="broker epoch 6; this is 7"):
            runner.run(_check(6, after_s))


def test_an_order_is_refused_once_the_registration_takes_too_long() -> None:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner, pytest.raises(RegnumError, match="not registered") as it:
        runner.run(_check(7, 2 * REGISTRATION_PATIENCE_S))
    assert it.value.code == errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH
