"""Ten figures beside those of the last release and of another program."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from regnum_bench.benchmarks import BY_NAME
from regnum_bench.command import main
from regnum_bench.figures import Spread
from regnum_bench.result import Beside, Result, ResultError, save
from regnum_bench.shape import Shape, fill
from regnum_bench.sizes import jobs
from regnum_bench.ten import PEERS, TEN, Released, ten_table
from rich.console import Console

MACHINE = {"cpus": 2, "cpu": "one"}


def series(value: float, **changed: Any) -> list[Result]:
    """All results that the ten come from, each figure of this value."""
    names = {one.benchmark: {two.figure for two in TEN if two.benchmark == one.benchmark} for one in TEN}
    return [
        replace(
            Result(
                benchmark=benchmark,
                shape=Shape().to_json(),
                figures={name: Spread(values=(value,)) for name in figures},
                machine=MACHINE,
                at="2026-01-01T00:00:00+00:00",
            ),
            **changed,
        )
        for benchmark, figures in names.items()
    ]


def shown(results: list[Result], released: Released | None) -> str:
    console = Console(width=160)
    with console.capture() as captured:
        console.print(ten_table(results, released))
    return captured.get()


def test_the_ten_are_of_the_series_that_make_bench_runs() -> None:
    assert len(TEN) == 10
    quick = {f"{job.benchmark}-{job.shape.coordination}" for job in jobs("quick", stores=("etcd",)) if not job.label}
    assert {one.result for one in TEN} <= quick
    assert all(one.figure in BY_NAME[one.benchmark].headline for one in TEN)


def test_now_beside_the_last_release(tmp_path: Path) -> None:
    path = tmp_path / "released.json"
    path.write_text(Released.of(series(4.0), "0.2.0").to_text())
    released = Released.read(path)
    assert released == Released.of(series(4.0), "0.2.0")
    text = shown(series(2.0), released)
    assert "0.2.0" in text
    assert text.count("0.50") == 10
    assert "peer" not in text
    assert "another machine" not in text
    assert "another machine" in shown(series(2.0, machine={"cpus": 8, "cpu": "one"}), released)


def test_without_a_release_the_table_says_what_writes_its_figures(tmp_path: Path) -> None:
    assert Released.read(tmp_path / "none") is None
    assert "make bench-release" in shown(series(2.0), None)


def test_a_peer_has_columns_where_it_did_the_work() -> None:
    results = series(2.0)
    spread = {"from_kill_s": Spread(values=(8.0,))}
    peer = Beside(command=("peer", "x"), figures=spread, pass_s=(1.0,), ratios={"from_kill_s": 0.25})
    text = shown([replace(results[0], beside=peer), *results[1:]], None)
    row = next(line for line in text.splitlines() if TEN[0].work in line)
    assert row.split()[-4:-1] == ["8", "│", "0.25"]


def test_a_void_or_missing_figure_is_none_of_a_release() -> None:
    with pytest.raises(ResultError, match="is void"):
        Released.of(series(2.0, void=("busy",)), "0.2.0")
    with pytest.raises(ResultError, match=r"run the whole series first \(make bench\)"):
        Released.of(series(2.0)[1:], "0.2.0")
    assert "(void)" in shown(series(2.0, void=("busy",)), None)


def test_a_file_that_is_none_of_a_release_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "released.json"
    path.write_text('{"release": "1"}')
    with pytest.raises(ResultError, match="no figures of a release"):
        Released.read(path)


def test_peers_are_asked_for_what_the_shape_says() -> None:
    for job in jobs("quick", stores=("etcd",)):
        if (peer := PEERS.get(job.benchmark)) is not None:
            assert "{" not in " ".join(fill(f"peer {peer.words}", job.shape))
            assert set(peer.pairs) <= set(BY_NAME[job.benchmark].headline)


def test_the_command_writes_the_figures_of_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bench").mkdir()
    monkeypatch.chdir(tmp_path)
    for result in series(3.0):
        save(result, tmp_path / "bench/results/quick")
    assert main(["ten", "--release"]) == 0
    released = Released.read(tmp_path / "bench/released.json")
    assert released is not None
    assert released.medians["outage-etcd"] == {"gap_s": 3.0}
    assert main(["ten", str(tmp_path / "nothing")]) == 0
