"""`regnum doctor`: findings with evidence and advice, exit status, and a bundle without secrets or records."""

import json
import tarfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_client.admin.describing.quota_usage import ClientUsage
from regnum_client.admin.health.figures import BrokerFigures
from regnum_client.admin.health.views import health_view
from regnum_client.commands.doctor.bundle import without_secrets, write_bundle
from regnum_client.commands.doctor.checks import CHECKS, NAMED_MAX, examine
from regnum_client.commands.doctor.findings import Certificate, Gathered, Level
from regnum_client.commands.doctor.gathering import brokers_of, certificates_of
from regnum_client.commands.groups.lags import Lag
from regnum_client.commands.status.asking import Found
from regnum_client.commands.status.services import Services
from regnum_local.cluster import ProcessRow, ProcessState
from regnum_local.plan import Role
from regnum_model.nodes import Address
from regnum_model.wire_times import duration_of
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.errors import RegnumError
from regnum_service.tls.files import TlsFiles
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import DEADLINE_S

SILENT = RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "nothing listens there")


def answer(**changed: object) -> admin_pb2.DescribeHealthResponse:
    """A controller's word of a cluster that is well, apart from what is said."""
    response = admin_pb2.DescribeHealthResponse(
        complete=True,
        controller_id=1,
        brokers=[admin_pb2.BrokerHealth(broker_id=id, registered=True, replicas=4) for id in (1, 2, 3)],
        metadata_processes=[admin_pb2.MetadataProcessHealth(metadata_id=1)],
        trouble_overdue=duration_of(30),
    )
    response.MergeFrom(admin_pb2.DescribeHealthResponse(**changed))  # type: ignore[arg-type]
    return response


def figures(id: int, **changed: object) -> BrokerFigures:
    numbers = dict.fromkeys(BrokerFigures.__dataclass_fields__, 0)
    plain = BrokerFigures(
        **{
            **numbers,
            "broker": id,
            "produce_p99_s": None,
            "open_files_max": 1000,
            "lifeline_open": True,
            "not_ready_because": "",
            "refuses_writes_because": "",
            "store_trouble": "",
            "disk_free_bytes": 900,
            "disk_size_bytes": 1000,
        }  # type: ignore[arg-type]
    )
    return replace(plain, **changed)  # type: ignore[arg-type]


def gathered(
    health: admin_pb2.DescribeHealthResponse | None = None, said: dict[int, BrokerFigures | RegnumError] | None = None
) -> Gathered:
    status = Found(
        processes=(),
        health=health_view(answer() if health is None else health),
        reason="",
        figures={id: figures(id) for id in (1, 2, 3)} if said is None else said,
        services=Services(),
    )
    return Gathered(status=status, lags={}, usages={}, certificates=(), lag_max=10)


def wrong(one: Gathered) -> list[tuple[str, str, str]]:
    """Level, check and subject of what is not well."""
    return [(found.level.value, found.check, found.subject) for found in examine(one) if found.level is not Level.OK]


def test_every_check_says_what_it_looked_at_where_all_is_well() -> None:
    found = examine(gathered())
    assert [(one.check, one.level) for one in found] == [(check, Level.OK) for check in CHECKS]
    assert all(one.evidence and not one.advice for one in found)


def test_what_is_wrong_has_its_evidence_and_something_to_do() -> None:
    one = gathered(said={1: figures(1, disk_free_bytes=40), 2: figures(2, open_files=900), 3: SILENT})
    assert wrong(one) == [
        ("error", "reach", "broker 3"),
        ("warning", "disk", "broker 1"),
        ("warning", "resources", "broker 2"),
    ]
    disk = next(found for found in examine(one) if found.check == "disk")
    assert (disk.evidence, "make room" in disk.advice) == ("40 B of 1 kB free (4%)", True)
    assert all(found.advice for found in examine(one) if found.level is not Level.OK)


def test_what_the_controller_says_is_sorted_by_check() -> None:
    health = answer(
        troubled_partitions=[
            admin_pb2.TroubledPartition(
                topic="orders",
                state=types_pb2.PartitionState(partition=3, leader=-1, isr=[2], replicas=[2, 1]),
                troubles=[metadata_pb2.PARTITION_TROUBLE_OFFLINE],
                age=duration_of(61),
            ),
            admin_pb2.TroubledPartition(
                topic="young",
                state=types_pb2.PartitionState(leader=1, isr=[1], replicas=[1, 2]),
                troubles=[metadata_pb2.PARTITION_TROUBLE_UNDER_REPLICATED],
                age=duration_of(1),
            ),
        ],
        overdue_orders=[admin_pb2.OverdueOrders(broker_id=2, orders=12, oldest_age=duration_of(14))],
        store_trouble="answers late",
        releases=[
            admin_pb2.ProcessRelease(role="broker", id=1, release="0.1.0"),
            admin_pb2.ProcessRelease(role="broker", id=2, release="0.2.0"),
        ],
    )
    health.brokers[0].registered = False
    health.brokers[1].clock_ahead_ms = -5000
    assert wrong(gathered(health)) == [
        ("error", "reach", "broker 1"),
        ("warning", "versions", "processes"),
        ("warning", "clocks", "broker 2"),
        ("error", "store", "store"),
        ("error", "partitions", "orders/3"),
        ("error", "operations", "broker 2"),
    ]


def test_groups_clients_and_certificates() -> None:
    usage = ClientUsage(
        broker=1,
        quota="producer_byte_rate",
        user=None,
        client_id="loader",
        rate=2000,
        limit=1000,
        wait_s=1.5,
        idle_s=0,
    )
    one = replace(
        gathered(),
        lags={"billing": Lag(records=11, partitions=2, unknown=0), "idle": Lag(records=10, partitions=1, unknown=0)},
        usages={1: (usage,), 2: SILENT},
        certificates=[Certificate(path="a.pem", valid_s=-60), Certificate(path="b.pem", valid_s=1e9)],
    )
    assert wrong(one) == [
        ("warning", "lag", "group billing"),
        ("warning", "quotas", "loader at broker 1"),
        ("unknown", "quotas", "broker 2"),
        ("error", "certificates", "a.pem"),
    ]


def test_many_of_a_kind_are_counted() -> None:
    one = replace(gathered(), lags={f"g{number}": Lag(records=11, partitions=1, unknown=0) for number in range(30)})
    lags = [found for found in examine(one) if found.check == "lag"]
    assert (len(lags), lags[-1].evidence) == (NAMED_MAX + 1, "10 more of the kind")


def test_the_worst_of_many_is_named() -> None:
    young = [
        admin_pb2.TroubledPartition(
            topic="orders",
            state=types_pb2.PartitionState(partition=number, leader=1, isr=[1], replicas=[1, 2]),
            troubles=[metadata_pb2.PARTITION_TROUBLE_UNDER_REPLICATED],
            age=duration_of(99),
        )
        for number in range(30)
    ]
    health = answer(troubled_partitions=young)
    health.brokers[0].offline_replicas = 2
    first = next(one for one in examine(gathered(health)) if one.check == "partitions")
    assert (first.level, first.subject) == (Level.ERROR, "broker 1")


def test_what_does_not_answer_is_not_taken_for_well() -> None:
    lags = {"billing": Lag(records=0, partitions=3, unknown=2), "idle": Lag(records=1, partitions=1, unknown=0)}
    health = answer()
    health.metadata_processes[0].versions_behind = -1
    assert wrong(replace(gathered(health), lags=lags)) == [
        ("unknown", "operations", "metadata 1"),
        ("unknown", "lag", "groups"),
    ]


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    (found,) = certificates_of(TlsFiles(ca=tmp_path / "ca.pem"), 0.0)
    assert (found.valid_s, bool(found.reason)) == (None, True)
    assert certificates_of(None, 0.0) == []


def test_secrets_are_left_out() -> None:
    token = f"{'a' * 22}.{'b' * 86}"
    said = without_secrets(f'"etcd://root:pa55@h:2379/r", Bearer {token}, topic a@b')
    assert said == '"etcd://***@h:2379/r", Bearer ***, topic a@b'
    assert without_secrets(json.dumps({"store": 'etcd://root:p@a"b@h:2379/r'})) == '{"store": "etcd://***@h:2379/r"}'


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.health = answer()
        yield running


def broker_here(state: ProcessState) -> ProcessRow:
    """Broker 1 of a cluster of this machine."""
    address = Address(host="127.0.0.1", port=7001)
    return ProcessRow(name="broker-1", role=Role.BROKER, id=1, pid=None, state=state, addresses={"client": address})


def status_in(bundle: Path) -> Any:
    """What a bundle has of the cluster's status."""
    with tarfile.open(bundle) as packed:
        file = packed.extractfile("regnum-doctor/status.json")
        assert file is not None
        return json.load(file)


def test_brokers_of_the_folder_that_was_named_are_asked_wherever_other_commands_go() -> None:
    status = gathered().status
    assert brokers_of(status, "10.0.0.1:7001") == "10.0.0.1:7001"
    assert brokers_of(status, None) is None
    here = replace(status, processes=[broker_here(ProcessState.RUNNING)])
    assert brokers_of(here, None) == "127.0.0.1:7001"
    assert brokers_of(here, "10.0.0.1:7001") == "127.0.0.1:7001", "REGNUM_BOOTSTRAP is of another cluster"


@pytest.mark.parametrize(
    ("state", "problem"), [(ProcessState.EXITED, "not running: broker-1"), (ProcessState.PAUSED, "paused: broker-1")]
)
async def test_a_bundle_has_the_problems_of_the_status_those_of_processes_too(
    cluster: FakeCluster, tmp_path: Path, state: ProcessState, problem: str
) -> None:
    one = gathered(answer(store_trouble="answers late"))
    one = replace(one, status=replace(one.status, processes=[broker_here(state)]))
    path = tmp_path / "bundle.tar.gz"
    await write_bundle(path, one, [], data_dir=tmp_path, bootstrap=cluster.bootstrap, timeout_s=DEADLINE_S)
    told = status_in(path)
    assert told["problems"] == [problem, "the coordination store answers late"]
    assert told["healthy"] is False


async def test_the_command_and_its_bundle(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.create("orders")
    record = NewRecord(key=b"SECRET-KEY", value=b"SECRET-VALUE")
    cluster.partitions["orders", 0].append(build_batch([record], timestamp_ms=0))
    regnum = CommandHere(cluster.bootstrap)
    path = tmp_path / "bundle.tar.gz"
    ran = await regnum("doctor", "-o", "json", "--bundle", str(path))
    rows = json.loads(ran.out)
    assert {row["check"] for row in rows} == set(CHECKS)
    assert all(row["evidence"] for row in rows)
    levels = {row["level"] for row in rows}
    assert ran.status == (5 if levels & {"error", "unknown"} else 1 if "warning" in levels else 0), ran.err
    with tarfile.open(path) as bundle:
        names = {name.removeprefix("regnum-doctor/") for name in bundle.getnames()}
        texts = [file.read() for member in bundle.getmembers() if (file := bundle.extractfile(member)) is not None]
    assert {"findings.json", "status.json", "lags.json", "topics.json", "settings.json", "events.json"} <= names
    assert not any(b"SECRET" in text for text in texts)
    assert path.stat().st_mode & 0o777 == 0o600
    cluster.health = answer(store_trouble="answers late")
    sick = await regnum("doctor", "--bundle", str(path))
    assert (sick.status, "answers late" in sick.out, "error" in sick.err) == (5, True, True)
    told = status_in(path)
    assert (told["healthy"], told["problems"]) == (False, ["the coordination store answers late"])
