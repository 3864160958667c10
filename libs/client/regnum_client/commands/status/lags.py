"""How far consumer groups are behind, for `regnum status --lag`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

LAG_COLUMNS: Final = ("group", "lag", "partitions", "unknown_partitions")
SHOWN_MAX: Final = 10
"""Groups that a person is shown, those furthest behind first; programs get all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lags:
    """What is known of them."""

    rows: tuple[Mapping[str, Any], ...] = ()
    """A group each, by LAG_COLUMNS; the one furthest behind first."""
    unknown_because: str = ""
    """Why it is not known; empty: it is."""
    asked: bool = field(default=True)
    """Whether lags were asked for."""

    @property
    def words(self) -> str:
        """Words for the first line; empty without a lag, or where lags were not asked for."""
        if not self.rows or not self.rows[0]["lag"]:
            return ""
        first = self.rows[0]
        return f"group {first['group']} is {first['lag']:,} records behind"


NOT_ASKED: Final = Lags(asked=False)


async def ask_lags(bootstrap: str | None, *, timeout_s: float, client_id: str) -> Lags:
    """Ask for the offsets of every group: a call for each of them, and two for each leader."""
    from regnum_service.errors import RegnumError  # noqa: PLC0415 - gRPC is loaded when there is something to do

    from regnum_client.admin.admin import Admin  # noqa: PLC0415
    from regnum_client.commands.groups.lags import lag_row, lags_by_group  # noqa: PLC0415

    try:
        async with Admin(bootstrap, timeout_s=timeout_s, client_id=client_id) as admin:
            lags = await lags_by_group(admin)
    except RegnumError as error:
        return Lags(unknown_because=error.message)
    rows = [{"group": name, **lag_row(lag)} for name, lag in lags.items()]
    return Lags(rows=tuple(sorted(rows, key=lambda row: (-row["lag"], row["group"]))))
