"""Quotas: which there are, who uses them, and who has to wait."""

import asyncio

from regnum_client.admin.describing.quota_usage import ClientUsage, QuotaUsages
from regnum_client.commands.status.figures import size
from regnum_service.errors import RegnumError
from starlette.requests import Request
from starlette.responses import Response

from regnum_console.context import Context, told, untold
from regnum_console.html import Child, Markup, el, table
from regnum_console.pages.layout import page

SHOWN = 200
"""Rows of each table."""


async def show(context: Context, _request: Request) -> Response:
    """``/quotas``."""
    cluster = context.ports.cluster
    usages, clients, limits = await asyncio.gather(
        told(cluster.describe_quota_usage(SHOWN)),
        told(cluster.describe_client_usage()),
        told(cluster.describe_client_quotas()),
    )
    unknown: list[Child] = []
    some: list[ClientUsage] = []
    if isinstance(clients, RegnumError):
        unknown.append(untold("What clients use is not known", clients))
    else:
        for broker, used in clients.items():
            if isinstance(used, RegnumError):
                unknown.append(untold(f"Broker {broker} does not say what clients use", used))
            else:
                some += used
    set_ = (
        untold("Which quotas there are is not known", limits)
        if isinstance(limits, RegnumError)
        else table(
            ("Whose", "Limits"),
            [
                [
                    _whose(str(one.entity.user) if one.entity.user is not None else None, _text(one.entity.client_id)),
                    ", ".join(f"{name} {value:g}" for name, value in sorted(one.values.items())),
                ]
                for one in limits[:SHOWN]
            ],
            empty="No quota is set.",
        )
    )
    return page(
        context,
        "Quotas",
        el("h2", "Who waits at brokers"),
        unknown,
        clients_table(some),
        el("h2", "Who creates and deletes partitions"),
        untold("Who uses quotas of mutations is not known", usages)
        if isinstance(usages, RegnumError)
        else mutations_table(usages),
        el("h2", "Quotas that are set"),
        set_,
        here="/quotas",
    )


def clients_table(usages: list[ClientUsage]) -> Markup:
    """Those that wait longest first. Pure."""
    ordered = sorted(usages, key=lambda one: (-one.wait_s, one.idle_s, one.broker))
    rows = [
        [
            _whose(one.user, one.client_id),
            one.quota,
            one.broker,
            _amount(one.quota, one.rate),
            _amount(one.quota, one.limit),
            el("span", f"{one.wait_s:.1f} s", class_="bad") if one.wait_s > 0 else "-",
        ]
        for one in ordered[:SHOWN]
    ]
    columns = ("Whose", "Quota", "Broker", "Uses", "May", "Waits")
    return table(columns, rows, empty="No client uses a quota of bytes or of time.", caption="Clients", numbers=3)


def mutations_table(usages: QuotaUsages) -> Markup:
    """Those that wait longest first. Pure."""
    ordered = sorted(usages.usages, key=lambda one: (-one.throttle_s, -one.refused_rate))
    rows = [
        [
            _whose(one.user, one.client_id),
            f"{one.mutation_rate:.2f}/s",
            f"{one.refused_rate:.2f}/s",
            f"{one.limit_rate:g}/s, {one.limit_burst:g} at once",
            f"{one.tokens:.1f}",
            el("span", f"{one.throttle_s:.1f} s", class_="bad") if one.throttle_s > 0 else "-",
        ]
        for one in ordered
    ]
    columns = ("Whose", "Done", "Refused", "May", "Tokens", "Waits")
    return table(columns, rows, empty="Nothing was created or deleted under a quota of late.", numbers=5)


def _whose(user: str | None, client_id: str | None) -> str:
    parts = [f"user {user}" if user is not None else "", f"client {client_id}" if client_id is not None else ""]
    return ", ".join(part for part in parts if part) or "the cluster"


def _text(subject: object) -> str | None:
    return None if subject is None else str(subject)


def _amount(quota: str, value: float) -> str:
    return f"{value:.1f} %" if quota == "request_percentage" else f"{size(value)}/s"
