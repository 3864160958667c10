"""The audit log that the settings ask for."""

from regnum_telemetry.metrics import Metrics

from regnum_service.access.audit import AuditLog, NoAudit
from regnum_service.access.auditing.files import RotatedFile
from regnum_service.access.auditing.writer import AuditFile
from regnum_service.clock import Clock
from regnum_service.errors import StartRefusedError
from regnum_service.settings import ServiceSettings
from regnum_service.supervisor import Supervisor


def open_audit_log(
    settings: ServiceSettings, process: str, *, supervisor: Supervisor, clock: Clock, metrics: Metrics
) -> AuditLog:
    """Open it; the supervisor closes it. Raises StartRefusedError when it cannot be written.

    Args:
        settings: which file, if any.
        process: whose log it is: ``election-1``.
        supervisor: closes it, after everything that is started later.
        clock: says when; read on a thread.
        metrics: where lines are counted.
    """
    path = settings.audit_log
    if path is None:
        return NoAudit()
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
    log = AuditFile(file, process=process, clock=clock, metrics=metrics)
    log.start()
    supervisor.defer("audit log", log.close)
    return log
