"""Sessions of a whole cluster ended in a row: everybody is back in time, there is one controller, nothing is lost."""

from pathlib import Path

import pytest
from regnum_testing.expiries import BACK_WITHIN_S, FOLDERS, run

pytestmark = [pytest.mark.integration, pytest.mark.full]

SEED = 3
"""The victims of this seed are controllers, other election processes, brokers, metadata and quota processes."""


@pytest.mark.parametrize("name", ["etcd", "zookeeper"])
async def test_expired_sessions_are_replaced_in_time(tmp_path: Path, name: str) -> None:
    expiries, verdict = await run(tmp_path / "data", coordination=name, count=8, seed=SEED)
    assert verdict.clean, verdict
    assert len(expiries) == 8
    assert max(expiry.back_s for expiry in expiries) <= BACK_WITHIN_S
    assert any(expiry.was_controller for expiry in expiries)
    assert {expiry.path.rsplit("/", 1)[0] for expiry in expiries} == set(FOLDERS)
