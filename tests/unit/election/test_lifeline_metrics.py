"""What an election process shows of the lifelines that it holds."""

from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum_election.brokers.lifeline_thread import LifelineThread
from regnum_model.ids import BrokerEpoch, ControllerEpoch
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.clock import SystemClock
from regnum_service.loop_lag import LoopLag
from regnum_service.supervisor import Supervisor
from regnum_telemetry.instruments import Instrument
from regnum_telemetry.instruments import election as instruments
from regnum_telemetry.metrics import Labels, Metrics
from regnum_testing.ports import unused_port
from regnum_testing.under_load import until


def numbers(metrics: Metrics, instrument: Instrument) -> dict[Labels, float]:
    (reading,) = [one for one in metrics.read() if one.instrument is instrument]
    return dict(reading.numbers)


def answers(metrics: Metrics) -> tuple[int, float]:
    (reading,) = [one for one in metrics.read() if one.instrument is instruments.LIFELINE_ANSWER]
    ((_, one),) = reading.histograms
    return sum(one.counts), one.total


async def test_a_broker_lags_while_it_owes_an_answer_and_its_answer_is_timed() -> None:
    clock, metrics, supervisor = SystemClock(), Metrics(), Supervisor("test")
    address = Address(host="127.0.0.1", port=unused_port())
    thread = LifelineThread(
        address,
        clock=clock,
        supervisor=supervisor,
        main_lag=LoopLag(clock),
        session_connected=lambda: True,
        session_timeout_s=6.0,
        report=lambda _epoch, _event: None,
        fences=True,
        metrics=metrics,
    )
    await thread.start()
    thread.begin(ControllerEpoch(1), elected_at=BrokerEpoch(0))
    channel = open_channel(address)
    try:
        stream = controller_pb2_grpc.LifelineServiceStub(channel).BrokerLifeline()
        hello = controller_pb2.LifelineHello(broker_id=7, broker_epoch=17)
        await stream.write(controller_pb2.BrokerLifelineRequest(hello=hello, beat=1))
        probe = await stream.read()
        assert numbers(metrics, instruments.LIFELINES) == {(): 1}

        async def lags() -> bool:
            return numbers(metrics, instruments.LIFELINE_LAG).get(("7",), 0.0) > 0.2

        await until(lags)
        assert answers(metrics) == (0, 0.0)

        async def answered() -> bool:
            nonlocal probe
            await stream.write(controller_pb2.BrokerLifelineRequest(beat=2, probe_answered=probe.probe))
            if answers(metrics)[0]:
                return True
            probe = await stream.read()
            return False

        await until(answered)
        assert answers(metrics)[1] > 0.2
        stream.cancel()

        async def none_left() -> bool:
            return numbers(metrics, instruments.LIFELINES) == {(): 0}

        await until(none_left)
        assert numbers(metrics, instruments.LIFELINE_LAG) == {}
    finally:
        await channel.close()
        await thread.stop()
        await supervisor.unwind()
