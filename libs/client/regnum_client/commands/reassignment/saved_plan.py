"""A plan in a file, as `-o json` wrote it: carried out later, or taken back."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regnum_client.commands.invocation import wrong_use

if TYPE_CHECKING:
    from collections.abc import Sequence

    from regnum_client.admin.reassignment.plan import PlannedMove


def read_plan(path: Path, *, back: bool) -> "Sequence[PlannedMove]":
    """The moves of a plan; ``back``: those that undo it. Raises CommandFailedError and OSError."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise wrong_use(
            f"there is no file {path}; write one with `regnum partitions reassign -o json > {path}`"
        ) from None
    except UnicodeDecodeError:
        raise _no_plan(path, "it is not text") from None
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise _no_plan(path, f"it is not JSON ({error})") from None
    if not isinstance(rows, list) or not rows:
        raise _no_plan(path, "it has no moves")
    moves = [_move(path, row, back=back) for row in rows]
    places = {(move.topic, move.partition) for move in moves}
    if len(places) < len(moves):
        raise _no_plan(path, "it names a partition twice")
    return moves


def _move(path: Path, row: Any, *, back: bool) -> "PlannedMove":
    from regnum_client.admin.reassignment.plan import PlannedMove  # noqa: PLC0415 - of no use to help

    match row:
        case {"topic": str(topic), "partition": int(number), "before": list(before), "after": list(after)} if (
            before and after and all(type(id) is int and id >= 0 for id in (number, *before, *after))
        ):
            first, then = (after, before) if back else (before, after)
            return PlannedMove(topic=topic, partition=number, before=tuple(first), after=tuple(then))
        case _:
            raise _no_plan(path, f"{json.dumps(row)[:100]} is no move: it has topic, partition, before and after")


def _no_plan(path: Path, why: str) -> Exception:
    return wrong_use(f"{path} is no plan: {why}; give a file that `regnum partitions reassign -o json` wrote")
