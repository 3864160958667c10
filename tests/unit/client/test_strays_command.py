"""`regnum brokers strays` and what `regnum status` says of them: every page, every broker, and who does not say."""

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
import pytest
from regnum.admin.v1 import admin_pb2
from regnum.broker.v1 import figures_pb2, figures_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_client import Admin
from regnum_client.admin.health.figures import figures_of
from regnum_client.commands.status.figures import stray_line, stray_totals
from regnum_service.errors import RegnumError
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster

PAGE = 1_000


class Strays:
    """Brokers 1 and 2 have strays; 3 is of a release that knows none."""

    def __init__(self) -> None:
        self.count = {1: 2 * PAGE + 1, 2: 0}
        self.stuck = False
        """Whether every page says that it ends where the first does."""

    def add(self, server: grpc.aio.Server, broker: int) -> None:
        """Register it with a broker."""
        if broker in self.count:
            figures_pb2_grpc.add_FiguresServiceServicer_to_server(_One(self, broker), server)


class _One(figures_pb2_grpc.FiguresServiceServicer):
    def __init__(self, strays: Strays, broker: int) -> None:
        self._strays, self._broker = strays, broker

    async def DescribeFigures(  # noqa: N802
        self, _request: figures_pb2.DescribeFiguresRequest, _context: Any
    ) -> figures_pb2.DescribeFiguresResponse:
        """How many there are."""
        return figures_pb2.DescribeFiguresResponse(broker_id=self._broker, strays=self._strays.count[self._broker])

    async def DescribeStrays(  # noqa: N802
        self, request: figures_pb2.DescribeStraysRequest, _context: Any
    ) -> figures_pb2.DescribeStraysResponse:
        """In the order of partition."""
        first = request.after.partition + 1 if request.HasField("after") else 0
        last = min(first + PAGE, self._strays.count[self._broker])
        stray = partial(figures_pb2.StrayReplica, topic_id="I" * 22, topic="lost", size_bytes=7, log_start_offset=2)
        answer = figures_pb2.DescribeStraysResponse(
            broker_id=self._broker,
            strays=[stray(partition=n, log_end_offset=n + 2, last_written_leader_epoch=4) for n in range(first, last)],
        )
        if self._strays.stuck:
            last = PAGE
        if last < self._strays.count[self._broker]:
            answer.next.topic_id, answer.next.partition = "I" * 22, last - 1
        return answer


@pytest.fixture
def strays() -> Strays:
    return Strays()


@pytest.fixture
async def cluster(strays: Strays) -> AsyncIterator[FakeCluster]:
    made = FakeCluster()
    made.more_services.append(strays.add)
    async with made:
        yield made


async def test_every_page_is_listed_and_what_to_do_is_said(cluster: FakeCluster) -> None:
    ran = await CommandHere(cluster.bootstrap)("brokers", "strays", "--broker", "1", "--broker", "2")
    assert ran.status == 0
    header, first, second, *others = ran.out.splitlines()
    assert header.split() == ["TOPIC", "ID", "PARTITION", "BROKER", "TOPIC", "SIZE", "BYTES", "NEWEST", "OFFSET"]
    assert first.split() == ["I" * 22, "0", "1", "lost", "7", "-"], "it is empty"
    assert second.split() == ["I" * 22, "1", "1", "lost", "7", "2"]
    assert len(others) == 2 * PAGE - 1
    assert "regnum logs inspect" in ran.err


async def test_programs_get_one_document_and_the_brokers_that_do_not_say_are_an_error(cluster: FakeCluster) -> None:
    ran = await CommandHere(cluster.bootstrap)("brokers", "strays", "-o", "json")
    rows = json.loads(ran.out)
    assert len(rows) == 2 * PAGE + 1
    assert rows[3] == {
        "topic_id": "I" * 22,
        "partition": 3,
        "broker": 1,
        "topic": "lost",
        "size_bytes": 7,
        "newest_offset": 4,
        "log_start": 2,
        "last_epoch": 4,
    }
    assert ran.status != 0
    assert ran.error["metadata"] == {"broker_id": "3"}
    assert "broker 3 does not say" in str(ran.error["message"])


async def test_without_strays_that_is_said(cluster: FakeCluster) -> None:
    ran = await CommandHere(cluster.bootstrap)("brokers", "strays", "--broker", "2")
    assert (ran.status, ran.out, ran.err) == (0, "", "no strays\n")


async def test_a_broker_that_is_not_live_is_named_and_one_that_nobody_knows_is_not_found(cluster: FakeCluster) -> None:
    regnum = CommandHere(cluster.bootstrap)
    ran = await regnum("brokers", "strays", "--broker", "9", "-o", "jsonl")
    assert (ran.status, ran.out, ran.error["code"]) == (3, "", "BROKER_ID_NOT_REGISTERED")
    cluster.leaders.brokers = [admin_pb2.DescribedBroker(broker_id=9, live=False, replicas=1)]
    away = await regnum("brokers", "strays", "--broker", "9", "-o", "jsonl")
    assert (away.status, away.out, away.error["code"]) == (5, "", "BROKER_NOT_AVAILABLE")


async def test_a_broker_whose_pages_do_not_go_on_is_not_asked_for_ever(cluster: FakeCluster, strays: Strays) -> None:
    strays.stuck = True
    async with Admin(cluster.bootstrap) as admin:
        pages = [page async for _, page in admin.describe_strays([1])]
    *listed, error = pages
    assert isinstance(error, RegnumError)
    assert "do not go on" in error.message
    assert len(listed) == 2


async def test_who_takes_a_broker_away_is_told_of_the_strays_that_go_with_it(cluster: FakeCluster) -> None:
    ran = await CommandHere(cluster.bootstrap)("brokers", "remove-check", "1", "2", "3")
    assert "broker 1 has 2001 logs of topics or partitions that do not exist" in ran.err
    assert "broker 2 has" not in ran.err
    rows = json.loads((await CommandHere(cluster.bootstrap)("brokers", "remove-check", "1", "3", "-o", "json")).out)
    assert {row["broker"]: row["strays"] for row in rows} == {1: 2001, 3: None}


def test_status_adds_up_what_brokers_say_and_names_those_that_do_not() -> None:
    def said(**strays: int) -> Any:
        return figures_of(figures_pb2.DescribeFiguresResponse(**strays))  # type: ignore[arg-type]

    silent = RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "no answer")
    totals = stray_totals(
        {1: said(strays=2, stray_bytes=1_500), 2: said(strays=0, stray_bytes=0), 3: said(), 4: silent}
    )
    assert totals == {"logs": 2, "size_bytes": 1_500, "brokers": [1], "not_known_of_brokers": [3, 4]}
    assert stray_line(totals).startswith("strays: 2 logs (1.5 kB)")
    assert stray_line(stray_totals({2: said(strays=0)})) == ""
    assert stray_totals({}) is None
