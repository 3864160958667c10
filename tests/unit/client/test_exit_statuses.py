"""How each command ends, as docs/operations/command.md says it: the table is read from there."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client.command import HOMES
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.ports import unused_port

ROOT = Path(__file__).parents[3]
DONE, FAILED, WRONG_USE, NOT_FOUND, CONFLICT, UNAVAILABLE, QUOTA, NOT_ALLOWED = range(8)

ENDS: dict[str, int] = {
    # wrong use: what is asked for makes no sense, in whatever cluster
    "topics create new --partitions many": WRONG_USE,
    "topics create new --partitions 99999999999": WRONG_USE,
    "topics add-partitions t": WRONG_USE,
    "topics list --match [": WRONG_USE,
    "topics delete-records t --before-offset -5": WRONG_USE,
    "topics list --timeout nan": WRONG_USE,
    "topics list --output xml": WRONG_USE,
    "topics list --nosuch": WRONG_USE,
    "topics nosuch": WRONG_USE,
    "nosuch": WRONG_USE,
    "partitions reassign --to t/0=": WRONG_USE,
    "partitions reassign --to t/0=x": WRONG_USE,
    "partitions reassign --to t/0=1,1": WRONG_USE,
    "partitions reassign --topics t": WRONG_USE,
    "partitions reassign --topics t --brokers 77": WRONG_USE,
    "partitions cancel": WRONG_USE,
    "partitions cancel t": WRONG_USE,
    "brokers describe x": WRONG_USE,
    "brokers drain -1": WRONG_USE,
    "brokers drain 99999999999": WRONG_USE,
    "brokers drain 1 --no-wait --wait-s 5": WRONG_USE,
    "quotas set --client-id c": WRONG_USE,
    "quotas set --client-id c --producer-byte-rate many": WRONG_USE,
    "quotas top --limit 0": WRONG_USE,
    "configs set --topic t": WRONG_USE,
    "configs set a=b": WRONG_USE,
    "configs set --cluster a": WRONG_USE,
    "acls add --allow User:a --operation NOSUCH --topic t": WRONG_USE,
    "acls add --allow a --operation READ --topic t": WRONG_USE,
    "groups reset-offsets g": WRONG_USE,
    "explain t": WRONG_USE,
    "events --since soon": WRONG_USE,
    "produce t --compression zstdd": WRONG_USE,
    "produce t --acks 7": WRONG_USE,
    "load t --acks 7": WRONG_USE,
    "load t --rate -1": WRONG_USE,
    "produce t --linger-ms -1": WRONG_USE,
    "consume t --from soon": WRONG_USE,
    "consume t --format %q": WRONG_USE,
    "consume t --until 2999-01-01T00:00:00Z": WRONG_USE,
    "up --brokers 0": WRONG_USE,
    # not found: it could be there, and is not
    "topics describe nosuch": NOT_FOUND,
    "topics delete nosuch": NOT_FOUND,
    "topics delete nosuch --yes": NOT_FOUND,
    "topics add-partitions nosuch --count 1": NOT_FOUND,
    "topics remove-partitions nosuch --count 1": NOT_FOUND,
    "topics delete-records nosuch --before-offset 1": NOT_FOUND,
    "topics delete-records t --partition 9 --before-offset 1": NOT_FOUND,
    "topics config show nosuch": NOT_FOUND,
    "partitions reassign --to nosuch/0=1": NOT_FOUND,
    "partitions reassign --to t/9=1": NOT_FOUND,
    "partitions reassign --topics nosuch --brokers 1,2": NOT_FOUND,
    "brokers describe 77": NOT_FOUND,
    "brokers drain 77": NOT_FOUND,
    "brokers drain 77 --dry-run": NOT_FOUND,
    "brokers drain 77 --undo": NOT_FOUND,
    "brokers remove-check 77": NOT_FOUND,
    "brokers strays --broker 77": NOT_FOUND,
    "configs describe --broker 77": NOT_FOUND,
    "configs describe --topic nosuch": NOT_FOUND,
    "explain nosuch/0": NOT_FOUND,
    "explain t/9": NOT_FOUND,
    "groups reset-offsets g --topic nosuch --to-earliest": NOT_FOUND,
    "consume t --partition 9 --until-end": NOT_FOUND,
    "down --data-dir /nonexistent": NOT_FOUND,
    "restart broker-1 --data-dir /nonexistent": NOT_FOUND,
    "status --data-dir /nonexistent": NOT_FOUND,
    "load nosuch --records 1": NOT_FOUND,
    "profile use nosuch": NOT_FOUND,
    "--profile nosuch topics list": NOT_FOUND,
    "profile create local --bootstrap h:1": WRONG_USE,
    "doctor --data-dir /nonexistent": NOT_FOUND,
    "start broker-1 --data-dir /nonexistent": NOT_FOUND,
    "kill broker-1 --data-dir /nonexistent": NOT_FOUND,
    "logs broker-1 --data-dir /nonexistent": NOT_FOUND,
    # conflict, and what nothing else names
    "topics create t": CONFLICT,
    "logs inspect /nonexistent": FAILED,
    "produce t --file /nonexistent": FAILED,
    "topics list": DONE,
    "topics describe t": DONE,
    "brokers list": DONE,
    "console --host 0.0.0.0": WRONG_USE,
    "console --port 70000": WRONG_USE,
}
"""Command line -> exit status; the cluster has topic ``t`` with one partition, and brokers 1 to 3."""


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("t")
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


def test_the_table_of_the_page_is_the_one_of_this_module() -> None:
    words = " ".join((ROOT / "docs/operations/command.md").read_text().split())
    (table,) = re.findall(r"exit status is (0 done.*?Ctrl-C)\.", words)
    assert table == (
        "0 done, 1 failed, 2 wrong use, 3 not found, 4 conflict, 5 unavailable or time-out, 6 quota, 7 not allowed, "
        "130 interrupted by Ctrl-C"
    )


async def test_commands_end_as_the_table_says(regnum: CommandHere) -> None:
    """All over one cluster: they change nothing that the next one sees."""
    ended: dict[str, int] = {}
    told: dict[str, str] = {}
    for line in ENDS:
        here = line.split()[0] in {"profile", "up", "down", "restart", "start", "kill", "logs", "nosuch"}
        ran = await (regnum.alone if here else regnum)(*line.split())
        ended[line], told[line] = ran.status, ran.err
    assert ended == ENDS, {line: told[line] for line in ENDS if ended[line] != ENDS[line]}
    untold = [line for line, status in ENDS.items() if status and not told[line].strip()]
    assert not untold
    assert not [line for line, err in told.items() if "internal error" in err or "Traceback" in err]
    homes = {word for words in HOMES.values() for word in words[:1]}
    assert homes - {line.split()[0] for line in ENDS} <= {"cluster", "metadata", "backup", "restore", "failovers"} | {
        "certs",
        "tokens",
        "status",
    }


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED, NOT_ALLOWED),
        (errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED, NOT_ALLOWED),
        (errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, QUOTA),
        (errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT, WRONG_USE),
        (errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR, FAILED),
    ],
)
async def test_what_the_cluster_refuses_ends_as_the_table_says(
    regnum: CommandHere, cluster: FakeCluster, code: errors_pb2.ErrorCode.ValueType, status: int
) -> None:
    cluster.reassignments.refused["t", 0] = code, "because"
    ran = await regnum("partitions", "reassign", "--to", "t/0=1,2", "--execute", "-o", "json")
    assert (ran.status, ran.error["exit_status"]) == (status, status)


async def test_where_nobody_answers_it_is_unavailable_whatever_is_asked() -> None:
    nobody = CommandHere(f"127.0.0.1:{unused_port()}")
    for line in ("topics list", "brokers drain 1", "produce t --file /dev/null", "consume t --until-end"):
        ran = await nobody(*line.split(), "--timeout", "0.2", "-o", "json")
        assert (line, ran.status) == (line, UNAVAILABLE)
