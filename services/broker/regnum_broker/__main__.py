"""``python -m regnum_broker``: composition root of a broker."""

import sys

import structlog
from regnum_coordination.opening import open_store
from regnum_coordination.port import Store
from regnum_service import logs, process, settings
from regnum_service.clock import SystemClock
from regnum_service.errors import StartRefusedError
from regnum_service.supervisor import Supervisor
from regnum_service.traces import start_traces

from regnum_broker.broker import Broker
from regnum_broker.settings import BrokerSettings


async def _main(told: BrokerSettings) -> int:
    supervisor = Supervisor("broker")

    async def open_session() -> Store:
        try:
            return await open_store(
                told.coordination,
                session_timeout_s=told.session_timeout_s,
            )
        except (ValueError, ModuleNotFoundError) as error:
            raise StartRefusedError(f"--coordination: {error}") from error

    broker = Broker(told, supervisor=supervisor, open_session=open_session, clock=SystemClock())
    try:
        await broker.start()
    except StartRefusedError as error:
        await supervisor.unwind()
        sys.stderr.write(f"broker {told.broker_id} cannot start: {error}\n")
        return error.exit_status
    status = await supervisor.run_until_stopped()
    if isinstance(supervisor.failure, StartRefusedError):
        sys.stderr.write(f"broker {told.broker_id} stops: {supervisor.failure}\n")
    return status


def main() -> int:
    """Run a broker until it is told to stop."""
    told = settings.load(BrokerSettings)
    logs.configure(f"broker-{told.broker_id}", told.log_level)
    start_traces("regnum-broker", told.broker_id, told)
    structlog.get_logger("broker").info("starting", broker_id=told.broker_id, data_dir=str(told.data_dir))
    return process.run(lambda: _main(told))


if __name__ == "__main__":
    sys.exit(main())
