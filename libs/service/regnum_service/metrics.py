"""The metrics of a service process: where they are shown, and what every process has."""

import asyncio

import structlog
from regnum_model.nodes import Address
from regnum_telemetry.build import this_build
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics
from regnum_telemetry.scraping import MetricsEndpoint
from regnum_telemetry.setup import Telemetry, metrics_text

from regnum_service.collection_pauses import CollectionPauses
from regnum_service.errors import PortTakenError
from regnum_service.settings import ServiceSettings
from regnum_service.supervisor import Supervisor
from regnum_service.tls.handshakes import FAILURES


def serve_metrics(
    service: str,
    instance: int,
    told: ServiceSettings,
    metrics: Metrics,
    *,
    supervisor: Supervisor,
    telemetry: Telemetry | None = None,
) -> Address | None:
    """Show the metrics on ``--metrics-listen`` until the service stops; returns where, None when nobody asks for them.

    Args:
        service: ``regnum-broker`` and the like.
        instance: id of the process within its service.
        told: the settings.
        metrics: of this process.
        supervisor: ends it.
        telemetry: its spans, which have metrics of their own.

    Raises:
        PortTakenError: the address cannot be listened on.
    """
    build = this_build()
    metrics.observe_all(instruments.BUILD, lambda: (((build.version, build.commit), 1.0),))
    metrics.observe_all(instruments.HANDSHAKE_FAILURES, FAILURES.read)
    if telemetry is not None:
        metrics.observe(instruments.SPANS_DROPPED, lambda: telemetry.dropped)
        metrics.observe(instruments.SPANS_EXPORTED, lambda: telemetry.exported)
        metrics.observe(instruments.SPANS_WAITING, lambda: telemetry.waiting)
        metrics.observe(instruments.EXPORT_UNDER_WAY, lambda: telemetry.export_under_way_s)
    if told.metrics_listen is None:
        return None
    pauses = CollectionPauses(metrics)
    wanted = Address.parse(told.metrics_listen)
    endpoint = MetricsEndpoint(wanted.host, wanted.port, metrics_text(service, str(instance), metrics))
    try:
        endpoint.start()
    except OSError as error:
        raise PortTakenError(
            f"cannot listen on {wanted} (--metrics-listen): {error.strerror}; stop the process that has the port, "
            "choose another address, or leave it out"
        ) from error

    pauses.start()

    async def close() -> None:
        pauses.stop()
        await asyncio.to_thread(endpoint.close)

    supervisor.defer("metrics", close)
    address = Address(host=wanted.host, port=endpoint.port)
    structlog.get_logger("metrics").info("metrics", address=str(address), path="/metrics")
    return address
