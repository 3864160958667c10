"""`regnum quotas top`: who uses quotas, of changes, of bytes and of time, and who waits."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from regnum_client.commands.invocation import (
    TIMEOUT_S,
    BootstrapOption,
    DebugOption,
    Output,
    OutputOption,
    TimeoutOption,
    note,
    run,
    wrong_use,
)
from regnum_client.commands.quotas.client_usage import COLUMNS as CLIENT_COLUMNS
from regnum_client.commands.quotas.client_usage import cells_of, documents_of, silent_of, summary_of, usages_of
from regnum_client.commands.rendering import cell_of, emit_one, emit_rows, title_of

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.describing.quota_usage import ClientUsage, QuotaUsage, QuotaUsages
    from regnum_client.commands.quotas.client_usage import Said

COLUMNS: Final = ("whose", "rate", "refused", "limit", "tokens", "burst", "wait_s", "idle_s")
LOOKED_AT_MAX: Final = 5_000
"""Buckets that one answer brings at most; the order is made of all of them."""
NAME_LENGTH: Final = 40
"""Characters of a user or client id in the table; callers choose them."""


class Order(StrEnum):
    """What stands first."""

    WAIT = "wait"
    """Who waits longest, then who uses most."""
    RATE = "rate"
    """Who creates and deletes most."""
    REFUSED = "refused"
    """Who is refused most."""
    TOKENS = "tokens"
    """Who has the fewest tokens."""


def top(
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=LOOKED_AT_MAX, help="Show so many of them.")] = 20,
    order: Annotated[Order, typer.Option("--by", help="What stands first.")] = Order.WAIT,
    interval: Annotated[
        float | None,
        typer.Option("--interval", metavar="SECONDS", min=0.2, help="Look again so often. Default: 2 at a terminal."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once; that is also what -o json and a pipe do.")] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show use of quotas of changes, bytes and time, and throttled clients, live until Ctrl-C."""
    if once and interval is not None:
        raise wrong_use("--once looks once, and --interval says how often; give one of them")
    if interval is not None and output in {Output.JSON, Output.YAML}:
        raise wrong_use("--interval never ends, and a document of that form does; use -o jsonl or table")

    async def work() -> None:
        import os  # noqa: PLC0415
        import sys  # noqa: PLC0415

        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        live = output is Output.TABLE and sys.stdout.isatty() and not once and os.environ.get("TERM") != "dumb"
        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            if live or interval is not None:
                await _go_on(admin, limit, order, output, interval or 2.0, live=live)
                return
            _show(*await _ask(admin), limit, order, output)

    run(work())


async def _go_on(admin: Any, limit: int, order: Order, output: Output, interval_s: float, *, live: bool) -> None:
    import asyncio  # noqa: PLC0415

    if not live:
        while True:
            _show(*await _ask(admin), limit, order, output)
            await asyncio.sleep(interval_s)
    from rich.live import Live  # noqa: PLC0415 - a tenth of a second

    with Live(auto_refresh=False, screen=True) as screen:
        while True:
            screen.update(_screen(*await _ask(admin), limit, order), refresh=True)
            await asyncio.sleep(interval_s)


async def _ask(admin: "Admin") -> "tuple[QuotaUsages, Said]":
    import asyncio  # noqa: PLC0415

    return await asyncio.gather(admin.describe_quota_usage(LOOKED_AT_MAX), admin.describe_client_usage())


def _show(usages: "QuotaUsages", said: "Said", limit: int, order: Order, output: Output) -> None:
    if output is Output.TABLE:
        emit_rows([_cells(one) for one in _first(usages, limit, order)], output, columns=COLUMNS)
        emit_rows([cells_of(one, whose(one)) for one in usages_of(said)[:limit]], output, columns=CLIENT_COLUMNS)
        note(f"{summary(usages)}; {summary_of(said)}")
        return
    emit_one(document_of(usages, said, limit, order), output)


def document_of(usages: "QuotaUsages", said: "Said", limit: int, order: Order) -> dict[str, Any]:
    """All of it for machines."""
    return {
        "quota_id": usages.quota_id,
        "buckets": usages.buckets,
        "muted_connections": usages.muted_connections,
        "held_calls": usages.held_calls,
        "usages": [
            {
                "user": one.user,
                "client_id": one.client_id,
                "mutation_rate": one.mutation_rate,
                "refused_rate": one.refused_rate,
                "limit_rate": one.limit_rate,
                "limit_burst": one.limit_burst,
                "tokens": one.tokens,
                "throttle_s": one.throttle_s,
                "idle_s": one.idle_s,
            }
            for one in _first(usages, limit, order)
        ],
        "client_usages": documents_of(usages_of(said)[:limit]),
        "brokers_silent": silent_of(said),
    }


def summary(usages: "QuotaUsages") -> str:
    """Who decides and who waits, in a sentence."""
    decides = (
        "no quota process answers: the controller decides"
        if usages.quota_id is None
        else f"quota process {usages.quota_id} decides"
    )
    waits = f"{usages.muted_connections} connections have to wait, with {usages.held_calls} calls, at the controller"
    return f"{decides}; {usages.buckets} buckets in use; {waits}"


def _first(usages: "QuotaUsages", limit: int, order: Order) -> "Sequence[QuotaUsage]":
    def rank(one: "QuotaUsage") -> tuple[float, float]:
        match order:
            case Order.WAIT:
                return -one.throttle_s, -one.mutation_rate
            case Order.RATE:
                return -one.mutation_rate, -one.throttle_s
            case Order.REFUSED:
                return -one.refused_rate, -one.throttle_s
            case Order.TOKENS:
                return one.tokens, -one.mutation_rate

    return sorted(usages.usages, key=rank)[:limit]


def _cells(one: "QuotaUsage") -> dict[str, Any]:
    known = one.idle_s is not None
    return {
        "whose": whose(one),
        "rate": f"{one.mutation_rate:.1f}" if known else None,
        "refused": f"{one.refused_rate:.1f}" if known else None,
        "limit": f"{one.limit_rate:g}",
        "tokens": f"{one.tokens:.1f}",
        "burst": f"{one.limit_burst:g}",
        "wait_s": f"{one.throttle_s:.1f}" if one.throttle_s else None,
        "idle_s": f"{one.idle_s:.0f}" if one.idle_s is not None else None,
    }


def whose(one: "QuotaUsage | ClientUsage") -> str:
    """Whose bucket it is. Callers choose these names: nothing of them reaches the terminal but what can be printed."""
    parts = [
        f"{kind} {_printable(name) if name else '(unnamed)'}"
        for kind, name in (("user", one.user), ("client id", one.client_id))
        if name is not None
    ]
    return ", ".join(parts) or "the cluster"


def _printable(name: str) -> str:
    shown = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name[:NAME_LENGTH])
    return f"{shown}..." if len(name) > NAME_LENGTH else shown


def _screen(usages: "QuotaUsages", said: "Said", limit: int, order: Order) -> Any:
    from rich.console import Group  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    def table(columns: Sequence[str], rows: Sequence[tuple[dict[str, Any], float]]) -> Table:
        titles = [title_of(column).upper() for column in columns]
        shown = Table(*titles, box=None, header_style="bold", pad_edge=False)
        for cells, wait_s in rows:
            shown.add_row(*(Text(cell_of(cells[column])) for column in columns), style="red" if wait_s else "")
        return shown

    changes = [(_cells(one), one.throttle_s) for one in _first(usages, limit, order)]
    clients = [(cells_of(one, whose(one)), one.wait_s) for one in usages_of(said)[:limit]]
    head = Text(f"{summary(usages)}; {summary_of(said)}; Ctrl-C ends", style="bold")
    below = (Text(""), table(CLIENT_COLUMNS, clients)) if clients else ()
    return Group(head, table(COLUMNS, changes), *below)
