"""From the last release to this one, back, and up again, under load; what does not fit is refused."""

import sys
from pathlib import Path

import pytest
from regnum_testing.upgrades.judging import PASSED_ON_MIN, Upgrade
from regnum_testing.upgrades.release import ReleaseError, newest_tag, unpack


@pytest.mark.full
async def test_a_cluster_is_upgraded_and_taken_back_under_load(tmp_path: Path) -> None:
    try:
        ref = await newest_tag()
    except ReleaseError as error:
        pytest.skip(str(error))
    old = tmp_path / "old"
    old.mkdir()
    upgrade = Upgrade(tmp_path / "cluster", await unpack(ref, old, python=sys.executable), coordination="etcd")
    found = await upgrade.run()
    assert not found.faults, found.to_json()
    assert found.acknowledged > 1_000
    assert found.changes > 10
    assert found.passed_on > PASSED_ON_MIN
    assert len(found.stalls_s) == 30, "ten processes, three times"
    assert set(found.words) >= {"raising over quota 99", "lowering", "broker-3 under protocol 3"}
