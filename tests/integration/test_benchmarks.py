"""The benchmarks run, and say what they found; their figures are for a quiet machine and are not tested."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.integration
async def test_write_batch_measures_and_finds_the_one_conflict(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "regnum_bench", "write_batch", "--writes", "400", "--rounds", "1", "-o", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "bench")}
    done = await asyncio.to_thread(
        subprocess.run, [*command, "--save", str(tmp_path)], env=environment, capture_output=True, text=True, timeout=90
    )
    assert done.returncode in {0, 1}, done.stderr
    report = json.loads(done.stdout)
    (result,) = report["results"]
    assert (result["store"], result["writes"], result["conflicts"]) == ("etcd", 400, 1)
    assert len(result["yardsticks"]) == 2
    assert result["ratio"] == pytest.approx(result["ours"]["median_s"] / result["yardsticks"][0]["median_s"], rel=0.05)
    assert json.loads((tmp_path / "write_batch-etcd.json").read_text()) == report
