"""The audit log: what a line says, what a flood leaves of itself, and that nobody waits for a disk."""

import errno
import json
import os
import stat
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExportResult
from regnum.types.v1 import errors_pb2
from regnum_model.access import Operation, ResourceType
from regnum_model.principals import NOBODY, Principal
from regnum_service.access.audit import Audits, Mutated
from regnum_service.access.auditing.files import RotatedFile
from regnum_service.access.auditing.lines import DENIED, LINE_BYTES_MAX, MUTATED, Entry, fitted, rendered
from regnum_service.access.auditing.opening import open_audit_log
from regnum_service.access.auditing.repeats import BURST, OF_ALL_MAX, OF_ONE_MAX, OTHERS, RATE, Repeats
from regnum_service.access.auditing.stdout import StandardOutput
from regnum_service.access.auditing.writer import FAILURES_MAX, AuditWriter, Sink
from regnum_service.access.identity import Caller
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError, StartRefusedError
from regnum_service.settings import ServiceSettings
from regnum_service.supervisor import Supervisor
from regnum_telemetry import tracing
from regnum_telemetry.collector_logs import CollectorLogs
from regnum_telemetry.metrics import Metrics
from regnum_testing.clock import FakeClock
from regnum_testing.waiting import eventually

ALICE = Caller(principal=Principal("alice"), host="10.0.0.7")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def refusal(name: str, who: Caller = ALICE) -> Entry:
    return Entry(event=DENIED, who=who, call="LogService/Produce", operation="WRITE", resource=f"topic:{name}")


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()] if path.exists() else []


class Disk:
    """A sink that a test fills, holds up and frees."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []
        self.full = False
        self.free = threading.Event()
        self.free.set()
        self.asked = threading.Event()
        self.closed = False

    def append(self, lines: bytes) -> None:
        self.asked.set()
        self.free.wait()
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.lines += [json.loads(line) for line in lines.splitlines()]

    def sync(self) -> None:
        """A disk of memory."""

    def close(self) -> None:
        self.closed = True


@pytest.fixture
async def disk() -> AsyncIterator[Disk]:
    disk = Disk()
    yield disk
    disk.free.set()


def audit_on(sink: Sink, metrics: Metrics, **how: int) -> AuditWriter:
    log = AuditWriter(sink, process="election-1", clock=SystemClock(), metrics=metrics, **how)
    log.start()
    return log


def counted(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    return {
        labels: value
        for reading in metrics.read()
        if reading.instrument.name == name
        for labels, value in reading.numbers
        if value
    }


def test_a_line_has_everything_that_an_investigation_asks_for() -> None:
    who = Caller(
        principal=Principal("bob", token_authenticated=True),
        host="10.0.0.9",
        listener="internal",
        encrypted=True,
        forwarded=True,
        subject="CN=shared",
        via="CN=broker-1 at 10.0.0.3",
    )
    entry = Entry(
        event=DENIED,
        who=who,
        client_id="cli",
        call="AdminService/CreateTopics",
        operation="CREATE",
        resource="topic:orders",
        result="TOPIC_AUTHORIZATION_FAILED",
        rule="User:bob DENY CREATE on LITERAL topic orders from *",
        trace_id=TRACE,
    )
    assert json.loads(rendered(entry, at_ms=1_700_000_000_123, process="broker-2", count=3)) == {
        "time": "2023-11-14T22:13:20.123Z",
        "event": "denied",
        "process": "broker-2",
        "principal": "User:bob",
        "token": True,
        "client_id": "cli",
        "client_host": "10.0.0.9",
        "listener": "internal",
        "encrypted": True,
        "forwarded": True,
        "via": "CN=broker-1 at 10.0.0.3",
        "certificate": "CN=shared",
        "call": "AdminService/CreateTopics",
        "operation": "CREATE",
        "resource": "topic:orders",
        "result": "TOPIC_AUTHORIZATION_FAILED",
        "detail": "",
        "rule": "User:bob DENY CREATE on LITERAL topic orders from *",
        "trace_id": TRACE,
        "count": 3,
    }


HOSTILE = st.one_of(st.text(max_size=50), st.text(alphabet='\x00\n\r\x1b"\\\u2028\U0001f600a', max_size=3_000))


@settings(max_examples=200, deadline=None)
@given(name=HOSTILE, principal=HOSTILE, client_id=HOSTILE, rule=HOSTILE, detail=HOSTILE, call=HOSTILE)
def test_no_name_makes_a_line_long_or_two_lines_or_anything_but_printable_ascii(
    name: str, principal: str, client_id: str, rule: str, detail: str, call: str
) -> None:
    who = Caller(principal=Principal(principal), host=name, listener=name, via=name, subject=name)
    entry = Entry(
        event=MUTATED,
        who=who,
        client_id=client_id,
        call=call,
        operation=name,
        resource=name,
        result=name,
        rule=rule,
        detail=detail,
        trace_id=name,
    )
    line = rendered(entry, at_ms=0, process=name)
    assert len(line) <= LINE_BYTES_MAX
    assert line.endswith(b"}\n")
    assert all(32 <= byte < 127 for byte in line[:-1])
    assert isinstance(json.loads(line), dict)


def test_a_name_that_is_cut_says_how_long_it_was() -> None:
    assert fitted("x" * 1_000_000, 60) == "x" * 36 + "... (1000000 characters)"
    assert fitted("orders", 60) == "orders"
    assert fitted("\n" * 30, 60) == "\n" * 30, "what fits stays whole"
    assert fitted("\n" * 31, 60).endswith("... (31 characters)")


def test_equal_refusals_within_a_second_are_one_line_with_their_number() -> None:
    repeats = Repeats()
    for at in range(1_000):
        repeats.note(refusal("a"), at_ms=at, now_s=at / 2_000)
    repeats.note(refusal("b"), at_ms=7, now_s=0.6)
    assert repeats.due_s(0.75) == 0.25
    assert repeats.take(1.0) == [(refusal("a"), 0, 1_000), (refusal("b"), 7, 1)]
    assert repeats.due_s(1.0) is None
    assert repeats.take(2.0) == []


def test_one_callers_flood_leaves_room_for_what_others_are_refused() -> None:
    repeats = Repeats()
    bob = Caller(principal=Principal("bob"), host="10.0.0.8")
    for number in range(5_000):
        repeats.note(refusal(f"guess-{number}"), at_ms=0, now_s=0.0)
    repeats.note(refusal("secret", bob), at_ms=0, now_s=0.1)
    taken = repeats.take(1.0)
    assert (refusal("secret", bob), 0, 1) in taken
    assert (Entry(event=DENIED, who=ALICE, resource=OTHERS), 0, 5_000 - OF_ONE_MAX) in taken
    assert len(taken) == OF_ONE_MAX + 2


def test_when_the_bucket_is_empty_the_first_refusal_of_everybody_comes_before_the_second_of_anybody() -> None:
    repeats = Repeats()
    now_s = 0.0
    for _ in range(30):
        for number in range(OF_ONE_MAX):
            repeats.note(refusal(f"guess-{number}"), at_ms=0, now_s=now_s)
        now_s += 1.0
        repeats.take(now_s)
    bob = Caller(principal=Principal("bob"), host="10.0.0.8")
    for number in range(OF_ONE_MAX):
        repeats.note(refusal(f"guess-{number}"), at_ms=0, now_s=now_s)
    repeats.note(refusal("secret", bob), at_ms=0, now_s=now_s)
    assert (refusal("secret", bob), 0, 1) in repeats.take(now_s + 1.0)[:2]


@pytest.mark.full
def test_a_flood_from_everywhere_writes_the_promised_number_of_lines_and_counts_every_call() -> None:
    repeats = Repeats()
    lines = calls = 0
    for second in range(100):
        for number in range(1_000):
            who = Caller(principal=Principal(f"user-{number}"), host=str(second))
            repeats.note(refusal(str(number), who), at_ms=0, now_s=float(second))
        assert len(repeats) <= OF_ALL_MAX + 1
        taken = repeats.take(second + 1.0)
        lines += len(taken)
        calls += sum(count for _, _, count in taken)
    assert calls == 100_000
    assert lines <= BURST + 100 * (RATE + 2)


async def test_changes_and_refusals_are_written_with_the_trace_that_they_belong_to(disk: Disk) -> None:
    metrics = Metrics()
    log = audit_on(disk, metrics)
    with tracing.within(f"00-{TRACE}-00f067aa0ba902b7-01"):
        log.mutated(ALICE, "AdminService/CreateTopics", [Mutated(resource="topic:a"), Mutated(resource="topic:b")])
        log.denied(ALICE, Operation.CREATE, ResourceType.TOPIC, "c\nd", rule="none", call="AdminService/CreateTopics")
    await log.close()
    assert [(line["event"], line["resource"], line["result"], line["trace_id"]) for line in disk.lines] == [
        ("mutated", "topic:a", "NONE", TRACE),
        ("mutated", "topic:b", "NONE", TRACE),
        ("denied", "topic:c\nd", "TOPIC_AUTHORIZATION_FAILED", TRACE),
    ]
    assert counted(metrics, "regnum.audit.lines") == {("mutated", "file"): 2, ("denied", "file"): 1}
    assert disk.closed


async def test_a_call_with_ten_thousand_failures_has_a_hundred_and_one_of_them_looked_at(disk: Disk) -> None:
    log = audit_on(disk, Metrics())
    wrong = [Mutated(resource=f"topic:{n}", result="INVALID_TOPIC_EXCEPTION") for n in range(10_000)]
    log.mutated(ALICE, "AdminService/CreateTopics", [Mutated(resource="topic:fine"), *wrong])
    await log.close()
    assert disk.lines[0]["resource"] == "topic:fine"
    assert sum(line["count"] for line in disk.lines[1:]) == 10_000
    assert len(disk.lines) <= 1 + FAILURES_MAX + 1


async def test_a_disk_that_does_not_answer_holds_nobody_up_and_what_is_missing_is_said_everywhere(disk: Disk) -> None:
    metrics = Metrics()
    disk.free.clear()
    log = audit_on(disk, metrics, items_max=10)
    log.mutated(ALICE, "AdminService/CreateTopics", [Mutated(resource="topic:first")])
    await eventually(lambda: _done(disk.asked.is_set()))
    for number in range(30):
        log.mutated(ALICE, "AdminService/CreateTopics", [Mutated(resource=f"topic:{number}")])
    assert disk.lines == [], "the disk still holds the first one"
    assert counted(metrics, "regnum.audit.dropped") == {("queue", "file"): 21}
    disk.free.set()
    await log.close()
    assert [line["resource"] for line in disk.lines if line["event"] == "mutated"] == [
        "topic:first",
        *(f"topic:{number}" for number in range(9)),
    ]
    assert [line["count"] for line in disk.lines if line["event"] == "missed"] == [21]


async def test_a_full_disk_costs_lines_and_no_calls_and_the_log_says_how_many(disk: Disk) -> None:
    metrics = Metrics()
    disk.full = True
    log = audit_on(disk, metrics)
    for number in range(5):
        log.mutated(ALICE, "AdminService/CreateTopics", [Mutated(resource=f"topic:{number}")])
    await eventually(lambda: _done(counted(metrics, "regnum.audit.dropped") == {("disk", "file"): 5}))
    disk.full = False
    log.mutated(ALICE, "AdminService/CreateTopics", [Mutated(resource="topic:after")])
    await log.close()
    assert [(line["event"], line["count"]) for line in disk.lines] == [("missed", 5), ("mutated", 1)]
    assert counted(metrics, "regnum.audit.dropped") == {("disk", "file"): 5}


async def test_a_stuck_disk_does_not_keep_the_process_alive(disk: Disk) -> None:
    disk.free.clear()
    log = audit_on(disk, Metrics())
    log.mutated(ALICE, "AdminService/CreateTopics", [Mutated(resource="topic:first")])
    await log.close()
    assert not disk.closed
    assert next(thread for thread in threading.enumerate() if thread.name == "audit").daemon


async def _done(condition: bool) -> bool:
    return condition


def test_files_are_for_their_owner_are_set_aside_when_full_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "audit.log"
    file = RotatedFile(path, bytes_max=100, files=2)
    file.open()
    for number in range(40):
        file.append(b"%029d\n" % number)
    file.close()
    kept = [path, Path(f"{path}.1"), Path(f"{path}.2")]
    assert sorted(path.parent.iterdir()) == sorted([*kept, Path(f"{path}.lock")])
    assert [int(line) for one in reversed(kept) for line in one.read_text().splitlines()] == list(range(33, 40))
    assert all(one.stat().st_size <= 100 for one in kept)
    assert {stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()} == {0o600}


def test_a_file_that_others_could_read_is_closed_to_them_and_a_torn_line_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b'{"time": "20')
    path.chmod(0o644)
    file = RotatedFile(path, bytes_max=1_000, files=1)
    file.open()
    file.append(b"next\n")
    file.close()
    assert path.read_bytes() == b'{"time": "20\nnext\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_somebody_moved_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = RotatedFile(path, bytes_max=1_000, files=1)
    file.open()
    file.append(b"one\n")
    path.rename(tmp_path / "moved")
    file.append(b"two\n")
    (tmp_path / "moved").unlink()
    path.unlink()
    file.append(b"three\n")
    file.close()
    assert path.read_bytes() == b"three\n"


async def test_two_processes_cannot_write_one_file(tmp_path: Path) -> None:
    told = ServiceSettings(coordination="memory://x", audit_log=tmp_path / "audit.log", _cli_parse_args=[])
    supervisor = Supervisor("test")
    open_audit_log(told, "election-1", supervisor=supervisor, clock=SystemClock(), metrics=Metrics())
    with pytest.raises(StartRefusedError, match="another process writes this file"):
        open_audit_log(told, "election-2", supervisor=supervisor, clock=SystemClock(), metrics=Metrics())
    await supervisor.unwind()
    again = Supervisor("test")
    open_audit_log(told, "election-2", supervisor=again, clock=SystemClock(), metrics=Metrics())
    await again.unwind()


async def test_a_folder_that_cannot_be_written_refuses_the_start_with_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = ServiceSettings(coordination="memory://x", audit_log=tmp_path / "file" / "audit.log", _cli_parse_args=[])
    with pytest.raises(StartRefusedError, match="cannot be written"):
        open_audit_log(told, "x", supervisor=Supervisor("t"), clock=FakeClock(), metrics=Metrics())


async def test_refused_callers_push_out_nothing_that_others_changed(tmp_path: Path) -> None:
    """By denials, by changes that fail, by tokens that are wrong: whatever they fill is not the file of changes."""
    path, files = tmp_path / "audit.log", 2
    told = ServiceSettings(
        coordination="memory://x", audit_log=path, audit_log_max_bytes=2**16, audit_log_files=files, _cli_parse_args=[]
    )
    for flood in range(2):
        supervisor = Supervisor("test")
        log = open_audit_log(told, "election-1", supervisor=supervisor, clock=FakeClock(), metrics=Metrics())
        if not flood:
            log.mutated(ALICE, "AdminService/CreateTopics", [Mutated(resource="topic:kept")])
        for number in range(100):
            who = Caller(principal=Principal("guest"), host=f"10.0.{flood}.{number}")
            log.denied(who, Operation.CREATE, ResourceType.TOPIC, "x" * 400, rule="r" * 600, call="A/B")
            log.mutated(who, "A/B", [Mutated(resource="y" * 400, result="NO", detail="d" * 400)])
            log.unauthenticated(
                who, RegnumError(errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED, "z" * 400), call="A/B"
            )
        await supervisor.unwind()
    assert [line["resource"] for line in lines_of(path)] == ["topic:kept"]
    assert not Path(f"{path}.1").exists()
    denied = [Path(f"{path}.denied"), *(Path(f"{path}.denied.{number}") for number in range(1, files + 1))]
    assert {line["event"] for one in denied for line in lines_of(one)} == {"denied", "mutated", "unauthenticated"}
    assert denied[1].exists(), "they were set aside, among themselves"


def test_a_folder_where_a_file_would_be_set_aside_is_left_alone_and_costs_no_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    (tmp_path / "audit.log.2" / "of somebody").mkdir(parents=True)
    file = RotatedFile(path, bytes_max=100, files=3)
    file.open()
    for number in range(9):
        file.append(b"%049d\n" % number)
    file.close()
    kept = [Path(f"{path}.3"), Path(f"{path}.1"), path]
    assert [int(line) for one in kept for line in one.read_text().splitlines()] == [4, 5, 6, 7, 8]
    assert (tmp_path / "audit.log.2" / "of somebody").is_dir()
    (tmp_path / "other.log.1").mkdir()
    only = RotatedFile(tmp_path / "other.log", bytes_max=100, files=1)
    only.open()
    for number in range(3):
        only.append(b"%049d\n" % number)
    only.close()
    assert (tmp_path / "other.log").read_text() == f"{2:049d}\n"


async def test_lines_go_to_standard_output_as_well_and_each_destination_has_its_own_losses(disk: Disk) -> None:
    metrics, (reading, writing) = Metrics(), os.pipe()
    file = AuditWriter(disk, process="election-1", clock=SystemClock(), metrics=metrics)
    stdout = AuditWriter(
        StandardOutput(writing), process="election-1", clock=SystemClock(), metrics=metrics, destination="stdout"
    )
    both = Audits(file, stdout)
    disk.full = True
    for one in (file, stdout):
        one.start()
    both.mutated(ALICE, "AdminService/CreateTopics", [Mutated(resource="topic:a")])
    both.denied(ALICE, Operation.CREATE, ResourceType.TOPIC, "c", rule="none", call="AdminService/CreateTopics")
    wrong = RegnumError(errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED, "a wrong token")
    both.unauthenticated(Caller(principal=NOBODY, host="10.0.0.9"), wrong, call="")
    for one in (file, stdout):
        await one.close()
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        lines = [json.loads(line) for line in told]
    assert [(line["event"], line["client_host"]) for line in lines] == [
        ("mutated", "10.0.0.7"),
        ("denied", "10.0.0.7"),
        ("unauthenticated", "10.0.0.9"),
    ]
    assert counted(metrics, "regnum.audit.dropped") == {("disk", "file"): 3}
    assert counted(metrics, "regnum.audit.lines") == {
        ("mutated", "stdout"): 1,
        ("denied", "stdout"): 1,
        ("unauthenticated", "stdout"): 1,
    }


class FakeExporter:
    """A collector that takes what it is sent, or does not."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, object]] = []
        self.takes = True

    def export(self, batch: list[ReadableLogRecord], /) -> LogRecordExportResult:
        if not self.takes:
            return LogRecordExportResult.FAILURE
        self.bodies += [json.loads(str(one.log_record.body)) for one in batch]
        assert {one.resource.attributes["service.instance.id"] for one in batch} == {"3"}
        return LogRecordExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing to hang up."""


def test_a_collector_gets_each_line_as_a_log_record_and_one_that_takes_none_is_a_loss() -> None:
    exporter = FakeExporter()
    sink = CollectorLogs(
        exporter, service="regnum-broker", instance="3", event="regnum.audit", wall_ms=FakeClock().wall_ms
    )
    lines = [rendered(refusal(name), at_ms=0, process="broker-3") for name in ("a", "b")]
    sink.append(b"".join(lines))
    assert exporter.bodies == [json.loads(line) for line in lines]
    exporter.takes = False
    with pytest.raises(OSError, match="did not take them"):
        sink.append(lines[0])


def test_otlp_without_a_collector_refuses_the_start() -> None:
    told = ServiceSettings(coordination="memory://x", audit_log_export="otlp", _cli_parse_args=[])
    with pytest.raises(StartRefusedError, match="OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"):
        open_audit_log(told, "x-1", supervisor=Supervisor("t"), clock=FakeClock(), metrics=Metrics(), environ={})


async def test_without_a_setting_nothing_is_kept(tmp_path: Path) -> None:
    told = ServiceSettings(coordination="memory://x", _cli_parse_args=[])
    log = open_audit_log(told, "x", supervisor=Supervisor("t"), clock=FakeClock(), metrics=Metrics())
    before = threading.active_count()
    log.mutated(ALICE, "AdminService/CreateTopics", [Mutated(resource="topic:a")])
    log.denied(ALICE, Operation.CREATE, ResourceType.TOPIC, "c", rule="none", call="x")
    assert threading.active_count() == before


async def test_what_succeeds_is_in_the_file_while_the_process_lives(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    supervisor = Supervisor("test")
    told = ServiceSettings(coordination="memory://x", audit_log=path, _cli_parse_args=[])
    log = open_audit_log(told, "election-1", supervisor=supervisor, clock=SystemClock(), metrics=Metrics())
    began_ms = time.time_ns() // 1_000_000
    log.mutated(ALICE, "AdminService/CreateTopics", [Mutated(resource="topic:a")], client_id="cli")
    await eventually(lambda: _done(len(lines_of(path)) == 1))
    log.denied(ALICE, Operation.CREATE, ResourceType.TOPIC, "c", rule="none", call="x")
    denied = tmp_path / "audit.log.denied"
    await eventually(lambda: _done(len(lines_of(denied)) == 1), what="a refusal is written when its second is over")
    await supervisor.unwind()
    assert lines_of(path)[0]["client_id"] == "cli"
    assert str(lines_of(path)[0]["time"]) >= time.strftime("%Y-%m-%dT%H:%M", time.gmtime(began_ms / 1000))


async def test_a_destination_that_fails_in_a_way_of_its_own_costs_lines_and_not_the_thread(disk: Disk) -> None:
    class Odd(Disk):
        def append(self, lines: bytes) -> None:
            if self.full:
                raise ValueError("not what a sink says")
            super().append(lines)

    metrics, odd = Metrics(), Odd()
    odd.full = True
    log = audit_on(odd, metrics)
    log.mutated(ALICE, "AdminService/CreateTopics", [Mutated(resource="topic:lost")])
    await eventually(lambda: _done(counted(metrics, "regnum.audit.dropped") == {("disk", "file"): 1}))
    odd.full = False
    log.mutated(ALICE, "AdminService/CreateTopics", [Mutated(resource="topic:after")])
    await log.close()
    assert [(line["event"], line["count"]) for line in odd.lines] == [("missed", 1), ("mutated", 1)]
