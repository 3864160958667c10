"""Quotas of bytes and of time, which each broker measures by itself: who uses them, and who waits, for `quotas top`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from regnum_client.admin.reassignment.wording import counted
from regnum_client.commands.status.figures import size

if TYPE_CHECKING:
    from regnum_service.errors import RegnumError

    from regnum_client.admin.describing.quota_usage import ClientUsage

    Said = Mapping[int, "tuple[ClientUsage, ...] | RegnumError"]

COLUMNS: Final = ("whose", "quota", "broker", "rate", "limit", "wait_s", "idle_s")


def usages_of(said: "Said") -> "list[ClientUsage]":
    """All that brokers say: who waits longest stands first, then who is nearest to its limit."""
    found = [one for some in said.values() if isinstance(some, tuple) for one in some]
    return sorted(found, key=lambda one: (-one.wait_s, -one.rate / one.limit if one.limit else 0.0))


def documents_of(usages: "Sequence[ClientUsage]") -> list[dict[str, Any]]:
    """For machines."""
    return [
        {
            "broker": one.broker,
            "quota": one.quota,
            "user": one.user,
            "client_id": one.client_id,
            "rate": one.rate,
            "limit": one.limit,
            "throttle_s": one.wait_s,
            "idle_s": one.idle_s,
        }
        for one in usages
    ]


def cells_of(one: "ClientUsage", whose: str) -> dict[str, Any]:
    """For people."""
    bytes_s = one.quota != "request_percentage"
    rate, limit = (f"{size(value)}/s" if bytes_s else f"{value:.1f} %" for value in (one.rate, one.limit))
    return {
        "whose": whose,
        "quota": one.quota,
        "broker": one.broker,
        "rate": rate,
        "limit": limit,
        "wait_s": f"{one.wait_s:.1f}" if one.wait_s else None,
        "idle_s": f"{one.idle_s:.0f}",
    }


def summary_of(said: "Said") -> str:
    """Who waits at brokers, and which of these do not say."""
    waiting = [one for one in usages_of(said) if one.wait_s]
    clients = len({(one.user, one.client_id) for one in waiting})
    words = f"at brokers {counted(clients, 'client')} {'has' if clients == 1 else 'have'} to wait"
    if waiting:
        words += f", {waiting[0].wait_s:.1f} s at most"
    silent = silent_of(said)
    return words + (f"; brokers {silent} do not say who does" if silent else "")


def silent_of(said: "Said") -> list[int]:
    """Brokers that do not answer, or are of a release that does not know the question."""
    return sorted(id for id, some in said.items() if not isinstance(some, tuple))
