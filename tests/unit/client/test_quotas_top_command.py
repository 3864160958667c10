"""`regnum quotas top`: who uses quotas and who waits, for people and for machines."""

import json
from collections.abc import AsyncIterator

import pytest
from regnum_client.admin.describing.quota_usage import QueueWait
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
