"""`regnum console`: pages of the cluster in a browser."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from regnum_client.commands.console.spans import OtlpOption, TracesDirOption
from regnum_client.commands.invocation import (
    BootstrapOption,
    CommandFailedError,
    DebugOption,
    Failure,
    Output,
    OutputOption,
    note,
    run,
    wrong_use,
)
from regnum_client.commands.rendering import emit_one


def add_to(app: typer.Typer) -> None:
    """Hang the command into the command line."""
    app.command("console")(console)


def console(
    *,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="Where to listen; beyond this machine with a certificate.")
    ] = ("127.0.0.1"),
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="Default: 8090, or another one that is free."),
    ] = None,
    traces: TracesDirOption = None,
    otlp: OtlpOption = None,
    writes: Annotated[
        bool, typer.Option("--writes", help="Records may be produced from the pages. Default: nothing is changed.")
    ] = False,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            "--mask",
            metavar="TOPIC=PART",
            help="Mask what no page may show of a topic's records: value, key, headers, field:NAME of JSON values or "
            "header:NAME; * in TOPIC stands for any text. May stand more than once.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--serve-certificate",
            metavar="FILE",
            help="Speak TLS with this certificate, and have each visitor sign in: needed beyond this machine.",
        ),
    ] = None,
    key: Annotated[Path | None, typer.Option("--serve-key", metavar="FILE", help="Key of the certificate.")] = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    _debug: DebugOption = False,
) -> None:
    """Serve the console, for a browser, with the rights of this command; with a certificate, of each visitor."""

    async def work() -> None:
        check_installed()
        from regnum_console.records.masking import mask_of  # noqa: PLC0415 - only this command needs a web server
        from regnum_console.serving import Options, serve  # noqa: PLC0415
        from regnum_service.tls.files import TlsFiles  # noqa: PLC0415 - and gRPC, which no command of files loads

        def ready(address: str) -> None:
            if output is Output.TABLE:
                typer.echo(address)
                note("Open it in a browser. Ctrl-C ends it.")
            else:
                emit_one({"address": address}, output)

        try:
            masks = tuple(map(mask_of, mask or ()))
        except ValueError as error:
            raise wrong_use(f"--mask {error}") from None
        folder = traces if traces is not None or bootstrap is not None or otlp is not None else _traces_here()
        served_with = None if certificate is None and key is None else TlsFiles(certificate=certificate, key=key)
        options: Options = Options(
            bootstrap=bootstrap,
            host=host,
            port=port,
            traces=folder,
            otlp=otlp,
            writes=writes,
            masks=masks,
            served_with=served_with,
        )
        await serve(options, ready=ready)

    run(work())


def check_installed(find: Callable[[str], object | None] = find_spec) -> None:
    """Raise CommandFailedError where the libraries of the console are not installed, as ``find`` finds them."""
    if absent := [name for name in ("starlette", "uvicorn") if find(name) is None]:
        message = f"the console needs {' and '.join(absent)}: install them with `pip install 'regnum[console]'`"
        raise CommandFailedError(Failure(code="LIBRARY_MISSING", message=message, exit_status=1, metadata={}))


def _traces_here() -> Path | None:
    """Traces of the cluster that the profile names."""
    from regnum_local.plan import TRACES  # noqa: PLC0415
    from regnum_local.profile import read_profile  # noqa: PLC0415

    profile = read_profile()
    return None if profile is None or not profile.is_current() else profile.data_dir / TRACES
