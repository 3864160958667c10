"""`regnum tokens`: delegation tokens. What proves one is shown once, or written to a file of its owner's."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from regnum_client.commands.habits.grammar import Group
from regnum_client.commands.invocation import (
    CLIENT_ID,
    TIMEOUT_S,
    BootstrapOption,
    ClientIdOption,
    DebugOption,
    Output,
    OutputOption,
    TimeoutOption,
    note,
    run,
)
from regnum_client.commands.rendering import emit_one, emit_rows

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.tokens.views import DelegationTokenView, NewDelegationToken

COLUMNS: Final = ("token_id", "owner", "renewers", "expires", "ends")
MODE: Final = 0o600

IdArgument = Annotated[str, typer.Argument(metavar="TOKEN_ID", help="Id of the token, as `regnum tokens list` shows.")]


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line."""
    group = typer.Typer(
        cls=Group, no_args_is_help=True, help="Delegation tokens: calls that show one are their owner's, over TLS."
    )
    group.command("create")(create)
    group.command("renew")(renew)
    group.command("expire")(expire)
    group.command("list")(list_tokens)
    app.add_typer(group, name="tokens")
    app.add_typer(group, name="token", hidden=True)


def create(
    *,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Write the token's credential there (0600), and do not show it."),
    ] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="User:NAME", help="Owner of the token. Default: the caller.")
    ] = None,
    renewer: Annotated[
        list[str] | None, typer.Option("--renewer", metavar="User:NAME", help="May renew and end it; may repeat.")
    ] = None,
    max_life_s: Annotated[
        float | None,
        typer.Option("--max-life", metavar="SECONDS", min=1.0, help="How long it lives. Default: as the cluster says."),
    ] = None,
    output: OutputOption = Output.TABLE,
    client_id: ClientIdOption = CLIENT_ID,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Make a token. Its credential is shown this once, and cannot be shown again."""
    # Made before the token: one that nobody could keep would live all the same.
    descriptor = None if file is None else os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
    done = False

    async def work() -> "NewDelegationToken":
        async with _admin(bootstrap, timeout, client_id) as admin:
            return await admin.create_delegation_token(owner=owner, renewers=renewer or (), max_lifetime_s=max_life_s)

    try:
        made = run(work())
        if descriptor is not None:
            with os.fdopen(os.dup(descriptor), "w", encoding="ascii") as keep:
                keep.write(f"{made.credential}\n")
        done = True
    finally:
        if descriptor is not None:
            os.close(descriptor)
            if not done and file is not None:
                file.unlink(missing_ok=True)
    row = _row(made.token)
    if file is None:
        row["credential"] = made.credential
        note("the credential is a secret, and is shown this once; keep it in a file of mode 0600")
    else:
        row["file"] = str(file)
    emit_one(row, output)


def renew(
    token_id: IdArgument,
    *,
    period_s: Annotated[
        float | None,
        typer.Option("--for", metavar="SECONDS", min=0.0, help="For how long from now. Default: as the cluster says."),
    ] = None,
    output: OutputOption = Output.TABLE,
    client_id: ClientIdOption = CLIENT_ID,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Let a token live longer, never beyond its end."""

    async def work() -> int:
        async with _admin(bootstrap, timeout, client_id) as admin:
            return await admin.renew_delegation_token(token_id, period_s=period_s)

    emit_one({"token_id": token_id, "expires": _time(run(work()))}, output)


def expire(
    token_id: IdArgument,
    *,
    period_s: Annotated[
        float | None, typer.Option("--in", metavar="SECONDS", min=0.0, help="In how long. Default: at once.")
    ] = None,
    output: OutputOption = Output.TABLE,
    client_id: ClientIdOption = CLIENT_ID,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """End a token: calls that show it are refused, and its streams end within a second."""

    async def work() -> int:
        async with _admin(bootstrap, timeout, client_id) as admin:
            return await admin.expire_delegation_token(token_id, period_s=period_s)

    emit_one({"token_id": token_id, "expires": _time(run(work()))}, output)


def list_tokens(
    *,
    owner: Annotated[
        list[str] | None,
        typer.Option("--owner", metavar="User:NAME", help="Only tokens that they own or may renew; may repeat."),
    ] = None,
    output: OutputOption = Output.TABLE,
    client_id: ClientIdOption = CLIENT_ID,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show tokens that the caller may see, without their credentials."""

    async def work() -> "tuple[DelegationTokenView, ...]":
        async with _admin(bootstrap, timeout, client_id) as admin:
            return await admin.describe_delegation_tokens(owner or ())

    emit_rows([_row(token) for token in run(work())], output, columns=COLUMNS, empty="no tokens")


def _admin(bootstrap: str | None, timeout: float | None, client_id: str) -> "Admin":
    from regnum_client.admin.admin import Admin  # noqa: PLC0415 - gRPC is loaded when there is something to do

    return Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id)


def _row(token: "DelegationTokenView") -> dict[str, Any]:
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": _time(token.issued_ms),
        "expires": _time(token.expiry_ms),
        "ends": _time(token.max_ms),
    }


def _time(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
