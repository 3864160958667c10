"""Reassignments: partitions on their way to other brokers, how far they are, and what they wait for."""

from collections.abc import Sequence
from typing import Final

from regnum_client.admin.reassignment.values import OngoingReassignment
from regnum_client.commands.looking.event_words import time_of
from regnum_client.commands.status.figures import size
from starlette.requests import Request
from starlette.responses import Response

from regnum_console.context import Context, ids, partition_link
from regnum_console.html import Markup, el, join, table
from regnum_console.pages.layout import area, page

SHOWN: Final = 200
"""Partitions that are shown."""
EVERY_S: Final = 2.0
"""How often the page looks again."""


async def show(context: Context, _request: Request) -> Response:
    """``/moves``."""
    return page(context, "Moves", area("moves", await _content(context)), here="/moves", live="/live/moves")


async def stream(context: Context, _request: Request) -> Response:
    """``/live/moves``."""
    changing = context.streams.changing("moves", lambda: _content(context), every_s=EVERY_S)
    return context.streams.answer(changing)


async def _content(context: Context) -> Markup:
    return content(await context.ports.cluster.list_partition_reassignments())


def content(moves: Sequence[OngoingReassignment]) -> Markup:
    """Moves as a table, those that wait for something first. Pure."""
    ordered = sorted(moves, key=lambda one: (not one.waits_for, one.since_ms, one.topic, one.partition))
    rows = [
        [
            partition_link(one.topic, one.partition),
            one.phase,
            ids(one.origin),
            ids(one.target),
            time_of(one.since_ms),
            one.waits_for or "-",
            f"{size(one.bytes_done)} of {'?' if one.bytes_total is None else size(one.bytes_total)}",
            "?" if one.percent is None else f"{one.percent:.0f} %",
        ]
        for one in ordered[:SHOWN]
    ]
    columns = ("Partition", "Phase", "From", "To", "Since", "Waits for", "Bytes", "Done")
    told = f"{len(moves):,} partitions move." + (f" The first {SHOWN} are shown." if len(moves) > SHOWN else "")
    listed = table(columns, rows, empty="No partition is on its way to other brokers.", numbers=2)
    return join([el("p", told, class_="quiet") if moves else None, listed])
