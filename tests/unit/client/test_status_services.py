"""`regnum status` of metadata processes and quotas: what they do, and who is silent."""

import json
from collections.abc import AsyncIterator

import pytest
from regnum.admin.v1 import admin_pb2
from regnum_client.admin.describing.quota_usage import usages_from_wire
from regnum_client.commands.status.services import (
    METADATA_COLUMNS,
    QUOTA_COLUMNS,
    metadata_line,
    metadata_rows,
    quota_line,
    quota_row,
)
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster


def propagation() -> admin_pb2.DescribePropagationResponse:
    said = admin_pb2.DescribePropagationResponse()
    one = said.metadata_processes.add(
        metadata_id=1, answered=True, payload_serialisations=12, bytes_serialised=3_400, bytes_sent=10_200
    )
    one.brokers.add(broker_id=1)
    one.brokers.add(broker_id=2, versions_behind=3)
    one.brokers.add(broker_id=3, versions_behind=-1)
    said.metadata_processes.add(metadata_id=2, versions_behind=-1)
    return said


def usage(**changed: object) -> admin_pb2.DescribeQuotaUsageResponse:
    said = admin_pb2.DescribeQuotaUsageResponse(quota_id=2, buckets=3, muted_connections=4, held_calls=5)
    said.usages.add(user="ann", mutation_rate=1.5, refused_rate=2.0, tokens=-3.0)
    said.usages.add(user="ben", mutation_rate=0.5, tokens=3.0)
    said.queue_waits.add(kind="mutations", bounds_s=[0.001, 0.05], counts=[98, 2, 0])
    said.MergeFrom(admin_pb2.DescribeQuotaUsageResponse(**changed))  # type: ignore[arg-type]
    return said


def test_what_a_metadata_process_did_is_shown_and_a_silent_one_has_a_row() -> None:
    one, silent = metadata_rows(propagation())
    assert (one["brokers"], one["brokers_behind"], one["payloads"]) == (3, 2, 12)
    assert metadata_line(one)["sent"] == "10.2 kB"
    assert set(metadata_line(one)) == set(metadata_line(silent)) == set(METADATA_COLUMNS)
    assert (silent["answered"], silent["versions_behind"], silent["payloads"]) == (False, None, None)
    assert metadata_line(silent)["behind"] == "?"


def test_who_decides_and_who_waits_is_shown() -> None:
    row = quota_row(usages_from_wire(usage()))
    assert row is not None
    assert row == {
        "quota": 2,
        "buckets": 3,
        "admitted_rate": 2.0,
        "refused_rate": 2.0,
        "buckets_in_debt": 1,
        "muted_connections": 4,
        "held_calls": 5,
        "queue_wait_p99_s": 0.05,
    }
    assert set(quota_line(row)) == set(QUOTA_COLUMNS)
    assert quota_line(row)["queue_p99"] == "50 ms"


def test_without_a_quota_process_the_controller_decides() -> None:
    row = quota_row(usages_from_wire(usage(quota_id=-1)))
    assert row is not None
    assert (row["quota"], quota_line(row)["quota"]) == (None, "the controller")


def test_a_wait_above_every_bound_is_no_number() -> None:
    late = admin_pb2.DescribeQuotaUsageResponse()
    late.queue_waits.add(kind="mutations", bounds_s=[0.001], counts=[0, 9])
    row = quota_row(usages_from_wire(late))
    assert row is not None
    assert row["queue_wait_p99_s"] is None
    assert json.loads(json.dumps(row, allow_nan=False)) == row


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.health = admin_pb2.DescribeHealthResponse(complete=True)
        yield running


async def test_the_command_shows_them(cluster: FakeCluster) -> None:
    cluster.propagation = propagation()
    regnum = CommandHere(cluster.bootstrap)
    ran = await regnum("status", "-o", "json")
    shown = json.loads(ran.out)
    assert [row["metadata"] for row in shown["metadata_figures"]] == [1, 2]
    assert shown["quota_figures"]["held_calls"] == 0
    table = await regnum("status")
    assert "STALE REFUSALS" in table.out
    assert "IN DEBT" in table.out


def test_what_the_controller_did_not_say_is_no_row() -> None:
    assert metadata_rows(None) == []
    assert quota_row(None) is None
