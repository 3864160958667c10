"""`regnum consume` and `regnum produce`: where reading begins and ends, and what records look like."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum_client import AtTime, ConsumedRecord, TopicPartition
from regnum_client.commands.records.places import Span, place_of
from regnum_client.commands.records.template import Template
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_testing.command_here import CommandHere
from regnum_testing.fake_cluster import FakeCluster

NOW_MS = 1_700_000_000_000
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("orders", partitions=2)
        yield running


@pytest.fixture
def regnum(cluster: FakeCluster) -> CommandHere:
    return CommandHere(cluster.bootstrap)


def write(cluster: FakeCluster, partition: int, *timestamps_ms: int) -> None:
    """One batch, of a record for each timestamp, whose value is partition.offset."""
    log = cluster.partitions["orders", partition]
    records = [
        NewRecord(
            key=b"k", value=f"{partition}.{log.end + index}".encode(), headers=(("h", b"1"),), timestamp_ms=timestamp
        )
        for index, timestamp in enumerate(timestamps_ms)
    ]
    log.append(build_batch(records, timestamp_ms=0))


def record(offset: int, timestamp_ms: int, partition: int = 0) -> ConsumedRecord:
    return ConsumedRecord("orders", partition, offset, timestamp_ms, None, b"value", ())


def test_places_as_people_write_them() -> None:
    assert [place_of(text, NOW_MS) for text in ("earliest", "begin", "latest", "end", "17")] == [
        "earliest",
        "earliest",
        "latest",
        "latest",
        17,
    ]
    assert [place_of(text, NOW_MS) for text in ("-1h", "90s", "-1.5d", "-60000d")] == [
        AtTime(NOW_MS - 3_600_000),
        AtTime(NOW_MS - 90_000),
        AtTime(NOW_MS - 129_600_000),
        AtTime(0),
    ]
    for text in ("2023-11-14T22:13:20Z", "2023-11-14T23:13:20+01:00", "2023-11-14 22:13:20"):
        assert place_of(text, NOW_MS) == AtTime(NOW_MS)
    for text in ("-0", "soon", "", "\u0661", str(2**63), "1.5", "-h"):
        with pytest.raises(ValueError, match="is no place in a log: give begin, end, an offset"):
            place_of(text, NOW_MS)


def test_a_span_by_time_begins_and_ends_in_the_middle_of_batches() -> None:
    span = Span(not_before_ms=20, before_ms=40, ends={P0: 100, P1: 1})
    wanted = [one.offset for one in (record(number, 10 * number) for number in range(6)) if span.wants(one)]
    assert wanted == [2, 3]
    assert span.finished({P0: 6, P1: 0}) == [P0]
    assert not span.wants(record(7, 25)), "what is older comes again behind the end, and is left out"
    assert span.wants(record(0, 30, partition=1))
    assert not span.is_over
    assert span.finished({P1: 1}) == [P1]
    assert span.is_over


def test_once_begun_older_records_belong_to_the_span() -> None:
    span = Span(not_before_ms=20)
    assert [span.wants(record(0, 10)), span.wants(record(1, 20)), span.wants(record(2, 10))] == [False, True, True]


def test_templates() -> None:
    one = ConsumedRecord("t", 3, 7, 99, b"\xff", None, (("a", b"1"), ("b", None)))
    assert Template(r"%t %p %o %k=%v %h %T %K %V %%\t\x41\\\n").render(one) == b"t 3 7 \xff= a=1,b= 99 1 -1 %\tA\\\n"
    assert Template("über %o").render(one) == "über 7".encode()
    for text in ("%q", "%", "%o \\q", "%o \\", "%o \\x4", "xml", ""):
        with pytest.raises(ValueError, match=r"is not known; use|is neither json nor raw"):
            Template(text)


async def test_from_and_until(regnum: CommandHere, cluster: FakeCluster) -> None:
    write(cluster, 0, 1000, 2000, 3000)
    write(cluster, 0, 4000, 5000)
    write(cluster, 1, 3500, 4500)

    async def values(*arguments: str) -> list[str]:
        ran = await regnum("consume", "orders", *arguments)
        assert ran.status == 0, ran.err
        return sorted(ran.out.split())

    assert await values("--until", "end") == ["0.0", "0.1", "0.2", "0.3", "0.4", "1.0", "1.1"]
    assert await values("--from", "1970-01-01T00:00:02Z", "--until", "1970-01-01T00:00:04") == ["0.1", "0.2", "1.0"]
    assert await values("--from", "1", "--until", "2") == ["0.1", "1.1"]
    assert await values("--from", "begin", "--until", "begin") == []
    assert await values("--from", "-1h", "--until-end") == []
    assert await values("--until", "-1h", "-p", "1") == ["1.0", "1.1"]
    assert await values("-p", "0", "-p", "1", "--from", "1970-01-01T00:00:03", "-n", "2") != []
    assert await values("--from", "end", "--until", "end") == []


async def test_formats(regnum: CommandHere, cluster: FakeCluster) -> None:
    write(cluster, 0, 1000, 2000)

    async def shown(form: str) -> str:
        ran = await regnum("consume", "orders", "-p", "0", "--until", "end", "--format", form)
        assert ran.status == 0, ran.err
        return ran.out

    assert await shown("raw") == "0.00.1"
    assert await shown(r"%p/%o %k=%v %h %T\n") == "0/0 k=0.0 h=1 1000\n0/1 k=0.1 h=1 2000\n"
    assert [json.loads(line)["offset"] for line in (await shown("json")).splitlines()] == [0, 1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "%q"],
        ["--format", "xml"],
        ["--format", "raw", "-o", "json"],
        ["--format", "raw", "-k", ":"],
        ["--until", "2999-01-01"],
        ["--until", "later"],
        ["--until", "5", "--until-end"],
        ["--until", "5", "--follow"],
    ],
)
async def test_what_does_not_go_together_is_wrong_use(regnum: CommandHere, arguments: list[str]) -> None:
    assert (await regnum("consume", "orders", *arguments)).status == 2


async def test_records_are_searched_by_value_key_and_headers(regnum: CommandHere, cluster: FakeCluster) -> None:
    records = [
        NewRecord(key=b"a", value=b"an error (7)", headers=(("source", b"import"),), timestamp_ms=1),
        NewRecord(key=b"b", value=b"no mistake", headers=(("source", b"web"),), timestamp_ms=2),
        NewRecord(value=None, headers=(("empty", None),), timestamp_ms=3),
        NewRecord(key=b"a", value=b"another error", timestamp_ms=4),
    ]
    cluster.partitions["orders", 0].append(build_batch(records, timestamp_ms=0))

    async def found(*options: str) -> list[str]:
        ran = await regnum("consume", "orders", "--until-end", "--format", "%o ", *options)
        assert ran.status == 0, ran.err
        return ran.out.split()

    assert await found("--grep", "err(or)?") == ["0", "3"]
    assert await found("--grep", r"\(7\)") == ["0"]
    assert await found("--key", "a") == ["0", "3"]
    assert await found("--header", "source") == ["0", "1"]
    assert await found("-H", "source=web") == ["1"]
    assert await found("-H", "empty") == ["2"]
    assert await found("--key", "a", "--grep", "another") == ["3"]
    assert await found("--grep", "error", "-n", "1") == ["0"]
    assert await found("--grep", "nowhere") == []
    for wrong in (("--grep", "("), ("--header", "=x")):
        ran = await regnum("consume", "orders", *wrong, "-o", "json")
        assert (ran.status, wrong[0] in str(ran.error["message"])) == (2, True)


async def test_lines_of_a_file_with_headers(regnum: CommandHere, cluster: FakeCluster, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("a:1\nb:2\n")
    options = ["-k", ":", "-H", "source=file", "--header", "empty=", "--compression", "gzip", "-p", "1", "-o", "json"]
    ran = await regnum("produce", "orders", "--file", str(lines), *options)
    assert (ran.status, json.loads(ran.out)["acknowledged"]) == (0, 2)
    shown = await regnum("consume", "orders", "--until", "end", "--format", r"%k %v %h\n")
    assert shown.out == "a 1 source=file,empty=\nb 2 source=file,empty=\n"
    header, _ = cluster.partitions[P1].batches[0]
    assert header.record_count == 2
    assert (await regnum("produce", "orders", "--header", "nothing", "--file", str(lines))).status == 2
    missing = await regnum("produce", "orders", "--file", str(tmp_path / "none"), "-o", "json")
    assert (missing.status, missing.error["code"]) == (1, "SYSTEM_ERROR")
