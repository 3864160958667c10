"""`regnum quotas top`: who uses quotas and who waits, for people and for machines."""

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from regnum.broker.v1 import figures_pb2, figures_pb2_grpc
from regnum_client.admin.describing.quota_usage import QueueWait
from regnum_model.wire_times import duration_of
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        usage = running.quotas.usage
        usage.quota_id, usage.buckets, usage.muted_connections, usage.held_calls = 2, 7, 1, 5
        usage.usages.add(
            client_id="busy", mutation_rate=9.5, tokens=30.0, limit_rate=10.0, limit_burst=110.0, idle_ms=100
        )
        usage.usages.add(
            user="ann",
            client_id="",
            refused_rate=4.0,
            tokens=-60.0,
            limit_rate=5.0,
            limit_burst=500.0,
            idle_ms=2_000,
            throttle_time_ms=12_000,
        )
        usage.usages.add(client_id="evil\x1b[2J\n" + "x" * 300, tokens=1.0, limit_rate=1.0, limit_burst=1.0)
        usage.usages.add(tokens=0.0, limit_rate=100.0, limit_burst=1_100.0, idle_ms=-1)
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


async def test_who_waits_longest_stands_first_and_the_rest_is_said_beside_the_table(regnum: CommandHere) -> None:
    shown = await regnum("quotas", "top")
    assert shown.status == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0].split() == ["WHOSE", "RATE", "REFUSED", "LIMIT", "TOKENS", "BURST", "WAIT", "S", "IDLE", "S"]
    assert lines[1].split("  ")[0] == "user ann, client id (unnamed)"
    assert lines[1].split()[-7:] == ["0.0", "4.0", "5", "-60.0", "500", "12.0", "2"]
    assert lines[2].startswith("client id busy")
    assert "quota process 2 decides; 7 buckets in use; 1 connections have to wait, with 5 calls" in shown.err


class Usage(figures_pb2_grpc.FiguresServiceServicer):
    """What broker 1 and 2 say of quotas of bytes; 3 is of a release that says nothing."""

    def __init__(self, broker: int) -> None:
        self._broker = broker

    async def DescribeClientUsage(  # noqa: N802
        self, _request: figures_pb2.DescribeClientUsageRequest, _context: Any
    ) -> figures_pb2.DescribeClientUsageResponse:
        """One client that waits, and one that does not."""
        waits = figures_pb2.ClientUsage(
            quota="producer_byte_rate", client_id="loader", rate=2_000_000.0, limit=1_000_000.0, wait=duration_of(9.8)
        )
        reads = figures_pb2.ClientUsage(
            quota="request_percentage", user="ann", rate=3.0, limit=50.0, idle=duration_of(2.0)
        )
        usages = [waits] if self._broker == 1 else [reads]
        return figures_pb2.DescribeClientUsageResponse(broker_id=self._broker, usages=usages, accounts=1)


@pytest.fixture
async def measuring() -> AsyncIterator[FakeCluster]:
    running = FakeCluster()

    def add(server: grpc.aio.Server, broker: int) -> None:
        if broker != 3:
            figures_pb2_grpc.add_FiguresServiceServicer_to_server(Usage(broker), server)

    running.more_services.append(add)
    async with running:
        yield running


async def test_a_client_that_a_quota_of_bytes_holds_is_shown_and_counted(measuring: FakeCluster) -> None:
    regnum = CommandHere(measuring.bootstrap)
    shown = await regnum("quotas", "top")
    assert shown.status == 0, shown.err
    rows = [line.split() for line in shown.out.splitlines()]
    assert rows[-2][:5] == ["client", "id", "loader", "producer_byte_rate", "1"]
    assert rows[-2][-2] == "9.8"
    assert rows[-1][:6] == ["user", "ann", "request_percentage", "2", "3.0", "%"]
    assert "at brokers 1 client has to wait, 9.8 s at most; brokers [3] do not say who does" in shown.err
    document = json.loads((await regnum("quotas", "top", "-o", "json")).out)
    assert [(one["client_id"], one["broker"], one["throttle_s"]) for one in document["client_usages"]] == [
        ("loader", 1, 9.8),
        (None, 2, 0.0),
    ]
    assert document["brokers_silent"] == [3]


async def test_nothing_that_a_caller_named_himself_reaches_the_terminal_unless_it_can_be_printed(
    regnum: CommandHere,
) -> None:
    shown = await regnum("quotas", "top", "--by", "tokens")
    assert "\x1b" not in shown.out
    assert len(shown.out.splitlines()) == 5
    assert max(map(len, shown.out.splitlines())) < 130


async def test_machines_get_all_of_it_in_the_order_that_is_asked_for(regnum: CommandHere) -> None:
    document = json.loads((await regnum("quotas", "top", "--by", "rate", "-n", "2", "-o", "json")).out)
    assert (document["quota_id"], document["buckets"], document["held_calls"]) == (2, 7, 5)
    assert [one["client_id"] for one in document["usages"]] == ["busy", ""]
    assert document["usages"][1] == {
        "user": "ann",
        "client_id": "",
        "mutation_rate": 0.0,
        "refused_rate": 4.0,
        "limit_rate": 5.0,
        "limit_burst": 500.0,
        "tokens": -60.0,
        "throttle_s": 12.0,
        "idle_s": 2.0,
    }
    cluster = json.loads((await regnum("quotas", "top", "--by", "tokens", "-o", "json")).out)["usages"][1]
    assert (cluster["user"], cluster["client_id"], cluster["idle_s"]) == (None, None, None)


async def test_without_a_quota_process_it_says_that_the_controller_decides(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    cluster.quotas.usage.quota_id = -1
    assert "the controller decides" in (await regnum("quotas", "top")).err
    assert json.loads((await regnum("quotas", "top", "-o", "json")).out)["quota_id"] is None


@pytest.mark.parametrize(
    ("options", "says"),
    [(("--once", "--interval", "1"), "give one of them"), (("--interval", "1", "-o", "json"), "use -o jsonl")],
)
async def test_options_that_do_not_go_together_are_refused(
    regnum: CommandHere, options: tuple[str, ...], says: str
) -> None:
    refused = await regnum("quotas", "top", *options)
    assert refused.status == 2
    assert says in refused.err


def test_waits_between_two_looks_are_counted_and_a_new_process_begins_anew() -> None:
    before = QueueWait(bounds_s=(0.01, 0.05), counts=(10, 2, 1))
    after = QueueWait(bounds_s=(0.01, 0.05), counts=(109, 3, 1))
    assert after.since(before).counts == (99, 1, 0)
    assert (after.since(before).quantile_s(0.99), after.since(before).quantile_s(1.0)) == (0.01, 0.05)
    assert before.since(after) == before
    assert QueueWait(bounds_s=(0.01,), counts=(0, 0)).quantile_s(0.99) is None
    assert QueueWait(bounds_s=(0.01,), counts=(0, 3)).quantile_s(0.99) == float("inf")
