"""`regnum events` and `regnum explain`: what happened, and why."""

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from regnum_client.commands.invocation import (
    TIMEOUT_S,
    BootstrapOption,
    DebugOption,
    Output,
    OutputOption,
    TimeoutOption,
    completed,
    note,
    run,
    visible,
    wrong_use,
)
from regnum_client.commands.looking.event_words import COLUMNS, document_of, row_of, why
from regnum_client.commands.looking.row_stream import RowStream
from regnum_client.commands.moments import moment_ms
from regnum_client.commands.rendering import emit_one

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.describing.events import ClusterEvent, EventFilter, EventPosition
    from regnum_client.cluster.view import PartitionView

LIMIT: Final = 50
"""Events that are shown unless more, or less, are asked for."""

FOLLOWED_LIMIT: Final = 10
"""The same before those that are followed."""

CHANGES: Final = 10
"""Changes of a partition that its explanation shows."""

WAIT_S: Final = 10.0
"""For so long the timing of a change waits for what is not written of it: its root ends 5 s after its orders, or soon.
"""

_PARTITION: Final = re.compile(r"(.+)[/](\d{1,9})")

LimitOption = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, help=f"Show the newest so many. Default: {LIMIT}, or all --since.")
]


def add_to(app: typer.Typer) -> None:
    """Hang the commands into the command line."""
    app.command("events")(show_events)
    app.command("explain")(explain)


def show_events(
    *,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="NAME", autocompletion=completed("topics"), help="Only about that topic."),
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option(
            "--broker",
            metavar="ID",
            min=0,
            help="Only where that broker registered, went, led, or entered or left an ISR.",
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", metavar="KIND", help="Only that kind, such as leader-elected; may be given several times."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="AGE|TIME", help="Not older: 90s, 15m, 2h, 3d, or 2026-01-31T12:00:00Z."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens, until Ctrl-C.")] = False,
    limit: LimitOption = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show what happened in the cluster: leaders, in-sync replicas, brokers, controllers, topics, settings."""
    chosen = _chosen(topic, broker, kind, since)
    if follow and output in {Output.JSON, Output.YAML}:
        raise wrong_use("--follow never ends, and a document of that form does; use -o jsonl or table")
    stream = RowStream(output, columns=COLUMNS, empty="the event log has nothing like that")

    def show(events: "Sequence[ClusterEvent]") -> None:
        stream.add([row_of(one) if output is Output.TABLE else document_of(one) for one in events])

    async def work() -> None:
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            await _say_what_is_missing(admin)
            after = await _show_past(admin, chosen, show, limit=limit, all_of_it=since is not None, follow=follow)
            if follow:
                async with contextlib.aclosing(admin.events_after(chosen, after=after, follow=True)) as pages:
                    async for page in pages:
                        show(page)

    run(work())
    stream.close()


def explain(
    *,
    partition: Annotated[str, typer.Argument(metavar="TOPIC/PARTITION", help="Which partition, such as orders/0.")],
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1_000, help="Show the last so many changes of its state.")
    ] = CHANGES,
    timing: Annotated[
        bool, typer.Option("--timing", help="Say where the time of its last change of leader went, by the traces.")
    ] = False,
    traces: Annotated[
        Path | None,
        typer.Option("--traces", metavar="PATH", help="With --timing. Default: traces of the cluster of `regnum up`."),
    ] = None,
    change: Annotated[
        str | None,
        typer.Option(
            "--change", metavar="TRACE", help="With --timing: the change with that trace id, or begin of one."
        ),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0.0,
            help="With --timing: where the last change is younger than this, wait up to so long for all of its traces; "
            f"0: take what there is. Default: {WAIT_S:g}.",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Say why a partition's leader is where it is: the last changes of its state with cause and evidence."""
    parsed = _PARTITION.fullmatch(partition)
    if parsed is None:
        raise wrong_use(f"{partition!r} names no partition; write TOPIC/PARTITION, such as orders/0")
    topic, number = parsed[1], int(parsed[2])
    if timing:
        from regnum_client.commands.looking.timing import Asked, show_timing  # noqa: PLC0415

        asked = Asked(topic, number, change or "")
        show_timing(asked, traces=traces, wait_s=WAIT_S if wait is None else wait, output=output)
        return
    if traces is not None or change is not None or wait is not None:
        raise wrong_use("--traces, --change and --wait go with --timing")

    async def work() -> "tuple[PartitionView, tuple[ClusterEvent, ...], str]":
        from regnum.types.v1 import errors_pb2  # noqa: PLC0415
        from regnum_service.errors import RegnumError  # noqa: PLC0415

        from regnum_client.admin.admin import Admin  # noqa: PLC0415
        from regnum_client.admin.describing.events import EventFilter  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            view = (await admin.describe_topic(topic)).partitions.get(number)
            if view is None:
                raise RegnumError(
                    errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {topic!r} has no partition {number}; see `regnum topics describe {topic}`",
                    metadata={"topic": topic},
                )
            await _say_what_is_missing(admin)
            events = await admin.last_events(EventFilter(topic=topic, partition=number), limit=limit)
            return view, events, "" if view.leader >= 0 else await _why_offline(admin, topic, number)

    view, events, offline = run(work())
    sentences = why(topic, view, events, offline=offline)
    if output is not Output.TABLE:
        emit_one(
            {
                "topic": topic,
                "partition": number,
                "leader": view.leader if view.leader >= 0 else None,
                "leader_epoch": view.leader_epoch,
                "isr": list(view.isr),
                "replicas": list(view.replicas),
                "why": sentences,
                "events": [document_of(one) for one in events],
            },
            output,
        )
        return
    for sentence in sentences:
        typer.echo(visible(sentence))
    if events:
        typer.echo("")
    stream = RowStream(output, columns=COLUMNS)
    stream.add([row_of(one) for one in events])
    stream.close()


async def _why_offline(admin: "Admin", topic: str, number: int) -> str:
    """Why nobody leads a partition, and what helps, in the controller's words; empty: it does not say."""
    from regnum_service.errors import RegnumError  # noqa: PLC0415

    try:
        found = await admin.list_offline_partitions((topic,))
    except RegnumError as error:
        note(f"the controller does not say why it has no leader: {error}")
        return ""
    return next((one.message for one in found.partitions if (one.topic, one.partition) == (topic, number)), "")


async def _show_past(
    admin: "Admin",
    chosen: "EventFilter",
    show: "Callable[[Sequence[ClusterEvent]], None]",
    *,
    limit: int | None,
    all_of_it: bool,
    follow: bool,
) -> "EventPosition":
    """Show what there is; returns where to go on."""
    from regnum_client.admin.describing.events import BEGINNING  # noqa: PLC0415

    last = BEGINNING
    if limit is None and all_of_it:
        async with contextlib.aclosing(admin.events_after(chosen)) as pages:
            async for page in pages:
                show(page)
                last = page[-1].position if page else last
        return last
    newest = await admin.last_events(chosen, limit=limit or (FOLLOWED_LIMIT if follow else LIMIT))
    show(newest[::-1])
    return newest[0].position if newest else last


async def _say_what_is_missing(admin: "Admin") -> None:
    page = await admin.describe_events(limit=1)
    if page.dropped:
        note(
            f"{page.dropped} events were dropped: the disk of the controller is too slow for its event log, or refuses"
        )
    if not page.on_disk:
        note("the controller cannot write its event log to disk, and shows the newest events only; see its log")


def _chosen(topic: str | None, broker: int | None, kinds: list[str] | None, since: str | None) -> "EventFilter":
    from regnum_client.admin.describing.events import EventFilter, EventKind  # noqa: PLC0415

    known = {kind.value: kind for kind in EventKind if kind is not EventKind.UNSPECIFIED}
    unknown = [kind for kind in kinds or () if kind not in known]
    if unknown:
        raise wrong_use(f"there are no events of kind {unknown[0]!r}; choose from {', '.join(known)}")
    return EventFilter(
        topic=topic or "",
        broker=broker,
        kinds=frozenset(known[kind] for kind in kinds or ()),
        since_unix_ms=0 if since is None else since_ms(since, time.time_ns() // 1_000_000),
    )


def since_ms(text: str, now_unix_ms: int) -> int:
    """The moment that an age (90s, 15m, 2h, 3d) or an ISO 8601 time names, milliseconds since 1970; wrong use else."""
    moment = moment_ms(text, now_unix_ms)
    if moment is None:
        raise wrong_use(f"--since {text!r} is neither an age nor a time; write 15m, or 2026-01-31T12:00:00Z")
    return moment
