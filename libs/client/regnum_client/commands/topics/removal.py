"""`regnum topics delete`, `remove-partitions`: with all records, so each is shown first and done with --yes only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regnum_client.commands.invocation import (
    CLIENT_ID,
    TIMEOUT_S,
    BootstrapOption,
    DebugOption,
    Output,
    OutputOption,
    TimeoutOption,
    completed,
    note,
    run,
)
from regnum_client.commands.rendering import emit_rows
from regnum_client.commands.topics import (
    ClientIdOption,
    NamesArgument,
    QuotaWaitOption,
    WaitNotes,
    raise_failures,
)

if TYPE_CHECKING:
    from regnum_service.errors import RegnumError

    from regnum_client.admin.admin import Admin
    from regnum_client.admin.topics import TopicPartitions
    from regnum_client.cluster.view import TopicView

NOTHING_CHANGED = "nothing was changed; run it again with --yes if"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Records that go."""

    records: int
    """Committed records of the partitions whose leaders say how many they have."""
    silent: int
    """Partitions whose leaders do not."""
    why: str
    """What one of these said; empty: there are none."""


def add_to(group: typer.Typer) -> None:
    """Hang the commands into `regnum topics`."""
    group.command("delete")(delete)
    group.command("remove-partitions")(remove_partitions)


def delete(
    *,
    topics: NamesArgument,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete them with all their records. Default: only show what would go.")
    ] = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A topic that does not exist is no failure.")] = False,
    wait: QuotaWaitOption = None,
    client_id: ClientIdOption = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show which topics would be deleted; with --yes, delete them and all their records."""

    async def work() -> "Mapping[str, dict[str, Any] | RegnumError]":
        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id or CLIENT_ID) as admin:
            if not yes:
                return await _looked_at(admin, topics)
            answers = await admin.delete_topics(
                topics,
                retry_on_quota_violation=wait is not None,
                timeout_s=(timeout or TIMEOUT_S) + (wait or 0.0),
                on_wait=WaitNotes().note,
            )
            return {
                name: answer
                if isinstance(answer, Exception)
                else {"name": answer.name, "topic_id": answer.topic_id, "deleted": True}
                for name, answer in answers.items()
            }

    answers = run(work())
    tolerated = "UNKNOWN_TOPIC_OR_PARTITION" if if_exists else ""
    rows = [answer for answer in answers.values() if not isinstance(answer, Exception)]
    columns = ("name", "topic_id", "deleted") if yes else ("name", "topic_id", "partitions", "records_to_lose")
    emit_rows(rows, output, columns=columns)
    for row in () if yes else rows:
        _note_silent(f"of {row['name']}", row["partitions_silent"], row["silent_because"])
    raise_failures(answers, output, tolerated=tolerated)
    if rows and not yes:
        note(f"{NOTHING_CHANGED} these topics may be lost with all their records")


async def _looked_at(admin: "Admin", topics: Sequence[str]) -> "dict[str, dict[str, Any] | RegnumError]":
    """What deleting each would take away."""
    import asyncio  # noqa: PLC0415 - help is to be there at once

    from regnum_service.errors import RegnumError  # noqa: PLC0415 - gRPC is loaded when there is something to do

    names = list(dict.fromkeys(topics))
    views = await asyncio.gather(*map(admin.describe_topic, names), return_exceptions=True)
    found: dict[str, dict[str, Any] | RegnumError] = {}
    for name, view in zip(names, views, strict=True):
        if isinstance(view, RegnumError):
            found[name] = view
        elif isinstance(view, BaseException):
            raise view
        else:
            found[name] = await _would_go(admin, view)
    return found


async def _would_go(admin: "Admin", view: "TopicView") -> dict[str, Any]:
    loss = await _loss(admin, view.name, sorted(view.partitions))
    return {
        "name": view.name,
        "topic_id": view.topic_id,
        "deleted": False,
        "partitions": len(view.partitions),
        "records_to_lose": loss.records,
        "partitions_silent": loss.silent,
        "silent_because": loss.why or None,
    }


async def _loss(admin: "Admin", topic: str, numbers: Sequence[int]) -> Loss:
    from regnum_service.errors import RegnumError  # noqa: PLC0415

    from regnum_client.records import TopicPartition  # noqa: PLC0415

    offsets = (await admin.list_offsets([TopicPartition(topic, number) for number in numbers])).values()
    silent = [one for one in offsets if isinstance(one, RegnumError)]
    records = sum(one.high_watermark - one.log_start for one in offsets if not isinstance(one, RegnumError))
    return Loss(records=records, silent=len(silent), why=silent[0].message if silent else "")


def _note_silent(whose: str, silent: int, why: str | None) -> None:
    if silent:
        note(f"{silent} partitions {whose} do not say how many records they have, and are not counted: {why}")


def remove_partitions(
    *,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", autocompletion=completed("topics"), help="Name of the topic.")
    ],
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many to remove: the highest ones.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove them with all their records. Default: only show which.")
    ] = False,
    wait: QuotaWaitOption = None,
    client_id: ClientIdOption = None,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    timeout: TimeoutOption = None,
    _debug: DebugOption = False,
) -> None:
    """Show which partitions of a topic would be removed; with --yes, remove them and all records in them."""

    async def work() -> "tuple[list[int], TopicPartitions | RegnumError, Loss | None]":
        from regnum_service.errors import RegnumError  # noqa: PLC0415

        from regnum_client.admin.admin import Admin  # noqa: PLC0415

        async with Admin(bootstrap, timeout_s=timeout or TIMEOUT_S, client_id=client_id or CLIENT_ID) as admin:
            numbers = sorted((await admin.describe_topic(topic)).partitions)
            answers = await admin.delete_partitions_of_topics(
                {topic: numbers[-count:]},
                validate_only=not yes,
                retry_on_quota_violation=wait is not None,
                timeout_s=(timeout or TIMEOUT_S) + (wait or 0.0),
                on_wait=WaitNotes().note,
            )
            if yes or isinstance(answers[topic], RegnumError):
                return numbers, answers[topic], None
            return numbers, answers[topic], await _loss(admin, topic, numbers[-count:])

    numbers, answer, loss = run(work())
    raise_failures({topic: answer}, output, tolerated="")
    named = "removed" if yes else "to_remove"
    row = {
        "name": topic,
        "partitions_before": len(numbers),
        "partitions_after": len(numbers) - count,
        "partitions": len(numbers) - count,
        named: numbers[-count:],
        **({} if loss is None else {"records_to_lose": loss.records, "partitions_silent": loss.silent}),
    }
    columns = ("name", "partitions_before", "partitions_after", named, *(() if loss is None else ("records_to_lose",)))
    emit_rows([row], output, columns=columns)
    if loss is not None:
        _note_silent("of them", loss.silent, loss.why)
        note(f"{NOTHING_CHANGED} the records of these partitions may be lost")
