"""`regnum produce` and `regnum consume`."""

from typing import Annotated, Final

import typer

from regnum_client.commands.invocation import (
    BootstrapOption,
    DebugOption,
    Output,
    OutputOption,
    run,
    wrong_use,
)

DELIVERY_TIMEOUT_S: Final = 120.0
"""How long each record may take."""
TOPIC_WAIT_S: Final = 2.0
"""How long a topic that no broker knows is waited for."""

DeliveryTimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        help=f"How long each record may take. Default: {DELIVERY_TIMEOUT_S:g}.",
    ),
]
IdleTimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        help="End with status 5 when no record has come for so long. Default: wait for ever.",
    ),
]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line."""
    app.command("produce")(produce)
    app.command("consume")(consume)


def produce(
    *,
    topic: TopicArgument,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Send everything to this partition.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-k", help="What parts key and value in a line. Default: lines have no key."),
    ] = None,
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0.")] = "all",
    compression: Annotated[str, typer.Option("--compression", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    linger_ms: Annotated[float, typer.Option("--linger-ms", min=0, help="How long a record waits for company.")] = 5.0,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: DeliveryTimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Send the lines of stdin as records. Ends when every one is acknowledged, or with the first that is not.

    With -o jsonl, partition and offset of each record go to stdout as it is acknowledged.
    """
    acks_number = {"all": -1, "-1": -1, "1": 1, "0": 0}.get(acks)
    if acks_number is None:
        raise wrong_use(f"--acks {acks!r} is none of all, 1 and 0")
    if compression not in {"none", "gzip", "snappy", "lz4", "zstd"}:
        raise wrong_use(f"--compression {compression!r} is none of none, gzip, snappy, lz4 and zstd")
    if key_separator == "":
        raise wrong_use("--key-separator must not be empty; leave it out for lines without a key")

    async def work() -> None:
        from regnum_client.commands.records.line_producer import produce_lines  # noqa: PLC0415
        from regnum_client.producer.producer import ProducerSettings  # noqa: PLC0415

        settings = ProducerSettings(
            acks=acks_number,  # type: ignore[arg-type]
            compression=compression,  # type: ignore[arg-type]
            linger_ms=linger_ms,
            delivery_timeout_s=timeout or DELIVERY_TIMEOUT_S,
            buffer_wait_s=timeout or DELIVERY_TIMEOUT_S,
            topic_wait_s=min(timeout or TOPIC_WAIT_S, TOPIC_WAIT_S),
        )
        await produce_lines(
            topic,
            bootstrap=bootstrap,
            settings=settings,
            partition=partition,
            key_separator=key_separator,
            output=output,
        )

    run(work())


def consume(
    *,
    topic: TopicArgument,
    start: Annotated[
        str, typer.Option("--from", "-f", metavar="earliest|latest|OFFSET", help="Where to begin.")
    ] = "earliest",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; may be repeated.")
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="End after so many records.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="End where the partitions ended when the command began.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more until Ctrl-C (the default).")] = False,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", help="Print the key and this before each value.")
    ] = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: IdleTimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Print records: each value on a line, or with -o json everything about each record."""
    if until_end and follow:
        raise wrong_use("--until-end and --follow exclude one another; give one of them")

    async def work() -> None:
        from regnum_client.commands.records.reader import print_records  # noqa: PLC0415
        from regnum_client.consumer.positions import starting_offset  # noqa: PLC0415

        try:
            begin = starting_offset(start)
        except ValueError as error:
            raise wrong_use(f"--from {error}") from None
        await print_records(
            topic,
            bootstrap=bootstrap,
            partitions=partition,
            start=begin,
            records_max=max_messages,
            until_end=until_end,
            idle_s=timeout,
            key_separator=key_separator,
            output=output,
        )

    run(work())
