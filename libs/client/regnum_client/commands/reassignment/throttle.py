"""`--throttle` of commands that move partitions: set before anything moves, taken back when all has arrived."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from regnum_client.commands.invocation import CommandFailedError, note

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.reassignment.throttle import Rates

LEAST: Final = 1_000
"""Smallest rate that the cluster takes; a test holds it against the setting."""

ThrottleOption = Annotated[
    int | None,
    typer.Option(
        "--throttle",
        metavar="BYTES_PER_S",
        min=LEAST,
        max=10**12,
        help="Throttle of all reassignments: bytes a second that each broker sends, and receives. "
        "Removed when the command has waited until all is done.",
    ),
]


class Throttled:
    """The throttle of one command; without a rate it does nothing."""

    def __init__(self, rate: int | None, *, quiet: bool) -> None:
        self._rate = None if rate is None else str(rate)
        self._quiet = quiet
        self._before: Rates | None = None

    @property
    def wanted(self) -> bool:
        """Whether there is a rate."""
        return self._rate is not None

    async def begin(self, admin: "Admin") -> None:
        """Set both rates of the cluster, once. Raises RegnumError."""
        if self._rate is None or self._before is not None:
            return
        from regnum_client.admin.configs import CLUSTER_CONFIG, ConfigAlteration  # noqa: PLC0415 - gRPC is loaded
        from regnum_client.admin.reassignment.throttle import RATES, rates_of  # noqa: PLC0415

        before = rates_of(await admin.describe_config(CLUSTER_CONFIG))
        # From here on: a call that is broken off may have been carried out.
        self._before = before
        await admin.alter_config(
            ConfigAlteration(resource=CLUSTER_CONFIG, set=dict.fromkeys(RATES, self._rate)), validate_only=False
        )
        self._say(f"every broker sends, and takes, {self._rate} bytes a second at most for what moves (--throttle)")

    async def end(self, admin: "Admin") -> None:
        """All has arrived: the rates are what they were, where nobody else has changed them. Raises RegnumError."""
        if self._rate is None or self._before is None:
            return
        from regnum_client.admin.configs import CLUSTER_CONFIG, ConfigAlteration  # noqa: PLC0415 - gRPC is loaded
        from regnum_client.admin.reassignment.throttle import command_of, rates_of, taken_back  # noqa: PLC0415

        before, now = self._before, rates_of(await admin.describe_config(CLUSTER_CONFIG))
        due = taken_back(before, ours=self._rate, now=now)
        if due.back:
            alteration = ConfigAlteration(
                resource=CLUSTER_CONFIG,
                set={name: rate for name, rate in due.back.items() if rate is not None},
                delete=[name for name, rate in due.back.items() if rate is None],
            )
            await admin.alter_config(alteration)
        self._before = None
        if due.foreign:
            changed = ", ".join(f"{name}={rate}" for name, rate in due.foreign.items())
            self._say(f"another caller has changed the throttle meanwhile; it stays: {changed}")
        left = {name: None for name, rate in before.items() if rate not in {None, "0"} and name not in due.foreign}
        if left:
            self._say(
                "the throttle is what it was before, "
                + ", ".join(f"{name}={before[name]}" for name in left)
                + f"; `{command_of(left)}` takes it away"
            )
        elif not due.foreign:
            self._say("the throttle is taken back")

    def how_back(self) -> str:
        """How to take the throttle back, as a sentence; empty: there is nothing to take back."""
        if self._before is None:
            return ""
        from regnum_client.admin.reassignment.throttle import command_of  # noqa: PLC0415 - gRPC is loaded by then

        before = self._before
        if all(rate == self._rate for rate in before.values()):
            before = dict.fromkeys(before)
        return f"The throttle stays until `{command_of(before)}`"

    def with_how_back(self, error: CommandFailedError) -> CommandFailedError:
        """The same failure, which says as well how to take the throttle back, where there is one."""
        if self._before is None:
            return error
        failure = error.failure
        return CommandFailedError(replace(failure, message=f"{failure.message.rstrip('.')}. {self.how_back()}"))

    def say_how_back(self) -> None:
        """Tell people how to take the throttle back, where there is one."""
        if self._before is not None:
            self._say(self.how_back())

    def _say(self, text: str) -> None:
        if not self._quiet:
            note(text)
