"""`regnum load`."""

from typing import Annotated, Any, Final

import typer

from regnum_client.commands.invocation import (
    BootstrapOption,
    DebugOption,
    Output,
    OutputOption,
    completed,
    run,
    wrong_use,
)
from regnum_client.commands.looking.row_stream import RowStream

TOPIC_WAIT_S: Final = 1.0
"""How long a topic that no broker knows is waited for."""
DURATION_S: Final = 10.0
"""How long it goes on where no limit is given."""


def add_to(app: typer.Typer) -> None:
    """Hang the command into the command line."""
    app.command("load")(load)


def load(
    *,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", autocompletion=completed("topics"), help="Name of the topic; its records are random bytes."
        ),
    ],
    rate: Annotated[
        float, typer.Option("--rate", "-r", metavar="RECORDS", min=0, help="Records a second; 0: as fast as it goes.")
    ] = 1000.0,
    size: Annotated[
        int, typer.Option("--size", "-s", metavar="BYTES", min=1, max=16_000_000, help="Bytes of a value.")
    ] = 100,
    keys: Annotated[int, typer.Option("--keys", min=0, help="Different keys; 0: records have none.")] = 0,
    records: Annotated[int | None, typer.Option("--records", "-n", min=1, help="End after so many records.")] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            "--duration",
            "-d",
            metavar="SECONDS",
            min=0.1,
            help=f"End after so long. Default: {DURATION_S:g}, without --records.",
        ),
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.1, help="How often a line is shown.")
    ] = 1.0,
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0.")] = "all",
    compression: Annotated[str, typer.Option("--compression", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    linger_ms: Annotated[
        float, typer.Option("--linger-ms", min=0, help="How long a batch waits for more records.")
    ] = 5.0,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    _debug: DebugOption = False,
) -> None:
    """Send random records at a rate, and show how long the brokers take: from when a record is due until its ack."""
    acks_number: Any = {"all": -1, "-1": -1, "1": 1, "0": 0}.get(acks)
    if acks_number is None:
        raise wrong_use(f"--acks {acks!r} is none of all, 1 and 0")
    if compression not in {"none", "gzip", "snappy", "lz4", "zstd"}:
        raise wrong_use(f"--compression {compression!r} is no codec; give none, gzip, snappy, lz4 or zstd")
    codec: Any = compression

    async def work() -> None:
        import random  # noqa: PLC0415 - help is to be there at once

        from regnum_service.clock import SystemClock  # noqa: PLC0415

        from regnum_client.commands.load.figures import COLUMNS, for_people  # noqa: PLC0415
        from regnum_client.commands.load.generating import Generator, Plan  # noqa: PLC0415
        from regnum_client.producer.producer import Producer, ProducerSettings  # noqa: PLC0415

        settings = ProducerSettings(acks=acks_number, compression=codec, linger_ms=linger_ms, topic_wait_s=TOPIC_WAIT_S)
        plan = Plan(
            rate=rate,
            size_bytes=size,
            keys=keys,
            records_max=records,
            duration_s=DURATION_S if duration is None and records is None else duration,
            interval_s=interval,
        )
        stream = RowStream(output, columns=COLUMNS)

        def report(row: Any) -> None:
            stream.add([for_people(row) if output is Output.TABLE else row])

        async with Producer(bootstrap, settings=settings, client_id="regnum-load") as producer:
            await producer.check_topic(topic)
            generator = Generator(producer, topic, plan, clock=SystemClock(), chance=random.Random())
            try:
                await generator.run(report)
            finally:
                # Also where Ctrl-C ends it.
                report(generator.tally.total(generator.elapsed_s))
                stream.close()
        if generator.failure is not None:
            raise generator.failure

    run(work())
