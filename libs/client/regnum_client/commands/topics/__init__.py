"""What commands have in common that a quota of changes may keep waiting: options, notes, failures of each topic."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from regnum_client.commands.invocation import CommandFailedError, Output, completed, failure_of, note
from regnum_client.commands.rendering import emit_failure

if TYPE_CHECKING:
    from regnum_client.admin.carrying.topic_mutation import Waiting

QuotaWaitOption = Annotated[
    float | None,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0.1,
        help="Where a quota refuses, try again for so long, besides --timeout. Default: not at all (exit status 6).",
    ),
]
ClientIdOption = Annotated[
    str | None, typer.Option("--client-id", metavar="ID", help="Name of the caller, to which quotas may apply.")
]
NamesArgument = Annotated[
    list[str], typer.Argument(metavar="TOPIC...", autocompletion=completed("topics"), help="Names of topics.")
]

NOTE_EVERY_MS: Final = 2_000
"""Waiting that goes by between two notes of it."""


class WaitNotes:
    """Says now and then that topics wait for a quota."""

    def __init__(self) -> None:
        self._silent_ms = NOTE_EVERY_MS

    def note(self, waiting: "Waiting") -> None:
        """A wait begins."""
        if self._silent_ms >= NOTE_EVERY_MS:
            note(f"{waiting.done} done, {waiting.waiting} wait for the quota of changes")
            self._silent_ms = 0
        self._silent_ms += waiting.wait_ms


def raise_failures(answers: Mapping[str, object], output: Output, *, tolerated: str) -> None:
    """Show all failures but the last, and end with that one."""
    failures = [failure_of(answer) for answer in answers.values() if isinstance(answer, BaseException)]
    counted = [failure for failure in failures if failure.code != tolerated]
    for failure in counted[:-1]:
        emit_failure(failure, output)
    if counted:
        raise CommandFailedError(counted[-1])
