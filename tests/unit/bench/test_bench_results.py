"""Results: what a file must hold, what tables and plots make of it, what a peer may print."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from regnum_bench.benchmarks import HEADLINES
from regnum_bench.figures import Spread
from regnum_bench.growth import Growth
from regnum_bench.peer import read_figures, run_peer
from regnum_bench.plot import draw
from regnum_bench.result import Result, ResultError, beside, joined, load, save
from regnum_bench.shape import Shape
from regnum_bench.tables import (
    BEGIN,
    END,
    END_SHORT,
    SHORT,
    figures_table,
    markdown,
    number,
    read_folder,
    short,
    with_figures,
)
from regnum_bench.waiting import MeasureError
from rich.console import Console

RESULTS = Path(__file__).parents[3] / "bench" / "results"
PAGE = RESULTS / "README.md"
GROWTH = Growth(figure="from_kill_s", size="affected", sizes=(1_000, 20_000), medians=(0.3, 4.0))


def result(**changed: object) -> Result:
    ours = {"from_kill_s": Spread(values=(0.5, 0.4, 0.6)), "leaders_moved": Spread(values=(10, 10, 10))}
    peer = beside(
        ours,
        command=("peer", "failover"),
        theirs={"from_kill_s": Spread(values=(20.0,)), "start_s": Spread(values=(3.0,))},
        pairs={},
        pass_s=(60.0,),
        said={"version": "3.9"},
    )
    values: dict[str, object] = {
        "benchmark": "failover",
        "shape": Shape().to_json(),
        "figures": ours,
        "beside": peer,
        "notes": ("a note",),
        "command": "regnum-bench failover",
        "machine": {"cpus": 2, "cpu": "one", "kernel": "Linux", "python": "3.11"},
        "commit": {"id": "abc", "dirty": True},
        "at": "2026-01-01T00:00:00+00:00",
        "duration_s": 12.0,
        "pass_s": (11.0,),
        "load_average": {"before": [0.1, 0.2, 0.3], "after": [1.0, 1.0, 1.0]},
    }
    return Result(**{**values, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize("one", [result(), result(beside=None), result(growth=(GROWTH,))])
def test_a_result_comes_back_from_its_file_as_it_was(one: Result, tmp_path: Path) -> None:
    assert load(save(one, tmp_path)) == one


def none_of(_figures: object) -> tuple[str, ...]:
    return ()


def test_pieces_of_a_run_are_one_result_that_is_judged_as_a_whole() -> None:
    shape = Shape(repetitions=3).to_json()
    first = result(beside=None, shape=shape, complaints=("too few to say",))
    second = result(
        beside=None,
        shape={**shape, "repetitions": 2},
        figures={"from_kill_s": Spread(values=(0.7, 0.8)), "leaders_moved": Spread(values=(10, 10))},
        at="2026-01-01T00:05:00+00:00",
        load_average={"before": [2.0, 2.0, 2.0], "after": [3.0, 3.0, 3.0]},
        pass_s=(5.0,),
    )
    whole = joined(first, second, lambda figures: (f"{len(figures['from_kill_s'].values)} values",))
    assert whole.figures["from_kill_s"].values == (0.5, 0.4, 0.6, 0.7, 0.8)
    assert whole.shape["repetitions"] == 5
    assert whole.complaints == ("5 values",)
    assert (whole.at, whole.duration_s, whole.pass_s) == (first.at, 24.0, (11.0, 5.0))
    assert whole.load_average == {"before": [0.1, 0.2, 0.3], "after": [3.0, 3.0, 3.0]}
    assert whole.name == first.name


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (result(beside=None, shape=Shape(brokers=9).to_json()), "another work"),
        (result(beside=None, label="other"), "another work"),
        (result(beside=None, machine={"cpus": 64}), "another machine"),
        (result(beside=None, commit={"id": "def", "dirty": True}), "another code"),
        (result(), "with a peer"),
        (result(beside=None, growth=(GROWTH,)), "cannot be joined"),
    ],
)
def test_what_is_not_of_the_same_work_machine_and_code_is_not_joined(other: Result, why: str) -> None:
    with pytest.raises(ResultError, match=why):
        joined(result(beside=None), other, none_of)


def test_results_of_different_stores_and_growths_have_files_of_their_own(tmp_path: Path) -> None:
    for one in (result(), result(shape=Shape(coordination="zookeeper").to_json()), result(growth=(GROWTH,))):
        save(one, tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["failover-etcd.json", "failover-zookeeper.json", "growth-failover-affected-etcd.json"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema": 2}', '{"schema": 1}'])
def test_what_is_no_result_is_refused_by_name(content: str, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(ResultError, match=r"x\.json"):
        load(file)


def test_every_published_result_can_be_read() -> None:
    found = read_folder(RESULTS)
    assert {one.benchmark for one in found} >= {"write_batch"}
    assert all(one.name in markdown([one]) for one in found)


def test_the_figures_of_the_page_are_those_of_the_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_figures(page, read_folder(RESULTS), HEADLINES) == page, f"regnum-bench table --into {PAGE.name}"


def test_figures_of_a_page_are_replaced_and_the_rest_of_it_stays() -> None:
    page = f"before\n{SHORT}\nold\n{END_SHORT}\nbetween\n{BEGIN}\nold\n{END}\nafter\n"
    once = with_figures(page, [result()], HEADLINES)
    assert once.startswith("before\n")
    assert f"{END_SHORT}\nbetween\n{BEGIN}" in once
    assert once.endswith(f"{END}\nafter\n")
    assert "old" not in once
    assert with_figures(once, [result()], HEADLINES) == once
    for lacking in ("nothing", page.replace(END_SHORT, ""), page.replace(BEGIN, "")):
        with pytest.raises(ResultError, match="no place for figures"):
            with_figures(lacking, [], HEADLINES)


def test_in_short_are_the_figures_that_speak_with_the_worst_value_and_what_a_peer_needs() -> None:
    speed = {"produce_mb_s": Spread(values=(50.0, 40.0, 60.0)), "produce_s": Spread(values=(1.0,))}
    rows = short([result(), result(benchmark="traffic", figures=speed, beside=None, void=("busy",))], HEADLINES)
    table = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows.splitlines()[2:]]
    assert [row[0] for row in table] == [
        "[failover-etcd](failover-etcd.svg)",
        "[traffic-etcd](traffic-etcd.svg)",
    ]
    assert table[0][2:] == ["from_kill_s (s)", "0.5", "0.6", "3", "20", "0.03"]
    assert table[1][2:] == ["produce_mb_s (MB/s)", "50", "40", "3 (void)", "", ""]


def test_the_ratio_is_in_the_tables() -> None:
    assert result().beside is not None
    console = Console(width=200, record=True, file=None, quiet=True)
    console.print(figures_table(result()))
    row = next(line for line in markdown([result()]).splitlines() if "from_kill_s" in line)
    assert [cell.strip() for cell in row.split("|")][5:11] == ["0.5", "0.4", "0.6", "3", "20", "0.03"]


def test_markdown_says_on_what_it_was_measured_and_whether_the_code_was_changed() -> None:
    text = markdown([result(), result(growth=(GROWTH,))])
    assert "commit abc, with changes" in text
    assert "| failover | etcd | from_kill_s | affected | 1,000, 20,000 | 0.3, 4 |" in text
    assert "linear" in text


@pytest.mark.parametrize(("value", "text"), [(0.41234, "0.412"), (12.3456, "12.35"), (12345.6, "12,346"), (0, "0")])
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_the_last_object_that_a_peer_prints_holds_its_figures() -> None:
    last = {"brokers": 3, "from_kill_s": 2, "ok": True, "version": "3.9", "then": {"up_s": 4}}
    figures, said = read_figures(f'starting\n{{"early": 1}}\n{json.dumps(last)}\nbye\n', {"brokers": 3})
    assert figures == {"from_kill_s": 2.0, "then_up_s": 4.0}
    assert said == {"brokers": 3, "ok": True, "version": "3.9"}


@pytest.mark.parametrize("printed", ["", "nothing\n", "[1]\n", '{"version": "3.9"}\n'])
def test_a_peer_without_figures_is_no_peer(printed: str) -> None:
    with pytest.raises(MeasureError, match=r"no line|no figures"):
        read_figures(printed, {})


async def test_a_peer_that_fails_or_hangs_is_named() -> None:
    assert json.loads(await run_peer([sys.executable, "-c", "print('{\"a\": 1}')"], within_s=30)) == {"a": 1}
    with pytest.raises(MeasureError, match="status 3"):
        await run_peer([sys.executable, "-c", "raise SystemExit(3)"], within_s=30)
    with pytest.raises(MeasureError, match="did not end within"):
        await run_peer([sys.executable, "-c", "import time; time.sleep(600)"], within_s=0.2)
    with pytest.raises(MeasureError, match="cannot run"):
        await run_peer(["/no/such/program"], within_s=1)


@pytest.mark.parametrize("one", [result(), result(growth=(GROWTH,))])
def test_a_plot_is_one_file_that_needs_no_other(one: Result, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    text = draw(one, tmp_path / "one.svg").read_text()
    root = ET.fromstring(text)  # noqa: S314 - our own
    assert root.tag.endswith("svg")
    assert not [value for item in root.iter() for name, value in item.items() if "href" in name and value[0] != "#"]
    again = draw(one, tmp_path / "again.svg").read_text()
    assert again == text


def test_lines_of_kafkas_performance_tools_are_figures_in_megabytes_of_ten_to_the_sixth() -> None:
    produced = (
        "1500000 records sent, 19660.5 records/sec (18.75 MB/sec), 1606.51 ms avg latency, 6034.00 ms max latency,"
        " 1381 ms 50th, 3909 ms 95th, 5871 ms 99th, 5990 ms 99.9th."
    )
    heads = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms"
    consumed = (
        "2026-11-22 10:00:00:000, 2026-11-22 10:00:09:000, 1430.5115, 158.9457, 1500000, 166666.6667, 4000, 5000,"
        " 286.1023, 300000.0000"
    )
    printed = json.dumps({"produce_rf3": produced, "consume_rf3": [heads, consumed], "other": ["text", 1], "s": 1.5})
    figures, said = read_figures(printed, {})
    assert figures == pytest.approx(
        {
            "produce_rf3_mb_s": 19.6608,
            "produce_rf3_p50_ms": 1381,
            "produce_rf3_p99_ms": 5871,
            "produce_rf3_max_ms": 6034,
            "consume_rf3_mb_s": 166.6666,
            "consume_rf3_fetch_mb_s": 300.0,
            "s": 1.5,
        },
        rel=1e-4,
    )
    assert said["produce_rf3"] == produced
