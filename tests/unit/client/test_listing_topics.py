"""`regnum topics list` in a large cluster: what it loads before it asks, and what it does while it waits."""

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator
from contextlib import redirect_stdout
from typing import Any

import pytest
from regnum_client import Admin
from regnum_client.command import HOMES, application
from regnum_client.commands.invocation import Output
from regnum_client.commands.looking.row_stream import RowStream
from regnum_client.commands.rendering import emit_rows
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.under_load import until
from typer.main import get_command

MODULES_MAX: int = 488
"""Modules of `regnum topics list`: 488 with the libraries as they are locked, those of TLS among them, two dozen more
with every command and the whole Admin. Each costs about a millisecond, also where nothing happens in it."""
PAGE_TASK = "page of topics"


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        yield running


async def test_a_listing_loads_the_modules_of_no_other_command(cluster: FakeCluster) -> None:
    cluster.create("a")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c"),
        "import sys; from regnum_client.command import main; "
        "assert main(sys.argv[1:]) == 0; print(len(sys.modules), *sys.modules)",
        *("topics", "list", "--bootstrap", cluster.bootstrap),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    *table, last = out.decode().splitlines()
    assert [line.split()[0] for line in table] == ["NAME", "a"]
    count, *names = last.split()
    commands = {name.removeprefix("regnum_client.commands.") for name in names if "regnum_client.commands." in name}
    assert not commands & {home for home in HOMES if home not in {"topics.command", "configs"}}
    admins = {name for name in names if name.startswith("regnum_client.admin.")}
    assert not {name for name in admins if name.endswith("admin")}, "parts of the Admin that nothing is asked of"
    assert not {"rich.console", "yaml", "regnum_local.cluster"} & set(names)
    assert int(count) <= MODULES_MAX, "what has come to be loaded by every command?"


def _tree(command: Any) -> dict[str, Any]:
    return {name: _tree(inner) for name, inner in getattr(command, "commands", {}).items()}


def test_each_word_of_the_command_line_brings_what_the_whole_has_for_it() -> None:
    whole = _tree(get_command(application()))
    words = [word for words in HOMES.values() for word in words]
    assert sorted(whole) == sorted(words)
    for word in words:
        assert _tree(get_command(application(word))) == {word: whole[word]}
    assert _tree(get_command(application("topicz"))) == whole, "what is not known is looked for in all"


async def test_the_next_page_is_on_its_way_while_the_caller_is_at_work_on_one(cluster: FakeCluster) -> None:
    for name in "abcdef":
        cluster.create(name)
    async with Admin(cluster.bootstrap) as admin:
        pages = admin.summarize_topics(limit=2)
        seen = [one.name for one in await anext(pages)]

        async def asked_again() -> bool:
            return cluster.calls["DescribeTopics"] == 2

        await until(asked_again)
        async for page in pages:
            seen.extend(one.name for one in page)
        assert seen == list("abcdef")
        assert cluster.calls["DescribeTopics"] == 3, "and none is asked for behind the last"


async def test_a_caller_that_has_seen_enough_leaves_no_page_on_its_way(cluster: FakeCluster) -> None:
    for name in "abc":
        cluster.create(name)
    async with Admin(cluster.bootstrap) as admin:
        pages = admin.summarize_topics(limit=1)
        await anext(pages)
        assert [task for task in asyncio.all_tasks() if task.get_name() == PAGE_TASK]
        await pages.aclose()
        assert not [task for task in asyncio.all_tasks() if task.get_name() == PAGE_TASK]


ROWS: list[dict[str, object]] = [
    {"name": 'quo"ted', "count": 3, "isr": (1, 2), "none": None, "yes": True},
    {"name": "ünicode", "count": -1, "ratio": 0.5},
    {"name": "line\nbreak", "inner": {"a": [1, {"b": 2}]}},
    {},
]


@pytest.mark.parametrize("output", [Output.JSON, Output.JSONL, Output.YAML])
def test_rows_that_come_page_by_page_look_as_those_that_come_together(output: Output) -> None:
    paged, whole = io.StringIO(), io.StringIO()
    with redirect_stdout(paged):
        stream = RowStream(output, columns=("name",))
        stream.add(ROWS[:1])
        stream.add(ROWS[1:])
        stream.close()
    with redirect_stdout(whole):
        emit_rows(ROWS, output, columns=("name",))
    assert paged.getvalue() == whole.getvalue()
    if output is Output.JSON:
        assert len(json.loads(paged.getvalue())) == len(ROWS)


def test_a_table_has_its_columns_below_one_another_and_no_space_at_the_end() -> None:
    out = io.StringIO()
    with redirect_stdout(out):
        stream = RowStream(Output.TABLE, columns=("name", "count", "isr"))
        stream.add([{"name": "a", "count": 10, "isr": (1, 2)}, {"name": "longer", "count": 2, "isr": ()}])
        stream.add([{"name": "the longest", "count": 3, "isr": None}])
        stream.close()
    assert out.getvalue().splitlines() == [
        "NAME    COUNT  ISR",
        "a       10     1,2",
        "longer  2      -",
        "the longest  3      -",
    ]
