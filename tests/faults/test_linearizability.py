"""Compare-and-set from several processes while members of a real three-node store are killed and paused.

The short form; ``python -m regnum_testing.linearizability campaign`` is the long one, and other judges can be asked
about its histories.
"""

from pathlib import Path

import pytest
from regnum_service.clock import SystemClock
from regnum_testing.linearizability.campaign import Plan, run_campaign
from regnum_testing.linearizability.history import read_history
from regnum_testing.linearizability.nemesis import Fault, Harm, Victims
from regnum_testing.linearizability.register import Action, Outcome
from regnum_testing.linearizability.targets import TARGETS, make_target
from regnum_testing.suite.harm import unharmed

pytestmark = pytest.mark.full

FAULTS = (
    Fault(harm=Harm.KILL, victims=Victims.LEADER, lasting_s=0.5, calm_s=0.3),
    Fault(harm=Harm.PAUSE, victims=Victims.LEADER, lasting_s=3.0, calm_s=0.3),
    Fault(harm=Harm.PAUSE, victims=Victims.MAJORITY, lasting_s=1.0, calm_s=0.5),
)


@pytest.mark.integration
@pytest.mark.parametrize("coordination", TARGETS)
async def test_what_clients_saw_is_explained_by_one_order(coordination: str, tmp_path: Path) -> None:
    target = make_target(coordination, tmp_path)
    try:
        target.start()
        plan = Plan(seed=1, faults=FAULTS, processes=2, operation_timeout_s=1.0)
        result = await run_campaign(target, tmp_path, plan, SystemClock())
    finally:
        target.stop()
    unharmed(not result.verdict.violations, result)
    assert result.verdict.is_linearizable, str(result)
    assert (result.kills, result.pauses) == (1, 3)
    history = list(read_history(result.history))
    written = {one.client for one in history if one.action is Action.SET and one.outcome is Outcome.OK}
    assert len(written) == 6, "every client won a compare-and-set"
    assert any(one.outcome is Outcome.BAD_VERSION for one in history), "clients got into each other's way"
    assert any(one.outcome is Outcome.UNKNOWN for one in history), "the faults were felt"
