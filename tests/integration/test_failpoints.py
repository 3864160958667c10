"""The controller ends at a step that a test names, and the next one finishes what it had begun.

One step; each step of every change is tried in ``tests/faults``.
"""

from pathlib import Path

import pytest
from regnum_testing.failpoint_cluster import Cut
from regnum_testing.topic_changes import WATCHED, Reassignment, killed_at
from regnum_testing.topic_client import hands_on

pytestmark = [pytest.mark.full, pytest.mark.integration, pytest.mark.timeout(240)]


async def test_a_change_is_finished_by_the_next_controller_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async with hands_on(tmp_path) as hands:
        controller = await hands.failpoints.controller()
        assert "failpoints are on" in (tmp_path / "logs" / f"{controller}.log").read_text()
        # The switch of the first of two partitions, or of both: written, and nobody told.
        assert await killed_at(hands, Reassignment(), Cut(f"step=write path={WATCHED} n=2"), "after", "moved")
