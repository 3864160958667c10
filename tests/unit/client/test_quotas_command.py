"""`regnum quotas`, and what a quota does to `regnum topics`: stdout, stderr, exit status."""

import json
import shlex
from collections.abc import AsyncIterator

import pytest
from regnum_model.quotas import DEFAULT, QuotaEntity
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster

RATE, BURST = "controller_mutation_rate", "controller_mutation_burst"


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


async def test_set_describe_remove(regnum: CommandHere, cluster: FakeCluster) -> None:
    done = await regnum("quotas", "set", "--user", "alice", "--default-client-id", "--rate", "5", "--burst", "50")
    assert done.status == 0, done.err
    assert done.out.splitlines()[0].split("  ")[0] == "ENTITY"
    assert done.out.splitlines()[1].split()[-2:] == ["5.0", "50.0"]
    alice = QuotaEntity(user="alice", client_id=DEFAULT)
    assert cluster.quotas.values == {alice: {RATE: 5.0, BURST: 50.0}}
    await regnum("quotas", "set", "--cluster", "--rate", "100")
    shown = await regnum("quota", "describe", "-o", "json")
    rows = {row["entity"]: row for row in json.loads(shown.out)}
    assert rows["user alice, client id <default>"] == {
        "entity": "user alice, client id <default>",
        "user": "alice",
        "default_user": False,
        "client_id": None,
        "default_client_id": True,
        RATE: 5.0,
        BURST: 50.0,
        "producer_byte_rate": None,
        "consumer_byte_rate": None,
        "request_percentage": None,
    }
    assert rows["the cluster"][BURST] is None
    one = await regnum("quotas", "describe", "--cluster", "-o", "jsonl")
    assert json.loads(one.out)["entity"] == "the cluster"
    pair = ("--user", "alice", "--default-client-id")
    assert (await regnum("quotas", "remove", *pair, "--burst")).status == 0
    assert cluster.quotas.values[alice] == {RATE: 5.0}
    assert (await regnum("quotas", "remove", *pair)).status == 0
    assert (await regnum("quotas", "remove", "--cluster")).status == 0
    assert cluster.quotas.values == {}
    nothing = await regnum("quotas", "describe")
    assert (nothing.status, nothing.out) == (0, "")
    assert "regnum quotas set" in nothing.err


async def test_all_of_the_clusters_quota_is_what_the_cluster_can_have(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    """It has no limits that each broker measures, and naming them is refused."""
    await regnum("quotas", "set", "--cluster", "--rate", "5", "--burst", "50")
    done = await regnum("quotas", "remove", "--cluster", "-o", "json")
    assert done.status == 0, done.err
    assert json.loads(done.out)[0]["removed"] == [RATE, BURST]
    assert cluster.quotas.values == {}
    refused = await regnum("quotas", "remove", "--cluster", "--consumer-byte-rate")
    assert refused.status == 2
    assert "consumer_byte_rate is measured for users and client ids" in refused.err


async def test_a_removal_says_what_was_there(regnum: CommandHere) -> None:
    """A mistyped name must not look like a quota that is gone."""
    await regnum("quotas", "set", "--client-id", "loader", "--rate", "5")
    mistyped = await regnum("quotas", "remove", "--client-id", "laoder", "-o", "json")
    assert (mistyped.status, json.loads(mistyped.out)[0]["removed"]) == (0, [])
    assert "no such quota was in force" in mistyped.err
    done = await regnum("quotas", "remove", "--client-id", "loader", "-o", "json")
    assert (json.loads(done.out)[0]["removed"], done.err) == ([RATE], "")


async def test_a_change_of_one_limit_leaves_the_other(regnum: CommandHere, cluster: FakeCluster) -> None:
    await regnum("quotas", "set", "--client-id", "loader", "--rate", "5", "--burst", "50")
    await regnum("quotas", "set", "--client-id", "loader", "--rate", "7.5")
    assert cluster.quotas.values == {QuotaEntity(client_id="loader"): {RATE: 7.5, BURST: 50.0}}


async def test_rates_of_bytes_and_a_share_of_time_are_set_shown_and_removed(
    regnum: CommandHere, cluster: FakeCluster
) -> None:
    rates = ("--producer-byte-rate", "1e6", "--consumer-byte-rate", "2e6", "--request-percentage", "20")
    shown = await regnum("quotas", "set", "--client-id", "loader", *rates)
    assert cluster.quotas.values == {
        QuotaEntity(client_id="loader"): {
            "producer_byte_rate": 1e6,
            "consumer_byte_rate": 2e6,
            "request_percentage": 20.0,
        }
    }
    assert shown.err.splitlines()[:3] == [
        "producer_byte_rate: none -> 1000000", "consumer_byte_rate: none -> 2000000", "request_percentage: none -> 20",
    ]  # fmt: skip
    assert "2000000" in shown.out.replace(",", "")
    await regnum("quotas", "remove", "--client-id", "loader", "--consumer-byte-rate")
    assert cluster.quotas.values[QuotaEntity(client_id="loader")].keys() == {"producer_byte_rate", "request_percentage"}
    await regnum("quotas", "remove", "--client-id", "loader")
    assert cluster.quotas.values == {}


async def test_a_dry_run_sets_nothing(regnum: CommandHere, cluster: FakeCluster) -> None:
    looked = await regnum("quotas", "set", "--cluster", "--rate", "5", "--dry-run")
    nothing = "nothing was changed; run it again without --dry-run\n"
    assert (looked.status, looked.err) == (0, f"controller_mutation_rate: none -> 5\n{nothing}")
    assert cluster.quotas.values == {}


async def test_a_burst_alone_is_said_to_limit_nothing(regnum: CommandHere) -> None:
    done = await regnum("quotas", "set", "--cluster", "--burst", "5")
    assert done.status == 0
    assert "limits nothing" in done.err


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["set", "--rate", "5"], "--cluster"),
        (["remove"], "--cluster"),
        (["set", "--cluster"], "--rate"),
        (["set", "--cluster", "--user", "a", "--rate", "5"], "leave out"),
        (["describe", "--user", "a", "--default-user"], "--default-user"),
        (["remove", "--client-id", "a", "--default-client-id"], "--default-client-id"),
    ],
)
async def test_options_that_do_not_go_together(
    regnum: CommandHere, cluster: FakeCluster, arguments: list[str], advice: str
) -> None:
    refused = await regnum("quotas", *arguments)
    assert (refused.status, refused.out) == (2, "")
    assert advice in refused.err
    assert cluster.calls["AlterClientQuotas"] == 0


async def test_the_command_does_not_wait_for_a_quota_unless_told(regnum: CommandHere, cluster: FakeCluster) -> None:
    await regnum("quotas", "set", "--client-id", "loader", "--rate", "0.001", "--burst", "1")
    created = await regnum("topics", "create", "a", "b", "c", "--client-id", "loader", "-o", "json")
    assert created.status == 6
    assert [row["name"] for row in json.loads(created.out)] == ["a", "b"]
    (failure,) = [json.loads(line)["error"] for line in created.err.splitlines()]
    assert failure["code"] == "THROTTLING_QUOTA_EXCEEDED"
    assert 0 < int(failure["metadata"]["throttle_time_ms"]) <= 1_000_000
    assert "--wait" in failure["message"]
    assert "regnum quotas" in failure["message"]
    assert cluster.calls["CreateTopics"] == 1
    deleted = await regnum("topics", "delete", "a", "--yes", "--client-id", "loader")
    assert deleted.status == 6
    assert "was not deleted" in deleted.err
    assert sorted(cluster.topic_ids) == ["a", "b"]
    assert (await regnum("topics", "create", "c")).status == 0, "another client id has no quota"


async def test_the_command_waits_when_told(regnum: CommandHere, cluster: FakeCluster) -> None:
    await regnum("quotas", "set", "--cluster", "--rate", "20", "--burst", "1")
    names = [f"t{number}" for number in range(6)]
    created = await regnum("topics", "create", *names, "--wait", "60", "-o", "json")
    assert created.status == 0, created.err
    assert sorted(row["name"] for row in json.loads(created.out)) == names
    assert "2 done, 4 wait for the quota" in created.err
    assert (await regnum("topics", "delete", *names, "--yes", "--wait", "60")).status == 0
    assert cluster.topic_ids == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ("quotas", "set", "--client-id", "\udcff", "--rate", "5"),
        ("quotas", "describe", "--user", "\udcff"),
        ("topics", "create", "t", "--client-id", "\udcff"),
        ("topics", "create", "\udcff"),
    ],
)
async def test_what_is_no_text_is_wrong_use(regnum: CommandHere, arguments: tuple[str, ...]) -> None:
    """A shell passes on whatever bytes it is given."""
    refused = await regnum(*arguments, "-o", "json")
    assert refused.status == 2
    assert "is not UTF-8" in json.loads(refused.err)["error"]["message"]


async def test_each_change_names_the_command_that_undoes_it(regnum: CommandHere, cluster: FakeCluster) -> None:
    alice = QuotaEntity(user="al ice", client_id=DEFAULT)
    whose = ("--user", "al ice", "--default-client-id")

    async def undo(err: str) -> None:
        (told,) = [line for line in err.splitlines() if line.startswith("undo: ")]
        for command in told.removeprefix("undo: ").split(" && "):
            assert (await regnum(*shlex.split(command)[1:])).status == 0

    await regnum("quotas", "set", *whose, "--rate", "5")
    done = await regnum("quotas", "set", *whose, "--rate", "7.5", "--burst", "50")
    assert "controller_mutation_rate: 5 -> 7.5\n" in done.err
    await undo(done.err)
    assert cluster.quotas.values == {alice: {RATE: 5.0}}
    looked = await regnum("quotas", "remove", *whose, "--dry-run", "-o", "json")
    assert (json.loads(looked.out)[0]["to_remove"], json.loads(looked.out)[0]["undo"]) == ([RATE], None)
    assert cluster.quotas.values == {alice: {RATE: 5.0}}
    removed = await regnum("quotas", "remove", *whose)
    assert cluster.quotas.values == {}
    await undo(removed.err)
    assert cluster.quotas.values == {alice: {RATE: 5.0}}
    assert "undo" not in (await regnum("quotas", "set", *whose, "--rate", "5")).err
