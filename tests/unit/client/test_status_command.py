"""`regnum status` of a cluster that runs elsewhere: what it says is wrong, in every form, and how it ends."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.broker.v1 import figures_pb2
from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_client import Admin
from regnum_client.admin.health.figures import figures_of
from regnum_client.admin.health.health_admin import ask_elections
from regnum_client.admin.health.views import HealthView, health_view
from regnum_client.commands.status.figures import unanswered, without_controller
from regnum_model.nodes import Address
from regnum_model.topic_filter import Trouble
from regnum_model.wire_times import duration_of
from regnum_service.errors import Code, RegnumError
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.under_load import until
from regnum_testing.waiting import DEADLINE_S, within


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.health = answer()
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


def answer(**changed: object) -> admin_pb2.DescribeHealthResponse:
    """A cluster that is well, apart from what is said."""
    response = admin_pb2.DescribeHealthResponse(
        complete=True,
        topics=2,
        partitions=40,
        metadata_version=7,
        brokers=[admin_pb2.BrokerHealth(broker_id=id, registered=True, replicas=40) for id in (1, 2, 3)],
        metadata_processes=[admin_pb2.MetadataProcessHealth(metadata_id=1, versions_behind=-1)],
        troubles=[
            admin_pb2.TroubleCount(trouble=trouble)
            for trouble in (
                metadata_pb2.PARTITION_TROUBLE_OFFLINE,
                metadata_pb2.PARTITION_TROUBLE_UNDER_MIN_ISR,
                metadata_pb2.PARTITION_TROUBLE_UNDER_REPLICATED,
            )
        ],
        order_overdue=duration_of(10),
        trouble_overdue=duration_of(30),
    )
    response.MergeFrom(admin_pb2.DescribeHealthResponse(**changed))  # type: ignore[arg-type]
    return response


def sick() -> admin_pb2.DescribeHealthResponse:
    """Two partitions without a leader, one broker away, one that owes orders."""
    response = answer(
        troubled_partitions=[
            admin_pb2.TroubledPartition(
                topic="orders",
                state=types_pb2.PartitionState(partition=3, leader=-1, isr=[2], replicas=[2, 1], offline_reason="gone"),
                troubles=[metadata_pb2.PARTITION_TROUBLE_OFFLINE, metadata_pb2.PARTITION_TROUBLE_UNDER_MIN_ISR],
                age=duration_of(61),
            ),
            admin_pb2.TroubledPartition(
                topic="orders",
                state=types_pb2.PartitionState(partition=4, leader=1, isr=[1], replicas=[2, 1]),
                troubles=[metadata_pb2.PARTITION_TROUBLE_UNDER_REPLICATED],
            ),
        ],
        overdue_orders=[
            admin_pb2.OverdueOrders(
                broker_id=1,
                orders=12,
                oldest_age=duration_of(14),
                partitions=[admin_pb2.OverduePartition(topic="orders", partition=9, leader=True)],
            )
        ],
    )
    response.troubles[0].partitions, response.troubles[0].for_long = 2, 1
    response.brokers[1].registered = False
    return response


async def test_brokers_that_take_clients_of_kafka_are_told(cluster: FakeCluster, regnum: CommandHere) -> None:
    cluster.brokers[1].kafka_port = 9192
    cluster.brokers[3].kafka_port = 9194
    shown = json.loads((await regnum("status", "-o", "json")).out)
    assert [address.rpartition(":")[2] for address in shown["kafka"]] == ["9192", "9194"]
    assert f"bootstrap.servers={','.join(shown['kafka'])}" in (await regnum("status")).err
    described = json.loads((await regnum("cluster", "describe", "-o", "json")).out)
    assert [one["kafka"] for one in described["brokers"]] == [shown["kafka"][0], None, shown["kafka"][1]]


async def test_a_cluster_that_is_well_ends_with_0(regnum: CommandHere) -> None:
    ran = await regnum("status", "-o", "json")
    assert (ran.status, ran.err) == (0, "")
    shown = json.loads(ran.out)
    assert (shown["healthy"], shown["problems"], shown["processes"]) == (True, [], [])
    assert (shown["controller"], shown["topics"], shown["partitions"]) == ({"id": 1, "epoch": 1}, 2, 40)
    assert shown["metadata_versions_behind"] == {"1": None}
    assert shown["troubles"]["offline"] == {"partitions": 0, "for_long": 0}
    table = await regnum("status")
    assert table.status == 0
    assert "3 live, 0 away" in table.out


def release(role: str, id: int, release: str, highest: int = 3, refused: str = "") -> admin_pb2.ProcessRelease:
    return admin_pb2.ProcessRelease(
        role=role, id=id, release=release, protocol_min=1, protocol_max=highest, refused=refused
    )


async def test_it_looks_again_until_all_is_well(cluster: FakeCluster, regnum: CommandHere) -> None:
    cluster.health = sick()
    looking = asyncio.create_task(regnum("status", "-o", "json", "--wait", str(DEADLINE_S)))

    async def looked() -> bool:
        return cluster.calls["DescribeHealth"] >= 1

    await until(looked)
    cluster.health = answer()
    ran = await looking
    assert (ran.status, json.loads(ran.out)["healthy"]) == (0, True), ran.err
    cluster.health = sick()
    assert (await regnum("status", "--wait", "0.1")).status == 5


async def test_a_controller_that_has_not_looked_at_everything_is_asked_again(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    cluster.health = answer()
    cluster.health.complete = False
    looking = asyncio.create_task(regnum("status", "-o", "json", "--wait", str(DEADLINE_S)))

    async def looked() -> bool:
        return cluster.calls["DescribeHealth"] >= 2

    await until(looked)
    cluster.health = answer()
    ran = await looking
    assert (ran.status, json.loads(ran.out)["complete"]) == (0, True), ran.err


async def test_a_broker_that_does_not_answer_is_a_problem(cluster: FakeCluster, regnum: CommandHere) -> None:
    # The controller has not noticed, and brokers name it.
    for number in (1, 2):
        await cluster.brokers[number].cut_off()
    await cluster.brokers[3].stop()
    ran = await regnum("status", "-o", "json")
    assert (ran.status, ran.error["code"]) == (5, "UNHEALTHY"), ran.out
    shown = json.loads(ran.out)
    assert [one["broker"] for one in shown["broker_figures"]] == [1, 2, 3]
    # The other two are of a release without figures, which is no fault.
    (problem,) = shown["problems"]
    assert problem.startswith("broker 3 did not answer: ")
    cluster.health = answer()
    cluster.health.brokers[2].registered = False
    shown = json.loads((await regnum("status", "-o", "json")).out)
    assert shown["problems"] == ["brokers that have replicas are away: 3"], "said once"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, ["broker 2 did not answer: why"]),
        (errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, ["broker 2 did not answer: why"]),
        (errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR, ["broker 2 did not answer: why"]),
        (errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED, []),
        (errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED, []),
        (errors_pb2.ERROR_CODE_INVALID_REQUEST, []),
    ],
)
def test_a_refusal_is_no_problem_of_the_broker(code: Code, told: list[str]) -> None:
    assert unanswered({2: RegnumError(code, "why")}, health_view(answer())) == told


async def test_releases_are_shown_and_whether_the_protocol_may_be_raised(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    cluster.health = answer(
        releases=[release("broker", 1, "0.2.0"), release("quota", 1, "0.2.0")],
        inter_broker_protocol=2,
        inter_broker_protocol_max=3,
    )
    shown = json.loads((await regnum("status", "-o", "json")).out)
    assert shown["inter_broker_protocol"] == {"in_force": 2, "may_be_raised_to": 3}
    assert shown["releases"][0] == {"process": "broker-1", "release": "0.2.0", "protocols": "1 to 3", "refused": None}
    table = (await regnum("status")).out
    assert "0.2.0 (2)" in table
    assert "all processes speak 3: it may be raised" in table
    assert "quota-1" not in table, "no line for each where all are the same"
    cluster.health = answer(
        releases=[release("broker", 1, "", highest=2), release("quota", 1, "0.2.0")],
        inter_broker_protocol=2,
        inter_broker_protocol_max=2,
    )
    shown = json.loads((await regnum("status", "-o", "json")).out)
    assert shown["inter_broker_protocol"] == {"in_force": 2, "may_be_raised_to": None}
    assert shown["releases"][0]["release"] == "0.1.0", "who does not say is of the first release"
    assert "quota-1" in (await regnum("status")).out


async def test_a_process_that_is_refused_is_a_problem_with_its_reason(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    cluster.health = answer(releases=[release("broker", 4, "0.0.9", refused="start a release that speaks 2")])
    ran = await regnum("status", "-o", "json")
    assert (ran.status, ran.error["code"]) == (5, "UNHEALTHY")
    assert "broker 4 is refused: start a release that speaks 2" in ran.error["message"]
    assert json.loads(ran.out)["inter_broker_protocol"] is None, "a controller of 0.1.0 does not say"


async def test_what_is_wrong_is_said_and_the_status_is_5(cluster: FakeCluster, regnum: CommandHere) -> None:
    cluster.health = sick()
    ran = await regnum("status", "-o", "json")
    assert (ran.status, ran.error["code"]) == (5, "UNHEALTHY")
    shown = json.loads(ran.out)
    assert shown["healthy"] is False
    assert shown["problems"] == [
        "2 partitions are without a leader",
        "broker 1 has not acknowledged 12 orders for 14 s",
        "brokers that have replicas are away: 2",
    ]
    assert shown["overdue_orders"] == [
        {"broker": 1, "orders": 12, "oldest_age_s": 14.0, "partitions": ["orders/9"]},
    ]
    assert shown["troubled_partitions"][0] == {
        "topic": "orders",
        "partition": 3,
        "troubles": ["offline", "under-min-isr"],
        "for_s": 61.0,
        "leader": None,
        "isr": [2],
        "replicas": [2, 1],
        "reason": "gone",
    }
    table = await regnum("status")
    assert table.status == 5
    for line in ("2, 1 of them for more than 30 s", "orders/9", "offline,under-min-isr", "2 live, 1 away"):
        assert line in table.out
    lines = await regnum("status", "-o", "jsonl")
    assert json.loads(lines.out) == shown


async def test_as_many_partitions_are_named_as_are_asked_for(cluster: FakeCluster, regnum: CommandHere) -> None:
    cluster.health = sick()
    ran = await regnum("status", "--partitions", "1", "-o", "json")
    assert [one["partition"] for one in json.loads(ran.out)["troubled_partitions"]] == [3]
    assert (await regnum("status", "--partitions", "0")).status == 2


async def test_without_a_controller_it_says_so_and_ends(cluster: FakeCluster, regnum: CommandHere) -> None:
    for election in cluster.elections.values():
        await election.stop()
    ran = await regnum("status", "--timeout", "0.5", "-o", "json")
    assert (ran.status, ran.error["code"]) == (5, "NOT_CONTROLLER")
    shown = json.loads(ran.out)
    assert shown["controller"] is None
    assert shown["brokers"] is None
    assert shown["problems"][0].startswith("no controller answers (last known: election process 1 at ")


async def test_partitions_that_lack_a_replica_are_a_problem_only_when_it_lasts() -> None:
    response = answer()
    response.troubles[2].partitions = 40
    assert health_view(response).problems == ()
    response.troubles[2].for_long = 3
    assert health_view(response).problems == ("3 partitions are under-replicated for long",)


async def test_replicas_that_cannot_be_used_and_many_brokers_that_are_away_are_said_shortly() -> None:
    response = answer()
    response.brokers[0].offline_replicas = 4
    response.brokers.extend(admin_pb2.BrokerHealth(broker_id=100 + number, replicas=1) for number in range(30))
    # One that has no replicas any more is nobody's problem.
    response.brokers.add(broker_id=900)
    away, unusable = health_view(response).problems
    assert away == ("brokers that have replicas are away: 100, 101, 102, 103, 104, 105, 106, 107, 108, 109 and 20 more")
    assert unusable == "broker 1 cannot use 4 of its replicas"


async def test_clocks_that_differ_are_named_with_what_to_do() -> None:
    response = answer(controller_id=1, controller_wall_clock_ms=1_700_000_000_000)
    for broker in response.brokers:
        broker.clock_ahead_ms = 20
    assert health_view(response).problems == ()
    response.brokers[1].clock_ahead_ms, response.brokers[1].expiry_held_back = 31_536_000_000, True
    (problem,) = health_view(response).problems
    assert problem == (
        "the clock of broker 2 shows 2024-11-13T22:13:20Z, 31536000 s ahead of controller 1's, which shows "
        "2023-11-14T22:13:20Z: nothing expires by time on that broker; set the wrong one right on its machine (NTP)"
    )
    for broker in response.brokers:
        broker.clock_ahead_ms, broker.expiry_held_back = -400_000, True
    (problem,) = health_view(response).problems
    assert problem.startswith(
        "the clocks of all 3 brokers differ from controller 1's, which shows 2023-11-14T22:13:20Z"
    )
    assert "(broker 1 shows 2023-11-14T22:06:40Z, 400 s behind; broker 2 " in problem
    assert problem.endswith("most likely the controller's is wrong: set the clock of its machine right (NTP)")
    del response.brokers[1:]
    response.brokers[0].clock_ahead_ms = 2**63 - 1
    assert " ms since 1970, " in health_view(response).problems[0]


async def test_a_store_that_asks_nobody_is_a_problem(cluster: FakeCluster, regnum: CommandHere) -> None:
    cluster.health = answer(store_warnings=["asks nobody who connects", "is etcd 3.6.5"])
    ran = await regnum("status", "-o", "json")
    assert ran.status == 5
    assert json.loads(ran.out)["problems"] == [
        "the coordination store asks nobody who connects",
        "the coordination store is etcd 3.6.5",
    ]


async def test_a_metadata_process_that_takes_no_changes_is_a_problem_with_its_reason() -> None:
    response = answer()
    response.metadata_processes.add(metadata_id=2, versions_behind=7, takes_no_changes_because="no route")
    assert health_view(response).problems == (
        "metadata process 2 takes no changes, and the brokers that it serves hear of none: no route",
    )


async def test_what_takes_no_writes_is_a_problem_with_its_reason(cluster: FakeCluster, regnum: CommandHere) -> None:
    response = cluster.health = answer(store_trouble="takes no writes: database space exceeded")
    response.access_warnings.append("processes are not told apart")
    response.brokers[1].refuses_writes_because, response.brokers[1].disk_free_bytes = "the disk is full", 0
    response.troubles.add(trouble=metadata_pb2.PARTITION_TROUBLE_NOT_WRITABLE, partitions=3)
    response.troubled_partitions.add(
        topic="orders",
        state=types_pb2.PartitionState(partition=4, leader=1, isr=[1, 2], replicas=[1, 2]),
        troubles=[metadata_pb2.PARTITION_TROUBLE_NOT_WRITABLE],
        not_writable_because="broker 2: the disk is full",
    )
    ran = await regnum("status", "-o", "json")
    assert ran.status == 5
    shown = json.loads(ran.out)
    assert shown["problems"] == [
        "the coordination store takes no writes: database space exceeded",
        "processes are not told apart",
        "broker 2 appends no records: the disk is full",
        "3 partitions are not writable, though they are led",
    ]
    assert [one["disk_free_bytes"] for one in shown["brokers"]] == [None, 0, None]
    assert [one["reason"] for one in shown["troubled_partitions"]] == ["broker 2: the disk is full"]


def test_without_a_controller_brokers_say_what_they_lack() -> None:
    away = figures_of(figures_pb2.DescribeFiguresResponse(store_trouble="no session"))
    full = figures_of(figures_pb2.DescribeFiguresResponse(store_trouble="no session", refuses_writes_because="full"))
    dead = RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "away")
    assert without_controller({1: away, 2: full, 3: dead}) == ["brokers 1, 2 say: no session", "brokers 2 say: full"]


async def test_a_trouble_that_is_not_known_here_is_left_out() -> None:
    response = answer()
    known = set(health_view(response).troubles)
    response.troubles.add(trouble=77, partitions=3)  # type: ignore[arg-type]
    assert set(health_view(response).troubles) == known <= set(Trouble)


async def test_the_sdk_asks_the_controller_wherever_it_is(cluster: FakeCluster) -> None:
    cluster.health = sick()
    cluster.controller = 2
    async with Admin(cluster.bootstrap) as admin:
        found = await admin.describe_health()
        assert isinstance(found, HealthView)
        assert (found.controller, len(found.troubled_partitions)) == (2, 2)
        assert len((await admin.describe_health(partitions_max=1)).troubled_partitions) == 1


async def test_election_processes_are_asked_at_once_whatever_the_brokers_do(cluster: FakeCluster) -> None:
    cluster.controller = 2
    for broker in cluster.brokers.values():
        await broker.stop()
    addresses = [election.address for election in cluster.elections.values()]
    assert (await ask_elections(addresses, timeout_s=5.0, client_id="test")).controller == 2
    with socket.create_server(("127.0.0.1", 0), backlog=1) as silent:
        hangs = Address(host="127.0.0.1", port=silent.getsockname()[1])
        asking = ask_elections([hangs, *addresses], timeout_s=10 * DEADLINE_S, client_id="test")
        assert (await within(asking)).controller == 2, "the one that hangs is not waited for"
    with pytest.raises(RegnumError, match="no election process runs here"):
        await ask_elections([], timeout_s=5.0, client_id="test")


async def test_what_cannot_be_read_in_the_store_is_listed_with_what_to_do(
    cluster: FakeCluster, regnum: CommandHere
) -> None:
    cluster.health.damaged.add(topic="orders", partition=3, reason="no JSON", advice="see remove-damaged")
    cluster.health.damaged.add(topic="lost", partition=-1, reason="no JSON", advice="correct the node")
    cluster.health.damaged_count = 7
    ran = await regnum("status", "-o", "json")
    assert (ran.status, ran.error["code"]) == (5, "UNHEALTHY")
    shown = json.loads(ran.out)
    assert shown["damaged_count"] == 7
    assert [(one["topic"], one["partition"]) for one in shown["damaged"]] == [("orders", 3), ("lost", None)]
    table = await regnum("status")
    assert "see remove-damaged" in table.out
    assert "7 nodes in the store are damaged or were edited" in table.err
