"""The command: what it refuses, what it runs, how it ends."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from regnum_bench.command import main
from regnum_bench.hop import hop


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    "words",
    [
        ("failover", "--brokers", "2"),
        ("failover", "--replication-factor", "1"),
        ("failover", "--with-controller", "1", "--elections", "1"),
        ("succession", "--elections", "1"),
        ("storm", "--beside", "peer {topic}"),
        ("storm", "--kill", "1"),
        ("storm", "--join"),
        ("storm", "--quota", "5", "--kill", "1", "--brokers", "2", "--replication-factor", "2"),
        ("reassignment", "--brokers", "3"),
        ("reassignment", "--rate", "0"),
        ("reassignment", "--size-mb", "0.5"),
        ("growth", "failover", "--over", "partitions_total", "--sizes", "15,30"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--work", str(tmp_path)]) == 2
    assert "starting" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("growth", "storm", "--over", "topics", "--sizes", "500"),
        ("growth", "storm", "--over", "kills", "--sizes", "1,2"),
        ("failover", "--kills", "3"),
        ("storm", "--flag", "nobody:--x"),
        ("storm", "--match", "a"),
        (),
    ],
)
def test_options_that_a_benchmark_does_not_have_are_wrong_use(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


def test_the_table_of_a_folder_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "No results yet.\n"
    (tmp_path / "x.json").write_text("{}")
    assert main(["table", str(tmp_path)]) == 2


def test_a_piece_is_not_added_to_a_file_that_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "storm-zookeeper-mine.json").write_text("{}")
    words = ["storm", "--coordination", "zookeeper", "--label", "mine", "--join", "--save", str(tmp_path)]
    assert main(words) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["storm-zookeeper-mine.json"]


async def test_a_raw_hop_takes_and_gives_what_it_is_asked_for() -> None:
    async with hop() as raw:
        await raw.take(bytes(100_000), 10.0)
        assert len(await raw.give(100_000, 10.0)) == 100_000
