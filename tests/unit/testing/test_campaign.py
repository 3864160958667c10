"""A campaign can fail: processes that share no store, and processes that do not start."""

from pathlib import Path

import pytest
from regnum_service.clock import SystemClock
from regnum_testing.linearizability.campaign import CampaignFailedError, Plan, run_campaign
from regnum_testing.linearizability.nemesis import Fault, Harm, Victims
from regnum_testing.linearizability.targets import Target

PEACE = Fault(harm=Harm.PAUSE, victims=Victims.LEADER, lasting_s=0.5, calm_s=0.5)


class UnharmedTarget(Target):
    """An address; nothing is done to what is there."""

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self) -> str:
        return self._url

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def leader(self) -> int:
        return 0

    def kill(self, member: int) -> None:
        pass

    def launch(self, member: int) -> None:
        pass

    def pause(self, member: int) -> None:
        pass

    def resume(self, member: int) -> None:
        pass

    def wait_until_serving(self, member: int) -> None:
        pass


async def test_two_stores_instead_of_one_are_found_out(tmp_path: Path) -> None:
    """A memory store lives in one process: two processes are what a split brain looks like."""
    plan = Plan(seed=1, faults=[PEACE], processes=2)
    result = await run_campaign(UnharmedTarget("memory://split"), tmp_path, plan, SystemClock())
    assert not result.verdict.is_linearizable
    assert not result.verdict.undecided
    assert "not linearizable: /node-" in str(result)


async def test_one_store_is_accepted(tmp_path: Path) -> None:
    plan = Plan(seed=1, faults=[PEACE], processes=1)
    result = await run_campaign(UnharmedTarget("memory://whole"), tmp_path, plan, SystemClock())
    assert result.verdict.is_linearizable, str(result)
    assert result.verdict.operations > 20


async def test_clients_that_do_not_start_are_no_history(tmp_path: Path) -> None:
    plan = Plan(seed=1, faults=[PEACE], processes=1)
    with pytest.raises(CampaignFailedError, match=r"clients did not start; see .*clients0\.log"):
        await run_campaign(UnharmedTarget("nowhere://"), tmp_path, plan, SystemClock())
    assert "no driver" in (tmp_path / "clients0.log").read_text(encoding="utf-8")
