"""How often a broker records something in its metrics: counted, since a time would depend on the machine.

What one recording takes, and the share that all of them are of a batch's time, is measured by
``python -m regnum_testing.recording_cost``.
"""

from pathlib import Path

import pytest
from regnum_testing.recording_cost import recordings_of_a_call

CALL = (2, 3)
"""Additions and values of one call: records, bytes; its duration, its job's wait and run."""


@pytest.mark.parametrize("partitions", [1, 7, 150])
async def test_a_produce_call_records_five_times_and_once_for_each_batch_of_it(tmp_path: Path, partitions: int) -> None:
    found = await recordings_of_a_call(tmp_path, partitions=partitions)
    assert (found.additions, found.values) == CALL
    assert found.topics == partitions
    assert found.total == 5 + partitions
