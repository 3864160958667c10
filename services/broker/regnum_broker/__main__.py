"""``python -m regnum_broker``: composition root of a broker."""

import os
import sys

import structlog
from regnum_service import logs, process, settings
from regnum_service.access.auditing.opening import open_audit_log
from regnum_service.allocator import keep_freed_memory
from regnum_service.clock import SystemClock
from regnum_service.errors import StartRefusedError
from regnum_service.metrics import serve_metrics
from regnum_service.probes import serve_probes
from regnum_service.store_session import ToldStore
from regnum_service.supervisor import Supervisor
from regnum_service.traces import start_traces
from regnum_telemetry.metrics import Metrics
from regnum_telemetry.setup import Telemetry

from regnum_broker.broker import Broker
from regnum_broker.settings import BrokerSettings


async def _main(told: BrokerSettings, telemetry: Telemetry) -> int:
    supervisor, metrics = Supervisor("broker"), Metrics()
    store = ToldStore(told, metrics=metrics)
    try:
        # First: the start may take long, and says so by it.
        await serve_probes(told, supervisor=supervisor)
        clock = SystemClock()
        audit = open_audit_log(told, f"broker-{told.broker_id}", supervisor=supervisor, clock=clock, metrics=metrics)
        broker = Broker(
            told,
            supervisor=supervisor,
            open_session=store.open,
            store_refuses=lambda: store.refusals.now,
            clock=clock,
            metrics=metrics,
            audit=audit,
        )
        serve_metrics("regnum-broker", told.broker_id, told, metrics, supervisor=supervisor, telemetry=telemetry)
        await broker.start()
    except StartRefusedError as error:
        await supervisor.unwind()
        sys.stderr.write(f"broker-{told.broker_id} cannot start: {error}\n")
        return error.exit_status
    status = await supervisor.run_until_stopped()
    if isinstance(supervisor.failure, StartRefusedError):
        sys.stderr.write(f"broker-{told.broker_id} stops: {supervisor.failure}\n")
    if broker.stuck:
        # The end of the interpreter waits for all threads, and one of them waits for a disk that does not answer.
        sys.stderr.write(f"broker-{told.broker_id} ends without waiting for its disk\n")
        sys.stderr.flush()
        os._exit(status)
    return status


def main() -> int:
    """Run a broker until it is told to stop."""
    told = settings.load(BrokerSettings)
    logs.configure(f"broker-{told.broker_id}", told.log_level, told.run_dir)
    keep_freed_memory()
    telemetry = start_traces("regnum-broker", told.broker_id, told)
    structlog.get_logger("broker").info("starting", broker_id=told.broker_id, data_dir=str(told.data_dir))
    return process.run(lambda: _main(told, telemetry))


if __name__ == "__main__":
    sys.exit(main())
