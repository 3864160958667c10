"""The audit log that the settings ask for."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from regnum_telemetry.metrics import Metrics

from regnum_service.access.audit import AuditLog, Audits, NoAudit
from regnum_service.access.auditing.files import RotatedFile
from regnum_service.access.auditing.stdout import StandardOutput
from regnum_service.access.auditing.writer import AuditWriter, Sink
from regnum_service.clock import Clock
from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.settings import ServiceSettings
from regnum_service.supervisor import Supervisor

REFUSALS: Final = ".denied"
"""What the file of refusals is called, behind the name of the file of changes."""
EVENT: Final = "regnum.audit"
"""Name of the log records that a collector is sent."""


def open_audit_log(
    settings: ServiceSettings,
    process: str,
    *,
    supervisor: Supervisor,
    clock: Clock,
    metrics: Metrics,
    environ: Mapping[str, str] = os.environ,
) -> AuditLog:
    """Open it; the supervisor closes it. Raises StartRefusedError when it cannot be written.

    Args:
        settings: which file, if any, and where it goes besides.
        process: whose log it is: ``election-1``.
        supervisor: closes it, after everything that is started later.
        clock: says when; read on a thread.
        metrics: where lines are counted.
        environ: variables, of which those of OpenTelemetry name a collector.
    """
    writers: list[AuditWriter] = []

    def start(destination: str, *sinks: Sink) -> None:
        writer = AuditWriter(*sinks, process=process, clock=clock, metrics=metrics, destination=destination)
        writer.start()
        supervisor.defer(f"audit log ({destination})", writer.close)
        writers.append(writer)

    if settings.audit_log is not None:
        start("file", _opened(settings, settings.audit_log), _opened(settings, Path(f"{settings.audit_log}{REFUSALS}")))
    if settings.audit_log_export != "none":
        start(settings.audit_log_export, _exported(settings.audit_log_export, process, environ, clock))
    if not writers:
        return NoAudit()
    return writers[0] if len(writers) == 1 else Audits(*writers)


def _opened(settings: ServiceSettings, path: Path) -> RotatedFile:
    file = RotatedFile(path, bytes_max=settings.audit_log_max_bytes, files=settings.audit_log_files)
    try:
        file.open()
    except BlockingIOError as error:
        raise StartRefusedError(
            f"--audit-log {path}: another process writes this file; give each process a file of its own"
        ) from error
    except OSError as error:
        raise StartRefusedError(
            f"--audit-log {path} cannot be written: {error.strerror}; give a file in a folder that this user may write"
        ) from error
    return file


def _exported(destination: str, process: str, environ: Mapping[str, str], clock: Clock) -> Sink:
    if destination == "stdout":
        return StandardOutput()
    # Imported when needed: it takes a while.
    from regnum_telemetry.collector_logs import ENDPOINTS, collector_logs, collector_named  # noqa: PLC0415

    if not collector_named(environ):
        raise StartRefusedError(
            f"--audit-log-export is otlp, and no collector is named; set {' or '.join(ENDPOINTS)}, or give stdout",
            exit_status=ExitStatus.WRONG_USE,
        )
    service, _, instance = process.rpartition("-")
    return collector_logs(f"regnum-{service}", instance, event=EVENT, wall_ms=clock.wall_ms)
