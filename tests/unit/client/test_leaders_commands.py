"""`regnum partitions list|elect-leaders`, `brokers list|describe`, `controller show|resign`, `topics config`."""

import json
from collections.abc import AsyncIterator, Sequence

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_client import Admin, ElectionType
from regnum_service.errors import RegnumError
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("orders", partitions=2)
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


def result(topic: str, partition: int, leader: int = 1, **fields: object) -> admin_pb2.ElectLeadersResult:
    return admin_pb2.ElectLeadersResult(topic=topic, partition=partition, leader=leader, **fields)  # type: ignore[arg-type]


NOT_NEEDED = {"error_code": errors_pb2.ERROR_CODE_ELECTION_NOT_NEEDED, "error_message": "broker 1 leads already"}
AWAY = {"error_code": errors_pb2.ERROR_CODE_PREFERRED_LEADER_NOT_AVAILABLE, "error_message": "broker 1 is away"}
LOSS = {"may_be_lost": "what broker 3 alone had", "unknown": [3]}


async def test_preferred_leaders_are_elected_and_a_dry_run_changes_nothing(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    cluster.leaders.elections = [result("orders", 0), result("orders", 1, **NOT_NEEDED)]
    dry = await regnum("partitions", "elect-leaders", "--topic", "orders", "--dry-run", "-o", "json")
    assert dry.status == 0, dry.err
    (row,) = json.loads(dry.out)
    assert (row["partition"], row["leader"], row["elected"]) == (0, 1, False)
    assert not cluster.leaders.elected
    done = await regnum("partitions", "elect-leaders", "--topic", "orders", "-o", "jsonl")
    assert json.loads(done.out)["elected"] is True
    assert cluster.leaders.elected == {("orders", 0)}
    named = await regnum("partitions", "elect-leaders", "--topic", "orders", "--partition", "1", "-o", "json")
    assert (named.status, named.error["code"]) == (4, "ELECTION_NOT_NEEDED")


async def test_a_preferred_replica_that_cannot_lead_is_a_failure_of_its_own(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    cluster.leaders.elections = [result("orders", 0), result("orders", 1, **AWAY)]
    status, out, err = await regnum("partitions", "elect-leaders", "--all")
    assert status == 5
    assert "orders" in out
    assert "orders/1: broker 1 is away" in err


async def test_of_very_many_failures_the_first_are_shown_and_the_others_counted(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    cluster.leaders.elections = [result("orders", number, **AWAY) for number in range(300)]
    status, out, err = await regnum("partitions", "elect-leaders", "--topic", "orders", "--dry-run")
    assert (status, out) == (5, "")
    assert len(err.splitlines()) == 22
    assert "279 further partitions" in err


async def test_an_unclean_election_shows_what_is_lost_and_waits_for_yes(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    cluster.leaders.elections = [result("orders", 0, 2, **LOSS)]
    status, out, err = await regnum("partitions", "elect-leaders", "--unclean", "--topic", "orders")
    assert status == 0
    assert "what broker 3 alone had" in out
    assert "--yes" in err
    assert not cluster.leaders.elected
    done = await regnum("partitions", "elect-leaders", "--unclean", "--all", "--yes", "-o", "json")
    assert json.loads(done.out) == [
        {
            "topic": "orders",
            "partition": 0,
            "leader": 2,
            "leader_epoch": 8,
            "elected": True,
            "unknown": [3],
            "may_be_lost": "what broker 3 alone had",
        }
    ]
    request = cluster.leaders.requests[-1]
    assert (request.type, request.validate_only, request.header.client_id) == (2, False, "regnum-admin")


async def test_all_partitions_are_elected_call_by_call(cluster: FakeCluster) -> None:
    cluster.leaders.elections = [result("orders", number) for number in range(7)]
    cluster.leaders.page = 3
    async with Admin(cluster.bootstrap) as admin:
        results = await admin.elect_leaders(ElectionType.PREFERRED)
    assert [one.partition for one in results] == list(range(7))
    assert len(cluster.leaders.requests) == 3


async def test_only_what_loses_nothing_is_sent_again_without_an_answer(cluster: FakeCluster) -> None:
    cluster.leaders.elections = [result("orders", 0)]
    async with Admin(cluster.bootstrap) as admin:
        cluster.elections[1].silent_answers = 1
        with pytest.raises(RegnumError) as unknown:
            await admin.elect_leaders(ElectionType.UNCLEAN, {"orders": [0]})
        assert unknown.value.code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
        assert cluster.calls["ElectLeaders"] == 1
        cluster.elections[1].silent_answers = 1
        await admin.elect_leaders(ElectionType.PREFERRED, {"orders": [0]})
        assert cluster.calls["ElectLeaders"] == 3


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--all", "--topic", "orders"],
        ["--all", "--partition", "1"],
        ["--all", "--yes"],
        ["--all", "--unclean", "--yes", "--dry-run"],
    ],
)
async def test_what_does_not_go_together_is_refused(
    cluster: FakeCluster, regnum: CommandHere, arguments: Sequence[str]
) -> None:
    ended = await regnum("partitions", "elect-leaders", *arguments, "-o", "json")
    assert (ended.status, ended.error["code"]) == (2, "WRONG_USE")
    assert not cluster.leaders.requests


async def test_partitions_without_a_leader_are_listed_with_their_reasons(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    assert "every partition has a leader" in (await regnum("partitions", "list", "--offline")).err
    cluster.leaders.offline = [
        admin_pb2.OfflinePartition(
            topic=topic,
            partition=0,
            reason=admin_pb2.OFFLINE_REASON_MEMBERS_AWAY,
            message="no live broker: 2, 3",
            replicas=[1, 2, 3],
            isr=[2, 3],
        )
        for topic in ("orders", "payments")
    ]
    shown = await regnum("partitions", "list", "--offline", "--limit", "1")
    assert "no live broker: 2, 3" in shown.out
    assert "1 of 2" in shown.err
    cluster.leaders.offline_page = 1
    everything = json.loads((await regnum("partitions", "list", "--offline", "-o", "json")).out)
    assert [row["topic"] for row in everything] == ["orders", "payments"]
    rows = json.loads((await regnum("partitions", "list", "--offline", "payments", "-o", "json")).out)
    assert [(row["topic"], row["reason"], row["isr"]) for row in rows] == [("payments", "members away", [2, 3])]
    assert (await regnum("partitions", "list")).status == 2


async def test_brokers_are_listed_and_described(cluster: FakeCluster, regnum: CommandHere) -> None:
    cluster.leaders.brokers = [
        admin_pb2.DescribedBroker(
            broker_id=1,
            live=True,
            epoch=17,
            registration=2,
            rack="r1",
            client=types_pb2.Endpoint(host="h", port=9_092),
            internal=types_pb2.Endpoint(host="h", port=9_093),
            log_ids=["abc"],
            leaders=4,
            replicas=9,
            offline_replicas=1,
        ),
        admin_pb2.DescribedBroker(broker_id=3, replicas=9),
    ]
    rows = json.loads((await regnum("brokers", "list", "-o", "json")).out)
    assert [(row["id"], row["live"], row["leaders"], row["client"]) for row in rows] == [
        (1, True, 4, "h:9092"),
        (3, False, 0, None),
    ]
    status, out, err = await regnum("brokers", "describe", "1")
    assert status == 0
    assert "abc" in out
    assert "cannot be used" in err
    gone = await regnum("brokers", "describe", "9", "-o", "json")
    assert (gone.status, gone.error["code"]) == (3, "BROKER_ID_NOT_REGISTERED")


async def test_the_controller_is_shown_and_resigns(cluster: FakeCluster, regnum: CommandHere) -> None:
    before = json.loads((await regnum("controller", "-o", "json")).out)
    assert json.loads((await regnum("controller", "show", "-o", "json")).out) == before
    ended = await regnum("controller", "resign", "-o", "json")
    assert ended.status == 0, ended.err
    told = json.loads(ended.out)
    assert (told["resigned"], told["resigned_epoch"], told["controller"], told["epoch"]) == (1, 1, 2, 2)
    assert told["without_controller_ms"] >= 0
    assert json.loads((await regnum("controller", "show", "-o", "json")).out)["id"] == 2


DEAD = "no controller answers (last known: election process 1 at"


async def test_a_controller_that_is_dead_is_shown_as_one_that_does_not_answer(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    address = str(cluster.elections[1].address)
    for election in cluster.elections.values():
        await election.stop()
    shown = await regnum("controller", "show", "--timeout", "0.5", "-o", "json")
    assert json.loads(shown.out) == {"id": 1, "epoch": 1, "address": address, "answers": False}
    assert shown.status == 5
    assert f"{DEAD} {address}, epoch 1)" in shown.err
    table = await regnum("controller", "--timeout", "0.5")
    assert (table.status, table.out.splitlines()[-1].split()) == (5, ["answers", "no"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("controller", "resign"),
        ("brokers", "list"),
        ("partitions", "list", "--offline"),
        ("partitions", "recover", "orders", "--accept-loss"),
        ("partitions", "elect-leaders", "--all", "--unclean", "--yes"),
        ("quotas", "describe"),
        ("topics", "create", "orders"),
        ("brokers", "forget", "9"),
        ("events",),
    ],
)
async def test_without_a_controller_every_command_says_that_and_what_to_do(
    cluster: FakeCluster, regnum: CommandHere, arguments: tuple[str, ...]
) -> None:
    for election in cluster.elections.values():
        await election.stop()
    ran = await regnum(*arguments, "--timeout", "0.5", "-o", "json")
    assert ran.status == 5
    message = str(ran.error["message"])
    assert message.startswith(DEAD), message
    assert "brokers and clients go on; start an election process, or see its log" in message
    assert "failed to connect" not in message


async def test_nobody_who_takes_over_from_a_controller_that_resigned_is_said(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    cluster.leaders.has_successor = False
    ran = await regnum("controller", "resign", "--timeout", "0.5", "-o", "json")
    assert ran.status == 5
    assert "the term of epoch 1 is over, and no process took over in 0.5 s" in str(ran.error["message"])


async def test_an_answer_that_is_lost_ends_one_reign_only(cluster: FakeCluster) -> None:
    cluster.elections[1].silent_answers = 1
    async with Admin(cluster.bootstrap) as admin:
        ended = await admin.resign_controller()
    assert (ended.controller_epoch, ended.successor_epoch) == (1, 2)
    assert cluster.calls["ResignController"] == 1


async def test_settings_of_a_topic_are_shown_set_and_unset(cluster: FakeCluster, regnum: CommandHere) -> None:
    made = await regnum("topics", "create", "small", "--config", "max.message.bytes=5000", "-o", "json")
    assert made.status == 0, made.err
    assert cluster.configs.values["small"] == {"max.message.bytes": "5000"}
    done = await regnum("topics", "config", "set", "orders", "min.insync.replicas=1", "-o", "json")
    assert done.status == 0, done.err
    assert {row["name"]: row["source"] for row in json.loads(done.out)} == {"min.insync.replicas": "topic"}
    shown = await regnum("topics", "config", "show", "orders")
    assert "min.insync.replicas" in shown.out
    await regnum("topics", "config", "unset", "orders", "min.insync.replicas")
    assert cluster.configs.values["orders"] == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["set", "orders", "min.insync.replicas"],
        ["set", "orders", "min.insync.replicas=1", "min.insync.replicas=2"],
        ["unset", "orders", "min.insync.replicas", "min.insync.replicas"],
    ],
)
async def test_settings_that_make_no_sense_are_refused(regnum: CommandHere, arguments: Sequence[str]) -> None:
    assert (await regnum("topics", "config", *arguments)).status == 2


async def test_a_bad_config_at_creation_is_refused_before_anything_is_sent(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    assert (await regnum("topics", "create", "small", "--config", "nonsense")).status == 2
    assert not cluster.calls["CreateTopics"]
