"""What an order of the controller means for a replica (safety rules S10 and S11)."""

import pytest
from regnum_broker.replication.decisions.orders import Standing, Verdict, judge
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, LogId, TopicId
from regnum_model.nodes import LeaderAndIsr, Membership

ME, OTHER = BrokerId(1), BrokerId(2)
MINE = LogId("mine")


def state(leader: BrokerId, epoch: int, *, log_id: str = "mine") -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id=TopicId("A" * 22),
        leader=leader,
        leader_epoch=LeaderEpoch(epoch),
        isr=(ME, OTHER),
        elr=(),
        members={
            ME: Membership(broker_epoch=BrokerEpoch(1), log_id=LogId(log_id)),
            OTHER: Membership(broker_epoch=BrokerEpoch(2), log_id=LogId("theirs")),
        },
        controller_epoch=ControllerEpoch(1),
    )


def standing(epoch: int = 5, version: int = 3, recorded: int = 5, *, active: bool = True) -> Standing:
    return Standing(
        leader_epoch=LeaderEpoch(epoch), version=version, recorded_epoch=LeaderEpoch(recorded), active=active
    )


FRESH = standing(-1, -1, -1, active=False)


@pytest.mark.parametrize(
    ("before", "leader", "epoch", "version", "verdict"),
    [
        (standing(), OTHER, 4, 9, Verdict.KNOWN),
        (standing(), OTHER, 5, 3, Verdict.SETTINGS_ONLY),
        (standing(), ME, 5, 2, Verdict.SETTINGS_ONLY),
        (standing(active=False), OTHER, 5, 2, Verdict.KNOWN),
        (standing(), OTHER, 5, 4, Verdict.ISR_ONLY),
        (standing(), ME, 5, 4, Verdict.ISR_ONLY),
        (standing(), OTHER, 6, 0, Verdict.NEW_ROLE),
        (standing(), ME, 6, 4, Verdict.NEW_ROLE),
        (FRESH, ME, 0, 0, Verdict.NEW_ROLE),
        (FRESH, OTHER, 0, 0, Verdict.NEW_ROLE),
    ],
)
def test_epochs_and_versions(before: Standing, leader: BrokerId, epoch: int, version: int, verdict: Verdict) -> None:
    assert judge(before, state(leader, epoch), version=version, broker=ME, log_id=MINE) is verdict


@pytest.mark.parametrize("epoch", [6, 7])
def test_a_restarted_broker_never_takes_an_epoch_up_that_its_log_knows(epoch: int) -> None:
    before = standing(-1, -1, 7, active=False)
    assert judge(before, state(ME, epoch), version=9, broker=ME, log_id=MINE) is Verdict.FENCED
    assert judge(before, state(ME, 8), version=9, broker=ME, log_id=MINE) is Verdict.NEW_ROLE


def test_leadership_given_up_does_not_come_back_in_the_same_epoch() -> None:
    before = standing(active=False)
    assert judge(before, state(ME, 5), version=4, broker=ME, log_id=MINE) is Verdict.FENCED


def test_a_stopped_follower_follows_again_in_the_same_epoch() -> None:
    before = standing(active=False)
    assert judge(before, state(OTHER, 5), version=4, broker=ME, log_id=MINE) is Verdict.NEW_ROLE


def test_nobody_leads_with_another_log_than_the_recorded_one() -> None:
    """Trace T1: the directory lost its tail and says so by another log id."""
    assert judge(FRESH, state(ME, 8, log_id="former"), version=1, broker=ME, log_id=MINE) is Verdict.OTHER_LOG


def test_a_follower_may_have_another_log_than_the_recorded_one() -> None:
    assert judge(FRESH, state(OTHER, 8, log_id="former"), version=1, broker=ME, log_id=MINE) is Verdict.NEW_ROLE
