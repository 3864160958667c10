"""The command as a shell sees it: stdout, stderr, exit status."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from regnum_client.command import NEVER_EMPTY, OF_FILES, application, main
from regnum_testing.command_here import CommandHere
from regnum_testing.command_shell import Shell
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.ports import unused_port
from regnum_testing.waiting import DEADLINE_S
from typer.main import get_command


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        yield running


@pytest.fixture
def shell(cluster: FakeCluster, tmp_path: Path) -> Shell:
    return Shell(tmp_path, cluster.bootstrap)


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


async def test_topics_from_beginning_to_end(regnum: CommandHere) -> None:
    created = await regnum("topics", "create", "orders", "-p", "2", "-o", "json")
    assert created.status == 0, created.err
    assert [(row["name"], row["partitions"]) for row in json.loads(created.out)] == [("orders", 2)]
    described = await regnum("topic", "describe", "orders", "-o", "yaml")
    assert [one["leader"] for one in yaml.safe_load(described.out)[0]["partitions"]] == [1, 2]
    listed = await regnum("topics", "list", "-o", "jsonl")
    assert json.loads(listed.out)["under_replicated_partitions"] == 0
    table = await regnum("topics", "describe", "orders")
    assert table.out.splitlines()[0].split() == ["TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "ELR"]
    assert (await regnum("topics", "delete", "orders", "--yes")).status == 0
    assert json.loads((await regnum("topics", "list", "-o", "json")).out) == []


async def test_exit_status_says_what_kind_of_failure(regnum: CommandHere, cluster: FakeCluster) -> None:
    cluster.create("orders")
    missing = await regnum("topics", "describe", "nowhere", "-o", "json")
    assert (missing.status, missing.error["code"], missing.out) == (3, "UNKNOWN_TOPIC_OR_PARTITION", "")
    assert "regnum topics create nowhere" in str(missing.error["message"])
    twice = await regnum("topics", "create", "orders", "-o", "jsonl")
    assert (twice.status, twice.error["code"]) == (4, "TOPIC_ALREADY_EXISTS")
    assert (await regnum("topics", "create", "orders", "--if-not-exists")).status == 0
    for yes in ((), ("--yes",)):
        assert (await regnum("topics", "delete", "nowhere", *yes)).status == 3
        assert (await regnum("topics", "delete", "nowhere", "--if-exists", *yes)).status == 0
    wrong = await regnum("topics", "create", "orders", "--assignment", "one,two", "-o", "json")
    assert (wrong.status, wrong.error["code"]) == (2, "WRONG_USE")
    typing_error = await regnum("topics", "crate")
    assert typing_error.status == 2
    assert "topics --help" in typing_error.err


async def test_one_failure_does_not_hide_the_other_topics(regnum: CommandHere, cluster: FakeCluster) -> None:
    cluster.create("old")
    ran = await regnum("topics", "create", "old", "new", "-o", "json")
    assert ran.status == 4
    assert [row["name"] for row in json.loads(ran.out)] == ["new"]
    described = await regnum("topics", "describe", "nowhere", "old", "new", "-o", "json")
    assert (described.status, described.error["code"]) == (3, "UNKNOWN_TOPIC_OR_PARTITION")
    assert [row["name"] for row in json.loads(described.out)] == ["new", "old"]


async def test_an_assignment_says_the_number_of_partitions_itself(regnum: CommandHere) -> None:
    for option in ("--partitions", "--replication-factor"):
        ran = await regnum("topics", "create", "orders", "--assignment", "1,2;2,3", option, "2", "-o", "json")
        assert (ran.status, ran.error["code"]) == (2, "WRONG_USE")


@pytest.mark.parametrize(
    "arguments",
    [
        ("brokers", "forget", "2147483648"),
        ("brokers", "drain", "2147483648", "--undo"),
        ("partitions", "reassign", "--to", "orders/0=2147483648"),
        ("partitions", "recover", "orders", "2147483648"),
        ("topics", "create", "new", "--partitions", "2147483648"),
        ("events", "--broker", "2147483648"),
    ],
)
async def test_a_number_larger_than_any_is_wrong_use_and_no_internal_error(
    regnum: CommandHere, cluster: FakeCluster, arguments: tuple[str, ...]
) -> None:
    cluster.create("orders")
    ran = await regnum(*arguments, "-o", "json")
    assert (ran.status, ran.error["code"]) == (2, "WRONG_USE")
    assert "2147483648 is too large" in str(ran.error["message"])


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


async def test_consume_ends_where_it_cannot_go_on(regnum: CommandHere, cluster: FakeCluster) -> None:
    cluster.create("orders")
    silent = await regnum("consume", "orders", "--timeout", "0.3", "-o", "json")
    assert (silent.status, silent.error["code"]) == (5, "REQUEST_TIMED_OUT")
    assert json.loads(silent.out) == []
    assert (await regnum("consume", "orders", "--until-end")).out == ""
    gone = await regnum("consume", "orders", "--from", "99", "-n", "1", "-o", "json")
    assert (gone.status, gone.error["code"]) == (1, "OFFSET_OUT_OF_RANGE")
    assert "--from" in str(gone.error["message"])
    assert (await regnum("consume", "orders", "--from", "soon")).status == 2
    assert (await regnum("consume", "orders", "--until-end", "--follow")).status == 2


async def test_what_can_be_no_topic_is_not_offered_to_be_created(regnum: CommandHere) -> None:
    for command in (["topics", "describe"], ["consume"], ["produce"]):
        for name in ("", "a b"):
            ran = await regnum(*command, name, "-o", "json")
            assert (ran.status, ran.error["code"]) == (2, "INVALID_TOPIC_EXCEPTION")
            assert "topics create" not in str(ran.error["message"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["logs", "inspect", ""],
        ["logs", "inspect", "--records", ""],
        ["logs", "inspect", "-o", "json", ""],
        ["backup", ""],
        ["restore", "", "--coordination", "etcd://h"],
        ["status", "--bootstrap", ""],
        ["status", "--data-dir="],
        ["down", "--data-dir", ""],
        ["up", "--coordination", ""],
        ["acls", "remove", "--topic", ""],
        ["--tls-ca", "", "topics", "list"],
    ],
)
async def test_an_empty_text_names_neither_the_present_folder_nor_everything(
    arguments: list[str], regnum: CommandHere
) -> None:
    ran = await regnum.alone(*arguments)
    assert ran.status == 2, ran.err
    assert "empty" in ran.err


def test_every_option_that_is_a_path_is_one_that_is_never_empty() -> None:
    paths: set[str] = set()
    files: set[str] = set()

    def walk(command: Any, words: tuple[str, ...] = ()) -> None:
        for one in command.params:
            annotation = str(getattr(getattr(one, "type_descriptor", None), "annotation", ""))
            if "Path" in annotation or (one.metavar or "").startswith("FILE"):
                paths.update(one.opts if one.param_type_name == "option" else ())
                files.update(words[:1] if one.param_type_name == "argument" else ())
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*words, name))

    walk(get_command(application()))
    assert "--data-dir" in paths
    assert paths <= NEVER_EMPTY
    assert files == OF_FILES


async def test_produce_to_nowhere_fails_also_without_input(shell: Shell) -> None:
    ran = await shell("produce", "nowhere", "--timeout", "0.3", "-o", "json")
    assert (ran.status, ran.error["code"]) == (3, "UNKNOWN_TOPIC_OR_PARTITION")


async def test_the_cluster_and_its_controller(regnum: CommandHere, cluster: FakeCluster) -> None:
    described = json.loads((await regnum("cluster", "describe", "-o", "json")).out)
    assert [broker["id"] for broker in described["brokers"]] == [1, 2, 3]
    controller = json.loads((await regnum("controller", "-o", "json")).out)
    assert controller == {**described["controller"], "answers": True}
    assert described["controller"] == {"id": 1, "epoch": 1, "address": str(cluster.elections[1].address)}


async def test_a_reader_that_leaves_early_is_no_failure(shell: Shell, cluster: FakeCluster) -> None:
    cluster.create("orders")
    assert (await shell("produce", "orders", stdin=b"line\n" * 50_000)).status == 0
    ran = await shell.line("regnum consume orders --until-end | head -n 1; echo ${PIPESTATUS[0]}")
    assert ran.out.split() == ["line", "0"]
    assert "Traceback" not in ran.err


async def test_a_reader_of_offsets_that_leaves_early_stops_no_record(shell: Shell, cluster: FakeCluster) -> None:
    cluster.create("orders")
    ran = await shell.line("seq 50000 | regnum produce orders -o jsonl | head -n 1; echo ${PIPESTATUS[1]}")
    offset, status = ran.out.splitlines()
    assert (json.loads(offset)["offset"], status, ran.err) == (0, "0", "")
    assert cluster.partitions[("orders", 0)].end == 50_000


async def test_a_line_is_sent_before_the_next_one_is_there(shell: Shell, cluster: FakeCluster) -> None:
    cluster.create("orders")
    process = await shell.start("produce", "orders", "-o", "jsonl")
    assert process.stdin is not None
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        for offset in range(3):
            process.stdin.write(b"line\n")
            assert json.loads(await process.stdout.readline())["offset"] == offset
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert (process.returncode, err) == (130, b"")


async def test_streams_that_cannot_be_used(shell: Shell, cluster: FakeCluster) -> None:
    cluster.create("orders")
    full = await shell.line("regnum topics list -o json >/dev/full")
    assert (full.status, full.error["code"], len(full.err.splitlines())) == (1, "SYSTEM_ERROR", 1)
    assert "No space left" in str(full.error["message"])
    offsets = await shell.line("seq 10 | regnum produce orders -o jsonl >/dev/full")
    assert (offsets.status, offsets.error["code"], len(offsets.err.splitlines())) == (1, "SYSTEM_ERROR", 1)
    no_output = await shell.line("regnum topics list >&-")
    assert (no_output.status, "stdout is closed" in no_output.err) == (1, True)
    no_input = await shell.line("regnum produce orders -o json <&-")
    assert (no_input.status, no_input.error["code"]) == (2, "WRONG_USE")


async def test_stderr_is_json_and_nothing_else_when_json_is_asked_for(shell: Shell, cluster: FakeCluster) -> None:
    cluster.create("orders")
    for command in (["consume", "nowhere"], ["produce", "nowhere"], ["consume", "orders", "--timeout", "0.3"]):
        ran = await shell(*command, "-o", "json")
        assert json.loads(ran.err)["error"]["exit_status"] == ran.status
    assert (await shell("produce", "orders", "-o", "json", stdin=b"1\n")).err == ""
    assert (await shell("produce", "orders", stdin=b"1\n")).err == "1 of 1 records acknowledged by orders\n"
    assert (await shell("consume", "orders", "-n", "1")).err == "1 record\n"


async def test_help_that_nobody_asked_for_goes_to_stderr(shell: Shell) -> None:
    for command in ([], ["topics"], ["cluster"]):
        alone, asked = await shell(*command), await shell(*command, "--help")
        assert (alone.status, alone.out, asked.status, asked.err) == (2, "", 0, "")
        assert "Commands" in alone.err


async def test_messages_on_wrong_use_are_sentences(regnum: CommandHere) -> None:
    form = await regnum("topics", "list", "-o", "xml")
    assert (form.status, "Value error" in form.err, "'yaml'. See `regnum topics list --help`." in form.err) == (
        2,
        False,
        True,
    )
    offset = await regnum("consume", "orders", "--from", str(2**63), "-o", "json")
    assert (offset.status, offset.error["code"]) == (2, "WRONG_USE")


async def test_debug_shows_the_trace_and_keeps_the_exit_status(shell: Shell) -> None:
    ran = await shell("topics", "describe", "nowhere", "--debug")
    assert (ran.status, "Traceback" in ran.err) == (3, True)


async def test_without_a_cluster_the_message_says_how_to_start_one(tmp_path: Path) -> None:
    shell = Shell(tmp_path, None)
    ran = await shell("topics", "list", "-o", "json")
    assert (ran.status, ran.out) == (3, "")
    assert "regnum up" in str(ran.error["message"])
    assert (await shell("status")).status == (await shell("down")).status == 3, "every command says the same"
    assert (await shell("topics", "list", "--bootstrap", "nonsense")).status == 2


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*path, name))


def test_every_help_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Brackets of a form are markup to whoever renders the help."""
    found = dict(_commands(get_command(application())))
    assert ("up",) in found
    assert ("topics", "create") in found
    for path, command in found.items():
        assert main([*path, "--help"]) == 0
        shown = capsys.readouterr().out
        words = {word for parameter in command.params for word in (parameter.help or "").split()}
        assert {word for word in words if word not in shown} == set(), f"regnum {' '.join(path)} --help"


def test_the_help_of_restart_says_how_it_differs_from_start() -> None:
    commands = get_command(application()).commands  # type: ignore[attr-defined]
    assert all(word in commands["restart"].help for word in ("`regnum start`", "--force", "one"))


async def test_a_store_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    """What the driver's library says of every attempt is for logs."""
    url = f"zookeeper://127.0.0.1:{unused_port()}/regnum"
    ran = await Shell(tmp_path, None)("up", "--data-dir", str(tmp_path / "data"), "--coordination", url)
    assert (ran.status, ran.out) == (5, "")
    starting, refused = ran.err.splitlines()
    assert starting.startswith("starting the cluster in ")
    assert refused.startswith("regnum: no coordination store answers at zookeeper://127.0.0.1")


async def test_help_and_version_load_nothing_heavy(tmp_path: Path) -> None:
    """GRPC takes a fifth of a second: help is to be there at once."""
    shell = Shell(tmp_path, None)
    assert (await shell("--version")).out.startswith("regnum ")
    assert "topics" in (await shell("--help")).out
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import sys, regnum_client.command; "
        "heavy = ('asyncio', 'grpc', 'aiokafka', 'google.protobuf', 'rich.table', 'yaml'); "
        "print([name for name in heavy if name in sys.modules])",
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert out.decode().strip() == "[]"
