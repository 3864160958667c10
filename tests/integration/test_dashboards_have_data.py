"""Every query of every dashboard, asked of a real Prometheus that watched two clusters while much happened in one."""

import shutil
from pathlib import Path

import pytest
from regnum_testing.dashboards.scenario import play, two_clusters

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(1_200),
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="no prometheus here (Debian: apt-get install prometheus)"
    ),
]


async def test_every_query_has_data_or_a_reason_and_clusters_do_not_mix(tmp_path: Path) -> None:
    async with two_clusters(tmp_path) as (one, other):
        assert await play(one, other, tmp_path) == []
    assert "NO REASON" not in (tmp_path / "queries.txt").read_text()
