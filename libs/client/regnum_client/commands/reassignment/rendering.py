"""Plans and open reassignments as people and programs see them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from regnum_client.commands.invocation import CommandFailedError, Output, failure_of, wrong_use
from regnum_client.commands.rendering import emit_failure, emit_rows

if TYPE_CHECKING:
    from regnum_service.errors import RegnumError

    from regnum_client.admin.reassignment.plan import PlannedMove
    from regnum_client.admin.reassignment.values import OngoingReassignment

PLAN_COLUMNS: Final = ("topic", "partition", "before", "after", "added")
ONGOING_COLUMNS: Final = ("topic", "partition", "phase", "percent", "bytes_done", "bytes_total", "target", "waits_for")


def emit_plan(moves: "Sequence[PlannedMove]", output: Output, *, empty: str = "nothing has to move") -> None:
    """A plan; ``empty`` tells people why there is nothing in it."""
    rows = [
        {
            "topic": move.topic,
            "partition": move.partition,
            "before": list(move.before),
            "after": list(move.after),
            "added": list(move.added),
        }
        for move in moves
    ]
    emit_rows(rows, output, columns=PLAN_COLUMNS, empty=empty)


def emit_ongoing(found: "Sequence[OngoingReassignment]", output: Output) -> None:
    """Open reassignments."""
    rows = [_row(one) for one in found]
    emit_rows(rows, output, columns=ONGOING_COLUMNS, empty="no partition is being reassigned")


def _row(one: "OngoingReassignment") -> dict[str, Any]:
    percent = one.percent
    return {
        "topic": one.topic,
        "partition": one.partition,
        "phase": one.phase,
        "percent": None if percent is None else round(percent, 1),
        "bytes_done": one.bytes_done,
        "bytes_total": one.bytes_total,
        "replicas": list(one.replicas),
        "origin": list(one.origin),
        "target": list(one.target),
        "leader": one.leader,
        "isr": list(one.isr),
        "since_ms": one.since_ms,
        "waits_for": one.waits_for or None,
        "added": [
            {
                "broker": replica.broker,
                "live": replica.live,
                "in_sync": replica.in_sync,
                "log_end_offset": replica.log_end_offset,
                "bytes": replica.bytes,
            }
            for replica in one.added
        ],
    }


def raise_failures(outcomes: "Mapping[tuple[str, int], RegnumError | None]", output: Output) -> None:
    """Show all failures but the last, and end with that one."""
    failures = [failure_of(error) for error in outcomes.values() if error is not None]
    for failure in failures[:-1]:
        emit_failure(failure, output)
    if failures:
        raise CommandFailedError(failures[-1])


def names_of(text: str | None) -> list[str]:
    """Names from a list with commas."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def ids_of(text: str | None) -> list[int]:
    """Broker ids from a list with commas. Raises CommandFailedError."""
    ids: list[int] = []
    for part in names_of(text):
        if not part.isascii() or not part.isdigit():
            raise wrong_use(f"{part!r} is not a broker id; give numbers with commas, such as 4,5")
        ids.append(int(part))
    if len(set(ids)) != len(ids):
        raise wrong_use("a broker is named twice; name each once")
    return ids


def place_of(text: str) -> tuple[str, int]:
    """Topic and partition from TOPIC/PARTITION. Raises CommandFailedError."""
    topic, slash, number = text.rpartition("/")
    if not slash or not topic or not number.isascii() or not number.isdigit():
        raise wrong_use(f"{text!r} is not TOPIC/PARTITION, such as orders/0")
    return topic, int(number)
