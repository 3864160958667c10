"""What brokers say of themselves, as rows: all of it for programs, what matters in short for people."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError, reason_of

if TYPE_CHECKING:
    from regnum_client.admin.health.figures import BrokerFigures, Figures
    from regnum_client.admin.health.views import HealthView

LINE_COLUMNS: Final = (
    *("broker", "leads", "replicas", "in", "out", "replication", "produce_p99", "refused_s"),
    *("logs", "disk_free", "memory", "files", "clients", "loop_lag", "metadata_lag", "uptime"),
)
"""Columns for people; ``in`` and ``out`` are records and bytes a second, ``replication`` bytes in and out."""

BROKERS_NAMED: Final = 20
"""Brokers with strays that a person is told of; programs hear of all."""

NO_ANSWER: Final = frozenset(
    {
        errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
        errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
        errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR,
    }
)
"""Why a broker told nothing that could. A caller without rights is refused, and a broker of 0.1.0 knows no figures."""

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def figure_rows(figures: "Figures", health: "HealthView | None") -> list[dict[str, Any]]:
    """Everything, for programs: one row for each broker that was asked, with ``error`` where it did not answer."""
    return [_row(id, one, health) for id, one in sorted(figures.items())]


def stray_totals(figures: "Figures") -> dict[str, Any] | None:
    """Logs that nobody knows, on all brokers that say so, and which do not; None: nobody was asked."""
    if not figures:
        return None
    said = {id: one for id, one in figures.items() if not isinstance(one, RegnumError) and one.strays is not None}
    return {
        "logs": sum(one.strays or 0 for one in said.values()),
        "size_bytes": sum(one.stray_bytes or 0 for one in said.values()),
        "brokers": sorted(id for id, one in said.items() if one.strays),
        "not_known_of_brokers": sorted(figures.keys() - said.keys()),
    }


def stray_line(totals: Mapping[str, Any] | None) -> str:
    """The same for people, where there are any; empty: there are none that anybody knows of."""
    if totals is None or not totals["logs"]:
        return ""
    ids = totals["brokers"]
    shown = ", ".join(map(str, ids[:BROKERS_NAMED])) + (", ..." if len(ids) > BROKERS_NAMED else "")
    return (
        f"strays: {totals['logs']} logs ({size(totals['size_bytes'])}) of topics or partitions that do not exist, on "
        f"brokers {shown}. They are kept, and not served: see `regnum brokers strays`"
    )


def without_controller(figures: "Figures") -> list[str]:
    """What brokers themselves say is wrong: for when no controller does. The same of several is said once."""
    said: dict[str, list[int]] = {}
    for id, one in sorted(figures.items()):
        if not isinstance(one, RegnumError):
            for trouble in filter(None, (one.store_trouble, one.refuses_writes_because)):
                said.setdefault(trouble, []).append(id)
    return [f"brokers {', '.join(map(str, ids))} say: {trouble}" for trouble, ids in said.items()]


def unanswered(figures: "Figures", health: "HealthView") -> list[str]:
    """Brokers that did not answer, and why: apart from those of which the controller says that they are away."""
    away = {one.id for one in health.brokers if not one.registered and one.replicas}
    return [
        f"broker {id} did not answer: {one.message}"
        for id, one in sorted(figures.items())
        if isinstance(one, RegnumError) and one.code in NO_ANSWER and id not in away
    ]


def _row(id: int, one: "BrokerFigures | RegnumError", health: "HealthView | None") -> dict[str, Any]:
    if isinstance(one, RegnumError):
        return {"broker": id, "error": f"{reason_of(one.code)}: {one.message}"}
    return {**asdict(one), "broker": id, "metadata_versions_behind": _behind(one, health), "error": None}


def _behind(one: "BrokerFigures", health: "HealthView | None") -> int | None:
    """Versions that the controller has published and the broker has not applied; None: of another reign, or unknown."""
    if health is None or one.metadata_epoch != health.controller_epoch:
        return None
    # The controller was asked after the broker, or a moment before.
    return max(0, health.metadata_version - one.metadata_version)


def line(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row for people."""
    if row["error"]:
        return {
            **dict.fromkeys(LINE_COLUMNS, ""),
            "broker": row["broker"],
            "leads": f"({row['error'].partition(':')[0]})",
        }
    p99_s, behind = row["produce_p99_s"], row["metadata_versions_behind"]
    return {
        "broker": row["broker"],
        "leads": row["leading"],
        "replicas": row["replicas"],
        "in": f"{row['produced_records_s']:.0f}/s {size(row['produced_bytes_s'])}/s",
        "out": f"{row['fetched_records_s']:.0f}/s {size(row['fetched_bytes_s'])}/s",
        "replication": f"{size(row['replicated_in_bytes_s'])}/s {size(row['replicated_out_bytes_s'])}/s",
        "produce_p99": "" if p99_s is None else f"{1000 * p99_s:.0f} ms",
        "refused_s": f"{row['refused_batches_s']:.1f}" if row["refused_batches_s"] else "",
        "logs": f"{size(row['log_bytes'])} in {row['log_segments']}",
        "disk_free": "" if row["disk_free_bytes"] is None else size(row["disk_free_bytes"]),
        "memory": size(row["resident_bytes"]),
        "files": row["open_files"],
        "clients": row["connections"],
        "loop_lag": f"{1000 * row['loop_lag_max_s']:.0f} ms",
        "metadata_lag": "?" if behind is None else behind,
        "uptime": span(row["uptime_s"]),
    }


def size(count: float) -> str:
    """Bytes in three digits: ``1.25 MB``."""
    for unit in _UNITS:
        if count < 999.5 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.5 else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError("the last unit takes all")


def span(seconds: float) -> str:
    """A time in its largest two units: ``3 d 4 h``."""
    whole = int(seconds)
    days, hours, minutes = whole // 86_400, whole // 3_600 % 24, whole // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
