"""`regnum produce` and `regnum consume`."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

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

if TYPE_CHECKING:
    from regnum_client.commands.records.places import Place
    from regnum_client.consumer.positions import Start

DELIVERY_TIMEOUT_S: Final = 120.0
"""How long each record may take."""
TOPIC_WAIT_S: Final = 1.0
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
        help="End with status 5 when no record has come for so long. Default: wait.",
    ),
]
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", autocompletion=completed("topics"), help="Name of the topic.")
]


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
        typer.Option("--key-separator", "-k", help="Separator of key and value in a line. Default: lines have no key."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Give each record this header; may be repeated."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Send the lines of this file. Default: stdin.")
    ] = None,
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0.")] = "all",
    compression: Annotated[str, typer.Option("--compression", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    linger_ms: Annotated[
        float, typer.Option("--linger-ms", min=0, help="How long a batch waits for more records.")
    ] = 5.0,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: DeliveryTimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Send the lines of stdin, or of a file, as records.

    Ends when every one is acknowledged, or with the first that is not. With -o jsonl, partition and offset of each
    record go to stdout as it is acknowledged.
    """
    acks_number = {"all": -1, "-1": -1, "1": 1, "0": 0}.get(acks)
    if acks_number is None:
        raise wrong_use(f"--acks {acks!r} is none of all, 1 and 0")
    if compression not in {"none", "gzip", "snappy", "lz4", "zstd"}:
        raise wrong_use(f"--compression {compression!r} is no codec; give none, gzip, snappy, lz4 or zstd")
    if key_separator == "":
        raise wrong_use("--key-separator must not be empty; leave it out for lines without a key")
    headers = tuple(_header(text) for text in header or ())
    # Before there is an event loop: it may be a pipe whose writer comes later.
    descriptor = None if file is None else os.open(file, os.O_RDONLY)

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
            headers=headers,
            descriptor=descriptor,
            output=output,
        )

    run(work())


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise wrong_use(f"--header {text!r} is not NAME=VALUE; give for example --header source=import")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise wrong_use(f"--header {text!r}: the name of a header is UTF-8; its value may be any bytes") from None
    return name, os.fsencode(value)


def consume(
    *,
    topic: TopicArgument,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            "-f",
            metavar="PLACE",
            help="Where to begin: begin, end, an offset, -5 for five records before the end, an age (-1h) or a time "
            "(2026-01-31T12:00:00Z).",
        ),
    ] = "begin",
    until: Annotated[
        str | None,
        typer.Option(
            "--until",
            "-u",
            metavar="PLACE",
            help="Where to end: before an offset, an age or a time, or at the end that partitions have now (end).",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; may be repeated.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Read as a member of this consumer group; offsets of printed records are committed. "
            "--from, begin or end, is for partitions without a committed offset.",
        ),
    ] = None,
    matching: Annotated[
        bool,
        typer.Option(
            "--topics-matching",
            help="TOPIC is a regular expression: read all topics whose whole names match, later ones too.",
        ),
    ] = False,
    rack: Annotated[
        str,
        typer.Option(
            "--rack",
            help="Rack of this consumer (client.rack): brokers with --replica-selector rack have it read from "
            "a follower there.",
        ),
    ] = "",
    skip_unreadable: Annotated[
        bool,
        typer.Option("--skip-unreadable", help="Leave out batches that cannot be decoded, and say which on stderr."),
    ] = False,
    grep: Annotated[
        str | None,
        typer.Option("--grep", metavar="REGEX", help="Only records in whose value this regular expression is found."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="Only records with this key.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", "-H", metavar="NAME[=VALUE]", help="Only records with this header; may stand more than once."
        ),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="End after so many records.")
    ] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="The same as --until end.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more until Ctrl-C (the default).")] = False,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", help="Print the key and this before each value.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORM",
            help="json: an object a line; raw: values with nothing between; or a template such as '%p %o %k %v\\n': "
            "%t topic, %p partition, %o offset, %k key, %v value, %h headers, %T timestamp in ms, %K and %V bytes of "
            "key and value, %%; \\n \\t \\r \\0 \\xNN.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: IdleTimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Print records: each value on a line, or with -o json everything about each record.

    Ages and times choose by the records' timestamps, which are UTC where no zone is given.
    """
    if group is not None and (partition or until is not None or until_end):
        raise wrong_use("--group cannot be combined with --partition or --until")
    if matching and (partition or until is not None or until_end):
        raise wrong_use("--topics-matching cannot be combined with --partition or --until")
    wanted_end = _end_of(until, until_end=until_end, follow=follow)
    if form is not None and (output is not Output.TABLE or key_separator is not None):
        raise wrong_use("--format says all about the form; leave -o and --key-separator out")

    async def work() -> None:
        from regnum_client.commands.records.reader import print_records  # noqa: PLC0415
        from regnum_client.commands.records.search import search_of  # noqa: PLC0415
        from regnum_client.commands.records.template import Template  # noqa: PLC0415

        begin, end = _places(start, wanted_end, grouped=group is not None, matching=matching)
        try:
            search = search_of(grep, key, header or ())
            template = None if form is None or form == "json" else Template("%v" if form == "raw" else form)
        except ValueError as error:
            raise wrong_use(str(error)) from None
        await print_records(
            topic,
            topic_wait_s=TOPIC_WAIT_S,
            bootstrap=bootstrap,
            partitions=partition,
            group=group,
            matching=matching,
            rack=rack,
            skip_unreadable=skip_unreadable,
            start=begin,
            until=end,
            search=search,
            records_max=max_messages,
            idle_s=timeout,
            key_separator=key_separator,
            template=template,
            output=Output.JSONL if form == "json" else output,
        )

    run(work())


def _places(start: str, end: str | None, *, grouped: bool, matching: bool) -> "tuple[Place, Start | None]":
    """Where to begin, and where to end; None: nowhere."""
    from regnum_client.commands.records.places import BeforeEnd, place_of  # noqa: PLC0415
    from regnum_client.consumer.positions import EARLIEST, LATEST, AtTime  # noqa: PLC0415

    now_unix_ms = time.time_ns() // 1_000_000

    def place(text: str, option: str) -> "Place":
        try:
            return place_of(text, now_unix_ms)
        except ValueError as error:
            raise wrong_use(f"{option} {error}") from None

    first = place(start, "--from")
    if grouped and first not in {EARLIEST, LATEST}:
        raise wrong_use(
            "with --group, --from is begin or end, for partitions of which nothing is committed; "
            "`regnum groups reset-offsets` sets a group elsewhere"
        )
    if matching and isinstance(first, BeforeEnd):
        raise wrong_use("with --topics-matching, --from is begin, end, an offset, an age or a time")
    last = None if end is None else place(end, "--until")
    if isinstance(last, BeforeEnd):
        raise wrong_use("--until is an offset, an age, a time or end; --from takes a number of records before it")
    if isinstance(last, AtTime) and last.timestamp_ms > now_unix_ms:
        raise wrong_use("--until is in the future; leave it out and end with Ctrl-C, -n or --timeout")
    return first, last


def _end_of(until: str | None, *, until_end: bool, follow: bool) -> str | None:
    """The place where to end, as it was written; None: there is none."""
    if follow and (until_end or until is not None):
        raise wrong_use("--follow excludes --until and --until-end; give one of them")
    if until_end and until not in {None, "end"}:
        raise wrong_use("--until-end is --until end; give one of them")
    return "end" if until_end else until
