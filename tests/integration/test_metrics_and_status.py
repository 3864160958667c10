"""Metrics and `regnum status` of a cluster of processes, before and after a broker is gone."""

import asyncio
import contextlib
import json
import re
import socket
import sys
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from regnum.admin.v1 import admin_pb2, admin_pb2_grpc, events_pb2, events_pb2_grpc
from regnum.types.v1 import events_pb2 as words
from regnum_client import Admin, Producer
from regnum_local.cluster import LocalCluster, ProcessRow
from regnum_local.plan import Role
from regnum_model.nodes import Address
from regnum_service.channel import aio_channel
from regnum_telemetry.instruments import INSTRUMENTS, Kind
from regnum_testing.direct_http import opened_directly
from regnum_testing.under_load import until
from regnum_testing.waiting import DEADLINE_S

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

COMMAND = "import sys; from regnum_client.command import main; sys.exit(main())"


def _scraped(row: ProcessRow) -> dict[str, float]:
    """Samples of a process by name; of several with that name the sum."""
    url = f"http://{row.addresses['metrics']}/metrics"
    with opened_directly(url, timeout=DEADLINE_S) as answer:
        text = answer.read().decode()
    asking = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text;version=1.0.0"})
    with opened_directly(asking, timeout=DEADLINE_S) as answer:
        assert list(openmetrics.text_string_to_metric_families(answer.read().decode()))
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples[sample.name] = samples.get(sample.name, 0.0) + sample.value
    return samples


async def scraped(cluster: LocalCluster, role: str) -> list[dict[str, float]]:
    rows = [row for row in cluster.status() if row.role.value == role and row.pid is not None]
    return [await asyncio.to_thread(_scraped, row) for row in rows]


async def status(data_dir: Path) -> tuple[int, dict[str, Any], str]:
    """Exit status, document and stderr of `regnum status -o json`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", COMMAND, "status", "--data-dir", str(data_dir), "-o", "json", "--timeout", "20"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, json.loads(out), err.decode()


async def test_a_cluster_says_how_it_is(tmp_path: Path) -> None:
    async with LocalCluster(
        tmp_path, brokers=2, elections=2, metadata=1, quotas=1, report=lambda _text: None
    ) as cluster:
        async with Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
            await admin.create_topic("t", partitions=4, replication_factor=2)
            for number in range(40):
                await producer.send("t", str(number).encode(), partition=number % 4)
            await producer.flush()

        document: dict[str, Any] = {}

        async def well() -> bool:
            nonlocal document
            exit_status, document, _ = await status(tmp_path)
            return exit_status == 0 and all(one["metadata_versions_behind"] == 0 for one in document["broker_figures"])

        await until(well)
        assert (document["healthy"], document["topics"], document["partitions"]) == (True, 1, 4)
        assert {row["state"] for row in document["processes"]} == {"running"}

        figures = document["broker_figures"]
        assert [one["broker"] for one in figures] == [1, 2]
        assert sum(one["leading"] for one in figures) == 4
        assert sum(one["replicas"] for one in figures) == 8
        assert all(one["lifeline_open"] for one in figures)
        assert all(one["log_bytes"] > 0 and one["resident_bytes"] > 1_000_000 for one in figures)

        brokers, elections = await scraped(cluster, "broker"), await scraped(cluster, "election")
        assert sum(one["regnum_broker_produced_records_total"] for one in brokers) == 40
        assert sum(one["regnum_broker_replicas"] for one in brokers) == 8
        assert [one["regnum_broker_log_segments"] for one in brokers] == [4, 4]
        assert sum(one["regnum_broker_replication_received_bytes_total"] for one in brokers) > 0
        assert all(one["regnum_server_connections"] > 0 and one["regnum_broker_registered"] == 1 for one in brokers)
        # All of them on one machine: what they differ by is what messages took.
        assert all(abs(one["regnum_broker_clock_difference_seconds"]) < 60 for one in brokers)
        clocks = [(one["clock_ahead_s"] is not None, one["expiry_held_back"]) for one in document["brokers"]]
        assert clocks == [(True, False)] * 2
        assert sorted(one["regnum_controller_active"] for one in elections) == [0.0, 1.0]
        reigning = max(elections, key=lambda one: one["regnum_controller_active"])
        assert reigning["regnum_controller_partitions"] == 4
        assert reigning["regnum_controller_leader_elections_total"] >= 4
        # Everything that a service is to have is there, whatever has happened so far.
        for role in ("broker", "election", "metadata", "quota"):
            samples = max(await scraped(cluster, role), key=len)
            for instrument in INSTRUMENTS:
                if role in instrument.services and not instrument.labels and instrument.kind is not Kind.GAUGE:
                    name = (
                        f"{instrument.prometheus}_count" if instrument.kind is Kind.HISTOGRAM else instrument.prometheus
                    )
                    assert name in samples, f"{role} does not show {name}"

        await cluster.kill("broker-2")

        async def under_replicated() -> bool:
            _, found, _ = await status(tmp_path)
            return bool(found["troubles"] and found["troubles"]["under-replicated"]["partitions"] == 4)

        await until(under_replicated)
        exit_status, document, err = await status(tmp_path)
        assert exit_status == 5
        assert json.loads(err.strip().splitlines()[-1])["error"]["code"] == "NOT_RUNNING"
        assert [one["broker"] for one in document["brokers"] if one["state"] == "away"] == [2]

        # Without a controller: what runs is shown, and that nobody answers is said.
        for name in ("election-1", "election-2"):
            await cluster.kill(name)
        exit_status, document, _ = await status(tmp_path)
        assert (exit_status, document["controller"]) == (5, None)
        assert any("no controller answers" in problem for problem in document["problems"])


def _scrape_until_gone(address: Address, pages: list[int]) -> None:
    """Ask again and again until nobody listens; the sizes of pages that came, each of which must be whole."""
    while True:
        try:
            with socket.create_connection((address.host, address.port), timeout=DEADLINE_S) as connection:
                connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                answer = b""
                while part := connection.recv(65_536):
                    answer += part
        except ConnectionRefusedError:
            return
        except ConnectionError:
            continue
        if answer:
            head, _, body = answer.partition(b"\r\n\r\n")
            (length,) = re.findall(rb"Content-Length: (\d+)", head)
            assert head.startswith(b"HTTP/1.1 200 ")
            assert len(body) == int(length)
            pages.append(len(body))


@pytest.mark.full
async def test_who_scrapes_while_processes_end_gets_a_whole_page_or_none(tmp_path: Path) -> None:
    pages: dict[str, list[int]] = {}
    async with LocalCluster(
        tmp_path, brokers=1, elections=1, metadata=1, quotas=1, report=lambda _text: None
    ) as cluster:
        rows = [row for row in cluster.status() if row.pid is not None and "metrics" in row.addresses]
        scraping = [
            asyncio.create_task(
                asyncio.to_thread(_scrape_until_gone, row.addresses["metrics"], pages.setdefault(row.name, []))
            )
            for row in rows
        ]

        async def all_scraped() -> bool:
            return len(pages) == 4 and all(pages.values())

        await until(all_scraped)
    await asyncio.gather(*scraping)
    logs = list(tmp_path.rglob("*.log"))
    assert len(logs) >= 4
    for log in logs:
        assert "Traceback" not in log.read_text(encoding="utf-8", errors="replace"), log.name


@pytest.mark.full
async def test_an_order_that_a_live_broker_does_not_acknowledge_is_seen_everywhere_until_it_is(tmp_path: Path) -> None:
    """The only broker of a cluster is paused, which no silence declares dead (S9), for less than its session."""
    extra = {Role.BROKER: ["--session-timeout-s", "120"], Role.ELECTION: ["--order-overdue-s", "1"]}
    async with LocalCluster(
        tmp_path, brokers=1, elections=1, metadata=1, extra=extra, report=lambda _text: None
    ) as cluster:
        (election,) = [row for row in cluster.status() if row.role is Role.ELECTION]
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic("t", partitions=1, replication_factor=1)

            async def well() -> bool:
                return (await status(tmp_path))[0] == 0

            await until(well)
            cluster.pause("broker-1")
            # Straight to the controller: the paused broker cannot say where it is.
            async with aio_channel(str(election.addresses["client"])) as channel:
                request = admin_pb2.CreatePartitionsRequest(
                    topics=[admin_pb2.NewPartitions(name="t", count=3)], timeout_ms=500
                )
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await admin_pb2_grpc.AdminServiceStub(channel).CreatePartitions(request, timeout=DEADLINE_S)

                async def events() -> list[events_pb2.ClusterEvent]:
                    asked = events_pb2.DescribeEventsRequest(
                        filter=events_pb2.EventFilter(kinds=[words.EVENT_KIND_ORDERS_OVERDUE])
                    )
                    stub = events_pb2_grpc.EventServiceStub(channel)
                    return list((await stub.DescribeEvents(asked, timeout=DEADLINE_S)).events)

                async def overdue() -> bool:
                    _, document, _ = await status(tmp_path)
                    return [one["broker"] for one in document["overdue_orders"] or ()] == [1]

                await until(overdue)
                assert (await events())[0].broker_id == 1
                (shown,) = await scraped(cluster, "election")
                assert shown["regnum_controller_orders_overdue"] > 0

                cluster.resume("broker-1")
                await until(well)
                (shown,) = await scraped(cluster, "election")
                assert shown["regnum_controller_orders_overdue"] == 0
                assert len(await events()) == 1, "it is said once"
