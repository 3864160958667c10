"""`regnum certs`: certificates for trying TLS out."""

from pathlib import Path
from typing import Annotated, Final

import typer

from regnum_client.commands.habits.grammar import Group
from regnum_client.commands.invocation import (
    CommandFailedError,
    DebugOption,
    Failure,
    Output,
    OutputOption,
    note,
    run,
)
from regnum_client.commands.rendering import emit_rows

DIR: Final = Path("regnum-certs")
COLUMNS: Final = ("file", "what")


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line."""
    certs = typer.Typer(cls=Group, name="certs", help="Certificates for trying TLS out.", no_args_is_help=True)
    certs.command("init")(init)
    app.add_typer(certs, name="certs")


def init(
    *,
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Folder for certificates and keys.")] = DIR,
    brokers: Annotated[int, typer.Option("--brokers", min=0, help="Number of brokers.")] = 3,
    elections: Annotated[int, typer.Option("--elections", min=0, help="Number of election processes.")] = 3,
    metadata: Annotated[int, typer.Option("--metadata", min=0, help="Number of metadata processes.")] = 2,
    quotas: Annotated[int, typer.Option("--quotas", min=0, help="Number of quota processes.")] = 1,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="Name or IP address of the processes' machines; may repeat."),
    ] = None,
    client: Annotated[
        list[str] | None, typer.Option("--client", metavar="NAME", help="Client with a certificate; may repeat.")
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=3_650, help="Days for which certificates are valid.")] = 365,
    output: OutputOption = Output.TABLE,
    _debug: DebugOption = False,
) -> None:
    """Make authorities, a certificate for each process and one for each client. For development only."""
    counts = {"election": elections, "metadata": metadata, "quota": quotas, "broker": brokers}
    processes = [f"{role}-{number}" for role, count in counts.items() for number in range(1, count + 1)]
    folder = directory.absolute()

    async def work() -> list[Path]:
        try:
            from regnum_local.certificates import ADMIN, HOSTS, make  # noqa: PLC0415
        except ImportError as error:
            raise CommandFailedError(
                Failure(
                    code="LIBRARY_MISSING",
                    message=f"certificates cannot be made here ({error}); install regnum[services]",
                    exit_status=1,
                    metadata={},
                )
            ) from error
        return make(
            folder, processes, hosts=(*HOSTS, *(host or ())), clients=tuple(dict.fromkeys(client or [ADMIN])), days=days
        )

    files = run(work())
    emit_rows([{"file": str(path), "what": _what(path)} for path in files], output, columns=COLUMNS)
    note("\nKeys have mode 0600; cluster-ca.key and client-ca.key can make any identity. Next, for each process:")
    note(f"  --internal-tls-certificate {folder}/NAME.pem --internal-tls-key {folder}/NAME.key \\")
    note(f"  --internal-tls-ca {folder}/cluster-ca.pem, and with a listener for clients \\")
    note(f"  --client-tls-certificate {folder}/NAME.pem --client-tls-key {folder}/NAME.key \\")
    note(f"  --client-tls-ca {folder}/client-ca.pem --client-tls-client-auth required")
    note("and for each client:")
    note(f"  regnum --tls-ca {folder}/cluster-ca.pem --tls-certificate {folder}/client-NAME.pem \\")
    note(f"    --tls-key {folder}/client-NAME.key --bootstrap ...   (or REGNUM_TLS_CA, _CERTIFICATE and _KEY)")
    note("`regnum up --tls` does all of this by itself for a cluster on this machine.")


def _what(path: Path) -> str:
    kind = "key" if path.suffix == ".key" else "certificate"
    if path.stem.endswith("-ca"):
        return f"authority of {path.stem.removesuffix('-ca')} certificates: {kind}"
    return f"{path.stem}: {kind}"
