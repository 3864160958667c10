"""Processor time by kind of process, from what the kernel tells."""

import os
import time
from pathlib import Path

import pytest
from regnum_bench.processor_time import OWN, ProcessorTime

TICKS = os.sysconf("SC_CLK_TCK")


def _written(
    folder: Path, *, busy_s: int, idle_s: int, processes: dict[int, tuple[int, int]], stolen_s: int = 0
) -> Path:
    folder.mkdir()
    half = busy_s * TICKS // 2
    (folder / "stat").write_text(
        f"cpu  {half} 0 {half} {idle_s * TICKS - 3} 3 0 0 {stolen_s * TICKS} 99 99\ncpu0 1 2 3\n"
    )
    for pid, (user_s, system_s) in processes.items():
        (folder / str(pid)).mkdir()
        ticks = f"{user_s * TICKS} {system_s * TICKS}"
        (folder / str(pid) / "stat").write_text(f"{pid} (a (b) c) S 1 1 1 0 -1 4194560 1 0 0 0 {ticks} 0 0 20 0 1 0\n")
    return folder


def test_what_is_spent_is_added_up_by_kind_and_set_beside_all_processors(tmp_path: Path) -> None:
    processes = [("broker", 7), ("broker", 8), ("etcd", 9), ("election", 10)]
    before = ProcessorTime.of(
        processes,
        _written(tmp_path / "1", busy_s=10, idle_s=100, processes={7: (1, 1), 8: (5, 0), 9: (2, 0), 10: (3, 3)}),
    )
    after = ProcessorTime.of(
        processes, _written(tmp_path / "2", busy_s=16, idle_s=102, processes={7: (2, 2), 8: (6, 0), 9: (2, 0)})
    )
    figures = after.since(before, "create")
    own = figures.pop(f"create_cpu_{OWN}_s")
    assert 0 <= own < 5
    assert figures == {
        "create_cpu_broker_s": 3.0,
        "create_cpu_etcd_s": 0.0,
        "create_busy_ratio": pytest.approx(0.75),
        "create_stolen_ratio": 0.0,
    }


def test_what_other_machines_took_is_nobody_s_work(tmp_path: Path) -> None:
    """The same creation took 13 and 24 s within a quarter of an hour, and the processors seemed busy both times."""
    before = ProcessorTime.of([], _written(tmp_path / "1", busy_s=10, idle_s=100, processes={}, stolen_s=5))
    after = ProcessorTime.of([], _written(tmp_path / "2", busy_s=12, idle_s=103, processes={}, stolen_s=10))
    figures = after.since(before, "create")
    assert figures["create_busy_ratio"] == pytest.approx(0.2)
    assert figures["create_stolen_ratio"] == pytest.approx(0.5)
    assert after.others_ratio(before) == pytest.approx(0.7, abs=0.05)


def test_what_nobody_asked_for_was_spent_by_others(tmp_path: Path) -> None:
    processes = [("etcd", 9)]
    before = ProcessorTime.of(processes, _written(tmp_path / "1", busy_s=10, idle_s=100, processes={9: (2, 0)}))
    after = ProcessorTime.of(processes, _written(tmp_path / "2", busy_s=18, idle_s=102, processes={9: (4, 1)}))
    # Of ten seconds two were idle and three the server's; this process took a moment.
    assert after.others_ratio(before) == pytest.approx(0.5, abs=0.05)
    assert ProcessorTime.of(processes, tmp_path).others_ratio(ProcessorTime.of(processes, tmp_path)) == 0.0


def test_a_machine_that_tells_nothing_has_no_figures_but_our_own(tmp_path: Path) -> None:
    before = ProcessorTime.of([("broker", 7)], tmp_path)
    assert set(ProcessorTime.of([("broker", 7)], tmp_path).since(before, "x")) == {f"x_cpu_{OWN}_s"}


def test_this_process_is_found_where_it_works() -> None:
    before = ProcessorTime.of([("me", os.getpid())])
    began_s = time.process_time()
    while time.process_time() < began_s + 0.4:
        pass
    figures = ProcessorTime.of([("me", os.getpid())]).since(before, "x")
    assert figures["x_cpu_me_s"] >= 0.2, "the kernel counts ticks"
    assert figures[f"x_cpu_{OWN}_s"] >= 0.4
    assert 0 < figures["x_busy_ratio"] <= 1
