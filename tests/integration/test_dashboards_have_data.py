"""Every query of every dashboard, asked of a real Prometheus that watched a cluster while a broker was killed."""

import asyncio
import importlib.util
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from types import ModuleType
from typing import Any

import pytest
from regnum_client import DEFAULT, Admin, Consumer, QuotaAlteration, QuotaEntity
from regnum_local.cluster import LocalCluster
from regnum_telemetry import conventions
from regnum_testing.dashboards.__main__ import DASHBOARDS
from regnum_testing.dashboards.asking import answers, ask, told
from regnum_testing.dashboards.clients import LAG
from regnum_testing.under_load import under_load, until
from regnum_testing.waiting import DEADLINE_S

PROMETHEUS = shutil.which("prometheus")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(600),
    pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus here (Debian: apt-get install prometheus)"),
]

RUN = Path(__file__).parents[2] / "deploy" / "observability" / "run.py"
SCRAPED_S = 120.0
"""How long figures are waited for: Prometheus scrapes every 5 s, a rate needs two."""


def run() -> ModuleType:
    spec = importlib.util.spec_from_file_location("observability_run", RUN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def watched(cluster: LocalCluster, folder: Path) -> Iterator[str]:
    """Prometheus as run.py has it, on a port of its own; yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    rows = [
        {"name": row.name, "addresses": {kind: str(place) for kind, place in row.addresses.items()}}
        for row in cluster.status()
    ]
    watching = run()
    (folder / "targets.json").write_text(json.dumps(watching.targets({"processes": rows})))
    command = [
        f"--web.listen-address={address}" if option.startswith("--web.listen-address") else option
        for option in watching.prometheus_command(folder)
    ]
    process = Popen(command, env=os.environ)
    try:
        yield f"http://{address}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


async def test_every_query_has_data_or_a_reason_after_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    async with LocalCluster(
        tmp_path / "c", brokers=3, elections=2, metadata=1, quotas=1, report=lambda _: None
    ) as cluster:
        with watched(cluster, folder) as prometheus:

            async def asked(expression: str) -> list[dict[str, Any]]:
                try:
                    return await asyncio.to_thread(ask, prometheus, expression)
                except OSError:
                    return []

            async def has(expression: str) -> bool:
                return bool(await asked(expression))

            await until(lambda: has("regnum_changes_total == 0"), within_s=SCRAPED_S)
            async with under_load(cluster, "t") as running, Admin(cluster.bootstrap) as admin:
                await admin.alter_client_quotas(
                    [QuotaAlteration(entity=QuotaEntity(user=DEFAULT), set={"controller_mutation_rate": 100.0})]
                )
                async with Consumer(cluster.bootstrap, topics=["t"], group_id="g") as consumer:
                    assert await consumer.read(records_max=10, timeout_s=DEADLINE_S)
                await running.stage.kill_leader(running.partitions[0])
                await until(
                    lambda: has("sum(increase(regnum_client_outage_seconds_count[5m])) > 0"), within_s=SCRAPED_S
                )
                await admin.create_topic("u", partitions=1, replication_factor=1)
                (series,) = await asked("count by (cluster) (regnum_build_info)")
                cluster_id = series["metric"]["cluster"]
                missing: list[str] = []

                async def whole() -> bool:
                    nonlocal missing
                    found = await asyncio.to_thread(
                        lambda: list(answers(DASHBOARDS, prometheus=prometheus, cluster=cluster_id))
                    )
                    missing = [line for line in map(told, found) if line]
                    return not missing

                began_s = time.monotonic()
                while not await whole():
                    assert time.monotonic() - began_s < SCRAPED_S, missing
            lag = await asked(f"sum by (group) ({LAG})")
            assert [one["metric"]["group"] for one in lag] == ["g"]
            # Another cluster's id: nothing of this one is in it.
            nothing = list(answers(DASHBOARDS, prometheus=prometheus, cluster="another"))
            assert [one for one in nothing if one.numbers and "vector(0)" not in one.expression] == []
            kinds = await asked("sum by (kind) (regnum_changes_total) > 0")
            assert conventions.KIND_BROKER_FAILURE in {one["metric"]["kind"] for one in kinds}
