"""What every process of ours shows of itself. Pure."""

from typing import Final

from regnum_telemetry import conventions
from regnum_telemetry.instruments.definition import Definitions

DEFINED: Final = Definitions()
"""In the order of this file."""

LOOP_LAG: Final = DEFINED.histogram(
    "regnum.loop.lag",
    "s",
    "How late an event loop runs, measured 20 to 50 times a second; more than 50 ms is a defect (safety rule S22)",
    labels=("loop",),
    bounds=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
)

LOOP_LAG_CURRENT: Final = DEFINED.gauge(
    "regnum.loop.lag.current",
    "s",
    "How late an event loop is by now: of one that is held up, which measures nothing meanwhile, it grows",
    labels=("loop",),
)

STORE_CALLS: Final = DEFINED.histogram(
    "regnum.store.call.duration",
    "s",
    "Calls of the coordination store; outcome is ok or the name of the error",
    labels=("operation", "outcome"),
)

STORE_CONNECTED: Final = DEFINED.gauge(
    "regnum.store.connected",
    "{sessions}",
    "1 while a broker or an election process has a session with the coordination store, and the store answers",
)

SPANS_DROPPED: Final = DEFINED.counter(
    conventions.SPANS_DROPPED,
    "{spans}",
    "Spans that found the queue full, or whose export failed",
)

SPANS_EXPORTED: Final = DEFINED.counter(
    "regnum.telemetry.spans_exported",
    "{spans}",
    "Spans that were brought out: to a file, or to a collector",
)

SPANS_WAITING: Final = DEFINED.gauge(
    "regnum.telemetry.spans_waiting",
    "{spans}",
    "Spans that wait to be brought out; of more than 16,384 the newest are dropped",
)

EXPORT_UNDER_WAY: Final = DEFINED.gauge(
    "regnum.telemetry.export.under_way",
    "s",
    "For how long the export under way has not been answered, so that spans are late; 0: there is none",
)

CALLS_SERVED: Final = DEFINED.histogram(
    "rpc.server.call.duration",
    "s",
    "gRPC calls that this process has answered, from their handler's beginning to its end; streams when they end",
    labels=("rpc_method", "rpc_response_status_code"),
    bounds=(0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0),
    kafka="kafka.network:type=RequestMetrics,name=TotalTimeMs and RequestsPerSec",
)

CALLS_UNDER_WAY: Final = DEFINED.gauge(
    "regnum.server.calls",
    "{calls}",
    "gRPC calls under way by listener, and whether it has one answer (unary) or many (stream)",
    labels=("listener", "kind"),
)

CONNECTIONS: Final = DEFINED.gauge(
    "regnum.server.connections",
    "{connections}",
    "TCP connections open at a listener",
    labels=("listener",),
    kafka="kafka.server:type=socket-server-metrics,attribute connection-count",
)

CONNECTIONS_CLOSED: Final = DEFINED.counter(
    "regnum.server.connections.closed",
    "{connections}",
    "Connections closed because there were too many: at the listener, or from one address",
    labels=("listener", "reason"),
)

CERTIFICATE_EXPIRY: Final = DEFINED.gauge(
    "regnum.tls.certificate.expiry.time",
    "s",
    "When the certificate in use at a listener, or one between it and its authority, expires: seconds since 1970",
    labels=("listener",),
)

PROCESSES_TOLD_APART: Final = DEFINED.gauge(
    "regnum.process.roles.mapped",
    "{processes}",
    "1 where rules say which process a certificate stands for; at 0 any process may speak for any client",
)

HANDSHAKE_FAILURES: Final = DEFINED.counter(
    "regnum.tls.handshake.failures",
    "{handshakes}",
    "TLS handshakes of this process that failed, by reason, as far as gRPC tells of them: no_certificate, "
    "certificate_not_trusted, certificate_expired, not_tls, no_common_protocol, ended_by_peer, other",
    labels=("reason",),
)

COLLECTION_PAUSES: Final = DEFINED.histogram(
    "regnum.gc.pause",
    "s",
    "Time that a garbage collection held all threads, by generation: 2 is a full one",
    labels=("generation",),
    bounds=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
)

AUDIT_LINES: Final = DEFINED.counter(
    "regnum.audit.lines",
    "{lines}",
    "Lines written to the audit log, by event: mutated, denied, unauthenticated, or missed (a line that says how many "
    "are not there); and by where they went: file, stdout, otlp",
    labels=("event", "destination"),
)

AUDIT_DROPPED: Final = DEFINED.counter(
    "regnum.audit.dropped",
    "{lines}",
    "Lines that are missing in the audit log: queue (the destination was too slow) or disk (it took none; a pipe or a "
    "collector likewise); by destination: file, stdout, otlp",
    labels=("reason", "destination"),
)

ACL_DENIALS: Final = DEFINED.counter(
    "regnum.acl.denials",
    "{decisions}",
    "Calls, or things that calls name, that access rules or the roles of processes denied; names left out of lists are"
    " none",
)

AUTHENTICATION_FAILURES: Final = DEFINED.counter(
    "regnum.authentication.failures",
    "{calls}",
    "Calls refused, and streams ended, because what they showed is not believed: a token that is wrong or has expired,"
    " a certificate without a principal, one that has expired or is revoked; by the error that they were told",
    labels=("listener", "reason"),
)

ACL_RULES: Final = DEFINED.gauge(
    "regnum.acl.rules",
    "{rules}",
    "Access rules that this process decides by",
)

ACLS_READ: Final = DEFINED.gauge(
    "regnum.acl.loaded",
    "{processes}",
    "1 where the access rules have been read from the store; at 0 only super users pass",
)

ACL_PATTERNS_UNREADABLE: Final = DEFINED.gauge(
    "regnum.acl.patterns.unreadable",
    "{patterns}",
    "Resource patterns whose rules cannot be read in the store: what they are about is denied to all but super users",
)

BUILD: Final = DEFINED.gauge(
    "regnum.build.info",
    "{processes}",
    "1, with the version and the commit that the process is of; the commit is unknown where it was not recorded",
    labels=("version", "commit"),
)
