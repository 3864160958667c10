"""The command as a shell sees it: stdout, stderr, exit status."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from regnum_testing.fake_cluster import FakeCluster

DEADLINE_S = 30.0


class Ran(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def error(self) -> dict[str, object]:
        """The failure as JSON; the last line of stderr."""
        failure: dict[str, object] = json.loads(self.err.strip().splitlines()[-1])["error"]
        return failure


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        yield running


class Shell:
    """Runs the command beside the cluster, in a process of its own."""

    def __init__(self, folder: Path, bootstrap: str | None) -> None:
        self._environment = {
            **os.environ,
            "REGNUM_PROFILE": str(folder / "profile.json"),
            "REGNUM_BOOTSTRAP": bootstrap or "",
        }

    async def __call__(self, *arguments: str, stdin: bytes = b"") -> Ran:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "import sys; from regnum_client.command import main; sys.exit(main())",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
        )
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate(stdin)
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())


@pytest.fixture
def shell(cluster: FakeCluster, tmp_path: Path) -> Shell:
    return Shell(tmp_path, cluster.bootstrap)


async def test_topics_from_beginning_to_end(shell: Shell) -> None:
    created = await shell("topics", "create", "orders", "-p", "2", "-o", "json")
    assert created.status == 0, created.err
    assert [(row["name"], row["partitions"]) for row in json.loads(created.out)] == [("orders", 2)]
    described = await shell("topic", "describe", "orders", "-o", "yaml")
    assert [one["leader"] for one in yaml.safe_load(described.out)[0]["partitions"]] == [1, 2]
    listed = await shell("topics", "list", "-o", "jsonl")
    assert json.loads(listed.out)["under_replicated_partitions"] == 0
    table = await shell("topics", "describe", "orders")
    assert table.out.splitlines()[0].split() == ["TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "ELR"]
    assert (await shell("topics", "delete", "orders")).status == 0
    assert json.loads((await shell("topics", "list", "-o", "json")).out) == []


async def test_exit_status_says_what_kind_of_failure(shell: Shell, cluster: FakeCluster) -> None:
    cluster.create("orders")
    missing = await shell("topics", "describe", "nowhere", "-o", "json")
    assert (missing.status, missing.error["code"], missing.out) == (3, "UNKNOWN_TOPIC_OR_PARTITION", "")
    assert "regnum topics create nowhere" in str(missing.error["message"])
    twice = await shell("topics", "create", "orders", "-o", "jsonl")
    assert (twice.status, twice.error["code"]) == (4, "TOPIC_ALREADY_EXISTS")
    assert (await shell("topics", "create", "orders", "--if-not-exists")).status == 0
    assert (await shell("topics", "delete", "nowhere")).status == 3
    assert (await shell("topics", "delete", "nowhere", "--if-exists")).status == 0
    wrong = await shell("topics", "create", "orders", "--assignment", "one,two", "-o", "json")
    assert (wrong.status, wrong.error["code"]) == (2, "WRONG_USE")
    typing_error = await shell("topics", "crate")
    assert typing_error.status == 2
    assert "topics --help" in typing_error.err


async def test_one_failure_does_not_hide_the_other_topics(shell: Shell, cluster: FakeCluster) -> None:
    cluster.create("old")
    ran = await shell("topics", "create", "old", "new", "-o", "json")
    assert ran.status == 4
    assert [row["name"] for row in json.loads(ran.out)] == ["new"]


async def test_produce_and_consume(shell: Shell, cluster: FakeCluster) -> None:
    cluster.create("orders")
    produced = await shell("produce", "orders", "-k", ":", "-o", "json", stdin=b"a:1\nb:2\nno key\nc:3:3")
    assert produced.status == 0, produced.err
    assert json.loads(produced.out) == {"topic": "orders", "sent": 4, "acknowledged": 4, "failed": 0}
    consumed = await shell("consume", "orders", "--until-end", "-o", "jsonl")
    records = [json.loads(line) for line in consumed.out.splitlines()]
    assert [(one["offset"], one["key"], one["value"]) for one in records] == [
        (0, "a", "1"),
        (1, "b", "2"),
        (2, None, "no key"),
        (3, "c", "3:3"),
    ]
    some = await shell("consume", "orders", "--from", "1", "-n", "2")
    assert some.out == "2\nno key\n"
    whole = await shell("consume", "orders", "--until-end", "-o", "json")
    assert len(json.loads(whole.out)) == 4
    offsets = await shell("produce", "orders", "-o", "jsonl", stdin=b"x\n")
    assert json.loads(offsets.out) == {"topic": "orders", "partition": 0, "offset": 4}


async def test_consume_ends_where_it_cannot_go_on(shell: Shell, cluster: FakeCluster) -> None:
    cluster.create("orders")
    silent = await shell("consume", "orders", "--timeout", "0.3", "-o", "json")
    assert (silent.status, silent.error["code"]) == (5, "REQUEST_TIMED_OUT")
    assert json.loads(silent.out) == []
    assert (await shell("consume", "orders", "--until-end")).out == ""
    gone = await shell("consume", "orders", "--from", "99", "-n", "1", "-o", "json")
    assert (gone.status, gone.error["code"]) == (1, "OFFSET_OUT_OF_RANGE")
    assert (await shell("consume", "orders", "--from", "soon")).status == 2
    assert (await shell("consume", "orders", "--until-end", "--follow")).status == 2


async def test_produce_to_nowhere_fails_also_without_input(shell: Shell) -> None:
    ran = await shell("produce", "nowhere", "--timeout", "0.3", "-o", "json")
    assert (ran.status, ran.error["code"]) == (3, "UNKNOWN_TOPIC_OR_PARTITION")


async def test_the_cluster_and_its_controller(shell: Shell, cluster: FakeCluster) -> None:
    described = json.loads((await shell("cluster", "describe", "-o", "json")).out)
    assert [broker["id"] for broker in described["brokers"]] == [1, 2, 3]
    controller = json.loads((await shell("controller", "-o", "json")).out)
    assert controller == described["controller"]
    assert controller == {"id": 1, "epoch": 1, "address": str(cluster.elections[1].address)}


async def test_a_reader_that_leaves_early_is_no_failure(shell: Shell, cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.create("orders")
    assert (await shell("produce", "orders", stdin=b"line\n" * 50_000)).status == 0
    process = await asyncio.create_subprocess_shell(
        f"{sys.executable} -c 'import sys; from regnum_client.command import main; sys.exit(main())'"
        f" consume orders --until-end | head -n 1; echo ${{PIPESTATUS[0]}}",
        executable="/bin/bash",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "REGNUM_BOOTSTRAP": cluster.bootstrap, "REGNUM_PROFILE": str(tmp_path / "none")},
    )
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate()
    assert out.decode().split() == ["line", "0"]
    assert "Traceback" not in err.decode()


async def test_without_a_cluster_the_message_says_how_to_start_one(tmp_path: Path) -> None:
    shell = Shell(tmp_path, None)
    ran = await shell("topics", "list", "-o", "json")
    assert (ran.status, ran.out) == (5, "")
    assert "regnum up" in str(ran.error["message"])
    assert (await shell("status")).status == 3
    assert (await shell("topics", "list", "--bootstrap", "nonsense")).status == 2


async def test_help_and_version_load_nothing_heavy(tmp_path: Path) -> None:
    """GRPC takes a fifth of a second: help is to be there at once."""
    shell = Shell(tmp_path, None)
    assert (await shell("--version")).out.startswith("regnum ")
    assert "topics" in (await shell("--help")).out
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import sys, regnum_client.command; heavy = ('grpc', 'aiokafka', 'google.protobuf', 'rich.table', 'yaml'); "
        "print([name for name in heavy if name in sys.modules])",
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert out.decode().strip() == "[]"
