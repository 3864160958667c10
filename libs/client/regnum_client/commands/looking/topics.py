"""`regnum topics list` and `regnum topics describe`, page by page."""

import contextlib
import enum
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from regnum_model.topic_filter import InvalidTopicFilterError, TopicFilter, Trouble

from regnum_client.commands.invocation import (
    TIMEOUT_S,
    BootstrapOption,
    CommandFailedError,
    DebugOption,
    Failure,
    Output,
    OutputOption,
    TimeoutOption,
    completed,
    failure_of,
    note,
    run,
    wrong_use,
)
from regnum_client.commands.looking.row_stream import RowStream
from regnum_client.commands.rendering import emit_failure

if TYPE_CHECKING:
    from regnum_client.admin.admin import Admin
    from regnum_client.admin.describing.topics import TopicSummary
    from regnum_client.cluster.view import PartitionView, TopicView

LIST_COLUMNS = (
    "name",
    "partitions",
    "replication_factor",
    "offline_partitions",
    "under_replicated_partitions",
    "under_min_isr_partitions",
)
DESCRIBE_COLUMNS = ("topic", "partition", "leader", "epoch", "replicas", "isr", "elr")
OFFSET_COLUMNS = ("log_start", "high_watermark")
NEWEST_COLUMNS = ("newest_offset", "newest_time")
SIZE_COLUMNS = ("size_bytes", "log_end", "replica_sizes", "lags")

PrefixOption = Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only topics whose names begin so.")]
MatchOption = Annotated[
    str,
    typer.Option("--match", metavar="GLOB", help="Only topics whose names match; * stands for any text, ? for one."),
]
InternalOption = Annotated[
    bool | None,
    typer.Option(
        "--internal/--no-internal",
        help="Only internal topics (__...), or none of them. Default: none, unless another option narrows the list.",
    ),
]
TroubleOption = Annotated[
    list[Trouble] | None,
    typer.Option(
        "--trouble",
        help="Only topics with a partition in that state; may be given several times. What cannot be written: "
        "`regnum status`.",
    ),
]


UNHEALTHY = frozenset({Trouble.OFFLINE, Trouble.UNDER_REPLICATED, Trouble.UNDER_MIN_ISR})
"""Everything by which a topic can be chosen."""


class Order(enum.StrEnum):
    """How topics are listed."""

    NAME = "name"
    """By name, page by page as they come."""
    SIZE = "size"
    """The largest first, with their sizes."""
    LAG = "lag"
    """Those first in which groups have the most before them, with how much."""


def add_to(group: typer.Typer) -> None:
    """Hang the commands into `regnum topics`."""
    group.command("list")(list_topics)
    group.command("describe")(describe)


def list_topics(
    *,
    prefix: PrefixOption = "",
    match: MatchOption = "",
    internal: InternalOption = None,
    trouble: TroubleOption = None,
    unhealthy: Annotated[
        bool, typer.Option("--unhealthy", help="Only topics with a partition in any of these states.")
    ] = False,
    sort: Annotated[
        Order,
        typer.Option(
            "--sort", help="By name; the largest first, with sizes; or those first in which groups are furthest behind."
        ),
    ] = Order.NAME,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """List topics."""
    if unhealthy and trouble:
        raise wrong_use("--unhealthy is any trouble, --trouble a certain one; give one of them")
    chosen = _chosen(prefix, match, internal, list(UNHEALTHY) if unhealthy else trouble)
    everything = chosen == TopicFilter()
    if everything:
        # They are there for other commands' sake; whoever looks for them, or for trouble, is shown them.
        chosen = replace(chosen, internal=False)
    empty = "no topics; create one with `regnum topics create NAME`" if everything else "no topic matches"
    if sort is not Order.NAME:
        _list_ranked(sort, chosen, bootstrap, timeout or TIMEOUT_S, output, empty)
        return
    stream = RowStream(output, columns=LIST_COLUMNS, empty=empty)

    async def work() -> None:
        # Not the whole Admin: what the other commands ask for takes as long to load as a page takes to come.
        from regnum_client.admin.describing.pages import DescribeAdmin  # noqa: PLC0415

        async with (
            DescribeAdmin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin,
            contextlib.aclosing(admin.summarize_topics(chosen=chosen)) as pages,
        ):
            async for page in pages:
                stream.add([_summary(topic) for topic in page])

    run(work())
    stream.close()


def _list_ranked(
    order: Order, chosen: TopicFilter, bootstrap: str | None, timeout_s: float, output: Output, empty: str
) -> None:
    """All of them at once: the first can only be known with the last."""
    from regnum_client.commands.looking.ranking import COLUMNS, figures_of  # noqa: PLC0415
    from regnum_client.commands.rendering import emit_rows  # noqa: PLC0415

    found = run(figures_of(order.value, chosen, bootstrap, timeout_s=timeout_s))
    rows = [{**_summary(topic), **figures} for topic, figures in found]
    emit_rows(rows, output, columns=(*LIST_COLUMNS, *COLUMNS[order.value]), empty=empty)


def describe(
    *,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]...",
            autocompletion=completed("topics"),
            help="Names of topics; without, those that the options choose.",
        ),
    ] = None,
    prefix: PrefixOption = "",
    match: MatchOption = "",
    internal: InternalOption = None,
    trouble: TroubleOption = None,
    offsets: Annotated[
        bool,
        typer.Option("--offsets", help="Ask leaders for log start offsets and high watermarks: two calls to each."),
    ] = False,
    newest: Annotated[
        bool,
        typer.Option("--newest", help="Ask leaders for the record with the largest timestamp: a call to each."),
    ] = False,
    sizes: Annotated[
        bool,
        typer.Option("--sizes", help="Ask brokers for sizes and lag of replicas: a call to each."),
    ] = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show leader, replicas and in-sync replicas of partitions; with --trouble only of those in that state."""
    names = list(dict.fromkeys(topics or ()))
    chosen = _chosen(prefix, match, internal, trouble)
    _check_choice(names, chosen)
    nothing = "" if names else "no topic matches"
    asked = ((OFFSET_COLUMNS, offsets), (NEWEST_COLUMNS, newest), (SIZE_COLUMNS, sizes))
    columns = (*DESCRIBE_COLUMNS, *(column for some, wanted in asked if wanted for column in some))
    stream = RowStream(output, columns=columns, empty=nothing)
    reasons: list[str] = []

    async def show(admin: "Admin", view: "TopicView") -> None:
        logs = await _logs(admin, view, offsets=offsets, newest=newest, rows=output is Output.TABLE)
        if sizes:
            from regnum_client.commands.looking.sizes import replica_sizes  # noqa: PLC0415 - seldom asked for

            found, silent = await replica_sizes(admin, view, rows=output is Output.TABLE)
            reasons.extend(silent)
            logs = {number: {**(logs or {}).get(number, {}), **row} for number, row in found.items()}
        stream.add(_partition_rows(view, logs) if output is Output.TABLE else [_document(view, logs)])
        for number, log in (logs or {}).items():
            if log.get("offsets_error"):
                reasons.append(f"{view.name}/{number}: {log['offsets_error']}")
        states = view.partitions.values()
        reasons.extend(f"{view.name}-{one.number}: {one.offline_reason}" for one in states if one.offline_reason)

    async def work() -> list[Failure]:
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        missing = set(names)
        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S) as admin:
            async with contextlib.aclosing(admin.describe_topics(names, chosen=chosen)) as views:
                async for view in views:
                    missing.discard(view.name)
                    await show(admin, view)
            late, failures = await _looked_for(admin, sorted(missing))
            # Those that are in no trouble are missing, too.
            for view in () if chosen.troubles else late:
                await show(admin, view)
        return failures

    failures = run(work())
    if not (failures and stream.is_empty):
        stream.close()
    for reason in reasons if output is Output.TABLE else ():
        note(reason)
    _raise_last(failures, output)


def _check_choice(names: Sequence[str], chosen: TopicFilter) -> None:
    if not names and chosen == TopicFilter():
        raise wrong_use("no topic is named; name some, or choose them by --prefix, --match, --internal or --trouble")
    if names and chosen != TopicFilter(troubles=chosen.troubles):
        raise wrong_use("topics are named, or chosen by --prefix, --match and --internal; leave one of both out")


def _raise_last(failures: Sequence[Failure], output: Output) -> None:
    for failure in failures[:-1]:
        emit_failure(failure, output)
    if failures:
        raise CommandFailedError(failures[-1])


async def _looked_for(admin: "Admin", names: Sequence[str]) -> "tuple[list[TopicView], list[Failure]]":
    """Topics that no broker knew, looked for once more: news of them may have been on its way."""
    from regnum_service.errors import ExitStatus, RegnumError  # noqa: PLC0415

    found: list[TopicView] = []
    failures: list[Failure] = []
    for name in names:
        try:
            found.append(await admin.describe_topic(name))
        except RegnumError as error:
            if error.traits.exit_status is not ExitStatus.NOT_FOUND:
                raise
            failures.append(failure_of(error))
    return found, failures


def _summary(topic: "TopicSummary") -> dict[str, object]:
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "offline_partitions": topic.offline_partitions,
        "under_replicated_partitions": topic.under_replicated_partitions,
        "under_min_isr_partitions": topic.under_min_isr_partitions,
        "topic_id": topic.topic_id,
    }


def _chosen(prefix: str, match: str, internal: bool | None, trouble: list[Trouble] | None) -> TopicFilter:  # noqa: FBT001 - as the options have it
    chosen = TopicFilter(prefix=prefix, glob=match, internal=internal, troubles=frozenset(trouble or ()))
    try:
        chosen.check()
    except InvalidTopicFilterError as error:
        raise wrong_use(str(error)) from error
    return chosen


async def _logs(
    admin: "Admin", view: "TopicView", *, offsets: bool, newest: bool, rows: bool
) -> dict[int, dict[str, Any]] | None:
    """What leaders are asked about logs, by partition number; None: nothing."""
    ends = await _ends(admin, view) if offsets else {}
    young = await _newest(admin, view, rows=rows) if newest else {}
    return {number: ends.get(number, {}) | young.get(number, {}) for number in {**ends, **young}} or None


async def _ends(admin: "Admin", view: "TopicView") -> dict[int, dict[str, Any]]:
    """Where the logs of a topic begin and end, by partition number; or why that is not known."""
    from regnum_service.errors import RegnumError  # noqa: PLC0415

    from regnum_client.records import TopicPartition  # noqa: PLC0415

    found = await admin.list_offsets([TopicPartition(view.name, number) for number in view.partitions])
    return {
        partition.partition: {"log_start": None, "high_watermark": None, "offsets_error": said.message}
        if isinstance(said, RegnumError)
        else {"log_start": said.log_start, "high_watermark": said.high_watermark, "offsets_error": ""}
        for partition, said in found.items()
    }


async def _newest(admin: "Admin", view: "TopicView", *, rows: bool) -> dict[int, dict[str, Any]]:
    """The record with the largest timestamp of each partition of a topic (KIP-734); null: none has one."""
    from regnum_service.errors import RegnumError  # noqa: PLC0415

    from regnum_client.commands.looking.event_words import record_time_of  # noqa: PLC0415 - seldom asked for
    from regnum_client.records import TopicPartition  # noqa: PLC0415

    found = await admin.list_max_timestamps([TopicPartition(view.name, number) for number in view.partitions])
    told: dict[int, dict[str, Any]] = {}
    for partition, said in found.items():
        record = None if isinstance(said, RegnumError) else said
        at_ms = None if record is None else record.timestamp_ms
        time = None if at_ms is None else record_time_of(at_ms)
        told[partition.partition] = {
            "newest_offset": None if record is None else record.offset,
            **({"newest_time": time} if rows else {"newest_timestamp_ms": at_ms}),
            "offsets_error": said.message if isinstance(said, RegnumError) else "",
        }
    return told


def _document(view: "TopicView", logs: Mapping[int, Mapping[str, Any]] | None) -> dict[str, Any]:
    partitions = [{**_partition(one), **(logs or {}).get(one.number, {})} for one in view.partitions.values()]
    return {"name": view.name, "topic_id": view.topic_id, "partitions": partitions}


def _partition(one: "PartitionView") -> dict[str, Any]:
    return {
        "partition": one.number,
        "leader": one.leader if one.leader >= 0 else None,
        "leader_epoch": one.leader_epoch,
        "replicas": list(one.replicas),
        "isr": list(one.isr),
        "elr": list(one.elr),
        "adding_replicas": list(one.adding_replicas),
        "min_insync_replicas": one.min_insync_replicas or None,
        "offline_replicas": list(one.offline_replicas),
        "offline_reason": one.offline_reason,
    }


def _partition_rows(view: "TopicView", logs: Mapping[int, Mapping[str, Any]] | None) -> list[dict[str, object]]:
    return [
        {
            "topic": view.name,
            "partition": one.number,
            "leader": one.leader if one.leader >= 0 else "none",
            "epoch": one.leader_epoch,
            "replicas": one.replicas,
            "isr": one.isr,
            "elr": one.elr,
            **(logs or {}).get(one.number, {}),
        }
        for one in view.partitions.values()
    ]
